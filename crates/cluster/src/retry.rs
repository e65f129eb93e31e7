//! Questions to the engine at a start.

use std::time::Duration;

use forebay_catalog::{ErrorKind, Result};
use forebay_env::Env;

/// Tries of a question at a start, and the pause between two.
const TRIES: usize = 10;
const PAUSE: Duration = Duration::from_millis(100);

/// Asks the engine again until it answers, as often as a start can bear.
pub(crate) async fn tried<T, F: Future<Output = Result<T>>>(env: &Env, ask: impl Fn() -> F) -> Result<T> {
    for _ in 1..TRIES {
        match ask().await {
            Err(error) if matches!(error.kind, ErrorKind::Unavailable | ErrorKind::Unknown) => {}
            result => return result,
        }
        env.clock.sleep(PAUSE).await;
    }
    ask().await
}
