//! A real containerd for the image store: one writes its metadata, another checks that a node will read it.
//!
//! Both run with directories and a socket of their own, without CRI, without runtimes and with the one snapshotter that
//! the metadata store insists on, so they need neither root nor mounts. They get the store's blobs as hard links:
//! containerd replaces and removes links in its content store, but never writes into an existing blob.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use base::command::{Invocation, Runner, SystemRunner};
use base::containerd::{
    BLOBS, ContainerdDaemon, ContainerdPaths, ContainerdPrograms, ContainerdVersion, METADATA, NAMESPACE,
};
use base::failure::{Class, Failure};
use base::files::{make_directory, read_at_most};
use tempfile::TempDir;

use super::blob::Blob;
use super::containerd_check;
use super::store::Store;
use super::stored_image::StoredImage;
use crate::files::link_or_copy;

/// In bytes; one image takes some kilobytes.
const MAX_DATABASE_BYTES: u64 = 256 << 20;
/// Blobs up to this length in bytes are sent to containerd, which is quicker than starting a program for each.
const MAX_SENT_BYTES: u64 = 256 << 10;
/// How many programs announce blobs at the same time. Most of the time each waits for containerd's database.
const PARALLEL_ANNOUNCERS: usize = 4;

/// Disables everything that is not needed here, and that would need privileges or change the machine.
const CONFIG: &str = r#"version = 2
required_plugins = ["io.containerd.metadata.v1.bolt"]
disabled_plugins = [
  "io.containerd.cri.v1.images",
  "io.containerd.cri.v1.runtime",
  "io.containerd.differ.v1.walking",
  "io.containerd.grpc.v1.cri",
  "io.containerd.grpc.v1.diff",
  "io.containerd.grpc.v1.tasks",
  "io.containerd.internal.v1.opt",
  "io.containerd.internal.v1.restart",
  "io.containerd.monitor.v1.cgroups",
  "io.containerd.nri.v1.nri",
  "io.containerd.runtime.v1.linux",
  "io.containerd.runtime.v2.task",
  "io.containerd.service.v1.diff-service",
  "io.containerd.service.v1.tasks-service",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.overlayfs",
  "io.containerd.snapshotter.v1.zfs",
]
"#;

/// Disables garbage collection: it would remove blobs that are not announced yet. A deletion threshold of 0 would mean
/// a collection after each deletion, such as that of the import's lease.
const NO_COLLECTION: &str = r#"
[plugins."io.containerd.gc.v1.scheduler"]
  deletion_threshold = 2147483647
  mutation_threshold = 0
  schedule_delay = "0s"
  startup_delay = "0s"
"#;

/// Where containerd is, how to start it, and where it may work.
#[derive(Clone, Debug)]
pub struct Containerd {
    pub programs: ContainerdPrograms,
    /// An existing directory for containerd's files; best on the file system of the store, so that blobs are linked and
    /// not copied.
    pub scratch: PathBuf,
    /// The path of the same directory for programs behind their prefix. A socket is made below it: keep it short.
    pub scratch_inside: PathBuf,
    /// The architecture of the nodes as Go calls it. From an index, the store has no manifests for others.
    pub architecture: String,
}

impl Containerd {
    /// The host's containerd, from `PATH`, with files below `scratch`. Runs in a user namespace of its own
    /// unless this process is root.
    #[must_use]
    pub fn of_host(scratch: &Path, architecture: &str) -> Self {
        let namespace = ["unshare", "--user", "--map-root-user", "--mount"].map(OsString::from);
        let programs = ContainerdPrograms {
            prefix: if nix::unistd::geteuid().is_root() { Vec::new() } else { namespace.into() },
            containerd: "containerd".into(),
            ctr: "ctr".into(),
            limit: Duration::from_secs(600),
        };
        Self {
            programs,
            scratch: scratch.into(),
            scratch_inside: scratch.into(),
            architecture: architecture.into(),
        }
    }

    pub fn version(&self) -> Result<ContainerdVersion> {
        let programs = &self.programs;
        let mut words = programs.prefix.iter().cloned().chain([programs.containerd.clone().into()]);
        let program = words.next().unwrap_or_default();
        let asked = Invocation::new(program).args(words).arg("--version").limit(programs.limit);
        let printed =
            SystemRunner.run(&asked).context("asking containerd for its version").map_err(|error| {
                Failure::new(Class::Hardware, "starting containerd")
                    .because(error)
                    .hint("Install the packages containerd and util-linux.")
            })?;
        ContainerdVersion::from_program(&String::from_utf8_lossy(&printed))
            .context("asking containerd for its version")
    }

    /// Lets a fresh containerd, which is of `version`, import `images` from the finished `store`; returns the database
    /// that it leaves. Large layers are neither copied nor read: containerd finds them in its content store already.
    pub fn write(
        &self,
        version: &ContainerdVersion,
        store: &Store,
        images: &[StoredImage],
    ) -> Result<Vec<u8>> {
        let room = ContainerdDirectory::new(self, store, images)?;
        let daemon =
            ContainerdDaemon::start(&self.programs, room.places(), &format!("{CONFIG}{NO_COLLECTION}"))?;
        announce(&daemon, store, images)?;
        self.import(&daemon, version, store, images)?;
        daemon.stop()?;
        let bytes = read_at_most(&room.path(METADATA), MAX_DATABASE_BYTES)?;
        room.remove()?;
        Ok(bytes)
    }

