//! The configurations of machines: from a directory with a file for each, or from a cluster file.
//!
//! Every configuration is checked as an install checks it, with the medium's defaults and the kernel parameters of the boot
//! scripts: an install will not refuse what is handed out.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Result, anyhow};
use base::failure::{Class, Failure, causes};
use model::config::redact::Secrets;
use model::config::sources::{Document, Gathering, SourceKind, SourceReader, SourceRequest, gather};
use model::config::{InstallConfig, Mode, Role, Secret};
use model::machine::Selector;
use model::machine_documents::MachineDocuments;

use super::identity_keys::{self, IdentityKey};
use super::machine::{ConfigurationFit, Machine};
use crate::protocol;
use medium::network_boot::MEDIUM;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ConfigurationSource {
    /// A directory with a file for each machine, or what was rendered of a cluster file.
    Directory(PathBuf),
    /// A cluster file; it identifies its machines by their MAC addresses.
    Cluster(PathBuf),
}

/// The label in `os.labels` that says in which rack a node is: Kubernetes spreads copies over the zones that it names.
pub const RACK_LABEL: &str = "topology.kubernetes.io/zone";

#[derive(Clone, Debug)]
struct Configuration {
    text: Secret,
    /// The identifiers of its machine; none for the fallback.
    selectors: Vec<Selector>,
    node: DescribedNode,
}

#[derive(Clone, Debug, Default)]
struct DescribedNode {
    hostname: Option<String>,
    role: Option<Role>,
    /// The value of [`RACK_LABEL`].
    rack: Option<String>,
    cluster: Option<ClusterPart>,
    /// The secrets of a node that creates a cluster. What is said of it is shown on the screens of others.
    secrets: Secrets,
}

/// The part of a node in its cluster, whose address is given.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ClusterPart {
    Creates(Option<String>),
    Joins(String),
}

impl DescribedNode {
    fn of(config: &InstallConfig) -> Self {
        let cluster = match config.install.mode {
            Mode::Create => Some(ClusterPart::Creates(config.install.vip.map(|vip| vip.to_string()))),
            Mode::Join => config.server_url.as_ref().map(|url| ClusterPart::Joins(url.host().to_owned())),
            Mode::Install => None,
        };
        let mut secrets = Secrets::default();
        if config.install.mode == Mode::Create {
            secrets.add(config);
        }
        let (hostname, role) =
            (config.os.hostname.as_ref().map(ToString::to_string), config.install.own_role());
        let rack = config.os.labels.get(RACK_LABEL).map(ToString::to_string).filter(|rack| !rack.is_empty());
        Self { hostname, role: Some(role), rack, cluster, secrets }
    }
}

