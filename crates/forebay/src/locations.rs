//! Where under stores are, as workers compare them: without keys, users and regions.

use std::path::PathBuf;

use forebay_ufs::UnderStoreUrl;

/// Where objects are. Each machine may reach the same buckets by another address, and has its own keys.
pub(crate) fn location(url: &UnderStoreUrl) -> String {
    match url {
        // Without a slash at its end.
        UnderStoreUrl::Directory(path) => format!("file://{:?}", path.components().collect::<PathBuf>()),
        UnderStoreUrl::S3 { bucket, prefix, endpoint: _, region: _ } => format!("s3://{bucket:?}/{prefix}"),
        UnderStoreUrl::Hdfs(location) => format!("hdfs://{}/{}", location.authority, location.path),
    }
}

/// Where the Hadoop configuration is that says which NameNodes a nameservice has. `None`: not HDFS, or a NameNode by
/// its address.
pub(crate) fn nameservice_configuration(url: &UnderStoreUrl, inherited: Option<&str>) -> Option<String> {
    let UnderStoreUrl::Hdfs(location) = url else { return None };
    // A nameservice has no port.
    let is_nameservice = !location.authority.contains(':');
    is_nameservice.then(|| location.hadoop_conf_dir.as_deref().or(inherited).map(str::to_owned)).flatten()
}

/// How an S3 under store is reached, without a user. `None`: at Amazon.
pub(crate) fn endpoint(url: &UnderStoreUrl, inherited: Option<&str>) -> Option<String> {
    let UnderStoreUrl::S3 { endpoint, .. } = url else { return None };
    let endpoint = endpoint.as_deref().or(inherited)?;
    let Ok(parsed) = endpoint.parse::<http::Uri>() else { return Some(endpoint.to_owned()) };
    let scheme = parsed.scheme_str().unwrap_or_default();
    let port = parsed.port_u16().unwrap_or(if scheme == "https" { 443 } else { 80 });
    let host = parsed.host().unwrap_or_default().to_ascii_lowercase();
    Some(format!("{scheme}://{host}:{port}{}", parsed.path().trim_end_matches('/')))
}
