//! `forebay policy`.

mod settings;

use clap::Subcommand;
use forebay_admin::api::{Bucket, ClusterStatus, ResolvedPolicy, Rollback, UnderStoreStatus, WorkerState};
use forebay_cache::PolicyVersion;
use forebay_types::{PolicyChange, PolicyRule};
use serde_json::{Map, Value};
use ureq::http::{Method, StatusCode};

use super::edit;
use super::output::print;
use super::units::{count, escaped, moment};
use super::{Table, Target};
use crate::client::{Answer, Call, CallError, Client, object_path, prefix_path};
use crate::config::why_unmatched;
use crate::failure::Failure;
use settings::SetOptions;

/// How often `set` tries when others change the rules at the same moment.
const TRIES_MAX: u32 = 5;

#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Opens all rules in $VISUAL or $EDITOR, and applies what is saved
    Edit {
        /// Applies without asking
        #[arg(long, short)]
        yes: bool,
    },
    /// Shows all rules, or that of one path
    #[command(visible_alias = "list")]
    Get {
        /// Path of the rule: /, s3://bucket, /bucket/prefix, …
        path: Option<String>,
    },
    /// Changes the named settings of one rule, or makes it
    Set(Box<SetOptions>),
    /// Deletes the rule of a path
    Delete {
        /// Path of the rule
        path: String,
    },
    /// Lists the versions of the rules, or shows what one of them changed
    History {
        /// As the list shows it
        #[arg(value_name = "VERSION")]
        number: Option<u64>,
    },
    /// Brings the rules of an earlier version back, as a new one
    Rollback {
        /// As `policy history` shows it
        #[arg(value_name = "VERSION")]
        number: u64,
        /// Applies without asking
        #[arg(long, short)]
        yes: bool,
    },
    /// Shows what holds for one object, and which rules say so
    #[command(alias = "explain")]
    Resolve {
        /// s3://bucket/key or /bucket/key
        #[arg(value_name = "OBJECT")]
        path: String,
    },
}

pub(super) fn policy(command: PolicyCommand, target: &Target) -> Result<(), Failure> {
    let client = target.client()?;
    match command {
        PolicyCommand::Edit { yes } => edit::edit(&client, yes, target),
        PolicyCommand::Get { path: None } => show_rules(&client.call(Call::get("policies"))?, target),
        PolicyCommand::Get { path: Some(path) } => {
            show_rule(&client.call(Call::get("policies/rule").query("path", prefix_path(&path)?))?, target)
        }
        PolicyCommand::Set(options) => set(&client, &options, target),
        PolicyCommand::Delete { path } => delete(&client, &path),
        PolicyCommand::History { number } => history(&client, number, target),
        PolicyCommand::Rollback { number, yes } => {
            // Before the question: what others change while it stands is not undone.
            let before = client.call(Call::get("policies"))?;
            edit::ask_unless(yes, &format!("bring the rules of version {number} back?"))?;
            let call = Call::new(Method::POST, "policies/rollback").if_match(before.version.as_deref());
            let answer = client.call(call.json(&Rollback { version: number })).map_err(edit::not_applied)?;
            if answer.version == before.version {
                eprintln!("forebay: nothing has changed: the rules are already those of version {number}");
            }
            show_rules(&answer, target)
        }
        PolicyCommand::Resolve { path } => resolve(&client, &path, target),
    }
}

fn show_rules(answer: &Answer, target: &Target) -> Result<(), Failure> {
    if target.is_json() {
        return print(&answer.text);
    }
    let rules: Vec<PolicyRule> = answer.read()?;
    if rules.is_empty() {
        return print("there are no rules: the defaults hold everywhere");
    }
    print(&table(&rules))
}

fn show_rule(answer: &Answer, target: &Target) -> Result<(), Failure> {
    if target.is_json() {
        return print(&answer.text);
    }
    print(&table(&[answer.read()?]))
}

