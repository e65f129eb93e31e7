//! What an under store lets us do, and how fast it is: with objects below a key that is made up for the occasion, and
//! removed.

mod probe;

use std::sync::Arc;
use std::time::Duration;

use forebay_env::Env;
use forebay_types::{BucketName, ByteSize, WriteMode};
use forebay_ufs::{BucketRoot, Error, ErrorKind, OpenOptions, UnderStore, UnderStoreUrl, open_mount, open_root};
use tokio_util::sync::CancellationToken;

use super::network;
use super::report::Report;
use crate::config::{Config, UnderStoreConfig};
use crate::under_stores;
use probe::Probe;

/// Uploads of the examination go in parts from this size on, the smallest that S3 takes, so that those are tried too.
const PART_BYTES: u64 = 5 << 20;

/// All under stores of a configuration, with names for the report.
pub(super) fn configured(config: &Config) -> Vec<(String, &UnderStoreConfig)> {
    let root = config.root.iter().map(|root| (root.url.to_string(), root));
    let mounts =
        config.mounts.iter().map(|(bucket, under_store)| (format!("{bucket} = {}", under_store.url), under_store));
    root.chain(mounts).collect()
}

/// Whether any path is written: policies that are all READ_ONLY need no permission to write.
fn writes(config: &Config) -> bool {
    let is_read_only = |mode: Option<WriteMode>| mode == Some(WriteMode::ReadOnly);
    let root = config.policies.iter().find(|rule| rule.path == "/").and_then(|rule| rule.write_mode);
    let all = config.policies.iter().all(|rule| rule.write_mode.is_none() || is_read_only(rule.write_mode));
    !(is_read_only(root) && all)
}

pub(super) async fn examine(
    config: &Config,
    name: &str,
    under_store: &UnderStoreConfig,
    env: &Env,
    stop: &CancellationToken,
    report: &mut Report,
) {
    let connect_timeout: Duration = config.s3.connect_timeout.0;
    if !network::examine(name, &under_store.url, connect_timeout, env, report).await {
        return;
    }
    let mut options = under_stores::options(config, &under_store.keys);
    options.s3.multipart_threshold = ByteSize(PART_BYTES);
    options.s3.part_size = ByteSize(PART_BYTES);
    let mut probe = Probe::new(name, env, stop, report);
    match Target::open(env, &under_store.url, &options, &probe.key()).await {
        Ok(Some(target)) => {
            probe.run(target.store.as_ref(), under_store.directory(), writes(config)).await;
            target.close(&mut probe).await;
        }
        Ok(None) => {
            probe.report.find("nothing-to-probe", name, "no bucket, or a directory that is not made yet".into())
        }
        Err((permission, error)) => probe.failed(permission, &error),
    }
}

/// Where objects of the examination go.
struct Target {
    store: Arc<dyn UnderStore>,
    /// A bucket that was made for the occasion, and where.
    made: Option<(Arc<dyn BucketRoot>, BucketName)>,
}

impl Target {
    /// `None` where there is no place.
    ///
    /// # Errors
    /// With the permission that was needed.
    async fn open(
        env: &Env,
        url: &UnderStoreUrl,
        options: &OpenOptions,
        key: &str,
    ) -> Result<Option<Self>, (&'static str, Error)> {
        let bucket = match url {
            // A directory's buckets are directories: one of our own disturbs nobody.
            UnderStoreUrl::Directory(path) if path.is_dir() => {
                return Self::in_directory(env, url, options, key).await.map(Some);
            }
            UnderStoreUrl::Directory(_) => return Ok(None),
            // A file in it is no bucket, and disturbs none.
            UnderStoreUrl::Hdfs(_) => url.clone(),
            UnderStoreUrl::S3 { bucket: Some(_), .. } => url.clone(),
            UnderStoreUrl::S3 { bucket: None, prefix, endpoint, region } => {
                let root = open_root(env, url, options).await.map_err(|error| ("s3:ListAllMyBuckets", error))?;
                let buckets = root.foreground.list().await.map_err(|error| ("s3:ListAllMyBuckets", error))?;
                let Some(first) = buckets.first() else { return Ok(None) };
                UnderStoreUrl::S3 {
                    bucket: Some(first.name.as_str().to_owned()),
                    prefix: prefix.clone(),
                    endpoint: endpoint.clone(),
                    region: region.clone(),
                }
            }
        };
        let lanes = open_mount(env, &bucket, options).await.map_err(|error| ("s3:ListBucket", error))?;
        Ok(Some(Self { store: lanes.foreground, made: None }))
    }

    async fn in_directory(
        env: &Env,
        url: &UnderStoreUrl,
        options: &OpenOptions,
        key: &str,
    ) -> Result<Self, (&'static str, Error)> {
        let permission = "writing in the directory";
        let root = open_root(env, url, options).await.map_err(|error| (permission, error))?.foreground;
        let bucket = BucketName::new(key).expect("the key of an examination is made of letters, digits and hyphens");
        root.create(&bucket).await.map_err(|error| (permission, error))?;
        let store = root.assume(&bucket);
        Ok(Self { store, made: Some((root, bucket)) })
    }

    async fn close(self, probe: &mut Probe<'_>) {
        let Some((root, bucket)) = self.made else { return };
        match root.delete(&bucket).await {
            Ok(()) => {}
            Err(error) if error.kind == ErrorKind::NotFound => {}
            Err(error) => probe.report.find("probe-left", probe.name, format!("the directory {bucket}: {error}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::config::Overrides;

    #[test]
    fn only_read_only_everywhere_needs_no_permission_to_write() {
        let writes = |policies: &[(&str, &str)]| {
            let rule = |(path, mode): &(&str, &str)| format!("[[policy]]\npath = \"{path}\"\nwriteMode = \"{mode}\"\n");
            let text: String = policies.iter().map(rule).collect();
            super::writes(&Config::load(Some(("test.toml", &text)), &BTreeMap::new(), &Overrides::default()).unwrap())
        };
        assert!(writes(&[]));
        assert!(!writes(&[("/", "READ_ONLY"), ("/b/", "READ_ONLY")]));
        assert!(writes(&[("/", "READ_ONLY"), ("/b/", "WRITE_BACK")]));
        assert!(writes(&[("/b/", "READ_ONLY")]), "the default writes");
    }
}
