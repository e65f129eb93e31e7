//! Fuzz targets for everything that this crate reads from disks. Each takes arbitrary bytes, and panics when a promise
//! is broken.

use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use forebay_env::disk::memory::MemoryDisk;
use forebay_env::random::SeededRandom;
use forebay_env::{Disk, Env, HashState};
use forebay_types::{ByteRange, Durability};
use tokio::runtime::{Builder, Runtime};

use crate::directory::{Directory, Identity};
use crate::ids::{DirectoryId, SegmentKey};
use crate::record::abort::AbortBody;
use crate::record::commit::CommitBody;
use crate::record::extent::ExtentBody;
use crate::record::object::ObjectBody;
use crate::record::scan::Scan;
use crate::record::{Draft, Head, Kind, crc32c};
use crate::segment::{SEGMENT_HEADER_BYTES, Segment, SegmentHeader, SegmentKind};
use crate::snapshot::load::load_snapshot;
use crate::{Class, Commit, ErrorKind, NewObject, Piece, Result, Settings, Store, ValueWrite};

const STORE: u64 = 0x1234_5678_9abc_def0;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_time().build().expect("a runtime needs no more than memory")
}

/// Takes the first bytes off `data`, padded with zeros.
fn take<const N: usize>(data: &mut &[u8]) -> [u8; N] {
    let (first, rest) = data.split_at((*data).len().min(N));
    *data = rest;
    let mut taken = [0; N];
    taken[..first.len()].copy_from_slice(first);
    taken
}

/// Decodes the head of a record and the header of a segment: from the input as it is, and with valid checksums.
pub fn head(data: &[u8]) {
    let _ = SegmentHeader::decode(data);
    let _ = Head::decode(&Bytes::copy_from_slice(data));
    let mut sealed = data.to_vec();
    if sealed.len() >= SEGMENT_HEADER_BYTES as usize {
        sealed[..8].copy_from_slice(b"FBSG\x01\0\0\0");
        sealed[28..60].fill(0);
        let crc = crc32c(&sealed[..60]);
        sealed[60..64].copy_from_slice(&crc.to_le_bytes());
        if let Ok(header) = SegmentHeader::decode(&sealed) {
            assert_eq!(header.encode(), sealed[..64]);
        }
    }
    if data.len() >= 48 {
        sealed.copy_from_slice(data);
        sealed[..4].copy_from_slice(b"FBR1");
        let length = sealed.len() as u32;
        sealed[8..12].copy_from_slice(&length.to_le_bytes());
        sealed[20..24].fill(0);
        let crc = crc32c(&sealed);
        sealed[20..24].copy_from_slice(&crc.to_le_bytes());
        if let Ok(head) = Head::decode(&sealed.into()) {
            assert!(head.body.len() + 48 <= data.len());
            assert!(head.header.payload_bytes <= crate::record::PAYLOAD_BYTES_MAX);
        }
    }
}

/// Decodes a body with a valid checksum, then a whole record with a flipped bit.
pub fn record(mut data: &[u8]) {
    let [kind, at @ ..] = take::<4>(&mut data);
    let split = data.len() - data.len().min(usize::from(at[2]));
    let (body, payload) = data.split_at(split);
    if let Ok(object) = ObjectBody::decode(body) {
        assert_eq!(ObjectBody::decode(&object.draft(Bytes::new()).body).expect("just encoded"), object);
    }
    if let Ok(extent) = ExtentBody::decode(body) {
        assert_eq!(ExtentBody::decode(&extent.draft(Bytes::new()).body).expect("just encoded"), extent);
    }
    if let Ok(commit) = CommitBody::decode(body) {
        assert_eq!(CommitBody::decode(&commit.draft().body).expect("just encoded"), commit);
    }
    if let Ok(abort) = AbortBody::decode(body) {
        assert_eq!(AbortBody::decode(&abort.draft().body).expect("just encoded"), abort);
    }
    let kind = [Kind::Object, Kind::Extent, Kind::Commit, Kind::Abort][usize::from(kind % 4)];
    let draft = Draft { kind, body: Bytes::copy_from_slice(body), payload: Bytes::copy_from_slice(payload) };
    let mut bytes = draft.encode(STORE, 99, 64).concat();
    assert_eq!(bytes.len(), draft.total_bytes());
    assert_eq!(sound(&bytes).expect("just encoded"), (kind, draft.body.clone(), draft.payload.clone()));
    let unpadded = draft.head_bytes() + payload.len();
    bytes[usize::from(u16::from_le_bytes([at[0], at[1]])) % unpadded] ^= 1 << (at[2] % 8);
    assert_eq!(sound(&bytes).expect_err("damage is seen").kind, ErrorKind::Corrupt);
}

