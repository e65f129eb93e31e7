//! `forebay serve` as an operator meets it: readiness, signals, restarts, locks and TLS.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;

const KEYS: [(&str, &str); 2] = [("FOREBAY_ROOT_ACCESS_KEY", "root"), ("FOREBAY_ROOT_SECRET_KEY", "hunter2hunter2")];

/// A running server, killed when dropped.
struct Server {
    child: Child,
    stdout: BufReader<ChildStdout>,
    s3: String,
    admin: String,
}

fn command(directory: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
    command.env_clear().current_dir(directory);
    command.args(["serve", "--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0", "--size", "256 MiB"]);
    command.stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

impl Server {
    /// Starts a server and waits for its one line.
    fn start(mut command: Command) -> Self {
        let mut child = command.spawn().expect("the binary starts");
        let mut stdout = BufReader::new(child.stdout.take().expect("stdout is piped"));
        let mut line = String::new();
        stdout.read_line(&mut line).expect("stdout can be read");
        if line.is_empty() {
            panic!("not ready: {}", stderr_of(&mut child));
        }
        let address = |after: &str| {
            let (_, rest) = line.split_once(after).unwrap_or_else(|| panic!("no {after:?} in {line:?}"));
            rest.trim_start_matches("https://")
                .trim_start_matches("http://")
                .split([',', '\n'])
                .next()
                .expect("split yields at least one piece")
                .to_owned()
        };
        assert!(line.starts_with("forebay is ready"), "{line}");
        Self { s3: address("S3 on "), admin: address("admin on "), child, stdout }
    }

    fn get(&self, page: &str) -> (u16, String) {
        request(&mut TcpStream::connect(&self.admin).expect("the admin listener accepts"), page)
    }

    fn signal(&self, name: &str) {
        let sent = Command::new("kill").args(["-s", name, &self.child.id().to_string()]).status();
        assert!(sent.expect("kill runs").success());
    }

    /// Waits for the end; returns what else was printed on stdout and stderr.
    fn wait(mut self) -> (ExitStatus, String, String) {
        let (mut stdout, stderr) = (String::new(), stderr_of(&mut self.child));
        self.stdout.read_to_string(&mut stdout).expect("stdout can be read");
        (self.child.wait().expect("the process ends"), stdout, stderr)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Fails when the process has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn stderr_of(child: &mut Child) -> String {
    let mut text = String::new();
    if let Some(mut stderr) = child.stderr.take() {
        stderr.read_to_string(&mut text).expect("stderr can be read");
    }
    text
}

fn request(stream: &mut (impl Read + Write), page: &str) -> (u16, String) {
    write!(stream, "GET {page} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        .expect("the request can be sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("the answer can be read");
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or_else(|| panic!("no status in {answer:?}")), answer)
}

#[test]
fn a_server_is_ready_stops_on_sigterm_and_starts_again() {
    let directory = tempfile::tempdir().unwrap();
    for signal in ["TERM", "INT", "TERM"] {
        let mut command = command(directory.path());
        let server = Server::start({
            command.envs(KEYS);
            command
        });
        assert_eq!(server.get("/readyz").0, 200);
        assert_eq!(server.get("/healthz").0, 200);
        assert_eq!(request(&mut TcpStream::connect(&server.s3).unwrap(), "/").0, 403);
        server.signal(signal);
        let (status, stdout, stderr) = server.wait();
        assert_eq!(status.code(), Some(0), "{stderr}");
        assert_eq!(stdout, "", "one line is all there is on stdout");
        assert!(!stderr.contains("hunter2") && !stderr.contains("ERROR"), "{stderr}");
    }
}

#[test]
fn the_first_line_of_the_log_says_what_starts() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("forebay.toml"), "").unwrap();
    let mut command = command(directory.path());
    let server = Server::start({
        command.args(["--config", "forebay.toml"]).envs(KEYS);
        command
    });
    let pid = server.child.id();
    server.signal("TERM");
    let (_, _, stderr) = server.wait();
    let first = stderr.lines().next().unwrap_or_default();
    let version = concat!("version=\"", env!("CARGO_PKG_VERSION"), "\"");
    for part in [
        "INFO",
        "starting",
        version,
        &format!("pid={pid}"),
        "configuration=\"forebay.toml\"",
        "s3=127.0.0.1:0",
        "admin=127.0.0.1:0",
        "/forebay-under-store",
        "forebay-data",
    ] {
        assert!(first.contains(part), "{first} lacks {part}");
    }
    assert!(!first.contains("hunter2"), "{first}");
}

#[test]
fn what_is_written_is_for_the_owner_only() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(command(directory.path()));
    for (name, mode) in [("forebay-data", 0o700), ("forebay-data/development-credentials", 0o600)] {
        let found = std::fs::metadata(directory.path().join(name)).unwrap().permissions().mode();
        assert_eq!(found & 0o777, mode, "{name}");
    }
    for entry in std::fs::read_dir(directory.path().join("forebay-data")).unwrap() {
        let entry = entry.unwrap();
        assert_eq!(entry.metadata().unwrap().permissions().mode() & 0o077, 0, "{:?}", entry.path());
    }
    drop(server);
}

