//! A medium that is a directory, or is mounted at one.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::image;
use super::manifest::MANIFEST_LIMIT;
use super::payload_source::{PayloadPlace, PayloadSource};
use base::failure::{Class, Classify, Failure};
use base::files::read_at_most;
use formats::iso9660::address::Source;
use model::release::{MANIFEST, Payload};

const SYS: &str = "/sys";

/// A mounted medium, or any directory with the content of one.
#[derive(Clone, Debug)]
pub struct LocalMedium {
    root: PathBuf,
    /// The file or device of the image, if known.
    image: Option<PathBuf>,
}

impl LocalMedium {
    /// The medium at `root`. If that is the mount of an ISO, the image is read from its device.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), image: None }
    }

    /// The medium whose files are at `root`, and whose image is the file or device `image`.
    pub fn with_image(root: impl Into<PathBuf>, image: impl Into<PathBuf>) -> Self {
        Self { root: root.into(), image: Some(image.into()) }
    }

    fn path(&self, payload: &Payload) -> PathBuf {
        self.root.join(&payload.path)
    }

    fn missing(&self, payload: &Payload) -> Failure {
        let what = format!("{} is not on the medium at {}", payload.path, self.root.display());
        let hint = "A net-install medium needs install.medium or --medium with the URL of a full one.";
        Failure::new(Class::Verification, what).hint(hint)
    }
}

impl PayloadSource for LocalMedium {
    fn open(&self, payload: &Payload) -> Result<Box<dyn Read + Send>> {
        let path = self.path(payload);
        match File::open(&path) {
            Ok(file) => Ok(Box::new(NamedFile { file, path })),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Err(self.missing(payload).into()),
            Err(error) => Err(error).class(Class::DiskIo, || format!("opening {}", path.display())),
        }
    }

    fn place(&self, payload: &Payload) -> Option<PayloadPlace> {
        self.path(payload).exists().then_some(PayloadPlace::Here)
    }

    fn probe(&self, payload: &Payload) -> Result<()> {
        let path = self.path(payload);
        if !path.exists() {
            return Err(self.missing(payload).into());
        }
        let size = path.metadata().class(Class::DiskIo, || format!("looking at {}", path.display()))?.len();
        if size == payload.size {
            return Ok(());
        }
        let what = format!("{} has {size} bytes instead of {}", path.display(), payload.size);
        Err(Failure::new(Class::Verification, what).into())
    }

    fn manifest(&self) -> Result<Vec<u8>> {
        let path = self.root.join(MANIFEST);
        if !path.exists() {
            let what = format!("there is no medium at {}: it has no {MANIFEST}", self.root.display());
            let hint = "Name one with --medium: an ISO, a drive that holds one, a directory with release.json, or the URL of an ISO or of a directory.";
            return Err(Failure::new(Class::Hardware, what).hint(hint).into());
        }
        read_at_most(&path, MANIFEST_LIMIT)
    }

    fn beside(&self, path: &str) -> Result<Option<Box<dyn Read + Send>>> {
        let path = self.root.join(path);
        // Opening a FIFO would block.
        let opened = path.metadata().and_then(|metadata| match metadata.is_file() {
            true => File::open(&path),
            false => Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
        });
        match opened {
            Ok(file) => Ok(Some(Box::new(NamedFile { file, path }))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error).class(Class::DiskIo, || format!("opening {}", path.display())),
        }
    }

    fn image(&self) -> Result<Option<Box<dyn Source>>> {
        let found = match &self.image {
            Some(image) => Some(image.clone()),
            None => image::beneath(&self.root, Path::new(SYS))?,
        };
        found.as_deref().map(image::open).transpose()
    }

    fn describe(&self) -> String {
        format!("the medium at {}", self.root.display())
    }
}

/// A file whose read errors name the file and the position, which identifies a scratched disc.
struct NamedFile {
    file: File,
    path: PathBuf,
}

impl Read for NamedFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.file.read(buffer).map_err(|error| unreadable(&self.path, &self.file, error))
    }
}

fn unreadable(path: &Path, mut file: &File, error: io::Error) -> io::Error {
    use std::io::Seek;
    if error.kind() == io::ErrorKind::Interrupted {
        return error;
    }
    let offset = file.stream_position().unwrap_or_default();
    let failure = Failure::new(Class::DiskIo, format!("reading {} at byte {offset}", path.display()));
    io::Error::new(error.kind(), failure.because(error))
}
