//! Servers as processes: Forebay itself, and a real S3 server to stand behind it.

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use aws_sdk_s3::Client;
use forebay_env::Env;
use serde_json::Value;

use super::{ACCESS_KEY, SECRET_KEY, client};

/// Where a server lives: it can be started there again and again.
pub struct Home {
    pub directory: tempfile::TempDir,
    under_store: String,
    settings: Vec<(String, String)>,
    mode: &'static str,
    listen: String,
}

impl Home {
    /// With a directory as under store.
    pub fn new(mode: &'static str) -> Self {
        let directory = tempfile::tempdir().expect("a temporary directory");
        let under_store = format!("file://{}", directory.path().join("under").display());
        Self { directory, under_store, settings: Vec::new(), mode, listen: "127.0.0.1:0".to_owned() }
    }

    /// Always at this port, so that a client outlives the server.
    pub fn at_port(self, port: u16) -> Self {
        Self { listen: format!("127.0.0.1:{port}"), ..self }
    }

    pub fn under_store(self, url: &str) -> Self {
        Self { under_store: url.to_owned(), ..self }
    }

    /// With a setting, by the name of its environment variable.
    pub fn setting(mut self, name: &str, value: &str) -> Self {
        self.settings.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The directory that is the under store.
    pub fn under(&self) -> PathBuf {
        self.directory.path().join("under")
    }

    fn log(&self) -> PathBuf {
        self.directory.path().join("log")
    }

    pub fn command(&self) -> Command {
        let log = File::options().create(true).append(true).open(self.log()).expect("a log file");
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.args(["serve", "--listen", &self.listen, "--admin-listen", "127.0.0.1:0", "--mode", self.mode]);
        command.arg("--data-dir").arg(self.directory.path().join("data"));
        command.args(["--under-store", &self.under_store]);
        command.env_clear().env("FOREBAY_ROOT_ACCESS_KEY", ACCESS_KEY).env("FOREBAY_ROOT_SECRET_KEY", SECRET_KEY);
        command.env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
        command.env("FOREBAY_STORE_SIZE", "1 GiB");
        command.envs(self.settings.iter().map(|(name, value)| (name, value)));
        command.stdout(Stdio::piped()).stderr(log);
        command
    }

    /// Starts the server and waits until it says that it is ready.
    pub fn start(&self) -> Server {
        self.start_command(self.command())
    }

    pub fn start_command(&self, mut command: Command) -> Server {
        let mut child = command.spawn().expect("the binary starts");
        let mut line = String::new();
        let stdout = child.stdout.take().expect("stdout is piped");
        BufReader::new(stdout).read_line(&mut line).expect("stdout can be read");
        let address = |after: &str| {
            let found = line.split_once(after).and_then(|(_, rest)| rest.split([',', '\n']).next());
            found.map(str::to_owned).unwrap_or_else(|| panic!("not ready: {}", tail(&self.log())))
        };
        let (s3, admin) = (address("S3 on "), address("admin on http://"));
        let endpoint = s3.clone();
        let client: LazyClient = LazyLock::new(Box::new(move || client(&endpoint)));
        Server { client, s3, admin, child, log: self.log() }
    }
}

/// The end of a log.
fn tail(log: &Path) -> String {
    let text = std::fs::read_to_string(log).unwrap_or_default();
    let lines: Vec<_> = text.lines().collect();
    lines[lines.len().saturating_sub(60)..].join("\n")
}

/// Made when it is needed: that takes longer than a start of the server.
type LazyClient = LazyLock<Client, Box<dyn FnOnce() -> Client + Send>>;

/// A running server; killed when dropped. Shows the end of its log when the test fails.
pub struct Server {
    pub client: LazyClient,
    /// `http://127.0.0.1:PORT`
    pub s3: String,
    admin: String,
    child: Child,
    log: PathBuf,
}

impl Server {
    /// SIGKILL: it gets no chance to do anything more.
    pub fn kill(mut self) {
        self.child.kill().expect("the server runs");
        self.child.wait().expect("a killed process ends");
    }

