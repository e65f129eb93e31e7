//! Settings of an under store on HDFS.

use std::time::Duration;

/// Longest wait for an answer of the NameNode, with the time that a change to another NameNode takes.
pub(super) const CALL_DEADLINE: Duration = Duration::from_secs(30);

/// How the client looks for an active NameNode before an error is shown: four tries take about two seconds. The
/// governor retries beyond that.
pub(super) const FAILOVER: [(&str, &str); 3] = [
    ("dfs.client.failover.max.attempts", "4"),
    ("dfs.client.failover.sleep.base.millis", "100"),
    ("dfs.client.failover.sleep.max.millis", "1000"),
];

/// A directory in HDFS, and how to reach it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HdfsLocation {
    /// `namenode:port`, or a nameservice that the Hadoop configuration explains.
    pub authority: String,
    /// Without a slash at its end. Empty for the root.
    pub path: String,
    /// The directory with `core-site.xml` and `hdfs-site.xml`. `None`: that of `HADOOP_CONF_DIR`, if any.
    pub hadoop_conf_dir: Option<String>,
    /// Who Forebay is in HDFS. `None`: `HADOOP_USER_NAME`, or the user of the process. With Kerberos, the principal
    /// says that, and this is whom it stands in for.
    pub user: Option<String>,
    /// The Kerberos principal, and the file with its key. `None`: the credential cache of the process.
    pub principal: Option<String>,
    pub keytab: Option<String>,
}
