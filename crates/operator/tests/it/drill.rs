//! Stolen tokens: what the account of each shipped program can write, tried with its own token on a real API server.
//!
//! In: everything that `deploy`, the operator and the hardware controller install, by default and on request. Out:
//! docs/rights.md, which the test keeps (`UPDATE_DOCS=1` writes it). Never: a change of the cluster; each attempt is a
//! dry run, which passes authentication, authorization and admission.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use axum::http::Request;
use deployer::manifests::access::ServiceAccountRef;
use deployer::manifests::meta::{PodSecurityLevel, namespace};
use deployer::manifests::resource_claims;
use deployer::options::{Options as Choices, Updater};
use deployer::part::Component;
use deployer::platform::Platform;
use fakes::kmm;
use futures::{StreamExt as _, future, stream};
use hardware::cluster_state::{Config, Environment};
use hardware::module::Desired;
use hardware::node_states::ObjectNames;
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::api::{Api, ListParams, Patch, PatchParams};
use kube::discovery::{Discovery, Scope};
use kube::{Client, ResourceExt as _};
use objects::{Object, ObjectKind};
use runtime::client::{Connection, Options};
use serde_json::{Value, json};
use testkit::account::Account;
use testkit::controlplane::ControlPlane;
use testkit::env::rig;
use testkit::net;

use super::rig::{NAMESPACE, PATIENCE, Rig, Subject, apply, control, install, tholepin, until};
use super::seen::api_of;

/// A namespace of others.
const THEIRS: &str = "kube-system";
/// The name of the objects of others that are to be changed, where there are some.
const NAME: &str = "drill";
const PAGE: &str = "docs/rights.md";
/// The namespace of a DeviceConfig.
const DRIVERS: &str = "drivers";

/// Attempts at a time.
const AT_ONCE: usize = 4;
/// The verbs that write.
const VERBS: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];

/// A resource of the cluster, or one of its subresources.
struct Target {
    name: String,
    kind: String,
    api_version: String,
    /// The path of the collection, with `{}` for a namespace.
    path: String,
    namespaced: bool,
    subresource: Option<String>,
    verbs: Vec<String>,
}

#[test]
fn a_stolen_token_writes_what_its_program_writes_and_nothing_else() {
    let Ok(rig) = rig() else { return };
    let Some(program) = tholepin() else { return };
    net::private(async |network| {
        let control = ControlPlane::start(&rig.binaries, &control(&network, true)).await.unwrap();
        let admin = control.client().await.unwrap();
        install(&admin, Platform::OpenShift, false).await;
        let subject = Subject {
            platform: Platform::OpenShift,
            namespace: NAMESPACE,
            account: operator::manifests::NAME,
            rules: operator::rbac::rules(Platform::OpenShift),
            flags: &[],
        };
        let mut rig = Rig::of(control, subject, program).await;
        others(&admin).await;
        // The scheduler runs on the control plane.
        rig.node("drill-node", &[("node-role.kubernetes.io/control-plane", "")]).await;
        rig.operate().await;
        rig.ask_for_exporters(&json!({ "nodeGroups": [{ "poolName": "worker" }] })).await;
        rig.ask_for_scheduler(&json!({ "replicas": 1 })).await;
        for account in ["rte", "secondary-scheduler"] {
            until(account, async || rig.get("ServiceAccount", account).await.is_some()).await;
        }
        rig.quiet().await;
        machine_configs(&rig.control).await;
        let page = drill(&mut rig, &admin).await;
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PAGE);
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, &page).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(written == page, "{PAGE} is stale: UPDATE_DOCS=1 writes it\n{page}");
    })
    .unwrap();
}

/// What does not come from the operator: the programs of `deploy`, the hardware controller, a device plugin with
/// resource claims, and the accounts of a DeviceConfig.
async fn others(admin: &Client) {
    kmm::install(admin).await.unwrap();
    deployed(admin, &Choices::default()).await;
    let account = ServiceAccountRef { namespace: resource_claims::NAMESPACE, name: resource_claims::ACCOUNT };
    apply(admin, &resource_claims::objects(account), false).await;
    apply(admin, &hardware::manifests::objects(&hardware::manifests::options()), false).await;
    apply(admin, &of_a_device_config(), false).await;
}

