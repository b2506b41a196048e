//! Several sources, one after the other.

use std::collections::BTreeMap;
use std::io::Read;
use std::sync::{Mutex, PoisonError};

use anyhow::{Result, anyhow};

use super::payload_source::{PayloadPlace, PayloadSource, PayloadTransport};
use crate::patches::ReleasePatch;
use base::digest::Digest;
use base::failure::{Class, Failure, class_of};
use formats::iso9660::address::Source;
use model::release::Payload;
use transfer::download::is_absent;

/// Sources in the order in which they are tried. The first source that claims to have a payload provides it. A server claims
/// to have everything; if it returns 404, the next source is tried. If none has the payload, the error quotes each one. Any
/// other failure of a source is an error, so that no other source replaces it unnoticed.
#[allow(missing_debug_implementations)]
pub struct Chain {
    sources: Vec<Box<dyn PayloadSource>>,
    /// The source that had a payload when it was probed.
    holders: Mutex<BTreeMap<Digest, usize>>,
}

impl Chain {
    /// `sources` must not be empty.
    #[must_use]
    pub fn new(first: Box<dyn PayloadSource>, others: Vec<Box<dyn PayloadSource>>) -> Self {
        let sources = [first].into_iter().chain(others).collect();
        Self { sources, holders: Mutex::default() }
    }

    /// The sources to try, with their numbers. If none claims to have the payload, the first reports that it is missing.
    fn candidates(&self, payload: &Payload) -> Vec<(usize, &dyn PayloadSource)> {
        let known = self.holders.lock().unwrap_or_else(PoisonError::into_inner).get(&payload.sha256).copied();
        let all = || self.sources.iter().map(AsRef::as_ref).enumerate();
        let mut candidates: Vec<_> = match known {
            Some(known) => all().filter(|(number, _)| *number == known).collect(),
            None => all().filter(|(_, source)| source.place(payload).is_some()).collect(),
        };
        if candidates.is_empty() {
            candidates.extend(all().take(1));
        }
        candidates
    }

    fn holder(&self, payload: &Payload) -> Option<&dyn PayloadSource> {
        self.candidates(payload).first().map(|(_, source)| *source)
    }

    /// The first result that is not "payload missing".
    fn first<T>(&self, payload: &Payload, ask: impl Fn(&dyn PayloadSource) -> Result<T>) -> Result<T> {
        let mut refusals = Vec::new();
        for (number, source) in self.candidates(payload) {
            match ask(source) {
                Ok(value) => {
                    let mut holders = self.holders.lock().unwrap_or_else(PoisonError::into_inner);
                    holders.insert(payload.sha256, number);
                    return Ok(value);
                }
                Err(error) if refusals.is_empty() && !is_absent(&error) => return Err(error),
                Err(error) => {
                    let absent = is_absent(&error);
                    refusals.push((source.describe_of(payload), error));
                    if !absent {
                        break;
                    }
                }
            }
        }
        Err(nowhere(payload, refusals))
    }
}

/// The error of a payload that no source gave. That of a single source says it all.
fn nowhere(payload: &Payload, mut refusals: Vec<(String, anyhow::Error)>) -> anyhow::Error {
    if refusals.len() == 1
        && let Some((_, error)) = refusals.pop()
    {
        return error;
    }
    let class = refusals.last().map_or(Class::Network, |(_, error)| class_of(error));
    let told: Vec<_> = refusals.iter().map(|(source, error)| format!("{source}: {error:#}")).collect();
    Failure::new(class, format!("no source has {}", payload.path))
        .because(anyhow!("{}", told.join("; ")))
        .hint("Check that install.medium or --medium has the images of this release, or that their registries can be reached.")
        .into()
}

impl PayloadSource for Chain {
    fn open(&self, payload: &Payload) -> Result<Box<dyn Read + Send>> {
        self.first(payload, |source| source.open(payload))
    }

    fn open_from(&self, payload: &Payload, offset: u64) -> Result<Box<dyn Read + Send>> {
        self.first(payload, |source| source.open_from(payload, offset))
    }

    fn place(&self, payload: &Payload) -> Option<PayloadPlace> {
        self.holder(payload)?.place(payload)
    }

