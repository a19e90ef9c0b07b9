//! How the binary is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // A megabyte of relocations becomes 15 KiB, all of which the dynamic linker reads at each start. Not on musl, whose
    // programs are linked without relocations that could be packed, nor for linkers other than GNU's and LLVM's.
    let target = |key: &str| std::env::var(format!("CARGO_CFG_TARGET_{key}")).unwrap_or_default();
    if target("OS") == "linux" && target("ENV") == "gnu" {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
