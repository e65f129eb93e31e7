//! Buckets of several under stores: one that is slow, or does not answer, keeps no other.

use bytes::Bytes;
use forebay_cache::{Attributes, Conditions, GetObject, PutObject, RangeRequest};
use forebay_types::{ObjectPath, WriteMode};
use forebay_ufs::memory::MemoryUnderStore;

use crate::support::gate::Way;
use crate::support::{Bench, NEIGHBOUR, Setup, collect, get_request, incoming, pattern, until};

const MIB: usize = 1 << 20;

async fn with_neighbour() -> (Bench, MemoryUnderStore) {
    let neighbour = MemoryUnderStore::default();
    let setup = Setup { neighbour: Some(neighbour.clone()), ..Setup::new(WriteMode::WriteBack) };
    (setup.open().await, neighbour)
}

fn of_neighbour(key: &str) -> ObjectPath {
    ObjectPath::parse(NEIGHBOUR, key).expect("path")
}

async fn put(bench: &Bench, key: &str, body: Bytes) {
    let put = PutObject {
        path: of_neighbour(key),
        body: incoming(body),
        attributes: Attributes::default(),
        conditions: Conditions::default(),
    };
    bench.cache.put(put).await.expect("put");
}

#[tokio::test]
async fn a_backlog_that_gets_nowhere_keeps_no_other_mount_from_persisting() {
    let (bench, neighbour) = with_neighbour().await;
    bench.background.set(Way::Closed);
    for number in 0..600 {
        bench.put(&format!("small {number}"), "value").await.unwrap();
    }
    for number in 0..40 {
        bench.put(&format!("large {number}"), pattern(number, MIB + 1)).await.unwrap();
    }
    until("all are under way that may be", || bench.background.waiting() == 256 + 16).await;
    for number in 0..20 {
        put(&bench, &format!("small {number}"), "value".into()).await;
        put(&bench, &format!("large {number}"), pattern(number, MIB + 1)).await;
    }
    until("the neighbour has got all", || neighbour.contents().len() == 40).await;
    assert_eq!(bench.background.waiting(), 256 + 16);
    bench.background.set(Way::Open);
    bench.drain().await;
    assert_eq!(bench.under.contents().len(), 640);
}

#[tokio::test]
async fn reads_that_get_nowhere_keep_no_other_mount_from_reading() {
    let (bench, neighbour) = with_neighbour().await;
    let large = pattern(1, 100 * MIB);
    bench.under.put_outside("large", large.clone());
    let sound: Vec<(String, Bytes)> =
        (0..20).map(|number| (format!("object {number}"), pattern(number, MIB + 1000))).collect();
    sound.iter().for_each(|(key, body)| neighbour.put_outside(key, body.clone()));
    bench.head("large").await.unwrap();
    bench.foreground.set(Way::HoldReads);
    // Each of a page of its own, the last one first, so that nothing is read ahead.
    let held: Vec<_> = (0..100_u64)
        .rev()
        .map(|page| {
            let (cache, first) = (bench.cache.clone(), page * MIB as u64);
            let range = Some(RangeRequest::From { first, last: Some(first + 9) });
            forebay_env::spawn(async move { collect(cache.get(get_request("large", range)).await?.stream).await })
        })
        .collect();
    until("all are under way that may be", || bench.foreground.waiting() == 64).await;
    for (key, body) in &sound {
        let get = GetObject::whole(of_neighbour(key));
        let read = collect(bench.cache.get(get).await.unwrap().stream).await.unwrap();
        assert!(read == body, "{key}");
    }
    assert_eq!(bench.foreground.waiting(), 64);
    bench.foreground.set(Way::Open);
    for (page, read) in (0..100).rev().zip(held) {
        assert_eq!(read.join().await.unwrap(), large.slice(page * MIB..page * MIB + 10), "page {page}");
    }
}
