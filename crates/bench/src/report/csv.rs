//! A report for spreadsheets.

use super::{Figures, Report, Round, Run};

const HEADER: &str = "run,connections,rate,round,operation,count,operations_per_second,bytes_per_second,objects_per_second,failed,\
mean_ms,p50_ms,p90_ms,p99_ms,p999_ms,max_ms,first_byte_p50_ms,first_byte_p99_ms,seconds,missed,generator_cpu_us,server_cpu_us,\
server_memory_peak_bytes,server_written_bytes";

/// A line for each operation of each round, and of the medians.
pub(crate) fn csv(report: &Report) -> String {
    let mut lines = vec![HEADER.to_owned()];
    for run in &report.runs {
        let rounds = run.rounds.iter().enumerate().map(|(number, round)| ((number + 1).to_string(), round));
        for (name, round) in std::iter::once(("median".to_owned(), &run.median)).chain(rounds) {
            lines.extend(round.operations.iter().map(|(kind, figures)| line(run, &name, round, kind, figures)));
        }
    }
    lines.join("\n") + "\n"
}

fn line(run: &Run, name: &str, round: &Round, kind: &str, figures: &Figures) -> String {
    let latency = figures.latency_ms;
    let first_byte = figures.first_byte_ms;
    let server = round.server;
    let number = |value: Option<f64>| value.map(|value| value.to_string()).unwrap_or_default();
    let text = [quoted(&run.name), run.connections.to_string(), number(run.rate), name.to_owned(), kind.to_owned()];
    let numbers = [
        Some(figures.count),
        Some(figures.operations_per_second),
        Some(figures.bytes_per_second),
        Some(figures.objects_per_second),
        Some(figures.failed() as f64),
        Some(latency.mean),
        Some(latency.p50),
        Some(latency.p90),
        Some(latency.p99),
        Some(latency.p999),
        Some(latency.max),
        first_byte.map(|first_byte| first_byte.p50),
        first_byte.map(|first_byte| first_byte.p99),
        Some(round.seconds),
        Some(round.missed as f64),
        Some(round.generator_cpu_us),
        server.map(|server| server.cpu_us),
        server.map(|server| server.memory_peak_bytes),
        server.map(|server| server.written_bytes),
    ];
    text.into_iter().chain(numbers.map(number)).collect::<Vec<_>>().join(",")
}

/// Names of COSBench works may contain anything (RFC 4180).
fn quoted(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}
