//! A NameNode and a DataNode on free ports of this machine, in a directory that is removed at the end.

use std::fs::File;
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use forebay_env::Env;
use forebay_ufs::hdfs::{HdfsLocation, HdfsStore};

/// Longest wait for a server to be of use.
const STARTING: Duration = Duration::from_secs(60);

/// Who the tests are in HDFS. The servers run as this user too, so it may do everything.
const SUPERUSER: &str = "forebay";

/// A running HDFS.
pub(crate) struct Cluster {
    directory: tempfile::TempDir,
    pub(crate) port: u16,
    name_node: Option<Server>,
    data_node: Option<Server>,
}

struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn installed() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../.tools/hdfs")
}

/// A port for a server that starts later. It lies below those that the kernel gives to outgoing connections (32768 and
/// up): one of these might take it in between.
pub(crate) fn free_port() -> u16 {
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

fn property(name: &str, value: &str) -> String {
    format!("<property><name>{name}</name><value>{value}</value></property>\n")
}

impl Cluster {
    /// `None`, and a line that says so, where HDFS is not installed.
    pub(crate) async fn start() -> Option<Self> {
        let java = Command::new("java").arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        if java.is_err() || !installed().join("lib").is_dir() {
            println!("skipped: HDFS is not installed (scripts/setup hdfs, which needs a JDK and Maven)");
            return None;
        }
        let mut cluster = Self {
            directory: tempfile::tempdir().expect("a temporary directory"),
            port: free_port(),
            name_node: None,
            data_node: None,
        };
        cluster.configure();
        let mut format = cluster.command("org.apache.hadoop.hdfs.server.namenode.NameNode", "format");
        let status = format.args(["-format", "-force", "-nonInteractive"]).status().expect("java runs");
        assert!(status.success(), "the NameNode formats its directory: {}", cluster.log("format"));
        cluster.start_name_node();
        cluster.start_data_node();
        cluster.wait().await;
        Some(cluster)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn configure(&self) {
        let address = |port: u16| format!("127.0.0.1:{port}");
        let directory = |name: &str| self.path(name).display().to_string();
        let core = property("fs.defaultFS", &format!("hdfs://{}", address(self.port)))
            + &property("hadoop.tmp.dir", &directory("tmp"));
        let hdfs = [
            ("dfs.replication", "1".to_owned()),
            ("dfs.namenode.name.dir", directory("name")),
            ("dfs.datanode.data.dir", directory("data")),
            ("dfs.namenode.rpc-address", address(self.port)),
            ("dfs.namenode.http-address", address(0)),
            ("dfs.datanode.address", address(0)),
            ("dfs.datanode.http.address", address(0)),
            ("dfs.datanode.ipc.address", address(0)),
            ("dfs.datanode.hostname", "127.0.0.1".to_owned()),
            ("dfs.namenode.datanode.registration.ip-hostname-check", "false".to_owned()),
            ("dfs.namenode.fs-limits.min-block-size", "4096".to_owned()),
            ("dfs.blocksize", "1048576".to_owned()),
            // Answers at once after a restart, and notices within seconds that a DataNode is gone.
            ("dfs.namenode.safemode.extension", "0".to_owned()),
            ("dfs.heartbeat.interval", "1".to_owned()),
            ("dfs.namenode.heartbeat.recheck-interval", "500".to_owned()),
            // Lists of large directories need several calls.
            ("dfs.ls.limit", "20".to_owned()),
            ("dfs.permissions.superusergroup", SUPERUSER.to_owned()),
        ];
        let hdfs: String = hdfs.iter().map(|(name, value)| property(name, value)).collect();
        for (file, properties) in [("core-site.xml", core), ("hdfs-site.xml", hdfs)] {
            let path = self.path("conf").join(file);
            std::fs::create_dir_all(self.path("conf")).expect("a directory");
            std::fs::write(path, format!("<configuration>\n{properties}</configuration>\n")).expect("a file");
        }
    }

    fn command(&self, class: &str, log: &str) -> Command {
        let installed = installed();
        let class_path = [self.path("conf"), installed.join("classes"), installed.join("lib/*")];
        let class_path: Vec<_> = class_path.iter().map(|path| path.display().to_string()).collect();
        let output = File::create(self.path(log)).expect("a log");
        let mut command = Command::new("java");
        command
            .args(["-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"])
            .args(["--add-opens", "java.base/java.lang=ALL-UNNAMED"])
            .args(["-cp", &class_path.join(":"), class])
            .env("HADOOP_USER_NAME", SUPERUSER)
            .stdin(Stdio::null())
            .stdout(output.try_clone().expect("a log"))
            .stderr(output);
        command
    }

    fn log(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    pub(crate) fn start_name_node(&mut self) {
        let class = "org.apache.hadoop.hdfs.server.namenode.NameNode";
        self.name_node = Some(Server(self.command(class, "name-node").spawn().expect("java runs")));
    }

    pub(crate) fn start_data_node(&mut self) {
        let class = "org.apache.hadoop.hdfs.server.datanode.DataNode";
        self.data_node = Some(Server(self.command(class, "data-node").spawn().expect("java runs")));
    }

    pub(crate) fn stop_name_node(&mut self) {
        self.name_node = None;
    }

    pub(crate) fn stop_data_node(&mut self) {
        self.data_node = None;
    }

    /// Until the cluster takes files: it has left safe mode, and has a DataNode.
    pub(crate) async fn wait(&self) {
        let (client, env) = (self.client(), Env::real());
        let end = env.clock.monotonic() + STARTING;
        loop {
            let created = async {
                let mut file = client.create("/probe", hdfs_native::WriteOptions::default().overwrite(true)).await?;
                file.write_bytes("probe".into()).await?;
                file.close().await?;
                client.delete("/probe", false).await
            };
            let Err(error) = created.await else { return };
            assert!(
                env.clock.monotonic() < end,
                "HDFS does not start: {error}\n{}\n{}",
                self.log("name-node"),
                self.log("data-node")
            );
            env.clock.sleep(Duration::from_millis(100)).await;
        }
    }

    /// What another program would use, as the superuser.
    pub(crate) fn client(&self) -> hdfs_native::Client {
        self.client_of(SUPERUSER)
    }

    pub(crate) fn client_of(&self, user: &str) -> hdfs_native::Client {
        hdfs_native::ClientBuilder::new()
            .with_url(format!("hdfs://127.0.0.1:{}", self.port))
            .with_user(user)
            .build()
            .expect("a client")
    }

    pub(crate) fn location(&self, path: &str) -> HdfsLocation {
        HdfsLocation {
            authority: format!("127.0.0.1:{}", self.port),
            path: path.to_owned(),
            user: Some(SUPERUSER.to_owned()),
            ..HdfsLocation::default()
        }
    }

    /// The same by the name of a nameservice. Of its two NameNodes, the first one is down.
    pub(crate) fn location_of_nameservice(&self, path: &str, first: u16) -> HdfsLocation {
        let properties = [
            ("dfs.nameservices", "lakes".to_owned()),
            ("dfs.ha.namenodes.lakes", "one,two".to_owned()),
            ("dfs.namenode.rpc-address.lakes.one", format!("127.0.0.1:{first}")),
            ("dfs.namenode.rpc-address.lakes.two", format!("127.0.0.1:{}", self.port)),
        ];
        let properties: String = properties.iter().map(|(name, value)| property(name, value)).collect();
        let directory = self.path("client");
        std::fs::create_dir_all(&directory).expect("a directory");
        let text = format!("<configuration>\n{properties}</configuration>\n");
        std::fs::write(directory.join("hdfs-site.xml"), text).expect("a file");
        std::fs::write(directory.join("core-site.xml"), "<configuration></configuration>\n").expect("a file");
        HdfsLocation {
            authority: "lakes".to_owned(),
            hadoop_conf_dir: Some(directory.display().to_string()),
            ..self.location(path)
        }
    }

    /// The under store on a new directory.
    pub(crate) async fn store(&self, path: &str) -> HdfsStore {
        self.client().mkdirs(path, 0o755, true).await.expect("a directory");
        HdfsStore::new(Env::real(), self.location(path)).expect("a store")
    }

    /// Runs `hdfs dfsadmin` with these arguments.
    pub(crate) fn administrate(&self, arguments: &[&str]) {
        let mut command = self.command("org.apache.hadoop.hdfs.tools.DFSAdmin", "dfsadmin");
        let status = command.args(arguments).status().expect("java runs");
        assert!(status.success(), "{arguments:?}: {}", self.log("dfsadmin"));
    }
}
