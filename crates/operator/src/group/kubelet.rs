//! The kubelets of a node group: paths, the source of their configuration, the check of their certificates.
//!
//! In: what a group, its object and the operator's flags state. Out: a [`Kubelet`], or the mistake. Never: a path of a
//! distribution; the deployer has those.

use api::numaresources::operator::Spec;
use api::numaresources::{Kubelets, NodeGroup, NumaResourcesOperator, UpdaterType};
use deployer::options::{Distribution, Kubelet, KubeletCertificate, KubeletConfig};
use deployer::platform::Platform;

use crate::cluster_state::Environment;

/// The kubelets of a group, which its own field states, else that of the object, else the operator's flags.
///
/// # Errors
/// The mistake in a field, with its path.
pub(super) fn kubelet(
    environment: &Environment,
    operator: &NumaResourcesOperator,
    (index, group): (usize, &NodeGroup),
) -> Result<Kubelet, String> {
    let own = group.kubelet.as_ref().map(|own| (format!("spec.nodeGroups[{index}].kubelet"), own));
    let all = operator.spec.kubelet.as_ref().map(|all| ("spec.kubelet".to_owned(), all));
    let (path, kubelet) = match own.or(all) {
        None => ("spec.kubelet".to_owned(), Ok(default(environment))),
        Some((path, stated)) if environment.platform.is_openshift() => {
            (path, only_openshift(environment, stated))
        }
        Some((path, stated)) => (path, stated_kubelet(environment, stated)),
    };
    let kubelet = kubelet.and_then(|kubelet| match unfit_for_nfd(environment, &operator.spec, &kubelet) {
        None => Ok(kubelet),
        Some(mistake) => Err(mistake.to_owned()),
    });
    kubelet.map_err(|mistake| format!("{path}.{mistake}"))
}

/// Why nfd-topology-updater, if that is asked for, cannot have the configuration of such kubelets.
fn unfit_for_nfd(environment: &Environment, spec: &Spec, kubelet: &Kubelet) -> Option<&'static str> {
    if spec.updater_type != Some(UpdaterType::Nfd) || environment.platform.is_openshift() {
        return None;
    }
    let own = environment.is_own(&environment.exporter_image(&spec.image_spec));
    match (&kubelet.config, &kubelet.certificate) {
        (KubeletConfig::Stated { .. }, _) => {
            Some("config: with updaterType NFD it must be a file or configz[:PORT], which the program reads")
        }
        (KubeletConfig::File { drop_ins: Some(_), .. }, _) => {
            Some("configDropIns: updaterType NFD reads no drop-ins; use config: configz")
        }
        (KubeletConfig::File { .. }, _) | (_, KubeletCertificate::Unchecked) => None,
        (_, KubeletCertificate::ConfigMap(_)) => {
            Some("certificateAuthority: updaterType NFD knows no authority but the cluster's; use insecure: true, or a file")
        }
        (_, KubeletCertificate::Cluster) => (!own).then_some(
            "insecure: it must be true with updaterType NFD and this image, which checks no kubelet's certificate",
        ),
    }
}

/// The kubelets where no object states any.
fn default(environment: &Environment) -> Kubelet {
    let usual = || Distribution::usual(environment.platform).kubelet();
    environment.kubelet.clone().unwrap_or_else(usual)
}

/// Kubelets of OpenShift, whose pools state everything.
fn only_openshift(environment: &Environment, stated: &Kubelets) -> Result<Kubelet, String> {
    let only = Kubelets { distribution: Some("openshift".to_owned()), ..Kubelets::default() };
    if *stated == only || *stated == Kubelets::default() {
        return Ok(default(environment));
    }
    let platform = environment.platform;
    Err(format!("distribution: on {platform} only openshift is allowed, alone, because pools state the rest"))
}

