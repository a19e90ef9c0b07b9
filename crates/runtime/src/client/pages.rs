//! Lists read page by page.
//!
//! In: the path of a list. Out: its objects, one at a time, with kind and version. Never: an answer without a limit.

use kube::Client;
use serde_json::Value;

use super::{get_text, percent_encode};

/// Objects in a page.
const PAGE: usize = 500;
/// The greatest size of an answer: a page of the largest objects.
pub const MAX_PAGE_BYTES: usize = 1 << 30;
/// The greatest number of pages.
const MAX_PAGES: usize = 10_000;

/// Hands over the objects of a list. `path`: of the list, such as `/api/v1/pods`. `query`: selectors, or nothing.
///
/// # Errors
/// When an answer is not a success, or no list; when there are too many pages. Earlier objects were handed over.
pub async fn each(
    client: &Client,
    path: &str,
    query: &str,
    mut take: impl FnMut(Value),
) -> Result<(), kube::Error> {
    let mut token = String::new();
    for _ in 0..MAX_PAGES {
        let parts = [query.to_owned(), format!("limit={PAGE}"), token];
        let query = parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("&");
        let text = get_text(client, &format!("{path}?{query}"), MAX_PAGE_BYTES).await?;
        let mut page: Value = serde_json::from_str(&text).map_err(kube::Error::SerdeError)?;
        let version = page.get("apiVersion").cloned().unwrap_or_default();
        let kind = page.get("kind").and_then(Value::as_str).unwrap_or_default();
        let kind = kind.strip_suffix("List").unwrap_or(kind).to_owned();
        if let Some(Value::Array(items)) = page.get_mut("items").map(Value::take) {
            for mut item in items {
                // Items of typed lists have neither.
                item["kind"] = kind.as_str().into();
                item["apiVersion"] = version.clone();
                take(item);
            }
        }
        match page.pointer("/metadata/continue").and_then(Value::as_str) {
            Some(next) if !next.is_empty() => token = format!("continue={}", percent_encode(next)),
            _ => return Ok(()),
        }
    }
    Err(kube::Error::Service(format!("more than {MAX_PAGES} pages").into()))
}
