use base::digest::Digest;
use formats::minisign::{KeyId, SecretKey, SignatureError};
use jiff::Timestamp;
use model::release::Release;
use model::rollback_index::RollbackIndex;
use proptest::prelude::*;

use super::*;

fn release() -> (Release, Vec<u8>) {
    let release = testing::release::release();
    let manifest = release.to_bytes();
    (release, manifest)
}

fn key(number: u8) -> SecretKey {
    SecretKey::of_seed([number; 8], [number; 32])
}

fn id(number: u8) -> KeyId {
    key(number).public_key().id()
}

fn trusted(number: u8) -> TrustedKey {
    TrustedKey { name: format!("builder {number}"), key: key(number).public_key(), development: number == 9 }
}

/// Of the keys with these numbers.
fn store(numbers: &[u8], threshold: usize) -> TrustStore {
    let keys = numbers.iter().copied().map(trusted).collect();
    TrustStore::new(keys, threshold, UnsignedRelease::Refuse).unwrap()
}

fn sign(number: u8, release: &Release, manifest: &[u8]) -> String {
    let (key, when) = (key(number), Timestamp::from_second(1_772_448_000).unwrap());
    let made: Result<_, ()> =
        sign_release(release, manifest, when, &key.public_key(), |bytes| Ok(key.sign_bytes(bytes)));
    made.unwrap().to_string()
}

/// The signatures of the keys with these numbers.
fn signed(numbers: &[u8]) -> String {
    let (release, manifest) = release();
    numbers.iter().map(|number| sign(*number, &release, &manifest)).collect()
}

fn judged(signatures: Option<&str>, store: &TrustStore) -> Result<ReleaseTrust, TrustError> {
    let (release, manifest) = release();
    judge(&release, &manifest, signatures.map(str::as_bytes), store)
}

#[test]
fn a_release_is_taken_if_enough_trusted_keys_have_signed_it() {
    for (by, store, expected) in [
        (&[1][..], store(&[1], 1), Some(&[1][..])),
        (&[1], store(&[1, 2], 1), Some(&[1])),
        (&[2, 1], store(&[1, 2], 2), Some(&[2, 1])),
        (&[3, 1], store(&[1, 2], 1), Some(&[1])),
        (&[1], store(&[1, 2], 2), None),
        (&[1, 1], store(&[1, 2], 2), None),
        (&[3], store(&[1, 2], 1), None),
        (&[], store(&[1], 1), None),
    ] {
        let text = signed(by);
        let result = judged((!by.is_empty()).then_some(text.as_str()), &store);
        let signers = match &result {
            Ok(ReleaseTrust::Signed(signers)) => {
                Some(signers.iter().map(|signer| signer.key).collect::<Vec<_>>())
            }
            _ => None,
        };
        assert_eq!(
            signers,
            expected.map(|numbers| numbers.iter().copied().map(id).collect()),
            "{by:?} {result:?}"
        );
        assert_eq!(result.is_err(), expected.is_none());
    }
}

#[test]
fn each_reason_for_a_refusal_has_its_words_and_the_next_step() {
    let (release, manifest) = release();
    let other = Release { version: "9.9.9".into(), ..release.clone() };
    let of_another = sign(1, &other, &other.to_bytes());
    let statement = sign(1, &other, &manifest);
    let changed = signed(&[1]).replace(&format!("version:{}", release.version), "version:8.8.8");
    for (signatures, threshold, words) in [
        (None, 1, "it is not signed"),
        (Some(signed(&[7])), 1, "it is signed with the key 0707070707070707, not trusted here"),
        (Some(signed(&[7, 8])), 1, "the keys 0707070707070707, 0808080808080808"),
        (
            Some(signed(&[1])),
            2,
            "1 of 2 trusted keys that are needed have signed it: builder 1 (key 0101010101010101) on 2026-03-02",
        ),
        (
            Some(of_another),
            1,
            "the signature of builder 1 (key 0101010101010101) does not belong to this manifest: it is a signature of another file",
        ),
        (Some(changed), 1, "its trusted comment was changed"),
        (Some(statement), 1, "is for version 9.9.9, which this manifest is not"),
        (Some("garbage".into()), 1, "release.json.minisig is damaged: line 2 is missing"),
        (Some(signed(&[1])[..200].to_owned()), 1, "the file is cut off"),
    ] {
        let error = judged(signatures.as_deref(), &store(&[1, 2], threshold)).unwrap_err();
        assert!(error.to_string().contains(words), "{error}\n{words}");
        let failure = error.failure("x.iso", "--allow-unsigned");
        assert_eq!(failure.class(), base::failure::Class::Verification);
        let text = base::failure::render(&failure.into());
        assert!(text.contains("x.iso") && text.contains("next:"), "{text}");
    }
}

