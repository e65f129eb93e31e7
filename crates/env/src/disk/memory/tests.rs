use super::*;

#[tokio::test]
async fn keeps_the_promises_of_a_disk() {
    super::super::conformance::run(&MemoryDisk::default()).await;
}

async fn write(file: &Arc<dyn DiskFile>, offset: u64, data: Vec<u8>, sync: bool) -> io::Result<()> {
    file.write_at(offset, vec![data.into()], sync).await
}

#[tokio::test]
async fn power_loss_keeps_what_was_synced_and_tears_the_rest() {
    let mut torn = 0;
    for seed in 0..20 {
        let disk = MemoryDisk::default();
        let file = disk.create("file").await.unwrap();
        write(&file, 0, vec![1; 4096], true).await.unwrap();
        disk.sync_directory().await.unwrap();
        write(&file, 4096, vec![2; 4096], false).await.unwrap();
        disk.power_loss(seed);
        assert!(file.read_at(0, 1).await.is_err(), "a handle does not survive");
        let bytes = disk.contents("file").unwrap();
        assert_eq!(bytes[..4096], [1; 4096]);
        let survived = bytes[4096..].iter().filter(|byte| **byte == 2).count();
        torn += usize::from(survived > 0 && survived < 4096);
    }
    assert!(torn > 10, "{torn} of 20 writes were torn");
}

#[tokio::test]
async fn a_failed_sync_is_lost_although_the_next_one_succeeds() {
    let disk = MemoryDisk::default();
    let file = disk.create("file").await.unwrap();
    disk.sync_directory().await.unwrap();
    disk.fail_syncs(1);
    assert!(write(&file, 0, vec![1; 512], true).await.is_err());
    write(&file, 512, vec![2; 512], true).await.unwrap();
    assert_eq!(disk.syncs(), 2);
    assert_eq!(file.read_at(0, 512).await.unwrap(), vec![1; 512], "the page cache still has it");
    disk.power_loss(1);
    assert_eq!(disk.contents("file").unwrap(), [vec![0; 512], vec![2; 512]].concat());
}

#[tokio::test]
async fn writes_fail_as_told() {
    let disk = MemoryDisk::default();
    let file = disk.create("file").await.unwrap();
    disk.fail_writes(Some(io::ErrorKind::StorageFull));
    assert_eq!(write(&file, 0, vec![1; 512], false).await.unwrap_err().kind(), io::ErrorKind::StorageFull);
    disk.fail_writes(None);
    write(&file, 0, vec![1; 512], false).await.unwrap();
}

/// Runs `change` on a directory with the durable file `old`. Returns what each of 40 power cuts leaves.
async fn names_after_power_loss(change: impl AsyncFn(&MemoryDisk)) -> BTreeSet<Vec<String>> {
    let mut outcomes = BTreeSet::new();
    for seed in 0..40 {
        let disk = MemoryDisk::default();
        disk.create("old").await.unwrap();
        disk.sync_directory().await.unwrap();
        change(&disk).await;
        disk.power_loss(seed);
        outcomes.insert(disk.list().await.unwrap());
    }
    outcomes
}

#[tokio::test]
async fn changes_of_names_may_be_undone_until_the_directory_is_synced() {
    let named = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let created = names_after_power_loss(async |disk| drop(disk.create("new").await.unwrap())).await;
    assert_eq!(created, BTreeSet::from([named(&["old"]), named(&["new", "old"])]));
    let removed = names_after_power_loss(async |disk| disk.remove("old").await.unwrap()).await;
    assert_eq!(removed, BTreeSet::from([named(&[]), named(&["old"])]));
    let renamed = names_after_power_loss(async |disk| disk.rename("old", "new").await.unwrap()).await;
    assert_eq!(renamed, BTreeSet::from([named(&["old"]), named(&["new"])]), "a rename never loses the file");
    let synced = names_after_power_loss(async |disk| {
        disk.rename("old", "new").await.unwrap();
        disk.sync_directory().await.unwrap();
    })
    .await;
    assert_eq!(synced, BTreeSet::from([named(&["new"])]));
}

#[tokio::test]
async fn a_failed_sync_of_the_directory_makes_no_name_durable() {
    let created = names_after_power_loss(async |disk| {
        disk.fail_directory_syncs(1);
        disk.create("new").await.unwrap();
        assert_eq!(disk.sync_directory().await.unwrap_err().kind(), io::ErrorKind::Other);
    })
    .await;
    assert_eq!(created.len(), 2, "{created:?}");
    let disk = MemoryDisk::default();
    disk.fail_directory_syncs(1);
    assert!(disk.sync_directory().await.is_err());
    disk.sync_directory().await.unwrap();
}

#[tokio::test]
async fn held_syncs_end_when_released() {
    let disk = MemoryDisk::default();
    let file = disk.create("file").await.unwrap();
    disk.hold_syncs(true);
    let syncing = crate::spawn(async move { file.sync_data().await });
    for _ in 0..10 {
        tokio::task::yield_now().await;
    }
    assert_eq!((syncing.is_finished(), disk.syncs()), (false, 0));
    disk.hold_syncs(false);
    syncing.join().await.unwrap();
    assert_eq!(disk.syncs(), 1);
}

#[tokio::test]
async fn a_full_disk_says_so() {
    let disk = MemoryDisk::new(1000);
    let file = disk.create("file").await.unwrap();
    write(&file, 0, vec![1; 1000], false).await.unwrap();
    let error = write(&file, 1000, vec![1], false).await.unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(disk.space().await.unwrap().free, 0);
    disk.set_capacity(1010);
    let pieces = vec![Bytes::from_static(b"123456"), Bytes::from_static(b"789012")];
    assert!(file.write_at(1000, pieces, false).await.is_err(), "12 bytes into room for 10");
}
