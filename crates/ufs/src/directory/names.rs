//! The names in a directory in the order of keys, as a listing takes them. The names of large directories are kept from
//! page to page.
//!
//! A directory returns its names in no order, so getting the next thousand means reading all of them. For a directory
//! with a million names that takes half a second, and a thousand pages need it. So a long stretch of names is kept. It
//! is trusted while the directory shows the times at which it was read. File systems count these times in steps of up
//! to two seconds, and a change in the same step as the read would not show. So a stretch is kept only when the same
//! times had been seen a while before.

use std::collections::{HashMap, VecDeque};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use forebay_env::Env;
use parking_lot::Mutex;
use rustix::fs::FileType;

use super::errors::{failed, is_absent};
use super::own::{OWN_DIRECTORY, is_of_removed};
use super::paths::{self, Name, parse};
use super::tree::{Directory, Tree};
use crate::Result;

/// Most bytes that are kept in all.
const KEPT_BYTES_MAX: usize = 32 << 20;

/// Most directories that are remembered.
const DIRECTORIES_MAX: usize = 64;

/// How often a name that is not UTF-8 is reported, at most.
const REPORT_INTERVAL: Duration = Duration::from_secs(600);

/// How long a directory must have shown the same times. FAT counts in steps of two seconds, and no other file system in
/// longer ones.
const STEADY: Duration = Duration::from_secs(3);

/// File systems that change the times of a directory with its names. Others may not, such as those in front of an
/// object store, and network file systems may show old times with new names. The numbers are from statfs(2).
const TRUSTED: [u64; 7] = [
    0xEF53,      // ext2, ext3, ext4
    0x5846_5342, // XFS
    0x9123_683E, // Btrfs
    0x2FC1_2FC1, // ZFS
    0xF2F5_2010, // F2FS
    0xCA45_1A4E, // bcachefs
    0x0102_1994, // tmpfs
];

/// What is kept.
#[derive(Debug, Clone, Copy)]
struct Rule {
    /// The names of smaller directories are read again each time.
    large: usize,
    /// Number of names in a kept stretch.
    stretch: usize,
    trusts: fn(u64) -> bool,
}

const RULE: Rule = Rule { large: 1 << 12, stretch: 1 << 16, trusts: |kind| TRUSTED.contains(&kind) };

/// A file, or a directory on the way to one. They sort by what they add to a key. One component may have several: ours,
/// and one of another program.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Entry {
    /// Ends with `/` for a directory.
    pub(super) component: Box<str>,
    /// Where it is in its directory. `None` when the component says that.
    path: Option<Box<str>>,
}

/// Names of a directory from one name on, without gaps.
#[derive(Debug)]
pub(super) struct Stretch {
    /// The first component that it might hold.
    from: Box<str>,
    entries: Vec<Entry>,
    /// Whether more names follow the last one.
    pub(super) is_cut: bool,
    /// Bytes that it takes in memory.
    bytes: usize,
}

/// The times that a directory shows while nothing in it changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Times {
    modified: (i64, i64),
    changed: (i64, i64),
}

/// A large directory.
struct Known {
    times: Times,
    /// When these times were first seen, on the monotonic clock.
    since: Duration,
    stretches: VecDeque<Arc<Stretch>>,
    /// The value of [`State::uses`] at the last use.
    used: u64,
}

/// What is kept of all directories of an under store. Clones share it.
#[derive(Clone)]
pub(crate) struct Kept {
    rule: Rule,
    state: Arc<Mutex<State>>,
}

impl Default for Kept {
    fn default() -> Self {
        Self { rule: RULE, state: Arc::default() }
    }
}

#[derive(Default)]
struct State {
    /// By device and inode.
    known: HashMap<(u64, u64), Known>,
    uses: u64,
    bytes: usize,
    /// When a name that is not UTF-8 was last reported.
    reported: Option<Duration>,
}

/// The names of several directories in one order.
pub(super) struct Merge<'a> {
    /// By directory, what is left.
    rests: Vec<(&'a Path, &'a [Entry])>,
}

impl<'a> Merge<'a> {
    /// The names from `from` on.
    pub(super) fn new(directories: &'a [(&'a Path, Arc<Stretch>)], from: &str) -> Self {
        let rests = directories.iter().map(|(path, names)| (*path, names.entries_from(from)));
        Self { rests: rests.collect() }
    }

    /// The next component. Moves all entries that have it to `found`: the first one is the file that counts, or they
    /// are all directories.
    pub(super) fn next(&mut self, found: &mut Vec<(&'a Path, &'a Entry)>) -> Option<&'a str> {
        found.clear();
        let firsts = self.rests.iter().filter_map(|&(_, rest)| rest.first());
        let component = firsts.map(|entry| &*entry.component).min()?;
        for (path, rest) in &mut self.rests {
            let same = rest.iter().take_while(|entry| *entry.component == *component).count();
            let (these, others) = rest.split_at(same);
            found.extend(these.iter().map(|entry| (*path, entry)));
            *rest = others;
        }
        Some(component)
    }
}

