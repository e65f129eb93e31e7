//! `forebay salvage`: brings objects out of data directories when no server can start on them.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use forebay_cache::Salvaged;
use forebay_catalog::records;
use forebay_env::Env;
use forebay_store::Store;
use forebay_types::ByteSize;
use forebay_ufs::directory::DirectoryRoot;

use crate::commands::print;
use crate::config::{Config, UnderStoreConfig};
use crate::failure::Failure;
use crate::made_directories::MadeDirectories;
use crate::serve::open_disks;
use crate::under_store_gone::{IDENTITY, is_store_new};
use crate::{logs, lost_changes, store_settings};

/// Writes what is only in these data directories to a directory.
///
/// # Errors
/// `Refused` when there is no store, when it belongs to another user, or when the directory is one that something else
/// uses; `Failed` when a server runs on the store, or when an object could not be written.
pub(crate) fn run(config: &Config, to: &Path) -> Result<(), Failure> {
    check_store(config).and_then(|()| check_target(config, to)).map_err(Failure::Refused)?;
    let _traces = logs::start(config)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    let runtime = runtime.map_err(|e| Failure::of("runtime", &e))?;
    let made = MadeDirectories::of(&config.store.data_dirs);
    let (salvaged, closed) = runtime.block_on(salvage(config, to)).inspect_err(|_| made.remove())?;
    let counted = |number: u64, what: &str| format!("{number} {what}{}", if number == 1 { "" } else { "s" });
    let Salvaged { objects, bytes, present, parts, failed, stopped } = salvaged;
    let mut lines = vec![format!("{} written to {}, {}", counted(objects, "object"), to.display(), ByteSize(bytes))];
    if present > 0 {
        lines.push(format!("{} left out: a version that is not older is there", counted(present, "object")));
    }
    if parts > 0 {
        lines.push(format!("{} of multipart uploads left out", counted(parts, "part")));
    }
    let printed = print(&lines.join("\n"));
    let ended = match stopped {
        Some(error) => Err(Failure::of("stopped before the end", &error)),
        None if failed > 0 => Err(Failure::Failed(format!("{} could not be written", counted(failed, "object")))),
        None => closed,
    };
    // A bad end counts even when nobody reads what was written.
    ended.and(printed)
}

/// What was done, and how the store was closed.
async fn salvage(config: &Config, to: &Path) -> Result<(Salvaged, Result<(), Failure>), Failure> {
    let env = Env::real();
    let disks = open_disks(config)?;
    let settings = store_settings::resolve(&config.store, &disks).await?;
    let settings = forebay_store::Settings { value_check: Some(records::check_version), ..settings };
    let before = lost_changes::Before::of(&config.store.data_dirs);
    let store = Store::open(env.clone(), disks, settings, None).await.map_err(|e| Failure::of("the store", &e))?;
    let forgotten = store.forgotten();
    lost_changes::note(config, forgotten, &before);
    if forgotten.before + forgotten.now > 0 {
        eprintln!("forebay: the store has forgotten a data directory: what only that one held is not found here");
    }
    let target = DirectoryRoot::open(env, to.to_owned()).await.map_err(|e| Failure::of("--to", &e))?;
    let salvaged = forebay_cache::salvage(&store, &target, |path, error| eprintln!("forebay: {path}: {error}")).await;
    let closed = store.close().await.map_err(|e| Failure::of("the store", &e));
    Ok((salvaged, closed))
}

/// Files that another user makes in the data directories would keep the server from its next start.
fn check_store(config: &Config) -> Result<(), String> {
    let directories = &config.store.data_dirs;
    if is_store_new(config) {
        let shown: Vec<_> = directories.iter().map(|each| each.display().to_string()).collect();
        return Err(format!("store.data_dirs: there is no store in {}", shown.join(", ")));
    }
    let own = rustix::process::geteuid().as_raw();
    for directory in directories {
        let Ok(stat) = directory.join(IDENTITY).metadata() else { continue };
        if stat.uid() != own {
            let (shown, uid) = (directory.display(), stat.uid());
            return Err(format!(
                "store.data_dirs: {shown} belongs to the user with the id {uid}: run this command as that user"
            ));
        }
    }
    Ok(())
}

/// A bucket could have the name of a file there, and objects in an under store would be replaced.
fn check_target(config: &Config, to: &Path) -> Result<(), String> {
    let under_stores = config.root.iter().chain(config.mounts.values()).filter_map(UnderStoreConfig::directory);
    let used = config.store.data_dirs.iter().map(PathBuf::as_path).chain(under_stores);
    let target = real_path(to);
    for directory in used {
        let real = real_path(directory);
        if target.starts_with(&real) || real.starts_with(&target) {
            return Err(format!("--to: {} is used by the server: give a directory of its own", directory.display()));
        }
    }
    Ok(())
}

/// Without links, as far as the path exists.
fn real_path(path: &Path) -> PathBuf {
    let path = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    let real = path.ancestors().find_map(|parent| Some((parent, parent.canonicalize().ok()?)));
    let joined = real.and_then(|(parent, real)| Some(real.join(path.strip_prefix(parent).ok()?)));
    joined.unwrap_or(path)
}
