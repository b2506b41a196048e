//! Pulling from registries of container images and pushing to them (distribution-spec 1.1), for `iso-builder` and for a
//! net-install.
//!
//! A [`Client`] knows the endpoints ([`endpoint`]: mirrors and rewrites as in `registries.yaml`) and the logins
//! ([`credentials`]), and tries one endpoint after the other. What it hands out:
//!
//! - documents (manifests and indexes) of at most 4 MiB; their bytes are kept as they came, and checked ([`site`]);
//! - blobs: read through [`download`](crate::download), which goes on over broken connections. Whoever reads a blob
//!   checks its digest.
//!
//! [Uploads](upload) go to the registry itself and never to a mirror.
//!
//! This module stores nothing and chooses no platform.

mod blob;
mod challenge;
mod credentials;
mod endpoint;
mod problem;
mod rate;
mod scope;
mod settings;
mod site;
mod sites;
#[cfg(test)]
mod tests;
mod upload;

pub use settings::Settings;
pub use site::MANIFEST_LIMIT;
pub use upload::{BlobTransfer, ManifestAnswer, NewBlob};

use std::fmt;
use std::io::{self, Read};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};

use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use blob::Blob;
use endpoint::Endpoint;
use formats::oci::referrers::referrers_tag;
use formats::oci::{ImageReference, Repository, media_types};
use problem::{Problem, ProblemKind};
use rate::RateLimitedReader;
use site::Site;
use sites::KnownSites;
use upload::UploadError;

/// A manifest or an index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestDocument {
    /// The bytes as the registry sent them.
    pub bytes: Vec<u8>,
    /// By the document's `mediaType` or else by its fields; empty if it is neither a manifest nor an index.
    pub media_type: String,
    pub digest: Digest,
    /// True if the server's certificate was verified: false over http and with `insecure_skip_verify`.
    pub authenticated: bool,
}

/// The list of what refers to a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReferrersList {
    /// The registry keeps it, and gives it in these pages.
    Api(Vec<Vec<u8>>),
    /// Those who push keep it under this tag; none if there is none yet.
    Tag(ImageReference, Option<Vec<u8>>),
}

impl ReferrersList {
    /// The bytes of each page; a tag has one at most.
    pub fn pages(&self) -> impl Iterator<Item = &[u8]> {
        let (pages, tagged) = match self {
            Self::Api(pages) => (&pages[..], None),
            Self::Tag(_, bytes) => (&[][..], bytes.as_deref()),
        };
        pages.iter().map(Vec::as_slice).chain(tagged)
    }
}

/// Asks registries; clones share connections, logins and the limit. May be used from several threads at once, not
/// from asynchronous code.
#[derive(Clone)]
pub struct Client(Arc<KnownSites>);

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("registries", self.0.registries()).finish_non_exhaustive()
    }
}

impl Client {
    /// Checks the settings; makes no request.
    pub fn new(settings: Settings) -> Result<Self> {
        let docker = settings.docker_config.then(credentials::docker_directory).flatten();
        Self::with_docker(settings, docker)
    }

    fn with_docker(mut settings: Settings, docker: Option<PathBuf>) -> Result<Self> {
        settings.registries.merge_auths();
        endpoint::check(&settings.registries)?;
        Ok(Self(Arc::new(KnownSites::new(settings, docker))))
    }

    /// The manifest or the index that `image` names, checked against its digest if it has one.
    ///
    /// Fails with `Class::Network` where no endpoint has it or lets us have it, and with `Class::Verification`
    /// where one sent something else.
    pub fn document(&self, image: &ImageReference) -> Result<ManifestDocument> {
        // A tag may be another one elsewhere, so it is looked for in the order that was asked for.
        let endpoints = self.0.endpoints(image.repository(), image.digest().is_some())?;
        let (bytes, authenticated) = self.first(image, endpoints, |site, endpoint| {
            let bytes = site.manifest(endpoint, image)?;
            let digest = Digest::of(&bytes);
            match image.digest().filter(|wanted| *wanted != digest) {
                None => Ok((bytes, site.is_authenticated())),
                Some(wanted) => Err(Problem::other_digest(digest, wanted)),
            }
        })?;
        Ok(ManifestDocument {
            media_type: media_type(&bytes),
            digest: Digest::of(&bytes),
            bytes,
            authenticated,
        })
    }

