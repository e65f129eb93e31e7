//! What all commands that talk to a worker share.

use clap::Args;

use super::output::{Format, OutputOptions};
use crate::client::{Client, Connection};
use crate::failure::Failure;

/// Which worker, and how to show what it says.
#[derive(Debug, Args)]
pub(crate) struct Target {
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    output: OutputOptions,
}

impl Target {
    pub(crate) fn client(&self) -> Result<Client, Failure> {
        Client::new(&self.connection)
    }

    pub(crate) fn is_json(&self) -> bool {
        self.output.output == Format::Json
    }
}