/// What `deploy` makes.
async fn deployed(admin: &Client, choices: &Choices) {
    let parts = deployer::manifests::parts(choices, &Component::ALL).unwrap();
    let objects: Vec<Object> = parts.iter().flat_map(|part| part.objects().to_vec()).collect();
    apply(admin, &objects, false).await;
}

/// The namespace of a DeviceConfig, and what its Module depends on: accounts for loader and plugin, on OpenShift with
/// a constraint that lets them be privileged.
fn of_a_device_config() -> Vec<Object> {
    let object = json!({
        "metadata": { "name": "acc", "namespace": DRIVERS },
        "spec": {
            "driverImage": "registry.example/a", "driverVersion": "1.0.0", "nodeSelector": { "a": "b" },
            "devicePlugin": { "config": {
                "version": "v1alpha1", "resources": [{ "name": "example.com/acc", "discovery": {} }],
            } },
        },
    });
    let config = Config::of(serde_json::from_value(object).unwrap());
    let names = ObjectNames::of(&config).unwrap();
    let environment = Environment { openshift: true, image: "registry.example/tholepin:1".to_owned() };
    let desired = Desired { config: &config, names: &names, environment: &environment };
    let mut objects =
        vec![Object::new(&namespace(DRIVERS, PodSecurityLevel::Privileged, Platform::OpenShift))];
    objects.extend(desired.dependencies(true));
    objects
}

