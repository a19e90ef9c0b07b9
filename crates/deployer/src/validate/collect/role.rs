//! The role of a pod, from its containers.
//!
//! In: images and command lines. Out: exporter, scheduler, controller or none of them. Never: names
//! of pods or namespaces, which users choose.

use k8s_openapi::api::core::v1::{Container, PodSpec};

use crate::validate::evidence::Role;

/// Programs that publish NodeResourceTopology objects.
const EXPORTERS: [&str; 2] = ["resource-topology-exporter", "nfd-topology-updater"];
/// The Go operator.
const OPERATOR: &str = "numaresources-operator";
/// Parts of the names of images whose scheduler is NUMA-aware.
const NUMA_IMAGES: [&str; 3] = ["scheduler-plugins", "noderesourcetopology", "numaresources"];

/// The role of pods with this spec.
#[must_use]
pub fn of(spec: &PodSpec) -> Option<Role> {
    spec.containers.iter().find_map(container)
}

/// A container's command line.
#[must_use]
pub fn words(container: &Container) -> Vec<&str> {
    let (command, args) = (container.command.iter().flatten(), container.args.iter().flatten());
    command.chain(args).map(String::as_str).collect()
}

fn container(container: &Container) -> Option<Role> {
    let image = container.image.as_deref().unwrap_or_default();
    let words = words(container);
    // The program is the first word of the command, else the image's name; a subcommand is the next word.
    let program = container.command.iter().flatten().next().map_or(base(image), |word| base(word));
    let is = |name: &str| program == name || words.iter().any(|word| base(word) == name);
    if EXPORTERS.iter().any(|name| is(name)) {
        return Some(Role::Exporter);
    }
    if is(OPERATOR) || base(image) == OPERATOR {
        return Some(Role::Controller);
    }
    // Mirrors can rename images, but only our programs have these flags.
    let flags = ["--kubelet-state-dir=", "--http-bind-address="];
    let flagged = || words.iter().any(|word| flags.iter().any(|flag| word.starts_with(flag)));
    if program == "tholepin" || base(image) == "tholepin" || flagged() {
        let mut words = words.iter().filter(|word| !word.starts_with('-') && base(word) != "tholepin");
        return match words.next().copied() {
            Some("exporter" | "rte") => Some(Role::Exporter),
            Some("scheduler") => Some(Role::Scheduler { numa: true }),
            Some("operator") => Some(Role::Controller),
            _ => None,
        };
    }
    let is_scheduler = is("kube-scheduler") || program == "noderesourcetopology-plugin";
    let numa =
        NUMA_IMAGES.iter().any(|name| image.contains(name)) || program == "noderesourcetopology-plugin";
    is_scheduler.then_some(Role::Scheduler { numa })
}

/// The name in `registry/path/name:tag@digest` or `/usr/bin/name`.
fn base(text: &str) -> &str {
    let text = text.split('@').next().unwrap_or_default();
    let last = text.rsplit('/').next().unwrap_or_default();
    last.split(':').next().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::PodTemplateSpec;

    use super::*;
    use crate::manifests::parts;
    use crate::options::{Options, Scheduler, Updater};
    use crate::part::Component;

    /// The roles in the manifests for these options.
    fn roles(options: &Options) -> Vec<Role> {
        let parts = parts(options, &Component::ALL).unwrap();
        let bodies = parts.iter().flat_map(|part| part.objects()).map(|object| object.body());
        let templates = bodies.filter_map(|body| {
            serde_json::from_value::<PodTemplateSpec>(body["spec"]["template"].clone()).ok()
        });
        templates.filter_map(|template| of(&template.spec?)).collect()
    }

    #[test]
    fn deployed_workloads_have_roles() {
        for updater in [Updater::Tholepin, Updater::Rte, Updater::Nfd] {
            for scheduler in [Scheduler::Tholepin, Scheduler::Plugin] {
                let mut options = Options::default();
                options.updater.kind = updater;
                options.scheduler.kind = scheduler;
                let wanted = [Role::Exporter, Role::Scheduler { numa: true }];
                assert_eq!(roles(&options), wanted, "{updater:?} {scheduler:?}");
                options.images.tholepin = "registry.example.com/mirror/numa:1".to_owned();
                assert_eq!(roles(&options), wanted, "{updater:?} {scheduler:?} of a mirror");
            }
        }
    }

    #[test]
    fn images_and_commands_identify_programs() {
        let exporter = Some(Role::Exporter);
        let numa = Some(Role::Scheduler { numa: true });
        for (image, command, role) in [
            ("quay.io/x/resource-topology-exporter:v0.25.0", "", exporter),
            ("quay.io/x/numaresources-operator:4.20", "/bin/resource-topology-exporter --v=2", exporter),
            ("registry.k8s.io/nfd/node-feature-discovery:v0.17", "nfd-topology-updater -x", exporter),
            ("registry.k8s.io/nfd/node-feature-discovery:v0.17", "nfd-worker", None),
            ("example.com/tholepin:1", "tholepin exporter", exporter),
            ("example.com/tholepin@sha256:00", "/tholepin -v=2 scheduler", numa),
            ("example.com/tholepin:1", "tholepin operator", Some(Role::Controller)),
            ("quay.io/x/numaresources-operator:4.20", "/bin/numaresources-operator", Some(Role::Controller)),
            ("registry.k8s.io/scheduler-plugins/kube-scheduler:v0.32", "", numa),
            ("registry.k8s.io/scheduler-plugins/controller:v0.32", "", None),
            (
                "registry.k8s.io/kube-scheduler:v1.36.3",
                "kube-scheduler",
                Some(Role::Scheduler { numa: false }),
            ),
            ("nginx", "", None),
            ("", "", None),
        ] {
            let words = |text: &str| Some(text.split_whitespace().map(str::to_owned).collect::<Vec<_>>());
            let container = Container {
                image: Some(image.to_owned()),
                command: words(command).filter(|words| !words.is_empty()),
                ..Container::default()
            };
            let spec = PodSpec { containers: vec![container], ..PodSpec::default() };
            assert_eq!(of(&spec), role, "{image} {command}");
        }
    }
}
