//! One directory, held by a descriptor, and the files right in it.
//!
//! A path is resolved anew at every use, and anyone who may write to a directory on it can have replaced a part by a link. A
//! descriptor stays with its directory. Names given here are single names, never paths; links under them are never followed, and
//! what takes the place of a file was finished under a name of its own first: content, owner, mode, in that order, as a
//! change of the owner takes the set-user-id bits away.
//!
//! [`super::write_atomically`] and [`super::Root`] are the callers; so is the copying of trees from the image.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, fchown};
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, OpenHow, ResolveFlag, open, openat, openat2, readlinkat, renameat};
use nix::sys::stat::{Mode, SFlag, fchmod, mkdirat};
use nix::unistd::{Gid, Uid, UnlinkatFlags, fchownat, symlinkat, unlinkat};
use uuid::Uuid;

use super::acting::BorrowedIdentity;
use super::owner::Owner;

/// The permission bits of a mode, including set-user-id and sticky.
const PERMISSIONS: u32 = 0o7777;
/// The bits of a mode with which users other than the owner can change a directory. The mask of an access control list
/// shows as the bits of the group, acl(5).
const OTHERS_WRITE: u32 = 0o022;

/// Mode and owner of a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Permission bits, set explicitly: the umask of the caller may be stricter.
    pub mode: u32,
    /// `None`: the user of this process. Only root can give files to other users; for all others the field has no
    /// effect.
    pub owner: Option<Owner>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EntryKind {
    File,
    Directory,
    Link,
    /// Anything else, in words: `a FIFO`.
    Special(&'static str),
}

impl EntryKind {
    #[must_use]
    pub fn words(self) -> &'static str {
        match self {
            Self::File => "a file",
            Self::Directory => "a directory",
            Self::Link => "a link",
            Self::Special(words) => words,
        }
    }
}

/// The metadata of a file, directory or link, which is not followed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    pub kind: EntryKind,
    /// Permission bits.
    pub mode: u32,
    pub owner: Owner,
    /// In bytes.
    pub length: u64,
}

impl Status {
    fn of(file: &File) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let kind = match SFlag::from_bits_truncate(metadata.mode()) & SFlag::S_IFMT {
            SFlag::S_IFREG => EntryKind::File,
            SFlag::S_IFDIR => EntryKind::Directory,
            SFlag::S_IFLNK => EntryKind::Link,
            SFlag::S_IFIFO => EntryKind::Special("a FIFO"),
            SFlag::S_IFSOCK => EntryKind::Special("a socket"),
            _ => EntryKind::Special("a device"),
        };
        Ok(Self {
            kind,
            mode: metadata.mode() & PERMISSIONS,
            owner: Owner { user: metadata.uid(), group: metadata.gid() },
            length: metadata.len(),
        })
    }

    /// True if it belongs to root or to the user of this process.
    #[must_use]
    pub fn is_ours(&self) -> bool {
        self.owner.user == 0 || self.owner.user == Uid::effective().as_raw()
    }

    /// True if only root and the user of this process can change this directory.
    #[must_use]
    pub fn is_private(&self) -> bool {
        self.is_ours() && self.mode & OTHERS_WRITE == 0
    }

    fn has(&self, attributes: &Attributes) -> bool {
        let owner = attributes.owner.filter(|_| root_runs());
        self.mode == attributes.mode && owner.is_none_or(|owner| owner == self.owner)
    }
}

/// True if this program may give files to others.
pub fn root_runs() -> bool {
    Uid::effective().is_root()
}

#[derive(Debug)]
pub struct Directory {
    descriptor: OwnedFd,
    status: Status,
    trusted: bool,
}

impl Directory {
    /// Opens the directory at `path` and follows links: the caller trusts the path.
    pub fn open(path: &Path) -> io::Result<Self> {
        let flags = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Self::new(open(path, flags, Mode::empty())?, true)
    }

    fn new(descriptor: OwnedFd, above: bool) -> io::Result<Self> {
        let file = File::from(descriptor);
        let status = Status::of(&file)?;
        let trusted = above && status.is_private();
        Ok(Self { descriptor: file.into(), status, trusted })
    }

