//! The mark that changes were lost with a forgotten directory: an empty file in each of the others. Only the log of
//! that directory had these changes, so nobody can list them. The mark is made before the directory is forgotten, and
//! stays until somebody else removes it.

use std::io;
use std::sync::Arc;

use forebay_env::Disk;

use crate::directory::Directory;

/// The name of the mark.
pub const CHANGES_LOST_FILE: &str = "changes-lost";

pub(crate) async fn mark(directories: &[Arc<Directory>]) {
    for directory in directories {
        if let Err(error) = mark_one(directory.disk.as_ref()).await {
            let label = directory.disk.label();
            tracing::warn!(directory = label, %error, "changes were lost with a directory that is forgotten, and this could not be marked");
        }
    }
}

async fn mark_one(disk: &dyn Disk) -> io::Result<()> {
    match disk.create(CHANGES_LOST_FILE).await {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        created => {
            created?.sync_data().await?;
            disk.sync_directory().await
        }
    }
}
