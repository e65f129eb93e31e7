//! Bodies that hardly come: a client that announces one and sends a byte now and then would keep its connection, of
//! which there are few.

use std::sync::Arc;

use axum::body::{Body, HttpBody};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use futures::{StreamExt, stream};

use crate::Admin;
use crate::server::{PROGRESS_BYTES, PROGRESS_WINDOW};

/// Ends a body with an error when too little of it comes in a window.
pub(crate) async fn end_stalled_bodies(State(admin): State<Admin>, request: Request, next: Next) -> Response {
    if request.body().is_end_stream() {
        return next.run(request).await;
    }
    let (parts, body) = request.into_parts();
    let clock = Arc::clone(&admin.env().clock);
    let window = move || {
        let clock = Arc::clone(&clock);
        Box::pin(async move { clock.sleep(PROGRESS_WINDOW).await })
    };
    let begun = Some((body.into_data_stream(), window(), 0));
    let pieces = stream::unfold(begun, move |body| {
        let window = window.clone();
        async move {
            let (mut body, mut left, mut came) = body?;
            let piece = tokio::select! {
                biased;
                piece = body.next() => piece?,
                () = &mut left => Err(axum::Error::new("the body comes too slowly")),
            };
            came += piece.as_ref().map_or(0, |piece| piece.len());
            if came >= PROGRESS_BYTES {
                (left, came) = (window(), 0);
            }
            let rest = piece.is_ok().then_some((body, left, came));
            Some((piece, rest))
        }
    });
    next.run(Request::from_parts(parts, Body::from_stream(pieces))).await
}
