//! The table of resource-topology-exporter's settings: flag, key in files and in the dump, variable, kind, default.
//! Parsing of flags, files, environment, checks and the dump all use this table.
//!
//! In: nothing. Out: the table. Never: a value.

use runtime::goflag::{self, Flag};

/// A setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Key {
    Debug,
    Verbose,
    Kubeconfig,
    NoPublish,
    OneShot,
    Hostname,
    PatchMode,
    PatchResync,
    Namespace,
    Sysfs,
    Refresh,
    Fingerprint,
    FingerprintMethod,
    FingerprintFile,
    Timing,
    ExcludeTerminal,
    Policy,
    Scope,
    KubeletConfig,
    KubeletState,
    KubeletDropIns,
    KubeletUri,
    KubeletToken,
    KubeletAuthority,
    KubeletInsecure,
    PodResources,
    Sleep,
    Readiness,
    Notify,
    MaxEvents,
    EventsUnit,
    Owner,
    MetricsMode,
    MetricsPort,
    MetricsAddress,
    HealthAddress,
    CertsDir,
    CertFile,
    CertKeyFile,
    ClientAuth,
    TlsMinVersion,
    TlsCipherSuites,
    Reference,
}

/// The kind of a setting's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// True or false.
    Bool,
    /// Any text.
    Text,
    /// One of these words, in any case.
    Word(&'static [&'static str]),
    /// A whole number.
    Int,
    /// A duration: nanoseconds, or Go's text.
    Duration,
    /// `namespace/pod/container`; a map of the three in the dump, three variables in the environment.
    Container,
}

/// A row of the table.
#[derive(Clone, Copy, Debug)]
pub(super) struct Setting {
    /// The setting.
    pub(super) key: Key,
    /// The path in daemon files and in the dump.
    pub(super) path: &'static str,
    /// Another path in daemon files.
    pub(super) alias: Option<&'static str>,
    /// The flag, without dashes.
    pub(super) flag: Option<&'static str>,
    /// The variable; for a container the prefix of the three variables.
    pub(super) variable: Option<&'static str>,
    /// The kind of the value.
    pub(super) kind: Kind,
    /// The built-in value as text; empty is the kind's zero.
    pub(super) default: &'static str,
    /// The text for the usage.
    pub(super) help: &'static str,
}

/// The flags that are not settings: they locate settings, or ask for something else than running.
pub(super) const CONTROL: &[Flag] = &[
    Flag {
        name: "config",
        kind: goflag::Kind::Text,
        default: "/etc/resource-topology-exporter/config.yaml",
        help: "file with kubelet settings and excludes; not read when a configuration root is given as argument",
    },
    Flag { name: "version", kind: goflag::Kind::Bool, default: "false", help: "print the version and exit" },
    Flag {
        name: "dump-config",
        kind: goflag::Kind::Text,
        default: "",
        help: "write the configuration: - to standard output, .andexit the same and exit, .log to the log",
    },
];

/// The values of `--dump-config`.
pub(super) const DUMP_TARGETS: [&str; 4] = ["", "-", ".andexit", ".log"];

const POLICIES: Kind = Kind::Word(&["none", "best-effort", "restricted", "single-numa-node"]);
const SCOPES: Kind = Kind::Word(&["container", "pod"]);
const METHODS: Kind = Kind::Word(&["all", "with-exclusive-resources"]);
const MODES: Kind = Kind::Word(&["disabled", "http", "httptls"]);

