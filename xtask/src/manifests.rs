//! `cargo xtask manifests`: the operator's objects as files, for `kubectl apply -f` and for kustomize.
//!
//! In: the functions of `operator::manifests` and `hardware::manifests`. Out: the folders `deploy/operator` and `deploy/hardware`. Never: a manifest of its own.

use anyhow::Context as _;
use deployer::platform::Platform;
use hardware::manifests as hardware;
use objects::Object;
use operator::manifests::{self, Options};
use serde::Serialize;

use crate::tree::{Tree, root};

/// The folder.
pub(crate) const FOLDER: &str = "deploy/operator";

/// The folder of what brings drivers of devices to nodes.
pub(crate) const HARDWARE: &str = "deploy/hardware";

/// A kustomization.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Kustomization {
    api_version: &'static str,
    kind: &'static str,
    resources: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    images: Vec<Image>,
}

/// Another image for one that is named in the resources.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Image {
    name: String,
    new_name: &'static str,
    new_tag: String,
}

/// Writes the files, or with `check` only fails naming the stale ones.
pub(crate) fn run(check: bool) -> anyhow::Result<()> {
    tree()?.put(&root().join(FOLDER), check, "cargo xtask manifests")?;
    hardware_tree()?.put(&root().join(HARDWARE), check, "cargo xtask manifests")
}

/// The name of a platform in paths.
pub(crate) fn word(platform: Platform) -> String {
    platform.to_string().to_lowercase()
}

/// The options of the files of a platform.
pub(crate) fn options(platform: Platform) -> Options {
    let mut options = manifests::options();
    options.common.platform = platform;
    options.monitoring = platform.is_openshift();
    options
}

/// All files of the operator.
pub(crate) fn tree() -> anyhow::Result<Tree> {
    let mut tree = installs(|platform| manifests::objects(&options(platform)))?;
    for platform in Platform::ALL {
        let samples = manifests::samples::objects(platform).context("making the samples")?;
        tree.add_objects(&format!("samples/{}.yaml", word(platform)), &samples)?;
    }
    Ok(tree)
}

/// All files of what brings drivers of devices to nodes.
pub(crate) fn hardware_tree() -> anyhow::Result<Tree> {
    let mut tree = installs(|platform| {
        hardware::objects(&Options { namespace: hardware::NAMESPACE.to_owned(), ..options(platform) })
    })?;
    tree.add_objects("samples/deviceconfig.yaml", &hardware::samples::objects()?)?;
    tree.add_objects("samples/node-policy.yaml", &hardware::samples::policies()?)?;
    Ok(tree)
}

/// What is installed on each platform, and the kustomizations for it.
fn installs(
    objects: impl Fn(Platform) -> Result<Vec<Object>, deployer::manifests::Error>,
) -> anyhow::Result<Tree> {
    let mut tree = Tree::default();
    for platform in Platform::ALL {
        let folder = word(platform);
        let objects = objects(platform).context("making the objects")?;
        tree.add_objects(&format!("{folder}/install.yaml"), &objects)?;
        tree.add_yaml(
            &format!("{folder}/kustomization.yaml"),
            &kustomization(&["install.yaml"], Vec::new()),
        )?;
    }
    let usual = word(Platform::Kubernetes);
    tree.add_yaml("kustomization.yaml", &kustomization(&[&usual], Vec::new()))?;
    let image = manifests::options().common.images.tholepin;
    let (name, tag) = image.rsplit_once(':').context("the image has no tag")?;
    let other =
        Image { name: name.to_owned(), new_name: "registry.example/tholepin", new_tag: tag.to_owned() };
    let parent = format!("../../{usual}");
    tree.add_yaml("overlays/registry/kustomization.yaml", &kustomization(&[&parent], vec![other]))?;
    Ok(tree)
}

fn kustomization(resources: &[&str], images: Vec<Image>) -> Kustomization {
    Kustomization {
        api_version: "kustomize.config.k8s.io/v1beta1",
        kind: "Kustomization",
        resources: resources.iter().map(|resource| (*resource).to_owned()).collect(),
        images,
    }
}

#[cfg(test)]
mod served;

#[cfg(test)]
mod tests {
    #[test]
    fn committed_files_are_fresh() {
        super::run(true).expect("deploy/operator and deploy/hardware are what the code makes");
    }
}
