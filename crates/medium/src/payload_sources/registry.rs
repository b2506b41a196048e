//! The registries of the images, for blobs that are not on a medium.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Cursor, Read};
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, anyhow};

use super::payload_source::{PayloadPlace, PayloadSource};
use base::digest::Digest;
use base::failure::{Class, Classify, Failure, class_of};
use formats::oci::{ImageReference, Repository};
use model::release::{Payload, Purpose, Release};

/// The registry name of images that the builder made: not a real one.
const NOWHERE: &str = "localhost";

/// Requests to registries; implementations handle mirrors and logins.
pub trait Registry: Send + Sync {
    /// Checks that the registry has a blob in full length.
    fn probe(&self, repository: &Repository, digest: Digest, size: u64) -> Result<()>;
    fn document(&self, repository: &Repository, digest: Digest) -> Result<Vec<u8>>;
    fn blob(&self, repository: &Repository, digest: Digest, size: u64) -> Result<Box<dyn Read + Send>>;
    fn has_mirror(&self, host: &str) -> bool;
}

/// Blobs from the repositories of the images that have them. A blob that several images share is in the repository of
/// each, so one that does not give it is no loss while another does.
#[allow(missing_debug_implementations)]
pub struct RegistryMedium {
    registry: Box<dyn Registry>,
    repositories: BTreeMap<Digest, Vec<Repository>>,
    /// The blobs that are indexes and manifests.
    documents: BTreeSet<Digest>,
    /// The repository in which a blob was found.
    found: Mutex<BTreeMap<Digest, Repository>>,
}

impl RegistryMedium {
    /// The images of `release`, by their names.
    pub fn new(registry: Box<dyn Registry>, release: &Release) -> Result<Self> {
        let mut repositories: BTreeMap<Digest, Vec<Repository>> = BTreeMap::new();
        let mut documents = BTreeSet::new();
        for image in &release.images {
            documents.extend(image.blobs.iter().take(image.documents));
            let name: ImageReference =
                image.name.parse().class(Class::Verification, || "reading the release manifest".into())?;
            for digest in image.blobs.iter().chain([&image.digest]) {
                let known = repositories.entry(*digest).or_default();
                if !known.contains(name.repository()) {
                    known.push(name.repository().clone());
                }
            }
        }
        Ok(Self { registry, repositories, documents, found: Mutex::default() })
    }

    fn found(&self, digest: &Digest) -> Option<Repository> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner).get(digest).cloned()
    }

    /// The repositories to try for a blob: the one that had it, or else all.
    fn candidates(&self, digest: &Digest) -> Vec<Repository> {
        let all = || self.repositories.get(digest).cloned().unwrap_or_default();
        self.found(digest).map_or_else(all, |found| vec![found])
    }

    fn ask<T>(&self, payload: &Payload, ask: impl Fn(&Repository) -> Result<T>) -> Result<T> {
        let mut refusals = Vec::new();
        for repository in self.candidates(&payload.sha256) {
            let answer = match repository.registry() == NOWHERE && !self.registry.has_mirror(NOWHERE) {
                true => Err(only_on_a_medium(&repository).into()),
                false => ask(&repository),
            };
            match answer {
                Ok(value) => {
                    let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
                    found.insert(payload.sha256, repository);
                    return Ok(value);
                }
                Err(error) => refusals.push((repository, error)),
            }
        }
        Err(refused(payload, refusals))
    }
}

/// The failure of an image that only a medium has.
fn only_on_a_medium(repository: &Repository) -> Failure {
    Failure::new(Class::Network, format!("{repository} is in no registry: it was made with the medium")).hint(
        "Set install.medium to the URL of a full medium of this release, or give localhost a mirror: registries.mirrors.localhost.endpoint.",
    )
}

