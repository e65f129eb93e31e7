//! What of a configuration only a look at the file system can tell. Nothing is changed by it.

use std::collections::HashMap;
use std::io::ErrorKind;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use forebay_auth::{FileCounts, RootUser, Secret, Users};
use rustix::fs::Access;

use crate::config::{Config, Problem, Problems, UnderStoreConfig};
use crate::{logs, tls, under_store_gone};

/// # Errors
/// All files and directories that the server could not start with.
pub(crate) fn check(config: &Config) -> Result<(), Problem> {
    let mut problems = Problems::default();
    problems.take(tls::load(config));
    problems.take(check_users_of(config));
    problems.take(logs::check(config));
    problems.take(check_root_keys(config));
    for directory in &config.store.data_dirs {
        let checked = check_own(directory).and_then(|()| check_writable(directory, access));
        problems.take(checked.map_err(|wrong| config.problem("store", "data_dirs", &wrong)));
    }
    let apart = check_apart(&config.store.data_dirs);
    problems.take(apart.map_err(|wrong| config.problem("store", "data_dirs", &wrong)));
    if let Some(directory) = config.root.as_ref().and_then(UnderStoreConfig::directory) {
        problems.take(check_own(directory).map_err(|wrong| config.problem("under_store", "url", &wrong)));
    }
    for (bucket, mount) in &config.mounts {
        let Some(directory) = mount.directory() else { continue };
        let present = check_present(directory);
        problems.take(present.map_err(|wrong| mount.origin.problem(&format!("mounts.{bucket}"), &wrong)));
    }
    problems.result()
}

fn check_root_keys(config: &Config) -> Result<(), Problem> {
    if config.cluster.engine.is_some() && config.server.root_access_key.is_none() {
        let wrong = "needs root keys that all workers have: set FOREBAY_ROOT_ACCESS_KEY and FOREBAY_ROOT_SECRET_KEY";
        return Err(config.problem("cluster", "engine", wrong));
    }
    Ok(())
}

/// # Errors
/// A directory under store that only a first start could make.
pub(crate) fn check_under_store(config: &Config) -> Result<(), Problem> {
    let Some(directory) = config.root.as_ref().and_then(UnderStoreConfig::directory) else { return Ok(()) };
    let present = under_store_gone::check_present(config, directory);
    present.map_err(|wrong| config.problem("under_store", "url", &wrong))
}

fn check_users_of(config: &Config) -> Result<(), Problem> {
    let Some(file) = &config.server.users_file else { return Ok(()) };
    let root = config.server.root_access_key.as_deref();
    let checked = check_users(file, root).map(drop);
    checked.map_err(|Problem(wrong)| config.problem("server", "users_file", &wrong))
}

/// `root_access_key`: where it is known. It may not be made yet.
///
/// # Errors
/// What the server would refuse it for.
pub(crate) fn check_users(file: &Path, root_access_key: Option<&str>) -> Result<FileCounts, Problem> {
    // An empty key is no user's.
    let root = RootUser { access_key: root_access_key.unwrap_or_default().into(), secret_key: Secret::new("") };
    let users = Users::open(root, Some(file.to_owned())).map_err(|wrong| Problem(wrong.to_string()))?;
    Ok(users.file_counts().expect("there is a file"))
}

/// A directory that somebody else has made.
fn check_present(directory: &Path) -> Result<(), String> {
    let shown = directory.display();
    match std::fs::metadata(directory) {
        Ok(found) if found.is_dir() => Ok(()),
        Ok(_) => Err(format!("{shown} is no directory")),
        Err(error) if error.kind() == ErrorKind::NotFound => Err(format!("the directory {shown} does not exist")),
        Err(error) => Err(format!("the directory {shown}: {error}")),
    }
}

/// Two paths may lead to one directory. Absent directories are distinguished by their names.
fn check_apart(directories: &[PathBuf]) -> Result<(), String> {
    let mut seen = HashMap::new();
    for directory in directories {
        let Ok(found) = std::fs::metadata(directory) else { continue };
        if let Some(other) = seen.insert((found.dev(), found.ino()), directory) {
            let (one, other) = (directory.display(), other.display());
            return Err(format!(
                "names a directory twice: {other} and {one} are the same, perhaps through a symbolic link"
            ));
        }
    }
    Ok(())
}

/// Missing permissions are none of these: the server's user may have them.
fn check_writable(directory: &Path, access: impl Fn(&Path) -> rustix::io::Result<()>) -> Result<(), String> {
    // Where it would be made, if it is absent.
    let Some(present) = directory.ancestors().find(|path| path.exists()) else { return Ok(()) };
    match access(present) {
        Err(error) if error == rustix::io::Errno::ROFS => Err(format!("{}: {error}", directory.display())),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// Whether this user may write there.
fn access(path: &Path) -> rustix::io::Result<()> {
    rustix::fs::access(path, Access::WRITE_OK)
}

/// A directory that is made at the start when it is absent.
fn check_own(directory: &Path) -> Result<(), String> {
    match std::fs::metadata(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Ok(_) | Err(_) => check_present(directory),
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_data_directory_on_a_read_only_file_system_is_told_also_before_it_is_made() {
        let home = tempfile::tempdir().unwrap();
        let absent = home.path().join("absent/data");
        for directory in [home.path(), absent.as_path()] {
            let answered = |errno: Errno| {
                check_writable(directory, |asked| Err(if asked == home.path() { errno } else { Errno::NOENT }))
            };
            let wrong = answered(Errno::ROFS).unwrap_err();
            assert!(wrong.contains(directory.to_str().unwrap()) && wrong.contains("Read-only"), "{wrong}");
            assert_eq!(answered(Errno::ACCESS), Ok(()), "the server may be another user");
        }
        assert_eq!(check_writable(home.path(), access), Ok(()));
    }
}
