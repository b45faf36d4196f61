//! The part of etcd's v3 messages that we use, with the field numbers of its `rpc.proto`.
//!
//! Written by hand so that building needs no `protoc`: see docs/adr/0002-etcd-over-tonic.md. Fields that we neither set
//! nor read are left out; protobuf skips them.

use bytes::Bytes;
use prost::{Message, Oneof};

/// Where a member is.
#[derive(Clone, Copy, Message)]
pub(super) struct ResponseHeader {
    #[prost(int64, tag = "3")]
    pub(super) revision: i64,
}

/// A key with its value.
#[derive(Clone, Message)]
pub(super) struct KeyValue {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(int64, tag = "2")]
    pub(super) create_revision: i64,
    #[prost(int64, tag = "3")]
    pub(super) mod_revision: i64,
    #[prost(int64, tag = "4")]
    pub(super) version: i64,
    #[prost(bytes = "bytes", tag = "5")]
    pub(super) value: Bytes,
}

#[derive(Clone, Message)]
pub(super) struct RangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) range_end: Bytes,
    #[prost(int64, tag = "3")]
    pub(super) limit: i64,
    #[prost(int64, tag = "4")]
    pub(super) revision: i64,
    #[prost(bool, tag = "8")]
    pub(super) keys_only: bool,
}

#[derive(Clone, Message)]
pub(super) struct RangeResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    #[prost(message, repeated, tag = "2")]
    pub(super) kvs: Vec<KeyValue>,
    #[prost(bool, tag = "3")]
    pub(super) more: bool,
}

#[derive(Clone, Message)]
pub(super) struct PutRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) value: Bytes,
    #[prost(int64, tag = "3")]
    pub(super) lease: i64,
}

/// The answer to a put or a delete, whose contents we do not need.
#[derive(Clone, Copy, Message)]
pub(super) struct Done {}

#[derive(Clone, Message)]
pub(super) struct DeleteRangeRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
}

#[derive(Clone, Message)]
pub(super) struct RequestOp {
    #[prost(oneof = "Request", tags = "1, 2, 3")]
    pub(super) request: Option<Request>,
}

#[derive(Clone, Oneof)]
pub(super) enum Request {
    #[prost(message, tag = "1")]
    Range(RangeRequest),
    #[prost(message, tag = "2")]
    Put(PutRequest),
    #[prost(message, tag = "3")]
    DeleteRange(DeleteRangeRequest),
}

#[derive(Clone, Message)]
pub(super) struct ResponseOp {
    #[prost(oneof = "Response", tags = "1, 2, 3")]
    pub(super) response: Option<Response>,
}

#[derive(Clone, Oneof)]
pub(super) enum Response {
    #[prost(message, tag = "1")]
    Range(RangeResponse),
    #[prost(message, tag = "2")]
    Put(Done),
    #[prost(message, tag = "3")]
    DeleteRange(Done),
}

/// Something that must hold for a transaction. The result stays at 0: equal.
#[derive(Clone, Message)]
pub(super) struct Compare {
    #[prost(int32, tag = "2")]
    pub(super) target: i32,
    #[prost(bytes = "bytes", tag = "3")]
    pub(super) key: Bytes,
    #[prost(oneof = "Target", tags = "4, 6, 7")]
    pub(super) value: Option<Target>,
}

/// What is compared, with [`Compare::target`] 0, 2 and 3.
#[derive(Clone, Oneof)]
pub(super) enum Target {
    #[prost(int64, tag = "4")]
    Version(i64),
    #[prost(int64, tag = "6")]
    ModRevision(i64),
    #[prost(bytes = "bytes", tag = "7")]
    Value(Bytes),
}

#[derive(Clone, Message)]
pub(super) struct TxnRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) compare: Vec<Compare>,
    #[prost(message, repeated, tag = "2")]
    pub(super) success: Vec<RequestOp>,
    #[prost(message, repeated, tag = "3")]
    pub(super) failure: Vec<RequestOp>,
}

#[derive(Clone, Message)]
pub(super) struct TxnResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) header: Option<ResponseHeader>,
    #[prost(bool, tag = "2")]
    pub(super) succeeded: bool,
    #[prost(message, repeated, tag = "3")]
    pub(super) responses: Vec<ResponseOp>,
}

#[derive(Clone, Copy, Message)]
pub(super) struct CompactionRequest {
    #[prost(int64, tag = "1")]
    pub(super) revision: i64,
}

#[derive(Clone, Message)]
pub(super) struct WatchRequest {
    #[prost(oneof = "WatchUnion", tags = "1")]
    pub(super) request: Option<WatchUnion>,
}

#[derive(Clone, Oneof)]
pub(super) enum WatchUnion {
    #[prost(message, tag = "1")]
    Create(WatchCreateRequest),
}

