//! The keys that this system trusts: the trust store of its OS image, with what the owner adds to it and what a node remembers.

use std::path::Path;

use anyhow::Result;

use super::installed_node::InstalledNode;
use super::paths::{DOCUMENT, below};
use super::trust_memory;
use base::failure::{Class, Classify, Failure};
use base::files;
use model::config::Trust;
use trust::TrustStore;
use trust::store::TRUST_STORE;

/// The most bytes that a trust store may have.
const LENGTH_MAX: u64 = 1 << 20;

/// The trust store of the OS image at `root`. Images of older releases have none.
///
/// # Errors
/// [`Class::Verification`] if the file is not a trust store.
pub fn of_image(root: &Path) -> Result<TrustStore> {
    let file = below(root, TRUST_STORE);
    let what = || format!("reading the trust store {}", file.display());
    let Some(bytes) = files::read_if_present(&file, LENGTH_MAX).class(Class::Verification, what)? else {
        return Ok(TrustStore::absent());
    };
    TrustStore::parse(&bytes).map_err(|error| {
        Failure::new(Class::Verification, what())
            .because(error)
            .hint("The OS image is damaged or was changed. Install this system again from a checked medium.")
            .into()
    })
}

/// The trust store of the system at `root` whose owner has configured `owner`.
///
/// # Errors
/// Those of [`of_image`], and [`Class::Invalid`] if no release could have as many signatures as they demand together.
pub fn with_owner(root: &Path, owner: &Trust) -> Result<TrustStore> {
    of_image(root)?.with_owner(owner).map_err(|error| {
        Failure::new(Class::Invalid, "os.trust does not fit the trust store of the OS image")
            .because(error)
            .hint("Set os.trust.threshold to a number of keys that there are, or add keys to os.trust.keys.")
            .into()
    })
}

