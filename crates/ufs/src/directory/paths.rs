//! Keys as paths, and back.
//!
//! A key's components become file names. What cannot be a file name is escaped with `%`, which itself becomes `%25`: an
//! empty component is `%`, `.` and `..` are `%2E` and `%2E%2E`, a component with the name of our own directory begins
//! with `%2E`, and long components are split into directories whose names end in `%+`. Where a file and a directory
//! need the same name, `%@` is appended to the file's.
//!
//! Names that no key produces so, such as `100%` and those of more than 200 bytes, come from other programs. Such a
//! name stands for the component that is equal to it. So a component may have two names: ours, and that one. Ours wins.

use std::collections::HashMap;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

use parking_lot::Mutex;

use super::errors::is_absent;
use super::own::OWN_DIRECTORY;
use super::tree::Tree;

/// Longest piece of a component: file names have at most 255 bytes, and a mark may follow.
const PIECE_BYTES: usize = 200;

/// Longest beginning of a long component, not escaped yet. It may end one character earlier, of up to four bytes.
const BEGINNING_BYTES: usize = PIECE_BYTES / 3;

/// Longest file name.
const NAME_BYTES_MAX: usize = 255;

/// Ends the name of a directory that holds the rest of a long component.
const CONTINUES: &str = "%+";

/// Ends the name of a file whose own name is taken by a directory.
const BESIDE: &str = "%@";

/// What a name in a directory stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Name {
    /// A component, or its last piece.
    Whole(String),
    /// The beginning of a long component.
    Piece(String),
    /// Of another program: no key produces it. It stands for itself.
    Foreign,
}

fn escape(component: &str) -> String {
    match component {
        "" => return "%".to_owned(),
        "." => return "%2E".to_owned(),
        ".." => return "%2E%2E".to_owned(),
        _ => {}
    }
    let escaped = component.replace('%', "%25");
    if component == OWN_DIRECTORY { escaped.replacen('.', "%2E", 1) } else { escaped }
}

fn unescape(text: &str) -> String {
    match text {
        "%" => String::new(),
        _ => text.replace("%2E", ".").replace("%25", "%"),
    }
}

/// What the name of a directory, or of a file, stands for. Only directories hold the rest of a component, and only
/// files make way.
pub(crate) fn parse(name: &str, is_directory: bool) -> Name {
    if !name.contains('%') {
        return if name.len() <= PIECE_BYTES { Name::Whole(name.to_owned()) } else { Name::Foreign };
    }
    if is_directory && let Some(text) = name.strip_suffix(CONTINUES) {
        let piece = unescape(text);
        let is_ours = (BEGINNING_BYTES - 3..=BEGINNING_BYTES).contains(&piece.len()) && escape(&piece) == text;
        return if is_ours { Name::Piece(piece) } else { Name::Foreign };
    }
    let text = if is_directory { name } else { name.strip_suffix(BESIDE).unwrap_or(name) };
    let component = unescape(text);
    let is_ours = text.len() <= PIECE_BYTES && escape(&component) == text;
    if is_ours { Name::Whole(component) } else { Name::Foreign }
}

/// Whether a component is at this path, in the form that we give it, below the directory that it is in.
pub(crate) fn is_at(component: &str, path: &Path) -> bool {
    let ours: PathBuf = names_of(component).iter().collect();
    path == ours || path == beside(&ours)
}

/// The name of a component that is the component itself, where that is not the one that we give it. Other programs may
/// have made it.
fn foreign_name(component: &str, is_directory: bool) -> Option<&str> {
    // Most components.
    if component.len() <= PIECE_BYTES && !component.contains('%') {
        return None;
    }
    let fits = component.len() <= NAME_BYTES_MAX;
    (fits && parse(component, is_directory) == Name::Foreign).then_some(component)
}

/// Of several files for one component in a directory, the one that counts has the smallest rank.
pub(crate) fn rank(component: &str, name: &str, is_directory: bool) -> u8 {
    match name == component && foreign_name(component, is_directory).is_some() {
        true => 2,
        false => u8::from(!is_directory && name.ends_with(BESIDE)),
    }
}

