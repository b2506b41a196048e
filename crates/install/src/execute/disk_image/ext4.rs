//! An ext4 file system with the content of a directory, by programs of e2fsprogs that need no mount. The same content gives the same
//! bytes: files are put in in the order of their names, belong to root, and have the time that is given
//! (`E2FSPROGS_FAKE_TIME`, libext2fs).

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use nix::unistd::{Whence, lseek64};
use uuid::Uuid;

use crate::execute::disk::device::{self, BlockDevice, CHUNK_BYTES};
use crate::plan::{Filesystem, Partition};
use base::command::{Invocation, Runner};

/// For each program, with some GiB of images on a slow disk.
const LIMIT: Duration = Duration::from_secs(1800);

pub(super) struct Ext4Request<'a> {
    pub(super) filesystem: &'a Filesystem,
    pub(super) uuid: Uuid,
    /// What becomes its content.
    pub(super) directory: &'a Path,
    /// In seconds since 1970.
    pub(super) epoch: u64,
}

impl Ext4Request<'_> {
    /// Makes the file system in a file below `scratch`, reads it back, and writes it to the partition.
    pub(super) fn write(
        &self,
        runner: &dyn Runner,
        scratch: &Path,
        (device, partition): (&dyn BlockDevice, &Partition),
    ) -> Result<()> {
        let image = scratch.join(format!("{}.ext4", partition.name.as_str()));
        File::create_new(&image)?.set_len(partition.size.get())?;
        let identity = self.uuid.to_string();
        let make = Invocation::new("mkfs.ext4")
            .args(["-q", "-F", "-b", "4096", "-L", self.filesystem.label, "-U", &identity])
            .arg("-E")
            .arg(format!("lazy_itable_init=1,lazy_journal_init=1,hash_seed={identity},root_owner=0:0"));
        self.run(runner, make.arg(&image))?;
        let script = scratch.join("script");
        fs::write(&script, self.script()?)?;
        self.run(runner, Invocation::new("debugfs").args(["-w", "-f"]).arg(&script).arg(&image))?;
        self.run(runner, Invocation::new("e2fsck").args(["-f", "-n"]).arg(&image))?;
        // debugfs ends well whatever happens to one file.
        let back = scratch.join("read-back");
        fs::create_dir(&back)?;
        let dump = format!("rdump / {}", quoted(&back)?);
        self.run(runner, Invocation::new("debugfs").args(["-R", &dump]).arg(&image))?;
        same(self.directory, &back)?;
        remove(&back)?;
        copy(&File::open(&image)?, device, partition.start.get())?;
        Ok(fs::remove_file(&image)?)
    }

    fn run(&self, runner: &dyn Runner, program: Invocation) -> Result<()> {
        let program = program.env("E2FSPROGS_FAKE_TIME", self.epoch.to_string()).limit(LIMIT);
        runner.run(&program).map(drop)
    }

    /// What debugfs does to put everything in.
    fn script(&self) -> Result<String> {
        let mut script = String::new();
        let mode = fs::metadata(self.directory)?.permissions().mode();
        writeln!(script, "set_inode_field / mode 0{:o}", mode & 0o7777 | 0o040_000)?;
        self.directory(self.directory, "/", &mut script)?;
        Ok(script)
    }

    fn directory(&self, from: &Path, to: &str, script: &mut String) -> Result<()> {
        let mut entries = fs::read_dir(from)?.collect::<io::Result<Vec<_>>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let (path, kind) = (entry.path(), entry.file_type()?);
            let name = entry.file_name().into_string().ok().context("a name is no UTF-8")?;
            let target = format!("{}/{name}", to.trim_end_matches('/'));
            let quoted_target = quoted(Path::new(&target))?;
            writeln!(script, "cd {}", quoted(Path::new(to))?)?;
            if kind.is_dir() {
                let mode = entry.metadata()?.permissions().mode() & 0o7777;
                writeln!(script, "mkdir {quoted_target}")?;
                writeln!(script, "set_inode_field {quoted_target} mode 0{:o}", mode | 0o040_000)?;
                self.directory(&path, &target, script)?;
            } else if kind.is_file() {
                writeln!(script, "write {} {}", quoted(&path)?, quoted(Path::new(&name))?)?;
                for owner in ["uid", "gid"] {
                    writeln!(script, "set_inode_field {quoted_target} {owner} 0")?;
                }
            } else {
                bail!("{} is neither a file nor a directory", path.display());
            }
        }
        Ok(())
    }
}

