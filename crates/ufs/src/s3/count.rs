//! Counts the requests that are really sent: providers bill those.

use std::fmt;
use std::sync::Arc;

use aws_sdk_s3::config::interceptors::BeforeTransmitInterceptorContextRef;
use aws_sdk_s3::config::{ConfigBag, Intercept, RuntimeComponents};
use aws_smithy_runtime_api::box_error::BoxError;

use crate::governor::{CallObserver, RequestClass};

/// Reports every request of a client to an observer.
pub(super) struct Counted {
    observer: Arc<dyn CallObserver>,
}

impl Counted {
    pub(super) fn new(observer: &Arc<dyn CallObserver>) -> Self {
        Self { observer: Arc::clone(observer) }
    }
}

impl fmt::Debug for Counted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Counted")
    }
}

impl Intercept for Counted {
    fn name(&self) -> &'static str {
        "Counted"
    }

    fn read_before_transmit(
        &self,
        context: &BeforeTransmitInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _config: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let request = context.request();
        self.observer.sent(class(request.method(), request.uri()));
        Ok(())
    }
}

/// A listing is a GET that names no object. The SDK marks each kind of listing with a parameter.
pub(super) fn class(method: &str, uri: &str) -> RequestClass {
    let query = uri.split_once('?').map_or("", |(_, query)| query);
    let names = |wanted: &str| query.split('&').any(|pair| pair.split('=').next() == Some(wanted));
    match method {
        "GET" if ["list-type", "uploads"].into_iter().any(names) || query.contains("x-id=ListBuckets") => {
            RequestClass::List
        }
        "GET" | "HEAD" => RequestClass::Read,
        "DELETE" => RequestClass::Delete,
        _ => RequestClass::Write,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_classed_as_providers_price_them() {
        for (method, uri, expected) in [
            ("GET", "http://host/bucket/key?x-id=GetObject", RequestClass::Read),
            ("HEAD", "http://host/bucket/key", RequestClass::Read),
            ("GET", "http://host/bucket/?list-type=2&prefix=uploads", RequestClass::List),
            ("GET", "http://host/bucket/key?tagging&note=uploads", RequestClass::Read),
            ("GET", "http://host/bucket?uploads", RequestClass::List),
            ("GET", "http://host/?x-id=ListBuckets", RequestClass::List),
            ("PUT", "http://host/bucket/key?x-id=PutObject", RequestClass::Write),
            ("POST", "http://host/bucket/key?uploads", RequestClass::Write),
            ("DELETE", "http://host/bucket/key", RequestClass::Delete),
        ] {
            assert_eq!(class(method, uri), expected, "{method} {uri}");
        }
    }
}
