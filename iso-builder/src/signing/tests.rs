use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

use base::failure::{Class, class_of, render};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use formats::dsse::Envelope;
use formats::minisign::{KeyDerivation, parse_signatures};
use jiff::Timestamp;
use model::config::{OwnerKey, ReleaseKey};
use testing::release::release;
use trust::{ReleaseTrust, Revocations, TrustStore, UnsignedRelease, judge};

use super::key_directory::DEVELOPMENT;
use super::spec::{RevokedSpec, TrustSpec};
use super::*;

/// Costs little, for tests.
const CHEAP: KeyDerivation = KeyDerivation { operations: 1 << 15, memory: 1 << 20 };

fn directory() -> (tempfile::TempDir, KeyDirectory) {
    let scratch = tempfile::tempdir().unwrap();
    let directory = KeyDirectory::of_user(Some(scratch.path().join("data/keys")));
    (scratch, directory)
}

fn options(key: &str, directory: &KeyDirectory) -> SignerOptions {
    SignerOptions {
        key: key.into(),
        command: None,
        passphrase: PassphraseSource::default(),
        directory: directory.clone(),
    }
}

fn signature(signer: &ReleaseSigner) -> String {
    let release = release();
    signer.sign(&release, &release.to_bytes(), Timestamp::from_second(1_772_448_000).unwrap()).unwrap()
}

