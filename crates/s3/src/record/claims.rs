//! What a request says of itself, before anybody has looked whether it is true.

use http::header::AUTHORIZATION;
use http::{HeaderMap, Uri};
use percent_encoding::percent_decode_str;

#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Claims {
    /// `SigV4` or `SigV2`
    pub(super) signature_version: Option<&'static str>,
    /// `AuthHeader` or `QueryString`
    pub(super) authentication_type: Option<&'static str>,
    pub(super) access_key: Option<String>,
    pub(super) version_id: Option<String>,
    pub(super) copy_source: Option<String>,
}

impl Claims {
    pub(super) fn of(uri: &Uri, headers: &HeaderMap) -> Self {
        let copy_source = headers.get("x-amz-copy-source").and_then(|source| source.to_str().ok());
        let claims = Self {
            version_id: parameter(uri, "versionId"),
            copy_source: copy_source.map(str::to_owned),
            ..Self::default()
        };
        let authorization = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        if let Some(authorization) = authorization {
            return claims.with_header(authorization);
        }
        if let Some(credential) = parameter(uri, "X-Amz-Credential") {
            return claims.with("SigV4", "QueryString", access_key_of(&credential));
        }
        match parameter(uri, "AWSAccessKeyId") {
            Some(access_key) => claims.with("SigV2", "QueryString", &access_key),
            None => claims,
        }
    }

    fn with_header(self, authorization: &str) -> Self {
        if let Some((_, rest)) = authorization.split_once("Credential=") {
            return self.with("SigV4", "AuthHeader", access_key_of(rest));
        }
        match authorization.strip_prefix("AWS ").and_then(|rest| rest.split_once(':')) {
            Some((access_key, _)) => self.with("SigV2", "AuthHeader", access_key),
            None => Self { authentication_type: Some("AuthHeader"), ..self },
        }
    }

    fn with(self, version: &'static str, kind: &'static str, access_key: &str) -> Self {
        let access_key = Some(access_key.to_owned()).filter(|key| !key.is_empty());
        Self { signature_version: Some(version), authentication_type: Some(kind), access_key, ..self }
    }
}

/// The first part of a credential scope.
fn access_key_of(credential: &str) -> &str {
    credential.split(['/', ',', ' ']).next().unwrap_or_default()
}

/// A parameter of the query, decoded. The names here are spelled in one way only by everything that signs URLs.
fn parameter(uri: &Uri, name: &str) -> Option<String> {
    let parameters = uri.query().unwrap_or_default().split('&').filter_map(|parameter| parameter.split_once('='));
    let value = parameters.into_iter().find_map(|(other, value)| (other == name).then_some(value))?;
    Some(percent_decode_str(value).decode_utf8_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[track_caller]
    fn check(uri: &str, authorization: Option<&'static str>, expected: (Option<&str>, Option<&str>, Option<&str>)) {
        let headers = authorization.map(|value| (AUTHORIZATION, HeaderValue::from_static(value)));
        let claims = Claims::of(&uri.parse().unwrap(), &headers.into_iter().collect());
        let found = (claims.signature_version, claims.authentication_type, claims.access_key.as_deref());
        assert_eq!(found, expected, "{uri} {authorization:?}");
    }

    #[test]
    fn every_way_to_sign_is_known() {
        let header =
            "AWS4-HMAC-SHA256 Credential=AK/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0";
        check("/b/k", Some(header), (Some("SigV4"), Some("AuthHeader"), Some("AK")));
        check("/b/k", Some("AWS AK:sig="), (Some("SigV2"), Some("AuthHeader"), Some("AK")));
        check("/b/k", Some("Bearer token"), (None, Some("AuthHeader"), None));
        let presigned = "/b/k?X-Amz-Credential=AK%2F20260101%2Fus-east-1&X-Amz-Signature=0";
        check(presigned, None, (Some("SigV4"), Some("QueryString"), Some("AK")));
        check("/b/k?AWSAccessKeyId=AK&Signature=0&Expires=1", None, (Some("SigV2"), Some("QueryString"), Some("AK")));
        check("/b/k", None, (None, None, None));
    }
}
