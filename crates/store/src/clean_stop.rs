//! The mark of a clean stop: an empty file. A directory has it from the last snapshot of a process until the next
//! process begins. When all remaining directories have the mark, the missing ones knew nothing that this snapshot does
//! not show.

use std::io;

use forebay_env::Disk;

pub(crate) const NAME: &str = "closed";

pub(crate) async fn mark(disk: &dyn Disk) -> io::Result<()> {
    disk.create(NAME).await?.sync_data().await?;
    disk.sync_directory().await
}

pub(crate) async fn unmark(disk: &dyn Disk) -> io::Result<()> {
    disk.remove(NAME).await?;
    disk.sync_directory().await
}
