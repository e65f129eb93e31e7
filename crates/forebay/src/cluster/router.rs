//! Who is the home of a path, as this worker has last seen it.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use forebay_cache::Taker;
use forebay_cluster::{Member, MemberState, View, WorkerId};
use forebay_env::Clock;
use forebay_env::sync::Mutex;
use forebay_peers::Members;
use forebay_types::ObjectPath;
use tokio::sync::watch;

pub(crate) struct Router {
    own: WorkerId,
    /// `None` before the first look.
    view: watch::Sender<Option<View>>,
    clock: Arc<dyn Clock>,
    /// When that was seen, in the time of the clock.
    seen_at: Mutex<Duration>,
}

impl Router {
    pub(crate) fn new(own: WorkerId, clock: Arc<dyn Clock>) -> Self {
        let seen_at = Mutex::new(clock.monotonic());
        Self { own, view: watch::Sender::new(None), clock, seen_at }
    }

    pub(crate) fn own(&self) -> &str {
        self.own.as_str()
    }

    pub(crate) fn show(&self, view: View) {
        self.view.send_replace(Some(view));
        *self.seen_at.lock() = self.clock.monotonic();
    }

    /// How old is what was seen last.
    pub(crate) fn age(&self) -> Duration {
        self.clock.monotonic().saturating_sub(*self.seen_at.lock())
    }

    /// Returns when this worker is not the home of the path any more, as far as is known here.
    pub(crate) async fn until_moved(&self, path: &ObjectPath, worker: &str) {
        let is_home = |view: &View| view.homes.home_of(path).is_some_and(|home| home.as_str() == worker);
        let mut views = self.view.subscribe();
        // The sender lives as long as this.
        let _ = views.wait_for(|view| !view.as_ref().is_some_and(is_home)).await;
    }

    /// Where S3 clients reach a worker that lives.
    pub(crate) fn s3_address(&self, worker: &str) -> Option<String> {
        self.with(|view| {
            let member = view.members.iter().find(|(name, member)| name.as_str() == worker && member.state.lives());
            member.and_then(|(_, member)| member.addresses.as_ref()?.s3.clone())
        })
        .flatten()
    }

    /// What was seen last.
    pub(crate) fn view(&self) -> Option<View> {
        self.view.borrow().clone()
    }

    /// Returns when no other worker is seen that lives and is not draining.
    pub(crate) async fn until_nobody_stays(&self) {
        self.until_stay(false).await;
    }

    /// The reverse.
    pub(crate) async fn until_somebody_stays(&self) {
        self.until_stay(true).await;
    }

    async fn until_stay(&self, stay: bool) {
        let stays = |(name, member): (&WorkerId, &Member)| *name != self.own && member.state == MemberState::Live;
        let mut views = self.view.subscribe();
        // The sender lives as long as this.
        let _ = views.wait_for(|view| view.as_ref().is_some_and(|view| view.members.iter().any(stays) == stay)).await;
    }

    fn with<T>(&self, look: impl FnOnce(&View) -> T) -> Option<T> {
        self.view.borrow().as_ref().map(look)
    }
}

#[async_trait]
impl Members for Router {
    fn address(&self, worker: &str) -> Option<String> {
        self.with(|view| {
            let member = view.members.iter().find(|(name, _)| name.as_str() == worker);
            member.and_then(|(_, member)| member.addresses.as_ref()).map(|addresses| addresses.peers.clone())
        })
        .flatten()
    }

    fn home(&self, hash: u64) -> Option<String> {
        self.with(|view| view.homes.home_of_hash(hash).filter(|home| **home != self.own).map(WorkerId::to_string))
            .flatten()
    }

    fn others(&self) -> Vec<String> {
        let lives = |(name, member): &(&WorkerId, &Member)| **name != self.own && member.state.lives();
        self.with(|view| view.members.iter().filter(lives).map(|(name, _)| name.to_string()).collect())
            .unwrap_or_default()
    }

    fn are_known(&self) -> bool {
        self.view.borrow().is_some()
    }

    fn takers(&self) -> Vec<Taker> {
        let taker = |(name, member): (&WorkerId, &Member)| {
            let stays = *name != self.own && member.state == MemberState::Live;
            stays.then(|| Taker { worker: name.to_string(), life: member.life })
        };
        self.with(|view| view.members.iter().filter_map(taker).collect()).unwrap_or_default()
    }

    fn is_removed(&self, worker: &str) -> bool {
        self.with(|view| view.removed.iter().any(|name| name.as_str() == worker)).unwrap_or(false)
    }

    fn away(&self) -> Option<String> {
        let is_away = |(name, member): &(&WorkerId, &Member)| **name != self.own && !member.state.lives();
        let away = self.with(|view| view.members.iter().find(is_away).map(|(name, _)| name.to_string()));
        match away {
            None => Some("the other workers are not known yet".to_owned()),
            Some(away) => away.map(|worker| format!("worker {worker} may have them, and does not run")),
        }
    }

    async fn until_gone(&self, worker: &str) {
        let lives = |view: &View| {
            let mut members = view.members.iter();
            members.any(|(name, member)| name.as_str() == worker && member.state.lives())
        };
        let mut views = self.view.subscribe();
        // The sender lives as long as this.
        let _ = views.wait_for(|view| !view.as_ref().is_some_and(lives)).await;
    }
}
