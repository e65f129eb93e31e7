//! The command line. Names are those of MinIO's `warp` where it has the same option.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use forebay_types::{ByteSize, Period};

use crate::keys::Keys;
use crate::signature::Signatures;
use crate::sizes::Sizes;

/// Puts load on a server that speaks S3, and says what it took.
#[derive(Debug, Parser)]
#[command(name = "forebay-bench", version, propagate_version = true)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Writes objects
    Put(PutOptions),
    /// Reads objects that were written before
    Get(GetOptions),
    /// Asks for the headers of objects
    Stat(RunOptions),
    /// Reads, asks for headers, writes and deletes
    Mixed(MixedOptions),
    /// Writes an object, reads it, and compares
    ReadAfterWrite(RunOptions),
    /// Lists objects, a page at a time
    List(ListOptions),
    /// Deletes objects
    Delete(DeleteOptions),
    /// Uploads objects in parts
    Multipart(MultipartOptions),
    /// Runs a workload file of COSBench
    Cosbench(CosbenchOptions),
    /// Measures what disk and processor of this machine can do
    Limits(LimitsOptions),
    /// Serves objects from memory over HTTP, and does nothing else: what a server could reach at most
    BareServer(BareServerOptions),
}

/// Which server, and how.
#[derive(Debug, Args)]
pub(crate) struct ServerOptions {
    /// host:port or http://host:port; several, with commas between them, are used in turn
    #[arg(long, value_name = "HOST", value_delimiter = ',', default_value = "127.0.0.1:9700")]
    pub(crate) host: Vec<String>,
    /// Admin address of a worker of a Forebay cluster: each request goes to the home of its key. Takes the place of
    /// --host
    #[arg(long, value_name = "HOST", conflicts_with = "host")]
    pub(crate) cluster: Option<String>,
    /// Access key
    #[arg(long, value_name = "KEY", env = "FOREBAY_ACCESS_KEY", default_value = "")]
    pub(crate) access_key: String,
    /// Secret key
    #[arg(long, value_name = "KEY", env = "FOREBAY_SECRET_KEY", hide_env_values = true, default_value = "")]
    pub(crate) secret_key: String,
    #[command(flatten)]
    pub(crate) request: RequestOptions,
}

/// How requests are made.
#[derive(Debug, Args)]
pub(crate) struct RequestOptions {
    /// Region that requests are signed for
    #[arg(long, value_name = "REGION", default_value = "us-east-1")]
    pub(crate) region: String,
    /// When to sign
    #[arg(long, value_name = "WHEN", value_enum, default_value = "each")]
    pub(crate) signatures: Signatures,
    /// Sends UNSIGNED-PAYLOAD instead of the SHA-256 of bodies
    #[arg(long)]
    pub(crate) unsigned_payload: bool,
    /// Longest time of one request
    #[arg(long, value_name = "PERIOD", default_value = "60s")]
    pub(crate) timeout: Period,
    /// Compares all that is read with what was written
    #[arg(long)]
    pub(crate) verify: bool,
    /// Seed of sizes, contents and choices
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Threads of the generator, at most one for each core
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) threads: usize,
    /// Process of the server on this machine: its processor time, memory and writes are reported, children included
    #[arg(long, value_name = "PID")]
    pub(crate) server_pid: Option<u32>,
    #[command(flatten)]
    pub(crate) output: OutputOptions,
}

