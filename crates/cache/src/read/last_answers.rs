//! What under stores have told last of keys that they are being asked for. Answers may come in another order than their
//! questions. A late one must not replace what a newer one has told since.

use std::collections::HashMap;

use forebay_env::sync::Mutex;
use forebay_types::{ETag, ObjectPath};
use forebay_ufs::{Error as UfsError, ErrorKind as UfsKind, RemoteObject};

use crate::read::validity::Moment;

/// Answers are remembered while another question for their key is open: only its answer can be late.
#[derive(Default)]
pub(crate) struct LastAnswers {
    keys: Mutex<HashMap<ObjectPath, Key>>,
}

#[derive(Default)]
struct Key {
    open_questions: usize,
    /// The answer to the newest question.
    last: Option<Answer>,
}

struct Answer {
    asked: Moment,
    version: Version,
}

/// The ETag and the size of a version. `None`: the under store does not have the key.
pub(crate) type Version = Option<(ETag, u64)>;

/// A question for a key, until its answer has been used.
pub(crate) struct OpenQuestion<'a> {
    answers: &'a LastAnswers,
    path: &'a ObjectPath,
}

impl LastAnswers {
    /// To be called before the under store is asked.
    pub(crate) fn begin<'a>(&'a self, path: &'a ObjectPath) -> OpenQuestion<'a> {
        self.keys.lock().entry(path.clone()).or_default().open_questions += 1;
        OpenQuestion { answers: self, path }
    }

    /// The under store has answered a question of this moment.
    pub(crate) fn note(&self, path: &ObjectPath, asked: Moment, answer: Result<&RemoteObject, &UfsError>) {
        let version = match answer {
            Ok(remote) => version_of(remote),
            Err(error) if error.kind == UfsKind::NotFound => None,
            Err(_) => return,
        };
        if let Some(key) = self.keys.lock().get_mut(path)
            && key.last.as_ref().is_none_or(|last| last.asked <= asked)
        {
            key.last = Some(Answer { asked, version });
        }
    }

    /// Whether the answer to a newer question shows another version than this one, or none.
    pub(super) fn is_overtaken(&self, path: &ObjectPath, asked: Moment, remote: &RemoteObject) -> bool {
        self.is_another(path, asked, version_of(remote))
    }

    /// The same of the version with this ETag and size.
    pub(crate) fn is_another(&self, path: &ObjectPath, asked: Moment, version: Version) -> bool {
        let keys = self.keys.lock();
        let last = keys.get(path).and_then(|key| key.last.as_ref());
        last.is_some_and(|last| last.asked > asked && last.version != version)
    }
}

fn version_of(remote: &RemoteObject) -> Version {
    Some((remote.remote_etag.clone(), remote.info.size))
}

impl Drop for OpenQuestion<'_> {
    fn drop(&mut self) {
        let mut keys = self.answers.keys.lock();
        let Some(key) = keys.get_mut(self.path) else { return };
        key.open_questions -= 1;
        if key.open_questions == 0 {
            keys.remove(self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use forebay_types::ObjectInfo;

    use super::*;

    fn remote(etag: &str) -> RemoteObject {
        let etag = ETag::new(etag);
        RemoteObject { info: ObjectInfo::new(1, etag.clone(), 0), remote_etag: etag, stamp: None }
    }

    #[test]
    fn a_newer_answer_overtakes_until_the_last_question_has_ended() {
        let (answers, path) = (LastAnswers::default(), ObjectPath::parse("bucket", "key").unwrap());
        let [first, second] = [1, 2].map(|seconds| Moment::of(Duration::from_secs(seconds)));
        let late = answers.begin(&path);
        let newer = answers.begin(&path);
        answers.note(&path, second, Ok(&remote("two")));
        answers.note(&path, first, Ok(&remote("one")));
        assert!(answers.is_overtaken(&path, first, &remote("one")));
        assert!(!answers.is_overtaken(&path, first, &remote("two")), "the same version");
        assert!(!answers.is_overtaken(&path, second, &remote("one")), "asked at the same time");
        drop(newer);
        answers.note(&path, second, Err(&UfsError::new(UfsKind::NotFound, "absent")));
        assert!(answers.is_overtaken(&path, first, &remote("two")), "it is gone by then");
        answers.note(&path, second, Err(&UfsError::new(UfsKind::Unavailable, "away")));
        assert!(answers.is_overtaken(&path, first, &remote("two")), "no answer tells nothing");
        drop(late);
        assert!(answers.keys.lock().is_empty());
    }
}
