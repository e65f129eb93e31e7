//! The pieces that every request meets, on a disk in memory: `cargo bench -p forebay-cache-tests`. Only the order of
//! magnitude of single figures means something; criterion compares them with those of the last run.

#[path = "../tests/cache/support/mod.rs"]
#[allow(dead_code, reason = "the tests use the rest")]
mod support;

use bytes::Bytes;
use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use forebay_cache::ListObjects;
use forebay_types::{BucketName, ByteSize, WriteMode};
use support::{BUCKET, Bench, Setup, pattern};
use tokio::runtime::Runtime;

/// Keys of the object and of the listing.
const KEYS: usize = 10_000;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().build().expect("runtime")
}

/// `memory`: largest object of the memory tier.
fn open(runtime: &Runtime, memory: u64) -> Bench {
    let setup = Setup::new(WriteMode::Transient).capacity(8 << 30);
    runtime.block_on(setup.settings(|settings| settings.memory_object_max = ByteSize(memory)).open())
}

/// Hashing, the record, the group commit of one, the tables.
fn puts(criterion: &mut Criterion) {
    let (runtime, mut group) = (runtime(), criterion.benchmark_group("put"));
    for size in [1 << 10, 10 << 10, 1 << 20] {
        let (bench, body) = (open(&runtime, 0), pattern(1, size));
        group.throughput(Throughput::Bytes(size as u64));
        // The same key again: the disk in memory gives the space of what was overwritten back.
        group.bench_function(ByteSize(size as u64).to_string(), |bencher| {
            bencher.iter(|| runtime.block_on(bench.put("key", body.clone())).expect("put"));
        });
    }
}

fn gets(criterion: &mut Criterion) {
    let (runtime, mut group) = (runtime(), criterion.benchmark_group("get"));
    for (tier, memory) in [("memory", 1 << 20), ("disk", 0)] {
        for size in [10 << 10, 1 << 20] {
            let bench = open(&runtime, memory);
            runtime.block_on(bench.put("key", pattern(1, size))).expect("put");
            group.throughput(Throughput::Bytes(size as u64));
            group.bench_function(format!("{tier} {}", ByteSize(size as u64)), |bencher| {
                bencher.iter(|| runtime.block_on(bench.get("key")).expect("get"));
            });
        }
    }
}

fn lists(criterion: &mut Criterion) {
    let (runtime, bucket) = (runtime(), BucketName::new(BUCKET).expect("bucket"));
    let bench = open(&runtime, 0);
    for number in 0..KEYS {
        runtime.block_on(bench.put(&format!("key/{number:06}"), Bytes::from_static(b"x"))).expect("put");
    }
    criterion.bench_function(&format!("list 1000 of {KEYS}"), |bencher| {
        let request = || ListObjects { limit: 1000, ..ListObjects::default() };
        bencher.iter_batched(
            request,
            |request| runtime.block_on(bench.cache.list(&bucket, &request)).expect("list"),
            BatchSize::SmallInput,
        );
    });
}

criterion_group!(hot_paths, puts, gets, lists);
criterion_main!(hot_paths);
