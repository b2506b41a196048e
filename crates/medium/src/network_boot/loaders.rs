//! The boot loaders that machines load first: iPXE from this host's packages, and for Secure Boot the medium's own shim with
//! the network build of GRUB that Debian signs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use base::failure::{Class, Classify};
use base::files::read_at_most;
use model::architecture::Architecture;
use model::release::Purpose;
use transfer::server::served_file::ServedFile;

use super::files::MediumFiles;

/// Debian's iPXE (package `ipxe`).
pub const IPXE: &str = "/usr/lib/ipxe";

/// The loaders by which machines of one architecture start over the network, by the names under which they are served.
#[derive(Clone, Copy, Debug)]
pub struct NetworkLoaders {
    /// iPXE for BIOS, which uses the network card's own code; none for an architecture without a BIOS.
    pub bios: Option<&'static str>,
    /// iPXE for UEFI, with drivers of its own.
    pub uefi: &'static str,
    shim: &'static str,
    mok_manager: &'static str,
    /// The network build of GRUB, by the name that shim looks for beside itself.
    grub: &'static str,
    /// Where Debian has that GRUB, signed, and the package.
    grub_file: &'static str,
    grub_package: &'static str,
}

impl NetworkLoaders {
    #[must_use]
    pub const fn of(architecture: Architecture) -> Self {
        match architecture {
            Architecture::Amd64 => Self {
                bios: Some("undionly.kpxe"),
                uefi: "ipxe.efi",
                shim: "shimx64.efi",
                mok_manager: "mmx64.efi",
                grub: "grubx64.efi",
                grub_file: "/usr/lib/grub/x86_64-efi-signed/grubnetx64.efi.signed",
                grub_package: "grub-efi-amd64-signed",
            },
            Architecture::Arm64 => Self {
                bios: None,
                uefi: "ipxe-arm64.efi",
                shim: "shimaa64.efi",
                mok_manager: "mmaa64.efi",
                grub: "grubaa64.efi",
                grub_file: "/usr/lib/grub/arm64-efi-signed/grubnetaa64.efi.signed",
                grub_package: "grub-efi-arm64-signed",
            },
        }
    }

    /// What a person without a loader of iPXE does.
    #[must_use]
    pub fn ipxe_hint(self) -> &'static str {
        match self.bios {
            Some(_) => "install the package ipxe",
            // Debian 12 has a package of this name without the loader.
            None => {
                "install the package ipxe of Debian 13 or later, or name a directory that has it with --loaders"
            }
        }
    }

    /// Those of iPXE.
    pub fn ipxe(self) -> impl Iterator<Item = &'static str> {
        self.bios.into_iter().chain([self.uefi])
    }
}

/// The largest loader, in bytes.
const LIMIT: u64 = 16 << 20;

/// Reads the loaders for the medium's architecture: from `directory`, GRUB else from its package. Returns them by the names under which
/// they are served, and warnings about those that are missing.
pub fn collect(directory: &Path, files: &MediumFiles) -> Result<(BTreeMap<String, ServedFile>, Vec<String>)> {
    let loaders = NetworkLoaders::of(files.release().architecture);
    let mut found = BTreeMap::new();
    let mut missing = Vec::new();
    let packaged = Some(directory.join(loaders.grub)).filter(|path| path.is_file());
    let grub = packaged.unwrap_or_else(|| PathBuf::from(loaders.grub_file));
    for (name, path) in loaders.ipxe().map(|name| (name, directory.join(name))).chain([(loaders.grub, grub)])
    {
        if path.is_file() {
            let bytes = read_at_most(&path, LIMIT).class(Class::DiskIo, || "reading a boot loader".into())?;
            found.insert(name.to_owned(), ServedFile::in_memory(bytes));
        } else {
            missing.push(lack(loaders, name, &path));
        }
    }
    for (purpose, name) in [(Purpose::Shim, loaders.shim), (Purpose::MokManager, loaders.mok_manager)] {
        let payload = files.release().payload(purpose);
        if let Some(served) = payload.and_then(|payload| files.get(&payload.path)) {
            found.insert(name.to_owned(), served.clone());
        }
    }
    Ok((found, missing))
}

/// The warning about a missing loader, with the package that has it.
fn lack(loaders: NetworkLoaders, name: &str, path: &Path) -> String {
    let grub = format!("install the package {}", loaders.grub_package);
    let (hint, needed) = match name {
        _ if loaders.bios == Some(name) => (loaders.ipxe_hint(), "machines with BIOS cannot boot"),
        _ if loaders.uefi == name => {
            (loaders.ipxe_hint(), "machines with UEFI without Secure Boot cannot boot")
        }
        _ => (&*grub, "machines with Secure Boot cannot boot"),
    };
    format!("{} is missing: {needed} with a loader of this server; {hint}", path.display())
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::release::MediumKind;
    use testing::medium::SampleMedium;

    #[test]
    fn loaders_that_this_host_has_are_served_and_others_are_named() {
        let sample = SampleMedium::bootable(MediumKind::Full);
        let files = MediumFiles::open(&sample.tree()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let loaders = NetworkLoaders::of(Architecture::Amd64);
        let (bios, uefi) = (loaders.bios.unwrap(), loaders.uefi);
        std::fs::write(directory.path().join(uefi), "a loader").unwrap();
        let (found, missing) = collect(directory.path(), &files).unwrap();
        assert_eq!(found[uefi].length, 8);
        assert!(!found.contains_key(bios));
        let path = directory.path().join(bios).display().to_string();
        assert!(missing[0].starts_with(&format!("{path} is missing: machines with BIOS")), "{missing:?}");
        assert!(missing[0].ends_with("install the package ipxe"), "{missing:?}");
        let arm64 = NetworkLoaders::of(Architecture::Arm64);
        let told = lack(arm64, arm64.uefi, Path::new("/usr/lib/ipxe/ipxe-arm64.efi"));
        assert!(told.contains("ipxe of Debian 13 or later") && told.ends_with("with --loaders"), "{told}");
        let grub = lack(loaders, loaders.grub, Path::new(loaders.grub_file));
        assert!(grub.contains("Secure Boot") && grub.ends_with("grub-efi-amd64-signed"), "{grub}");
    }

    #[test]
    fn a_grub_beside_ipxe_is_taken_before_that_of_the_package() {
        let sample = SampleMedium::bootable(MediumKind::Full);
        let files = MediumFiles::open(&sample.tree()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("grubx64.efi"), "GRUB").unwrap();
        let (found, missing) = collect(directory.path(), &files).unwrap();
        assert_eq!(found["grubx64.efi"].length, 4);
        assert!(missing.iter().all(|told| !told.contains("grub")), "{missing:?}");
    }
}