    fn probe(&self, payload: &Payload) -> Result<()> {
        self.first(payload, |source| source.probe(payload))
    }

    /// Of the first source, which has the manifest.
    fn transport(&self) -> PayloadTransport {
        self.sources.first().map_or(PayloadTransport::Local, |source| source.transport())
    }

    fn manifest(&self) -> Result<Vec<u8>> {
        let first = self.sources.first().ok_or_else(|| anyhow!("there is no source"))?;
        first.manifest()
    }

    fn signatures(&self) -> Result<Option<Vec<u8>>> {
        self.sources.first().map_or(Ok(None), |first| first.signatures())
    }

    fn patches(&self) -> Result<Vec<ReleasePatch>> {
        self.sources.first().map_or(Ok(Vec::new()), |first| first.patches())
    }

    fn image(&self) -> Result<Option<Box<dyn Source>>> {
        self.sources.first().map_or(Ok(None), |first| first.image())
    }

    fn describe(&self) -> String {
        self.sources.iter().map(|source| source.describe()).collect::<Vec<_>>().join(", then ")
    }

    fn describe_of(&self, payload: &Payload) -> String {
        self.holder(payload).map_or_else(|| self.describe(), |source| source.describe_of(payload))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::release::Purpose;
    use transfer::download::NotFoundError;

    /// A server that answers everything in one way, and its name.
    struct Server(&'static str, Answer);

    #[derive(Clone, Copy)]
    enum Answer {
        Has,
        Lacks,
        Down,
    }

    impl Server {
        fn answer(&self) -> Result<()> {
            let failure = Failure::new(Class::Network, format!("asking {}", self.0));
            match self.1 {
                Answer::Has => Ok(()),
                Answer::Lacks => Err(failure.because(NotFoundError).into()),
                Answer::Down => Err(failure.because(anyhow!("no answer")).into()),
            }
        }
    }

    impl PayloadSource for Server {
        fn open(&self, _: &Payload) -> Result<Box<dyn Read + Send>> {
            self.answer().map(|()| Box::new(self.0.as_bytes()) as Box<dyn Read + Send>)
        }
        fn place(&self, _: &Payload) -> Option<PayloadPlace> {
            Some(PayloadPlace::Network)
        }
        fn probe(&self, _: &Payload) -> Result<()> {
            self.answer()
        }
        fn manifest(&self) -> Result<Vec<u8>> {
            Ok(Vec::new())
        }
        fn describe(&self) -> String {
            self.0.into()
        }
    }

    fn payload() -> Payload {
        Payload { path: "images/x".into(), purpose: Purpose::ImageBlob, size: 1, sha256: Digest::of(b"x") }
    }

    fn chain(first: Answer, second: Answer) -> Chain {
        Chain::new(Box::new(Server("mirror", first)), vec![Box::new(Server("registry", second))])
    }

    #[test]
    fn the_next_source_is_asked_only_when_one_does_not_have_the_payload() {
        use Answer::{Down, Has, Lacks};
        for (first, second, told) in [
            (Has, Down, Ok("mirror")),
            (Lacks, Has, Ok("registry")),
            (Down, Has, Err(&["asking mirror", "no answer"])),
            (Lacks, Lacks, Err(&["mirror: ", "registry: "])),
            (Lacks, Down, Err(&["mirror: ", "registry: asking registry: no answer"])),
        ] {
            let chain = chain(first, second);
            let found = chain.probe(&payload()).map(|()| chain.describe_of(&payload()));
            match (found, told) {
                (Ok(found), Ok(told)) => assert_eq!(found, told),
                (Err(error), Err(told)) => {
                    assert_eq!(class_of(&error), Class::Network);
                    let text = format!("{error:#}");
                    assert!(told.iter().all(|part| text.contains(part)), "{text}");
                }
                (found, told) => panic!("{found:?} instead of {told:?}"),
            }
        }
    }

    #[test]
    fn what_a_source_had_is_read_from_it_without_asking_the_others_again() {
        let chain = chain(Answer::Lacks, Answer::Has);
        chain.probe(&payload()).unwrap();
        let mut text = String::new();
        chain.open(&payload()).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "registry");
    }
}
