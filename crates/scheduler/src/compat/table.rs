//! The table of kube-scheduler's flags.
//!
//! In: nothing. Out: flags with an effect, and flags without one and the reason. Never: a value.

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
    flag("secure-port", Kind::Int, "10259", "port of health checks and metrics, over TLS; 0: not served"),
    flag("bind-address", Kind::Text, "0.0.0.0", "address of health checks and metrics"),
    flag(
        "health-probe-bind-address",
        Kind::Text,
        "",
        "address of health checks alone, in plain HTTP: :PORT or ADDRESS:PORT; not of kube-scheduler",
    ),
    flag("tls-cert-file", Kind::Text, "", "certificate file; empty: a self-signed certificate"),
    flag("tls-private-key-file", Kind::Text, "", "key file of the certificate"),
    flag("tls-min-version", Kind::Text, "", "lowest TLS version: VersionTLS12 or VersionTLS13"),
    flag("tls-cipher-suites", Kind::Text, "", "IANA names of cipher suites, separated by commas"),
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
    flag("logging-format", Kind::Text, "text", "format of log lines: text or json"),
    flag("version", Kind::Bool, "false", "print the version and exit"),
];

const OPEN: &str = "accepted, without effect: every client that reaches the port may read health and metrics";
const CLIENT: &str = "accepted, without effect: API calls are JSON and limited by their number in flight";
const LOGS: &str = "accepted, without effect: logs go to standard error, unbuffered";
const METRICS: &str = "accepted, without effect: all metrics are always served";
const NONE: &str = "accepted, without effect: tholepin has no such feature";

/// Flags without an effect, so that manifests written for kube-scheduler keep working.
pub(super) const WITHOUT_EFFECT: &[Flag] = &[
    flag("allow-metric-labels", Kind::Text, "", METRICS),
    flag("allow-metric-labels-manifest", Kind::Text, "", METRICS),
    flag("authentication-kubeconfig", Kind::Text, "", OPEN),
    flag("authentication-skip-lookup", Kind::Bool, "false", OPEN),
    flag("authentication-token-webhook-cache-ttl", Kind::Duration, "10s", OPEN),
    flag("authentication-tolerate-lookup-failure", Kind::Bool, "true", OPEN),
    flag("authorization-always-allow-paths", Kind::Text, "/healthz,/readyz,/livez", OPEN),
    flag("authorization-kubeconfig", Kind::Text, "", OPEN),
    flag("authorization-webhook-cache-authorized-ttl", Kind::Duration, "10s", OPEN),
    flag("authorization-webhook-cache-unauthorized-ttl", Kind::Duration, "10s", OPEN),
    flag("cert-dir", Kind::Text, "", "accepted, without effect: a self-signed certificate is not stored"),
    flag("client-ca-file", Kind::Text, "", OPEN),
    flag("contention-profiling", Kind::Bool, "true", NONE),
    flag("disable-http2-serving", Kind::Bool, "false", "accepted, without effect: HTTP/2 is never served"),
    flag("disabled-metrics", Kind::Text, "", METRICS),
    flag("emulated-version", Kind::Text, "", NONE),
    flag("emulation-forward-compatible", Kind::Bool, "false", NONE),
    flag("feature-gates", Kind::Text, "", NONE),
    flag("http2-max-streams-per-connection", Kind::Int, "0", NONE),
    flag("kube-api-burst", Kind::Int, "100", CLIENT),
    flag("kube-api-content-type", Kind::Text, "application/vnd.kubernetes.protobuf", CLIENT),
    flag("kube-api-qps", Kind::Text, "50", CLIENT),
    flag(
        "leader-elect-resource-lock",
        Kind::Text,
        "leases",
        "accepted, without effect: the lock is always a lease",
    ),
    flag("log-flush-frequency", Kind::Duration, "5s", LOGS),
    flag("log-json-info-buffer-size", Kind::Text, "0", LOGS),
    flag("log-json-split-stream", Kind::Bool, "false", LOGS),
    flag("log-text-info-buffer-size", Kind::Text, "0", LOGS),
    flag("log-text-split-stream", Kind::Bool, "false", LOGS),
    flag("master", Kind::Text, "", "accepted, without effect: the kubeconfig names the API server"),
    flag("min-compatibility-version", Kind::Text, "", NONE),
    flag("permit-address-sharing", Kind::Bool, "false", NONE),
    flag("permit-port-sharing", Kind::Bool, "false", NONE),
    flag("pod-max-in-unschedulable-pods-duration", Kind::Duration, "5m0s", NONE),
    flag("profiling", Kind::Bool, "true", NONE),
    flag("requestheader-allowed-names", Kind::Text, "", OPEN),
    flag("requestheader-client-ca-file", Kind::Text, "", OPEN),
    flag("requestheader-extra-headers-prefix", Kind::Text, "x-remote-extra-", OPEN),
    flag("requestheader-group-headers", Kind::Text, "x-remote-group", OPEN),
    flag("requestheader-uid-headers", Kind::Text, "", OPEN),
    flag("requestheader-username-headers", Kind::Text, "x-remote-user", OPEN),
    flag("runtime-config", Kind::Text, "", NONE),
    flag("show-hidden-metrics-for-version", Kind::Text, "", METRICS),
    flag("tls-sni-cert-key", Kind::Text, "", "accepted, without effect: one certificate serves all names"),
    flag("write-config-to", Kind::Text, "", NONE),
];
