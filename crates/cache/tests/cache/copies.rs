//! Copies: what of the source goes with them, and which sources are refused.

use forebay_cache::{Attributes, Conditions, CopyObject, ErrorKind, PutObject, TagCondition};
use forebay_types::limits::PUT_BYTES_MAX;
use forebay_types::{SystemHeaders, Tags, WriteMode};
use forebay_ufs::UnderStore;

use crate::reads::copy;
use crate::support::gate::Way;
use crate::support::{Bench, Setup, incoming, kind, path};

/// What is just small enough is refused by the disks only, which are too small here.
#[tokio::test]
async fn a_source_of_more_than_five_gibibytes_is_copied_in_parts_only() {
    let bench = Setup::new(WriteMode::WriteBack).policy(|rule| rule.cache_reads = Some(false)).open().await;
    bench.under.put_outside("source", "value".into());
    for (size, expected) in
        [(PUT_BYTES_MAX, ErrorKind::InsufficientStorage), (PUT_BYTES_MAX + 1, ErrorKind::InvalidRequest)]
    {
        bench.foreground.set(Way::Claim(size));
        assert_eq!(kind(bench.cache.copy(copy()).await), Some(expected), "{size}");
    }
}

/// The copy of the source that is here is fresh, and has other tags.
#[tokio::test]
async fn a_copy_of_what_others_have_replaced_has_content_and_tags_of_one_version() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    bench.under.put_outside("source", "before".into());
    assert_eq!(bench.get("source").await.unwrap(), "before");
    bench.under.put_outside("source", "after!".into());
    let tags = Tags::from([("version".to_owned(), "after".to_owned())]);
    bench.under.set_tags(&path("source").key, &tags).await.unwrap();
    bench.cache.copy(copy()).await.unwrap();
    assert_eq!(bench.get("target").await.unwrap(), "after!");
    assert_eq!(bench.cache.tags(&path("target")).await.unwrap(), tags);
}

/// Nobody has a copy of it already: "not modified" would mean nothing.
#[tokio::test]
async fn a_source_that_is_not_to_match_and_does_is_a_failed_precondition() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    let etag = bench.put("source", "value").await.unwrap().etag;
    let unless = |tag| Conditions { if_none_match: Some(tag), ..Conditions::default() };
    let from = |source_conditions| CopyObject { source_conditions, ..copy() };
    for tag in [TagCondition::OneOf(vec![etag.clone()]), TagCondition::Any] {
        let error = bench.cache.copy(from(unless(tag))).await.unwrap_err();
        assert_eq!(error.kind, ErrorKind::PreconditionFailed);
        assert_eq!(error.object.expect("the object that matches").etag, etag);
    }
    let since = Conditions { if_modified_since_ms: Some(u64::MAX), ..Conditions::default() };
    assert_eq!(kind(bench.cache.copy(from(since)).await), Some(ErrorKind::PreconditionFailed));
    assert_eq!(kind(bench.get("target").await), Some(ErrorKind::NotFound));
}

#[tokio::test]
async fn a_copy_has_the_headers_of_its_source_but_those_that_say_where_and_how_it_is_kept() {
    let bench = Bench::new(WriteMode::WriteBack).await;
    let place = |class: Option<&str>, redirect: Option<&str>| SystemHeaders {
        content_type: Some("text/plain".to_owned()),
        storage_class: class.map(str::to_owned),
        website_redirect_location: redirect.map(str::to_owned),
        ..SystemHeaders::default()
    };
    let attributes = Attributes { headers: place(Some("COLD"), Some("/old")), ..Attributes::default() };
    let (body, conditions) = (incoming("value".into()), Conditions::default());
    bench.cache.put(PutObject { path: path("source"), body, attributes, conditions }).await.unwrap();
    for (class, redirect) in [(None, None), (Some("WARM"), None), (None, Some("/new"))] {
        let headers = place(class, redirect);
        let SystemHeaders { storage_class, website_redirect_location, .. } = headers.clone();
        bench.cache.copy(CopyObject { storage_class, website_redirect_location, ..copy() }).await.unwrap();
        assert_eq!(bench.head("target").await.unwrap().info.headers, headers);
    }
}
