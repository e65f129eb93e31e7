//! A client: sends one request after the other, and notes the answers.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use forebay_cache::{
    Attributes, Cache, CompletePart, CompleteUpload, Conditions, CopyObject, CreateUpload, Error, ErrorKind, GetObject,
    Incoming, JobKind, JobRequest, ListObjects, ObjectPage, PutObject, RangeRequest, Result, TagCondition,
    UndeliverableEnd, UploadRef, Written,
};
use forebay_catalog::Catalog;
use forebay_cluster::HomeCatalog;
use forebay_env::Clock;
use forebay_types::{ETag, ObjectPath, WriteMode};
use futures::{StreamExt, stream};
use tokio_util::sync::CancellationToken;

use crate::content::{Body, ContentId, TagsId, pieces, tags, tags_id};
use crate::history::{Effect, Guard, Value, Version};
use crate::machine::Machine;
use crate::plan::{BUCKET, OTHER_BUCKET, Op, PREFIXES, Step, When, bucket};
use crate::under_store::SimRoot;
use crate::world::World;

/// Of requests for keys that are at home at another worker, one in this many is sent.
const WRONG_RUNS: u64 = 20;

/// Between two reads of keys that are at home elsewhere at most, in milliseconds.
const READ_PAUSE_MAX_MS: u64 = 300;

/// Reads in a row under one lease, and one more.
const LEASED_READS: u64 = 4;

pub(crate) struct Client {
    world: Arc<World>,
    cache: Cache,
    root: SimRoot,
    number: usize,
    /// Where keys have different homes.
    homes: Option<Arc<HomeCatalog>>,
    /// The tag that this client saw last, by key.
    seen: HashMap<String, ETag>,
}

/// A full name in parts.
pub(crate) fn path(key: &str) -> ObjectPath {
    let (bucket, key) = key.split_once('/').expect("keys of plans are full names");
    ObjectPath::parse(bucket, key).expect("keys of plans are valid")
}

fn attributes(id: TagsId) -> Attributes {
    Attributes { tags: tags(id), ..Attributes::default() }
}

/// What an error of a write says of its effect.
enum Failed {
    /// Surely nothing was changed.
    Surely,
    /// A condition did not hold.
    Refused,
    /// It may have been done, or may yet be.
    Unknown,
}

fn failed(kind: ErrorKind) -> Option<Failed> {
    match kind {
        ErrorKind::PreconditionFailed => Some(Failed::Refused),
        ErrorKind::AccessDenied
        | ErrorKind::SlowDown
        // The under store refuses it.
        | ErrorKind::InvalidKey
        | ErrorKind::InsufficientStorage
        | ErrorKind::NoSuchBucket
        | ErrorKind::BucketBusy
        | ErrorKind::Moved
        | ErrorKind::Conflict => Some(Failed::Surely),
        ErrorKind::Unavailable => Some(Failed::Unknown),
        _ => None,
    }
}

fn is_absent(error: &Error) -> bool {
    matches!(error.kind, ErrorKind::NotFound | ErrorKind::NoSuchBucket)
}

impl Client {
    pub(crate) fn new(root: &SimRoot, cache: Cache, number: usize) -> Self {
        Self { world: root.world(), cache, root: root.clone(), number, homes: None, seen: HashMap::new() }
    }

    /// Asks for keys that are at home at this worker, but for a few.
    pub(crate) fn of(machine: &Machine, cache: Cache, number: usize) -> Self {
        let homes = machine.catalog.lock().clone().filter(|_| machine.config.is_shared());
        Self { homes, ..Self::new(&machine.root, cache, number) }
    }

    /// Whether another worker has to be asked. Reads are answered by any.
    fn is_for_another(&self, op: &Op) -> bool {
        if matches!(op, Op::Get { .. } | Op::Head { .. }) {
            return false;
        }
        let slots = self.homes.as_ref().and_then(|homes| homes.slots());
        let is_away = slots.is_some_and(|slots| op.keys().iter().any(|key| !slots.has_path(&path(key))));
        is_away && !self.world.once_in(WRONG_RUNS)
    }

