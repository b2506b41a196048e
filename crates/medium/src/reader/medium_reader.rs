//! A finished medium, opened for reading.

use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use base::digest::Digest;
use base::failure::{Class, Classify, Failure, class_of};
use base::url::shown;
use formats::iso9660::address::Offset;
use formats::iso9660::write::PARTITION;
use formats::iso9660::{self, Iso, OffsetSource, Source};
use model::config::formats::storage::is_iso_file;
use model::release::{MANIFEST, ParseReleaseError, Payload, Release, SIGNATURES};
use transfer::download::{Downloader, RetryPolicy};
use trust::{ReleaseTrust, TrustStore};

use super::boot_menu::{MAX_BOOT_MENU, NamedReleaseDifference, named_release_difference};
use crate::by_architecture::{by_architecture, releases_in};
use crate::http::{HttpDirectory, HttpImage, is_url};
use crate::iso::IsoMap;
use crate::iso::recipe::BOOT_MENU;
use crate::signatures;

/// The size limit of a manifest, in bytes: enough for tens of thousands of payloads.
const MAX_MANIFEST: u64 = 32 << 20;
const EXPECTED: &str = "Give an ISO made by iso-builder, a drive that holds one, a directory with release.json, or the URL of an ISO or \
                        of such a directory.";
/// The hint if a server does not send a medium.
const SERVER: &str = "Check the URL: it must name an ISO made by iso-builder, on a server that sends parts of files, or the directory \
                      with the content of one.";
/// The hint for a damaged medium.
pub const COPY_AGAIN: &str = "Download or copy the medium again.";

/// How a person lets a command of the builder take a release that no known key has signed.
pub const ALLOW_UNSIGNED: &str = "--allow-unsigned. To trust its key: --key FILE";

/// A medium that has a release manifest.
#[derive(Debug)]
pub struct MediumReader {
    /// A URL without its password.
    path: PathBuf,
    content: MediumContent,
    manifest: Vec<u8>,
}

#[derive(Debug)]
enum MediumContent {
    Iso(MediumImage),
    /// An ISO whose own directories are damaged, read by those of its first partition.
    Partition(Iso<OffsetSource<ImageBytes>>),
    Directory,
    Served(HttpDirectory),
}

pub type MediumImage = Iso<ImageBytes>;

#[derive(Debug)]
pub enum ImageBytes {
    /// A file or a drive of this machine.
    Local(File),
    Served(Box<HttpImage>),
}

impl Source for ImageBytes {
    fn read_at(&self, buffer: &mut [u8], offset: Offset) -> io::Result<usize> {
        match self {
            Self::Local(file) => Source::read_at(file, buffer, offset),
            Self::Served(image) => image.read_at(buffer, offset),
        }
    }

    fn length(&self) -> io::Result<u64> {
        match self {
            Self::Local(file) => file.length(),
            Self::Served(image) => image.length(),
        }
    }
}

impl ImageBytes {
    fn is_local(&self) -> bool {
        matches!(self, Self::Local(_))
    }
}

impl MediumReader {
    /// Opens the medium that a user names: an ISO, a drive that holds one, a directory, or the URL of an ISO (it ends in `.iso`) or of a
    /// directory. Anything that is not one of ours is [`Class::Invalid`], an ISO that ends before its release manifest is
    /// [`Class::Verification`].
    pub fn open(named: &Path) -> Result<Self> {
        if let Some(url) = url(named) {
            if is_iso_file(url) {
                return Self::with_image(named, open_image(named)?);
            }
            let directory = HttpDirectory::new(url, downloader(url)?);
            return Self::with(named, MediumContent::Served(directory));
        }
        let metadata = fs::metadata(named)
            .map_err(|error| not_ours(format!("opening the medium {}", named.display())).because(error))?;
        let kind = metadata.file_type();
        if kind.is_dir() {
            let several = by_architecture(named);
            if !several.is_empty() {
                let directories: Vec<_> =
                    several.iter().map(|(_, directory)| directory.display().to_string()).collect();
                let what = format!("{} has a release for each of several architectures", named.display());
                let hint = format!("Name one of them: {}.", directories.join(", "));
                bail!(Failure::new(Class::Invalid, what).hint(hint));
            }
            if !named.join(MANIFEST).is_file() {
                let what = format!("{} is a directory without {MANIFEST}", named.display());
                let below: Vec<_> =
                    releases_in(named).iter().map(|path| path.display().to_string()).collect();
                bail!(match below.is_empty() {
                    true => not_ours(what),
                    false => Failure::new(Class::Invalid, what)
                        .because(anyhow!("it has the releases of several images in directories"))
                        .hint(format!("Name one of them: {}.", below.join(", "))),
                });
            }
            return Self::with(named, MediumContent::Directory);
        }
        if !kind.is_file() && !kind.is_block_device() {
            bail!(not_ours(format!("{} is neither a file nor a drive nor a directory", named.display())));
        }
        Self::with_image(named, open_image(named)?)
    }

