//! What the under store refuses, at another worker.

use forebay_cache::{ErrorKind, OtherWorkers, UndeliverableEnd};

use crate::{KEY, identity, path, start};

#[tokio::test]
async fn what_is_refused_is_told_and_ended_by_its_home() {
    let server = start().await;
    let peers = server.peer(&identity(KEY, "lake"));
    let page = peers.undeliverable("b", "/bucket/a", Some(&path()), 7).await.expect("a page");
    assert_eq!(page.next.as_deref(), Some("/bucket/a Some(\"bucket/a/key\") 7"));
    let end = async |end| {
        let ended = peers.end_undeliverable("b", &path(), 9, &end).await;
        ended.map_err(|error| (error.kind, error.context))
    };
    assert_eq!(end(UndeliverableEnd::Keep).await, Ok(()));
    assert_eq!(end(UndeliverableEnd::Discard).await, Err((ErrorKind::Conflict, "9 of bucket/a/key".to_owned())));
    let renamed = end(UndeliverableEnd::Rename(path())).await;
    assert_eq!(renamed, Err((ErrorKind::PreconditionFailed, "to bucket/a/key".to_owned())));
}
