//! What KMM's webhook refuses, as policies of the API server: the rules are kept by CEL, and the answer is
//! `Forbidden` as the webhook's.
//!
//! In: a client. Out: a cluster that refuses Modules, by KMM's rules or all of them. Never: a server of its own.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use kube::Client;
use kube::api::{Api, DeleteParams, Patch, PatchParams, PostParams};
use serde_json::{Value, json};

use super::labels::{GROUP, VERSION};

/// How long the API server may take to hear of a policy; it takes about a second.
const PATIENCE: Duration = Duration::from_secs(60);

const WEBHOOK: &str = "vmodule.kb.io";
const REFUSAL: &str = "testkit-refuses-modules";
/// A DNS subdomain, with anchors.
const SUBDOMAIN: &str = "^[a-z0-9]([a-z0-9-]*[a-z0-9])?([.][a-z0-9]([a-z0-9-]*[a-z0-9])?)*$";

/// Refuses Modules that KMM's webhook refuses, from the moment this returns.
///
/// # Errors
/// When the API server does not take it, or not in time.
pub async fn watch_over(client: &Client) -> anyhow::Result<()> {
    put(client, WEBHOOK, &Value::Array(rules())).await?;
    let too_long = "a-module-with-a-name-that-is-longer-than-41";
    until(client, too_long, |answer| answer.contains("41 characters")).await
}

/// Refuses every new Module and every change of one's spec with this text, from the moment this returns.
///
/// # Errors
/// When the API server does not take it, or not in time.
pub async fn refuse(client: &Client, text: &str) -> anyhow::Result<()> {
    put(client, REFUSAL, &json!([{ "expression": "false", "message": text, "reason": "Forbidden" }])).await?;
    until(client, "any", |answer| answer.contains(text)).await
}

/// Takes back what [`refuse`] did.
///
/// # Errors
/// When the API server does not hear of it in time.
pub async fn allow(client: &Client) -> anyhow::Result<()> {
    let params = DeleteParams::default();
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    let _ = bindings.delete(REFUSAL, &params).await?;
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    let _ = policies.delete(REFUSAL, &params).await?;
    until(client, "any", str::is_empty).await
}

/// A policy for Modules whose spec is new, and its binding.
async fn put(client: &Client, name: &str, rules: &Value) -> anyhow::Result<()> {
    let metadata = json!({ "name": name });
    let policy = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy", "metadata": metadata,
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": { "resourceRules": [{
                "apiGroups": [GROUP], "apiVersions": [VERSION], "resources": ["modules"],
                "operations": ["CREATE", "UPDATE"],
            }] },
            "matchConditions": [{
                "name": "its-spec-is-new",
                "expression": "request.operation == 'CREATE' || object.spec != oldObject.spec",
            }],
            "validations": rules,
        },
    });
    let binding = json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": metadata, "spec": { "policyName": name, "validationActions": ["Deny"] },
    });
    let params = PatchParams::apply("testkit").force();
    let policies: Api<ValidatingAdmissionPolicy> = Api::all(client.clone());
    policies.patch(name, &params, &Patch::Apply(policy)).await.with_context(|| format!("policy {name}"))?;
    let bindings: Api<ValidatingAdmissionPolicyBinding> = Api::all(client.clone());
    bindings.patch(name, &params, &Patch::Apply(binding)).await.with_context(|| format!("binding {name}"))?;
    Ok(())
}

