//! The messages of etcd that are used here, with the fields that are used. Numbers and types of fields are those of
//! `rpc.proto` and `kv.proto` of etcd 3.6 and 3.7; etcd has never changed one. A field that is not here is skipped when
//! it is read, and has its default when it is sent.

use bytes::Bytes;
use prost::Message;

/// A request, with the method that takes it and what that answers.
pub(crate) trait Call: Message + Clone + Default + 'static {
    type Answer: Answer + Default + 'static;
    const METHOD: &'static str;
}

pub(crate) trait Answer: Message {
    fn header(&self) -> Option<&Header>;

    /// Of the last transaction that the answer shows.
    fn revision(&self) -> u64 {
        self.header().map_or(0, |header| number(header.revision))
    }
}

/// Sizes and revisions, of which none is negative.
pub(crate) fn number(number: i64) -> u64 {
    number.try_into().unwrap_or_default()
}

macro_rules! calls {
    ($($request:ident -> $answer:ident by $method:literal;)*) => {$(
        impl Call for $request {
            type Answer = $answer;
            const METHOD: &'static str = $method;
        }

        impl Answer for $answer {
            fn header(&self) -> Option<&Header> {
                self.header.as_ref()
            }
        }
    )*};
}

calls! {
    Range -> RangeResponse by "/etcdserverpb.KV/Range";
    Txn -> TxnAnswer by "/etcdserverpb.KV/Txn";
    Compaction -> CompactionAnswer by "/etcdserverpb.KV/Compact";
    Status -> StatusAnswer by "/etcdserverpb.Maintenance/Status";
    Authenticate -> Authenticated by "/etcdserverpb.Auth/Authenticate";
}

/// `ResponseHeader`
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Header {
    #[prost(uint64, tag = "1")]
    pub(crate) cluster_id: u64,
    #[prost(int64, tag = "3")]
    pub(crate) revision: i64,
}

/// `RangeRequest`. It is linearizable, since `serializable` is not set.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Range {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) key: Bytes,
    /// Behind the last key. Empty: `key` alone.
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) range_end: Bytes,
    /// 0: none.
    #[prost(int64, tag = "3")]
    pub(crate) limit: i64,
    /// 0: the last one.
    #[prost(int64, tag = "4")]
    pub(crate) revision: i64,
    #[prost(bool, tag = "8")]
    pub(crate) keys_only: bool,
}

/// `RangeResponse`. Without a `sort_order`, in the order of keys.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub(crate) more: bool,
}

/// `mvccpb.KeyValue`
#[derive(Clone, PartialEq, Message)]
pub(crate) struct KeyValue {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) key: Bytes,
    #[prost(int64, tag = "3")]
    pub(crate) mod_revision: i64,
    #[prost(bytes = "bytes", tag = "5")]
    pub(crate) value: Bytes,
}

/// `TxnRequest`
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Txn {
    #[prost(message, repeated, tag = "1")]
    pub(crate) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) success: Vec<Operation>,
}

/// `Compare`. Its `result` is `EQUAL`, which is the default.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Compare {
    /// [`COMPARE_MOD`].
    #[prost(int32, tag = "2")]
    pub(crate) target: i32,
    #[prost(bytes = "bytes", tag = "3")]
    pub(crate) key: Bytes,
    /// 0: there is no such key. One of a union, and so sent even when it is 0.
    #[prost(int64, optional, tag = "6")]
    pub(crate) mod_revision: Option<i64>,
}

/// `CompareTarget.MOD`
pub(crate) const COMPARE_MOD: i32 = 2;

/// `RequestOp`: one of the two.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Operation {
    #[prost(message, optional, tag = "2")]
    pub(crate) put: Option<Put>,
    #[prost(message, optional, tag = "3")]
    pub(crate) delete: Option<Delete>,
}

/// `PutRequest`
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Put {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(crate) value: Bytes,
}

/// `DeleteRangeRequest` of one key.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Delete {
    #[prost(bytes = "bytes", tag = "1")]
    pub(crate) key: Bytes,
}

/// `TxnResponse`
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TxnAnswer {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    /// Whether all comparisons held.
    #[prost(bool, tag = "2")]
    pub(crate) succeeded: bool,
}

/// `CompactionRequest`
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Compaction {
    /// Older states of keys are forgotten.
    #[prost(int64, tag = "1")]
    pub(crate) revision: i64,
}

/// `CompactionResponse`
#[derive(Clone, PartialEq, Message)]
pub(crate) struct CompactionAnswer {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
}

/// `StatusRequest`
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Status {}

/// `StatusResponse`
#[derive(Clone, PartialEq, Message)]
pub(crate) struct StatusAnswer {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(string, tag = "2")]
    pub(crate) version: String,
    #[prost(int64, tag = "3")]
    pub(crate) db_size: i64,
    /// Alarms, in words.
    #[prost(string, repeated, tag = "8")]
    pub(crate) errors: Vec<String>,
    #[prost(int64, tag = "9")]
    pub(crate) db_size_in_use: i64,
    #[prost(int64, tag = "12")]
    pub(crate) db_size_quota: i64,
}

/// `AuthenticateRequest`
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Authenticate {
    #[prost(string, tag = "1")]
    pub(crate) name: String,
    #[prost(string, tag = "2")]
    pub(crate) password: String,
}

/// `AuthenticateResponse`
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Authenticated {
    #[prost(message, optional, tag = "1")]
    pub(crate) header: Option<Header>,
    #[prost(string, tag = "2")]
    pub(crate) token: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes as protoc's code writes them.
    #[test]
    fn messages_have_the_bytes_of_etcd() {
        let key = Bytes::from_static(b"k");
        let compare = Compare { target: COMPARE_MOD, key: key.clone(), mod_revision: Some(0) };
        assert_eq!(compare.encode_to_vec(), b"\x10\x02\x1a\x01k\x30\x00", "a revision of 0 is sent");
        let put = Put { key: key.clone(), value: Bytes::from_static(b"v") };
        let operations = [
            (Operation { put: Some(put), delete: None }, &b"\x12\x06\x0a\x01k\x12\x01v"[..]),
            (Operation { put: None, delete: Some(Delete { key: key.clone() }) }, &b"\x1a\x03\x0a\x01k"[..]),
        ];
        for (operation, bytes) in operations {
            assert_eq!(operation.encode_to_vec(), bytes);
        }
        let range = Range { key, limit: 7, ..Range::default() };
        assert_eq!(range.encode_to_vec(), b"\x0a\x01k\x18\x07");
    }

    #[test]
    fn unknown_fields_are_skipped() {
        // cluster_id 1, member_id 2, revision 3, raft_term 4
        let header = Header::decode(&b"\x08\x01\x10\x02\x18\x03\x20\x04"[..]).unwrap();
        assert_eq!(header, Header { cluster_id: 1, revision: 3 });
    }
}
