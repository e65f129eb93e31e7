use super::*;
use crate::record::Window;
use crate::s3::{Kind, Sample};

/// A load of ten GETs, of 1 to 10 times `factor` milliseconds, and a failed one.
fn measured(factor: u64) -> Measured {
    let slot = Duration::from_millis(100);
    let mut recorded = Recorded::new(Window { from: Duration::ZERO, until: None, slot });
    for number in 0..=10 {
        let end = Duration::from_millis(number * factor);
        recorded.add(Sample {
            kind: Kind::Get,
            begin: Duration::ZERO,
            end,
            first_byte: Some(end / 2),
            bytes: 1000,
            objects: 1,
            error: (number == 0).then(|| "<SlowDown & co>".to_owned()),
        });
    }
    let own_cpu = Duration::from_micros(20 * factor);
    Measured { recorded, elapsed: Duration::from_secs(2), slot, missed: 1, own_cpu }
}

/// A report of two runs, of three rounds each.
pub(crate) fn report() -> Report {
    let used = |seconds: u64| Usage {
        cpu: Duration::from_secs(seconds),
        memory_peak: 5 << 20,
        written: 1 << 20,
        read: 11 << 10,
    };
    let rounds = || [30, 10, 20].map(|factor| Round::new(&measured(factor), Some((used(1), used(2))))).to_vec();
    Report {
        version: "0",
        workload: "get <&>".to_owned(),
        started_unix_ms: 0,
        settings: BTreeMap::from([("bucket".to_owned(), "<b&\"c\">".to_owned())]),
        runs: vec![
            Run::new("get <&>".to_owned(), 1, None, rounds()),
            Run::new("get <&>".to_owned(), 4, Some(5.0), rounds()),
        ],
    }
}

#[test]
fn medians_are_of_each_number_and_errors_are_summed() {
    let report = report();
    let median = &report.runs[0].median;
    let get = &median.operations["GET"];
    assert_eq!((get.count, get.operations_per_second, get.bytes_per_second), (10.0, 5.0, 5000.0));
    assert!((get.latency_ms.max - 200.0).abs() < 0.5, "{get:?}");
    assert!((get.latency_ms.p50 - 100.0).abs() < 0.5, "{get:?}");
    assert!((get.first_byte_ms.unwrap().max - 100.0).abs() < 0.5, "{get:?}");
    assert_eq!((get.failed(), median.missed, report.failed()), (3, 3, 6));
    assert!((median.generator_cpu_us - 40.0).abs() < 1e-6);
    let server = median.server.unwrap();
    assert_eq!((server.cpu_us, server.write_amplification, server.read_amplification), (100_000.0, None, Some(0.0)));
    assert_eq!(super::median([4.0, 1.0, 3.0, 2.0].into_iter()), 2.5);
}

#[test]
fn a_report_is_json_with_everything_in_it() {
    let json = serde_json::to_value(report()).unwrap();
    assert_eq!(json["runs"][1]["rate"], 5.0);
    assert_eq!(json["runs"][0]["rounds"].as_array().unwrap().len(), 3);
    assert_eq!(json["runs"][0]["median"]["operations"]["GET"]["errors"]["<SlowDown & co>"], 3);
}

#[test]
fn a_table_has_a_line_for_each_operation_and_names_the_errors() {
    let text = table(&report());
    let lines: Vec<_> = text.lines().collect();
    assert!(lines[0].contains("OPS/S") && lines[0].contains("P99.9"), "{text}");
    assert_eq!(lines.iter().filter(|line| line.contains("GET")).count(), 4, "{text}");
    assert!(text.contains("3 x <SlowDown & co>") && text.contains("generator"), "{text}");
}

#[test]
fn csv_has_as_many_fields_in_each_line_as_in_the_first() {
    let text = csv(&report());
    let lines: Vec<_> = text.lines().collect();
    // Two runs, each with three rounds and the median.
    assert_eq!(lines.len(), 1 + 2 * 4);
    let fields = lines[0].split(',').count();
    assert!(lines.iter().all(|line| line.split(',').count() == fields), "{text}");
    assert!(lines[1].starts_with("get <&>,1,,median,GET,10,"), "{text}");
}

#[test]
fn html_is_well_formed_has_charts_and_asks_for_nothing_from_elsewhere() {
    let text = html(&report());
    let mut reader = quick_xml::Reader::from_str(&text);
    let (mut depth, mut charts) = (0, 0);
    loop {
        match reader.read_event().expect("well-formed") {
            quick_xml::events::Event::Start(tag) => {
                depth += 1;
                charts += usize::from(tag.name().as_ref() == b"svg");
                assert!(tag.attributes().all(|attribute| attribute.is_ok()), "{tag:?}");
            }
            quick_xml::events::Event::End(_) => depth -= 1,
            quick_xml::events::Event::Eof => break,
            _ => {}
        }
    }
    assert_eq!((depth, charts), (0, 3));
    assert!(
        !text.contains("src=") && !text.contains("<script") && !text.contains("@import") && !text.contains("<link")
    );
    assert!(text.contains("&lt;SlowDown &amp; co&gt;") && text.contains("&lt;b&amp;&quot;c&quot;&gt;"));
}
