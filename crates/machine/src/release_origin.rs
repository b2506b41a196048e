//! Who has signed the release that a node runs.

use serde::Serialize;

use super::installed_node::InstalledNode;
use super::node_release;
use super::unsigned_record::UnsignedRecord;
use super::{trust_memory, trust_store};
use model::rollback_index::RollbackIndex;
use trust::{ReleaseTrust, Signer, TrustMemory};

/// What is known of the origin of a node's releases, for people and programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ReleaseOrigin {
    /// A clause about the release that runs: who has signed it, or why that is not known.
    pub text: String,
    /// The trusted keys that have signed it.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub signers: Vec<Signer>,
    /// What a person has to know, each a clause; empty if trusted keys, none of them a development key, have signed every release
    /// of this node.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub warnings: Vec<String>,
    /// The first release of this node that was not signed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unsigned: Option<UnsignedRecord>,
    /// That of the release that runs.
    #[serde(skip_serializing_if = "RollbackIndex::is_zero")]
    pub rollback_index: RollbackIndex,
    /// What the node takes no more, whichever release it runs.
    #[serde(rename = "remembers", skip_serializing_if = "TrustMemory::is_empty")]
    pub memory: TrustMemory,
}

impl ReleaseOrigin {
    /// The origin of the release of `node`, by the keys that its system and its owner trust now.
    #[must_use]
    pub fn of(node: &InstalledNode) -> Self {
        let root = node.root();
        let (text, signers, warned) = match judged(node) {
            Ok(trust) => {
                let warned = trust.needs_warning();
                let text = trust.to_string();
                match trust {
                    ReleaseTrust::Signed(signers) => (text, signers, warned),
                    ReleaseTrust::Unsigned(_) => (text, Vec::new(), warned),
                }
            }
            Err(error) => (format!("not known: {error:#}"), Vec::new(), true),
        };
        let mut warnings: Vec<_> =
            warned.then(|| format!("the running release is {text}")).into_iter().collect();
        let unsigned = match UnsignedRecord::read(root) {
            Ok(unsigned) => unsigned,
            Err(error) => {
                warnings.push(format!("was installed or updated with an unsigned release; {error:#}"));
                None
            }
        };
        warnings.extend(unsigned.as_ref().map(UnsignedRecord::to_string));
        let rollback_index =
            node_release::read(root).map(|release| release.rollback_index).unwrap_or_default();
        // A file that cannot be read has been told above: the release is judged by it.
        let memory = trust_memory::read(root).unwrap_or_default();
        Self { text, signers, warnings, unsigned, rollback_index, memory }
    }

    /// What a status says of it: names of at most nine letters with their values.
    #[must_use]
    pub fn lines(&self) -> Vec<(&'static str, String)> {
        let Self { text, warnings, rollback_index, memory, .. } = self;
        let mut lines = vec![("release", text.clone())];
        lines.extend((!rollback_index.is_zero()).then(|| ("rollback", format!("index {rollback_index}"))));
        lines.extend((!memory.is_empty()).then(|| ("remembers", memory.to_string())));
        lines.extend(warnings.iter().map(|warning| ("warning", warning.clone())));
        lines
    }
}

