//! One request: recorded, passed on, or failed as the test wants.

use std::future::pending;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes, to_bytes};
use axum::extract::{Request, State};
use axum::http::header::{CONNECTION, CONTENT_TYPE, HOST, RETRY_AFTER, TRANSFER_ENCODING, USER_AGENT};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderName, StatusCode};
use axum::response::{IntoResponse as _, Response};
use futures::{Stream, StreamExt as _, stream};
use serde_json::{Value, json};
use tokio::sync::broadcast;

use super::{Fault, RequestRecord, Shared};

/// Far above what anybody sends to an API server, which itself takes 3 MiB.
const MAX_BODY: usize = 32 << 20;

type Chunks = Pin<Box<dyn Stream<Item = io::Result<Bytes>> + Send>>;

#[derive(Clone)]
struct Handler {
    upstream: kube::Client,
    shared: Arc<Shared>,
}

pub(super) async fn serve(
    listener: std::net::TcpListener,
    upstream: kube::Config,
    shared: Arc<Shared>,
) -> anyhow::Result<()> {
    let listener = tokio::net::TcpListener::from_std(listener)?;
    let handler = Handler { upstream: kube::Client::try_from(upstream)?, shared };
    axum::serve(listener, Router::new().fallback(handle).with_state(handler)).await?;
    Ok(())
}

async fn handle(State(handler): State<Handler>, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let Ok(body) = to_bytes(body, MAX_BODY).await else {
        return refusal(413, None);
    };
    let seen = seen(&head, body.len());
    let is_watch = seen.method == "WATCH";
    match handler.shared.take(seen) {
        passing @ (None | Some(Fault::Cut(_) | Fault::Twice)) => {
            handler.pass(head, body, is_watch, passing).await
        }
        Some(Fault::Slow(millis)) => {
            tokio::time::sleep(Duration::from_millis(millis)).await;
            handler.pass(head, body, is_watch, None).await
        }
        Some(Fault::Answer(json)) => ([(CONTENT_TYPE, "application/json")], json).into_response(),
        Some(Fault::Status(status)) => refusal(status, None),
        Some(Fault::TooMany(seconds)) => refusal(429, Some(seconds)),
        Some(Fault::Silence) => pending().await,
        Some(fault @ (Fault::Mute | Fault::Late | Fault::LateAnswer)) => {
            let mut healed = handler.shared.healed.subscribe();
            // A task of its own, because this one ends when the caller gives up.
            let task = tokio::spawn(async move {
                if fault == Fault::Late {
                    let _ = healed.changed().await;
                }
                let answer = handler.pass(head, body, is_watch, None).await;
                if fault == Fault::LateAnswer {
                    let _ = healed.changed().await;
                }
                answer
            });
            match task.await {
                Ok(answer) if fault != Fault::Mute => answer,
                _ => pending().await,
            }
        }
    }
}

fn seen(head: &Parts, body_bytes: usize) -> RequestRecord {
    let text = |name: HeaderName| {
        head.headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
    };
    let query = head.uri.query().unwrap_or_default();
    let watch = query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1"));
    RequestRecord {
        at: Instant::now(),
        method: if watch { "WATCH".to_owned() } else { head.method.to_string() },
        path: head.uri.path_and_query().map(ToString::to_string).unwrap_or_default(),
        content_type: text(CONTENT_TYPE).unwrap_or_default(),
        user_agent: text(USER_AGENT).unwrap_or_default(),
        body_bytes,
        fault: None,
    }
}