/// The trust store of a node: that of its OS image, with `os.trust` of its document, and with what the node remembers of the releases that
/// it has had.
///
/// # Errors
/// Those of [`with_owner`] and [`trust_memory::read`], and [`Class::Invalid`] if the document has a mistake in `os.trust`: a value that
/// is left out must not allow what its owner has refused.
pub fn of_node(node: &InstalledNode) -> Result<TrustStore> {
    if let Some(mistake) = &node.trust_mistake {
        return Err(Failure::new(
            Class::Invalid,
            "the node document does not say which releases are trusted",
        )
        .because(mistake.clone())
        .hint(format!("Correct {DOCUMENT}, then run: installer apply"))
        .into());
    }
    let store = with_owner(node.root(), &node.config.os.trust)?;
    Ok(store.remembering(trust_memory::read(node.root())?))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use base::failure::{class_of, render};
    use formats::minisign::SecretKey;
    use jiff::Timestamp;
    use trust::{Revocations, TrustError, TrustMemory, TrustedKey, UnsignedRelease, sign_release};

    use super::*;

    const KEY: &str = "RWS/9ctmCd5dymmCZ0bSE20lzB7fGTj6II2J+ZTwzcqbHpCwTX+uBnxY";

    fn image(store: &[u8]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let file = below(root.path(), TRUST_STORE);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, store).unwrap();
        root
    }

    fn store() -> String {
        format!(
            r#"{{"format": 1, "keys": [{{"name": "Maker", "key": "{KEY}"}}], "threshold": 1, "unsigned": "refuse"}}"#
        )
    }

    fn owner(text: &str) -> Trust {
        model::config::parse(&format!("os: {{trust: {text}}}"), "node.yaml").unwrap().os.trust
    }

    #[test]
    fn an_image_without_a_store_takes_releases_as_they_are() {
        let root = tempfile::tempdir().unwrap();
        assert_eq!(of_image(root.path()).unwrap(), TrustStore::absent());
        assert_eq!(with_owner(root.path(), &Trust::default()).unwrap(), TrustStore::absent());
    }

    #[test]
    fn the_owner_adds_to_the_store_of_the_image() {
        let root = image(store().as_bytes());
        let alone = of_image(root.path()).unwrap();
        assert_eq!((alone.keys()[0].name.as_str(), alone.unsigned()), ("Maker", UnsignedRelease::Refuse));
        let owned = format!("{{keys: [{{name: Owner, key: {KEY}}}], unsigned: allow}}");
        let both = with_owner(root.path(), &owner(&owned)).unwrap();
        assert_eq!((both.keys()[0].name.as_str(), both.unsigned()), ("Owner", UnsignedRelease::Allow));
        let error = with_owner(root.path(), &owner("{threshold: 2}")).unwrap_err();
        assert_eq!(class_of(&error), Class::Invalid);
        assert!(render(&error).contains("os.trust.threshold"), "{}", render(&error));
    }

    #[test]
    fn what_one_release_revoked_stays_revoked_under_the_release_before_it() {
        let key = SecretKey::of_seed([1; 8], [2; 32]);
        let trusted = TrustedKey { name: "Maker".into(), key: key.public_key(), development: false };
        let before = TrustStore::new(vec![trusted], 1, UnsignedRelease::Refuse).unwrap();
        let revoked = Revocations { keys: [key.public_key().id()].into(), ..Revocations::default() };
        let after = before.clone().revoking(revoked);
        let release = testing::release::release();
        let sign = |bytes: &[u8]| -> Result<_, ()> { Ok(key.sign_bytes(bytes)) };
        let signed =
            sign_release(&release, &release.to_bytes(), Timestamp::UNIX_EPOCH, &key.public_key(), sign)
                .unwrap()
                .to_string();
        let root = image(&before.to_bytes());
        fs::create_dir(root.path().join("oem")).unwrap();
        fs::write(below(root.path(), DOCUMENT), "os: {hostname: node-1}\n").unwrap();
        let judged = || {
            let store = of_node(&InstalledNode::open(root.path()).unwrap()).unwrap();
            trust::judge(&release, &release.to_bytes(), Some(signed.as_bytes()), &store)
        };
        assert!(judged().is_ok());
        fs::write(below(root.path(), TRUST_STORE), after.to_bytes()).unwrap();
        // A good boot of the later release.
        let revoked = of_image(root.path()).unwrap().revoked().clone();
        trust_memory::add(root.path(), TrustMemory { revoked, ..TrustMemory::default() }).unwrap();
        assert!(matches!(judged(), Err(TrustError::RevokedKeys(_))));
        fs::write(below(root.path(), TRUST_STORE), before.to_bytes()).unwrap();
        assert!(matches!(judged(), Err(TrustError::RevokedKeys(_))));
        fs::write(root.path().join("oem").join(trust_memory::FILE), "{").unwrap();
        let error = of_node(&InstalledNode::open(root.path()).unwrap()).unwrap_err();
        assert_eq!(class_of(&error), Class::Verification);
    }

    #[test]
    fn a_mistake_in_what_a_node_trusts_is_not_left_out() {
        for (text, message) in [
            ("os: {trust: {unsigned: refuze}}", "os.trust.unsigned"),
            ("os: {trust: {keys: [{name: Owner, key: nonsense}], replace: true}}", "os.trust.keys[0].key"),
            ("os: {trust: {replace: true}}", "os.trust.replace"),
        ] {
            let root = image(store().as_bytes());
            fs::create_dir(root.path().join("oem")).unwrap();
            fs::write(below(root.path(), DOCUMENT), text).unwrap();
            let node = InstalledNode::open(root.path()).unwrap();
            let error = of_node(&node).unwrap_err();
            assert_eq!(class_of(&error), Class::Invalid, "{text}");
            assert!(render(&error).contains(message), "{}", render(&error));
        }
    }

    #[test]
    fn a_store_that_cannot_be_read_is_named_and_does_not_count_as_none() {
        let whole = store();
        let huge = format!("{}{}", whole, " ".repeat(usize::try_from(LENGTH_MAX).unwrap()));
        for bytes in [&b""[..], b"\0\0", &whole.as_bytes()[..40], b"{\"format\": 2}", huge.as_bytes()] {
            let root = image(bytes);
            let error = of_image(root.path()).unwrap_err();
            assert_eq!(class_of(&error), Class::Verification);
            assert!(render(&error).contains("/usr/share/nqrust/trust.json"), "{}", render(&error));
        }
        let root = image(b"");
        let file = below(root.path(), TRUST_STORE);
        fs::remove_file(&file).unwrap();
        symlink("nowhere", &file).unwrap();
        assert_eq!(class_of(&of_image(root.path()).unwrap_err()), Class::Verification);
        fs::remove_file(&file).unwrap();
        fs::create_dir(&file).unwrap();
        assert_eq!(class_of(&of_image(root.path()).unwrap_err()), Class::Verification);
    }
}
