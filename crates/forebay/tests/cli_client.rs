//! Commands that talk to a worker, as far as they get without one: arguments, keys and endpoints that can't be.

use std::process::{Command, Output};

fn forebay(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.env_clear().envs(variables.iter().copied()).args(arguments);
    command.output().expect("the binary runs")
}

const KEYS: [(&str, &str); 2] = [("FOREBAY_ACCESS_KEY", "key"), ("FOREBAY_SECRET_KEY", "secret")];

/// Exit code `code`, nothing on stdout, one line on stderr that holds all of `parts` and no secret.
fn check(arguments: &[&str], variables: &[(&str, &str)], code: i32, parts: &[&str]) {
    let output = forebay(arguments, variables);
    let line = String::from_utf8(output.stderr).expect("output is UTF-8");
    assert_eq!(output.status.code(), Some(code), "{arguments:?}: {line}");
    assert!(output.stdout.is_empty(), "{arguments:?}: {:?}", output.stdout);
    assert_eq!(line.matches('\n').count(), 1, "{arguments:?}: {line:?}");
    assert!(!line.contains("secret\""), "{line:?}");
    for part in parts {
        assert!(line.contains(part), "{line:?} lacks {part:?}");
    }
}

fn check_refused(arguments: &[&str], parts: &[&str]) {
    check(arguments, &KEYS, 2, parts);
}

#[test]
fn paths_are_refused_by_their_text() {
    check_refused(&["ls", "bucket"], &["\"bucket\"", "s3://bucket/key"]);
    check_refused(&["stat", "s3://bucket"], &["s3://bucket", "no object"]);
    check_refused(&["load", "s3:///key"], &["s3:///key"]);
    check_refused(&["policy", "get", "x"], &["\"x\""]);
    check_refused(&["policy", "resolve", "/bucket"], &["/bucket"]);
    check_refused(&["jobs", "show", "a/b"], &["\"a/b\""]);
}

#[test]
fn arguments_are_refused_by_name() {
    check_refused(&["load"], &["<PATH>"]);
    check_refused(&["load", "/b", "--concurrency", "0"], &["--concurrency", "0"]);
    check_refused(&["load", "/b", "--concurrency", "257"], &["--concurrency", "257"]);
    check_refused(&["load", "/b", "--rate-limit", "fast"], &["--rate-limit", "fast"]);
    check_refused(&["lode", "/b"], &["lode", "load"]);
    check_refused(&["status", "--output", "xml"], &["--output", "xml", "json"]);
    check_refused(&["policy", "set", "/b"], &["--write-mode"]);
    check_refused(&["policy", "set", "/b", "--write-mode", "WRITEBACK"], &["--write-mode", "WRITE_BACK"]);
    check_refused(&["policy", "set", "/b", "--cache-quota", "5"], &["--cache-quota", "5"]);
    check_refused(&["policy", "set", "/b", "--unset", "quota"], &["--unset", "quota", "cache-quota"]);
    check_refused(
        &["policy", "set", "/b", "--durability", "os", "--unset", "durability"],
        &["durability", "set as well"],
    );
    check_refused(&["policy", "rollback", "one"], &["one"]);
    check_refused(&["top", "--interval", "1ms"], &["--interval", "250 ms"]);
    check_refused(&["completions", "tcsh"], &["tcsh", "zsh"]);
    check_refused(&["serve", "--endpoint", "http://x"], &["--endpoint"]);
}

#[test]
fn endpoints_and_certificates_are_refused_by_name() {
    check_refused(&["status", "--endpoint", "127.0.0.1:9701"], &["--endpoint", "http://"]);
    check_refused(&["status", "--endpoint", "http://user:secret@host"], &["--endpoint", "keys"]);
    check_refused(&["status", "--ca-cert", "/no/such"], &["--ca-cert", "/no/such"]);
    check_refused(&["status", "--ca-cert", "/dev/null"], &["--ca-cert", "no certificate"]);
    check(&["status"], &[KEYS[0], KEYS[1], ("FOREBAY_ADMIN_ENDPOINT", "x y")], 2, &["x y"]);
}

#[test]
fn keys_that_are_missing_are_named() {
    check(&["status"], &[], 2, &["FOREBAY_ACCESS_KEY", "FOREBAY_SECRET_KEY"]);
    check(&["status"], &KEYS[..1], 2, &["--secret-key"]);
    check(&["status", "--secret-key", "s"], &[], 2, &["--access-key"]);
    check(&["status"], &[("AWS_ACCESS_KEY_ID", "key")], 2, &["AWS_SECRET_ACCESS_KEY"]);
}

#[test]
fn a_server_that_is_not_there_is_a_failure() {
    // Nothing listens on the port of `tcpmux`, which is reserved.
    check(&["status", "--endpoint", "http://127.0.0.1:1"], &KEYS, 1, &["http://127.0.0.1:1", "refused"]);
}

#[test]
fn help_shows_no_secret() {
    for arguments in [&["status", "--help"][..], &["policy", "set", "--help"], &["load", "-h"]] {
        let output = forebay(arguments, &[("FOREBAY_ACCESS_KEY", "my-access"), ("FOREBAY_SECRET_KEY", "my-secret")]);
        let text = String::from_utf8(output.stdout).expect("output is UTF-8");
        assert!(output.status.success() && text.contains("--secret-key"), "{text}");
        assert!(!text.contains("my-access") && !text.contains("my-secret"), "{text}");
    }
}
