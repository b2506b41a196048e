//! The boot loaders that machines load first: iPXE from this host's packages, and for Secure Boot the medium's own shim with
//! the network build of GRUB that Debian signs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use base::failure::{Class, Classify};
use base::files::read_at_most;
use model::release::Purpose;
use transfer::server::served_file::ServedFile;

use crate::content::files::MediumFiles;

/// Debian's iPXE (package `ipxe`).
pub const IPXE: &str = "/usr/lib/ipxe";
/// Debian's signed GRUB (package `grub-efi-amd64-signed`).
const GRUB: &str = "/usr/lib/grub/x86_64-efi-signed/grubnetx64.efi.signed";
/// iPXE for BIOS; it uses the network card's own code.
pub const BIOS: &str = "undionly.kpxe";
/// iPXE for UEFI, with drivers of its own.
pub const UEFI: &str = "ipxe.efi";
/// Where shim looks for what it starts: beside itself.
const GRUB_NAME: &str = "grubx64.efi";
/// The largest loader, in bytes.
const LIMIT: u64 = 16 << 20;

/// Reads the loaders. Returns them by the names under which they are served, and warnings about those that are missing.
pub fn collect(directory: &Path, files: &MediumFiles) -> Result<(BTreeMap<String, ServedFile>, Vec<String>)> {
    let mut found = BTreeMap::new();
    let mut missing = Vec::new();
    let places =
        [(BIOS, directory.join(BIOS)), (UEFI, directory.join(UEFI)), (GRUB_NAME, PathBuf::from(GRUB))];
    for (name, path) in places {
        if path.is_file() {
            let bytes = read_at_most(&path, LIMIT).class(Class::DiskIo, || "reading a boot loader".into())?;
            found.insert(name.to_owned(), ServedFile::in_memory(bytes));
        } else {
            missing.push(lack(name, &path));
        }
    }
    for (purpose, name) in [(Purpose::Shim, "shimx64.efi"), (Purpose::MokManager, "mmx64.efi")] {
        let payload = files.release().payload(purpose);
        if let Some(served) = payload.and_then(|payload| files.get(&payload.path)) {
            found.insert(name.to_owned(), served.clone());
        }
    }
    Ok((found, missing))
}

/// The warning about a missing loader, with the package that has it.
fn lack(name: &str, path: &Path) -> String {
    let (package, needed) = match name {
        BIOS => ("ipxe", "machines with BIOS cannot boot"),
        UEFI => ("ipxe", "machines with UEFI without Secure Boot cannot boot"),
        _ => ("grub-efi-amd64-signed", "machines with Secure Boot cannot boot"),
    };
    format!(
        "{} is missing: {needed} with a loader of this server; install the package {package}",
        path.display()
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::medium;
    use model::release::MediumKind;

    #[test]
    fn loaders_that_this_host_has_are_served_and_others_are_named() {
        let sample = medium(MediumKind::Full);
        let files = MediumFiles::open(&sample.tree()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join(UEFI), "a loader").unwrap();
        let (found, missing) = collect(directory.path(), &files).unwrap();
        assert_eq!(found[UEFI].length, 8);
        assert!(!found.contains_key(BIOS));
        let path = directory.path().join(BIOS).display().to_string();
        assert!(missing[0].starts_with(&format!("{path} is missing: machines with BIOS")), "{missing:?}");
        assert!(missing[0].ends_with("install the package ipxe"), "{missing:?}");
        let grub = lack(GRUB_NAME, Path::new(GRUB));
        assert!(grub.contains("Secure Boot") && grub.ends_with("grub-efi-amd64-signed"), "{grub}");
    }
}
