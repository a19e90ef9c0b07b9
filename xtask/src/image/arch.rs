//! The processors an image can be for, under the names that Rust, OCI, ELF and Debian have for them.

use clap::ValueEnum;

/// A processor architecture, by its OCI name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
pub(crate) enum Arch {
    /// x86-64.
    Amd64,
    /// 64-bit ARM.
    Arm64,
}

impl Arch {
    /// All of them.
    pub(crate) const ALL: [Self; 2] = [Self::Amd64, Self::Arm64];

    /// The architecture this program runs on, if an image can be for it.
    pub(crate) fn host() -> Option<Self> {
        Self::ALL.into_iter().find(|arch| arch.rust() == std::env::consts::ARCH)
    }

    /// OCI's (and Go's) name.
    pub(crate) const fn oci(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// Rust's target. The GNU C library: its allocator gives memory back, which the exporter's figures rest on, and
    /// linked statically it finds host names without files of its own.
    pub(crate) const fn target(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64-unknown-linux-gnu",
            Self::Arm64 => "aarch64-unknown-linux-gnu",
        }
    }

    /// `e_machine` of its ELF files.
    pub(crate) const fn elf(self) -> u16 {
        match self {
            Self::Amd64 => 62,
            Self::Arm64 => 183,
        }
    }

    /// The compiler driver that links for it, here.
    pub(crate) fn linker(self) -> &'static str {
        match self {
            _ if Self::host() == Some(self) => "cc",
            Self::Amd64 => "x86_64-linux-gnu-gcc",
            Self::Arm64 => "aarch64-linux-gnu-gcc",
        }
    }

    /// Debian's packages with that linker and the C library's archives.
    pub(crate) fn packages(self) -> &'static str {
        match self {
            _ if Self::host() == Some(self) => "gcc libc6-dev",
            Self::Amd64 => "gcc-x86-64-linux-gnu libc6-dev-amd64-cross",
            Self::Arm64 => "gcc-aarch64-linux-gnu libc6-dev-arm64-cross",
        }
    }

    const fn rust(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }
}
