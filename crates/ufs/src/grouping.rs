//! Makes a page of a list from keys that come in order.

use crate::{ListPage, ListRequest, ListedObject};

/// Groups keys by delimiter and stops when the page is full.
pub(crate) struct Grouping<'a> {
    request: &'a ListRequest,
    page: ListPage,
    /// The last name on the page.
    last: Option<String>,
}

impl<'a> Grouping<'a> {
    pub(crate) fn new(request: &'a ListRequest) -> Self {
        Self { request, page: ListPage::default(), last: None }
    }

    /// The common prefix that a key falls under.
    pub(crate) fn group<'k>(&self, key: &'k str) -> Option<&'k str> {
        let delimiter = self.request.delimiter.as_deref().filter(|delimiter| !delimiter.is_empty())?;
        let rest = key.strip_prefix(self.request.prefix.as_str())?;
        let end = rest.find(delimiter)? + delimiter.len();
        Some(&key[..self.request.prefix.len() + end])
    }

    /// Whether a key belongs on this page or a later one.
    pub(crate) fn wants(&self, key: &str) -> bool {
        let after = self.request.start_after.as_deref();
        key.starts_with(&self.request.prefix)
            && after.is_none_or(|after| key > after && self.group(key) != Some(after))
            && self.group(key).is_none_or(|group| self.last.as_deref() != Some(group))
    }

    /// Whether all keys below this prefix are settled, however many there are.
    pub(crate) fn is_settled(&self, prefix: &str) -> bool {
        let after = self.request.start_after.as_deref();
        let behind = |bound: &str| prefix < bound && !bound.starts_with(prefix);
        let in_group = |name: Option<&str>| name.is_some_and(|name| self.group(prefix) == Some(name));
        after.is_some_and(behind) || in_group(after) || in_group(self.last.as_deref())
    }

    /// Whether this key and all later ones come after the prefix of the request.
    pub(crate) fn is_behind(&self, key: &str) -> bool {
        let prefix = self.request.prefix.as_str();
        key > prefix && !key.starts_with(prefix)
    }

    /// Whether keys that begin with this one, which ends with `/`, belong on this page or a later one.
    pub(crate) fn wants_below(&self, key: &str) -> bool {
        let leads_there = key.starts_with(&self.request.prefix) || self.request.prefix.starts_with(key);
        leads_there && !self.is_settled(key)
    }

    /// The first component below the directory `key` that this page may need.
    pub(crate) fn first_wanted(&self, key: &str) -> String {
        let of = |bound: &str| first_component(key, bound).to_owned();
        let from = of(&self.request.prefix);
        self.request.start_after.as_deref().map_or(from.clone(), |after| from.max(of(after)))
    }

    /// The first component below the directory `key` that is behind the common prefix of which no more keys are wanted.
    pub(crate) fn behind_settled(&self, key: &str) -> Option<String> {
        self.settled_group().and_then(|group| behind_group(key, group))
    }

    /// The common prefix of which no more keys are wanted.
    fn settled_group(&self) -> Option<&str> {
        let after = self.request.start_after.as_deref();
        self.last.as_deref().or(after).filter(|name| self.group(name) == Some(name))
    }

    /// Adds a key that [`Grouping::wants`]. `false` when the page is full; then there is a next page.
    pub(crate) fn add(&mut self, key: &str, listed: impl FnOnce() -> ListedObject) -> bool {
        if self.page.objects.len() + self.page.prefixes.len() >= self.request.limit {
            self.page.next = self.last.take();
            return false;
        }
        let name = match self.group(key) {
            Some(group) => {
                let group = group.to_owned();
                self.page.prefixes.push(group.clone());
                group
            }
            None => {
                self.page.objects.push(listed());
                key.to_owned()
            }
        };
        self.last = Some(name);
        true
    }

    pub(crate) fn finish(self) -> ListPage {
        self.page
    }
}

/// The first component below `key` that may hold a key that is not less than `bound`.
fn first_component<'a>(key: &str, bound: &'a str) -> &'a str {
    let Some(rest) = bound.strip_prefix(key) else { return "" };
    rest.find('/').map_or(rest, |slash| &rest[..=slash])
}

/// A component below `key` that sorts after everything in a common prefix. `None` when that prefix ends deeper or
/// elsewhere.
fn behind_group(key: &str, group: &str) -> Option<String> {
    let rest = group.strip_prefix(key).filter(|rest| !rest.contains('/'))?;
    Some(format!("{rest}{}", char::MAX))
}