    /// Opens the directory `name` in this one. A link is refused ([`Errno::ELOOP`] or [`Errno::ENOTDIR`]), and so is, in a
    /// directory that is not [trusted](Self::is_trusted), what is mounted there ([`Errno::EXDEV`]): a user can mount a file
    /// system of its own, on which the kernel waits for that user.
    pub fn child(&self, name: &OsStr) -> io::Result<Self> {
        let descriptor = self.look_up(name, OFlag::O_PATH | OFlag::O_DIRECTORY)?;
        Self::new(descriptor, self.trusted)
    }

    fn look_up(&self, name: &OsStr, flags: OFlag) -> nix::Result<OwnedFd> {
        let mut resolve = ResolveFlag::RESOLVE_BENEATH
            | ResolveFlag::RESOLVE_NO_SYMLINKS
            | ResolveFlag::RESOLVE_NO_MAGICLINKS;
        if !self.trusted {
            resolve |= ResolveFlag::RESOLVE_NO_XDEV;
        }
        let how = OpenHow::new().flags(flags | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC).resolve(resolve);
        openat2(&self.descriptor, name, how)
    }

    /// True if only root and the user of this process can change what is in this directory, or could have moved it
    /// here: that holds for every directory through which it was reached, too.
    #[must_use]
    pub fn is_trusted(&self) -> bool {
        self.trusted
    }

    /// The metadata from when the directory was opened.
    #[must_use]
    pub fn status(&self) -> Status {
        self.status
    }

