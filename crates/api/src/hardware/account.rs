//! Admission policies for the service account of the operator, which writes in all namespaces.
//!
//! In: a service account. Out: ValidatingAdmissionPolicies with their bindings. Never: an effect on other users.
//!
//! DeviceConfigs are in any namespace, so RBAC has to allow ConfigMaps, service accounts and role bindings of any name
//! there, and patches of nodes. These policies leave of that what the operator does: objects that bear its labels; of a
//! node its claim, the versions of drivers and the cordon taint.

use k8s_openapi::api::admissionregistration::v1::{
    NamedRuleWithOperations, ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding, Validation,
    Variable,
};

use super::keys;
use crate::admission::{CHANGES, Policy, is_account, validation, variable, writes};
use crate::kmm;

/// Name of the policy for objects.
pub const OBJECTS_POLICY: &str = "tholepin-hardware-own-objects";
/// Name of the policy for nodes.
pub const NODES_POLICY: &str = "tholepin-hardware-own-node-fields";

/// The policies for the account `name` in `namespace`, with their bindings.
#[must_use]
pub fn policies(
    namespace: &str,
    name: &str,
) -> [(ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding); 2] {
    let condition = is_account("is-the-operator", namespace, name);
    let objects = Policy {
        name: OBJECTS_POLICY,
        writes: objects(),
        condition: condition.clone(),
        variables: own_marks(),
        validations: own_objects(),
    };
    let nodes = Policy {
        name: NODES_POLICY,
        writes: vec![writes("", &["nodes"], &["UPDATE"])],
        condition,
        variables: labels(),
        validations: own_fields(),
    };
    [objects.objects(), nodes.objects()]
}

fn objects() -> Vec<NamedRuleWithOperations> {
    vec![
        writes("", &["configmaps", "serviceaccounts"], CHANGES),
        writes("rbac.authorization.k8s.io", &["rolebindings"], CHANGES),
        writes(kmm::GROUP, &[kmm::MODULES], CHANGES),
    ]
}

/// Whether the object before and after bears the operator's labels. Before, its field manager counts too: another
/// client may have removed the labels of a Module.
fn own_marks() -> Vec<Variable> {
    let (by, value, of) = (keys::LABEL_MANAGED_BY, keys::MANAGED_BY, keys::LABEL_DEVICE_CONFIG);
    let marked = |object: &str| {
        let labels = format!("{object}.metadata.labels");
        format!("has({labels}) && '{by}' in {labels} && {labels}['{by}'] == '{value}' && '{of}' in {labels}")
    };
    let fields = "oldObject.metadata.managedFields";
    let applied = format!(
        "has({fields}) && {fields}.exists(one, one.manager == '{}' && one.operation == 'Apply')",
        keys::FIELD_MANAGER
    );
    vec![
        variable("before", &format!("oldObject == null || ({}) || ({applied})", marked("oldObject"))),
        variable("after", &format!("object == null || ({})", marked("object"))),
    ]
}

fn own_objects() -> Vec<Validation> {
    let message = format!(
        "the operator of DeviceConfigs may write objects with its labels only: {}={} and {}",
        keys::LABEL_MANAGED_BY,
        keys::MANAGED_BY,
        keys::LABEL_DEVICE_CONFIG
    );
    vec![validation("variables.before && variables.after", message)]
}

fn labels() -> Vec<Variable> {
    let of = |object: &str| format!("has({object}.metadata.labels) ? {object}.metadata.labels : {{}}");
    vec![variable("before", &of("oldObject")), variable("after", &of("object"))]
}

fn own_fields() -> Vec<Validation> {
    let (claim, version) = (keys::LABEL_DRIVER, kmm::keys::VERSION_MODULE);
    let is_own = format!("key == '{claim}' || key.startsWith('{version}')");
    let taint = keys::CORDON_TAINT;
    let others = |object: &str| {
        format!(
            "(has({object}.spec.taints) ? {object}.spec.taints.filter(taint, taint.key != '{taint}') : [])"
        )
    };
    let same = |field: &str| {
        format!(
            "has(object.{field}) == has(oldObject.{field}) && (!has(object.{field}) || object.{field} == oldObject.{field})"
        )
    };
    let message = |what: &str| format!("the operator of DeviceConfigs may change of a node {what} only");
    let fields =
        ["metadata.annotations", "metadata.finalizers", "metadata.ownerReferences", "spec.unschedulable"];
    vec![
        validation(
            &format!(
                "variables.before.all(key, {is_own} || key in variables.after && variables.after[key] == variables.before[key]) && \
                 variables.after.all(key, {is_own} || key in variables.before)"
            ),
            message(&format!("the labels {claim} and {version}*")),
        ),
        validation(
            &format!("{} == {}", others("object"), others("oldObject")),
            message(&format!("the taint {taint}")),
        ),
        validation(
            &fields.map(same).map(|rule| format!("({rule})")).join(" && "),
            message("labels and taints"),
        ),
    ]
}
