//! `forebay top`: a worker, live.

mod feed;
mod live;
mod panels;
mod state;
mod view;

use std::time::Duration;

use clap::Args;
use forebay_types::Period;

use crate::client::Call;
use crate::commands::{Target, print};
use crate::failure::Failure;
use feed::Feed;
use state::App;

/// Shortest time between two looks: a look is five requests, and the worker samples itself every five seconds.
const INTERVAL_MIN: Duration = Duration::from_millis(250);

/// Size of the frame of `--once`: all panels with room for some lines, and few enough columns for a mail.
const FRAME: (u16, u16) = (100, 48);

#[derive(Debug, Args)]
pub(crate) struct TopOptions {
    /// Time between two looks
    #[arg(long, value_name = "PERIOD", default_value = "2s", value_parser = interval)]
    interval: Period,
    /// Prints one frame as text and ends
    #[arg(long)]
    once: bool,
    #[command(flatten)]
    target: Target,
}

fn interval(text: &str) -> Result<Period, String> {
    let period: Period = text.parse().map_err(|error: forebay_types::units::InvalidUnit| error.to_string())?;
    if period.0 < INTERVAL_MIN { Err(format!("must be at least {}", Period(INTERVAL_MIN))) } else { Ok(period) }
}

pub(crate) fn top(options: &TopOptions) -> Result<(), Failure> {
    let client = options.target.client()?;
    if options.target.is_json() {
        if !options.once {
            return Err(Failure::Refused("--output json: shows one moment: add --once".to_owned()));
        }
        return print(&client.call(Call::get("overview"))?.text);
    }
    if !options.once {
        live::check_terminal()?;
    }
    let mut app = App::new(client.endpoint());
    let mut feed = Feed::new(client);
    // A failure at the start is reported in one line, as other commands do.
    app.arrived(Ok(feed.look()?));
    if options.once { print(&view::text(&mut app, FRAME)) } else { live::run(app, feed, options.interval.0) }
}
