//! Makes clients: where credentials and the region come from, timeouts, no retries.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use aws_config::default_provider::credentials::DefaultCredentialsChain;
use aws_config::environment::{EnvironmentVariableCredentialsProvider, EnvironmentVariableRegionProvider};
use aws_config::meta::credentials::CredentialsProviderChain;
use aws_config::meta::region::RegionProviderChain;
use aws_config::profile::credentials::Builder as ProfileBuilder;
use aws_config::profile::{ProfileFileCredentialsProvider, ProfileFileRegionProvider};
use aws_config::provider_config::ProviderConfig;
use aws_config::retry::RetryConfig;
use aws_config::stalled_stream_protection::StalledStreamProtectionConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::web_identity_token::WebIdentityTokenCredentialsProvider;
use aws_config::{AppName, BehaviorVersion, Region};
use aws_credential_types::Credentials;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, future};
use aws_sdk_s3::Client;
use aws_sdk_s3::config::ResponseChecksumValidation;
use aws_sdk_s3::presigning::PresigningConfig;
use forebay_env::Env;
use parking_lot::Mutex;

use super::answer_check::AnswerCheck;
use super::count::Counted;
use super::settings::S3Credentials;
use super::skew::Skew;
use crate::Result;
use crate::governor::CallObserver;
use crate::options::OpenOptions;
use crate::passed::Noted;

/// The region that the client signs for when nothing names one. Most S3-compatible servers expect it.
const DEFAULT_REGION: &str = "us-east-1";

/// A body that brings no byte for this long is given up, in both directions.
pub(super) const STALL: Duration = Duration::from_secs(20);

/// A client of the SDK, and the observer of requests that bypass it.
#[derive(Clone)]
pub struct S3Client {
    pub sdk: Client,
    pub(super) observer: Option<Arc<dyn CallObserver>>,
    pub(super) skew: Skew,
    pub(super) answers: AnswerCheck,
    pub(super) is_amazon: bool,
    /// A listing with a delimiter other than `/` has led back to an earlier page.
    pub(super) groups_in_circles: Arc<AtomicBool>,
    /// Multipart uploads of this process that are in flight.
    pub(super) uploads: Arc<Mutex<HashSet<String>>>,
    /// Buckets that have answered an upload in one piece with an ETag that was not the MD5 of the content. One bucket
    /// of an endpoint may encrypt its objects, and others not.
    pub(super) opaque_etags: Arc<Mutex<HashSet<String>>>,
}

impl S3Client {
    /// The same client with its own connections. The runtime that opens a connection also drives it, so urgent work and
    /// other work should not share one.
    #[must_use]
    pub fn apart(&self) -> Self {
        Self { sdk: Client::from_conf(self.sdk.config().clone()), ..self.clone() }
    }
}

/// A client for an endpoint, or for Amazon's own when `None`. With an endpoint, it uses path-style URLs.
///
/// # Errors
/// None today: nothing is sent to the server yet.
pub async fn connect(endpoint: Option<&str>, region: Option<&str>, options: &OpenOptions) -> Result<S3Client> {
    let settings = &options.s3;
    let configured = region.map(|name| Region::new(name.to_owned()));
    let region = RegionProviderChain::first_try(configured.clone())
        .or_else(EnvironmentVariableRegionProvider::new())
        .or_else(ProfileFileRegionProvider::new())
        .or_else(Region::new(DEFAULT_REGION));
    let timeouts = TimeoutConfig::builder()
        .connect_timeout(settings.connect_timeout.0)
        .operation_attempt_timeout(settings.deadline(0))
        .build();
    let skew = Skew::new(Env::real().clock);
    let stalls = StalledStreamProtectionConfig::enabled().grace_period(STALL).build();
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .region(region)
        .credentials_provider(credentials(options, configured).await)
        .retry_config(RetryConfig::disabled())
        .timeout_config(timeouts)
        .time_source(skew.clone())
        .disable_clock_skew_correction(true)
        .stalled_stream_protection(stalls)
        .response_checksum_validation(ResponseChecksumValidation::WhenRequired);
    if let Ok(name) = AppName::new("forebay") {
        loader = loader.app_name(name);
    }
    if let Some(endpoint) = endpoint {
        loader = loader.endpoint_url(endpoint);
    }
    let config = aws_sdk_s3::config::Builder::from(&loader.load().await).force_path_style(endpoint.is_some());
    let answers = AnswerCheck::default();
    let mut config = config.interceptor(skew.clone()).interceptor(answers.clone()).interceptor(Noted);
    if let Some(observer) = &options.observer {
        config = config.interceptor(Counted::new(observer));
    }
    let (sdk, observer) = (Client::from_conf(config.build()), options.observer.clone());
    let is_amazon = asks_amazon(&sdk).await;
    Ok(S3Client {
        sdk,
        observer,
        skew,
        answers,
        is_amazon,
        groups_in_circles: Arc::default(),
        uploads: Arc::default(),
        opaque_etags: Arc::default(),
    })
}

