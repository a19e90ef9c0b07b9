//! The command line of the Go `deployer`.
//!
//! In: arguments, the environment. Out: text and exit code, or a `Request` for a cluster. Never: a rule about
//! clusters; the work is done by the same functions as for our own command line.
//!
//! Standard output has data only. The exit code is 0 or 1, as the peer's: findings of `validate`, an unknown platform
//! in `detect` and failed deletions are no errors. `docs/compatibility-deployer.md` lists the differences.

mod cluster_command;
mod complete;
mod help;
mod path;
mod pflag;
mod request;
mod table;
#[cfg(test)]
mod tests;

pub use exporter::compat::Ending;

use anyhow::{Context as _, bail};

use crate::manifests;
use crate::options::{Options, UsedImage};
use crate::part::{Component, Part};
use crate::platform::Platform;
use crate::version;
use help::HelpLength;
use path::Path;
use pflag::{Error, Parsed};
use request::Request;
use table::Verb;

/// A parsed command line.
#[derive(Debug)]
pub enum Invocation {
    /// Print this and exit.
    End(Ending),
    /// Run this command, which needs a cluster.
    Run(Box<Request>),
}

/// Whether the name of the program selects the Go deployer's command line.
#[must_use]
pub fn named(program: &str) -> bool {
    program == "deployer"
}

/// Parses the arguments after the program's name; `variable` reads the environment.
#[must_use]
pub fn start(words: &[String], variable: &dyn Fn(&str) -> Option<String>) -> Invocation {
    if let Some((first, rest)) = words.split_first()
        && let "__complete" | "__completeNoDesc" = first.as_str()
    {
        return Invocation::End(complete::answer(rest, first == "__complete"));
    }
    let (path, parsed) = Path::read(words);
    // A command with nothing but subcommands shows its help.
    let Some(verb) = path.command().verb else { return printed(help::help(&path, HelpLength::Full)) };
    let parsed = match parsed {
        Ok(parsed) => parsed,
        Err(Error::Help) => return printed(help::help(&path, HelpLength::Full)),
        Err(error) => return failed(&error),
    };
    match Request::new(verb, parsed, variable).and_then(local) {
        Ok(start) => start,
        Err(error) => failed(&format!("{error:#}")),
    }
}

/// Runs commands that need no cluster.
fn local(request: Request) -> anyhow::Result<Invocation> {
    Ok(match request.verb {
        Verb::Nothing => Invocation::End(Ending {
            stderr: help::usage(&Path::find(&[]).0, HelpLength::Full),
            ..Ending::default()
        }),
        Verb::Help => help_about(&request.parsed.rest),
        Verb::Completion(shell) => printed(complete::script(shell)),
        Verb::Version => printed(version_text(&request.parsed)),
        Verb::Images => printed(images(&request.options, &request.parsed)),
        Verb::Policy => printed(policy(&request)?),
        Verb::Render(components) if !request.replicas_of_control_plane => {
            printed(render(&request, request.options.clone(), components)?)
        }
        _ => Invocation::Run(Box::new(request)),
    })
}

fn printed(stdout: String) -> Invocation {
    Invocation::End(Ending { stdout, ..Ending::default() })
}

fn failed(error: &dyn std::fmt::Display) -> Invocation {
    Invocation::End(Ending { stderr: format!("{error}\n"), code: 1, ..Ending::default() })
}

fn help_about(words: &[String]) -> Invocation {
    let (path, rest) = Path::find(words);
    if rest.is_empty() {
        return Invocation::End(Ending {
            stdout: help::help(&path, HelpLength::Brief),
            stderr: format!("all flags: {} --help\n", path.title()),
            code: 0,
        });
    }
    let topic = words.iter().map(|word| format!("`{word}`")).collect::<Vec<_>>().join(" ");
    let usage = help::usage(&Path::find(&[]).0, HelpLength::Full);
    Invocation::End(Ending { stderr: format!("Unknown help topic [{topic}]\n{usage}"), ..Ending::default() })
}

fn version_text(flags: &Parsed) -> String {
    let text = match (flags.bool("hash"), flags.bool("full")) {
        (true, _) => version::commit().unwrap_or("unknown").to_owned(),
        (false, true) => version::full(),
        (false, false) => version::tag(),
    };
    format!("{text}\n")
}

/// The images in one of three forms. As in the peer, the updater is first unless variables are printed.
fn images(options: &Options, flags: &Parsed) -> String {
    let mut used = options.used_images();
    let names = || used.iter().map(|used| used.image);
    match (flags.bool("raw"), flags.bool("json")) {
        (true, true) => format!("{}\n", serde_json::json!(names().collect::<Vec<_>>())),
        (true, false) => names().map(|name| format!("{name}\n")).collect(),
        (false, true) => {
            // Written by hand for the order of the keys; each value is quoted as JSON.
            let field = |used: &UsedImage<'_>| format!("{:?}:{}", used.role, serde_json::json!(used.image));
            format!("{{{}}}\n", used.iter().map(field).collect::<Vec<_>>().join(","))
        }
        (false, false) => {
            used.rotate_left(1);
            used.iter().map(|used| format!("{}={}\n", used.variable, used.image)).collect()
        }
    }
}

fn policy(request: &Request) -> anyhow::Result<String> {
    if request.given.platform != Some(Platform::OpenShift) {
        bail!("must explicitly select the OpenShift platform");
    }
    let version = request.given.version.as_ref().context("malformed version: ")?;
    Ok(manifests::openshift::selinux::policy(Some(version)))
}

/// The manifests of components.
fn render(request: &Request, mut options: Options, components: &[Component]) -> anyhow::Result<String> {
    options.platform = request.given.platform.context("must explicitly select a cluster platform")?;
    options.version = request.given.version.clone();
    let parts = manifests::parts(&options, components)?;
    Ok(manifests::text::render_objects(parts.iter().flat_map(Part::objects))?)
}