/// Where results go beside the terminal.
#[derive(Debug, Args)]
pub(crate) struct OutputOptions {
    /// Writes all results as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
    /// Writes a line for each operation and round
    #[arg(long, value_name = "FILE")]
    pub(crate) csv: Option<PathBuf>,
    /// Writes a page with charts
    #[arg(long, value_name = "FILE")]
    pub(crate) html: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct RunOptions {
    #[command(flatten)]
    pub(crate) server: ServerOptions,
    /// Bucket, created when it is not there
    #[arg(long, value_name = "NAME", default_value = "forebay-bench")]
    pub(crate) bucket: String,
    /// What all keys begin with; everything under it is deleted at the end
    #[arg(long, value_name = "PREFIX", default_value = "forebay-bench/")]
    pub(crate) prefix: String,
    /// Leaves the objects in the bucket
    #[arg(long)]
    pub(crate) noclear: bool,
    /// The objects are there already: writes none before it measures
    #[arg(long)]
    pub(crate) prepared: bool,
    /// Objects to work on
    #[arg(long, value_name = "NUMBER", default_value_t = 2500)]
    pub(crate) objects: u64,
    /// Size of objects: 10KiB, uniform:MIN,MAX or lognormal:MEDIAN,SIGMA[,MAX]
    #[arg(long = "obj.size", value_name = "SIZES", default_value = "10MiB")]
    pub(crate) size: Sizes,
    /// Which objects are taken: uniform, sequential, zipf or zipf:EXPONENT
    #[arg(long, value_name = "KEYS", default_value = "uniform")]
    pub(crate) keys: Keys,
    /// Connections; several numbers, with commas between them, are measured one after the other
    #[arg(long, value_name = "NUMBERS", value_delimiter = ',', default_value = "20")]
    pub(crate) concurrent: Vec<usize>,
    /// Operations per second of all connections together, whatever the server does; without it, each connection waits
    /// for its last answer
    #[arg(long, value_name = "NUMBER")]
    pub(crate) rate: Option<f64>,
    /// Length of a round
    #[arg(long, value_name = "PERIOD", default_value = "10s", value_parser = duration)]
    pub(crate) duration: Duration,
    /// Rounds, of which medians are shown
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) rounds: usize,
}

#[derive(Debug, Args)]
pub(crate) struct PutOptions {
    #[command(flatten)]
    pub(crate) run: RunOptions,
    /// Writes the same objects again, chosen by --keys, instead of new ones
    #[arg(long)]
    pub(crate) overwrite: bool,
}

#[derive(Debug, Args)]
pub(crate) struct GetOptions {
    #[command(flatten)]
    pub(crate) run: RunOptions,
    /// Reads ranges of this size, from multiples of it chosen at random, instead of whole objects
    #[arg(long, value_name = "SIZE")]
    pub(crate) range: Option<ByteSize>,
}

#[derive(Debug, Args)]
pub(crate) struct MixedOptions {
    #[command(flatten)]
    pub(crate) run: RunOptions,
    /// Share of GET
    #[arg(long = "get-distrib", value_name = "SHARE", default_value_t = 45.0)]
    pub(crate) get: f64,
    /// Share of STAT
    #[arg(long = "stat-distrib", value_name = "SHARE", default_value_t = 30.0)]
    pub(crate) stat: f64,
    /// Share of PUT, at least that of DELETE
    #[arg(long = "put-distrib", value_name = "SHARE", default_value_t = 15.0)]
    pub(crate) put: f64,
    /// Share of DELETE
    #[arg(long = "delete-distrib", value_name = "SHARE", default_value_t = 10.0)]
    pub(crate) delete: f64,
}

#[derive(Debug, Args)]
pub(crate) struct ListOptions {
    #[command(flatten)]
    pub(crate) run: RunOptions,
    /// Keys of a page, at most 1000
    #[arg(long, value_name = "NUMBER", default_value_t = 1000)]
    pub(crate) max_keys: u32,
}

#[derive(Debug, Args)]
pub(crate) struct DeleteOptions {
    #[command(flatten)]
    pub(crate) run: RunOptions,
    /// Objects that one request deletes, at most 1000
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) batch: u32,
}

#[derive(Debug, Args)]
pub(crate) struct MultipartOptions {
    #[command(flatten)]
    pub(crate) run: RunOptions,
    /// Size of a part, at least 5 MiB for all but the last in S3
    #[arg(long = "part.size", value_name = "SIZE", default_value = "5MiB")]
    pub(crate) part_size: ByteSize,
}

