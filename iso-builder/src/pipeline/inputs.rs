//! The beginning of every command on a definition: the definition, the cache, and the images that it needs.

use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use anyhow::{Context, Result};
use base::command::SystemRunner;
use base::digest::Digest;
use base::progress::Progress;
use formats::oci::{ImageReference, Repository};
use model::config::Role;
use model::os_image::vip_image;
use transfer::download::RetryPolicy;
use transfer::registry::Client;

use super::image_outputs::{imported, stored};
use super::options::{CacheOptions, InputOptions, PullOptions, SharedOptions};
use super::release_images::{ReleaseImages, bring};
use super::{configuration, host_programs};
use crate::cache::{BuildFigures, Cache, FetchedKind, SharedSteps, StepOutputs};
use crate::definition::LoadedDefinition;
use crate::files::ReportingReader;
use crate::images::blob::Blob;
use crate::images::import::ImageImport;
use crate::images::preload::{self, NeededImage, PreloadPlan, PresentImage};
use crate::images::pull::{BlobCache, ImageRegistry, OfflineRegistry};
use crate::images::spec::LocalImages;
use crate::images::stored_image::StoredImage;
use crate::images::{PreloadSource, Runtime};
use crate::lock::{Lock, LockPolicy};
use crate::obtain::{Locker, PackageApproval, ReleaseQuery};
use crate::workloads::spec::ImagePolicy;
use crate::workloads::{self, FoundImage, Helm, ImageOrigin, Workloads};

/// The use of the digests in the lock file while a definition's inputs are gathered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LockUse {
    /// They are used where the lock fits the definition.
    Known,
    /// Everything is resolved anew.
    Anew,
}

/// A definition with everything that it refers to.
#[allow(missing_debug_implementations)]
pub(super) struct BuildInputs {
    pub(super) loaded: LoadedDefinition,
    pub(super) cache: Cache,
    pub(super) blobs: BlobCache,
    pub(super) registry: Box<dyn ImageRegistry>,
    pub(super) pull: PullOptions,
    pub(super) preload: PreloadPlan,
    pub(super) workloads: Workloads,
    /// The images that they run, and those that every node runs.
    pub(super) found: Vec<FoundImage>,
    /// The release of the Kubernetes distribution, with RKE2's runtime image.
    pub(super) release: Option<ReleaseImages>,
    /// Images of layouts and archives, including those of the release, with the store that has them.
    pub(super) local: Vec<(StepOutputs, Vec<StoredImage>)>,
}

impl BuildInputs {
    /// Reads the files that a definition refers to. Only the files of the Kubernetes distribution are
    /// downloaded here: they list the images.
    pub(super) fn gather(
        loaded: LoadedDefinition,
        options: &InputOptions,
        cache: Cache,
        pins: LockUse,
        progress: &Progress,
    ) -> Result<Self> {
        let InputOptions { policy, pull, cache: CacheOptions { shared, .. }, .. } = options;
        let cache = sharing(cache, shared, &loaded, pull, progress)?;
        let blobs = BlobCache::open(cache.downloads())?;
        let registry: Box<dyn ImageRegistry> = match policy.offline {
            true => Box::new(OfflineRegistry),
            false => Box::new(CountedRegistry {
                client: loaded.registries(pull.rate, RetryPolicy::default())?,
                figures: Arc::clone(cache.figures()),
            }),
        };
        let mut local = local_images(&loaded, &cache, progress)?;
        let obtain = ReleaseQuery {
            loaded: &loaded,
            cache: &cache,
            policy: *policy,
            keep: pins == LockUse::Known,
            progress,
        };
        let brought = obtain.release()?.map(|release| bring(release, &loaded, &cache, progress));
        let (release, images) = brought.transpose()?.unzip();
        local.extend(images.unwrap_or_default());
        let mut present: Vec<_> = local
            .iter()
            .flat_map(|(_, images)| images)
            .map(|image| PresentImage { names: image.names(), roles: image.roles.clone() })
            .collect();
        present.extend(built(&loaded));
        let scratch = tempfile::tempdir_in(cache.scratch()).context("making a scratch directory")?;
        let (workloads, found) = shipped(&loaded, scratch.path())?;
        let mut needed = preload::named(&loaded.definition.images, &|path| loaded.resolve(path))?;
        let included = workloads::included(&found).into_iter();
        needed.extend(included.map(|(reference, roles)| NeededImage { reference, roles }));
        needed.extend(release.iter().flat_map(|release| release.pulled.clone()));
        let preload = PreloadPlan::new(&present, &needed);
        Ok(Self { loaded, cache, blobs, registry, pull: *pull, preload, release, local, workloads, found })
    }

    pub(super) fn lock(
        &self,
        policy: LockPolicy,
        approve: PackageApproval<'_>,
        progress: &Progress,
    ) -> Result<Lock> {
        self.locker(progress).lock(policy, approve)
    }

    /// The lock of the definition, with every input resolved anew.
    pub(super) fn relock(&self, progress: &Progress) -> Result<Lock> {
        self.locker(progress).relock()
    }