    /// The metadata of the entry `name`; none if it is missing.
    pub fn entry(&self, name: &OsStr) -> io::Result<Option<Status>> {
        match self.look_up(name, OFlag::O_PATH) {
            Ok(descriptor) => Status::of(&File::from(descriptor)).map(Some),
            Err(Errno::ENOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    pub fn read_link(&self, name: &OsStr) -> io::Result<PathBuf> {
        Ok(readlinkat(&self.descriptor, name)?.into())
    }

    /// True if a regular file of this name has this content and these attributes.
    pub fn holds(&self, name: &OsStr, bytes: &[u8], attributes: &Attributes) -> io::Result<bool> {
        let fits = |status: Status| {
            status.kind == EntryKind::File && status.length == bytes.len() as u64 && status.has(attributes)
        };
        if !self.entry(name)?.is_some_and(fits) {
            return Ok(false);
        }
        // The entry may have been replaced meanwhile: a FIFO must not block this, nor a link be followed.
        let Ok(descriptor) = self.look_up(name, OFlag::O_RDONLY | OFlag::O_NONBLOCK | OFlag::O_NOCTTY) else {
            return Ok(false);
        };
        let file = File::from(descriptor);
        if !fits(Status::of(&file)?) {
            return Ok(false);
        }
        let mut there = Vec::with_capacity(bytes.len());
        file.take(bytes.len() as u64 + 1).read_to_end(&mut there)?;
        Ok(there == bytes)
    }

    /// Puts a file in the place of whatever has this name, a directory excepted. A reader, or a machine that loses power,
    /// sees the old one or the new, never a mixture; after [`Self::sync`] the new one. `fill` writes its content.
    pub fn replace(
        &self,
        name: &OsStr,
        attributes: &Attributes,
        fill: impl FnOnce(&mut File) -> io::Result<()>,
    ) -> io::Result<()> {
        let _acting = self.acting(attributes.owner)?;
        let flags = OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        // No other user may open it before it has its owner: such a descriptor would stay writable.
        let create = |name: &str| openat(&self.descriptor, name, flags, Mode::S_IRUSR | Mode::S_IWUSR);
        let (temporary, descriptor) = self.temporary(create)?;
        let mut file = File::from(descriptor);
        fill(&mut file)?;
        set(&file, attributes)?;
        file.sync_all()?;
        temporary.rename(name)
    }

    /// Puts a link to `target` in the place of whatever has this name, a directory excepted.
    pub fn link(&self, name: &OsStr, target: &Path, owner: Option<Owner>) -> io::Result<()> {
        let (temporary, ()) = self.temporary(|name| symlinkat(target, &self.descriptor, name))?;
        if let Some(owner) = owner.filter(|_| root_runs()) {
            let link = self.look_up(OsStr::new(&temporary.name), OFlag::O_PATH)?;
            own(&link, owner)?;
        }
        temporary.rename(name)
    }

    /// Removes a file or link, with the rights of the directory's owner where that is a user, and says whether there was
    /// one.
    pub fn remove(&self, name: &OsStr) -> io::Result<bool> {
        let _acting = self.acting(Some(self.status.owner))?;
        match unlinkat(&self.descriptor, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) => Ok(true),
            Err(Errno::ENOENT) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Opens a file to lock it. It is made if it is missing, for its owner alone, and has no content.
    pub fn lock_file(&self, name: &OsStr) -> io::Result<File> {
        let flags =
            OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        Ok(openat(&self.descriptor, name, flags, Mode::S_IRUSR | Mode::S_IWUSR)?.into())
    }

    /// Makes a directory. Its mode is subject to the umask.
    pub fn make(&self, name: &OsStr, mode: u32) -> io::Result<()> {
        Ok(mkdirat(&self.descriptor, name, Mode::from_bits_truncate(mode))?)
    }

    pub fn set(&self, attributes: &Attributes) -> io::Result<()> {
        set(&self.readable()?, attributes)
    }

    /// Writes the names in this directory to its disk.
    pub fn sync(&self) -> io::Result<()> {
        self.readable()?.sync_all()
    }

    /// The directory open for what a bare handle (`O_PATH`) does not do.
    fn readable(&self) -> io::Result<File> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        Ok(openat(&self.descriptor, ".", flags, Mode::empty())?.into())
    }

    /// The identity with which `owner`'s files are changed in this directory: its own, where the directory is its own.
    /// Everywhere else root acts.
    fn acting(&self, owner: Option<Owner>) -> io::Result<Option<BorrowedIdentity>> {
        let user =
            owner.filter(|owner| owner.user != 0 && owner.user == self.status.owner.user && root_runs());
        user.map(BorrowedIdentity::like).transpose()
    }

    /// Makes a file, directory or link under a name that is not in use and cannot be predicted.
    fn temporary<T>(&self, make: impl Fn(&str) -> nix::Result<T>) -> io::Result<(TemporaryEntry<'_>, T)> {
        loop {
            let name = format!(".nqrust.{}.new", Uuid::new_v4().simple());
            match make(&name) {
                Ok(made) => return Ok((TemporaryEntry { directory: self, name, placed: false }, made)),
                Err(Errno::EEXIST) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn set(file: &File, attributes: &Attributes) -> io::Result<()> {
    if let Some(owner) = attributes.owner.filter(|_| root_runs())
        && Status::of(file)?.owner != owner
    {
        fchown(file, Some(owner.user), Some(owner.group))?;
    }
    Ok(fchmod(file, Mode::from_bits_truncate(attributes.mode))?)
}

/// Gives away what a bare handle names, a link as well.
fn own(descriptor: &OwnedFd, owner: Owner) -> io::Result<()> {
    let (user, group) = (Uid::from_raw(owner.user), Gid::from_raw(owner.group));
    Ok(fchownat(descriptor, "", Some(user), Some(group), AtFlags::AT_EMPTY_PATH)?)
}

/// An unfinished entry, which is removed unless it gets its final name.
struct TemporaryEntry<'a> {
    directory: &'a Directory,
    name: String,
    placed: bool,
}

impl TemporaryEntry<'_> {
    fn rename(mut self, name: &OsStr) -> io::Result<()> {
        let descriptor = &self.directory.descriptor;
        renameat(descriptor, &*self.name, descriptor, name)?;
        self.placed = true;
        Ok(())
    }
}

impl Drop for TemporaryEntry<'_> {
    fn drop(&mut self) {
        if !self.placed {
            let _ = unlinkat(&self.directory.descriptor, &*self.name, UnlinkatFlags::NoRemoveDir);
        }
    }
}
