//! Refusals by the under store: the keys themselves, for operators, and the traits that refused objects share.
//!
//! A write with such a trait is acknowledged only when the under store has it, see [`Refusals::concern`]. Forebay
//! therefore refuses nothing that the under store would accept, and one success is enough to forget the trait. In
//! memory only: after a restart, the first attempt of each waiting object shows the same again.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Bound;

use forebay_catalog::records::{ObjectRecord, State};
use forebay_env::sync::Mutex;
use forebay_env::sync::atomic::{AtomicBool, Ordering};
use forebay_types::{BucketName, Generation, ObjectPath};
use forebay_ufs::ErrorKind as UfsKind;
use prometheus_client::metrics::gauge::Gauge;

use crate::scope::Scope;

/// An object counts as undeliverable after this many refusals, because a single one may come from a proxy.
const UNDELIVERABLE_TRIES: u32 = 3;

/// Bytes that are kept of the under store's error message.
const REASON_BYTES_MAX: usize = 300;

/// A longer component does not fit into a file name (`NAME_MAX` of Linux), and many stores keep objects as files.
const COMPONENT_BYTES_MAX: usize = 255;

/// An object that could not be persisted for a reason of its own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The version that was refused last. `None` when a newer version waits that has not been tried yet.
    pub(crate) generation: Option<Generation>,
    /// Time of the first of the consecutive refusals, in milliseconds since the Unix epoch.
    pub(crate) since_ms: u64,
    pub(crate) tries: u32,
    /// The reason of the last refusal.
    pub(crate) reason: Box<str>,
}

impl Refusal {
    fn is_final(&self) -> bool {
        self.tries >= UNDELIVERABLE_TRIES && self.generation.is_some()
    }
}

/// A trait for which a store may refuse an object, and which a write shows before its body is here.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Trait {
    /// `/a`
    LeadingSlash,
    /// `a/`
    TrailingSlash,
    /// `a//b`
    EmptyComponent,
    /// `a/./b` or `a/../b`
    DotComponent,
    LongComponent,
    /// Characters that some file systems do not allow.
    OddCharacter,
    StorageClass(String),
}

fn traits(path: &ObjectPath, storage_class: Option<&str>) -> impl Iterator<Item = Trait> {
    let key = path.key.as_str();
    let any = |is: fn(&str) -> bool| key.split('/').any(is);
    let is_odd = |character: char| character.is_control() || r#"\:*?"<>|"#.contains(character);
    let of_key = [
        (key.starts_with('/'), Trait::LeadingSlash),
        (key.ends_with('/'), Trait::TrailingSlash),
        (key.contains("//"), Trait::EmptyComponent),
        (any(|component| matches!(component, "." | "..")), Trait::DotComponent),
        (any(|component| component.len() > COMPONENT_BYTES_MAX), Trait::LongComponent),
        (key.contains(is_odd), Trait::OddCharacter),
    ];
    let of_key = of_key.into_iter().filter_map(|(has, name)| has.then_some(name));
    of_key.chain(storage_class.map(|class| Trait::StorageClass(class.to_owned())))
}

pub(crate) struct Refusals {
    keys: Mutex<BTreeMap<ObjectPath, Refusal>>,
    /// Whether `keys` has entries, because most changes find none.
    has_keys: AtomicBool,
    /// Counts the keys that are final.
    undeliverable: Gauge,
    traits: Mutex<HashMap<BucketName, HashSet<Trait>>>,
    /// Whether `traits` has entries, because most writes find none.
    has_traits: AtomicBool,
}

impl Refusals {
    pub(crate) fn new(undeliverable: Gauge) -> Self {
        Self {
            keys: Mutex::default(),
            has_keys: AtomicBool::new(false),
            undeliverable,
            traits: Mutex::default(),
            has_traits: AtomicBool::new(false),
        }
    }

    /// Counts a failed attempt for which the object itself is the cause. The caller holds the key's upload lock.
    pub(crate) fn add(&self, path: &ObjectPath, generation: Generation, now_ms: u64, reason: &str) {
        let mut keys = self.keys.lock();
        self.has_keys.store(true, Ordering::SeqCst);
        let first = Refusal { generation: None, since_ms: now_ms, tries: 0, reason: "".into() };
        let refusal = keys.entry(path.clone()).or_insert(first);
        let was_final = refusal.is_final();
        refusal.generation = Some(generation);
        refusal.tries = refusal.tries.saturating_add(1);
        refusal.reason = reason[..reason.floor_char_boundary(REASON_BYTES_MAX)].into();
        self.count(was_final, refusal.is_final());
    }

