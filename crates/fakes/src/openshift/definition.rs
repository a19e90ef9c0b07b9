//! CustomResourceDefinitions of OpenShift's groups, as JSON.

use serde_json::{Value, json};

use crate::schema::{
    Definition, anything, boolean, conditions, each, integer, list, nullable, number_or_text, object, one_of,
    selector, text, time, words,
};

/// `config.openshift.io`: what the cluster is.
pub(super) fn config() -> Vec<Value> {
    let group = "config.openshift.io";
    vec![
        crd(
            group,
            "ClusterVersion",
            "clusterversions",
            with_spec(cluster_version_spec(), cluster_version_status()),
        ),
        crd(
            group,
            "Infrastructure",
            "infrastructures",
            with_spec(infrastructure_spec(), infrastructure_status()),
        ),
        crd(
            group,
            "ClusterOperator",
            "clusteroperators",
            with_spec(object(&[], []), cluster_operator_status()),
        ),
        crd(group, "APIServer", "apiservers", with_spec(api_server_spec(), object(&[], []))),
        crd(group, "Scheduler", "schedulers", with_spec(scheduler_spec(), object(&[], []))),
    ]
}

/// `operators.coreos.com`: what OLM installs.
pub(super) fn operators() -> Vec<Value> {
    let subscription = Definition {
        group: "operators.coreos.com",
        version: "v1alpha1",
        kind: "Subscription",
        plural: "subscriptions",
        short: Some("sub"),
        scope: "Namespaced",
    };
    vec![subscription.of(with_spec(subscription_spec(), anything()))]
}

/// `security.openshift.io`: what pods may be.
pub(super) fn security() -> Vec<Value> {
    let mut scc = crd(
        "security.openshift.io",
        "SecurityContextConstraints",
        "securitycontextconstraints",
        security_context_constraints(),
    );
    // Its singular is its plural, and it has no status.
    scc["spec"]["names"]["singular"] = "securitycontextconstraints".into();
    scc["spec"]["versions"][0]["subresources"] = json!({});
    vec![scc]
}

/// `machineconfiguration.openshift.io`: what is on the nodes.
pub(super) fn machine() -> Vec<Value> {
    let group = "machineconfiguration.openshift.io";
    let mut config =
        crd(group, "MachineConfig", "machineconfigs", object(&["spec"], [("spec", machine_config())]));
    config["spec"]["versions"][0]["subresources"] = json!({});
    vec![
        config,
        crd(group, "MachineConfigPool", "machineconfigpools", with_spec(pool_spec(), pool_status())),
        crd(group, "KubeletConfig", "kubeletconfigs", with_spec(kubelet_config_spec(), observed())),
    ]
}

/// A cluster-scoped definition of version 1 with a status of its own.
fn crd(group: &str, kind: &str, plural: &str, schema: Value) -> Value {
    Definition { group, version: "v1", kind, plural, short: None, scope: "Cluster" }.of(schema)
}

fn with_spec(spec: Value, status: Value) -> Value {
    object(&["spec"], [("spec", spec), ("status", status)])
}

fn cluster_version_spec() -> Value {
    let update = object(
        &[],
        [
            ("version", text()),
            ("image", text()),
            ("force", boolean()),
            ("architecture", one_of(&["Multi", ""])),
        ],
    );
    object(
        &["clusterID"],
        [
            ("clusterID", text()),
            ("channel", text()),
            ("upstream", text()),
            ("desiredUpdate", nullable(update)),
        ],
    )
}

fn cluster_version_status() -> Value {
    let release =
        || object(&[], [("version", text()), ("image", text()), ("url", text()), ("channels", list(text()))]);
    let history = object(
        &["state", "startedTime", "completionTime", "image", "verified"],
        [
            ("state", one_of(&["Completed", "Partial"])),
            ("startedTime", time()),
            ("completionTime", nullable(time())),
            ("version", text()),
            ("image", text()),
            ("verified", boolean()),
        ],
    );
    object(
        &["availableUpdates", "desired", "observedGeneration", "versionHash"],
        [
            ("availableUpdates", nullable(list(release()))),
            ("conditions", conditions()),
            ("desired", release()),
            ("history", list(history)),
            ("observedGeneration", integer()),
            ("versionHash", text()),
        ],
    )
}

fn infrastructure_spec() -> Value {
    object(
        &[],
        [
            ("cloudConfig", object(&[], each(["name", "key"], &text()))),
            ("platformSpec", object(&[], [("type", text())])),
        ],
    )
}

fn infrastructure_status() -> Value {
    let control_plane =
        one_of(&["HighlyAvailable", "HighlyAvailableArbiter", "SingleReplica", "DualReplica", "External"]);
    object(
        &[],
        [
            ("infrastructureName", text()),
            ("platform", text()),
            ("platformStatus", object(&[], [("type", text())])),
            ("etcdDiscoveryDomain", text()),
            ("apiServerURL", text()),
            ("apiServerInternalURI", text()),
            ("controlPlaneTopology", control_plane),
            ("infrastructureTopology", one_of(&["HighlyAvailable", "SingleReplica"])),
            ("cpuPartitioning", one_of(&["None", "AllNodes"])),
        ],
    )
}