#[test]
fn what_is_missing_can_be_allowed_and_what_is_wrong_can_not() {
    let (release, _) = release();
    let other = Release { version: "9.9.9".into(), ..release };
    let of_another = sign(1, &other, &other.to_bytes());
    let store = store(&[1, 2], 2).allowing_unsigned(true);
    for allowed in [None, Some(signed(&[7])), Some(signed(&[1]))] {
        let trust = judged(allowed.as_deref(), &store).unwrap();
        assert!(matches!(trust, ReleaseTrust::Unsigned(_)) && trust.needs_warning(), "{trust}");
    }
    for refused in [of_another, "garbage".into(), signed(&[1]).replace("version:", "version:1")] {
        assert!(judged(Some(&refused), &store).is_err(), "{refused}");
    }
    assert_eq!(judged(None, &TrustStore::absent()).unwrap().to_string(), "not signed");
}

#[test]
fn one_wrong_signature_does_no_harm_where_the_others_are_enough() {
    let (release, _) = release();
    let other = Release { version: "9.9.9".into(), ..release };
    let liar = sign(3, &other, &other.to_bytes());
    let two = liar.clone() + &signed(&[1, 2]);
    assert!(
        matches!(judged(Some(&two), &store(&[1, 2, 3], 2)), Ok(ReleaseTrust::Signed(signers)) if signers.len() == 2)
    );
    let one = liar + &signed(&[1]);
    let error = judged(Some(&one), &store(&[1, 2, 3], 2)).unwrap_err();
    assert!(
        matches!(error, TrustError::Signature { key, why: SignatureError::File, .. } if key == id(3)),
        "{error}"
    );
}

#[test]
fn what_is_revoked_is_refused_whatever_is_allowed_and_a_revoked_key_does_not_count() {
    let (_, manifest) = release();
    let revoking = |keys: &[u8], releases: &[Digest]| Revocations {
        keys: keys.iter().copied().map(id).collect(),
        releases: releases.iter().copied().collect(),
    };
    let lenient = || store(&[1, 2], 1).allowing_unsigned(true);
    let one = revoking(&[1], &[]);
    let error = judged(Some(&signed(&[1])), &lenient().revoking(one.clone())).unwrap_err();
    assert_eq!(error.to_string(), "it is signed with the key 0101010101010101, which is revoked");
    let trust = judged(Some(&signed(&[1, 2])), &lenient().revoking(one.clone())).unwrap();
    assert!(
        matches!(&trust, ReleaseTrust::Signed(signers) if signers.len() == 1 && signers[0].key == id(2)),
        "{trust}"
    );
    // A key that nobody trusts any more is revoked all the same.
    let error = judged(Some(&signed(&[7])), &lenient().revoking(revoking(&[7], &[]))).unwrap_err();
    assert!(matches!(error, TrustError::RevokedKeys(_)), "{error}");
    let taken_back = lenient().revoking(revoking(&[], &[Digest::of(&manifest)]));
    for signatures in [Some(signed(&[1])), None] {
        assert_eq!(judged(signatures.as_deref(), &taken_back).unwrap_err(), TrustError::RevokedRelease);
    }
    let written = store(&[1, 2], 1).revoking(one);
    assert_eq!(TrustStore::parse(&written.to_bytes()).unwrap(), written);
    assert!(!String::from_utf8(store(&[1], 1).to_bytes()).unwrap().contains("revoked"));
}

fn remembering(floor: u32, revoked: Revocations) -> TrustMemory {
    TrustMemory { floor: RollbackIndex(floor), revoked }
}

#[test]
fn a_release_below_the_floor_is_refused_whatever_is_allowed() {
    let indexed = |index| Release { rollback_index: RollbackIndex(index), ..release().0 };
    let store = || store(&[1], 1).allowing_unsigned(true).remembering(remembering(3, Revocations::default()));
    for index in 0..6 {
        let release = indexed(index);
        let manifest = release.to_bytes();
        let signatures = sign(1, &release, &manifest);
        for signatures in [Some(signatures.as_bytes()), None] {
            let judged = judge(&release, &manifest, signatures, &store());
            assert_eq!(judged.is_ok(), index >= 3, "{index}: {judged:?}");
        }
    }
    let (release, manifest) = (indexed(1), indexed(1).to_bytes());
    let error = judge(&release, &manifest, None, &store()).unwrap_err();
    let text = base::failure::render(&error.failure("https://example.com", "--allow-unsigned").into());
    assert!(text.contains("its rollback index is 1, and the floor of the node is 3"), "{text}");
    assert!(text.contains("Take a release with the rollback index 3 or a higher one."), "{text}");
    // The floor is of the system, and no document of keys has it.
    assert_eq!(TrustStore::parse(&store().to_bytes()).unwrap().floor(), RollbackIndex(0));
    let owned = store().with_owner(&owner("{unsigned: allow}")).unwrap();
    assert_eq!(owned.floor(), RollbackIndex(3));
}

