//! Virtual-host style: the bucket in the `Host` header.

use s3s::S3Result;
use s3s::host::{S3Host, VirtualHost};

/// `bucket.domain` names a bucket; every other host is path style.
pub(crate) struct Domain {
    domain: String,
}

impl Domain {
    pub(crate) fn new(domain: &str) -> Self {
        Self { domain: without_port(domain).to_ascii_lowercase() }
    }
}

impl S3Host for Domain {
    fn parse_host_header<'a>(&'a self, host: &'a str) -> S3Result<VirtualHost<'a>> {
        let name = without_port(host).to_ascii_lowercase();
        let bucket = name.strip_suffix(self.domain.as_str()).and_then(|rest| rest.strip_suffix('.'));
        Ok(match bucket {
            Some(bucket) if !bucket.is_empty() => VirtualHost::new(self.domain.as_str()).with_bucket(bucket.to_owned()),
            _ => VirtualHost::new(host),
        })
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_subdomains_name_buckets() {
        let domain = Domain::new("s3.example.com");
        for (host, bucket) in [
            ("b.s3.example.com", Some("b")),
            ("a.b.S3.example.com:9700", Some("a.b")),
            ("s3.example.com", None),
            ("s3.example.com:9700", None),
            ("localhost:9700", None),
            ("evils3.example.com", None),
        ] {
            assert_eq!(domain.parse_host_header(host).unwrap().bucket(), bucket, "{host}");
        }
    }
}
