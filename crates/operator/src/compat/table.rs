//! The flags of the Go operator.
//!
//! In: nothing. Out: constants. Never: a function.

use runtime::goflag::{Flag, Kind, flag};

/// All flags but klog's.
pub(super) const FLAGS: &[Flag] = &[
    flag("metrics-bind-address", Kind::Text, ":8080", "address for metrics; 0: none"),
    flag("health-probe-bind-address", Kind::Text, ":8081", "address for health checks; 0: none"),
    flag("leader-elect", Kind::Bool, "true", "work only while holding the lease"),
    flag("kubeconfig", Kind::Text, "", "kubeconfig file; empty: KUBECONFIG, then the service account"),
    flag("platform", Kind::Text, "", "kubernetes, openshift or hypershift; otherwise detected"),
    flag("platform-version", Kind::Text, "", "version of the platform; empty: detected"),
    flag("detect-platform-only", Kind::Bool, "false", "print platform and version, and exit"),
    flag("inspect-features", Kind::Bool, "false", "print the features as JSON, and exit"),
    flag("version", Kind::Bool, "false", "print the version, and exit"),
    flag("render", Kind::Bool, "false", "print the objects made for one pool called worker, and exit"),
    flag("render-nrt-crd", Kind::Bool, "false", "print the NodeResourceTopology definition, and exit"),
    flag(
        "render-namespace",
        Kind::Text,
        "",
        "namespace of rendered objects; empty: NAMESPACE, then numaresources-operator",
    ),
    flag("render-image", Kind::Text, "", "exporters' image in rendered objects; empty: the operator's own"),
    flag(
        "render-image-scheduler",
        Kind::Text,
        "",
        "scheduler's image in rendered objects; empty: the operator's own",
    ),
    flag("enable-scheduler", Kind::Bool, "true", "manage, or render, the scheduler"),
    flag("enable-metrics", Kind::Bool, "true", "serve metrics"),
    flag("enable-mcp-conds-fwd", Kind::Bool, "false", "copy conditions of MachineConfigPools to the status"),
    flag("image-exporter", Kind::Text, "", "exporters' image; empty: the operator's own"),
    flag("handle-lifecycle-event", Kind::Text, "", "postStart or preStop: exit"),
    flag("image-scheduler", Kind::Text, "", "accepted, without effect"),
    flag("enable-webhooks", Kind::Bool, "false", "accepted, without effect"),
    flag("webhook-port", Kind::Int, "9443", "accepted, without effect"),
    flag("enable-http2", Kind::Bool, "false", "accepted, without effect"),
];

/// Flags without effect, and why.
pub(super) const WITHOUT_EFFECT: [(&str, &str); 4] = [
    ("image-scheduler", "the image is set in the NUMAResourcesScheduler, else it is the operator's own"),
    ("enable-webhooks", "all API versions have the same fields, so nothing is converted"),
    ("webhook-port", "there is no webhook"),
    ("enable-http2", "there is no webhook"),
];
