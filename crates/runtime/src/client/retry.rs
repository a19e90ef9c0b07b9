//! A read whose connection the API server closed before its answer is sent again, as client-go's `rest.Request` does.
//!
//! In: the requests of a client and their failures. Out: at most `RETRIES` further requests. Never: writes, which the
//! server may have carried out, and answers, whatever their status; their callers know how long waiting is worth it.

use axum::http::header::UPGRADE;
use axum::http::{Method, Request, Response};
use kube::client::Body;
use std::error::Error;
use std::io;
use std::time::Duration;
use tokio::time::{Sleep, sleep};
use tower::BoxError;
use tower::retry::Policy;

/// The further requests for one read. A server that restarts refuses connections, and that is no case of this.
const RETRIES: u32 = 3;

/// The pause before the first further request; each later one is twice as long.
const PAUSE: Duration = Duration::from_millis(100);

/// How often one read was sent again.
#[derive(Debug, Clone, Default)]
pub(super) struct ClosedConnections {
    retries: u32,
}

impl<B> Policy<Request<Body>, Response<B>, BoxError> for ClosedConnections {
    type Future = Sleep;

    fn retry(
        &mut self,
        request: &mut Request<Body>,
        result: &mut Result<Response<B>, BoxError>,
    ) -> Option<Sleep> {
        let error = result.as_ref().err()?;
        if self.retries == RETRIES || !is_closed(&**error) {
            return None;
        }
        tracing::debug!(path = request.uri().path(), "the server closed a read's connection, trying again");
        let pause = PAUSE * 2_u32.pow(self.retries);
        self.retries += 1;
        Some(sleep(pause))
    }

    fn clone_request(&mut self, request: &Request<Body>) -> Option<Request<Body>> {
        // A read that becomes another protocol may run a command.
        if request.method() != Method::GET || request.headers().contains_key(UPGRADE) {
            return None;
        }
        let mut again = Request::new(request.body().try_clone()?);
        *again.method_mut() = request.method().clone();
        *again.uri_mut() = request.uri().clone();
        *again.version_mut() = request.version();
        *again.headers_mut() = request.headers().clone();
        *again.extensions_mut() = request.extensions().clone();
        Some(again)
    }
}

/// Whether the connection ended before a response came, be it in the handshake. A refused connection did not begin.
fn is_closed(error: &(dyn Error + 'static)) -> bool {
    let incomplete = error.downcast_ref::<hyper::Error>().is_some_and(hyper::Error::is_incomplete_message);
    let is_reset = |error: &io::Error| {
        matches!(error.kind(), io::ErrorKind::ConnectionReset | io::ErrorKind::UnexpectedEof)
    };
    let reset = error.downcast_ref::<io::Error>().is_some_and(is_reset);
    incomplete || reset || error.source().is_some_and(is_closed)
}
