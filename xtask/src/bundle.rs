//! `cargo xtask bundle`: the operator for the Operator Lifecycle Manager.
//!
//! In: the functions of `operator::manifests` and `operator::rbac`, the definitions' schemas. Out: the folders
//! `bundle` (registry+v1) and `catalog` (file-based), and on request what OLM's own tools say of them. Never: a
//! right, a name or a text that stands elsewhere too.
//!
//! One bundle is for every platform; where they differ it is OpenShift's. What is namespaced has no namespace
//! in it: OLM puts it where it is installed.

mod catalog;
mod csv;
mod descriptors;
mod package;
#[cfg(test)]
mod tests;
mod validate;

use std::collections::BTreeMap;
use std::path::PathBuf;

use deployer::platform::Platform;
use objects::Object;
use operator::manifests::{self, Options};

use crate::tree::{Tree, root};
use validate::Tool;

/// Makes bundle and catalog.
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
    /// The operator's image, best by its digest [default: as manifests have it]
    #[arg(long, value_name = "IMAGE")]
    image: Option<String>,
    /// The bundle's image, for the catalog
    #[arg(long, value_name = "IMAGE", default_value = concat!("tholepin-bundle:", env!("CARGO_PKG_VERSION")))]
    bundle_image: String,
    /// Have OLM's tools and kustomize look at what is there, building them with Go if need be: all of them, or
    /// those named
    #[arg(long, value_enum, value_name = "TOOL", num_args = 0.., value_delimiter = ',')]
    validate: Option<Vec<Tool>>,
}

/// What bundle and catalog are made of.
pub(crate) struct Source {
    /// The operator's options: those of OpenShift.
    pub(crate) options: Options,
    /// The image of the bundle.
    pub(crate) bundle_image: String,
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    let folder = args.output.clone().unwrap_or_else(root);
    let source = Source::new(args.image.as_deref(), &args.bundle_image);
    let (bundle, catalog) = source.trees()?;
    bundle.put(&folder.join("bundle"), args.check, "cargo xtask bundle")?;
    catalog.put(&folder.join("catalog"), args.check, "cargo xtask bundle")?;
    let Some(tools) = &args.validate else { return Ok(()) };
    let tools = if tools.is_empty() { Tool::ALL.to_vec() } else { tools.clone() };
    validate::run(&folder, &tools)
}

/// Fails when a committed file of the bundle or the catalog is stale.
pub(crate) fn check() -> anyhow::Result<()> {
    let source = Source::new(None, concat!("tholepin-bundle:", env!("CARGO_PKG_VERSION")));
    let (bundle, catalog) = source.trees()?;
    bundle.put(&root().join("bundle"), true, "cargo xtask bundle")?;
    catalog.put(&root().join("catalog"), true, "cargo xtask bundle")
}

/// The labels of the bundle's image.
pub(crate) fn labels() -> BTreeMap<String, String> {
    package::labels().into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect()
}

impl Source {
    pub(crate) fn new(image: Option<&str>, bundle_image: &str) -> Self {
        let mut options = crate::manifests::options(Platform::OpenShift);
        if let Some(image) = image {
            options.common.images.tholepin = image.to_owned();
        }
        Self { options, bundle_image: bundle_image.to_owned() }
    }

    /// The files of the bundle, and those of the catalog.
    pub(crate) fn trees(&self) -> anyhow::Result<(Tree, Tree)> {
        let csv = csv::service_version(&self.options)?;
        let mut bundle = Tree::default();
        bundle.add_yaml(&format!("manifests/{}.clusterserviceversion.yaml", csv::PACKAGE), &csv)?;
        for object in self.objects() {
            bundle.add_objects(&format!("manifests/{}", file_name(&object)), &[object])?;
        }
        bundle.add_yaml("metadata/annotations.yaml", &package::annotations())?;
        bundle.add_yaml("tests/scorecard/config.yaml", &package::scorecard())?;
        bundle.add("bundle.Dockerfile", package::bundle_dockerfile());
        let mut catalog = Tree::default();
        let path = format!("{}/catalog.yaml", csv::PACKAGE);
        catalog.add(&path, catalog::text(&catalog::blobs(&csv, self)?)?);
        catalog.add("catalog.Dockerfile", package::catalog_dockerfile());
        Ok((bundle, catalog))
    }

    /// What OLM makes besides the CSV: all of the operator's objects but those that the CSV stands for.
    pub(crate) fn objects(&self) -> Vec<Object> {
        let objects = manifests::objects(&self.options);
        let own = |object: &Object| {
            let account = object.kind().kind == "ServiceAccount";
            let access =
                object.name() == manifests::access::ROLE || object.name() == manifests::access::BINDING;
            let place = ["Namespace", "Deployment"].contains(&object.kind().kind.as_str());
            account || access || place
        };
        objects.into_iter().filter(|object| !own(object)).map(without_namespace).collect()
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