    fn locker<'a>(&'a self, progress: &'a Progress) -> Locker<'a> {
        Locker {
            loaded: &self.loaded,
            pulled: &self.preload.pulled,
            kubernetes: self.release.as_ref().map(|brought| &brought.release.locked),
            registry: self.registry.as_ref(),
            blobs: &self.blobs,
            transfers: self.pull.transfers,
            cache: &self.cache,
            progress,
        }
    }
}

/// A registry whose bytes are counted.
struct CountedRegistry {
    client: Client,
    figures: Arc<BuildFigures>,
}

impl ImageRegistry for CountedRegistry {
    fn document(&self, reference: &ImageReference) -> Result<Vec<u8>> {
        let bytes = ImageRegistry::document(&self.client, reference)?;
        self.figures.fetched(FetchedKind::Images, bytes.len() as u64);
        Ok(bytes)
    }

    fn blob(&self, repository: &Repository, blob: Blob, offset: u64) -> Result<Box<dyn Read + Send>> {
        let reader = ImageRegistry::blob(&self.client, repository, blob, offset)?;
        let figures = Arc::clone(&self.figures);
        let told = move |bytes| figures.fetched(FetchedKind::Images, bytes);
        Ok(Box::new(ReportingReader::new(reader, told)))
    }
}

/// The cache with the steps that it shares.
fn sharing(
    cache: Cache,
    options: &SharedOptions,
    loaded: &LoadedDefinition,
    pull: &PullOptions,
    progress: &Progress,
) -> Result<Cache> {
    let SharedOptions { from, to, .. } = options;
    if from.is_empty() && to.is_empty() {
        return Ok(cache);
    }
    let shared = SharedSteps {
        from: from.clone(),
        to: to.clone(),
        // A build goes on without it.
        client: loaded.registries(pull.rate, RetryPolicy::attended())?,
        tools: Digest::of(&serde_json::to_vec(&host_programs::versions(cache.known_files()))?),
        transfers: pull.transfers,
        progress: progress.clone(),
        figures: Arc::clone(cache.figures()),
        silent: Default::default(),
    };
    Ok(cache.sharing(shared))
}

/// The manifests and charts that the definition ships, and every image that they run. Helm's files are made in `scratch`.
pub(super) fn shipped(loaded: &LoadedDefinition, scratch: &Path) -> Result<(Workloads, Vec<FoundImage>)> {
    let definition = &loaded.definition;
    let mut helm = Helm::new(&SystemRunner, scratch);
    if let Some(kubernetes) = &definition.kubernetes {
        helm = helm.for_version(kubernetes.version.as_str());
    }
    let resolve = |path: &Path| loaded.resolve(path);
    let mut workloads = Workloads::read(&definition.manifests, &definition.charts, resolve, &helm)?;
    for (file, text) in configuration::manifests(loaded)? {
        workloads.add_brought(file, text, Vec::new(), ImagePolicy::Include);
    }
    let mut found = workloads.discover(&helm)?;
    if definition.runtime() != Runtime::Containerd {
        found.push(virtual_address()?);
    }
    Ok((workloads, found))
}

/// The image of the program that carries the cluster's virtual address on nodes; any configuration may ask for it.
fn virtual_address() -> Result<FoundImage> {
    let origin = ImageOrigin {
        file: "install.vip".into(),
        template: None,
        line: None,
        document: 1,
        object: "the virtual address of the cluster".into(),
        field: "kube-vip".into(),
    };
    let roles = vec![Role::Default, Role::Management];
    Ok(FoundImage { image: vip_image()?, origin, roles, policy: ImagePolicy::Include })
}

pub(super) fn built(loaded: &LoadedDefinition) -> impl Iterator<Item = PresentImage> + '_ {
    loaded.definition.images.preload.iter().filter_map(|entry| match &entry.source {
        PreloadSource::Built(image) => {
            Some(PresentImage { names: vec![image.name.clone()], roles: entry.roles.clone() })
        }
        _ => None,
    })
}

/// The images of layouts and archives, one store in the cache for each.
fn local_images(
    loaded: &LoadedDefinition,
    cache: &Cache,
    progress: &Progress,
) -> Result<Vec<(StepOutputs, Vec<StoredImage>)>> {
    let entries = loaded.definition.images.preload.iter();
    let locals = entries.filter_map(|entry| match &entry.source {
        PreloadSource::Local(local) => Some((local, &entry.roles)),
        _ => None,
    });
    let one = |(local, roles): (&LocalImages, &Vec<Role>)| {
        let outputs = local_store(loaded, local, cache, progress)?;
        let mut images = stored(&outputs)?;
        images.iter_mut().for_each(|image| image.roles.clone_from(roles));
        Ok((outputs, images))
    };
    locals.map(one).collect()
}

fn local_store(
    loaded: &LoadedDefinition,
    local: &LocalImages,
    cache: &Cache,
    progress: &Progress,
) -> Result<StepOutputs> {
    let path = loaded.resolve(&local.path);
    let checksums = local.checksums.as_ref().map(|path| loaded.resolve(path));
    let import = ImageImport {
        path: &path,
        references: &local.references,
        checksums: checksums.as_deref(),
        architecture: loaded.definition.architecture.debian(),
        roles: &[],
    };
    imported(&import, cache.known_files().digest_of_path(&path)?, cache, progress)
}
