//! The kernel, the initrd made by dracut, and the boot loaders, all from the base.

use std::fs::{self, File};
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base::command::{Runner, SystemRunner};
use base::failure::{Class, Failure};
use base::files;
use formats::initrd;

use super::modules;
use super::request::StepRequest;
use super::tree::{Tree, place_file};
use crate::boot::loaders;
use crate::product;

/// The space for unpacked modules, and for the initrd beside dracut's own files.
const UNPACKED_BYTES: u64 = 768 << 20;

/// Makes `vmlinuz`, `initrd`, `kernel-release` and `loaders/`.
pub(super) fn make(request: &StepRequest, base: &Path, overlays: &[PathBuf]) -> Result<()> {
    let tree = Tree::unpack_in_memory(base, &request.scratch, UNPACKED_BYTES)?;
    for overlay in overlays {
        tree.overlay(overlay)?;
    }
    let release = kernel_release(&tree)?;
    place_file(&tree.path(&format!("boot/vmlinuz-{release}")), &request.out.join("vmlinuz"), 0o644)?;
    files::write_atomically(&request.out.join("kernel-release"), release.as_bytes(), 0o644)?;
    let loaders = request.out.join("loaders");
    files::make_directory(&loaders, 0o755)?;
    loaders::collect(request.architecture, tree.root(), &loaders, &SystemRunner, &|program| {
        tree.chroot(program)
    })?;
    modules::unpack(&tree)?;
    modules::index_overlaid(&tree, &release, overlays)?;
    make_initrd(request, &tree, &release)
}

/// Fails unless the plain initrd has the unit that every boot of ours waits for: a definition's overlay can keep dracut from
/// putting it there.
fn check_product(plain: &mut impl Read) -> Result<()> {
    // A cpio archive has the name of each file as text, with a zero at its end.
    let name = [product::INITRD_UNIT.as_bytes(), b"\0"].concat();
    if contains(plain, &name).context("reading the initrd")? {
        return Ok(());
    }
    Err(Failure::new(Class::Invalid, "the initrd lacks the unit by which media and nodes start")
        .because(anyhow::anyhow!("dracut did not put /{} into it", product::INITRD_UNIT))
        .hint("Remove from overlays.initrd what omits or replaces the dracut module nqrust.")
        .into())
}

/// True if `wanted` is among the bytes of a reader.
fn contains(reader: &mut impl Read, wanted: &[u8]) -> io::Result<bool> {
    let (mut window, mut chunk) = (Vec::new(), vec![0; 1 << 20]);
    loop {
        let count = reader.read(&mut chunk)?;
        if count == 0 {
            return Ok(false);
        }
        window.extend_from_slice(&chunk[..count]);
        if window.windows(wanted.len()).any(|part| part == wanted) {
            return Ok(true);
        }
        window.drain(..window.len().saturating_sub(wanted.len() - 1));
    }
}

/// The version of the base's kernel; there has to be exactly one with modules and an image.
pub(super) fn kernel_release(tree: &Tree) -> Result<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(tree.path("usr/lib/modules")).into_iter().flatten() {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if tree.path(&format!("boot/vmlinuz-{name}")).is_file() {
            found.push(name);
        }
    }
    only_kernel(&found)
}

/// The one kernel of a base.
///
/// # Errors
/// [`Class::Invalid`] if there is none, or more than one.
pub(crate) fn only_kernel(found: &[String]) -> Result<String> {
    match found {
        [only] => Ok(only.clone()),
        _ => Err(Failure::new(Class::Invalid, "the base has no kernel, or more than one")
            .because(anyhow::anyhow!(
                "kernels with modules in /usr/lib/modules and an image in /boot: {}",
                if found.is_empty() { "none".to_owned() } else { found.join(", ") }
            ))
            .hint("Give the base exactly one kernel package, for instance linux-image-amd64.")
            .into()),
    }
}

/// Makes one generic initrd for live, netboot and installed boots: `--no-hostonly` includes every driver. It is packed here and not by
/// dracut, so that a node can pack it again.
fn make_initrd(request: &StepRequest, tree: &Tree, release: &str) -> Result<()> {
    if !tree.path("usr/bin/dracut").exists() {
        return Err(Failure::new(Class::Invalid, "the base has no dracut")
            .hint("Include the packages dracut, dracut-live and dracut-network.")
            .into());
    }
    tree.mount_kernel_file_systems()?;
    let dracut = tree
        .chroot("dracut")
        .env("SOURCE_DATE_EPOCH", request.epoch.to_string())
        // Only root outside any user namespace could make device nodes; the kernel makes /dev/console, systemd the
        // rest.
        .env("DRACUT_NO_MKNOD", "1")
        .args(["--force", "--no-hostonly", "--no-hostonly-cmdline", "--reproducible", "--quiet"])
        .arg("--no-compress")
        .args(["--kver", release, "/boot/initrd.nqrust"]);
    SystemRunner.run(&dracut).context("making the initrd with dracut")?;
    let archives = tree.path("boot/initrd.nqrust");
    let what = || format!("packing {}", archives.display());
    let mut plain = File::open(&archives).with_context(what)?;
    check_product(&mut plain)?;
    plain.rewind().with_context(what)?;
    files::fill_unsynced(&request.out.join("initrd"), 0o644, |file| initrd::pack(&mut plain, file))
        .with_context(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A reader that gives few bytes at a time.
    struct Slow<'a>(&'a [u8]);

    impl Read for Slow<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let count = buffer.len().min(5);
            self.0.read(&mut buffer[..count])
        }
    }

    #[test]
    fn an_initrd_without_the_unit_that_boots_wait_for_is_refused() {
        let with = format!("070701{}\0content", product::INITRD_UNIT);
        check_product(&mut Slow(with.as_bytes())).unwrap();
        for without in ["", "070701usr/lib/systemd/system/other.service\0", product::INITRD_UNIT] {
            let text = base::failure::render(&check_product(&mut Slow(without.as_bytes())).unwrap_err());
            assert!(text.contains("nqrust-boot.service") && text.contains("overlays.initrd"), "{text}");
        }
    }
}
