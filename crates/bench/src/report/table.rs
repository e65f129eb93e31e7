//! A report for a terminal.

use std::fmt::Write;

use super::{Figures, Report, Run};

const HEADER: [&str; 12] =
    ["RUN", "OPERATION", "OPS/S", "MB/S", "MEAN", "P50", "P90", "P99", "P99.9", "MAX", "TTFB P50", "ERRORS"];
/// Columns of text; the others are numbers.
const LEFT: usize = 2;

/// Latencies in milliseconds, medians of all rounds.
pub(crate) fn table(report: &Report) -> String {
    let mut rows = vec![HEADER.map(str::to_owned).to_vec()];
    for run in &report.runs {
        rows.extend(run.median.operations.iter().map(|(kind, figures)| row(&run.label(), kind, figures)));
    }
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or_default();
    let widths: Vec<_> = (0..HEADER.len()).map(width).collect();
    let mut text = String::new();
    for row in &rows {
        let cells = row.iter().zip(&widths).enumerate().map(|(column, (cell, width))| match column < LEFT {
            true => format!("{cell:<width$}"),
            false => format!("{cell:>width$}"),
        });
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    report.runs.iter().for_each(|run| text.push_str(&remarks(run)));
    text
}

fn row(label: &str, kind: &str, figures: &Figures) -> Vec<String> {
    let latency = figures.latency_ms;
    let ms = |value: f64| format!("{value:.3}");
    let first_byte = figures.first_byte_ms.map(|first_byte| ms(first_byte.p50)).unwrap_or_default();
    let latencies = [latency.mean, latency.p50, latency.p90, latency.p99, latency.p999, latency.max].map(ms);
    let rates = [format!("{:.1}", figures.operations_per_second), format!("{:.1}", figures.bytes_per_second / 1e6)];
    [label.to_owned(), kind.to_owned()]
        .into_iter()
        .chain(rates)
        .chain(latencies)
        .chain([first_byte, figures.failed().to_string()])
        .collect()
}

/// What it cost, and what failed.
fn remarks(run: &Run) -> String {
    let mut text = String::new();
    let (label, median) = (run.label(), &run.median);
    write!(text, "{label}: generator {:.1} us of processor time for each operation", median.generator_cpu_us)
        .expect("a string takes all");
    if let Some(server) = median.server {
        let (memory, written) = (server.memory_peak_bytes / 1e6, server.written_bytes / 1e6);
        write!(text, "; server {:.1} us, {memory:.1} MB at its peak, wrote {written:.1} MB", server.cpu_us)
            .expect("a string takes all");
        if let Some(amplification) = server.write_amplification {
            write!(text, " ({amplification:.2} for each byte sent)").expect("a string takes all");
        }
        if let Some(amplification) = server.read_amplification {
            write!(text, ", read {amplification:.2} bytes from storage for each that it sent")
                .expect("a string takes all");
        }
    }
    text.push('\n');
    if median.missed > 0 {
        let missed = median.missed;
        writeln!(
            text,
            "{label}: {missed} operations were due and have not begun: the server or the connections do not keep up"
        )
        .expect("a string takes all");
    }
    for (kind, figures) in &median.operations {
        for (code, count) in &figures.errors {
            writeln!(text, "{label}: {kind}: {count} x {code}").expect("a string takes all");
        }
    }
    text
}
