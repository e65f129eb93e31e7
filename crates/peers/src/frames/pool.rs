//! The shared connections of this worker to others.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared};
use http::request::Parts;
use parking_lot::Mutex;

use super::codec::{self, Answer};
use super::connection::Connection;
use crate::connect::Connector;
use crate::requests::Origin;
use crate::{Error, Result};

/// Most connections to one worker. Each end serves a connection with one task.
const CONNECTIONS_MAX: usize = 8;

/// One that is being made, or is there. All who want it wait for the same.
type Making = Shared<BoxFuture<'static, std::result::Result<Arc<Connection>, String>>>;

pub(crate) struct Pool {
    connector: Connector,
    /// By address and number.
    connections: Mutex<HashMap<(String, usize), Making>>,
    /// To each worker.
    at_most: usize,
    turn: AtomicUsize,
}

impl Pool {
    pub(crate) fn new(connector: Connector) -> Self {
        let at_most = std::thread::available_parallelism().map_or(1, usize::from).min(CONNECTIONS_MAX);
        Self { connector, connections: Mutex::default(), at_most, turn: AtomicUsize::new(0) }
    }

    /// Has a worker answer a request with this body. `None`: it is too long for a frame, and was not sent.
    ///
    /// # Errors
    /// See [`Error`].
    pub(crate) async fn ask(
        &self,
        worker: &str,
        address: &str,
        (parts, body): (&Parts, &[u8]),
        origin: &Origin,
    ) -> Result<Option<Answer>> {
        let unreachable = |problem| Error::Unreachable { worker: worker.to_owned(), problem };
        // A second one when the first one has ended in this moment.
        for _ in 0..2 {
            let connection = self.connection(address).await.map_err(unreachable)?;
            let Some(asked) = connection.begin() else { continue };
            let Some(frame) = codec::question(asked.number, worker, parts, body, origin) else { return Ok(None) };
            let ended =
                || Error::NoAnswer { worker: worker.to_owned(), problem: "the connection has ended".to_owned() };
            return asked.send(frame).await.ok_or_else(ended).map(Some);
        }
        Err(unreachable("it takes no more requests".to_owned()))
    }

    /// One of the connections to a worker, in turn.
    async fn connection(&self, address: &str) -> std::result::Result<Arc<Connection>, String> {
        let number = self.turn.fetch_add(1, Ordering::Relaxed) % self.at_most;
        let making = {
            let mut connections = self.connections.lock();
            match connections.get(&(address.to_owned(), number)) {
                Some(making) if !is_over(making) => making.clone(),
                Some(_) | None => {
                    connections.retain(|_, making| !is_over(making));
                    let making = self.make(address.to_owned());
                    connections.insert((address.to_owned(), number), making.clone());
                    making
                }
            }
        };
        making.await
    }

    fn make(&self, address: String) -> Making {
        let connector = self.connector.clone();
        let making = async move {
            let stream = connector.connect(&address).await.map_err(|error| error.to_string())?;
            Ok(Arc::new(Connection::start(stream)))
        };
        let making = making.boxed().shared();
        // It ends even if all who wait for it go away.
        forebay_env::spawn(making.clone().map(drop));
        making
    }
}

fn is_over(making: &Making) -> bool {
    making.peek().is_some_and(|made| made.as_ref().map_or(true, |connection| connection.is_closed()))
}
