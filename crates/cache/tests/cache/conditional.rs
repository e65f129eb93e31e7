//! Conditional requests: what they compare with, what their refusals show, and what they cost.

use forebay_cache::{Conditions, Error, ErrorKind, GetObject, Result, TagCondition};
use forebay_types::{ETag, WriteMode};

use crate::support::{Bench, get_request, if_absent, if_matches, kind};

fn unless_matches(etag: &ETag) -> Conditions {
    Conditions { if_none_match: Some(TagCondition::OneOf(vec![etag.clone()])), ..Conditions::default() }
}

async fn get_if(bench: &Bench, conditions: Conditions) -> Result<()> {
    bench.cache.get(GetObject { conditions, ..get_request("key", None) }).await.map(drop)
}

/// What went wrong, and the tag of the object that the error shows.
fn shown(result: Result<impl Sized>) -> Option<(ErrorKind, Option<ETag>)> {
    result.err().map(|Error { kind, object, .. }| (kind, object.map(|object| object.etag)))
}

#[tokio::test]
async fn a_write_unless_the_object_has_a_tag_is_taken_when_it_has_another() {
    for mode in [WriteMode::WriteBack, WriteMode::WriteThrough] {
        let bench = Bench::new(mode).await;
        let first = bench.put("key", "one").await.unwrap().etag;
        let second = bench.put_if("key", "two", unless_matches(&ETag::new("another"))).await.unwrap().etag;
        let refused = bench.put_if("key", "three", unless_matches(&second)).await;
        assert_eq!(kind(refused), Some(ErrorKind::PreconditionFailed), "{mode:?}");
        bench.put_if("key", "four", unless_matches(&first)).await.unwrap();
        assert_eq!(bench.get("key").await.unwrap(), "four", "{mode:?}");
    }
}

/// 304 and 412 carry its tag, so that the client knows what to ask for next.
#[tokio::test]
async fn a_condition_that_fails_shows_the_object() {
    for mode in [WriteMode::WriteBack, WriteMode::WriteThrough, WriteMode::NoCache] {
        let bench = Bench::new(mode).await;
        let etag = bench.put("key", "value").await.unwrap().etag;
        let other = ETag::new("another");
        let failed = Some((ErrorKind::PreconditionFailed, Some(etag.clone())));
        assert_eq!(shown(get_if(&bench, if_matches(&other)).await), failed, "{mode:?}");
        assert_eq!(shown(bench.put_if("key", "x", if_matches(&other)).await), failed, "{mode:?}");
        assert_eq!(shown(bench.put_if("key", "x", if_absent()).await), failed, "{mode:?}");
        let unchanged = Some((ErrorKind::NotModified, Some(etag.clone())));
        assert_eq!(shown(get_if(&bench, unless_matches(&etag)).await), unchanged, "{mode:?}");
    }
}

#[tokio::test]
async fn a_read_whose_condition_fails_fetches_no_bytes() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.under.put_outside("key", "from outside".into());
    assert_eq!(kind(get_if(&bench, if_matches(&ETag::new("another"))).await), Some(ErrorKind::PreconditionFailed));
    assert_eq!((bench.foreground.heads(), bench.foreground.gets().len()), (1, 0));
    assert_eq!(bench.get("key").await.unwrap(), "from outside");
}