    pub(crate) async fn run(mut self, steps: Vec<Step>) {
        for step in steps {
            if step.pause_ms > 0 {
                self.world.clock.sleep(Duration::from_millis(step.pause_ms)).await;
            }
            // The other worker is asked for that by its own clients. This one reads what they change.
            let op = match self.is_for_another(&step.op) {
                true => Op::Get { key: step.op.keys()[0].clone(), range: None, slow_ms: 0 },
                false => step.op,
            };
            self.world.note(format_args!("client {}: {op:?}", self.number));
            self.step(op).await;
        }
    }

    async fn step(&mut self, op: Op) {
        match op {
            Op::Put { key, body, tags, when, breaks, piece } => {
                self.put(&key, (body, tags), when, breaks, piece).await;
            }
            Op::Get { key, range, slow_ms } => {
                for pause_ms in self.begin_to_read(&key).await {
                    self.get(&key, range, slow_ms).await;
                    self.world.clock.sleep(Duration::from_millis(pause_ms)).await;
                }
            }
            Op::Head { key } => {
                for pause_ms in self.begin_to_read(&key).await {
                    self.head(&key).await;
                    self.world.clock.sleep(Duration::from_millis(pause_ms)).await;
                }
            }
            Op::Tags { key } => self.tags(&key).await,
            Op::SetTags { key, tags } => self.set_tags(&key, tags).await,
            Op::Delete { key, when } => self.delete(&key, when).await,
            Op::DeleteMany { keys } => self.delete_many(&keys).await,
            Op::List { prefix, delimiter, limit } => self.list(&prefix, delimiter, limit).await,
            Op::Copy { from, to } => self.copy(&from, &to).await,
            Op::Multipart { key, parts, tags, abort, twice } => {
                self.multipart(&key, (&parts, tags), abort, twice).await;
            }
            Op::Persist { prefix } => self.tell("persist", self.cache.persist(&prefix).await),
            Op::Job { kind } => self.job(kind).await,
            Op::GiveUp { keep } => self.give_up(keep).await,
            Op::Sweep => self.tell("sweep", self.cache.sweep().await),
            Op::Policy { prefix, mode } => self.set_policy(prefix, mode).await,
            Op::CreateBucket => self.tell("create bucket", self.cache.create_bucket(&bucket(OTHER_BUCKET)).await),
            Op::DeleteBucket => self.delete_bucket().await,
            Op::JumpWall { by_ms } => self.world.clock.jump_wall(by_ms),
        }
    }

    /// Notes an answer that promises nothing by itself.
    fn tell<T>(&self, what: &str, result: Result<T, impl Borrow<Error>>) {
        let answer = result.err().map(|error| error.borrow().kind);
        self.world.note(format_args!("client {}: {what} -> {answer:?}", self.number));
    }

    /// What a client asks for with a write, and what that means.
    fn conditions(&self, key: &str, when: When) -> (Conditions, Guard) {
        let none = Conditions::default();
        match (when, self.seen.get(key)) {
            (When::IfAbsent, _) => (Conditions { if_none_match: Some(TagCondition::Any), ..none }, Guard::Absent),
            (When::IfSeen, Some(etag)) => {
                let content = self.world.contents.lock().of_etag(etag).expect("what was seen is known");
                let tags = TagCondition::OneOf(vec![etag.clone()]);
                (Conditions { if_match: Some(tags), ..none }, Guard::Is(content))
            }
            (When::IfSeen, None) | (When::Always, _) => (none, Guard::None),
        }
    }

    fn incoming(&self, bytes: &Bytes, piece: usize, breaks: bool) -> Incoming {
        incoming(&self.world, bytes, piece, breaks)
    }