/// The file names of a component: one, or several that are inside each other.
fn names_of(component: &str) -> Vec<String> {
    let (mut names, mut rest) = (Vec::new(), component);
    while escape(rest).len() > PIECE_BYTES {
        let mut end = BEGINNING_BYTES;
        while !rest.is_char_boundary(end) {
            end -= 1;
        }
        names.push(escape(&rest[..end]) + CONTINUES);
        rest = &rest[end..];
    }
    names.push(escape(rest));
    names
}

/// The file names of a key, one per directory level.
fn names(key: &str) -> Vec<String> {
    key.split('/').flat_map(names_of).collect()
}

/// Number of directory levels that a key takes, its file included.
pub(crate) fn levels(key: &str) -> usize {
    names(key).len()
}

/// The paths that we give a key's file: the usual one, and the one beside a directory of that name.
fn own_paths(key: &str) -> [PathBuf; 2] {
    let plain: PathBuf = names(key).iter().collect();
    let beside = beside(&plain);
    [plain, beside]
}

/// The paths where a key's file may be, never none. Of several files, the first one counts.
pub(crate) fn candidates(tree: &Tree, key: &str) -> io::Result<Vec<PathBuf>> {
    let (parents, last) = key.rsplit_once('/').map_or((None, key), |(parents, last)| (Some(parents), last));
    let is_usual = |component: &str| foreign_name(component, true).is_none();
    if foreign_name(last, false).is_none() && parents.is_none_or(|parents| parents.split('/').all(is_usual)) {
        return Ok(own_paths(key).into());
    }
    let mut directories = vec![PathBuf::new()];
    for component in parents.into_iter().flat_map(|parents| parents.split('/')) {
        directories = below(tree, directories, component)?;
    }
    let mut paths = Vec::new();
    let ours: PathBuf = names_of(last).iter().collect();
    for directory in directories {
        let plain = directory.join(&ours);
        let beside = beside(&plain);
        paths.extend([plain, beside]);
        let foreign = foreign_name(last, false).map(|name| directory.join(name));
        if let Some(foreign) = foreign
            && is_there(tree, &foreign, Metadata::is_file)?
        {
            paths.push(foreign);
        }
    }
    Ok(paths)
}

/// The directories of a component in any of these: those that exist, or else the one that we would make. So there are
/// no more of them than there are directories, however many components have two names.
fn below(tree: &Tree, directories: Vec<PathBuf>, component: &str) -> io::Result<Vec<PathBuf>> {
    let ours: PathBuf = names_of(component).iter().collect();
    let mut found = Vec::with_capacity(directories.len());
    for directory in directories {
        let ours = directory.join(&ours);
        let foreign = foreign_name(component, true).map(|name| directory.join(name));
        let foreign = match foreign {
            Some(foreign) if is_there(tree, &foreign, Metadata::is_dir)? => Some(foreign),
            _ => None,
        };
        if foreign.is_none() || is_there(tree, &ours, Metadata::is_dir)? {
            found.push(ours);
        }
        found.extend(foreign);
    }
    Ok(found)
}

/// Some file systems have shorter names than others.
fn is_there(tree: &Tree, path: &Path, is_such: fn(&Metadata) -> bool) -> io::Result<bool> {
    match tree.metadata(path) {
        Err(error) if is_absent(&error) || error.kind() == io::ErrorKind::InvalidFilename => Ok(false),
        stat => Ok(is_such(&stat?)),
    }
}

fn beside(path: &Path) -> PathBuf {
    let mut beside = path.to_owned().into_os_string();
    beside.push(BESIDE);
    beside.into()
}

/// Most directories below the root that are remembered to be durable. Each takes about 150 bytes.
const DURABLE_MAX: usize = 1 << 16;

/// The inode number of a directory, and when it was created.
type Identity = (u64, SystemTime);

fn identity(stat: &Metadata) -> Option<Identity> {
    stat.created().ok().map(|born| (stat.ino(), born))
}

