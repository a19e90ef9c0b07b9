//! Places in the documentation.
//!
//! In: a page and the id of a part. Out: a link, the same wherever output names a page. Never: a page's text.

/// The place of the pages: relative to the repository and to an unpacked release, which need no network.
pub const BASE: &str = "docs";

/// The page of alerts, with a part for each.
pub const ALERTS: &str = "docs/alerts.md";

/// The link to a part of a page.
#[must_use]
pub fn link(page: &str, id: &str) -> String {
    format!("{BASE}/{page}.md#{id}")
}
