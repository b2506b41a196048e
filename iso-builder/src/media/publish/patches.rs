//! Patches from the OS images and the initrds of earlier releases, made when a release is pushed.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use anyhow::{Context, Result};
use base::digest::{Digest, Hasher};
use base::failure::{Class, Classify, Failure};
use base::files::{self, read_at_most};
use base::progress::{Progress, Step};
use base::size::ByteSize;
use formats::delta::{DeltaError, make::make};
use formats::initrd;
use formats::squashfs::Expansion;
use formats::verity::{VerityBuilder, VerityParameters};
use medium::artifact::ArtifactReference;
use medium::by_architecture::of_architecture;
use medium::patches::{LIST_LIMIT, PATCHES, PatchList, ReleasePatch};
use medium::payload_sources::{
    PayloadSource, RetryPolicy, VerifyingReader, fetch_again, is_url, open_release, read_release, source,
};
use medium::reader::MediumReader;
use model::architecture::Architecture;
use model::release::{Payload, Purpose, Release};
use tempfile::TempDir;
use transfer::registry::Client;
use trust::TrustStore;

/// The most earlier releases: each patch takes a minute and disk space, and older nodes fetch the whole image.
pub const PATCHES_MAX: usize = 3;

/// The patches that go with a release. Files of those that were made end with this.
#[derive(Debug)]
pub(super) struct MadePatches {
    patches: Vec<(ReleasePatch, PathBuf)>,
    directory: Option<TempDir>,
}

impl MadePatches {
    /// Makes patches from the OS images and initrds of the releases that `earlier` names to those of `release`, which `medium` has. One
    /// that is not shorter than what it makes, as media have it, is left out. Patches that `medium` has beside it, where it was pulled, go
    /// with the release too.
    ///
    /// # Errors
    /// [`Class::Invalid`] for releases of another product, and for more than [`PATCHES_MAX`].
    pub(super) fn make(
        earlier: &[String],
        (release, medium): (&Release, &MediumReader),
        client: &Client,
        progress: &Progress,
    ) -> Result<Self> {
        let mut made = Self { patches: beside(medium)?, directory: None };
        if earlier.is_empty() {
            return Ok(made);
        }
        if earlier.len() > PATCHES_MAX {
            let what = format!("patches from {} releases were asked for", earlier.len());
            return Err(Failure::new(Class::Invalid, what)
                .hint(format!("Name {PATCHES_MAX} at most, those that most nodes run."))
                .into());
        }
        let opened: Vec<_> =
            earlier.iter().map(|name| open(name, release.architecture, client)).collect::<Result<_>>()?;
        for ((_, from), name) in opened.iter().zip(earlier) {
            same_product(from, release, name)?;
        }
        let directory =
            tempfile::tempdir().class(Class::DiskIo, || "making a directory for patches".into())?;
        let new = NewParts::of(release, medium, directory.path(), progress)?;
        made.directory = Some(directory);
        for (source, from) in &opened {
            made.add((from, source.as_ref()), release, &new, progress)?;
        }
        Ok(made)
    }

    pub(super) fn patches(&self) -> Vec<ReleasePatch> {
        self.patches.iter().map(|(patch, _)| patch.clone()).collect()
    }

    pub(super) fn file(&self, digest: Digest) -> Option<&Path> {
        let found = self.patches.iter().find(|(patch, _)| patch.sha256 == digest);
        found.map(|(_, file)| file.as_path())
    }

