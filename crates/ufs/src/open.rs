//! Opens under stores from URLs, with a governor in front of each.

use std::sync::Arc;

use forebay_env::Env;

use crate::directory::{DirectoryRoot, DirectoryStore};
use crate::governor::{Governed, GovernedRoot, Governor, Lane, govern};
use crate::hdfs::{HdfsRoot, HdfsStore};
use crate::options::OpenOptions;
use crate::s3::{S3EndpointRoot, S3PrefixRoot, S3Store, connect};
use crate::{BucketRoot, Result, UnderStore, UnderStoreUrl};

/// The two lanes to one under store.
pub struct Lanes<T: ?Sized> {
    pub foreground: Arc<T>,
    pub background: Arc<T>,
    pub governor: Arc<Governor>,
}

/// Opens what `--under-store` names: where buckets come from.
///
/// # Errors
/// Those of the directory, or of the configuration of the S3 or HDFS client. An endpoint that is out of reach is no
/// error here.
pub async fn open_root(env: &Env, url: &UnderStoreUrl, options: &OpenOptions) -> Result<Lanes<dyn BucketRoot>> {
    let roots: [Arc<dyn BucketRoot>; 2] = match url {
        UnderStoreUrl::Directory(path) => {
            let root: Arc<dyn BucketRoot> = Arc::new(DirectoryRoot::open(env.clone(), path.clone()).await?);
            [Arc::clone(&root), root]
        }
        UnderStoreUrl::Hdfs(place) => {
            let root: Arc<dyn BucketRoot> = Arc::new(HdfsRoot::new(env.clone(), place.clone())?);
            [Arc::clone(&root), root]
        }
        UnderStoreUrl::S3 { bucket, prefix, endpoint, region } => {
            let client = connect(endpoint.as_deref(), region.as_deref(), options).await?;
            [client.clone(), client.apart()].map(|client| -> Arc<dyn BucketRoot> {
                match bucket {
                    Some(bucket) => {
                        let store = S3Store::new(env.clone(), client, bucket.clone(), prefix, options.s3.clone());
                        Arc::new(S3PrefixRoot::new(store))
                    }
                    None => Arc::new(S3EndpointRoot::new(env.clone(), client, options.s3.clone())),
                }
            })
        }
    };
    let governor = govern(env, &options.governor, options.observer.clone());
    Ok(lanes(governor, roots, |root, governor, lane| Arc::new(GovernedRoot::new(root, governor, lane))))
}

/// Opens what `--mount` names: the place of one bucket.
///
/// # Errors
/// As [`open_root`]; `NoBucket` when the directory does not exist; `Invalid` for an S3 URL without a bucket.
pub async fn open_mount(env: &Env, url: &UnderStoreUrl, options: &OpenOptions) -> Result<Lanes<dyn UnderStore>> {
    let stores: [Arc<dyn UnderStore>; 2] = match url {
        UnderStoreUrl::Directory(path) => {
            let store: Arc<dyn UnderStore> = Arc::new(DirectoryStore::open(env.clone(), path.clone()).await?);
            [Arc::clone(&store), store]
        }
        UnderStoreUrl::Hdfs(place) => {
            let store: Arc<dyn UnderStore> = Arc::new(HdfsStore::new(env.clone(), place.clone())?);
            [Arc::clone(&store), store]
        }
        UnderStoreUrl::S3 { bucket: Some(bucket), prefix, endpoint, region } => {
            let client = connect(endpoint.as_deref(), region.as_deref(), options).await?;
            [client.clone(), client.apart()].map(|client| -> Arc<dyn UnderStore> {
                Arc::new(S3Store::new(env.clone(), client, bucket.clone(), prefix, options.s3.clone()))
            })
        }
        UnderStoreUrl::S3 { bucket: None, .. } => {
            return Err(crate::Error::new(
                crate::ErrorKind::Invalid,
                "a mount's URL names a bucket: s3://bucket/prefix",
            ));
        }
    };
    let governor = govern(env, &options.governor, options.observer.clone());
    Ok(lanes(governor, stores, |store, governor, lane| Arc::new(Governed::new(store, governor, lane))))
}

fn lanes<T: ?Sized>(
    governor: Arc<Governor>,
    [foreground, background]: [Arc<T>; 2],
    governed: impl Fn(Arc<T>, Arc<Governor>, Lane) -> Arc<T>,
) -> Lanes<T> {
    Lanes {
        foreground: governed(foreground, Arc::clone(&governor), Lane::Foreground),
        background: governed(background, Arc::clone(&governor), Lane::Background),
        governor,
    }
}
