//! What is said about the bundle as a package: metadata, the scorecard's tests, and how images are made of the folders.
//!
//! In: names. Out: documents. Never: a version of its own.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Value, json};

use super::csv::PACKAGE;

/// The channel.
pub(crate) const CHANNEL: &str = "candidate";
/// What catalogs are served by.
const SERVER: &str = "quay.io/operator-framework/opm:v1.55.0";
const SCORECARD: &str = "quay.io/operator-framework/scorecard-test:v1.42.0";

/// `metadata/annotations.yaml`.
#[derive(Serialize)]
pub(crate) struct Annotations {
    annotations: BTreeMap<&'static str, &'static str>,
}

/// What kind of bundle it is, where its parts are, and where it belongs. Its image has the same as labels.
pub(crate) fn labels() -> BTreeMap<&'static str, &'static str> {
    BTreeMap::from([
        ("operators.operatorframework.io.bundle.mediatype.v1", "registry+v1"),
        ("operators.operatorframework.io.bundle.manifests.v1", "manifests/"),
        ("operators.operatorframework.io.bundle.metadata.v1", "metadata/"),
        ("operators.operatorframework.io.bundle.package.v1", PACKAGE),
        ("operators.operatorframework.io.bundle.channels.v1", CHANNEL),
        ("operators.operatorframework.io.bundle.channel.default.v1", CHANNEL),
        ("operators.operatorframework.io.test.mediatype.v1", "scorecard+v1"),
        ("operators.operatorframework.io.test.config.v1", "tests/scorecard/"),
    ])
}

/// The same as a document, and the versions of OpenShift it is for.
pub(crate) fn annotations() -> Annotations {
    let mut annotations = labels();
    // Kubernetes 1.30.
    annotations.insert("com.redhat.openshift.versions", "v4.17");
    Annotations { annotations }
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

/// How an engine makes an image of the folder `bundle`.
pub(crate) fn bundle_dockerfile() -> String {
    let labels: String = labels().iter().map(|(key, value)| format!("LABEL {key}={value}\n")).collect();
    format!(
        "# Made by `cargo xtask bundle`. In this folder: podman build -f bundle.Dockerfile -t IMAGE .\n\
         FROM scratch\n\n{labels}\nCOPY manifests /manifests/\nCOPY metadata /metadata/\nCOPY tests/scorecard /tests/scorecard/\n"
    )
}

/// Serves the catalog. In the folder `catalog`.
pub(crate) fn catalog_dockerfile() -> String {
    format!(
        "# Made by `cargo xtask bundle`. In this folder: podman build -f catalog.Dockerfile -t IMAGE .\n\
         FROM {SERVER}\n\n\
         LABEL operators.operatorframework.io.index.configs.v1=/configs\n\n\
         COPY {PACKAGE} /configs/{PACKAGE}\n\
         RUN [\"/bin/opm\", \"serve\", \"/configs\", \"--cache-dir=/tmp/cache\", \"--cache-only\"]\n\n\
         ENTRYPOINT [\"/bin/opm\"]\n\
         CMD [\"serve\", \"/configs\", \"--cache-dir=/tmp/cache\"]\n"
    )
}
