//! What operations may answer instead of what was asked for, as their description says it.

use std::collections::BTreeMap;

use utoipa::IntoResponses;
use utoipa::openapi::content::ContentBuilder;
use utoipa::openapi::{Ref, RefOr, Response, ResponseBuilder};

fn problems<const N: usize>(all: [(u16, &str); N]) -> BTreeMap<String, RefOr<Response>> {
    let problem = |(status, why): (u16, &str)| {
        let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("ProblemBody"))).build();
        let response = ResponseBuilder::new().description(why).content("application/problem+json", content).build();
        (status.to_string(), RefOr::T(response))
    };
    all.into_iter().map(problem).collect()
}

/// What every operation may answer instead of what was asked for.
pub(crate) struct Problems;

impl IntoResponses for Problems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problems([
            (400, "A parameter, a header or the body is not right."),
            (401, "Neither keys nor a session of a user came with the request, or the wrong ones."),
            (403, "The user has no admin grant for the path, or a browser's request comes from elsewhere."),
            (429, "Too many logins with this access key have failed. `Retry-After` says when to try again."),
            (500, "The worker has failed, or what it stores is damaged."),
            (503, "The worker is starting, or the under store is out of reach, or there is no room: try again later."),
        ])
    }
}

/// Of operations about something that may not be there.
pub(crate) struct Absent;

impl IntoResponses for Absent {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problems([(404, "There is nothing of this name.")])
    }
}

/// Of operations that take a worker out of its cluster.
pub(crate) struct LeavingProblems;

impl IntoResponses for LeavingProblems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problems([(409, "The worker runs or does not run, or no other one would take over from it.")])
    }
}

/// Of operations that take `If-Match`.
pub(crate) struct Stale;

impl IntoResponses for Stale {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problems([(412, "The policies have another version than `If-Match` says: somebody was faster.")])
    }
}

/// Of operations that take a body.
pub(crate) struct BodyProblems;

impl IntoResponses for BodyProblems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problems([(413, "The body is too large."), (415, "The body is not `application/json`.")])
    }
}

/// Of the operation that persists and waits.
pub(crate) struct NotAllPersisted;

impl IntoResponses for NotAllPersisted {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problems([
            (409, "Another writer has changed something in the under store: the job names it."),
            (501, "The under store cannot do this."),
        ])
    }
}

/// Of operations that write or ask the under store for something.
pub(crate) struct StorageProblems;

impl IntoResponses for StorageProblems {
    fn responses() -> BTreeMap<String, RefOr<Response>> {
        problems([
            (409, "Another write of the same object was in flight."),
            (412, "The object is another now."),
            (501, "The under store cannot do this."),
        ])
    }
}
