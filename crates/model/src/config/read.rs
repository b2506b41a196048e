//! Reading and writing documents: files and text to [`InstallConfig`] and back.

use std::path::Path;

use anyhow::Result;

use super::sources::{self, Document, SourceKind};
use super::{InstallConfig, Secret, password};
use base::encode;
use base::failure::{Class, Classify, Failure};
use base::files::named;
use document::diagnostic::{Diagnostic, Invalid, Severity};

/// A document without mistakes.
#[derive(Debug)]
pub struct ValidConfig {
    pub config: InstallConfig,
    /// In the order of its lines.
    pub warnings: Vec<Diagnostic>,
}

/// Reads and checks the file at `path` as [`check_in_use`] does. A file that cannot be read and a document with mistakes are
/// [`Class::Invalid`].
pub fn load(path: &Path) -> Result<InstallConfig> {
    let (text, name) = read(path)?;
    parse(&text, &name)
}

/// The text of the file, and what messages call it.
fn read(path: &Path) -> Result<(String, String)> {
    let name = named::told(path);
    let text =
        named::read_text(path).class(Class::Invalid, || format!("reading the configuration {name}"))?;
    Ok((text, name))
}

/// Reads and checks a document; `name` is what messages call it. All mistakes come in one error, which holds
/// an [`Invalid`].
pub fn parse(text: &str, name: &str) -> Result<InstallConfig> {
    let accepted =
        check_in_use(text, name).map_err(|invalid| invalid.failure(&format!("the configuration {name}")))?;
    Ok(accepted.config)
}

/// A document that may have mistakes.
#[derive(Debug)]
pub struct UsableDocument {
    /// Every value that fits its key.
    pub config: InstallConfig,
    /// The mistakes, in the order of its lines, warnings left out.
    pub mistakes: Vec<Diagnostic>,
}

/// Reads what can be used of the document of a node at `path`. A value that only breaks a rule is kept.
///
/// # Errors
/// [`Class::Invalid`], as [`load`] has it: the file cannot be read, is not YAML or not a configuration, or has a mistake in one of
/// the `essential` keys.
pub fn load_usable(path: &Path, essential: &[&str]) -> Result<UsableDocument> {
    let (text, name) = read(path)?;
    parse_usable(&text, &name, essential)
}

/// Reads what a boot can apply of the document of a node at `path`: what [`load_usable`] reads, without the values that break a rule.
///
/// # Errors
/// Those of [`load_usable`].
pub fn load_applicable(path: &Path, essential: &[&str]) -> Result<UsableDocument> {
    let usable = load_usable(path, essential)?;
    // Nearly every boot: the rules have found nothing, and need not look again.
    if usable.mistakes.is_empty() {
        return Ok(usable);
    }
    Ok(UsableDocument { config: super::rules::without_breaches(usable.config, essential), ..usable })
}

fn parse_usable(text: &str, name: &str, essential: &[&str]) -> Result<UsableDocument> {
    let failure = |invalid: Invalid| invalid.failure(&format!("the configuration {name}"));
    let document = Document::yaml(SourceKind::File, name, text).in_use();
    let (config, mut mistakes) = sources::combine::usable(document).map_err(failure)?;
    // Without a path it is a mistake of the document as a whole.
    let is_grave = |mistake: &Diagnostic| {
        mistake.severity == Severity::Error
            && (mistake.path.is_empty() || essential.contains(&mistake.path.as_str()))
    };
    if mistakes.iter().any(is_grave) {
        return Err(failure(Invalid(mistakes)).into());
    }
    mistakes.retain(|mistake| mistake.severity == Severity::Error);
    Ok(UsableDocument { config, mistakes })
}

/// Reads and checks a document for an install; every mistake and every warning with its place.
pub fn check(text: &str, name: &str) -> Result<ValidConfig, Invalid> {
    accept(Document::yaml(SourceKind::File, name, text))
}

/// The same for a document whose secrets are in use or somebody is there to judge them: that of a node, which has to
/// start with the token that its cluster has, and the answers on a console. What is wrong with a choice is a warning.
pub fn check_in_use(text: &str, name: &str) -> Result<ValidConfig, Invalid> {
    accept(Document::yaml(SourceKind::File, name, text).in_use())
}

fn accept(document: Document) -> Result<ValidConfig, Invalid> {
    document.is_configuration()?;
    let combined = sources::combine(&[document])?;
    Ok(ValidConfig { config: combined.config, warnings: combined.warnings })
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
        let UsableDocument { config, mistakes } = parse_usable(text, "node.yaml", &["install.role"]).unwrap();
        assert_eq!(config.install.role, Role::Worker);
        assert_eq!(config.proxies().https.as_deref(), Some("http://proxy:3128"));
        assert_eq!(config.system_settings["additional-ca"].expose(), "pem");
        let places: Vec<_> = mistakes.iter().map(|mistake| (mistake.line, mistake.path.as_str())).collect();
        assert_eq!(places, [(2, "os.colour"), (3, "install.mode"), (4, "system_settings.additional-ca")]);
        let UsableDocument { config, mistakes } =
            parse_usable("os: {hostname: node-1}", "node.yaml", &[]).unwrap();
        assert!(mistakes.is_empty() && config.os.hostname.is_some(), "{mistakes:?}");
        assert!(parse_usable("{}", "node.yaml", &[]).unwrap().mistakes.is_empty());
        for unusable in ["", "os: {hostname: [", "- a list"] {
            assert!(parse_usable(unusable, "node.yaml", &[]).is_err(), "{unusable}");
        }
        assert!(parse_usable(text, "node.yaml", &["install.mode"]).is_err(), "an essential key");
        assert!(load_usable(Path::new("/does/not/exist"), &[]).is_err());
    }
}
