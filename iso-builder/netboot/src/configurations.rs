//! The configurations of machines: from a directory with a file for each, or from a cluster file.
//!
//! Every configuration is checked as an install checks it, with the medium's defaults and the kernel parameters of the boot
//! scripts: an install will not refuse what is handed out.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

use anyhow::{Result, anyhow};
use base::failure::{Class, Failure, causes};
use model::config::Secret;
use model::config::sources::{Document, Effects, Gathering, Request, SourceKind, gather};
use model::machine::Selector;
use model::machine_documents::MachineDocuments;

use super::boot;
use super::identity_keys::{self, IdentityKey};
use super::machine::{ConfigurationFit, Machine};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigurationSource {
    /// A directory with a file for each machine, or what was rendered of a cluster file.
    Directory(PathBuf),
    /// A cluster file; it identifies its machines by their MAC addresses.
    Cluster(PathBuf),
}

#[derive(Clone, Debug)]
struct Configuration {
    text: Secret,
    /// The marks of its machine; none for the fallback.
    selectors: Vec<Selector>,
}

#[derive(Clone, Debug, Default)]
pub struct Configurations {
    all: BTreeMap<String, Configuration>,
    /// The names of the configurations that name a mark.
    by_mark: HashMap<IdentityKey, BTreeSet<String>>,
    fallback: Option<String>,
    /// Warnings for the operator.
    pub warnings: Vec<String>,
}

impl Configurations {
    /// Reads and checks the configurations at `origin`. The error names every mistake of every configuration.
    /// `defaults` are the medium's documents of defaults: name and text.
    pub fn load(origin: &ConfigurationSource, defaults: &[(String, String)]) -> Result<Self> {
        let found = match origin {
            ConfigurationSource::Directory(directory) => MachineDocuments::of_directory(directory)?,
            ConfigurationSource::Cluster(file) => MachineDocuments::of_cluster(file)?,
        };
        let mut loaded = Self { warnings: found.warnings, ..Self::default() };
        for document in found.documents {
            loaded.add(&document.name, document.text, document.selectors);
        }
        if let ConfigurationSource::Directory(directory) = origin
            && loaded.all.is_empty()
        {
            let text = format!("{} has no configuration: no machine installs", directory.display());
            loaded.warnings.push(text);
        }
        let mut mistakes = Vec::new();
        for (name, configuration) in &loaded.all {
            match check(name, configuration.text.expose(), defaults) {
                Ok(warnings) => loaded.warnings.extend(warnings),
                Err(error) => mistakes.push(causes(&error).join("\n  because: ")),
            }
        }
        if mistakes.is_empty() {
            return Ok(loaded);
        }
        let what = format!("{} of {} configurations cannot be used", mistakes.len(), loaded.all.len());
        Err(Failure::new(Class::Invalid, format!("{what}\n{}", mistakes.join("\n")))
            .hint("Correct them; `installer validate` checks one at a time.")
            .into())
    }

    /// Adds a configuration without checking it; one without selectors is the fallback.
    pub fn add(&mut self, name: &str, text: Secret, selectors: Vec<Selector>) {
        for selector in &selectors {
            self.by_mark.entry(IdentityKey::of(selector)).or_default().insert(name.to_owned());
        }
        if selectors.is_empty() {
            self.fallback = Some(name.to_owned());
        }
        self.all.insert(name.to_owned(), Configuration { text, selectors });
    }

    /// The names of the configurations that name a machine with these marks. More than one means that the operator made
    /// a mistake, or that the marks are those of several machines.
    #[must_use]
    pub fn naming(&self, marks: &BTreeSet<IdentityKey>) -> BTreeSet<&str> {
        let named = marks.iter().filter_map(|mark| self.by_mark.get(mark));
        named.flatten().map(String::as_str).collect()
    }

    #[must_use]
    pub fn fallback(&self) -> Option<&str> {
        self.fallback.as_deref()
    }

    /// None where there is no such configuration.
    #[must_use]
    pub fn selectors(&self, name: &str) -> Option<&[Selector]> {
        self.all.get(name).map(|configuration| configuration.selectors.as_slice())
    }

    #[must_use]
    pub fn fit(&self, machine: &Machine) -> ConfigurationFit {
        let named = || !self.naming(&identity_keys::of(&machine.identity)).is_empty();
        match &machine.assigned {
            Some(name) if self.all.contains_key(name) => ConfigurationFit::Own,
            None if named() => ConfigurationFit::Own,
            None if self.fallback().is_some() => ConfigurationFit::Fallback,
            _ => ConfigurationFit::Nothing,
        }
    }

    #[must_use]
    pub fn text(&self, name: &str) -> Option<&Secret> {
        self.all.get(name).map(|configuration| &configuration.text)
    }

    #[must_use]
    pub fn count(&self) -> usize {
        self.all.len()
    }
}

/// Names, lengths, times and inodes of the files at `origin`: it changes whenever one of them does.
#[must_use]
pub fn stamp(origin: &ConfigurationSource) -> Vec<(PathBuf, u64, i64, i64, u64)> {
    let one = |path: PathBuf| {
        let metadata = std::fs::metadata(&path).ok()?;
        Some((path, metadata.len(), metadata.mtime(), metadata.mtime_nsec(), metadata.ino()))
    };
    let mut found: Vec<_> = match origin {
        ConfigurationSource::Cluster(file) => one(file.clone()).into_iter().collect(),
        ConfigurationSource::Directory(directory) => {
            let entries = std::fs::read_dir(directory).into_iter().flatten().flatten();
            entries.filter_map(|entry| one(entry.path())).collect()
        }
    };
    found.sort();
    found
}

/// The sources that an install of a machine booted from this server would have.
struct Rehearsal<'a> {
    name: &'a str,
    text: &'a str,
    defaults: &'a [(String, String)],
}

impl Effects for Rehearsal<'_> {
    fn medium(&mut self, _: Option<&Request>) -> Result<Vec<Document>> {
        let one = |(name, text): &(String, String)| {
            Document::yaml(SourceKind::Defaults, name.clone(), text.clone())
        };
        Ok(self.defaults.iter().map(one).collect())
    }

    fn volume(&mut self) -> Result<Option<Document>> {
        Ok(None)
    }

    fn command_line(&mut self) -> Result<String> {
        Ok(boot::parameters("https://server.invalid", "0").join(" "))
    }

    fn fetch(&mut self, _: &Request) -> Result<Document> {
        Ok(Document::yaml(SourceKind::Url, self.name, self.text))
    }
}

/// Returns the warnings about a configuration. A configuration that an install would refuse is an error.
fn check(name: &str, text: &str, defaults: &[(String, String)]) -> Result<Vec<String>> {
    // An empty document would install the machine with the medium's defaults alone.
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Err(anyhow!("{name} is empty"));
    }
    let combined = gather(Gathering::default(), &mut Rehearsal { name, text, defaults })?;
    let first_line =
        |warning: &dyn fmt::Display| warning.to_string().lines().next().unwrap_or_default().to_owned();
    Ok(combined.warnings.iter().map(|warning| first_line(warning)).collect())
}

#[cfg(test)]
mod tests;
