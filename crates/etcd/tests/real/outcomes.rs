//! What an engine says of a commit whose answer does not come.

use forebay_catalog::{Engine, ErrorKind};

use crate::relay::{Mode, Relay};
use crate::servers::{Etcd, check, check_kind, impatient, put, settings, value, wait_until};

/// A commit through a relay that was set to this mode before it was sent, and to that one when etcd has done it.
async fn outcome(before: Mode, after: Option<Mode>) {
    let etcd = Etcd::start(1).await;
    let relay = Relay::start(etcd.port(0)).await;
    let (direct, relayed) = (etcd.engine(), impatient(&settings(vec![relay.endpoint()])));
    let first = relayed.commit(&[], &[put("key", "first")]).await.expect("etcd writes");
    relay.set(before);
    let (checks, writes) = ([check("key", Some(first))], [put("key", "second")]);
    let commit = relayed.commit(&checks, &writes);
    let then = async {
        if let Some(after) = after {
            wait_until(async || value(&direct, "key").await == Some("second".into())).await;
            relay.set(after);
        }
    };
    let (result, ()) = tokio::join!(commit, then);
    check_kind(result, ErrorKind::Unknown, "a commit");
    let expected = if before == Mode::NoRequests { "first" } else { "second" };
    assert_eq!(value(&direct, "key").await, Some(expected.into()), "it was sent once");
    check_kind(relayed.get(b"key").await, ErrorKind::Unavailable, "a read");
    check_kind(relayed.commit(&checks, &writes).await, ErrorKind::Unavailable, "a commit");
    relay.set(Mode::Open);
    let again = relayed.commit(&checks, &writes).await;
    match before {
        Mode::NoRequests => assert!(again.is_ok(), "nothing was done: {again:?}"),
        _ => check_kind(again, ErrorKind::Conflict, "check"),
    }
    let found = direct.get(b"key").await.expect("etcd answers").expect("a value");
    assert_eq!(found.value, "second");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_whose_connection_breaks_is_unknown() {
    outcome(Mode::NoAnswers, Some(Mode::Cut)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_without_an_answer_in_time_is_unknown() {
    outcome(Mode::NoAnswers, None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_commit_that_may_not_have_arrived_is_unknown() {
    outcome(Mode::NoRequests, None).await;
}
