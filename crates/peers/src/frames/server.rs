//! The end of a shared connection that answers.

use std::collections::HashMap;
use std::io;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_env::Env;
use futures::future::{AbortHandle, Abortable, try_join};
use futures::stream::FuturesUnordered;
use futures::{FutureExt, StreamExt};
use http::{Method, Response};
use http_body::Body;
use http_body_util::BodyExt;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Notify, mpsc};
use tokio_util::sync::{CancellationToken, DropGuard};

use super::codec::{self, Asked};
use super::{BODY_BYTES_MAX, whole_body};
use crate::message::{PeerBody, has_no_body};
use crate::requests::ClientRequests;

/// Requests of one connection at once. More are refused.
const REQUESTS_MAX: usize = 4096;

/// Answers that wait to be written, and those to come. With as many, nothing is read.
const ANSWERS_MAX: usize = 2 * REQUESTS_MAX;

/// How long a connection stays open after a stop when nothing comes. The other worker closes it before.
const CLOSED_WITHIN: Duration = Duration::from_secs(2);

/// How long an unfetched answer is kept. A fetch takes a round trip, and perhaps a new connection.
const FETCHED_WITHIN: Duration = Duration::from_secs(5);

/// Most unfetched answers.
const UNFETCHED_MAX: usize = 4096;

/// Answers that do not fit in a frame and wait to be fetched, by their tickets.
#[derive(Clone, Default)]
pub(crate) struct Unfetched {
    answers: Arc<Mutex<HashMap<String, Kept>>>,
    taken: Arc<Notify>,
}

struct Kept {
    answer: Response<PeerBody>,
    /// Ends the task that would drop the answer.
    _is_fetched: DropGuard,
}

impl Unfetched {
    /// `false`: there are too many.
    fn add(&self, ticket: &str, answer: Response<PeerBody>, env: &Env) -> bool {
        let is_fetched = CancellationToken::new();
        {
            let mut answers = self.answers.lock();
            if answers.len() >= UNFETCHED_MAX {
                return false;
            }
            answers.insert(ticket.to_owned(), Kept { answer, _is_fetched: is_fetched.clone().drop_guard() });
        }
        let (clock, unfetched, expired) = (Arc::clone(&env.clock), self.clone(), ticket.to_owned());
        forebay_env::spawn(async move {
            if is_fetched.run_until_cancelled(clock.sleep(FETCHED_WITHIN)).await.is_some() {
                tracing::debug!("an answer was not fetched by the worker that has asked");
                drop(unfetched.take(&expired));
            }
        });
        true
    }

    pub(crate) fn take(&self, ticket: &str) -> Option<Response<PeerBody>> {
        let taken = self.answers.lock().remove(ticket);
        self.taken.notify_waiters();
        taken.map(|kept| kept.answer)
    }

    pub(crate) fn clear(&self) {
        let answers = std::mem::take(&mut *self.answers.lock());
        drop(answers);
        self.taken.notify_waiters();
    }

    /// Returns when there are none.
    pub(crate) async fn until_none(&self) {
        loop {
            let mut taken = pin!(self.taken.notified());
            taken.as_mut().enable();
            if self.answers.lock().is_empty() {
                return;
            }
            taken.await;
        }
    }
}

/// What answers the requests of a connection.
pub(crate) struct Answerer {
    /// The name of this worker.
    own: Arc<str>,
    requests: Arc<dyn ClientRequests>,
    unfetched: Unfetched,
    env: Env,
    /// With what the tickets of its answers begin. Nobody guesses it, and no other connection has the same.
    tickets: String,
}

impl Answerer {
    pub(crate) fn new(own: Arc<str>, requests: Arc<dyn ClientRequests>, unfetched: Unfetched, env: Env) -> Self {
        let tickets = env.random.hex_id();
        Self { own, requests, unfetched, env, tickets }
    }

    /// The ticket of the answer to a request.
    fn ticket(&self, number: u64) -> String {
        format!("{}-{number}", self.tickets)
    }

