//! `forebay undeliverable`.

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
}

impl<'a> Pages<'a> {
    fn new(client: &'a Client, path: &'a str) -> Self {
        Self { client, path, after: None, is_done: false }
    }
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
        Some(page.map(|page| page.objects).map_err(Failure::from))
    }
}

fn list(client: &Client, path: &str, target: &Target) -> Result<(), Failure> {
    let now_ms = Env::real().clock.unix_ms();
    let mut separator = "[";
    for page in Pages::new(client, path) {
        let page = page?;
        if !target.is_json() {
            print(&table(&page, now_ms))?;
            continue;
        }
        for object in &page {
            print_part(&format!("{separator}{}", json(object)))?;
            separator = ",";
        }
    }
    match target.is_json() {
        true if separator == "[" => print("[]"),
        true => print("]"),
        false => Ok(()),
    }
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
    let found = page.objects.into_iter().find(|object| object.path == path);
    found.ok_or_else(|| {
        Failure::Failed(format!("{} is not undeliverable; 'forebay stat' tells how it stands", escaped(&path)))
    })
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
    for page in Pages::new(client, &path) {
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
    match first {
        Some(error) => Err(error.into()),
        None if done == 0 => Err(Failure::Failed(format!("nothing below {} is undeliverable", escaped(&path)))),
        None => Ok(()),
    }
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
