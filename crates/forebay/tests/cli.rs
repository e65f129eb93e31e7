//! The command line as scripts meet it: exit codes, one clear line for each mistake, and the generated references.

use std::path::Path;
use std::process::{Command, Output};

fn forebay(arguments: &[&str], variables: &[(&str, &str)]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    // Nothing of the surroundings but what a test gives.
    command.env_clear().envs(variables.iter().copied()).args(arguments);
    command.output().expect("the binary runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("output is UTF-8")
}

/// Bad input: exit code 2, nothing on stdout, one line on stderr that holds all of `parts`.
fn check_refused(arguments: &[&str], variables: &[(&str, &str)], parts: &[&str]) {
    let output = forebay(arguments, variables);
    let line = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{arguments:?}: {line}");
    assert_eq!(text(&output.stdout), "", "{arguments:?}");
    assert_eq!(line.matches('\n').count(), 1, "{arguments:?}: {line:?}");
    for part in parts {
        assert!(line.contains(part), "{line:?} lacks {part:?}");
    }
}

fn config_file(content: &str) -> tempfile::NamedTempFile {
    let file = tempfile::NamedTempFile::new().expect("a temporary file");
    std::fs::write(file.path(), content).expect("a temporary file can be written");
    file
}

fn path_of(file: &tempfile::NamedTempFile) -> &str {
    file.path().to_str().expect("temporary paths are UTF-8")
}

#[test]
fn flags_that_do_not_exist_are_refused_with_a_suggestion() {
    check_refused(&["serve", "--data-dirs", "/x"], &[], &["--data-dirs", "--data-dir"]);
    check_refused(&["server"], &[], &["server", "serve"]);
    check_refused(&["serve", "--listen"], &[], &["--listen"]);
    check_refused(&["serve", "extra"], &[], &["extra"]);
}

#[test]
fn values_of_flags_are_refused_by_name() {
    check_refused(&["serve", "--listen", "localhost"], &[], &["--listen", "localhost", "IP address"]);
    check_refused(&["serve", "--admin-listen", "9701"], &[], &["--admin-listen", "9701"]);
    check_refused(&["serve", "--mode", "WRITEBACK"], &[], &["--mode", "WRITEBACK", "WRITE_BACK"]);
    check_refused(&["serve", "--size", "much"], &[], &["--size", "much", "percentage"]);
    check_refused(&["serve", "--under-store", "ftp://x"], &[], &["--under-store", "file://, s3:// or hdfs://"]);
    check_refused(&["serve", "--mount", "logs"], &[], &["--mount", "logs", "BUCKET=URL"]);
    check_refused(&["serve", "--mount", "Logs=file:///x"], &[], &["--mount", "Logs"]);
    check_refused(&["serve", "--mount", "logs=x"], &[], &["--mount", "logs", "file://, s3:// or hdfs://"]);
    check_refused(&["serve", "--log-level", "inof"], &[], &["--log-level", "inof", "\"info\"?"]);
    check_refused(&["serve", "--domain", "*.example.com"], &[], &["--domain", "*.example.com", "host name"]);
    check_refused(&["serve", "--size", "1 KiB"], &[], &["--size", "1 KiB", "8 segments"]);
    check_refused(&["serve", "--mount", "logs=file:///", "--mount", "logs=file:///x"], &[], &["--mount", "logs"]);
    check_refused(&["serve", "--log-format", "xml"], &[], &["--log-format", "xml"]);
    check_refused(&["serve", "--tls-cert", "/x"], &[], &["--tls-cert", "tls_key"]);
    check_refused(&["serve", "--config", "/nowhere/forebay.toml"], &[], &["--config", "/nowhere/forebay.toml"]);
}

#[test]
fn values_of_variables_are_refused_by_name() {
    check_refused(&["serve"], &[("FOREBAY_SERVER_LISTEN", "x")], &["FOREBAY_SERVER_LISTEN", "\"x\""]);
    check_refused(&["config", "check"], &[("FOREBAY_CACHE_PAGE_SIZE", "1")], &["FOREBAY_CACHE_PAGE_SIZE", "\"1\""]);
    check_refused(&["serve"], &[("FOREBAY_ROOT_ACCESS_KEY", "root")], &["FOREBAY_ROOT_ACCESS_KEY", "root_secret_key"]);
}

#[test]
fn a_file_is_checked_with_line_and_suggestion() {
    let file = config_file("[store]\nsegment_sise = \"64 MiB\"\n");
    check_refused(&["config", "check", "--config", path_of(&file)], &[], &[":2", "segment_sise", "segment_size"]);
    check_refused(&["serve", "--config", path_of(&file)], &[], &[":2", "segment_sise", "segment_size"]);
    check_refused(&["serve"], &[("FOREBAY_CONFIG", path_of(&file))], &[":2", "segment_sise", "segment_size"]);
    let file =
        config_file("[store]\nsegment_size = \"64 MiB\"\n\n[[policy]]\npath = \"/\"\nwriteMode = \"WRITE_BACK\"\n");
    let output = forebay(&["config", "check", "--config", path_of(&file)], &[]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(text(&output.stdout).lines().count(), 1);
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn each_mistake_of_a_file_has_a_line() {
    let file = config_file("[store]\nsegment_sise = \"64 MiB\"\n[server]\nusers_fill = \"/x\"\n");
    for command in [&["config", "check"][..], &["serve"]] {
        let output = forebay(&[command, &["--config", path_of(&file)]].concat(), &[]);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{told}");
        assert_eq!(told.lines().count(), 2, "{told}");
        assert!(told.lines().all(|line| line.starts_with("forebay: ")), "{told}");
        assert!(told.contains(":2: ") && told.contains(":4: ") && told.contains("\"users_file\""), "{told}");
    }
}

/// What `serve` and `config check` say of a file and a directory that are or are not there.
fn check_file_refused(content: &str, parts: &[&str]) {
    let file = config_file(content);
    check_refused(&["serve", "--config", path_of(&file)], &[], parts);
    check_refused(&["config", "check", "--config", path_of(&file)], &[], parts);
}

#[test]
fn files_and_directories_that_are_not_there_are_refused_by_name() {
    check_refused(&["serve", "--mount", "logs=file:///no/such"], &[], &["--mount", "mounts.logs", "/no/such", "exist"]);
    check_file_refused("[mounts]\nlogs = \"file:///no/such\"\n", &[":2", "mounts.logs", "/no/such", "not exist"]);
    check_file_refused("[mounts]\nlogs = \"file:///dev/null\"\n", &["mounts.logs", "/dev/null is no directory"]);
    check_file_refused("[under_store]\nurl = \"file:///dev/null/x\"\n", &[":2", "under_store.url", "/dev/null/x"]);
    check_file_refused("[store]\ndata_dirs = [\"/dev/null\"]\n", &[":2", "store.data_dirs", "/dev/null is no"]);
    check_file_refused("[server]\nusers_file = \"/no/such\"\n", &[":2", "server.users_file", "/no/such"]);
    let tls = "[server]\ntls_cert = \"/no/cert\"\ntls_key = \"/no/key\"\n";
    check_file_refused(tls, &[":2", "server.tls_cert", "/no/cert"]);
    let flags = ["serve", "--tls-cert", "/no/cert", "--tls-key", "/no/key"];
    check_refused(&flags, &[], &["--tls-cert", "server.tls_cert", "/no/cert"]);
}

#[test]
fn the_check_makes_nothing() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let inside = |name: &str| directory.path().join(name).display().to_string();
    let (data, under) = (inside("data"), inside("under"));
    let file = config_file(&format!("[store]\ndata_dirs = [{data:?}]\n[under_store]\nurl = \"file://{under}\"\n"));
    let output = forebay(&["config", "check", "--config", path_of(&file)], &[]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(std::fs::read_dir(directory.path()).expect("it is there").count(), 0);
}

#[test]
fn without_keys_no_other_machine_is_served() {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let data = directory.path().join("data");
    let arguments =
        ["serve", "--listen", "0.0.0.0:0", "--admin-listen", "127.0.0.1:0", "--log-level", "error", "--data-dir"];
    let arguments = [&arguments[..], &[data.to_str().expect("UTF-8")]].concat();
    check_refused(&arguments, &[], &["server.listen", "0.0.0.0:0", "FOREBAY_ROOT_ACCESS_KEY"]);
}

#[test]
fn help_and_version_are_no_errors() {
    for (arguments, part) in [
        (&["--help"][..], "serve"),
        (&["serve", "--help"], "--under-store"),
        (&["config", "--help"], "reference"),
        (&["--version"], env!("CARGO_PKG_VERSION")),
    ] {
        let output = forebay(arguments, &[]);
        assert!(output.status.success(), "{arguments:?}");
        assert!(text(&output.stdout).contains(part), "{arguments:?}");
    }
}

fn check_document(name: &str, arguments: &[&str]) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs").join(name);
    let document = std::fs::read_to_string(&path).expect("the document exists");
    let output = forebay(arguments, &[]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(text(&output.stdout) == document, "docs/{name} is out of date: run `make references`");
}

#[test]
fn the_references_in_docs_are_those_of_the_binary() {
    check_document("configuration-reference.md", &["config", "reference"]);
    check_document("metrics-reference.md", &["metrics", "reference"]);
    check_document("command-line-reference.md", &["cli", "reference"]);
}
