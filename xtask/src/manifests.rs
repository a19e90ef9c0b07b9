//! `cargo xtask manifests`: the operator's objects as files, for `kubectl apply -f` and for kustomize.
//!
//! In: the functions of `operator::manifests` and `hardware::manifests`, the dashboard. Out: the folders
//! `deploy/monitoring`, `deploy/operator` and `deploy/hardware`: a base with what is the same on every platform, and
//! beside it what each platform has on top.
//! Never: a manifest of its own, or the same object twice.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use deployer::manifests::monitoring::dashboard;
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

/// The folder of what is imported by hand where no operator for Prometheus runs.
const MONITORING: &str = "deploy/monitoring";

/// What is the same on all platforms.
const BASE: &str = "base";

/// The file with the objects of a base or a platform.
const INSTALL: &str = "install.yaml";

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
    #[serde(skip_serializing_if = "Option::is_none")]
    new_tag: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    digest: Option<String>,
}

impl Image {
    /// The same tag or digest in another registry.
    fn elsewhere(image: &str) -> anyhow::Result<Self> {
        let (name, tag, digest) = match image.split_once('@') {
            Some((name, digest)) => (name, None, Some(digest)),
            None => {
                let (name, tag) = image.rsplit_once(':').context("the image has neither tag nor digest")?;
                (name, Some(tag), None)
            }
        };
        let [new_tag, digest] = [tag, digest].map(|text| text.map(str::to_owned));
        Ok(Self { name: name.to_owned(), new_name: "registry.example/tholepin", new_tag, digest })
    }
}

/// Makes the files.
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:\n  cargo xtask manifests\n  cargo xtask manifests --check\n  \
    cargo xtask manifests --output /tmp/release --image registry.example/tholepin@sha256:DIGEST")]
pub(crate) struct Args {
    /// Only fail when a committed file is stale
    #[arg(long, conflicts_with_all = ["output", "image"])]
    check: bool,
    /// Where the folder `deploy` goes [default: the repository]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// The image of all programs, best by its digest; a release has another one than the repository
    #[arg(long, value_name = "IMAGE", requires = "output")]
    image: Option<String>,
}

/// Writes the files, or with `check` only fails naming the stale ones.
pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let folder = args.output.clone().unwrap_or_else(root);
    let image = args.image.as_deref().map_or_else(image, str::to_owned);
    put(&image, &folder, args.check)
}

/// Fails when a committed file is stale.
pub(crate) fn check() -> anyhow::Result<()> {
    put(&image(), &root(), true)
}

fn put(image: &str, folder: &Path, check: bool) -> anyhow::Result<()> {
    tree(image)?.put(&folder.join(FOLDER), check, "cargo xtask manifests")?;
    hardware_tree(image)?.put(&folder.join(HARDWARE), check, "cargo xtask manifests")?;
    let mut monitoring = Tree::default();
    monitoring.add("dashboard.json", dashboard::text());
    monitoring.put(&folder.join(MONITORING), check, "cargo xtask manifests")
}

/// The image that committed files name: nodes have it once `cargo xtask image` made it and it was loaded.
pub(crate) fn image() -> String {
    manifests::options().common.images.tholepin
}

/// The name of a platform in paths.
pub(crate) fn word(platform: Platform) -> String {
    platform.to_string().to_lowercase()
}

/// The options of the files of a platform.
pub(crate) fn options(platform: Platform, image: &str) -> Options {
    let mut options = manifests::options();
    options.common.platform = platform;
    image.clone_into(&mut options.common.images.tholepin);
    options.common.monitoring = platform.is_openshift();
    options
}

/// All files of the operator.
pub(crate) fn tree(image: &str) -> anyhow::Result<Tree> {
    let mut tree = installs(FOLDER, image, |platform| manifests::objects(&options(platform, image)))?;
    for platform in Platform::ALL {
        let samples = manifests::samples::objects(platform);
        tree.add_objects(&format!("samples/{}.yaml", word(platform)), &samples)?;
    }
    Ok(tree)
}

/// All files of what brings drivers of devices to nodes.
pub(crate) fn hardware_tree(image: &str) -> anyhow::Result<Tree> {
    let mut tree = installs(HARDWARE, image, |platform| hardware_objects(platform, image))?;
    tree.add_objects("samples/deviceconfig.yaml", &hardware::samples::objects())?;
    tree.add_objects("samples/node-policy.yaml", &hardware::samples::policies())?;
    Ok(tree)
}

/// What brings drivers of devices to the nodes of a platform.
pub(crate) fn hardware_objects(platform: Platform, image: &str) -> Vec<Object> {
    hardware::objects(&Options { namespace: hardware::NAMESPACE.to_owned(), ..options(platform, image) })
}

