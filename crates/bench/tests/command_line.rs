//! The program, started as a shell starts it.

use std::process::Command;

#[test]
fn a_mistake_in_an_option_is_one_line_and_code_2() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay-bench"));
    let output = command.args(["put", "--threads", "many"]).output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--threads") && said.contains("many") && said.lines().count() == 1, "{said}");
}
