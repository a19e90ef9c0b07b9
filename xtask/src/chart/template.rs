//! A template: the objects of one component, with conditions and placeholders.
//!
//! In: what the deployer makes of options with marks, for each case of each group. Out: a tree, the texts of
//! configuration files, and the cases that are refused. Never: a manifest of its own.

use std::collections::BTreeSet;

use anyhow::ensure;
use deployer::manifests::monitoring::DASHBOARD_NAME;
use deployer::manifests::parts_within;
use deployer::options::{KubeletCertificate, KubeletConfig, Options};
use deployer::part::{Component, MANAGED_BY, Part};
use deployer::platform::Platform;
use serde_json::Value;
use topology::policy::{Policy, Scope};

use super::choice::{Choice, Group, Test};
use super::merge::{Alternative, Merge, Variant};
use super::placeholder::{self, CONFIG, CONFIG_HASH, NAMESPACE, RESOURCES, SERVICE};

/// A template.
pub(super) struct Template {
    pub(super) groups: Vec<Group>,
    pub(super) objects: Vec<Alternative>,
    /// The text of the configuration file.
    pub(super) config: Option<String>,
    /// Cases that the deployer refuses, with the reason.
    pub(super) refused: Vec<(Test, String)>,
}

/// What the deployer makes, with marks.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Made {
    pub(super) objects: Value,
    pub(super) config: Option<String>,
    /// Requests and limits of the container.
    pub(super) resources: Value,
}

impl Template {
    /// The template of a component.
    ///
    /// # Errors
    /// When options change the same values.
    pub(super) fn of(component: Component) -> anyhow::Result<Self> {
        let groups = groups(component);
        let base = made(component, &options(&groups, &[])?).map_err(anyhow::Error::msg)?;
        let mut variants = Vec::new();
        let mut refused: Vec<(Test, String)> = Vec::new();
        for (group, cases) in groups.iter().map(Group::len).enumerate() {
            for case in 1..cases {
                match made(component, &options(&groups, &[(group, case)])?) {
                    Ok(made) => {
                        let same = made.config.is_none() || made.config == base.config;
                        ensure!(same, "case {case} of group {group} changes the configuration file");
                        variants.push((group, case, made.objects));
                    }
                    Err(reason) => match refused.iter_mut().find(|(test, _)| test.group == group) {
                        Some((test, _)) => drop(test.cases.insert(case)),
                        None => refused.push((Test { group, cases: BTreeSet::from([case]) }, reason)),
                    },
                }
            }
        }
        let variants: Vec<Variant<'_>> = variants
            .iter()
            .map(|(group, case, value)| Variant { group: *group, case: *case, value })
            .collect();
        let objects = Merge(&groups).merge(&base.objects, &variants)?;
        Ok(Self { groups, objects, config: base.config, refused })
    }

    /// The template of the definition, which Helm can leave behind.
    ///
    /// # Errors
    /// When the deployer does not make it.
    pub(super) fn definition() -> anyhow::Result<Self> {
        let groups = vec![Group(vec![Choice::switch("$.Values.crds.keep", |_| {}, |_| {})])];
        let removed = made(Component::Api, &Options::default()).map_err(anyhow::Error::msg)?.objects;
        let mut kept = removed.clone();
        kept[0]["metadata"]["annotations"][KEEP.0] = KEEP.1.into();
        let variant = Variant { group: 0, case: 1, value: &removed };
        let objects = Merge(&groups).merge(&kept, &[variant])?;
        Ok(Self { groups, objects, config: None, refused: Vec::new() })
    }
}

/// The annotation of objects that Helm leaves behind, and its value.
const KEEP: (&str, &str) = ("helm.sh/resource-policy", "keep");

/// The options of a case of each group; 0 where none is stated.
pub(super) fn options(groups: &[Group], cases: &[(usize, usize)]) -> anyhow::Result<Options> {
    let mut options = placeholder::options()?;
    for (number, group) in groups.iter().enumerate() {
        let case = cases.iter().find(|(group, _)| *group == number).map_or(0, |(_, case)| *case);
        group.set(case, &mut options);
    }
    Ok(options)
}

