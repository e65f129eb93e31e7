//! `forebay policy edit`: all rules in the user's editor, checked, compared, and applied if nobody else was faster.

mod diff;
mod draft;
mod rules;

use std::io::{self, IsTerminal};

use forebay_types::{PolicyRule, PolicySet};
use ureq::http::{Method, StatusCode};

use super::Target;
use super::output::{is_colourful, print};
use super::units::escaped;
use super::waiting::Interruptible;
use crate::client::{Answer, Call, CallError, Client};
use crate::failure::Failure;
use draft::Draft;
use rules::Wrong;

/// Tries of an editor that is no human's.
const SCRIPT_TRIES_MAX: usize = 10;

pub(super) fn edit(client: &Client, yes: bool, target: &Target) -> Result<(), Failure> {
    let present = client.call(Call::get("policies"))?;
    let before: Vec<PolicyRule> = present.read()?;
    let mut draft = Draft::new(&rules::document(client.endpoint(), &before))?;
    let edited = edit_until_valid(client, &mut draft, tries_max(yes));
    let after = match edited {
        Ok(after) if after == before => {
            eprintln!("nothing has changed");
            return if target.is_json() { print(&present.text) } else { Ok(()) };
        }
        Ok(after) => after,
        Err(failure) => return Err(draft.keep_after(failure)),
    };
    match apply(client, &present, &before, &after, yes, target) {
        Ok(()) => Ok(()),
        Err(failure) => Err(draft.keep_after(failure)),
    }
}

/// How often the editor is opened. Nobody looks at a mistake where nobody is asked; and an editor without a terminal, a
/// script, may make it for ever.
fn tries_max(yes: bool) -> usize {
    match (yes, io::stdin().is_terminal()) {
        (true, _) => 1,
        (false, true) => usize::MAX,
        (false, false) => SCRIPT_TRIES_MAX,
    }
}

/// Opens the editor until what it leaves can hold, is left as it was refused, or has been refused often enough.
fn edit_until_valid(client: &Client, draft: &mut Draft, tries_max: usize) -> Result<Vec<PolicyRule>, Failure> {
    let mut refused: Option<(String, Wrong)> = None;
    for tried in 1.. {
        let text = draft.edit()?;
        if let Some((shown, wrong)) = &refused
            && *shown == text
        {
            return Err(Failure::Refused(wrong.in_draft()));
        }
        let text = rules::without_error(&text);
        match rules::parse(text).and_then(|rules| check_at_server(client, rules)) {
            Ok(rules) => return Ok(rules),
            Err(Wrong::Nothing) => return Err(Failure::Failed("cancelled: the file is empty".to_owned())),
            Err(Wrong::Unchecked(error)) => return Err(error.into()),
            Err(wrong) => {
                let shown = rules::with_error(text, &wrong);
                draft.write(&shown)?;
                if tried >= tries_max {
                    return Err(Failure::Refused(wrong.in_draft()));
                }
                refused = Some((shown, wrong));
            }
        }
    }
    unreachable!("it ends with the tries")
}

/// What this version does not know the server may, and the other way round. Brings the rules into the server's order.
fn check_at_server(client: &Client, rules: Vec<PolicyRule>) -> Result<Vec<PolicyRule>, Wrong> {
    match client.call(Call::new(Method::POST, "policies/check").json(&rules)) {
        Ok(_) => Ok(PolicySet::new(rules).map(|set| set.rules().to_vec()).expect("it was checked here first")),
        Err(error) if error.is_status(StatusCode::BAD_REQUEST) => Err(Wrong::Somewhere(error.to_string())),
        Err(error) => Err(Wrong::Unchecked(error)),
    }
}

fn apply(
    client: &Client,
    present: &Answer,
    before: &[PolicyRule],
    after: &[PolicyRule],
    yes: bool,
    target: &Target,
) -> Result<(), Failure> {
    let (before, pretty) = (rules::pretty(before), rules::pretty(after));
    if target.is_json() {
        eprint!("{}", diff::unified(&before, &pretty, is_colourful(&io::stderr())));
    } else {
        print(&diff::unified(&before, &pretty, is_colourful(&io::stdout())))?;
    }
    ask_unless(yes, "apply?")?;
    let call = Call::new(Method::PUT, "policies").if_match(present.version.as_deref()).json(&after);
    let answer = client.call(call).map_err(not_applied)?;
    eprintln!(
        "applied as version {}",
        answer.version.as_deref().map_or("?".to_owned(), |tag| escaped(tag.trim_matches('"')))
    );
    if target.is_json() { print(&answer.text) } else { Ok(()) }
}

/// Of a change that depends on the version of the rules that was read before the question.
pub(super) fn not_applied(error: CallError) -> Failure {
    match error {
        CallError::Refused { status: StatusCode::PRECONDITION_FAILED, .. } => {
            Failure::Refused("somebody else has changed the path policies meanwhile: nothing was applied".to_owned())
        }
        other => other.into(),
    }
}

/// Asks at a terminal; scripts are not asked.
///
/// # Errors
/// `Failed` when the answer is no.
pub(super) fn ask_unless(yes: bool, question: &str) -> Result<(), Failure> {
    if yes || !io::stdin().is_terminal() || is_wanted(question)? {
        return Ok(());
    }
    Err(Failure::Failed("cancelled: nothing was applied".to_owned()))
}

fn is_wanted(question: &str) -> Result<bool, Failure> {
    eprint!("{question} [y/N] ");
    let mut line = String::new();
    let read = Interruptible::new()?.blocking(move || io::stdin().read_line(&mut line).map(|_| line));
    let line = read.ok_or_else(|| Failure::Interrupted("cancelled: nothing was applied".to_owned()))?;
    let line = line.map_err(|error| Failure::of("standard input", &error))?;
    Ok(matches!(line.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
