//! The files of a medium that are served: the release manifest, its signatures and the payloads that it names, and nothing
//! else that may be on the medium.
//!
//! A file is looked up by its whole path in a table that is made once. No path in a request ever becomes a path on this
//! machine's disks.
//!
//! Each file has a second path, below the digest of its release. What is there never changes, so that caches need not ask
//! for it again; boot scripts name these paths.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Result, anyhow};
use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use base::files::open_entry;
use model::release::{MANIFEST, MediumKind, Payload, Purpose, Release, SIGNATURES};

use crate::build_output::{iso_name, netboot_names};
use crate::reader::{MediumImage, MediumReader};
use formats::iso9660;
use transfer::range::ByteSpan;
use transfer::server::response::CachePolicy;
use transfer::server::served_file::ServedFile;

/// The served files of a medium by their paths on it.
#[derive(Debug)]
pub struct MediumFiles {
    table: BTreeMap<String, ServedFile>,
    release: Release,
    digest: Digest,
}

impl MediumFiles {
    /// Opens the medium at `path`: an ISO, a directory with the content of one, or the output directory of a build, of
    /// which the full ISO is served if it is there, else the netboot set. A medium without kernel, initrd or OS image,
    /// or with an install configuration of its own, is [`Class::Invalid`].
    pub fn open(path: &Path) -> Result<Self> {
        let medium = MediumReader::open(path)?;
        let release = medium.release()?;
        let built = path.join(iso_name(&release, MediumKind::Full));
        if medium.iso().is_none() && built.is_file() {
            let iso = MediumReader::open(&built)?;
            if iso.release_digest() == medium.release_digest() {
                return Self::of(&iso, release);
            }
        }
        Self::of(&medium, release)
    }

    fn of(medium: &MediumReader, release: Release) -> Result<Self> {
        medium.is_whole()?;
        refuse_configuration(medium.path(), &release)?;
        let held = FileContainer::by(medium)?;
        let documents = (medium.manifest().to_vec(), medium.signatures()?);
        let files = Self::gather(release, documents, |payload, release| held.find(payload, release))?;
        if let Some(payload) = files.lacking().find(|payload| is_booted(payload.purpose)) {
            return Err(not_bootable(medium.path(), payload));
        }
        for purpose in [Purpose::Kernel, Purpose::Initrd, Purpose::Rootfs] {
            files.path_of(purpose)?;
        }
        Ok(files)
    }

    /// The files of `release`, as far as `held` has them, with the bytes of its manifest and of its signatures.
    pub fn gather(
        release: Release,
        (manifest, signatures): (Vec<u8>, Option<Vec<u8>>),
        mut held: impl FnMut(&Payload, &Release) -> Result<Option<ServedFile>>,
    ) -> Result<Self> {
        let manifest = ServedFile::in_memory(manifest);
        let digest = manifest.sha256;
        let mut table = BTreeMap::from([(MANIFEST.to_owned(), manifest)]);
        table.extend(signatures.map(|text| (SIGNATURES.to_owned(), ServedFile::in_memory(text))));
        for payload in release.all_payloads() {
            if let Some(served) = held(payload, &release)? {
                table.insert(payload.path.clone(), served);
            }
        }
        Ok(Self { table, release, digest })
    }

    /// The file at a path of the medium.
    #[must_use]
    pub fn get(&self, path: &str) -> Option<&ServedFile> {
        self.table.get(path)
    }

    /// Reads one byte of each file, at another place in each `round`: what was read before may come from memory although its
    /// disk is gone.
    pub fn check(&self, round: u64) -> Result<()> {
        /// A prime larger than what one read brings into memory, so that the places of many rounds are spread.
        const STRIDE: u64 = 104_395_301;
        for (path, served) in self.table.iter().filter(|(_, served)| served.length > 0) {
            let what = || format!("reading {path} of the medium");
            let count = served.read_at(&mut [0], round.wrapping_mul(STRIDE) % served.length);
            if count.class(Class::DiskIo, what)? == 0 {
                return Err(Failure::new(Class::DiskIo, what())
                    .because(anyhow!("it has become shorter"))
                    .into());
            }
        }
        Ok(())
    }

    /// The file at a path of the medium, or at one below the digest of its release, and how long a cache may keep it.
    #[must_use]
    pub fn find(&self, path: &str) -> Option<(&ServedFile, CachePolicy)> {
        let served = self.get(self.name(path))?;
        Some((served, self.policy(path, served.sha256)))
    }

