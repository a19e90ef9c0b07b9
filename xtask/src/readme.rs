//! `cargo xtask readme`: the commands of README and quick start, in their order, as a person with a fresh machine types
//! them.
//!
//! In: both pages. Out: a table of commands with exit code and time; on request a row in docs/figures.md. What needs no
//! cluster runs in a fresh clone with a fresh `CARGO_HOME` and `target`. What needs one runs on the rig, with the image
//! of that clone: there are no containers here for kind. Never: a command that the pages do not have, but for the
//! removal of what one of the ways to install has made.
//!
//! Warm stay: the toolchain, Go, and the Kubernetes programs of the rig, which no user needs.

mod commands;
mod rig;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use tempfile::TempDir;

use crate::gotool::output;
use crate::tree::root;
use commands::{Command, How, Page};

/// The longest time of a command: that of all tests on a machine that does something else too.
const PATIENCE: Duration = Duration::from_secs(2 * 3600);
/// The last lines of a command that failed.
const TAIL: usize = 40;

/// How the commands are run.
#[derive(clap::Args, Clone, Debug, Default)]
pub(crate) struct Args {
    /// Run the long commands too: all tests
    #[arg(long)]
    tests: bool,
    /// Only print the commands, and where each runs
    #[arg(long)]
    list: bool,
}

/// A command that ran, or did not.
struct Row {
    command: Command,
    code: Option<i32>,
    took: Duration,
}

/// What the commands see of the machine.
struct Machine {
    clone: PathBuf,
    cargo_home: PathBuf,
    folder: TempDir,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let summary = report(args)?;
    println!("\n{summary}");
    Ok(())
}

/// Runs the commands, prints the table, and says in a line how it went.
pub(crate) fn report(args: &Args) -> anyhow::Result<String> {
    let pages = Page::all(&root())?;
    let commands = commands::of(&pages)?;
    if args.list {
        for command in &commands {
            println!("{:<8} {}: {}", command.how.word(), command.place(), command.shown());
        }
        return Ok(format!("{} commands", commands.len()));
    }
    // The rig's programs are no part of what a user does. Without them the run would fail at its end.
    crate::testenv::ensure()?;
    let machine = Machine::fresh(&root())?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let (here, later): (Vec<_>, Vec<_>) = commands.into_iter().partition(|one| !one.how.wants_cluster());
    let mut rows = Vec::new();
    for command in here {
        let runs = command.how == How::Here || (command.how == How::OnRequest && args.tests);
        let row = match runs {
            true => runtime.block_on(Row::of(command, &machine.shell()?))?,
            false => Row { command, code: None, took: Duration::ZERO },
        };
        rows.push(row);
        if rows.iter().any(Row::failed) {
            break;
        }
    }
    if !rows.iter().any(Row::failed) {
        rows.extend(rig::play(machine.shell()?, machine.program()?, &pages, later)?);
    }
    print(&rows);
    match rows.iter().find(|row| row.failed()) {
        None => Ok(summary(&rows)),
        Some(Row { command, .. }) => bail!("{}: {:?} failed", command.place(), command.shown()),
    }
}

fn print(rows: &[Row]) {
    println!("\n{:>4} {:>9}  {:<8} {:<24} COMMAND", "CODE", "TIME", "WHERE", "PAGE");
    for Row { command, code, took } in rows {
        let code = code.map_or("-".to_owned(), |code| code.to_string());
        let took =
            if *took == Duration::ZERO { "-".to_owned() } else { format!("{:.1} s", took.as_secs_f64()) };
        println!(
            "{code:>4} {took:>9}  {:<8} {:<24} {}",
            command.how.word(),
            command.place(),
            command.shown()
        );
    }
}

/// One line: how many, how they ended, the slowest.
fn summary(rows: &[Row]) -> String {
    let count = |how: How| rows.iter().filter(|row| row.command.how == how && row.code == Some(0)).count();
    let skipped = rows.iter().filter(|row| row.code.is_none()).count();
    let mut slow: Vec<&Row> = rows.iter().filter(|row| row.took >= Duration::from_secs(10)).collect();
    slow.sort_by_key(|row| std::cmp::Reverse(row.took));
    let slow = slow.iter().take(4).map(|row| format!("{} {} s", row.command.shown(), row.took.as_secs()));
    format!(
        "{} commands from a fresh clone: {} run there, {} on the rig, {} played there, {skipped} not run; slowest: {}",
        rows.len(),
        count(How::Here) + count(How::OnRequest),
        count(How::Rig) + count(How::Undo),
        count(How::Played),
        slow.collect::<Vec<_>>().join(", "),
    )
}

impl Row {
    fn failed(&self) -> bool {
        self.code.is_some_and(|code| code != 0)
    }

