//! What answers of the API server prove.
//!
//! In: an answer, or a question. Out: what is certain. Never: a guess from an answer that did not come.

use std::time::{Duration, Instant};

use runtime::backoff::Backoff;
use runtime::client;

/// The time for which an API server may refuse an answer before the refusal is believed.
const REFUSED_FOR: Duration = Duration::from_secs(60);

/// Whether the answer proves that the server did not store what was written.
pub(super) fn is_final(error: &kube::Error) -> bool {
    client::code(error).is_some_and(|code| (400..500).contains(&code) && code != 408 && code != 429)
}

/// Asks until the server answers. `None`: it refused to, or its answer could not be read, for a minute. One refusal
/// says nothing: a server that has just started knows no rights yet.
pub(super) async fn until_told<T, F>(mut ask: impl FnMut() -> F) -> Option<T>
where
    F: Future<Output = Result<T, kube::Error>>,
{
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
    let mut refused_since = None;
    loop {
        match ask().await {
            Ok(answer) => return Some(answer),
            Err(error) if is_final(&error) || matches!(error, kube::Error::SerdeError(_)) => {
                let since = *refused_since.get_or_insert_with(Instant::now);
                if since.elapsed() > REFUSED_FOR {
                    return None;
                }
            }
            Err(_) => refused_since = None,
        }
        tokio::time::sleep(backoff.next_delay()).await;
    }
}
