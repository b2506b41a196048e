//! Container images for a containerd that runs: an update adds those of the new release before the node restarts into it.
//!
//! Beside a running containerd no blob can be put into its store as [`seed`](super::seed) does: its metadata database is open,
//! and its garbage collector removes content that the database does not name. So blobs go through `ctr images import`, one image
//! at a time, as the archive of an OCI layout on its standard input; nothing is on the disk twice. How it works (seen with
//! containerd 1.6.20 and 1.7.24, and in the source of 2.0) decides what is done here:
//!
//! - The archive may leave out blobs that the content store has, documents too. It may also leave out layers that nobody has: the
//!   image gets its name all the same, and is incomplete. So what is there is asked before and after.
//! - A lease protects what comes in until the image has its name; from then on labels do that `ctr` gives to the documents. An
//!   import that fails or whose archive ends early gives the lease back, and the collector removes what came. `ctr` has no way
//!   to put other content under a lease; that what was there is gone meanwhile is found by asking again.
//! - Part of a blob that an earlier import left under the same path of its archive is gone on with, whatever its bytes, and the
//!   result is stored under the digest that it has by then. So no two archives have the same paths.
//! - An archive that ends between two of its files counts as complete. So its index is last: without it no image is named.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ChildStdin;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use serde::Serialize;
use serde_json::json;

use super::unpack::{CTR_TIMEOUT, unpack_each};
use crate::plan::{images_of, unpacked};
use base::cancel::Cancel;
use base::containerd::{BLOBS, ContainerdClient, ContainerdVersion, NAMESPACE, PINNED, StdinWriter};
use base::digest::Digest;
use base::failure::{Class, Classify, Failure, class_of};
use base::parallel::locked;
use base::progress::{Progress, Step};
use base::size::ByteSize;
use formats::oci::layout::MARKER_CONTENT;
use formats::oci::{Descriptor, Document, ImageReference, media_types};
use medium::payload_sources::{PayloadPlace, PayloadSource, VerifyingReader, fetch_again};
use model::config::{Distribution, Role};
use model::release::{Image, Payload, Release};

const ASK_TIMEOUT: Duration = Duration::from_secs(120);
/// For one image, which may come over a slow network. A source that stalls fails by itself long before.
const IMPORT_TIMEOUT: Duration = Duration::from_secs(6 * 3600);
const GRACE: Duration = Duration::from_secs(10);
/// The bytes written to `ctr` at once.
const PIECE_BYTES: usize = 1 << 20;
/// What stays free beside the images: for containerd's database, and for what pods write meanwhile.
pub const IMAGES_SPARE_ROOM: ByteSize = ByteSize::mib(64);
/// How often the images are added that turn out to be incomplete, before that is an error.
const ROUNDS: usize = 2;

/// The containerd that runs the pods of this node.
#[derive(Clone, Debug)]
pub struct RunningContainerd {
    pub ctr: PathBuf,
    pub socket: PathBuf,
    pub root: PathBuf,
}

impl RunningContainerd {
    /// That of a node with this distribution; without one, that of the OS image, which kubeadm uses too.
    #[must_use]
    pub fn of(distribution: Option<Distribution>) -> Self {
        let distribution = distribution.unwrap_or(Distribution::Kubeadm);
        let ctr = match distribution {
            Distribution::Rke2 => "/var/lib/rancher/rke2/bin/ctr",
            // The link to k3s comes before the program of the OS image in PATH.
            Distribution::K3s | Distribution::Kubeadm => "ctr",
        };
        Self {
            ctr: ctr.into(),
            socket: distribution.containerd_socket().into(),
            root: distribution.containerd_root().into(),
        }
    }

    /// Where its content store has a blob.
    #[must_use]
    pub fn blob(&self, digest: &Digest) -> PathBuf {
        self.root.join(BLOBS).join(digest.to_string())
    }