    async fn put(&mut self, key: &str, (body, tags): (Body, TagsId), when: When, breaks: bool, piece: usize) {
        let bytes = body.bytes();
        let content = self.world.contents.lock().add(bytes.clone());
        let (conditions, guard) = self.conditions(key, when);
        let breaks = breaks && !bytes.is_empty();
        let name = format!("client {} puts {content} ({} bytes, {guard:?})", self.number, bytes.len());
        let to = vec![Some(Version { content, tags })];
        let number = self.begin(key, name, &to, guard);
        let body = self.incoming(&bytes, piece, breaks);
        let put = PutObject { path: path(key), body, attributes: attributes(tags), conditions };
        let result = self.cache.put(put).await;
        if breaks {
            self.tell("broken put", result.as_ref());
            match result {
                Ok(_) => self.world.broken(format!("half of a body was taken for the whole: {key}")),
                Err(_) => self.world.history.lock().end_without_effect(number),
            }
            return;
        }
        if let Ok(written) = &result {
            self.shown(key, number, written.last_modified_ms);
        }
        self.written(key, number, to, guard, result);
    }

    /// Notes that a write begins that leaves one of these values. Returns its number.
    fn begin(&self, key: &str, name: String, to: &[Value], guard: Guard) -> u64 {
        self.world.history.lock().begin(self.root.machine, key, name, Effect::Maybe { to: to.to_vec(), guard })
    }

    /// Notes the outcome of a write that leaves one of these values, all of one content.
    fn written(&mut self, key: &str, number: u64, to: Vec<Value>, guard: Guard, result: Result<Written>) {
        if let Ok(written) = &result {
            let etag = written.etag.clone();
            let content = self.world.contents.lock().of_etag(&etag);
            if to.iter().any(|value| value.map(|version| version.content) != content) {
                self.world.broken(format!("a write of {key} was acknowledged with the tag {etag}"));
            }
            self.seen.insert(key.to_owned(), etag);
        }
        self.ended(key, number, Effect::Write { to, guard }, guard, result.map(drop));
    }

    fn ended(&self, key: &str, number: u64, effect: Effect, guard: Guard, result: Result<()>) {
        self.tell(&format!("write {number} of {key}"), result.as_ref());
        let mut history = self.world.history.lock();
        let error = match result {
            Ok(()) => return history.end(number, effect),
            Err(error) => error,
        };
        // If-Match on a key that holds nothing is answered with 404.
        let is_absent = error.kind == ErrorKind::NotFound && matches!(guard, Guard::Is(_));
        match failed(error.kind) {
            _ if is_absent => history.end(number, Effect::Refused(guard)),
            Some(Failed::Refused) if guard != Guard::None => history.end(number, Effect::Refused(guard)),
            Some(Failed::Surely) => history.end_without_effect(number),
            Some(Failed::Unknown) => history.end_without_answer(number),
            Some(Failed::Refused) | None => {
                history.end_without_answer(number);
                drop(history);
                self.unexpected(&format!("a write of {key}"), &error);
            }
        }
    }

    /// Only damage excuses errors of these kinds.
    fn unexpected(&self, what: &str, error: &Error) {
        let has = |what: &AtomicBool| !self.world.is_calm() && what.load(Ordering::Relaxed);
        let excused = match error.kind {
            // A part that is damaged at all workers is to be uploaded again.
            ErrorKind::Corrupt | ErrorKind::InvalidPart => {
                self.world.is_flipped() || has(&self.world.unreadable) || has(&self.world.lost)
            }
            // The last record of a log is lost with the bit, and the engine still has what it was for.
            ErrorKind::Internal | ErrorKind::Unavailable => self.world.is_flipped(),
            _ => false,
        };
        if !excused {
            self.world.broken(format!("{what} failed with {:?}: {error}", error.kind));
        }
    }

    /// Reads keys that are at home at another worker, until it is stopped.
    pub(crate) async fn read_elsewhere(mut self, stop: CancellationToken) {
        let Some(homes) = self.homes.clone() else { return };
        let keys: Vec<String> = self.world.keys.iter().cloned().collect();
        while !stop.is_cancelled() {
            self.world.clock.sleep(Duration::from_millis(self.world.below(READ_PAUSE_MAX_MS))).await;
            let key = &keys[self.world.below(keys.len() as u64) as usize];
            if homes.slots().is_some_and(|slots| !slots.has_path(&path(key))) {
                self.cache.obtain_lease(&path(key)).await;
                self.get(key, None, 0).await;
            }
        }
    }