    /// Answers until the other end closes the connection. After `stop` it refuses what comes, and the other end closes
    /// the connection when all that came before is answered.
    ///
    /// # Errors
    /// When the connection breaks, or something else than a frame comes.
    pub(crate) async fn serve(&self, stream: impl AsyncRead + AsyncWrite, stop: &CancellationToken) -> io::Result<()> {
        let (reader, writer) = tokio::io::split(stream);
        let (answered, queue) = mpsc::channel(ANSWERS_MAX);
        // Both at once: while the other worker takes no answers, requests that have begun must still come to their end,
        // because others may wait for what they hold.
        try_join(codec::write_all(queue, writer), self.answer_all(reader, answered, stop)).await.map(drop)
    }

    async fn answer_all(
        &self,
        reader: impl AsyncRead + Unpin,
        answered: mpsc::Sender<Bytes>,
        stop: &CancellationToken,
    ) -> io::Result<()> {
        let mut frames = codec::read(reader);
        let mut answers = FuturesUnordered::new();
        let mut stopped = pin!(stop.cancelled());
        let (mut is_stopping, mut is_at_end) = (false, false);
        // Of requests without an answer, by number.
        let mut in_flight: HashMap<u64, AbortHandle> = HashMap::new();
        // For the answer to the next request.
        let mut room: Option<mpsc::OwnedPermit<Bytes>> = None;
        loop {
            if is_at_end && answers.is_empty() {
                return Ok(());
            }
            tokio::select! {
                biased;
                () = &mut stopped, if !is_stopping => {
                    is_stopping = true;
                    // Without room for it, the other worker sees the end of the connection.
                    let _ = answered.try_send(codec::closing());
                }
                Some(number) = answers.next() => drop(in_flight.remove(&number)),
                // What is not asked for is not made, either: `select!` makes all of its futures in each turn.
                reserved = async { answered.clone().reserve_owned().await }, if room.is_none() && !is_at_end => room = reserved.ok(),
                frame = frames.next(), if room.is_some() && !is_at_end => {
                    let Some(frame) = frame.transpose()? else {
                        is_at_end = true;
                        continue;
                    };
                    let invalid = || io::Error::new(io::ErrorKind::InvalidData, "a frame without a number");
                    match codec::read_asked(frame).ok_or_else(invalid)? {
                        Asked::Cancel(number) => match in_flight.remove(&number) {
                            Some(request) => request.abort(),
                            // Its answer may wait, and nobody fetches it any more.
                            None => drop(self.unfetched.take(&self.ticket(number))),
                        },
                        Asked::Request(number, request) => {
                            let Some(room) = room.take() else { continue };
                            let refuses = is_stopping || in_flight.len() >= REQUESTS_MAX;
                            let (handle, registration) = AbortHandle::new_pair();
                            in_flight.insert(number, handle);
                            let answer = Abortable::new(self.answer(number, request, refuses), registration);
                            answers.push(async move {
                                if let Ok(answer) = answer.await {
                                    room.send(answer);
                                }
                                number
                            });
                        }
                    }
                }
                () = async { self.env.clock.sleep(CLOSED_WITHIN).await }, if is_stopping && answers.is_empty() => return Ok(()),
            }
        }
    }

    async fn answer(&self, number: u64, frame: Bytes, refuses: bool) -> Bytes {
        let answer = async {
            let request = codec::read_question(&self.own, &frame).filter(|_| !refuses);
            let Some((request, origin)) = request else { return codec::refused(number) };
            let is_head = request.method() == Method::HEAD;
            match self.requests.answer(request, origin).await {
                Ok(answer) => self.pack(number, answer, is_head).await,
                Err(error) => {
                    tracing::debug!(%error, "a request of another worker has no answer");
                    codec::broken(number)
                }
            }
        };
        // A panic ends one request, and not all those on the same connection.
        AssertUnwindSafe(answer).catch_unwind().await.unwrap_or_else(|_| codec::broken(number))
    }