/// Reads and verifies a record as readers do.
fn sound(bytes: &[u8]) -> Result<(Kind, Bytes, Bytes)> {
    let bytes = Bytes::copy_from_slice(bytes);
    let head = Head::decode(&bytes)?;
    let payload = bytes.slice(head.header.head_bytes..head.header.head_bytes + head.header.payload_bytes);
    head.verify(0, &payload)?;
    Ok((head.header.kind, head.body, payload))
}

/// Scans a log whose records and damage the input chooses. Every record that is found must have been written at that
/// offset.
pub fn segment(mut data: &[u8]) {
    let key = SegmentKey { directory: 0, number: 1 };
    let header = SegmentHeader { store: STORE, key, kind: SegmentKind::Log, sequence: 1 };
    let disk = MemoryDisk::default();
    let damaged = disk.clone();
    runtime().block_on(async {
        let file = disk.create("segment").await.expect("a disk in memory");
        let segment = Segment::new(header.clone(), DirectoryId(STORE), file, 0, false);
        let mut bytes = header.encode().to_vec();
        let mut written = Vec::new();
        for sequence in 1..=u64::from(take::<1>(&mut data)[0] % 8) {
            let [kind, body, payload] = take::<3>(&mut data).map(usize::from);
            let mut piece = |length: usize| {
                let (piece, rest) = data.split_at(data.len().min(length));
                data = rest;
                Bytes::copy_from_slice(piece)
            };
            let kind = [Kind::Object, Kind::Extent, Kind::Commit, Kind::Abort][kind % 4];
            let draft = Draft { kind, body: piece(body), payload: piece(payload) };
            written.push((bytes.len() as u64, draft.clone()));
            bytes.extend_from_slice(&draft.encode(segment.binding(), sequence, 0).concat());
        }
        while !data.is_empty() {
            let [low, high, with] = take(&mut data);
            let at = usize::from(u16::from_le_bytes([low, high])) % (bytes.len() + 1);
            match bytes.get_mut(at) {
                Some(byte) if with != 0 => *byte ^= with,
                Some(_) | None => bytes.truncate(at),
            }
        }
        segment.write(0, vec![Bytes::from(bytes.clone())]).await.expect("a disk in memory");
        let mut scan = Scan::new(&segment, SEGMENT_HEADER_BYTES).await.expect("a disk in memory");
        let mut offset = scan.offset();
        loop {
            // Continues after damage as recovery does. `Invalid` means a newer version, which no damage produces.
            let found = match scan.next().await.expect("no newer version") {
                Some(found) => Some(found),
                None => scan.resume().await.expect("no newer version"),
            };
            let Some(found) = found else { break };
            assert!(found.offset >= offset && scan.offset() > found.offset, "a scan goes forward");
            offset = scan.offset();
            let (_, draft) = written.iter().find(|(at, _)| *at == found.offset).expect("a record was written here");
            assert!(found.is(draft.kind) && found.head.body == draft.body);
            let start = found.offset as usize + draft.head_bytes();
            assert_eq!(bytes[start..start + draft.payload.len()], draft.payload);
        }
        drop(damaged);
    });
}