/// The table.
pub(super) const SETTINGS: &[Setting] = &[
    row(Key::Debug, "global.debug", Kind::Bool, "", "log at least as with -v=4").flag("debug"),
    row(Key::Verbose, "global.verbose", Kind::Int, "2", ""),
    row(
        Key::Kubeconfig,
        "global.kubeConfig",
        Kind::Text,
        "",
        "how to reach the API server; empty: KUBECONFIG, then the service account",
    )
    .flag("kubeconfig")
    .alias("global.kubeconfig"),
    row(Key::NoPublish, "nrtUpdater.noPublish", Kind::Bool, "", "scan, but write no object")
        .flag("no-publish"),
    row(Key::OneShot, "nrtUpdater.oneShot", Kind::Bool, "", "end after the first object is written")
        .flag("oneshot"),
    row(
        Key::Hostname,
        "nrtUpdater.hostname",
        Kind::Text,
        "",
        "name of node and object; empty: NODE_NAME, then the host's name",
    )
    .flag("hostname")
    .variable("NODE_NAME"),
    row(Key::PatchMode, "nrtUpdater.patchMode", Kind::Bool, "true", "write patches instead of whole objects")
        .flag("patch-mode"),
    row(
        Key::PatchResync,
        "nrtUpdater.patchResync",
        Kind::Int,
        "10",
        "read the object again after this number of patches, if not the default; 0: never",
    )
    .flag("patch-resync"),
    row(
        Key::Namespace,
        "resourceMonitor.namespace",
        Kind::Text,
        "",
        "account only for pods of this namespace; empty or *: all",
    )
    .flag("watch-namespace"),
    row(Key::Sysfs, "resourceMonitor.sysfsRoot", Kind::Text, "/sys", "where sysfs is mounted").flag("sysfs"),
    row(
        Key::Refresh,
        "resourceMonitor.refreshNodeResources",
        Kind::Bool,
        "",
        "accepted, without effect: always done",
    )
    .flag("refresh-node-resources"),
    row(
        Key::Fingerprint,
        "resourceMonitor.podSetFingerprint",
        Kind::Bool,
        "true",
        "publish the fingerprint of the pods",
    )
    .flag("pods-fingerprint"),
    row(
        Key::FingerprintMethod,
        "resourceMonitor.podSetFingerprintMethod",
        METHODS,
        "with-exclusive-resources",
        "which pods it covers: all or with-exclusive-resources",
    )
    .flag("pods-fingerprint-method"),
    row(
        Key::FingerprintFile,
        "resourceMonitor.podSetFingerprintStatusFile",
        Kind::Text,
        "",
        "file for the pods behind the fingerprint",
    )
    .flag("pods-fingerprint-status-file")
    .variable("PFP_STATUS_FILE"),
    row(Key::Timing, "resourceMonitor.exposeTiming", Kind::Bool, "", "annotate the object with intervals")
        .flag("expose-timing"),
    row(
        Key::ExcludeTerminal,
        "resourceMonitor.excludeTerminalPods",
        Kind::Bool,
        "",
        "leave out pods that have ended",
    )
    .flag("exclude-terminal-pods"),
    row(
        Key::Policy,
        "topologyExporter.topologyManagerPolicy",
        POLICIES,
        "",
        "the kubelet's policy, instead of what its configuration says",
    )
    .flag("topology-manager-policy")
    .variable("TOPOLOGY_MANAGER_POLICY"),
    row(
        Key::Scope,
        "topologyExporter.topologyManagerScope",
        SCOPES,
        "",
        "the kubelet's scope, instead of what its configuration says",
    )
    .flag("topology-manager-scope")
    .variable("TOPOLOGY_MANAGER_SCOPE"),
    row(
        Key::KubeletConfig,
        "topologyExporter.kubeletConfigFile",
        Kind::Text,
        "/podresources/config.yaml",
        "the kubelet's configuration file",
    )
    .flag("kubelet-config-file"),
    row(
        Key::KubeletState,
        "topologyExporter.kubeletStateDir",
        Kind::Text,
        "",
        "the kubelet's root directory, watched for changes; none: do not watch; not given: detected",
    )
    .flag("kubelet-state-dir"),
    row(
        Key::KubeletDropIns,
        "topologyExporter.kubeletConfigDir",
        Kind::Text,
        "",
        "the directory of drop-ins to the kubelet's configuration file",
    )
    .flag("kubelet-config-dir"),
    row(
        Key::KubeletUri,
        "topologyExporter.kubeletConfigURI",
        Kind::Text,
        "",
        "the kubelet's configuration instead of a file: https://host:port/configz or file:///path",
    )
    .flag("kubelet-config-uri"),
    row(
        Key::KubeletToken,
        "topologyExporter.kubeletConfigToken",
        Kind::Text,
        "",
        "token for the kubelet's https endpoint; empty: the service account's",
    )
    .flag("kubelet-config-token"),
    row(
        Key::KubeletAuthority,
        "topologyExporter.kubeletConfigCA",
        Kind::Text,
        "",
        "authority of the kubelet's certificate; empty: the service account's",
    )
    .flag("kubelet-config-ca"),
    row(
        Key::KubeletInsecure,
        "topologyExporter.kubeletConfigInsecure",
        Kind::Bool,
        "",
        "do not check the kubelet's certificate: any server at its address gets the token",
    )
    .flag("kubelet-config-insecure"),
    row(
        Key::PodResources,
        "topologyExporter.podResourcesSocketPath",
        Kind::Text,
        "unix:///podresources/kubelet.sock",
        "the kubelet's podresources socket, or fake:// and a directory of recorded answers",
    )
    .flag("podresources-socket"),
    row(
        Key::Sleep,
        "topologyExporter.sleepInterval",
        Kind::Duration,
        "1m0s",
        "time between scans without events; 0: never",
    )
    .flag("sleep-interval"),
    row(
        Key::Readiness,
        "topologyExporter.podReadinessEnable",
        Kind::Bool,
        "true",
        "keep conditions on the exporter's pod",
    )
    .flag("podreadiness"),
    row(
        Key::Notify,
        "topologyExporter.notifyFilePath",
        Kind::Text,
        "",
        "a file that others touch to cause a scan",
    )
    .flag("notify-file"),
    row(
        Key::MaxEvents,
        "topologyExporter.maxEventPerTimeUnit",
        Kind::Int,
        "1",
        "highest rate of scans a second; not given, or not above 0: built-in limits",
    )
    .flag("max-events-per-second"),
    row(Key::EventsUnit, "topologyExporter.timeUnitToLimitEvents", Kind::Duration, "1s", ""),
    row(Key::Owner, "topologyExporter.addNRTOwnerEnable", Kind::Bool, "true", "the Node owns the object")
        .flag("add-nrt-owner"),
    row(
        Key::MetricsMode,
        "topologyExporter.metricsMode",
        MODES,
        "disabled",
        "serve metrics and health: disabled, http or httptls",
    )
    .flag("metrics-mode"),
    row(Key::MetricsPort, "topologyExporter.metricsPort", Kind::Int, "2112", "port of metrics and health")
        .flag("metrics-port")
        .variable("METRICS_PORT"),
    row(
        Key::MetricsAddress,
        "topologyExporter.metricsAddress",
        Kind::Text,
        "0.0.0.0",
        "address of metrics and health",
    )
    .flag("metrics-ip")
    .alias("topologyExporter.MetricsAddress")
    .variable("METRICS_ADDRESS"),
    row(
        Key::HealthAddress,
        "topologyExporter.healthProbeAddress",
        Kind::Text,
        "",
        "address of health alone, in plain HTTP: :PORT or ADDRESS:PORT; not of the Go program",
    )
    .flag("health-probe-bind-address"),
    row(
        Key::CertsDir,
        "topologyExporter.metricsTLS.certsDir",
        Kind::Text,
        "/etc/secrets/rte",
        "directory of certificate and key",
    )
    .flag("metrics-certs-dir"),
    row(
        Key::CertFile,
        "topologyExporter.metricsTLS.certFile",
        Kind::Text,
        "tls.crt",
        "certificate in that directory",
    )
    .flag("metrics-cert-file"),
    row(
        Key::CertKeyFile,
        "topologyExporter.metricsTLS.keyFile",
        Kind::Text,
        "tls.key",
        "key in that directory",
    )
    .flag("metrics-key-file"),
    row(
        Key::ClientAuth,
        "topologyExporter.metricsTLS.wantCliAuth",
        Kind::Bool,
        "",
        "clients must show a certificate",
    )
    .flag("metrics-want-cli-auth"),
    row(
        Key::TlsMinVersion,
        "topologyExporter.metricsTLS.minTLSVersion",
        Kind::Text,
        "",
        "VersionTLS12 or VersionTLS13",
    )
    .flag("metrics-tls-min-version"),
    row(
        Key::TlsCipherSuites,
        "topologyExporter.metricsTLS.cipherSuites",
        Kind::Text,
        "",
        "IANA names of cipher suites, separated by commas",
    )
    .flag("metrics-tls-cipher-suites"),
    row(
        Key::Reference,
        "topologyExporter.referenceContainer",
        Kind::Container,
        "",
        "namespace/pod/container whose CPUs are the shared pool",
    )
    .flag("reference-container")
    .variable("REFERENCE"),
];