impl Handler {
    /// Passes a request on and hands back the answer, as the fault leaves it.
    async fn pass(&self, mut head: Parts, body: Bytes, is_watch: bool, fault: Option<Fault>) -> Response {
        drop_hop_by_hop(&mut head.headers);
        head.headers.remove(HOST);
        // Before asking, so that no watch is missed that the caller believes to run.
        let ends = is_watch.then(|| self.shared.watches.subscribe());
        let answer = match self.upstream.send(Request::from_parts(head, body.into())).await {
            Ok(answer) => answer,
            Err(error) => {
                tracing::warn!(%error, "the proxy did not get through to the API server");
                return refusal(502, None);
            }
        };
        let (mut head, body) = answer.into_parts();
        drop_hop_by_hop(&mut head.headers);
        let chunks = Body::new(body).into_data_stream().map(|chunk| chunk.map_err(io::Error::other));
        let mut chunks: Chunks = chunks.boxed();
        match fault {
            Some(Fault::Cut(limit)) => chunks = cut(chunks, limit).boxed(),
            Some(Fault::Twice) => chunks = twice(chunks).boxed(),
            _ => {}
        }
        if let Some(ends) = ends {
            let shared = Arc::clone(&self.shared);
            let counted = chunks.inspect(move |_| {
                shared.watch_events.fetch_add(1, Ordering::Relaxed);
            });
            chunks = ended(counted.boxed(), ends).boxed();
        }
        Response::from_parts(head, Body::from_stream(chunks))
    }
}

fn drop_hop_by_hop(headers: &mut HeaderMap) {
    headers.remove(CONNECTION);
    headers.remove(TRANSFER_ENCODING);
}

/// The first `limit` bytes; then an error, which ends the connection.
fn cut(chunks: Chunks, limit: usize) -> impl Stream<Item = io::Result<Bytes>> + Send {
    stream::unfold((chunks, limit), |(mut chunks, left)| async move {
        if left == 0 {
            return Some((Err(broken()), (stream::empty().boxed(), 0)));
        }
        let chunk = chunks.next().await?;
        let chunk = chunk.map(|chunk| chunk.slice(..chunk.len().min(left)));
        let left = left - chunk.as_ref().map_or(0, Bytes::len);
        Some((chunk, (chunks, left)))
    })
}

/// Whole lines, each chunk of them two times.
fn twice(chunks: Chunks) -> impl Stream<Item = io::Result<Bytes>> + Send {
    stream::unfold((chunks, Vec::new()), |(mut chunks, mut rest)| async move {
        loop {
            let chunk = match chunks.next().await? {
                Ok(chunk) => chunk,
                Err(error) => return Some((Err(error), (chunks, rest))),
            };
            rest.extend_from_slice(&chunk);
            if let Some(end) = rest.iter().rposition(|byte| *byte == b'\n') {
                let after = rest.split_off(end + 1);
                return Some((Ok(rest.repeat(2).into()), (chunks, after)));
            }
        }
    })
}

/// The chunks until the watches are ended: by a last line, or by an error, which ends the connection.
fn ended(
    chunks: Chunks,
    ends: broadcast::Receiver<Option<Bytes>>,
) -> impl Stream<Item = io::Result<Bytes>> + Send {
    stream::unfold(Some((chunks, ends)), |state| async move {
        let (mut chunks, mut ends) = state?;
        tokio::select! {
            biased;
            end = ends.recv() => match end {
                Ok(Some(line)) => Some((Ok(line), None)),
                _ => Some((Err(broken()), None)),
            },
            chunk = chunks.next() => Some((chunk?, Some((chunks, ends)))),
        }
    })
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, "ended by the test")
}

/// An answer as the API server words it.
fn refusal(status: u16, retry_after: Option<u32>) -> Response {
    let code = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut answer = (code, axum::Json(self::status(status, retry_after))).into_response();
    if let Some(seconds) = retry_after {
        answer.headers_mut().insert(RETRY_AFTER, seconds.into());
    }
    answer
}

/// A `Status` object.
pub(super) fn status(code: u16, retry_after: Option<u32>) -> Value {
    let reason = match code {
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        413 => "RequestEntityTooLarge",
        429 => "TooManyRequests",
        500 => "InternalError",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "",
    };
    json!({
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "as the test wants it",
        "reason": reason,
        "details": { "retryAfterSeconds": retry_after.unwrap_or(0) },
        "code": code,
    })
}