    async fn pack(&self, number: u64, answer: Response<PeerBody>, is_head: bool) -> Bytes {
        let has_no_body = has_no_body(answer.status(), is_head);
        let length = match has_no_body || answer.body().is_end_stream() {
            true => Some(0),
            false => answer.body().size_hint().exact(),
        };
        let Some(length) = length.filter(|length| *length <= BODY_BYTES_MAX as u64) else {
            return self.keep(number, answer);
        };
        let (parts, body) = answer.into_parts();
        let body = match has_no_body {
            true => Bytes::new(),
            false => match body.collect().await {
                Ok(body) => body.to_bytes(),
                Err(error) => {
                    tracing::debug!(%error, "an answer to another worker broke off");
                    return codec::broken(number);
                }
            },
        };
        if body.len() as u64 != length {
            tracing::error!(
                length,
                sent = body.len(),
                "internal error: an answer to another worker does not have its declared length"
            );
            return codec::broken(number);
        }
        match codec::whole(number, parts.status, &parts.headers, &body) {
            Some(frame) => frame,
            None => self.keep(number, Response::from_parts(parts, whole_body(body))),
        }
    }

    /// Keeps an answer until it is fetched.
    fn keep(&self, number: u64, answer: Response<PeerBody>) -> Bytes {
        let ticket = self.ticket(number);
        match self.unfetched.add(&ticket, answer, &self.env) {
            true => codec::waits(number, &ticket),
            false => {
                tracing::warn!("an answer to another worker was dropped: too many wait to be fetched");
                codec::broken(number)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use http::Request;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::message::RequestBody;
    use crate::requests::Origin;

    /// Counts requests that have ended, and has no answer to them but one that does not fit in a frame.
    #[derive(Default)]
    struct Counting {
        begun: AtomicUsize,
        ended: AtomicUsize,
    }

    #[async_trait]
    impl ClientRequests for Counting {
        async fn answer(&self, request: Request<RequestBody>, _: Origin) -> io::Result<Response<PeerBody>> {
            self.begun.fetch_add(1, Ordering::Relaxed);
            if request.uri() == "/waits" {
                std::future::pending::<()>().await;
            }
            tokio::task::yield_now().await;
            self.ended.fetch_add(1, Ordering::Relaxed);
            assert_ne!(request.uri(), "/panic", "as asked");
            if request.uri() == "/long" {
                return Ok(Response::new(whole_body(Bytes::from(vec![7; BODY_BYTES_MAX + 1]))));
            }
            Err(io::Error::other("it has no answer"))
        }
    }

    fn answerer(requests: &Arc<Counting>) -> Answerer {
        let (requests, unfetched) = (Arc::clone(requests) as _, Unfetched::default());
        Answerer::new("b".into(), requests, unfetched, Env::real())
    }

    fn question(number: u64, to: &str, target: &str) -> Bytes {
        let origin = Origin { ip: None, is_encrypted: false, tls: None };
        let (parts, ()) = Request::get(target).body(()).unwrap().into_parts();
        codec::question(number, to, &parts, &[], &origin).unwrap()
    }

    /// What the answerer sends when these bytes come, and how it ends.
    async fn exchange(bytes: &[u8]) -> (Vec<u8>, io::Result<()>) {
        let (mut near, far) = tokio::io::duplex(1 << 20);
        near.write_all(bytes).await.unwrap();
        near.shutdown().await.unwrap();
        let (answerer, stop) = (answerer(&Arc::default()), CancellationToken::new());
        let ended = answerer.serve(far, &stop).await;
        let mut answers = Vec::new();
        near.read_to_end(&mut answers).await.unwrap();
        (answers, ended)
    }

    fn framed(frame: &[u8]) -> Vec<u8> {
        [&(frame.len() as u32).to_be_bytes(), frame].concat()
    }

    #[tokio::test]
    async fn what_makes_no_sense_is_refused() {
        for (frame, answer) in [
            (question(7, "b", "/bucket/key"), codec::broken(7)),
            (question(7, "b", "/panic"), codec::broken(7)),
            (question(7, "c", "/bucket/key"), codec::refused(7)),
            (Bytes::from_static(b"\0\0\0\0\0\0\0\x07what is this"), codec::refused(7)),
        ] {
            let (answers, ended) = exchange(&framed(&frame)).await;
            assert_eq!(answers, framed(&answer), "{frame:?}");
            assert!(ended.is_ok(), "{ended:?}");
        }
        let cut_off = &framed(&question(7, "b", "/bucket/key"))[..20];
        for bytes in [b"GET / HTTP/1.1\r\n\r\n", cut_off, &framed(b"\0\0")] {
            let (answers, ended) = exchange(bytes).await;
            assert!(answers.is_empty() && ended.is_err(), "{answers:?} {ended:?}");
        }
    }

    /// The other worker has stopped, for example. Others may wait for what these requests hold. When it takes answers
    /// again, everything continues.
    #[tokio::test]
    async fn requests_come_to_their_end_while_the_other_worker_takes_no_answers() {
        const REQUESTS: u64 = 2 * ANSWERS_MAX as u64;
        let (near, far) = tokio::io::duplex(64);
        let (mut reader, mut writer) = tokio::io::split(near);
        let (requests, stop) = (Arc::<Counting>::default(), CancellationToken::new());
        let answerer = answerer(&requests);
        let send = async {
            for number in 0..REQUESTS {
                writer.write_all(&framed(&question(number, "b", "/bucket/key"))).await.unwrap();
            }
        };
        let take = async {
            // A few are in the buffers of the connection.
            while requests.ended.load(Ordering::Relaxed) < ANSWERS_MAX - 64 {
                tokio::task::yield_now().await;
            }
            let mut answers = vec![0; REQUESTS as usize * framed(&codec::broken(0)).len()];
            reader.read_exact(&mut answers).await.unwrap();
        };
        tokio::select! {
            _ = futures::future::join(send, take) => {}
            ended = answerer.serve(far, &stop) => panic!("{ended:?}"),
        }
    }

    #[tokio::test]
    async fn a_request_whose_client_has_gone_ends() {
        let (mut near, far) = tokio::io::duplex(1 << 10);
        let requests = Arc::<Counting>::default();
        let (answerer, stop) = (answerer(&requests), CancellationToken::new());
        let cancel = async {
            near.write_all(&framed(&question(7, "b", "/waits"))).await.unwrap();
            while requests.begun.load(Ordering::Relaxed) == 0 {
                tokio::task::yield_now().await;
            }
            near.write_all(&framed(&codec::cancel(7))).await.unwrap();
            near.shutdown().await.unwrap();
        };
        // It does not wait for the answer.
        let ((), ended) = futures::future::join(cancel, answerer.serve(far, &stop)).await;
        assert!(ended.is_ok(), "{ended:?}");
    }

    #[tokio::test]
    async fn an_answer_whose_client_has_gone_is_not_kept() {
        let (mut near, far) = tokio::io::duplex(1 << 10);
        let (answerer, stop) = (answerer(&Arc::default()), CancellationToken::new());
        let cancel = async {
            near.write_all(&framed(&question(7, "b", "/long"))).await.unwrap();
            let waits = framed(&codec::waits(7, &answerer.ticket(7)));
            let mut answer = vec![0; waits.len()];
            near.read_exact(&mut answer).await.unwrap();
            assert_eq!(answer, waits);
            assert_eq!(answerer.unfetched.answers.lock().len(), 1);
            near.write_all(&framed(&codec::cancel(7))).await.unwrap();
            near.shutdown().await.unwrap();
        };
        let ((), ended) = futures::future::join(cancel, answerer.serve(far, &stop)).await;
        assert!(ended.is_ok(), "{ended:?}");
        assert!(answerer.unfetched.answers.lock().is_empty());
    }

    #[tokio::test]
    async fn an_answer_is_fetched_once_and_is_not_kept_for_long() {
        let (env, clock) = Env::simulated(1);
        let unfetched = Unfetched::default();
        let add = || {
            let ticket = env.random.hex_id();
            unfetched.add(&ticket, Response::new(whole_body(Bytes::new())), &env).then_some(ticket)
        };
        let (first, second) = (add().unwrap(), add().unwrap());
        assert!(unfetched.take(&first).is_some() && unfetched.take(&first).is_none());
        let mut none = pin!(unfetched.until_none());
        tokio::task::yield_now().await;
        assert!(futures::poll!(&mut none).is_pending());
        clock.advance(FETCHED_WITHIN);
        none.await;
        assert!(unfetched.take(&second).is_none());
        assert_eq!((0..=UNFETCHED_MAX).filter_map(|_| add()).count(), UNFETCHED_MAX);
    }
}