    /// Runs a command in this shell and prints it, with the end of its output if it fails.
    async fn of(command: Command, shell: &Shell) -> anyhow::Result<Self> {
        println!("\n$ {}", command.text.trim_end());
        let began = Instant::now();
        let (code, output) = shell.run(&command.text).await?;
        let took = began.elapsed();
        if code != 0 {
            let lines: Vec<&str> = output.lines().collect();
            println!("{}", lines[lines.len().saturating_sub(TAIL)..].join("\n"));
        }
        println!("ended with {code} after {:.1} s", took.as_secs_f64());
        Ok(Self { command, code: Some(code), took })
    }
}

impl Machine {
    /// A clone of the last commit, and empty caches.
    fn fresh(root: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("tholepin-readme").tempdir()?;
        let clone = folder.path().join("tholepin");
        let git = |words: &[&str], dir: &Path| {
            output(std::process::Command::new("git").args(words).current_dir(dir)).map(|(text, _)| text)
        };
        if !git(&["status", "--porcelain"], root)?.is_empty() {
            eprintln!("note: changes that are not committed are not in the clone");
        }
        let head = git(&["rev-parse", "HEAD"], root)?;
        let (from, to) = (root.display().to_string(), clone.display().to_string());
        git(&["clone", "--quiet", "--no-hardlinks", &from, &to], root)?;
        git(&["checkout", "--quiet", "--detach", head.trim()], &clone)?;
        let cargo_home = folder.path().join("cargo");
        std::fs::create_dir(&cargo_home)?;
        // It says where crates come from, where that is another place than usual.
        if let Some(home) = std::env::var_os("CARGO_HOME").or_else(|| {
            let home = PathBuf::from(std::env::var_os("HOME")?);
            Some(home.join(".cargo").into_os_string())
        }) {
            let config = Path::new(&home).join("config.toml");
            if config.is_file() {
                std::fs::copy(config, cargo_home.join("config.toml"))?;
            }
        }
        Ok(Self { clone, cargo_home, folder })
    }

    /// A shell in the clone, with what `cargo install` puts into its place.
    fn shell(&self) -> anyhow::Result<Shell> {
        let mut shell = Shell::of(self.clone.clone(), &["CARGO_HOME"]);
        shell.set("CARGO_HOME", &self.cargo_home);
        shell.before(&self.cargo_home.join("bin"))?;
        Ok(shell)
    }

    /// The program in the image's archive.
    fn program(&self) -> anyhow::Result<PathBuf> {
        use std::os::unix::fs::PermissionsExt as _;
        let archive = self.clone.join("target/image/tholepin.oci.tar");
        let bytes = std::fs::read(&archive).with_context(|| format!("reading {}", archive.display()))?;
        let folder = self.folder.path().join("image");
        std::fs::create_dir(&folder)?;
        let program = folder.join("tholepin");
        std::fs::write(&program, crate::image::packed_program(&bytes)?)?;
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
        Ok(program)
    }
}

/// Where commands run.
struct Shell {
    dir: PathBuf,
    variables: BTreeMap<OsString, OsString>,
}

impl Shell {
    /// A shell in a folder, with the variables of this process but for those of `cargo xtask` and these.
    fn of(dir: PathBuf, without: &[&str]) -> Self {
        let set = |name: &str| {
            let by_cargo = name.starts_with("CARGO_") && name != "CARGO_HOME" || name == "CARGO";
            by_cargo || name == "RUSTUP_TOOLCHAIN" || name == "KUBECONFIG" || without.contains(&name)
        };
        let kept = std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(|name| !set(name)));
        Self { dir, variables: kept.collect() }
    }

    fn set(&mut self, name: &str, value: impl Into<OsString>) {
        self.variables.insert(name.into(), value.into());
    }

    /// Programs of this folder come before others.
    fn before(&mut self, folder: &Path) -> anyhow::Result<()> {
        let path = self.variables.get(OsStr::new("PATH")).context("there is no PATH")?;
        let folders = [folder.to_owned()].into_iter().chain(std::env::split_paths(path));
        let path = std::env::join_paths(folders)?;
        self.set("PATH", path);
        Ok(())
    }

    /// Exit code, and both outputs.
    async fn run(&self, text: &str) -> anyhow::Result<(i32, String)> {
        let mut shell = tokio::process::Command::new("sh");
        shell.args(["-ec", text]).current_dir(&self.dir).env_clear().envs(&self.variables);
        shell.stdin(Stdio::null()).kill_on_drop(true);
        let told = tokio::time::timeout(PATIENCE, shell.output()).await;
        let told = told.with_context(|| format!("{text:?} has not ended after {PATIENCE:?}"))??;
        let texts = [told.stdout, told.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        Ok((told.status.code().unwrap_or(-1), texts.concat()))
    }
}
