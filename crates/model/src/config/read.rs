//! Reading and writing documents: files and text to [`InstallConfig`] and back.

use std::path::Path;

use anyhow::Result;

use super::sources::{self, Document, SourceKind};
use super::{InstallConfig, Secret, password};
use base::encode;
use base::failure::{Class, Classify, Failure};
use base::files::named;
use document::diagnostic::{Diagnostic, Invalid};

/// A document without mistakes.
#[derive(Debug)]
pub struct Accepted {
    pub config: InstallConfig,
    /// In the order of its lines.
    pub warnings: Vec<Diagnostic>,
}

/// Reads and checks the file at `path` as [`check_in_use`] does. A file that cannot be read and a document with mistakes are
/// [`Class::Invalid`].
pub fn load(path: &Path) -> Result<InstallConfig> {
    let name = named::told(path);
    let text =
        named::read_text(path).class(Class::Invalid, || format!("reading the configuration {name}"))?;
    parse(&text, &name)
}

/// Reads and checks a document; `name` is what messages call it. All mistakes come in one error, which holds
/// an [`Invalid`].
pub fn parse(text: &str, name: &str) -> Result<InstallConfig> {
    let accepted =
        check_in_use(text, name).map_err(|invalid| invalid.failure(&format!("the configuration {name}")))?;
    Ok(accepted.config)
}

/// Reads what can be used of the document of a node at `path`, and why the rest cannot, if anything cannot: an error as [`load`] has
/// it. A file that cannot be read gives the defaults.
#[must_use]
pub fn load_usable(path: &Path) -> (InstallConfig, Option<anyhow::Error>) {
    let name = named::told(path);
    let reading = || format!("reading the configuration {name}");
    match named::read_text(path).class(Class::Invalid, reading) {
        Ok(text) => parse_usable(&text, &name),
        Err(error) => (InstallConfig::default(), Some(error)),
    }
}

fn parse_usable(text: &str, name: &str) -> (InstallConfig, Option<anyhow::Error>) {
    let document = Document::yaml(SourceKind::File, name, text).in_use();
    let (config, invalid) = sources::combine::usable(document);
    (config, invalid.map(|invalid| invalid.failure(&format!("the configuration {name}")).into()))
}

/// Reads and checks a document for an install; every mistake and every warning with its place.
pub fn check(text: &str, name: &str) -> Result<Accepted, Invalid> {
    accept(Document::yaml(SourceKind::File, name, text))
}

/// The same for a document whose secrets are in use or somebody is there to judge them: that of a node, which has to
/// start with the token that its cluster has, and the answers on a console. What is wrong with a choice is a warning.
pub fn check_in_use(text: &str, name: &str) -> Result<Accepted, Invalid> {
    accept(Document::yaml(SourceKind::File, name, text).in_use())
}

fn accept(document: Document) -> Result<Accepted, Invalid> {
    document.is_configuration()?;
    let combined = sources::combine(&[document])?;
    Ok(Accepted { config: combined.config, warnings: combined.warnings })
}

impl InstallConfig {
    /// The document as YAML, every text that could be taken for something else in quotes. It holds secrets:
    /// files with it have mode 0600.
    #[must_use]
    pub fn to_yaml(&self) -> String {
        encode::yaml(self)
    }

    /// The document as a node keeps it: passwords in clear text replaced by their yescrypt hashes, and on agents no token of
    /// servers. A hash of a method that the node does not accept is [`Class::Invalid`], and so is a token that cannot be read.
    pub fn for_node(&self) -> Result<Self> {
        let mut node = self.clone().without_foreign_tokens()?;
        let stored = |key: &str, secret: &Option<Secret>| {
            secret.as_ref().map(|secret| storable(key, secret)).transpose()
        };
        node.os.password = stored("os.password", &self.os.password)?;
        for (index, user) in node.os.users.iter_mut().enumerate() {
            user.password = stored(&format!("os.users[{index}].password"), &user.password)?;
        }
        Ok(node)
    }
}

fn storable(key: &str, secret: &Secret) -> Result<Secret> {
    match password::kind(secret.expose()) {
        password::PasswordKind::Hash | password::PasswordKind::Lock => Ok(secret.clone()),
        password::PasswordKind::Clear => password::hash(secret.expose()),
        password::PasswordKind::Unsupported(why) => {
            Err(Failure::new(Class::Invalid, format!("`{key}` is {why}"))
                .hint("Give the password in clear text, or a hash made by `mkpasswd --method=yescrypt`.")
                .into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Role;

    #[test]
    fn a_document_with_a_mistake_keeps_every_value_that_has_none() {
        let text = "
os: {hostname: node-1, colour: blue, environment: {HTTPS_PROXY: 'http://proxy:3128'}}
install: {role: worker, mode: juggle}
system_settings: {additional-ca: pem}
";
        let (config, mistakes) = parse_usable(text, "node.yaml");
        assert_eq!(config.install.role, Role::Worker);
        assert_eq!(config.proxies().https.as_deref(), Some("http://proxy:3128"));
        assert_eq!(config.system_settings["additional-ca"].expose(), "pem");
        let told = base::failure::render(&mistakes.unwrap());
        assert!(told.contains("node.yaml:2:"), "{told}");
        let (config, mistakes) = parse_usable("os: {hostname: node-1}", "node.yaml");
        assert!(mistakes.is_none() && config.os.hostname.is_some(), "{mistakes:?}");
        let (config, mistakes) = parse_usable("os: {hostname: [", "node.yaml");
        assert!(config == InstallConfig::default() && mistakes.is_some());
        let (_, missing) = load_usable(Path::new("/does/not/exist"));
        assert!(missing.is_some());
    }
}
