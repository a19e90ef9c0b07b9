//! Parts of the schema that types do not express: rules in CEL, and the schemas of Kubernetes' own types.
//!
//! In: nothing. Out: pieces of JSON schema. Never: a rule without a message in [`super::rules`], or one about the
//! status.
//!
//! Every text, list and map in a rule has a limit: the API server refuses definitions whose rules could take long.

use schemars::{Schema, SchemaGenerator, json_schema};
use serde_json::{Value, json};

use super::patterns::{
    FOLDER, HOST_PATH, KERNEL, LABEL, MODULE, NATIVE, PERCENT, PREFIX, TAG, TEMPLATE, UP, driver, label_key,
    repository, reserved, resource, subdomain,
};
use super::{CDI_VOLUME, PLUGIN_CONFIG_VERSION, rules};

/// Rules, each with its message.
fn rules_of<const N: usize>(rules: [(String, &str); N]) -> Value {
    rules.map(|(rule, message)| json!({"rule": rule, "message": message})).to_vec().into()
}

/// A CEL expression: whether the whole of `text` matches.
fn matches(text: &str, pattern: &str) -> String {
    format!("{text}.matches(r'^({pattern})$')")
}

/// A CEL expression: whether `text` is a label's key.
fn is_key(text: &str) -> String {
    format!("{text}.indexOf('/') <= {PREFIX} && {}", matches(text, &label_key()))
}

pub(super) fn name_rules() -> Value {
    rules_of([("!has(self.metadata.name) || size(self.metadata.name) <= 63".to_owned(), rules::NAME)])
}

pub(super) fn spec_rules() -> Value {
    let dir = "(has(self.modprobe) && has(self.modprobe.dirName) ? self.modprobe.dirName : '/opt') + '/'";
    let below =
        |sign: &str| format!("(!has({sign}.filesToSign) || {sign}.filesToSign.all(f, f.startsWith({dir})))");
    let raw = "has(self.modprobe) && has(self.modprobe.rawArgs)";
    let unsigned = "has(self.sign) && has(self.sign.unsignedImage)";
    rules_of([
        ("has(self.nodeSelector) != (has(self.allNodes) && self.allNodes)".to_owned(), rules::SELECTOR),
        (format!("!has(self.moduleName) || !({raw})"), rules::RAW_ARGS_ALONE),
        (
            format!(
                "!({raw}) || !has(self.modprobe.args) && !has(self.modprobe.parameters) && \
                 !has(self.modprobe.modulesLoadingOrder)"
            ),
            rules::RAW_ARGS_BESIDE,
        ),
        (
            format!("has(self.moduleName) || {raw} || self.driverImage.matches('(^|/)[^/]{{1,55}}$')"),
            rules::MODULE_DEFAULT,
        ),
        (
            "!has(self.modprobe) || !has(self.modprobe.modulesLoadingOrder) || size(self.modprobe.modulesLoadingOrder) == 0 || \
             has(self.moduleName) && self.modprobe.modulesLoadingOrder[0] == self.moduleName"
                .to_owned(),
            rules::ORDER_FIRST,
        ),
        (format!("!has(self.sign) || {unsigned} || has(self.build)"), rules::SIGN_IMAGE),
        (
            format!(
                "!has(self.kernelMappings) || {unsigned} || has(self.build) || self.kernelMappings.all(m, !has(m.sign) || \
                 has(m.sign.unsignedImage) || has(m.build))"
            ),
            rules::SIGN_IMAGE,
        ),
        (format!("!has(self.sign) || {}", below("self.sign")), rules::SIGN_FOLDER),
        (
            format!(
                "!has(self.kernelMappings) || self.kernelMappings.all(m, !has(m.sign) || {})",
                below("m.sign")
            ),
            rules::SIGN_FOLDER,
        ),
        (plugin_is_known(), rules::NAMES_NEEDED),
        ("!has(self.dra) || !has(self.devicePlugin)".to_owned(), rules::DRA_ALONE),
    ])
}

/// The rule that the operator can find the pods that use the devices, or need not.
fn plugin_is_known() -> String {
    let named = |list: &str| format!("has(self.devicePlugin.{list}) && size(self.devicePlugin.{list}) > 0");
    format!(
        "!has(self.devicePlugin) || has(self.devicePlugin.config) || !has(self.devicePlugin.image) || {} || {} || \
         has(self.upgradePolicy) && has(self.upgradePolicy.podsUsingDevices) && self.upgradePolicy.podsUsingDevices == 'Ignore'",
        named("resourceNames"),
        named("driverNames")
    )
}

