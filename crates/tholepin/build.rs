//! How the binary is linked.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    // A megabyte of relocations becomes 15 KiB. Only where the C library is linked in: a shared one older than glibc
    // 2.36 refuses to start such a program, and nodes run what they run.
    let has = |key: &str, wanted: &str| {
        let value = std::env::var(format!("CARGO_CFG_TARGET_{key}")).unwrap_or_default();
        value.split(',').any(|value| value == wanted)
    };
    if has("OS", "linux") && has("ENV", "gnu") && has("FEATURE", "crt-static") {
        println!("cargo::rustc-link-arg-bins=-Wl,-z,pack-relative-relocs");
    }
}