/// Collects the first `max` names from `from` on.
struct Collector<'a> {
    from: &'a str,
    max: usize,
    /// At most twice as many as wanted, in no order.
    held: Vec<Entry>,
    /// The last component that is wanted, once more have come than are wanted.
    last: Option<Box<str>>,
    seen: usize,
    /// Some of the names are in directories of their own.
    is_spread: bool,
    /// A name that is not UTF-8, and so no key.
    unreadable: Option<Vec<u8>>,
}

impl Entry {
    pub(super) fn is_directory(&self) -> bool {
        self.component.ends_with('/')
    }

    pub(super) fn path(&self) -> &Path {
        let component = &*self.component;
        Path::new(self.path.as_deref().unwrap_or_else(|| component.strip_suffix('/').unwrap_or(component)))
    }

    /// Among those with the same component.
    fn rank(&self) -> u8 {
        let component = self.component.strip_suffix('/').unwrap_or(&self.component);
        let name = self.path().file_name().and_then(|name| name.to_str()).unwrap_or_default();
        paths::rank(component, name, self.is_directory())
    }
}

impl Stretch {
    fn new(from: &str, entries: Vec<Entry>, is_cut: bool) -> Self {
        let of = |entry: &Entry| entry.component.len() + entry.path.as_ref().map_or(0, |path| path.len());
        let texts: usize = entries.iter().map(of).sum();
        let bytes = size_of::<Self>() + from.len() + entries.len() * size_of::<Entry>() + texts;
        Self { from: from.into(), entries, is_cut, bytes }
    }

    /// The entries from `from` on.
    pub(super) fn entries_from(&self, from: &str) -> &[Entry] {
        let begin = self.entries.partition_point(|entry| *entry.component < *from);
        self.entries.get(begin..).unwrap_or_default()
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Where the next stretch begins.
    pub(super) fn end(&self) -> String {
        let last = self.entries.last().map_or(&*self.from, |entry| &*entry.component);
        // No name contains this character.
        format!("{last}\0")
    }

    /// The last component that it says anything about. `None` when that includes all that follow.
    fn last(&self) -> Option<&str> {
        let last = || self.entries.last().map_or(&*self.from, |entry| &*entry.component);
        self.is_cut.then(last)
    }

    fn lies_within(&self, other: &Self) -> bool {
        let ends_within = match (self.last(), other.last()) {
            (_, None) => true,
            (None, Some(_)) => false,
            (Some(last), Some(of_other)) => last <= of_other,
        };
        *other.from <= *self.from && ends_within
    }

    fn covers(&self, from: &str) -> bool {
        *self.from <= *from && (!self.is_cut || self.entries.last().is_some_and(|last| *from <= *last.component))
    }
}

impl Kept {
    /// Names of a directory from `from` on: `max` of them or a kept stretch, or fewer if there are no more. `None` when
    /// the directory is gone.
    pub(super) fn names(
        &self,
        env: &Env,
        tree: &Tree,
        path: &Path,
        from: &str,
        max: usize,
    ) -> Result<Option<Arc<Stretch>>> {
        let directory = match tree.directory(path) {
            Ok(directory) => directory,
            // It was removed, or replaced by something else, during the walk.
            Err(error) if is_absent(&error) && !path.as_os_str().is_empty() => return Ok(None),
            Err(error) => return Err(failed("list a directory", error)),
        };
        let times = |directory: &Directory| {
            let stat = directory.metadata().map_err(|error| failed("look at a directory", error))?;
            let (modified, changed) = ((stat.mtime(), stat.mtime_nsec()), (stat.ctime(), stat.ctime_nsec()));
            Ok(((stat.dev(), stat.ino()), Times { modified, changed }))
        };
        let (identity, before) = times(&directory)?;
        let now = env.clock.monotonic();
        let is_steady = match self.find(identity, before, now, from) {
            Lookup::Kept(stretch) => return Ok(Some(stretch)),
            Lookup::Steady => true,
            Lookup::Unknown => false,
        };
        let max = if is_steady { max.max(self.rule.stretch) } else { max };
        let mut collector = Collector::new(from, max);
        collector.read(tree, &directory, Path::new(""), path, "")?;
        let (seen, is_spread) = (collector.seen, collector.is_spread);
        if let Some(name) = &collector.unreadable {
            self.report(path, name, now);
        }
        let stretch = Arc::new(collector.finish());
        let is_large = seen >= self.rule.large && !is_spread;
        let is_trusted = || directory.file_system().is_ok_and(self.rule.trusts);
        if is_large && is_trusted() && times(&directory).is_ok_and(|(_, after)| after == before) {
            self.keep(identity, before, now, is_steady.then(|| Arc::clone(&stretch)));
        }
        Ok(Some(stretch))
    }

