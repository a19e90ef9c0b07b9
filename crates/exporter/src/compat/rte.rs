//! resource-topology-exporter's command line: flags, files, variables.
//!
//! In: arguments, [`Environment`]. Out: a [`Plan`], or how to exit. Never: a setting that is not configured.
//!
//! Later sources override earlier ones: built-in defaults, files ([`files`]), variables (only where files say nothing),
//! flags. So a policy in the file of `--config` overrides `TOPOLOGY_MANAGER_POLICY`, and `--topology-manager-policy`
//! overrides both. All problems are reported at once, a line each.

mod config;
mod dump;
mod files;
mod table;
#[cfg(test)]
mod tests;
mod to_settings;

use runtime::goflag::{FlagSet, KLOG, Parsed};

use super::{Ending, Environment, Note, Peer, Plan, Problem, Start, flags, node_name, verbosity};
use config::{Config, Origin, Value};
use files::Locations;
use table::{CONTROL, DUMP_TARGETS, Key, SETTINGS};

const RTE: Peer = Peer::Rte;

/// Parses the command line.
pub(super) fn start(program: &str, arguments: Vec<String>, env: &Environment) -> Result<Start, Ending> {
    let flags = parse(program, arguments)?;
    let mut notes = Vec::new();
    let config = load(&flags, env, &mut notes).map_err(|problems| RTE.unusable(&problems))?;

    let dump = || {
        let failed = |error: runtime::yaml::Error| {
            RTE.unusable(&[Problem::File { file: error.file, reason: error.reason }])
        };
        dump::text(&config).map_err(failed)
    };
    let mut stdout = String::new();
    match flags.text("dump-config").unwrap_or_default() {
        "-" => stdout = dump()?,
        ".andexit" => return Err(Ending { stdout: dump()?, ..Ending::default() }),
        ".log" => notes.push(Note::Info(format!("configuration:\n{}", dump()?))),
        _ => {}
    }
    if flags.bool("version") == Some(true) {
        return Err(Ending { stdout: stdout + &RTE.version(), ..Ending::default() });
    }

    let settings = to_settings::settings(&config, env, &mut notes)
        .map_err(|problems| Ending { stdout: stdout.clone(), ..RTE.unusable(&problems) })?;
    let level = verbosity(config.int(Key::Verbose));
    let verbosity = if config.bool(Key::Debug) { level.max(4) } else { level };
    Ok(Start::Run(Box::new(Plan { settings, verbosity, stdout, notes })))
}

/// Parses the arguments as flags.
fn parse(program: &str, arguments: Vec<String>) -> Result<Parsed, Ending> {
    let settings: Vec<_> = SETTINGS.iter().filter_map(|setting| setting.to_flag()).collect();
    let set = FlagSet { program, flags: &[&settings, CONTROL, KLOG] };
    let usage = set.usage();
    let flags = flags(set, arguments)?;
    let target = flags.text("dump-config").unwrap_or_default();
    if DUMP_TARGETS.contains(&target) {
        return Ok(flags);
    }
    // Versions up to 0.24 wrote a file of that name.
    let error = format!("invalid value {target:?} for flag -dump-config: allowed are -, .andexit and .log");
    Err(Ending { stderr: format!("{error}\n{usage}"), code: 2, ..Ending::default() })
}

/// Merges files, variables and flags.
fn load(flags: &Parsed, env: &Environment, notes: &mut Vec<Note>) -> Result<Config, Vec<Problem>> {
    let (mut config, mut problems) = (Config::default(), Vec::new());
    let version = flags.bool("version") == Some(true);
    if flags.rest.len() > 1 {
        problems.push(Problem::Arguments(
            flags.rest[1..].to_vec(),
            "at most one is allowed, the configuration root",
        ));
    }
    let default = CONTROL.iter().find(|flag| flag.name == "config").map_or("", |flag| flag.default);
    // With `--version` no file is read, so that none can fail.
    if !version {
        match Locations::new(flags.rest.first().map(String::as_str), flags.text("config"), default) {
            Ok(locations) => locations.read(&mut config, env, notes, &mut problems),
            Err(problem) => problems.push(problem),
        }
    }
    config.take_environment(env, notes);
    config.take_flags(flags, &mut problems);
    finish(&mut config, flags, env);
    if !version {
        config.check(&mut problems);
    }
    if problems.is_empty() { Ok(config) } else { Err(problems) }
}

/// Completes the node's name and the verbosity.
fn finish(config: &mut Config, flags: &Parsed, env: &Environment) {
    if config.text(Key::Hostname).is_empty() {
        // An invalid host name is reported when it is used.
        let name = node_name(None, env).unwrap_or_else(|| env.host.clone());
        config.set(Key::Hostname, Value::Text(name), Origin::Default);
    }
    if let Some(level) = flags.int("v").filter(|level| *level > config.int(Key::Verbose)) {
        config.set(Key::Verbose, Value::Int(level), Origin::Flag("v"));
    }
}