/// Directories whose names this process has made durable, together with those of all their parents. A directory that
/// somebody else has removed and made again is another one: file systems reuse inode numbers, and only the creation
/// time differs.
#[derive(Default)]
pub(crate) struct Durable {
    known: Mutex<HashMap<PathBuf, Identity>>,
    /// Counts the directories that this process has removed.
    removals: AtomicU64,
    /// Called at each sync.
    #[cfg(test)]
    pub(crate) on_sync: Mutex<Option<Box<dyn Fn() + Send>>>,
}

impl Durable {
    /// Syncs the parents of these directories, each of which is inside the one before, unless that was done already.
    /// There may be 127.
    pub(crate) fn ensure(&self, tree: &Tree, directories: &[PathBuf]) -> io::Result<()> {
        // The deepest is checked first. Somebody who removes one above it must have removed it before, and then what is
        // remembered of it matches nothing. A move by somebody else goes unnoticed.
        let mut unknown = Vec::new();
        for directory in directories.iter().rev() {
            let stat = match tree.metadata(directory) {
                // It was removed meanwhile, with all its names, or never was a directory.
                Err(error) if is_absent(&error) => continue,
                stat => stat?,
            };
            // A file is in the way. The directory that takes its name is another one, and not durable yet.
            if !stat.is_dir() {
                continue;
            }
            let identity = identity(&stat);
            if self.knows(directory, identity) {
                // So are all its parents.
                break;
            }
            unknown.push((directory, identity));
        }
        for (directory, identity) in unknown.into_iter().rev() {
            #[cfg(test)]
            if let Some(look) = &*self.on_sync.lock() {
                look();
            }
            match tree.sync(directory.parent().unwrap_or(directory)) {
                Err(error) if is_absent(&error) => return Ok(()),
                result => result?,
            }
            let mut known = self.known.lock();
            if known.len() >= DURABLE_MAX {
                known.clear();
            }
            // Where the file system does not record creation times, each upload syncs.
            if let Some(identity) = identity {
                known.insert(directory.clone(), identity);
            }
        }
        Ok(())
    }

    pub(crate) fn removals(&self) -> u64 {
        self.removals.load(Ordering::SeqCst)
    }

    /// Whether these directories are still as `ensure` has left them. `removals` is the number of removals before that
    /// call.
    pub(crate) fn is_ensured(&self, tree: &Tree, directories: &[PathBuf], removals: u64) -> bool {
        let Some(deepest) = directories.last() else { return true };
        let is_known = |stat: &Metadata| match identity(stat) {
            None => self.removals() == removals,
            identity => self.knows(deepest, identity),
        };
        tree.metadata(deepest).is_ok_and(|stat| stat.is_dir() && is_known(&stat))
    }

    fn knows(&self, directory: &Path, identity: Option<Identity>) -> bool {
        identity.is_some() && self.known.lock().get(directory) == identity.as_ref()
    }

    /// Notes that a directory was removed.
    pub(crate) fn forget(&self, directory: &Path) {
        self.removals.fetch_add(1, Ordering::SeqCst);
        self.known.lock().remove(directory);
    }
}

/// How often a walk through directories is repeated because files were moved. The last one holds up moves instead.
const WALKS_MAX: usize = 3;

/// Counts the files that were renamed because a directory takes their name. The count is locked during such a move. A
/// bucket may have two stores, so all stores of one root share it. Clones share it.
#[derive(Clone, Default)]
pub(crate) struct Moves(Arc<Mutex<u64>>);

impl Moves {
    /// What `walk` finds while no file moves. Otherwise it may read the old name of a file and find a directory there,
    /// or come across neither name.
    pub(crate) fn without<T>(&self, mut walk: impl FnMut() -> T) -> T {
        for _ in 0..WALKS_MAX {
            // Waits for a move that has begun.
            let before = *self.0.lock();
            let found = walk();
            let after = *self.0.lock();
            if after == before {
                return found;
            }
        }
        let _nothing_moves = self.0.lock();
        walk()
    }

    /// Makes a directory where a file is, which stays an object.
    fn make_way(&self, tree: &Tree, directory: &Path) -> io::Result<()> {
        let mut count = self.0.lock();
        *count += 1;
        let aside = beside(directory);
        tree.rename(directory, &aside)?;
        // Another worker was quicker, and has made the directory. At most an empty one is replaced.
        if tree.metadata(&aside).is_ok_and(|stat| stat.is_dir()) {
            return tree.rename(&aside, directory);
        }
        make_directory(tree, directory)
    }
}

