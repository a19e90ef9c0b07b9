//! What a finished program says about itself.
//!
//! In: the bytes of a file. Out: an error unless it is a statically linked program for the wanted processor
//! that does not name the folders it was built in. Never: symbols, sections, anything that needs a real reader
//! of ELF.

use anyhow::{Context as _, bail, ensure};

use super::arch::Arch;

/// 64-bit, little endian, version 1.
const IDENT: &[u8] = b"\x7fELF\x02\x01\x01";
/// The segment that names a dynamic linker. A static-pie program has none.
const PT_INTERP: u32 = 3;

/// Fails unless `program` can start on `arch` with no other file around it.
pub(crate) fn check(program: &[u8], arch: Arch) -> anyhow::Result<()> {
    ensure!(program.starts_with(IDENT), "not a 64-bit little-endian ELF file");
    let machine = u16::from_le_bytes(field(program, 18)?);
    ensure!(
        machine == arch.elf(),
        "the program is for ELF machine {machine}, and {} is {}",
        arch.oci(),
        arch.elf()
    );
    let table = u64::from_le_bytes(field(program, 32)?);
    let size = u16::from_le_bytes(field(program, 54)?);
    let count = u16::from_le_bytes(field(program, 56)?);
    for number in 0..u64::from(count) {
        let at = table.checked_add(number * u64::from(size)).context("segments beyond any file")?;
        if u32::from_le_bytes(field(program, usize::try_from(at)?)?) == PT_INTERP {
            bail!("the program is linked dynamically, and an empty image has no libraries");
        }
    }
    Ok(())
}

/// Fails when `program` has one of `folders` in it: users could read where it was built, and built elsewhere it
/// would differ.
pub(crate) fn check_paths(program: &[u8], folders: &[String]) -> anyhow::Result<()> {
    for folder in folders {
        let needle = folder.as_bytes();
        if let Some(at) = program.windows(needle.len().max(1)).position(|window| window == needle) {
            let rest = &program[at..program.len().min(at + 120)];
            let text = rest.iter().take_while(|byte| byte.is_ascii_graphic()).map(|byte| char::from(*byte));
            bail!("the program names a folder of this machine: {}", text.collect::<String>());
        }
    }
    Ok(())
}

fn field<const N: usize>(program: &[u8], at: usize) -> anyhow::Result<[u8; N]> {
    let bytes = at.checked_add(N).and_then(|end| program.get(at..end));
    bytes.and_then(|bytes| bytes.try_into().ok()).context("the ELF file is cut off")
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// The head of an ELF file with segments of these types.
    pub(crate) fn program(arch: Arch, segments: &[u32]) -> Vec<u8> {
        let mut file = IDENT.to_vec();
        file.resize(64, 0);
        file[18..20].copy_from_slice(&arch.elf().to_le_bytes());
        file[32..40].copy_from_slice(&64_u64.to_le_bytes());
        file[54..56].copy_from_slice(&56_u16.to_le_bytes());
        file[56..58].copy_from_slice(&u16::try_from(segments.len()).unwrap().to_le_bytes());
        for kind in segments {
            file.extend(kind.to_le_bytes());
            file.extend([0; 52]);
        }
        file
    }

    #[test]
    fn only_static_programs_of_the_architecture_pass() {
        fn check(file: &[u8], wanted: Result<(), &str>) {
            let got = super::check(file, Arch::Amd64).map_err(|error| error.to_string());
            match wanted {
                Ok(()) => assert_eq!(got, Ok(())),
                Err(part) => assert!(got.clone().unwrap_err().contains(part), "{got:?}"),
            }
        }
        check(&program(Arch::Amd64, &[1, 2, 6]), Ok(()));
        check(&program(Arch::Amd64, &[1, 2, PT_INTERP]), Err("dynamically"));
        check(&program(Arch::Arm64, &[1]), Err("ELF machine 183, and amd64 is 62"));
        check(b"#!/bin/sh", Err("not a 64-bit"));
        let whole = program(Arch::Amd64, &[1, 2]);
        check(&whole[..130], Ok(()));
        check(&whole[..120], Err("cut off"));
        check(&whole[..20], Err("cut off"));
        let mut far = whole;
        far[32..40].copy_from_slice(&u64::MAX.to_le_bytes());
        check(&far, Err("cut off"));
    }

    #[test]
    fn folders_of_the_machine_are_found() {
        let mut file = b"panicked at /src/main.rs".to_vec();
        let folders = ["/home/builder/tholepin".to_owned(), "/home/builder/.cargo".to_owned()];
        check_paths(&file, &folders).unwrap();
        file.extend(b"\0/home/builder/.cargo/registry/a.rs\0more");
        let error = check_paths(&file, &folders).unwrap_err().to_string();
        assert_eq!(error, "the program names a folder of this machine: /home/builder/.cargo/registry/a.rs");
    }
}
