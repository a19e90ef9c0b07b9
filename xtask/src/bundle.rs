//! `cargo xtask bundle`: the operators for the Operator Lifecycle Manager.
//!
//! In: packages, made of the operators' manifests, rules and definitions. Out: a folder for the bundle of each
//! (registry+v1), the folder `catalog` (file-based) with all, and on request what OLM's own tools say of them. Never:
//! a right, a name or a text that stands elsewhere too.
//!
//! One bundle is for every platform; where they differ it is OpenShift's. What is namespaced has no namespace
//! in it: OLM puts it where it is installed.

mod catalog;
mod csv;
mod descriptors;
mod metadata;
mod package;
#[cfg(test)]
pub(crate) mod tests;
mod validate;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use deployer::manifests::controller::Options;
use deployer::platform::Platform;
use objects::Object;

use crate::image::{self, Archive, ImageInfo};
use crate::manifests;
use crate::tree::{Tree, root};
use package::{HARDWARE, NUMA, Package};
use validate::Tool;

pub(crate) use metadata::Annotations;

/// The default image of the bundle of the operator of NUMA resources.
const NUMA_IMAGE: &str = concat!("tholepin-bundle:", env!("CARGO_PKG_VERSION"));
/// The default image of the bundle of the operator of DeviceConfigs.
const HARDWARE_IMAGE: &str = concat!("tholepin-hardware-bundle:", env!("CARGO_PKG_VERSION"));
/// Kinds that OLM does not install: it fails the whole InstallPlan.
const NOT_BY_OLM: [&str; 2] = ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"];

/// Makes the bundles and their catalog.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  cargo xtask bundle\n  cargo xtask bundle --check\n  cargo xtask bundle --validate\n  \
    cargo xtask bundle --output /tmp/olm --image registry.example/tholepin@sha256:DIGEST --bundle-image registry.example/tholepin-bundle:0.1.0"
)]
pub(crate) struct Args {
    /// Only fail when a committed file is stale
    #[arg(long, conflicts_with = "output")]
    check: bool,
    /// Where the folders go [default: the repository]
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// The operators' image, best by its digest [default: as manifests have it]
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// The image of the bundle of the operator of NUMA resources, for the catalog
    #[arg(long, value_name = "IMAGE", default_value = NUMA_IMAGE)]
    bundle_image: String,
    /// The image of the bundle of the operator of DeviceConfigs, for the catalog
    #[arg(long, value_name = "IMAGE", default_value = HARDWARE_IMAGE)]
    hardware_bundle_image: String,
    /// Have OLM's tools and kustomize look at what is there, building them with Go if need be: all of them, or
    /// those named
    #[arg(long, value_enum, value_name = "TOOL", num_args = 0.., value_delimiter = ',')]
    validate: Option<Vec<Tool>>,
}

/// What the bundle of a package, and its part of the catalog, are made of.
pub(crate) struct Source {
    pub(crate) package: &'static Package,
    /// The operator's options: those of OpenShift.
    pub(crate) options: Options,
    /// The image of the bundle.
    pub(crate) bundle_image: String,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let folder = args.output.clone().unwrap_or_else(root);
    let image = args.image.as_deref();
    let sources = [
        Source::new(&NUMA, image, &args.bundle_image),
        Source::new(&HARDWARE, image, &args.hardware_bundle_image),
    ];
    put(&sources, &folder, args.check)?;
    let Some(tools) = &args.validate else { return Ok(()) };
    let tools = if tools.is_empty() { Tool::ALL.to_vec() } else { tools.clone() };
    validate::run(&folder, &tools)
}

/// Fails when a committed file of a bundle or the catalog is stale.
pub(crate) fn check() -> anyhow::Result<()> {
    put(&defaults(), &root(), true)
}

/// All packages as they are committed.
fn defaults() -> [Source; 2] {
    [Source::new(&NUMA, None, NUMA_IMAGE), Source::new(&HARDWARE, None, HARDWARE_IMAGE)]
}

/// The bundles of a release: their images' names and archives, and all folders, in which images are named by digest.
pub(crate) struct Released {
    pub(crate) archives: Vec<(String, Archive)>,
    pub(crate) folders: BTreeMap<String, String>,
}