/// A word for debugfs, which splits its commands at spaces.
fn quoted(path: &Path) -> Result<String> {
    let text = path.to_str().filter(|text| !text.contains(['"', '\n', '\\']));
    let text =
        text.with_context(|| format!("{} has characters that debugfs does not take", path.display()))?;
    Ok(format!("\"{text}\""))
}

/// Fails unless everything in `expected` is in `found` too, with the same bytes and modes.
fn same(expected: &Path, found: &Path) -> Result<()> {
    for entry in fs::read_dir(expected)? {
        let entry = entry?;
        let (path, other) = (entry.path(), found.join(entry.file_name()));
        let lacks = || format!("{} is not in the file system as it should be", path.display());
        let (metadata, read) = (entry.metadata()?, fs::symlink_metadata(&other).with_context(lacks)?);
        ensure!(
            metadata.file_type() == read.file_type() && metadata.mode_bits() == read.mode_bits(),
            lacks()
        );
        if metadata.is_dir() {
            same(&path, &other)?;
        } else {
            ensure!(equal(&File::open(&path)?, &File::open(&other)?)?, lacks());
        }
    }
    Ok(())
}

trait ModeBits {
    fn mode_bits(&self) -> u32;
}

impl ModeBits for fs::Metadata {
    fn mode_bits(&self) -> u32 {
        self.permissions().mode() & 0o7777
    }
}

fn equal(one: &File, other: &File) -> Result<bool> {
    let length = one.metadata()?.len();
    if other.metadata()?.len() != length {
        return Ok(false);
    }
    let (mut mine, mut theirs) = (vec![0; CHUNK_BYTES], vec![0; CHUNK_BYTES]);
    for at in (0..length).step_by(CHUNK_BYTES) {
        let count = usize::try_from(length - at).unwrap_or(usize::MAX).min(CHUNK_BYTES);
        one.read_exact_at(&mut mine[..count], at)?;
        other.read_exact_at(&mut theirs[..count], at)?;
        if mine[..count] != theirs[..count] {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Removes a tree, whatever the modes of its directories are.
fn remove(tree: &Path) -> Result<()> {
    let mut directories: Vec<PathBuf> = vec![tree.to_owned()];
    while let Some(directory) = directories.pop() {
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o700))?;
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            if entry.file_type()?.is_dir() {
                directories.push(entry.path());
            }
        }
    }
    fs::remove_dir_all(tree).with_context(|| format!("removing {}", tree.display()))
}

/// Writes what a sparse file has to the disk from byte `start` on.
fn copy(image: &File, device: &dyn BlockDevice, start: u64) -> Result<()> {
    let length = i64::try_from(image.metadata()?.len())?;
    let mut buffer = vec![0; CHUNK_BYTES];
    let mut at = 0;
    while at < length {
        at = match lseek64(image, at, Whence::SeekData) {
            Ok(data) => data,
            Err(nix::errno::Errno::ENXIO) => break,
            Err(error) => return Err(error).context("looking for data"),
        };
        let end = lseek64(image, at, Whence::SeekHole).context("looking for the end of data")?;
        while at < end {
            let count = usize::try_from(end - at)?.min(CHUNK_BYTES);
            image.read_exact_at(&mut buffer[..count], u64::try_from(at)?)?;
            device::write(device, start + u64::try_from(at)?, &buffer[..count])?;
            at += i64::try_from(count)?;
        }
    }
    Ok(())
}
