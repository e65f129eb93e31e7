//! A clock that advances only on request, and an engine that outlives the workers.

use std::sync::Arc;
use std::time::Duration;

use forebay_catalog::{Engine, Result};
use forebay_env::Env;
use forebay_env::clock::ManualClock;

use crate::layout::WorkerId;
use crate::stream::Stream;
use crate::test_engine::TestEngine;

pub(crate) const LEASE: Duration = Duration::from_secs(10);

/// The step by which the clock advances.
const STEP: Duration = Duration::from_millis(20);

pub(crate) struct Ground {
    pub(crate) env: Env,
    pub(crate) clock: Arc<ManualClock>,
    pub(crate) engine: Arc<TestEngine>,
}

impl Ground {
    pub(crate) fn new() -> Self {
        let (env, clock) = Env::simulated(1);
        Self { env, clock, engine: Arc::new(TestEngine::new(&[])) }
    }

    /// The same, as another worker has it.
    pub(crate) fn beside(&self) -> Self {
        Self { env: self.env.clone(), clock: Arc::clone(&self.clock), engine: Arc::new(self.engine.beside()) }
    }

    pub(crate) fn engine(&self) -> Arc<dyn Engine> {
        Arc::<TestEngine>::clone(&self.engine)
    }

    /// A life of a worker, of a process that has its data directories or not.
    pub(crate) async fn begin(&self, worker: &str, life: u64, is_own: bool) -> Result<Arc<Stream>> {
        let (env, engine, worker) = (self.env.clone(), self.engine(), WorkerId::new(worker)?);
        let begin = async move { Stream::begin(&env, engine, &worker, life, LEASE, |_| is_own).await };
        self.wait(begin).await.map(|(stream, _)| Arc::new(stream))
    }

    /// Advances the clock until the future ends.
    pub(crate) async fn wait<T: Send + 'static>(&self, future: impl Future<Output = T> + Send + 'static) -> T {
        let task = forebay_env::spawn(future);
        while !task.is_finished() {
            self.pass(STEP).await;
        }
        task.join().await
    }

    pub(crate) async fn pass(&self, period: Duration) {
        self.clock.advance(period);
        for _ in 0..50 {
            tokio::task::yield_now().await;
        }
    }
}
