//! Users, and TLS.

use std::path::PathBuf;

use forebay_catalog::{Engine, ErrorKind};
use forebay_etcd::{EtcdSettings, EtcdUser};
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};

use crate::servers::{Etcd, check_kind, engine, put, value, wait_until_read};

fn user(name: &str, password: &str) -> Option<EtcdUser> {
    Some(EtcdUser { name: name.to_owned(), password: password.to_owned() })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_logs_in_and_gets_a_new_token_when_etcd_has_forgotten_it() {
    let mut etcd = Etcd::start(1).await;
    let settings = EtcdSettings { user: user("worker", "secret"), ..etcd.settings() };
    let worker = engine(&settings);
    worker.commit(&[], &[put("key", "early")]).await.expect("etcd asks for no user yet");
    for arguments in [
        ["user", "add", "root:root"].as_slice(),
        &["user", "grant-role", "root", "root"],
        &["user", "add", "worker:secret"],
        &["role", "add", "forebay"],
        &["role", "grant-permission", "forebay", "--prefix=true", "readwrite", "forebay/"],
        &["user", "grant-role", "worker", "forebay"],
        &["auth", "enable"],
    ] {
        etcd.ctl(arguments);
    }
    worker.commit(&[], &[put("key", "first")]).await.expect("it logs in when etcd asks");
    check_kind(etcd.engine().get(b"key").await, ErrorKind::Unavailable, "user name is empty");
    check_kind(etcd.engine().commit(&[], &[put("key", "")]).await, ErrorKind::Unavailable, "user name is empty");
    let wrong = engine(&EtcdSettings { user: user("worker", "wrong"), ..settings.clone() });
    check_kind(wrong.commit(&[], &[put("key", "")]).await, ErrorKind::Unavailable, "authentication failed");
    let elsewhere = engine(&EtcdSettings { prefix: "other".to_owned(), ..settings.clone() });
    check_kind(elsewhere.commit(&[], &[put("key", "")]).await, ErrorKind::Unavailable, "permission denied");
    // Users that change make all tokens old.
    etcd.ctl(&["--user", "root:root", "role", "add", "more"]);
    worker.commit(&[], &[put("key", "second")]).await.expect("it logs in again");
    worker.compact().await.expect("a user may ask for the revision");
    let status = worker.status().await.remove(0).status.expect("a user may ask for the size");
    assert_eq!(status.version, "3.7.3");
    etcd.kill(0);
    etcd.run(0);
    wait_until_read(&worker).await;
    worker.commit(&[], &[put("key", "third")]).await.expect("it has logged in again");
    assert_eq!(value(&worker, "key").await, Some("third".into()));
}

/// An authority, and certificates for one member and one client.
struct Certificates {
    directory: tempfile::TempDir,
}

impl Certificates {
    fn make() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let write = |name: &str, text: String| std::fs::write(directory.path().join(name), text).expect("a file");
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().expect("a key");
        write("ca.pem", params.self_signed(&key).expect("a certificate").pem());
        let issuer = Issuer::new(params, key);
        for name in ["member", "client"] {
            let key = KeyPair::generate().expect("a key");
            let params = CertificateParams::new(vec!["127.0.0.1".to_owned()]).expect("an address");
            write(&format!("{name}.pem"), params.signed_by(&key, &issuer).expect("a certificate").pem());
            write(&format!("{name}.key"), key.serialize_pem());
        }
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn text(&self, name: &str) -> String {
        self.path(name).display().to_string()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_verified_on_both_sides() {
    let made = Certificates::make();
    let arguments = [("--cert-file", "member.pem"), ("--key-file", "member.key"), ("--trusted-ca-file", "ca.pem")]
        .map(|(name, file)| format!("{name}={}", made.text(file)));
    let arguments: Vec<_> = arguments.iter().map(String::as_str).chain(["--client-cert-auth"]).collect();
    let etcd = Etcd::start_with(1, "https", tempfile::tempdir().expect("a directory"), &arguments);
    let trusting = EtcdSettings { ca_file: Some(made.path("ca.pem")), ..etcd.settings() };
    let known = EtcdSettings {
        certificate_file: Some(made.path("client.pem")),
        key_file: Some(made.path("client.key")),
        ..trusting.clone()
    };
    let worker = engine(&known);
    wait_until_read(&worker).await;
    worker.commit(&[], &[put("key", "value")]).await.expect("etcd writes");
    assert_eq!(value(&worker, "key").await, Some("value".into()));
    // Without a certificate; of another authority; without TLS.
    check_kind(engine(&trusting).get(b"key").await, ErrorKind::Unavailable, "");
    let unrelated = Certificates::make();
    let other = EtcdSettings { ca_file: Some(unrelated.path("ca.pem")), ..known.clone() };
    check_kind(engine(&other).commit(&[], &[put("key", "")]).await, ErrorKind::Unavailable, "certificate");
    let plain = EtcdSettings::new(vec![etcd.endpoint(0).replace("https", "http")]);
    check_kind(engine(&plain).get(b"key").await, ErrorKind::Unavailable, "");
}
