//! Files of a directory that others may fill: only regular files that are in it are read.
//!
//! A FIFO would hold up whoever opens it for ever, a device may do something when it is opened, and a link would show a file of
//! another place. Links to other files of the same directory are followed, as Kubernetes and `ln -s` make them.

use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

use nix::fcntl::OFlag;

/// Opens the regular file `name`, a relative path, in `directory`. Never blocks on a FIFO or a device.
///
/// # Errors
/// [`io::ErrorKind::NotFound`] if there is none, and [`io::ErrorKind::InvalidInput`] if it is something else than a regular file of
/// this directory.
pub fn open_entry(directory: &Path, name: &Path) -> io::Result<File> {
    let refuse = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
    let path = directory.join(name);
    let real = fs::canonicalize(&path)?;
    if !real.starts_with(fs::canonicalize(directory)?) {
        return Err(refuse(format!("{} is a link to another directory", path.display())));
    }
    let regular = |kind: FileType| match kind.is_file() {
        true => Ok(()),
        false => Err(refuse(format!("{} is {}, not a regular file", path.display(), word(kind)))),
    };
    // Opening a device can have effects, so its kind is looked at before; and again after, for it may have changed.
    regular(fs::symlink_metadata(&real)?.file_type())?;
    let flags = OFlag::O_NONBLOCK | OFlag::O_NOFOLLOW;
    let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(&real)?;
    regular(file.metadata()?.file_type())?;
    Ok(file)
}

/// Reads the regular file `name` of `directory`, which has at most `limit` bytes.
///
/// # Errors
/// Those of [`open_entry`].
pub fn read_entry(directory: &Path, name: &Path, limit: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_entry(directory, name)?.take(limit + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > limit {
        true => Err(io::Error::new(io::ErrorKind::InvalidData, format!("it is larger than {limit} bytes"))),
        false => Ok(bytes),
    }
}

fn word(kind: FileType) -> &'static str {
    match kind {
        kind if kind.is_fifo() => "a FIFO",
        kind if kind.is_socket() => "a socket",
        kind if kind.is_dir() => "a directory",
        kind if kind.is_symlink() => "a link",
        _ => "a device",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nix::sys::stat::Mode;
    use nix::unistd::mkfifo;
    use std::os::unix::fs::symlink;
    use std::os::unix::net::UnixListener;

    #[test]
    fn only_regular_files_of_the_directory_are_opened_and_nothing_is_waited_for() {
        let (inside, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let directory = inside.path();
        fs::write(directory.join("file"), "text").unwrap();
        fs::write(outside.path().join("secret"), "text").unwrap();
        fs::create_dir(directory.join("directory")).unwrap();
        fs::write(directory.join("directory/file"), "text").unwrap();
        mkfifo(&directory.join("fifo"), Mode::S_IRWXU).unwrap();
        let _socket = UnixListener::bind(directory.join("socket")).unwrap();
        symlink("file", directory.join("link")).unwrap();
        symlink("fifo", directory.join("link-to-fifo")).unwrap();
        symlink("/dev/zero", directory.join("link-to-device")).unwrap();
        symlink(outside.path().join("secret"), directory.join("link-out")).unwrap();
        symlink("nothing", directory.join("dangling")).unwrap();
        for name in ["file", "directory/file", "link"] {
            assert_eq!(read_entry(directory, Path::new(name), 9).unwrap(), b"text", "{name}");
        }
        for (name, why) in [
            ("fifo", "is a FIFO, not a regular file"),
            ("link-to-fifo", "is a FIFO"),
            ("socket", "is a socket"),
            ("directory", "is a directory"),
            ("link-to-device", "is a link to another directory"),
            ("link-out", "is a link to another directory"),
        ] {
            let error = open_entry(directory, Path::new(name)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{name}");
            assert!(error.to_string().contains(why), "{name}: {error}");
        }
        for name in ["nothing", "dangling"] {
            let error = open_entry(directory, Path::new(name)).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::NotFound, "{name}");
        }
        assert!(read_entry(directory, Path::new("file"), 3).is_err());
    }
}
