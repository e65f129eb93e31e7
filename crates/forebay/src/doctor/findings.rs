//! Every finding there is. The doctor, the notices of a start and `docs/doctor.md` all read this one table.

use forebay_admin::{Notice, Severity};
use serde::Serialize;

use Severity::{Critical, Info, Warning};

/// A kind of finding.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Kind {
    /// A word for programs.
    pub(crate) id: &'static str,
    pub(crate) severity: Severity,
    /// What is so.
    pub(crate) what: &'static str,
    /// Why it matters.
    pub(crate) why: &'static str,
    /// What to do about it.
    pub(crate) cure: &'static str,
}

impl Kind {
    /// # Panics
    /// When the table has no such id: a finding without a cure is a bug.
    pub(crate) fn named(id: &str) -> Self {
        *KINDS.iter().find(|kind| kind.id == id).expect("findings are those of the table")
    }
}

#[rustfmt::skip]
pub(crate) const KINDS: [Kind; 35] = [
    kind("directory-unusable", Critical, "the server cannot create files in the data directory", "the server cannot start", "Give the server's user write permission, or name another directory in `store.data_dirs`"),
    kind("filesystem-in-memory", Critical, "the data directory is in memory", "a restart of the machine loses acknowledged writes", "Put `store.data_dirs` on a disk. To use memory as a cache tier, set `cache.memory_size`"),
    kind("filesystem-overlay", Warning, "the data directory is in the writable layer of a container", "its data is lost with the container, including dirty objects, and it is slower than the disk below", "Mount a volume and put `store.data_dirs` on it"),
    kind("filesystem-network", Warning, "the data directory is on a network file system", "every write waits for the network, and a sync may promise less than that of a local disk", "Put `store.data_dirs` on local disks"),
    kind("directories-share-a-disk", Warning, "two data directories are on one disk", "they share its bandwidth and fail together, and a percentage in `store.size` counts the disk twice", "Name one directory per disk in `store.data_dirs`"),
    kind("space-missing", Critical, "the disk has less free space than `store.size` asks for", "writes are refused when the disk is full", "Free space, or reduce `store.size`. A percentage adapts to the free space at the start"),
    kind("space-too-small", Critical, "the data directory has room for fewer than 8 segments", "the server refuses to start", "Free space, or reduce `store.segment_size`"),
    kind("space-less-than-asked", Info, "the percentage in `store.size` is limited to the free space", "the cache is smaller than the size of the disk suggests", "For a larger cache, free space before the next start"),
    kind("open-files-few", Warning, "the limit of open files is below what the settings may need", "the server accepts fewer connections at once than `server.connections_max`; others wait", "Raise the hard limit (`LimitNOFILE=` of systemd, `ulimit -Hn`), or lower `server.connections_max`"),
    kind("directory-open", Warning, "users other than the server's may write to the data directory", "they can replace its files, and read what the server returns after a restart", "Run `chmod 700` on it, and make the server's user its owner"),
    kind("secrets-readable", Warning, "every user of the machine can read a file with secrets", "anybody with the keys of a user may do what that user may do", "Run `chmod 600` on it, and make the server's user its owner"),
    kind("network-plain", Warning, "the server offers S3 to other machines without TLS", "secret keys are never sent, but objects are: attackers on the network can read them, and change those without a signed hash (`UNSIGNED-PAYLOAD`)", "Set `server.tls_cert` and `server.tls_key`, or listen on the local machine only, behind a proxy that speaks TLS"),
    kind("memory-missing", Critical, "the settings need more memory than there is", "the system kills the process when memory runs out", "Lower `cache.memory_size`, or give the machine or the container more memory"),
    kind("memory-tight", Warning, "the settings need more memory than is free now", "the machine may swap, or kill a process, once the tiers are full", "Lower `cache.memory_size`, or stop other processes that use memory"),
    kind("cores-few", Warning, "there is only one processor", "hashing, disks and under store compete for it", "Give the server at least two processors"),
    kind("hashing-slow", Warning, "one processor hashes slowly", "S3 uses MD5 as the ETag, and this limits the speed of one upload", "Upload large objects in parts, which are hashed in parallel, or use a faster processor"),
    kind("clock-wrong", Critical, "the clock differs from the under store's by more than 15 minutes", "S3 refuses requests that are signed with this clock, and Forebay refuses those of clients whose clocks are right", "Set the clock, and run an NTP client"),
    kind("clock-off", Warning, "the clock differs from the under store's", "times of objects are wrong, and from 15 minutes on requests are refused", "Run an NTP client (chrony, systemd-timesyncd)"),
    kind("clock-unsynchronised", Warning, "the NTP client runs but has not synchronised the clock", "the clock drifts until requests are refused", "Run `timedatectl timesync-status` and check that the time servers can be reached"),
    kind("disk-not-measured", Warning, "the disk could not be measured", "the speed of the disk is unknown", "See the reason. The measurement needs a quarter of the free space, and at least 16 MiB"),
    kind("disk-sync-slow", Warning, "a sync of the disk is slow", "every acknowledged write waits for a sync, although concurrent writes share one", "Use an SSD with power-loss protection, and check whether other processes use the disk"),
    kind("disk-slower-than-under-store", Warning, "the disks are slower than the under store behind them", "reads and writes of large objects would be faster without the cache", "Use faster disks or more of them, or let cold paths bypass the cache: `cacheReads = false`, `writeMode = \"NO_CACHE\"`"),
    kind("under-store-unresolved", Critical, "the host name of the under store's endpoint has no address", "Forebay can neither read from the under store nor upload to it", "Check the endpoint in the URL and the resolver of the machine"),
    kind("under-store-unreachable", Critical, "no connection to the under store", "Forebay can neither read from the under store nor upload to it", "Check the endpoint, port, firewall and proxy, and that the under store runs"),
    kind("under-store-far", Warning, "the latency to the under store is high", "every cache miss waits for it", "Use an endpoint in the same region; raise `cache.read_ahead_pages` and `cache.persist_concurrency`"),
    kind("credentials-refused", Critical, "the under store rejects the keys", "every request to it fails; writes stay in the cache until the space for them is full", "Correct the keys. The error says what is wrong: `SignatureDoesNotMatch` the secret key, `InvalidAccessKeyId` the access key, which the under store does not know, `ExpiredToken` a session that has expired, `AuthorizationHeaderMalformed` the region"),
    kind("bucket-missing", Critical, "the bucket behind it does not exist", "every request to it fails; writes stay in the cache until the space for them is full", "Make the bucket in the under store, or correct its name in the URL of the mount"),
    kind("permission-missing", Critical, "the keys of the under store lack a permission", "operations that need it fail, at once or when a write is uploaded to the under store", "Grant the keys the named permission on the bucket and on its objects"),
    kind("under-store-full", Critical, "the under store has no space left", "writes that need room fail; under WRITE_BACK they stay in the cache until the space for them is full", "Make room in the directory of the under store, or raise its quota. What waits is sent by itself, and `forebay persist /` sends it at once"),
    kind("under-store-read-only", Critical, "the under store is read-only", "every write to it fails; under WRITE_BACK writes stay in the cache until the space for them is full", "Check the disk of the under store and its file system (`dmesg`), and mount it read-write (`mount -o remount,rw`). What waits is sent by itself, and `forebay persist /` sends it at once"),
    kind("under-store-failing", Critical, "a request to the under store failed", "operations that need it fail, too", "The error names the request and the reason"),
    kind("conditions-missing", Warning, "the under store does not honour conditional writes", "if other writers use the same keys, Forebay may overwrite their objects", "Keep other writers away, or update the server: it must honour `If-None-Match: *` and `If-Match` on PutObject"),
    kind("probe-left", Warning, "an object of this examination could not be removed", "it takes space until somebody removes it", "Remove the named key"),
    kind("nothing-to-probe", Info, "the under store has no bucket to test", "permissions and speed were not examined", "Create a bucket and run this again, or mount the bucket that you want to use"),
    kind("under-store-not-written", Info, "the path policies write nothing, so nothing was written to the under store", "write permissions and the upload speed were not examined", "Nothing to do while all paths are READ_ONLY"),
];

