//! Stolen tokens: what the account of each shipped program can write, tried with its own token on a real API server.
//!
//! In: everything that `deploy`, the operator and the hardware controller install. Out: docs/rights.md, which the test
//! keeps (`UPDATE_DOCS=1` writes it). Never: a change of the cluster; each attempt is a dry run, which passes
//! authentication, authorization and admission.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;

use axum::http::Request;
use deployer::part::Component;
use deployer::platform::Platform;
use fakes::kmm;
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
        let page = drill(&rig.control, &admin).await;
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(PAGE);
        if std::env::var_os("UPDATE_DOCS").is_some() {
            std::fs::write(&path, &page).unwrap();
        }
        let written = std::fs::read_to_string(&path).unwrap_or_default();
        assert!(written == page, "{PAGE} is stale: UPDATE_DOCS=1 writes it\n{page}");
    })
    .unwrap();
}

/// What does not come from the operator: exporter and scheduler of `deploy`, the hardware controller.
async fn others(admin: &Client) {
    kmm::install(admin).await.unwrap();
    let parts = deployer::manifests::parts(&deployer::options::Options::default(), &Component::ALL).unwrap();
    let objects: Vec<Object> = parts.iter().flat_map(|part| part.objects().to_vec()).collect();
    apply(admin, &objects, false).await;
    apply(admin, &hardware::manifests::objects(&hardware::manifests::options()), false).await;
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

/// Tries everything with the token of every account of ours.
async fn drill(control: &ControlPlane, admin: &Client) -> String {
    let targets = targets(admin).await;
    let accounts: Api<ServiceAccount> = Api::all(admin.clone());
    let mut page = HEAD.to_owned();
    for account in accounts.list(&ListParams::default()).await.unwrap().items {
        let (namespace, name) = (account.namespace().unwrap(), account.name_any());
        if namespace.starts_with("kube-") || name == "default" {
            continue;
        }
        theirs(admin, &[&namespace, THEIRS]).await;
        let account = Account::of(control, &namespace, &name).await.unwrap();
        let granted = granted(admin, &account, &namespace, &targets).await;
        let attempts: usize = granted.attempts;
        let _ = write!(page, "\n## {namespace}/{name}\n\n");
        let _ = writeln!(page, "{attempts} attempts, all refused but these:\n");
        page += "| resource | where | verbs |\n|---|---|---|\n";
        if granted.allowed.is_empty() {
            page += "| none | | |\n";
        }
        for ((resource, place), verbs) in &granted.allowed {
            let verbs: Vec<_> = VERBS.into_iter().filter(|verb| verbs.contains(verb)).collect();
            let _ = writeln!(page, "| `{resource}` | {place} | {} |", verbs.join(", "));
        }
    }
    page
}

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
operator and the hardware controller install, bound to a pod on a node. It tries each verb on each resource of a real API
server with OpenShift's kinds, against objects of others: in the account's own namespace, in `kube-system`, or in the
cluster. Rights to objects of one name are not in these tables; the roles in `tholepin render` show them. So an exporter
has no line for its own node's report: the table has what it could do to others. Each account may also ask what it is
and may do.

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
    for target in targets {
        let places: &[(&str, &'static str)] = match target.namespaced {
            true => &[(namespace, "its namespace"), (THEIRS, "any namespace")],
            false => &[("", "cluster")],
        };
        for verb in VERBS.into_iter().filter(|verb| target.has(verb)) {
            for (namespace, place) in places {
                granted.attempts += 1;
                if !is_refused([&client, admin], target, verb, namespace).await {
                    let key = (target.full_name(), *place);
                    granted.allowed.entry(key).or_default().insert(verb);
                }
            }
        }
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
async fn targets(admin: &Client) -> Vec<Target> {
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