fn mode(path: &std::path::Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

#[test]
fn a_new_key_is_readable_by_its_owner_alone_and_replaces_none() {
    let (_scratch, directory) = directory();
    let key = directory.make("releases", Some("a passphrase"), CHEAP).unwrap();
    assert_eq!(
        (mode(directory.path()), mode(&key.secret_file), mode(&key.public_file)),
        (0o700, 0o600, 0o644)
    );
    let before = fs::read(&key.secret_file).unwrap();
    let error = directory.make("releases", None, CHEAP).unwrap_err();
    assert_eq!(class_of(&error), Class::Invalid);
    assert!(render(&error).contains("there is a key releases already"), "{error:?}");
    assert_eq!(fs::read(&key.secret_file).unwrap(), before);
    for name in ["", "../x", "a/b", ".x", "-x", "a b"] {
        assert_eq!(class_of(&directory.make(name, None, CHEAP).unwrap_err()), Class::Invalid, "{name}");
    }
    let [shown] = &directory.public_keys().unwrap()[..] else { panic!() };
    assert_eq!((shown.name.as_str(), shown.id, shown.development), ("releases", key.id, false));
}

#[test]
fn a_key_signs_with_its_passphrase_only() {
    let (scratch, directory) = directory();
    directory.make("releases", Some("right"), CHEAP).unwrap();
    let file = scratch.path().join("passphrase");
    for (passphrase, opens) in [("right\nanother line\n", true), ("wrong\n", false), ("", false)] {
        fs::write(&file, passphrase).unwrap();
        let source = PassphraseSource { file: Some(file.clone()) };
        let opened =
            ReleaseSigner::open(&SignerOptions { passphrase: source, ..options("releases", &directory) });
        assert_eq!(opened.is_ok(), opens, "{passphrase:?}");
        if let Err(error) = opened {
            let text = render(&error);
            assert!(text.contains("the passphrase is wrong") && !text.contains("right"), "{text}");
            assert_eq!(class_of(&error), Class::Invalid);
        }
    }
}

#[test]
fn the_development_key_is_made_at_its_first_use_and_says_so() {
    let (_scratch, directory) = directory();
    let first = ReleaseSigner::open(&options(DEVELOPMENT, &directory)).unwrap();
    let second = ReleaseSigner::open(&options(DEVELOPMENT, &directory)).unwrap();
    assert!(first.key().development && first.key() == second.key());
    assert_eq!(signature(&first), signature(&second), "the same bytes each time");
    let known = known_keys(&directory, &[], false).unwrap();
    let (release, text) = (release(), signature(&first));
    let trust = judge(&release, &release.to_bytes(), Some(text.as_bytes()), &known).unwrap();
    assert!(matches!(&trust, ReleaseTrust::Signed(signers) if signers[0].development), "{trust}");
}

#[test]
fn a_customization_is_signed_and_its_signature_is_told_by_the_keys_that_are_known() {
    use medium::customization::{Content, area};
    let (_scratch, directory) = directory();
    let id = directory.make("site", None, CHEAP).unwrap().id;
    let signer = ReleaseSigner::open(&options("site", &directory)).unwrap();
    let mut content = Content { arguments: vec!["quiet".parse().unwrap()], ..Content::default() };
    let known = known_keys(&directory, &[], true).unwrap();
    let told = |content: &Content, known: &TrustStore| SignatureSummary::of_customization(content, known);
    assert_eq!(told(&content, &known).text, "added by its holder, not signed");
    let bytes = content.signed_bytes().unwrap();
    content.signatures = vec![signer.sign_customization(&bytes, Timestamp::UNIX_EPOCH).unwrap()];
    let read = area::read(&*area::bytes(&content).unwrap()).unwrap().unwrap();
    let summary = told(&read, &known);
    assert!(
        summary.trusted && summary.text.starts_with(&format!("signed by site (key {id})")),
        "{summary:?}"
    );
    let stranger = told(&read, &TrustStore::absent());
    assert!(!stranger.trusted && stranger.text.contains("not trusted here"), "{stranger:?}");
    let changed = Content { arguments: vec!["debug".parse().unwrap()], ..read };
    let summary = told(&changed, &known);
    assert!(!summary.trusted && summary.text.contains("does not belong to it"), "{summary:?}");
}

#[test]
fn a_key_that_is_not_there_is_named_with_the_next_step() {
    let (scratch, directory) = directory();
    for (key, words) in [
        ("releases", "there is no key releases"),
        ("./releases.key", "there is no key ./releases.key"),
        ("env:NQRUST_TEST_NO_SUCH_KEY", "NQRUST_TEST_NO_SUCH_KEY has no key"),
    ] {
        let error = ReleaseSigner::open(&options(key, &directory)).unwrap_err();
        let text = render(&error);
        assert!(text.contains(words) && text.contains("next:"), "{text}");
        assert_eq!(class_of(&error), Class::Invalid);
    }
    let made = directory.make("one", None, CHEAP).unwrap();
    let public = made.public_file.to_str().unwrap();
    let text = render(&ReleaseSigner::open(&options(public, &directory)).unwrap_err());
    assert!(text.contains("it is a public key"), "{text}");
    let garbage = scratch.path().join("garbage");
    fs::write(&garbage, [0xff, 0, 1]).unwrap();
    assert!(ReleaseSigner::open(&options(garbage.to_str().unwrap(), &directory)).is_err());
}

#[test]
fn a_command_signs_and_one_that_makes_no_signature_is_refused() {
    let (scratch, directory) = directory();
    let made = directory.make("device", None, CHEAP).unwrap();
    let by = |command: String| {
        let key = made.public_file.display().to_string();
        ReleaseSigner::open(&SignerOptions { command: Some(command), ..options(&key, &directory) }).unwrap()
    };
    // What openssl makes of the seed in the secret key, as a device would.
    let text = fs::read_to_string(&made.secret_file).unwrap();
    let file = STANDARD.decode(text.lines().nth(1).unwrap()).unwrap();
    let seed = &file[62..94];
    let der = [&[0x30, 0x2e, 2, 1, 0, 0x30, 5, 6, 3, 0x2b, 0x65, 0x70, 4, 0x22, 4, 0x20][..], seed].concat();
    let key = scratch.path().join("seed.der");
    fs::write(&key, der).unwrap();
    let input = scratch.path().join("input");
    let command = format!(
        "cat >{input} && openssl pkeyutl -sign -rawin -keyform DER -inkey {key} -in {input}",
        input = input.display(),
        key = key.display()
    );
    let own = ReleaseSigner::open(&options("device", &directory)).unwrap();
    assert_eq!(signature(&by(command.clone())), signature(&own));
    let enveloped = |signer: &ReleaseSigner| {
        let mut envelope = Envelope::new("application/vnd.in-toto+json", vec![b'x'; 1 << 20]);
        signer.sign_envelope(&mut envelope).map(|()| envelope)
    };
    assert_eq!(enveloped(&by(command)).unwrap(), enveloped(&own).unwrap());
    assert_eq!(parse_signatures(signature(&own).as_bytes()).unwrap().len(), 1);
    let release = release();
    for (command, words) in [
        ("head -c 64 /dev/zero", "no signature of the key"),
        ("cat", "64"),
        ("exit 3", "exit status: 3"),
        ("yes", "printed more than"),
    ] {
        let error =
            by(command.into()).sign(&release, &release.to_bytes(), Timestamp::UNIX_EPOCH).unwrap_err();
        assert!(render(&error).contains(words), "{}", render(&error));
        let error = render(&enveloped(&by(command.into())).unwrap_err());
        assert!(error.contains(words) || words == "64", "{error}");
    }
}

#[test]
fn the_store_of_an_image_trusts_what_its_build_is_signed_with() {
    let (_scratch, directory) = directory();
    let signer = |name: &str| {
        directory.make(name, None, CHEAP).unwrap();
        ReleaseSigner::open(&options(name, &directory)).unwrap()
    };
    let (one, other) = (signer("one"), signer("other"));
    let spec = |keys: &[&ReleaseSigner], unsigned| TrustSpec {
        keys: keys
            .iter()
            .map(|signer| OwnerKey { name: "named".parse().unwrap(), key: ReleaseKey(signer.key().key) })
            .collect(),
        unsigned,
        ..TrustSpec::default()
    };
    let (refuse, allow) = (None, Some(UnsignedRelease::Allow));
    let none = Revocations::default;
    let store = spec(&[], refuse).store(&[one.key().clone()], none()).unwrap();
    assert_eq!((store.keys(), store.unsigned()), (&[one.key().clone()][..], UnsignedRelease::Refuse));
    let store = spec(&[&one, &other], refuse).store(&[one.key().clone()], none()).unwrap();
    assert_eq!(store.keys().iter().map(|key| key.name.as_str()).collect::<Vec<_>>(), ["named", "named"]);
    assert_eq!(spec(&[&one], refuse).store(&[], none()).unwrap().keys().len(), 1, "it can be signed later");
    assert!(spec(&[], allow).store(&[], none()).unwrap().keys().is_empty());
    // The release that brings a new key is signed with the one that nodes trust, and with the new one.
    let both = [one.key().clone(), other.key().clone()];
    assert_eq!(spec(&[&other], refuse).store(&both, none()).unwrap().keys().len(), 1);
    let revoked = Revocations { keys: [one.key().key.id()].into(), ..none() };
    for signers in [&both[..], &[]] {
        let store = spec(&[&other], refuse).store(signers, revoked.clone()).unwrap();
        assert_eq!(store.revoked(), &revoked);
    }
    for keys in [&[&one, &other][..], &[]] {
        let error = spec(keys, refuse).store(&both, revoked.clone()).unwrap_err();
        assert_eq!(class_of(&error), Class::Invalid);
        assert!(render(&error).contains("is trusted and revoked"), "{}", render(&error));
    }
    for (spec, signers, words) in [
        (spec(&[], refuse), &[][..], "the release would not be signed"),
        (spec(&[&other], refuse), &[one.key().clone()], "is not one of those that the definition trusts"),
    ] {
        let error = spec.store(signers, none()).unwrap_err();
        assert_eq!(class_of(&error), Class::Invalid);
        assert!(render(&error).contains(words), "{}", render(&error));
    }
}

#[test]
fn a_definition_revokes_what_it_names_and_what_its_list_names() {
    let directory = tempfile::tempdir().unwrap();
    let (own, listed) = ("0000000000000001", "0000000000000002");
    let list = directory.path().join("revoked.json");
    let more = Revocations { keys: [listed.parse().unwrap()].into(), ..Revocations::default() };
    revocation_list::add(&list, more).unwrap();
    let spec = RevokedSpec {
        list: Some("revoked.json".into()),
        keys: vec![own.into()],
        releases: vec!["0".repeat(64)],
    };
    let read = || spec.read(&|path| directory.path().join(path));
    let Revocations { keys, releases } = read().unwrap();
    assert_eq!(keys, [own, listed].map(|id| id.parse().unwrap()).into());
    assert_eq!(releases.len(), 1);
    fs::write(&list, "{").unwrap();
    assert_eq!(class_of(&read().unwrap_err()), Class::Invalid);
}

#[test]
fn minisign_verifies_what_the_builder_signs_and_the_builder_what_minisign_signs() {
    let Some(minisign) = testing::programs::find("minisign") else {
        return testing::programs::leave_out("minisign_verifies", "there is no minisign");
    };
    let (scratch, directory) = directory();
    let made = directory.make("releases", None, CHEAP).unwrap();
    let at = |name: &str| scratch.path().join(name);
    let run = |args: &[&str]| {
        let output = Command::new(&minisign).args(args).stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let (release, text) = (release(), |path: &std::path::Path| path.to_str().unwrap().to_owned());
    let manifest = at("release.json");
    fs::write(&manifest, release.to_bytes()).unwrap();
    let signer = ReleaseSigner::open(&options("releases", &directory)).unwrap();
    let file = at("release.json.minisig");
    // What an ISO has: a second signature and padding do not disturb it.
    fs::write(&file, format!("{0}{0}{1}", signature(&signer), "\n".repeat(100))).unwrap();
    let told = run(&["-V", "-p", &text(&made.public_file), "-m", &text(&manifest)]);
    assert!(told.contains(&format!("version:{}", release.version)), "{told}");
    run(&["-S", "-s", &text(&made.secret_file), "-m", &text(&manifest), "-x", &text(&file), "-t", "by hand"]);
    let known = known_keys(&directory, &[], false).unwrap();
    let theirs = fs::read(&file).unwrap();
    let trust = judge(&release, &release.to_bytes(), Some(&theirs), &known).unwrap();
    assert_eq!(trust.to_string(), format!("signed by releases (key {})", made.id));
}