/// Waits until the API server answers so to a Module of this name that is not really made; nothing: it would make it.
async fn until(client: &Client, name: &str, is: impl Fn(&str) -> bool) -> anyhow::Result<()> {
    let modules = super::api(client, "Module", Some("default"));
    let module = serde_json::from_value(json!({
        "apiVersion": format!("{GROUP}/{VERSION}"), "kind": "Module",
        "metadata": { "name": name, "namespace": "default" }, "spec": { "selector": { "x": "y" } },
    }))?;
    let params = PostParams { dry_run: true, ..PostParams::default() };
    let began = Instant::now();
    loop {
        let answer = match modules.create(&params, &module).await {
            Ok(_) => String::new(),
            Err(error) => error.to_string(),
        };
        if is(&answer) {
            return Ok(());
        }
        anyhow::ensure!(began.elapsed() < PATIENCE, "still the answer to a Module is {answer:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// A rule that holds, and what is said if it does not.
fn rule(expression: &str, message: &str) -> Value {
    json!({ "expression": expression, "message": message, "reason": "Forbidden" })
}

/// The webhook's rules, in CEL. Those about a loader hold where there is none.
fn rules() -> Vec<Value> {
    let mut all = vec![
        rule(
            "size(object.metadata.name) + size(object.metadata.namespace) <= 41",
            "name and namespace of a Module may have 41 characters together",
        ),
        rule(
            &format!("oldObject == null || ({}) == ({})", versioned("object"), versioned("oldObject")),
            "spec.moduleLoader.container.version may be changed, but neither added nor removed",
        ),
        rule(
            "!has(object.spec.tolerations) || object.spec.tolerations.all(t, \
             (has(t.operator) && t.operator == 'Exists' ? !has(t.value) || t.value == '' : has(t.key) && t.key != '') && \
             (!has(t.operator) || t.operator in ['', 'Equal', 'Exists']) && \
             (!has(t.effect) || t.effect in ['', 'NoSchedule', 'PreferNoSchedule', 'NoExecute']) && \
             (!has(t.tolerationSeconds) || (has(t.effect) && t.effect == 'NoExecute')))",
            "spec.tolerations has a toleration that Kubernetes does not know",
        ),
        host_paths("devicePlugin"),
        host_paths("dra"),
        rule(
            &format!("!has(object.spec.dra) || object.spec.dra.driverName.matches('{SUBDOMAIN}')"),
            "spec.dra.driverName is no DNS subdomain",
        ),
        rule(
            &format!(
                "!has(object.spec.dra) || !has(object.spec.dra.deviceClasses) || object.spec.dra.deviceClasses.all(c, \
                 c.name.matches('{SUBDOMAIN}') && object.spec.dra.deviceClasses.exists_one(d, d.name == c.name))"
            ),
            "spec.dra.deviceClasses have names that are DNS subdomains, each once",
        ),
    ];
    all.extend(loader_rules());
    all
}

/// The rule for host paths of a device plugin or a DRA driver.
fn host_paths(field: &str) -> Value {
    let volumes = format!("object.spec.{field}.volumes");
    rule(
        &format!(
            "!has(object.spec.{field}) || !has({volumes}) || {volumes}.all(v, !has(v.hostPath) || \
             v.hostPath.path.matches('^/(dev|sys|var|opt|run)(/|$)') && !v.hostPath.path.matches('(^|/)[.][.](/|$)'))"
        ),
        &format!("spec.{field}.volumes may have host paths under /dev, /sys, /var, /opt and /run only"),
    )
}

/// Whether it has a version.
fn versioned(object: &str) -> String {
    let container = format!("{object}.spec.moduleLoader.container");
    format!("has({object}.spec.moduleLoader) && has({container}.version) && {container}.version != ''")
}

fn loader_rules() -> Vec<Value> {
    let of = |expression: &str, message: &str| {
        let expression = expression.replace("$c", "object.spec.moduleLoader.container");
        rule(&format!("!has(object.spec.moduleLoader) || ({expression})"), message)
    };
    vec![
        of(
            "$c.kernelMappings.all(m, m.containerImage != '' || has($c.containerImage) && $c.containerImage != '')",
            "every kernel mapping needs a containerImage, its own or the container's",
        ),
        of(
            "$c.kernelMappings.all(m, m.containerImage == '' || m.containerImage.matches('[:@]')) && \
             (!has($c.containerImage) || $c.containerImage == '' || $c.containerImage.matches('[:@]'))",
            "a containerImage needs a tag or a digest",
        ),
        of(
            "$c.kernelMappings.all(m, (has(m.literal) && m.literal != '') != (has(m.regexp) && m.regexp != ''))",
            "a kernel mapping has either literal or regexp",
        ),
        // A pattern that cannot be compiled is an error, and so a refusal.
        of(
            "$c.kernelMappings.all(m, !has(m.regexp) || 'x'.matches(m.regexp) in [true, false])",
            "a regexp cannot be compiled",
        ),
        of(
            "has($c.modprobe.moduleName) && $c.modprobe.moduleName != '' ? !has($c.modprobe.rawArgs) : \
             has($c.modprobe.rawArgs) && has($c.modprobe.rawArgs.load) && has($c.modprobe.rawArgs.unload)",
            "modprobe has either moduleName or rawArgs with load and unload",
        ),
        of(
            "!has($c.modprobe.modulesLoadingOrder) || has($c.modprobe.moduleName) && \
             size($c.modprobe.modulesLoadingOrder) >= 2 && \
             $c.modprobe.modulesLoadingOrder[0] == $c.modprobe.moduleName && \
             $c.modprobe.modulesLoadingOrder.all(a, $c.modprobe.modulesLoadingOrder.exists_one(b, a == b))",
            "modulesLoadingOrder has at least two different modules, and begins with moduleName",
        ),
        of(
            "!((has($c.inTreeModulesToRemove) || $c.kernelMappings.exists(m, has(m.inTreeModulesToRemove))) && \
             (has($c.inTreeModuleToRemove) || $c.kernelMappings.exists(m, has(m.inTreeModuleToRemove))))",
            "inTreeModulesToRemove and inTreeModuleToRemove exclude each other",
        ),
        of(
            "(!has($c.sign) || has($c.sign.filesToSign) && size($c.sign.filesToSign) > 0 && \
             $c.sign.filesToSign.all(f, f.startsWith($c.modprobe.dirName + '/'))) && \
             $c.kernelMappings.all(m, !has(m.sign) || !has(m.sign.filesToSign) || \
             m.sign.filesToSign.all(f, f.startsWith($c.modprobe.dirName + '/')))",
            "filesToSign are under modprobe.dirName",
        ),
    ]
}
