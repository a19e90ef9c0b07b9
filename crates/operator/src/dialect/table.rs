//! The flags.
//!
//! In and out: nothing but constants.

use runtime::goflag::{Flag, Kind, flag};

/// All but klog's.
pub(super) const FLAGS: &[Flag] = &[
    flag("metrics-bind-address", Kind::Text, ":8080", "where metrics are served; 0: nowhere"),
    flag("health-probe-bind-address", Kind::Text, ":8081", "where health checks are served; 0: nowhere"),
    flag("leader-elect", Kind::Bool, "true", "work only while holding the lease"),
    flag(
        "kubeconfig",
        Kind::Text,
        "",
        "how to reach the API server; empty: KUBECONFIG, then the service account",
    ),
    flag(
        "platform",
        Kind::Text,
        "",
        "kubernetes, openshift or hypershift; anything else: the cluster is asked",
    ),
    flag("platform-version", Kind::Text, "", "version of the platform; empty: the cluster is asked"),
    flag("detect-platform-only", Kind::Bool, "false", "print platform and version, and exit"),
    flag("inspect-features", Kind::Bool, "false", "print the features as JSON, and exit"),
    flag("version", Kind::Bool, "false", "print the version, and exit"),
    flag("render", Kind::Bool, "false", "print the objects made for one pool called worker, and exit"),
    flag("render-nrt-crd", Kind::Bool, "false", "print the NodeResourceTopology definition, and exit"),
    flag(
        "render-namespace",
        Kind::Text,
        "",
        "namespace of what is rendered; empty: NAMESPACE, then numaresources-operator",
    ),
    flag("render-image", Kind::Text, "", "exporters' image in what is rendered; empty: our own"),
    flag("render-image-scheduler", Kind::Text, "", "scheduler's image in what is rendered; empty: our own"),
    flag("enable-scheduler", Kind::Bool, "true", "look after, or render, the scheduler"),
    flag("enable-metrics", Kind::Bool, "true", "serve metrics"),
    flag("enable-mcp-conds-fwd", Kind::Bool, "false", "copy conditions of MachineConfigPools to the status"),
    flag("image-exporter", Kind::Text, "", "exporters' image; empty: our own"),
    flag("handle-lifecycle-event", Kind::Text, "", "postStart or preStop: exit"),
    flag("image-scheduler", Kind::Text, "", "accepted, without effect"),
    flag("enable-webhooks", Kind::Bool, "false", "accepted, without effect"),
    flag("webhook-port", Kind::Int, "9443", "accepted, without effect"),
    flag("enable-http2", Kind::Bool, "false", "accepted, without effect"),
];

/// Those that have none, and why.
pub(super) const WITHOUT_EFFECT: [(&str, &str); 4] = [
    ("image-scheduler", "the image is in the NUMAResourcesScheduler, else it is our own"),
    ("enable-webhooks", "both versions have the same fields, so nothing needs to be converted"),
    ("webhook-port", "there is no webhook"),
    ("enable-http2", "there is no webhook"),
];