    /// Starts a containerd as a node would, on `database` and the blobs of `images`, runs its garbage collector, and
    /// requires that it has exactly these images, complete.
    pub fn verify(&self, store: &Store, images: &[StoredImage], database: &[u8]) -> Result<()> {
        let room = ContainerdDirectory::new(self, store, images)?;
        let place = room.path(METADATA);
        make_directory(place.parent().unwrap_or(&place), 0o711)?;
        fs::write(&place, database).with_context(|| format!("writing {}", place.display()))?;
        let daemon = ContainerdDaemon::start(&self.programs, room.places(), CONFIG)?;
        containerd_check::has_exactly(&daemon, images)?;
        containerd_check::collect(&daemon)?;
        containerd_check::has_exactly(&daemon, images).context("after containerd's collector ran")?;
        daemon.stop()?;
        containerd_check::lie_in(&room.path(BLOBS), images)?;
        room.remove()
    }

    /// Sends indexes, manifests and other small blobs through a pipe; containerd makes the images.
    fn import(
        &self,
        daemon: &ContainerdDaemon<'_>,
        version: &ContainerdVersion,
        store: &Store,
        images: &[StoredImage],
    ) -> Result<()> {
        let platform = format!("linux/{}", self.architecture);
        let mut words = vec!["--namespace", NAMESPACE, "images", "import", "--no-unpack"];
        words.extend(["--platform", &platform]);
        if version.series() >= (2, 0) {
            // Without it the import goes through a service that needs the plug-ins for unpacking.
            words.push("--local");
        }
        words.push("-");
        let feed = |pipe| {
            store.write_archive(images, MAX_SENT_BYTES, std::io::BufWriter::with_capacity(1 << 16, pipe))
        };
        daemon.client().ctr_while(words, Some(Box::new(feed)), &mut || Ok(()))?;
        Ok(())
    }
}

/// Announces the larger blobs to containerd. Its content store has them; with the digest known, it takes them over
/// without reading them (`content_sharing_policy = "shared"`, the default).
fn announce(daemon: &ContainerdDaemon<'_>, store: &Store, images: &[StoredImage]) -> Result<()> {
    let large = |blob: &Blob| blob.size > MAX_SENT_BYTES;
    let blobs: BTreeSet<Blob> = images.iter().flat_map(StoredImage::blobs).filter(large).collect();
    let queue = Mutex::new(blobs.into_iter());
    let next = || queue.lock().map_or(None, |mut queue| queue.next());
    let work = || std::iter::from_fn(next).try_for_each(|blob| announce_one(daemon, store, blob));
    thread::scope(|scope| {
        let workers: Vec<_> = (0..PARALLEL_ANNOUNCERS).map(|_| scope.spawn(work)).collect();
        let ended = |worker: thread::ScopedJoinHandle<'_, Result<()>>| {
            worker.join().unwrap_or_else(|_| Err(anyhow!("a thread that announced blobs panicked")))
        };
        workers.into_iter().map(ended).fold(Ok(()), Result::and)
    })
}

/// `ctr` gets the blob as standard input. It seeks to where containerd has stopped, which is the end, and reads
/// nothing.
fn announce_one(daemon: &ContainerdDaemon<'_>, store: &Store, blob: Blob) -> Result<()> {
    let path = store.blob_path(blob.digest);
    let reading = || format!("reading {}", path.display());
    let file = File::open(&path).with_context(reading)?;
    let (digest, size) = (blob.digest.oci(), blob.size.to_string());
    let words = ["--namespace", NAMESPACE, "content", "ingest", "--expected-digest", &digest];
    let words = words.into_iter().chain(["--expected-size", &size, &digest]);
    daemon
        .client()
        .ctr_reading(words, file)
        .with_context(|| format!("giving the blob {} to containerd", path.display()))?;
    Ok(())
}

/// A directory for one containerd, with the blobs of some images in its content store.
struct ContainerdDirectory {
    directory: TempDir,
    inside: PathBuf,
}

impl ContainerdDirectory {
    fn new(host: &Containerd, store: &Store, images: &[StoredImage]) -> Result<Self> {
        let making = || format!("making a directory for containerd in {}", host.scratch.display());
        let directory =
            tempfile::Builder::new().prefix("c").tempdir_in(&host.scratch).with_context(making)?;
        let inside = host.scratch_inside.join(directory.path().file_name().unwrap_or_default());
        let room = Self { directory, inside };
        let blobs = room.path(BLOBS);
        make_directory(&blobs, 0o755)?;
        let digests: BTreeSet<_> =
            images.iter().flat_map(StoredImage::blobs).map(|blob| blob.digest).collect();
        for digest in digests {
            link_or_copy(&store.blob_path(digest), &blobs.join(digest.to_string()))?;
        }
        Ok(room)
    }

    fn places(&self) -> ContainerdPaths {
        let root_inside = self.inside.join("root");
        ContainerdPaths {
            work: self.directory.path().to_owned(),
            work_inside: self.inside.clone(),
            root_inside,
        }
    }

    fn path(&self, below_root: &str) -> PathBuf {
        self.directory.path().join("root").join(below_root)
    }

    fn remove(self) -> Result<()> {
        let path = self.directory.path().to_owned();
        self.directory.close().with_context(|| format!("removing {}", path.display()))
    }
}
