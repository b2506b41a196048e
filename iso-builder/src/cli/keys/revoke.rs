//! `iso-builder keys revoke`.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Result;
use base::digest::Digest;
use base::failure::{Class, Failure};
use base::program::Context;
use formats::minisign::KeyId;
use medium::payload_sources::is_url;
use medium::reader::MediumReader;
use serde::Serialize;
use trust::Revocations;

use crate::media::finished::verify::manifests_of;
use crate::signing::KeyDirectory;
use crate::signing::arguments::KeyDirectoryArguments;
use crate::signing::key_directory::{KeyFile, MAX_KEY_BYTES};
use crate::signing::revocation_list::{self, GrownList};
use crate::signing::signer::key_in_line;
use crate::wording::{counted, printable};

/// Add keys and releases to the list of those that nodes refuse.
///
/// An image definition names the list: `trust: {revoked: {list: FILE}}`. Nodes that run a release of that definition refuse from then on
/// what only revoked keys have signed, and the revoked releases. Nothing is ever taken out of the list.
#[derive(Debug, clap::Args)]
pub(super) struct RevokeArguments {
    /// The list, a JSON file; it is made if there is none.
    #[arg(long, value_name = "FILE")]
    list: PathBuf,
    /// A key: its id, the file of its public key, the second line of that, or its name in the key directory. A release: the SHA-256 of its
    /// release.json, or a medium as `iso-builder inspect` takes it. Repeatable.
    #[arg(required = true, value_name = "KEY_OR_RELEASE")]
    revoked: Vec<String>,
    #[command(flatten)]
    directory: KeyDirectoryArguments,
}

/// A key or a release that the command names.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
enum RevokedItem {
    Key {
        id: KeyId,
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
    Release {
        digest: Digest,
        #[serde(skip_serializing_if = "Option::is_none")]
        name: Option<String>,
    },
}

/// What became of the list.
#[derive(Debug, Serialize)]
struct RevocationReport {
    list: PathBuf,
    /// What it has now that it did not have.
    added: Vec<RevokedItem>,
    /// What was named and was in it already.
    present: Vec<RevokedItem>,
    /// All that it has.
    revoked: Revocations,
}

impl RevokeArguments {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let directory = self.directory.directory();
        let named = self.revoked.iter().map(|text| RevokedItem::named(text, &directory));
        let mut items: Vec<RevokedItem> = Vec::new();
        for item in named.collect::<Result<Vec<_>>>()?.concat() {
            // The media of one build have one manifest, and a key has several names.
            if items.iter().all(|known| !known.is_same(&item)) {
                items.push(item);
            }
        }
        let mut more = Revocations::default();
        for item in &items {
            match item {
                RevokedItem::Key { id, .. } => drop(more.keys.insert(*id)),
                RevokedItem::Release { digest, .. } => drop(more.releases.insert(*digest)),
            }
        }
        let GrownList { before, after } = revocation_list::add(&self.list, more)?;
        let (present, added) = items.into_iter().partition(|item| item.is_in(&before));
        let report = RevocationReport { list: self.list, added, present, revoked: after };
        context.show(&report, || report.to_string())
    }
}

impl RevokedItem {
    /// What `text` names: one key, or the releases of a medium. All are looked at before the list is changed.
    fn named(text: &str, directory: &KeyDirectory) -> Result<Vec<Self>> {
        if let Ok(id) = text.parse() {
            return Ok(vec![Self::Key { id, name: None }]);
        }
        if let Ok(digest) = text.parse() {
            return Ok(vec![Self::Release { digest, name: None }]);
        }
        if let Some(key) = key_in_line(text)? {
            return Ok(vec![Self::Key { id: key.id(), name: None }]);
        }
        let path = Path::new(text);
        let metadata = fs::metadata(path);
        if metadata.as_ref().is_ok_and(|metadata| metadata.is_file() && metadata.len() <= MAX_KEY_BYTES) {
            return KeyFile::read(path).map(|file| vec![Self::of_key(file)]);
        }
        if metadata.is_ok() || is_url(text) {
            return manifests_of(path)?.iter().map(|path| Self::of_medium(path)).collect();
        }
        if directory.public_keys()?.iter().any(|key| key.name == text) {
            return directory.find(text).map(|file| vec![Self::of_key(file)]);
        }
        Err(Failure::new(Class::Invalid, format!("{text} names neither a key nor a release"))
            .because(anyhow::anyhow!(
                "there is no such file, and no key of that name in {}",
                directory.path().display()
            ))
            .hint(
                "A key: its id (16 hexadecimal digits), the file that ends in .pub, or a name of `iso-builder keys show`. \
                 A release: the SHA-256 of its release.json, or a medium.",
            )
            .into())
    }

