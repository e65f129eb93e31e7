//! The root user's keys: from the configuration, or made up for development.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::Path;

use forebay_auth::{RootUser, Secret};
use forebay_env::Random;

use crate::config::Config;
use crate::failure::Failure;

/// Keeps made-up keys in the first data directory, so that a restart does not change them.
const FILE: &str = "development-credentials";

/// The keys of the configuration; else those of an earlier start; else new ones, which are printed once.
///
/// # Errors
/// Without configured keys on an address that other machines can reach: made-up keys are for development.
pub(crate) fn root_user(config: &Config, random: &dyn Random) -> Result<RootUser, Failure> {
    let server = &config.server;
    if let (Some(access_key), Some(secret)) = (&server.root_access_key, &server.root_secret_key) {
        return Ok(RootUser { access_key: access_key.clone(), secret_key: Secret::new(&secret.0) });
    }
    if !server.listen.ip().is_loopback() {
        return Err(Failure::Refused(format!(
            "server.listen = \"{}\" can be reached from other machines: set FOREBAY_ROOT_ACCESS_KEY and FOREBAY_ROOT_SECRET_KEY first",
            server.listen
        )));
    }
    let directory = config.store.data_dirs.first().expect("the configuration refuses an empty list");
    development_user(directory, random).map_err(|e| Failure::of(&format!("{}", directory.join(FILE).display()), &e))
}

fn development_user(directory: &Path, random: &dyn Random) -> io::Result<RootUser> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    let path = directory.join(FILE);
    match File::open(&path) {
        Ok(mut file) => {
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            parse(&text)
                .ok_or_else(|| io::Error::other("must hold an access key and a secret key; remove it to get new ones"))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => make(&path, random),
        Err(error) => Err(error),
    }
}

fn make(path: &Path, random: &dyn Random) -> io::Result<RootUser> {
    let access_key = format!("DEV{}", random.hex_id()[..17].to_ascii_uppercase());
    let secret = format!("{}{:08x}", random.hex_id(), random.next_u64() as u32);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    write!(file, "{access_key}\n{secret}\n")?;
    file.sync_all()?;
    eprintln!("development credentials, kept in {}:", path.display());
    eprintln!("  export AWS_ACCESS_KEY_ID={access_key} AWS_SECRET_ACCESS_KEY={secret}");
    Ok(RootUser { access_key, secret_key: Secret::new(&secret) })
}

fn parse(text: &str) -> Option<RootUser> {
    let (access_key, secret) = text.trim_end().split_once('\n')?;
    let fits = !access_key.is_empty() && !secret.is_empty() && !secret.contains('\n');
    fits.then(|| RootUser { access_key: access_key.to_owned(), secret_key: Secret::new(secret) })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use forebay_env::random::SystemRandom;

    use super::*;

    #[test]
    fn made_up_keys_outlive_a_restart_and_are_for_the_owner_only() {
        let directory = tempfile::tempdir().unwrap();
        let inside = directory.path().join("data");
        let first = development_user(&inside, &SystemRandom).unwrap();
        let second = development_user(&inside, &SystemRandom).unwrap();
        assert_eq!((&first.access_key, &first.secret_key), (&second.access_key, &second.secret_key));
        assert_eq!(first.access_key.len(), 20);
        assert_eq!(first.secret_key.expose().len(), 40);
        let mode = std::fs::metadata(inside.join(FILE)).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
    }

    #[test]
    fn a_damaged_file_is_refused_and_kept() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join(FILE);
        std::fs::write(&path, "only one line").unwrap();
        development_user(directory.path(), &SystemRandom).unwrap_err();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "only one line");
    }
}