    /// The pauses after reads in a row: of one, or of several under a read lease when the key is at home elsewhere.
    async fn begin_to_read(&self, key: &str) -> Vec<u64> {
        let more = match self.cache.obtain_lease(&path(key)).await {
            true => self.world.below(LEASED_READS),
            false => 0,
        };
        (0..more).map(|_| self.world.below(1500)).chain([0]).collect()
    }

    async fn get(&mut self, key: &str, range: Option<(u32, u32)>, slow_ms: u64) {
        let begun = self.world.history.lock().now();
        let range = range.map(|(first, length)| {
            let first = u64::from(first);
            RangeRequest::From { first, last: Some(first + u64::from(length) - 1) }
        });
        let request = GetObject { range, ..GetObject::whole(path(key)) };
        let body = match self.cache.get(request).await {
            Ok(body) => body,
            Err(error) => return self.not_read(key, begun, &error),
        };
        let (etag, range) = (body.head.info.etag.clone(), body.head.range);
        let last_modified_ms = body.head.info.last_modified_ms;
        let Some(content) = self.content_of(key, &etag, body.head.info.size) else { return };
        let (read, end) = collect(slowly(body.stream, slow_ms, &self.world)).await;
        let expected = self.world.contents.lock().bytes(content).slice(range.start as usize..range.end as usize);
        let is_whole = end.is_ok();
        if (is_whole && read != expected) || !expected.starts_with(&read) {
            self.world.broken(format!("bytes of {key} are not those of {etag}, which they claim to be"));
        }
        match end {
            Ok(()) => {
                self.shown(key, begun, last_modified_ms);
                self.saw(key, begun, Some((content, etag)), "reads");
            }
            // An object that changes in the under store while it is read breaks the answer off.
            Err(error) if matches!(error.kind, ErrorKind::PreconditionFailed | ErrorKind::NotFound) => {
                self.tell(&format!("read of {key}, broken off"), Err::<(), _>(error));
            }
            Err(error) => self.not_read(key, begun, &error),
        }
    }

    async fn head(&mut self, key: &str) {
        let begun = self.world.history.lock().now();
        let request = GetObject::whole(path(key));
        match self.cache.head(request).await {
            Ok(head) => {
                let etag = head.info.etag.clone();
                let Some(content) = self.content_of(key, &etag, head.info.size) else { return };
                self.shown(key, begun, head.info.last_modified_ms);
                self.saw(key, begun, Some((content, etag)), "heads");
            }
            Err(error) => self.not_read(key, begun, &error),
        }
    }

    /// The content that a tag names.
    fn content_of(&self, key: &str, etag: &ETag, size: u64) -> Option<ContentId> {
        let contents = self.world.contents.lock();
        let found = contents.of_etag(etag).filter(|content| contents.bytes(*content).len() as u64 == size);
        drop(contents);
        if found.is_none() {
            self.world.broken(format!("{key} has the tag {etag} and {size} bytes: nobody has written that"));
        }
        found
    }

    fn saw(&mut self, key: &str, begun: u64, found: Option<(ContentId, ETag)>, how: &str) {
        let value = found.as_ref().map(|(content, _)| *content);
        self.world.note(format_args!("client {}: {how} {key}: {value:?}", self.number));
        let name = format!("client {} {how} {value:?}", self.number);
        self.world.history.lock().read(key, name, begun, Effect::Read(value));
        match found {
            Some((_, etag)) => self.seen.insert(key.to_owned(), etag),
            None => self.seen.remove(key),
        };
    }

