//! Packs a directory that is a root file system, without copying it.

use std::ffi::{OsStr, OsString};
use std::fs::{self, File, Metadata};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use base::command::{Invocation, Runner, SystemRunner};
use base::digest::Digest;
use base::failure::{Class, Failure};
use base::files;
use walkdir::{DirEntry, WalkDir};

use super::super::limit::long;

/// The user id that the kernel shows for an owner outside the user namespace.
const NOBODY: u32 = 65534;

/// Directories whose content belongs to a running system.
const OF_THE_KERNEL: [&str; 3] = ["dev", "proc", "sys"];

/// Files that make systemd believe that it runs in a container; they are in exports of containers.
const CONTAINER_MARKS: [&str; 2] = [".dockerenv", "run/.containerenv"];

/// True if the base includes the path: relative, without a leading `.`.
pub(super) fn is_wanted(path: &Path) -> bool {
    !OF_THE_KERNEL.iter().any(|directory| path.starts_with(directory) && path != Path::new(directory))
        && !CONTAINER_MARKS.iter().any(|mark| path == Path::new(mark))
}

/// Whose owners the files of a directory have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::steps) enum TreeOwners {
    /// Those of the sandbox, which has made it.
    Sandbox,
    /// Those of the host. In a user namespace some of them look like nobody.
    Host,
}

/// Packs the directory: sorted, every time `epoch`.
///
/// # Errors
/// [`Class::Invalid`] if a file has an owner of the host that cannot be told.
pub(in crate::steps) fn pack(
    directory: &Path,
    owners: TreeOwners,
    scratch: &Path,
    archive: &Path,
    epoch: u64,
) -> Result<()> {
    let list = list(directory, owners == TreeOwners::Host && foreign_owners()?, scratch)?;
    let tar =
        long(Invocation::new("tar")).args(options(directory, scratch, &list, archive.as_os_str(), epoch)?);
    SystemRunner.run(&tar).with_context(|| format!("packing {}", directory.display()))?;
    Ok(())
}

/// The digest of the archive that [`pack`] would write of a directory of the host.
pub(super) fn digest(directory: &Path, scratch: &Path) -> Result<Digest> {
    let list = list(directory, foreign_owners()?, scratch)?;
    let told = scratch.join("told");
    let mut tar = Command::new("tar")
        .args(options(directory, scratch, &list, OsStr::new("-"), 0)?)
        .env("LC_ALL", "C.UTF-8")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(File::create(&told)?)
        .spawn()
        .context("starting tar")?;
    let digest = Digest::of_reader(tar.stdout.take().context("reading from tar")?)?.0;
    if !tar.wait()?.success() {
        let told = String::from_utf8_lossy(&fs::read(&told)?).trim().to_owned();
        return Err(anyhow::anyhow!(told).context(format!("reading {}", directory.display())));
    }
    Ok(digest)
}

fn options(
    directory: &Path,
    scratch: &Path,
    list: &Path,
    archive: &OsStr,
    epoch: u64,
) -> Result<Vec<OsString>> {
    // The archive's `/`, whatever the directory's own owner and mode are (a temporary directory has 0700).
    let root = scratch.join("root");
    files::make_directory(&root, 0o755)?;
    let fixed = [
        "--create",
        "--numeric-owner",
        "--format=posix",
        "--xattrs",
        "--xattrs-include=*",
        "--pax-option=exthdr.name=%d/PaxHeaders/%f,delete=atime,delete=ctime",
        "--no-recursion",
        "--null",
        "--verbatim-files-from",
    ];
    let mut options: Vec<OsString> = fixed.into_iter().map(Into::into).collect();
    options.push(format!("--mtime=@{epoch}").into());
    for (option, value) in [
        ("--file", archive),
        ("--directory", root.as_os_str()),
        ("--add-file", OsStr::new(".")),
        ("--directory", directory.as_os_str()),
        ("--files-from", list.as_os_str()),
    ] {
        options.extend([option.into(), value.to_owned()]);
    }
    Ok(options)
}

/// The time of the newest regular file that belongs to the base, in seconds since 1970; 0 without any.
pub(super) fn newest(directory: &Path) -> Result<u64> {
    let mut newest = 0;
    for entry in walk(directory) {
        let metadata = entry?.metadata()?;
        if metadata.is_file() {
            newest = newest.max(u64::try_from(metadata.mtime()).unwrap_or(0));
        }
    }
    Ok(newest)
}