/// The error of a blob that no repository gave. That of a single one says it all.
fn refused(payload: &Payload, mut refusals: Vec<(Repository, anyhow::Error)>) -> anyhow::Error {
    if refusals.len() == 1
        && let Some((_, error)) = refusals.pop()
    {
        return error;
    }
    let class = refusals.last().map_or(Class::Verification, |(_, error)| class_of(error));
    let told: Vec<_> =
        refusals.iter().map(|(repository, error)| format!("{repository}: {error:#}")).collect();
    let why = if told.is_empty() { "no image has it".to_owned() } else { told.join("; ") };
    Failure::new(class, format!("no registry gives {}", payload.sha256.oci()))
        .because(anyhow!("{why}"))
        .hint("Check the network and `registries` of the configuration, or set install.medium to the URL of a full medium.")
        .into()
}

impl PayloadSource for RegistryMedium {
    fn open(&self, payload: &Payload) -> Result<Box<dyn Read + Send>> {
        let digest = payload.sha256;
        self.ask(payload, |repository| -> Result<Box<dyn Read + Send>> {
            match self.documents.contains(&digest) {
                true => Ok(Box::new(Cursor::new(self.registry.document(repository, digest)?))),
                false => self.registry.blob(repository, digest, payload.size),
            }
        })
    }

    fn place(&self, payload: &Payload) -> Option<PayloadPlace> {
        (payload.purpose == Purpose::ImageBlob).then_some(PayloadPlace::Network)
    }

    fn probe(&self, payload: &Payload) -> Result<()> {
        let digest = payload.sha256;
        self.ask(payload, |repository| match self.documents.contains(&digest) {
            true => self.registry.document(repository, digest).map(drop),
            false => self.registry.probe(repository, digest, payload.size),
        })
    }

    fn manifest(&self) -> Result<Vec<u8>> {
        Err(Failure::new(Class::Verification, "a registry has no release manifest").into())
    }

    fn describe(&self) -> String {
        "the registries of the images".into()
    }

    fn describe_of(&self, payload: &Payload) -> String {
        let known = self.candidates(&payload.sha256);
        known.first().map_or_else(|| self.describe(), ToString::to_string)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::render;
    use model::release::Image;
    use std::sync::Arc;

    /// Registries that have some blobs, and what they were asked for.
    #[derive(Default)]
    struct Registries {
        blobs: Vec<(&'static str, &'static [u8])>,
        documents: Vec<(&'static str, &'static [u8])>,
        mirror: bool,
        asked: Arc<Mutex<Vec<String>>>,
    }

    impl Registries {
        fn give(
            &self,
            from: &[(&'static str, &'static [u8])],
            repository: &Repository,
            digest: Digest,
        ) -> Result<&'static [u8]> {
            let repository = repository.to_string();
            self.asked.lock().unwrap().push(repository.clone());
            let has = |(name, blob): &&(&str, &[u8])| *name == repository && Digest::of(blob) == digest;
            let missing =
                || Failure::new(Class::Network, format!("asking {repository}")).because(anyhow!("401"));
            Ok(from.iter().find(has).ok_or_else(missing)?.1)
        }
    }

    impl Registry for Registries {
        fn document(&self, repository: &Repository, digest: Digest) -> Result<Vec<u8>> {
            Ok(self.give(&self.documents, repository, digest)?.to_vec())
        }
        fn probe(&self, repository: &Repository, digest: Digest, size: u64) -> Result<()> {
            self.blob(repository, digest, size).map(drop)
        }
        fn blob(&self, repository: &Repository, digest: Digest, _: u64) -> Result<Box<dyn Read + Send>> {
            Ok(Box::new(self.give(&self.blobs, repository, digest)?))
        }
        fn has_mirror(&self, host: &str) -> bool {
            self.mirror && host == "localhost"
        }
    }

    fn payload(bytes: &[u8]) -> Payload {
        let (size, sha256) = (bytes.len() as u64, Digest::of(bytes));
        Payload { path: format!("images/blobs/sha256/{sha256}"), purpose: Purpose::ImageBlob, size, sha256 }
    }

