//! What is said about a bundle: metadata, the scorecard's tests, and how images are made of the folders.
//!
//! In: a package. Out: documents; of a bundle's documents the name and the labels of its image. Never: a version of its
//! own.

use std::collections::BTreeMap;

use anyhow::Context as _;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::package::{self, Package};

/// The channel.
pub(crate) const CHANNEL: &str = "candidate";
/// What catalogs are served by.
const SERVER: &str = "quay.io/operator-framework/opm:v1.55.0";
const SCORECARD: &str = "quay.io/operator-framework/scorecard-test:v1.42.0";

/// What the labels of a bundle's image begin with.
const LABELS: &str = "operators.operatorframework.io.";
/// The label with the name of the package.
const NAME: &str = "operators.operatorframework.io.bundle.package.v1";

/// `metadata/annotations.yaml`.
#[derive(Debug, Deserialize, Serialize)]
pub(crate) struct Annotations {
    annotations: BTreeMap<String, String>,
}

impl Annotations {
    /// What kind of bundle it is, where its parts are, where it belongs, and the versions of OpenShift it is for.
    pub(crate) fn of(package: &Package) -> Self {
        let annotations = [
            ("operators.operatorframework.io.bundle.mediatype.v1", "registry+v1"),
            ("operators.operatorframework.io.bundle.manifests.v1", "manifests/"),
            ("operators.operatorframework.io.bundle.metadata.v1", "metadata/"),
            (NAME, package.name),
            ("operators.operatorframework.io.bundle.channels.v1", CHANNEL),
            ("operators.operatorframework.io.bundle.channel.default.v1", CHANNEL),
            ("operators.operatorframework.io.test.mediatype.v1", "scorecard+v1"),
            ("operators.operatorframework.io.test.config.v1", "tests/scorecard/"),
            // Kubernetes 1.30.
            ("com.redhat.openshift.versions", "v4.17"),
        ];
        let owned = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        Self { annotations: annotations.into_iter().map(owned).collect() }
    }

    /// Reads the text of the file.
    pub(crate) fn read(text: &str) -> anyhow::Result<Self> {
        let mut read = runtime::yaml::read_many("metadata/annotations.yaml", text, 1)?;
        read.pop().context("metadata/annotations.yaml is empty")
    }

    /// The labels of the bundle's image.
    pub(crate) fn labels(&self) -> BTreeMap<String, String> {
        let labels = self.annotations.iter().filter(|(key, _)| key.starts_with(LABELS));
        labels.map(|(key, value)| (key.clone(), value.clone())).collect()
    }

    /// The default name of the bundle's image, without a tag.
    pub(crate) fn image(&self) -> anyhow::Result<String> {
        let package = self.annotations.get(NAME).with_context(|| format!("metadata has no {NAME}"))?;
        Ok(format!("{}-bundle", package.strip_suffix("-operator").unwrap_or(package)))
    }
}

/// The tests that `operator-sdk scorecard` runs.
pub(crate) fn scorecard() -> Value {
    let test = |suite: &str, name: &str| {
        json!({
            "image": SCORECARD,
            "entrypoint": ["scorecard-test", name],
            "labels": { "suite": suite, "test": format!("{name}-test") },
            "storage": { "spec": { "mountPath": {} } },
        })
    };
    let olm = [
        "olm-bundle-validation",
        "olm-crds-have-validation",
        "olm-crds-have-resources",
        "olm-spec-descriptors",
        "olm-status-descriptors",
    ];
    let tests: Vec<Value> =
        std::iter::once(test("basic", "basic-check-spec")).chain(olm.map(|name| test("olm", name))).collect();
    json!({
        "apiVersion": "scorecard.operatorframework.io/v1alpha3",
        "kind": "Configuration",
        "metadata": { "name": "config" },
        "stages": [{ "parallel": true, "tests": tests }],
        "storage": { "spec": { "mountPath": {} } },
    })
}

/// How an engine makes an image of the folder of a bundle.
pub(crate) fn bundle_dockerfile(package: &Package) -> String {
    let labels = Annotations::of(package).labels();
    let labels: String = labels.iter().map(|(key, value)| format!("LABEL {key}={value}\n")).collect();
    format!(
        "# Made by `cargo xtask bundle`. In this folder: podman build -f bundle.Dockerfile -t IMAGE .\n\
         FROM scratch\n\n{labels}\nCOPY manifests /manifests/\nCOPY metadata /metadata/\nCOPY tests/scorecard /tests/scorecard/\n"
    )
}

/// Serves the catalog with all packages. In the folder `catalog`.
pub(crate) fn catalog_dockerfile() -> String {
    let copies: String =
        package::ALL.iter().map(|package| format!("COPY {0} /configs/{0}\n", package.name)).collect();
    format!(
        "# Made by `cargo xtask bundle`. In this folder: podman build -f catalog.Dockerfile -t IMAGE .\n\
         FROM {SERVER}\n\n\
         LABEL operators.operatorframework.io.index.configs.v1=/configs\n\n\
         {copies}\
         RUN [\"/bin/opm\", \"serve\", \"/configs\", \"--cache-dir=/tmp/cache\", \"--cache-only\"]\n\n\
         ENTRYPOINT [\"/bin/opm\"]\n\
         CMD [\"serve\", \"/configs\", \"--cache-dir=/tmp/cache\"]\n"
    )
}