    fn with_image(named: &Path, image: ImageBytes) -> Result<Self> {
        let start = start_of(&image).class(Class::DiskIo, || format!("reading {}", told(named).display()))?;
        match Iso::open(image) {
            Ok(iso) => Self::with(named, MediumContent::Iso(iso)),
            Err(iso9660::Error::NotIso) => {
                let named = told(named);
                bail!(not_ours(format!("{} is {}, not an ISO of ours", named.display(), describe(&start))))
            }
            Err(error) => Err(damaged_image(&told(named), MANIFEST, error)),
        }
    }

    /// As [`MediumReader::open`]; if the directories on the way to the release manifest are damaged, by those of the first
    /// partition, which every ISO has for USB sticks. Only for reports of damage.
    pub fn open_for_verification(named: &Path) -> Result<Self> {
        let first = Self::open(named).and_then(|medium| medium.release().map(|_| medium));
        first.or_else(|error| match damage_is_possible(&error) {
            true => Self::open_by_partition(named).map_err(|_| error),
            false => Err(error),
        })
    }

    fn open_by_partition(named: &Path) -> Result<Self> {
        let iso = Iso::open(OffsetSource { source: open_image(named)?, start: PARTITION.offset() })?;
        let medium = Self::with(named, MediumContent::Partition(iso))?;
        // Without a map, the damaged directories could not be compared.
        IsoMap::of(&medium.release()?, &medium.manifest)?.context("an ISO of another recipe")?;
        Ok(medium)
    }

    fn with(named: &Path, content: MediumContent) -> Result<Self> {
        let path = told(named);
        let mut medium = Self { path: path.clone(), content, manifest: Vec::new() };
        medium.manifest = medium.read_at_most(MANIFEST, MAX_MANIFEST).map_err(|error| {
            let missing = error
                .downcast_ref::<io::Error>()
                .is_some_and(|error| error.kind() == io::ErrorKind::NotFound);
            match &medium.content {
                MediumContent::Iso(iso) if missing => {
                    let id = &iso.volume().id;
                    let what = format!("{} is an ISO of another product (volume {id:?})", path.display());
                    not_ours(what).because(anyhow!("it has no {MANIFEST}")).into()
                }
                MediumContent::Served(_) if missing => {
                    not_ours(format!("{} has no {MANIFEST}", path.display())).into()
                }
                _ => damaged_image(&path, MANIFEST, error),
            }
        })?;
        Ok(medium)
    }

    /// Where the medium is, for messages: a path, or a URL without its password.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The file, drive or directory of this machine that the medium is; none for one on a server.
    #[must_use]
    pub fn local(&self) -> Option<&Path> {
        match &self.content {
            MediumContent::Directory => Some(&self.path),
            MediumContent::Served(_) => None,
            MediumContent::Iso(iso) => iso.source().is_local().then_some(self.path.as_path()),
            MediumContent::Partition(iso) => iso.source().source.is_local().then_some(self.path.as_path()),
        }
    }

