//! Results as files that people read, so that a change of one is seen.
//!
//! In: a crate's folder, a file's name, what it should say. Out: a panic that says from which line on they
//! differ. Never: a file that is written without being asked for by `UPDATE=1`.

use std::path::Path;

/// Compares with `tests/golden/FILE` of the crate in `dir` (`env!("CARGO_MANIFEST_DIR")`), or writes it.
///
/// # Panics
/// When they differ, or the file cannot be written.
#[track_caller]
pub fn compare(dir: &str, file: &str, wanted: &str) {
    let path = Path::new(dir).join("tests/golden").join(file);
    if std::env::var_os("UPDATE").is_some() {
        let made = path.parent().map_or(Ok(()), std::fs::create_dir_all);
        let written = made.and_then(|()| std::fs::write(&path, wanted));
        assert!(written.is_ok(), "{}: {written:?}", path.display());
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = found.lines().zip(wanted.lines()).position(|(found, wanted)| found != wanted);
    assert!(
        found == wanted,
        "{}: differs from line {} on; UPDATE=1 writes it anew",
        path.display(),
        differs.unwrap_or(found.lines().count()) + 1
    );
}
