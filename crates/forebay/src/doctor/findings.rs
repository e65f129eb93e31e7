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
    /// When the table has no such id: a finding without a cure is a fault of ours.
    pub(crate) fn named(id: &str) -> Self {
        *KINDS.iter().find(|kind| kind.id == id).expect("findings are those of the table")
    }
}

#[rustfmt::skip]
pub(crate) const KINDS: [Kind; 33] = [
    kind("directory-unusable", Critical, "files cannot be made in the data directory", "the server cannot start", "Give the user of the server write permission, or name another directory in `store.data_dirs`"),
    kind("filesystem-in-memory", Critical, "the data directory is in memory", "writes that were acknowledged are lost when the machine restarts", "Put `store.data_dirs` on a disk; memory is used as a tier by `cache.memory_size`"),
    kind("filesystem-overlay", Warning, "the data directory is in the writable layer of a container", "it is gone with the container, dirty objects included, and slower than the disk below", "Mount a volume and put `store.data_dirs` on it"),
    kind("filesystem-network", Warning, "the data directory is on a network file system", "every write waits for the network, and a sync may promise less than that of a disk", "Put `store.data_dirs` on disks of the machine"),
    kind("directories-share-a-disk", Warning, "two data directories are on one disk", "they share its bandwidth and fail together, and a percentage in `store.size` counts the disk twice", "One directory for each disk in `store.data_dirs`"),
    kind("space-missing", Critical, "the disk has less free space than `store.size` asks for", "writes are refused when the disk is full", "Free space, or make `store.size` smaller; a percentage adapts to what is free at the start"),
    kind("space-too-small", Critical, "the data directory holds fewer than 8 segments", "the server refuses to start", "Free space, or make `store.segment_size` smaller"),
    kind("space-less-than-asked", Info, "the percentage in `store.size` is cut to what is free", "the cache is smaller than the disk suggests", "Free space before the next start if the cache is to be larger"),
    kind("open-files-few", Warning, "the limit of open files is below what the settings may need", "fewer connections are taken at once than `server.connections_max` says; others wait", "Raise the hard limit (`LimitNOFILE=` of systemd, `ulimit -Hn`), or lower `server.connections_max`"),
    kind("directory-open", Warning, "others than the server may write to the data directory", "they can put files in the place of its own, and read what it will serve after a restart", "`chmod 700`, and let it belong to the user of the server"),
    kind("secrets-readable", Warning, "everybody on the machine can read a file with secrets", "whoever has the keys of a user may do what that user may", "`chmod 600`, and let it belong to the user of the server"),
    kind("network-plain", Warning, "S3 is served to other machines without TLS", "secret keys are never sent, but objects are: others on the way see them, and change those whose hash is not signed (`UNSIGNED-PAYLOAD`)", "Set `server.tls_cert` and `server.tls_key`, or listen on the machine itself behind a proxy that speaks TLS"),
    kind("memory-missing", Critical, "the settings need more memory than there is", "the system ends the process when memory runs out", "Lower `cache.memory_size`, or give the machine or the container more memory"),
    kind("memory-tight", Warning, "the settings need more memory than is free now", "the machine may swap, or end a process, when the tiers have filled", "Lower `cache.memory_size`, or stop what else takes memory"),
    kind("cores-few", Warning, "there is only one processor", "hashing, the disks and the under store take turns", "Give the server two processors or more"),
    kind("hashing-slow", Warning, "one processor hashes slowly", "MD5 is the ETag of S3: one upload can't be faster", "Upload large objects in parts, which are hashed side by side; use a faster processor"),
    kind("clock-wrong", Critical, "the clock differs from the under store's by more than 15 minutes", "S3 refuses requests that are signed with such a clock, and Forebay those of clients with a right one", "Set the clock, and run an NTP client"),
    kind("clock-off", Warning, "the clock differs from the under store's", "at 15 minutes requests are refused; times of objects are wrong before that", "Run an NTP client (chrony, systemd-timesyncd)"),
    kind("clock-unsynchronised", Warning, "the NTP client runs and has not synchronised the clock", "the clock drifts until requests are refused", "Look at `timedatectl timesync-status`: are the time servers within reach?"),
    kind("disk-not-measured", Warning, "the disk could not be measured", "what it can do is unknown", "See the reason; a quarter of the free space, at least 16 MiB, is needed"),
    kind("disk-sync-slow", Warning, "a sync of the disk takes long", "every acknowledged write waits for one; those of one moment share it", "Use an SSD with protection against power loss; see whether others use the disk"),
    kind("disk-slower-than-under-store", Warning, "the disks are slower than the under store behind them", "reads and writes of large objects would be faster without the cache", "Use faster disks or more of them, or let cold paths pass by: `cacheReads = false`, `writeMode = \"NO_CACHE\"`"),
    kind("under-store-unresolved", Critical, "the name of the under store's endpoint has no address", "nothing can be read from it or brought to it", "Check the endpoint in the URL and the resolver of the machine"),
    kind("under-store-unreachable", Critical, "no connection to the under store", "nothing can be read from it or brought to it", "Check endpoint, port, firewall and proxy, and that the under store runs"),
    kind("under-store-far", Warning, "the under store is far away", "every read that the cache cannot answer waits for it", "Use an endpoint of the same region; raise `cache.read_ahead_pages` and `cache.persist_concurrency`"),
    kind("credentials-refused", Critical, "the under store does not take the keys", "every request to it fails; writes wait here until the space for them is full", "Correct the keys: `SignatureDoesNotMatch` is a wrong secret key, `InvalidAccessKeyId` an access key that it does not know, `ExpiredToken` a session that is over, `AuthorizationHeaderMalformed` a wrong region"),
    kind("bucket-missing", Critical, "the bucket behind it does not exist", "every request to it fails; writes wait here until the space for them is full", "Make the bucket in the under store, or correct its name in the URL of the mount"),
    kind("permission-missing", Critical, "the keys of the under store lack a permission", "what needs it fails, at once or when a write is brought to the under store", "Give the keys the permission that is named, on the bucket and on its objects"),
    kind("under-store-failing", Critical, "a request to the under store failed", "what needs it fails too", "The error says which request and why"),
    kind("conditions-missing", Warning, "the under store does not honour conditional writes", "when somebody else writes the same keys, Forebay may overwrite what it should have kept", "Let nobody else write there, or update the server: `If-None-Match: *` and `If-Match` on PutObject"),
    kind("probe-left", Warning, "an object of this examination could not be removed", "it takes space until somebody removes it", "Remove the key that is named"),
    kind("nothing-to-probe", Info, "the under store has no place to try", "permissions and speed were not examined", "Make a bucket and run this again, or mount the bucket that is to be used"),
    kind("under-store-not-written", Info, "the path policies write nothing, so nothing was written to the under store", "permissions to write and the speed of uploads were not examined", "None is needed while all paths are READ_ONLY"),
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
pub(crate) const OF_UNDER_STORES: [&str; 5] =
    ["under-store-unreachable", "credentials-refused", "bucket-missing", "permission-missing", "under-store-failing"];

/// What an error of an under store is to an operator: one of [`OF_UNDER_STORES`].
pub(crate) fn of_under_store(error: forebay_ufs::ErrorKind) -> Kind {
    use forebay_ufs::ErrorKind;
    Kind::named(match error {
        ErrorKind::Credentials => "credentials-refused",
        ErrorKind::Denied => "permission-missing",
        ErrorKind::NoBucket => "bucket-missing",
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