    /// The time of an object never goes back.
    fn shown(&self, key: &str, begun: u64, last_modified_ms: u64) {
        let later = self.world.history.lock().shown(key, begun, last_modified_ms);
        let is_excused = self.world.is_flipped() || self.world.reverted.load(Ordering::Relaxed);
        if let Some(later) = later.filter(|_| !is_excused) {
            self.world.broken(format!("{key} was modified at {later} ms, and at {last_modified_ms} ms afterwards"));
        }
    }

    async fn tags(&mut self, key: &str) {
        let begun = self.world.history.lock().now();
        match self.cache.tags(&path(key)).await {
            Ok(tags) => {
                let Some(tags) = tags_id(&tags) else {
                    return self.world.broken(format!("{key} has the tags {tags:?}: nobody has given it those"));
                };
                self.saw_tags(key, begun, Some(tags));
            }
            Err(error) if is_absent(&error) => self.saw_tags(key, begun, None),
            Err(error) => self.not_read(key, begun, &error),
        }
    }

    fn saw_tags(&self, key: &str, begun: u64, tags: Option<TagsId>) {
        self.world.note(format_args!("client {}: reads the tags of {key}: {tags:?}", self.number));
        let name = format!("client {} reads the tags {tags:?}", self.number);
        self.world.history.lock().read(key, name, begun, Effect::ReadTags(tags));
    }

    /// As an operator does with all that is undeliverable. What is dropped makes room for what the under store has.
    async fn give_up(&mut self, keep: bool) {
        // Each machine has an operator for what is at home there.
        let told = match self.cache.undeliverable_here("/", None, 1000).await {
            Ok(page) => page.objects,
            Err(error) => return self.tell("list what is undeliverable", Err::<(), _>(error)),
        };
        for told in told {
            // An operator thinks about it, while others write.
            self.world.clock.sleep(Duration::from_millis(self.world.below(4000))).await;
            let key = &told.path[1..];
            let path = path(key);
            if keep {
                let kept = self.cache.end_undeliverable_here(&path, told.generation, &UndeliverableEnd::Keep).await;
                self.tell(&format!("keep {key}"), kept);
                continue;
            }
            let held = self.root.held(&path).map(|(etag, tags)| {
                let content = self.world.contents.lock().of_etag(&etag).expect("nobody else writes there");
                Version { content, tags: tags_id(&tags).expect("nobody else gives tags") }
            });
            let name = format!("client {} discards generation {}", self.number, told.generation);
            let number = self.begin(key, name, &[held], Guard::None);
            // Without an answer it may be found to be done after the next start.
            self.world.history.lock().ignore_times(key);
            let result = self.cache.end_undeliverable_here(&path, told.generation, &UndeliverableEnd::Discard).await;
            self.tell(&format!("discard {key}"), result.as_ref().map(drop));
            let mut history = self.world.history.lock();
            match result {
                Ok(()) => {
                    history.end(number, Effect::Write { to: vec![held], guard: Guard::None });
                    history.forget_times(key);
                }
                Err(error) => match error.kind {
                    ErrorKind::Unavailable => history.end_without_answer(number),
                    // It has arrived, or was written again, or may yet land.
                    ErrorKind::NotFound | ErrorKind::Conflict | ErrorKind::SlowDown | ErrorKind::Moved => {
                        history.end_without_effect(number);
                    }
                    _ => {
                        history.end_without_answer(number);
                        drop(history);
                        self.unexpected(&format!("discarding {key}"), &error);
                    }
                },
            }
        }
    }

    async fn set_tags(&mut self, key: &str, id: TagsId) {
        let name = format!("client {} sets the tags {id}", self.number);
        let number = self.world.history.lock().begin(self.root.machine, key, name, Effect::MaybeRetag(id));
        match self.cache.set_tags(&path(key), tags(id)).await {
            Err(error) if is_absent(&error) => {
                self.world.history.lock().end_without_effect(number);
                self.saw_tags(key, number, None);
            }
            result => self.ended(key, number, Effect::Retag(id), Guard::None, result),
        }
    }

