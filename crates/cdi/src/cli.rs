//! `tholepin cdi`: shows specifications as container runtimes see them.
//!
//! In: folders or files. Out: a table or documents on standard output; findings, a line each. Never: a change of a
//! file.

use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use runtime::output::{OutputArgs, TableFormat, one_line};
use runtime::{stderr, yaml};

use crate::check::{Finding, Severity};
use crate::file::{self, LIMIT_BYTES};
use crate::registry::Registry;

mod list;

/// The exit code for findings.
const FINDINGS: u8 = 1;

/// The exit code for files and folders that cannot be read.
const UNREADABLE: u8 = 2;

/// The commands of `tholepin cdi`.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// List the devices that containers can ask for on this machine
    #[command(
        after_help = "Errors in files are printed on standard error.\n\nExit codes: 0 no error, 1 an error in a file, \
            2 a file or folder cannot be read.\n\nExamples:\n  tholepin cdi list\n  tholepin cdi list -o wide\n  \
            tholepin cdi list --dir /var/run/cdi -o json"
    )]
    List(List),
    /// Check specifications by the rules of runtimes and by the specification's text
    #[command(
        after_help = "An error is what runtimes refuse; a warning is what they accept although the specification \
            forbids it.\n\n\
            Exit codes: 0 fine, 1 errors (with --strict also warnings), 2 a file or folder cannot be read.\n\n\
            Examples:\n  tholepin cdi validate\n  tholepin cdi validate /etc/cdi/vendor.json\n  \
            tholepin cdi validate --strict ./cdi\n  \
            generate-cdi | tholepin cdi validate -"
    )]
    Validate(Validate),
}

/// Arguments of `list`.
#[derive(Debug, Args)]
pub struct List {
    /// A folder with specifications; may be repeated, later ones take precedence [default: /etc/cdi /var/run/cdi]
    #[arg(long = "dir", value_name = "DIR")]
    folders: Vec<PathBuf>,
    #[command(flatten)]
    output: OutputArgs<TableFormat>,
}

/// Arguments of `validate`.
#[derive(Debug, Args)]
pub struct Validate {
    /// Files or folders, or - for standard input; later folders take precedence [default: /etc/cdi /var/run/cdi]
    #[arg(value_name = "PATH")]
    paths: Vec<PathBuf>,
    /// Treat warnings as errors
    #[arg(long)]
    strict: bool,
}

/// Runs a command; returns the exit code.
///
/// # Errors
/// When standard output or input is broken.
pub fn run(command: &Command) -> anyhow::Result<ExitCode> {
    let mut out = io::stdout().lock();
    let code = match command {
        Command::List(list) => list.run(&mut out, &mut io::stderr().lock()),
        Command::Validate(validate) => {
            validate.run(&mut io::stdin().lock(), &mut out, &mut io::stderr().lock())
        }
    };
    match code {
        // The reader may close the pipe early.
        Err(error) if is_broken_pipe(&error) => Ok(ExitCode::SUCCESS),
        code => Ok(ExitCode::from(code?)),
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<io::Error>().is_some_and(|error| error.kind() == ErrorKind::BrokenPipe)
}

impl List {
    fn run(&self, out: &mut impl io::Write, err: &mut impl io::Write) -> anyhow::Result<u8> {
        let usual = usual();
        let mut registry = Registry::read(if self.folders.is_empty() { &usual } else { &self.folders });
        // A usual folder may be missing; one that was named must exist.
        for folder in &self.folders {
            if let Err(error) = std::fs::metadata(folder) {
                registry.unreadable.push((folder.clone(), error));
            }
        }
        write!(out, "{}", list::render(&registry, self.output.format)?)?;
        let severe = |finding: &Finding| finding.severity == Severity::Error;
        for (path, finding) in registry.findings.iter().filter(|(_, finding)| severe(finding)) {
            writeln!(err, "{}", stderr::text(&line(path, finding)))?;
        }
        tell_unreadable(&registry, err)?;
        Ok(code(&registry, false))
    }
}

impl Validate {
    fn run(
        &self,
        stdin: &mut impl io::Read,
        out: &mut impl io::Write,
        err: &mut impl io::Write,
    ) -> anyhow::Result<u8> {
        let usual = usual();
        let paths = if self.paths.is_empty() { &usual } else { &self.paths };
        let (folders, files): (Vec<_>, Vec<_>) = paths.iter().partition(|path| {
            // A usual folder may be missing; a path that was named must exist.
            self.paths.is_empty() || path.is_dir()
        });
        let mut registries = vec![Registry::read(&folders)];
        for path in files {
            let mut registry = Registry::default();
            if path.as_os_str() == "-" {
                read_stdin(stdin, &mut registry)?;
            } else {
                registry.read_file(path.clone(), 0);
            }
            registries.push(registry);
        }
        let mut worst = 0;
        for registry in &registries {
            for (path, finding) in &registry.findings {
                writeln!(out, "{}", line(path, finding))?;
            }
            tell_unreadable(registry, err)?;
            worst = worst.max(code(registry, self.strict));
        }
        writeln!(out, "{}", summary(&registries))?;
        Ok(worst)
    }
}

/// The folders of container runtimes.
fn usual() -> Vec<PathBuf> {
    [crate::STATIC_DIR, crate::GENERATED_DIR].map(PathBuf::from).to_vec()
}

fn read_stdin(stdin: &mut impl io::Read, registry: &mut Registry) -> anyhow::Result<()> {
    const NAME: &str = "standard input";
    let text = yaml::read_bounded(NAME, stdin, LIMIT_BYTES)?;
    match file::parse(NAME, &text) {
        Ok(spec) => registry.take(PathBuf::from(NAME), 0, spec),
        Err(error) => {
            let finding = Finding { severity: Severity::Error, field: String::new(), problem: error.reason };
            registry.findings.push((PathBuf::from(NAME), finding));
        }
    }
    Ok(())
}

/// A finding as one line.
fn line(path: &Path, finding: &Finding) -> String {
    one_line(&format!("{}: {}: {finding}", path.display(), finding.severity)).into_owned()
}

fn tell_unreadable(registry: &Registry, err: &mut impl io::Write) -> io::Result<()> {
    registry
        .unreadable
        .iter()
        .map(|(path, error)| format!("error: cannot read {}: {error}", path.display()))
        .try_for_each(|text| writeln!(err, "{}", stderr::text(&one_line(&text))))
}

fn code(registry: &Registry, strict: bool) -> u8 {
    match () {
        () if !registry.unreadable.is_empty() => UNREADABLE,
        () if registry.has_errors() || strict && !registry.findings.is_empty() => FINDINGS,
        () => 0,
    }
}

/// The numbers of files, devices and findings.
fn summary(registries: &[Registry]) -> String {
    let count = |severity| {
        registries
            .iter()
            .flat_map(|r| &r.findings)
            .filter(|(_, finding)| finding.severity == severity)
            .count()
    };
    let devices: usize = registries.iter().flat_map(|r| &r.files).map(|file| file.spec.devices.len()).sum();
    let files: usize = registries.iter().map(|r| r.files.len()).sum();
    let number = |count: usize, what: &str| format!("{count} {what}{}", if count == 1 { "" } else { "s" });
    format!(
        "{} and {} accepted by runtimes; {}, {}",
        number(files, "file"),
        number(devices, "device"),
        number(count(Severity::Error), "error"),
        number(count(Severity::Warning), "warning"),
    )
}

#[cfg(test)]
mod tests;
