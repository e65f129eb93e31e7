//! The program as the tests in Python start it.

use std::process::Command;

#[test]
fn an_unknown_client_is_named() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay-test-clients"));
    let output =
        command.arg("gopher").env("FOREBAY_ENDPOINT", "http://127.0.0.1:1").output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("gopher"), "{said}");
}