    fn not_read(&mut self, key: &str, begun: u64, error: &Error) {
        match error.kind {
            ErrorKind::NotFound | ErrorKind::NoSuchBucket => self.saw(key, begun, None, "reads"),
            ErrorKind::Unavailable | ErrorKind::SlowDown | ErrorKind::InsufficientStorage if !self.world.is_calm() => {
                self.tell(&format!("read of {key}"), Err::<(), _>(error));
            }
            ErrorKind::Unavailable | ErrorKind::Moved if self.world.is_shared => {
                self.tell(&format!("read of {key}"), Err::<(), _>(error));
            }
            ErrorKind::InvalidRange => {}
            // The under store answers 409 to what it does not like now.
            ErrorKind::Conflict => {}
            _ => self.unexpected(&format!("a read of {key}"), error),
        }
    }

    async fn delete(&mut self, key: &str, when: When) {
        let when = if when == When::IfAbsent { When::Always } else { when };
        let (conditions, guard) = self.conditions(key, when);
        let name = format!("client {} deletes ({guard:?})", self.number);
        let number = self.begin(key, name, &[None], guard);
        let result = self.cache.delete(&path(key), &conditions).await;
        self.ended(key, number, Effect::Write { to: vec![None], guard }, guard, result);
    }

    async fn delete_many(&self, keys: &[String]) {
        let delete = |key| async move {
            let number = self.begin(key, format!("client {} deletes among others", self.number), &[None], Guard::None);
            let result = self.cache.delete(&path(key), &Conditions::default()).await;
            let effect = Effect::Write { to: vec![None], guard: Guard::None };
            self.ended(key, number, effect, Guard::None, result);
        };
        futures::future::join_all(keys.iter().map(String::as_str).map(delete)).await;
    }

    async fn list(&mut self, prefix: &str, delimiter: bool, limit: usize) {
        let delimiter = delimiter.then(|| "/".to_owned());
        let mut after: Option<String> = None;
        // A page for each key, and one that is empty: there are no more.
        for _ in 0..=self.world.keys.len() {
            let request = ListObjects {
                prefix: prefix.to_owned(),
                delimiter: delimiter.clone(),
                start_after: after.clone(),
                limit,
                revalidates: false,
            };
            let begun = self.world.history.lock().now();
            let page = match self.cache.list(&bucket(BUCKET), &request).await {
                Ok(page) => page,
                Err(error) if self.world.is_calm() && error.kind != ErrorKind::NoSuchBucket => {
                    return self.unexpected("a listing", &error);
                }
                Err(error) => return self.tell("list", Err::<(), _>(error)),
            };
            self.listed(&request, begun, &page);
            match page.next {
                Some(next) => after = Some(next),
                None => return,
            }
        }
        self.world.broken("a listing does not end".to_owned());
    }

    /// What a page says of each key that belongs on it.
    fn listed(&mut self, request: &ListObjects, begun: u64, page: &ObjectPage) {
        self.world.note(format_args!("client {}: listed {} and {:?}", self.number, page.objects.len(), page.prefixes));
        let names: Vec<&str> = page.objects.iter().map(|object| object.key.as_str()).collect();
        if !names.is_sorted_by(|a, b| a < b) || !page.prefixes.is_sorted_by(|a, b| a < b) {
            self.world.broken(format!("a listing is not in order: {names:?}, {:?}", page.prefixes));
        }
        let world = Arc::clone(&self.world);
        let prefix = format!("{BUCKET}/");
        for full in world.keys.iter().filter(|full| full.starts_with(&prefix)) {
            let key = &full[prefix.len()..];
            let Some(rest) = key.strip_prefix(request.prefix.as_str()) else { continue };
            let group = request.delimiter.as_ref().and_then(|delimiter| rest.find(delimiter.as_str()));
            let name = group.map_or(key, |at| &key[..request.prefix.len() + at + 1]);
            let is_behind = request.start_after.as_deref().is_none_or(|after| name > after);
            let is_before = page.next.as_deref().is_none_or(|next| name <= next);
            if !is_behind || !is_before || page.prefixes.iter().any(|listed| listed == name) {
                continue;
            }
            match page.objects.iter().find(|object| object.key == key) {
                Some(object) => {
                    let Some(content) = self.content_of(full, &object.etag, object.size) else { return };
                    self.shown(full, begun, object.last_modified_ms);
                    self.saw(full, begun, Some((content, object.etag.clone())), "lists");
                }
                None => self.saw(full, begun, None, "lists"),
            }
        }
    }

