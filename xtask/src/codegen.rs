//! Rust from our `.proto` files: in go the files under `proto/`, out come the modules committed under the crates'
//! `src/gen/`. It runs by hand (`cargo xtask codegen`) and never as part of a build, so that no build needs `protoc`
//! or compiles the generators; a test here fails when a committed file no longer matches its source.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

/// One `.proto` file and the module made from it, both relative to the repository's root.
struct Unit {
    proto: &'static str,
    module: &'static str,
    /// The proto package: the generators name their output after it.
    package: &'static str,
}

/// Client and server are generated for each: shipped code calls the kubelet's sockets, tests stand in for them.
const UNITS: &[Unit] = &[
    Unit { proto: "podresources/v1.proto", module: "crates/node/src/gen/podresources.v1.rs", package: "v1" },
    Unit {
        proto: "deviceplugin/v1beta1.proto",
        module: "crates/node/src/gen/deviceplugin.v1beta1.rs",
        package: "v1beta1",
    },
    Unit {
        proto: "pluginregistration/v1.proto",
        module: "crates/node/src/gen/pluginregistration.v1.rs",
        package: "pluginregistration",
    },
    Unit {
        proto: "dra/v1.proto",
        module: "crates/node/src/gen/dra.v1.rs",
        package: "k8s.io.kubelet.pkg.apis.dra.v1",
    },
    Unit { proto: "cri/v1.proto", module: "crates/testkit/src/gen/cri.v1.rs", package: "runtime.v1" },
];

/// Writes every generated module, or with `check` only compares and fails naming the stale ones.
pub(crate) fn run(check: bool) -> anyhow::Result<()> {
    let root = root()?;
    let scratch = tempfile::tempdir().context("creating a temporary folder")?;
    let mut stale = Vec::new();
    for unit in UNITS {
        let text = generate(&root, scratch.path(), unit)?;
        let path = root.join(unit.module);
        if fs::read_to_string(&path).is_ok_and(|old| old == text) {
            continue;
        }
        if check {
            stale.push(unit.module);
        } else {
            fs::write(&path, text).with_context(|| format!("writing {}", unit.module))?;
            println!("wrote {}", unit.module);
        }
    }
    if !stale.is_empty() {
        bail!("stale generated code, run `cargo xtask codegen`: {}", stale.join(", "));
    }
    Ok(())
}

fn root() -> anyhow::Result<PathBuf> {
    let xtask = Path::new(env!("CARGO_MANIFEST_DIR"));
    Ok(xtask.parent().context("xtask has no parent folder")?.to_path_buf())
}

fn generate(root: &Path, scratch: &Path, unit: &Unit) -> anyhow::Result<String> {
    let descriptors = protox::compile([unit.proto], [root.join("proto")])
        .with_context(|| format!("compiling proto/{}", unit.proto))?;
    tonic_prost_build::configure()
        .btree_map(".") // stable order: same state, same bytes
        .out_dir(scratch)
        .compile_fds(descriptors)
        .with_context(|| format!("generating code for proto/{}", unit.proto))?;
    let code = fs::read_to_string(scratch.join(format!("{}.rs", unit.package)))
        .with_context(|| format!("proto/{} did not produce package {:?}", unit.proto, unit.package))?;
    Ok(format!("// Generated from proto/{} by `cargo xtask codegen`; do not edit.\n{code}", unit.proto))
}

#[cfg(test)]
mod tests {
    #[test]
    fn committed_code_is_fresh() {
        super::run(true).expect("generated code matches proto/");
    }
}
