//! Under-store URLs.

use std::borrow::Cow;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use percent_encoding::{AsciiSet, CONTROLS, percent_decode_str, utf8_percent_encode};

use crate::hdfs::HdfsLocation;

/// Characters that would end an option's value, or are decoded when it is read.
const OPTION: &AsciiSet = &CONTROLS.add(b'%').add(b'&');

/// `file:///dir`, or `s3://bucket/prefix?endpoint=…&region=…`, or `s3://?endpoint=…` for all buckets of an endpoint, or
/// `hdfs://namenode:port/dir`, or `hdfs://nameservice/dir?hadoop_conf_dir=…`.
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
    Hdfs(HdfsLocation),
}

/// What is wrong with a URL. The text contains nothing of the URL: a secret may be in a place where none belongs.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("not an under-store URL: {0}")]
pub struct InvalidUrl(&'static str);

impl FromStr for UnderStoreUrl {
    type Err = InvalidUrl;

    fn from_str(text: &str) -> Result<Self, InvalidUrl> {
        if let Some(path) = text.strip_prefix("file://") {
            return match path.starts_with('/') {
                true => Ok(Self::Directory(path.into())),
                false => Err(InvalidUrl("write a directory as file:///absolute/path")),
            };
        }
        if let Some(rest) = text.strip_prefix("hdfs://") {
            return hdfs(rest).map(Self::Hdfs);
        }
        let Some(rest) = text.strip_prefix("s3://") else {
            return Err(InvalidUrl("it must begin with file://, s3:// or hdfs://"));
        };
        let (location, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (bucket, prefix) = location.split_once('/').unwrap_or((location, ""));
        if bucket.contains('@') || bucket.ends_with(':') || has_port(bucket) {
            return Err(InvalidUrl("give the endpoint as an option, as in s3://bucket?endpoint=http://host:port"));
        }
        let (mut endpoint, mut region) = (None, None);
        for option in options(query) {
            let (name, value) = option?;
            match name {
                "endpoint" if value.starts_with("http://") || value.starts_with("https://") => {
                    check_user(&value)?;
                    endpoint = Some(value.into_owned());
                }
                "endpoint" => return Err(InvalidUrl("the endpoint must begin with http:// or https://")),
                "region" => region = Some(value.into_owned()),
                _ => return Err(InvalidUrl("unknown option: s3:// takes only endpoint and region")),
            }
        }
        if bucket.is_empty() && endpoint.is_none() && region.is_none() {
            return Err(InvalidUrl("name a bucket, or give an endpoint or a region"));
        }
        let bucket = (!bucket.is_empty()).then(|| bucket.to_owned());
        Ok(Self::S3 { bucket, prefix: prefix.trim_matches('/').to_owned(), endpoint, region })
    }
}

/// Whether it looks like a host with a port. The name of an access point has colons, too.
fn has_port(bucket: &str) -> bool {
    let port = bucket.rsplit_once(':').map(|(_, port)| port);
    port.is_some_and(|port| (1..=5).contains(&port.len()) && port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The names and values behind the `?` of a URL.
fn options(query: &str) -> impl Iterator<Item = Result<(&str, Cow<'_, str>), InvalidUrl>> {
    query.split('&').filter(|pair| !pair.is_empty()).map(|pair| {
        let (name, value) = pair.split_once('=').ok_or(InvalidUrl("write options as name=value"))?;
        let value = percent_decode_str(value).decode_utf8().map_err(|_| InvalidUrl("an option is not UTF-8"))?;
        Ok((name, value))
    })
}

/// The place in HDFS that is written behind `hdfs://`.
fn hdfs(text: &str) -> Result<HdfsLocation, InvalidUrl> {
    let (location, query) = text.split_once('?').unwrap_or((text, ""));
    let (authority, path) = location.split_once('/').unwrap_or((location, ""));
    if authority.is_empty() {
        return Err(InvalidUrl("HDFS is written as hdfs://namenode:port/dir or hdfs://nameservice/dir"));
    }
    if authority.contains('@') {
        return Err(InvalidUrl("the user of HDFS is an option: hdfs://namenode:port/dir?user=name"));
    }
    let path = path.trim_matches('/');
    if !path.is_empty() && path.split('/').any(|name| matches!(name, "" | "." | "..") || name.contains(':')) {
        return Err(InvalidUrl("an HDFS path must not have empty components, `.`, `..` or a colon"));
    }
    let path = if path.is_empty() { String::new() } else { format!("/{path}") };
    let mut location = HdfsLocation { authority: authority.to_owned(), path, ..HdfsLocation::default() };
    for option in options(query) {
        let (name, value) = option?;
        let field = match name {
            "hadoop_conf_dir" => &mut location.hadoop_conf_dir,
            "user" => &mut location.user,
            "principal" => &mut location.principal,
            "keytab" => &mut location.keytab,
            _ => {
                return Err(InvalidUrl(
                    "unknown option: hdfs:// takes only hadoop_conf_dir, user, principal and keytab",
                ));
            }
        };
        *field = Some(value.into_owned());
    }
    if location.keytab.is_some() && location.principal.is_none() {
        return Err(InvalidUrl("a keytab needs a principal"));
    }
    Ok(location)
}

fn write_options<'a>(
    f: &mut fmt::Formatter<'_>,
    options: impl IntoIterator<Item = (&'a str, Option<String>)>,
) -> fmt::Result {
    let given = options.into_iter().filter_map(|(name, value)| Some((name, value?)));
    for (index, (name, value)) in given.enumerate() {
        let value = utf8_percent_encode(&value, OPTION);
        write!(f, "{}{name}={value}", if index == 0 { '?' } else { '&' })?;
    }
    Ok(())
}

/// The URL as it would be written, without the user and password of its endpoint: it is for logs, metrics and pages.
impl fmt::Display for UnderStoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bucket, prefix, endpoint, region) = match self {
            Self::Directory(path) => return write!(f, "file://{}", path.display()),
            Self::Hdfs(HdfsLocation { authority, path, hadoop_conf_dir, user, principal, keytab }) => {
                write!(f, "hdfs://{authority}{path}")?;
                let options = [
                    ("hadoop_conf_dir", hadoop_conf_dir),
                    ("user", user),
                    ("principal", principal),
                    ("keytab", keytab),
                ];
                return write_options(f, options.map(|(name, value)| (name, value.clone())));
            }
            Self::S3 { bucket, prefix, endpoint, region } => (bucket, prefix, endpoint, region),
        };
        write!(f, "s3://{}", bucket.as_deref().unwrap_or_default())?;
        if !prefix.is_empty() {
            write!(f, "/{prefix}")?;
        }
        write_options(f, [("endpoint", endpoint.as_deref().map(without_user)), ("region", region.clone())])
    }
}

/// Refuses what looks like a password with a slash in it: the slash would end the host, and the rest would be shown.
fn check_user(endpoint: &str) -> Result<(), InvalidUrl> {
    let path = endpoint.splitn(4, '/').nth(3).unwrap_or_default();
    match path.contains('@') {
        true => Err(InvalidUrl("the endpoint has an @ behind its host; a slash in a password is written as %2F")),
        false => Ok(()),
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
            ("s3://arn:aws:s3:x:1:accesspoint", s3(Some("arn:aws:s3:x:1:accesspoint"), "", None, None)),
            ("s3://b?endpoint=http%3A%2F%2F127.0.0.1%3A9000&region=x", s3(Some("b"), "", local, Some("x"))),
        ] {
            assert_eq!(text.parse(), Ok(url), "{text}");
        }
    }

    #[test]
    fn urls_name_directories_in_hdfs() {
        let location = HdfsLocation { authority: "name:8020".into(), ..HdfsLocation::default() };
        for (text, location) in [
            ("hdfs://name:8020", location.clone()),
            ("hdfs://name:8020/", location.clone()),
            ("hdfs://name:8020/a/b/", HdfsLocation { path: "/a/b".into(), ..location.clone() }),
            (
                "hdfs://name:8020/a?user=me&hadoop_conf_dir=/etc%20x",
                HdfsLocation {
                    path: "/a".into(),
                    user: Some("me".into()),
                    hadoop_conf_dir: Some("/etc x".into()),
                    ..location.clone()
                },
            ),
        ] {
            assert_eq!(text.parse(), Ok(UnderStoreUrl::Hdfs(location)), "{text}");
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
            ("s3://b?endpoint=http://me:secret@host/path", "s3://b?endpoint=http://host/path"),
            ("s3://b?region=a%26b%0A%25", "s3://b?region=a%26b%0A%25"),
            ("hdfs://ns/a/?user=me&hadoop_conf_dir=/etc/x", "hdfs://ns/a?hadoop_conf_dir=/etc/x&user=me"),
            ("hdfs://ns?principal=me@X&keytab=/k", "hdfs://ns?principal=me@X&keytab=/k"),
        ] {
            assert_eq!(text.parse::<UnderStoreUrl>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, problem) in [
            ("", "must begin with"),
            ("/srv/data", "must begin with"),
            ("file://data", "absolute"),
            ("http://me:secret@x", "must begin with"),
            ("s3://", "give an endpoint"),
            ("s3://127.0.0.1:9000/b", "an option, as in"),
            ("s3://http://127.0.0.1:9000/b", "an option, as in"),
            ("s3://me:secret@b", "an option, as in"),
            ("s3://b?endpoint=me:secret@x", "the endpoint must begin with"),
            ("s3://b?endpoint=http://me:sec/secret@host", "%2F"),
            ("s3://b?endpoint=http:///me:secret@host", "@ behind its host"),
            ("s3://b?color=secret", "only endpoint and region"),
            ("s3://b?secret", "name=value"),
            ("hdfs:///a", "hdfs://nameservice"),
            ("hdfs://me:secret@name:1/a", "an option"),
            ("hdfs://name:1/a//b", "empty components"),
            ("hdfs://name:1/../b", "empty components"),
            ("hdfs://name:1/b?color=secret", "only hadoop_conf_dir"),
            ("hdfs://name:1/b?keytab=secret", "needs a principal"),
        ] {
            let error = text.parse::<UnderStoreUrl>().expect_err(text).to_string();
            assert!(error.contains(problem) && !error.contains("secret"), "{error}");
        }
    }
}
