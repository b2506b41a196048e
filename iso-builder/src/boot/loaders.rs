//! Boot loaders, taken from the packages of the base, so that they fit its kernel and its revocations.

use std::path::Path;

use anyhow::{Context, Result};
use base::command::{Invocation, Runner};
use base::failure::{Class, Failure};
use model::architecture::Architecture;
use model::release::Purpose;

/// GRUB's boot sector for BIOS and hard disks.
pub const GRUB_BOOT: &str = "boot.img";
/// GRUB's core for BIOS and hard disks; looks for its files in `/grub` on the second partition.
pub const GRUB_CORE: &str = "core.img";
/// GRUB's El Torito image; looks for its files in `/boot/grub` on the device it was started from.
pub const ELTORITO: &str = "eltorito.img";
/// The boot sector that makes an ISO on a USB stick start the El Torito image.
pub const HYBRID: &str = "boot_hybrid.img";

/// A loader that a base has.
#[derive(Clone, Copy, Debug)]
struct PackagedLoader {
    /// The name of the file in the directory of loaders.
    name: &'static str,
    /// None if it is no payload.
    purpose: Option<Purpose>,
    /// Where Debian and its relatives keep it, best first.
    candidates: &'static [&'static str],
}

const fn loader(
    name: &'static str,
    purpose: Option<Purpose>,
    candidates: &'static [&'static str],
) -> PackagedLoader {
    PackagedLoader { name, purpose, candidates }
}

/// shim is signed by Microsoft, the MOK manager and GRUB for UEFI by the key of the distribution in shim.
const AMD64: &[PackagedLoader] = &[
    loader(
        "shimx64.efi",
        Some(Purpose::Shim),
        &["usr/lib/shim/shimx64.efi.signed", "usr/lib/shim/shimx64.efi.signed.latest"],
    ),
    loader(
        "mmx64.efi",
        Some(Purpose::MokManager),
        &["usr/lib/shim/mmx64.efi.signed", "usr/lib/shim/mmx64.efi"],
    ),
    loader("grubx64.efi", Some(Purpose::GrubEfi), &["usr/lib/grub/x86_64-efi-signed/grubx64.efi.signed"]),
    loader(GRUB_BOOT, Some(Purpose::GrubBoot), &["usr/lib/grub/i386-pc/boot.img"]),
    loader(HYBRID, None, &["usr/lib/grub/i386-pc/boot_hybrid.img"]),
];
const ARM64: &[PackagedLoader] = &[
    loader(
        "shimaa64.efi",
        Some(Purpose::Shim),
        &["usr/lib/shim/shimaa64.efi.signed", "usr/lib/shim/shimaa64.efi.signed.latest"],
    ),
    loader(
        "mmaa64.efi",
        Some(Purpose::MokManager),
        &["usr/lib/shim/mmaa64.efi.signed", "usr/lib/shim/mmaa64.efi"],
    ),
    loader("grubaa64.efi", Some(Purpose::GrubEfi), &["usr/lib/grub/arm64-efi-signed/grubaa64.efi.signed"]),
];

fn packaged(architecture: Architecture) -> &'static [PackagedLoader] {
    match architecture {
        Architecture::Amd64 => AMD64,
        Architecture::Arm64 => ARM64,
    }
}

/// The loaders of media, by the names of their files in the directory that [`collect`] fills, in the order in which a manifest has them.
#[must_use]
pub fn payloads(architecture: Architecture) -> Vec<(&'static str, Purpose)> {
    let packaged = packaged(architecture).iter().filter_map(|loader| Some((loader.name, loader.purpose?)));
    let made = architecture.has_bios().then_some((GRUB_CORE, Purpose::GrubCore));
    packaged.chain(made).collect()
}

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
    "iso9660",
    "linux",
    "loadenv",
    "loopback",
    "ls",
    "minicmd",
    "normal",
    "part_gpt",
    "part_msdos",
    "password_pbkdf2",
    "probe",
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

