//! Man pages, made of the command line's definition.
//!
//! In: the definition. Out: a page for each command in a folder, or that of the program on standard output. Never: a
//! date, so that the same program writes the same pages.

use std::fs;
use std::path::Path;

use anyhow::Context as _;
use clap::Command;
use runtime::stdout::print;

/// Writes all pages into a folder, which is made if need be, or prints the program's own.
///
/// # Errors
/// When the folder, a page or standard output cannot be written.
pub(crate) fn run(command: Command, folder: Option<&Path>) -> anyhow::Result<()> {
    let Some(folder) = folder else {
        let mut page = Vec::new();
        clap_mangen::Man::new(command).render(&mut page)?;
        return Ok(print(&String::from_utf8_lossy(&page))?);
    };
    let written = || fs::create_dir_all(folder).and_then(|()| clap_mangen::generate_to(command, folder));
    written().with_context(|| format!("{}: cannot be written", folder.display()))
}
