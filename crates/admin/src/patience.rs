//! Bodies that stop coming: a client that announces one and sends nothing would keep its connection, of which there are few.

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use futures::{StreamExt, stream};

use crate::Admin;
use crate::server::PROGRESS_TIMEOUT;

/// Ends a body with an error when its next piece does not come in time.
pub(crate) async fn end_stalled_bodies(State(admin): State<Admin>, request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let clock = std::sync::Arc::clone(&admin.env().clock);
    let pieces = stream::unfold((body.into_data_stream(), clock), |(mut body, clock)| async move {
        let piece = tokio::select! {
            piece = body.next() => piece?,
            () = clock.sleep(PROGRESS_TIMEOUT) => Err(axum::Error::new("the body stopped coming")),
        };
        Some((piece, (body, clock)))
    });
    next.run(Request::from_parts(parts, Body::from_stream(pieces))).await
}