pub(super) fn driver_image_rules() -> Value {
    // A tag or digest has its own message only.
    let whole = matches("self", &repository());
    rules_of([
        ("!self.contains('@')".to_owned(), rules::IMAGE_DIGEST),
        (format!("self.contains('@') || !self.matches('{TAG}')"), rules::IMAGE_TAG),
        (format!("self.contains('@') || self.matches('{TAG}') || {whole}"), rules::IMAGE),
    ])
}

pub(super) fn driver_version_rules() -> Value {
    rules_of([(matches("self", LABEL), rules::VERSION)])
}

pub(super) fn kernel_module_rules() -> Value {
    rules_of([(matches("self", MODULE), rules::MODULE)])
}

pub(super) fn mapping_rules() -> Value {
    rules_of([
        ("has(self.literal) != has(self.regexp)".to_owned(), rules::MAPPING),
        (format!("!has(self.literal) || {}", matches("self.literal", KERNEL)), rules::LITERAL),
    ])
}

pub(super) fn regexp_rules() -> Value {
    rules_of([
        // An invalid expression makes neither true, and the API server adds the reason.
        ("size(self) > 0 && (''.matches(self) || !''.matches(self))".to_owned(), rules::REGEXP),
    ])
}

pub(super) fn template_rules() -> Value {
    rules_of([(matches("self", TEMPLATE), rules::TEMPLATE)])
}

pub(super) fn folder_rules(field: &str) -> Value {
    let message = format!("{field} {}", rules::FOLDER);
    let rule = format!("{} && !self.matches('{UP}')", matches("self", FOLDER));
    json!([{"rule": rule, "message": message}])
}

pub(super) fn raw_args_rules() -> Value {
    rules_of([(
        "has(self.load) && size(self.load) > 0 && has(self.unload) && size(self.unload) > 0".to_owned(),
        rules::RAW_ARGS,
    )])
}

pub(super) fn sign_rules() -> Value {
    rules_of([("has(self.filesToSign) && size(self.filesToSign) > 0".to_owned(), rules::SIGN_FILES)])
}

pub(super) fn plugin_rules() -> Value {
    let is_cdi = format!("m.name == '{CDI_VOLUME}' || ");
    rules_of([
        ("has(self.config) || has(self.image)".to_owned(), rules::PLUGIN),
        ("!has(self.config) || !has(self.command)".to_owned(), rules::PLUGIN_COMMAND),
        (
            format!(
                "!has(self.config) || !has(self.volumeMounts) || self.volumeMounts.all(m, !m.mountPath.matches('{}'))",
                reserved()
            ),
            rules::MOUNT_RESERVED,
        ),
        (
            format!(
                "{} && (!has(self.initContainer) || {})",
                are_of_volumes("self", &is_cdi),
                are_of_volumes("self.initContainer", &is_cdi)
            ),
            rules::MOUNT_NAME,
        ),
    ])
}

pub(super) fn dra_rules() -> Value {
    rules_of([
        (matches("self.driverName", &subdomain()), rules::DRA_DRIVER),
        (
            format!(
                "{} && (!has(self.initContainer) || {})",
                are_of_volumes("self", ""),
                are_of_volumes("self.initContainer", "")
            ),
            rules::DRA_MOUNT,
        ),
    ])
}

/// The rule that a container's mounts refer to existing volumes; `or_else` begins the condition for a mount.
fn are_of_volumes(container: &str, or_else: &str) -> String {
    format!(
        "(!has({container}.volumeMounts) || {container}.volumeMounts.all(m, {or_else}has(self.volumes) && \
         self.volumes.exists(v, v.name == m.name)))"
    )
}

/// The schema of a node selector, which is not empty.
pub(super) fn node_selector(_: &mut SchemaGenerator) -> Schema {
    map_of_labels(json!([
        {"rule": "size(self) > 0", "message": rules::SELECTOR_EMPTY},
        {"rule": format!("self.all(key, {})", is_key("key")), "message": rules::LABEL_KEYS},
        {"rule": format!("self.all(key, self[key] == '' || {})", matches("self[key]", LABEL)), "message": rules::LABEL_VALUES},
    ]))
}

