//! What others on the machine or the network may see or change.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use super::report::Report;
use crate::config::Config;

/// Bits of a mode, by inode(7).
const WRITE_OF_OTHERS: u32 = 0o022;
const ALL_OF_STRANGERS: u32 = 0o007;

pub(super) fn examine(config: &Config, report: &mut Report) {
    for directory in &config.store.data_dirs {
        if let Some(mode) = mode_beyond(directory, WRITE_OF_OTHERS) {
            report.find("directory-open", &directory.display().to_string(), format!("mode {mode:04o}"));
        }
    }
    for file in config.secret_files() {
        if let Some(mode) = mode_beyond(&file, ALL_OF_STRANGERS) {
            report.find("secrets-readable", &file.display().to_string(), format!("mode {mode:04o}"));
        }
    }
    let listen = config.server.listen;
    if !listen.ip().is_loopback() && config.server.tls_cert.is_none() {
        report.find("network-plain", "", format!("`server.listen` is {listen}, without `server.tls_cert`"));
    }
}

/// The mode of a file, when others have one of these rights. What is not there yet will be made with none.
fn mode_beyond(path: &Path, rights: u32) -> Option<u32> {
    let mode = path.metadata().as_ref().map(Metadata::mode).ok()? & 0o7777;
    (mode & rights != 0).then_some(mode)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::doctor::report;

    fn found(text: &str) -> Vec<&'static str> {
        report::found(text, examine)
    }

    #[test]
    fn what_others_may_change_or_read_is_told() {
        let directory = tempfile::tempdir().unwrap();
        let users = directory.path().join("users.toml");
        std::fs::write(&users, "").unwrap();
        let text = format!(
            "[server]\nusers_file = {users:?}\n[store]\ndata_dirs = [{:?}, {:?}]\n",
            directory.path(),
            directory.path().join("absent")
        );
        let with = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        with(&users, 0o640);
        with(directory.path(), 0o755);
        assert!(found(&text).is_empty(), "the files of the store are private by themselves");
        with(&users, 0o644);
        with(directory.path(), 0o777);
        assert_eq!(found(&text), ["directory-open", "secrets-readable"]);
        with(directory.path(), 0o770);
        assert!(found(&text).contains(&"directory-open"));
    }

    #[test]
    fn plain_http_to_other_machines_is_told() {
        assert_eq!(found("[server]\nlisten = \"0.0.0.0:9700\""), ["network-plain"]);
        assert!(found("[server]\nlisten = \"[::1]:9700\"").is_empty());
    }
}
