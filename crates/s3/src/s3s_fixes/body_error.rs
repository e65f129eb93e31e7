//! What can go wrong with a body on its way in.

use http::StatusCode;
use s3s::S3Error;

use super::XML_BYTES_MAX;
use crate::s3_error::{error_with_status, with_details};

/// Why a body can't be believed. The texts are part of the type: they come back through `s3s` as text only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the body came too slowly")]
    TooSlow,
    #[error("you did not provide the number of bytes specified by the Content-Length HTTP header")]
    Incomplete,
    #[error("the request body terminated unexpectedly")]
    Framing,
    #[error("an aws-chunked chunk is too large")]
    ChunkTooLarge,
    #[error("the signature of a chunk does not match")]
    Signature,
    #[error("the provided 'x-amz-content-sha256' header does not match what was computed")]
    PayloadHash,
    #[error("the request contained trailing data that was not well-formed or did not conform to our published schema")]
    Trailers,
    #[error("the Content-MD5 you specified did not match what we received")]
    Md5,
    #[error("the checksum you specified did not match the calculated checksum")]
    Checksum,
    #[error("the XML you provided was not well-formed or did not validate against our published schema")]
    Document,
    #[error("the access control list is not valid")]
    Acl,
    #[error("your request was too big")]
    TooLong,
    #[error("the tag that you provided is not valid")]
    BucketTag,
    #[error("too many bodies that must be held as a whole are in flight")]
    Busy,
    #[error("the body of your POST request is not well-formed multipart/form-data")]
    Form,
    #[error("POST requires exactly one file upload per request")]
    FormFile,
    #[error("the request signature we calculated does not match the signature you provided")]
    FormSignature,
    #[error("the AWS Access Key Id you provided does not exist in our records")]
    FormAccessKey,
    #[error("the provided token is malformed or otherwise invalid")]
    FormToken,
    #[error("a field of the form is not valid")]
    FormArgument,
    #[error("the policy of the form is not valid")]
    FormPolicyDocument,
    #[error("a field of the form is not implemented")]
    FormField,
    #[error("the bucket does not allow ACLs")]
    FormAcl,
    #[error("invalid according to Policy: Extra input fields: bucket")]
    FormPolicy,
}

/// Why a request is refused for its body, with all that its answer tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refused {
    pub(crate) error: BodyError,
    /// Instead of the one of the error.
    pub(crate) message: Option<String>,
    /// More elements of the answer.
    pub(crate) details: Vec<(&'static str, String)>,
}

impl From<BodyError> for Refused {
    fn from(error: BodyError) -> Self {
        Self { error, message: None, details: error.details() }
    }
}

impl Refused {
    /// A field of a form that is not valid.
    pub(crate) fn field(name: &str, value: &str, message: String) -> Self {
        let details = vec![("ArgumentName", name.to_owned()), ("ArgumentValue", value.to_owned())];
        Self { error: BodyError::FormArgument, message: Some(message), details }
    }

    pub(crate) fn answer(&self) -> S3Error {
        let message = self.message.clone().unwrap_or_else(|| self.error.message());
        with_details(error_with_status(self.error.code(), self.error.status(), message), &self.details)
    }
}

impl BodyError {
    const ALL: [Self; 24] = [
        Self::TooSlow,
        Self::Incomplete,
        Self::Framing,
        Self::ChunkTooLarge,
        Self::Signature,
        Self::PayloadHash,
        Self::Trailers,
        Self::Md5,
        Self::Checksum,
        Self::Document,
        Self::Acl,
        Self::TooLong,
        Self::BucketTag,
        Self::Busy,
        Self::Form,
        Self::FormFile,
        Self::FormSignature,
        Self::FormAccessKey,
        Self::FormToken,
        Self::FormArgument,
        Self::FormPolicyDocument,
        Self::FormField,
        Self::FormAcl,
        Self::FormPolicy,
    ];

    /// Finds out what an error of `s3s`'s streams means.
    pub(crate) fn from_stream(error: &(dyn std::error::Error + 'static)) -> Self {
        let text = error.to_string();
        if let Some(own) = Self::ALL.into_iter().find(|own| text.contains(&own.to_string())) {
            return own;
        }
        // The names of the private variants in `s3s::sig_v4::UploadStreamError` and `s3s::http::AwsChunkedStreamError`.
        if text.contains("Sha256Mismatch") {
            Self::PayloadHash
        } else if text.contains("SignatureMismatch") {
            Self::Signature
        } else if text.contains("FormatError") || text.contains("TooLarge") || text.contains("TooMany") {
            Self::Framing
        } else {
            // A short or long body, or a connection that broke: what came is not the body.
            Self::Incomplete
        }
    }

    pub(crate) fn code(self) -> &'static str {
        match self {
            Self::TooSlow => "RequestTimeout",
            // versity/versitygw, `UnsignedStreamingPayloadTrailer_incomplete_body`.
            Self::Incomplete | Self::Framing => "IncompleteBody",
            Self::ChunkTooLarge => "InvalidChunkSizeError",
            Self::Signature | Self::FormSignature => "SignatureDoesNotMatch",
            Self::PayloadHash => "XAmzContentSHA256Mismatch",
            Self::Trailers => "MalformedTrailerError",
            Self::Md5 | Self::Checksum => "BadDigest",
            Self::Document => "MalformedXML",
            // localstack/localstack, `test_s3_bucket_acl_exceptions`.
            Self::Acl => "MalformedACLError",
            Self::TooLong => "MaxMessageLengthExceeded",
            Self::BucketTag => "InvalidTag",
            Self::Busy => "SlowDown",
            Self::Form => "MalformedPOSTRequest",
            // itinance/react-native-fs#992.
            Self::FormFile | Self::FormArgument => "InvalidArgument",
            Self::FormPolicyDocument => "InvalidPolicyDocument",
            Self::FormField => "NotImplemented",
            Self::FormAccessKey => "InvalidAccessKeyId",
            Self::FormToken => "InvalidToken",
            Self::FormAcl => "AccessControlListNotSupported",
            Self::FormPolicy => "AccessDenied",
        }
    }

    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::Signature | Self::FormSignature | Self::FormAccessKey | Self::FormPolicy => StatusCode::FORBIDDEN,
            Self::FormField => StatusCode::NOT_IMPLEMENTED,
            Self::Busy => StatusCode::SERVICE_UNAVAILABLE,
            Self::TooSlow
            | Self::Incomplete
            | Self::Framing
            | Self::ChunkTooLarge
            | Self::PayloadHash
            | Self::Trailers
            | Self::Md5
            | Self::Checksum
            | Self::Document
            | Self::Acl
            | Self::TooLong
            | Self::BucketTag
            | Self::FormAcl
            | Self::FormToken
            | Self::FormFile
            | Self::FormArgument
            | Self::FormPolicyDocument
            | Self::Form => StatusCode::BAD_REQUEST,
        }
    }

    /// More elements of the answer.
    fn details(self) -> Vec<(&'static str, String)> {
        match self {
            Self::FormFile => vec![("ArgumentName", "file".to_owned()), ("ArgumentValue", "0".to_owned())],
            Self::TooLong => vec![("MaxMessageLengthBytes", XML_BYTES_MAX.to_string())],
            _ => Vec::new(),
        }
    }

    /// A sentence for the client.
    pub(crate) fn message(self) -> String {
        let text = self.to_string();
        // As Amazon S3 has them.
        let is_bare = matches!(self, Self::Document | Self::FormAcl | Self::Incomplete | Self::Framing);
        let end = if is_bare { "" } else { "." };
        format!("{}{}{end}", text[..1].to_uppercase(), &text[1..])
    }
}