/// The configuration of GRUB's core on an installed disk: it loads the disk's menu or, if an interrupted install has left none,
/// exits to the firmware, which boots the next device. Without this, GRUB would show a command prompt.
const CORE_CONFIG: &str = "configfile $prefix/grub.cfg\nexit\n";

/// Makes GRUB's images. It is the base's: a core of other modules than its own GRUB's does not start, or is refused while it
/// is made.
const MKIMAGE: &str = "usr/bin/grub-mkimage";
/// Where modules of GRUB for BIOS are in the base.
const BIOS_MODULES: &str = "usr/lib/grub/i386-pc";
/// The directory of the base for the time in which the cores are made, and what the base then has in it.
const WORKPLACE: &str = "nqrust-loaders";
const CONFIG: &str = "core.cfg";

/// Puts every loader into `out`. `inside` is a command of the base: the program, by its path in the base, is run with the base as its
/// root.
pub fn collect(
    architecture: Architecture,
    root: &Path,
    out: &Path,
    runner: &dyn Runner,
    inside: &dyn Fn(&str) -> Invocation,
) -> Result<()> {
    let find = |name: &str, candidates: &[&str]| {
        let found = candidates.iter().map(|candidate| root.join(candidate)).find(|path| path.is_file());
        found.ok_or_else(|| missing(architecture, name, candidates))
    };
    for PackagedLoader { name, candidates, .. } in packaged(architecture) {
        let source = find(name, candidates)?;
        let target = out.join(name);
        std::fs::copy(&source, &target).with_context(|| format!("copying {}", source.display()))?;
    }
    if !architecture.has_bios() {
        return Ok(());
    }
    find("grub-mkimage", &[MKIMAGE])?;
    let workplace = root.join(WORKPLACE);
    std::fs::create_dir(&workplace).with_context(|| format!("making {}", workplace.display()))?;
    std::fs::write(workplace.join(CONFIG), CORE_CONFIG)
        .context("writing the configuration of GRUB's core")?;
    let in_base = |name: &str| format!("/{WORKPLACE}/{name}");
    let core = |format: &str, prefix: &str, output: &str, options: &[&str]| {
        let invocation = inside(&format!("/{MKIMAGE}"))
            .args(["--format", format, "--prefix", prefix])
            .args(["--directory", &format!("/{BIOS_MODULES}"), "--output", &in_base(output)])
            .args(options.iter().copied())
            .args(MODULES.iter().copied());
        runner.run(&invocation).with_context(|| format!("making {output}"))?;
        std::fs::copy(workplace.join(output), out.join(output))
            .with_context(|| format!("copying {output}"))
            .map(drop)
    };
    core("i386-pc", "(,gpt2)/grub", GRUB_CORE, &["--config", &in_base(CONFIG)])?;
    core("i386-pc-eltorito", "/boot/grub", ELTORITO, &[])?;
    std::fs::remove_dir_all(&workplace).with_context(|| format!("removing {}", workplace.display()))
}