/// What belongs to the base, sorted.
fn walk(directory: &Path) -> impl Iterator<Item = Result<DirEntry>> {
    let walk = WalkDir::new(directory).min_depth(1).sort_by_file_name().into_iter();
    // Such a directory is not even entered: a mounted /proc has no end.
    let walk = walk.filter_entry(move |entry| {
        entry.path().strip_prefix(directory).is_ok_and(|path| path.as_os_str().is_empty() || is_wanted(path))
    });
    walk.map(move |entry| entry.map_err(|error| refused(directory, error.into())))
}

/// Writes the sorted list of the paths that belong to the base, for tar; refuses nobody's files where that can be any owner.
fn list(directory: &Path, nobody_is_unknown: bool, scratch: &Path) -> Result<std::path::PathBuf> {
    let file = scratch.join("list");
    let mut names = std::io::BufWriter::new(File::create(&file)?);
    for entry in walk(directory) {
        let entry = entry?;
        let metadata = entry.metadata()?;
        let kind = metadata.file_type();
        if kind.is_block_device() || kind.is_char_device() || kind.is_socket() {
            continue;
        }
        if nobody_is_unknown && is_nobodys(&metadata) {
            let path = entry.path().display();
            return Err(refused(
                directory,
                anyhow::anyhow!("{path} has an owner outside this user's range of subordinate ids"),
            ));
        }
        names.write_all(b"./")?;
        names.write_all(entry.path().strip_prefix(directory)?.as_os_str().as_bytes())?;
        names.write_all(b"\0")?;
    }
    names.flush()?;
    Ok(file)
}

fn is_nobodys(metadata: &Metadata) -> bool {
    metadata.uid() == NOBODY || metadata.gid() == NOBODY
}

fn refused(directory: &Path, error: anyhow::Error) -> anyhow::Error {
    Failure::new(Class::Invalid, format!("{} cannot be read with its owners", directory.display()))
        .because(error)
        .hint(
            "Build as root; or let root make an archive of it, with `tar --create --numeric-owner --xattrs \
             --xattrs-include='*' --file base.tar --directory DIRECTORY .`, and name that in base.archive.",
        )
        .into()
}

/// True if this process runs in a user namespace and therefore sees some owners as nobody.
fn foreign_owners() -> Result<bool> {
    let map = files::read_text(Path::new("/proc/self/uid_map"))?;
    Ok(map.split_whitespace().collect::<Vec<_>>() != ["0", "0", "4294967295"])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_file_counts_and_nothing_that_is_left_out() {
        let directory = tempfile::tempdir().unwrap();
        for (name, time) in [("usr/a", 1_700_000_000), ("usr/b", 1_600_000_000), ("dev/null", 1_800_000_000)]
        {
            let path = directory.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            let file = File::create(path).unwrap();
            file.set_modified(std::time::UNIX_EPOCH + std::time::Duration::from_secs(time)).unwrap();
        }
        assert_eq!(newest(directory.path()).unwrap(), 1_700_000_000);
    }

    #[test]
    fn nobodys_files_are_refused_only_where_that_can_be_any_owner() {
        if !testing::privileges::root_runs() {
            return testing::programs::leave_out("files of nobody", "only root can give files away");
        }
        let [tree, scratch] = [(); 2].map(|()| tempfile::tempdir().unwrap());
        let file = tree.path().join("usr");
        fs::write(&file, "x").unwrap();
        std::os::unix::fs::chown(&file, None, Some(NOBODY)).unwrap();
        let told = list(tree.path(), true, scratch.path()).unwrap_err();
        assert!(base::failure::render(&told).contains("cannot be read with its owners"));
        // Packages such as nfs-common have files of the group nogroup.
        let list = list(tree.path(), false, scratch.path()).unwrap();
        assert_eq!(fs::read_to_string(list).unwrap(), "./usr\0");
    }

    #[test]
    fn only_the_top_of_the_tree_has_directories_of_the_kernel() {
        for path in ["dev", "proc", "usr/lib/modules/6.1/kernel/drivers/net/can/dev/can-dev.ko", "devices/x"]
        {
            assert!(is_wanted(Path::new(path)), "{path}");
        }
        for path in ["dev/null", "proc/1/environ", "sys/kernel", ".dockerenv", "run/.containerenv"] {
            assert!(!is_wanted(Path::new(path)), "{path}");
        }
    }
}