    /// Called after each commit that changes the record of a key, while its lock is held. The refusal of a version does
    /// not apply to a newer one until that is refused as well.
    pub(crate) fn changed(&self, path: &ObjectPath, after: Option<&ObjectRecord>) {
        if !self.has_keys.load(Ordering::SeqCst) {
            return;
        }
        let waiting = after.filter(|record| matches!(record.state, State::Dirty | State::Tombstone));
        let mut keys = self.keys.lock();
        let Some(refusal) = keys.get_mut(path) else { return };
        let was_final = refusal.is_final();
        match waiting {
            Some(record) if refusal.generation == Some(record.generation) => return,
            Some(_) => refusal.generation = None,
            None => drop(keys.remove(path)),
        }
        self.has_keys.store(!keys.is_empty(), Ordering::SeqCst);
        self.count(was_final, false);
    }

    fn count(&self, was_final: bool, is_final: bool) {
        self.undeliverable.inc_by(i64::from(is_final) - i64::from(was_final));
    }

    /// Whether this version has been refused often enough.
    pub(crate) fn is_undeliverable(&self, path: &ObjectPath, generation: Generation) -> bool {
        let keys = self.keys.lock();
        keys.get(path).is_some_and(|refusal| refusal.is_final() && refusal.generation == Some(generation))
    }

    pub(crate) fn undeliverable(&self) -> u64 {
        self.undeliverable.get() as u64
    }

    /// The next key of a scope after `after`, in order.
    pub(crate) fn next(&self, scope: &Scope, after: Option<&ObjectPath>) -> Option<(ObjectPath, Refusal)> {
        let keys = self.keys.lock();
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut range = keys.range::<ObjectPath, _>((from, Bound::Unbounded));
        let found = range.find(|(path, refusal)| refusal.is_final() && scope.contains(path));
        found.map(|(path, refusal)| (path.clone(), refusal.clone()))
    }

    /// The under store has refused this object for a reason of this kind. Only the first refusal of an object counts:
    /// later ones add nothing, and similar objects may have been accepted since.
    pub(crate) fn learn(&self, path: &ObjectPath, storage_class: Option<&str>, kind: UfsKind) {
        if self.keys.lock().contains_key(path) {
            return;
        }
        let is_blamed = |name: &Trait| match kind {
            UfsKind::InvalidName => !matches!(name, Trait::StorageClass(_)),
            UfsKind::InvalidStorageClass => matches!(name, Trait::StorageClass(_)),
            _ => false,
        };
        let blamed: Vec<_> = traits(path, storage_class).filter(is_blamed).collect();
        if blamed.is_empty() {
            return;
        }
        tracing::info!(%path, ?blamed, "the under store refuses this object: similar objects are written through from now on");
        let mut learned = self.traits.lock();
        learned.entry(path.bucket.clone()).or_default().extend(blamed);
        self.has_traits.store(true, Ordering::Relaxed);
    }

    /// The under store has accepted this object.
    pub(crate) fn unlearn(&self, path: &ObjectPath, storage_class: Option<&str>) {
        if !self.has_traits.load(Ordering::Relaxed) {
            return;
        }
        let mut learned = self.traits.lock();
        if let Some(known) = learned.get_mut(&path.bucket) {
            let taken: HashSet<_> = traits(path, storage_class).collect();
            known.retain(|name| !taken.contains(name));
        }
        self.has_traits.store(learned.values().any(|known| !known.is_empty()), Ordering::Relaxed);
    }

    /// Whether a similar object was refused. A write is then acknowledged only when the under store has it. A write
    /// that replaces a refused version is an exception: the new version may be accepted.
    pub(crate) fn concern(&self, path: &ObjectPath, storage_class: Option<&str>) -> bool {
        if !self.has_traits.load(Ordering::Relaxed) || self.keys.lock().contains_key(path) {
            return false;
        }
        let learned = self.traits.lock();
        let known = learned.get(&path.bucket).filter(|known| !known.is_empty());
        known.is_some_and(|known| traits(path, storage_class).any(|name| known.contains(&name)))
    }
}

#[cfg(test)]
mod tests {
    use forebay_catalog::records::{Base, Holders};
    use forebay_types::ETag;

    use super::*;

    fn path(key: &str) -> ObjectPath {
        ObjectPath::parse("bucket", key).expect("a path")
    }

    #[test]
    fn what_an_object_shares_with_one_that_was_refused_concerns_it() {
        let refusals = Refusals::new(Gauge::default());
        let concerned = |key: &str, class: Option<&str>| refusals.concern(&path(key), class);
        assert!(!concerned("a//b", None));
        refusals.learn(&path("a//b"), Some("COLD"), UfsKind::InvalidName);
        assert!(concerned("c//d", None) && !concerned("plain", Some("COLD")), "the class is not to blame");
        refusals.learn(&path("e//f:"), Some("COLD"), UfsKind::InvalidStorageClass);
        assert!(concerned("plain", Some("COLD")) && !concerned(":", None), "nor is the name");
        refusals.learn(&path("/e/"), None, UfsKind::Invalid);
        assert!(!concerned("/c", None) && !concerned("c/", None) && !concerned("plain", Some("OTHER")));
        assert!(!refusals.concern(&ObjectPath::parse("another", "a//b").unwrap(), None), "of another bucket");
        refusals.unlearn(&path("plain"), Some("COLD"));
        assert!(!concerned("plain", Some("COLD")) && concerned("c//d", None));
        refusals.unlearn(&path("x//y"), None);
        assert!(!concerned("c//d", None));
    }

