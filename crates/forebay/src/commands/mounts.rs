//! `forebay mounts` and `forebay health`: what people type first.

use forebay_admin::api::{CircuitState, Overview, Severity, UnderStoreStatus};

use super::output::print;
use super::status::notice_table;
use super::units::{count, escaped};
use super::{Table, Target};
use crate::client::Call;
use crate::failure::Failure;

const READY: &str = "ready";

/// The under stores, and an exit code by whether all of them can be used.
pub(super) fn mounts(target: &Target) -> Result<(), Failure> {
    let answer = target.client()?.call(Call::get("under-stores"))?;
    let mounts: Vec<UnderStoreStatus> = answer.read()?;
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
        (CircuitState::Closed, None) => READY,
        (CircuitState::Closed, Some(_)) => "unusable",
        (CircuitState::Open | CircuitState::Probing, _) => "out of reach",
    }
}

/// The notices, and an exit code by whether any is critical.
pub(super) fn health(target: &Target) -> Result<(), Failure> {
    let answer = target.client()?.call(Call::get("overview"))?;
    let Overview { notices, now_ms, .. } = answer.read()?;
    let critical = notices.iter().filter(|notice| notice.severity == Severity::Critical).count();
    let printed = if target.is_json() {
        print(&serde_json::to_string(&notices).expect("notices have text keys only"))
    } else if notices.is_empty() {
        print("healthy")
    } else {
        print(&notice_table(&notices, now_ms))
    };
    match critical {
        0 => printed,
        1 => Err(Failure::Failed("1 critical notice".to_owned())),
        more => Err(Failure::Failed(format!("{more} critical notices"))),
    }
}