#[derive(Clone, Debug, Default)]
pub struct Configurations {
    all: BTreeMap<String, Configuration>,
    /// The names of the configurations that name an identifier.
    by_mark: HashMap<IdentityKey, BTreeSet<String>>,
    /// The configurations that create a cluster, by its address.
    by_address: HashMap<String, String>,
    /// The configuration that creates a cluster, if there is one such configuration.
    only_creator: Option<String>,
    /// The address that nodes join, if all join the same.
    joined: Option<String>,
    fallback: Option<String>,
    /// Another number for other configurations.
    revision: u64,
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
        for (name, configuration) in &mut loaded.all {
            match check(name, configuration.text.expose(), defaults) {
                Ok((node, warnings)) => {
                    configuration.node = node;
                    loaded.warnings.extend(warnings);
                }
                Err(error) => mistakes.push(causes(&error).join("\n  because: ")),
            }
        }
        if mistakes.is_empty() {
            loaded.index_clusters();
            return Ok(loaded);
        }
        let what = format!("{} of {} configurations cannot be used", mistakes.len(), loaded.all.len());
        Err(Failure::new(Class::Invalid, format!("{what}\n{}", mistakes.join("\n")))
            .hint("Correct them; `installer validate` checks one at a time.")
            .into())
    }

    fn revise(&mut self) {
        static LAST: AtomicU64 = AtomicU64::new(0);
        self.revision = LAST.fetch_add(1, Ordering::Relaxed) + 1;
    }

    /// Of two configurations of one revision each says the same as the other.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// Finds who creates which cluster, once for all questions about it.
    fn index_clusters(&mut self) {
        self.revise();
        let (mut creators, mut joined) = (Vec::new(), BTreeSet::new());
        for (name, configuration) in &self.all {
            match &configuration.node.cluster {
                Some(ClusterPart::Creates(address)) => creators.push((name, address)),
                Some(ClusterPart::Joins(host)) => drop(joined.insert(host)),
                None => {}
            }
        }
        // The first of those with the same address.
        let address =
            |(name, address): &(&String, &Option<String>)| Some(((*address).clone()?, (*name).clone()));
        self.by_address = creators.iter().rev().filter_map(address).collect();
        self.only_creator = creators.first().filter(|_| creators.len() == 1).map(|(name, _)| (*name).clone());
        self.joined = joined.first().filter(|_| joined.len() == 1).map(|host| (*host).clone());
    }

    /// Adds a configuration without checking it; one without selectors is the fallback.
    pub fn add(&mut self, name: &str, text: Secret, selectors: Vec<Selector>) {
        self.revise();
        for selector in &selectors {
            self.by_mark.entry(IdentityKey::of(selector)).or_default().insert(name.to_owned());
        }
        if selectors.is_empty() {
            self.fallback = Some(name.to_owned());
        }
        self.all.insert(name.to_owned(), Configuration { text, selectors, node: DescribedNode::default() });
    }

    /// The names of the configurations that name a machine with these identifiers. More than one means that the operator made
    /// a mistake, or that the identifiers are those of several machines.
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
    pub fn hostname(&self, name: &str) -> Option<&str> {
        self.all.get(name)?.node.hostname.as_deref()
    }

    #[must_use]
    pub fn role(&self, name: &str) -> Option<Role> {
        self.all.get(name)?.node.role
    }

    /// The secrets of a machine that creates a cluster.
    #[must_use]
    pub fn secrets(&self, name: &str) -> Secrets {
        self.all.get(name).map(|configuration| configuration.node.secrets.clone()).unwrap_or_default()
    }

    /// The names of the configurations that name a machine.
    pub fn assignable(&self) -> impl Iterator<Item = &str> {
        let named = self.all.iter().filter(|(_, configuration)| !configuration.selectors.is_empty());
        named.map(|(name, _)| name.as_str())
    }

    /// The configuration of the machine that creates the cluster that `name` joins: the one with its address, or else the only
    /// one that creates a cluster.
    #[must_use]
    pub fn creator(&self, name: &str) -> Option<&str> {
        let Some(ClusterPart::Joins(host)) = &self.all.get(name)?.node.cluster else { return None };
        let same = self.by_address.get(host).map(String::as_str);
        same.or(self.only_creator())
    }

    /// The address of the cluster that a node creates or joins. Where its creator names none, it is the one that
    /// its other nodes join if they all name the same, and else the hostname of the node that creates it.
    #[must_use]
    pub fn cluster(&self, name: &str) -> Option<&str> {
        let node = &self.all.get(name)?.node;
        match node.cluster.as_ref()? {
            ClusterPart::Joins(host) | ClusterPart::Creates(Some(host)) => Some(host),
            ClusterPart::Creates(None) => {
                let joined = self.joined.as_deref().filter(|_| self.only_creator() == Some(name));
                joined.or(node.hostname.as_deref())
            }
        }
    }

    /// The rack of a node: its label [`RACK_LABEL`].
    #[must_use]
    pub fn rack(&self, name: &str) -> Option<&str> {
        self.all.get(name)?.node.rack.as_deref()
    }

    fn only_creator(&self) -> Option<&str> {
        self.only_creator.as_deref()
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
struct DryRunSources<'a> {
    name: &'a str,
    text: &'a str,
    defaults: &'a [(String, String)],
}

impl SourceReader for DryRunSources<'_> {
    fn medium(&mut self, _: Option<&SourceRequest>) -> Result<Vec<Document>> {
        let one = |(name, text): &(String, String)| {
            Document::yaml(SourceKind::Defaults, name.clone(), text.clone())
        };
        Ok(self.defaults.iter().map(one).collect())
    }

    fn volume(&mut self) -> Result<Option<Document>> {
        Ok(None)
    }

    fn command_line(&mut self) -> Result<String> {
        Ok(protocol::parameters("https://server.invalid", MEDIUM, "0", "0").join(" "))
    }

    fn fetch(&mut self, _: &SourceRequest) -> Result<Document> {
        Ok(Document::yaml(SourceKind::Url, self.name, self.text))
    }
}

/// Returns the node of a configuration, and warnings. A configuration that an install would refuse is an error.
fn check(name: &str, text: &str, defaults: &[(String, String)]) -> Result<(DescribedNode, Vec<String>)> {
    // An empty document would install the machine with the medium's defaults alone.
    if text.lines().all(|line| line.trim().is_empty() || line.trim_start().starts_with('#')) {
        return Err(anyhow!("{name} is empty"));
    }
    let combined = gather(Gathering::default(), &mut DryRunSources { name, text, defaults })?;
    let first_line =
        |warning: &dyn fmt::Display| warning.to_string().lines().next().unwrap_or_default().to_owned();
    let warnings = combined.warnings.iter().map(|warning| first_line(warning)).collect();
    Ok((DescribedNode::of(&combined.config), warnings))
}

#[cfg(test)]
mod tests;
