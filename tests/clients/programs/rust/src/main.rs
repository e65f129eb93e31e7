//! The S3 clients of the tests that are Rust crates: `aws-sdk-s3` and `object_store`, chosen by the first argument.

mod files;
mod protocol;
mod sdk;
mod store;

use crate::protocol::serve;

#[tokio::main]
async fn main() -> std::io::Result<()> {
    let endpoint = std::env::var("FOREBAY_ENDPOINT").expect("FOREBAY_ENDPOINT names the server");
    match std::env::args().nth(1).as_deref() {
        Some("aws-sdk-s3") => {
            let client = sdk::Sdk::connect(endpoint).await;
            serve(async |request| client.answer(request).await).await
        }
        Some("object_store") => {
            let client = store::Stores::new(endpoint);
            serve(async |request| client.answer(request).await).await
        }
        other => panic!("aws-sdk-s3 or object_store, not {other:?}"),
    }
}