fn api_server_spec() -> Value {
    let rule = object(&["group", "profile"], each(["group", "profile"], &text()));
    let audit = object(&[], [("profile", text()), ("customRules", list(rule))]);
    let named = object(&["name"], [("name", text())]);
    let certificate = object(&[], [("names", list(text())), ("servingCertificate", named.clone())]);
    object(
        &[],
        [
            ("additionalCORSAllowedOrigins", list(text())),
            ("audit", audit),
            ("clientCA", named),
            ("encryption", object(&[], [("type", text())])),
            ("servingCerts", object(&[], [("namedCertificates", list(certificate))])),
            ("tlsSecurityProfile", nullable(tls_profile())),
        ],
    )
}

fn scheduler_spec() -> Value {
    object(
        &[],
        [
            ("defaultNodeSelector", text()),
            ("mastersSchedulable", boolean()),
            ("policy", object(&[], [("name", text())])),
            ("profile", one_of(&["", "LowNodeUtilization", "HighNodeUtilization", "NoScoring"])),
        ],
    )
}

/// What is told to the pods of an operator is a pod's part, which is not checked here.
fn subscription_spec() -> Value {
    object(
        &["name", "source", "sourceNamespace"],
        [
            ("channel", text()),
            ("config", anything()),
            ("installPlanApproval", one_of(&["Automatic", "Manual"])),
            ("name", text()),
            ("source", text()),
            ("sourceNamespace", text()),
            ("startingCSV", text()),
        ],
    )
}

fn cluster_operator_status() -> Value {
    let version = object(&["name", "version"], each(["name", "version"], &text()));
    let related =
        object(&["group", "resource", "name"], each(["group", "resource", "name", "namespace"], &text()));
    object(
        &[],
        [
            ("conditions", conditions()),
            ("versions", list(version)),
            ("relatedObjects", list(related)),
            ("extension", nullable(anything())),
        ],
    )
}

/// Its fields are at the top; there is no `spec`.
fn security_context_constraints() -> Value {
    let words = || nullable(list(text()));
    let range = object(&[], each(["min", "max"], &integer()));
    let groups = |strategies: &[&str]| {
        nullable(object(&[], [("type", one_of(strategies)), ("ranges", list(range.clone()))]))
    };
    let user = object(
        &[],
        [
            ("type", one_of(&["MustRunAs", "MustRunAsRange", "MustRunAsNonRoot", "RunAsAny"])),
            ("uid", integer()),
            ("uidRangeMin", integer()),
            ("uidRangeMax", integer()),
        ],
    );
    let se_linux = object(
        &[],
        [
            ("type", one_of(&["MustRunAs", "RunAsAny"])),
            ("seLinuxOptions", object(&[], each(["level", "role", "type", "user"], &text()))),
        ],
    );
    let required = [
        "allowHostDirVolumePlugin",
        "allowHostIPC",
        "allowHostNetwork",
        "allowHostPID",
        "allowHostPorts",
        "allowPrivilegedContainer",
        "allowedCapabilities",
        "defaultAddCapabilities",
        "priority",
        "readOnlyRootFilesystem",
        "requiredDropCapabilities",
        "volumes",
    ];
    object(
        &required,
        [
            ("allowHostDirVolumePlugin", boolean()),
            ("allowHostIPC", boolean()),
            ("allowHostNetwork", boolean()),
            ("allowHostPID", boolean()),
            ("allowHostPorts", boolean()),
            ("allowPrivilegedContainer", boolean()),
            ("allowPrivilegeEscalation", nullable(boolean())),
            ("defaultAllowPrivilegeEscalation", nullable(boolean())),
            ("readOnlyRootFilesystem", boolean()),
            ("priority", nullable(integer())),
            ("allowedCapabilities", words()),
            ("defaultAddCapabilities", words()),
            ("requiredDropCapabilities", words()),
            ("allowedFlexVolumes", nullable(list(object(&["driver"], [("driver", text())])))),
            ("allowedUnsafeSysctls", words()),
            ("forbiddenSysctls", words()),
            ("seccompProfiles", words()),
            ("groups", words()),
            ("users", words()),
            ("volumes", nullable(list(one_of(&VOLUMES)))),
            ("fsGroup", groups(&["MustRunAs", "MayRunAs", "RunAsAny"])),
            ("supplementalGroups", groups(&["MustRunAs", "MayRunAs", "RunAsAny"])),
            ("runAsUser", nullable(user)),
            ("seLinuxContext", nullable(se_linux)),
        ],
    )
}

/// The volume plugins that a SecurityContextConstraint can name. A real cluster takes any text and matches
/// nothing with it.
const VOLUMES: [&str; 30] = [
    "*",
    "none",
    "azureDisk",
    "azureFile",
    "awsElasticBlockStore",
    "cephFS",
    "cinder",
    "configMap",
    "csi",
    "downwardAPI",
    "emptyDir",
    "ephemeral",
    "fc",
    "flexVolume",
    "flocker",
    "gcePersistentDisk",
    "gitRepo",
    "glusterfs",
    "hostPath",
    "image",
    "iscsi",
    "nfs",
    "persistentVolumeClaim",
    "photonPersistentDisk",
    "portworxVolume",
    "projected",
    "quobyte",
    "rbd",
    "secret",
    "vsphere",
];