const fn kind(id: &'static str, severity: Severity, what: &'static str, why: &'static str, cure: &'static str) -> Kind {
    Kind { id, severity, what, why, cure }
}

/// Something that was found.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Finding {
    pub(crate) id: &'static str,
    pub(crate) severity: Severity,
    /// A directory, an under store; empty for the whole machine.
    pub(crate) subject: String,
    pub(crate) what: &'static str,
    /// The figures.
    pub(crate) measured: String,
    pub(crate) why: &'static str,
    pub(crate) cure: &'static str,
}

/// The kinds that an error of an under store may be.
pub(crate) const OF_UNDER_STORES: [&str; 7] = [
    "under-store-unreachable",
    "credentials-refused",
    "bucket-missing",
    "permission-missing",
    "under-store-full",
    "under-store-read-only",
    "under-store-failing",
];

/// What an error of an under store is to an operator: one of [`OF_UNDER_STORES`].
pub(crate) fn of_under_store(error: forebay_ufs::ErrorKind) -> Kind {
    use forebay_ufs::ErrorKind;
    Kind::named(match error {
        ErrorKind::Credentials => "credentials-refused",
        ErrorKind::Denied => "permission-missing",
        ErrorKind::NoBucket => "bucket-missing",
        ErrorKind::NoSpace => "under-store-full",
        ErrorKind::ReadOnly => "under-store-read-only",
        ErrorKind::Unavailable | ErrorKind::Ambiguous => "under-store-unreachable",
        ErrorKind::NotFound
        | ErrorKind::AlreadyExists
        | ErrorKind::NotEmpty
        | ErrorKind::Precondition
        | ErrorKind::Conflict
        | ErrorKind::Throttled
        | ErrorKind::Unsupported
        | ErrorKind::Invalid
        | ErrorKind::InvalidName
        | ErrorKind::InvalidStorageClass
        | ErrorKind::Corrupt => "under-store-failing",
    })
}

