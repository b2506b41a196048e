//! The servers of one client: the order in which they are tried, and which of them had a repository or did not answer.
//! The client requests documents from them, and a blob that is being read the rest of its bytes.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use base::failure::Failure;
use formats::oci::Repository;
use model::config::registries::Registries;

use super::endpoint::{self, Endpoint, Server};
use super::problem::{self, Problem};
use super::rate::RateLimiter;
use super::settings::Settings;
use super::site::Site;

pub(super) struct KnownSites {
    settings: Settings,
    docker: Option<PathBuf>,
    limiter: Option<RateLimiter>,
    sites: Mutex<HashMap<Server, Arc<Site>>>,
    /// The servers found to use plain HTTP.
    plain: Mutex<HashMap<Server, bool>>,
    /// The endpoint at which a repository was found last.
    found: Mutex<HashMap<Repository, Endpoint>>,
}

impl KnownSites {
    /// `docker` is the directory with Docker's configuration.
    pub(super) fn new(settings: Settings, docker: Option<PathBuf>) -> Self {
        Self {
            limiter: settings.rate.map(RateLimiter::new),
            settings,
            docker,
            sites: Mutex::default(),
            plain: Mutex::default(),
            found: Mutex::default(),
        }
    }

    pub(super) fn registries(&self) -> &Registries {
        &self.settings.registries
    }

    pub(super) fn limiter(&self) -> Option<RateLimiter> {
        self.limiter.clone()
    }

    pub(super) fn summary(&self, what: String, problems: &[(Server, Problem)]) -> Failure {
        problem::summary(what, problems, self.docker.is_some())
    }

    /// The endpoints for a repository; those that did not answer come last. Where any endpoint will do
    /// (`anywhere`), the one where the repository was found before comes first.
    pub(super) fn endpoints(
        &self,
        repository: &Repository,
        anywhere: bool,
    ) -> Result<Vec<Endpoint>, Failure> {
        let mut list = endpoint::endpoints(&self.settings.registries, repository)?;
        for endpoint in list.iter_mut().filter(|endpoint| endpoint.may_be_plain) {
            endpoint.server.plain = self.is_plain(&endpoint.server)?;
        }
        let found = self.found.lock().unwrap_or_else(PoisonError::into_inner).get(repository).cloned();
        let sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        list.sort_by_key(|endpoint| {
            let silent = sites.get(&endpoint.server).is_some_and(|site| site.is_silent());
            (silent, anywhere && found.as_ref() != Some(endpoint))
        });
        Ok(list)
    }

    /// True if a server that may use plain HTTP does; this is probed once.
    fn is_plain(&self, server: &Server) -> Result<bool, Failure> {
        let mut plain = self.plain.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = plain.get(server) {
            return Ok(*known);
        }
        let found = self.site(&Server { plain: true, ..server.clone() })?.answers();
        plain.insert(server.clone(), found);
        Ok(found)
    }

    pub(super) fn remember(&self, repository: &Repository, endpoint: Endpoint) {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).insert(repository.clone(), endpoint);
    }

    /// The server, prepared on first use.
    pub(super) fn site(&self, server: &Server) -> Result<Arc<Site>, Failure> {
        let mut sites = self.sites.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(site) = sites.get(server) {
            return Ok(site.clone());
        }
        let site = Site::new(server, &self.settings, self.docker.as_deref())?;
        let site = Arc::new(site);
        sites.insert(server.clone(), site.clone());
        Ok(site)
    }
}
