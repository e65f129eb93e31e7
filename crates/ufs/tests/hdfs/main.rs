//! HDFS as an under store, on a real NameNode and DataNode.

mod cluster;

use forebay_env::Env;
use forebay_ufs::conformance;
use forebay_ufs::hdfs::HdfsRoot;

use cluster::Cluster;

/// What HDFS can hold of the suite's keys: no colon, no empty names, and no file that has the name of a directory.
fn keys() -> Vec<&'static str> {
    let fits = |key: &&str| !matches!(*key, "a" | "a/b" | "dir//file" | "tilde~*()!$@:;,");
    conformance::ODD_KEYS.into_iter().filter(fits).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_directory_and_a_root_keep_their_promises() {
    let Some(cluster) = Cluster::start().await else { return };
    conformance::run_with_keys(&cluster.store("/whole").await, &keys()).await;
    conformance::run_with_keys(&cluster.store("/deep/down").await, &keys()).await;
    let root = HdfsRoot::new(Env::real(), cluster.place("/buckets")).expect("a root");
    conformance::run_root(&root).await;
}