const fn row(key: Key, path: &'static str, kind: Kind, default: &'static str, help: &'static str) -> Setting {
    Setting { key, path, alias: None, flag: None, variable: None, kind, default, help }
}

impl Setting {
    const fn flag(mut self, name: &'static str) -> Self {
        self.flag = Some(name);
        self
    }

    const fn alias(mut self, path: &'static str) -> Self {
        self.alias = Some(path);
        self
    }

    const fn variable(mut self, name: &'static str) -> Self {
        self.variable = Some(name);
        self
    }

    /// The row with this path in daemon files.
    pub(super) fn at(path: &str) -> Option<&'static Self> {
        SETTINGS.iter().find(|row| row.path == path || row.alias == Some(path))
    }

    /// The row as a flag.
    pub(super) fn to_flag(self) -> Option<Flag> {
        let kind = match self.kind {
            Kind::Bool => goflag::Kind::Bool,
            Kind::Text | Kind::Word(_) | Kind::Container => goflag::Kind::Text,
            Kind::Int => goflag::Kind::Int,
            Kind::Duration => goflag::Kind::Duration,
        };
        // The usage text omits zeros, which it recognizes by their text.
        let default =
            if kind == goflag::Kind::Bool && self.default.is_empty() { "false" } else { self.default };
        self.flag.map(|name| Flag { name, kind, default, help: self.help })
    }
}
