//! `cargo xtask testenv`: makes sure the Kubernetes programs of the rig are there, and says where.
//!
//! In: what `testkit::env` finds or builds. Out: progress on standard error, the places on standard output.

use std::io::IsTerminal as _;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use indicatif::{ProgressBar, ProgressStyle};
use testkit::env::build::{self, Progress};
use testkit::env::oracle::Release;
use testkit::env::{Binaries, Program};

use crate::gotool::HELM;

/// What to find or build beside the programs of the rig.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The oracles of other releases too: `all`, or a minor version such as 1.34. Each takes minutes.
    #[arg(long, value_name = "RELEASE")]
    oracle: Vec<String>,
}

/// Finds or builds the programs and prints where each one is.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let binaries = ensure()?;
    for program in Program::ALL {
        let found = binaries.get(program);
        let version = found.version()?;
        println!("{program:<24} {version:<9} {:<18} {}", found.origin, found.path.display());
        if version != program.wanted() {
            eprintln!("warning: {program} is {version}, the rig is made for {}", program.wanted());
        }
    }
    for release in args.releases()? {
        let mut show = Show::new();
        let path = release.find_or_build(&mut |progress| show.tell(progress))?;
        show.end();
        println!("{:<24} {:<9} {}", release.program_name(), release.version(), path.display());
    }
    println!("{:<24} {}", HELM.name, HELM.program()?.display());
    Ok(())
}

impl Args {
    /// The releases asked for; that of the rig is there in any case.
    fn releases(&self) -> anyhow::Result<Vec<Release>> {
        let mut releases = Vec::new();
        for text in &self.oracle {
            match text.as_str() {
                "all" => releases.extend(Release::ALL),
                minor => releases.push(minor.parse()?),
            }
        }
        releases.retain(|release| *release != Release::default());
        releases.sort();
        releases.dedup();
        Ok(releases)
    }
}

/// Finds or builds the programs, showing progress.
pub(crate) fn ensure() -> anyhow::Result<Binaries> {
    let mut show = Show::new();
    let binaries = build::ensure(&mut |progress| show.tell(progress)).context("no test environment")?;
    show.end();
    Ok(binaries)
}

/// One line that moves on a terminal; a few lines that stay elsewhere.
struct Show {
    bar: Option<ProgressBar>,
    live: bool,
    began: Instant,
    packages: u64,
}

impl Show {
    fn new() -> Self {
        Self { bar: None, live: std::io::stderr().is_terminal(), began: Instant::now(), packages: 0 }
    }

    fn tell(&mut self, progress: Progress) {
        match progress {
            Progress::Waiting => {
                eprintln!("another process is building the test environment; waiting for it")
            }
            Progress::Building { program, done, total } => {
                self.began = Instant::now();
                self.packages = 0;
                let what = format!("building {program} {} ({} of {total})", program.wanted(), done + 1);
                if self.live {
                    let bar = ProgressBar::new_spinner().with_style(style()).with_prefix(what);
                    bar.enable_steady_tick(Duration::from_millis(100));
                    self.bar = Some(bar);
                } else {
                    eprintln!("{what}; the first time takes minutes");
                }
            }
            Progress::Compiled { package } => {
                self.packages += 1;
                match &self.bar {
                    Some(bar) => {
                        bar.set_position(self.packages);
                        bar.set_message(package);
                    }
                    // A sign of life now and then for logs.
                    None if self.packages.is_multiple_of(200) => {
                        eprintln!(
                            "  {} packages after {:.0} s",
                            self.packages,
                            self.began.elapsed().as_secs_f64()
                        );
                    }
                    None => {}
                }
            }
            Progress::Built(program) => {
                self.end();
                eprintln!("built {program} in {:.0} s", self.began.elapsed().as_secs_f64());
            }
        }
    }

    fn end(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

fn style() -> ProgressStyle {
    ProgressStyle::with_template("{spinner} {prefix} [{elapsed}] {pos} packages {wide_msg:.dim}")
        .unwrap_or_else(|_| ProgressStyle::default_spinner())
}
