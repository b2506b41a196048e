use super::*;
use proptest::prelude::*;

/// What minisign 0.11 made of the file `MESSAGE` with a key without and one with a passphrase.
const MESSAGE: &[u8] = b"a release manifest\n";
const PUBLIC: &str = include_str!("golden/plain.pub");
const SECRET: &str = include_str!("golden/plain.key");
const PREHASHED_SIGNATURE: &str = include_str!("golden/prehashed.minisig");
const PLAIN_SIGNATURE: &str = include_str!("golden/plain.minisig");

/// Costs little, for tests.
const CHEAP: KeyDerivation = KeyDerivation { operations: 1 << 15, memory: 1 << 20 };

fn key() -> SecretKey {
    SecretKey::of_seed([7; 8], [3; 32])
}

#[test]
fn keys_and_signatures_of_minisign_are_read_and_verified() {
    let (public, secret) = (PublicKey::parse(PUBLIC).unwrap(), SecretKey::parse(SECRET, None).unwrap());
    assert_eq!(secret.public_key(), public);
    assert!(PUBLIC.contains(&public.id().to_string()) && PUBLIC.contains(&public.to_string()), "{public:?}");
    assert_eq!(PublicKey::parse(&public.to_string()).unwrap(), public);
    for text in [PREHASHED_SIGNATURE, PLAIN_SIGNATURE] {
        let [signature] = &parse_signatures(text.as_bytes()).unwrap()[..] else { panic!() };
        assert_eq!(signature.verify(&public, MESSAGE), Ok(()));
        assert_eq!(signature.verify(&public, b"another"), Err(SignatureError::File));
        assert_eq!(signature.verify(&key().public_key(), MESSAGE), Err(SignatureError::File));
        assert_eq!(signature.to_string(), text);
    }
}

#[test]
fn the_same_key_file_and_comment_give_the_signature_of_minisign() {
    let [theirs] = &parse_signatures(PREHASHED_SIGNATURE.as_bytes()).unwrap()[..] else { panic!() };
    let secret = SecretKey::parse(SECRET, None).unwrap();
    let ours = secret.sign(MESSAGE, "signature from minisign secret key", theirs.comment());
    assert_eq!(ours.to_string(), PREHASHED_SIGNATURE);
}

#[test]
fn a_changed_comment_is_told_from_a_changed_file() {
    let text = key().sign(MESSAGE, "a", "version:1.3.0").to_string();
    let changed = text.replace("version:1.3.0", "version:9.9.9");
    let [signature] = &parse_signatures(changed.as_bytes()).unwrap()[..] else { panic!() };
    assert_eq!(signature.verify(&key().public_key(), MESSAGE), Err(SignatureError::Comment));
}

#[test]
fn several_signatures_follow_each_other_and_one_that_is_cut_off_is_named() {
    let one = key().sign(MESSAGE, "one", "one").to_string();
    let two = SecretKey::of_seed([8; 8], [4; 32]).sign(MESSAGE, "two", "").to_string();
    let both = format!("{one}\n{two}\r\n\n\n");
    let read = parse_signatures(both.as_bytes()).unwrap();
    assert_eq!(read.iter().map(Signature::to_string).collect::<String>(), one.clone() + &two);
    let line = |number| one.lines().take(number).collect::<Vec<_>>().join("\n");
    for (text, error) in [
        (String::new(), ParseSignatureError::Empty),
        ("\n".repeat(8192), ParseSignatureError::Empty),
        (line(3), ParseSignatureError::CutOff(4)),
        (format!("{one}{}", line(1)), ParseSignatureError::CutOff(6)),
        (
            format!("x{one}"),
            ParseSignatureError::Line {
                line: 1,
                what: "an untrusted comment, with which a signature begins",
            },
        ),
        (
            one.replacen("RU", "RX", 1),
            ParseSignatureError::Line { line: 2, what: "a signature of Ed25519 in base64" },
        ),
    ] {
        assert_eq!(parse_signatures(text.as_bytes()).err(), Some(error), "{text}");
    }
    assert_eq!(parse_signatures(b"\xff\xfe").err(), Some(ParseSignatureError::Text));
}