fn missing(architecture: Architecture, name: &str, candidates: &[&str]) -> Failure {
    let packages = match architecture {
        Architecture::Amd64 => "shim-signed, grub-efi-amd64-signed, grub-pc-bin and grub-common",
        Architecture::Arm64 => "shim-signed and grub-efi-arm64-signed",
    };
    Failure::new(Class::Invalid, format!("the base has no {name}"))
        .because(anyhow::anyhow!("looked for /{}", candidates.join(" and /")))
        .hint(format!("Include the packages {packages}."))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::sync::Mutex;

    /// Notes every command, and leaves an image where one was asked for in the base.
    struct Recorder<'a> {
        root: &'a Path,
        ran: Mutex<Vec<String>>,
    }

    impl<'a> Recorder<'a> {
        fn new(root: &'a Path) -> Self {
            Self { root, ran: Mutex::default() }
        }
    }

    impl Runner for Recorder<'_> {
        fn run(&self, invocation: &Invocation) -> Result<Vec<u8>> {
            let line = invocation.display();
            let output = line.split_once("--output /").unwrap().1.split(' ').next().unwrap();
            fs::write(self.root.join(output), &line).unwrap();
            self.ran.lock().unwrap().push(line);
            Ok(Vec::new())
        }
    }

    /// A base with every loader, and with the files of `further`.
    fn base_with(further: &[&str]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let packaged = Architecture::ALL.into_iter().flat_map(packaged).map(|loader| loader.candidates[0]);
        for path in packaged.chain(further.iter().copied()) {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, "loader").unwrap();
        }
        root
    }

    #[test]
    fn a_missing_loader_is_named_with_every_place_that_was_searched() {
        let directory = tempfile::tempdir().unwrap();
        let recorder = Recorder::new(directory.path());
        let error = collect(Architecture::Amd64, directory.path(), directory.path(), &recorder, &|name| {
            Invocation::new(name)
        })
        .unwrap_err();
        let text = base::failure::render(&error);
        assert!(text.contains("no shimx64.efi") && text.contains("shimx64.efi.signed.latest"), "{text}");
    }

    #[test]
    fn a_base_that_cannot_make_cores_is_told_with_the_package_that_can() {
        let (root, out) = (base_with(&[]), tempfile::tempdir().unwrap());
        let recorder = Recorder::new(root.path());
        let error =
            collect(Architecture::Amd64, root.path(), out.path(), &recorder, &|name| Invocation::new(name))
                .unwrap_err();
        let text = base::failure::render(&error);
        assert!(text.contains("no grub-mkimage") && text.contains("grub-common"), "{text}");
    }

    #[test]
    fn both_cores_are_made_by_the_base_of_its_own_modules_and_leave_nothing_in_it() {
        let (root, out) = (base_with(&[MKIMAGE]), tempfile::tempdir().unwrap());
        let recorder = Recorder::new(root.path());
        let inside = |program: &str| Invocation::new("chroot").args(["/tree", program]);
        collect(Architecture::Amd64, root.path(), out.path(), &recorder, &inside).unwrap();
        let ran = recorder.ran.into_inner().unwrap();
        assert_eq!(ran.len(), 2);
        let start = "chroot /tree /usr/bin/grub-mkimage ";
        assert!(ran.iter().all(|line| line.starts_with(start) && line.contains(" /usr/lib/grub/i386-pc ")));
        // Without it nobody could enter the password of a menu that has one.
        assert!(ran.iter().all(|line| line.contains(" password_pbkdf2 ")), "{ran:?}");
        // By these the core of an installed disk reads the boot volumes of its slots.
        assert!(
            ["loopback", "iso9660", "probe"].iter().all(|module| ran[0].contains(&format!(" {module} ")))
        );
        assert!(
            ran[0].contains("(,gpt2)/grub") && ran[0].contains("--config") && !ran[1].contains("--config")
        );
        assert!(out.path().join(GRUB_CORE).is_file() && out.path().join(ELTORITO).is_file());
        assert!(!root.path().join(WORKPLACE).exists());
    }

    #[test]
    fn arm64_has_the_loaders_of_uefi_alone() {
        let (root, out) = (base_with(&[]), tempfile::tempdir().unwrap());
        let recorder = Recorder::new(root.path());
        collect(Architecture::Arm64, root.path(), out.path(), &recorder, &|name| Invocation::new(name))
            .unwrap();
        assert!(recorder.ran.into_inner().unwrap().is_empty());
        let mut names: Vec<_> =
            fs::read_dir(out.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["grubaa64.efi", "mmaa64.efi", "shimaa64.efi"]);
        let payloads = payloads(Architecture::Arm64);
        assert!(payloads.iter().all(|(name, _)| out.path().join(name).is_file()) && payloads.len() == 3);
        let error = missing(Architecture::Arm64, "shimaa64.efi", &["usr/lib/shim/x"]).into();
        assert!(base::failure::render(&error).contains("grub-efi-arm64-signed"));
    }
}
