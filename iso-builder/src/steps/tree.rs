//! Trees of a root file system: unpacking them, laying directories over them, running programs in them.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base::command::{Invocation, Runner, SystemRunner};
use base::files;
use nix::mount::{MntFlags, MsFlags, mount, umount2};
use walkdir::WalkDir;

use super::limit::long;
use super::memory::MemoryMount;
use super::within::{link_within, within};

/// Device nodes cannot be made in a user namespace, and no tree needs them: /dev is devtmpfs. Anchored, so that a directory named
/// dev deeper in the tree is not affected.
const WITHOUT_DEVICES: [&str; 2] = ["--anchored", "--exclude=./dev/*"];

/// Room in memory for what file systems need beside the bytes of files.
const ROOM_BYTES: u64 = 256 << 20;

/// An unpacked root file system below a scratch directory.
#[derive(Debug)]
pub(super) struct Tree(PathBuf);

impl Tree {
    pub(super) fn empty(scratch: &Path) -> Result<Self> {
        let path = scratch.join("tree");
        files::make_directory(&path, 0o755)?;
        Ok(Self(path))
    }

    /// Unpacks a tar archive, with owners, modes, links and extended attributes, and without device nodes; in memory where there is
    /// room for the tree and as much again, beside `more` bytes. Only for the sandbox: the tree ends with it.
    pub(super) fn unpack_in_memory(archive: &Path, scratch: &Path, more: u64) -> Result<Self> {
        let tree = Self::empty(scratch)?;
        let length = fs::metadata(archive).with_context(|| format!("reading {}", archive.display()))?.len();
        if let Some(mounted) = MemoryMount::at(&tree.0, 2 * length + more + ROOM_BYTES) {
            // tar only warns of what a file system cannot keep; in memory that can be more than on a disk.
            let mut words = vec!["-c".into(), r#"exec "$@" 2>&1"#.into(), "sh".into()];
            let tar = tree.extraction(archive, WITHOUT_DEVICES);
            words.push(tar.program.clone());
            words.extend(tar.args.iter().cloned());
            let told = SystemRunner.run(&long(Invocation::new("sh")).args(words));
            if told.is_ok_and(|told| told.is_empty()) {
                return Ok(tree);
            }
            mounted.remove()?;
        }
        tree.extract(archive, WITHOUT_DEVICES)?;
        Ok(tree)
    }

    /// Unpacks another archive over the tree.
    pub(super) fn extract<S: Into<OsString>>(
        &self,
        archive: &Path,
        options: impl IntoIterator<Item = S>,
    ) -> Result<()> {
        let tar = self.extraction(archive, options);
        SystemRunner.run(&tar).with_context(|| format!("unpacking {}", archive.display()))?;
        Ok(())
    }

    fn extraction<S: Into<OsString>>(
        &self,
        archive: &Path,
        options: impl IntoIterator<Item = S>,
    ) -> Invocation {
        let mut tar =
            long(Invocation::new("tar")).args(["--extract", "--preserve-permissions", "--numeric-owner"]);
        tar = tar.args(["--xattrs", "--xattrs-include=*", "--same-owner"]).args(options);
        tar.arg("--file").arg(archive).arg("--directory").arg(&self.0)
    }

    pub(super) fn root(&self) -> &Path {
        &self.0
    }

    /// The host's path of a path in the tree.
    pub(super) fn path(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    /// Lays a directory over the tree. Owners become root; modes become 0755 or 0644 by the user's execute bit, so that
    /// neither the umask nor the owner of the checkout matters.
    pub(super) fn overlay(&self, directory: &Path) -> Result<()> {
        self.overlay_at(directory, Path::new(""))
    }

    /// As [`overlay`](Self::overlay), at a directory of the tree, which is made if it is missing.
    pub(super) fn overlay_at(&self, directory: &Path, place: &Path) -> Result<()> {
        self.place_directory(&self.0.join(place))?;
        for entry in WalkDir::new(directory).min_depth(1).sort_by_file_name() {
            let entry = entry.with_context(|| format!("reading {}", directory.display()))?;
            let target = link_within(&self.0, &place.join(entry.path().strip_prefix(directory)?))?;
            let placed = if entry.file_type().is_dir() {
                self.place_directory(&target)
            } else if entry.file_type().is_symlink() {
                fs::read_link(entry.path()).map_err(Into::into).and_then(|link| place_link(&link, &target))
            } else {
                let executable = entry.metadata()?.permissions().mode() & 0o100 != 0;
                place_file(entry.path(), &target, if executable { 0o755 } else { 0o644 })
            };
            placed.with_context(|| format!("laying {} over the tree", entry.path().display()))?;
        }
        Ok(())
    }

    /// Makes a directory of the overlay. If the base has a directory there, or a link to one, that is kept.
    fn place_directory(&self, target: &Path) -> Result<()> {
        let resolved = within(&self.0, target.strip_prefix(&self.0)?)?;
        files::make_directory(&resolved, 0o755)
    }

    /// Mounts /dev, /proc and /sys of the sandbox in the tree, for programs that run inside.
    pub(super) fn mount_kernel_file_systems(&self) -> Result<()> {
        ["dev", "proc", "sys"]
            .into_iter()
            .try_for_each(|name| self.bind(&Path::new("/").join(name), name).map(drop))
    }

    /// Mounts a directory of the sandbox, with what is mounted in it, at one of the tree, which is made if it is missing; returns where
    /// that is.
    pub(super) fn bind(&self, source: &Path, name: &str) -> Result<PathBuf> {
        let target = within(&self.0, Path::new(name))?;
        files::make_directory(&target, 0o755)?;
        let flags = MsFlags::MS_BIND | MsFlags::MS_REC;
        mount(Some(source), &target, None::<&str>, flags, None::<&str>)
            .with_context(|| format!("binding {} to {}", source.display(), target.display()))?;
        Ok(target)
    }

    /// Runs a program inside the tree that needs device nodes, such as `/dev/null` of a shell script. The tree stays without any.
    pub(super) fn run_with_devices(&self, invocation: &Invocation) -> Result<()> {
        let target = self.bind(Path::new("/dev"), "dev")?;
        let ran = SystemRunner.run(invocation);
        umount2(&target, MntFlags::MNT_DETACH).with_context(|| format!("unmounting {}", target.display()))?;
        ran.map(drop)
    }

    /// The command to put before another one so that it runs inside the tree.
    pub(super) fn enter(&self) -> Vec<OsString> {
        vec!["chroot".into(), self.0.clone().into()]
    }

    /// Runs a program inside the tree.
    pub(super) fn chroot(&self, program: &str) -> Invocation {
        let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
        long(Invocation::new("chroot")).arg(&self.0).arg(program).env("PATH", path)
    }
}

fn place_link(link: &Path, target: &Path) -> Result<()> {
    if target.symlink_metadata().is_ok() {
        fs::remove_file(target)?;
    }
    Ok(symlink(link, target)?)
}

/// Copies a file over whatever is there, with exactly this mode.
pub(super) fn place_file(source: &Path, target: &Path, mode: u32) -> Result<()> {
    if target.symlink_metadata().is_ok() {
        fs::remove_file(target)?;
    }
    fs::copy(source, target)
        .with_context(|| format!("copying {} to {}", source.display(), target.display()))?;
    Ok(fs::set_permissions(target, fs::Permissions::from_mode(mode))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_overlay_replaces_files_and_follows_the_bases_links_to_directories() {
        let directory = tempfile::tempdir().unwrap();
        let (base, over) = (directory.path().join("scratch"), directory.path().join("over"));
        let tree = Tree::empty(&base).unwrap();
        fs::create_dir_all(tree.path("usr/lib")).unwrap();
        symlink("usr/lib", tree.path("lib")).unwrap();
        symlink("/usr/lib", tree.path("absolute")).unwrap();
        fs::write(tree.path("usr/lib/unit"), "old").unwrap();
        fs::create_dir_all(over.join("lib")).unwrap();
        fs::write(over.join("lib/unit"), "new").unwrap();
        fs::set_permissions(over.join("lib/unit"), fs::Permissions::from_mode(0o600)).unwrap();
        fs::create_dir_all(over.join("absolute/further")).unwrap();
        fs::write(over.join("absolute/further/file"), "new").unwrap();
        tree.overlay(&over).unwrap();
        assert!(tree.path("usr/lib/further/file").is_file() && tree.path("absolute").is_symlink());
        assert_eq!(fs::read_to_string(tree.path("usr/lib/unit")).unwrap(), "new");
        assert_eq!(fs::metadata(tree.path("usr/lib/unit")).unwrap().permissions().mode() & 0o777, 0o644);
        assert!(tree.path("lib").is_symlink());
    }

    #[test]
    fn only_the_directory_dev_at_the_top_comes_out_empty() {
        let directory = tempfile::tempdir().unwrap();
        let module = "usr/lib/modules/6.1/kernel/drivers/net/can/dev/can-dev.ko";
        for name in ["dev/null", module] {
            fs::create_dir_all(directory.path().join("base").join(name).parent().unwrap()).unwrap();
            fs::write(directory.path().join("base").join(name), "x").unwrap();
        }
        let archive = directory.path().join("base.tar");
        let pack = Invocation::new("tar").args(["--create", "--file"]).arg(&archive).arg("--directory");
        SystemRunner.run(&pack.arg(directory.path().join("base")).arg(".")).unwrap();
        let tree = Tree::empty(directory.path()).unwrap();
        tree.extract(&archive, WITHOUT_DEVICES).unwrap();
        assert!(tree.path(module).is_file());
        assert!(tree.path("dev").is_dir() && !tree.path("dev/null").exists());
    }
}
