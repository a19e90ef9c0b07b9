//! The view on dumps and on a rig: one test binary.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a test fails by panicking; the exemption for tests misses helpers"
)]

#[path = "it/browser.rs"]
mod browser;
#[path = "it/fixture.rs"]
mod fixture;
#[path = "it/http.rs"]
mod http;
#[path = "it/node.rs"]
mod node;
#[path = "it/report.rs"]
mod report;
#[path = "it/rig.rs"]
mod rig;
#[path = "it/top.rs"]
mod top;
#[path = "it/web.rs"]
mod web;
#[path = "it/webdriver.rs"]
mod webdriver;
