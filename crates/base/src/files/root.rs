//! Writing below a directory that stands for `/`, on a node on which users run programs of their own.
//!
//! Root writes into directories of users, and a user may swap directories and links at any moment. So every directory on
//! the way to a file is opened in the one above it ([`Directory`]), and stays open until the file is in place.
//!
//! - A link on the way is followed only where nobody but root can have made it: it belongs to root, and so does every
//!   directory through which it was reached, and none of them can others write to. Distributions have such links
//!   (`/var/run`, `/var/lock`, `/bin`), and so may an administrator who moved `/var/lib/rancher` to another disk. They
//!   are resolved below the root too. Any other link is an error that names it.
//! - What has the name of the file itself is replaced and never followed, read as something else, or written to: a link, a
//!   hard link, a FIFO. Only a directory is left alone.
//! - Below the home of a user, files and directories that are made belong to that user unless the caller says otherwise,
//!   and in directories of that user they are made with that user's rights.
//!
//! `installer apply`, the boot, trials of networks and the live system's network write through this.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::fs::File;
use std::io::{self, Write};
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use nix::errno::Errno;

use super::acting::BorrowedIdentity;
use super::directory::{Attributes, Directory, EntryKind, Status, root_runs};
use super::owner::Owner;

/// The most symbolic links on the way to one file, as in the kernel, path_resolution(7).
const LINKS: usize = 40;
/// The most steps of one path resolution. More are only needed if someone keeps changing the path.
const STEPS: usize = 4096;
/// The mode of directories that are missing.
const DIRECTORY: u32 = 0o755;
/// The mode of a home that is missing.
const HOME: u32 = 0o700;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserHome {
    /// Absolute.
    pub path: PathBuf,
    /// The user, and the user's own group.
    pub owner: Owner,
}

/// The directory that stands for `/`.
#[derive(Debug)]
pub struct Root {
    base: Directory,
    homes: Vec<UserHome>,
}

/// The handling of a missing directory on the path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MissingDirectory {
    Leave,
    Make,
}

/// A directory, and the links that were followed to it.
struct ResolvedDirectory {
    /// From the root, without links.
    path: PathBuf,
    /// None for the root itself.
    directory: Option<Directory>,
}

/// A name that is still to be resolved.
struct PathStep {
    name: OsString,
    /// The number of names of the caller's path up to here; none for a name from a link.
    written: Option<usize>,
}

impl Root {
    pub fn open(path: &Path) -> Result<Self> {
        let base = Directory::open(path).with_context(|| format!("opening {}", path.display()))?;
        Ok(Self { base, homes: Vec::new() })
    }

    /// The same with homes, whose users the files below them belong to.
    #[must_use]
    pub fn with_homes(self, homes: Vec<UserHome>) -> Self {
        Self { homes, ..self }
    }

    /// Writes a file unless it is there already, with this content and these attributes, and says whether it wrote.
    /// Directories that are missing are made. Without an owner the file belongs to the user whose home it is in, else to
    /// whoever runs this program.
    pub fn write(&self, path: impl AsRef<Path>, bytes: &[u8], attributes: Attributes) -> Result<bool> {
        let at = Target::new(path.as_ref())?;
        let Some(reached) = self.reach(&at, MissingDirectory::Make)? else { bail!("{at} has no directory") };
        let directory = self.directory(&reached);
        let owner = attributes.owner.or_else(|| self.home(&at.names).map(|home| home.owner));
        let owner = owner.or_else(|| root_runs().then_some(Owner::ROOT));
        let attributes = Attributes { owner, ..attributes };
        let failed = |error| at.failed("writing", directory, error);
        if directory.holds(at.name(), bytes, &attributes).map_err(failed)? {
            return Ok(false);
        }
        let fill = |file: &mut File| file.write_all(bytes);
        directory.replace(at.name(), &attributes, fill).and_then(|()| directory.sync()).map_err(failed)?;
        Ok(true)
    }

    /// Makes a symbolic link unless it is there already, and says whether it made one. `target` need not be there.
    pub fn link(&self, path: impl AsRef<Path>, target: &Path) -> Result<bool> {
        let at = Target::new(path.as_ref())?;
        let Some(reached) = self.reach(&at, MissingDirectory::Make)? else { bail!("{at} has no directory") };
        let directory = self.directory(&reached);
        let failed = |error| at.failed("making the link", directory, error);
        let there = directory.entry(at.name()).map_err(failed)?;
        let link = there.is_some_and(|status| status.kind == EntryKind::Link);
        if link && directory.read_link(at.name()).is_ok_and(|there| there == target) {
            return Ok(false);
        }
        let owner = root_runs().then_some(Owner::ROOT);
        directory.link(at.name(), target, owner).and_then(|()| directory.sync()).map_err(failed)?;
        Ok(true)
    }

