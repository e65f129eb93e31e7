//! Members of etcd on free ports.

use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use bytes::Bytes;
use forebay_catalog::{Check, Engine, ErrorKind, Result};
use forebay_env::Env;
use forebay_etcd::{EtcdEngine, EtcdSettings};
use forebay_store::ValueWrite;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process, waitid};

/// Tries before a condition counts as never met, and the pause between two.
const TRIES: usize = 600;
const PAUSE: Duration = Duration::from_millis(50);

/// Members that form one cluster.
pub(crate) struct Etcd {
    pub(crate) directory: tempfile::TempDir,
    scheme: &'static str,
    members: Vec<Member>,
    arguments: Vec<String>,
}

struct Member {
    client_port: u16,
    peer_port: u16,
    process: Option<Child>,
}

impl Etcd {
    /// Returns when all members answer.
    pub(crate) async fn start(members: usize) -> Self {
        let etcd = Self::start_with(members, "http", tempfile::tempdir().expect("a directory"), &[]);
        etcd.wait_until_well().await;
        etcd
    }

    /// Returns at once.
    pub(crate) fn start_with(
        members: usize,
        scheme: &'static str,
        directory: tempfile::TempDir,
        arguments: &[&str],
    ) -> Self {
        // All at once, so that they differ.
        let listeners: Vec<_> =
            (0..2 * members).map(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port")).collect();
        let mut ports = listeners.iter().map(|listener| listener.local_addr().expect("an address").port());
        let mut port = || ports.next().expect("two for each member");
        let members =
            (0..members).map(|_| Member { client_port: port(), peer_port: port(), process: None }).collect::<Vec<_>>();
        drop(listeners);
        let arguments = arguments.iter().map(ToString::to_string).collect();
        let mut etcd = Self { directory, scheme, members, arguments };
        (0..etcd.members.len()).for_each(|member| etcd.run(member));
        etcd
    }

    /// Starts a member that does not run.
    pub(crate) fn run(&mut self, index: usize) {
        let peer = |index: usize| format!("http://127.0.0.1:{}", self.members[index].peer_port);
        let all: Vec<_> = (0..self.members.len()).map(|index| format!("m{index}={}", peer(index))).collect();
        let log = std::fs::File::create(self.directory.path().join(format!("log-{index}"))).expect("a file");
        let process = Command::new(binary("etcd"))
            .args(["--name", &format!("m{index}"), "--data-dir"])
            .arg(self.directory.path().join(format!("data-{index}")))
            .args(["--listen-client-urls", &self.endpoint(index), "--advertise-client-urls", &self.endpoint(index)])
            .args(["--listen-peer-urls", &peer(index), "--initial-advertise-peer-urls", &peer(index)])
            .args(["--initial-cluster", &all.join(","), "--log-level", "warn"])
            // Elections are quick, and no test cuts the power.
            .args(["--heartbeat-interval", "50", "--election-timeout", "500", "--unsafe-no-fsync"])
            .args(&self.arguments)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("etcd starts");
        self.members[index].process = Some(process);
    }

    pub(crate) fn endpoint(&self, index: usize) -> String {
        format!("{}://127.0.0.1:{}", self.scheme, self.members[index].client_port)
    }

    pub(crate) fn port(&self, index: usize) -> u16 {
        self.members[index].client_port
    }

    pub(crate) fn settings(&self) -> EtcdSettings {
        settings((0..self.members.len()).map(|index| self.endpoint(index)).collect())
    }

    pub(crate) fn engine(&self) -> EtcdEngine {
        engine(&self.settings())
    }

    /// Reads from each member by itself.
    pub(crate) async fn wait_until_well(&self) {
        for index in 0..self.members.len() {
            let one = engine(&settings(vec![self.endpoint(index)]));
            wait_until_read(&one).await;
        }
    }

    pub(crate) fn kill(&mut self, index: usize) {
        if let Some(mut process) = self.members[index].process.take() {
            process.kill().expect("it runs");
            process.wait().expect("it ends");
        }
    }

    /// It keeps its connections, takes new ones, and says nothing.
    pub(crate) fn pause(&self, index: usize) {
        self.signal(index, Signal::STOP);
        // On a busy machine some of its threads run on for a moment.
        let process = WaitId::Pid(Pid::from_child(self.members[index].process.as_ref().expect("it runs")));
        waitid(process, WaitIdOptions::STOPPED | WaitIdOptions::NOWAIT).expect("a process of ours");
    }

    pub(crate) fn resume(&self, index: usize) {
        self.signal(index, Signal::CONT);
    }

    fn signal(&self, index: usize, signal: Signal) {
        let process = self.members[index].process.as_ref().expect("it runs");
        kill_process(Pid::from_child(process), signal).expect("a process of ours");
    }

    /// Runs `etcdctl`, which succeeds.
    pub(crate) fn ctl(&self, arguments: &[&str]) -> String {
        let output = self.run_ctl(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    pub(crate) fn run_ctl(&self, arguments: &[&str]) -> Output {
        Command::new(binary("etcdctl"))
            .args(["--endpoints", &self.settings().endpoints.join(",")])
            .args(arguments)
            .output()
            .expect("etcdctl starts")
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        (0..self.members.len()).for_each(|index| self.kill(index));
    }
}

fn binary(name: &str) -> PathBuf {
    let binary = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/bin").join(name);
    assert!(binary.exists(), "{} is missing: run scripts/setup etcd", binary.display());
    binary
}

/// Patience enough for a machine that does something else, too.
pub(crate) fn settings(endpoints: Vec<String>) -> EtcdSettings {
    EtcdSettings { request_timeout: Duration::from_secs(2), ..EtcdSettings::new(endpoints) }
}

/// For members that do not answer.
pub(crate) fn impatient(settings: &EtcdSettings) -> EtcdEngine {
    engine(&EtcdSettings { request_timeout: Duration::from_secs(1), ..settings.clone() })
}

pub(crate) fn engine(settings: &EtcdSettings) -> EtcdEngine {
    EtcdEngine::new(&Env::real(), settings).expect("sound settings")
}

pub(crate) async fn wait_until(is_met: impl AsyncFn() -> bool) {
    let clock = Env::real().clock;
    for _ in 0..TRIES {
        if is_met().await {
            return;
        }
        clock.sleep(PAUSE).await;
    }
    panic!("the condition is never met");
}

pub(crate) async fn wait_until_read(engine: &EtcdEngine) {
    let clock = Env::real().clock;
    for _ in 0..TRIES {
        if engine.get(b"any").await.is_ok() {
            return;
        }
        clock.sleep(PAUSE).await;
    }
    panic!("etcd does not answer");
}

/// Commits again while that is safe and helps.
pub(crate) async fn commit_in_time(engine: &EtcdEngine, checks: &[Check], writes: &[ValueWrite]) -> u64 {
    let clock = Env::real().clock;
    for _ in 0..TRIES {
        match engine.commit(checks, writes).await {
            Ok(version) => return version,
            Err(error) if error.kind == ErrorKind::Unavailable => clock.sleep(PAUSE).await,
            Err(error) => panic!("{:?}: {error}", error.kind),
        }
    }
    panic!("etcd stays unavailable");
}

pub(crate) fn put(key: &str, value: impl Into<Bytes>) -> ValueWrite {
    ValueWrite { key: Bytes::copy_from_slice(key.as_bytes()), value: Some(value.into()) }
}

pub(crate) fn check(key: &str, version: Option<u64>) -> Check {
    Check { key: Bytes::copy_from_slice(key.as_bytes()), version }
}

pub(crate) async fn value(engine: &EtcdEngine, key: &str) -> Option<Bytes> {
    engine.get(key.as_bytes()).await.expect("etcd answers").map(|found| found.value)
}

#[track_caller]
pub(crate) fn check_kind<T: std::fmt::Debug>(result: Result<T>, kind: ErrorKind, text: &str) {
    let error = result.expect_err("it is refused");
    assert_eq!(error.kind, kind, "{error}");
    assert!(error.to_string().contains(text), "{error}");
}
