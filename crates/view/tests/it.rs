//! The view on dumps and on a rig: one test binary.

#[path = "it/fixture.rs"]
mod fixture;
#[path = "it/http.rs"]
mod http;
#[path = "it/node.rs"]
mod node;
#[path = "it/report.rs"]
mod report;
#[path = "it/web.rs"]
mod web;
