//! The peer's flags and commands, each once.
//!
//! In: nothing. Out: tables for parser, help and completion. Never: the effect of a flag; see
//! [`request`](super::request).

use runtime::goflag::Kind;

use super::pflag::Flag;

/// A flag with its short help.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// The flag.
    pub flag: Flag,
    /// The text in the short help; `None`: not listed there.
    pub brief: Option<&'static str>,
}

/// A command.
#[derive(Clone, Copy, Debug)]
pub struct Command {
    /// The name.
    pub name: &'static str,
    /// The description in one line.
    pub about: &'static str,
    /// The action; `None`: only subcommands have one.
    pub verb: Option<Verb>,
    /// Flags of this command only.
    pub flags: &'static [Entry],
    /// Flags that subcommands inherit.
    pub inherited: &'static [Entry],
    /// Subcommands, by name.
    pub children: &'static [Command],
    /// Whether the short help lists the command.
    pub brief: bool,
}

/// The action of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verb {
    /// Show the usage of the program on standard error.
    Nothing,
    /// Print manifests.
    Render(Target),
    /// Print the SELinux policy.
    Policy,
    /// Install.
    Deploy(Target),
    /// Remove.
    Remove(Target),
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

/// The components of an action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// All.
    All,
    /// The CustomResourceDefinition.
    Api,
    /// The topology updater.
    Updater,
    /// The scheduler.
    Scheduler,
}

const fn flag(
    letter: Option<char>,
    name: &'static str,
    kind: Kind,
    default: &'static str,
    help: &'static str,
) -> Entry {
    Entry { flag: Flag { name, letter, kind, default, help }, brief: None }
}

impl Entry {
    /// Lists the flag in the short help with this text.
    const fn short(self, brief: &'static str) -> Self {
        Self { brief: Some(brief), ..self }
    }
}

/// The global flags; the last group is not in the peer.
pub mod global {
    use super::{Entry, Flag, Kind, flag};

    macro_rules! globals {
        ($($name:ident = $entry:expr;)*) => {
            $(#[doc = "A flag."] pub const $name: Flag = $entry.flag;)*
            /// All of them.
            pub const ALL: &[Entry] = &[$($entry),*];
        };
    }

    globals! {
        PLATFORM = flag(Some('P'), "platform", Kind::Text, "",
            "platform kind:version to deploy on (example kubernetes:v1.22)").short("platform to deploy on");
        PULL_IF_NOT_PRESENT = flag(None, "pull-if-not-present", Kind::Bool, "false",
            "force pull policies to IfNotPresent.").short("force pull policies to IfNotPresent.");
        REPLICAS = flag(Some('R'), "replicas", Kind::Int, "1",
            "set the replica value - where relevant.").short("set the replica value - where relevant.");
        RTE_CONFIG = flag(None, "rte-config-file", Kind::Text, "",
            "inject rte configuration reading from this file.").short("inject rte configuration reading from this file.");
        CACHE_PARAMS = flag(None, "sched-cache-params-config-file", Kind::Text, "",
            "inject scheduler fine cache params configuration reading from this file.");
        CONTROL_PLANE_AFFINITY = flag(None, "sched-ctrlplane-affinity", Kind::Bool, "true",
            "toggle the scheduler control plane affinity.");
        LEASE = flag(None, "sched-leader-elect-resource", Kind::Text, "tas-scheduler/nrtmatch-scheduler",
            "leader election resource namespaced name \"namespace/name\"");
        PROFILE = flag(None, "sched-profile-name", Kind::Text, "topology-aware-scheduler",
            "inject scheduler profile name.");
        RESYNC_PERIOD = flag(None, "sched-resync-period", Kind::Duration, "5s", "inject scheduler resync period.");
        SCORING = flag(None, "sched-scoring-strat-config-file", Kind::Text, "",
            "inject scheduler scoring strategy configuration reading from this file.");
        SCHEDULER_VERBOSE = flag(None, "sched-verbose", Kind::Int, "4", "set the scheduler verbosiness.");
        CRI_HOOKS = flag(None, "updater-cri-hooks-enable", Kind::Bool, "false",
            "toggle installation of CRI hooks on the updater side.");
        SELINUX_POLICY = flag(None, "updater-custom-selinux-policy", Kind::Bool, "true",
            "toggle installation of selinux policy in the legacy policy on the updater side. on by default");
        NOTIFY = flag(None, "updater-notif-enable", Kind::Bool, "false",
            "toggle event-based notification support on the updater side.");
        FINGERPRINT = flag(None, "updater-pfp-enable", Kind::Bool, "true", "toggle PFP support on the updater side.");
        SCC = flag(None, "updater-scc", Kind::Text, "v2",
            "select the SecurityContextConstraint version to use. v2 by default");
        SYNC_PERIOD = flag(None, "updater-sync-period", Kind::Duration, "10s",
            "tune the updater synchronization (nrt update) interval. Use 0 to disable.");
        UPDATER = flag(None, "updater-type", Kind::Text, "RTE",
            "type of updater to deploy - RTE, NFD or THOLEPIN");
        UPDATER_VERBOSE = flag(None, "updater-verbose", Kind::Int, "1", "set the updater verbosiness.");
        VERBOSE = flag(Some('v'), "verbose", Kind::Int, "1", "set the tool verbosity.");
        WAIT_INTERVAL = flag(Some('E'), "wait-interval", Kind::Duration, "2s", "wait interval.");
        WAIT_TIMEOUT = flag(Some('T'), "wait-timeout", Kind::Duration, "2m0s", "wait timeout.");
        // Not in the peer.
        KUBECONFIG = flag(None, "kubeconfig", Kind::Text, "", "kubeconfig to use instead of the usual ones");
        CONTEXT = flag(None, "context", Kind::Text, "", "context of the kubeconfig");
        LOG_STYLE = flag(None, "log-style", Kind::Text, "classic", "how progress reads: classic or structured");
        SCHEDULER = flag(None, "sched-type", Kind::Text, "PLUGIN", "type of scheduler to deploy - PLUGIN or THOLEPIN");
    }
}

const fn json(help: &'static str) -> Entry {
    flag(Some('J'), "json", Kind::Bool, "false", help)
}

const WAIT_DEPLOY: &[Entry] =
    &[flag(Some('W'), "wait", Kind::Bool, "false", "wait for deployment to be all completed.")];
const WAIT_REMOVE: &[Entry] =
    &[flag(Some('W'), "wait", Kind::Bool, "false", "wait for removal to be all completed.")];

/// Flags of single commands.
pub mod own {
    use super::Flag;

