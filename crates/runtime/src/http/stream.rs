//! A text that is made while it is sent, so that it need not be in memory as a whole.

use std::convert::Infallible;

use axum::Router;
use axum::body::Body;
use axum::http::{StatusCode, header::CONTENT_TYPE};
use axum::response::IntoResponse as _;
use axum::routing::get;
use futures::stream;

/// A route with a text in parts, which `parts` starts for each request; `None`: it cannot be had now.
pub fn stream<F, P>(
    path: &str,
    content_type: &'static str,
    parts: impl Fn() -> F + Clone + Send + Sync + 'static,
) -> Router
where
    F: Future<Output = Option<P>> + Send + 'static,
    P: Iterator<Item = String> + Send + 'static,
{
    let answer = async move || match parts().await {
        None => StatusCode::SERVICE_UNAVAILABLE.into_response(),
        Some(parts) => {
            let body = Body::from_stream(stream::iter(parts.map(Ok::<_, Infallible>)));
            ([(CONTENT_TYPE, content_type)], body).into_response()
        }
    };
    Router::new().route(path, get(answer))
}