/// Loads chunks of a snapshot with valid checksums, in frames whose lengths the input chooses.
pub fn snapshot(mut data: &[u8]) {
    let mut bytes = [b"FBSN".as_slice(), &1_u32.to_le_bytes()].concat();
    bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
    while !data.is_empty() {
        let length = usize::from(u16::from_le_bytes(take(&mut data)));
        let (chunk, rest) = data.split_at(data.len().min(length));
        data = rest;
        bytes.extend_from_slice(&(chunk.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&crc32c(chunk).to_le_bytes());
        bytes.extend_from_slice(chunk);
    }
    runtime().block_on(async {
        let loaded = load(bytes.clone()).await;
        let again = load(bytes.clone()).await;
        assert_eq!(loaded, again);
        // A snapshot with a flipped bit does not load.
        let at = bytes.len() / 2;
        bytes[at] ^= 1;
        let behind_end = loaded.is_some() && load(bytes[..at].to_vec()).await.is_some();
        assert!(behind_end || load(bytes).await.is_none(), "byte {at} is damaged");
    });
}

/// The number of objects and values in a snapshot.
async fn load(bytes: Vec<u8>) -> Option<(usize, usize)> {
    let disk = MemoryDisk::default();
    let file = disk.create("snapshot").await.expect("a disk in memory");
    file.write_at(0, vec![bytes.into()], true).await.expect("a disk in memory");
    let identity = Identity { store: STORE, number: 0, id: DirectoryId::before_lists(STORE, 0) };
    let directory = Arc::new(Directory::new(
        Arc::new(disk),
        identity,
        1,
        Settings::new(vec![1]).lengths(),
        Env::simulated(1).0.clock,
    ));
    let (loaded, _) =
        load_snapshot(&[directory], &HashState::new(&SeededRandom::new(1)), 0).await.expect("no newer version");
    loaded.map(|snapshot| {
        let objects = snapshot.tables.objects.shards().map(|shard| shard.read().iter().count()).sum();
        (objects, snapshot.tables.values.len())
    })
}

/// The files of a store that has been used for a while.
struct Image {
    files: Vec<(String, Vec<u8>)>,
}

const KEYS: [(&str, usize); 6] =
    [("a", 0), ("b", 300), ("c", 900), ("large", 20_000), ("clean", 300), ("clean large", 12_000)];

fn contents(key: usize, version: usize) -> Bytes {
    let (_, size) = KEYS[key];
    (0..size).map(|at| (at * 31 + at / 251 + key * 17 + version * 101) as u8).collect()
}

fn settings() -> Settings {
    Settings {
        segment_bytes: 64 << 10,
        inline_bytes_max: 1 << 10,
        extent_bytes_max: 8 << 10,
        snapshot_log_bytes: 1 << 30,
        ..Settings::new(vec![4 << 20])
    }
}

async fn put(store: &Store, key: usize, version: usize) {
    let (name, size) = KEYS[key];
    let is_clean = name.starts_with("clean");
    let class = if is_clean { Class::Fill } else { Class::Durable };
    let mut writer = store.writer(class, size as u64).await.expect("room");
    writer.append(contents(key, version)).await.expect("room");
    let object = NewObject {
        key: name.into(),
        generation: store.next_generation(),
        metadata: format!("{name} {version}").into(),
        annex: Bytes::from_static(b"annex"),
        pinned: !is_clean,
        group: 0,
        size: size as u64,
    };
    let staged = writer.finish(object).await.expect("room");
    if is_clean {
        return store.publish_fill(staged).await.expect("room");
    }
    let value = Some(Bytes::from(format!("value {version}")));
    let writes = vec![ValueWrite { key: name.into(), value }];
    let commit = Commit { publish: vec![staged], writes, ..Commit::default() };
    store.commit(commit, Durability::Fsync).await.expect("room");
}

async fn open(disk: &MemoryDisk) -> Result<Store> {
    Store::open(Env::simulated(1).0, vec![Arc::new(disk.clone())], settings(), None).await
}

/// One image without a snapshot, and one with a snapshot and some log after it.
fn images() -> &'static [Image; 2] {
    static IMAGES: OnceLock<[Image; 2]> = OnceLock::new();
    IMAGES.get_or_init(|| [false, true].map(image))
}