/// What the deployer makes of options, or why it refuses them.
pub(super) fn made(component: Component, options: &Options) -> Result<Made, String> {
    let parts = parts_within(options, NAMESPACE, &[component]).map_err(|error| error.to_string())?;
    let objects = parts.iter().flat_map(Part::objects);
    let mut objects: Vec<Value> = objects.map(|object| object.body().clone()).collect();
    let mut config = None;
    let mut resources = Value::Null;
    for object in &mut objects {
        object["metadata"]["labels"][MANAGED_BY] = SERVICE.into();
        if object["kind"] == "ConfigMap" && object["metadata"]["name"] != DASHBOARD_NAME {
            for text in object["data"].as_object_mut().into_iter().flat_map(|data| data.values_mut()) {
                config = text.as_str().map(str::to_owned);
                *text = CONFIG.into();
            }
        }
        if let Some(hash) = object.pointer_mut("/spec/template/metadata/annotations/configmap.hash") {
            *hash = CONFIG_HASH.into();
        }
        if let Some(own) = object.pointer_mut("/spec/template/spec/containers/0/resources") {
            resources = own.take();
            *own = RESOURCES.into();
        }
    }
    Ok(Made { objects: Value::Array(objects), config, resources })
}

/// Requests and limits of a component's container, unless values state others.
pub(super) fn resources(component: Component) -> anyhow::Result<Value> {
    made(component, &Options::default()).map(|made| made.resources).map_err(anyhow::Error::msg)
}

/// The options of which values make other objects, in groups that do not meet.
fn groups(component: Component) -> Vec<Group> {
    let mut groups = vec![Group(platform().into())];
    groups.extend(common().into_iter().map(|choice| Group(vec![choice])));
    match component {
        Component::Api => groups.clear(),
        Component::Exporter => {
            groups.push(kubelet());
            groups.extend(exporter().into_iter().map(|choice| Group(vec![choice])));
        }
        Component::Scheduler => {
            groups.extend(scheduler().into_iter().map(|choice| Group(vec![choice])));
        }
    }
    groups
}

/// The platform, and monitoring, which needs other objects on each.
fn platform() -> [Choice; 2] {
    let platform: [(&str, super::choice::Set); 3] = [
        ("openshift", |options| options.platform = Platform::OpenShift),
        ("hypershift", |options| options.platform = Platform::HyperShift),
        ("kubernetes", |options| options.platform = Platform::Kubernetes),
    ];
    let on = Choice::switch(
        "$.Values.monitoring",
        |options| options.monitoring = true,
        |options| options.monitoring = false,
    );
    [Choice::words("$.Values.platform", &platform), on]
}

/// Options of exporter and scheduler.
fn common() -> [Choice; 4] {
    [
        Choice::switch("$.Values.image.pullSecrets", |_| {}, |options| options.pull_secrets.clear()),
        Choice::switch("$.Values.architectures", |_| {}, |options| options.architectures.clear()),
        Choice::switch(
            "$.Values.networkPolicies",
            |options| options.network_policies = true,
            |options| options.network_policies = false,
        ),
        Choice::switch("$.Values.apiServer.cidrs", |_| {}, |options| options.api_server_cidrs.clear()),
    ]
}

/// How exporters read the configuration of their kubelet.
fn kubelet() -> Group {
    fn set(options: &mut Options, config: KubeletConfig) {
        if let Some(kubelet) = &mut options.updater.kubelet {
            kubelet.config = config;
        }
    }
    fn check(options: &mut Options, certificate: KubeletCertificate) {
        if let Some(kubelet) = &mut options.updater.kubelet {
            kubelet.certificate = certificate;
        }
    }
    fn state(options: &mut Options) {
        set(options, KubeletConfig::Stated { policy: Policy::SingleNumaNode, scope: Scope::Container });
    }
    let source = Choice::words(
        "(include \"tholepin.kubelet.source\" $)",
        &[
            ("file below the root directory", |options| set(options, placeholder::below_root())),
            ("file elsewhere", |options| set(options, placeholder::elsewhere())),
            ("configz", |options| set(options, placeholder::configz())),
            ("stated", state),
        ],
    );
    let root = Choice::switch(
        "$.Values.kubelet.rootMount",
        |options| options.updater.kubelet_root = true,
        |options| options.updater.kubelet_root = false,
    );
    let certificate = Choice::words(
        "(include \"tholepin.kubelet.certificate\" $)",
        &[
            ("cluster", |options| check(options, KubeletCertificate::Cluster)),
            ("other", |options| {
                check(options, KubeletCertificate::ConfigMap(placeholder::AUTHORITY.to_owned()));
            }),
            ("unchecked", |options| check(options, KubeletCertificate::Unchecked)),
        ],
    );
    let version = Choice::words(
        "(include \"tholepin.kubernetes\" $)",
        &[
            ("1.33", |options| options.version = "1.33.0".parse().ok()),
            ("1.32", |options| options.version = "1.32.0".parse().ok()),
            ("older", |options| options.version = "1.31.0".parse().ok()),
        ],
    );
    Group(vec![source, root, certificate, version])
}