    /// Also keeps the names of small directories, on any file system.
    #[cfg(test)]
    pub(super) fn for_tests(large: usize, stretch: usize) -> Self {
        Self { rule: Rule { large, stretch, trusts: |_| true }, ..Self::default() }
    }

    /// Reports a name that no object can have.
    fn report(&self, directory: &Path, name: &[u8], now: Duration) {
        let mut state = self.state.lock();
        if state.reported.is_some_and(|reported| now.saturating_sub(reported) < REPORT_INTERVAL) {
            return;
        }
        state.reported = Some(now);
        drop(state);
        tracing::warn!(
            ?directory,
            name = %name.escape_ascii(),
            "a name in the directory behind a mount is not UTF-8, so it is no object: rename it, if clients should see it"
        );
    }

    fn find(&self, identity: (u64, u64), times: Times, now: Duration, from: &str) -> Lookup {
        let mut state = self.state.lock();
        state.uses += 1;
        let uses = state.uses;
        let Some(known) = state.known.get_mut(&identity).filter(|known| known.times == times) else {
            return Lookup::Unknown;
        };
        known.used = uses;
        if let Some(stretch) = known.stretches.iter().find(|stretch| stretch.covers(from)) {
            return Lookup::Kept(Arc::clone(stretch));
        }
        if now.saturating_sub(known.since) >= STEADY { Lookup::Steady } else { Lookup::Unknown }
    }

    fn keep(&self, identity: (u64, u64), times: Times, now: Duration, stretch: Option<Arc<Stretch>>) {
        let mut state = self.state.lock();
        state.uses += 1;
        let used = state.uses;
        if state.known.get(&identity).is_none_or(|known| known.times != times) {
            state.forget(identity);
            state.known.insert(identity, Known { times, since: now, stretches: VecDeque::new(), used });
        }
        if let (Some(stretch), Some(known)) = (stretch, state.known.get_mut(&identity)) {
            // Another call may have read the same meanwhile.
            if !known.stretches.iter().any(|kept| stretch.lies_within(kept)) {
                let (come, mut gone) = (stretch.bytes, 0);
                known.stretches.retain(|kept| {
                    let stays = !kept.lies_within(&stretch);
                    gone += if stays { 0 } else { kept.bytes };
                    stays
                });
                known.stretches.push_back(stretch);
                state.bytes = state.bytes + come - gone;
            }
        }
        state.shrink();
    }
}

enum Lookup {
    Kept(Arc<Stretch>),
    /// It has shown these times for long enough.
    Steady,
    Unknown,
}

impl State {
    /// Forgets what was used least recently.
    fn shrink(&mut self) {
        while self.bytes > KEPT_BYTES_MAX {
            let holders = self.known.values_mut().filter(|known| !known.stretches.is_empty());
            let Some(oldest) = holders.min_by_key(|known| known.used) else { return };
            self.bytes -= oldest.stretches.pop_front().map_or(0, |stretch| stretch.bytes);
        }
        while self.known.len() > DIRECTORIES_MAX {
            let Some((oldest, _)) = self.known.iter().min_by_key(|(_, known)| known.used) else { return };
            let oldest = *oldest;
            self.forget(oldest);
        }
    }

    fn forget(&mut self, identity: (u64, u64)) {
        let Some(known) = self.known.remove(&identity) else { return };
        self.bytes -= known.stretches.iter().map(|stretch| stretch.bytes).sum::<usize>();
    }
}

impl<'a> Collector<'a> {
    fn new(from: &'a str, max: usize) -> Self {
        Self { from, max, held: Vec::new(), last: None, seen: 0, is_spread: false, unreadable: None }
    }

