//! What of a configuration only a look at the file system can tell. Nothing is changed by it.

use std::io::ErrorKind;
use std::path::Path;

use forebay_auth::{RootUser, Secret, Users};

use crate::config::{Config, Problem};
use crate::{logs, tls};

/// # Errors
/// The first file or directory that the server could not start with.
pub(crate) fn check(config: &Config) -> Result<(), Problem> {
    tls::acceptor(config)?;
    check_users(config)?;
    logs::check(config)?;
    for directory in &config.store.data_dirs {
        check_own(directory).map_err(|wrong| config.problem("store", "data_dirs", &wrong))?;
    }
    if let Some(directory) = config.root.directory() {
        check_own(directory).map_err(|wrong| config.problem("under_store", "url", &wrong))?;
    }
    for (bucket, place) in &config.mounts {
        let Some(directory) = place.directory() else { continue };
        check_present(directory).map_err(|wrong| place.origin.problem(&format!("mounts.{bucket}"), &wrong))?;
    }
    Ok(())
}

fn check_users(config: &Config) -> Result<(), Problem> {
    // The root user has no part in what may be wrong with the file, and its keys may not be made yet.
    let root = RootUser { access_key: "root".into(), secret_key: Secret::new("") };
    let opened = Users::open(root, config.server.users_file.clone());
    opened.map(drop).map_err(|wrong| config.problem("server", "users_file", &wrong.to_string()))
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

/// A directory that is made at the start when it is absent.
fn check_own(directory: &Path) -> Result<(), String> {
    match std::fs::metadata(directory) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Ok(_) | Err(_) => check_present(directory),
    }
}
