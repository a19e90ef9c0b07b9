//! The peer's flags and commands, each once.
//!
//! In: nothing. Out: tables for parser, help and completion. Never: the effect of a flag; see
//! [`request`](super::request).

use runtime::goflag::Kind::{self, Bool, Duration, Int, Text};

use super::pflag::Flag;
use crate::part::Component;

/// A command.
#[derive(Clone, Copy, Debug)]
pub(super) struct Command {
    /// The name.
    pub(super) name: &'static str,
    /// The description in one line.
    pub(super) about: &'static str,
    /// The action; `None`: only subcommands have one.
    pub(super) verb: Option<Verb>,
    /// Flags of this command only.
    pub(super) flags: &'static [Flag],
    /// Flags that subcommands inherit.
    pub(super) inherited: &'static [Flag],
    /// Subcommands, by name.
    pub(super) children: &'static [Command],
    /// Whether the short help lists the command.
    pub(super) brief: bool,
}

/// The action of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verb {
    /// Show the usage of the program on standard error.
    Nothing,
    /// Print manifests.
    Render(&'static [Component]),
    /// Print the SELinux policy.
    Policy,
    /// Install.
    Deploy(&'static [Component]),
    /// Remove.
    Remove(&'static [Component]),
    /// Check the cluster.
    Validate,
    /// Check, then install.
    Setup,
    /// Print the platform.
    Detect,
    /// Print the images.
    Images,
    /// Print the version.
    Version,
    /// Show help.
    Help,
    /// Print a completion script.
    Completion(clap_complete::Shell),
}

const API: &[Component] = &[Component::Api];
const UPDATER: &[Component] = &[Component::Exporter];
const SCHEDULER: &[Component] = &[Component::Scheduler];

const fn flag(kind: Kind, name: &'static str, default: &'static str, help: &'static str) -> Flag {
    Flag { name, letter: None, kind, default, help, brief: None }
}

impl Flag {
    /// Gives the flag a shorthand.
    const fn letter(self, letter: char) -> Self {
        Self { letter: Some(letter), ..self }
    }

    /// Lists the flag in the short help with this text.
    const fn short(self, brief: &'static str) -> Self {
        Self { brief: Some(brief), ..self }
    }
}

/// The global flags; the last group is not in the peer.
const GLOBAL: &[Flag] = &[
    flag(Text, "platform", "", "platform kind:version to deploy on (example kubernetes:v1.22)")
        .letter('P')
        .short("platform to deploy on"),
    flag(Bool, "pull-if-not-present", "false", "force pull policies to IfNotPresent.")
        .short("force pull policies to IfNotPresent."),
    flag(Int, "replicas", "1", "set the replica value - where relevant.")
        .letter('R')
        .short("set the replica value - where relevant."),
    flag(Text, "rte-config-file", "", "inject rte configuration reading from this file.")
        .short("inject rte configuration reading from this file."),
    flag(
        Text,
        "sched-cache-params-config-file",
        "",
        "inject scheduler fine cache params configuration reading from this file.",
    ),
    flag(Bool, "sched-ctrlplane-affinity", "true", "toggle the scheduler control plane affinity."),
    flag(
        Text,
        "sched-leader-elect-resource",
        "tas-scheduler/nrtmatch-scheduler",
        "leader election resource namespaced name \"namespace/name\"",
    ),
    flag(Text, "sched-profile-name", "topology-aware-scheduler", "inject scheduler profile name."),
    flag(Duration, "sched-resync-period", "5s", "inject scheduler resync period."),
    flag(
        Text,
        "sched-scoring-strat-config-file",
        "",
        "inject scheduler scoring strategy configuration reading from this file.",
    ),
    flag(Int, "sched-verbose", "4", "set the scheduler verbosiness."),
    flag(Bool, "updater-cri-hooks-enable", "false", "toggle installation of CRI hooks on the updater side."),
    flag(
        Bool,
        "updater-custom-selinux-policy",
        "true",
        "toggle installation of selinux policy in the legacy policy on the updater side. on by default",
    ),
    flag(
        Bool,
        "updater-notif-enable",
        "false",
        "toggle event-based notification support on the updater side.",
    ),
    flag(Bool, "updater-pfp-enable", "true", "toggle PFP support on the updater side."),
    flag(Text, "updater-scc", "v2", "select the SecurityContextConstraint version to use. v2 by default"),
    flag(
        Duration,
        "updater-sync-period",
        "10s",
        "tune the updater synchronization (nrt update) interval. Use 0 to disable.",
    ),
    flag(Text, "updater-type", "RTE", "type of updater to deploy - RTE, NFD or THOLEPIN"),
    flag(Int, "updater-verbose", "1", "set the updater verbosiness."),
    flag(Int, "verbose", "1", "set the tool verbosity.").letter('v'),
    flag(Duration, "wait-interval", "2s", "wait interval.").letter('E'),
    flag(Duration, "wait-timeout", "2m0s", "wait timeout.").letter('T'),
    // Not in the peer.
    flag(Text, "kubeconfig", "", "kubeconfig to use instead of the usual ones"),
    flag(Text, "context", "", "context of the kubeconfig"),
    flag(Text, "log-style", "classic", "how progress reads: classic or structured"),
    flag(Text, "sched-type", "PLUGIN", "type of scheduler to deploy - PLUGIN or THOLEPIN"),
];

const fn json(help: &'static str) -> Flag {
    flag(Bool, "json", "false", help).letter('J')
}

const WAIT_DEPLOY: &[Flag] =
    &[flag(Bool, "wait", "false", "wait for deployment to be all completed.").letter('W')];
const WAIT_REMOVE: &[Flag] =
    &[flag(Bool, "wait", "false", "wait for removal to be all completed.").letter('W')];

const DETECT: &[Flag] = &[
    flag(Bool, "control-plane", "false", "detect control plane info, not cluster info"),
    json("output JSON, not text."),
];
const IMAGES: &[Flag] = &[
    json("output JSON, not text (default)."),
    flag(Bool, "raw", "false", "output raw list. Default is key=value object.").letter('r'),
    flag(Bool, "sha", "false", "emit SHA256 pullspects, not tag pullspecs.").letter('S'),
];
const VERSION: &[Flag] = &[
    flag(Bool, "full", "false", "emit version and git hash."),
    flag(Bool, "hash", "false", "emit only the git hash."),
];
const COMPLETION: &[Flag] = &[flag(Bool, "no-descriptions", "false", "disable completion descriptions")];

const fn leaf(name: &'static str, about: &'static str, verb: Verb) -> Command {
    Command { name, about, verb: Some(verb), flags: &[], inherited: &[], children: &[], brief: true }
}

/// Commands for single components, by name; `more` is listed after the first.
macro_rules! components {
    ($verb:ident, $word:literal $(, $more:expr)?) => {
        &[
            leaf("api", concat!($word, " the APIs needed for topology-aware-scheduling"), Verb::$verb(API)),
            $($more,)?
            leaf(
                "scheduler-plugin",
                concat!($word, " the scheduler plugin needed for topology-aware-scheduling"),
                Verb::$verb(SCHEDULER),
            ),
            leaf(
                "topology-updater",
                concat!($word, " the topology updater needed for topology-aware-scheduling"),
                Verb::$verb(UPDATER),
            ),
        ]
    };
}

const POLICY: Command = Command {
    brief: false,
    ..leaf("policy", "render the SELinux policy needed for topology-aware-scheduling", Verb::Policy)
};
const RENDER: &[Command] = components!(Render, "render", POLICY);
const DEPLOY: &[Command] = components!(Deploy, "deploy");
const REMOVE: &[Command] = components!(Remove, "remove");

const fn shell(name: &'static str, about: &'static str, shell: clap_complete::Shell) -> Command {
    Command { flags: COMPLETION, ..leaf(name, about, Verb::Completion(shell)) }
}

const SHELLS: &[Command] = &[
    shell("bash", "Generate the autocompletion script for bash", clap_complete::Shell::Bash),
    shell("fish", "Generate the autocompletion script for fish", clap_complete::Shell::Fish),
    shell(
        "powershell",
        "Generate the autocompletion script for powershell",
        clap_complete::Shell::PowerShell,
    ),
    shell("zsh", "Generate the autocompletion script for zsh", clap_complete::Shell::Zsh),
];

const COMMANDS: &[Command] = &[
    Command {
        verb: None,
        children: SHELLS,
        ..leaf("completion", "Generate the autocompletion script for the specified shell", Verb::Nothing)
    },
    Command {
        inherited: WAIT_DEPLOY,
        children: DEPLOY,
        ..leaf(
            "deploy",
            "deploy the components and configurations needed for topology-aware-scheduling",
            Verb::Deploy(&Component::ALL),
        )
    },
    Command {
        flags: DETECT,
        ..leaf("detect", "detect the cluster platform (kubernetes, openshift...)", Verb::Detect)
    },
    leaf("help", "Help about any command", Verb::Help),
    Command { flags: IMAGES, ..leaf("images", "dump the container images used to deploy", Verb::Images) },
    Command {
        inherited: WAIT_REMOVE,
        children: REMOVE,
        ..leaf(
            "remove",
            "remove the components and configurations needed for topology-aware-scheduling",
            Verb::Remove(&Component::ALL),
        )
    },
    Command { children: RENDER, ..leaf("render", "render all the manifests", Verb::Render(&Component::ALL)) },
    leaf("setup", "validate and setup a cluster to be used for topology-aware-scheduling", Verb::Setup),
    Command {
        flags: &[json("output JSON, not text.")],
        ..leaf(
            "validate",
            "validate the cluster configuration to be correct for topology-aware-scheduling",
            Verb::Validate,
        )
    },
    Command { flags: VERSION, ..leaf("version", "emit the version and exits successfully", Verb::Version) },
];

/// The program.
pub(super) const ROOT: Command = Command {
    inherited: GLOBAL,
    children: COMMANDS,
    ..leaf(
        "deployer",
        "deployer helps setting up all the topology-aware-scheduling components on a kubernetes cluster",
        Verb::Nothing,
    )
};