/// One line for each setting of each rule.
fn table(rules: &[PolicyRule]) -> String {
    let mut table = Table::new(&["PATH", "SETTING", "VALUE"]);
    for rule in rules {
        let settings = settings::of_rule(rule);
        if settings.is_empty() {
            table.row([escaped(&rule.path), "-".to_owned(), "-".to_owned()]);
        }
        for (setting, value) in settings {
            table.row([escaped(&rule.path), setting, value]);
        }
    }
    table.text()
}

/// Reads, changes and writes one rule. The write is conditional on the version that was read. After a conflict, the
/// rule is read again.
fn set(client: &Client, options: &SetOptions, target: &Target) -> Result<(), Failure> {
    let path = prefix_path(&options.path)?;
    options.check()?;
    let mut tries = 0;
    loop {
        tries += 1;
        match set_once(client, &path, options) {
            Err(CallError::Refused { status: StatusCode::PRECONDITION_FAILED, .. }) if tries < TRIES_MAX => {}
            result => {
                let answer = result?;
                tell_if_absent(client, &path);
                tell_if_few(client, options);
                return show_rule(&answer, target);
            }
        }
    }
}

/// A rule may come before its bucket. A typo in the name looks the same, so this says that the bucket does not exist.
/// Users who may not list buckets get no message.
fn tell_if_absent(client: &Client, path: &str) {
    if let Some(why) = why_unmatched(path) {
        return eprintln!("forebay: {}: {}", escaped(path), escaped(&why));
    }
    let bucket = path[1..].split('/').next().unwrap_or_default();
    let Ok(buckets) = client.read::<Vec<Bucket>>(Call::get("buckets")) else { return };
    if bucket.is_empty() || buckets.iter().any(|known| known.name == bucket) {
        return;
    }
    let under_stores = client.read::<Vec<UnderStoreStatus>>(Call::get("under-stores")).ok();
    eprintln!("forebay: {}", absent(bucket, under_stores.as_deref()));
}

/// What a rule does for a bucket that is not there.
fn absent(bucket: &str, under_stores: Option<&[UnderStoreStatus]>) -> String {
    let bucket = escaped(bucket);
    // One without names has all buckets that are not mounted.
    match under_stores.is_none_or(|all| all.iter().any(|under_store| under_store.buckets.is_empty())) {
        true => format!("there is no bucket {bucket} yet: the rule waits for it"),
        false => format!(
            "there is no bucket {bucket}, and none can be made: under_store.url is not set, so there are only the mounts. The rule has no effect until the bucket is mounted"
        ),
    }
}

/// More workers may come, so this says only what happens until then. Users who may not see the cluster get no message.
fn tell_if_few(client: &Client, options: &SetOptions) {
    let Some(wanted) = options.write_replicas() else { return };
    let Ok(cluster) = client.read::<ClusterStatus>(Call::get("cluster")) else { return };
    let live = cluster.workers.iter().filter(|worker| worker.state == WorkerState::Live).count();
    if let Some(why) = too_few(wanted, live) {
        eprintln!("forebay: {why}");
    }
}

/// What happens to writes that more workers should hold than there are.
fn too_few(wanted: u32, live: usize) -> Option<String> {
    let is_few = usize::try_from(wanted).is_ok_and(|wanted| wanted > live);
    is_few.then(|| {
        format!(
            "writeReplicas asks for {wanted} workers, and {live} of the cluster can take writes: until there are more, writes get 503 SlowDown, or are acknowledged when the under store has them if whenReplicasMissing is write-through"
        )
    })
}

fn set_once(client: &Client, path: &str, options: &SetOptions) -> Result<Answer, CallError> {
    let present = client.call(Call::get("policies"))?;
    // As the server says it, so that settings which this version does not know stay as they are.
    let rules: Vec<Map<String, Value>> = present.read()?;
    let mut rule = rules.into_iter().find(|rule| rule.get("path").is_some_and(|of| of == path)).unwrap_or_default();
    rule.insert("path".to_owned(), path.into());
    options.apply(&mut rule);
    let call = Call::new(Method::PUT, "policies/rule").query("path", path).if_match(present.version.as_deref());
    client.call(call.json(&rule))
}