    /// Of `deploy` and `remove`.
    pub const WAIT: Flag = super::WAIT_DEPLOY[0].flag;
    /// Of several commands.
    pub const JSON: Flag = super::DETECT[1].flag;
    /// Of `detect`.
    pub const CONTROL_PLANE: Flag = super::DETECT[0].flag;
    /// Of `images`.
    pub const RAW: Flag = super::IMAGES[1].flag;
    /// Of `images`.
    pub const SHA: Flag = super::IMAGES[2].flag;
    /// Of `version`.
    pub const FULL: Flag = super::VERSION[0].flag;
    /// Of `version`.
    pub const HASH: Flag = super::VERSION[1].flag;
}

const DETECT: &[Entry] = &[
    flag(None, "control-plane", Kind::Bool, "false", "detect control plane info, not cluster info"),
    json("output JSON, not text."),
];
const IMAGES: &[Entry] = &[
    json("output JSON, not text (default)."),
    flag(Some('r'), "raw", Kind::Bool, "false", "output raw list. Default is key=value object."),
    flag(Some('S'), "sha", Kind::Bool, "false", "emit SHA256 pullspects, not tag pullspecs."),
];
const VERSION: &[Entry] = &[
    flag(None, "full", Kind::Bool, "false", "emit version and git hash."),
    flag(None, "hash", Kind::Bool, "false", "emit only the git hash."),
];
const COMPLETION: &[Entry] =
    &[flag(None, "no-descriptions", Kind::Bool, "false", "disable completion descriptions")];

const fn leaf(name: &'static str, about: &'static str, verb: Verb) -> Command {
    Command { name, about, verb: Some(verb), flags: &[], inherited: &[], children: &[], brief: true }
}

macro_rules! components {
    ($verb:ident, $($name:literal $target:ident $about:literal),*) => {
        [$(leaf($name, $about, Verb::$verb(Target::$target))),*]
    };
}

const RENDER: &[Command] = &[
    leaf("api", "render the APIs needed for topology-aware-scheduling", Verb::Render(Target::Api)),
    Command {
        brief: false,
        ..leaf("policy", "render the SELinux policy needed for topology-aware-scheduling", Verb::Policy)
    },
    leaf(
        "scheduler-plugin",
        "render the scheduler plugin needed for topology-aware-scheduling",
        Verb::Render(Target::Scheduler),
    ),
    leaf(
        "topology-updater",
        "render the topology updater needed for topology-aware-scheduling",
        Verb::Render(Target::Updater),
    ),
];

const DEPLOY: &[Command] = &components!(Deploy,
    "api" Api "deploy the APIs needed for topology-aware-scheduling",
    "scheduler-plugin" Scheduler "deploy the scheduler plugin needed for topology-aware-scheduling",
    "topology-updater" Updater "deploy the topology updater needed for topology-aware-scheduling");

const REMOVE: &[Command] = &components!(Remove,
    "api" Api "remove the APIs needed for topology-aware-scheduling",
    "scheduler-plugin" Scheduler "remove the scheduler plugin needed for topology-aware-scheduling",
    "topology-updater" Updater "remove the topology updater needed for topology-aware-scheduling");

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
            Verb::Deploy(Target::All),
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
            Verb::Remove(Target::All),
        )
    },
    Command { children: RENDER, ..leaf("render", "render all the manifests", Verb::Render(Target::All)) },
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
pub const ROOT: Command = Command {
    inherited: global::ALL,
    children: COMMANDS,
    ..leaf(
        "deployer",
        "deployer helps setting up all the topology-aware-scheduling components on a kubernetes cluster",
        Verb::Nothing,
    )
};