/// The schema of a map of labels.
pub(super) fn labels(_: &mut SchemaGenerator) -> Schema {
    map_of_labels(json!([
        {"rule": format!("self.all(key, {})", is_key("key")), "message": rules::LABEL_KEYS},
        {"rule": format!("self.all(key, self[key] == '' || {})", matches("self[key]", LABEL)), "message": rules::LABEL_VALUES},
    ]))
}

#[expect(clippy::needless_pass_by_value, reason = "it becomes part of the schema")]
fn map_of_labels(rules: Value) -> Schema {
    json_schema!({
        "type": "object",
        "maxProperties": 16,
        "additionalProperties": {"type": "string", "maxLength": 63},
        "x-kubernetes-validations": rules,
    })
}

/// The schema of a list of kernel modules.
pub(super) fn kernel_modules(_: &mut SchemaGenerator) -> Schema {
    list_of(
        &json!({"type": "string", "maxLength": 55}),
        32,
        &[(&format!("self.all(m, {})", matches("m", MODULE)), rules::MODULES)],
    )
}

/// The schema of a loading order: at least two kernel modules, each once.
pub(super) fn loading_order(_: &mut SchemaGenerator) -> Schema {
    let once = "size(self) >= 2 && self.all(m, self.exists_one(n, n == m))";
    let named = format!("self.all(m, {})", matches("m", MODULE));
    list_of(
        &json!({"type": "string", "maxLength": 55}),
        16,
        &[(once, rules::ORDER), (&named, rules::MODULES)],
    )
}

/// The schema of the words of a command line.
pub(super) fn words(_: &mut SchemaGenerator) -> Schema {
    json_schema!({"type": "array", "minItems": 1, "maxItems": 64, "items": {"type": "string", "maxLength": 4096}})
}

/// The schema of a list of files in an image.
pub(super) fn files(_: &mut SchemaGenerator) -> Schema {
    list_of(&json!({"type": "string", "minLength": 1, "maxLength": 256}), 32, &[])
}

/// The schema of a list of extended resources.
pub(super) fn resource_names(_: &mut SchemaGenerator) -> Schema {
    let rule = format!("self.all(r, {})", is_resource("r"));
    list_of(&json!({"type": "string", "maxLength": 253}), 32, &[(&rule, rules::RESOURCES)])
}

/// A CEL expression: whether `text` is the name of an extended resource.
fn is_resource(text: &str) -> String {
    let name = matches(text, &resource());
    format!("{name} && !{text}.matches('{NATIVE}') && !{text}.startsWith('requests.')")
}

/// The schema of a list of drivers of resource claims.
pub(super) fn driver_names(_: &mut SchemaGenerator) -> Schema {
    let rule = format!("self.all(d, {})", matches("d", &driver()));
    list_of(&json!({"type": "string", "maxLength": 63}), 32, &[(&rule, rules::DRIVERS)])
}

fn list_of(items: &Value, most: usize, rules: &[(&str, &str)]) -> Schema {
    let mut schema = json_schema!({"type": "array", "maxItems": most, "items": items});
    if !rules.is_empty() {
        let rules: Vec<Value> =
            rules.iter().map(|(rule, message)| json!({"rule": rule, "message": message})).collect();
        schema.insert("x-kubernetes-validations".to_owned(), rules.into());
    }
    schema
}

/// The schema of a number or a percentage.
pub(super) fn max_unavailable(_: &mut SchemaGenerator) -> Schema {
    json_schema!({
        "x-kubernetes-int-or-string": true,
        "anyOf": [{"type": "integer"}, {"type": "string"}],
        "maxLength": 8,
        "maximum": i32::MAX,
        "x-kubernetes-validations": rules_of([(
            format!("type(self) == int ? self >= 1 : {}", matches("self", PERCENT)),
            rules::MAX_UNAVAILABLE,
        )]),
    })
}

/// The schema of the device plugin's configuration, as far as rules need it; the device plugin checks the rest.
pub(super) fn plugin_config(_: &mut SchemaGenerator) -> Schema {
    let named = format!("self.resources.all(r, has(r.name) && {})", is_resource("r.name"));
    json_schema!({
        "type": "object",
        "x-kubernetes-preserve-unknown-fields": true,
        "properties": {
            "version": {"type": "string", "maxLength": 63, "description": "Version of the configuration."},
            "resources": {"type": "array", "maxItems": 64, "description": "The resources it offers.", "items": {
                "type": "object",
                "description": "A resource, as in the file of the device plugin.",
                "x-kubernetes-preserve-unknown-fields": true,
                "properties": {
                    "name": {"type": "string", "maxLength": 253, "description": "Its name, such as vendor.example/acc."},
                },
            }},
        },
        "x-kubernetes-validations": rules_of([
            (format!("has(self.version) && self.version == '{PLUGIN_CONFIG_VERSION}'"), rules::CONFIG_VERSION),
            (format!("has(self.resources) && size(self.resources) > 0 && {named}"), rules::CONFIG_RESOURCES),
        ]),
    })
}

