//! Corrections around `s3s` 0.14.1. Each entry says what `s3s` does, so that it can become an upstream report. When a
//! release has a correction, the entry goes.
//!
//! - [`checks`]: requests that Amazon S3 refuses and `s3s` accepts. `x-amz-*` headers that are not signed; signed
//!   headers that are not UTF-8, which it does not compare; a signature in the header and in the query at once;
//!   duplicates, which it reads as "not given" (two `Authorization` headers make a request anonymous); presigned URLs
//!   valid for longer than 7 days or for 0 s; a credential scope for another
//!   region or for STS; numbers with trailing junk (`x-amz-decoded-content-length: 12abc`); aws-chunked bodies of
//!   requests without a signature, which it would store with their framing ([`chunks`] decodes them); checksums that it
//!   does not know; a `Date` instead of `x-amz-date`, which it refuses and S3 takes.
//! - [`checksums`]: SHA512, MD5, XXHASH64, XXHASH3 and XXHASH128, which S3 has had since April 2026, have no fields in
//!   what `s3s` 0.14 makes of requests and answers.
//! - Query parameters that it does not know are ignored, so that new sub-resources run as the plain operation: see
//!   `query`.
//! - [`chunks`]: `AwsChunkedStream` buffers each chunk whole, up to 4 GiB (several SDKs send a body as one chunk), and
//!   takes a body that ends before the final chunk, even in the middle of a chunk's header, as complete.
//! - [`parser_words`]: errors about values that it cannot read are in the words of its parser.
//! - [`signature_2`]: signatures of Version 2 are compared in a time that depends on them, headers in the query of such
//!   a URL are not read, and parameters that the signature does not cover are taken.
//! - [`body_error`]: errors of the body reach the implementation as types that are private to `s3s`, known by their
//!   text only.
//! - [`documents`]: digests of documents are not compared (`Content-MD5` and `x-amz-checksum-*` of DeleteObjects,
//!   PutObjectTagging), CDATA is dropped, references to characters above U+FFFF are refused, unknown elements and what
//!   follows the document are ignored, and a document that does not match the signed hash is answered with
//!   InternalError.
//! - [`forms`]: fields of a POST form that it does not know are dropped (`acl`, `tagging`); a policy need not name the
//!   bucket; `${filename}` in the key is stored as it stands; a field given twice counts once; headers of a part are
//!   taken in one spelling only (names in quotes, no `filename*`, two headers at most); a delimiter in the first line
//!   of a value ends it; files whose pieces are larger than the limit on fields, or than 64 KiB behind a carriage
//!   return, are refused; a signature of Version 4 dies after a quarter of an hour, whatever the policy says; a form is
//!   routed by its query, without a look at its policy.
//! - [`keep_alive`]: its `KeepAliveBody` sends 200 before an error can be known, with a second XML declaration in front
//!   of an error, and drops the work when the client goes away.
//! - [`policies`]: errors about an invalid policy are in words of its own, and a policy that has the range of sizes in
//!   strings is refused.
//! - [`request_echo`]: the errors of a signature do not tell what was signed, nor those of a time which times.
//! - [`answer`]: a 304 carries an XML body; errors lack the request's id, and some of them words; unknown methods are
//!   501, not 405; a list in several headers of one name is refused ([`checks`] joins them); a POST form that breaks
//!   its policy is answered with InvalidPolicyDocument instead of AccessDenied; the answer to a form has the ETag
//!   without quotes, and no host in the Location; GetObjectAttributes writes the ETag with quotes; the status of a HEAD
//!   cannot be set; carriage returns are not escaped.
//! - A Range header that is no range or several, an If-Modified-Since in an older form of dates or none, and an Expires
//!   or a `response-expires` that is no date are refused, where S3 ignores them, reads them, and takes it as it is; so
//!   is a tag in a condition that is not quoted or not of letters and digits; a `+` in `x-amz-copy-source` is a plus,
//!   not a blank: see `compat`.
//! - Multipart forms are read into memory whole before access is checked; [`FORM_FILE_BYTES_MAX`] bounds one, and the
//!   service bounds how many are read at once.
//! - Documents above the limit are answered with InternalError: `extract_full_body` looks for `BodySizeLimitExceeded`,
//!   and `http_body_util::Limited` gives another type. [`checks`] refuses those whose length is announced.
//! - The clock is the system's and cannot be given.

pub(crate) mod answer;
pub(crate) mod body_error;
pub(crate) mod checks;
pub(crate) mod checksums;
pub(crate) mod chunks;
pub(crate) mod credential_scope;
pub(crate) mod documents;
pub(crate) mod forms;
pub(crate) mod keep_alive;
pub(crate) mod parser_words;
pub(crate) mod policies;
pub(crate) mod query_string;
pub(crate) mod request_echo;
pub(crate) mod signature_2;

pub(crate) use body_error::{BodyError, Refused};

/// Largest file in a POST form, in bytes: forms are read into memory.
pub(crate) const FORM_FILE_BYTES_MAX: u64 = 64 << 20;

/// Largest XML body, in bytes: 10,000 parts with a SHA-256 each take about 2 MiB.
pub(crate) const XML_BYTES_MAX: usize = 4 << 20;
