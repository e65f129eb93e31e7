//! What one setting alone can't tell: what of several contradicts each other.

use std::collections::BTreeSet;
use std::path::Path;

use forebay_types::ByteSize;

use super::kind::Capacity;
use super::problem::{Origin, Problem, Problems};
use super::sections::{Cluster, Config, Store, UnderStoreConfig};
use super::sources::{Sourced, Sources};
use crate::store_settings;

/// The rule of the users file for the keys of other users.
const ROOT_SECRET_CHARACTERS_MIN: usize = 8;

impl Config {
    /// # Errors
    /// All that contradicts each other.
    pub(super) fn check(&self, sources: &Sources) -> Result<(), Problem> {
        let mut problems = Problems::default();
        problems.take(self.check_server(sources));
        let order = self.cache.persist_backoff_min <= self.cache.persist_backoff_max;
        let wrong = "must not exceed cache.persist_backoff_max";
        problems.take(refuse_unless(order, sources, "cache", "persist_backoff_min", wrong));
        let order = self.limits.circuit_pause_min <= self.limits.circuit_pause_max;
        let wrong = "must not exceed under_store_limits.circuit_pause_max";
        problems.take(refuse_unless(order, sources, "under_store_limits", "circuit_pause_min", wrong));
        let (access, audit) = (&self.access_log.file, &self.audit_log.file);
        let apart = access.is_none() || access != audit;
        problems.take(refuse_unless(apart, sources, "audit_log", "file", "must differ from access_log.file"));
        problems.take(self.check_endpoint(sources));
        problems.take(self.check_cluster(sources));
        problems.take(self.check_directories(sources));
        problems.take(self.store.check(sources));
        problems.result()
    }

    fn check_server(&self, sources: &Sources) -> Result<(), Problem> {
        let (server, mut problems) = (&self.server, Problems::default());
        problems.take(both(
            sources,
            "server",
            ("root_access_key", server.root_access_key.is_some()),
            ("root_secret_key", server.root_secret_key.is_some()),
        ));
        problems.take(self.check_root_secret(sources));
        let (certificate, key) = (server.tls_cert.is_some(), server.tls_key.is_some());
        problems.take(both(sources, "server", ("tls_cert", certificate), ("tls_key", key)));
        // One of the two alone is a mistake that is reported above.
        let encrypted = !server.admin_tls || certificate || key;
        let wrong = "needs server.tls_cert and server.tls_key";
        problems.take(refuse_unless(encrypted, sources, "server", "admin_tls", wrong));
        let (listen, admin) = (server.listen, server.admin_listen);
        let is_any = listen.ip().is_unspecified() || admin.ip().is_unspecified();
        let same = listen.port() == admin.port() && listen.port() != 0 && (is_any || listen.ip() == admin.ip());
        problems.take(refuse_unless(!same, sources, "server", "admin_listen", "must differ from server.listen"));
        problems.result()
    }

    /// Says nothing of the key but that it is short.
    fn check_root_secret(&self, sources: &Sources) -> Result<(), Problem> {
        let secret = self.server.root_secret_key.as_ref();
        if secret.is_none_or(|secret| secret.0.chars().count() >= ROOT_SECRET_CHARACTERS_MIN) {
            return Ok(());
        }
        let wrong = format!(
            "must have {ROOT_SECRET_CHARACTERS_MIN} characters or more: `openssl rand -hex 20` makes one that nobody guesses"
        );
        Err(sources.get("server", "root_secret_key").origin.problem("server.root_secret_key", &wrong))
    }

    fn check_cluster(&self, sources: &Sources) -> Result<(), Problem> {
        let Cluster { engine, name, listen, advertise, .. } = &self.cluster;
        let Some(engine) = engine else { return Ok(()) };
        let mut problems = Problems::default();
        let wrong = "must be etcd://HOST:PORT,HOST:PORT…, or etcds://… for TLS";
        problems.take(refuse_unless(etcd_endpoints(engine).is_some(), sources, "cluster", "engine", wrong));
        problems.take(refuse_unless(!name.is_empty(), sources, "cluster", "name", "must name the cluster"));
        let is_host_port = advertise.as_deref().is_none_or(is_host_port);
        problems.take(refuse_unless(is_host_port, sources, "cluster", "advertise", "must be HOST:PORT"));
        let is_told = advertise.is_some() || !listen.ip().is_unspecified();
        let wrong = "is no address that others can use: set cluster.advertise";
        problems.take(refuse_unless(is_told, sources, "cluster", "listen", wrong));
        problems.result()
    }