    /// The release manifest. One that is not readable is [`Class::Verification`], one of another format
    /// version [`Class::Invalid`].
    pub fn release(&self) -> Result<Release> {
        Release::parse(&self.manifest).map_err(|error| {
            let what = format!("reading {MANIFEST} of {}", self.path.display());
            match error {
                // A manifest in an unknown format that the boot menu does not name is damage.
                ParseReleaseError::Format(_) if !self.menu_names_another() => {
                    Failure::new(Class::Invalid, what)
                        .hint("Use the iso-builder of the release that made the medium.")
                }
                _ => Failure::new(Class::Verification, what).hint(COPY_AGAIN),
            }
            .because(error)
            .into()
        })
    }

    /// True if the boot menu of an ISO names another release manifest than the one that is on it.
    fn menu_names_another(&self) -> bool {
        let menu = self.image().map(|_| self.read_at_most(BOOT_MENU, MAX_BOOT_MENU));
        menu.and_then(Result::ok).is_some_and(|menu| {
            let difference = named_release_difference(&String::from_utf8_lossy(&menu), self.release_digest());
            matches!(difference, Some(NamedReleaseDifference::Other { .. }))
        })
    }

    /// Digest of the release manifest as it is on the medium: what names the release as a whole.
    #[must_use]
    pub fn release_digest(&self) -> Digest {
        Digest::of(&self.manifest)
    }

    #[must_use]
    pub fn manifest(&self) -> &[u8] {
        &self.manifest
    }

    /// The signatures of the release manifest, as text without padding; none if the release is unsigned. They are not checked.
    /// More than [`SIGNATURES_LENGTH`](model::release::SIGNATURES_LENGTH) bytes are [`Class::Verification`].
    pub fn signatures(&self) -> Result<Option<Vec<u8>>> {
        match self.open_file(SIGNATURES) {
            Ok(file) => signatures::read(file, || self.path.display().to_string()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(damaged_image(&self.path, SIGNATURES, error)),
        }
    }

    /// Judges its release by the keys of `store`.
    ///
    /// # Errors
    /// [`Class::Verification`] if the release must not be used; the message says which reason there is.
    pub fn judge(&self, store: &TrustStore) -> Result<ReleaseTrust> {
        let (release, signatures) = (self.release()?, self.signatures()?);
        trust::judge(&release, &self.manifest, signatures.as_deref(), store)
            .map_err(|error| error.failure(&self.path.display().to_string(), ALLOW_UNSIGNED).into())
    }

    /// [`Class::Verification`] if it is a truncated image, as an interrupted copy or download leaves it.
    pub fn is_whole(&self) -> Result<()> {
        let Some(iso) = self.iso().filter(|iso| iso.missing() > 0) else { return Ok(()) };
        let (length, whole) = (iso.length(), iso.volume().size);
        let what = format!("{} is cut off: it has {length} of {whole} bytes", self.path().display());
        Err(Failure::new(Class::Verification, what).hint("Copy or download the medium again.").into())
    }

    /// The ISO, if the medium is one and its directories can be read.
    #[must_use]
    pub fn iso(&self) -> Option<&MediumImage> {
        match &self.content {
            MediumContent::Iso(iso) => Some(iso),
            MediumContent::Partition(_) | MediumContent::Directory | MediumContent::Served(_) => None,
        }
    }

    /// The bytes of the ISO, if the medium is one.
    pub fn image(&self) -> Option<&dyn Source> {
        match &self.content {
            MediumContent::Iso(iso) => Some(iso.source()),
            MediumContent::Partition(iso) => Some(&iso.source().source),
            MediumContent::Directory | MediumContent::Served(_) => None,
        }
    }

    /// The content of a payload, not checked. One that is missing is [`Class::Verification`].
    pub fn open_payload(&self, payload: &Payload) -> Result<Box<dyn Read + Send>> {
        let what = || format!("opening {} on {}", payload.path, self.path.display());
        self.open_file(&payload.path).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                Failure::new(Class::Verification, what()).because(error).hint(COPY_AGAIN).into()
            }
            _ => Failure::new(Class::DiskIo, what()).because(error).into(),
        })
    }

    /// The content of the file at `path`, relative to the root of the medium. Missing files are
    /// [`io::ErrorKind::NotFound`].
    pub fn open_file(&self, path: &str) -> io::Result<Box<dyn Read + Send>> {
        match &self.content {
            MediumContent::Iso(iso) => Ok(Box::new(iso.open_file(path)?)),
            MediumContent::Partition(iso) => Ok(Box::new(iso.open_file(path)?)),
            MediumContent::Directory => {
                let path = self.path.join(path);
                // Opening a FIFO would block.
                if !fs::metadata(&path)?.is_file() {
                    return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
                }
                Ok(Box::new(File::open(path)?))
            }
            MediumContent::Served(directory) => match directory.find(path).map_err(carried)? {
                Some(file) => Ok(Box::new(file)),
                None => Err(io::ErrorKind::NotFound.into()),
            },
        }
    }

    /// A whole file of at most `limit` bytes.
    pub fn read_at_most(&self, path: &str, limit: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.open_file(path)?.take(limit + 1).read_to_end(&mut bytes)?;
        if bytes.len() as u64 > limit {
            bail!("{path} is larger than {limit} bytes");
        }
        Ok(bytes)
    }
}

