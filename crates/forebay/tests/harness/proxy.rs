//! A proxy between Forebay and its under store, which can be as bad as networks and services are.

use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_env::Env;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// What happens to requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mood {
    Well,
    /// Each takes 30 ms more.
    Slow,
    /// 503 SlowDown.
    Throttling,
    /// 500 InternalError.
    Failing,
    /// No answer, ever.
    Hanging,
    /// Nobody listens.
    Gone,
    /// Requests are carried out, and the connection breaks instead of an answer.
    LosingAnswers,
    /// PUTs of objects wait until the mood changes, whatever the client does in the meantime, and are carried out then.
    HoldingPuts,
}

/// A change of an object that the under store has confirmed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    pub method: Method,
    pub path: String,
    /// From the stamp; 0 for a delete.
    pub generation: u64,
}

#[derive(Clone)]
pub struct Proxy {
    pub endpoint: String,
    mood: Arc<watch::Sender<Mood>>,
    applied: Arc<Mutex<Vec<Applied>>>,
    /// PUTs that arrived, with or without an end.
    arrived: Arc<Mutex<Vec<String>>>,
}

type Answer = Response<Full<Bytes>>;

impl Proxy {
    /// Before the server on `port` of this machine.
    pub async fn start(port: u16) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
        let own_port = listener.local_addr().expect("an address").port();
        let proxy = Self {
            endpoint: format!("http://127.0.0.1:{own_port}"),
            mood: Arc::new(watch::Sender::new(Mood::Well)),
            applied: Arc::default(),
            arrived: Arc::default(),
        };
        forebay_env::spawn(proxy.clone().accept(listener, own_port, port));
        proxy
    }

    pub fn set(&self, mood: Mood) {
        self.mood.send_replace(mood);
    }

    pub fn applied(&self) -> Vec<Applied> {
        self.applied.lock().clone()
    }

    /// Whether a PUT of this path has arrived.
    pub fn has_seen_put(&self, path: &str) -> bool {
        self.arrived.lock().iter().any(|seen| seen == path)
    }

    /// Checks that no older generation followed a newer one.
    pub fn check_order(&self) {
        let mut newest = std::collections::HashMap::new();
        for Applied { path, generation, .. } in
            self.applied().into_iter().filter(|applied| applied.method == Method::PUT)
        {
            let newest = newest.entry(path.clone()).or_insert(0);
            assert!(*newest <= generation, "{path}: generation {generation} after {newest}");
            *newest = generation;
        }
    }

    async fn accept(self, mut listener: TcpListener, own_port: u16, port: u16) {
        let mut mood = self.mood.subscribe();
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => Some(accepted),
                () = becomes(&mut mood, |mood| mood == Mood::Gone) => None,
            };
            match accepted {
                Some(Ok((stream, _))) => drop(forebay_env::spawn(self.clone().serve(stream, port))),
                Some(Err(_)) => {}
                None => {
                    drop(listener);
                    becomes(&mut mood, |mood| mood != Mood::Gone).await;
                    listener =
                        TcpListener::bind((Ipv4Addr::LOCALHOST, own_port)).await.expect("the port is still ours");
                }
            }
        }
    }

    async fn serve(self, stream: TcpStream, port: u16) {
        let mut mood = self.mood.subscribe();
        let service = service_fn(|request| {
            let proxy = self.clone();
            async move { proxy.answer(request, port).await.ok_or("the connection breaks") }
        });
        let connection = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
        tokio::select! {
            // A broken connection is what some moods are for.
            _ = connection => {}
            () = becomes(&mut mood, |mood| mood == Mood::Gone) => {}
        }
    }

    /// `None` breaks the connection.
    async fn answer(self, request: Request<Incoming>, port: u16) -> Option<Answer> {
        let (parts, body) = request.into_parts();
        let body = body.collect().await.ok()?.to_bytes();
        let is_put = parts.method == Method::PUT && parts.uri.query().is_none_or(|query| query.starts_with("x-id="));
        if is_put {
            self.arrived.lock().push(parts.uri.path().to_owned());
        }
        let request = Request::from_parts(parts, Full::new(body));
        let mood = *self.mood.borrow();
        match mood {
            Mood::Well | Mood::Gone => {}
            Mood::Slow => Env::real().clock.sleep(Duration::from_millis(30)).await,
            Mood::Throttling => return Some(refusal(StatusCode::SERVICE_UNAVAILABLE, "SlowDown")),
            Mood::Failing => return Some(refusal(StatusCode::INTERNAL_SERVER_ERROR, "InternalError")),
            Mood::Hanging => std::future::pending().await,
            Mood::LosingAnswers => {
                self.forward(request, port).await;
                return None;
            }
            Mood::HoldingPuts if is_put => return self.hold(request, port).await,
            Mood::HoldingPuts => {}
        }
        self.forward(request, port).await
    }

    /// In a task of its own: the client's hanging up does not stop it.
    async fn hold(self, request: Request<Full<Bytes>>, port: u16) -> Option<Answer> {
        let held = forebay_env::spawn(async move {
            let mut mood = self.mood.subscribe();
            becomes(&mut mood, |mood| mood != Mood::HoldingPuts).await;
            self.forward(request, port).await
        });
        held.join().await
    }

    async fn forward(&self, request: Request<Full<Bytes>>, port: u16) -> Option<Answer> {
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let whole = request.uri().query().is_none_or(|query| query.starts_with("x-id="));
        let stamp = request.headers().get("x-amz-meta-forebay-stamp").and_then(|stamp| stamp.to_str().ok());
        let generation =
            stamp.and_then(|stamp| stamp.split(';').find_map(|field| field.strip_prefix("g=")?.parse().ok()));
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await.ok()?;
        let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.ok()?;
        let connection = forebay_env::spawn(async move { connection.await.ok() });
        let (parts, body) = sender.send_request(request).await.ok()?.into_parts();
        let body = body.collect().await.ok()?.to_bytes();
        connection.abort();
        if parts.status.is_success() && whole && matches!(method, Method::PUT | Method::DELETE) {
            self.applied.lock().push(Applied { method, path, generation: generation.unwrap_or(0) });
        }
        Some(Response::from_parts(parts, Full::new(body)))
    }
}

async fn becomes(mood: &mut watch::Receiver<Mood>, wanted: impl Fn(Mood) -> bool) {
    // The sender lives as long as the proxy.
    let _ = mood.wait_for(|mood| wanted(*mood)).await;
}

fn refusal(status: StatusCode, code: &str) -> Answer {
    let body = format!("<Error><Code>{code}</Code><Message>by the proxy</Message></Error>");
    let response = Response::builder().status(status).header("content-type", "application/xml");
    response.body(Full::new(body.into())).expect("a response")
}
