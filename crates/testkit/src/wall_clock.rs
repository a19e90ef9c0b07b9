//! A wall clock that jumps, for one process.
//!
//! In: a folder, years. Out: variables of the environment for the process. Never: the machine's own clock, which is not
//! ours to set; no namespace of Linux has one either, so a library in front of libc adds the offset.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context as _, ensure};

/// Moves the wall clock by the seconds in the file `CLOCK_OFFSET`, whatever they are at the moment.
const SHIM: &str = r#"
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>
int clock_gettime(clockid_t clock, struct timespec *now) {
    int result = (int)syscall(SYS_clock_gettime, clock, now);
    if (result == 0 && clock == CLOCK_REALTIME) {
        long seconds = 0;
        FILE *file = fopen(getenv("CLOCK_OFFSET"), "r");
        if (file) {
            if (fscanf(file, "%ld", &seconds) != 1) seconds = 0;
            fclose(file);
        }
        now->tv_sec += seconds;
    }
    return result;
}
"#;

const YEAR: i64 = 365 * 24 * 3600;

/// The clock of the processes that have its variables.
#[derive(Clone, Debug)]
pub struct WallClock {
    library: PathBuf,
    offset: PathBuf,
}

impl WallClock {
    /// Builds it in `dir` with the machine's C compiler. It says the time until it is set.
    ///
    /// # Errors
    /// When there is no compiler, or the files cannot be written.
    pub fn build(dir: &Path) -> anyhow::Result<Self> {
        let (source, library) = (dir.join("clock.c"), dir.join("clock.so"));
        fs::write(&source, SHIM)?;
        let mut compiler = Command::new("cc");
        let built = compiler.args(["-shared", "-fPIC", "-o"]).args([&library, &source]).status();
        ensure!(built.context("cc")?.success(), "cc failed");
        let clock = Self { library, offset: dir.join("clock-offset") };
        clock.set(0)?;
        Ok(clock)
    }

    /// Variables of the environment for processes that are linked with libc at run time.
    #[must_use]
    pub fn variables(&self) -> [(&'static str, String); 2] {
        [("LD_PRELOAD", &self.library), ("CLOCK_OFFSET", &self.offset)]
            .map(|(name, path)| (name, path.display().to_string()))
    }

    /// Lets it jump to so many years from now.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub fn set(&self, years: i64) -> anyhow::Result<()> {
        // Written whole: a process may be reading it.
        let new = self.offset.with_extension("new");
        fs::write(&new, (years * YEAR).to_string())?;
        fs::rename(new, &self.offset).context("setting the clock")
    }
}
