//! `forebay undeliverable`.

use std::collections::BTreeSet;
use std::fmt;

use clap::Subcommand;
use forebay_cache::{Undeliverable, UndeliverableChange, UndeliverablePage};
use forebay_env::Env;
use ureq::http::{Method, StatusCode};

use super::objects::json;
use super::output::{print, print_part};
use super::units::{age, count, escaped, size};
use super::{Table, Target};
use crate::client::{Call, CallError, Client, object_path, prefix_path};
use crate::failure::Failure;

#[derive(Debug, Subcommand)]
pub(crate) enum UndeliverableCommand {
    /// Lists what the under store refuses, and why
    List {
        /// s3://bucket/prefix or /bucket/prefix; everything without it
        #[arg(value_name = "PATH", default_value = "/")]
        path: String,
    },
    /// Keeps an object here and nowhere else, from now on as a transient one
    Keep {
        /// s3://bucket/key or /bucket/key
        #[arg(value_name = "OBJECT")]
        path: String,
        /// Takes OBJECT for a prefix, and keeps all that is undeliverable below it
        #[arg(long, short)]
        recursive: bool,
    },
    /// Writes an object under another name, which must be free, and drops it under the old one
    Rename {
        /// s3://bucket/key or /bucket/key
        #[arg(value_name = "OBJECT")]
        path: String,
        /// s3://bucket/key or /bucket/key
        #[arg(value_name = "NEW")]
        to: String,
    },
    /// Drops an object for good, or undoes a delete: what the under store has counts
    Discard {
        /// s3://bucket/key or /bucket/key
        #[arg(value_name = "OBJECT")]
        path: String,
        /// Takes OBJECT for a prefix, and drops all that is undeliverable below it
        #[arg(long, short)]
        recursive: bool,
    },
}

/// What is done about an object, in the words of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Action {
    Keep,
    Rename,
    Discard,
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Keep => "keep",
            Self::Rename => "rename",
            Self::Discard => "discard",
        })
    }
}

pub(super) fn undeliverable(command: &UndeliverableCommand, target: &Target) -> Result<(), Failure> {
    let client = target.client()?;
    match command {
        UndeliverableCommand::List { path } => list(&client, &prefix_path(path)?, target),
        UndeliverableCommand::Keep { path, recursive } => each(&client, Action::Keep, path, *recursive),
        UndeliverableCommand::Discard { path, recursive } => each(&client, Action::Discard, path, *recursive),
        UndeliverableCommand::Rename { path, to } => {
            let (object, to) = (find(&client, path)?, object_path(to)?);
            end(&client, Action::Rename, &object, Some(&to))
        }
    }
}

/// The pages of what is undeliverable below a path.
struct Pages<'a> {
    client: &'a Client,
    path: &'a str,
    after: Option<String>,
    is_done: bool,
    /// Workers that have not answered for some page.
    unanswered: BTreeSet<String>,
}

impl<'a> Pages<'a> {
    fn new(client: &'a Client, path: &'a str) -> Self {
        Self { client, path, after: None, is_done: false, unanswered: BTreeSet::new() }
    }
}

/// # Errors
/// When some workers have not answered: what is at home there is not known.
fn check_answers<'a>(unanswered: impl IntoIterator<Item = &'a String>) -> Result<(), Failure> {
    let workers: Vec<_> = unanswered.into_iter().map(|worker| escaped(worker)).collect();
    if workers.is_empty() {
        return Ok(());
    }
    let workers = workers.join(", ");
    Err(Failure::Failed(format!("there may be more, at workers of the cluster that do not answer: {workers}")))
}

impl Iterator for Pages<'_> {
    type Item = Result<Vec<Undeliverable>, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_done {
            return None;
        }
        let mut call = Call::get("undeliverable").query("prefix", self.path);
        if let Some(after) = &self.after {
            call = call.query("after", after);
        }
        let page: Result<UndeliverablePage, _> = self.client.read(call);
        self.after = page.as_ref().ok().and_then(|page| page.next.clone());
        self.is_done = self.after.is_none();
        if let Ok(page) = &page {
            self.unanswered.extend(page.unanswered.iter().cloned());
        }
        Some(page.map(|page| page.objects).map_err(Failure::from))
    }
}

fn list(client: &Client, path: &str, target: &Target) -> Result<(), Failure> {
    let now_ms = Env::real().clock.unix_ms();
    let (mut separator, mut is_empty) = ("[", true);
    let mut pages = Pages::new(client, path);
    for page in &mut pages {
        let page = page?;
        is_empty &= page.is_empty();
        if !target.is_json() {
            print(&table(&page, now_ms))?;
            continue;
        }
        for object in &page {
            print_part(&format!("{separator}{}", json(object)))?;
            separator = ",";
        }
    }
    if target.is_json() {
        print(if separator == "[" { "[]" } else { "]" })?;
    } else if is_empty && pages.unanswered.is_empty() {
        print("nothing is undeliverable")?;
    }
    check_answers(&pages.unanswered)
}

