//! What an install records on the node: when it was made, from which medium and with which configuration.
//!
//! The record is a file on the configuration partition that only root can read. The configuration, and the customization of the
//! medium, hold secrets; the record holds only hashes of them, which cost as much to try as that of a password, with a salt of
//! its own.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use uuid::Uuid;

use base::digest::Digest;
use model::config::{InstallConfig, OnceWord, Secret, password};
use model::release_manifest::ReleaseManifest;

/// Its name on the configuration partition.
pub const FILE: &str = "installed.json";

/// The version of the format.
const VERSION: u32 = 1;

const WORDS_MAX: usize = 32;

/// Keys that say how an install begins, or where it gets things from, and nothing of the node that it makes.
const KEYS_LEFT_OUT: [&str; 6] =
    ["automatic", "reinstall", "config_url", "config_sha256", "medium", "iso_url"];

/// The install that is about to begin, to be compared with a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InstallOffer {
    pub product: String,
    pub version: String,
    /// SHA-256 of the release manifest.
    pub release: Digest,
    pub customization: Option<Digest>,
    pub configuration: Digest,
    pub sources: Vec<String>,
}

impl InstallOffer {
    /// The offer of a medium with this manifest and this customization.
    pub fn of(
        release: &ReleaseManifest,
        customization: Option<Digest>,
        config: &InstallConfig,
        sources: Vec<String>,
    ) -> Result<Self> {
        Ok(Self {
            product: release.name.clone(),
            version: release.version.clone(),
            release: release.digest(),
            customization,
            configuration: canonical(config)?,
            sources,
        })
    }
}

/// The digest of a configuration, independent of the order in which it was written.
fn canonical(config: &InstallConfig) -> Result<Digest> {
    let mut value = serde_json::to_value(config)?;
    if let Some(install) = value.get_mut("install").and_then(Value::as_object_mut) {
        KEYS_LEFT_OUT.iter().for_each(|key| drop(install.remove(*key)));
    }
    Ok(Digest::of(&serde_json::to_vec(&SortedJson::from(value))?))
}

/// JSON with its keys in order, whatever features of serde_json the rest of the program uses.
#[derive(Serialize)]
#[serde(untagged)]
enum SortedJson {
    Map(BTreeMap<String, SortedJson>),
    List(Vec<SortedJson>),
    Single(Value),
}