#[derive(Debug, Args)]
pub(crate) struct CosbenchOptions {
    /// XML file of a workload
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
    /// host:port or http://host:port, instead of what the file says
    #[arg(long, value_name = "HOST", value_delimiter = ',')]
    pub(crate) host: Vec<String>,
    /// Access key, instead of what the file says
    #[arg(long, value_name = "KEY", env = "FOREBAY_ACCESS_KEY")]
    pub(crate) access_key: Option<String>,
    /// Secret key, instead of what the file says
    #[arg(long, value_name = "KEY", env = "FOREBAY_SECRET_KEY", hide_env_values = true)]
    pub(crate) secret_key: Option<String>,
    #[command(flatten)]
    pub(crate) request: RequestOptions,
}

#[derive(Debug, Args)]
pub(crate) struct LimitsOptions {
    /// Directory on the disk to measure; what is written there has no name, and is gone at the end
    #[arg(long, value_name = "DIR")]
    pub(crate) directory: PathBuf,
    /// Size of the appends that are synced one by one
    #[arg(long = "obj.size", value_name = "SIZE", default_value = "10KiB")]
    pub(crate) size: ByteSize,
    /// Length of each measurement
    #[arg(long, value_name = "PERIOD", default_value = "2s", value_parser = duration)]
    pub(crate) duration: Duration,
    /// Writes the results as JSON
    #[arg(long, value_name = "FILE")]
    pub(crate) json: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct BareServerOptions {
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:9790")]
    pub(crate) listen: std::net::SocketAddr,
    /// Size of what every GET gives
    #[arg(long = "obj.size", value_name = "SIZE", default_value = "10KiB")]
    pub(crate) size: ByteSize,
    /// Threads of the server
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    pub(crate) threads: usize,
    /// How long every answer is kept back
    #[arg(long, value_name = "PERIOD", default_value = "0s")]
    pub(crate) delay: Period,
    /// Bytes a second of each body of a GET, as one connection to a distant store carries. 0 is no limit
    #[arg(long, value_name = "SIZE", default_value = "0B")]
    pub(crate) stream_bandwidth: ByteSize,
    /// Requests served in a second; the others get 503 SlowDown. 0 is no limit
    #[arg(long, value_name = "NUMBER", default_value_t = 0)]
    pub(crate) rate: u32,
}

/// `10s`, and as warp writes it, `1m30s` or `5m`.
fn duration(text: &str) -> Result<Duration, String> {
    let parsed = match text.parse::<Period>() {
        Ok(period) => period.0,
        Err(error) => {
            let pieces = text.split_inclusive(['h', 'm', 's']);
            let mut total = Duration::ZERO;
            for piece in pieces {
                let (number, unit) = piece.split_at(piece.len() - piece.chars().next_back().map_or(0, char::len_utf8));
                let number: u32 = number.parse().map_err(|_| error.to_string())?;
                let seconds = match unit {
                    "h" => 3600,
                    "m" => 60,
                    "s" => 1,
                    _ => return Err(error.to_string()),
                };
                total += Duration::from_secs(seconds) * number;
            }
            total
        }
    };
    if parsed.is_zero() { Err("must be longer than nothing".to_owned()) } else { Ok(parsed) }
}

/// The error message of clap, in one line.
pub(crate) fn one_line(error: &clap::Error) -> String {
    let text = error.to_string();
    let lines = text.lines().map(str::trim).take_while(|line| !line.starts_with("Usage:"));
    let lines: Vec<_> = lines.filter(|line| !line.is_empty() && !line.starts_with("For more information")).collect();
    lines.join("; ").replacen("error: ", "", 1)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_does_not_contradict_itself() {
        Cli::command().debug_assert();
    }

    #[test]
    fn durations_are_read_as_here_and_as_in_warp() {
        for (text, seconds) in [("10s", 10), ("10 s", 10), ("5m", 300), ("1m30s", 90), ("2 min", 120), ("1h", 3600)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for wrong in ["", "0s", "10", "5x", "m", "-1s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn errors_name_option_and_value_in_one_line() {
        for (option, value) in [("--obj.size", "ten"), ("--keys", "odd"), ("--duration", "0s"), ("--concurrent", "x")] {
            let error = Cli::try_parse_from(["forebay-bench", "get", option, value]).unwrap_err();
            let line = one_line(&error);
            assert!(line.contains(option) && line.contains(value) && !line.contains('\n'), "{line}");
        }
    }
}