/// Whether requests of a client go to Amazon. An endpoint may also come from the environment, or from a profile for
/// this service alone. Nothing is sent.
async fn asks_amazon(sdk: &Client) -> bool {
    let keys = Credentials::new("key", "secret", None, None, "nobody");
    let sdk = Client::from_conf(sdk.config().to_builder().credentials_provider(keys).build());
    let Ok(soon) = PresigningConfig::expires_in(Duration::from_secs(60)) else { return false };
    let signed = sdk.get_object().bucket("bucket").key("key").presigned(soon).await;
    signed.is_ok_and(|request| is_of_amazon(request.uri()))
}

fn is_of_amazon(url: &str) -> bool {
    let host = url.parse::<http::Uri>().ok().and_then(|url| url.host().map(str::to_ascii_lowercase));
    host.is_some_and(|host| host.ends_with(".amazonaws.com") || host.ends_with(".amazonaws.com.cn"))
}

/// The credentials of the configuration, else those of the environment and of the profile files. A metadata service on
/// the network is asked only where the settings say so: elsewhere that means waiting for nothing, or getting somebody
/// else's keys.
async fn credentials(options: &OpenOptions, configured: Option<Region>) -> SharedCredentialsProvider {
    if let Some(S3Credentials { access_key, secret_key, session_token }) = &options.credentials {
        let keys = Credentials::new(access_key, secret_key, session_token.clone(), None, "forebay configuration");
        return SharedCredentialsProvider::new(keys);
    }
    // Roles are asked of Amazon, which may not know the region of the configuration.
    let region = RegionProviderChain::first_try(EnvironmentVariableRegionProvider::new())
        .or_else(ProfileFileRegionProvider::new())
        .or_else(configured)
        .or_else(Region::new(DEFAULT_REGION));
    let region = region.region().await;
    // A new one for each use: it keeps the profile files that it has read.
    let in_region = move || ProviderConfig::without_region().with_region(region.clone());
    let of_web = WebIdentityTokenCredentialsProvider::builder().configure(&in_region());
    let chain = CredentialsProviderChain::first_try("Environment", EnvironmentVariableCredentialsProvider::new())
        .or_else("Profile", Profiles(move || ProfileFileCredentialsProvider::builder().configure(&in_region())));
    let chain = match options.s3.instance_credentials {
        true => chain.or_else("Default", DefaultCredentialsChain::builder().build().await),
        false => chain.or_else("WebIdentityToken", of_web.build()),
    };
    SharedCredentialsProvider::new(chain)
}

/// The keys of the profile files, which other programs rewrite when the keys expire. A provider of the SDK reads the
/// files once, so each question makes another one.
struct Profiles<B>(B);

impl<B> fmt::Debug for Profiles<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Profiles").finish_non_exhaustive()
    }
}

impl<B: Fn() -> ProfileBuilder + Send + Sync> ProvideCredentials for Profiles<B> {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        let provider = (self.0)().build();
        future::ProvideCredentials::new(async move { provider.provide_credentials().await })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    #[expect(deprecated, reason = "the names that replace these are in a crate that nothing else here needs")]
    async fn keys_that_another_program_has_written_to_a_profile_file_are_used() {
        use aws_config::profile::profile_file::{ProfileFileKind, ProfileFiles};

        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("credentials");
        let of_file = path.clone();
        let profiles = Profiles(move || {
            let files = ProfileFiles::builder().with_file(ProfileFileKind::Credentials, &of_file).build();
            ProfileFileCredentialsProvider::builder().profile_files(files).profile_name("default")
        });
        for key in ["first", "second"] {
            let text = format!("[default]\naws_access_key_id = {key}\naws_secret_access_key = secret\n");
            std::fs::write(&path, text).unwrap();
            assert_eq!(profiles.provide_credentials().await.unwrap().access_key_id(), key);
        }
    }

    #[test]
    fn amazon_is_known_by_its_hosts() {
        for url in ["https://s3.eu-west-3.amazonaws.com", "https://S3.cn-north-1.amazonaws.com.cn:443/"] {
            assert!(is_of_amazon(url), "{url}");
        }
        for url in
            ["http://127.0.0.1:9000", "https://amazonaws.com.example", "https://s3.example/x.amazonaws.com", "no url"]
        {
            assert!(!is_of_amazon(url), "{url}");
        }
    }
}
