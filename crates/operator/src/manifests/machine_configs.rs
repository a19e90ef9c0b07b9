//! The admission policy that leaves the operator's account its own MachineConfigs.
//!
//! In: [`Options`]. Out: a ValidatingAdmissionPolicy and its binding, on OpenShift. Never: an effect on other users.
//!
//! MachineConfigs are named after pools, and RBAC knows no prefix of names, so the role allows all of them. With any
//! content one of them is root on all nodes, under whatever name. So the policy states the content too.

use api::admission::{CHANGES, Policy, is_account, validation, writes};
use deployer::manifests::openshift;
use deployer::platform::Platform;
use objects::Object;
use serde_json::Value;

use super::{Options, account};
use crate::numaresourcesoperator::config_name;
use crate::rbac::MACHINE;

/// The name of policy and binding.
pub const NAME: &str = "numaresources-operator-machine-configs";
/// A version of each content that the operator writes. Older ones do not serve such policies.
const VERSIONS: [&str; 2] = ["4.17.0", "4.18.0"];

/// The policy and its binding; none on platforms without MachineConfigs.
#[must_use]
pub fn policy(options: &Options) -> Vec<Object> {
    if options.common.platform != Platform::OpenShift {
        return Vec::new();
    }
    let prefix = config_name("");
    let specs: Vec<String> = specs().iter().map(literal).collect();
    let account = account(options);
    let policy = Policy {
        name: NAME,
        writes: vec![writes(MACHINE, &["machineconfigs"], CHANGES)],
        condition: is_account("is-the-operator", account.namespace, account.name),
        variables: Vec::new(),
        validations: vec![
            // `request.name` is empty when a collection is deleted.
            validation(
                &format!(
                    "(object != null ? object.metadata.name : oldObject.metadata.name).startsWith('{prefix}')"
                ),
                format!("the operator may write MachineConfigs named {prefix}* only"),
            ),
            validation(
                // Fields of others are taken over by a first patch that leaves the content as it is.
                &format!(
                    "object == null || oldObject != null && object.spec == oldObject.spec || object.spec in [{}]",
                    specs.join(", ")
                ),
                "the operator may write MachineConfigs with the SELinux policy of its own version only; the manifests of \
                 another version have another policy"
                    .to_owned(),
            ),
        ],
    };
    let (policy, binding) = policy.objects();
    vec![Object::new(&policy), Object::new(&binding)]
}

/// All contents that the operator gives its MachineConfigs.
fn specs() -> [Value; 2] {
    VERSIONS.map(|version| {
        let options = deployer::options::Options {
            platform: Platform::OpenShift,
            version: version.parse().ok(),
            ..deployer::options::Options::peers()
        };
        openshift::machine_config(&options).body()["spec"].clone()
    })
}

/// A value in CEL. The API server demands that all values of a map have one type, which is `dyn` here.
fn literal(value: &Value) -> String {
    let any = |value: &Value| format!("dyn({})", literal(value));
    match value {
        Value::Array(items) => format!("[{}]", items.iter().map(any).collect::<Vec<_>>().join(", ")),
        Value::Object(fields) => {
            let field =
                |(name, value): (&String, &Value)| format!("{}: {}", Value::from(&**name), any(value));
            format!("{{{}}}", fields.iter().map(field).collect::<Vec<_>>().join(", "))
        }
        scalar => scalar.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_written_in_cel() {
        let value = json!({ "a": [1, "b\"\n"], "c": { "d": true, "e": null } });
        let wanted = r#"{"a": dyn([dyn(1), dyn("b\"\n")]), "c": dyn({"d": dyn(true), "e": dyn(null)})}"#;
        assert_eq!(literal(&value), wanted);
    }

    /// All contents that the operator writes on versions with such policies are in the policy, and differ.
    #[test]
    fn all_contents_are_known() {
        let known = specs();
        assert_ne!(known[0], known[1]);
        for version in ["4.17.3", "4.18.0-rc.1", "4.18.9", "4.20.1", "4.99.3", "5.0.0"] {
            let mut options = deployer::options::Options::peers();
            (options.platform, options.version) = (Platform::OpenShift, version.parse().ok());
            options.updater.name = Some("any".to_owned());
            let spec = openshift::machine_config(&options).body()["spec"].clone();
            assert!(known.contains(&spec), "{version}");
        }
    }

    #[test]
    fn only_openshift_has_it() {
        for platform in Platform::ALL {
            let mut options = super::super::options();
            options.common.platform = platform;
            assert_eq!(
                policy(&options).len(),
                if platform == Platform::OpenShift { 2 } else { 0 },
                "{platform}"
            );
        }
    }
}
