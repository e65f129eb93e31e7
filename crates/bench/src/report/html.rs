//! A report as a single page with charts, which loads nothing else.

use std::fmt::Write;

use quick_xml::escape::escape;

use super::{Report, Run, table};

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 320.0;
/// Space around the area of a chart, for its labels.
const MARGIN: f64 = 60.0;
/// Colours that a reader can tell apart (Okabe and Ito: "Color universal design", 2008). With more lines they repeat.
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];
/// Lines of the grid in each direction.
const GRID: u32 = 5;
const STYLE: &str = "body{font:15px/1.5 system-ui,sans-serif;margin:2em auto;max-width:60em;padding:0 1em;color:#222}\
pre{overflow-x:auto;background:#f6f6f6;padding:1em}svg{width:100%;height:auto}text{font-size:12px;fill:#555}\
table{border-collapse:collapse}td{padding:0 1em 0 0}";

/// One line of a chart.
struct Line {
    name: String,
    points: Vec<(f64, f64)>,
}

/// What an axis shows.
struct Axis {
    name: &'static str,
    /// Marks with their text. `None` spreads them evenly.
    marks: Option<Vec<(f64, &'static str)>>,
}

/// A whole page, which is also well-formed XML.
pub(crate) fn html(report: &Report) -> String {
    let title = format!("forebay-bench {}", escape(&report.workload));
    let settings = report.settings.iter();
    let settings =
        settings.map(|(name, value)| format!("<tr><td>{}</td><td>{}</td></tr>", escape(name), escape(value)));
    let charts = [
        chart("Latency by percentile", &percentile_axis(), &plain("ms"), &latencies(&report.runs)),
        chart(
            "Throughput over time, in the middle round",
            &plain("s"),
            &plain("operations/s"),
            &throughputs(&report.runs),
        ),
        chart(
            "Throughput by connections",
            &plain("connections"),
            &plain("operations/s"),
            &by_connections(&report.runs),
        ),
    ];
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><title>{title}</title><style>{STYLE}</style></head>\n\
         <body><h1>{title}</h1>\n<table>{}</table>\n<p>Latencies are in milliseconds, medians of all rounds.</p>\n<pre>{}</pre>\n\
         {}</body></html>\n",
        settings.collect::<String>(),
        escape(table(report)),
        charts.concat()
    )
}

fn plain(name: &'static str) -> Axis {
    Axis { name, marks: None }
}

/// Each additional nine takes the same space.
fn percentile_axis() -> Axis {
    let marks = [(0.0, "0"), (50.0, "50"), (90.0, "90"), (99.0, "99"), (99.9, "99.9"), (99.99, "99.99")];
    let marks = marks.map(|(percentile, text)| (nines(percentile), text));
    Axis { name: "percentile", marks: Some(marks.to_vec()) }
}

fn nines(percentile: f64) -> f64 {
    // The maximum is drawn a little after the last percentile.
    -(1.0 - percentile / 100.0).max(5e-5).log10()
}

fn latencies(runs: &[Run]) -> Vec<Line> {
    let lines = runs.iter().flat_map(|run| {
        run.median.operations.iter().map(|(kind, figures)| {
            let points = figures.curve_ms.iter().map(|(percentile, ms)| (nines(*percentile), *ms)).collect();
            Line { name: format!("{} {kind}", run.label()), points }
        })
    });
    lines.collect()
}

fn throughputs(runs: &[Run]) -> Vec<Line> {
    let lines = runs.iter().map(|run| {
        let seconds = run.median.slot_seconds;
        let point = |(number, slot): (usize, &crate::record::Slot)| {
            ((number as f64 + 0.5) * seconds, slot.operations as f64 / seconds)
        };
        // The end of the load cuts the last one short.
        let whole = run.median.slots.len().saturating_sub(1).max(1);
        Line { name: run.label(), points: run.median.slots.iter().take(whole).enumerate().map(point).collect() }
    });
    lines.collect()
}