#[test]
fn a_signature_that_says_another_rollback_index_is_refused_and_one_that_says_none_is_not() {
    let (release, manifest) = release();
    let lifted = Release { rollback_index: RollbackIndex(7), ..release.clone() };
    let error = judged(Some(&sign(1, &lifted, &manifest)), &store(&[1], 1)).unwrap_err();
    assert!(
        error.to_string().contains("is for a rollback index of 7, which this manifest is not"),
        "{error}"
    );
    // As signatures were before there was an index, and as minisign makes them.
    let key = key(1);
    let sign_bytes = |bytes: &[u8]| -> Result<_, ()> { Ok(key.sign_bytes(bytes)) };
    for comment in [format!("product:{}\tversion:{}", release.id, release.version), "by hand".into()] {
        let made =
            formats::minisign::Signature::make(&key.public_key(), &manifest, "x", &comment, sign_bytes);
        let trust = judged(Some(&made.unwrap().to_string()), &store(&[1], 1)).unwrap();
        assert!(matches!(trust, ReleaseTrust::Signed(_)), "{trust}");
    }
}

#[test]
fn what_a_system_remembers_is_revoked_beside_what_its_release_revokes() {
    let revoking = |number| Revocations { keys: [id(number)].into(), ..Revocations::default() };
    let store = store(&[1, 2, 3], 1).revoking(revoking(1)).remembering(remembering(0, revoking(2)));
    for number in [1, 2] {
        let error = judged(Some(&signed(&[number])), &store).unwrap_err();
        assert!(matches!(&error, TrustError::RevokedKeys(keys) if keys[..] == [id(number)]), "{error}");
    }
    assert!(judged(Some(&signed(&[3])), &store).is_ok());
}