fn image(with_snapshot: bool) -> Image {
    runtime().block_on(async {
        let disk = MemoryDisk::default();
        let store = open(&disk).await.expect("an empty disk");
        for version in 0..2 {
            for key in 0..KEYS.len() {
                put(&store, key, version).await;
            }
            if version == 0 && with_snapshot {
                store.inner.snapshot().await.expect("room");
            }
        }
        let forget = vec![Bytes::from_static(b"a")];
        store.commit(Commit { forget, ..Commit::default() }, Durability::Fsync).await.expect("room");
        let names = disk.list().await.expect("a disk in memory");
        let files = names.into_iter().map(|name| (name.clone(), disk.contents(&name).expect("just listed")));
        Image { files: files.collect() }
    })
}

/// Opens a store with damaged files. The start is refused, or each read returns what was once written or an error. If
/// only copies and the snapshot are damaged, everything that was acknowledged is there.
pub fn damage(mut data: &[u8]) {
    let image = &images()[usize::from(take::<1>(&mut data)[0] % 2)];
    let mut files = image.files.clone();
    let mut harmless = true;
    while !data.is_empty() {
        let [file, low, high, with] = take(&mut data);
        let index = usize::from(file) % files.len();
        let (name, bytes) = &mut files[index];
        let at = usize::from(u16::from_le_bytes([low, high])) % (bytes.len() + 1);
        match bytes.get_mut(at) {
            Some(byte) if with != 0 => *byte ^= with,
            Some(_) | None => bytes.truncate(at),
        }
        harmless &= name.ends_with(".fill") || name == "snapshot";
    }
    runtime().block_on(async {
        let disk = MemoryDisk::default();
        for (name, bytes) in files {
            let file = disk.create(&name).await.expect("a disk in memory");
            file.write_at(0, vec![bytes.into()], true).await.expect("a disk in memory");
        }
        disk.sync_directory().await.expect("a disk in memory");
        match open(&disk).await {
            Ok(store) => check(&store, harmless).await,
            Err(error) => assert!(!harmless && error.kind == ErrorKind::Corrupt, "{error}"),
        }
    });
}

async fn check(store: &Store, harmless: bool) {
    for (key, (name, size)) in KEYS.into_iter().enumerate() {
        let is_durable = !name.starts_with("clean");
        let newest = read(store, name, size).await;
        let version = newest.as_ref().and_then(|found| (0..2).find(|version| *found == contents(key, *version)));
        assert!(newest.is_none() || version.is_some(), "{name} has bytes that nobody wrote");
        if harmless && is_durable {
            assert_eq!(version, (key != 0).then_some(1), "{name}");
        }
        let value = store.value(name.as_bytes()).map(|found| found.value);
        let version = value.as_ref().map(|value| (0..2).find(|version| *value == format!("value {version}")));
        assert_ne!(version, Some(None), "{name} has a value that nobody wrote");
        if harmless && is_durable {
            assert_eq!(version, Some(Some(1)), "{name}");
        }
    }
}

/// `None` when there is no object, or it can't be read.
async fn read(store: &Store, name: &str, size: usize) -> Option<Bytes> {
    let object = store.peek(name.as_bytes())?;
    if let Ok(metadata) = object.metadata().await {
        assert!([0, 1].iter().any(|version| metadata == format!("{name} {version}")), "{name} has foreign metadata");
    }
    assert_eq!(object.size(), size as u64, "{name} has another size");
    let mut data = Vec::new();
    for piece in object.pieces(ByteRange::of_size(object.size())) {
        match piece {
            Piece::Cached(range) => data.extend_from_slice(&object.read(range).await.ok()?),
            Piece::Missing(_) => return None,
        }
    }
    Some(data.into())
}
