//! Replaces the key of a cluster while none of its workers runs.

use std::path::Path;

use forebay_cluster::{ClusterIdentity, KeyReplacement, replace_key};
use forebay_env::Env;
use forebay_peers::{ClusterKey, Identity};

use super::join::{engine, given_key, read_key};
use super::users::resealed;
use crate::config::Cluster;
use crate::failure::Failure;

/// The new key is the one of `cluster.key_file`. Without the file of the old one, the key that etcd keeps counts.
/// Returns whether the cluster had another key.
///
/// # Errors
/// `Refused` when a key is missing or is not that of the cluster; `Failed` when a worker runs, or etcd does not answer.
pub(crate) fn replace_cluster_key(cluster: &Cluster, old_key_file: Option<&Path>) -> Result<bool, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::of("runtime", &e))?;
    runtime.block_on(replace(cluster, old_key_file))
}

async fn replace(cluster: &Cluster, old_key_file: Option<&Path>) -> Result<bool, Failure> {
    let name = &cluster.name;
    if cluster.engine.is_none() {
        return Err(Failure::Refused("cluster.engine: give the etcd of the cluster".to_owned()));
    }
    let Some(new) = given_key(cluster)? else {
        return Err(Failure::Refused("cluster.key_file: give the file with the new key".to_owned()));
    };
    let env = Env::real();
    let engine = engine(cluster, &env)?;
    let failed = |error: forebay_catalog::Error| Failure::Failed(format!("the cluster {name}: {error}"));
    let Some(of_cluster) = ClusterIdentity::load(&engine).await.map_err(failed)? else {
        return Err(Failure::Refused(format!("cluster.name: this etcd has no cluster {name}")));
    };
    let identity = |key: &ClusterKey| Identity::new(key, name);
    let new = identity(&new);
    // After a try that has ended too early, etcd has no old key any more.
    let is_replaced = of_cluster.key.is_none() && of_cluster.key_fingerprint == new.fingerprint();
    let old = match old_key_file {
        None if is_replaced => new.clone(),
        _ => identity(&old_key(old_key_file, &of_cluster)?),
    };
    if is_replaced && old_key_file.is_some() && old.fingerprint() == new.fingerprint() {
        return Err(Failure::Refused("--old-key-file: the file with the new key has the same key".to_owned()));
    }
    let reseal = |users: &[u8]| resealed(users, &old, &new, env.random.as_ref());
    let replaced = replace_key(&env, &engine, old.fingerprint(), new.fingerprint(), &reseal).await;
    match replaced.map_err(failed)? {
        KeyReplacement::Done => Ok(!is_replaced),
        KeyReplacement::OtherKey => {
            Err(Failure::Refused(format!("--old-key-file: this is not the key of cluster {name}")))
        }
        KeyReplacement::Runs { worker, is_sure } => {
            let runs = if is_sure { "runs" } else { "may run" };
            Err(Failure::Failed(format!("worker {worker} {runs}: stop all workers of the cluster first")))
        }
    }
}

fn old_key(file: Option<&Path>, of_cluster: &ClusterIdentity) -> Result<ClusterKey, Failure> {
    match (file, &of_cluster.key) {
        (Some(file), _) => read_key("--old-key-file", file),
        (None, Some(kept)) => ClusterKey::parse(kept).map_err(Failure::Refused),
        (None, None) => Err(Failure::Refused("--old-key-file: give the file with the key until now".to_owned())),
    }
}