impl Finding {
    pub(crate) fn of(kind: &Kind, subject: &str, measured: String) -> Self {
        let Kind { id, severity, what, why, cure } = *kind;
        Self { id, severity, subject: subject.to_owned(), what, measured, why, cure }
    }

    pub(crate) fn line(self) -> String {
        let Self { subject, what, measured, cure, .. } = self;
        let subject = if subject.is_empty() { subject } else { format!("{subject}: ") };
        format!("{subject}{what} ({measured}). {cure}")
    }

    pub(crate) fn notice(self, since_ms: u64) -> Notice {
        Notice {
            id: self.id.to_owned(),
            severity: self.severity,
            subject: self.subject,
            title: format!("{}: {}", self.what, self.measured),
            cure: self.cure.to_owned(),
            since_ms,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_document_has_every_finding_with_its_cure() {
        let document = include_str!("../../../../docs/doctor.md");
        let row = |kind: &Kind| {
            let severity = format!("{:?}", kind.severity).to_lowercase();
            format!("| `{}` | {severity} | {} | {} | {} |", kind.id, kind.what, kind.why, kind.cure)
        };
        let missing: Vec<_> = KINDS.iter().map(row).filter(|row| !document.contains(row.as_str())).collect();
        assert!(missing.is_empty(), "docs/doctor.md lacks:\n{}", missing.join("\n"));
        let rows = document.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(rows, KINDS.len(), "findings that are no more");
    }

    #[test]
    fn ids_are_unique() {
        let ids: BTreeSet<_> = KINDS.iter().map(|kind| kind.id).collect();
        assert_eq!(ids.len(), KINDS.len());
    }
}