#[test]
fn development_keys_are_printed_once_and_kept() {
    let directory = tempfile::tempdir().unwrap();
    let outputs = [0, 1].map(|_| {
        let server = Server::start(command(directory.path()));
        server.signal("TERM");
        server.wait().2
    });
    let kept = std::fs::read_to_string(directory.path().join("forebay-data/development-credentials")).unwrap();
    let secret = kept.lines().nth(1).unwrap();
    assert!(outputs[0].contains(secret), "{}", outputs[0]);
    assert!(!outputs[1].contains(secret), "{}", outputs[1]);
}

#[test]
fn a_second_process_on_the_same_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(command(directory.path()));
    let second = command(directory.path()).output().unwrap();
    let told = String::from_utf8(second.stderr).unwrap();
    assert_eq!(second.status.code(), Some(1), "{told}");
    assert!(second.stdout.is_empty());
    let [start, line] = &told.lines().collect::<Vec<_>>()[..] else { panic!("{told}") };
    assert!(start.contains("starting"), "{told}");
    assert!(line.contains("forebay-data") && line.contains("another process"), "{line}");
    assert_eq!(server.get("/readyz").0, 200, "the first goes on");
}

#[test]
fn an_address_in_use_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut other = Command::new(env!("CARGO_BIN_EXE_forebay"));
    other.env_clear().current_dir(directory.path());
    let output = other.args(["serve", "--admin-listen", "127.0.0.1:0", "--listen", &address]).output().unwrap();
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{line}");
    assert!(line.contains("server.listen") && line.contains(&address), "{line}");
}

#[test]
fn every_metric_is_in_the_reference() {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(command(directory.path()));
    request(&mut TcpStream::connect(&server.s3).unwrap(), "/");
    let (status, metrics) = server.get("/metrics");
    assert_eq!(status, 200);
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/metrics-reference.md");
    let reference = std::fs::read_to_string(path).unwrap();
    let described: Vec<_> = metrics.lines().filter_map(|line| line.strip_prefix("# TYPE ")).collect();
    assert!(described.len() > 40, "{metrics}");
    for line in described {
        let (name, _) = line.split_once(' ').unwrap();
        assert!(reference.contains(&format!("`{name}")), "{name}");
    }
    let samples: BTreeMap<_, _> = metrics.lines().filter_map(|line| line.rsplit_once(' ')).collect();
    for positive in [
        "process_resident_memory_bytes",
        "process_open_fds",
        "process_cpu_seconds_total",
        "forebay_store_capacity_bytes",
    ] {
        assert!(samples[positive].parse::<f64>().unwrap() > 0.0, "{positive}");
    }
}

#[test]
fn tls_is_served_with_the_certificate_given() {
    let directory = tempfile::tempdir().unwrap();
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let (certificate, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, made.signing_key.serialize_pem()).unwrap();
    let mut tls = command(directory.path());
    tls.arg("--tls-cert").arg(&certificate).arg("--tls-key").arg(&key);
    let server = Server::start(tls);

    let mut roots = rustls::RootCertStore::empty();
    roots.add(made.cert.der().clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let config = Arc::new(config.with_root_certificates(roots).with_no_client_auth());
    let client = rustls::ClientConnection::new(config, "localhost".try_into().unwrap()).unwrap();
    let mut stream = rustls::StreamOwned::new(client, TcpStream::connect(&server.s3).unwrap());
    assert_eq!(request(&mut stream, "/").0, 403);
}

#[test]
fn a_key_of_another_certificate_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let [made, other] = [0, 1].map(|_| rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap());
    let (certificate, key) = (directory.path().join("cert.pem"), directory.path().join("key.pem"));
    std::fs::write(&certificate, made.cert.pem()).unwrap();
    std::fs::write(&key, other.signing_key.serialize_pem()).unwrap();
    let mut tls = command(directory.path());
    let output = tls.arg("--tls-cert").arg(&certificate).arg("--tls-key").arg(&key).output().unwrap();
    let line = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{line}");
    assert!(line.contains("server.tls_key") && line.contains("key.pem"), "{line}");
}
