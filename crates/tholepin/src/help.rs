//! The commands as help shows them: in groups, what people need first.
//!
//! In: the command line's definition. Out: the same with a list of commands in groups; the page of names that we stand
//! in for. Never: a description of a command, which its own definition has.

use std::fmt::Write as _;

use clap::Command;
use clap::builder::StyledStr;
use deployer::version::VERSION;

/// Headings with the names of commands.
const GROUPS: [(&str, &[&str]); 5] = [
    ("Start here", &["simulate", "setup", "deploy", "status", "validate", "test", "remove"]),
    (
        "Look into a cluster",
        &[
            "top",
            "web",
            "explain",
            "capacity",
            "defrag",
            "report",
            "admit",
            "detect",
            "e2e",
            "hollow",
            "must-gather",
            "record",
            "fingerprint",
        ],
    ),
    ("Manifests", &["render", "images", "crds"]),
    ("Run in a pod", &["exporter", "scheduler", "extender", "operator", "device-plugin"]),
    ("Special hardware", &["hardware", "cdi"]),
];
/// The heading of commands that no group has.
const OTHERS: &str = "About the program";

/// The programs beside the operator.
const TOOLS: &str = "those tools of numaresources-operator 5.0";
/// Programs that we stand in for: their names, and which program of that name.
const PEERS: [(&str, &str); 9] = [
    ("resource-topology-exporter, rte", "that exporter 0.25, also as the operand of numaresources-operator"),
    ("nfd-topology-updater", "that updater 0.20"),
    ("kube-scheduler", "that scheduler 1.36, with the NUMA plugin"),
    ("deployer", "that installer 0.24"),
    ("numaresources-operator", "that operator 5.0"),
    ("deviceplugin, sample-device-plugin", "that plugin 0.2"),
    ("nrovalidate, pfpsyncchk, schedlogs, lsplatform, catkubeletconfmap, make-job-foreach-ds", TOOLS),
    ("watchnrtattr, lstopics, mkginkgolabelfilter, envsubst, buildhelper, getdigests", TOOLS),
    ("verify-commit, gather", TOOLS),
];

/// The definition, whose help has the commands in groups, and which shows one version, whichever command is asked.
pub(crate) fn grouped(command: Command) -> Command {
    let mut command = uniform(command.version(VERSION.as_str()));
    // Its own commands (`help`) are there only then.
    command.build();
    let styles = command.get_styles().clone();
    let (header, literal) = (styles.get_header(), styles.get_literal());
    let shown: Vec<&Command> = command.get_subcommands().filter(|one| !one.is_hide_set()).collect();
    let width = shown.iter().map(|one| one.get_name().len()).max().unwrap_or_default();
    let mut list = String::new();
    for (heading, names) in groups(&shown) {
        let _ = writeln!(list, "{header}{heading}:{header:#}");
        for one in names.iter().filter_map(|name| shown.iter().find(|one| one.get_name() == *name)) {
            let about = one.get_about().map(ToString::to_string).unwrap_or_default();
            let name = one.get_name();
            let space = " ".repeat(width - name.len() + 2);
            let _ = writeln!(list, "  {literal}{name}{literal:#}{space}{about}{}", aliases(one));
        }
        list.push('\n');
    }
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{list}{header}Options:{header:#}\n\
         {{options}}{{after-help}}"
    );
    command.help_template(StyledStr::from(template))
}

/// Shows the program's version, and no values of the environment.
fn uniform(command: Command) -> Command {
    let command = command.display_name("tholepin").mut_args(|arg| {
        let takes_value = arg.get_action().takes_values();
        // `--nodes -1` is a wrong number, and no other flag.
        arg.hide_env_values(true).allow_negative_numbers(takes_value)
    });
    command.mut_subcommands(uniform)
}

/// The groups, and one of all commands that none of them has.
fn groups<'c>(shown: &[&'c Command]) -> Vec<(&'static str, Vec<&'c str>)> {
    let names = || shown.iter().map(|one| one.get_name());
    let in_group =
        |group: &[&str]| group.iter().filter_map(|name| names().find(|known| known == name)).collect();
    let is_other = |name: &&str| GROUPS.iter().all(|(_, group)| !group.contains(name));
    let groups = GROUPS.iter().map(|(heading, group)| (*heading, in_group(group)));
    groups.chain([(OTHERS, names().filter(is_other).collect())]).collect()
}

fn aliases(command: &Command) -> String {
    let aliases: Vec<&str> = command.get_visible_aliases().collect();
    match &*aliases {
        [] => String::new(),
        [alias] => format!(" [alias: {alias}]"),
        aliases => format!(" [aliases: {}]", aliases.join(", ")),
    }
}

/// The page of names that we stand in for.
pub(crate) fn compatibility() -> String {
    let mut page =
        "Names under which tholepin takes the place of other programs, with their flags, files, variables \
                    and exit\ncodes: as a subcommand, or as the name of the program (a link).\n"
            .to_owned();
    for (names, program) in PEERS {
        let _ = write!(page, "\n{names}\n  as {program}\n");
    }
    page
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::{Cli, Program};

    #[test]
    fn each_command_is_in_help_once() {
        let command = Cli::command();
        for (_, group) in GROUPS {
            for name in group {
                assert!(command.find_subcommand(name).is_some_and(|one| !one.is_hide_set()), "{name}");
            }
        }
        let help = grouped(Cli::command()).render_help().to_string();
        for one in command.get_subcommands().filter(|one| !one.is_hide_set()) {
            let line = format!("  {} ", one.get_name());
            assert_eq!(help.lines().filter(|shown| shown.starts_with(&line)).count(), 1, "{line}");
        }
        assert!(help.lines().all(|line| line.chars().count() <= 100), "{help}");
        assert!(help.starts_with("NUMA-aware scheduling"), "{help}");
        assert!(help.find("Start here:") < help.find("Run in a pod:"), "{help}");
    }

    #[test]
    fn each_name_on_the_page_is_one_we_stand_in_for() {
        for name in PEERS.iter().flat_map(|(names, _)| names.split(", ")) {
            assert!(Program::named(name).is_some(), "{name}");
            assert!(compatibility().contains(name), "{name}");
        }
    }
}
