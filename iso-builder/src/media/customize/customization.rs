//! The customization of a medium, for people and programs. It has no field that could hold a secret.

use std::fmt;
use std::fs::File;
use std::io;
use std::path::Path;

use anyhow::Result;
use base::digest::Digest;
use medium::customization::{AreaDamage, Argument, Content, FILE, GRUB_FILE, area, argument};
use medium::reader::MediumReader;
use model::machine::Selector;
use serde::Serialize;
use trust::TrustStore;

use super::summary::ConfigSummary;
use crate::signing::SignatureSummary;
use crate::wording::{counted, printable};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CustomizationState {
    /// The medium was built without a customization area.
    Impossible,
    /// The area is empty.
    AsBuilt,
    Customized,
    /// The content of the area is damaged.
    Damaged,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Customization {
    pub state: CustomizationState,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub damage: Option<String>,
    /// Who has signed it, by the keys that are known here; none where there is nothing.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub signatures: Option<SignatureSummary>,
    /// The install configurations, the fallback last.
    pub configurations: Vec<ConfigurationEntry>,
    /// Files with certificates of authorities to trust.
    pub authorities: Vec<AuthorityFile>,
    pub files: Vec<ShownFile>,
    /// The keys of kernel arguments, with `=…` where they have a value.
    pub arguments: Vec<String>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ConfigurationEntry {
    /// The machine that it is for; none for the fallback.
    pub machine: Option<Selector>,
    /// Of the document.
    pub sha256: Digest,
    /// Absent if the document is not readable as an install configuration by itself.
    pub summary: Option<ConfigSummary>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct AuthorityFile {
    pub name: String,
    pub sha256: Digest,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ShownFile {
    /// Where the node gets it.
    pub path: String,
    /// In octal digits.
    pub mode: String,
    /// In bytes.
    pub size: usize,
}

/// The content of the customization area of `medium`, as the installer reads it; none for a medium without an area.
pub fn read(medium: &MediumReader) -> Option<Result<Option<Content>, AreaDamage>> {
    match medium.open_file(FILE) {
        Ok(file) => Some(area::read(file)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => Some(Err(AreaDamage::Read(error))),
    }
}

/// True if the file at `path` is a customized medium, or the area of one.
#[must_use]
pub fn is_customized(path: &Path) -> bool {
    let content = match MediumReader::open(path) {
        Ok(medium) => read(&medium),
        Err(_) => File::open(path).ok().map(area::read),
    };
    matches!(content, Some(Ok(Some(_))))
}

/// True if GRUB would read other arguments, or another password, from `medium` than the area has. GRUB does not boot a
/// directory.
pub fn grub_differs(medium: &MediumReader, content: &Content) -> bool {
    let wanted = argument::grub(&content.arguments, content.boot_password.as_ref());
    let Ok(wanted) = wanted else { return true };
    let found = || medium.read_at_most(GRUB_FILE, argument::GRUB_LENGTH as u64);
    medium.iso().is_some() && !found().is_ok_and(|found| found == wanted)
}

impl Customization {
    /// That of `medium`, with its signatures by the keys of `known`.
    #[must_use]
    pub fn of(medium: &MediumReader, known: &TrustStore) -> Self {
        match read(medium) {
            None => Self::empty(CustomizationState::Impossible),
            Some(Ok(None)) => Self::empty(CustomizationState::AsBuilt),
            Some(Ok(Some(content))) => Self::content(&content, known),
            Some(Err(damage)) => {
                let damage = Some(format!("{:#}", anyhow::Error::from(damage)));
                Self { damage, ..Self::empty(CustomizationState::Damaged) }
            }
        }
    }

    fn empty(state: CustomizationState) -> Self {
        Self {
            state,
            damage: None,
            signatures: None,
            configurations: Vec::new(),
            authorities: Vec::new(),
            files: Vec::new(),
            arguments: Vec::new(),
        }
    }

    fn content(content: &Content, known: &TrustStore) -> Self {
        let nodes = match content.by_machine() {
            Ok(nodes) => nodes,
            Err(error) => {
                return Self {
                    damage: Some(format!("{error:#}")),
                    ..Self::empty(CustomizationState::Damaged)
                };
            }
        };
        let configuration = |chosen: model::machine::MachineFileMatch<'_>| {
            let text = content.nodes.get(chosen.file)?.expose();
            Some(ConfigurationEntry {
                machine: chosen.selector.cloned(),
                sha256: Digest::of(text.as_bytes()),
                summary: ConfigSummary::of(text),
            })
        };
        let authority = |(name, pem): (&String, &String)| AuthorityFile {
            name: name.clone(),
            sha256: Digest::of(pem.as_bytes()),
        };
        let file = |(path, file): (&String, &medium::customization::File)| ShownFile {
            path: format!("/{path}"),
            mode: format!("{:04o}", file.mode),
            size: file.bytes.len(),
        };
        let argument = |argument: &Argument| {
            let value = if argument.has_value() { "=…" } else { "" };
            format!("{}{value}", argument.key())
        };
        Self {
            configurations: nodes.iter().filter_map(configuration).collect(),
            authorities: content.authorities.iter().map(authority).collect(),
            files: content.files.iter().map(file).collect(),
            arguments: content.arguments.iter().map(argument).collect(),
            signatures: Some(SignatureSummary::of_customization(content, known)),
            ..Self::empty(CustomizationState::Customized)
        }
    }

    /// The content in a few words.
    #[must_use]
    pub fn brief(&self) -> String {
        match self.state {
            CustomizationState::Impossible => "built without room for customizing".into(),
            CustomizationState::AsBuilt => "not customized".into(),
            CustomizationState::Damaged => {
                format!("customized, but damaged: {}", printable(self.damage.as_deref().unwrap_or_default()))
            }
            CustomizationState::Customized => {
                let parts = [
                    (self.configurations.len(), "configuration"),
                    (self.authorities.len(), "certificate file"),
                    (self.files.len(), "file"),
                    (self.arguments.len(), "kernel argument"),
                ];
                let parts = parts.into_iter().filter(|(count, _)| *count > 0);
                let parts: Vec<_> = parts.map(|(count, what)| counted(count, what)).collect();
                format!("customized with {}", parts.join(", "))
            }
        }
    }
}

impl fmt::Display for Customization {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.brief())?;
        if let Some(signatures) = &self.signatures {
            write!(f, "\n  {}", printable(&signatures.text))?;
        }
        for ConfigurationEntry { machine, sha256, summary } in &self.configurations {
            let machine = machine.as_ref().map_or("every other machine".into(), ToString::to_string);
            write!(f, "\n  {}", printable(&machine))?;
            match summary {
                None => write!(f, "  not readable by itself")?,
                Some(summary) => {
                    let hostname = summary.hostname.as_deref().map_or("no hostname".into(), printable);
                    let automatic = if summary.automatic { "" } else { ", not automatic" };
                    write!(f, "  {hostname}{automatic}")?;
                }
            }
            write!(f, ", sha256 {}", &sha256.to_string()[..16])?;
        }
        for AuthorityFile { name, sha256 } in &self.authorities {
            write!(f, "\n  ca/{}  sha256 {}", printable(name), &sha256.to_string()[..16])?;
        }
        for ShownFile { path, mode, size } in &self.files {
            write!(f, "\n  {}  mode {mode}, {size} bytes", printable(path))?;
        }
        if !self.arguments.is_empty() {
            write!(f, "\n  kernel arguments: {}", self.arguments.join(" "))?;
        }
        Ok(())
    }
}