    /// The manifest or the index at the tag of `image` in the registry itself, which mirrors may not have yet; none where there is no such
    /// tag.
    ///
    /// # Errors
    /// `Class::Network` where the registry cannot be asked.
    pub fn tagged(&self, image: &ImageReference) -> Result<Option<Vec<u8>>> {
        let what = || format!("asking for {image}");
        self.itself(image.repository(), what, |(site, endpoint)| match site.manifest(endpoint, image) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(problem) if problem.kind == ProblemKind::Missing => Ok(None),
            Err(problem) => Err(problem.into()),
        })
    }

    /// What refers to the manifest `subject`: by the API of the registry, or else by the tag that stands for it. Mirrors are not
    /// asked: they rarely have either.
    ///
    /// # Errors
    /// `Class::Network` where the registry cannot be asked.
    pub fn referrers(&self, repository: &Repository, subject: Digest) -> Result<ReferrersList> {
        let what = || format!("listing what refers to {}", repository.with_digest(subject));
        let tagged = format!("{repository}:{}", referrers_tag(subject)).parse().with_context(what)?;
        self.itself(repository, what, |(site, endpoint)| {
            let absent = |problem: &Problem| {
                matches!(problem.kind, ProblemKind::Missing | ProblemKind::Strange | ProblemKind::Refused)
            };
            match site.referrers(endpoint, subject) {
                Ok(pages) => return Ok(ReferrersList::Api(pages)),
                Err(problem) if absent(&problem) => {}
                Err(problem) => return Err(problem.into()),
            }
            match site.manifest(endpoint, &tagged) {
                Ok(bytes) => Ok(ReferrersList::Tag(tagged.clone(), Some(bytes))),
                Err(problem) if problem.kind == ProblemKind::Missing => {
                    Ok(ReferrersList::Tag(tagged.clone(), None))
                }
                Err(problem) => Err(problem.into()),
            }
        })
    }

    /// The tags of a repository at the registry itself; none where it has no such repository.
    ///
    /// # Errors
    /// `Class::Network` where the registry cannot be asked, or does not answer with a list.
    pub fn tags(&self, repository: &Repository) -> Result<Vec<String>> {
        #[derive(serde::Deserialize)]
        struct Page {
            // Null, or absent, where there are none.
            tags: Option<Vec<String>>,
        }
        let what = || format!("listing the tags of {repository}");
        let pages = self.itself(repository, what, |(site, endpoint)| match site.tags(endpoint) {
            Ok(pages) => Ok(pages),
            Err(problem) if problem.kind == ProblemKind::Missing => Ok(Vec::new()),
            Err(problem) => Err(problem.into()),
        })?;
        let mut tags = Vec::new();
        for page in pages {
            let page: Page = serde_json::from_slice(&page).class(Class::Network, what)?;
            tags.extend(page.tags.unwrap_or_default());
        }
        Ok(tags)
    }

    /// Removes a manifest, and every tag of it, from the registry itself. Its blobs go when the registry collects what nothing refers
    /// to.
    ///
    /// # Errors
    /// `Class::Network` where the registry does not do it; many have to be told first that they may.
    pub fn delete_manifest(&self, repository: &Repository, digest: Digest) -> Result<()> {
        let what = || format!("removing {}", repository.with_digest(digest));
        self.itself(repository, what, |site| upload::delete(site, digest))
    }

    /// The bytes of a blob from `offset` on. Reading goes on over broken connections, and at the next endpoint when one
    /// does not recover. Whoever reads checks the digest.
    pub fn blob(
        &self,
        repository: &Repository,
        digest: Digest,
        size: u64,
        offset: u64,
    ) -> Result<Box<dyn Read + Send>> {
        if offset >= size {
            return Ok(Box::new(io::empty()));
        }
        let mut blob = Blob::new(Arc::clone(&self.0), repository, digest, size, offset)?;
        blob.open()?;
        Ok(Box::new(RateLimitedReader::new(blob, self.0.limiter())))
    }

    /// Checks that a blob exists with this size. Only its last byte is requested: what a server has sent already when the
    /// connection is closed may be megabytes.
    pub fn probe(&self, repository: &Repository, digest: Digest, size: u64) -> Result<()> {
        Ok(Blob::new(Arc::clone(&self.0), repository, digest, size, size.saturating_sub(1))?.open()?)
    }

    /// Puts a blob into a repository, unless it is there. `told` hears how many of its bytes the registry has.
    ///
    /// # Errors
    /// `Class::Network` where the registry does not take it, else what [`NewBlob::open`] or its reader gave.
    pub fn put_blob(
        &self,
        repository: &Repository,
        blob: &NewBlob<'_>,
        told: &dyn Fn(u64),
    ) -> Result<BlobTransfer> {
        let what = || format!("uploading the blob {} to {repository}", blob.digest.oci());
        let limiter = self.0.limiter();
        self.itself(repository, what, |site| upload::blob(site, blob, limiter.as_ref(), told))
    }

    /// Puts a manifest under the tag of `image`, or under its digest where it has one.
    pub fn put_manifest(
        &self,
        image: &ImageReference,
        media_type: &'static str,
        bytes: &[u8],
    ) -> Result<ManifestAnswer> {
        let what = || format!("uploading the manifest of {image}");
        self.itself(image.repository(), what, |site| upload::manifest(site, image, media_type, bytes))
    }

    /// Writes into a repository at the registry itself.
    fn itself<T>(
        &self,
        repository: &Repository,
        what: impl Fn() -> String,
        write: impl FnOnce((&Site, &Endpoint)) -> Result<T, UploadError>,
    ) -> Result<T> {
        let mut endpoints = self.0.endpoints(repository, false)?.into_iter();
        let endpoint = endpoints.find(|endpoint| endpoint.mirrors.is_none()).with_context(&what)?;
        let site = self.0.site(&endpoint.server)?;
        write((&site, &endpoint)).map_err(|error| match error {
            UploadError::Registry(problem) => {
                self.0.summary(what(), &[(endpoint.server.clone(), problem)]).into()
            }
            UploadError::Content(error) => error,
        })
    }

    /// Asks one endpoint after the other until one has what is wanted.
    fn first<T>(
        &self,
        image: &ImageReference,
        endpoints: Vec<Endpoint>,
        ask: impl Fn(&Site, &Endpoint) -> Result<T, Problem>,
    ) -> Result<T, Failure> {
        let mut problems = Vec::new();
        for endpoint in endpoints {
            let site = self.0.site(&endpoint.server)?;
            let result = ask(&site, &endpoint);
            site.remember(&result);
            match result {
                Ok(value) => {
                    self.0.remember(image.repository(), endpoint);
                    return Ok(value);
                }
                Err(problem) => problems.push((endpoint.server, problem)),
            }
        }
        Err(self.0.summary(format!("pulling {image}"), &problems))
    }
}

/// The media type that a document states or that its fields show. OCI lets a document state none; Docker's always do.
fn media_type(bytes: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Head {
        #[serde(default)]
        media_type: String,
        manifests: Option<serde::de::IgnoredAny>,
        layers: Option<serde::de::IgnoredAny>,
    }
    match serde_json::from_slice::<Head>(bytes) {
        Ok(head) if !head.media_type.is_empty() => head.media_type,
        Ok(Head { manifests: Some(_), .. }) => media_types::OCI_INDEX.into(),
        Ok(Head { layers: Some(_), .. }) => media_types::OCI_MANIFEST.into(),
        _ => String::new(),
    }
}
