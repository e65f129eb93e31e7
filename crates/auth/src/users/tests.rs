use std::path::Path;

use forebay_env::Env;

use super::*;
use crate::{Action, RootUser, Secret};

fn user(name: &str) -> String {
    format!(
        "[[user]]\nname = \"{name}\"\naccess_key = \"{name}\"\nsecret_key = \"0123456789\"\n\
         grants = [{{ path = \"/b\", allow = [\"read\"] }}]\n"
    )
}

fn open(path: &Path) -> Users {
    let root = RootUser { access_key: "rootkey".to_owned(), secret_key: Secret::new("rootsecret") };
    Users::open(root, Some(path.to_owned())).unwrap()
}

#[test]
fn a_changed_file_takes_effect_and_a_bad_one_does_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users.toml");
    std::fs::write(&path, user("first")).unwrap();
    let users = open(&path);
    assert!(users.find("first").unwrap().may(Action::Read, "/b/key"));
    assert!(users.find("rootkey").unwrap().may(Action::Admin, "/any/thing"));
    assert!(!users.reload().unwrap());

    std::fs::write(&path, user("other")).unwrap();
    assert!(users.reload().unwrap());
    assert!(users.find("first").is_none() && users.find("other").is_some());

    std::fs::write(&path, "[[user]]\nnom = 1\n").unwrap();
    assert!(users.reload().is_err());
    for name in ["root", "anonymous"] {
        std::fs::write(&path, user(name)).unwrap();
        assert!(users.reload().is_err(), "{name} is a name of the server's own");
    }
    assert!(users.find("other").is_some());
}

#[test]
fn files_with_the_same_users_and_grants_have_one_digest() {
    let directory = tempfile::tempdir().unwrap();
    let digest = |text: &str| {
        let path = directory.path().join("users.toml");
        std::fs::write(&path, text).unwrap();
        open(&path).digest()
    };
    let (first, other) = (user("first"), user("other"));
    let anonymous = "[[anonymous]]\npath = \"/public\"\nallow = [\"read\"]\n";
    let (first, other) = (first.replace("[\"read\"]", "[\"read\", \"write\"]"), other.as_str());
    let whole = digest(&format!("{first}{other}{anonymous}"));
    let turned = first.replace("[\"read\", \"write\"]", "[\"write\", \"read\"]");
    assert_eq!(whole, digest(&format!("# In another order.\n{anonymous}{other}{turned}")));
    let changed = [
        format!("{first}{other}"),
        format!("{first}{anonymous}"),
        format!("{first}{}{anonymous}", other.replace("0123456789", "1123456789")),
        format!("{first}{}{anonymous}", other.replace("/b", "/c")),
        format!("{first}{}{anonymous}", other.replace("\"read\"", "\"write\"")),
    ];
    assert!(changed.iter().all(|text| digest(text) != whole));
}

/// Clusters keep it: with another one, each worker would take its file for a changed one. Computed with Python.
#[test]
fn the_digest_of_users_stays_what_it_is() {
    let text = "[[user]]\nname = \"etl\"\naccess_key = \"etl-key\"\nsecret_key = \"etl-secret\"\n\
        grants = [{ path = \"/lake\", allow = [\"write\", \"read\"] }]\n\
        [[anonymous]]\npath = \"/public\"\nallow = [\"read\"]\n";
    let digest = Document::parse(text, "rootkey").expect("it is valid").digest().to_owned();
    assert_eq!(digest, "d5acb7662b59ef441040274b06e5cfe446d32169385a78fa22d2c5934fd452b1");
}

#[test]
fn the_file_cannot_replace_the_root_user() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users.toml");
    std::fs::write(&path, user("first")).unwrap();
    let users = open(&path);
    std::fs::write(&path, user("rootkey")).unwrap();
    let problem = users.reload().unwrap_err().problem;
    assert!(problem.starts_with("user \"rootkey\": its access key is the root user's"), "{problem}");
    assert_eq!(users.find("rootkey").unwrap().name, "root");
    assert_eq!(users.file_counts(), Some(FileCounts { users: 1, anonymous_grants: 0 }));
}

#[test]
fn without_a_grant_nobody_anonymous_may_do_anything() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users.toml");
    std::fs::write(&path, "[[anonymous]]\npath = \"/public\"\nallow = [\"read\"]\n").unwrap();
    let anonymous = open(&path).anonymous();
    assert!(anonymous.may(Action::Read, "/public/x"));
    assert!(!anonymous.may(Action::List, "/public") && !anonymous.may(Action::Read, "/private/x"));
    let root = RootUser { access_key: "k".to_owned(), secret_key: Secret::new("s") };
    assert!(!Users::open(root, None).unwrap().anonymous().may(Action::Read, "/public/x"));
}

#[tokio::test]
async fn the_watcher_reads_a_change_within_its_period() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("users.toml");
    std::fs::write(&path, user("first")).unwrap();
    let users = open(&path);
    let (env, clock) = Env::simulated(1);
    let task = users.watch(&env);
    std::fs::write(&path, user("second")).unwrap();
    while users.find("second").is_none() {
        clock.advance(WATCH_PERIOD);
        tokio::task::yield_now().await;
    }
    task.abort();
}
