//! The loop between keyboard, server and screen.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};

use super::feed::{Feed, Snapshot};
use super::state::App;
use super::view;
use crate::commands::{Interruptible, Pause, is_colourful};
use crate::failure::Failure;

/// How long a key is waited for before news of the server are drawn: what a hand does not notice.
const KEY_WAIT: Duration = Duration::from_millis(100);

/// How long signals are listened for in each round.
const SIGNAL_WAIT: Duration = Duration::from_millis(1);

type Look = Result<Snapshot, String>;

/// The terminal, which is as it was before when this is dropped; a panic brings it back too.
struct Screen(DefaultTerminal);

impl Screen {
    fn open() -> Result<Self, Failure> {
        ratatui::try_init().map(Self).map_err(|error| Failure::of("terminal", &error))
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        ratatui::restore();
    }
}

pub(super) fn check_terminal() -> Result<(), Failure> {
    if io::stdout().is_terminal() && io::stdin().is_terminal() {
        return Ok(());
    }
    Err(Failure::Refused("top needs a terminal; --once prints one frame without it".to_owned()))
}

pub(super) fn run(mut app: App, feed: Feed, interval: Duration) -> Result<(), Failure> {
    app.is_colourful = is_colourful(&io::stdout());
    let mut waiting = Interruptible::new()?;
    let (looks_sender, looks) = mpsc::channel();
    // Dropped at the end, which ends the thread that looks.
    let (_stay, stop) = mpsc::channel();
    waiting.background(move || look_on(feed, interval, &looks_sender, &stop));
    let mut screen = Screen::open()?;
    let trouble = |error: io::Error| Failure::of("terminal", &error);
    while !app.is_over {
        screen.0.draw(|frame| view::draw(frame, &mut app)).map_err(trouble)?;
        take_keys(&mut app).map_err(trouble)?;
        take_looks(&mut app, &looks);
        if waiting.pause(SIGNAL_WAIT) == Pause::Interrupted {
            app.is_over = true;
        }
    }
    Ok(())
}

/// A change of size is an event too, after which the next round redraws the screen.
fn take_keys(app: &mut App) -> io::Result<()> {
    let mut wait = KEY_WAIT;
    while event::poll(wait)? {
        if let Event::Key(key) = event::read()? {
            app.pressed(key);
        }
        wait = Duration::ZERO;
    }
    Ok(())
}

fn take_looks(app: &mut App, looks: &Receiver<Look>) {
    while let Ok(look) = looks.try_recv() {
        app.arrived(look);
    }
}

/// Looks again and again, on a thread of its own: a server that does not answer must not stop the keys.
fn look_on(mut feed: Feed, interval: Duration, looks: &Sender<Look>, stop: &Receiver<()>) {
    while stop.recv_timeout(interval) == Err(RecvTimeoutError::Timeout) {
        if looks.send(feed.look().map_err(|error| error.to_string())).is_err() {
            return;
        }
    }
}