    /// Removes a file or link, and says whether there was one.
    pub fn remove(&self, path: impl AsRef<Path>) -> Result<bool> {
        let at = Target::new(path.as_ref())?;
        let Some(reached) = self.reach(&at, MissingDirectory::Leave)? else { return Ok(false) };
        let directory = self.directory(&reached);
        let failed = |error| at.failed("removing", directory, error);
        let removed = directory.remove(at.name()).map_err(failed)?;
        directory.sync().map_err(failed).map(|()| removed)
    }

    /// Opens a file to lock it. It is made if it is missing, for its owner alone, and has no content.
    pub fn lock_file(&self, path: impl AsRef<Path>) -> Result<File> {
        let at = Target::new(path.as_ref())?;
        let Some(reached) = self.reach(&at, MissingDirectory::Make)? else { bail!("{at} has no directory") };
        let directory = self.directory(&reached);
        directory.lock_file(at.name()).map_err(|error| at.failed("opening", directory, error))
    }

    /// The status of `path`, which is not followed itself; none if it does not exist.
    pub fn status(&self, path: impl AsRef<Path>) -> Result<Option<Status>> {
        let at = Target::new(path.as_ref())?;
        let Some(reached) = self.reach(&at, MissingDirectory::Leave)? else { return Ok(None) };
        let directory = self.directory(&reached);
        directory.entry(at.name()).map_err(|error| at.failed("reading", directory, error))
    }

    /// Makes the directory `path` unless it is there, those above it too. Returns its path from the root without links.
    pub fn make_directory(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        let at = Target::new(path.as_ref())?;
        let reached = self.walk(&at, at.names.len(), MissingDirectory::Make)?;
        Ok(reached.map(|reached| reached.path).unwrap_or(at.names.iter().collect()))
    }

    fn directory<'a>(&'a self, reached: &'a ResolvedDirectory) -> &'a Directory {
        reached.directory.as_ref().unwrap_or(&self.base)
    }

    /// The home that these names lead into, the innermost where there are several.
    fn home(&self, names: &[OsString]) -> Option<&UserHome> {
        let path: PathBuf =
            std::iter::once(OsStr::new("/")).chain(names.iter().map(|name| &**name)).collect();
        let homes = self.homes.iter().filter(|home| path.starts_with(&home.path));
        homes.max_by_key(|home| home.path.components().count())
    }

    fn reach(&self, at: &Target<'_>, missing: MissingDirectory) -> Result<Option<ResolvedDirectory>> {
        self.walk(at, at.names.len() - 1, missing)
    }

    /// The directory of the first `count` names of `at`; none where one is missing.
    fn walk(
        &self,
        at: &Target<'_>,
        count: usize,
        missing: MissingDirectory,
    ) -> Result<Option<ResolvedDirectory>> {
        let mut way: Vec<(OsString, Directory)> = Vec::new();
        let mut links = 0;
        let names = at.names.iter().take(count).zip(1..);
        let mut steps: VecDeque<PathStep> =
            names.map(|(name, written)| PathStep { name: name.clone(), written: Some(written) }).collect();
        for _ in 0..STEPS {
            let Some(step) = steps.pop_front() else {
                let path = way.iter().map(|(name, _)| name).collect();
                return Ok(Some(ResolvedDirectory {
                    path,
                    directory: way.pop().map(|(_, directory)| directory),
                }));
            };
            if step.name == ".." {
                way.pop();
                continue;
            }
            let above = way.last().map_or(&self.base, |(_, directory)| directory);
            let here = PathPrefix { way: &way, name: &step.name };
            let error = match above.child(&step.name) {
                Ok(child) => {
                    way.push((step.name, child));
                    continue;
                }
                Err(error) => error,
            };
            match errno(&error) {
                // The entry was replaced between the check and the open: check again.
                Some(Errno::EAGAIN | Errno::EINTR) => steps.push_front(step),
                Some(Errno::ENOENT) => match (missing, step.written) {
                    (MissingDirectory::Leave, _) => return Ok(None),
                    (MissingDirectory::Make, None) => {
                        bail!(
                            "{here}, to which a link leads, is missing: make it, or choose another path than {at}"
                        )
                    }
                    (MissingDirectory::Make, Some(written)) => {
                        self.make(above, &at.names[..written])
                            .with_context(|| format!("making the directory {here}"))?;
                        steps.push_front(step);
                    }
                },
                Some(Errno::ELOOP | Errno::ENOTDIR) => {
                    let there = above.entry(&step.name).with_context(|| format!("reading {here}"))?;
                    match there {
                        Some(link) if link.kind == EntryKind::Link => {
                            refuse_link(above, link, &here)?;
                            links += 1;
                            if links > LINKS {
                                bail!(
                                    "{here} is one of more than {LINKS} links on the way: replace it by a directory"
                                );
                            }
                            let target =
                                above.read_link(&step.name).with_context(|| format!("reading {here}"))?;
                            if target.is_absolute() {
                                way.clear();
                            }
                            names_of_link(&target).rev().for_each(|step| steps.push_front(step));
                        }
                        Some(other) if other.kind != EntryKind::Directory => {
                            let kind = other.kind.words();
                            bail!("{here} is {kind}, not a directory: move it away, or choose another path")
                        }
                        _ => steps.push_front(step),
                    }
                }
                Some(Errno::EXDEV) => bail!(
                    "{here} is another file system, mounted in a directory of {}: unmount it, or choose another path",
                    user(above.status())
                ),
                _ => return Err(error).with_context(|| format!("opening {here}")),
            }
        }
        bail!("the directories above {at} keep changing")
    }