fn stated_kubelet(environment: &Environment, stated: &Kubelets) -> Result<Kubelet, String> {
    let base = match &stated.distribution {
        None => default(environment),
        Some(name) => {
            let distribution: Distribution =
                name.parse().map_err(|error| format!("distribution: {error}"))?;
            Kubelet { certificate: default(environment).certificate, ..distribution.kubelet() }
        }
    };
    let root = stated.root.as_deref().map(|root| directory("root", root)).transpose()?;
    let config = stated.config.as_deref().map(source).transpose()?;
    let mut kubelet = base.changed(root, config);
    if let Some(dir) = &stated.config_drop_ins {
        let dir = directory("configDropIns", dir)?;
        let KubeletConfig::File { drop_ins, .. } = &mut kubelet.config else {
            return Err("configDropIns: it has no effect unless config is a file".to_owned());
        };
        *drop_ins = Some(dir.to_owned());
    }
    kubelet.certificate = match (&stated.certificate_authority, stated.insecure) {
        (Some(_), Some(true)) => {
            return Err("certificateAuthority: it has no effect where insecure is true".to_owned());
        }
        (_, Some(true)) => KubeletCertificate::Unchecked,
        (Some(name), _) if name.is_empty() => return Err("certificateAuthority: it is empty".to_owned()),
        (Some(name), _) => KubeletCertificate::ConfigMap(name.clone()),
        (None, Some(false)) => KubeletCertificate::Cluster,
        (None, None) => kubelet.certificate,
    };
    match kubelet.config {
        KubeletConfig::Configz { .. } if !has_configz(environment) => Err(
            "config: configz needs Kubernetes 1.33; name a file, or policy and scope such as single-numa-node/pod"
                .to_owned(),
        ),
        _ => Ok(kubelet),
    }
}

/// Whether the right to read a kubelet's configuration is one of its own.
fn has_configz(environment: &Environment) -> bool {
    let is_kubernetes = environment.platform == Platform::Kubernetes;
    environment.version.as_ref().is_none_or(|version| !is_kubernetes || version.at_least(&[1, 33]))
}

/// A directory that a pod can mount, without slashes at its end.
fn directory<'a>(field: &str, path: &'a str) -> Result<&'a str, String> {
    let plain = path.trim_end_matches('/');
    let wrong = !path.starts_with('/')
        || plain.is_empty()
        || plain.split('/').any(|part| part == "..")
        || plain.contains(|c: char| c.is_control() || c == '$');
    if wrong {
        let shown: String = path.chars().take(100).collect();
        return Err(format!(
            "{field}: {shown:?} is not allowed; it must be an absolute path below /, without .."
        ));
    }
    Ok(plain)
}