fn machine_config() -> Value {
    object(
        &[],
        [
            ("baseOSExtensionsContainerImage", text()),
            ("config", ignition()),
            ("extensions", nullable(list(text()))),
            ("fips", boolean()),
            ("kernelArguments", nullable(list(text()))),
            ("kernelType", text()),
            ("osImageURL", text()),
        ],
    )
}

/// Ignition 3.2 as far as MachineConfigs may use it: files and units. Stricter than the real definition, which
/// takes anything.
fn ignition() -> Value {
    let resource = || {
        object(
            &[],
            [
                ("source", nullable(text())),
                ("compression", nullable(one_of(&["", "gzip"]))),
                ("httpHeaders", list(object(&["name"], each(["name", "value"], &text())))),
                ("verification", object(&[], [("hash", nullable(text()))])),
            ],
        )
    };
    let owner = || object(&[], [("id", nullable(integer())), ("name", nullable(text()))]);
    let file = object(
        &["path"],
        [
            ("path", json!({ "type": "string", "pattern": "^/" })),
            ("mode", json!({ "type": "integer", "minimum": 0, "maximum": 0o7777 })),
            ("overwrite", nullable(boolean())),
            ("contents", resource()),
            ("append", list(resource())),
            ("group", owner()),
            ("user", owner()),
        ],
    );
    let drop_in = object(&["name"], [("name", text()), ("contents", nullable(text()))]);
    let unit = object(
        &["name"],
        [
            (
                "name",
                json!({ "type": "string", "pattern": r"\.(service|socket|mount|path|slice|target|timer)$" }),
            ),
            ("enabled", nullable(boolean())),
            ("mask", nullable(boolean())),
            ("contents", nullable(text())),
            ("dropins", list(drop_in)),
        ],
    );
    let header = object(
        &["version"],
        [
            ("version", json!({ "type": "string", "pattern": r"^3\.[0-9]+\.[0-9]+$" })),
            ("config", object(&[], [("replace", resource()), ("merge", list(resource()))])),
            ("proxy", object(&[], each(["httpProxy", "httpsProxy"], &nullable(text())))),
            ("security", object(&[], [("tls", object(&[], [("certificateAuthorities", list(resource()))]))])),
            ("timeouts", object(&[], each(["httpResponseHeaders", "httpTotal"], &nullable(integer())))),
        ],
    );
    let user = object(&["name"], [("name", text()), ("sshAuthorizedKeys", list(text()))]);
    object(
        &["ignition"],
        [
            ("ignition", header),
            ("passwd", object(&[], [("users", list(user))])),
            ("storage", object(&[], [("files", list(file))])),
            ("systemd", object(&[], [("units", list(unit))])),
        ],
    )
}

fn reference() -> [(&'static str, Value); 7] {
    each(["apiVersion", "fieldPath", "kind", "name", "namespace", "resourceVersion", "uid"], &text())
}

fn pool_configuration() -> Value {
    let mut configuration = object(&[], reference());
    configuration["properties"]["source"] = list(object(&[], reference()));
    configuration
}

fn pool_spec() -> Value {
    let pinned = object(&["name"], [("name", text())]);
    object(
        &[],
        [
            ("configuration", pool_configuration()),
            ("machineConfigSelector", selector()),
            ("maxUnavailable", number_or_text()),
            ("nodeSelector", selector()),
            ("paused", boolean()),
            ("pinnedImageSets", list(pinned)),
        ],
    )
}

fn pool_status() -> Value {
    let expiry = object(
        &["bundle", "expiry", "subject"],
        [("bundle", text()), ("expiry", time()), ("subject", text())],
    );
    object(
        &[],
        [
            ("certExpirys", list(expiry)),
            ("conditions", conditions()),
            ("configuration", pool_configuration()),
            ("degradedMachineCount", integer()),
            ("machineCount", integer()),
            ("observedGeneration", integer()),
            ("readyMachineCount", integer()),
            ("unavailableMachineCount", integer()),
            ("updatedMachineCount", integer()),
        ],
    )
}

fn kubelet_config_spec() -> Value {
    object(
        &[],
        [
            ("autoSizingReserved", boolean()),
            ("kubeletConfig", anything()),
            ("logLevel", integer()),
            ("machineConfigPoolSelector", selector()),
            ("tlsSecurityProfile", tls_profile()),
        ],
    )
}

fn tls_profile() -> Value {
    let custom = object(&[], [("ciphers", list(text())), ("minTLSVersion", text())]);
    object(
        &[],
        [
            ("type", one_of(&["Old", "Intermediate", "Modern", "Custom"])),
            ("custom", nullable(custom)),
            ("intermediate", nullable(words())),
            ("modern", nullable(words())),
            ("old", nullable(words())),
        ],
    )
}

fn observed() -> Value {
    object(&[], [("conditions", conditions()), ("observedGeneration", integer())])
}