    /// Two images that share a blob, and one that has no registry and two documents. The last blob of each is a layer.
    fn medium(registries: Registries) -> RegistryMedium {
        let mut release = testing::release::release();
        let image = |name: &str, blobs: &[&[u8]]| Image {
            name: name.into(),
            digest: Digest::of(blobs[0]),
            roles: vec![],
            blobs: blobs.iter().map(|blob| Digest::of(blob)).collect(),
            documents: blobs.len() - 1,
        };
        release.images = vec![
            image("a.example.org/web:1", &[b"web", b"shared"]),
            image("b.example.org/db:1", &[b"db", b"shared"]),
            image("localhost/nqrust/tools:1", &[b"index", b"manifest", b"tools"]),
        ];
        RegistryMedium::new(Box::new(registries), &release).unwrap()
    }

    fn read(medium: &RegistryMedium, bytes: &[u8]) -> Result<Vec<u8>> {
        let mut got = Vec::new();
        medium.open(&payload(bytes))?.read_to_end(&mut got)?;
        Ok(got)
    }

    #[test]
    fn a_shared_blob_comes_from_whichever_repository_gives_it_and_from_there_again() {
        let registries = Registries { blobs: vec![("b.example.org/db", b"shared")], ..Registries::default() };
        let asked = registries.asked.clone();
        let medium = medium(registries);
        medium.probe(&payload(b"shared")).unwrap();
        assert_eq!(read(&medium, b"shared").unwrap(), b"shared");
        assert_eq!(*asked.lock().unwrap(), ["a.example.org/web", "b.example.org/db", "b.example.org/db"]);
        assert_eq!(medium.describe_of(&payload(b"shared")), "b.example.org/db");
    }

    #[test]
    fn a_blob_that_nobody_gives_is_an_error_that_tells_every_answer() {
        let medium = medium(Registries::default());
        let error = medium.probe(&payload(b"shared")).unwrap_err();
        assert_eq!(class_of(&error), Class::Network);
        let text = render(&error);
        assert!(text.contains("a.example.org/web: asking a.example.org/web: 401"), "{text}");
        assert!(text.contains("b.example.org/db: asking"), "{text}");
        let one = render(&medium.probe(&payload(b"web")).unwrap_err());
        assert!(one.contains("asking a.example.org/web") && !one.contains("no registry gives"), "{one}");
    }

    #[test]
    fn an_image_of_the_builder_needs_a_medium_or_a_mirror() {
        let nowhere = medium(Registries::default());
        let error = nowhere.probe(&payload(b"tools")).unwrap_err();
        assert_eq!(class_of(&error), Class::Network);
        let text = render(&error);
        assert!(text.contains("localhost/nqrust/tools is in no registry"), "{text}");
        assert!(text.contains("install.medium") && text.contains("mirror"), "{text}");
        let blobs: Vec<(&str, &[u8])> = vec![("localhost/nqrust/tools", b"tools")];
        let mirrored = medium(Registries { blobs, mirror: true, ..Registries::default() });
        assert_eq!(read(&mirrored, b"tools").unwrap(), b"tools");
    }

    #[test]
    fn indexes_and_manifests_are_asked_for_as_such_and_layers_as_blobs() {
        let tools: Vec<(&str, &[u8])> =
            ["index", "manifest"].map(|document| ("localhost/nqrust/tools", document.as_bytes())).to_vec();
        let medium = medium(Registries { documents: tools, mirror: true, ..Registries::default() });
        for document in ["index", "manifest"] {
            medium.probe(&payload(document.as_bytes())).unwrap();
            assert_eq!(read(&medium, document.as_bytes()).unwrap(), document.as_bytes());
        }
        assert!(medium.probe(&payload(b"tools")).is_err());
    }

    #[test]
    fn registries_have_blobs_and_nothing_else() {
        let medium = medium(Registries::default());
        assert_eq!(medium.place(&payload(b"web")), Some(PayloadPlace::Network));
        assert_eq!(medium.place(&Payload { purpose: Purpose::Rootfs, ..payload(b"web") }), None);
    }
}
