//! A transaction as etcd takes it.

use bytes::Bytes;
use forebay_catalog::{Check, Error, ErrorKind, Result};
use forebay_store::ValueWrite;
use prost::Message;

use crate::messages::{COMPARE_MOD, Compare, Delete, Operation, Put, Txn};

/// Checks, and writes, in one transaction: etcd's `--max-txn-ops`, as it is by default.
const OPERATIONS_MAX: usize = 128;

/// Bytes of one transaction: etcd's `--max-request-bytes`, as it is by default.
const BYTES_MAX: usize = 3 << 19;

/// What etcd puts around a transaction before it compares its size: the user's name and some numbers.
const ENVELOPE_BYTES_MAX: usize = 512;

/// A key as etcd has it.
pub(crate) fn prefixed(prefix: &[u8], key: &[u8]) -> Bytes {
    [prefix, key].concat().into()
}

/// # Errors
/// `Busy` when it is larger than etcd takes. Another try does not help; `Unavailable` would ask for one.
pub(crate) fn request(prefix: &[u8], checks: &[Check], writes: &[ValueWrite]) -> Result<Txn> {
    for (count, what) in [(checks.len(), "checks"), (writes.len(), "writes")] {
        if count > OPERATIONS_MAX {
            let problem = format!("a transaction has {count} {what}, and etcd takes {OPERATIONS_MAX}");
            return Err(Error::new(ErrorKind::Busy, problem));
        }
    }
    let compare = checks.iter().map(|check| Compare {
        target: COMPARE_MOD,
        key: prefixed(prefix, &check.key),
        mod_revision: Some(revision_of(check.version)),
    });
    let success = writes.iter().map(|write| operation(prefixed(prefix, &write.key), write.value.clone()));
    let request = Txn { compare: compare.collect(), success: success.collect() };
    let bytes = request.encoded_len() + ENVELOPE_BYTES_MAX;
    match bytes <= BYTES_MAX {
        true => Ok(request),
        false => {
            let problem = format!("a transaction has {bytes} bytes, and etcd takes {BYTES_MAX}");
            Err(Error::new(ErrorKind::Busy, problem))
        }
    }
}

fn operation(key: Bytes, value: Option<Bytes>) -> Operation {
    match value {
        Some(value) => Operation { put: Some(Put { key, value }), delete: None },
        None => Operation { put: None, delete: Some(Delete { key }) },
    }
}

/// etcd says 0 of a key that is not there. No key has a negative revision: a check of one never holds.
fn revision_of(version: Option<u64>) -> i64 {
    match version {
        None => 0,
        // 0 is no version of a value.
        Some(0) => -1,
        Some(version) => version.try_into().unwrap_or(-1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn puts(count: usize, bytes: usize) -> Vec<ValueWrite> {
        let put = |number: usize| ValueWrite { key: format!("{number}").into(), value: Some(vec![0; bytes].into()) };
        (0..count).map(put).collect()
    }

    #[test]
    fn what_etcd_would_not_take_is_refused() {
        request(b"p/", &[], &puts(128, 1000)).unwrap();
        let check = Check { key: Bytes::from_static(b"k"), version: None };
        for (checks, writes) in [(vec![], puts(129, 0)), (vec![check; 129], puts(1, 0)), (vec![], puts(2, 800_000))] {
            let error = request(b"p/", &checks, &writes).unwrap_err();
            assert_eq!(error.kind, ErrorKind::Busy, "{error}");
        }
    }

    #[test]
    fn checks_compare_revisions() {
        assert_eq!([None, Some(7), Some(0), Some(u64::MAX)].map(revision_of), [0, 7, -1, -1]);
    }
}