    #[test]
    fn an_object_teaches_once_and_does_not_concern_itself() {
        let refusals = Refusals::new(Gauge::default());
        refusals.learn(&path("a//b"), None, UfsKind::InvalidName);
        refusals.add(&path("a//b"), Generation(1), 0, "no");
        assert!(refusals.concern(&path("c//d"), None) && !refusals.concern(&path("a//b"), None));
        refusals.unlearn(&path("x//y"), None);
        refusals.learn(&path("a//b"), None, UfsKind::InvalidName);
        assert!(!refusals.concern(&path("c//d"), None));
    }

    #[test]
    fn every_trait_is_told_from_plain_keys() {
        let of = |key: &str| traits(&path(key), None).collect::<Vec<_>>();
        for plain in ["a", "a/b", "a/.hidden/b", "a/b..c", &"x".repeat(255), "é/ü"] {
            assert_eq!(of(plain), [], "{plain}");
        }
        let cases = [
            ("/a", Trait::LeadingSlash),
            ("a/", Trait::TrailingSlash),
            ("a//b", Trait::EmptyComponent),
            ("a/./b", Trait::DotComponent),
            ("a/..", Trait::DotComponent),
            (&"x".repeat(256), Trait::LongComponent),
            ("a\\b", Trait::OddCharacter),
            ("a\nb", Trait::OddCharacter),
        ];
        for (key, expected) in cases {
            assert_eq!(of(key), [expected], "{key}");
        }
    }

    fn record(state: State, generation: u64) -> ObjectRecord {
        ObjectRecord {
            state,
            generation: Generation(generation),
            dirty_since_ms: 0,
            dirty_since: Generation(1),
            size: 1,
            etag: ETag::new("e"),
            last_modified_ms: 0,
            storage_class: None,
            base: Base::Unknown,
            holders: Holders::default(),
        }
    }

    #[test]
    fn some_refusals_in_a_row_make_an_object_undeliverable() {
        let gauge = Gauge::default();
        let refusals = Refusals::new(gauge.clone());
        let everything = Scope::parse("/").unwrap();
        let (a, b) = (path("a"), path("b"));
        for try_ms in 1..=u64::from(UNDELIVERABLE_TRIES) {
            assert_eq!((gauge.get(), refusals.next(&everything, None)), (0, None));
            refusals.add(&b, Generation(5), try_ms, &"é".repeat(REASON_BYTES_MAX));
        }
        refusals.add(&a, Generation(6), 7, "no");
        let (found, refusal) = refusals.next(&everything, None).expect("it is final");
        assert_eq!((gauge.get(), &found), (1, &b));
        assert_eq!((refusal.since_ms, refusal.tries, refusal.reason.len()), (1, UNDELIVERABLE_TRIES, REASON_BYTES_MAX));
        assert_eq!(refusals.next(&everything, Some(&b)), None);
        assert_eq!(refusals.next(&Scope::parse("/bucket/a").unwrap(), None), None);
        refusals.changed(&b, None);
        refusals.changed(&a, Some(&record(State::Transient, 6)));
        assert_eq!((gauge.get(), refusals.next(&everything, None)), (0, None));
        assert!(refusals.keys.lock().is_empty());
    }

    #[test]
    fn a_newer_version_is_undeliverable_when_it_has_been_refused_as_well() {
        let gauge = Gauge::default();
        let refusals = Refusals::new(gauge.clone());
        let a = path("a");
        let is_told = |generation| refusals.is_undeliverable(&a, Generation(generation));
        (0..UNDELIVERABLE_TRIES).for_each(|_| refusals.add(&a, Generation(5), 0, "no"));
        refusals.changed(&a, Some(&record(State::Dirty, 5)));
        assert_eq!((gauge.get(), is_told(5), is_told(6)), (1, true, false), "its record is the same");
        for state in [State::Dirty, State::Tombstone] {
            refusals.changed(&a, Some(&record(state, 6)));
            assert_eq!((gauge.get(), is_told(5), is_told(6)), (0, false, false));
            refusals.add(&a, Generation(6), 0, "no");
            assert_eq!((gauge.get(), is_told(5), is_told(6)), (1, false, true));
            refusals.changed(&a, Some(&record(State::Dirty, 7)));
        }
    }
}
