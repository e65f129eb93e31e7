//! All members of etcd. Calls go to one of them for as long as it answers, and then to the next.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use forebay_env::{Clock, Env};

use crate::failure::{CallError, What};
use crate::login::Login;
use crate::member::Member;
use crate::messages::{Answer, Call, Range};
use crate::{EtcdSettings, InvalidSetting};

/// A call asks no other member when this many times the time of one has passed. The next call begins where it ended.
const SILENT_MAX: u32 = 2;

pub(crate) struct Members {
    clock: Arc<dyn Clock>,
    members: Vec<Member>,
    /// That calls go to.
    present: AtomicUsize,
    /// Of a call.
    call_timeout: Duration,
    login: Option<Login>,
    /// That the first answer named. Endpoints of two clusters would be two engines.
    cluster: OnceLock<u64>,
    /// The highest of all answers.
    revision: AtomicU64,
    /// Which a user who may do anything here may read.
    probed: Bytes,
}

impl Members {
    /// Connects to nobody yet.
    pub(crate) fn new(env: &Env, settings: &EtcdSettings) -> Result<Self, InvalidSetting> {
        let connections = settings.connections()?.into_iter();
        let members: Vec<_> = connections.map(|to| Member::new(to, settings.request_timeout)).collect();
        // Not all workers begin with the same one.
        let first = env.random.next_u64() as usize % members.len();
        Ok(Self {
            clock: Arc::clone(&env.clock),
            members,
            present: AtomicUsize::new(first),
            call_timeout: SILENT_MAX * settings.request_timeout,
            login: settings.user.clone().map(Login::new),
            cluster: OnceLock::new(),
            revision: AtomicU64::new(0),
            probed: settings.key_prefix()?,
        })
    }

    pub(crate) fn all(&self) -> &[Member] {
        &self.members
    }

    /// A transaction that is sent from now on gets a higher one.
    pub(crate) fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// A request that may be done any number of times: other members are asked when one does not answer.
    pub(crate) async fn ask<C: Call>(&self, request: &C) -> Result<C::Answer, CallError> {
        let (mut failure, until) = (None, self.until());
        for _ in self.tries(until) {
            let index = self.present.load(Ordering::Relaxed);
            match self.call(&self.members[index], request).await {
                Err(other) if matches!(other.what, What::NotDone | What::NoAnswer) => {
                    self.failed(index, &other);
                    failure = Some(other);
                }
                result => return result,
            }
        }
        Err(failure.unwrap_or_else(none_asked))
    }

    /// A request that must not be done twice: it is sent again only after a member has surely not done it. It goes to
    /// members that are well, so that one which hangs is met by a probe first.
    pub(crate) async fn send_once<C: Call>(&self, request: &C) -> Result<C::Answer, CallError> {
        let (mut failure, until) = (None, self.until());
        for _ in self.tries(until) {
            let index = self.well(until).await?;
            match self.call(&self.members[index], request).await {
                Err(other) if other.what == What::NotDone => {
                    self.failed(index, &other);
                    failure = Some(other);
                }
                Err(other) => {
                    if other.what == What::NoAnswer {
                        self.failed(index, &other);
                    }
                    return Err(other);
                }
                Ok(answer) => return Ok(answer),
            }
        }
        Err(failure.unwrap_or_else(none_asked))
    }

    /// The revision of etcd now. Members without a leader can't tell.
    pub(crate) async fn probe(&self) -> Result<u64, CallError> {
        self.ask(&self.probe_request()).await.map(|found| found.revision())
    }

    /// A member that answers, and that has a leader.
    async fn well(&self, until: Duration) -> Result<usize, CallError> {
        let mut failure = None;
        for _ in self.tries(until) {
            let index = self.present.load(Ordering::Relaxed);
            if self.members[index].is_well(&*self.clock) {
                return Ok(index);
            }
            match self.call(&self.members[index], &self.probe_request()).await {
                Ok(_) => return Ok(index),
                Err(CallError { what: What::NotDone | What::NoAnswer, text }) => {
                    let other = CallError::new(What::NotDone, text);
                    self.failed(index, &other);
                    failure = Some(other);
                }
                Err(other) => return Err(other),
            }
        }
        Err(failure.unwrap_or_else(none_asked))
    }

    fn probe_request(&self) -> Range {
        Range { key: self.probed.clone(), keys_only: true, ..Range::default() }
    }

    /// Each member once, and the first once more: its connection may have been an old one.
    fn tries(&self, until: Duration) -> impl Iterator<Item = usize> {
        (0..=self.members.len()).take_while(move |number| *number == 0 || self.clock.monotonic() < until)
    }

    fn until(&self) -> Duration {
        self.clock.monotonic() + self.call_timeout
    }

    /// Asks this member, with a new token where etcd refuses the one that is there.
    pub(crate) async fn call<C: Call>(&self, member: &Member, request: &C) -> Result<C::Answer, CallError> {
        let clock = &*self.clock;
        let answer = match &self.login {
            None => member.call(clock, request.clone(), None).await,
            Some(login) => {
                let token = login.token(clock, member, None).await?;
                match member.call(clock, request.clone(), token.clone()).await {
                    Err(failure) if failure.what == What::Token => {
                        let token = login.token(clock, member, Some(&token)).await?;
                        member.call(clock, request.clone(), token).await
                    }
                    answer => answer,
                }
            }
        }?;
        self.check_cluster(&answer)?;
        member.has_answered(clock);
        self.revision.fetch_max(answer.revision(), Ordering::AcqRel);
        Ok(answer)
    }

    /// A probe finds out before a transaction is sent: see [`Members::send_once`].
    fn check_cluster(&self, answer: &impl Answer) -> Result<(), CallError> {
        let Some(found) = answer.header().map(|header| header.cluster_id) else { return Ok(()) };
        let known = *self.cluster.get_or_init(|| found);
        match found == known {
            true => Ok(()),
            false => {
                let problem = format!("it is of another etcd cluster: {found:x}, and the others are of {known:x}");
                Err(CallError::new(What::NoAnswer, problem))
            }
        }
    }

    /// The next one is asked from now on, unless somebody else has seen that, too.
    fn failed(&self, index: usize, failure: &CallError) {
        self.members[index].failed(failure);
        let next = (index + 1) % self.members.len();
        let _ = self.present.compare_exchange(index, next, Ordering::Relaxed, Ordering::Relaxed);
    }
}

fn none_asked() -> CallError {
    CallError::new(What::NotDone, "no member of etcd was asked")
}