fn source(text: &str) -> Result<KubeletConfig, String> {
    let config: KubeletConfig = text.parse().map_err(|error| format!("config: {error}"))?;
    if let KubeletConfig::File { path, .. } = &config {
        let whole = directory("config", path)?;
        if whole != path || whole.matches('/').count() < 2 {
            return Err(format!("config: {path:?} is not allowed; it must be a file in a directory below /"));
        }
    }
    Ok(config)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn read(environment: &Environment, all: &Value, own: &Value) -> Result<Kubelet, String> {
        let spec = json!({ "kubelet": all, "nodeGroups": [{ "poolName": "a", "kubelet": own }] });
        let operator: NumaResourcesOperator = serde_json::from_value(json!({ "spec": spec })).unwrap();
        kubelet(environment, &operator, (0, &operator.spec.node_groups[0]))
    }

    fn on(platform: Platform, version: &str) -> Environment {
        Environment { platform, version: version.parse().ok(), ..Environment::default() }
    }

    #[test]
    fn the_closest_statement_counts() {
        let mut environment = on(Platform::Kubernetes, "v1.36.3");
        let [k3s, talos, kind] = ["k3s", "talos", "kind"].map(|name| json!({ "distribution": name }));
        let of = |distribution: Distribution| Ok(distribution.kubelet());
        assert_eq!(read(&environment, &Value::Null, &Value::Null), of(Distribution::Kubeadm));
        assert_eq!(read(&environment, &k3s, &Value::Null), of(Distribution::K3s));
        assert_eq!(read(&environment, &k3s, &kind), of(Distribution::Kind));
        let microk8s = Distribution::Microk8s.kubelet();
        environment.kubelet =
            Some(Kubelet { certificate: KubeletCertificate::Unchecked, ..microk8s.clone() });
        assert_eq!(read(&environment, &Value::Null, &Value::Null), Ok(environment.kubelet.clone().unwrap()));
        // A distribution has paths; the flags' check of certificates stays.
        let wanted = Kubelet { certificate: KubeletCertificate::Unchecked, ..Distribution::Talos.kubelet() };
        assert_eq!(read(&environment, &talos, &Value::Null), Ok(wanted));
        assert_eq!(read(&environment, &json!({ "insecure": false }), &Value::Null), Ok(microk8s));
    }

    /// The schema names the distributions that have paths.
    #[test]
    fn each_distribution_of_the_schema_has_paths() {
        let schema = serde_json::to_value(api::crd::operator_crd()).unwrap();
        let spec =
            &schema["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"];
        let names = spec["kubelet"]["properties"]["distribution"]["enum"].as_array().unwrap();
        let names: Vec<&str> = names.iter().map(|name| name.as_str().unwrap()).collect();
        assert_eq!(names.join(", "), Distribution::names());
        for name in names {
            let wanted = name.parse::<Distribution>().unwrap().kubelet();
            let all = json!({ "distribution": name });
            assert_eq!(read(&on(Platform::Kubernetes, "v1.36.3"), &all, &Value::Null), Ok(wanted));
        }
    }

    #[test]
    fn fields_become_a_kubelet() {
        let environment = on(Platform::Kubernetes, "v1.36.3");
        let file = |path: &str, drop_ins: Option<&str>| KubeletConfig::File {
            path: path.to_owned(),
            drop_ins: drop_ins.map(str::to_owned),
        };
        for (stated, root, config, certificate) in [
            (
                json!({ "root": "/k/", "configDropIns": "/d" }),
                "/k",
                file("/k/config.yaml", Some("/d")),
                KubeletCertificate::Cluster,
            ),
            (
                json!({ "config": "/etc/kubelet/c.json", "certificateAuthority": "m" }),
                "/var/lib/kubelet",
                file("/etc/kubelet/c.json", None),
                KubeletCertificate::ConfigMap("m".to_owned()),
            ),
            (
                json!({ "config": "configz:10255", "insecure": true }),
                "/var/lib/kubelet",
                KubeletConfig::Configz { port: 10255 },
                KubeletCertificate::Unchecked,
            ),
        ] {
            let wanted = Kubelet { root: root.to_owned(), config, certificate };
            assert_eq!(read(&environment, &stated, &Value::Null), Ok(wanted), "{stated}");
        }
    }

    #[test]
    fn mistakes_have_their_path() {
        let new = on(Platform::Kubernetes, "v1.36.3");
        let old = on(Platform::Kubernetes, "v1.32.9");
        let openshift = on(Platform::OpenShift, "4.20.1");
        for (environment, stated, wanted) in [
            (
                &new,
                json!({ "distribution": "mine" }),
                "distribution: distribution \"mine\" is none of kubeadm, k3s,",
            ),
            (&new, json!({ "root": "var" }), "root: \"var\" is not allowed; it must be an absolute path"),
            (&new, json!({ "root": "/" }), "root: \"/\" is not allowed"),
            (&new, json!({ "root": "/var/../etc" }), "root: \"/var/../etc\" is not allowed"),
            (&new, json!({ "root": "/$(X)" }), "root: \"/$(X)\" is not allowed"),
            (
                &new,
                json!({ "config": "some" }),
                "config: it must be a path that begins with /, configz[:PORT]",
            ),
            (
                &new,
                json!({ "config": "/file" }),
                "config: \"/file\" is not allowed; it must be a file in a directory",
            ),
            (&new, json!({ "config": "/dir/" }), "config: \"/dir/\" is not allowed"),
            (
                &new,
                json!({ "config": "configz", "configDropIns": "/d" }),
                "configDropIns: it has no effect unless",
            ),
            (
                &new,
                json!({ "certificateAuthority": "m", "insecure": true }),
                "certificateAuthority: it has no effect where insecure is true",
            ),
            (&new, json!({ "certificateAuthority": "" }), "certificateAuthority: it is empty"),
            (&old, json!({ "distribution": "talos" }), "config: configz needs Kubernetes 1.33; name a file"),
            (&openshift, json!({ "root": "/k" }), "distribution: on OpenShift only openshift is allowed"),
        ] {
            let error = read(environment, &stated, &Value::Null).unwrap_err();
            assert!(error.starts_with(&format!("spec.kubelet.{wanted}")), "{error}");
            let error = read(environment, &Value::Null, &stated).unwrap_err();
            assert!(error.starts_with(&format!("spec.nodeGroups[0].kubelet.{wanted}")), "{error}");
        }
        let openshift = read(&openshift, &json!({ "distribution": "openshift" }), &Value::Null);
        assert_eq!(openshift, Ok(Distribution::OpenShift.kubelet()));
    }
}
