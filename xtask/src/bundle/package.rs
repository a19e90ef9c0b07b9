//! The packages for OLM, each an operator with a bundle of its own.
//!
//! In: the manifests and rules of the operators' crates, texts for people. Out: [`Package`]s. Never: a definition that
//! two packages own.

use api::rbac::Rules;
use deployer::manifests::controller::{Options, Program};
use deployer::platform::Platform;
use objects::Object;
use serde_json::Value;

/// An operator as OLM installs it.
#[derive(Debug)]
pub(crate) struct Package {
    /// The package's name in catalogs.
    pub(crate) name: &'static str,
    /// The folder of its bundle.
    pub(crate) folder: &'static str,
    /// The default namespace.
    pub(crate) namespace: &'static str,
    /// The process.
    pub(crate) program: Program,
    /// All objects of the plain manifests.
    pub(crate) objects: fn(&Options) -> Vec<Object>,
    /// The names of the account's roles and of their bindings, which the CSV stands for.
    pub(crate) access: &'static [&'static str],
    /// The account's rules on all platforms.
    pub(crate) rules: fn() -> Rules,
    /// The account's rules on one platform.
    #[cfg(test)]
    pub(crate) rules_on: fn(Platform) -> Rules,
    /// The supported install modes.
    pub(crate) install_modes: &'static [&'static str],
    /// Objects for users to begin with.
    pub(crate) examples: fn() -> Vec<Value>,
    /// Texts for people.
    pub(crate) about: About,
}

/// What consoles show.
#[derive(Debug)]
pub(crate) struct About {
    pub(crate) name: &'static str,
    pub(crate) summary: &'static str,
    pub(crate) description: &'static str,
    pub(crate) keywords: &'static [&'static str],
    /// Whether it is for network functions.
    pub(crate) cnf: bool,
}

/// All packages.
pub(crate) const ALL: [&Package; 2] = [&NUMA, &HARDWARE];

/// The operator of NUMA resources.
pub(crate) const NUMA: Package = Package {
    name: "tholepin-operator",
    folder: "bundle",
    namespace: operator::manifests::NAMESPACE,
    program: operator::manifests::OPERATOR,
    objects: operator::manifests::objects,
    access: &[operator::manifests::access::ROLE, operator::manifests::access::BINDING],
    rules: operator::rbac::everywhere,
    #[cfg(test)]
    rules_on: operator::rbac::rules,
    // With AllNamespaces OLM would turn the rules for the operator's namespace into rules for the whole cluster.
    install_modes: &["OwnNamespace", "SingleNamespace"],
    examples: numa_examples,
    about: About {
        name: "tholepin NUMA Resources Operator",
        summary: "NUMA-aware scheduling: pods are placed where the kubelet can really align them.",
        description: NUMA_DESCRIPTION,
        keywords: &["NUMA", "topology", "scheduler", "RTE", "performance"],
        cnf: true,
    },
};

/// The operator of DeviceConfigs.
///
/// The definitions of KMM are not among its required ones: it runs without them, and continues when they appear. OLM
/// would resolve a required definition by installing KMM a second time, into this operator's namespace.
pub(crate) const HARDWARE: Package = Package {
    name: "tholepin-hardware-operator",
    folder: "bundle-hardware",
    namespace: hardware::manifests::NAMESPACE,
    program: hardware::manifests::CONTROLLER,
    objects: hardware::manifests::objects,
    access: &[hardware::manifests::ROLE],
    // Those of OpenShift contain those of other platforms.
    rules: || hardware::rbac::rules(Platform::OpenShift),
    #[cfg(test)]
    rules_on: hardware::rbac::rules,
    // DeviceConfigs of all namespaces are watched. With this mode OLM refuses a second operator for them.
    install_modes: &["AllNamespaces"],
    examples: || vec![Object::new(&hardware::manifests::samples::device_config()).body().clone()],
    about: About {
        name: "tholepin Hardware Operator",
        summary: "Drivers and device plugins for special hardware, from one object.",
        description: HARDWARE_DESCRIPTION,
        keywords: &["driver", "device plugin", "accelerator", "KMM", "NUMA"],
        cnf: false,
    },
};

const NUMA_DESCRIPTION: &str = "\
Kubelets with the Topology Manager reject pods whose CPUs, memory and devices they cannot align to NUMA nodes, and the \
default scheduler, which sees only totals of nodes, sends them such pods. This operator installs what avoids that, and keeps it as it was \
asked for:

* a *NUMAResourcesOperator* brings an exporter to the nodes of each node group, which publishes what each NUMA node has left;
* a *NUMAResourcesScheduler* brings a scheduler that reads it and places pods where they will be admitted.

It has the API of the Go NUMA Resources Operator, and takes over what that has installed.

Pods are scheduled by it when they say `schedulerName: topo-aware-scheduler`. Nodes need a kubelet with a Topology Manager policy such as \
`single-numa-node`, and the static CPU and memory managers.

Kubelets elsewhere than kubeadm has them, or with certificates of their own, are described in `spec.kubelet` of the NUMAResourcesOperator. \
Each flag of the operator has a variable `THOLEPIN_...` for `spec.config.env` of the Subscription; without a check of kubelets' certificates \
it is `THOLEPIN_KUBELET_INSECURE=true`.

OLM installs no ValidatingAdmissionPolicy. Apply that of `tholepin render operator --platform openshift` before you subscribe: it leaves the \
operator's account the MachineConfigs that it makes itself. Install into the namespace `numaresources`, whose account it names.
";

const HARDWARE_DESCRIPTION: &str = "\
Some devices need a driver that is not part of the kernel. A *DeviceConfig* names the image with the driver, the nodes, and the device \
plugin. This operator brings both to the nodes, and upgrades them without taking a driver from under a pod.

The driver is loaded by Kernel Module Management (KMM, API group `kmm.sigs.x-k8s.io`), which is installed separately. Without it a \
DeviceConfig has the reason `KMMNotInstalled`, and continues once KMM is there.

**Write access to DeviceConfigs means running code in the kernel of nodes.** OLM adds this right to the roles `admin` and `edit`, so \
users with these roles in any namespace get it. OLM installs no ValidatingAdmissionPolicy. Apply those of `tholepin render hardware` before you \
subscribe, and one that limits the nodes of each namespace, such as `deploy/hardware/samples/node-policy.yaml`.

Install it into the namespace `tholepin-hardware`: two of these policies are about the account there.
";

/// OpenShift's samples, in each version that is served.
fn numa_examples() -> Vec<Value> {
    let mut examples = Vec::new();
    for object in operator::manifests::samples::objects(Platform::OpenShift) {
        for version in [api::numaresources::VERSION, api::numaresources::OLD_VERSION] {
            let mut body = object.body().clone();
            body["apiVersion"] = format!("{}/{version}", api::numaresources::GROUP).into();
            examples.push(body);
        }
    }
    examples
}
