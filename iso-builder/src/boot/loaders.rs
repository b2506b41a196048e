//! Boot loaders, taken from the packages of the base, so that they fit its kernel and its revocations.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base::command::{Invocation, Runner};
use base::failure::{Class, Failure};

/// shim, signed by Microsoft.
pub const SHIM: &str = "shimx64.efi";
/// The MOK manager, signed by the distribution's key in shim.
pub const MOK_MANAGER: &str = "mmx64.efi";
/// GRUB for UEFI, signed by the distribution's key in shim.
pub const GRUB_EFI: &str = "grubx64.efi";
/// GRUB's boot sector for BIOS and hard disks.
pub const GRUB_BOOT: &str = "boot.img";
/// GRUB's core for BIOS and hard disks; looks for its files in `/grub` on the second partition.
pub const GRUB_CORE: &str = "core.img";
/// GRUB's El Torito image; looks for its files in `/boot/grub` on the device it was started from.
pub const ELTORITO: &str = "eltorito.img";
/// The boot sector that makes an ISO on a USB stick start the El Torito image.
pub const HYBRID: &str = "boot_hybrid.img";

/// Where Debian and its relatives keep each file, best first.
const CANDIDATES: &[(&str, &[&str])] = &[
    (SHIM, &["usr/lib/shim/shimx64.efi.signed", "usr/lib/shim/shimx64.efi.signed.latest"]),
    (MOK_MANAGER, &["usr/lib/shim/mmx64.efi.signed", "usr/lib/shim/mmx64.efi"]),
    (GRUB_EFI, &["usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed"]),
    (GRUB_BOOT, &["usr/lib/grub/i386-pc/boot.img"]),
    (HYBRID, &["usr/lib/grub/i386-pc/boot_hybrid.img"]),
];

/// Modules in both BIOS cores, so that neither needs module files. Text mode only: a core that is loaded from the BIOS
/// boot partition must stay below 480 KiB.
const MODULES: &[&str] = &[
    "biosdisk",
    "boot",
    "cat",
    "chain",
    "configfile",
    "drivemap",
    "echo",
    "fat",
    "halt",
    "linux",
    "loadenv",
    "ls",
    "minicmd",
    "normal",
    "part_gpt",
    "part_msdos",
    "password_pbkdf2",
    "reboot",
    "regexp",
    "search",
    "search_fs_file",
    "search_label",
    "serial",
    "sleep",
    "terminal",
    "test",
    "true",
];

/// What GRUB's core of an installed disk does: it loads the disk's menu or, if an interrupted install has left none,
/// exits to the firmware, which boots the next device. Without this, GRUB would show a command prompt.
const CORE_CONFIG: &str = "configfile $prefix/grub.cfg\nexit\n";

/// Puts every loader into `out`, under the names of this module's constants.
pub fn collect(root: &Path, out: &Path, runner: &dyn Runner) -> Result<()> {
    for (name, candidates) in CANDIDATES {
        let source = find(root, name, candidates)?;
        let target = out.join(name);
        std::fs::copy(&source, &target).with_context(|| format!("copying {}", source.display()))?;
    }
    let modules = root.join("usr/lib/grub/i386-pc");
    let core = |format: &str, prefix: &str, output: &str, options: &[&OsStr], further: &[&str]| {
        let invocation = Invocation::new("grub-mkimage")
            .args(["--format", format, "--prefix", prefix, "--directory"])
            .arg(&modules)
            .arg("--output")
            .arg(out.join(output))
            .args(options.iter().copied())
            .args(MODULES.iter().chain(further).copied());
        runner.run(&invocation).map(drop).with_context(|| format!("making {output}"))
    };
    let config = tempfile::NamedTempFile::new_in(out).context("making a temporary file")?;
    std::fs::write(&config, CORE_CONFIG).context("writing a temporary file")?;
    core("i386-pc", "(,gpt2)/grub", GRUB_CORE, &[OsStr::new("--config"), config.path().as_os_str()], &[])?;
    core("i386-pc-eltorito", "/boot/grub", ELTORITO, &[], &["iso9660"])
}

fn find(root: &Path, name: &str, candidates: &[&str]) -> Result<PathBuf> {
    let found = candidates.iter().map(|candidate| root.join(candidate)).find(|path| path.is_file());
    found.ok_or_else(|| {
        Failure::new(Class::Invalid, format!("the base has no {name}"))
            .because(anyhow::anyhow!("looked for /{}", candidates.join(" and /")))
            .hint("Include the packages shim-signed, grub-efi-amd64-signed and grub-pc-bin.")
            .into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::sync::Mutex;

    struct Recorder(Mutex<Vec<String>>);

    impl Runner for Recorder {
        fn run(&self, invocation: &Invocation) -> Result<Vec<u8>> {
            self.0.lock().unwrap().push(invocation.display());
            Ok(Vec::new())
        }
    }

    #[test]
    fn a_missing_loader_is_named_with_every_place_that_was_searched() {
        let directory = tempfile::tempdir().unwrap();
        let error = collect(directory.path(), directory.path(), &Recorder(Mutex::default())).unwrap_err();
        let text = base::failure::render(&error);
        assert!(text.contains("no shimx64.efi") && text.contains("shimx64.efi.signed.latest"), "{text}");
    }

    #[test]
    fn both_cores_are_made_with_the_modules_of_the_base() {
        let (root, out) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        for (_, candidates) in CANDIDATES {
            let path = root.path().join(candidates[0]);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "loader").unwrap();
        }
        let recorder = Recorder(Mutex::default());
        collect(root.path(), out.path(), &recorder).unwrap();
        let ran = recorder.0.into_inner().unwrap();
        assert_eq!(ran.len(), 2);
        assert!(
            ran.iter()
                .all(|line| line.contains(&root.path().join("usr/lib/grub/i386-pc").display().to_string()))
        );
        // Without it nobody could enter the password of a menu that has one.
        assert!(ran.iter().all(|line| line.contains(" password_pbkdf2 ")), "{ran:?}");
        assert!(ran[0].contains("(,gpt2)/grub") && ran[0].contains("--config") && ran[1].contains("iso9660"));
    }
}
