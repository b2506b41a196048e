//! The signatures of a release, the files of keys, a trust store, and what a node remembers. Nothing that the fuzzer makes can be accepted: it has no key.
#![no_main]

use formats::minisign::{PublicKey, SecretKey};
use libfuzzer_sys::fuzz_target;
use medium::signatures;
use model::release::Release;
use trust::{TrustMemory, TrustStore, TrustedKey, UnsignedRelease, judge};

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    let _ = PublicKey::parse(&text);
    // A passphrase would take seconds of each try.
    let _ = SecretKey::parse(&text, None);
    let _ = TrustStore::parse(bytes);
    let _ = TrustMemory::parse(bytes);
    let key = SecretKey::of_seed([1; 8], [2; 32]).public_key();
    let key = TrustedKey { name: "fuzz".into(), key, development: false };
    let store = TrustStore::new(vec![key], 1, UnsignedRelease::Refuse).expect("one key");
    let (manifest, file) = bytes.split_at(bytes.iter().position(|byte| *byte == 0).unwrap_or(0));
    if let Ok(release) = Release::parse(manifest) {
        assert!(judge(&release, manifest, Some(file), &store).is_err());
    }
    if let Ok(region) = signatures::padded(Some(file)) {
        assert_eq!(signatures::text(region), signatures::text(file.to_vec()));
    }
});
