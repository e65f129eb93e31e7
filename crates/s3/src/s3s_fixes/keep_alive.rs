//! Answers that take long are begun early and filled with blanks, as Amazon S3 does, so that no client gives up
//! meanwhile.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use forebay_env::Clock;
use futures::StreamExt;
use futures::future::{Either, select};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use s3s::{Body, HttpResponse, StdError};
use tokio::sync::oneshot;

/// Marks an answer that was begun before its status was known.
#[derive(Clone, Copy)]
pub(crate) struct Begun;

/// How long an answer may take before it is begun, and the time between blanks. Most load balancers wait a minute.
const SILENT_MAX: Duration = Duration::from_secs(10);
const DECLARATION: &[u8] = b"<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";

/// The answer, or after [`SILENT_MAX`] a 200 whose body turns into the answer, an error included. `late` completes an
/// answer that comes after the 200. The work continues when the client disconnects: what it began must not stay half
/// done.
pub(crate) async fn answer<F, L>(clock: Arc<dyn Clock>, work: F, late: L) -> Result<HttpResponse, StdError>
where
    F: Future<Output = Result<HttpResponse, StdError>> + Send + 'static,
    L: FnOnce(HttpResponse) -> HttpResponse + Send + 'static,
{
    let (sender, receiver) = oneshot::channel();
    // The task ends with its work.
    forebay_env::spawn(async move {
        let answer = work.await;
        if let Err((answer, late)) = sender.send((answer, late)) {
            // The client has gone.
            let _ = answer.map(late);
        }
    });
    match select(receiver, clock.sleep(SILENT_MAX)).await {
        Either::Left((result, _)) => result.map_or_else(|gone| Err(gone.into()), |(answer, _)| answer),
        Either::Right(((), receiver)) => Ok(begin(clock.clone(), receiver)),
    }
}

type Answered<L> = (Result<HttpResponse, StdError>, L);

fn begin<L>(clock: Arc<dyn Clock>, outcome: oneshot::Receiver<Answered<L>>) -> HttpResponse
where
    L: FnOnce(HttpResponse) -> HttpResponse + Send + 'static,
{
    let first = futures::stream::iter([Ok(Bytes::from_static(DECLARATION))]);
    let rest = futures::stream::unfold(Some(outcome), move |outcome| {
        let clock = Arc::clone(&clock);
        async move {
            match select(outcome?, clock.sleep(SILENT_MAX)).await {
                Either::Right(((), outcome)) => Some((Ok(Bytes::from_static(b" ")), Some(outcome))),
                Either::Left((result, _)) => Some((finish(result).await, None)),
            }
        }
    });
    let body = StreamBody::new(first.chain(rest).map(|bytes: Result<Bytes, StdError>| bytes.map(Frame::data)));
    let mut response = HttpResponse::new(Body::http_body_unsync(body));
    *response.status_mut() = StatusCode::OK;
    response.extensions_mut().insert(Begun);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/xml"));
    response
}

/// The document without its declaration, which has been sent.
async fn finish<L>(result: Result<Answered<L>, oneshot::error::RecvError>) -> Result<Bytes, StdError>
where
    L: FnOnce(HttpResponse) -> HttpResponse,
{
    let (answer, late) = result?;
    let mut document = BodyExt::collect(late(answer?).into_body()).await?.to_bytes();
    if document.starts_with(b"<?xml")
        && let Some(end) = document.windows(2).position(|pair| pair == b"?>")
    {
        document = document.slice(end + 2..);
    }
    Ok(document)
}

#[cfg(test)]
mod tests {
    use forebay_env::Env;

    use super::*;

    fn document(status: u16, text: &str) -> HttpResponse {
        let mut response = HttpResponse::new(Body::from(text.to_owned()));
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        response
    }

    #[tokio::test]
    async fn a_quick_answer_keeps_its_status() {
        let (env, _) = Env::simulated(1);
        let response = answer(env.clock, async { Ok(document(400, "<Error/>")) }, |_| panic!("it is not late")).await;
        assert_eq!(response.unwrap().status(), 400);
    }

    #[tokio::test]
    async fn a_slow_answer_is_begun_with_blanks_and_has_one_declaration() {
        let (env, clock) = Env::simulated(1);
        let (release, wait) = oneshot::channel::<()>();
        let work = async move {
            wait.await?;
            Ok(document(400, "<?xml version=\"1.0\"?><Error/>"))
        };
        let late = |response: HttpResponse| {
            assert_eq!(response.status(), 400);
            document(400, "<?xml version=\"1.0\"?><Error>completed</Error>")
        };
        let task = forebay_env::spawn(answer(env.clock, work, late));
        while !task.is_finished() {
            clock.advance(SILENT_MAX);
            tokio::task::yield_now().await;
        }
        let response = task.join().await.unwrap();
        assert_eq!(response.status(), 200);
        assert!(response.extensions().get::<Begun>().is_some());
        release.send(()).unwrap();
        let body = BodyExt::collect(response.into_body()).await.unwrap().to_bytes();
        let text = std::str::from_utf8(&body).unwrap();
        assert!(text.starts_with("<?xml") && text.ends_with("<Error>completed</Error>"), "{text}");
        assert_eq!(text.matches("<?xml").count(), 1, "{text}");
    }
}