fn table(objects: &[Undeliverable], now_ms: u64) -> String {
    let mut table = Table::new(&["CHANGE", ">SIZE", ">WAITS FOR", ">TRIES", "PATH", "REASON"]);
    for object in objects {
        table.row([
            change(object.change).to_owned(),
            size(object.size),
            age(now_ms.saturating_sub(object.dirty_since_ms)),
            count(u64::from(object.tries)),
            escaped(&object.path),
            escaped(&object.reason),
        ]);
    }
    table.text()
}

fn change(change: UndeliverableChange) -> &'static str {
    match change {
        UndeliverableChange::Write => "write",
        UndeliverableChange::Delete => "delete",
    }
}

/// One object, as it is by now.
fn find(client: &Client, path: &str) -> Result<Undeliverable, Failure> {
    let path = object_path(path)?;
    let call = Call::get("undeliverable").query("prefix", &path).query("limit", 1);
    // It comes before all that only begin like it.
    let page: UndeliverablePage = client.read(call)?;
    if let Some(found) = page.objects.into_iter().find(|object| object.path == path) {
        return Ok(found);
    }
    check_answers(&page.unanswered)?;
    Err(Failure::Failed(format!("{} is not undeliverable; 'forebay stat' tells how it stands", escaped(&path))))
}

/// Does the same to one object, or to all below a prefix.
fn each(client: &Client, action: Action, path: &str, recursive: bool) -> Result<(), Failure> {
    if !recursive {
        return end(client, action, &find(client, path)?, None);
    }
    let path = prefix_path(path)?;
    if path == "/" {
        return Err(Failure::Refused(format!("{action} --recursive takes a bucket or a prefix, not everything")));
    }
    let (mut done, mut first) = (0_u64, None);
    let mut pages = Pages::new(client, &path);
    for page in &mut pages {
        for object in page? {
            if action == Action::Keep && object.change == UndeliverableChange::Delete {
                eprintln!("{} is deleted, and that cannot be kept: discard it", escaped(&object.path));
                continue;
            }
            match call(client, action, &object, None) {
                Ok(()) => {
                    done += 1;
                    told(action, &object)?;
                }
                // It has arrived since it was listed.
                Err(error) if error.is_status(StatusCode::NOT_FOUND) => {}
                Err(error @ CallError::Unreachable(_)) => return Err(error.into()),
                Err(error) => first = first.or(Some(error)),
            }
        }
    }
    if let Some(error) = first {
        return Err(error.into());
    }
    check_answers(&pages.unanswered)?;
    if done == 0 {
        return Err(Failure::Failed(format!("nothing below {} is undeliverable", escaped(&path))));
    }
    Ok(())
}

fn end(client: &Client, action: Action, object: &Undeliverable, to: Option<&str>) -> Result<(), Failure> {
    call(client, action, object, to)?;
    told(action, object)
}

fn call(client: &Client, action: Action, object: &Undeliverable, to: Option<&str>) -> Result<(), CallError> {
    let call = Call::new(Method::POST, format!("undeliverable/{action}"));
    let mut call = call.query("path", &object.path).query("generation", object.generation);
    if let Some(to) = to {
        call = call.query("to", to);
    }
    client.call(call).map(drop)
}

fn told(action: Action, object: &Undeliverable) -> Result<(), Failure> {
    print(&format!("{action}: {}", escaped(&object.path)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn workers_that_do_not_answer_are_named() {
        assert!(check_answers(&Vec::new()).is_ok());
        let Err(Failure::Failed(line)) = check_answers(&["w2".to_owned(), "w3".to_owned()]) else {
            panic!("the list is short")
        };
        assert!(line.ends_with("do not answer: w2, w3"), "{line}");
    }

    #[test]
    fn a_refused_object_is_one_line_with_its_reason() {
        let object = Undeliverable {
            path: "/b/x//y".into(),
            change: UndeliverableChange::Write,
            size: 2048,
            generation: 7,
            dirty_since_ms: 1_000,
            refused_since_ms: 2_000,
            tries: 4,
            next_try_in_ms: Some(5),
            reason: "the under store:\nno".into(),
        };
        let text = table(&[object], 61_000);
        let cells: Vec<_> =
            text.lines().nth(1).expect("a row").split("  ").map(str::trim).filter(|cell| !cell.is_empty()).collect();
        assert_eq!(cells, ["write", "2.0 KiB", "1 m", "4", "/b/x//y", r"the under store:\nno"], "{text}");
    }
}
