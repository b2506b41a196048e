//! The envelope of a release's provenance, and the list of what refers to a release in a registry. Nothing that the fuzzer makes can be
//! believed: it has no key.
#![no_main]

use formats::dsse::Envelope;
use formats::minisign::SecretKey;
use formats::oci::referrers::{Referrer, referrers, with_referrer};
use libfuzzer_sys::fuzz_target;
use trust::{TrustStore, TrustedKey, UnsignedRelease, judge_provenance};

fuzz_target!(|bytes: &[u8]| {
    let key = SecretKey::of_seed([1; 8], [2; 32]).public_key();
    let key = TrustedKey { name: "fuzz".into(), key, development: false };
    let store = TrustStore::new(vec![key], 1, UnsignedRelease::Refuse).expect("one key");
    if let Ok(envelope) = Envelope::parse(bytes) {
        assert!(judge_provenance(&envelope, &store).is_err());
        assert_eq!(Envelope::parse(&envelope.to_line()).expect("what was written"), envelope);
    }
    for referrer in referrers(bytes).unwrap_or_default() {
        let list = with_referrer(Some(bytes), &referrer).expect("it was read before");
        let found: Vec<Referrer> = referrers(&list).expect("what was written");
        assert!(found.contains(&referrer));
    }
});
