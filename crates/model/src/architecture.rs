//! The architectures of machines that releases are made for, and what each is called elsewhere.

use std::fmt;
use std::str::FromStr;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An architecture of machines, by Debian's name for it, which is Go's and that of container images too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum Architecture {
    /// 64-bit x86: machines start on BIOS and on UEFI.
    #[default]
    Amd64,
    /// 64-bit Arm: machines start on UEFI.
    Arm64,
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
compile_error!("releases are made for x86_64 and aarch64");

/// The boot loaders of an architecture, by their paths on an EFI system partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EfiLoaders {
    /// shim, which firmware starts from a disk without a boot entry (UEFI 2.10, 3.5.1.1).
    pub shim: &'static str,
    /// GRUB; shim looks for it beside itself.
    pub grub: &'static str,
    /// The MOK manager, likewise.
    pub mok_manager: &'static str,
}

impl Architecture {
    pub const ALL: [Self; 2] = [Self::Amd64, Self::Arm64];

    /// The architecture that this program was compiled for.
    #[must_use]
    pub const fn of_this_program() -> Self {
        match cfg!(target_arch = "aarch64") {
            true => Self::Arm64,
            false => Self::Amd64,
        }
    }

    /// True for the architecture of documents that name none.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Self::default()
    }

    /// Debian's name, in packages and in the names of media.
    #[must_use]
    pub fn debian(self) -> &'static str {
        match self {
            Self::Amd64 => "amd64",
            Self::Arm64 => "arm64",
        }
    }

    /// The kernel's name, as `uname -m` prints it; also that of Rust and of QEMU.
    #[must_use]
    pub fn kernel(self) -> &'static str {
        match self {
            Self::Amd64 => "x86_64",
            Self::Arm64 => "aarch64",
        }
    }

    #[must_use]
    pub fn loaders(self) -> EfiLoaders {
        match self {
            Self::Amd64 => EfiLoaders {
                shim: "EFI/BOOT/BOOTX64.EFI",
                grub: "EFI/BOOT/grubx64.efi",
                mok_manager: "EFI/BOOT/mmx64.efi",
            },
            Self::Arm64 => EfiLoaders {
                shim: "EFI/BOOT/BOOTAA64.EFI",
                grub: "EFI/BOOT/grubaa64.efi",
                mok_manager: "EFI/BOOT/mmaa64.efi",
            },
        }
    }

    /// True if there are machines with a BIOS, so that media and disks have boot code for it.
    #[must_use]
    pub fn has_bios(self) -> bool {
        self == Self::Amd64
    }

    /// The serial lines that a kernel writes to unless it is told others, as values of `console=`. The last one that a machine has becomes
    /// `/dev/console` where no screen comes after it. Servers with Arm's base system architecture have `ttyAMA0`, others a 16550.
    #[must_use]
    pub fn serial_lines(self) -> &'static [&'static str] {
        match self {
            Self::Amd64 => &["ttyS0,115200"],
            Self::Arm64 => &["ttyS0,115200", "ttyAMA0,115200"],
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.debian())
    }
}

/// A word that is the name of no architecture.
#[derive(Debug, thiserror::Error)]
#[error("{0:?} is no architecture that releases are made for; they are amd64 and arm64")]
pub struct ParseArchitectureError(String);

impl FromStr for Architecture {
    type Err = ParseArchitectureError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let known = Self::ALL.into_iter().find(|architecture| architecture.debian() == text);
        known.ok_or_else(|| ParseArchitectureError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_architecture_is_written_by_debians_name_and_no_two_share_a_name() {
        for architecture in Architecture::ALL {
            assert_eq!(serde_json::to_value(architecture).unwrap(), architecture.debian());
            assert_eq!(architecture.debian().parse::<Architecture>().unwrap(), architecture);
        }
        assert_eq!(Architecture::of_this_program().kernel(), std::env::consts::ARCH);
        assert!(serde_json::from_value::<Architecture>("riscv64".into()).is_err());
    }

    #[test]
    fn the_default_loader_has_the_name_that_the_specification_gives() {
        for (architecture, suffix) in Architecture::ALL.into_iter().zip(["x64", "aa64"]) {
            let EfiLoaders { shim, grub, mok_manager } = architecture.loaders();
            assert_eq!(shim, format!("EFI/BOOT/BOOT{}.EFI", suffix.to_uppercase()));
            assert_eq!(grub, format!("EFI/BOOT/grub{suffix}.efi"));
            assert_eq!(mok_manager, format!("EFI/BOOT/mm{suffix}.efi"));
        }
    }
}
