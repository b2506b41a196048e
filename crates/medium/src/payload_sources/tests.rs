use super::*;
use base::digest::Digest;
use base::failure::{Class, class_of, render};
use formats::minisign::SecretKey;
use model::release::{Payload, Purpose};
use proptest::prelude::*;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testing::http::{AUTHORITY, Answer as FakeAnswer, BodyDelivery as FakeManner, Fake};
use trust::TrustStore;
use trust::{TrustedKey, UnsignedRelease, sign_release};

#[derive(Clone, Copy, Debug)]
enum ServerBehavior {
    /// As the standards say.
    Good,
    /// Whole file whatever the range.
    IgnoreRange,
    /// Breaks off after so many bytes of the body.
    Cut(usize),
    /// Sends so many bytes and then nothing more.
    Stall(usize),
    /// Answers with this status and no body.
    Status(u16),
    /// Announces and sends a shorter file.
    Short(usize),
    /// Flips a bit of the byte at this place.
    Corrupt(usize),
    /// Answers a range request with another range.
    OtherRange,
}

struct Server {
    url: String,
    requests: Arc<Mutex<Vec<String>>>,
}

/// Serves `content` under every path; the manner of each request in turn, the last for all further ones.
fn serve(content: Vec<u8>, manners: Vec<ServerBehavior>) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let requests = Arc::new(Mutex::new(Vec::new()));
    let log = requests.clone();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let manner = manners[number.min(manners.len() - 1)];
            let (content, log) = (content.clone(), log.clone());
            std::thread::spawn(move || drop(answer(stream.unwrap(), &content, manner, &log)));
        }
    });
    Server { url, requests }
}

