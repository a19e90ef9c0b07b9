//! The binary: its own name or a subcommand becomes an entry point of one of the crates. No logic lives here.

mod completion;
mod help;
mod man;

use std::ffi::OsString;
use std::io::{IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context;
use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, FromArgMatches as _, Parser, Subcommand};
use deployer::cli::render::RenderTarget;
use exporter::compat::{Ending, Environment, Note, Peer, Start};
use runtime::stdout::print;
use runtime::{log, shutdown, stderr, yaml};
use tokio_util::sync::CancellationToken;
use topology::fingerprint::Fingerprint;

/// NUMA-aware scheduling for Kubernetes: pods are placed where the kubelet can really align them.
#[derive(Parser)]
#[command(name = "tholepin", version, arg_required_else_help = true, propagate_version = true)]
#[command(after_help = "tholepin compatibility lists the other programs that this one stands in for.\n\n\
    Examples:\n  tholepin simulate\n  tholepin deploy --wait\n  tholepin test\n  tholepin validate")]
struct Cli {
    #[command(subcommand)]
    entry: Entry,
}

#[derive(Subcommand)]
enum Entry {
    #[command(flatten)]
    Deployer(deployer::cli::Command),
    /// Publish this node's NUMA zones as a NodeResourceTopology object
    Exporter(Box<exporter::Args>),
    /// Schedule pods onto nodes whose kubelets can align them
    Scheduler(Box<scheduler::args::Args>),
    /// Answer another scheduler's questions about zones
    Extender(Box<scheduler::shell::extender_server::Args>),
    /// Install and maintain what NUMAResources objects describe
    Operator(Box<operator::cli::Args>),
    /// Register the devices of this node with its kubelet
    DevicePlugin(Box<deviceplugin::Args>),
    /// Convert objects that request drivers of special hardware
    Hardware(hardware::cli::Args),
    /// Compare schedulers in virtual time, without a cluster
    #[command(
        after_help = "Examples:\n  tholepin simulate\n  tholepin simulate --nodes 100 --pods 10000 --rate 75 -o json\n  \
        tholepin simulate --machine 4x32+gpu4 --chart result.svg\n  \
        kubectl get nodes,pods,noderesourcetopologies -A -o yaml > dump.yaml && tholepin simulate --from dump.yaml"
    )]
    Simulate(Box<sim::cli::Args>),
    /// Run nodes of a cluster whose kubelets are a model, by the thousand
    Hollow(Box<hollow::Args>),
    /// Tell what a kubelet would do with pods, CPU by CPU
    Admit(Box<sim::admit::cli::Args>),
    /// Tell why a pod fits a node or not, and what would help
    Explain(Box<scheduler::explain::cli::Args>),
    /// Tell how many more pods like one fit, and where
    Capacity(Box<scheduler::capacity::cli::Args>),
    Defrag(Box<scheduler::defrag::cli::Args>),
    /// Show the cluster in this terminal: zones, cores, why pods wait
    Top(Box<view::top::Args>),
    /// Show the cluster in a browser: zones, what fits where, why pods wait
    Web(Box<view::web::Args>),
    /// Write the cluster as one HTML file, for a ticket
    Report(Box<view::report::Args>),
    /// Inspect Container Device Interface specifications as container runtimes do
    #[command(subcommand)]
    Cdi(cdi::cli::Command),
    /// Test NUMA-aware scheduling on a cluster, end to end
    E2e(Box<e2e::cli::Args>),
    /// Test in a minute whether pods get zones on every node
    Test(Box<e2e::cli::QuickArgs>),
    /// Wait until a signal, or for a time: the program of pods that only hold resources
    #[command(hide = true)]
    Pause {
        /// The time
        #[arg(long = "for", value_name = "DURATION", value_parser = api::goduration::GoDuration::positive)]
        time: Option<std::time::Duration>,
    },
    /// Try a connection from inside of a pod
    #[command(hide = true)]
    Dial(e2e::dial::Args),
    /// Collect the data for a support case into a folder
    MustGather(Box<support::mustgather::Args>),
    /// Record what the exporter reads of this node
    Record(Box<exporter::record::Args>),
    /// Compute the fingerprint of the pods on standard input (lines of `namespace name`)
    #[command(
        after_help = "Lines with fewer than two words and lines that begin with # are skipped.\n\nExample:\n  \
        kubectl get pods -A --no-headers | tholepin fingerprint"
    )]
    Fingerprint,
    /// Print the names of other programs that this one stands in for
    Compatibility,
    /// Print shell completions
    #[command(after_help = "Examples:\n  source <(tholepin completion bash)\n\nAs a plugin: \
        ln -s tholepin kubectl-tholepin; ln -s tholepin kubectl_complete-tholepin")]
    Completion {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the man page, or write those of all commands
    #[command(after_help = "Examples:\n  tholepin man | man -l -\n  tholepin man ~/.local/share/man/man1")]
    Man {
        /// Where the pages of all commands go
        #[arg(value_name = "DIR")]
        folder: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    // The deployer's errors have nothing before them.
    let (failure, prefix, result) = match stand_in(&words) {
        Some((Program::Exporter(peer), rest)) => {
            (ExitCode::from(peer.failure()), "error: ", run_as(peer, rest))
        }
        Some((Program::Scheduler, rest)) => {
            (ExitCode::from(scheduler::compat::FAILURE), "error: ", schedule_as(rest))
        }
        Some((Program::Deployer, rest)) => (ExitCode::FAILURE, "", deploy_as(rest)),
        Some((Program::Support(tool), rest)) => (tool.failure(), "error: ", support_as(tool, rest)),
        Some((Program::Operator, rest)) => (ExitCode::FAILURE, "error: ", operate_as(rest)),
        Some((Program::DevicePlugin, rest)) => (ExitCode::FAILURE, "error: ", plug_in_as(rest)),
        None if completion::is_asked(&words) => (ExitCode::FAILURE, "error: ", candidates(&words)),
        None => (ExitCode::FAILURE, "error: ", run(parse(&words))),
    };
    result.unwrap_or_else(|error| {
        stderr::line(format_args!("{prefix}{error:#}"));
        failure
    })
}

/// Prints the candidates that kubectl has asked for.
fn candidates(words: &[OsString]) -> anyhow::Result<ExitCode> {
    print(&completion::answer(Cli::command(), words)?)?;
    Ok(ExitCode::SUCCESS)
}

/// Ends the process as clap does.
fn exit(error: &clap::Error) -> ! {
    let plain = error.render().to_string();
    if error.use_stderr() && stderr::text(&plain) != plain {
        stderr::print(plain);
        std::process::exit(error.exit_code());
    }
    error.exit()
}

/// Commands that change a cluster, and their other names.
const CHANGING: [&str; 5] = ["deploy", "install", "remove", "setup", "uninstall"];

/// Reads the command line, or ends the process. A word that is no command leads to one that changes a cluster only if
/// both begin alike: `status` is no slip of `setup`. No word leads to one that help does not show.
fn parse(words: &[OsString]) -> Cli {
    // Help in groups costs each command's definition, which daemons need not pay at their start.
    let command = || match completion::plugin_name(words) {
        Some(name) => Cli::command().bin_name(name),
        None => Cli::command(),
    };
    let matches = || help::grouped(command()).try_get_matches_from(words);
    let again = |_| matches().and_then(|matches| Cli::from_arg_matches(&matches));
    Cli::try_parse_from(words).or_else(again).unwrap_or_else(|mut error| {
        let given = match error.get(ContextKind::InvalidSubcommand) {
            Some(ContextValue::String(given)) => given.get(..2).unwrap_or_default().to_owned(),
            _ => exit(&error),
        };
        if let Some(ContextValue::Strings(mut close)) = error.remove(ContextKind::SuggestedSubcommand) {
            let command = Cli::command();
            let is_hidden =
                |name: &str| command.find_subcommand(name).is_some_and(clap::Command::is_hide_set);
            close.retain(|name| !CHANGING.contains(&name.as_str()) || name.starts_with(&given));
            close.retain(|name| !is_hidden(name));
            if !close.is_empty() {
                error.insert(ContextKind::SuggestedSubcommand, ContextValue::Strings(close));
            }
        }
        exit(&error)
    })
}

/// A program that we stand in for.
enum Program {
    /// One that publishes.
    Exporter(Peer),
    /// The one that schedules.
    Scheduler,
    /// The one that installs.
    Deployer,
    /// A tool beside the operator.
    Support(support::Tool),
    /// The one that keeps it so.
    Operator,
    /// The one that makes devices up.
    DevicePlugin,
}

impl Program {
    fn named(name: &str) -> Option<Self> {
        let deployer = || deployer::compat::named(name).then_some(Self::Deployer);
        let scheduler = || scheduler::compat::named(name).then_some(Self::Scheduler);
        let tool = || support::Tool::named(name).map(Self::Support);
        let operator = || operator::compat::named(name).then_some(Self::Operator);
        let exporter = Peer::named(name).map(Self::Exporter);
        let plugin = || deviceplugin::args::is_sample_name(name).then_some(Self::DevicePlugin);
        let exporter = exporter.or_else(plugin);
        exporter.or_else(scheduler).or_else(deployer).or_else(operator).or_else(tool)
    }
}

/// The program we stand in for, if our own name or the first argument is one's, and the words from its name on.
fn stand_in(words: &[OsString]) -> Option<(Program, &[OsString])> {
    let named = |word: &OsString| Program::named(word.to_str()?);
    let own = words.first().and_then(|word| Path::new(word).file_name()).map(OsString::from);
    let by_own = own.as_ref().and_then(named).map(|program| (program, words));
    by_own.or_else(|| words.get(1).and_then(named).map(|program| (program, &words[1..])))
}

/// The words as text.
fn texts(words: &[OsString]) -> anyhow::Result<Vec<String>> {
    let text = |word: &OsString| {
        word.to_str().map(str::to_owned).with_context(|| format!("argument {word:?} is not UTF-8"))
    };
    words.iter().map(text).collect()
}

/// A variable of the environment; one that is not UTF-8 cannot be any of ours.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

/// Prints what a program that we stand in for ends with.
fn end(ending: &Ending) -> anyhow::Result<ExitCode> {
    stderr::print(&ending.stderr);
    std::io::stdout().write_all(ending.stdout.as_bytes())?;
    Ok(ExitCode::from(ending.code))
}

/// Runs as the Go deployer: its flags, its output, its exit codes.
fn deploy_as(words: &[OsString]) -> anyhow::Result<ExitCode> {
    let words = texts(words)?;
    match deployer::compat::start(words.get(1..).unwrap_or_default(), &variable) {
        deployer::compat::Invocation::End(ending) => end(&ending),
        deployer::compat::Invocation::Run(plan) => with_signals(async |token| plan.run(token).await),
    }
}

/// Runs as a tool beside the operator: its flags, its exit codes.
fn support_as(tool: support::Tool, words: &[OsString]) -> anyhow::Result<ExitCode> {
    let words = texts(words)?;
    let (program, arguments) = words.split_first().context("no program name")?;
    let call = support::call::Call { program: program.clone(), arguments: arguments.to_vec() };
    with_signals(async |token| tool.run(call, token).await)
}

/// Runs as kube-scheduler: its flags, its port, its exit codes.
fn schedule_as(words: &[OsString]) -> anyhow::Result<ExitCode> {
    use scheduler::compat::{NAME, Start, start};
    let words = texts(words)?;
    let plan = match start(NAME, words.into_iter().skip(1).collect(), &variable) {
        Start::Run(plan) => *plan,
        Start::End { text, code: 0 } => return end(&Ending { stdout: text, ..Ending::default() }),
        Start::End { text, code } => return end(&Ending { stderr: text, code, ..Ending::default() }),
    };
    let level = log::init(plan.args.log_format(), plan.args.verbosity)?;
    plan.log_ignored();
    block_on(tokio::runtime::Builder::new_multi_thread(), async {
        scheduler::shell::run(plan.args, level, shutdown::on_signals()?).await
    })
}

/// Runs as the Go operator: its flags, its exit codes.
fn operate_as(words: &[OsString]) -> anyhow::Result<ExitCode> {
    let words = texts(words)?;
    let (program, arguments) = words.split_first().context("no program name")?;
    let plan = match operator::compat::start(program, arguments.to_vec(), &variable) {
        Err(ending) => return end(&ending),
        Ok(plan) => plan,
    };
    let level = log::init(log::Format::Text, plan.verbosity)?;
    plan.notes.iter().for_each(Note::log);
    with_signals(async |token| plan.run(level, token).await)
}

/// Runs as the sample device plugin: its flags.
fn plug_in_as(words: &[OsString]) -> anyhow::Result<ExitCode> {
    let args = deviceplugin::args::parse_sample(&texts(words)?).unwrap_or_else(|error| exit(&error));
    plug_in(&args)
}

fn plug_in(args: &deviceplugin::Args) -> anyhow::Result<ExitCode> {
    log::init(log::Format::Text, args.verbosity)?;
    // One thread is plenty for what a kubelet asks, and each more costs memory on every node.
    block_on(tokio::runtime::Builder::new_current_thread(), async {
        deviceplugin::run(args.settings()?, shutdown::on_signals()?).await
    })
}

/// Runs as another program: its flags, its exit codes.
fn run_as(peer: Peer, words: &[OsString]) -> anyhow::Result<ExitCode> {
    let words = texts(words)?;
    let (program, arguments) = words.split_first().context("no program name")?;
    let plan = match peer.start(program, arguments.to_vec(), &Environment::real()) {
        Start::Run(plan) => plan,
        Start::End(ending) => return end(&ending),
    };
    std::io::stdout().write_all(plan.stdout.as_bytes())?;
    log::init(log::Format::Text, plan.verbosity)?;
    plan.notes.iter().for_each(Note::log);
    block_on(tokio::runtime::Builder::new_current_thread(), async {
        exporter::run(plan.settings, shutdown::on_signals()?).await
    })
}

fn run(cli: Cli) -> anyhow::Result<ExitCode> {
    match cli.entry {
        Entry::Exporter(args) => {
            log::init(log::Format::Text, args.verbosity)?;
            // One thread is plenty for a few scans a second, and each more costs memory on every node.
            block_on(tokio::runtime::Builder::new_current_thread(), async {
                exporter::run(args.settings()?, shutdown::on_signals()?).await
            })
        }
        Entry::Scheduler(args) => {
            let level = log::init(args.log_format(), args.verbosity)?;
            block_on(tokio::runtime::Builder::new_multi_thread(), async {
                scheduler::shell::run(*args, level, shutdown::on_signals()?).await
            })
        }
        Entry::Extender(args) => {
            let level = log::init(args.log_format(), args.verbosity)?;
            block_on(tokio::runtime::Builder::new_multi_thread(), async {
                scheduler::shell::extender_server::run(*args, level, shutdown::on_signals()?).await
            })
        }
        Entry::Operator(args) => {
            let level = log::init(args.log_format(), args.verbosity)?;
            // It waits for answers nearly all of the time, and each thread more costs memory.
            block_on(tokio::runtime::Builder::new_current_thread(), async {
                operator::process::run(args.settings(&variable), level, shutdown::on_signals()?).await
            })
        }
        Entry::DevicePlugin(args) => plug_in(&args),
        Entry::Deployer(deployer::cli::Command::Render(args))
            if args.target == Some(RenderTarget::Operator) =>
        {
            operator::cli::render::run(&args)
        }
        Entry::Deployer(deployer::cli::Command::Render(args))
            if args.target == Some(RenderTarget::Hardware) =>
        {
            operator::cli::render::hardware(&args)
        }
        Entry::Deployer(command) => with_signals(async |token| command.run(token).await),
        Entry::Simulate(args) => sim::cli::run(&args),
        Entry::Hollow(args) => {
            let level = log::init(log::Format::Text, args.verbosity)?;
            // It waits for answers nearly all of the time.
            block_on(tokio::runtime::Builder::new_current_thread(), async {
                hollow::shell::run(args.settings()?, level, shutdown::on_signals()?).await
            })
        }
        Entry::Admit(args) => sim::admit::cli::run(&args),
        Entry::Explain(args) => with_signals(async |token| scheduler::explain::cli::run(*args, token).await),
        Entry::Capacity(args) => {
            with_signals(async |token| scheduler::capacity::cli::run(*args, token).await)
        }
        Entry::Defrag(args) => with_signals(async |token| scheduler::defrag::cli::run(*args, token).await),
        Entry::Web(args) => {
            let level = log::init(log::Format::Text, args.verbosity)?;
            block_on(tokio::runtime::Builder::new_current_thread(), async {
                view::web::run(*args, level, shutdown::on_signals()?).await
            })
        }
        Entry::Top(args) => block_on(tokio::runtime::Builder::new_current_thread(), async {
            view::top::run(*args, shutdown::on_signals()?).await
        }),
        Entry::Report(args) => with_signals(async |token| view::report::run(*args, token).await),
        Entry::Hardware(args) => hardware::cli::run(&args),
        Entry::Cdi(command) => cdi::cli::run(&command),
        Entry::MustGather(args) => with_signals(async |token| support::mustgather::run(*args, token).await),
        Entry::Record(args) => with_signals(async |token| {
            let recorded = token.run_until_cancelled(exporter::record::run(*args)).await;
            recorded.unwrap_or_else(|| Err(anyhow::anyhow!("interrupted: nothing is written")))
        }),
        Entry::Test(args) => with_signals(async |token| Box::pin(e2e::cli::run_quick(*args, token)).await),
        Entry::E2e(args) => with_signals(async |token| Box::pin(e2e::cli::run(*args, token)).await),
        Entry::Pause { time } => pause(time),
        Entry::Dial(args) => with_signals(async |_| e2e::dial::run(args).await),
        Entry::Fingerprint => fingerprint(),
        Entry::Compatibility => {
            print(&help::compatibility())?;
            Ok(ExitCode::SUCCESS)
        }
        Entry::Man { folder } => {
            man::run(Cli::command(), folder.as_deref())?;
            Ok(ExitCode::SUCCESS)
        }
        Entry::Completion { shell } => {
            print(&completion::script(shell, &mut Cli::command()))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Runs a command that SIGTERM and Ctrl-C stop at its next safe place. Its task is on one thread: it waits for answers.
fn with_signals(
    command: impl AsyncFnOnce(CancellationToken) -> anyhow::Result<ExitCode>,
) -> anyhow::Result<ExitCode> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start")?;
    runtime.block_on(async { command(shutdown::on_signals()?).await })
}

fn block_on(
    mut builder: tokio::runtime::Builder,
    task: impl Future<Output = anyhow::Result<()>>,
) -> anyhow::Result<ExitCode> {
    builder.enable_all().build().context("cannot start")?.block_on(task)?;
    Ok(ExitCode::SUCCESS)
}

/// Waits. Two threads less than any other command has: a node may run hundreds.
fn pause(time: Option<std::time::Duration>) -> anyhow::Result<ExitCode> {
    with_signals(async |token| {
        match time {
            Some(time) => drop(tokio::time::timeout(time, token.cancelled()).await),
            None => token.cancelled().await,
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// A hundred thousand pods have a tenth of it.
const MAX_NAMES_BYTES: u64 = 64 << 20;

fn fingerprint() -> anyhow::Result<ExitCode> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        stderr::line("reading `namespace name` lines from standard input; end with Ctrl-D");
    }
    let text = yaml::read_bounded("standard input", stdin, MAX_NAMES_BYTES)?;
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let names = lines.filter_map(|line| {
        let mut words = line.split_whitespace();
        words.next().zip(words.next())
    });
    print(&format!("{}\n", Fingerprint::of_names(names)))?;
    Ok(ExitCode::SUCCESS)
}