    /// Fails unless the file system of the store has room for `bytes` more. What snapshots will take is not known before
    /// they are made, and not counted.
    fn check_room(&self, bytes: u64) -> Result<()> {
        if bytes == 0 {
            return Ok(());
        }
        let free = base::files::free_space(&self.root)?;
        let needed = ByteSize::bytes(bytes.saturating_add(IMAGES_SPARE_ROOM.get()));
        if free >= needed {
            return Ok(());
        }
        let what = format!(
            "the container images of the new release need {needed} in {}, and {free} are free",
            self.root.display()
        );
        let hint = "Remove images that no pod uses with `crictl rmi --prune`, or free space otherwise, then start again. Nothing was fetched.";
        Err(Failure::new(Class::DiskIo, what).hint(hint).into())
    }
}

/// What a containerd lacks of the images of a role.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct MissingImages {
    /// The images that are to be added, by their names. Some may need nothing fetched.
    pub images: Vec<String>,
    /// The bytes of the blobs to fetch, each blob once.
    pub fetch: u64,
    /// The bytes of the blobs that are there, each blob once.
    pub present: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ImportOutcome {
    pub images: Vec<String>,
    /// The bytes that were fetched for them; those of damaged blobs that were fetched again count once.
    pub fetched: u64,
    /// The bytes that were there before.
    pub present: u64,
}

/// What [`import_missing`] would do, without fetching anything.
pub fn missing_images(
    containerd: &RunningContainerd,
    release: &Release,
    role: Role,
) -> Result<MissingImages> {
    let wanted = wanted(release, role)?;
    Ok(ImportSession::open(containerd)?.look(&wanted)?.missing(&wanted))
}

/// Gives the running containerd those images that `role` needs and that it lacks, complete and under all their names, and keeps
/// kubelets from removing them. A name that meant another image means the new one from then on, also for pods that start before
/// the node restarts; the other one keeps the name with its digest. Images that were added before a failure stay, and the next
/// run goes on with the others.
///
/// # Errors
/// [`Class::Verification`] for wrong bytes and [`Class::Network`] for none from `source`; [`Class::DiskIo`] for too little room
/// and for what containerd cannot store; [`Class::Hardware`] for a containerd that does not answer; [`Class::Cancelled`].
pub fn import_missing(
    containerd: &RunningContainerd,
    source: &dyn PayloadSource,
    release: &Release,
    role: Role,
    progress: &Progress,
    cancel: &Cancel,
) -> Result<ImportOutcome> {
    let wanted = wanted(release, role)?;
    let session = ImportSession::open(containerd)?;
    let mut present = session.look(&wanted)?;
    let missing = present.missing(&wanted);
    containerd.check_room(missing.fetch)?;
    let mut step =
        progress.step("images", "Adding container images to the running containerd", Some(missing.fetch));
    let mut outcome = ImportOutcome { present: missing.present, ..ImportOutcome::default() };
    let run = ImportRun { session: &session, source, release, cancel, attempts: AtomicUsize::new(0) };
    for _ in 0..ROUNDS {
        let mut added = false;
        for image in &wanted {
            cancel.check()?;
            if present.lacks(image) {
                outcome.fetched += run.add_kept(image, &wanted, &mut present, &mut step)?;
                let name = &image.image.name;
                if !outcome.images.contains(name) {
                    outcome.images.push(name.clone());
                }
                added = true;
            }
            session.pin(image, &mut present)?;
        }
        if !added {
            break;
        }
        present = session.look(&wanted)?;
    }
    if let Some(image) = wanted.iter().find(|image| present.lacks(image)) {
        return Err(incomplete(image, &present).into());
    }
    if release.containerd.unpack {
        run.unpack(role, progress)?;
    }
    step.done();
    Ok(outcome)
}

struct WantedImage<'a> {
    image: &'a Image,
    /// The names that it has on nodes.
    names: Vec<String>,
    blobs: Vec<Payload>,
}

