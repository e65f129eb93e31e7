//! A directory whose subdirectories are buckets.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use async_trait::async_trait;
use forebay_env::Env;
use forebay_types::BucketName;

use super::calls::DirectoryCalls;
use super::errors::{failed, is_absent};
use super::names::Kept;
use super::own::OWN_DIRECTORY;
use super::paths::Moves;
use super::shared::{Shared, SharedByBucket};
use super::tree::Root;
use super::{DirectoryStore, case};
use crate::{BucketInfo, BucketRoot, Error, ErrorKind, Result, UnderStore};

/// A directory of buckets.
pub struct DirectoryRoot {
    env: Env,
    base: Root,
    /// All buckets are on one file system, so they share its calls.
    calls: DirectoryCalls,
    kept: Kept,
    moves: Moves,
    shared: Arc<SharedByBucket>,
}

impl DirectoryRoot {
    /// Opens a directory, and makes it when it is absent.
    ///
    /// # Errors
    /// Those of the file system; `Invalid` when it does not tell upper from lower case.
    pub async fn open(env: Env, path: PathBuf) -> Result<Self> {
        let (base, calls) = (Root::new(path), DirectoryCalls::new(&env.background));
        let (root, random) = (base.clone(), Arc::clone(&env.random));
        let make = move || {
            let doing = format!("make {}", root.base().display());
            std::fs::create_dir_all(root.base()).map_err(|error| failed(&doing, error))?;
            // From here on, no other directory is taken for this one.
            case::check(&root.open().map_err(opening)?, root.base(), &*random)
        };
        calls.write(make).await?;
        Ok(Self { env, base, calls, kept: Kept::default(), moves: Moves::default(), shared: Arc::default() })
    }

    fn bucket(&self, name: &BucketName, shared: &Shared) -> Root {
        self.base.within(name.as_str(), Arc::clone(&shared.seen))
    }

    /// The bucket is assumed to exist.
    pub(super) fn store(&self, name: &BucketName) -> DirectoryStore {
        let (env, calls, kept, moves) = (self.env.clone(), self.calls.clone(), self.kept.clone(), self.moves.clone());
        let shared = self.shared.of(name);
        DirectoryStore::assume(env, self.bucket(name, &shared), calls, kept, moves, shared)
    }
}

#[async_trait]
impl BucketRoot for DirectoryRoot {
    async fn list(&self) -> Result<Vec<BucketInfo>> {
        let (base, shared) = (self.base.clone(), Arc::clone(&self.shared));
        self.calls
            .list(move || {
                base.open().map_err(opening)?;
                let mut buckets = Vec::new();
                for entry in std::fs::read_dir(base.base()).map_err(|error| failed("list the buckets", error))? {
                    let entry = entry.map_err(|error| failed("list the buckets", error))?;
                    let name = entry.file_name().into_string().ok().and_then(|name| BucketName::new(&name).ok());
                    let Some(name) = name else { continue };
                    let looking = |error| failed("look at a bucket", error);
                    let is_directory = match entry.file_type() {
                        // It was deleted meanwhile.
                        Err(error) if is_absent(&error) => false,
                        kind => kind.map_err(looking)?.is_dir(),
                    };
                    if !is_directory {
                        continue;
                    }
                    if let Some(shared) = shared.present(&name) {
                        // From here on, no other directory is taken for this one. Requests report what is wrong.
                        let _ = base.within(name.as_str(), Arc::clone(&shared.seen)).open();
                    }
                    let stat = entry.metadata().map_err(looking)?;
                    // File systems without birth times show the last change instead.
                    let created = stat.created().or_else(|_| stat.modified()).unwrap_or(SystemTime::UNIX_EPOCH);
                    let age = created.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
                    buckets.push(BucketInfo { name, created_ms: age.as_millis() as u64 });
                }
                buckets.sort_by(|a, b| a.name.cmp(&b.name));
                Ok(buckets)
            })
            .await
    }

    async fn create(&self, name: &BucketName) -> Result<()> {
        let (root, shared, name) = (self.base.clone(), self.shared.of(name), name.clone());
        self.calls
            .write(move || {
                let tree = root.open().map_err(opening)?;
                let made = tree.create_directory(Path::new(name.as_str()));
                if made.is_ok() {
                    shared.seen.forget();
                }
                // A power cut must not take the name away, with everything that is stored in the bucket. Also synced if
                // the bucket exists: an earlier try may have been interrupted.
                tree.sync(Path::new("")).map_err(|error| failed("sync a directory", error))?;
                match made {
                    Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
                        Err(Error::new(ErrorKind::AlreadyExists, format!("the bucket {name} exists")))
                    }
                    made => made.map_err(|error| failed("make a bucket", error)),
                }
            })
            .await
    }

    async fn delete(&self, name: &BucketName) -> Result<()> {
        let shared = self.shared.of(name);
        let (base, bucket, name) = (self.base.clone(), self.bucket(name, &shared), name.clone());
        self.calls
            .write(move || {
                let tree = match bucket.open() {
                    Ok(tree) => tree,
                    Err(error) if is_absent(&error) => {
                        return Err(Error::new(ErrorKind::NotFound, format!("the bucket {name} does not exist")));
                    }
                    Err(error) => return Err(failed("look into a bucket", error)),
                };
                let entries = tree.list(Path::new("")).map_err(|error| failed("look into a bucket", error))?;
                if entries.iter().any(|(entry, _)| entry != OWN_DIRECTORY.as_bytes()) {
                    return Err(Error::new(ErrorKind::NotEmpty, format!("the bucket {name} is not empty")));
                }
                match tree.remove_all(Path::new(OWN_DIRECTORY)) {
                    Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                        return Err(failed("remove a bucket", error));
                    }
                    Ok(()) | Err(_) => {}
                }
                // Fails when an object was written meanwhile.
                let base = base.open().map_err(opening)?;
                base.remove_directory(Path::new(name.as_str()))
                    .map_err(|_| Error::new(ErrorKind::NotEmpty, format!("the bucket {name} is not empty")))?;
                shared.seen.forget();
                base.sync(Path::new("")).map_err(|error| failed("sync a directory", error))
            })
            .await
    }

    async fn open(&self, name: &BucketName) -> Result<Option<Arc<dyn UnderStore>>> {
        let (env, calls, kept, moves) = (self.env.clone(), self.calls.clone(), self.kept.clone(), self.moves.clone());
        let shared = self.shared.of(name);
        match DirectoryStore::open_root(env, self.bucket(name, &shared), calls, kept, moves, shared).await {
            Ok(store) => Ok(Some(Arc::new(store))),
            Err(error) if error.kind == ErrorKind::NoBucket => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn assume(&self, name: &BucketName) -> Arc<dyn UnderStore> {
        Arc::new(self.store(name))
    }

    fn label(&self) -> String {
        format!("file://{}", self.base.base().display())
    }
}

fn opening(error: std::io::Error) -> Error {
    failed("open the directory", error)
}