/// One line for each name. The first run of a sweep usually has the fewest connections.
fn by_connections(runs: &[Run]) -> Vec<Line> {
    let mut lines: Vec<Line> = Vec::new();
    for run in runs {
        let point = (run.connections as f64, run.median.operations_per_second);
        match lines.iter_mut().find(|line| line.name == run.name) {
            Some(line) => line.points.push(point),
            None => lines.push(Line { name: run.name.clone(), points: vec![point] }),
        }
    }
    lines
}

fn chart(title: &str, x_axis: &Axis, y_axis: &Axis, lines: &[Line]) -> String {
    let points = || lines.iter().flat_map(|line| &line.points);
    let marks = x_axis.marks.iter().flatten().map(|(at, _)| *at);
    let x_max = points().map(|(x, _)| *x).chain(marks).fold(f64::MIN_POSITIVE, f64::max);
    let y_max = points().map(|(_, y)| *y).fold(f64::MIN_POSITIVE, f64::max);
    let place = |x: f64, y: f64| {
        let (wide, high) = (2.0f64.mul_add(-MARGIN, WIDTH), 2.0f64.mul_add(-MARGIN, HEIGHT));
        (wide.mul_add(x / x_max, MARGIN), high.mul_add(-(y / y_max), HEIGHT - MARGIN))
    };
    let legend = lines.len() as f64 * 18.0;
    let mut svg = format!("<h2>{title}</h2>\n<svg viewBox=\"0 0 {WIDTH} {}\" role=\"img\">", HEIGHT + legend);
    let mut text = |x: f64, y: f64, anchor: &str, text: &str| {
        write!(svg, "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{}</text>", escape(text))
            .expect("a string takes all");
    };
    let shares = (0..=GRID).map(|step| f64::from(step) / f64::from(GRID));
    let even = shares.clone().map(|share| (share * x_max, figure(share * x_max)));
    let x_marks: Vec<(f64, String)> = match &x_axis.marks {
        Some(marks) => marks.iter().map(|(at, text)| (*at, (*text).to_owned())).collect(),
        None => even.collect(),
    };
    let y_marks: Vec<(f64, String)> = shares.map(|share| (share * y_max, figure(share * y_max))).collect();
    x_marks.iter().for_each(|(at, mark)| text(place(*at, 0.0).0, HEIGHT - MARGIN + 18.0, "middle", mark));
    y_marks.iter().for_each(|(at, mark)| text(MARGIN - 8.0, place(0.0, *at).1 + 4.0, "end", mark));
    text(WIDTH / 2.0, HEIGHT - 12.0, "middle", x_axis.name);
    text(MARGIN, MARGIN - 20.0, "start", y_axis.name);
    for (number, line) in lines.iter().enumerate() {
        text(MARGIN + 24.0, (number as f64).mul_add(18.0, HEIGHT + 4.0), "start", &line.name);
    }
    x_marks.iter().for_each(|(at, _)| grid(&mut svg, place(*at, 0.0), place(*at, y_max)));
    y_marks.iter().for_each(|(at, _)| grid(&mut svg, place(0.0, *at), place(x_max, *at)));
    for (number, line) in lines.iter().enumerate() {
        draw(&mut svg, number, line, place);
    }
    svg + "</svg>\n"
}

fn grid(svg: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    write!(svg, "<line x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke=\"#ddd\"/>")
        .expect("a string takes all");
}

/// The line with its colour in the legend. A single point is a dot.
fn draw(svg: &mut String, number: usize, line: &Line, place: impl Fn(f64, f64) -> (f64, f64)) {
    let colour = COLOURS[number % COLOURS.len()];
    let points = line.points.iter().map(|(x, y)| place(*x, *y));
    let path: Vec<_> = points.clone().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
    let y = (number as f64).mul_add(18.0, HEIGHT);
    write!(svg, "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>", path.join(" "))
        .expect("a string takes all");
    for (x, y) in points.chain([(MARGIN + 10.0, y)]) {
        write!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"2.5\" fill=\"{colour}\"/>").expect("a string takes all");
    }
}

/// With about three digits.
fn figure(value: f64) -> String {
    match value {
        value if value >= 100.0 => format!("{value:.0}"),
        value if value >= 1.0 => format!("{value:.1}"),
        value => format!("{value:.3}"),
    }
}