#[derive(Clone, Message)]
pub(super) struct WatchCreateRequest {
    #[prost(bytes = "bytes", tag = "1")]
    pub(super) key: Bytes,
    #[prost(bytes = "bytes", tag = "2")]
    pub(super) range_end: Bytes,
    #[prost(int64, tag = "3")]
    pub(super) start_revision: i64,
}

#[derive(Clone, Message)]
pub(super) struct WatchResponse {
    #[prost(bool, tag = "3")]
    pub(super) created: bool,
    #[prost(bool, tag = "4")]
    pub(super) canceled: bool,
    #[prost(int64, tag = "5")]
    pub(super) compact_revision: i64,
    #[prost(string, tag = "6")]
    pub(super) cancel_reason: String,
    #[prost(message, repeated, tag = "11")]
    pub(super) events: Vec<Event>,
}

/// A change of a key.
#[derive(Clone, Message)]
pub(super) struct Event {
    /// 0 for a put, [`DELETE`] for a delete.
    #[prost(int32, tag = "1")]
    pub(super) kind: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) kv: Option<KeyValue>,
}

/// See [`Event::kind`].
pub(super) const DELETE: i32 = 1;

#[derive(Clone, Copy, Message)]
pub(super) struct LeaseGrantRequest {
    #[prost(int64, tag = "1")]
    pub(super) ttl: i64,
}

#[derive(Clone, Message)]
pub(super) struct LeaseGrantResponse {
    #[prost(int64, tag = "2")]
    pub(super) id: i64,
    #[prost(string, tag = "4")]
    pub(super) error: String,
}

#[derive(Clone, Message)]
pub(super) struct AuthenticateRequest {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) password: String,
}

#[derive(Clone, Message)]
pub(super) struct AuthenticateResponse {
    #[prost(string, tag = "2")]
    pub(super) token: String,
}

// === impl RequestOp ===

impl RequestOp {
    pub(super) fn get(key: Bytes) -> Self {
        Self { request: Some(Request::Range(RangeRequest { key, ..RangeRequest::default() })) }
    }

    pub(super) fn put(key: Bytes, value: Bytes, lease: i64) -> Self {
        Self { request: Some(Request::Put(PutRequest { key, value, lease })) }
    }

    pub(super) fn delete(key: Bytes) -> Self {
        Self { request: Some(Request::DeleteRange(DeleteRangeRequest { key })) }
    }
}

// === impl Compare ===

impl Compare {
    /// The key is at this revision; 0: it does not exist.
    pub(super) fn mod_revision(key: Bytes, revision: i64) -> Self {
        Self { target: 2, key, value: Some(Target::ModRevision(revision)) }
    }

    /// The key has this value.
    pub(super) fn value(key: Bytes, value: Bytes) -> Self {
        Self { target: 3, key, value: Some(Target::Value(value)) }
    }

    /// The key was put this many times since it was created.
    pub(super) fn version(key: Bytes, version: i64) -> Self {
        Self { target: 0, key, value: Some(Target::Version(version)) }
    }
}

// === impl TxnResponse ===

impl TxnResponse {
    /// The revision at which the transaction was done.
    pub(super) fn revision(&self) -> i64 {
        self.header.map_or(0, |header| header.revision)
    }

    /// The entry that the only read of the transaction found.
    pub(super) fn found(self) -> Option<KeyValue> {
        self.responses.into_iter().find_map(|op| match op.response {
            Some(Response::Range(range)) => range.kvs.into_iter().next(),
            _ => None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes as etcd's own client sends them: the field numbers are right.
    #[test]
    fn messages_have_etcds_numbers() {
        let check = |message: Vec<u8>, expected: &[u8]| assert_eq!(message, expected);
        check(Compare::mod_revision("k".into(), 7).encode_to_vec(), &[0x10, 2, 0x1a, 1, b'k', 0x30, 7]);
        check(Compare::version("k".into(), 7).encode_to_vec(), &[0x1a, 1, b'k', 0x20, 7]);
        check(
            Compare::value("k".into(), "v".into()).encode_to_vec(),
            &[0x10, 3, 0x1a, 1, b'k', 0x3a, 1, b'v'],
        );
        check(
            RequestOp::put("k".into(), "v".into(), 3).encode_to_vec(),
            &[0x12, 8, 0x0a, 1, b'k', 0x12, 1, b'v', 0x18, 3],
        );
        check(RequestOp::get("k".into()).encode_to_vec(), &[0x0a, 3, 0x0a, 1, b'k']);
        check(RequestOp::delete("k".into()).encode_to_vec(), &[0x1a, 3, 0x0a, 1, b'k']);
    }
}
