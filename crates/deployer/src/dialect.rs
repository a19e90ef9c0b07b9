//! The command line of the Go `deployer`.
//!
//! In: arguments, the environment. Out: what to print and the exit code, or a [`Plan`] that needs a cluster. Never: a rule about
//! clusters of its own: behind the flags is what our own command line uses.
//!
//! Standard output has product data only. The exit code is 0 or 1, as the peer's: findings of `validate`, a platform that `detect` does
//! not know and deletions that failed are no errors. `docs/compatibility-deployer.md` has what differs.

mod complete;
mod help;
pub mod path;
pub mod pflag;
mod plan;
pub mod request;
pub mod table;
#[cfg(test)]
mod tests;

pub use exporter::dialect::Ending;
pub use plan::Plan;

use anyhow::{Context as _, bail};

use crate::cli::version;
use crate::images::Used;
use crate::manifests;
use crate::options::Options;
use crate::part::Component;
use crate::platform::Platform;
use help::Length;
use path::{Error, Path};
use request::{Output, Request};
use table::{Scope, Verb};

/// What a command line comes to.
#[derive(Debug)]
pub enum Start {
    /// Print and end.
    End(Ending),
    /// Do this, with a cluster.
    Run(Box<Plan>),
}

/// Whether a program of this name is the peer.
#[must_use]
pub fn named(program: &str) -> bool {
    program == "deployer"
}

/// Reads the arguments that follow the program's name.
#[must_use]
pub fn start(words: &[String], variable: &dyn Fn(&str) -> Option<String>) -> Start {
    if let Some((first, rest)) = words.split_first()
        && let "__complete" | "__completeNoDesc" = first.as_str()
    {
        return Start::End(complete::answer(rest, first == "__complete"));
    }
    let (path, parsed) = Path::read(words);
    // A command that only has children shows its help, whatever follows.
    let Some(verb) = path.command().verb else { return printed(help::help(&path, Length::Full)) };
    let parsed = match parsed {
        Ok(parsed) => parsed,
        Err(Error::Flag(pflag::Error::Help)) => return printed(help::help(&path, Length::Full)),
        Err(error) => return failed(&error),
    };
    match Request::new(verb, &parsed, variable).and_then(|request| local(request, &parsed.rest)) {
        Ok(start) => start,
        Err(error) => failed(&format!("{error:#}")),
    }
}

/// What needs no cluster is done at once.
fn local(request: Request, words: &[String]) -> anyhow::Result<Start> {
    Ok(match request.verb {
        Verb::Nothing => {
            Start::End(Ending { stderr: help::usage(&Path::find(&[]).0, Length::Full), ..Ending::default() })
        }
        Verb::Help => help_about(words),
        Verb::Completion(shell) => printed(complete::script(shell)),
        Verb::Version => printed(version_text(request.output)),
        Verb::Images => printed(images(&request.options, request.output)),
        Verb::Policy => printed(policy(&request)?),
        Verb::Render(scope) if !request.replicas_of_control_plane => {
            printed(render(&request, request.options.clone(), scope)?)
        }
        _ => Start::Run(Box::new(Plan::new(request))),
    })
}

fn printed(stdout: String) -> Start {
    Start::End(Ending { stdout, ..Ending::default() })
}

fn failed(error: &dyn std::fmt::Display) -> Start {
    Start::End(Ending { stderr: format!("{error}\n"), code: 1, ..Ending::default() })
}

fn help_about(words: &[String]) -> Start {
    let (path, rest) = Path::find(words);
    if rest.is_empty() {
        return Start::End(Ending {
            stdout: help::help(&path, Length::Brief),
            stderr: format!("all flags: {} --help\n", path.title()),
            code: 0,
        });
    }
    let topic = words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" ");
    let usage = help::usage(&Path::find(&[]).0, Length::Full);
    Start::End(Ending { stderr: format!("Unknown help topic [{topic}]\n{usage}"), ..Ending::default() })
}

fn version_text(output: Output) -> String {
    let text = match output {
        Output { hash: true, .. } => version::commit().unwrap_or("unknown").to_owned(),
        Output { full: true, .. } => version::full(),
        _ => version::tag(),
    };
    format!("{text}\n")
}

/// In three forms; as the peer, `images` names the updater first where it names no variables.
fn images(options: &Options, output: Output) -> String {
    let Used { topology_updater, scheduler_plugin, scheduler_controller } =
        options.images.used(options.updater.kind, options.scheduler.kind);
    let pairs = [Some(&scheduler_plugin), scheduler_controller.as_ref(), Some(&topology_updater)];
    let names = [Some(&topology_updater), Some(&scheduler_plugin), scheduler_controller.as_ref()];
    let names: Vec<&str> = names.into_iter().flatten().map(|(_, image)| image.as_str()).collect();
    match output {
        Output { raw: true, json: true, .. } => format!("{}\n", serde_json::json!(names)),
        Output { raw: true, .. } => names.iter().map(|name| format!("{name}\n")).collect(),
        Output { json: true, .. } => {
            // Written by hand for the order of its keys; each value is quoted as JSON.
            let quoted = |name: &str| serde_json::json!(name);
            let controller = scheduler_controller
                .map_or(String::new(), |(_, image)| format!(",\"scheduler_controller\":{}", quoted(&image)));
            let (updater, scheduler) = (quoted(&topology_updater.1), quoted(&scheduler_plugin.1));
            format!("{{\"topology_updater\":{updater},\"scheduler_plugin\":{scheduler}{controller}}}\n")
        }
        _ => pairs.into_iter().flatten().map(|(name, image)| format!("{name}={image}\n")).collect(),
    }
}

fn policy(request: &Request) -> anyhow::Result<String> {
    if request.given.platform != Some(Platform::OpenShift) {
        bail!("must explicitly select the OpenShift platform");
    }
    let version = request.given.version.as_ref().context("malformed version: ")?;
    Ok(manifests::selinux_policy(version).to_owned())
}

/// The manifests of a component, with the choices as they came out.
fn render(request: &Request, mut options: Options, scope: Scope) -> anyhow::Result<String> {
    options.platform = request.given.platform.context("must explicitly select a cluster platform")?;
    options.version = request.given.version.clone();
    check(&options, scope)?;
    Ok(manifests::render(&manifests::parts(&options, components(scope))?)?)
}

/// What the peer finds out only when it makes the objects.
fn check(options: &Options, scope: Scope) -> anyhow::Result<()> {
    let replicas = options.scheduler.replicas;
    if replicas <= 0 && components(scope).contains(&Component::SchedulerPlugin) {
        bail!("non-positive replicas: {replicas}");
    }
    Ok(())
}

fn components(scope: Scope) -> &'static [Component] {
    match scope {
        Scope::All => &Component::ALL,
        Scope::Api => &[Component::Api],
        Scope::Updater => &[Component::TopologyUpdater],
        Scope::Scheduler => &[Component::SchedulerPlugin],
    }
}
