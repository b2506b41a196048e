//! Which source is asked next.
//!
//! Every source is in one of the stages of [`SourceStage`]. [`GatheringMachine::want`] looks at the stages and at what has been
//! read so far and says what to do; the outcome is told to [`GatheringMachine::take`], and nothing else changes a stage. A
//! source that fails ends the gathering: nothing weaker takes its place.
//!
//! ```text
//! medium, if at hand ─ volume ─ kernel parameters ─ URL, if one is named ─ medium, if one is named ─ done
//!                                                    ↑ asked again once the medium has been read
//! ```

use anyhow::Result;

use super::combine::{CheckedDocuments, CombinedConfig, authorities, combine, salvage};
use super::{Document, SourceKind};
use crate::config::formats::storage::is_iso_file;
use crate::config::shape;
use crate::config::{InstallConfig, Invalid};
use base::failure::{Class, Failure};
use document::shape::Shape;

/// Reads the sources; the commands implement it.
pub trait SourceReader {
    /// The defaults and the embedded configuration of the medium at `url`, or of the one at hand.
    fn medium(&mut self, url: Option<&SourceRequest>) -> Result<Vec<Document>>;
    /// Certificates (PEM) of authorities to trust that came with a medium, beside those that documents name.
    fn authorities(&self) -> Vec<String> {
        Vec::new()
    }
    /// The document of the volume with the label, if there is one.
    fn volume(&mut self) -> Result<Option<Document>>;
    fn command_line(&mut self) -> Result<String>;
    /// The document behind `install.config_url`.
    fn fetch(&mut self, request: &SourceRequest) -> Result<Document>;
    /// The gathering ends with an error; this is what could be used all the same.
    fn given_up(&mut self, _saved: &InstallConfig) {}
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceRequest {
    pub url: String,
    /// Which document says so.
    pub named_by: String,
    /// The SHA-256 that it must have, as text.
    pub sha256: Option<String>,
    /// Further authorities to trust, each as PEM.
    pub authorities: Vec<String>,
}

/// How far a source has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SourceStage {
    /// Not asked yet; an optional source that no document names stays pending.
    #[default]
    Pending,
    /// It has been asked, and has said what it has, perhaps nothing.
    Asked,
    /// Something else stands in its place.
    Replaced,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SourceAction {
    /// Read the medium: the one at hand, or the one that is named.
    Medium(Option<SourceRequest>),
    Volume,
    CommandLine,
    Fetch(SourceRequest),
    Nothing,
}

/// The settings that a gathering starts with.
#[derive(Debug, Default)]
pub struct Gathering {
    /// True if a medium can be read without any configuration.
    pub medium_at_hand: bool,
    /// The document that stands in place of the embedded one, the volume's and the fetched one.
    pub file: Option<Document>,
    /// Replaces the kernel's own command line.
    pub command_line: Option<String>,
    /// True if kernel parameters are ignored.
    pub ignore_command_line: bool,
    pub answers: Option<Document>,
}

/// The sources and how far each has come.
#[derive(Debug)]
pub struct GatheringMachine<'s> {
    shape: &'s Shape,
    documents: Vec<Document>,
    medium: SourceStage,
    medium_at_hand: bool,
    volume: SourceStage,
    command_line: SourceStage,
    url: SourceStage,
    file: bool,
    trusted: Vec<String>,
}

impl<'s> GatheringMachine<'s> {
    #[must_use]
    pub fn new(gathering: Gathering, shape: &'s Shape) -> Self {
        let Gathering { medium_at_hand, file, command_line, ignore_command_line, answers } = gathering;
        let replaced = |really: bool| if really { SourceStage::Replaced } else { SourceStage::Pending };
        let mut machine = Self {
            shape,
            documents: Vec::new(),
            medium: SourceStage::Pending,
            medium_at_hand,
            volume: replaced(file.is_some()),
            command_line: replaced(command_line.is_some() || ignore_command_line),
            url: replaced(file.is_some()),
            file: file.is_some(),
            trusted: Vec::new(),
        };
        let message = "this document replaces the fetched one; remove the key";
        machine.add(file.map(|file| file.refuse("install.config_url", "url-not-followed", message)));
        machine.add(command_line.map(|line| Document::command_line(&line, shape)));
        machine.add(answers);
        machine
    }

    fn add(&mut self, documents: impl IntoIterator<Item = Document>) {
        self.documents.extend(documents);
        // Stable: of two documents of one kind the later stays the stronger.
        self.documents.sort_by_key(Document::kind);
    }

    /// The next action. Mistakes in the documents so far are reported before anything that they name is fetched.
    pub fn want(&self) -> Result<SourceAction, Invalid> {
        if self.medium == SourceStage::Pending && self.medium_at_hand {
            return Ok(SourceAction::Medium(None));
        }
        if self.volume == SourceStage::Pending {
            return Ok(SourceAction::Volume);
        }
        if self.command_line == SourceStage::Pending {
            return Ok(SourceAction::CommandLine);
        }
        let examined = CheckedDocuments::of(&self.documents, self.shape);
        let (url, medium) = (self.request(&examined, CONFIG_URL), self.request(&examined, MEDIUM));
        let iso_url = || self.request(&examined, ISO_URL).filter(|it| !is_iso_file(&it.url));
        let medium = medium.or_else(iso_url).filter(|it| is_web(&it.url));
        let want = match (self.url, self.medium) {
            (SourceStage::Pending, _) if url.is_some() => url.map(SourceAction::Fetch),
            (_, SourceStage::Pending) => medium.map(|medium| SourceAction::Medium(Some(medium))),
            _ => None,
        };
        match want {
            Some(want) => examined.verdict(&self.documents).map(|_| want),
            None => Ok(SourceAction::Nothing),
        }
    }

