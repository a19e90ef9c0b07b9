//! CustomResourceDefinitions of KMM's group, as JSON: the fields, required keys and defaults that an author of
//! a Module meets. What Kubernetes itself defines inside of them (volumes, environment) is taken as it comes.

use serde_json::{Value, json};

use super::labels::{GROUP, VERSION};
use crate::schema::{Definition, anything, boolean, integer, list, object, one_of, text, words};

/// All three: what users write, and the two kinds that KMM writes for itself.
pub(super) fn all() -> Vec<Value> {
    let named = |kind, plural, short, scope| Definition {
        group: GROUP,
        version: VERSION,
        kind,
        plural,
        short,
        scope,
    };
    let with = |spec, status| object(&[], [("spec", spec), ("status", status)]);
    vec![
        named("Module", "modules", None, "Namespaced").of(with(module(), module_status())),
        named("ModuleImagesConfig", "moduleimagesconfigs", Some("mic"), "Namespaced")
            .of(with(images(), images_status())),
        named("NodeModulesConfig", "nodemodulesconfigs", Some("nmc"), "Cluster")
            .of(with(node_modules(), node_modules_status())),
    ]
}

fn module() -> Value {
    let mut spec = object(
        &["selector"],
        [
            ("selector", words()),
            ("tolerations", list(toleration())),
            ("imageRepoSecret", reference()),
            ("imageRebuildTriggerGeneration", integer()),
            ("moduleLoader", loader()),
            ("devicePlugin", plugin([])),
            ("dra", plugin([("driverName", text()), ("deviceClasses", list(anything()))])),
        ],
    );
    spec["properties"]["dra"]["required"] = json!(["container", "driverName"]);
    spec["x-kubernetes-validations"] = json!([{
        "rule": "!(has(self.dra) && has(self.devicePlugin))",
        "message": "dra and devicePlugin exclude each other",
    }]);
    spec
}

fn loader() -> Value {
    let mut mappings = list(mapping());
    mappings["minItems"] = 1.into();
    let container = object(
        &["kernelMappings", "modprobe"],
        [
            ("kernelMappings", mappings),
            ("modprobe", modprobe()),
            ("containerImage", text()),
            ("imagePullPolicy", text()),
            ("version", text()),
            ("registryTLS", tls()),
            ("build", build()),
            ("sign", sign()),
            ("inTreeModulesToRemove", list(text())),
            ("inTreeModuleToRemove", text()),
        ],
    );
    object(&["container"], [("serviceAccountName", text()), ("container", container)])
}

fn mapping() -> Value {
    object(
        &["containerImage"],
        [
            ("containerImage", text()),
            ("literal", text()),
            ("regexp", text()),
            ("build", build()),
            ("sign", sign()),
            ("registryTLS", tls()),
            ("inTreeModulesToRemove", list(text())),
            ("inTreeModuleToRemove", text()),
        ],
    )
}

/// The folder of modules in the image is `/opt` by default.
fn modprobe() -> Value {
    let mut some = list(text());
    some["minItems"] = 1.into();
    let mut dir = text();
    dir["default"] = "/opt".into();
    let args = || object(&[], [("load", some.clone()), ("unload", some.clone())]);
    object(
        &[],
        [
            ("moduleName", text()),
            ("parameters", list(text())),
            ("dirName", dir),
            ("args", args()),
            ("rawArgs", args()),
            ("firmwarePath", text()),
            ("modulesLoadingOrder", list(text())),
        ],
    )
}

fn build() -> Value {
    let argument = object(&["name", "value"], [("name", text()), ("value", text())]);
    object(
        &["dockerfileConfigMap"],
        [
            ("dockerfileConfigMap", reference()),
            ("buildArgs", list(argument)),
            ("secrets", list(reference())),
            ("baseImageRegistryTLS", tls()),
            ("kanikoParams", object(&[], [("tag", text())])),
            ("selector", words()),
        ],
    )
}