impl From<Value> for SortedJson {
    fn from(value: Value) -> Self {
        match value {
            Value::Object(map) => {
                Self::Map(map.into_iter().map(|(key, value)| (key, value.into())).collect())
            }
            Value::Array(items) => Self::List(items.into_iter().map(Into::into).collect()),
            single => Self::Single(single),
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstallRecord {
    version: u32,
    /// When the install began (RFC 3339).
    installed: String,
    pub medium: RecordedMedium,
    /// A hash of the configuration.
    configuration: String,
    pub sources: Vec<String>,
    /// The words of `install.reinstall: once:WORD` whose install was made.
    pub words: Vec<OnceWord>,
    salt: Uuid,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordedMedium {
    pub product: String,
    pub version: String,
    pub release: Digest,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    customization: Option<String>,
}

impl InstallRecord {
    /// The record of an install that begins now. `words` are those of the nodes that it overwrites, and its own.
    pub fn begin(offer: &InstallOffer, words: &[OnceWord]) -> Result<Self> {
        let salt = Uuid::new_v4();
        let mut kept: Vec<OnceWord> = Vec::new();
        for word in words {
            kept.retain(|known| known != word);
            kept.push(word.clone());
        }
        kept.drain(..kept.len().saturating_sub(WORDS_MAX));
        Ok(Self {
            version: VERSION,
            installed: format!("{:.0}", Timestamp::now()),
            medium: RecordedMedium {
                product: offer.product.clone(),
                version: offer.version.clone(),
                release: offer.release,
                customization: offer.customization.map(|digest| hash(digest, salt)).transpose()?,
            },
            configuration: hash(offer.configuration, salt)?,
            sources: offer.sources.clone(),
            words: kept,
            salt,
        })
    }

    /// Reads a record. Refuses another version, and text that could not be shown to people.
    ///
    /// # Errors
    /// It is damaged, or of another version.
    pub fn parse(text: &str) -> Result<Self> {
        let record: Self = serde_json::from_str(text)?;
        ensure!(record.version == VERSION, "it has the version {}, and this is {VERSION}", record.version);
        {
            let shown = [&record.installed, &record.medium.product, &record.medium.version];
            let mut shown = shown.into_iter().chain(&record.sources);
            let upsets = shown.any(|text| text.chars().any(char::is_control));
            ensure!(!upsets, "it holds control characters");
        }
        record.installed.parse::<Timestamp>()?;
        Ok(record)
    }

    pub fn to_json(&self) -> Result<Secret> {
        Ok(Secret::new(serde_json::to_string_pretty(self)? + "\n"))
    }

    #[must_use]
    pub fn installed(&self) -> &str {
        &self.installed
    }

    /// Whether the medium had been customized.
    #[must_use]
    pub fn is_customized(&self) -> bool {
        self.medium.customization.is_some()
    }

    /// A short name of the configuration, to distinguish it from others of the same node.
    #[must_use]
    pub fn configuration(&self) -> &str {
        let hash = &self.configuration;
        hash.get(hash.len().saturating_sub(8)..).unwrap_or(hash)
    }

    /// Whether this is of an install from the same medium with the same configuration.
    ///
    /// # Errors
    /// No hash could be made.
    pub fn is_of(&self, offer: &InstallOffer) -> Result<bool> {
        let customization = offer.customization.map(|digest| hash(digest, self.salt)).transpose()?;
        Ok(self.medium.release == offer.release
            && self.medium.customization == customization
            && self.configuration == hash(offer.configuration, self.salt)?)
    }
}

fn hash(digest: Digest, salt: Uuid) -> Result<String> {
    Ok(password::hash_with_salt(&digest.to_string(), salt.as_bytes())?.expose().to_owned())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use model::config::parse;
    use testing::release::release;

    pub(crate) fn offer(document: &str) -> InstallOffer {
        let sources = vec!["embedded configuration (config/install.yaml)".into()];
        InstallOffer::of(&release().into(), None, &parse(document, "f").unwrap(), sources).unwrap()
    }

    const DOCUMENT: &str =
        "{token: MARK-token-of-the-cluster, os: {hostname: node-1, password: MARK-password}}";

    #[test]
    fn a_record_knows_its_own_install_and_no_other() {
        let offer = offer(DOCUMENT);
        let record = InstallRecord::begin(&offer, &[]).unwrap();
        let record = InstallRecord::parse(record.to_json().unwrap().expose()).unwrap();
        assert!(record.is_of(&offer).unwrap());
        let others = [
            InstallOffer { configuration: Digest::of(b"another"), ..offer.clone() },
            InstallOffer { release: Digest::of(b"another"), ..offer.clone() },
            InstallOffer { customization: Some(Digest::of(b"something")), ..offer.clone() },
        ];
        assert!(others.iter().all(|other| !record.is_of(other).unwrap()));
    }

    #[test]
    fn the_record_helps_nobody_to_guess_a_secret() {
        let offer = offer(DOCUMENT);
        let [one, two] = [(), ()].map(|()| InstallRecord::begin(&offer, &[]).unwrap());
        let text = one.to_json().unwrap();
        let text = text.expose();
        // Neither anything that could be compared with a guess at no cost, nor with the record of another node.
        assert!(!text.contains("MARK") && !text.contains(&offer.configuration.to_string()), "{text}");
        assert!(text.contains("\"$y$j9T$") && one.configuration != two.configuration, "{text}");
    }

    #[test]
    fn how_an_install_begins_is_no_other_configuration_and_a_secret_is() {
        let same = [
            "{install: {mode: install, reinstall: 'once:a', automatic: true, device: /dev/sda}, os: {hostname: node-1, password: one}}",
            "{os: {hostname: node-1, password: one}, install: {mode: install, device: /dev/sda, iso_url: local, \
             config_url: 'http://192.0.2.1/v1/config/0123'}}",
        ];
        assert_eq!(offer(same[0]).configuration, offer(same[1]).configuration);
        for (from, to) in
            [("node-1", "node-2"), ("password: one", "password: other"), ("/dev/sda", "/dev/sdb")]
        {
            assert_ne!(offer(same[0]).configuration, offer(&same[0].replace(from, to)).configuration, "{to}");
        }
    }

    #[test]
    fn words_are_kept_once_each_and_the_oldest_go() {
        let words: Vec<OnceWord> = (0..40).map(|n| format!("w{}", n % 35).parse().unwrap()).collect();
        let kept = InstallRecord::begin(&offer("{}"), &words).unwrap().words;
        assert_eq!(kept.len(), WORDS_MAX);
        assert_eq!(kept.last().unwrap().as_str(), "w4");
        assert!(!kept.contains(&words[5]));
    }

    #[test]
    fn a_record_that_is_damaged_or_would_upset_a_terminal_is_refused() {
        let record = InstallRecord::begin(&offer("{}"), &[]).unwrap();
        let text = record.to_json().unwrap().expose().to_owned();
        let sources = "config/install.yaml";
        for broken in [
            text.replace(sources, "\\u001b[2J"),
            text.replace("\"version\": 1,", "\"version\": 2,"),
            text[..text.len() / 2].to_owned(),
            text.replace(&record.installed, "yesterday"),
        ] {
            assert!(InstallRecord::parse(&broken).is_err(), "{broken}");
        }
    }
}
