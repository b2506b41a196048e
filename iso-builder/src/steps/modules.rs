//! Kernel modules in the OS image, stored as they are.
//!
//! Debian packs each module by itself. Packed modules of two builds of a kernel have nothing in common, and modules are a third of an
//! image, so that a patch from one release to the next would carry all of them. The image as media carry it is compressed as a whole
//! anyway. The signature at a module's end is part of what is packed, and stays.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use anyhow::{Context, Result};
use base::command::{Invocation, Runner, SystemRunner};
use base::files::fill_unsynced;
use base::parallel::for_each;
use formats::kernel_modules;
use walkdir::WalkDir;

use super::limit::long;
use super::tree::Tree;
use super::within::within;

/// How many modules one run of xz unpacks.
const FILES_PER_RUN: usize = 200;

/// Unpacks the modules of every kernel of the tree, and lets the tree's own depmod name them anew.
pub(super) fn unpack(tree: &Tree) -> Result<()> {
    let directory = within(tree.root(), Path::new("usr/lib/modules"))?;
    for entry in fs::read_dir(directory).into_iter().flatten() {
        let kernel = entry.context("looking for kernels")?;
        if unpack_below(&kernel.path())? {
            index(tree, &kernel.file_name())?;
        }
    }
    Ok(())
}

/// Unpacks the modules below a directory; false if none was packed.
pub(super) fn unpack_below(directory: &Path) -> Result<bool> {
    let packed = packed(directory)?;
    if packed.is_empty() {
        return Ok(false);
    }
    let (xz, zstd): (Vec<_>, Vec<_>) = packed.into_iter().partition(|path| has_end(path, "xz"));
    let runs: Vec<_> = xz.chunks(FILES_PER_RUN).collect();
    let threads = available_parallelism().map_or(1, usize::from);
    for_each(&runs, threads, |run| {
        let unpack = long(Invocation::new("xz")).args(["--decompress", "--force", "--"]).args(*run);
        SystemRunner.run(&unpack).context("unpacking kernel modules with xz").map(drop)
    })?;
    for_each(&zstd, threads, |path| unpack_zstd(path))?;
    Ok(true)
}

/// Lets the tree's own depmod list the modules of a kernel anew, where one of the directories that were laid over the tree has some.
pub(super) fn index_overlaid(tree: &Tree, kernel: &str, overlays: &[PathBuf]) -> Result<()> {
    for overlay in overlays {
        let directories = ["usr/lib/modules", "lib/modules"].map(|place| overlay.join(place).join(kernel));
        for directory in directories {
            if !kernel_modules::paths(&directory).context("looking for kernel modules")?.is_empty() {
                return index(tree, OsStr::new(kernel));
            }
        }
    }
    Ok(())
}

fn index(tree: &Tree, kernel: &OsStr) -> Result<()> {
    let depmod = tree.chroot("depmod").arg("--all").arg(kernel);
    SystemRunner.run(&depmod).context("naming kernel modules with the base's depmod").map(drop)
}

/// The packed modules below a directory, in the order of their names.
fn packed(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in WalkDir::new(directory).sort_by_file_name() {
        let entry = entry.context("looking for kernel modules")?;
        let path = entry.path();
        let module = path.file_stem().is_some_and(|stem| has_end(Path::new(stem), "ko"));
        if entry.file_type().is_file() && module && (has_end(path, "xz") || has_end(path, "zst")) {
            found.push(entry.into_path());
        }
    }
    Ok(found)
}

fn has_end(path: &Path, end: &str) -> bool {
    path.extension() == Some(OsStr::new(end))
}

fn unpack_zstd(path: &Path) -> Result<()> {
    let what = || format!("unpacking {}", path.display());
    let packed = File::open(path).with_context(what)?;
    let mode = packed.metadata().with_context(what)?.permissions().mode() & 0o7777;
    fill_unsynced(&path.with_extension(""), mode, |file| zstd::stream::copy_decode(packed, file))
        .and_then(|()| fs::remove_file(path).map_err(Into::into))
        .with_context(what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_packed_modules_are_found() {
        let directory = tempfile::tempdir().unwrap();
        for name in ["kernel/a.ko.xz", "kernel/b/c.ko.zst", "kernel/d.ko", "modules.dep", "e.xz", "ko.xz"] {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, name).unwrap();
        }
        let found = packed(directory.path()).unwrap();
        let names: Vec<_> = found.iter().map(|path| path.strip_prefix(directory.path()).unwrap()).collect();
        assert_eq!(names, [Path::new("kernel/a.ko.xz"), Path::new("kernel/b/c.ko.zst")]);
    }

    #[test]
    fn a_module_packed_by_zstd_becomes_what_was_packed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("a.ko.zst");
        fs::write(&path, zstd::bulk::compress(b"a module", 3).unwrap()).unwrap();
        unpack_zstd(&path).unwrap();
        assert_eq!(fs::read(directory.path().join("a.ko")).unwrap(), b"a module");
        assert!(!path.exists());
        fs::write(&path, b"no module").unwrap();
        assert!(unpack_zstd(&path).is_err());
    }
}