fn answer(
    mut stream: TcpStream,
    content: &[u8],
    manner: ServerBehavior,
    log: &Mutex<Vec<String>>,
) -> std::io::Result<()> {
    let mut head = String::new();
    for line in BufReader::new(stream.try_clone()?).lines() {
        let line = line?;
        if line.is_empty() {
            break;
        }
        head.push_str(&line.to_lowercase());
        head.push('\n');
    }
    let range = head.lines().find_map(|line| line.strip_prefix("range: bytes="));
    let start: usize = range.and_then(|range| range.trim_end_matches('-').parse().ok()).unwrap_or(0);
    log.lock().unwrap().push(head);
    let mut content = content.to_vec();
    if let ServerBehavior::Status(status) = manner {
        return write!(stream, "HTTP/1.1 {status} No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
    match manner {
        ServerBehavior::Short(length) => content.truncate(length),
        ServerBehavior::Corrupt(place) => content[place] ^= 1,
        _ => {}
    }
    let total = content.len();
    let (start, told) = match manner {
        ServerBehavior::IgnoreRange => (0, 0),
        ServerBehavior::OtherRange if start > 0 => (start, start + 1),
        _ => (start, start),
    };
    if start >= total && total > 0 {
        return write!(stream, "HTTP/1.1 416 No\r\nContent-Length: 0\r\nConnection: close\r\n\r\n");
    }
    let body = &content[start..];
    let status = match start {
        0 => "200 OK".to_owned(),
        _ => format!("206 Part\r\nContent-Range: bytes {told}-{}/{total}", total - 1),
    };
    let length = body.len();
    write!(
        stream,
        "HTTP/1.1 {status}\r\nETag: \"v1\"\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    )?;
    match manner {
        ServerBehavior::Cut(count) => stream.write_all(&body[..count.min(length)]),
        ServerBehavior::Stall(count) => {
            stream.write_all(&body[..count.min(length)])?;
            // Until the client hangs up.
            std::io::copy(&mut stream, &mut std::io::sink()).map(drop)
        }
        _ => stream.write_all(body),
    }
}

fn content() -> Vec<u8> {
    (0..200_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn payload(bytes: &[u8]) -> Payload {
    Payload {
        path: "live/rootfs.squashfs".into(),
        purpose: Purpose::Rootfs,
        size: bytes.len() as u64,
        sha256: Digest::of(bytes),
    }
}

fn fetch(manners: Vec<ServerBehavior>) -> (anyhow::Result<Vec<u8>>, Server) {
    let bytes = content();
    let server = serve(bytes.clone(), manners);
    let retry = RetryPolicy {
        connect: Duration::from_secs(5),
        read: Duration::from_millis(300),
        attempts: 3,
        pause: Duration::from_millis(1),
        limit: None,
    };
    let result = (|| {
        let medium = HttpMedium::open(&server.url, &[], retry)?;
        let payload = payload(&bytes);
        let mut reader = VerifyingReader::new(medium.open(&payload)?, &payload, medium.describe());
        let mut got = Vec::new();
        reader.read_to_end(&mut got)?;
        Ok(got)
    })();
    (result, server)
}

#[test]
fn a_server_that_sends_a_byte_with_each_connection_does_not_hold_a_transfer() {
    for manner in [ServerBehavior::Cut(1), ServerBehavior::Cut(100), ServerBehavior::Stall(1)] {
        let (result, server) = fetch(vec![manner]);
        let error = result.unwrap_err();
        assert_eq!(class_of(&error), Class::Network, "{manner:?}");
        let text = render(&error);
        assert!(text.contains("gave up after 3 attempts"), "{manner:?}: {text}");
        assert_eq!(server.requests.lock().unwrap().len(), 3, "{manner:?}");
    }
    // Each brings a part of the rest, so there may be more of them than attempts.
    assert!(fetch(vec![ServerBehavior::Cut(14_000)]).0.unwrap() == content());
}

#[test]
fn a_transfer_that_breaks_off_goes_on_where_it_stopped() {
    let (result, server) =
        fetch(vec![ServerBehavior::Cut(70_000), ServerBehavior::Cut(50_000), ServerBehavior::Good]);
    assert!(result.unwrap() == content());
    let requests = server.requests.lock().unwrap();
    assert_eq!(requests.len(), 3);
    assert!(requests[1].contains("range: bytes=70000-"), "{}", requests[1]);
    assert!(requests[1].contains("if-range: \"v1\""), "{}", requests[1]);
    assert!(requests[2].contains("range: bytes=120000-"), "{}", requests[2]);
}

#[test]
fn a_server_that_stalls_or_ignores_ranges_is_borne_with() {
    assert!(fetch(vec![ServerBehavior::Stall(90_000), ServerBehavior::IgnoreRange]).0.unwrap() == content());
    assert!(
        fetch(vec![ServerBehavior::Status(503), ServerBehavior::Status(429), ServerBehavior::Good])
            .0
            .unwrap()
            == content()
    );
}

#[test]
fn what_cannot_get_better_is_an_error_with_the_url_and_its_class() {
    let cases: [(Vec<ServerBehavior>, Class, &str); 8] = [
        (vec![ServerBehavior::Status(404)], Class::Network, "does not exist (404)"),
        (vec![ServerBehavior::Status(403)], Class::Network, "403"),
        (vec![ServerBehavior::Status(500)], Class::Network, "gave up after 3 attempts"),
        (vec![ServerBehavior::Stall(0)], Class::Network, "gave up after 3 attempts"),
        (
            vec![ServerBehavior::Cut(10), ServerBehavior::Status(416)],
            Class::Verification,
            "ends before byte 10",
        ),
        (vec![ServerBehavior::Cut(10), ServerBehavior::OtherRange], Class::Network, "another range"),
        (vec![ServerBehavior::Short(1000)], Class::Verification, "has 1000 bytes instead of 200000"),
        (vec![ServerBehavior::Corrupt(123_456)], Class::Verification, "instead of"),
    ];
    for (manners, class, told) in cases {
        let (result, server) = fetch(manners.clone());
        let error = result.unwrap_err();
        let text = render(&error);
        assert_eq!(class_of(&error), class, "{manners:?}: {text}");
        assert!(text.contains(told) && text.contains(&server.url), "{manners:?}: {text}");
    }
}

#[test]
fn a_server_that_is_not_there_is_a_network_failure() {
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let retry = RetryPolicy { attempts: 2, pause: Duration::from_millis(1), ..RetryPolicy::default() };
    let medium = HttpMedium::open(&format!("http://{address}"), &[], retry).unwrap();
    let error = medium.probe(&payload(b"x")).unwrap_err();
    assert_eq!(class_of(&error), Class::Network);
    assert!(render(&error).contains(&address.to_string()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn whatever_breaks_on_the_way_the_bytes_are_right_or_there_is_an_error(
        cuts in proptest::collection::vec((0_usize..150_000, 0_u8..4), 0..5),
    ) {
        let mut manners: Vec<_> = cuts.iter().map(|(place, kind)| match kind {
            0 => ServerBehavior::Cut(*place),
            1 => ServerBehavior::IgnoreRange,
            2 => ServerBehavior::Corrupt(*place),
            _ => ServerBehavior::Status(502),
        }).collect();
        manners.push(ServerBehavior::Good);
        if let Ok(bytes) = fetch(manners).0 {
            prop_assert!(bytes == content());
        }
    }
}

/// A medium in a directory that holds `files`.
fn local(files: &[(&str, &[u8])]) -> (tempfile::TempDir, LocalMedium) {
    let directory = tempfile::tempdir().unwrap();
    for (name, bytes) in files {
        let path = directory.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    }
    let medium = LocalMedium::new(directory.path());
    (directory, medium)
}

#[test]
fn what_the_medium_lacks_comes_from_the_server() {
    let bytes = content();
    let server = serve(bytes.clone(), vec![ServerBehavior::Good]);
    let (_directory, medium) = local(&[("held", b"here")]);
    let held = Payload { path: "held".into(), ..payload(b"here") };
    let remote = HttpMedium::open(&server.url, &[], RetryPolicy::default()).unwrap();
    let chain = Chain::new(Box::new(medium), vec![Box::new(remote)]);
    assert_eq!(chain.place(&held), Some(PayloadPlace::Here));
    assert_eq!(chain.place(&payload(&bytes)), Some(PayloadPlace::Network));
    let read = |payload: &Payload| {
        let mut got = Vec::new();
        chain.open(payload).unwrap().read_to_end(&mut got).unwrap();
        got
    };
    assert_eq!(read(&held), b"here");
    assert!(read(&payload(&bytes)) == bytes);
}

#[test]
fn a_payload_that_is_nowhere_is_named() {
    let (_directory, medium) = local(&[]);
    let error = medium.open(&payload(b"x")).err().unwrap();
    assert_eq!(class_of(&error), Class::Verification);
    assert!(render(&error).contains("live/rootfs.squashfs is not on the medium"));
}

#[test]
fn a_manifest_that_the_kernel_command_line_does_not_know_is_refused() {
    let release = testing::release::release().to_bytes();
    let (_directory, medium) = local(&[("release.json", &release)]);
    let line = |digest: Digest| format!("quiet nqrust.release={} ro\n", digest.oci());
    let good = expected_manifest(&line(Digest::of(&release))).unwrap();
    assert_eq!(read_release(&medium, good, &TrustStore::absent()).unwrap().release.id, "nqrust");
    let other = expected_manifest(&line(Digest::of(b""))).unwrap();
    let error = read_release(&medium, other, &TrustStore::absent()).unwrap_err();
    assert_eq!(class_of(&error), Class::Verification);
    assert_eq!(expected_manifest("quiet").unwrap(), None);
    assert!(expected_manifest("nqrust.release=sha256:12").is_err());
    let custom = expected_customization(&format!("quiet nqrust.custom={}", Digest::of(b"x").oci())).unwrap();
    assert_eq!(custom, Some(Digest::of(b"x")));
    assert!(expected_customization("nqrust.custom=sha256:12").is_err());
}

/// The signatures of the release of the tests by the key with this number.
fn signed(number: u8) -> String {
    let (release, key) = (testing::release::release(), key(number));
    let when = jiff::Timestamp::from_second(1_772_448_000).unwrap();
    let sign = |bytes: &[u8]| -> Result<_, ()> { Ok(key.sign_bytes(bytes)) };
    sign_release(&release, &release.to_bytes(), when, &key.public_key(), sign).unwrap().to_string()
}

fn key(number: u8) -> SecretKey {
    SecretKey::of_seed([number; 8], [number; 32])
}

/// Trusts the first key.
fn store(unsigned: UnsignedRelease) -> TrustStore {
    let key = TrustedKey { name: "Maker".into(), key: key(1).public_key(), development: false };
    TrustStore::new(vec![key], 1, unsigned).unwrap()
}

#[test]
fn a_release_is_read_if_a_trusted_key_has_signed_it_and_otherwise_only_if_that_is_allowed() {
    use UnsignedRelease::{Allow, Refuse};
    let release = testing::release::release().to_bytes();
    let [own, other] = [1, 2].map(signed);
    let changed = own.replace("timestamp:1772448000", "timestamp:1772448001");
    for (signatures, unsigned, told) in [
        (Some(&own), Refuse, Ok("signed by Maker (key ")),
        (Some(&own), Allow, Ok("signed by Maker (key ")),
        (Some(&other), Allow, Ok("signed with the key ")),
        (None, Allow, Ok("not signed")),
        (Some(&other), Refuse, Err("not trusted here")),
        (None, Refuse, Err("it is not signed")),
        (Some(&changed), Allow, Err("its trusted comment was changed")),
    ] {
        let files = [("release.json", &release[..])].into_iter();
        let signatures = signatures.map(|text| ("release.json.minisig", text.as_bytes()));
        let files: Vec<_> = files.chain(signatures).collect();
        let (_directory, medium) = local(&files);
        match (read_release(&medium, None, &store(unsigned)), told) {
            (Ok(judged), Ok(told)) => assert!(judged.trust.to_string().starts_with(told), "{}", judged.trust),
            (Err(error), Err(told)) => {
                let text = render(&error);
                assert_eq!(class_of(&error), Class::Verification, "{text}");
                assert!(text.contains(told) && text.contains("is not trusted"), "{text}");
            }
            (read, told) => panic!("{read:?} is not {told:?}"),
        }
    }
}

#[test]
fn a_server_without_tls_can_send_a_signed_release_and_no_unsigned_one() {
    let release = testing::release::release();
    let signers = [1, 2].map(signed);
    for (signatures, accepted) in [(Some(&signers[0]), true), (Some(&signers[1]), false), (None, false)] {
        let (release, signatures) = (release.to_bytes(), signatures.cloned());
        let server = Fake::start(move |request| match (request.path.as_str(), &signatures) {
            ("/release.json", _) => FakeAnswer::ok(&release),
            ("/release.json.minisig", Some(text)) => FakeAnswer::ok(text.as_bytes()),
            _ => FakeAnswer::new(404, b""),
        });
        let medium = HttpMedium::open(&server.url(), &[], RetryPolicy::default()).unwrap();
        let judged = read_release(&medium, None, &store(UnsignedRelease::Allow)).unwrap();
        match require_origin(&medium, &judged.trust, "Give the digest.") {
            Ok(()) => assert!(accepted, "{}", judged.trust),
            Err(failure) => {
                assert!(!accepted, "{}", judged.trust);
                assert_eq!(failure.class(), Class::Invalid);
                let text = render(&failure.into());
                assert!(
                    text.contains(&judged.trust.to_string()) && text.contains("Give the digest."),
                    "{text}"
                );
            }
        }
    }
}

#[test]
fn a_file_beside_the_payloads_is_read_or_known_to_be_absent() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("custom.img"), b"area").unwrap();
    let local = LocalMedium::new(directory.path());
    let retry = RetryPolicy { attempts: 2, pause: Duration::from_millis(1), ..RetryPolicy::default() };
    let http = |manner| {
        let server = serve(b"area".to_vec(), vec![manner]);
        HttpMedium::open(&server.url, &[], retry).unwrap()
    };
    let read = |source: &dyn PayloadSource| {
        source.beside("custom.img").map(|file| {
            file.map(|mut file| {
                let mut text = String::new();
                file.read_to_string(&mut text).unwrap();
                text
            })
        })
    };
    assert_eq!(read(&local).unwrap().as_deref(), Some("area"));
    assert_eq!(read(&http(ServerBehavior::Good)).unwrap().as_deref(), Some("area"));
    assert_eq!(local.beside("other").unwrap().map(drop), None);
    assert_eq!(read(&http(ServerBehavior::Status(404))).unwrap(), None);
    assert_eq!(class_of(&read(&http(ServerBehavior::Status(403))).unwrap_err()), Class::Network);
}

#[test]
fn a_payload_over_https_is_not_taken_from_where_there_is_no_tls() {
    let plain = Fake::start(|_| FakeAnswer::ok(b"x"));
    let to = plain.url();
    let server = Fake::with_tls(move |request| {
        FakeAnswer::new(307, b"").with(&format!("Location: {to}{}", request.path))
    });
    let medium = HttpMedium::open(&server.url(), &[AUTHORITY.to_owned()], RetryPolicy::default()).unwrap();
    for error in [
        medium.open(&payload(b"x")).err().unwrap(),
        medium.probe(&payload(b"x")).unwrap_err(),
        medium.manifest().unwrap_err(),
        medium.beside("custom.img").err().unwrap(),
    ] {
        let text = render(&error);
        assert_eq!(class_of(&error), Class::Network, "{text}");
        for part in [&server.url(), &plain.url(), "without TLS"] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
    assert!(plain.requests("").is_empty());
}

#[test]
fn a_file_without_a_digest_is_never_put_together_from_two_versions() {
    let (old, new) = (vec![b'o'; 100_000], vec![b'n'; 100_000]);
    let retry = RetryPolicy { attempts: 3, pause: Duration::from_millis(1), ..RetryPolicy::default() };
    // Validators of the first and of the second answer, and whether the second one is the rest of what was asked for.
    for (first, second, ranged, good) in [
        ("ETag: \"1\"", "ETag: \"1\"", true, true),
        ("ETag: \"1\"", "ETag: \"2\"", true, false),
        ("ETag: \"1\"", "ETag: \"2\"", false, false),
        ("ETag: \"1\"", "X-None: 1", true, false),
        ("ETag: W/\"1\"", "ETag: W/\"1\"", true, false),
        ("X-None: 1", "X-None: 1", true, false),
        (
            "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT",
            "Last-Modified: Sun, 06 Nov 1994 08:49:37 GMT",
            true,
            false,
        ),
    ] {
        let (old, other) = (old.clone(), if good { old.clone() } else { new.clone() });
        let whole = old.clone();
        let server = Fake::start(move |request| match (request.before, ranged) {
            (0, _) => FakeAnswer::ok(&old).with(first).in_manner(FakeManner::Cut(70_000)),
            (_, true) => FakeAnswer::range(&other, request).with(second),
            (_, false) => FakeAnswer::ok(&other).with(second),
        });
        let medium = HttpMedium::open(&server.url(), &[], retry).unwrap();
        let mut bytes = Vec::new();
        let read = medium.beside("custom.img").unwrap().unwrap().read_to_end(&mut bytes);
        assert_eq!(read.is_ok(), good, "{first}, {second}, {ranged}");
        match read {
            Ok(_) => assert!(bytes == whole),
            Err(error) => {
                let text = render(&anyhow::Error::from(error));
                assert!(text.contains("custom.img") && text.contains("start again"), "{text}");
                assert!(bytes.iter().all(|byte| *byte == b'o'), "{first}, {second}, {ranged}");
            }
        }
    }
}

#[test]
fn one_function_opens_a_medium_of_every_kind() {
    let (release, image) = (testing::iso::release(), testing::iso::image(&testing::iso::release()));
    let here = tempfile::tempdir().unwrap();
    let (tree, iso) = (here.path().join("tree"), here.path().join("full.iso"));
    for (payload, content) in testing::release::contents() {
        let path = tree.join(&payload.path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
    std::fs::write(tree.join("release.json"), release.to_bytes()).unwrap();
    std::fs::write(&iso, &image).unwrap();
    let (root, bytes) = (tree.clone(), image.clone());
    let server = Fake::start(move |request| match request.path.strip_prefix("/tree/") {
        None => FakeAnswer::range(&bytes, request),
        Some(path) => FakeAnswer::range(&std::fs::read(root.join(path)).unwrap(), request),
    });
    let (tree, iso) = (tree.to_str().unwrap().to_owned(), iso.to_str().unwrap().to_owned());
    for named in [tree, iso.clone(), format!("{}/tree/", server.url()), format!("{}/full.iso", server.url())]
    {
        let source = source(Some(&named), &[], RetryPolicy::default()).unwrap();
        assert_eq!(source.manifest().unwrap(), release.to_bytes(), "{named}");
        let payload = &release.payloads[0];
        source.probe(payload).unwrap();
        assert!(source.place(payload).is_some());
        let (digest, _) = Digest::of_reader(source.open(payload).unwrap()).unwrap();
        assert_eq!(digest, payload.sha256, "{named}");
        assert_eq!(source.image().unwrap().is_some(), named == iso, "{named}");
    }
    let source = source(Some(&iso), &[], RetryPolicy::default()).unwrap();
    let mut absent = release.payloads[0].clone();
    absent.path = "images/absent".to_owned();
    assert_eq!(source.place(&absent), None);
    assert_eq!(class_of(&source.open(&absent).err().unwrap()), Class::Verification);
    let differences =
        compare(source.as_ref(), &release, crate::iso::CheckScope::Whole, None, &|| Ok(())).unwrap();
    assert_eq!(differences, MediumComparison::Image(Vec::new()));
}

#[test]
fn what_is_no_medium_is_refused_by_its_name() {
    let directory = tempfile::tempdir().unwrap();
    let text = directory.path().join("notes.txt");
    std::fs::write(&text, "hello").unwrap();
    for path in [text, directory.path().join("absent")] {
        let error = source(path.to_str(), &[], RetryPolicy::default()).err().unwrap();
        assert_eq!(class_of(&error), Class::Invalid, "{}", render(&error));
        assert!(render(&error).contains(path.to_str().unwrap()), "{}", render(&error));
    }
}

/// The release of the tests as a directory and as an ISO, both with `signatures`.
fn signed_media(at: &Path, signatures: Option<&[u8]>) -> (PathBuf, PathBuf) {
    let release = testing::iso::release();
    let (tree, iso) = (at.join("tree"), at.join("full.iso"));
    std::fs::create_dir_all(&tree).unwrap();
    std::fs::write(tree.join("release.json"), release.to_bytes()).unwrap();
    if let Some(signatures) = signatures {
        std::fs::write(tree.join("release.json.minisig"), signatures).unwrap();
    }
    std::fs::write(&iso, testing::iso::signed_image(&release, signatures)).unwrap();
    (tree, iso)
}

#[test]
fn every_kind_of_source_gives_the_text_of_the_signatures_or_none() {
    let text = &b"untrusted comment: a\nRW\ntrusted comment: b\nAA\n"[..];
    for signatures in [Some(text), None] {
        let directory = tempfile::tempdir().unwrap();
        let (tree, iso) = signed_media(directory.path(), signatures);
        let root = directory.path().to_owned();
        let server = Fake::start(move |request| match std::fs::read(root.join(&request.path[1..])) {
            Ok(bytes) => FakeAnswer::range(&bytes, request),
            Err(_) => FakeAnswer::new(404, b""),
        });
        let url = |name: &str| format!("{}/{name}", server.url());
        let path = |path: &Path| path.to_str().unwrap().to_owned();
        for named in [path(&tree), path(&iso), url("tree"), url("full.iso")] {
            let opened = source(Some(&named), &[], RetryPolicy::default()).unwrap();
            assert_eq!(opened.signatures().unwrap().as_deref(), signatures, "{named}");
            let reader = crate::reader::MediumReader::open(Path::new(&named)).unwrap();
            assert_eq!(reader.signatures().unwrap().as_deref(), signatures, "{named}");
            let (_other, unsigned) = local(&[]);
            let chain = Chain::new(opened, vec![Box::new(unsigned)]);
            assert_eq!(chain.signatures().unwrap().as_deref(), signatures, "that of the manifest's source");
        }
    }
}

#[test]
fn signatures_that_cannot_be_read_are_an_error_and_never_an_unsigned_release() {
    let release = testing::release::release().to_bytes();
    let (directory, medium) = local(&[("release.json", &release), ("release.json.minisig", &[b'a'; 8193])]);
    assert_eq!(class_of(&medium.signatures().unwrap_err()), Class::Verification);
    let file = directory.path().join("release.json.minisig");
    std::fs::remove_file(&file).unwrap();
    std::fs::create_dir(&file).unwrap();
    assert_eq!(class_of(&medium.signatures().unwrap_err()), Class::DiskIo);
    std::fs::remove_dir(&file).unwrap();
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(class_of(&medium.signatures().unwrap_err()), Class::DiskIo, "a FIFO is not waited for");
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("nowhere", &file).unwrap();
    assert_eq!(medium.signatures().unwrap(), None);

    let retry = RetryPolicy { attempts: 2, pause: Duration::from_millis(1), ..RetryPolicy::default() };
    for (behavior, class) in [
        (ServerBehavior::Status(403), Class::Network),
        (ServerBehavior::Status(502), Class::Network),
        (ServerBehavior::Cut(5), Class::Network),
        (ServerBehavior::Good, Class::Verification),
    ] {
        let server = serve(vec![b'a'; 100_000], vec![behavior]);
        let medium = HttpMedium::open(&server.url, &[], retry).unwrap();
        assert_eq!(class_of(&medium.signatures().unwrap_err()), class, "{behavior:?}");
    }
    let server = serve(Vec::new(), vec![ServerBehavior::Status(404)]);
    assert_eq!(HttpMedium::open(&server.url, &[], retry).unwrap().signatures().unwrap(), None);
}
