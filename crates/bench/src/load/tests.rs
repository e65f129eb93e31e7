use std::net::SocketAddr;
use std::sync::mpsc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use super::*;

/// How long the server does nothing at all.
const STALL: Duration = Duration::from_secs(1);
const DURATION: Duration = Duration::from_secs(2);
const RATE: f64 = 200.0;

struct Deletes;

impl Source for Deletes {
    fn next(&self, _: &mut Seat) -> Option<Operation> {
        let target = crate::s3::Target { bucket: "b".into(), key: "k".to_owned(), version: 0 };
        Some(Operation::Delete { target })
    }
}

/// Reads keys in turn.
struct Reads {
    may_skip: bool,
}

impl Source for Reads {
    fn next(&self, seat: &mut Seat) -> Option<Operation> {
        seat.position += 1;
        let target = crate::s3::Target { bucket: "b".into(), key: seat.position.to_string(), version: 0 };
        Some(Operation::Get { target, size: None, range: None })
    }

    fn may_skip(&self) -> bool {
        self.may_skip
    }
}

/// Answers requests without a body, but delays the answer to the `stalled`th.
async fn serve(mut stream: TcpStream, stalled: u64, answered: Arc<AtomicU64>, clock: Arc<dyn Clock>) {
    let mut buffer = [0; 4096];
    // A request fits into a packet, and the next one waits for its answer.
    while let Ok(1..) = stream.read(&mut buffer).await {
        if answered.fetch_add(1, Ordering::Relaxed) + 1 == stalled {
            clock.sleep(STALL).await;
        }
        if stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.is_err() {
            return;
        }
    }
}

/// A server in its own thread, until its sender is dropped.
fn start(stalled: u64) -> (SocketAddr, tokio::sync::oneshot::Sender<()>) {
    let (address, listening) = mpsc::channel();
    let (stop, mut stopped) = tokio::sync::oneshot::channel();
    let run = move || {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            address.send(listener.local_addr().unwrap()).unwrap();
            let answered = Arc::new(AtomicU64::new(0));
            loop {
                tokio::select! {
                    _ = &mut stopped => return,
                    accepted = listener.accept() => {
                        let stream = accepted.unwrap().0;
                        forebay_env::spawn(serve(stream, stalled, Arc::clone(&answered), Env::real().clock));
                    }
                }
            }
        });
    };
    std::thread::Builder::new().spawn(run).unwrap();
    (listening.recv().unwrap(), stop)
}

fn server(address: SocketAddr) -> Server {
    Server {
        endpoints: vec![Endpoint::parse(&address.to_string()).unwrap()],
        homes: None,
        credentials: Credentials { access_key: "a".to_owned(), secret_key: "s".to_owned(), region: "r".to_owned() },
        signatures: Signatures::Each,
        sign_payload: true,
        verify: false,
        timeout: Duration::from_secs(30),
        payload: Arc::new(Payload::new(1)),
        env: Env::real(),
    }
}

fn load(pace: Pace, limits: Limits) -> Load {
    let none = Duration::ZERO;
    Load { threads: 1, connections: 1, pace, limits, ramp_up: none, ramp_down: none, seed: 1 }
}

fn lasting() -> Limits {
    Limits { duration: Some(DURATION), ..Limits::default() }
}

/// Milliseconds at the median and at the 99th percentile, with one connection to a server that stalls.
fn latencies(pace: Pace) -> (f64, f64) {
    let (address, _stop) = start(20);
    let source: Arc<dyn Source> = Arc::new(Deletes);
    let measured = run(&server(address), &load(pace, lasting()), &source).unwrap();
    let latency = &measured.recorded.kinds[&Kind::Delete].latency;
    let ms = |quantile| latency.value_at_quantile(quantile) as f64 / 1e6;
    (ms(0.5), ms(0.99))
}

#[test]
fn a_stall_shows_in_all_that_was_due_in_an_open_loop() {
    let (_, open) = latencies(Pace::Open(RATE));
    assert!(open > 0.9 * STALL.as_millis() as f64, "p99 {open} ms");
    // The closed loop has sent one request in that second, so it shows nothing. This is why there is an open loop.
    let (_, closed) = latencies(Pace::Closed);
    assert!(closed < 100.0, "p99 {closed} ms");
}

#[test]
fn what_was_due_and_never_began_is_counted() {
    let (address, _stop) = start(1);
    let limits = Limits { duration: Some(STALL / 2), ..Limits::default() };
    let measured =
        run(&server(address), &load(Pace::Open(RATE), limits), &(Arc::new(Deletes) as Arc<dyn Source>)).unwrap();
    assert_eq!((measured.recorded.operations(), measured.missed), (1, 99));
    assert!(measured.elapsed >= STALL, "an answer that comes late is waited for");
}

#[test]
fn connections_and_threads_share_a_number_of_operations() {
    let (address, _stop) = start(0);
    let limits = Limits { operations: Some(1000), ..Limits::default() };
    let load = Load { threads: 2, connections: 7, ..load(Pace::Closed, limits) };
    let measured = run(&server(address), &load, &(Arc::new(Deletes) as Arc<dyn Source>)).unwrap();
    assert_eq!((measured.recorded.operations(), measured.recorded.failures()), (1000, 0));
    assert!(measured.own_cpu > Duration::ZERO);
}

#[test]
fn a_server_that_is_not_there_is_an_error_of_each_operation() {
    let (address, stop) = start(0);
    drop(stop);
    let limits = Limits { operations: Some(3), ..Limits::default() };
    // The thread of the server closes its socket when it ends.
    while std::net::TcpStream::connect(address).is_ok() {
        std::thread::yield_now();
    }
    let measured = run(&server(address), &load(Pace::Closed, limits), &(Arc::new(Deletes) as Arc<dyn Source>)).unwrap();
    let errors = &measured.recorded.kinds[&Kind::Delete].errors;
    assert_eq!(errors.get("ConnectionRefused"), Some(&3), "{errors:?}");
}

#[test]
fn a_connection_takes_the_keys_of_one_worker_where_it_may_choose() {
    let homes = r#"{"workers":[{"id":"a","s3Address":"127.0.0.1:1"},{"id":"b","s3Address":"127.0.0.1:2"},
        {"id":"c","s3Address":"127.0.0.1:3"}],"homes":[0,1,0,1]}"#;
    let homes = Homes::read(homes.as_bytes()).unwrap();
    let workers = |may_skip: bool, own: usize| {
        let mut seat = Seat { index: 0, of: 1, random: SeededRandom::new(1), position: 0, token: None };
        let mut found = std::collections::BTreeSet::new();
        for _ in 0..100 {
            let (operation, worker) = next(&Reads { may_skip }, &mut seat, Some(&homes), own).unwrap();
            let target = operation.target().unwrap();
            assert_eq!(homes.home_of(&target.bucket, &target.key), Some(worker));
            found.insert(worker);
        }
        found
    };
    assert_eq!(workers(true, 0), [0].into());
    assert_eq!(workers(true, 1), [1].into());
    assert_eq!(workers(false, 1), [0, 1].into());
    // No key is at home at the third worker.
    assert_eq!(workers(true, 2), [0, 1].into());
}