    pub fn id(&self) -> u32 {
        self.child.id()
    }

    pub fn terminate(&self) {
        let sent = Command::new("kill").args(["-s", "TERM", &self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Waits for the end of a server that has been told to stop; returns its exit code.
    pub async fn ended(mut self) -> Option<i32> {
        super::eventually("the server ends", async || self.child.try_wait().expect("a child")).await.code()
    }

    /// A request to the admin listener: the status and the body.
    pub fn admin(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        use base64::Engine;
        let credentials = base64::engine::general_purpose::STANDARD.encode(format!("{ACCESS_KEY}:{SECRET_KEY}"));
        let mut stream = TcpStream::connect(&self.admin).expect("the admin listener accepts");
        let length = body.len();
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Basic {credentials}"
        );
        write!(stream, "{head}\r\nContent-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}")
            .expect("it is sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no answer: {answer:?}"));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        (status, body.to_owned())
    }

    pub fn status(&self) -> Value {
        let (code, body) = self.admin("GET", "/api/v1/status", "");
        assert_eq!(code, 200, "{body}");
        serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error}: {body}"))
    }

    /// Waits until the under store has everything.
    pub async fn drained(&self) {
        super::eventually("everything is persisted", async || {
            let status = self.status();
            let left = |name: &str| status[name].as_u64().unwrap_or_else(|| panic!("no {name} in {status}"));
            (left("dirtyObjects") + left("tombstones") == 0).then_some(())
        })
        .await;
    }

    pub fn set_policies(&self, policies: &str) {
        let (code, body) = self.admin("PUT", "/api/v1/policies", policies);
        assert!((200..300).contains(&code), "{code} {body}");
    }
}

/// One request without a body, as text.
pub fn exchange(address: &str, method: &str, target: &str) -> String {
    let mut stream = TcpStream::connect(address).expect("the server accepts");
    write!(stream, "{method} {target} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").expect("it is sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("an answer");
    answer
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            eprintln!("the end of the server's log:\n{}", tail(&self.log));
        }
    }
}

/// A real S3 server.
pub struct RealS3 {
    pub client: Client,
    pub endpoint: String,
    pub port: u16,
    directory: tempfile::TempDir,
    child: Child,
}

impl RealS3 {
    pub async fn start() -> Self {
        let binary = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../.tools/bin/versitygw");
        assert!(binary.exists(), "{} is missing: run make setup", binary.display());
        let directory = tempfile::tempdir().expect("a temporary directory");
        let port = free_port();
        let child = Command::new(binary)
            .args([
                "--access",
                ACCESS_KEY,
                "--secret",
                SECRET_KEY,
                "--quiet",
                "--port",
                &format!("127.0.0.1:{port}"),
                "posix",
            ])
            .arg(directory.path())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("the S3 server starts");
        let clock = Env::real().clock;
        let mut tries = 0;
        while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
            tries += 1;
            assert!(tries < 1000, "the S3 server does not listen");
            clock.sleep(Duration::from_millis(20)).await;
        }
        let endpoint = format!("http://127.0.0.1:{port}");
        Self { client: client(&endpoint), endpoint, port, directory, child }
    }

    /// The files of a bucket.
    pub fn files(&self, bucket: &str) -> PathBuf {
        self.directory.path().join(bucket)
    }
}

impl Drop for RealS3 {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A port for a server that starts later. It lies below those that the kernel gives to outgoing connections (32768 and
/// up): one of these might take it in between.
pub fn free_port() -> u16 {
    static GIVEN: AtomicU32 = AtomicU32::new(0);
    let start = std::process::id();
    loop {
        let port = 12_000 + (start + GIVEN.fetch_add(1, Ordering::Relaxed)) % 4_000;
        let port = u16::try_from(port).expect("a port");
        if TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok() {
            return port;
        }
    }
}
