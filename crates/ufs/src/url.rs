//! Under-store URLs.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

/// `file:///dir`, or `s3://bucket/prefix?endpoint=…&region=…`, or `s3://?endpoint=…` for all buckets of an endpoint.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UnderStoreUrl {
    Directory(PathBuf),
    S3 {
        /// `None`: the buckets of the endpoint.
        bucket: Option<String>,
        /// Without slashes at its ends; may be empty.
        prefix: String,
        endpoint: Option<String>,
        region: Option<String>,
    },
}

/// What is wrong with a URL, in one line that names it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidUrl(pub String);

impl FromStr for UnderStoreUrl {
    type Err = InvalidUrl;

    fn from_str(text: &str) -> Result<Self, InvalidUrl> {
        let wrong = |problem: &str| InvalidUrl(format!("{text:?} is not an under-store URL: {problem}"));
        if let Some(path) = text.strip_prefix("file://") {
            return match path.starts_with('/') {
                true => Ok(Self::Directory(path.into())),
                false => Err(wrong("a directory is written as file:///absolute/path")),
            };
        }
        let Some(rest) = text.strip_prefix("s3://") else {
            return Err(wrong("it begins with file:// or s3://"));
        };
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (bucket, prefix) = place.split_once('/').unwrap_or((place, ""));
        let (mut endpoint, mut region) = (None, None);
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').ok_or_else(|| wrong("its options are name=value"))?;
            let value = percent_encoding::percent_decode_str(value)
                .decode_utf8()
                .map_err(|_| wrong("an option is not UTF-8"))?;
            match name {
                "endpoint" if value.starts_with("http://") || value.starts_with("https://") => {
                    endpoint = Some(value.into_owned())
                }
                "endpoint" => return Err(wrong("the endpoint begins with http:// or https://")),
                "region" => region = Some(value.into_owned()),
                _ => return Err(wrong(&format!("{name:?} is not an option: endpoint or region"))),
            }
        }
        if bucket.is_empty() && endpoint.is_none() && region.is_none() {
            return Err(wrong("without a bucket it needs an endpoint or a region"));
        }
        let bucket = (!bucket.is_empty()).then(|| bucket.to_owned());
        Ok(Self::S3 { bucket, prefix: prefix.trim_matches('/').to_owned(), endpoint, region })
    }
}

/// The URL as it would be written, without a user and a password in its endpoint: it is for logs, metrics and pages.
impl fmt::Display for UnderStoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bucket, prefix, endpoint, region) = match self {
            Self::Directory(path) => return write!(f, "file://{}", path.display()),
            Self::S3 { bucket, prefix, endpoint, region } => (bucket, prefix, endpoint, region),
        };
        write!(f, "s3://{}", bucket.as_deref().unwrap_or_default())?;
        if !prefix.is_empty() {
            write!(f, "/{prefix}")?;
        }
        let endpoint = endpoint.as_deref().map(|endpoint| ("endpoint", without_user(endpoint)));
        let region = region.as_deref().map(|region| ("region", region.to_owned()));
        for (index, (name, value)) in endpoint.into_iter().chain(region).enumerate() {
            write!(f, "{}{name}={value}", if index == 0 { '?' } else { '&' })?;
        }
        Ok(())
    }
}

fn without_user(endpoint: &str) -> String {
    let Some((scheme, rest)) = endpoint.split_once("://") else { return endpoint.to_owned() };
    let (host, path) = rest.split_once('/').map_or((rest, None), |(host, path)| (host, Some(path)));
    let host = host.rsplit_once('@').map_or(host, |(_, host)| host);
    match path {
        Some(path) => format!("{scheme}://{host}/{path}"),
        None => format!("{scheme}://{host}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_name_places() {
        let s3 = |bucket: Option<&str>, prefix: &str, endpoint: Option<&str>, region: Option<&str>| UnderStoreUrl::S3 {
            bucket: bucket.map(str::to_owned),
            prefix: prefix.to_owned(),
            endpoint: endpoint.map(str::to_owned),
            region: region.map(str::to_owned),
        };
        let local = Some("http://127.0.0.1:9000");
        for (text, url) in [
            ("file:///srv/data", UnderStoreUrl::Directory("/srv/data".into())),
            ("s3://bucket", s3(Some("bucket"), "", None, None)),
            ("s3://bucket/a/b/?region=eu-west-1", s3(Some("bucket"), "a/b", None, Some("eu-west-1"))),
            ("s3://?endpoint=http://127.0.0.1:9000", s3(None, "", local, None)),
            ("s3://b?endpoint=http%3A%2F%2F127.0.0.1%3A9000&region=x", s3(Some("b"), "", local, Some("x"))),
        ] {
            assert_eq!(text.parse(), Ok(url), "{text}");
        }
    }

    #[test]
    fn urls_are_shown_without_secrets() {
        for (text, shown) in [
            ("file:///srv/data", "file:///srv/data"),
            ("s3://bucket/a/b/?region=eu-west-1", "s3://bucket/a/b?region=eu-west-1"),
            (
                "s3://?region=x&endpoint=http://me:secret@127.0.0.1:9000",
                "s3://?endpoint=http://127.0.0.1:9000&region=x",
            ),
            ("s3://b?endpoint=http://host/p@th", "s3://b?endpoint=http://host/p@th"),
        ] {
            assert_eq!(text.parse::<UnderStoreUrl>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for text in
            ["", "/srv/data", "file://data", "http://x", "s3://", "s3://b?endpoint=x", "s3://b?color=red", "s3://b?x"]
        {
            let error = text.parse::<UnderStoreUrl>().expect_err(text);
            assert!(error.to_string().contains(&format!("{text:?}")), "{error}");
        }
    }
}