fn delete(client: &Client, path: &str) -> Result<(), Failure> {
    let call = Call::new(Method::DELETE, "policies/rule").query("path", prefix_path(path)?);
    client.call(call)?;
    Ok(())
}

fn history(client: &Client, version: Option<u64>, target: &Target) -> Result<(), Failure> {
    let answer = client.call(Call::get("policies/history"))?;
    let versions: Vec<PolicyVersion> = answer.read()?;
    let Some(wanted) = version else {
        return print(&if target.is_json() { answer.text } else { history_table(&versions) });
    };
    let found = versions.into_iter().find(|version| version.version == wanted);
    let missing = || Failure::Refused(format!("version {wanted} of the path policies is not kept"));
    let found = found.ok_or_else(missing)?;
    if target.is_json() {
        return print(&serde_json::to_string(&found).expect("a version has text keys only"));
    }
    print(&changes_table(&found.changes))
}

fn history_table(versions: &[PolicyVersion]) -> String {
    let mut table = Table::new(&[">VERSION", "TIME", "BY", ">CHANGES", "REASON"]);
    for version in versions {
        table.row([
            version.version.to_string(),
            moment(version.time_ms),
            escaped(&version.by),
            count(version.changes.len() as u64),
            escaped(&version.reason),
        ]);
    }
    table.text()
}

fn changes_table(changes: &[PolicyChange]) -> String {
    let mut table = Table::new(&["PATH", "SETTING", "BEFORE", "AFTER"]);
    let shown = |value: &Option<String>| value.as_deref().map_or("-".to_owned(), escaped);
    for change in changes {
        let setting = if change.setting.is_empty() { "-".to_owned() } else { escaped(&change.setting) };
        table.row([escaped(&change.path), setting, shown(&change.before), shown(&change.after)]);
    }
    table.text()
}

fn resolve(client: &Client, path: &str, target: &Target) -> Result<(), Failure> {
    let answer = client.call(Call::get("policies/resolve").query("path", object_path(path)?))?;
    if target.is_json() {
        return print(&answer.text);
    }
    let resolved: ResolvedPolicy = answer.read()?;
    let mut table = Table::new(&["SETTING", "VALUE", "FROM"]);
    for setting in &resolved.settings {
        let value = setting.value.as_deref().map_or("-".to_owned(), escaped);
        let from = setting.from.as_deref().map_or("default".to_owned(), escaped);
        table.row([escaped(&setting.setting), value, from]);
    }
    print(&table.text())
}

#[cfg(test)]
mod tests {
    use forebay_admin::api::CircuitState;

    use super::*;

    #[test]
    fn a_rule_for_a_bucket_that_no_under_store_can_have_is_told() {
        let of = |buckets: &[&str]| UnderStoreStatus {
            url: "file:///x".to_owned(),
            buckets: buckets.iter().map(|name| (*name).to_owned()).collect(),
            circuit: CircuitState::Closed,
            probe_in_ms: None,
            failures_in_a_row: 0,
            concurrency_limit: 1,
            concurrency_max: 1,
            running: 0,
            silent_ms: None,
            calls: 0,
            errors: 0,
            throttled: 0,
            last_error: None,
            last_error_ms: None,
            problem: None,
            problem_id: None,
            checking: false,
            requests_per_second_max: 0,
            upload_bandwidth_max: 0,
        };
        assert!(absent("lake", None).contains("waits for it"));
        assert!(absent("lake", Some(&[of(&["other"]), of(&[])])).contains("waits for it"));
        assert!(absent("lake", Some(&[of(&["other"])])).contains("until the bucket is mounted"));
    }

    #[test]
    fn more_replicas_than_workers_are_told() {
        assert_eq!((too_few(1, 1), too_few(2, 2), too_few(2, 3)), (None, None, None));
        let told = too_few(3, 2).unwrap();
        for part in ["asks for 3 workers", "2 of the cluster", "503 SlowDown", "whenReplicasMissing"] {
            assert!(told.contains(part), "{told} lacks {part}");
        }
    }
}