    fn check_endpoint(&self, sources: &Sources) -> Result<(), Problem> {
        let Some(endpoint) = &self.trace.otlp_endpoint else { return Ok(()) };
        let wrong = "must be a URL such as \"http://127.0.0.1:4318\"";
        let host = endpoint.strip_prefix("http://").or_else(|| endpoint.strip_prefix("https://"));
        let parsed = endpoint.parse::<http::Uri>().ok().filter(|_| host.is_some());
        let is_url = parsed.is_some_and(|url| url.host().is_some_and(|host| !host.is_empty()));
        refuse_unless(is_url, sources, "trace", "otlp_endpoint", wrong)
    }

    /// By their names: symbolic links are followed nowhere.
    fn check_directories(&self, sources: &Sources) -> Result<(), Problem> {
        let (mut seen, mut problems) = (BTreeSet::new(), Problems::default());
        let under_stores: Vec<_> =
            self.mounts.values().chain(&self.root).filter_map(UnderStoreConfig::directory).collect();
        for directory in &self.store.data_dirs {
            let directory =
                std::path::absolute(directory).map_err(|e| Problem(format!("the working directory: {e}")))?;
            let apart = !under_stores.iter().any(|under_store| directory.starts_with(under_store));
            let wrong = "names a directory inside an under store";
            problems.take(refuse_unless(apart, sources, "store", "data_dirs", wrong));
            // To empty the data directory would remove the objects of the under store.
            let is_inside =
                |under_store: &&Path| under_store.starts_with(&directory) && !directory.starts_with(under_store);
            let wrong = "names a directory with an under store inside";
            let holds_none = !under_stores.iter().any(is_inside);
            problems.take(refuse_unless(holds_none, sources, "store", "data_dirs", wrong));
            let is_new = seen.insert(directory);
            problems.take(refuse_unless(is_new, sources, "store", "data_dirs", "names a directory twice"));
        }
        problems.result()
    }
}

/// The members of etcd that a URL names, as `http://HOST:PORT` or `https://HOST:PORT`.
pub(crate) fn etcd_endpoints(url: &str) -> Option<Vec<String>> {
    let plain = url.strip_prefix("etcd://").map(|members| ("http", members));
    let (scheme, members) = plain.or_else(|| Some(("https", url.strip_prefix("etcds://")?)))?;
    let member = |member: &str| is_host_port(member).then(|| format!("{scheme}://{member}"));
    members.split(',').map(str::trim).map(member).collect()
}

fn is_host_port(text: &str) -> bool {
    let authority = text.parse::<http::uri::Authority>();
    authority.is_ok_and(|authority| {
        authority.port_u16().is_some_and(|port| port > 0) && !authority.host().is_empty() && !text.contains('@')
    })
}

impl Store {
    /// Sizes that do not fit into one another. What a percentage comes to is known when the disk is.
    fn check(&self, sources: &Sources) -> Result<(), Problem> {
        let mut problems = Problems::default();
        if let Capacity::Bytes(bytes) = self.size {
            let enough = store_settings::check_capacity(bytes, store_settings::segment_bytes(self, bytes));
            let (holds, wrong) = (enough.is_ok(), enough.err().unwrap_or_default());
            problems.take(refuse_unless(holds, sources, "store", "size", &wrong));
        }
        if let Some(ByteSize(segment)) = self.segment_size {
            let fits = self.inline_object_max.0 <= store_settings::inline_bytes_max(segment);
            let wrong = "must be at most a quarter of store.segment_size";
            problems.take(refuse_unless(fits, sources, "store", "inline_object_max", wrong));
            let fits = self.extent_size_max.0 <= store_settings::extent_bytes_max(segment);
            let wrong = "must be at most half of store.segment_size";
            problems.take(refuse_unless(fits, sources, "store", "extent_size_max", wrong));
        }
        problems.result()
    }
}

pub(super) fn refuse_unless(
    holds: bool,
    sources: &Sources,
    section: &'static str,
    key: &'static str,
    wrong: &str,
) -> Result<(), Problem> {
    let Sourced { value, origin } = sources.get(section, key);
    if holds { Ok(()) } else { Err(Problem::value(origin, &format!("{section}.{key}"), &value.to_string(), wrong)) }
}

/// Refuses one of two settings without the other.
pub(super) fn both(
    sources: &Sources,
    section: &'static str,
    (one, has_one): (&'static str, bool),
    (other, has_other): (&'static str, bool),
) -> Result<(), Problem> {
    if has_one == has_other {
        return Ok(());
    }
    let (given, missing) = if has_one { (one, other) } else { (other, one) };
    Err(without(sources, section, given, missing))
}

/// Says nothing of the value, which may be a secret.
pub(super) fn without(sources: &Sources, section: &'static str, given: &'static str, missing: &str) -> Problem {
    let origin = &sources.get(section, given).origin;
    let separator = if matches!(origin, Origin::File { .. }) { "" } else { ": " };
    Problem(format!("{origin}{separator}{section}.{given} is given without {section}.{missing}"))
}
