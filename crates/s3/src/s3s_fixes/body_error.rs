//! What can go wrong with a body on its way in.

use http::StatusCode;

/// Why a body can't be believed. The texts are part of the type: they come back through `s3s` as text only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BodyError {
    #[error("the body came too slowly")]
    TooSlow,
    #[error("the body ended too early")]
    Incomplete,
    #[error("the aws-chunked framing is wrong")]
    Framing,
    #[error("an aws-chunked chunk is too large")]
    ChunkTooLarge,
    #[error("the signature of a chunk does not match")]
    Signature,
    #[error("the provided 'x-amz-content-sha256' header does not match what was computed")]
    PayloadHash,
    #[error("the trailing headers are not those announced")]
    Trailers,
    #[error("the Content-MD5 you specified did not match what we received")]
    Md5,
    #[error("the checksum you specified did not match the calculated checksum")]
    Checksum,
    #[error("the XML you provided was not well-formed or did not validate against our published schema")]
    Document,
    #[error("your request was too big")]
    TooLong,
    #[error("the tag that you provided is not valid")]
    BucketTag,
    #[error("tags of a bucket are not implemented")]
    BucketTags,
    #[error("too many bodies that are held as a whole are under way")]
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
    #[error("a field of the form is not implemented")]
    FormField,
    #[error("the bucket does not allow ACLs")]
    FormAcl,
    #[error("invalid according to Policy: Extra input fields: bucket")]
    FormPolicy,
}

impl BodyError {
    const ALL: [Self; 22] = [
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
        Self::TooLong,
        Self::BucketTag,
        Self::BucketTags,
        Self::Busy,
        Self::Form,
        Self::FormFile,
        Self::FormSignature,
        Self::FormAccessKey,
        Self::FormToken,
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
            Self::Incomplete => "IncompleteBody",
            Self::Framing => "InvalidRequest",
            Self::ChunkTooLarge => "InvalidChunkSizeError",
            Self::Signature | Self::FormSignature => "SignatureDoesNotMatch",
            Self::PayloadHash => "XAmzContentSHA256Mismatch",
            Self::Trailers => "MalformedTrailerError",
            Self::Md5 | Self::Checksum => "BadDigest",
            Self::Document => "MalformedXML",
            Self::TooLong => "MaxMessageLengthExceeded",
            Self::BucketTag => "InvalidTag",
            Self::Busy => "SlowDown",
            Self::Form => "MalformedPOSTRequest",
            // itinance/react-native-fs#992.
            Self::FormFile => "InvalidArgument",
            Self::FormField | Self::BucketTags => "NotImplemented",
            Self::FormAccessKey => "InvalidAccessKeyId",
            Self::FormToken => "InvalidToken",
            Self::FormAcl => "AccessControlListNotSupported",
            Self::FormPolicy => "AccessDenied",
        }
    }

    pub(crate) fn status(self) -> StatusCode {
        match self {
            Self::Signature | Self::FormSignature | Self::FormAccessKey | Self::FormPolicy => StatusCode::FORBIDDEN,
            Self::FormField | Self::BucketTags => StatusCode::NOT_IMPLEMENTED,
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
            | Self::TooLong
            | Self::BucketTag
            | Self::FormAcl
            | Self::FormToken
            | Self::FormFile
            | Self::Form => StatusCode::BAD_REQUEST,
        }
    }

    /// More elements of the answer.
    pub(crate) fn details(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Self::FormFile => &[("ArgumentName", "file"), ("ArgumentValue", "0")],
            _ => &[],
        }
    }

    /// A sentence for the client.
    pub(crate) fn message(self) -> String {
        let text = self.to_string();
        // As Amazon S3 has them.
        let end = if matches!(self, Self::Document | Self::FormAcl) { "" } else { "." };
        format!("{}{}{end}", text[..1].to_uppercase(), &text[1..])
    }
}
