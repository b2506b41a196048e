//! One blob while it is read, from whichever endpoint has it.

use std::collections::VecDeque;
use std::io::{self, Read};
use std::sync::Arc;

use super::endpoint::{Endpoint, Server};
use super::problem::Problem;
use super::scope::RegistryScope;
use super::site::{Site, SiteAuthorizer};
use super::sites::KnownSites;
use crate::download::Download;
use base::digest::Digest;
use base::failure::Failure;
use formats::oci::Repository;

/// A reader that changes to the next endpoint where one gives up.
pub(super) struct Blob {
    sites: Arc<KnownSites>,
    repository: Repository,
    digest: Digest,
    size: u64,
    position: u64,
    /// Endpoints that have not been tried.
    left: VecDeque<Endpoint>,
    problems: Vec<(Server, Problem)>,
    current: Option<(Arc<Site>, Download)>,
}

impl Blob {
    /// Makes no request yet.
    pub(super) fn new(
        sites: Arc<KnownSites>,
        repository: &Repository,
        digest: Digest,
        size: u64,
        position: u64,
    ) -> Result<Self, Failure> {
        let left = sites.endpoints(repository, true)?.into();
        let repository = repository.clone();
        let problems = Vec::new();
        Ok(Self { sites, repository, digest, size, position, left, problems, current: None })
    }

    /// Connects to the first endpoint that has the blob.
    pub(super) fn open(&mut self) -> Result<(), Failure> {
        while let Some(endpoint) = self.left.pop_front() {
            let site = self.sites.site(&endpoint.server)?;
            let mut download = self.download(&site, &endpoint);
            match download.connect_patiently() {
                Ok(()) => {
                    site.remember(&Ok(()));
                    self.sites.remember(&self.repository, endpoint);
                    self.current = Some((site, download));
                    return Ok(());
                }
                Err(failure) => self.blame(&site, &download, &failure),
            }
        }
        let what = format!("pulling the blob {} of {}", self.digest.oci(), self.repository);
        Err(self.sites.summary(what, &self.problems))
    }

    fn download(&self, site: &Arc<Site>, endpoint: &Endpoint) -> Download {
        let url = endpoint.url("blobs", &self.digest.oci());
        let pass =
            Arc::new(SiteAuthorizer { site: site.clone(), scope: RegistryScope::pull(&endpoint.path) });
        site.downloader().open(&url, Some(self.size)).starting_at(self.position).authorized(pass)
    }

    fn blame(&mut self, site: &Site, download: &Download, failure: &Failure) {
        let problem = Problem::of_download(download, failure, site.asked());
        let result: Result<(), _> = Err(problem.clone());
        site.remember(&result);
        self.problems.push((site.server().clone(), problem));
    }
}

impl Read for Blob {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let Some((_, download)) = &mut self.current else {
                self.open().map_err(io::Error::other)?;
                continue;
            };
            let error = match download.read(buffer) {
                Ok(count) => {
                    self.position = download.position();
                    return Ok(count);
                }
                Err(error) => error,
            };
            let carried = error.get_ref().and_then(|inner| inner.downcast_ref::<Failure>());
            let Some((site, download)) = self.current.take() else { return Err(error) };
            match carried {
                Some(failure) => self.blame(&site, &download, failure),
                None => return Err(error),
            }
        }
    }
}