    async fn copy(&mut self, from: &str, to: &str) {
        let name = format!("client {} copies {from}", self.number);
        let (begun, number) = {
            let mut history = self.world.history.lock();
            (history.now(), history.begin_copy(self.root.machine, from, to, name))
        };
        let request = CopyObject {
            source: path(from),
            source_conditions: Conditions::default(),
            target: path(to),
            replace_metadata: None,
            storage_class: None,
            website_redirect_location: None,
            replace_tags: None,
            checksum_algorithm: None,
            conditions: Conditions::default(),
        };
        match self.cache.copy(request).await {
            Ok(written) => {
                let Some(content) = self.content_of(from, &written.etag, written.size) else { return };
                let name = format!("client {} copies {content} to {to}", self.number);
                let mut history = self.world.history.lock();
                if !history.is_copy_of_parts(content) {
                    history.read(from, name, begun, Effect::Read(Some(content)));
                }
                let mut copies = history.copies_of(from);
                drop(history);
                copies.retain(|copy| copy.is_some_and(|version| version.content == content));
                self.shown(to, number, written.last_modified_ms);
                self.written(to, number, copies, Guard::None, Ok(written));
            }
            // The source, or its bucket, is not there.
            Err(error) if error.kind == ErrorKind::NotFound => {
                self.world.history.lock().end_without_effect(number);
                self.not_read(from, begun, &error);
            }
            Err(error) => self.written(to, number, Vec::new(), Guard::None, Err(error)),
        }
    }

    async fn multipart(&mut self, key: &str, (parts, tags): (&[Body], TagsId), abort: bool, twice: bool) {
        let create = CreateUpload {
            path: path(key),
            attributes: attributes(tags),
            checksum_algorithm: None,
            checksum_kind: None,
            owner: "owner".to_owned(),
        };
        let upload_id = match self.cache.create_upload(create).await {
            Ok(upload_id) => upload_id,
            Err(error) => return self.tell("create upload", Err::<(), _>(error)),
        };
        let upload = UploadRef { path: path(key), upload_id };
        // Other bytes than those of objects in one piece: the under store's tag, which names a version too, must not be
        // that of another.
        let part = |part: &Body| Body { size: part.size.max(1), seed: part.seed | 1 << 31 };
        let bodies: Vec<Bytes> = parts.iter().map(|body| part(body).bytes()).collect();
        let mut sent = Vec::new();
        for (bytes, number) in bodies.iter().zip(1..) {
            match self.cache.put_part(&upload, number, self.incoming(bytes, 4000, false)).await {
                Ok(written) => sent.push(CompletePart { number, etag: written.etag, checksums: Vec::new() }),
                Err(error) => return self.tell("put part", Err::<(), _>(error)),
            }
        }
        if abort {
            return self.tell("abort upload", self.cache.abort_upload(&upload).await);
        }
        let (content, copy) = self.world.contents.lock().add_parts(&bodies);
        self.world.history.lock().made_of_parts(content, copy);
        let name = format!("client {} completes an upload of {content}", self.number);
        let to = vec![Some(Version { content, tags })];
        let mut number = self.begin(key, name.clone(), &to, Guard::None);
        let mut result = self.complete(&upload, &sent).await;
        match &result {
            // What is acknowledged once is done once, whatever the second answer is.
            Ok(_) if twice => {
                if let Err(error) = self.complete(&upload, &sent).await {
                    self.tell("complete again", Err::<(), _>(error));
                }
            }
            // It may have been done. Like any other write that is tried again, it is done again then, also over what
            // came in between.
            Err(error) if twice => {
                self.tell("complete", Err::<(), _>(error));
                self.world.history.lock().end_without_answer(number);
                number = self.begin(key, name, &to, Guard::None);
                result = self.complete(&upload, &sent).await;
            }
            Ok(_) | Err(_) => {}
        }
        match result {
            Err(error) if error.kind == ErrorKind::NoSuchUpload => {
                self.world.history.lock().end_without_answer(number);
            }
            result => self.written(key, number, to, Guard::None, result),
        }
    }

