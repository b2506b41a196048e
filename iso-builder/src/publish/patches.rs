//! Patches from the OS images of earlier releases, made when a release is pushed.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

use anyhow::{Context, Result};
use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use base::files::{self, read_at_most};
use base::progress::Progress;
use base::size::ByteSize;
use formats::delta::{DeltaError, make::make};
use formats::squashfs::Expansion;
use formats::verity::{VerityBuilder, VerityParameters};
use medium::artifact::ArtifactReference;
use medium::opened::OpenedMedium;
use medium::patches::{ImagePatch, LIST_LIMIT, PATCHES, PatchList};
use medium::sources::{
    PayloadSource, RetryPolicy, Verified, fetch_again, is_url, open_release, read_release, source,
};
use model::release::{Payload, Purpose, Release};
use tempfile::TempDir;
use transfer::registry::Client;

/// From so many earlier releases at most: each takes a minute and some room, and nodes further back fetch the whole image.
pub const PATCHES_MAX: usize = 3;

/// The patches that go with a release. Files of those that were made end with this.
#[derive(Debug)]
pub(super) struct MadePatches {
    patches: Vec<(ImagePatch, PathBuf)>,
    directory: Option<TempDir>,
}

impl MadePatches {
    /// Makes patches from the OS images of the releases that `earlier` names to that of `release`, which `medium` has. One that is not
    /// shorter than the compressed image is left out. Patches that `medium` has beside it, where it was pulled, go with the release too.
    ///
    /// # Errors
    /// [`Class::Invalid`] for releases of another product, and for more than [`PATCHES_MAX`].
    pub(super) fn make(
        earlier: &[String],
        (release, medium): (&Release, &OpenedMedium),
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
        let opened: Vec<_> = earlier.iter().map(|name| open(name, client)).collect::<Result<_>>()?;
        for ((_, from), name) in opened.iter().zip(earlier) {
            same_product(from, release, name)?;
        }
        let directory =
            tempfile::tempdir().class(Class::DiskIo, || "making a directory for patches".into())?;
        let open_new = |image: &Payload| medium.open_payload(image);
        let new =
            expand(release, (&open_new, &medium.path().display().to_string()), directory.path(), progress)?;
        made.directory = Some(directory);
        for (source, from) in &opened {
            made.add(from, source.as_ref(), (release, &new), progress)?;
        }
        Ok(made)
    }

    pub(super) fn patches(&self) -> Vec<ImagePatch> {
        self.patches.iter().map(|(patch, _)| patch.clone()).collect()
    }

    /// The file of the patch with this digest.
    pub(super) fn file(&self, digest: Digest) -> Option<&Path> {
        let found = self.patches.iter().find(|(patch, _)| patch.sha256 == digest);
        found.map(|(_, file)| file.as_path())
    }

    fn add(
        &mut self,
        from: &Release,
        source: &dyn PayloadSource,
        (release, new): (&Release, &File),
        progress: &Progress,
    ) -> Result<()> {
        let Some(directory) = self.directory.as_ref().map(TempDir::path) else { return Ok(()) };
        let (start, whole) = (from.expanded.root_hash, image_size(release));
        let version = &from.version;
        if start == release.expanded.root_hash || self.patches.iter().any(|(patch, _)| patch.from == start) {
            progress.note("delta", format!("no patch from {version}: its OS image needs none, or has one"));
            return Ok(());
        }
        let old = expand(from, (&|image| source.open(image), &source.describe()), directory, progress)?;
        let mut file = tempfile::NamedTempFile::new_in(directory)
            .class(Class::DiskIo, || "making a file for a patch".into())?;
        let threads = available_parallelism().map_or(1, usize::from);
        let making = format!("Making a patch from {version}");
        progress.within("delta", making, || {
            make(&old, new, threads, &mut file).map_err(|error| {
                let class = match error {
                    DeltaError::Write(_) | DeltaError::ReadImage(..) => Class::DiskIo,
                    _ => Class::Unexpected,
                };
                Failure::new(class, format!("making a patch from {version}")).because(error).into()
            })
        })?;
        let reading = || format!("reading the patch from {version}");
        let (sha256, size) =
            Digest::of_reader(file.reopen().class(Class::DiskIo, reading)?).class(Class::DiskIo, reading)?;
        let [shown, whole_shown] = [size, whole].map(ByteSize::bytes);
        if size >= whole {
            let text =
                format!("the patch from {version} is left out: it has {shown}, the image {whole_shown}");
            progress.note("delta", text);
            return Ok(());
        }
        progress.note("delta", format!("The patch from {version} has {shown}, the image {whole_shown}"));
        let kept = directory.join(sha256.to_string());
        file.persist(&kept).map_err(|error| error.error).class(Class::DiskIo, || "keeping a patch".into())?;
        self.patches.push((ImagePatch::new(start, size, sha256), kept));
        Ok(())
    }
}

/// The patches that a directory with a release lists, and their files.
fn beside(medium: &OpenedMedium) -> Result<Vec<(ImagePatch, PathBuf)>> {
    let Some(list) = medium.local().map(|directory| directory.join(PATCHES)).filter(|list| list.is_file())
    else {
        return Ok(Vec::new());
    };
    let reading = || format!("reading {}", list.display());
    let bytes = read_at_most(&list, LIST_LIMIT).class(Class::DiskIo, reading)?;
    let patches = PatchList::parse(&bytes)?.patches.into_iter();
    let named = |patch: ImagePatch| (patch.clone(), files::parent(&list).join(patch.path));
    Ok(patches.map(named).filter(|(_, file)| file.is_file()).collect())
}

/// Opens what a person names as an earlier release: a medium, or a reference in a registry.
fn open(name: &str, client: &Client) -> Result<(Box<dyn PayloadSource>, Release)> {
    let local = is_url(name) || name.starts_with(medium::artifact::LAYOUT) || Path::new(name).exists();
    if local || name.starts_with(['/', '.']) {
        let source = source(Some(name), &[], RetryPolicy::default())?;
        let release = read_release(source.as_ref(), None)?;
        return Ok((source, release));
    }
    let reference: ArtifactReference = name.parse()?;
    let (release, _, source) = open_release(&reference, client)?;
    Ok((source, release))
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

/// Opens a payload of one medium.
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
    let compressed = fetch_again(
        || {
            step.back_to(0);
            let mut file = tempfile::tempfile_in(directory).class(Class::DiskIo, storing)?;
            let opened = step.reader(open(image)?);
            io::copy(&mut Verified::new(opened, image, from), &mut file)?;
            Ok(file)
        },
        |error| progress.warn("expand", &format!("{error:#}; it is read again")),
    )?;
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