    /// Collects the names of a directory, and those of the directories that continue long components. `inside` is its
    /// path from the first directory, `path` from the root.
    fn read(&mut self, tree: &Tree, directory: &Directory, inside: &Path, path: &Path, begun: &str) -> Result<()> {
        let entries = directory.entries().map_err(|error| failed("list a directory", error))?;
        for entry in entries {
            let (name, kind) = entry.map_err(|error| failed("list a directory", error))?;
            self.seen += 1;
            let is_directory = kind == FileType::Directory;
            // Links and devices are not objects.
            if (!is_directory && kind != FileType::RegularFile) || name == OWN_DIRECTORY.as_bytes() {
                continue;
            }
            let name = match String::from_utf8(name) {
                Ok(name) => name,
                Err(error) => {
                    self.unreadable = Some(error.into_bytes());
                    continue;
                }
            };
            if is_of_removed(&name) {
                continue;
            }
            let end = if is_directory { "/" } else { "" };
            match parse(&name, is_directory) {
                Name::Piece(piece) => {
                    self.is_spread = true;
                    let below = path.join(&name);
                    match tree.directory(&below) {
                        Ok(directory) => {
                            self.read(tree, &directory, &inside.join(&name), &below, &format!("{begun}{piece}"))?;
                        }
                        Err(error) if is_absent(&error) => {}
                        Err(error) => return Err(failed("list a directory", error)),
                    }
                }
                Name::Whole(component) if begun.is_empty() => self.take(format!("{component}{end}"), inside, &name),
                Name::Whole(rest) => {
                    let component = format!("{begun}{rest}");
                    if paths::is_at(&component, &inside.join(&name)) {
                        self.take(component + end, inside, &name);
                    }
                }
                Name::Foreign if begun.is_empty() => self.take(format!("{name}{end}"), inside, &name),
                // Among the pieces of long components there is nothing else to be found.
                Name::Foreign => {}
            }
        }
        Ok(())
    }

    fn take(&mut self, component: String, inside: &Path, name: &str) {
        if *component < *self.from || self.last.as_deref().is_some_and(|last| *component > *last) {
            return;
        }
        let is_plain = inside.as_os_str().is_empty() && component.strip_suffix('/').unwrap_or(&component) == name;
        let path = if is_plain { None } else { inside.join(name).to_str().map(Box::from) };
        self.held.push(Entry { component: component.into(), path });
        if self.held.len() >= self.max.saturating_mul(2) {
            self.cut();
        }
    }

    /// Drops all but the first, in linear time.
    fn cut(&mut self) {
        if self.held.len() <= self.max {
            return;
        }
        let (_, last, _) = self.held.select_nth_unstable(self.max - 1);
        let last = last.component.clone();
        // Also those with another name for the last component.
        self.held.retain(|entry| entry.component <= last);
        self.last = Some(last);
    }