fn wanted(release: &Release, role: Role) -> Result<Vec<WantedImage<'_>>> {
    let (blobs, _) = images_of(release, role)?;
    let by_digest: BTreeMap<Digest, Payload> = blobs.into_iter().map(|blob| (blob.sha256, blob)).collect();
    let wanted = |image: &'_ Image| -> Result<_> {
        let what = || format!("reading the name of an image in the release manifest, {:?}", image.name);
        let name: ImageReference = image.name.parse().class(Class::Verification, what)?;
        let mut seen = BTreeSet::new();
        let digests = [image.digest].into_iter().chain(image.blobs.iter().copied());
        let blobs = digests.filter(|digest| seen.insert(*digest)).filter_map(|digest| by_digest.get(&digest));
        let names = name.names_on_nodes(image.digest).iter().map(ToString::to_string).collect();
        Ok((names, blobs.cloned().collect()))
    };
    let all = release.images_for(role).map(|image| {
        let (names, blobs) = wanted(image)?;
        Ok(WantedImage { image, names, blobs })
    });
    all.collect()
}

/// What a containerd has of the images that are wanted.
#[derive(Debug, Default)]
struct PresentImages {
    blobs: BTreeSet<Digest>,
    /// The names that mean the right image.
    named: BTreeSet<String>,
    /// Those of images that kubelets do not remove.
    pinned: BTreeSet<String>,
}

impl PresentImages {
    fn lacks(&self, image: &WantedImage<'_>) -> bool {
        self.absent(image).next().is_some() || image.names.iter().any(|name| !self.named.contains(name))
    }

    fn absent<'a>(&'a self, image: &'a WantedImage<'_>) -> impl Iterator<Item = &'a Payload> {
        image.blobs.iter().filter(|blob| !self.blobs.contains(&blob.sha256))
    }

    fn missing(&self, wanted: &[WantedImage<'_>]) -> MissingImages {
        let lacking = wanted.iter().filter(|image| self.lacks(image));
        let blobs: BTreeMap<Digest, u64> =
            wanted.iter().flat_map(|image| &image.blobs).map(|blob| (blob.sha256, blob.size)).collect();
        let (there, absent): (Vec<_>, Vec<_>) =
            blobs.into_iter().partition(|(digest, _)| self.blobs.contains(digest));
        let bytes = |blobs: Vec<(Digest, u64)>| blobs.into_iter().map(|(_, size)| size).sum();
        MissingImages {
            images: lacking.map(|image| image.image.name.clone()).collect(),
            fetch: bytes(absent),
            present: bytes(there),
        }
    }
}

/// containerd said that it took the image, and does not have it.
fn incomplete(image: &WantedImage<'_>, present: &PresentImages) -> Failure {
    let name = &image.image.name;
    let lacks = present.absent(image).next().map_or_else(
        || "another image has taken its name meanwhile".to_owned(),
        |blob| format!("the blob {} is not there after it was added", blob.sha256.oci()),
    );
    Failure::new(Class::DiskIo, format!("containerd does not keep the image {name}"))
        .because(anyhow!(lacks))
        .hint("Read containerd's log, and stop what removes images on this node; then start again.")
}

/// Asks a containerd that runs.
struct ImportSession<'a> {
    containerd: &'a RunningContainerd,
    asked: ContainerdClient,
    fed: ContainerdClient,
    version: ContainerdVersion,
    /// Holds the output of the programs; removed when dropped.
    work: tempfile::TempDir,
}

impl<'a> ImportSession<'a> {
    fn open(containerd: &'a RunningContainerd) -> Result<Self> {
        let work =
            tempfile::tempdir().class(Class::DiskIo, || "making a directory for what ctr prints".into())?;
        let client = |name: &str, limit| -> Result<_> {
            let path = work.path().join(name);
            fs::create_dir(&path)
                .class(Class::DiskIo, || format!("making the directory {}", path.display()))?;
            Ok(ContainerdClient::new(&containerd.ctr, &containerd.socket, &path, limit))
        };
        let (asked, fed) = (client("asked", ASK_TIMEOUT)?, client("fed", IMPORT_TIMEOUT)?);
        let version = asked.version()?;
        Ok(Self { containerd, asked, fed, version, work })
    }