/// The URL that a medium's name is.
fn url(named: &Path) -> Option<&str> {
    named.to_str().filter(|name| is_url(name))
}

/// A medium's name for messages.
fn told(named: &Path) -> PathBuf {
    url(named).map_or_else(|| named.to_owned(), |url| shown(url).into())
}

fn downloader(url: &str) -> Result<Downloader> {
    Downloader::trusting(url, RetryPolicy::attended(), SERVER, &[])
}

fn open_image(named: &Path) -> Result<ImageBytes> {
    if let Some(url) = url(named) {
        return Ok(ImageBytes::Served(Box::new(HttpImage::open(url, downloader(url)?)?)));
    }
    let file =
        File::open(named).class(Class::DiskIo, || format!("opening the medium {}", named.display()))?;
    Ok(ImageBytes::Local(file))
}

/// True if the directories of the first partition may help: not if a server does not respond.
fn damage_is_possible(error: &anyhow::Error) -> bool {
    class_of(error) != Class::Network
}

/// An error of a server as one of reading, which keeps its class.
fn carried(error: anyhow::Error) -> io::Error {
    io::Error::other(error.reallocate_into_boxed_dyn_error_without_backtrace())
}

fn not_ours(what: String) -> Failure {
    Failure::new(Class::Invalid, what).hint(EXPECTED)
}

fn damaged_image(path: &Path, file: &str, error: impl Into<anyhow::Error>) -> anyhow::Error {
    let error = error.into();
    let what = format!("reading {file} of {}", path.display());
    if class_of(&error) == Class::Network {
        return error.context(what);
    }
    let device = error
        .chain()
        .any(|cause| cause.downcast_ref::<io::Error>().is_some_and(|error| error.raw_os_error().is_some()));
    let class = if device { Class::DiskIo } else { Class::Verification };
    let source: Box<dyn std::error::Error + Send + Sync> = error.into();
    Failure::new(class, what).because(source).hint(COPY_AGAIN).into()
}

fn start_of(image: &ImageBytes) -> Result<Vec<u8>> {
    let mut bytes = vec![0; 4096];
    let count = image.read_at(&mut bytes, Offset(0)).context("reading its first bytes")?;
    bytes.truncate(count);
    Ok(bytes)
}

/// The probable type of a file that is not an ISO, by its first bytes.
fn describe(start: &[u8]) -> &'static str {
    const MAGICS: [(&[u8], &str); 8] = [
        (b"hsqs", "a squashfs image"),
        (b"\x1F\x8B", "gzip data"),
        (b"\x28\xB5\x2F\xFD", "zstd data"),
        (b"\xFD7zXZ\0", "xz data"),
        (b"PK\x03\x04", "a zip archive"),
        (b"QFI\xFB", "a qcow2 disk image"),
        (b"\x7FELF", "a program"),
        (b"070701", "a cpio archive"),
    ];
    if start.is_empty() {
        return "an empty file";
    }
    if let Some((_, what)) = MAGICS.iter().find(|(magic, _)| start.starts_with(magic)) {
        return what;
    }
    let text = |byte: &u8| *byte >= b' ' || matches!(byte, b'\n' | b'\r' | b'\t');
    if start.iter().all(text) && std::str::from_utf8(start).is_ok() { "a text file" } else { "unknown data" }
}
