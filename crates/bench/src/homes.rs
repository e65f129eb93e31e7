//! Where the keys of a cluster are at home.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use forebay_env::Clock;
use serde::Deserialize;
use tokio::runtime::Builder;
use twox_hash::XxHash3_64;

use crate::failure::Failure;
use crate::http::{Answer, Connection, Endpoint};
use crate::signature::Credentials;

const ANSWER_MAX: Duration = Duration::from_secs(10);

/// Which worker each key is at home at.
pub(crate) struct Homes {
    pub(crate) endpoints: Vec<Endpoint>,
    /// For each slot, an index into the endpoints.
    slots: Vec<Option<usize>>,
}

/// The answer of the admin API.
#[derive(Deserialize)]
struct Told {
    workers: Vec<Worker>,
    homes: Vec<Option<usize>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Worker {
    id: String,
    s3_address: Option<String>,
}

impl Homes {
    /// Asks a worker by its admin address.
    ///
    /// # Errors
    /// When it gives no homes.
    pub(crate) fn ask(admin: &str, credentials: &Credentials, clock: &Arc<dyn Clock>) -> Result<Self, Failure> {
        let endpoint = Endpoint::parse(admin).map_err(|problem| Failure::Refused(format!("--cluster {problem}")))?;
        let Credentials { access_key, secret_key, .. } = credentials;
        let head = format!(
            "GET /api/v1/cluster/homes HTTP/1.1\r\nhost: {}\r\nauthorization: Basic {}\r\n\r\n",
            endpoint.authority,
            BASE64_STANDARD.encode(format!("{access_key}:{secret_key}"))
        );
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|e| Failure::of("runtime", &e))?;
        let exchange = async {
            let mut connection = Connection::new(endpoint, Arc::clone(clock));
            let exchange = connection.exchange(head.as_bytes(), std::iter::empty(), None);
            tokio::time::timeout(ANSWER_MAX, exchange).await
        };
        let failed = |problem: String| Failure::Failed(format!("--cluster {admin}: {problem}"));
        match runtime.block_on(exchange) {
            Err(_) => Err(failed("no answer".to_owned())),
            Ok(Err(trouble)) => Err(failed(format!("{trouble:?}"))),
            Ok(Ok(Answer { status: 200, text, .. })) => Self::read(&text).map_err(failed),
            Ok(Ok(answer)) => {
                Err(failed(format!("status {}: {}", answer.status, String::from_utf8_lossy(&answer.text).trim())))
            }
        }
    }

    pub(crate) fn read(text: &[u8]) -> Result<Self, String> {
        let told: Told =
            serde_json::from_slice(text).map_err(|error| format!("not the homes of a cluster: {error}"))?;
        let count = told.workers.len();
        let endpoint = |worker: Worker| match worker.s3_address {
            Some(address) => Endpoint::parse(&address),
            None => Err(format!("worker {} has no address for clients", worker.id)),
        };
        let endpoints = told.workers.into_iter().map(endpoint).collect::<Result<Vec<_>, _>>()?;
        if told.homes.is_empty() || told.homes.iter().flatten().any(|home| *home >= count) || count == 0 {
            return Err("no worker has slots".to_owned());
        }
        Ok(Self { endpoints, slots: told.homes })
    }

    /// The home of a key, if its slot has one: an index into the endpoints.
    pub(crate) fn home_of(&self, bucket: &str, key: &str) -> Option<usize> {
        let hash = XxHash3_64::oneshot(format!("{bucket}\0{key}").as_bytes());
        self.slots[(hash % self.slots.len() as u64) as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_are_those_of_the_answer() {
        let told = |homes: &str| {
            let workers = r#"[{"id":"a","s3Address":"127.0.0.1:1"},{"id":"b","s3Address":"127.0.0.1:2"}]"#;
            Homes::read(format!(r#"{{"workers":{workers},"homes":{homes}}}"#).as_bytes())
        };
        let homes = told("[0,1,null,1]").unwrap();
        let found: Vec<_> = (0..100).map(|number| homes.home_of("bucket", &format!("key/{number}"))).collect();
        for home in [Some(0), Some(1), None] {
            assert!(found.contains(&home), "{home:?}");
        }
        // As workers place keys: `tests/cluster/test_homes.py` compares.
        assert_eq!(XxHash3_64::oneshot(b"bucket\0key") % 1024, 37);
        for wrong in ["[]", "[2]", "{}"] {
            assert!(told(wrong).is_err(), "{wrong}");
        }
    }
}
