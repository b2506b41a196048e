//! The container images that came with the node: whether every blob that its role needs is in containerd's content store and
//! matches its digest.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use serde::Serialize;

use base::digest::{Digest, HashingReader};
use base::progress::Progress;
use machine::paths::below;
use model::config::{Images, Role};
use model::release::Release;

/// Blobs of the preloaded images, counted by name; `installer images check` reads them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct BlobCount {
    pub expected: usize,
    pub present: usize,
    /// Whether the node pulls its images on demand, so that blobs may be missing.
    pub deferred: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ImagesReport {
    /// Whether every blob is there, and none is damaged.
    pub complete: bool,
    /// Whether the node pulls its images on demand: then blobs may be missing.
    pub deferred: bool,
    pub images: usize,
    pub blobs: usize,
    pub present: usize,
    /// Blobs that are damaged, or missing without being deferred.
    pub faults: Vec<BlobFault>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct BlobFault {
    pub digest: Digest,
    pub state: BlobState,
    pub images: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum BlobState {
    Missing,
    /// Its content does not match its name.
    Damaged,
}

/// The node's content store, below the directory that stands for `/`.
struct Blobs(PathBuf);

impl Blobs {
    fn of(release: &Release, root: &Path) -> Self {
        Self(below(root, &release.containerd.blobs()))
    }

    fn path(&self, digest: &Digest) -> PathBuf {
        self.0.join(digest.to_string())
    }
}

/// The distinct blobs of the role's images.
fn blobs(release: &Release, role: Role) -> BTreeSet<Digest> {
    release.images_for(role).flat_map(|image| image.blobs.iter().copied()).collect()
}

/// The number of the role's blobs, and the number of those that are in the store below `root`, by name only.
#[must_use]
pub fn count(release: &Release, role: Role, root: &Path) -> (usize, usize) {
    let (blobs, store) = (blobs(release, role), Blobs::of(release, root));
    let present = blobs.iter().filter(|digest| store.path(digest).is_file()).count();
    (blobs.len(), present)
}

/// Reads and hashes every blob that the role's images need, in the store below `root`. If the node's images are deferred, a
/// missing blob is no fault.
pub fn check(
    release: &Release,
    role: Role,
    images: Images,
    root: &Path,
    progress: &Progress,
) -> Result<ImagesReport> {
    let (blobs, store) = (blobs(release, role), Blobs::of(release, root));
    let length = |digest: &Digest| store.path(digest).metadata().map_or(0, |metadata| metadata.len());
    let total = blobs.iter().map(length).sum();
    let mut step = progress.step("images", "checking the container images", Some(total));
    let mut report = ImagesReport {
        deferred: images == Images::Defer,
        images: release.images_for(role).count(),
        blobs: blobs.len(),
        ..ImagesReport::default()
    };
    for digest in &blobs {
        let path = store.path(digest);
        let state = match File::open(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Some(BlobState::Missing),
            Err(error) => return Err(error).with_context(|| format!("opening {}", path.display())),
            Ok(file) => {
                let mut hashing = HashingReader::new(step.reader(file));
                let copied = io::copy(&mut hashing, &mut io::sink());
                copied.with_context(|| format!("reading {}", path.display()))?;
                (hashing.digest() != *digest).then_some(BlobState::Damaged)
            }
        };
        report.present += usize::from(state != Some(BlobState::Missing));
        let fault = state.filter(|state| *state != BlobState::Missing || !report.deferred);
        report.faults.extend(fault.map(|state| BlobFault {
            digest: *digest,
            state,
            images: users(release, role, digest),
        }));
    }
    step.done();
    report.complete = report.faults.is_empty() && report.present == report.blobs;
    Ok(report)
}

fn users(release: &Release, role: Role, digest: &Digest) -> Vec<String> {
    let images = release.images_for(role).filter(|image| image.blobs.contains(digest));
    images.map(|image| image.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use testing::node::{release_with_images as release, store_blobs as store};

    fn look(images: Images, role: Role, root: &Path) -> ImagesReport {
        check(&release(), role, images, root, &Progress::silent()).unwrap()
    }

    #[test]
    fn a_role_needs_its_own_images_only() {
        let root = tempfile::tempdir().unwrap();
        store(root.path(), &[b"one", b"shared"]);
        let report = look(Images::Preload, Role::Worker, root.path());
        let whole =
            ImagesReport { complete: true, images: 1, blobs: 2, present: 2, ..ImagesReport::default() };
        assert_eq!(report, whole);
        assert_eq!(count(&release(), Role::Management, root.path()), (3, 2));
    }

    #[test]
    fn missing_and_damaged_blobs_are_named_with_their_images() {
        let root = tempfile::tempdir().unwrap();
        store(root.path(), &[b"one", b"shared"]);
        let shared = Blobs::of(&release(), root.path()).path(&Digest::of(b"shared"));
        fs::write(shared, b"sharee").unwrap();
        let mut report = look(Images::Preload, Role::Management, root.path());
        report.faults.sort_by_key(|fault| fault.images.len());
        let told: Vec<_> = report.faults.iter().map(|f| (f.digest, f.state, f.images.len())).collect();
        assert_eq!(
            told,
            [(Digest::of(b"two"), BlobState::Missing, 1), (Digest::of(b"shared"), BlobState::Damaged, 2)]
        );
        assert!(!report.complete);
        let deferred = look(Images::Defer, Role::Management, root.path());
        let states: Vec<_> = deferred.faults.iter().map(|fault| fault.state).collect();
        assert_eq!(states, [BlobState::Damaged], "what is deferred may be missing and not damaged");
        assert!(deferred.deferred && !deferred.complete);
    }

    #[test]
    fn the_store_is_where_the_release_says() {
        let root = tempfile::tempdir().unwrap();
        let mut other = release();
        other.containerd.root = "/var/lib/rancher/rke2/agent/containerd".into();
        store(root.path(), &[b"one", b"shared"]);
        assert_eq!(count(&other, Role::Worker, root.path()), (2, 0));
        let place = "var/lib/rancher/rke2/agent/containerd/io.containerd.content.v1.content/blobs/sha256";
        let place = root.path().join(place);
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join(Digest::of(b"one").to_string()), b"one").unwrap();
        assert_eq!(count(&other, Role::Worker, root.path()), (2, 1));
    }
}