    fn of_key(file: KeyFile) -> Self {
        Self::Key { id: file.id, name: Some(file.name) }
    }

    fn of_medium(path: &Path) -> Result<Self> {
        let medium = MediumReader::open(path)?;
        let release = medium.release()?;
        let name = Some(format!("{} {}", release.id, release.version));
        Ok(Self::Release { digest: medium.release_digest(), name })
    }

    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Key { id: one, .. }, Self::Key { id: other, .. }) => one == other,
            (Self::Release { digest: one, .. }, Self::Release { digest: other, .. }) => one == other,
            _ => false,
        }
    }

    fn is_in(&self, revoked: &Revocations) -> bool {
        match self {
            Self::Key { id, .. } => revoked.keys.contains(id),
            Self::Release { digest, .. } => revoked.releases.contains(digest),
        }
    }
}

/// `the key 0101010101010101 (releases)`, `the release sha256:… (nqrust 0.1.0)`.
impl fmt::Display for RevokedItem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self {
            Self::Key { id, name } => {
                write!(f, "the key {id}")?;
                name
            }
            Self::Release { digest, name } => {
                write!(f, "the release {}", digest.oci())?;
                name
            }
        };
        name.as_ref().map_or(Ok(()), |name| write!(f, " ({})", printable(name)))
    }
}

impl fmt::Display for RevocationReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { list, added, present, revoked } = self;
        let list = list.display();
        added.iter().try_for_each(|item| writeln!(f, "added: {item}"))?;
        present.iter().try_for_each(|item| writeln!(f, "is there already: {item}"))?;
        let (keys, releases) =
            (counted(revoked.keys.len(), "key"), counted(revoked.releases.len(), "release"));
        write!(
            f,
            "{list} revokes {keys} and {releases}. In the image definition, with the path as seen from there:\n  trust:\n    revoked: {{list: {list}}}\n\
             Then build a release, and sign it with a key that is not revoked. A node refuses what the list has once it runs that release."
        )
    }
}

#[cfg(test)]
mod tests {
    use base::failure::{class_of, render};
    use formats::minisign::SecretKey;
    use testing::release::release;

    use super::*;

    #[test]
    fn a_key_and_a_release_are_known_by_every_name_that_they_have() {
        let scratch = tempfile::tempdir().unwrap();
        let at = |name: &str| scratch.path().join(name).display().to_string();
        let directory = KeyDirectory::of_user(Some(scratch.path().join("keys")));
        let key = directory.make("releases", None, formats::minisign::KeyDerivation::MINISIGN).unwrap();
        fs::create_dir(at("medium")).unwrap();
        let manifest = release().to_bytes();
        fs::write(at("medium/release.json"), &manifest).unwrap();
        let digest = Digest::of(&manifest);
        let named = |text: &str| RevokedItem::named(text, &directory);
        for text in [key.id.to_string(), key.key.to_string(), "releases".into(), at("keys/releases.pub")] {
            let found = named(&text).unwrap();
            assert!(
                matches!(&found[..], [RevokedItem::Key { id, .. }] if *id == key.id),
                "{text}: {found:?}"
            );
        }
        for text in [digest.to_string(), digest.oci(), at("medium")] {
            let found = named(&text).unwrap();
            let [RevokedItem::Release { digest: found, .. }] = &found[..] else {
                panic!("{text}: {found:?}")
            };
            assert_eq!(*found, digest, "{text}");
        }
        assert_eq!(
            named(&at("medium")).unwrap()[0].to_string(),
            format!("the release {} (nqrust 0.1.0)", digest.oci())
        );
        let secret = SecretKey::of_seed([1; 8], [1; 32]).to_text("", None).unwrap();
        fs::write(at("garbage"), "\0\0").unwrap();
        fs::write(at("empty"), "").unwrap();
        fs::write(at("large"), vec![b'x'; 8192]).unwrap();
        fs::create_dir(at("nothing")).unwrap();
        let names = ["garbage", "empty", "large", "nothing", "absent.iso"].map(at);
        for text in
            names.iter().map(String::as_str).chain(["other", "0101", "", secret.lines().nth(1).unwrap()])
        {
            let error = named(text).unwrap_err();
            assert_eq!(class_of(&error), Class::Invalid, "{text}: {}", render(&error));
            assert!(!render(&error).contains(secret.lines().nth(1).unwrap()));
        }
        fs::write(at("secret"), &secret).unwrap();
        let text = render(&named(&at("secret")).unwrap_err());
        assert!(!text.contains(secret.lines().nth(1).unwrap()), "{text}");
    }
}