/// The bundles for an image; `named` is the reference of another image beside it, by its name and digest.
pub(crate) fn released(
    image: &str,
    info: impl Fn(&str) -> ImageInfo,
    named: impl Fn(&str, &Archive) -> String,
) -> anyhow::Result<Released> {
    let mut sources = Vec::new();
    let mut archives = Vec::new();
    let mut folders = BTreeMap::new();
    let mut add = |folder: &str, tree: &Tree| {
        folders.extend(tree.texts().iter().map(|(path, text)| (format!("{folder}/{path}"), text.clone())));
    };
    for package in package::ALL {
        let bundle = Source::new(package, Some(image), "").bundle()?;
        let (name, _, archive) = image::bundle_archive(bundle.texts(), |name| Ok(info(name)))?;
        sources.push(Source::new(package, Some(image), &named(&name, &archive)));
        add(package.folder, &bundle);
        archives.push((name, archive));
    }
    add("catalog", &catalog(&sources)?);
    Ok(Released { archives, folders })
}

fn put(sources: &[Source], folder: &Path, check: bool) -> anyhow::Result<()> {
    for source in sources {
        source.bundle()?.put(&folder.join(source.package.folder), check, "cargo xtask bundle")?;
    }
    catalog(sources)?.put(&folder.join("catalog"), check, "cargo xtask bundle")
}

/// The files of the catalog.
fn catalog(sources: &[Source]) -> anyhow::Result<Tree> {
    let mut catalog = Tree::default();
    for source in sources {
        let csv = csv::service_version(source.package, &source.options)?;
        let path = format!("{}/catalog.yaml", source.package.name);
        catalog.add(&path, catalog::text(&catalog::blobs(&csv, source)?)?);
    }
    catalog.add("catalog.Dockerfile", metadata::catalog_dockerfile());
    Ok(catalog)
}

impl Source {
    pub(crate) fn new(package: &'static Package, image: Option<&str>, bundle_image: &str) -> Self {
        let image = image.map_or_else(manifests::image, str::to_owned);
        let mut options = manifests::options(Platform::OpenShift, &image);
        package.namespace.clone_into(&mut options.namespace);
        Self { package, options, bundle_image: bundle_image.to_owned() }
    }

    /// The files of the bundle.
    pub(crate) fn bundle(&self) -> anyhow::Result<Tree> {
        let csv = csv::service_version(self.package, &self.options)?;
        let mut bundle = Tree::default();
        bundle.add_yaml(&format!("manifests/{}.clusterserviceversion.yaml", self.package.name), &csv)?;
        for object in self.objects() {
            bundle.add_objects(&format!("manifests/{}", file_name(&object)), &[object])?;
        }
        bundle.add_yaml("metadata/annotations.yaml", &Annotations::of(self.package))?;
        bundle.add_yaml("tests/scorecard/config.yaml", &metadata::scorecard())?;
        bundle.add("bundle.Dockerfile", metadata::bundle_dockerfile(self.package));
        Ok(bundle)
    }

    /// What OLM makes besides the CSV: all of the operator's objects but those that the CSV stands for, and those
    /// that OLM does not install.
    pub(crate) fn objects(&self) -> Vec<Object> {
        let left_out = |object: &Object| {
            let kind = object.kind();
            let access = kind.group == "rbac.authorization.k8s.io";
            let process = ["ServiceAccount", "Namespace", "Deployment"].contains(&kind.kind.as_str());
            access && self.package.access.contains(&object.name())
                || process
                || NOT_BY_OLM.contains(&kind.kind.as_str())
        };
        let objects = (self.package.objects)(&self.options);
        objects.into_iter().filter(|object| !left_out(object)).map(without_namespace).collect()
    }
}

/// OLM says where things are.
fn without_namespace(object: Object) -> Object {
    let mut body = object.body().clone();
    if let Some(metadata) = body["metadata"].as_object_mut() {
        metadata.remove("namespace");
    }
    Object::typed(object.kind().clone(), &body)
}

/// As operator-sdk names them.
fn file_name(object: &Object) -> String {
    let kind = object.kind();
    if kind.kind == "CustomResourceDefinition" {
        let (plural, group) = object.name().split_once('.').unwrap_or((object.name(), ""));
        return format!("{group}_{plural}.yaml");
    }
    let group = kind.api_version().replace('/', "_");
    format!("{}_{group}_{}.yaml", object.name(), kind.kind.to_lowercase())
}