    /// Takes the documents that `want` led to.
    pub fn take(&mut self, want: &SourceAction, documents: Vec<Document>) {
        match want {
            SourceAction::Medium(_) => self.medium = SourceStage::Asked,
            SourceAction::Volume => self.volume = SourceStage::Asked,
            SourceAction::CommandLine => self.command_line = SourceStage::Asked,
            SourceAction::Fetch(_) => self.url = SourceStage::Asked,
            SourceAction::Nothing => {}
        }
        let kept =
            documents.into_iter().filter(|document| !(self.file && document.kind() == SourceKind::Embedded));
        let message = "a fetched document cannot name another one";
        let chained = |document: Document| match document.kind() {
            SourceKind::Url => {
                CHAIN.iter().fold(document, |d, path| d.refuse(path, "chained-config-url", message))
            }
            _ => document,
        };
        let kept: Vec<_> = kept.map(chained).collect();
        self.add(kept);
    }

    /// Trusts these authorities (PEM) too, whatever documents name.
    pub fn trust(&mut self, authorities: Vec<String>) {
        self.trusted = authorities;
    }

    /// Every document, the weakest first.
    #[must_use]
    pub fn documents(&self) -> &[Document] {
        &self.documents
    }

    fn request(&self, examined: &CheckedDocuments, pointer: &str) -> Option<SourceRequest> {
        let (url, source) = examined.text(pointer)?;
        let value = examined.merged.as_ref()?.value();
        Some(SourceRequest {
            url,
            named_by: self.documents[source].name().to_owned(),
            sha256: examined.text(SHA256).map(|(text, _)| text).filter(|_| pointer == CONFIG_URL),
            authorities: authorities(&value).into_iter().chain(self.trusted.clone()).collect(),
        })
    }
}

const CONFIG_URL: &str = "/install/config_url";
const SHA256: &str = "/install/config_sha256";
const MEDIUM: &str = "/install/medium";
const ISO_URL: &str = "/install/iso_url";
/// The keys that lead to a further document; a fetched document must not have them.
const CHAIN: [&str; 2] = ["install.config_url", "install.config_sha256"];

fn is_web(url: &str) -> bool {
    url.starts_with("http://") || url.starts_with("https://")
}

/// Asks every source and puts the configuration together.
pub fn gather(gathering: Gathering, effects: &mut dyn SourceReader) -> Result<CombinedConfig> {
    let mut machine = GatheringMachine::new(gathering, shape::install_config());
    let combined = run(&mut machine, effects).and_then(|()| put_together(machine.documents()));
    match combined {
        Ok(mut combined) => {
            trust(&mut combined.config, &machine.trusted);
            combined.authorities.extend(machine.trusted);
            Ok(combined)
        }
        Err(error) => {
            let mut saved = salvage(machine.documents());
            trust(&mut saved, &machine.trusted);
            effects.given_up(&saved);
            Err(error)
        }
    }
}

/// Makes authorities a part of the configuration, so that whatever it leads to trusts them.
fn trust(config: &mut InstallConfig, authorities: &[String]) {
    let authorities = authorities.iter().filter_map(|pem| pem.parse().ok());
    let known = &mut config.install.ca_certificates;
    for pem in authorities {
        if !known.contains(&pem) {
            known.push(pem);
        }
    }
}

fn put_together(documents: &[Document]) -> Result<CombinedConfig> {
    if documents.iter().all(|document| document.kind() == SourceKind::Defaults || document.is_empty()) {
        return Err(Failure::new(Class::Invalid, "the install configuration is missing")
            .hint("Give one with --config, or by one of the sources in docs/reference/sources.md.")
            .into());
    }
    Ok(combine(documents).map_err(refusal)?)
}

/// Goes through the stages until nothing is wanted any more.
pub(super) fn run(machine: &mut GatheringMachine<'_>, effects: &mut dyn SourceReader) -> Result<()> {
    loop {
        let want = machine.want().map_err(refusal)?;
        let documents = match &want {
            SourceAction::Medium(url) => {
                let documents = effects.medium(url.as_ref())?;
                machine.trust(effects.authorities());
                documents
            }
            SourceAction::Volume => effects.volume()?.into_iter().collect(),
            SourceAction::CommandLine => {
                vec![Document::command_line(&effects.command_line()?, machine.shape)]
            }
            SourceAction::Fetch(request) => vec![effects.fetch(request)?],
            SourceAction::Nothing => return Ok(()),
        };
        machine.take(&want, documents);
    }
}

/// The failure that mistakes of a configuration are.
#[must_use]
pub fn refusal(invalid: Invalid) -> Failure {
    let count = invalid.errors();
    let mistakes = if count == 1 { "a mistake".to_owned() } else { format!("{count} mistakes") };
    Failure::new(Class::Invalid, format!("the configuration has {mistakes}\n{invalid}"))
        .places(&invalid.0)
        .because(invalid)
}
