//! `forebay mounts` and `forebay health`: what people type first.

use std::time::Duration;

use forebay_admin::api::{CircuitState, Overview, Severity, UnderStoreStatus};
use serde::de::DeserializeOwned;

use super::output::print;
use super::status::notice_table;
use super::units::{count, escaped};
use super::waiting::{Interruptible, Pause};
use super::{Table, Target};
use crate::client::{Answer, Call};
use crate::failure::Failure;

const READY: &str = "ready";

/// How long the first checks after the start of a server may take: a probe that is not answered ends after ten seconds.
const FIRST_CHECKS_MAX: Duration = Duration::from_secs(20);

/// Between two looks at a server that makes its first checks.
const LOOK: Duration = Duration::from_millis(200);

/// What the server says when its first checks after the start are complete, or when they take too long.
fn checked<T: DeserializeOwned>(
    target: &Target,
    page: &str,
    is_checking: fn(&T) -> bool,
) -> Result<(Answer, T), Failure> {
    let client = target.client()?;
    let ask = || -> Result<(Answer, T), Failure> {
        let answer = client.call(Call::get(page))?;
        let state = answer.read()?;
        Ok((answer, state))
    };
    let mut seen = ask()?;
    if !is_checking(&seen.1) {
        return Ok(seen);
    }
    let mut waiting = Interruptible::new()?;
    let began = waiting.now();
    while is_checking(&seen.1) && waiting.now() < began + FIRST_CHECKS_MAX {
        if waiting.pause(LOOK) == Pause::Interrupted {
            return Err(Failure::Interrupted("the first checks of the server are not complete".to_owned()));
        }
        seen = ask()?;
    }
    Ok(seen)
}

/// The under stores, and an exit code by whether all of them can be used.
pub(super) fn mounts(target: &Target) -> Result<(), Failure> {
    let is_checking = |mounts: &Vec<UnderStoreStatus>| mounts.iter().any(|mount| mount.checking);
    let (answer, mounts) = checked(target, "under-stores", is_checking)?;
    let shown = if target.is_json() { answer.text } else { table(&mounts) };
    let printed = print(&shown);
    // A bad state counts even when nobody reads it.
    verdict(&mounts).and(printed)
}

fn table(mounts: &[UnderStoreStatus]) -> String {
    let mut table = Table::new(&["BUCKET", "STATE", ">ERRORS", "UNDER STORE", "PROBLEM"]);
    for mount in mounts {
        let buckets = if mount.buckets.is_empty() { "(all others)".to_owned() } else { mount.buckets.join(", ") };
        // The last probe may have been long before the outage.
        let failing = mount.last_error.as_deref().filter(|_| mount.circuit != CircuitState::Closed);
        let problem = mount.problem.as_deref().or(failing).map_or("-".to_owned(), escaped);
        table.row([escaped(&buckets), state(mount).to_owned(), count(mount.errors), escaped(&mount.url), problem]);
    }
    table.text()
}

fn verdict(mounts: &[UnderStoreStatus]) -> Result<(), Failure> {
    match mounts.iter().filter(|mount| state(mount) != READY).count() {
        0 => Ok(()),
        1 => Err(Failure::Failed("1 under store can't be used".to_owned())),
        more => Err(Failure::Failed(format!("{more} under stores can't be used"))),
    }
}

fn state(mount: &UnderStoreStatus) -> &'static str {
    match (mount.circuit, &mount.problem) {
        (CircuitState::Closed, None) if mount.checking => "not checked",
        (CircuitState::Closed, None) => READY,
        (CircuitState::Closed, Some(_)) => "unusable",
        (CircuitState::Open | CircuitState::Probing, _) => "out of reach",
    }
}

/// The notices, and an exit code by whether any is critical.
pub(super) fn health(target: &Target) -> Result<(), Failure> {
    let (_, overview) = checked(target, "overview", |overview: &Overview| overview.checking)?;
    let Overview { notices, now_ms, checking, .. } = overview;
    let critical = notices.iter().filter(|notice| notice.severity == Severity::Critical).count();
    let printed = if target.is_json() {
        print(&serde_json::to_string(&notices).expect("notices have text keys only"))
    } else if notices.is_empty() {
        print(if checking { "no notices yet" } else { "healthy" })
    } else {
        print(&notice_table(&notices, now_ms))
    };
    match critical {
        0 if checking => Err(Failure::Failed(
            "the first checks after the start are not complete: a disk or an under store may hang".to_owned(),
        )),
        0 => printed,
        1 => Err(Failure::Failed("1 critical notice".to_owned())),
        more => Err(Failure::Failed(format!("{more} critical notices"))),
    }
}
