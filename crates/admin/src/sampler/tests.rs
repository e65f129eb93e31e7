use super::*;

fn sampler_of(texts: &[&str]) -> Sampler {
    let sampler = Sampler::default();
    for (number, text) in texts.iter().enumerate() {
        let now = PERIOD * number as u32;
        sampler.push(now, 1_000_000 + now.as_millis() as u64, Exposition::parse(text));
    }
    sampler
}

#[test]
fn a_sample_is_what_changed_in_its_interval() {
    let before = r#"
forebay_requests_total{operation="GetObject",code="200"} 100
forebay_requests_total{operation="PutObject",code="200"} 9
forebay_request_bytes_total{direction="out"} 1000
forebay_reads_total{tier="disk",bucket="logs",path="/logs/"} 10
forebay_group_commit_sync_seconds_sum{directory="/nvme0"} 1.0
forebay_group_commit_sync_seconds_count{directory="/nvme0"} 100
forebay_store_directory_failed{directory="/nvme0"} 0
process_cpu_seconds_total 10
"#;
    let after = r#"
forebay_requests_total{operation="GetObject",code="200"} 150
forebay_requests_total{operation="GetObject",code="500"} 5
forebay_requests_total{operation="GetObject",code="503"} 10
forebay_requests_total{operation="PutObject",code="200"} 9
forebay_request_duration_seconds_bucket{le="0.001",operation="GetObject",until="first_byte"} 65
forebay_request_duration_seconds_bucket{le="+Inf",operation="GetObject",until="first_byte"} 65
forebay_request_duration_seconds_bucket{le="0.001",operation="GetObject",until="total"} 0
forebay_request_duration_seconds_bucket{le="+Inf",operation="GetObject",until="total"} 65
forebay_request_bytes_total{direction="out"} 6000
forebay_reads_total{tier="disk",bucket="logs",path="/logs/"} 60
forebay_read_bytes_total{tier="disk",bucket="logs",path="/logs/"} 500
forebay_reads_total{tier="memory",bucket="logs",path="/logs/"} 5
forebay_group_commit_sync_seconds_sum{directory="/nvme0"} 1.5
forebay_group_commit_sync_seconds_count{directory="/nvme0"} 200
forebay_group_commit_bytes_sum{directory="/nvme0"} 100
forebay_store_directory_failed{directory="/nvme0"} 1
forebay_disk_busy_ratio{directory="/nvme0"} 0.5
forebay_dirty_bytes 77
forebay_oldest_dirty_age_seconds 1.5
process_cpu_seconds_total 20
"#;
    let sample = sampler_of(&[before, after]).newest().unwrap();
    assert_eq!((sample.time_ms, sample.interval_ms), (1_005_000, 5000));
    let [get] = &sample.operations[..] else { panic!("{:?}", sample.operations) };
    assert_eq!((get.operation.as_str(), get.rate, get.errors, get.throttled), ("GetObject", 13.0, 1.0, 2.0));
    assert_eq!((get.p50_ms, get.p99_ms), (Some(0.5), Some(0.99)));
    assert_eq!((sample.bytes_out, sample.bytes_in, sample.cpu), (1000.0, 0.0, 2.0));
    let reads: Vec<_> = sample.reads.iter().map(|read| (read.tier.as_str(), read.rate, read.bytes)).collect();
    assert_eq!(reads, [("disk", 10.0, 100.0), ("memory", 1.0, 0.0)]);
    assert_eq!((sample.reads[0].path.as_str(), sample.reads[0].bucket.as_str()), ("/logs/", "logs"));
    let disk = DiskSample {
        directory: "/nvme0".into(),
        busy: Some(0.5),
        sync_ms: Some(5.0),
        written_bytes: 20.0,
        failed: true,
    };
    assert_eq!(sample.disks, [disk]);
    assert_eq!((sample.dirty_bytes, sample.oldest_dirty_age_ms), (77, 1500));
}

#[test]
fn without_any_metrics_there_are_zeros_and_nothing_fails() {
    let sample = sampler_of(&["", "# EOF\n"]).newest().unwrap();
    assert_eq!(sample, Sample { time_ms: 1_005_000, interval_ms: 5000, ..Sample::default() });
}

#[test]
fn the_ring_holds_an_hour() {
    let sampler = sampler_of(&["forebay_connections 1"; SAMPLES_MAX + 10]);
    let all = sampler.since(0);
    assert_eq!(all.len(), SAMPLES_MAX);
    let last = all.last().unwrap().time_ms;
    assert_eq!(last - all[0].time_ms, 3_600_000 - PERIOD.as_millis() as u64);
    assert_eq!(sampler.since(last - 1).len(), 1);
    assert_eq!(sampler.since(last).len(), 0);
}

fn drain(bytes: &[u64]) -> Option<f64> {
    let texts: Vec<_> = bytes.iter().map(|bytes| format!("forebay_dirty_bytes {bytes}")).collect();
    sampler_of(&texts.iter().map(String::as_str).collect::<Vec<_>>()).drain_seconds()
}

#[test]
fn the_end_of_the_backlog_is_told_only_while_it_shrinks() {
    // 10 bytes in 5 s, and 80 are left.
    assert_eq!(drain(&[100, 90, 80]), Some(40.0));
    assert_eq!(drain(&[80, 90, 100]), None);
    assert_eq!(drain(&[100, 50, 0]), None);
    assert_eq!(drain(&[100, 90]), None, "one sample is no rate");
    assert_eq!(drain(&[]), None);
    let mut long_ago = vec![1_000_000];
    long_ago.extend([100; DRAIN_SAMPLES + 1]);
    assert_eq!(drain(&long_ago), None, "what was a minute ago does not count");
}