fn sign() -> Value {
    object(
        &["keySecret", "certSecret"],
        [
            ("keySecret", reference()),
            ("certSecret", reference()),
            ("unsignedImage", text()),
            ("unsignedImageRegistryTLS", tls()),
            ("filesToSign", list(text())),
        ],
    )
}

fn tls() -> Value {
    object(&[], [("insecure", boolean()), ("insecureSkipTLSVerify", boolean())])
}

fn reference() -> Value {
    object(&[], [("name", text())])
}

fn toleration() -> Value {
    object(
        &[],
        [
            ("key", text()),
            ("operator", text()),
            ("value", text()),
            ("effect", text()),
            ("tolerationSeconds", json!({ "type": "integer", "format": "int64" })),
        ],
    )
}

/// What a device plugin and a DRA driver have in common, and more.
fn plugin<const N: usize>(more: [(&str, Value); N]) -> Value {
    let container = || {
        object(
            &["image"],
            [
                ("image", text()),
                ("command", list(text())),
                ("args", list(text())),
                ("env", list(anything())),
                ("imagePullPolicy", text()),
                ("resources", anything()),
                ("volumeMounts", list(anything())),
            ],
        )
    };
    let mut schema = object(
        &["container"],
        [
            ("container", container()),
            ("initContainer", container()),
            ("serviceAccountName", text()),
            ("volumes", list(anything())),
            ("automountServiceAccountToken", boolean()),
        ],
    );
    for (name, field) in more {
        schema["properties"][name] = field;
    }
    schema
}

/// Counters are left out when they are 0. There are neither conditions nor an observed generation.
fn module_status() -> Value {
    let counters = || {
        object(
            &[],
            [
                ("nodesMatchingSelectorNumber", integer()),
                ("desiredNumber", integer()),
                ("availableNumber", integer()),
            ],
        )
    };
    object(
        &[],
        [
            ("moduleLoader", counters()),
            ("devicePlugin", counters()),
            ("dra", counters()),
            ("imageRebuildTriggerGeneration", integer()),
        ],
    )
}

fn images() -> Value {
    let image = object(
        &["image", "kernelVersion"],
        [
            ("image", text()),
            ("kernelVersion", text()),
            ("build", build()),
            ("sign", sign()),
            ("registryTLS", tls()),
            ("dirName", text()),
        ],
    );
    object(
        &[],
        [("images", list(image)), ("imageRepoSecret", reference()), ("imagePullPolicy", if_not_present())],
    )
}

fn images_status() -> Value {
    let status = one_of(&["Exists", "DoesNotExist", "NeedsBuilding", "NeedsSigning"]);
    let state = object(&["image", "status"], [("image", text()), ("status", status)]);
    object(&[], [("imagesStates", list(state))])
}

fn if_not_present() -> Value {
    json!({ "type": "string", "default": "IfNotPresent" })
}

fn config() -> Value {
    object(
        &["kernelVersion", "containerImage", "modprobe"],
        [
            ("kernelVersion", text()),
            ("containerImage", text()),
            ("imagePullPolicy", if_not_present()),
            ("insecurePull", boolean()),
            ("inTreeModulesToRemove", list(text())),
            ("modprobe", modprobe()),
        ],
    )
}

/// What a spec entry and a status entry have in common, and more.
fn entries<const N: usize>(more: [(&str, Value); N]) -> Value {
    let mut entry = object(
        &["namespace", "name", "serviceAccountName", "config"],
        [
            ("namespace", text()),
            ("name", text()),
            ("serviceAccountName", text()),
            ("imageRepoSecret", reference()),
            ("tolerations", list(toleration())),
            ("version", text()),
            ("config", config()),
        ],
    );
    for (name, field) in more {
        entry["properties"][name] = field;
    }
    let mut all = list(entry);
    all["x-kubernetes-list-type"] = "map".into();
    all["x-kubernetes-list-map-keys"] = json!(["namespace", "name"]);
    all
}

fn node_modules() -> Value {
    object(&[], [("modules", entries([]))])
}

fn node_modules_status() -> Value {
    object(&[], [("modules", entries([("bootId", text())]))])
}
