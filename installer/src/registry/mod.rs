//! Registries of container images (distribution-spec 1.1): documents by reference, blobs by digest.
//!
//! The protocol (log-in, tokens, manifests) is the work of `oci-client`, which is asynchronous: a [`Client`] owns a small
//! runtime for it and is called like everything else. Blobs come through [`download`](crate::download), which has the
//! patience and the memory of what has come. [`endpoint`] decides where an image is looked for, as
//! `registries.yaml` of RKE2 and K3s says it; [`credentials`] who asks; [`session`] talks to one endpoint.

mod credentials;
mod endpoint;
mod rate;
mod session;

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context, Result};
use tokio::runtime::{Builder, Runtime};

use crate::config::registries::Registries;
use crate::digest::Digest;
use crate::download::Patience;
use crate::failure::{Class, Failure};
use crate::oci::{ImageReference, Repository};
use crate::size::ByteSize;
use endpoint::{Endpoint, Place};
use rate::{Limited, Limiter};
use session::{Refusal, Session};

/// How registries are asked.
#[allow(missing_debug_implementations)]
pub struct Settings {
    /// Mirrors of registries, and how to talk to them.
    pub registries: Registries,
    /// Certificates (PEM) of authorities to trust beside the machine's.
    pub authorities: Vec<String>,
    /// Whether names and passwords come from Docker's `config.json` too.
    pub docker_config: bool,
    /// How long to wait, and how often to try.
    pub patience: Patience,
    /// Bytes a second, all blobs together.
    pub rate: Option<ByteSize>,
}

/// Asks registries. Clones share connections, tokens and the limit of the rate.
#[derive(Clone)]
pub struct Client(Arc<Inner>);

struct Inner {
    settings: Settings,
    runtime: Arc<Runtime>,
    sessions: Mutex<BTreeMap<Endpoint, Arc<Session>>>,
    limiter: Option<Arc<Limiter>>,
}

impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Client")
    }
}

/// A document as a registry has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Its bytes, unchanged.
    pub bytes: Vec<u8>,
    /// Their SHA-256.
    pub digest: Digest,
}

impl Client {
    /// A client that asks nobody yet. What of the settings cannot be used is an error.
    pub fn new(settings: Settings) -> Result<Self> {
        settings.registries.check()?;
        // Waiting for a few small answers needs one thread; blobs do not come through here.
        let runtime = Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = Arc::new(runtime.context("preparing to ask registries")?);
        let limiter = settings.rate.map(|rate| Arc::new(Limiter::new(rate)));
        let sessions = Mutex::default();
        Ok(Self(Arc::new(Inner { settings, runtime, sessions, limiter })))
    }

    /// The manifest or index that a reference leads to. Where the reference has a digest, the document has it.
    pub fn document(&self, reference: &ImageReference) -> Result<Fetched> {
        let what = || format!("pulling {reference}");
        self.somewhere(reference.repository(), what, |session, path, patience| {
            session.document(path, &reference.version(), patience)
        })
    }

    /// The blob's bytes from `offset` on. Reading goes on over broken connections; that the bytes are the right ones is for
    /// the reader to check.
    pub fn blob(
        &self,
        repository: &Repository,
        digest: Digest,
        size: u64,
        offset: u64,
    ) -> Result<Box<dyn Read + Send>> {
        let what = || format!("pulling {} of {repository}", digest.oci());
        let download = self.somewhere(repository, what, |session, path, patience| {
            session.blob(path, digest, size, offset, patience)
        })?;
        Ok(match &self.0.limiter {
            Some(limiter) => Box::new(Limited::new(download, Arc::clone(limiter))),
            None => Box::new(download),
        })
    }

    /// Asks whether the blob is there in its full length, without reading it.
    pub fn probe(&self, repository: &Repository, digest: Digest, size: u64) -> Result<()> {
        // Answering is enough: the length comes with the header, and the body is dropped unread.
        self.blob(repository, digest, size, 0).map(drop)
    }

    /// Asks the places of a repository one after the other. All but the last are given up early: there is another.
    fn somewhere<T>(
        &self,
        repository: &Repository,
        what: impl Fn() -> String,
        ask: impl Fn(&Session, &str, Patience) -> Result<T, Refusal>,
    ) -> Result<T> {
        let Settings { registries, patience, .. } = &self.0.settings;
        let places = endpoint::places(registries, repository);
        let mut refusals = Vec::new();
        for (number, Place { endpoint, path }) in places.iter().enumerate() {
            let is_last = number + 1 == places.len();
            let patience = Patience { attempts: if is_last { patience.attempts } else { 2 }, ..*patience };
            let session = self.session(endpoint)?;
            match ask(&session, path, patience) {
                Ok(answer) => return Ok(answer),
                Err(refusal) => refusals.push((endpoint.clone(), refusal)),
            }
        }
        Err(failure(what(), repository, &refusals))
    }

    fn session(&self, endpoint: &Endpoint) -> Result<Arc<Session>> {
        let mut sessions = self.0.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(session) = sessions.get(endpoint) {
            return Ok(Arc::clone(session));
        }
        let session = Arc::new(Session::new(endpoint, &self.0.settings, Arc::clone(&self.0.runtime))?);
        sessions.insert(endpoint.clone(), Arc::clone(&session));
        Ok(session)
    }
}

/// What every place said, and what to do about the last of it.
fn failure(what: String, repository: &Repository, refusals: &[(Endpoint, Refusal)]) -> anyhow::Error {
    let told: Vec<_> = refusals.iter().map(|(endpoint, refusal)| format!("{endpoint}: {refusal}")).collect();
    let host = repository.registry();
    let has = |kind: fn(&Refusal) -> bool| refusals.iter().any(|(_, refusal)| kind(refusal));
    let (class, hint) = if has(|refusal| matches!(refusal, Refusal::Damaged(_))) {
        (
            Class::Verification,
            "The registry or something on the way damages data; try another mirror.".to_owned(),
        )
    } else if has(|refusal| matches!(refusal, Refusal::Denied(_))) {
        let hint = format!(
            "Give a name and a password that may pull: `docker login {host}`, or configs in the registries."
        );
        (Class::Network, hint)
    } else if has(|refusal| matches!(refusal, Refusal::Absent)) {
        (Class::Network, "Check the name, the tag and the digest, and what the mirrors hold.".to_owned())
    } else {
        let hint = format!(
            "Check the network, the proxy and the registry {host}, or name a mirror in the registries; then start again."
        );
        (Class::Network, hint)
    };
    Failure::new(class, what).because(anyhow::anyhow!("{}", told.join("; "))).hint(hint).into()
}

#[cfg(test)]
mod tests;