/// Objects of others, of the kinds that some account may write.
async fn theirs(admin: &Client, namespaces: &[&str]) {
    let template = json!({
        "metadata": { "labels": { "a": "b" } },
        "spec": { "serviceAccountName": NAME, "automountServiceAccountToken": false, "containers": [{
            "name": "c", "image": "any",
            "securityContext": { "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } },
        }], "securityContext": { "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } } },
    });
    let mut pod = template["spec"].clone();
    pod["nodeName"] = "elsewhere".into();
    let workload = json!({ "selector": { "matchLabels": { "a": "b" } }, "template": template });
    let module = json!({
        "moduleLoader": { "container": {
            "modprobe": { "moduleName": "m" },
            "kernelMappings": [{ "regexp": ".", "containerImage": "registry.example/a:1" }],
        } },
        "selector": { "a": "b" },
    });
    let config = json!({ "driverImage": "registry.example/a", "driverVersion": "1.0.0", "nodeSelector": { "a": "b" } });
    let cluster = [
        json!({ "apiVersion": "v1", "kind": "Node" }),
        json!({ "apiVersion": "topology.node.k8s.io/v1alpha2", "kind": "NodeResourceTopology", "zones": [] }),
        json!({
            "apiVersion": "machineconfiguration.openshift.io/v1", "kind": "MachineConfig",
            "spec": { "config": { "ignition": { "version": "3.2.0" } } },
        }),
        json!({
            "apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
            "spec": {
                "driver": "a.example", "nodeName": "elsewhere", "devices": [{ "name": "a" }],
                "pool": { "name": "elsewhere", "generation": 1, "resourceSliceCount": 1 },
            },
        }),
    ];
    let namespaced = [
        json!({ "apiVersion": "v1", "kind": "ConfigMap" }),
        json!({ "apiVersion": "v1", "kind": "ServiceAccount" }),
        json!({ "apiVersion": "v1", "kind": "Pod", "spec": pod }),
        json!({ "apiVersion": "apps/v1", "kind": "DaemonSet", "spec": workload }),
        json!({ "apiVersion": "apps/v1", "kind": "Deployment", "spec": workload }),
        json!({ "apiVersion": "coordination.k8s.io/v1", "kind": "Lease" }),
        json!({ "apiVersion": "kmm.sigs.x-k8s.io/v1beta1", "kind": "Module", "spec": module }),
        json!({ "apiVersion": "hardware.tholepin.dev/v1alpha1", "kind": "DeviceConfig", "spec": config }),
    ];
    for object in cluster {
        make(admin, None, object).await;
    }
    for namespace in namespaces {
        for object in &namespaced {
            make(admin, Some(namespace), object.clone()).await;
        }
    }
}

async fn make(admin: &Client, namespace: Option<&str>, mut object: Value) {
    object["metadata"]["name"] = NAME.into();
    object["metadata"]["annotations"] = json!({ "of": "others" });
    let (version, kind) = (object["apiVersion"].as_str().unwrap(), object["kind"].as_str().unwrap());
    let (group, version) = version.split_once('/').unwrap_or(("", version));
    let api = api_of(admin, &ObjectKind::new(group, version, kind, &plural(kind)), namespace);
    let done = api.patch(NAME, &PatchParams::apply("others"), &Patch::Apply(&object)).await;
    done.unwrap_or_else(|error| panic!("{object}: {error}"));
}

fn plural(kind: &str) -> String {
    let kind = kind.to_lowercase();
    match kind.strip_suffix('y') {
        Some(stem) => format!("{stem}ies"),
        None => format!("{kind}s"),
    }
}

/// Tries everything with the token of every account of ours, and of those that have other rights on request.
async fn drill(rig: &mut Rig, admin: &Client) -> String {
    let targets = all_targets(admin).await;
    let mut page = Page { text: HEAD.to_owned(), reasons: BTreeSet::new(), accounts: BTreeSet::new() };
    page.accounts(&rig.control, &targets).await;
    let nfd = json!({ "spec": { "updaterType": "NFD" } });
    rig.merge("NUMAResourcesOperator", "numaresourcesoperator", &nfd).await;
    until("pods of NFD", async || {
        let set = rig.get("DaemonSet", "numaresourcesoperator-worker").await.unwrap();
        set["spec"]["template"]["spec"]["containers"][0]["name"] == "nfd-topology-updater"
    })
    .await;
    rig.quiet().await;
    page.account(&rig.control, (NAMESPACE, "rte"), " with NFD", &targets).await;
    // It would put its roles right.
    rig.stop().await;
    let go = operator::rbac::other_schedulers();
    rig.merge("ClusterRole", "topology-aware-scheduler", &json!({ "rules": go })).await;
    let account = Account::of(&rig.control, NAMESPACE, "secondary-scheduler").await.unwrap();
    account.wait_until_allowed(&go, &[]).await.unwrap();
    page.account(&rig.control, (NAMESPACE, "secondary-scheduler"), " with the Go image", &targets).await;
    // The Go deployer's programs, whose cluster-wide names are those of the operator.
    for kind in ["ClusterRole", "ClusterRoleBinding"] {
        rig.delete(kind, "topology-aware-scheduler").await;
    }
    let mut peers = Choices::peers();
    peers.updater.kind = Updater::Nfd;
    deployed(admin, &peers).await;
    let targets = all_targets(admin).await;
    page.accounts(&rig.control, &targets).await;
    page.tried(&targets);
    let known: BTreeSet<usize> = (0..REASONS.len()).collect();
    let unused: Vec<_> = known.difference(&page.reasons).map(|at| REASONS[*at]).collect();
    let unreasoned: Vec<_> = page.text.lines().filter(|line| line.contains(NO_REASON)).collect();
    assert!(
        (unused.is_empty(), unreasoned.is_empty()) == (true, true),
        "{unused:#?} {unreasoned:#?} {}",
        page.text
    );
    page.text
}

/// The page as far as it is written.
struct Page {
    text: String,
    /// Which of [`REASONS`] were needed.
    reasons: BTreeSet<usize>,
    /// Accounts with a section.
    accounts: BTreeSet<(String, String)>,
}

impl Page {
    /// Tries everything with the token of every account that has no section yet.
    async fn accounts(&mut self, control: &ControlPlane, targets: &[Target]) {
        let accounts: Api<ServiceAccount> = Api::all(control.client().await.unwrap());
        for account in accounts.list(&ListParams::default()).await.unwrap().items {
            let (namespace, name) = (account.namespace().unwrap(), account.name_any());
            let is_ours = !namespace.starts_with("kube-") && name != "default" && name != NAME;
            if is_ours && self.accounts.insert((namespace.clone(), name.clone())) {
                self.account(control, (&namespace, &name), "", targets).await;
            }
        }
    }

    /// Tries everything with the token of an account; `with` says what it was asked for beside the defaults.
    async fn account(
        &mut self,
        control: &ControlPlane,
        (namespace, name): (&str, &str),
        with: &str,
        targets: &[Target],
    ) {
        let admin = control.client().await.unwrap();
        theirs(&admin, &[namespace, THEIRS]).await;
        let account = Account::of(control, namespace, name).await.unwrap();
        let granted = granted(&admin, &account, namespace, targets).await;
        let title = format!("{namespace}/{name}{with}");
        let _ = write!(self.text, "\n## {title}\n\n");
        if granted.allowed.is_empty() {
            let _ = writeln!(self.text, "{} attempts, all refused.", granted.attempts);
            return;
        }
        let _ = writeln!(self.text, "{} attempts, all refused but these:\n", granted.attempts);
        self.text += "| resource | where | verbs | why |\n|---|---|---|---|\n";
        for ((resource, place), verbs) in &granted.allowed {
            let verbs: Vec<_> = VERBS.into_iter().filter(|verb| verbs.contains(verb)).collect();
            let why = self.why(&title, resource);
            let _ = writeln!(self.text, "| `{resource}` | {place} | {} | {why} |", verbs.join(", "));
        }
    }

    fn why(&mut self, title: &str, resource: &str) -> &'static str {
        let of = |(account, about, _): &(&str, &str, &str)| title.contains(account) && *about == resource;
        let at = REASONS.iter().position(of);
        match at {
            Some(at) => {
                self.reasons.insert(at);
                REASONS[at].2
            }
            None => NO_REASON,
        }
    }

    fn tried(&mut self, targets: &[Target]) {
        self.text += "\n## What was tried\n\nWith each account, in each place:\n\n";
        self.text += "| resource | places | verbs |\n|---|---|---|\n";
        let rows: BTreeMap<String, String> = targets
            .iter()
            .filter_map(|target| {
                let verbs: Vec<_> = VERBS.into_iter().filter(|verb| target.has(verb)).collect();
                let places = if target.namespaced { "its namespace, `kube-system`" } else { "cluster" };
                let name = target.full_name();
                let row = format!("| `{name}` | {places} | {} |\n", verbs.join(", "));
                (!verbs.is_empty()).then_some((name, row))
            })
            .collect();
        self.text.extend(rows.into_values());
    }
}

/// What a right has for which [`REASONS`] has none.
const NO_REASON: &str = "NO REASON";

/// Why an account may write what is not its own: a part of the account's title, the resource, the reason. The first
/// that fits counts.
const REASONS: &[(&str, &str, &str)] = &[
    (
        "controller-manager",
        "configmaps",
        "configurations of exporters, named after pools, which a role cannot limit",
    ),
    ("controller-manager", "daemonsets.apps", "exporters, named after pools, which a role cannot limit"),
    (
        "controller-manager",
        "noderesourcetopologies.topology.node.k8s.io",
        "it gives reports their owner and deletes those without a node; the rest to pass on to exporters, which a policy ties to their nodes",
    ),
    (
        "controller-manager",
        "numaresourcesoperators.nodetopology.openshift.io/status",
        "what it reports to users",
    ),
    (
        "controller-manager",
        "numaresourcesschedulers.nodetopology.openshift.io/status",
        "what it reports to users",
    ),
    ("controller-manager", "pods", "to pass on to its scheduler"),
    ("controller-manager", "persistentvolumeclaims", "to pass on to its scheduler"),
    ("controller-manager", "persistentvolumes", "to pass on to its scheduler"),
    ("controller-manager", "tokenreviews.authentication.k8s.io", "to pass on to its scheduler"),
    ("controller-manager", "subjectaccessreviews.authorization.k8s.io", "to pass on to its scheduler"),
    ("controller-manager", "resourceclaims.resource.k8s.io", "to pass on to its scheduler"),
    ("controller-manager", "resourceclaims.resource.k8s.io/status", "to pass on to its scheduler"),
    (
        "controller-manager",
        "pods/binding",
        "to pass on to its scheduler: the API server lets only holders of a right grant it",
    ),
    (
        "controller-manager",
        "pods/status",
        "to pass on: to its scheduler everywhere, to exporters in its namespace",
    ),
    ("", "leases.coordination.k8s.io", "the lease of its leader; no role can limit the name of a new object"),
    ("", "events.events.k8s.io", "what it tells users about their objects"),
    ("hardware-controller", "deviceconfigs.hardware.tholepin.dev", "the finalizer"),
    ("hardware-controller", "deviceconfigs.hardware.tholepin.dev/status", "what it reports to users"),
    (
        "hardware-controller",
        "pods/eviction",
        "users' pods leave a node before its driver changes, where they asked for that",
    ),
    (
        "nfd-topology-updater",
        "noderesourcetopologies.topology.node.k8s.io",
        "reports; the Go program has no policy that ties it to its node",
    ),
    ("topology-aware-controller", "podgroups.scheduling.sigs.k8s.io", "the Go plugin's groups of pods"),
    ("scheduler", "pods/binding", "it places pods"),
    ("scheduler", "pods/status", "why a pod waits"),
    ("scheduler", "podgroups.scheduling.sigs.k8s.io", "other plugins of the Go scheduler"),
    ("scheduler", "pods", "less important pods make room for one that fits nowhere"),
    ("scheduler", "bindings", "as the Go scheduler has it"),
    ("scheduler", "events", "as the Go scheduler has it"),
    ("scheduler", "endpoints", "leases of older versions of the Go scheduler"),
    ("scheduler", "persistentvolumeclaims", "it chooses nodes for claims that wait for a pod"),
    ("scheduler", "persistentvolumes", "it chooses volumes for claims that wait for a pod"),
    ("scheduler", "tokenreviews.authentication.k8s.io", "it asks who reads its metrics"),
    ("scheduler", "subjectaccessreviews.authorization.k8s.io", "it asks who may read its metrics"),
    (
        "scheduler",
        "resourceclaims.resource.k8s.io",
        "it makes claims for extended resources, and protects those that it gives devices",
    ),
    ("scheduler", "resourceclaims.resource.k8s.io/status", "it gives claims devices and users"),
];

/// Of MachineConfigs the operator's account writes those of its names with its content. Each differs from one that it
/// may make in one thing.
async fn machine_configs(control: &ControlPlane) {
    let account = Account::of(control, NAMESPACE, operator::manifests::NAME).await.unwrap();
    let kubeconfig = Some(account.kubeconfig(None).await.unwrap());
    let connection = Connection::open(&Options { kubeconfig, ..Options::default() }).await.unwrap();
    let client = connection.client_with_timeout(PATIENCE).unwrap();
    let mut options = deployer::options::Options::peers();
    (options.platform, options.updater.name) =
        (Platform::OpenShift, Some("numaresourcesoperator-worker".to_owned()));
    let own = deployer::manifests::openshift::machine_config(&options).body().clone();
    let with = |pointer: &str, key: &str, value: Value| {
        let mut other = own.clone();
        other.pointer_mut(pointer).unwrap()[key] = value;
        other
    };
    let name = with("/metadata", "name", json!("99-worker-ssh"));
    let argument = with("/spec", "kernelArguments", json!(["init=/bin/sh"]));
    let unit = with("/spec/config/systemd/units/0", "contents", json!("[Service]\nExecStart=/bin/sh\n"));
    let file = with("/spec/config/storage/files/0", "path", json!("/etc/shadow"));
    let path = "/apis/machineconfiguration.openshift.io/v1/machineconfigs";
    for (object, refused) in [(&own, false), (&name, true), (&argument, true), (&unit, true), (&file, true)] {
        assert_eq!(forbids(&client, "create", path, object).await, refused, "{object}");
    }
}

const HEAD: &str = "# Rights of each account

The token of an account allows exactly these writes. A test takes the token of each account that `tholepin deploy`, the
operator and the hardware controller install, bound to a pod on a node: by default, and with NFD or the Go plugin's
programs in the place of ours. It tries each verb on each resource of a real API server with OpenShift's kinds, against
objects of others: in the account's own namespace, in `kube-system`, or in the cluster. Rights to objects of one name
are not in these tables; the roles in `tholepin render` show them. So an exporter has no line for its own node's report:
the table has what it could do to others. Each account may also ask what it is and may do.

`UPDATE_DOCS=1 cargo xtask test -p operator --test it -- drill` writes this page.
";

struct Granted {
    attempts: usize,
    allowed: BTreeMap<(String, &'static str), BTreeSet<&'static str>>,
}

async fn granted(admin: &Client, account: &Account<'_>, namespace: &str, targets: &[Target]) -> Granted {
    let pod = account.pod("self", "drill-node").await.unwrap();
    let kubeconfig = Some(account.kubeconfig(Some(&pod)).await.unwrap());
    let connection = Connection::open(&Options { kubeconfig, ..Options::default() }).await.unwrap();
    let client = connection.client_with_timeout(PATIENCE).unwrap();
    let mut granted = Granted { attempts: 0, allowed: BTreeMap::new() };
    let mut attempts = Vec::new();
    for target in targets {
        let places: &[(&str, &'static str)] = match target.namespaced {
            true => &[(namespace, "its namespace"), (THEIRS, "any namespace")],
            false => &[("", "cluster")],
        };
        for verb in VERBS.into_iter().filter(|verb| target.has(verb)) {
            attempts.extend(places.iter().map(|(namespace, place)| (target, verb, *namespace, *place)));
        }
    }
    granted.attempts = attempts.len();
    let (client, admin) = (&client, admin);
    let tried = stream::iter(attempts).map(async |(target, verb, namespace, place)| {
        let passes = !is_refused([client, admin], target, verb, namespace).await;
        passes.then(|| ((target.full_name(), place), verb))
    });
    let passed: Vec<_> = tried.buffer_unordered(AT_ONCE).filter_map(future::ready).collect().await;
    for (key, verb) in passed {
        granted.allowed.entry(key).or_default().insert(verb);
    }
    // A right everywhere is one in its own namespace, too.
    let everywhere: Vec<_> =
        granted.allowed.iter().filter(|((_, place), _)| *place == "any namespace").collect();
    let everywhere: Vec<_> =
        everywhere.into_iter().map(|((name, _), verbs)| (name.clone(), verbs.clone())).collect();
    for (name, verbs) in everywhere {
        if let Some(own) = granted.allowed.get_mut(&(name.clone(), "its namespace")) {
            own.retain(|verb| !verbs.contains(verb));
        }
    }
    // Every account may ask about itself.
    granted.allowed.retain(|(name, _), verbs| !verbs.is_empty() && !name.starts_with("selfsubject"));
    let pods = account.pods();
    pods.delete("self", &kube::api::DeleteParams::default().grace_period(0)).await.unwrap();
    granted
}

impl Target {
    fn has(&self, verb: &str) -> bool {
        self.verbs.iter().any(|one| one == verb)
    }

    fn full_name(&self) -> String {
        let group =
            self.api_version.split_once('/').map(|(group, _)| format!(".{group}")).unwrap_or_default();
        let subresource = self.subresource.as_ref().map(|name| format!("/{name}")).unwrap_or_default();
        format!("{}{group}{subresource}", self.name)
    }
}

/// Whether the API server refuses the account this attempt. Any other answer, such as 404, comes after its consent. An
/// attempt that passes the roles is made again with a real object: validation would answer before admission.
async fn is_refused(clients: [&Client; 2], target: &Target, verb: &str, namespace: &str) -> bool {
    let [client, admin] = clients;
    let collection = target.path.replace("{}", namespace);
    let object = format!("{collection}/{NAME}");
    let path = match (&target.subresource, verb) {
        (Some(subresource), _) => format!("{object}/{subresource}"),
        (None, "create" | "deletecollection") => collection,
        (None, _) => object.clone(),
    };
    let bare = json!({
        "apiVersion": target.api_version, "kind": target.kind,
        "metadata": {
            "name": NAME, "namespace": Some(namespace).filter(|name| !name.is_empty()), "annotations": { "drill": "yes" },
        },
    });
    if forbids(client, verb, &path, &bare).await {
        return true;
    }
    let read = Request::get(&object).body(Vec::new()).unwrap();
    let Ok(mut real) = admin.request::<Value>(read).await else { return false };
    real["metadata"]["annotations"]["drill"] = "yes".into();
    match (verb, &target.subresource) {
        ("update", _) => forbids(client, verb, &path, &real).await,
        ("create", None) => {
            for field in ["resourceVersion", "uid", "creationTimestamp", "managedFields"] {
                real["metadata"].as_object_mut().unwrap().remove(field);
            }
            real["metadata"]["name"] = "drill-2".into();
            forbids(client, verb, &path, &real).await
        }
        _ => false,
    }
}

async fn forbids(client: &Client, verb: &str, path: &str, body: &Value) -> bool {
    let (method, content) = match verb {
        "create" => ("POST", "application/json"),
        "update" => ("PUT", "application/json"),
        "patch" => ("PATCH", "application/merge-patch+json"),
        _ => ("DELETE", "application/json"),
    };
    let selector = if verb == "deletecollection" { "&labelSelector=drill%3Ddrill" } else { "" };
    let body = if method == "DELETE" { Vec::new() } else { serde_json::to_vec(body).unwrap() };
    let uri = format!("{path}?dryRun=All{selector}");
    let request = Request::builder().method(method).uri(uri).header("Content-Type", content).body(body);
    match client.request_text(request.unwrap()).await {
        Err(kube::Error::Api(status)) => status.code == 403 || status.code == 401,
        _ => false,
    }
}

/// Everything that can be written in the cluster.
async fn all_targets(admin: &Client) -> Vec<Target> {
    let discovery = Discovery::new(admin.clone()).run().await.unwrap();
    let mut targets = Vec::new();
    for group in discovery.groups() {
        for (resource, capabilities) in group.recommended_resources() {
            let base = match resource.group.is_empty() {
                true => format!("/api/{}", resource.version),
                false => format!("/apis/{}/{}", resource.group, resource.version),
            };
            let namespaced = capabilities.scope == Scope::Namespaced;
            let middle = if namespaced { "/namespaces/{}" } else { "" };
            let target =
                |subresource: Option<&str>, kind: &str, api_version: &str, verbs: &[String]| Target {
                    name: resource.plural.clone(),
                    kind: kind.to_owned(),
                    api_version: api_version.to_owned(),
                    path: format!("{base}{middle}/{}", resource.plural),
                    namespaced,
                    subresource: subresource.map(str::to_owned),
                    verbs: verbs.to_vec(),
                };
            targets.push(target(None, &resource.kind, &resource.api_version, &capabilities.operations));
            for (sub, own) in &capabilities.subresources {
                let name = sub.plural.rsplit('/').next().unwrap();
                targets.push(Target {
                    api_version: resource.api_version.clone(),
                    ..target(Some(name), &sub.kind, &resource.api_version, &own.operations)
                });
            }
        }
    }
    assert!(targets.len() > 80, "{}", targets.len());
    targets
}
