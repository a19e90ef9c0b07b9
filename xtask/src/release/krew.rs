//! The manifest of the kubectl plugin for krew.
//!
//! In: archives with their digests, where they will be. Out: a document. Never: a platform without an archive.

use serde::Serialize;

use crate::image::{Arch, Digest};

/// The document.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Plugin {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata,
    spec: Spec,
}

#[derive(Serialize)]
struct Metadata {
    name: &'static str,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    version: String,
    short_description: &'static str,
    description: &'static str,
    platforms: Vec<Platform>,
}

#[derive(Serialize)]
struct Platform {
    selector: Selector,
    uri: String,
    sha256: String,
    bin: &'static str,
    files: [File; 2],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Selector {
    match_labels: Labels,
}

#[derive(Serialize)]
struct Labels {
    os: &'static str,
    arch: &'static str,
}

#[derive(Serialize)]
struct File {
    from: &'static str,
    to: &'static str,
}

impl Plugin {
    /// The plugin of archives at these addresses.
    pub(super) fn of(version: &str, archives: Vec<(Arch, String, Digest)>) -> Self {
        let platform = |(arch, uri, digest): (Arch, String, Digest)| Platform {
            selector: Selector { match_labels: Labels { os: "linux", arch: arch.oci() } },
            uri,
            sha256: digest.hex().to_owned(),
            bin: "tholepin",
            files: ["tholepin", "LICENSE"].map(|from| File { from, to: "." }),
        };
        Self {
            api_version: "krew.googlecontainertools.github.com/v1alpha2",
            kind: "Plugin",
            metadata: Metadata { name: "tholepin" },
            spec: Spec {
                version: format!("v{version}"),
                short_description: "NUMA-aware scheduling for Kubernetes",
                description: "Installs, checks and removes an exporter and a scheduler that place pods where the kubelet can\n\
                    align them, and simulates what they would make of a workload.\n",
                platforms: archives.into_iter().map(platform).collect(),
            },
        }
    }
}
