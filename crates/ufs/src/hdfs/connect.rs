//! Makes clients.

use std::sync::Arc;

use forebay_env::Env;
use hdfs_native::ClientBuilder;

use super::errors::{Effect, classify};
use super::remote::Remote;
use super::settings::{CALL_DEADLINE, FAILOVER, HdfsLocation};
use crate::Result;

/// Sends nothing yet.
///
/// # Errors
/// `Invalid` when the Hadoop configuration can't be read, or does not know the nameservice.
pub(super) fn connect(env: &Env, location: &HdfsLocation) -> Result<Remote> {
    let mut builder = ClientBuilder::new().with_url(format!("hdfs://{}", location.authority)).with_config(FAILOVER);
    if let Some(directory) = &location.hadoop_conf_dir {
        builder = builder.with_config_dir(directory);
    }
    if let Some(user) = &location.user {
        builder = builder.with_user(user);
    }
    if let Some(principal) = &location.principal {
        builder = builder.with_kerberos_principal(principal);
    }
    if let Some(keytab) = &location.keytab {
        builder = builder.with_kerberos_keytab(keytab);
    }
    let client = builder.build().map_err(|error| {
        let doing = format!(
            "find the NameNodes of {} (a host needs its port, and a nameservice its Hadoop configuration)",
            location.authority
        );
        let error = classify(error, Effect::Read, &doing);
        crate::Error { kind: crate::ErrorKind::Invalid, ..error }
    })?;
    Ok(Remote::new(client, Arc::clone(&env.clock), CALL_DEADLINE))
}
