//! Integration tests: files on a real file system.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking; the exemption for tests misses helpers")]

#[path = "it/files.rs"]
mod files;
#[path = "it/folders.rs"]
mod folders;
#[path = "it/specs.rs"]
mod specs;