    async fn complete(&self, upload: &UploadRef, parts: &[CompletePart]) -> Result<Written> {
        let request = CompleteUpload {
            upload: upload.clone(),
            parts: parts.to_vec(),
            checksums: Vec::new(),
            checksum_kind: None,
            size: None,
            conditions: Conditions::default(),
        };
        self.cache.complete_upload(request).await
    }

    async fn job(&self, kind: JobKind) {
        let path = format!("/{BUCKET}");
        let request = JobRequest { kind, path, rate_limit: None, concurrency: None, dry_run: false };
        self.tell("job", self.cache.create_job(request, "client").await);
    }

    async fn set_policy(&self, prefix: usize, mode: WriteMode) {
        let path = format!("/{BUCKET}/{}", PREFIXES[prefix]);
        let (present, version) = self.cache.policies();
        let mut rules = present.rules().to_vec();
        for rule in rules.iter_mut().filter(|rule| rule.path == path) {
            rule.write_mode = Some(mode);
        }
        // Operators of two machines see what the other one has changed.
        let expected = self.world.is_shared.then_some(version);
        let result = self.cache.set_policies(rules.clone(), expected, "client", "simulated").await;
        self.tell("policy", result.as_ref());
        if let Ok(version) = result
            && let Err(problem) = self.world.rules.lock().acknowledged(version, rules)
        {
            self.world.broken(problem);
        }
    }

    async fn delete_bucket(&mut self) {
        let begun = self.world.history.lock().now();
        let result = self.cache.delete_bucket(&bucket(OTHER_BUCKET)).await;
        if result.is_ok() {
            let world = Arc::clone(&self.world);
            for key in world.keys.iter().filter(|key| key.starts_with(OTHER_BUCKET)) {
                self.saw(key, begun, None, "deletes the bucket of");
            }
        }
        self.tell("delete bucket", result);
    }
}

/// A body that comes in pieces, or breaks off.
pub(crate) fn incoming(world: &World, bytes: &Bytes, piece: usize, breaks: bool) -> Incoming {
    let clock = Arc::clone(&world.clock);
    let stream = stream::iter(pieces(bytes, piece, breaks)).then(move |data| {
        let clock = Arc::clone(&clock);
        async move {
            clock.sleep(Duration::from_micros(100)).await;
            Ok(data)
        }
    });
    Incoming {
        stream: stream.boxed(),
        size: bytes.len() as u64,
        md5: None,
        sha256: None,
        checksums: Vec::new(),
        compute: Vec::new(),
        trailers: None,
    }
}

/// The same body, for a client that pauses before each piece.
fn slowly(body: forebay_cache::ByteStream, pause_ms: u64, world: &Arc<World>) -> forebay_cache::ByteStream {
    if pause_ms == 0 {
        return body;
    }
    let world = Arc::clone(world);
    let pause = move |piece| {
        let world = Arc::clone(&world);
        async move {
            world.clock.sleep(Duration::from_millis(pause_ms)).await;
            piece
        }
    };
    body.then(pause).boxed()
}

/// All bytes until the end, and whether that was a clean one.
pub(crate) async fn collect(mut stream: forebay_cache::ByteStream) -> (Bytes, Result<()>) {
    let mut data = Vec::new();
    while let Some(next) = stream.next().await {
        match next {
            Ok(bytes) => data.extend_from_slice(&bytes),
            Err(error) => return (data.into(), Err(error)),
        }
    }
    (data.into(), Ok(()))
}
