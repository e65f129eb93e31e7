//! Ends of connections that have not proved the key.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use forebay_env::Env;
use forebay_peers::{Error, PeerServer, Peers};
use tokio::io::AsyncReadExt;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::{KEY, Worker, book, identity, open, origin, put, server, settings, start, stored};

#[tokio::test]
async fn a_client_does_not_talk_to_a_server_without_the_key() {
    let server = start().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let answers = Arc::new(Worker::default());
    let stranger = self::server(identity(KEY, "pond"), &answers);
    forebay_env::spawn(stranger.run(listener, server.stop.clone(), server.cut.clone()));
    let peers = Peers::new(&Env::real(), &identity(KEY, "lake"), "a", Arc::new(book(&[("b", address)])));
    let sent = peers.forward("b", put(b"body"), &origin()).await;
    assert!(matches!(sent, Err(Error::Unreachable { .. })), "{sent:?}");
    assert!(answers.seen.lock().expect("no panic").is_empty());
}

/// Connections of one address that the server keeps open without a proof of the key.
const PER_ADDRESS: usize = 256;

/// From another address of this machine than all others.
async fn say_nothing_to(address: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().expect("a socket");
    socket.bind(SocketAddr::from(([127, 0, 0, 2], 0))).expect("an address of this machine");
    socket.connect(address).await.expect("a connection")
}

/// No time passes at the server, so it gives up no handshake.
#[tokio::test]
async fn an_address_that_says_nothing_keeps_no_others_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let answers = Arc::new(Worker::default());
    answers.held.lock().expect("no panic").insert(("o/some".into(), 7), stored(&[b"some"]));
    let ((env, _clock), own) = (Env::simulated(1), identity(KEY, "lake"));
    let server = PeerServer::new(env, own, "b", Arc::clone(&answers) as _, answers, Arc::new(settings));
    let (stop, cut) = (CancellationToken::new(), CancellationToken::new());
    let ended = forebay_env::spawn(server.run(listener, stop.clone(), cut.clone()));
    let mut silent = Vec::new();
    for _ in 0..PER_ADDRESS {
        silent.push(say_nothing_to(address).await);
    }
    let mut one_more = say_nothing_to(address).await;
    let closed = tokio::time::timeout(Duration::from_secs(60), one_more.read_u8()).await.expect("it is closed");
    assert!(closed.is_err(), "{closed:?}");
    let peers = Peers::new(&Env::real(), &identity(KEY, "lake"), "a", Arc::new(book(&[("b", address)])));
    assert!(open(&peers, "b", "o/some").await.expect("an answer").is_some());
    stop.cancel();
    cut.cancel();
    ended.join().await;
}