/// Where the file of a new key goes.
pub(crate) struct FileLocation {
    pub(crate) path: PathBuf,
    /// The directories on the way. They may not be durable yet.
    pub(crate) directories: Vec<PathBuf>,
}

impl FileLocation {
    /// The location of a file that exists.
    pub(crate) fn present(path: PathBuf) -> Self {
        let parents = path.ancestors().skip(1).take_while(|parent| !parent.as_os_str().is_empty());
        let mut directories: Vec<_> = parents.map(Path::to_owned).collect();
        directories.reverse();
        Self { path, directories }
    }
}

/// Makes the directories of a key that has no file yet, up to a file that is in the way. Others may remove directories
/// meanwhile.
pub(crate) fn make_directories(tree: &Tree, key: &str) -> io::Result<Vec<PathBuf>> {
    let [plain, _] = own_paths(key);
    let directories = FileLocation::present(plain).directories;
    if !is_directory(tree, directories.last())? {
        for directory in &directories {
            match tree.metadata(directory) {
                Ok(stat) if stat.is_dir() => {}
                Ok(_) => break,
                Err(error) if error.kind() == io::ErrorKind::NotFound => match make_directory(tree, directory) {
                    Err(error) if is_absent(&error) => break,
                    made => made?,
                },
                Err(error) if is_absent(&error) => break,
                Err(error) => return Err(error),
            }
        }
    }
    Ok(directories)
}

/// Where the file of a new key goes. Makes its directories, and renames files that are in their way.
pub(crate) fn make_location(tree: &Tree, moves: &Moves, key: &str) -> io::Result<FileLocation> {
    let [plain, beside_plain] = own_paths(key);
    let directories = FileLocation::present(plain.clone()).directories;
    if !is_directory(tree, directories.last())? {
        for directory in &directories {
            match tree.metadata(directory) {
                Ok(stat) if stat.is_dir() => {}
                Ok(stat) if stat.is_file() => moves.make_way(tree, directory)?,
                // Of this key alone: the others of the mount can be written.
                Ok(_) => {
                    let problem =
                        format!("{directory:?} is a symbolic link or a special file, and links are not followed");
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, problem));
                }
                Err(error) if error.kind() == io::ErrorKind::NotFound => make_directory(tree, directory)?,
                Err(error) => return Err(error),
            }
        }
    }
    let path = if is_directory(tree, Some(&plain))? { beside_plain } else { plain };
    Ok(FileLocation { path, directories })
}