#[test]
fn a_secret_key_is_read_with_its_passphrase_only() {
    let text = key().to_text("a key", Some((b"right", CHEAP))).unwrap();
    assert!(SecretKey::needs_passphrase(&text).unwrap() && !SecretKey::needs_passphrase(SECRET).unwrap());
    assert_eq!(SecretKey::parse(&text, Some(b"right")).unwrap().public_key(), key().public_key());
    assert_eq!(SecretKey::parse(&text, Some(b"wrong")).err(), Some(ParseSecretKeyError::Passphrase));
    assert_eq!(SecretKey::parse(&text, None).err(), Some(ParseSecretKeyError::NoPassphrase));
    assert_eq!(SecretKey::parse(PUBLIC, None).err(), Some(ParseSecretKeyError::Public));
    assert_eq!(PublicKey::parse(&text).err(), Some(ParsePublicKeyError::Secret));
    for garbage in ["", "untrusted comment: x", "RWQ=", &"A".repeat(212), &"A".repeat(100_000)] {
        assert_eq!(SecretKey::parse(garbage, None).err(), Some(ParseSecretKeyError::Layout));
        assert_eq!(PublicKey::parse(garbage).err(), Some(ParsePublicKeyError::Layout));
    }
    assert!(!format!("{:?}", key()).contains('3'), "the seed is not shown");
}

#[test]
fn a_file_that_wants_more_memory_than_those_of_minisign_is_refused() {
    for (operations, memory) in [(1 << 25, 1 << 40), (1 << 60, 1 << 20), (u64::MAX, u64::MAX)] {
        assert_eq!(KeyDerivation { operations, memory }.parameters().map(|_| ()), None);
    }
    let parameters = |derivation: KeyDerivation| {
        let parameters = derivation.parameters().unwrap();
        (parameters.log_n(), parameters.r(), parameters.p())
    };
    // Those that libsodium names: sensitive, and interactive.
    assert_eq!(parameters(KeyDerivation::MINISIGN), (20, 8, 1));
    assert_eq!(parameters(KeyDerivation { operations: 524_288, memory: 16_777_216 }), (14, 8, 1));
}

#[test]
fn the_id_of_a_key_is_sixteen_digits() {
    let id = key().public_key().id();
    assert_eq!(id.to_string(), "0707070707070707");
    assert_eq!("0707070707070707".parse::<KeyId>().unwrap(), id);
    for text in ["", "07", "+707070707070707", "070707070707070G", "00707070707070707"] {
        assert!(text.parse::<KeyId>().is_err(), "{text}");
    }
}

#[test]
fn a_comment_stays_one_line() {
    let signature = key().sign(MESSAGE, "a\nb", "c\r\nd\te");
    let text = signature.to_string();
    assert_eq!(text.lines().count(), 4);
    let [read] = &parse_signatures(text.as_bytes()).unwrap()[..] else { panic!() };
    assert_eq!((read.comment(), read.verify(&key().public_key(), MESSAGE)), ("c  d\te", Ok(())));
}

proptest! {
    #[test]
    fn no_changed_byte_is_accepted(at in 0_usize..200, with in 1_u8.., length in 0_usize..300) {
        let text = key().sign(MESSAGE, "", "timestamp:1").to_string().into_bytes();
        let mut changed = text.clone();
        let at = at % changed.len();
        changed[at] ^= with;
        changed.truncate(length.max(1));
        let signatures = parse_signatures(&changed).unwrap_or_default();
        let original = parse_signatures(&text).unwrap();
        for signature in signatures {
            let accepted = signature.verify(&key().public_key(), MESSAGE).is_ok();
            // The untrusted comment is not signed.
            let signed = |signature: &Signature| signature.to_string().lines().skip(1).collect::<Vec<_>>().join("\n");
            prop_assert!(!accepted || signed(&signature) == signed(&original[0]));
        }
    }

    #[test]
    fn bytes_of_any_kind_are_read_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..600)) {
        let _ = parse_signatures(&bytes);
        let text = String::from_utf8_lossy(&bytes);
        let _ = (PublicKey::parse(&text), SecretKey::parse(&text, Some(b"x")));
    }
}