fn judged(node: &InstalledNode) -> anyhow::Result<ReleaseTrust> {
    let release = node_release::read_manifest(node.root())?;
    // It runs: what counts here is what is said of it.
    let store = trust_store::of_node(node)?.allowing_unsigned(true);
    Ok(trust::judge(&release, release.bytes(), release.signatures(), &store)?)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use formats::minisign::SecretKey;
    use jiff::Timestamp;
    use trust::store::TRUST_STORE;
    use trust::{TrustStore, TrustedKey, UnsignedRelease, sign_release};

    use super::*;
    use crate::paths::{DOCUMENT, below};

    fn key() -> SecretKey {
        SecretKey::of_seed([1; 8], [2; 32])
    }

    fn signatures() -> String {
        let (release, key) = (testing::release::release(), key());
        let when = Timestamp::from_second(1_772_448_000).unwrap();
        let made: Result<_, ()> =
            sign_release(&release, &release.to_bytes(), when, &key.public_key(), |bytes| {
                Ok(key.sign_bytes(bytes))
            });
        made.unwrap().to_string()
    }

    /// A node whose OS image trusts the key, and runs a release with these signatures.
    fn node(development: bool, signatures: Option<&str>) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let put = |path: &Path, bytes: &[u8]| {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        };
        let trusted = TrustedKey { name: "Maker".into(), key: key().public_key(), development };
        let store = TrustStore::new(vec![trusted], 1, UnsignedRelease::Refuse).unwrap();
        put(&below(root.path(), TRUST_STORE), &store.to_bytes());
        put(&below(root.path(), DOCUMENT), b"os: {hostname: node-1}\n");
        put(&below(root.path(), node_release::RELEASE), &testing::release::release().to_bytes());
        if let Some(signatures) = signatures {
            put(&root.path().join("oem/release.json.minisig"), signatures.as_bytes());
        }
        root
    }

    fn origin(root: &Path) -> ReleaseOrigin {
        ReleaseOrigin::of(&InstalledNode::open(root).unwrap())
    }

    #[test]
    fn a_node_tells_who_has_signed_its_release() {
        let id = key().public_key().id();
        let signed = signatures();
        let torn = &signed[..signed.len() / 2];
        for (development, signatures, text, warns) in [
            (false, Some(&*signed), format!("signed by Maker (key {id}) on 2026-03-02"), false),
            (true, Some(&*signed), format!("signed by Maker (development key {id}) on 2026-03-02"), true),
            (false, None, "not signed".to_owned(), true),
            (false, Some(torn), "not known: release.json.minisig is damaged: ".to_owned(), true),
        ] {
            let root = node(development, signatures);
            let origin = origin(root.path());
            assert!(origin.text.starts_with(&text), "{} is not {text}", origin.text);
            assert_eq!(origin.warnings.len(), usize::from(warns), "{:?}", origin.warnings);
            assert_eq!(origin.signers.len(), usize::from(text.starts_with("signed")));
        }
    }

    #[test]
    fn a_node_that_once_had_an_unsigned_release_says_so_for_ever() {
        let root = node(false, Some(&signatures()));
        let release = testing::release::release().into();
        let trust = ReleaseTrust::Unsigned(trust::UnsignedReason::Missing);
        UnsignedRecord::of(&release, &trust).unwrap().keep(root.path()).unwrap();
        let [warning] = &origin(root.path()).warnings[..] else { panic!("one warning") };
        assert!(warning.starts_with("was installed or updated with an unsigned release on "), "{warning}");
        fs::write(root.path().join("oem/unsigned.json"), "{").unwrap();
        let [warning] = &origin(root.path()).warnings[..] else { panic!("one warning") };
        assert!(warning.starts_with("was installed or updated with an unsigned release; "), "{warning}");
    }

    #[test]
    fn a_status_says_what_the_node_takes_no_more() {
        let signed = signatures();
        let root = node(false, Some(&signed));
        let names = |origin: &ReleaseOrigin| origin.lines().iter().map(|(name, _)| *name).collect::<Vec<_>>();
        assert_eq!(names(&origin(root.path())), ["release"]);
        assert!(!base::encode::json_text(&origin(root.path())).contains("remembers"));
        let release =
            model::release::Release { rollback_index: RollbackIndex(2), ..testing::release::release() };
        fs::write(below(root.path(), node_release::RELEASE), release.to_bytes()).unwrap();
        let memory = TrustMemory { floor: RollbackIndex(1), ..TrustMemory::default() };
        trust_memory::add(root.path(), memory).unwrap();
        let lines = origin(root.path()).lines();
        assert!(lines.contains(&("rollback", "index 2".into())), "{lines:?}");
        assert!(lines.contains(&("remembers", "no release below the rollback index 1".into())), "{lines:?}");
        fs::write(root.path().join("oem").join(trust_memory::FILE), "{").unwrap();
        let origin = origin(root.path());
        assert!(origin.text.starts_with("not known: reading "), "{}", origin.text);
        assert_eq!(names(&origin), ["release", "rollback", "warning"]);
    }
}