    /// Makes the last of `names` in `above`. In the home of a user it belongs to that user.
    fn make(&self, above: &Directory, names: &[OsString]) -> io::Result<()> {
        let Some(name) = names.last() else { return Ok(()) };
        let home = self.home(names);
        let itself = home.is_some_and(|home| home.path.components().count() == names.len() + 1);
        let mode = if itself { HOME } else { DIRECTORY };
        let owner = home.map(|home| home.owner).filter(|_| root_runs());
        let private = above.status().is_private();
        // Other users may replace it before it is opened again, so only the rights of the user who will own it are used.
        // A directory of root stays as it was made.
        let _acting = owner.filter(|_| !private).map(BorrowedIdentity::like).transpose()?;
        match above.make(name, mode) {
            Err(error) if errno(&error) == Some(Errno::EEXIST) => return Ok(()),
            made => made?,
        }
        if private || owner.is_some() {
            let owner = owner.or_else(|| root_runs().then_some(Owner::ROOT));
            above.child(name)?.set(&Attributes { mode, owner })?;
        }
        Ok(())
    }
}

/// A link is followed where only root can have made it.
fn refuse_link(above: &Directory, link: Status, here: &PathPrefix<'_>) -> Result<()> {
    if !link.is_ours() {
        bail!("{here} is a link of {}, which is not followed: replace it by a directory", user(link));
    }
    if !above.is_trusted() {
        bail!(
            "{here} is a link in a directory that {} can change, which is not followed: replace it by a directory",
            if above.status().is_private() { "another user".to_owned() } else { user(above.status()) }
        );
    }
    Ok(())
}

fn user(status: Status) -> String {
    match status.owner.user {
        0 => "users other than root".to_owned(),
        user => format!("user {user}"),
    }
}

/// The names that a link leads through, `..` among them.
fn names_of_link(target: &Path) -> impl DoubleEndedIterator<Item = PathStep> {
    target.components().filter_map(|component| match component {
        Component::Normal(name) => Some(PathStep { name: name.to_owned(), written: None }),
        Component::ParentDir => Some(PathStep { name: "..".into(), written: None }),
        Component::CurDir | Component::RootDir | Component::Prefix(_) => None,
    })
}

fn errno(error: &io::Error) -> Option<Errno> {
    error.raw_os_error().map(Errno::from_raw)
}

/// A path as the caller names it.
struct Target<'a> {
    path: &'a Path,
    /// At least one.
    names: Vec<OsString>,
}

impl<'a> Target<'a> {
    /// `path` with or without a slash in front.
    fn new(path: &'a Path) -> Result<Self> {
        let names = path.components().filter(|component| *component != Component::RootDir);
        let name = |component| match component {
            Component::Normal(name) => Some(name.to_owned()),
            _ => None,
        };
        let names: Option<Vec<OsString>> = names.map(name).collect();
        let names = names.filter(|names| !names.is_empty());
        let names = names.ok_or_else(|| anyhow!("{} names no file below the root", path.display()))?;
        Ok(Self { path, names })
    }

    fn name(&self) -> &OsStr {
        self.names.last().map(|name| &**name).unwrap_or_default()
    }

    /// The error of `doing` something to the file in `directory`: where a directory or a mount has its name, that.
    fn failed(&self, doing: &str, directory: &Directory, error: io::Error) -> anyhow::Error {
        let blocked = matches!(errno(&error), Some(Errno::EISDIR | Errno::EEXIST | Errno::ENOTEMPTY));
        let there = if blocked { directory.entry(self.name()).ok().flatten() } else { None };
        match (there, errno(&error)) {
            (Some(there), _) if there.kind == EntryKind::Directory => {
                anyhow!("{self} is a directory: move it away, or choose another path")
            }
            (_, Some(Errno::EXDEV | Errno::EBUSY)) => {
                anyhow!(
                    "{self} is a file system of its own, mounted there: unmount it, or choose another path"
                )
            }
            _ => anyhow::Error::from(error).context(format!("{doing} {self}")),
        }
    }
}

impl fmt::Display for Target<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}", self.path.strip_prefix("/").unwrap_or(self.path).display())
    }
}

/// The resolved part of a path, for messages.
struct PathPrefix<'a> {
    way: &'a [(OsString, Directory)],
    name: &'a OsStr,
}

impl fmt::Display for PathPrefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.way.iter().try_for_each(|(name, _)| write!(f, "/{}", name.display()))?;
        write!(f, "/{}", self.name.display())
    }
}

#[cfg(test)]
mod tests;
