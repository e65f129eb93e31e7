//! The credential of a signature of Version 4: whose it is, and where and when it holds.

use http::StatusCode;
use s3s::S3Error;
use time::PrimitiveDateTime;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;

use crate::s3_error::error_with_status;

/// How the message says that a request was signed for another region.
pub(crate) const WRONG_REGION: &str = " is wrong; expecting ";

/// The basic form of ISO 8601, in UTC.
pub(crate) const BASIC_TIME: &[BorrowedFormatItem<'_>] =
    format_description!("[year][month][day]T[hour][minute][second]Z");

pub(crate) fn is_basic_time(text: &str) -> bool {
    PrimitiveDateTime::parse(text, BASIC_TIME).is_ok()
}

/// Where a credential stands, for what is said of a wrong one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CredentialSource {
    Header,
    Query,
}

impl CredentialSource {
    /// In the words of Amazon S3: aws/aws-sdk-php#780 and ex-aws/ex_aws#537 show some, the rest is in `s3err` of
    /// versitygw.
    pub(crate) fn malformed(self, what: &str) -> S3Error {
        let (code, beginning) = match self {
            Self::Header => ("AuthorizationHeaderMalformed", "The authorization header is malformed; "),
            Self::Query => ("AuthorizationQueryParametersError", "Error parsing the X-Amz-Credential parameter; "),
        };
        error_with_status(code, StatusCode::BAD_REQUEST, format!("{beginning}{what}"))
    }
}

/// `key/date/region/s3/aws4_request`. `time`: the one of the request, whose day the credential must have.
pub(crate) fn check_scope(
    credential: &str,
    time: Option<&str>,
    region: &str,
    source: CredentialSource,
) -> Result<(), S3Error> {
    fault(credential, time, region).map_or(Ok(()), |what| Err(source.malformed(&what)))
}

/// What is wrong with a credential.
pub(crate) fn fault(credential: &str, time: Option<&str>, region: &str) -> Option<String> {
    let parts: Vec<&str> = credential.split('/').collect();
    let &[key, date, given, service, end] = &parts[..] else {
        let expecting =
            r#"the Credential is mal-formed; expecting "<YOUR-AKID>/YYYYMMDD/REGION/SERVICE/aws4_request"."#;
        return Some(expecting.to_owned());
    };
    if key.is_empty() {
        // outline/outline#7060.
        return Some("a non-empty Access Key (AKID) must be provided in the credential.".to_owned());
    }
    if service != "s3" {
        return Some(format!(r#"incorrect service "{service}". This endpoint belongs to "s3"."#));
    }
    if end != "aws4_request" {
        return Some(format!(r#"incorrect terminal "{end}". This endpoint uses "aws4_request"."#));
    }
    if date.len() != 8 || !date.bytes().all(|byte| byte.is_ascii_digit()) {
        let format = r#"This date in the credential must be in the format "yyyyMMdd"."#;
        return Some(format!(r#"incorrect date format "{date}". {format}"#));
    }
    if given != region {
        return Some(format!("the region '{given}'{WRONG_REGION}'{region}'"));
    }
    match time.and_then(|time| time.get(..8)) {
        Some(day) if day != date => {
            Some(format!(r#"Invalid credential date "{date}". This date is not the same as X-Amz-Date: "{day}"."#))
        }
        _ => None,
    }
}