/// Options of the exporter.
fn exporter() -> [Choice; 6] {
    [
        Choice::switch(
            "$.Values.criticalQuota",
            |options| options.critical_quota = true,
            |options| options.critical_quota = false,
        ),
        Choice::switch(
            "$.Values.exporter.admissionPolicy",
            |options| options.updater.admission_policy = true,
            |options| options.updater.admission_policy = false,
        ),
        Choice::switch(
            "$.Values.exporter.fingerprint",
            |options| options.updater.fingerprint = true,
            |options| options.updater.fingerprint = false,
        ),
        Choice::switch("$.Values.exporter.config", |_| {}, |options| options.updater.config = None),
        Choice::switch(
            "$.Values.exporter.tolerations",
            |_| {},
            |options| options.updater.tolerations = Some(Vec::new()),
        ),
        Choice::switch(
            "$.Values.exporter.priorityClassName",
            |_| {},
            |options| options.updater.priority_class = Some(String::new()),
        ),
    ]
}

/// Options of the scheduler.
fn scheduler() -> [Choice; 7] {
    [
        // The exporter's template has it otherwise.
        Choice::switch(
            "(and $.Values.criticalQuota (not $.Values.exporter.enabled))",
            |options| options.critical_quota = true,
            |options| options.critical_quota = false,
        ),
        Choice::switch(
            "(gt (int $.Values.scheduler.replicas) 1)",
            |_| {},
            |options| options.scheduler.replicas = 1,
        ),
        Choice::switch(
            "$.Values.scheduler.disruptionBudget",
            |options| options.scheduler.disruption_budget = true,
            |options| options.scheduler.disruption_budget = false,
        ),
        Choice::switch(
            "$.Values.scheduler.deleteRejectedPods",
            |options| options.scheduler.delete_rejected_pods = true,
            |options| options.scheduler.delete_rejected_pods = false,
        ),
        Choice::switch(
            "$.Values.scheduler.controlPlaneAffinity",
            |options| options.scheduler.control_plane_affinity = true,
            |options| options.scheduler.control_plane_affinity = false,
        ),
        Choice::switch(
            "$.Values.scheduler.tolerations",
            |_| {},
            |options| options.scheduler.tolerations.clear(),
        ),
        Choice::switch(
            "$.Values.scheduler.priorityClassName",
            |_| {},
            |options| options.scheduler.priority_class = Some(String::new()),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use runtime::random::Random;

    use super::super::merge::tests::read;
    use super::*;

    /// Not only one option at a time: any of them together.
    #[test]
    fn every_combination_of_options_can_be_read_from_the_template() {
        let mut refused = 0;
        for component in [Component::Exporter, Component::Scheduler] {
            let template = Template::of(component).unwrap();
            let mut random = Random::seeded(7);
            for _ in 0..300 {
                let cases: Vec<usize> =
                    template.groups.iter().map(|group| random.bits() as usize % group.len()).collect();
                let chosen: Vec<(usize, usize)> = cases.iter().copied().enumerate().collect();
                let is_refused =
                    template.refused.iter().any(|(test, _)| test.cases.contains(&cases[test.group]));
                match made(component, &options(&template.groups, &chosen).unwrap()) {
                    Ok(made) => {
                        assert_eq!(read(&template.objects, &cases), Some(made.objects), "{cases:?}");
                        assert!(!is_refused, "{cases:?}");
                    }
                    Err(_) => {
                        assert!(is_refused, "{cases:?}");
                        refused += 1;
                    }
                }
            }
        }
        assert!(refused > 10);
    }
}
