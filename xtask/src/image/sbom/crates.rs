//! The crates that are in a program.
//!
//! In: what `cargo metadata`, `cargo tree` and `Cargo.lock` say. Out: one [`Part`] for each crate that is
//! linked, with those it uses. Never: tests', build scripts' and derive macros' crates, which are not in the
//! program.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Context as _;
use serde::Deserialize;

use super::Part;

/// What `cargo metadata` says, as far as it matters.
#[derive(Deserialize)]
pub(crate) struct Metadata {
    packages: Vec<Package>,
    resolve: Resolve,
    pub(crate) workspace_root: String,
    pub(crate) target_directory: String,
}

#[derive(Deserialize)]
struct Package {
    id: String,
    name: String,
    version: String,
    license: Option<String>,
}

#[derive(Deserialize)]
struct Resolve {
    nodes: Vec<Node>,
}

#[derive(Deserialize)]
struct Node {
    id: String,
    deps: Vec<Dependency>,
}

#[derive(Deserialize)]
struct Dependency {
    pkg: String,
    dep_kinds: Vec<Kind>,
}

#[derive(Deserialize)]
struct Kind {
    /// `build` or `dev`; null for those that are linked.
    kind: Option<String>,
}

/// The crates of `tree`, the output of `cargo tree --prefix none --format {p}`, which alone knows features as
/// one package's build has them; everything else about them is from `metadata` and `lock`, the text of
/// `Cargo.lock`.
pub(super) fn linked(metadata: &Metadata, tree: &str, lock: &str) -> anyhow::Result<Vec<Part>> {
    let wanted: BTreeSet<String> = tree.lines().filter_map(key_of_line).collect();
    let checksums = checksums(lock);
    let packages: BTreeMap<&str, &Package> =
        metadata.packages.iter().map(|package| (package.id.as_str(), package)).collect();
    let mut parts = BTreeMap::new();
    for node in &metadata.resolve.nodes {
        let package = packages.get(node.id.as_str()).with_context(|| format!("no package {}", node.id))?;
        let key = package.key();
        if !wanted.contains(&key) {
            continue;
        }
        let linked = node.deps.iter().filter(|dep| dep.dep_kinds.iter().any(|kind| kind.kind.is_none()));
        let used = linked.filter_map(|dep| packages.get(dep.pkg.as_str()).map(|package| package.key()));
        let used: BTreeSet<String> = used.filter(|key| wanted.contains(key)).collect();
        let checksum = checksums.get(&key).cloned();
        parts.insert(
            key,
            Part {
                name: package.name.clone(),
                version: package.version.clone(),
                licence: package.license.as_deref().map(expression),
                // Only crates of a registry have one; ours are published nowhere.
                purl: checksum.is_some().then(|| format!("pkg:cargo/{}@{}", package.name, package.version)),
                checksum,
                uses: used.into_iter().collect(),
            },
        );
    }
    let lost: Vec<_> = wanted.iter().filter(|key| !parts.contains_key(*key)).collect();
    anyhow::ensure!(lost.is_empty(), "cargo metadata does not know {lost:?}");
    Ok(parts.into_values().collect())
}

impl Package {
    fn key(&self) -> String {
        format!("{}@{}", self.name, self.version)
    }
}

/// `name@version` of a line such as `name v1.2.3 (/folder) (*)`.
fn key_of_line(line: &str) -> Option<String> {
    let mut words = line.split_whitespace();
    Some(format!("{}@{}", words.next()?, words.next()?.strip_prefix('v')?))
}

/// Before SPDX expressions were asked for, crates wrote a slash for "or".
fn expression(licence: &str) -> String {
    licence.split('/').map(str::trim).collect::<Vec<_>>().join(" OR ")
}

/// SHA-256 of the crates' archives by `name@version`. Cargo writes the file, always one `key = "value"` a line.
fn checksums(lock: &str) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in lock.split("[[package]]") {
        let value = |key: &str| {
            entry.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(" = \"")?.strip_suffix('"'))
        };
        if let (Some(name), Some(version), Some(checksum)) =
            (value("name"), value("version"), value("checksum"))
        {
            found.insert(format!("{name}@{version}"), checksum.to_owned());
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const METADATA: &str = r#"{
        "workspace_root": "/here", "target_directory": "/here/target",
        "packages": [
            {"id": "path#app", "name": "app", "version": "0.1.0", "license": "Apache-2.0"},
            {"id": "reg#tar", "name": "tar", "version": "0.4.0", "license": "MIT/Apache-2.0"},
            {"id": "reg#libc", "name": "libc", "version": "0.2.0", "license": "MIT OR Apache-2.0"},
            {"id": "reg#cc", "name": "cc", "version": "1.0.0", "license": null},
            {"id": "reg#windows", "name": "windows", "version": "1.0.0", "license": null}
        ],
        "resolve": {"nodes": [
            {"id": "path#app", "deps": [
                {"pkg": "reg#tar", "dep_kinds": [{"kind": "dev"}, {"kind": null}]},
                {"pkg": "reg#cc", "dep_kinds": [{"kind": "build"}]},
                {"pkg": "reg#libc", "dep_kinds": [{"kind": "dev"}]}
            ]},
            {"id": "reg#tar", "deps": [
                {"pkg": "reg#windows", "dep_kinds": [{"kind": null}]},
                {"pkg": "reg#libc", "dep_kinds": [{"kind": null}]}
            ]},
            {"id": "reg#libc", "deps": []},
            {"id": "reg#cc", "deps": []},
            {"id": "reg#windows", "deps": []}
        ]}
    }"#;
    const TREE: &str = "app v0.1.0 (/here/app)\ntar v0.4.0\nlibc v0.2.0\nlibc v0.2.0 (*)\n";
    const LOCK: &str = "version = 4\n\n[[package]]\nname = \"app\"\nversion = \"0.1.0\"\n\n[[package]]\nname = \"tar\"\n\
        version = \"0.4.0\"\nsource = \"registry+x\"\nchecksum = \"7a\"\ndependencies = [\n \"libc\",\n]\n\n\
        [[package]]\nname = \"libc\"\nversion = \"0.2.0\"\nchecksum = \"11\"\n";

    #[test]
    fn what_is_linked_and_nothing_else() {
        let metadata: Metadata = serde_json::from_str(METADATA).unwrap();
        let parts = linked(&metadata, TREE, LOCK).unwrap();
        let text = |part: &Part| {
            let Part { name, version, licence, purl, checksum, uses } = part;
            format!("{name} {version} {licence:?} {purl:?} {checksum:?} {uses:?}")
        };
        assert_eq!(
            parts.iter().map(text).collect::<Vec<_>>(),
            [
                r#"app 0.1.0 Some("Apache-2.0") None None ["tar@0.4.0"]"#,
                r#"libc 0.2.0 Some("MIT OR Apache-2.0") Some("pkg:cargo/libc@0.2.0") Some("11") []"#,
                r#"tar 0.4.0 Some("MIT OR Apache-2.0") Some("pkg:cargo/tar@0.4.0") Some("7a") ["libc@0.2.0"]"#,
            ]
        );
        let error = linked(&metadata, "ghost v1.0.0\n", LOCK).err().map(|error| error.to_string());
        assert_eq!(error.as_deref(), Some("cargo metadata does not know [\"ghost@1.0.0\"]"));
    }
}
