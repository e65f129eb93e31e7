//! Opens the under stores of the configuration.

use std::collections::BTreeMap;
use std::sync::Arc;

use forebay_cache::{Mount, Mounts};
use forebay_env::Env;
use forebay_ufs::governor::CallObserver;
use forebay_ufs::s3::S3Credentials;
use forebay_ufs::{OpenOptions, open_mount, open_root};

use crate::config::{Config, Keys};
use crate::failure::Failure;

/// Opens `under_store.url` and all mounts; each has limits of its own.
pub(crate) async fn open(config: &Config, env: &Env, observer: Arc<dyn CallObserver>) -> Result<Mounts, Failure> {
    let options = |keys: &Keys| OpenOptions {
        credentials: credentials(keys),
        s3: config.s3.clone(),
        governor: config.limits.clone(),
        observer: Some(Arc::clone(&observer)),
    };
    let root = open_root(env, &config.root.url, &options(&config.root.keys)).await;
    let root = root.map_err(|error| Failure::of("under_store.url", &error))?;
    let mut mounts = BTreeMap::new();
    for (bucket, place) in &config.mounts {
        let lanes = open_mount(env, &place.url, &options(&place.keys)).await;
        let lanes = lanes.map_err(|error| Failure::of(&format!("mounts.{bucket}"), &error))?;
        mounts.insert(bucket.clone(), Mount { foreground: lanes.foreground, background: lanes.background });
    }
    Ok(Mounts { mounts, root: Some(root.foreground), background_root: Some(root.background) })
}

/// `None`: those of the environment and the profile files.
fn credentials(keys: &Keys) -> Option<S3Credentials> {
    let Keys { access_key, secret_key, session_token } = keys;
    (!access_key.is_empty()).then(|| S3Credentials {
        access_key: access_key.clone(),
        secret_key: secret_key.0.clone(),
        session_token: (!session_token.0.is_empty()).then(|| session_token.0.clone()),
    })
}