    /// Adds what makes each part of `release` of that of `from`.
    fn add(
        &mut self,
        (from, source): (&Release, &dyn PayloadSource),
        release: &Release,
        new: &NewParts,
        progress: &Progress,
    ) -> Result<()> {
        let version = &from.version;
        let (start, open_old) = (from.expanded.root_hash, |payload: &Payload| source.open(payload));
        if start == release.expanded.root_hash || self.has(start) {
            progress.note("delta", format!("no patch from {version}: its OS image needs none, or has one"));
        } else {
            let directory = self.directory()?;
            let old = expand(from, (&open_old, &source.describe()), directory, progress)?;
            self.patch((start, &old), &new.image, ("OS image", version, image_size(release)), progress)?;
        }
        let Some((initrd, (before, payload))) =
            new.initrd.as_ref().zip(from.payload(Purpose::Initrd).zip(release.payload(Purpose::Initrd)))
        else {
            return Ok(());
        };
        if before.sha256 == payload.sha256 || self.has(before.sha256) {
            return Ok(());
        }
        let medium: (OpenPayload<'_>, &str) = (&open_old, &source.describe());
        let Some(old) = unpacked_initrd((before, version), medium, self.directory()?, progress)? else {
            progress
                .note("delta", format!("no patch of the initrd from {version}: it is packed in another way"));
            return Ok(());
        };
        self.patch((before.sha256, &old), initrd, ("initrd", version, payload.size), progress)
    }

    fn has(&self, from: Digest) -> bool {
        self.patches.iter().any(|(patch, _)| patch.from == from)
    }

    fn directory(&self) -> Result<&Path> {
        self.directory.as_ref().map(TempDir::path).context("patches are made without a directory")
    }

    /// Makes a patch from a part of an earlier release to that of the new one, and keeps it if it is shorter than the part as media
    /// have it, `whole` bytes.
    fn patch(
        &mut self,
        (start, old): (Digest, &File),
        new: &File,
        (name, version, whole): (&str, &str, u64),
        progress: &Progress,
    ) -> Result<()> {
        let directory = self.directory()?;
        let mut file = tempfile::NamedTempFile::new_in(directory)
            .class(Class::DiskIo, || "making a file for a patch".into())?;
        let threads = available_parallelism().map_or(1, usize::from);
        let making = format!("Making a patch of the {name} from {version}");
        progress.within("delta", making, || {
            make(old, new, threads, &mut file).map_err(|error| {
                let class = match error {
                    DeltaError::Write(_) | DeltaError::ReadImage(..) => Class::DiskIo,
                    _ => Class::Unexpected,
                };
                Failure::new(class, format!("making a patch of the {name} from {version}"))
                    .because(error)
                    .into()
            })
        })?;
        let reading = || format!("reading the patch of the {name} from {version}");
        let (sha256, size) =
            Digest::of_reader(file.reopen().class(Class::DiskIo, reading)?).class(Class::DiskIo, reading)?;
        let [shown, whole_shown] = [size, whole].map(ByteSize::bytes);
        if size >= whole {
            let text = format!(
                "the patch of the {name} from {version} is left out: it has {shown}, the {name} {whole_shown}"
            );
            progress.note("delta", text);
            return Ok(());
        }
        let text = format!("The patch of the {name} from {version} has {shown}, the {name} {whole_shown}");
        progress.note("delta", text);
        let kept = directory.join(sha256.to_string());
        file.persist(&kept).map_err(|error| error.error).class(Class::DiskIo, || "keeping a patch".into())?;
        self.patches.push((ReleasePatch::new(start, size, sha256), kept));
        Ok(())
    }
}

/// The results of the patches, in files without a name.
struct NewParts {
    /// Expanded.
    image: File,
    /// Unpacked; none if a node could not pack it again.
    initrd: Option<File>,
}

impl NewParts {
    fn of(release: &Release, medium: &MediumReader, directory: &Path, progress: &Progress) -> Result<Self> {
        let open = |payload: &Payload| medium.open_payload(payload);
        let from = medium.path().display().to_string();
        let image = expand(release, (&open, &from), directory, progress)?;
        let initrd = match release.payload(Purpose::Initrd) {
            Some(payload) => {
                unpacked_initrd((payload, &release.version), (&open, &from), directory, progress)?
                    .filter(|archives| packs_again(archives, payload.sha256))
            }
            None => None,
        };
        if initrd.is_none() {
            progress.note(
                "delta",
                "no patch of the initrd: another builder has packed it, or another version of this one",
            );
        }
        Ok(Self { image, initrd })
    }
}

/// The patches that a directory with a release lists, and their files.
fn beside(medium: &MediumReader) -> Result<Vec<(ReleasePatch, PathBuf)>> {
    let Some(list) = medium.local().map(|directory| directory.join(PATCHES)).filter(|list| list.is_file())
    else {
        return Ok(Vec::new());
    };
    let reading = || format!("reading {}", list.display());
    let bytes = read_at_most(&list, LIST_LIMIT).class(Class::DiskIo, reading)?;
    let patches = PatchList::parse(&bytes)?.patches.into_iter();
    let named = |patch: ReleasePatch| (patch.clone(), files::parent(&list).join(patch.path));
    Ok(patches.map(named).filter(|(_, file)| file.is_file()).collect())
}

/// Opens what a person names as an earlier release: a medium, or a reference in a registry.
fn open(
    name: &str,
    architecture: Architecture,
    client: &Client,
) -> Result<(Box<dyn PayloadSource>, Release)> {
    // A patch counts only by the digest of what it makes, so nobody has to answer for what it starts from.
    let store = TrustStore::absent();
    let local = is_url(name) || Path::new(name).exists();
    if local || name.starts_with(['/', '.']) {
        let named = match local && !is_url(name) {
            true => of_architecture(Path::new(name), architecture).display().to_string(),
            false => name.to_owned(),
        };
        let source = source(Some(&named), &[], RetryPolicy::default())?;
        let judged = read_release(source.as_ref(), None, &store)?;
        return Ok((source, (*judged.release).clone()));
    }
    let reference: ArtifactReference = name.parse()?;
    let (judged, source) = open_release(&reference, architecture, client, &store)?;
    Ok((source, (*judged.release).clone()))
}

fn same_product(from: &Release, release: &Release, name: &str) -> Result<(), Failure> {
    if (&from.id, &from.architecture) == (&release.id, &release.architecture) {
        return Ok(());
    }
    let what = format!("{name} is {} for {}", from.id, from.architecture);
    let why = anyhow::anyhow!("what is pushed is {} for {}", release.id, release.architecture);
    Err(Failure::new(Class::Invalid, what).because(why).hint("Name earlier releases of the same product."))
}

fn image_size(release: &Release) -> u64 {
    release.payload(Purpose::Rootfs).map_or(0, |image| image.size)
}

type OpenPayload<'a> = &'a dyn Fn(&Payload) -> Result<Box<dyn Read + Send>>;

/// The expanded OS image of a release, in a file without a name.
fn expand(
    release: &Release,
    (open, from): (OpenPayload<'_>, &str),
    directory: &Path,
    progress: &Progress,
) -> Result<File> {
    let image = release.payload(Purpose::Rootfs).context("a release without an OS image")?;
    let storing = || format!("storing the OS image of {} in {}", release.version, directory.display());
    let total = Some(image.size + release.expanded.size);
    let text = format!("Expanding the OS image of {}", release.version);
    let mut step = progress.step("expand", text, total);
    let compressed = store(image, (open, from), directory, (&mut step, progress))?;
    let file = tempfile::tempfile_in(directory).class(Class::DiskIo, storing)?;
    let hashes = VerityBuilder::new(VerityParameters::of_image(image.sha256));
    let mut out = HashedFile { file: io::BufWriter::with_capacity(1 << 20, file), hashes };
    let expansion =
        Expansion::plan(&compressed).class(Class::Verification, || format!("expanding {}", image.path))?;
    let threads = available_parallelism().map_or(1, usize::from);
    expansion.write(threads, &mut out).class(Class::DiskIo, storing)?;
    step.advance(release.expanded.size);
    step.done();
    let root = out.hashes.finish().root;
    if root != release.expanded.root_hash {
        let what = format!("the OS image of {} has the root hash {root}", release.version);
        let why = anyhow::anyhow!("its release manifest says {}", release.expanded.root_hash);
        return Err(Failure::new(Class::Verification, what)
            .because(why)
            .hint("Build the release again.")
            .into());
    }
    out.file.into_inner().map_err(io::IntoInnerError::into_error).class(Class::DiskIo, storing)
}

/// A payload in a file without a name. Damaged data is read again.
fn store(
    payload: &Payload,
    (open, from): (OpenPayload<'_>, &str),
    directory: &Path,
    (step, progress): (&mut Step, &Progress),
) -> Result<File> {
    let storing = || format!("storing {} in {}", payload.path, directory.display());
    fetch_again(
        || {
            step.back_to(0);
            let mut file = tempfile::tempfile_in(directory).class(Class::DiskIo, storing)?;
            let opened = step.reader(open(payload)?);
            io::copy(&mut VerifyingReader::new(opened, payload, from), &mut file)?;
            Ok(file)
        },
        |error| progress.warn("expand", &format!("{error:#}; it is read again")),
    )
}

/// The initrd of a release, unpacked, in a file without a name; none if it is not packed as the builder does.
fn unpacked_initrd(
    (payload, version): (&Payload, &str),
    medium: (OpenPayload<'_>, &str),
    directory: &Path,
    progress: &Progress,
) -> Result<Option<File>> {
    let text = format!("Unpacking the initrd of {version}");
    let mut step = progress.step("expand", text, Some(payload.size));
    let mut packed = store(payload, medium, directory, (&mut step, progress))?;
    let storing = || format!("storing the initrd of {version} in {}", directory.display());
    let mut archives = tempfile::tempfile_in(directory).class(Class::DiskIo, storing)?;
    let unpacked = initrd::unpack(&mut packed, &mut archives);
    step.done();
    match unpacked {
        Ok(()) => Ok(Some(archives)),
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidData | io::ErrorKind::UnexpectedEof) => {
            Ok(None)
        }
        Err(error) => Err(error).class(Class::DiskIo, storing),
    }
}

/// True if a node that packs these archives gets the initrd with this digest.
fn packs_again(mut archives: &File, digest: Digest) -> bool {
    let mut hasher = Hasher::default();
    initrd::pack(&mut archives, &mut hasher).is_ok() && hasher.finish() == digest
}

/// Writes a file and hashes what comes.
struct HashedFile {
    file: io::BufWriter<File>,
    hashes: VerityBuilder,
}

impl Write for HashedFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.file.write(bytes)?;
        self.hashes.update(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