    fn finish(mut self) -> Stretch {
        self.cut();
        let mut entries = self.held;
        entries.sort_unstable_by(|a, b| a.component.cmp(&b.component).then_with(|| a.rank().cmp(&b.rank())));
        // Others may have made two names for one key. The directories of one component have keys of their own.
        entries.dedup_by(|next, one| next.component == one.component && !one.is_directory());
        entries.shrink_to_fit();
        Stretch::new(self.from, entries, self.last.is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tree::Root;
    use super::*;

    struct Bench {
        env: Env,
        clock: Arc<forebay_env::clock::ManualClock>,
        directory: tempfile::TempDir,
        kept: Kept,
    }

    impl Bench {
        fn new() -> Self {
            let (env, clock) = Env::simulated(7);
            let kept = Kept::for_tests(20, 12);
            Self { env, clock, directory: tempfile::tempdir().unwrap(), kept }
        }

        fn write(&self, names: impl Iterator<Item = String>) {
            for name in names {
                std::fs::write(self.directory.path().join(name), "").unwrap();
            }
        }

        fn names(&self, from: &str) -> Arc<Stretch> {
            let tree = Root::new(self.directory.path().to_owned()).open().unwrap();
            self.kept.names(&self.env, &tree, Path::new(""), from, 10).unwrap().unwrap()
        }

        /// Waits until a change gets a later time than those before.
        fn next_tick(&self) {
            let modified = || std::fs::metadata(self.directory.path()).unwrap().modified().unwrap();
            let probes = tempfile::tempdir().unwrap();
            let before = modified();
            while std::fs::metadata(probes.path()).unwrap().modified().unwrap() <= before {
                std::fs::write(probes.path().join("probe"), "").unwrap();
                std::fs::remove_file(probes.path().join("probe")).unwrap();
            }
        }
    }

    fn number(at: usize) -> String {
        format!("{at:06}")
    }

    #[test]
    fn no_more_names_are_held_than_wanted() {
        let mut collector = Collector::new("b", 3);
        for name in ["f", "a", "c", "e", "b", "d"] {
            collector.take(name.to_owned(), Path::new(""), name);
            assert!(collector.held.len() <= 6);
        }
        let stretch = collector.finish();
        let names: Vec<_> = stretch.entries.iter().map(|entry| &*entry.component).collect();
        assert_eq!((names.join(""), stretch.is_cut), ("bcd".to_owned(), true));
        assert_eq!(stretch.entries_from("c").len(), 2);
        assert!(stretch.covers("d") && !stretch.covers("a") && !stretch.covers(&stretch.end()));
    }

    #[test]
    fn names_of_a_large_directory_are_kept_while_it_stays_the_same() {
        let bench = Bench::new();
        bench.write((0..25).map(number));
        bench.next_tick();
        let first = bench.names("");
        assert_eq!((first.len(), first.is_cut), (10, true));
        bench.clock.advance(STEADY / 2);
        assert_eq!(bench.names("").len(), 10, "a change in the same tick would not show");
        bench.clock.advance(STEADY / 2);
        let kept = bench.names(&number(5));
        assert_eq!((kept.len(), kept.is_cut), (12, true));
        assert!(Arc::ptr_eq(&kept, &bench.names(&number(16))));
        assert!(!Arc::ptr_eq(&kept, &bench.names("")), "it may have names before");
        let last = bench.names(&kept.end());
        assert_eq!((&*last.entries[0].component, last.len(), last.is_cut), ("000017", 8, false));

        bench.write(std::iter::once(number(5) + "-new"));
        let changed = bench.names(&number(5));
        assert_eq!((changed.len(), &*changed.entries[1].component), (10, "000005-new"), "its times are new");
        bench.next_tick();
        bench.clock.advance(STEADY);
        assert_eq!(bench.names("").len(), 12);
        std::fs::remove_file(bench.directory.path().join(number(0))).unwrap();
        assert_eq!(&*bench.names("").entries[0].component, number(1));
    }

    #[test]
    fn directories_that_are_small_or_spread_or_not_trusted_are_read_each_time() {
        let mut bench = Bench::new();
        bench.write((0..19).map(number));
        let is_kept = |bench: &Bench| {
            for _ in 0..2 {
                bench.names("");
                bench.clock.advance(STEADY);
            }
            Arc::ptr_eq(&bench.names(""), &bench.names(""))
        };
        assert!(!is_kept(&bench), "19 are not large");
        bench.write((19..30).map(number));
        assert!(is_kept(&bench));
        bench.kept.rule.trusts = |_| false;
        bench.kept.state = Arc::default();
        assert!(!is_kept(&bench), "not trusted");
        bench.kept.rule.trusts = |_| true;
        std::fs::create_dir(bench.directory.path().join("l".repeat(66) + "%+")).unwrap();
        assert!(!is_kept(&bench), "names in it change, and its own times do not");
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let kept = Kept::default();
        let times = Times { modified: (1, 0), changed: (1, 0) };
        let stretch = |begin: usize| {
            let entries = (begin..begin + RULE.stretch).map(|at| Entry { component: number(at).into(), path: None });
            Arc::new(Stretch::new(&number(begin), entries.collect(), true))
        };
        for directory in 0..2 * DIRECTORIES_MAX as u64 {
            kept.keep((1, directory), times, Duration::ZERO, None);
        }
        // Each twice: two calls may read at once.
        for begin in (0..2 * 20).map(|at| at / 2 * RULE.stretch) {
            kept.keep((2, 1), times, Duration::ZERO, Some(stretch(begin)));
        }
        // There is nothing after the last name, wherever a stretch begins.
        for number in 0..100 {
            let from = "z".repeat(1000 - number);
            let nothing = Stretch::new(&from, Vec::new(), false);
            kept.keep((2, 2), times, Duration::ZERO, Some(Arc::new(nothing)));
        }
        let state = kept.state.lock();
        assert_eq!(state.known.len(), DIRECTORIES_MAX);
        assert_eq!(state.known[&(2, 2)].stretches.len(), 1);
        let stretches = state.known.values().flat_map(|known| &known.stretches);
        assert_eq!(state.bytes, stretches.map(|stretch| stretch.bytes).sum::<usize>());
        assert!(state.bytes <= KEPT_BYTES_MAX && state.bytes > KEPT_BYTES_MAX / 2);
        assert!(!state.known.contains_key(&(1, 0)));
    }
}
