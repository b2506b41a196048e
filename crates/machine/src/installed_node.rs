//! The node that is installed at a root directory, by its document: what every part of a running node begins with.
//!
//! A document with mistakes gives every value that has none, and a line for each mistake. So a node keeps its proxies,
//! authorities, secrets and cluster although one value of its document is wrong. A mistake in what says which node it is
//! ([`IDENTITY`]) is an error: as a node of another kind it would do damage. Those who write a document, or apply it
//! for a person, read it with [`model::config::load`], which takes no mistakes at all; a boot applies what has none.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use base::failure::{Class, Failure};
use model::config::redact::Secrets;
use model::config::{self, InstallConfig};
use model::release::Release;

use crate::hostname::hostname;
use crate::machine_id::MachineId;
use crate::node_release;
use crate::paths::{DOCUMENT, below};

/// The keys that say which node it is: its part in a cluster, and how that cluster is joined.
pub const IDENTITY: [&str; 5] =
    ["install.mode", "install.role", "server_url", "kubernetes", "kubernetes.distribution"];

/// The key of what the owner trusts.
const TRUST: &str = "os.trust";

/// A node, opened.
#[derive(Debug)]
pub struct InstalledNode {
    root: PathBuf,
    /// The values of the document that have no mistakes.
    pub config: InstallConfig,
    /// The machine id; none before the first start has made one.
    pub machine_id: Option<MachineId>,
    /// The mistakes of the document, a line each: place, key, what is wrong.
    pub mistakes: Vec<String>,
    /// The first of them that is about the releases that are trusted.
    pub trust_mistake: Option<String>,
}

impl InstalledNode {
    /// Opens the node at `root`.
    ///
    /// # Errors
    /// [`Class::Hardware`] without a document; [`Class::Invalid`] for one that is not YAML or has a mistake in what says which
    /// node it is; a machine id that cannot be read.
    pub fn open(root: &Path) -> Result<Self> {
        let document = below(root, DOCUMENT);
        if !document.exists() {
            return Err(Failure::new(Class::Hardware, format!("{} does not exist", document.display()))
                .hint("Run this on an installed node, as root.")
                .into());
        }
        let usable = config::load_usable(&document, &IDENTITY)?;
        let mistakes = usable.mistakes.iter().map(line_of_mistake).collect();
        let of_trust = |mistake: &&config::Diagnostic| {
            mistake
                .path
                .strip_prefix(TRUST)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with(['.', '[']))
        };
        let trust_mistake = usable.mistakes.iter().find(of_trust).map(line_of_mistake);
        let machine_id = MachineId::beside(&document)?;
        Ok(Self { root: root.to_owned(), config: usable.config, machine_id, mistakes, trust_mistake })
    }

    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Its name, as the document or the machine id gives it.
    #[must_use]
    pub fn hostname(&self) -> Option<String> {
        hostname(&self.config, self.machine_id.as_ref())
    }

    /// Its name, without which it cannot be a part of a cluster.
    ///
    /// # Errors
    /// It has none.
    pub fn name(&self) -> Result<String> {
        self.hostname().context("the node has no name")
    }

    /// The secrets that logs and reports must not show.
    #[must_use]
    pub fn secrets(&self) -> Secrets {
        let mut secrets = Secrets::default();
        secrets.add(&self.config);
        secrets
    }

    /// The release that runs.
    ///
    /// # Errors
    /// [`Class::Hardware`] without a release manifest.
    pub fn release(&self) -> Result<Release> {
        node_release::read(&self.root)
    }

    /// Reports each mistake of the document.
    pub fn warn(&self, say: &mut dyn FnMut(&str)) {
        for line in &self.mistakes {
            say(&format!("warning: the node document has a mistake: {line}"));
        }
    }
}

/// A mistake of the node document in one line: place, key, what is wrong.
#[must_use]
pub fn line_of_mistake(mistake: &config::Diagnostic) -> String {
    format!("{DOCUMENT}:{}: {}: {}", mistake.line, mistake.path, mistake.message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::class_of;
    use model::config::Role;
    use std::fs;

    fn node(document: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("oem")).unwrap();
        fs::write(below(root.path(), DOCUMENT), document).unwrap();
        root
    }

    #[test]
    fn a_node_with_one_mistake_keeps_its_role_proxies_authorities_and_secrets() {
        let authority = serde_json::to_string(testing::http::AUTHORITY).unwrap();
        let root = node(&format!(
            "server_url: https://192.0.2.10\ntoken: marked-token-of-enough-length\n\
             os: {{hostname: node-1, colour: blue, environment: {{HTTPS_PROXY: 'http://proxy:3128'}}}}\n\
             install: {{mode: join, role: worker, ca_certificates: [{authority}]}}\n"
        ));
        let node = InstalledNode::open(root.path()).unwrap();
        assert_eq!((node.config.install.role, node.name().unwrap().as_str()), (Role::Worker, "node-1"));
        assert_eq!(node.config.proxies().https.as_deref(), Some("http://proxy:3128"));
        assert_eq!(node.config.install.ca_certificates.len(), 1);
        assert!(!node.secrets().hide("it is marked-token-of-enough-length").contains("marked"));
        let mut told = Vec::new();
        node.warn(&mut |line| told.push(line.to_owned()));
        let [line] = told.as_slice() else { panic!("{told:?}") };
        assert!(line.contains("/oem/node.yaml:3: os.colour: "), "{line}");
    }

    #[test]
    fn a_mistake_in_what_says_which_node_it_is_is_an_error() {
        for document in [
            "install: {role: juggler}\n",
            "install: {mode: jump}\n",
            "kubernetes: {distribution: k9s}\n",
            "kubernetes: k3s\n",
            "server_url: [1]\ninstall: {mode: join}\n",
            "install: [\n",
            "- a list\n",
        ] {
            let root = node(document);
            let error = InstalledNode::open(root.path()).unwrap_err();
            assert_eq!(class_of(&error), Class::Invalid, "{document}: {error:#}");
        }
    }

    #[test]
    fn a_system_without_a_document_is_no_node_and_a_machine_id_gives_a_name() {
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(class_of(&InstalledNode::open(empty.path()).unwrap_err()), Class::Hardware);
        let root = node("install: {mode: install}\n");
        assert!(InstalledNode::open(root.path()).unwrap().name().is_err());
        fs::write(root.path().join("oem/machine-id"), "0123456789abcdef0123456789abcdef\n").unwrap();
        assert_eq!(InstalledNode::open(root.path()).unwrap().name().unwrap(), "nqrust-01234567");
    }
}