/// The schema of tolerations that KMM accepts.
pub(super) fn tolerations(generator: &mut SchemaGenerator) -> Schema {
    let mut schema = crate::numaresources::schema::tolerations(generator);
    let key = is_key("self.key");
    let value = matches("self.value", LABEL);
    let exists = "has(self.operator) && self.operator == 'Exists'";
    let items = json!([
        {"rule": format!("has(self.key) && self.key != '' ? {key} : {exists}"), "message": rules::TOLERATION_KEY},
        {
            "rule": format!("(!has(self.operator) || self.operator in ['', 'Equal', 'Exists']) && (!has(self.value) || self.value == '' || \
                             !({exists}) && {value})"),
            "message": rules::TOLERATION_OPERATOR,
        },
        {
            "rule": "!has(self.effect) || self.effect in ['', 'NoSchedule', 'PreferNoSchedule', 'NoExecute']",
            "message": rules::TOLERATION_EFFECT,
        },
        {
            "rule": "!has(self.tolerationSeconds) || has(self.effect) && self.effect == 'NoExecute'",
            "message": rules::TOLERATION_SECONDS,
        },
    ]);
    if let Some(list) = schema.get_mut("items") {
        list["x-kubernetes-validations"] = items;
        list["properties"]["key"]["maxLength"] = 317.into();
        list["properties"]["value"]["maxLength"] = 63.into();
        list["properties"]["operator"]["description"] =
            "How the taint's value is compared: Equal or Exists. Default: Equal.".into();
    }
    schema.insert("maxItems".to_owned(), 16.into());
    schema
}

/// The schema of a container's environment variables.
pub(super) fn env(_: &mut SchemaGenerator) -> Schema {
    let text = |description: &str| json!({"type": "string", "description": description});
    let key_of = |of: &str| {
        json!({
            "type": "object",
            "description": format!("A key of a {of} in this namespace."),
            "required": ["key"],
            "properties": {
                "name": text("The object's name."),
                "key": text("The key."),
                "optional": {"type": "boolean", "description": "Whether it may be absent."},
            },
        })
    };
    json_schema!({"type": "array", "maxItems": 64, "items": {
        "type": "object",
        "description": "An environment variable.",
        "required": ["name"],
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 256, "description": "Its name."},
            "value": text("Its value; $(NAME) stands for another variable."),
            "valueFrom": {
                "type": "object",
                "description": "Where its value is, instead of value.",
                "properties": {
                    "fieldRef": {
                        "type": "object",
                        "description": "A field of the pod.",
                        "required": ["fieldPath"],
                        "properties": {
                            "apiVersion": text("The version that the path is of. Default: v1."),
                            "fieldPath": text("The field, such as spec.nodeName."),
                        },
                    },
                    "configMapKeyRef": key_of("ConfigMap"),
                    "secretKeyRef": key_of("Secret"),
                },
            },
        },
    }})
}

/// CPU and memory of a container.
pub(super) fn resources(_: &mut SchemaGenerator) -> Schema {
    let amounts = |description: &str| {
        json!({
            "type": "object",
            "description": description,
            "maxProperties": 16,
            "additionalProperties": {
                "x-kubernetes-int-or-string": true,
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "pattern": r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$",
            },
        })
    };
    json_schema!({"type": "object", "properties": {
        "limits": amounts("The most it may use."),
        "requests": amounts("What is kept for it."),
    }})
}