/// Another key may make it at the same moment.
fn make_directory(tree: &Tree, path: &Path) -> io::Result<()> {
    match tree.create_directory(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

fn is_directory(tree: &Tree, path: Option<&PathBuf>) -> io::Result<bool> {
    match path.map(|path| tree.metadata(path)) {
        // The root.
        None => Ok(true),
        Some(Err(error)) if is_absent(&error) => Ok(false),
        Some(stat) => Ok(stat?.is_dir()),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::tree::Root;
    use super::*;

    fn read_back(key: &str) -> String {
        let mut text = String::new();
        let names = names(key);
        for (index, name) in names.iter().enumerate() {
            assert!(
                name.len() <= 255 - BESIDE.len() && !["", ".", "..", OWN_DIRECTORY].contains(&name.as_str()),
                "{name}"
            );
            let is_last = index + 1 == names.len();
            match parse(name, !is_last) {
                Name::Piece(piece) => text += &piece,
                Name::Whole(component) => {
                    text += &component;
                    text += if is_last { "" } else { "/" };
                }
                Name::Foreign => panic!("a key made {name}"),
            }
        }
        text
    }

    #[test]
    fn odd_keys_are_read_back() {
        let long = "\u{1f600}".repeat(256);
        for key in
            ["a", "a/b", "a//b", "/", "//", "a/", ".", "../..", "%", "%2F", "%2E", ".forebay/x", "a%@", "a%+/b", &long]
        {
            assert_eq!(read_back(key), key);
        }
    }

    /// Whatever the name, it stands for one component, and that one is looked for there.
    #[test]
    fn a_name_that_no_key_makes_stands_for_itself() {
        let (limit, long) = ("x".repeat(PIECE_BYTES), "x".repeat(PIECE_BYTES + 1));
        let piece = "x".repeat(BEGINNING_BYTES) + CONTINUES;
        let whole = |text: &str| Name::Whole(text.to_owned());
        for (name, of_file, of_directory) in [
            ("a", whole("a"), whole("a")),
            ("%", whole(""), whole("")),
            ("%25", whole("%"), whole("%")),
            ("%2Eforebay", whole(OWN_DIRECTORY), whole(OWN_DIRECTORY)),
            ("a%@", whole("a"), Name::Foreign),
            (limit.as_str(), whole(&limit), whole(&limit)),
            (piece.as_str(), Name::Foreign, Name::Piece("x".repeat(BEGINNING_BYTES))),
            (long.as_str(), Name::Foreign, Name::Foreign),
        ] {
            assert_eq!((parse(name, false), parse(name, true)), (of_file, of_directory), "{name}");
        }
        for name in ["100%", "10%3A00", "%%", "%@", "a%20b", "%2Ea", "%2e", "q%+", "a%25%", "%25%@%@"] {
            assert_eq!((parse(name, false), parse(name, true)), (Name::Foreign, Name::Foreign), "{name}");
            assert_eq!((foreign_name(name, false), foreign_name(name, true)), (Some(name), Some(name)), "{name}");
        }
        for component in ["", ".", "..", OWN_DIRECTORY, "a", "%25", &limit, &"x".repeat(NAME_BYTES_MAX + 1)] {
            assert_eq!((foreign_name(component, false), foreign_name(component, true)), (None, None), "{component}");
        }
    }

    #[test]
    fn a_walk_is_repeated_when_a_file_has_moved_and_in_the_end_none_moves() {
        let directory = tempfile::tempdir().unwrap();
        let tree = Root::new(directory.path().to_owned()).open().unwrap();
        let moves = Moves::default();
        for moved in [0, 1, WALKS_MAX] {
            let mut walks = 0;
            let nothing_moves = moves.without(|| {
                walks += 1;
                if walks <= moved {
                    let name = format!("{moved}-{walks}");
                    std::fs::write(directory.path().join(&name), "").unwrap();
                    make_location(&tree, &moves, &format!("{name}/below")).unwrap();
                }
                moves.0.try_lock().is_none()
            });
            assert_eq!((walks, nothing_moves), (moved + 1, moved == WALKS_MAX));
        }
    }

    /// Another worker may make it after this one has seen a file there.
    #[test]
    fn a_directory_makes_no_way() {
        let directory = tempfile::tempdir().unwrap();
        let tree = Root::new(directory.path().to_owned()).open().unwrap();
        std::fs::create_dir(directory.path().join("a")).unwrap();
        std::fs::write(directory.path().join("a/b"), "").unwrap();
        Moves::default().make_way(&tree, Path::new("a")).unwrap();
        assert!(directory.path().join("a/b").is_file() && !directory.path().join("a%@").exists());
    }

    proptest! {
        #[test]
        fn a_name_stands_for_one_component(name in "[.%@+a25E]{1,9}", is_directory in any::<bool>()) {
            let component = match parse(&name, is_directory) {
                Name::Whole(component) => component,
                Name::Piece(_) | Name::Foreign => name.clone(),
            };
            let foreign = foreign_name(&component, is_directory).map(str::to_owned);
            let is_at_it = is_at(&component, Path::new(&name)) || foreign.as_ref() == Some(&name);
            // No directory has these names.
            prop_assert!(is_at_it || [".", ".."].contains(&name.as_str()));
        }

        #[test]
        fn any_key_is_read_back(key in "[^\0]{1,250}") {
            prop_assert_eq!(read_back(&key), key);
        }

        #[test]
        fn different_keys_have_different_names(a in "[.%/@+a2E]{1,9}", b in "[.%/@+a2E]{1,9}") {
            prop_assert_eq!(names(&a) == names(&b), a == b);
        }
    }
}