    fn ask<'w>(&self, words: impl IntoIterator<Item = &'w str>) -> Result<String> {
        let printed =
            self.asked.ctr(["--namespace", NAMESPACE].into_iter().chain(words)).map_err(|error| {
                let what = format!("asking containerd behind {}", self.containerd.socket.display());
                Failure::new(Class::Hardware, what)
                    .because(error.reallocate_into_boxed_dyn_error_without_backtrace())
                    .hint("See that the node's containerd runs, then start again.")
            })?;
        String::from_utf8(printed).context("reading what ctr prints")
    }

    /// What there is of `wanted`. A blob counts that containerd knows and that is a file of the right length: a file alone may
    /// be what its collector is about to remove.
    fn look(&self, wanted: &[WantedImage<'_>]) -> Result<PresentImages> {
        if wanted.is_empty() {
            return Ok(PresentImages::default());
        }
        let listed = self.ask(["content", "ls", "--quiet"])?;
        let known: BTreeSet<Digest> = listed.lines().filter_map(|line| line.trim().parse().ok()).collect();
        let mut blobs = BTreeSet::new();
        for blob in wanted.iter().flat_map(|image| &image.blobs).filter(|blob| known.contains(&blob.sha256)) {
            if self.has_file(blob)? {
                blobs.insert(blob.sha256);
            }
        }
        let (label, value) = PINNED;
        let named = self.names(wanted, "")?;
        let pinned = self.names(wanted, &format!(r#",labels."{label}"=={value}"#))?;
        Ok(PresentImages { blobs, named, pinned })
    }

    fn has_file(&self, blob: &Payload) -> Result<bool> {
        let path = self.containerd.blob(&blob.sha256);
        match fs::metadata(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error).class(Class::DiskIo, || format!("looking at {}", path.display())),
            Ok(file) if file.len() == blob.size => Ok(true),
            // An import would leave such a file as it is.
            Ok(file) => Err(damaged(&path, &format!("{} bytes instead of {}", file.len(), blob.size)).into()),
        }
    }

    /// Which names of `wanted` mean the right image, and fit the rest of the filter (containerd, `filters`: a comma is "and",
    /// several filters are "or").
    fn names(&self, wanted: &[WantedImage<'_>], rest: &str) -> Result<BTreeSet<String>> {
        let filters = wanted.iter().flat_map(|image| {
            let digest = image.image.digest.oci();
            image.names.iter().map(move |name| format!(r#"name=="{name}",target.digest=="{digest}"{rest}"#))
        });
        let filters: Vec<_> = filters.collect();
        let words = ["images", "ls", "--quiet"].into_iter().chain(filters.iter().map(String::as_str));
        Ok(self.ask(words)?.lines().map(|name| name.trim().to_owned()).collect())
    }

    /// Keeps kubelets from removing the image, as an install does.
    fn pin(&self, image: &WantedImage<'_>, present: &mut PresentImages) -> Result<()> {
        let label = format!("{}={}", PINNED.0, PINNED.1);
        for name in &image.names {
            if present.pinned.insert(name.clone()) {
                self.ask(["images", "label", name.as_str(), label.as_str()])?;
            }
        }
        Ok(())
    }
}

fn damaged(path: &Path, how: &str) -> Failure {
    Failure::new(Class::DiskIo, format!("{} in containerd's store is damaged: {how}", path.display())).hint(
        "Name the images that have it with `installer images check`, remove them with `crictl rmi`, then start again.",
    )
}

struct ImportRun<'a> {
    session: &'a ImportSession<'a>,
    source: &'a dyn PayloadSource,
    release: &'a Release,
    cancel: &'a Cancel,
    /// How many archives were begun.
    attempts: AtomicUsize,
}

impl ImportRun<'_> {
    /// Adds an image, again if what was there of it is gone meanwhile, which makes an import fail that left it out: the
    /// collector runs some moments after an import that was stopped, or after an image was removed.
    fn add_kept(
        &self,
        image: &WantedImage<'_>,
        wanted: &[WantedImage<'_>],
        present: &mut PresentImages,
        step: &mut Step,
    ) -> Result<u64> {
        match self.add(image, present, step) {
            Err(error) if class_of(&error) == Class::DiskIo => {
                let before = std::mem::replace(present, self.session.look(wanted)?);
                let gone = present.absent(image).any(|blob| before.blobs.contains(&blob.sha256));
                if gone { self.add(image, present, step) } else { Err(error) }
            }
            added => added,
        }
    }

    /// Adds an image, again if a part of it arrives damaged over a network. Returns the bytes that were fetched.
    fn add(&self, image: &WantedImage<'_>, present: &mut PresentImages, step: &mut Step) -> Result<u64> {
        let absent: Vec<&Payload> = present.absent(image).collect();
        let before = step.bytes();
        let step = Mutex::new(step);
        let import = || {
            let imported = self.import(image, &absent, &step);
            imported.with_context(|| format!("adding {} to the running containerd", image.image.name))
        };
        let here = |blob: &&Payload| self.source.place(blob) == Some(PayloadPlace::Here);
        match absent.iter().all(here) {
            true => import()?,
            false => fetch_again(import, |_| locked(&step).back_to(before))?,
        }
        let fetched = absent.iter().map(|blob| blob.size).sum();
        let digests: Vec<_> = absent.iter().map(|blob| blob.sha256).collect();
        present.blobs.extend(digests);
        present.named.extend(image.names.iter().cloned());
        Ok(fetched)
    }

    /// Sends the blobs `absent` of an image, and its names.
    fn import(&self, image: &WantedImage<'_>, absent: &[&Payload], step: &Mutex<&mut Step>) -> Result<()> {
        let mut documents = BTreeMap::new();
        for payload in image.blobs.iter().take(image.image.documents.max(1)) {
            if absent.iter().any(|blob| blob.sha256 == payload.sha256) {
                let mut bytes = Vec::new();
                self.open(payload, step)?.read_to_end(&mut bytes).with_context(|| self.fetching(payload))?;
                documents.insert(payload.sha256, bytes);
            }
        }
        let index = self.index(image, &documents)?;
        // Its directory is the work of this process only, and has a name that no other has.
        let process = self.session.work.path().file_name().unwrap_or_default().to_string_lossy();
        let attempt = self.attempts.fetch_add(1, Ordering::Relaxed);
        let feed = |pipe: ChildStdin| -> Result<()> {
            let mut archive = Archive(tar::Builder::new(BufWriter::with_capacity(PIECE_BYTES, pipe)));
            for blob in absent {
                let path = format!("{process}-{attempt}/{}", blob.sha256);
                match documents.get(&blob.sha256) {
                    Some(bytes) => archive.add(&path, blob.size, bytes.as_slice())?,
                    None => archive
                        .add(&path, blob.size, self.open(blob, step)?)
                        .with_context(|| self.fetching(blob))?,
                }
            }
            archive.add("index.json", index.len() as u64, index.as_slice())?;
            archive.add("oci-layout", MARKER_CONTENT.len() as u64, MARKER_CONTENT)?;
            Ok(archive.0.into_inner()?.flush()?)
        };
        // As at build time: of an index only what nodes of this architecture need is there.
        let platform = format!("linux/{}", self.release.architecture);
        let mut words = vec!["--namespace", NAMESPACE, "images", "import", "--no-unpack"];
        words.extend(["--platform", &platform]);
        if self.session.version.series() >= (2, 0) {
            // Else it goes through another service, of which what is said above is not known.
            words.push("--local");
        }
        words.push("-");
        let feed: Box<StdinWriter<'_>> = Box::new(feed);
        let imported = self.session.fed.ctr_while(words, Some(feed), &mut self.until_stopped());
        imported.class(Class::DiskIo, || "giving it to containerd".into())?;
        Ok(())
    }

    /// After a stop the archive ends, and `ctr` with it; one that does not is ended.
    fn until_stopped(&self) -> impl FnMut() -> Result<()> {
        let mut stopped: Option<Instant> = None;
        move || match self.cancel.check() {
            Err(failure) if stopped.get_or_insert_with(Instant::now).elapsed() > GRACE => Err(failure.into()),
            _ => Ok(()),
        }
    }

    /// The index of the archive: the image under each of its names.
    fn index(&self, image: &WantedImage<'_>, documents: &BTreeMap<Digest, Vec<u8>>) -> Result<Vec<u8>> {
        let digest = image.image.digest;
        let bytes = match documents.get(&digest) {
            Some(bytes) => bytes.clone(),
            None => self.stored(&digest)?,
        };
        let document = Document::parse(&bytes, "");
        let document =
            document.class(Class::Verification, || format!("reading the manifest {}", digest.oci()))?;
        let media_type = match document {
            Document::Manifest(manifest) => manifest.media_type,
            Document::Index(index) => index.media_type,
        };
        let descriptors = image.names.iter().map(|name| Descriptor {
            media_type: media_type.clone(),
            digest,
            size: bytes.len() as u64,
            annotations: ["org.opencontainers.image.ref.name", "io.containerd.image.name"]
                .map(|key| (key.to_owned(), name.clone()))
                .into(),
            platform: None,
        });
        let descriptors: Vec<_> = descriptors.collect();
        let index =
            json!({ "schemaVersion": 2, "mediaType": media_types::OCI_INDEX, "manifests": descriptors });
        Ok(serde_json::to_vec(&index)?)
    }

    /// A document that containerd has.
    fn stored(&self, digest: &Digest) -> Result<Vec<u8>> {
        let path = self.session.containerd.blob(digest);
        let bytes = fs::read(&path).class(Class::DiskIo, || format!("reading {}", path.display()))?;
        match Digest::of(&bytes) == *digest {
            true => Ok(bytes),
            false => Err(damaged(&path, "its content does not match its name").into()),
        }
    }

    fn fetching(&self, blob: &Payload) -> String {
        format!("fetching {}", self.release.describe(blob))
    }

    /// The bytes of a blob. The regular end says that they are right.
    fn open<'s>(&'s self, blob: &Payload, step: &'s Mutex<&mut Step>) -> Result<impl Read + 's> {
        let reader = self.source.open(blob).with_context(|| self.fetching(blob))?;
        let inner = VerifyingReader::new(reader, blob, self.source.describe_of(blob));
        Ok(FetchReader { inner, cancel: self.cancel, step })
    }

    /// Unpacks what is not unpacked yet. The images have their names, which protect content and snapshots.
    fn unpack(&self, role: Role, progress: &Progress) -> Result<()> {
        let RunningContainerd { ctr, socket, .. } = self.session.containerd;
        let client = ContainerdClient::new(ctr, socket, self.session.work.path(), CTR_TIMEOUT);
        unpack_each(&client, &unpacked(self.release, role), progress, self.cancel)
    }
}

/// An archive on its way to `ctr`.
struct Archive(tar::Builder<BufWriter<ChildStdin>>);

impl Archive {
    fn add(&mut self, path: &str, size: u64, content: impl Read) -> io::Result<()> {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(size);
        self.0.append_data(&mut header, path, content)
    }
}

/// Counts what is fetched, and ends with a stop.
struct FetchReader<'a, 's, R> {
    inner: R,
    cancel: &'a Cancel,
    step: &'a Mutex<&'s mut Step>,
}

impl<R: Read> Read for FetchReader<'_, '_, R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.cancel.check().map_err(io::Error::other)?;
        let count = self.inner.read(buffer)?;
        locked(self.step).advance(count as u64);
        Ok(count)
    }
}

#[cfg(test)]
mod tests;
