//! The table of kube-scheduler's flags.
//!
//! In: nothing. Out: flags with an effect, flags without one and the reason, and flags with few allowed values. Never:
//! a value.

use runtime::goflag::{Flag, Kind, flag};

/// Flags with an effect.
pub(super) const EFFECTIVE: &[Flag] = &[
    flag("config", Kind::Text, "", "KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1)"),
    flag(
        "kubeconfig",
        Kind::Text,
        "",
        "kubeconfig file; empty: as in the configuration file, else the pod's service account",
    ),
    flag(
        "health-probe-bind-address",
        Kind::Text,
        "",
        "address of health checks alone, in plain HTTP: :PORT or ADDRESS:PORT; not of kube-scheduler",
    ),
    flag(
        "leader-elect",
        Kind::Bool,
        "true",
        "wait for the leader lease; not given: as in the configuration file",
    ),
    flag("leader-elect-lease-duration", Kind::Duration, "15s", "duration of the lease"),
    flag(
        "leader-elect-renew-deadline",
        Kind::Duration,
        "10s",
        "time after which a leader that cannot renew the lease gives up",
    ),
    flag(
        "leader-elect-retry-period",
        Kind::Duration,
        "2s",
        "time between two attempts to acquire or renew the lease",
    ),
    flag("leader-elect-resource-name", Kind::Text, "", "name of the lease"),
    flag("leader-elect-resource-namespace", Kind::Text, "", "namespace of the lease"),
    flag(
        "pod-max-in-unschedulable-pods-duration",
        Kind::Duration,
        "5m0s",
        "time after which a pod that fits no node is tried again without a change",
    ),
    flag(
        "feature-gates",
        Kind::Text,
        "",
        "GATE=BOOL,...: GenericWorkload and GangScheduling have an effect, both default=false",
    ),
    flag("write-config-to", Kind::Text, "", "file to write the effective configuration to; then exit"),
    flag("logging-format", Kind::Text, "text", "format of log lines: text or json"),
    flag("version", Kind::Bool, "false", "print the version and exit"),
];

/// Flags of the secure port.
pub(super) const SERVING: &[Flag] = &[
    flag("secure-port", Kind::Int, "10259", "port of health checks and metrics, over TLS; 0: not served"),
    flag("bind-address", Kind::Text, "0.0.0.0", "address of health checks and metrics"),
    flag("tls-cert-file", Kind::Text, "", "certificate file; empty: a self-signed certificate"),
    flag("tls-private-key-file", Kind::Text, "", "key file of the certificate"),
    flag(
        "cert-dir",
        Kind::Text,
        "",
        "directory of kube-scheduler.crt and kube-scheduler.key; nothing is written there",
    ),
    flag("tls-min-version", Kind::Text, "", "lowest TLS version: VersionTLS12 or VersionTLS13"),
    flag("tls-cipher-suites", Kind::List, "", "IANA names of cipher suites, separated by commas"),
    flag("client-ca-file", Kind::Text, "", "authorities of client certificates; empty: as in the cluster"),
    flag(
        "authentication-kubeconfig",
        Kind::Text,
        "",
        "kubeconfig to review tokens with; empty: the pod's account",
    ),
    flag("authentication-skip-lookup", Kind::Bool, "false", "look up no authorities in the cluster"),
    flag("authentication-tolerate-lookup-failure", Kind::Bool, "true", "start even if the lookup fails"),
    flag(
        "authentication-token-webhook-cache-ttl",
        Kind::Duration,
        "10s",
        "how long answers about tokens hold",
    ),
    flag(
        "authorization-kubeconfig",
        Kind::Text,
        "",
        "kubeconfig to review access with; empty: the pod's account",
    ),
    flag(
        "authorization-always-allow-paths",
        Kind::List,
        "/healthz,/readyz,/livez",
        "paths that everybody may read",
    ),
    flag("authorization-webhook-cache-authorized-ttl", Kind::Duration, "10s", "how long permission holds"),
    flag("authorization-webhook-cache-unauthorized-ttl", Kind::Duration, "10s", "how long a denial holds"),
    flag(
        "requestheader-client-ca-file",
        Kind::Text,
        "",
        "authorities of a front proxy; empty: as in the cluster",
    ),
    flag("requestheader-allowed-names", Kind::List, "", "common names of the front proxy; empty: any"),
    flag("requestheader-username-headers", Kind::List, "x-remote-user", "its headers with the user's name"),
    flag("requestheader-uid-headers", Kind::List, "", "its headers with the user's UID"),
    flag("requestheader-group-headers", Kind::List, "x-remote-group", "its headers with the user's groups"),
    flag(
        "requestheader-extra-headers-prefix",
        Kind::List,
        "x-remote-extra-",
        "prefixes of its other headers",
    ),
];

/// Flags of which only values that mean the same here are accepted.
pub(super) const REFUSED: &[Flag] = &[
    flag("emulated-version", Kind::List, "", "1.36, the only version"),
    flag("leader-elect-resource-lock", Kind::Text, "leases", "leases, the only lock"),
    flag("master", Kind::Text, "", "refused: the kubeconfig names the API server"),
    flag("permit-port-sharing", Kind::Bool, "false", "true is refused: each process needs a port of its own"),
    flag("tls-curve-preferences", Kind::Text, "", "refused: the key exchange cannot be chosen"),
    flag("tls-sni-cert-key", Kind::Text, "", "refused: one certificate serves all names"),
];

const CLIENT: &str = "accepted, without effect: API calls are JSON and limited by their number in flight";
const LOGS: &str = "accepted, without effect: logs go to standard error, unbuffered";
const METRICS: &str = "accepted, without effect: all metrics are always served";
const NONE: &str = "accepted, without effect: tholepin has no such feature";

/// Flags without an effect, so that manifests written for kube-scheduler keep working.
pub(super) const WITHOUT_EFFECT: &[Flag] = &[
    flag("allow-metric-labels", Kind::Text, "", METRICS),
    flag("allow-metric-labels-manifest", Kind::Text, "", METRICS),
    flag("contention-profiling", Kind::Bool, "true", NONE),
    flag("disable-http2-serving", Kind::Bool, "false", "accepted, without effect: HTTP/2 is never served"),
    flag("disabled-metrics", Kind::Text, "", METRICS),
    flag("http2-max-streams-per-connection", Kind::Int, "0", NONE),
    flag("kube-api-burst", Kind::Int, "100", CLIENT),
    flag("kube-api-content-type", Kind::Text, "application/vnd.kubernetes.protobuf", CLIENT),
    flag("kube-api-qps", Kind::Text, "50", CLIENT),
    flag("log-flush-frequency", Kind::Duration, "5s", LOGS),
    flag("log-json-info-buffer-size", Kind::Text, "0", LOGS),
    flag("log-json-split-stream", Kind::Bool, "false", LOGS),
    flag("log-text-info-buffer-size", Kind::Text, "0", LOGS),
    flag("log-text-split-stream", Kind::Bool, "false", LOGS),
    flag("min-compatibility-version", Kind::Text, "", NONE),
    flag(
        "permit-address-sharing",
        Kind::Bool,
        "false",
        "accepted, without effect: addresses are always shared",
    ),
    flag("profiling", Kind::Bool, "true", NONE),
    flag("show-hidden-metrics-for-version", Kind::Text, "", METRICS),
];