    /// The path on the medium of what is served at `path`: the same, or what follows the digest of the release.
    #[must_use]
    pub fn name<'p>(&self, path: &'p str) -> &'p str {
        path.strip_prefix(&self.folder()).unwrap_or(path)
    }

    /// How long a cache may keep the content with this digest, which is served at `path`.
    #[must_use]
    pub fn policy(&self, path: &str, sha256: Digest) -> CachePolicy {
        let name = self.name(path);
        // A release can get further signatures.
        let below_digest = name != path && name != SIGNATURES;
        let named = path.rsplit('/').next() == Some(&*sha256.to_string());
        if below_digest || named { CachePolicy::Immutable } else { CachePolicy::Revalidate }
    }

    /// The digest of the release with a slash: in front of a path of the medium it names what never changes.
    #[must_use]
    pub fn folder(&self) -> String {
        format!("{}/", self.digest)
    }

    #[must_use]
    pub fn release(&self) -> &Release {
        &self.release
    }

    #[must_use]
    pub fn release_digest(&self) -> Digest {
        self.digest
    }

    /// The payloads of the manifest that are not here.
    pub fn lacking(&self) -> impl Iterator<Item = &Payload> {
        self.release.all_payloads().filter(|payload| self.get(&payload.path).is_none())
    }

    /// How many payloads of the manifest are not on the medium: blobs of images, which installs then take from
    /// elsewhere.
    #[must_use]
    pub fn missing(&self) -> usize {
        self.lacking().count()
    }

    /// A warning for a medium that leaves payloads to others.
    #[must_use]
    pub fn lack(&self) -> Option<String> {
        let missing = self.missing();
        (missing > 0).then(|| {
            format!(
                "{missing} files of the release, blobs of container images, are not on this medium and answer 404: machines have \
                 to reach the registries of the images; serve a full ISO to install without them",
            )
        })
    }

    pub fn path_of(&self, purpose: Purpose) -> Result<(&str, Digest)> {
        let payload = self.release.payload(purpose).ok_or_else(|| {
            Failure::new(Class::Invalid, format!("the release manifest names no {purpose:?}"))
                .hint("Build the medium again with this release's iso-builder.")
        })?;
        Ok((&payload.path, payload.sha256))
    }
}

/// True if a machine needs it before it could download it from elsewhere.
fn is_booted(purpose: Purpose) -> bool {
    matches!(purpose, Purpose::Kernel | Purpose::Initrd | Purpose::Rootfs)
}

enum FileContainer<'a> {
    Iso(&'a MediumImage, Arc<File>),
    Directory(&'a Path),
}

impl<'a> FileContainer<'a> {
    fn by(medium: &'a MediumReader) -> Result<Self> {
        match medium.iso() {
            None => Ok(Self::Directory(medium.path())),
            Some(iso) => {
                let file = File::open(medium.path());
                let file =
                    file.class(Class::DiskIo, || format!("opening the medium {}", medium.path().display()))?;
                Ok(Self::Iso(iso, Arc::new(file)))
            }
        }
    }

    fn find(&self, payload: &Payload, release: &Release) -> Result<Option<ServedFile>> {
        match self {
            Self::Iso(iso, file) => in_iso(iso, file, payload),
            Self::Directory(directory) => {
                let netboot = netboot_names(release)
                    .into_iter()
                    .find_map(|(purpose, name)| (purpose == payload.purpose).then_some(name));
                for name in [Some(payload.path.clone()), netboot].into_iter().flatten() {
                    let path = directory.join(&name);
                    let file = match open_entry(directory, Path::new(&name)) {
                        Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                        file => file.class(Class::Invalid, || format!("opening {}", path.display()))?,
                    };
                    return whole_file(&path, file, payload).map(Some);
                }
                Ok(None)
            }
        }
    }
}

/// The digest is taken from the manifest and is not checked.
fn whole_file(path: &Path, file: File, payload: &Payload) -> Result<ServedFile> {
    let found = file.metadata().class(Class::DiskIo, || format!("opening {}", path.display()))?.len();
    check_length(&path.display().to_string(), payload.size, found)?;
    Ok(ServedFile::whole(file, payload.size, payload.sha256))
}

fn in_iso(iso: &MediumImage, file: &Arc<File>, payload: &Payload) -> Result<Option<ServedFile>> {
    let what = || format!("finding {} in the image", payload.path);
    let entry = match iso.plain_file(&payload.path) {
        Err(iso9660::Error::NotFound(_)) => return Ok(None),
        entry => entry.class(Class::Verification, what)?,
    };
    check_length(&payload.path, payload.size, entry.size())?;
    let span = |extent: &iso9660::Extent| {
        let start = extent.start.offset().0;
        ByteSpan { start, end: start + u64::from(extent.length) }
    };
    let spans: Arc<[ByteSpan]> = entry.extents.iter().map(span).collect();
    let end = spans.iter().map(|span| span.end).max().unwrap_or(0);
    if end > iso.length() {
        let cause = iso9660::Error::Truncated { needed: end, length: iso.length() };
        return Err(cause).class(Class::Verification, what);
    }
    Ok(Some(ServedFile::spans(Arc::clone(file), spans, payload.sha256)))
}

fn check_length(name: &str, expected: u64, found: u64) -> Result<()> {
    if expected == found {
        return Ok(());
    }
    Err(Failure::new(Class::Verification, format!("{name} is not the file of this release"))
        .because(anyhow!("it has {found} bytes, and the release manifest says {expected}"))
        .hint("Build or copy the medium again; `iso-builder verify` finds every damaged file.")
        .into())
}

fn not_bootable(medium: &Path, payload: &Payload) -> anyhow::Error {
    Failure::new(Class::Invalid, format!("{} cannot boot a machine", medium.display()))
        .because(anyhow!("it lacks {}", payload.path))
        .hint("Give a full ISO, or a directory that `iso-builder build` has made with its netboot set.")
        .into()
}

/// Refuses a medium with an install configuration: whoever reaches the server can read all of the medium.
pub fn refuse_configuration(medium: &Path, release: &Release) -> Result<()> {
    let Some(payload) = release.payload(Purpose::InstallConfig) else { return Ok(()) };
    Err(Failure::new(Class::Invalid, format!("{} has an install configuration of its own", medium.display()))
        .because(anyhow!("everybody on the network could read {} with its secrets", payload.path))
        .hint("Serve a medium that was built without install_config, and put configurations into --configs.")
        .into())
}

#[cfg(test)]
mod tests;