#[test]
fn a_memory_is_read_as_it_was_written_and_nothing_else_is_one() {
    let releases = [Digest::of(b"a"), Digest::of(b"b")].into();
    let memory = remembering(2, Revocations { keys: [id(1)].into(), releases });
    assert_eq!(TrustMemory::parse(&memory.to_bytes()).unwrap(), memory);
    assert_eq!(
        memory.to_string(),
        "no release below the rollback index 2; 1 revoked key, 2 revoked releases"
    );
    let whole = String::from_utf8(memory.to_bytes()).unwrap();
    for text in [
        "",
        "{}",
        "null",
        "[]",
        "\0\0\0\0",
        r#"{"floor": 3}"#,
        r#"{"revoked": {}}"#,
        r#"{"floor": -1, "revoked": {}}"#,
        r#"{"floor": 1, "revoked": {}, "more": 1}"#,
        r#"{"floor": 1, "revoked": {"keys": ["x"]}}"#,
        &whole[..whole.len() / 2],
    ] {
        assert!(TrustMemory::parse(text.as_bytes()).is_err(), "{text}");
    }
    assert!(TrustMemory::parse(br#"{"floor": 0, "revoked": {}}"#).unwrap().is_empty());
}

proptest! {
    /// It only grows, whatever it is joined with, and in whatever order.
    #[test]
    fn a_memory_only_grows(
        one in (any::<u32>(), prop::collection::btree_set(0_u8..8, 0..4)),
        other in (any::<u32>(), prop::collection::btree_set(0_u8..8, 0..4)),
    ) {
        let memory = |(floor, keys): &(u32, std::collections::BTreeSet<u8>)| {
            let keys = keys.iter().copied().map(id).collect();
            remembering(*floor, Revocations { keys, ..Revocations::default() })
        };
        let (one, other) = (memory(&one), memory(&other));
        let joined = one.clone().joined(other.clone());
        for part in [&one, &other] {
            prop_assert!(joined.floor >= part.floor && joined.revoked.keys.is_superset(&part.revoked.keys));
        }
        prop_assert_eq!(&joined, &other.joined(one));
        prop_assert_eq!(&joined, &joined.clone().joined(joined.clone()));
    }
}

#[test]
fn a_development_key_is_called_one() {
    let trust = judged(Some(&signed(&[9])), &store(&[9], 1)).unwrap();
    assert!(trust.needs_warning());
    assert_eq!(trust.to_string(), "signed by builder 9 (development key 0909090909090909) on 2026-03-02");
    assert!(!judged(Some(&signed(&[1])), &store(&[1], 1)).unwrap().needs_warning());
}

#[test]
fn a_trust_store_is_read_as_it_was_written_and_no_other() {
    let store = store(&[1, 9], 2);
    let text = String::from_utf8(store.to_bytes()).unwrap();
    assert_eq!(TrustStore::parse(text.as_bytes()).unwrap(), store);
    let key = key(1).public_key();
    for (document, words) in [
        (text.replace("\"format\": 1", "\"format\": 2"), "it has the format 2"),
        (
            text.replace("\"threshold\": 2", "\"threshold\": 3"),
            "3 signatures are demanded, and there are 2 keys",
        ),
        (text.replace("\"threshold\": 2", "\"threshold\": 0"), "0 signatures"),
        (text.replace("\"unsigned\"", "\"unsinged\""), "unknown field"),
        (text.replace("refuse", "alow"), "unknown variant"),
        (
            text.replace(&trusted(9).key.to_string(), &key.to_string()),
            "the key 0101010101010101 is in it twice",
        ),
        (text.replace(&key.to_string(), "RWx"), "not a public key"),
        ("[]".into(), "not a trust store"),
        (String::new(), "not a trust store"),
    ] {
        let error = TrustStore::parse(document.as_bytes()).unwrap_err().to_string();
        assert!(error.contains(words), "{error}\n{words}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    #[test]
    fn no_changed_manifest_and_no_changed_signature_is_accepted(
        in_manifest: bool, at in any::<prop::sample::Index>(), with in 1_u8.., cut in any::<Option<prop::sample::Index>>(),
    ) {
        let (release, mut manifest) = release();
        let original = sign(1, &release, &manifest);
        let mut signatures = original.clone().into_bytes();
        let bytes = if in_manifest { &mut manifest } else { &mut signatures };
        let at = at.index(bytes.len());
        bytes[at] ^= with;
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let accepted = judge(&release, &manifest, Some(&signatures), &store(&[1], 1));
        // Nobody signs the first line, nor the ends of lines, nor empty lines.
        let signed = |text: &str| {
            let lines = text.lines().map(|line| line.trim_end().to_owned()).filter(|line| !line.is_empty());
            lines.skip(1).collect::<Vec<_>>()
        };
        let same = !in_manifest && std::str::from_utf8(&signatures).is_ok_and(|text| signed(text) == signed(&original));
        prop_assert!(accepted.is_err() || same, "{accepted:?}");
    }
}

/// `os.trust` of a configuration.
fn owner(text: &str) -> model::config::Trust {
    model::config::parse(&format!("os: {{trust: {text}}}"), "node.yaml").unwrap().os.trust
}

fn own_key(number: u8) -> String {
    format!("{{name: owner {number}, key: '{}'}}", key(number).public_key())
}

#[test]
fn the_keys_of_an_owner_stand_beside_those_of_the_image_or_in_their_place() {
    let image = || store(&[1, 9], 1);
    let (first, ninth) = (own_key(2), own_key(9));
    for (text, names, threshold, unsigned) in [
        ("{}".to_owned(), &["builder 1", "builder 9"][..], 1, UnsignedRelease::Refuse),
        (format!("{{keys: [{first}]}}"), &["builder 1", "builder 9", "owner 2"], 1, UnsignedRelease::Refuse),
        (
            format!("{{keys: [{first}], threshold: 3}}"),
            &["builder 1", "builder 9", "owner 2"],
            3,
            UnsignedRelease::Refuse,
        ),
        (format!("{{keys: [{first}], replace: true}}"), &["owner 2"], 1, UnsignedRelease::Refuse),
        (format!("{{keys: [{ninth}]}}"), &["builder 1", "owner 9"], 1, UnsignedRelease::Refuse),
        ("{unsigned: allow}".to_owned(), &["builder 1", "builder 9"], 1, UnsignedRelease::Allow),
        ("{replace: true, unsigned: allow}".to_owned(), &[], 1, UnsignedRelease::Allow),
    ] {
        let made = image().with_owner(&owner(&text)).unwrap();
        let found: Vec<_> = made.keys().iter().map(|key| key.name.as_str()).collect();
        assert_eq!((&found[..], made.threshold(), made.unsigned()), (names, threshold, unsigned), "{text}");
        assert!(made.keys().iter().all(|key| key.development == key.name.ends_with('9')), "{text}");
    }
    let allowing = TrustStore::absent().with_owner(&owner("{unsigned: refuse}")).unwrap();
    assert_eq!(allowing.unsigned(), UnsignedRelease::Refuse);
}

#[test]
fn an_owner_cannot_demand_more_signatures_than_there_are_keys() {
    for text in ["{threshold: 3}".to_owned(), format!("{{keys: [{}], threshold: 4}}", own_key(2))] {
        let error = store(&[1, 9], 1).with_owner(&owner(&text)).unwrap_err();
        assert!(matches!(error, ParseTrustStoreError::Threshold { .. }), "{text}: {error}");
    }
    // Two keys of the image have to sign, and one key takes their place.
    let error = store(&[1, 9], 2).with_owner(&owner(&format!("{{keys: [{}], replace: true}}", own_key(2))));
    assert!(error.is_err());
}
