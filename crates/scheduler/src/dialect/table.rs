//! kube-scheduler's flags, each once.
//!
//! In: nothing. Out: those that mean something here, and those that do not and why. Never: a value.

use runtime::goflag::{Flag, Kind, flag};

/// Flags with an effect.
pub(super) const MEANT: &[Flag] = &[
    flag("config", Kind::Text, "", "KubeSchedulerConfiguration (kubescheduler.config.k8s.io/v1)"),
    flag(
        "kubeconfig",
        Kind::Text,
        "",
        "how to reach the API server; empty: as the configuration says, else the pod's account",
    ),
    flag("secure-port", Kind::Int, "10259", "port of health and metrics, over TLS; 0: not served"),
    flag("bind-address", Kind::Text, "0.0.0.0", "address of health and metrics"),
    flag("tls-cert-file", Kind::Text, "", "certificate; empty: one that signs itself"),
    flag("tls-private-key-file", Kind::Text, "", "its key"),
    flag("tls-min-version", Kind::Text, "", "VersionTLS12 or VersionTLS13"),
    flag("tls-cipher-suites", Kind::Text, "", "IANA names of cipher suites, with commas between"),
    flag("leader-elect", Kind::Bool, "true", "wait for the lease; not given: as the configuration says"),
    flag("leader-elect-lease-duration", Kind::Duration, "15s", "how long a lease is good for"),
    flag("leader-elect-renew-deadline", Kind::Duration, "10s", "how long the leader tries to renew it"),
    flag("leader-elect-retry-period", Kind::Duration, "2s", "how often it tries"),
    flag("leader-elect-resource-name", Kind::Text, "", "the lease's name"),
    flag("leader-elect-resource-namespace", Kind::Text, "", "the lease's namespace"),
    flag("logging-format", Kind::Text, "text", "how a log line looks: text or json"),
    flag("version", Kind::Bool, "false", "print the version and exit"),
];

const OPEN: &str = "accepted, without effect: health and metrics are open to whoever reaches the port";
const CLIENT: &str = "accepted, without effect: calls are bounded by what is in flight, and are JSON";
const LOGS: &str = "accepted, without effect: logs go to standard error at once";
const METRICS: &str = "accepted, without effect: all metrics are there";
const NONE: &str = "accepted, without effect: there is nothing like it here";

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
    flag("cert-dir", Kind::Text, "", "accepted, without effect: a certificate that signs itself is not kept"),
    flag("client-ca-file", Kind::Text, "", OPEN),
    flag("contention-profiling", Kind::Bool, "true", NONE),
    flag("disable-http2-serving", Kind::Bool, "false", "accepted, without effect: it is never served"),
    flag("disabled-metrics", Kind::Text, "", METRICS),
    flag("emulated-version", Kind::Text, "", NONE),
    flag("emulation-forward-compatible", Kind::Bool, "false", NONE),
    flag("feature-gates", Kind::Text, "", NONE),
    flag("http2-max-streams-per-connection", Kind::Int, "0", NONE),
    flag("kube-api-burst", Kind::Int, "100", CLIENT),
    flag("kube-api-content-type", Kind::Text, "application/vnd.kubernetes.protobuf", CLIENT),
    flag("kube-api-qps", Kind::Text, "50", CLIENT),
    flag("leader-elect-resource-lock", Kind::Text, "leases", "accepted, without effect: it is a lease"),
    flag("log-flush-frequency", Kind::Duration, "5s", LOGS),
    flag("log-json-info-buffer-size", Kind::Text, "0", LOGS),
    flag("log-json-split-stream", Kind::Bool, "false", LOGS),
    flag("log-text-info-buffer-size", Kind::Text, "0", LOGS),
    flag("log-text-split-stream", Kind::Bool, "false", LOGS),
    flag("master", Kind::Text, "", "accepted, without effect: the kubeconfig says where the API server is"),
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
    flag("tls-sni-cert-key", Kind::Text, "", "accepted, without effect: there is one certificate"),
    flag("write-config-to", Kind::Text, "", NONE),
];