/// Volumes of a pod, of the kinds a device plugin has a use for.
pub(super) fn volumes(_: &mut SchemaGenerator) -> Schema {
    let text = |description: &str| json!({"type": "string", "maxLength": 4096, "description": description});
    let mode = json!({"type": "integer", "format": "int32", "description": "Mode of the files."});
    let optional = json!({"type": "boolean", "description": "Whether it may be absent."});
    let keys = json!({"type": "array", "maxItems": 64, "description": "Keys and their files. Default: all keys.", "items": {
        "type": "object",
        "description": "A key and its file.",
        "required": ["key", "path"],
        "properties": {"key": text("The key."), "path": text("The file."), "mode": mode},
    }});
    json_schema!({"type": "array", "maxItems": 32, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": {
        "type": "object",
        "description": "A volume.",
        "required": ["name"],
        "x-kubernetes-validations": rules_of([(
            "[has(self.hostPath), has(self.configMap), has(self.secret), has(self.emptyDir)].exists_one(it, it)".to_owned(),
            rules::VOLUME,
        )]),
        "properties": {
            "name": {"type": "string", "minLength": 1, "maxLength": 63, "description": "Its name, for volumeMounts."},
            "hostPath": {
                "type": "object",
                "description": "A file or folder of the node.",
                "required": ["path"],
                "x-kubernetes-validations": rules_of([(
                    format!("self.path.matches('{HOST_PATH}') && !self.path.matches('{UP}')"),
                    rules::HOST_PATH,
                )]),
                "properties": {
                    "path": text("Where it is."),
                    "type": {"type": "string", "maxLength": 32, "description": "What it is, or has to become."},
                },
            },
            "configMap": {
                "type": "object",
                "description": "A ConfigMap in this namespace.",
                "properties": {
                    "name": text("Its name."), "items": keys, "defaultMode": mode, "optional": optional,
                },
            },
            "secret": {
                "type": "object",
                "description": "A Secret in this namespace.",
                "properties": {
                    "secretName": text("Its name."), "items": keys, "defaultMode": mode, "optional": optional,
                },
            },
            "emptyDir": {
                "type": "object",
                "description": "An empty folder.",
                "properties": {
                    "medium": text("Memory, for one that is not on a disk."),
                    "sizeLimit": text("The most there may be in it."),
                },
            },
        },
    }})
}

/// DeviceClasses, as KMM makes them.
pub(super) fn device_classes(_: &mut SchemaGenerator) -> Schema {
    let text = |most: usize, description: &str| json!({"type": "string", "maxLength": most, "description": description});
    let selector = json!({
        "type": "object",
        "description": "A condition.",
        "required": ["cel"],
        "properties": {"cel": {
            "type": "object",
            "description": "A condition in CEL.",
            "required": ["expression"],
            "properties": {"expression": text(10_240, "The expression, over device.driver, device.attributes and device.capacity.")},
        }},
    });
    let config = json!({
        "type": "object",
        "description": "A configuration.",
        "required": ["opaque"],
        "properties": {"opaque": {
            "type": "object",
            "description": "A configuration that only the DRA driver reads.",
            "required": ["driver", "parameters"],
            "properties": {
                "driver": text(63, "The DRA driver's name."),
                "parameters": {
                    "type": "object", "x-kubernetes-preserve-unknown-fields": true, "description": "Its parameters.",
                },
            },
        }},
    });
    json_schema!({"type": "array", "maxItems": 32, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": {
        "type": "object",
        "description": "A DeviceClass.",
        "required": ["name"],
        "x-kubernetes-validations": rules_of([(matches("self.name", &subdomain()), rules::DEVICE_CLASS)]),
        "properties": {
            "name": text(253, "Its name. There is one such class in the cluster."),
            "selectors": {"type": "array", "maxItems": 32, "description": "Conditions, all of which a device has to meet.", "items": selector},
            "config": {"type": "array", "maxItems": 32, "description": "For the DRA driver, with each claim.", "items": config},
        },
    }})
}

/// Where volumes are in a container.
pub(super) fn volume_mounts(_: &mut SchemaGenerator) -> Schema {
    let text = |description: &str| json!({"type": "string", "maxLength": 4096, "description": description});
    let keys = ["mountPath"];
    json_schema!({"type": "array", "maxItems": 32, "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": keys, "items": {
        "type": "object",
        "description": "Where a volume is.",
        "required": ["mountPath", "name"],
        "properties": {
            "name": {"type": "string", "maxLength": 63, "description": "The volume's name: one of volumes, or cdi in devicePlugin."},
            "mountPath": text("Where it is. Nothing else may be there."),
            "readOnly": {"type": "boolean", "description": "Whether it is there for reading only."},
            "subPath": text("A folder of the volume instead of all of it."),
            "mountPropagation": text("Whether mounts are seen on the other side: None, HostToContainer or Bidirectional."),
        },
    }})
}
