//! Checks on evidence made up.