/// The files below `deploy/FOLDER/` that are applied, in order, to install on a platform.
pub(crate) fn files(tree: &Tree, platform: Platform) -> Vec<String> {
    let folder = word(platform);
    // A platform that has what another one has takes that one's file.
    let own = [folder.clone(), word(Platform::OpenShift)].map(|folder| format!("{folder}/{INSTALL}"));
    let own = own.into_iter().find(|path| tree.has(path));
    // The namespace is among a platform's own objects.
    own.into_iter().chain([format!("{BASE}/{INSTALL}")]).collect()
}

/// What is installed on each platform, and the kustomizations for it.
fn installs(root: &str, image: &str, objects: impl Fn(Platform) -> Vec<Object>) -> anyhow::Result<Tree> {
    let all = Platform::ALL.map(|platform| (platform, objects(platform)));
    let everywhere = |object: &Object| {
        all.iter().all(|(_, objects)| objects.iter().any(|other| other.body() == object.body()))
    };
    let (_, first) = all.first().context("no platform")?;
    let shared: Vec<Object> = first.iter().filter(|object| everywhere(object)).cloned().collect();

    let mut tree = Tree::default();
    tree.add_objects(&format!("{BASE}/{INSTALL}"), &shared)?;
    add_kustomization(&mut tree, root, BASE, &[INSTALL], Vec::new())?;
    let mut written: Vec<(String, Vec<Object>)> = Vec::new();
    for (platform, objects) in &all {
        let folder = word(*platform);
        let own: Vec<Object> = objects.iter().filter(|object| !everywhere(object)).cloned().collect();
        let bodies =
            |objects: &[Object]| objects.iter().map(|object| object.body().clone()).collect::<Vec<_>>();
        match written.iter().find(|(_, other)| bodies(other) == bodies(&own)) {
            Some((same, _)) => {
                add_kustomization(&mut tree, root, &folder, &[&format!("../{same}")], Vec::new())?;
            }
            None => {
                tree.add_objects(&format!("{folder}/{INSTALL}"), &own)?;
                let resources = [INSTALL, &format!("../{BASE}")];
                add_kustomization(&mut tree, root, &folder, &resources, Vec::new())?;
                written.push((folder, own));
            }
        }
    }
    let usual = word(Platform::Kubernetes);
    add_kustomization(&mut tree, root, "", &[&usual], Vec::new())?;
    let other = Image::elsewhere(image)?;
    let parent = format!("../../{usual}");
    add_kustomization(&mut tree, root, "overlays/registry", &[&parent], vec![other])?;
    Ok(tree)
}

/// Adds the kustomization of a folder. The first line says which folder, so that no two files are equal.
fn add_kustomization(
    tree: &mut Tree,
    root: &str,
    folder: &str,
    resources: &[&str],
    images: Vec<Image>,
) -> anyhow::Result<()> {
    let kustomization = Kustomization {
        api_version: "kustomize.config.k8s.io/v1beta1",
        kind: "Kustomization",
        resources: resources.iter().map(|resource| (*resource).to_owned()).collect(),
        images,
    };
    let folder = if folder.is_empty() { root.to_owned() } else { format!("{root}/{folder}") };
    let path = format!("{folder}/kustomization.yaml");
    let text = runtime::yaml::write(&kustomization).with_context(|| format!("writing {path}"))?;
    let path = path.strip_prefix(root).unwrap_or(&path).trim_start_matches('/');
    tree.add(path, format!("# kubectl apply --server-side -k {folder}\n{text}"));
    Ok(())
}

#[cfg(test)]
mod served;

#[cfg(test)]
mod tests {
    #[test]
    fn committed_files_are_fresh() {
        super::check().expect("deploy/operator and deploy/hardware are what the code makes");
    }

    #[test]
    fn a_release_names_its_image_by_digest_and_no_other() {
        let image = format!("registry.example/a@sha256:{}", "0".repeat(64));
        let folder = tempfile::tempdir().unwrap();
        super::put(&image, folder.path(), false).unwrap();
        let mut seen = 0;
        for name in [super::FOLDER, super::HARDWARE] {
            let tree = if name == super::FOLDER { super::tree(&image) } else { super::hardware_tree(&image) };
            for path in super::files(&tree.unwrap(), deployer::platform::Platform::Kubernetes) {
                let text = std::fs::read_to_string(folder.path().join(name).join(path)).unwrap();
                assert!(!text.contains(&super::image()), "{name} names the image of the repository");
                seen += text.matches(&image).count();
            }
        }
        assert!(seen >= 2, "{seen}");
        assert!(super::Image::elsewhere("a").is_err());
    }
}
