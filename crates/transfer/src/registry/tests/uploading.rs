//! Uploading to a registry that is told how to behave, and to a real one.

use std::io::Cursor;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::*;
use testing::registry::RealRegistry;

const PATH: &str = "app/web";

/// Large enough to go in pieces: 40 MiB.
fn large() -> Vec<u8> {
    (0..(40_u32 << 20)).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn put_from(
    client: &Client,
    host: &str,
    content: &[u8],
    elsewhere: Option<&str>,
) -> anyhow::Result<(BlobTransfer, u64)> {
    let repository = image(&format!("{host}/{PATH}:1")).repository().clone();
    let other = elsewhere.map(|path| image(&format!("{host}/{path}:1")).repository().clone());
    let open = || -> Result<Box<dyn Read + Send>> { Ok(Box::new(Cursor::new(content.to_vec()))) };
    let (digest, size) = (Digest::of(content), content.len() as u64);
    let furthest = AtomicU64::new(0);
    let blob = NewBlob { digest, size, open: &open, elsewhere: other.as_ref() };
    let told = |at| {
        furthest.fetch_max(at, Ordering::SeqCst);
    };
    let transfer = client.put_blob(&repository, &blob, &told)?;
    Ok((transfer, furthest.into_inner()))
}

fn put(client: &Client, host: &str, content: &[u8]) -> anyhow::Result<BlobTransfer> {
    Ok(put_from(client, host, content, None)?.0)
}

fn real_client(registry: &RealRegistry, login: bool) -> Client {
    Client::new(settings(&registry.registries(login))).unwrap()
}

/// The answer of a registry that has no blob and takes blobs in one request only.
fn takes_whole(request: &Request) -> Answer {
    match (request.method.as_str(), request.path.as_str()) {
        ("GET", "/v2/") => Answer::ok(b"{}"),
        ("HEAD", _) => Answer::new(404, b""),
        ("POST", _) => Answer::new(202, b"").with("Location: /upload?state=a%2Fb"),
        ("PUT", path) if path.starts_with("/upload?state=a%2Fb&digest=sha256") => Answer::new(201, b""),
        _ => Answer::error(405, "UNSUPPORTED"),
    }
}

#[test]
fn a_real_registry_gets_small_and_large_blobs_and_none_twice() {
    let registry = RealRegistry::start(true);
    let (client, host) = (real_client(&registry, true), registry.host().to_owned());
    let large = large();
    for content in [&b""[..], b"small", &large] {
        assert_eq!(put(&client, &host, content).unwrap(), BlobTransfer::Uploaded);
        let stored = std::fs::read(registry.blob(&Digest::of(content).to_string())).unwrap();
        assert!(stored == content, "{} bytes", content.len());
    }
    assert_eq!(registry.requests("PATCH").iter().filter(|request| request.ends_with(" 202")).count(), 3);
    let before = registry.uploaded();
    assert_eq!(put(&client, &host, &large).unwrap(), BlobTransfer::Present);
    assert!(registry.uploaded() - before < 4096);
}

#[test]
fn a_broken_connection_costs_one_blob_at_most_and_the_registry_has_the_right_bytes() {
    let registry = RealRegistry::start(false);
    let (client, host) = (real_client(&registry, false), registry.host().to_owned());
    let large = large();
    registry.break_after(20 << 20);
    let (transfer, furthest) = put_from(&client, &host, &large, None).unwrap();
    assert_eq!((transfer, furthest), (BlobTransfer::Uploaded, large.len() as u64));
    assert!(registry.has_broken());
    assert!(std::fs::read(registry.blob(&Digest::of(&large).to_string())).unwrap() == large);
    assert!(registry.uploaded() < 2 * large.len() as u64, "{}", registry.uploaded());
}

#[test]
fn after_a_broken_connection_only_what_the_registry_lacks_is_sent_again() {
    let content = large();
    let wanted = Digest::of(&content).oci();
    let store = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (kept, failures) = (store.clone(), AtomicU32::new(0));
    let fake = Fake::start(move |request| {
        let mut store = kept.lock().unwrap();
        let status = |code, store: &Vec<u8>| {
            let range = format!("Range: 0-{}", store.len().saturating_sub(1));
            Answer::new(code, b"").with("Location: /upload").with(&range)
        };
        match request.method.as_str() {
            "POST" => Answer::new(202, b"").with("Location: /upload"),
            // The second piece arrives by half, and its answer cannot be read.
            "PATCH" if store.len() == 16 << 20 && failures.fetch_add(1, Ordering::SeqCst) == 0 => {
                let half = request.body.len() / 2;
                store.extend(&request.body[..half]);
                Answer::new(202, b"").with("no header")
            }
            "PATCH" => {
                assert_eq!(
                    request.header("content-range").unwrap().split_once('-').unwrap().0,
                    store.len().to_string()
                );
                store.extend(&request.body);
                status(202, &store)
            }
            "GET" if request.path == "/upload" => status(204, &store),
            "PUT" => {
                Answer::new(201, b"").with(&format!("Docker-Content-Digest: {}", Digest::of(&store).oci()))
            }
            "HEAD" => Answer::new(404, b""),
            _ => Answer::ok(b"{}"),
        }
    });
    let client = client_of(&fake, "");
    assert_eq!(put(&client, &fake.host, &content).unwrap(), BlobTransfer::Uploaded);
    assert_eq!(Digest::of(&store.lock().unwrap()).oci(), wanted);
    let sent: usize = fake.requests("/upload").iter().map(|request| request.body.len()).sum();
    assert!(sent <= content.len() + (8 << 20), "{sent}");
}

#[test]
fn a_registry_that_takes_no_pieces_gets_the_whole() {
    let fake = Fake::start(takes_whole);
    let content = large();
    assert_eq!(put(&client_of(&fake, ""), &fake.host, &content).unwrap(), BlobTransfer::Uploaded);
    let bodies: Vec<_> =
        fake.requests("/upload?").into_iter().filter(|request| request.method == "PUT").collect();
    assert_eq!(bodies.len(), 1);
    assert!(bodies[0].body == content);
}

#[test]
fn a_blob_of_another_repository_is_taken_over_or_uploaded_where_it_may_not_be() {
    let registry = RealRegistry::start(false);
    let (client, host) = (real_client(&registry, false), registry.host().to_owned());
    let first = put(&client, &host, b"shared").unwrap();
    let repository = image(&format!("{host}/other/app:1")).repository().clone();
    let home = image(&format!("{host}/{PATH}:1")).repository().clone();
    let open = || -> Result<Box<dyn Read + Send>> { anyhow::bail!("not read") };
    let digest = Digest::of(b"shared");
    let blob = NewBlob { digest, size: 6, open: &open, elsewhere: Some(&home) };
    let second = client.put_blob(&repository, &blob, &|_| ()).unwrap();
    assert_eq!((first, second), (BlobTransfer::Uploaded, BlobTransfer::Mounted));

    let fake = Fake::start(|request| match request.path.contains("mount=") {
        true => Answer::error(403, "DENIED"),
        false => takes_whole(request),
    });
    let (transfer, _) = put_from(&client_of(&fake, ""), &fake.host, b"shared", Some("base/os")).unwrap();
    assert_eq!(transfer, BlobTransfer::Uploaded);
    let asked = &fake.requests("mount=")[0].path;
    assert!(
        asked.ends_with(&format!("?mount={}&from=base%2Fos", digest.oci().replace(':', "%3A"))),
        "{asked}"
    );
}

#[test]
fn a_token_is_asked_for_that_lets_write_and_take_over() {
    let fake = Arc::new(std::sync::OnceLock::<String>::new());
    let host = fake.clone();
    let server = Fake::start(move |request| {
        let realm = format!("http://{}/token", host.get().unwrap());
        let challenge = format!("WWW-Authenticate: Bearer realm=\"{realm}\",service=\"s\"");
        match request.path.as_str() {
            path if path.starts_with("/token") => Answer::ok(br#"{"token": "t"}"#),
            _ if request.authorization() != "Bearer t" => Answer::error(401, "UNAUTHORIZED").with(&challenge),
            _ => takes_whole(request),
        }
    });
    fake.set(server.host.clone()).unwrap();
    put_from(&client_of(&server, ""), &server.host, b"x", Some("base/os")).unwrap();
    let path = &server.requests("/token")[0].path;
    let scopes = "scope=repository%3Aapp%2Fweb%3Apull%2Cpush&scope=repository%3Abase%2Fos%3Apull";
    assert!(path.contains(scopes), "{path}");
}

#[test]
fn a_refusal_says_what_may_not_be_done_and_what_to_do() {
    for (status, code, told) in [
        (401, "UNAUTHORIZED", &["(401)", "user name and password"][..]),
        (403, "DENIED", &["may not be written to without a login (403)"]),
        (404, "NAME_UNKNOWN", &["does not have this repository (404)"]),
        (413, "SIZE", &["no room for what was sent (413)", "larger requests"]),
        (507, "SIZE", &["no room for what was sent (507)"]),
        (500, "UNKNOWN", &["said so", "gave up after 3 attempts"]),
    ] {
        let fake = Fake::start(move |request| match request.method.as_str() {
            "POST" => Answer::error(status, code),
            _ => takes_whole(request),
        });
        let error = put(&client_of(&fake, ""), &fake.host, b"x").unwrap_err();
        let text = render(&error);
        assert_eq!(class_of(&error), Class::Network, "{text}");
        assert!(told.iter().all(|word| text.contains(word)), "{status}: {text}");
    }
}

#[test]
fn a_registry_without_the_right_login_is_not_written_to() {
    let registry = RealRegistry::start(true);
    let error = put(&real_client(&registry, false), registry.host(), b"x").unwrap_err();
    let text = render(&error);
    assert_eq!(class_of(&error), Class::Network);
    assert!(text.contains("(401)") && text.contains("user name and password"), "{text}");
}

#[test]
fn a_registry_without_tls_is_told_at_once_and_how_to_name_it() {
    let registry = RealRegistry::start(false);
    let host = registry.host();
    // Said of a registry on this machine, https means https.
    let said = format!("mirrors: {{{host:?}: {{endpoint: [\"https://{host}\"]}}}}");
    let error = put(&Client::new(settings(&said)).unwrap(), host, b"x").unwrap_err();
    let text = render(&error);
    assert!(text.contains("does not speak TLS") && text.contains(&format!("http://{host}")), "{text}");
    assert!(text.contains("the file that --registries names"), "{text}");
    assert!(!text.contains("attempts"), "{text}");
}

#[test]
fn a_registry_without_tls_on_this_machine_is_written_to_without_being_named() {
    let registry = RealRegistry::start(false);
    put(&Client::new(settings("{}")).unwrap(), registry.host(), b"x").unwrap();
}

#[test]
fn what_cannot_be_read_is_not_uploaded_and_not_tried_again() {
    let registry = RealRegistry::start(false);
    let client = real_client(&registry, false);
    let repository = image(&format!("{}/{PATH}:1", registry.host())).repository().clone();
    let opened = AtomicU32::new(0);
    for size in [10_u64, 20 << 20] {
        opened.store(0, Ordering::SeqCst);
        let open = || -> Result<Box<dyn Read + Send>> {
            opened.fetch_add(1, Ordering::SeqCst);
            Ok(Box::new(Cursor::new(vec![7; size as usize - 1])))
        };
        let blob = NewBlob { digest: Digest::of(b"other"), size, open: &open, elsewhere: None };
        client.put_blob(&repository, &blob, &|_| ()).unwrap_err();
        assert_eq!(opened.load(Ordering::SeqCst), 1);
    }
    assert!(registry.requests("PUT").is_empty());
}

#[test]
fn a_manifest_of_a_kind_that_a_registry_does_not_take_is_told_apart_from_an_error() {
    for (status, code, unsupported) in [
        (400, "MANIFEST_INVALID", true),
        (415, "X", true),
        (404, "NAME_UNKNOWN", false),
        (403, "DENIED", false),
    ] {
        let fake = Fake::start(move |request| match request.method.as_str() {
            "PUT" => Answer::error(status, code),
            _ => Answer::ok(b"{}"),
        });
        let name = image(&format!("{}/{PATH}:1", fake.host));
        let answer = client_of(&fake, "").put_manifest(&name, media_types::OCI_MANIFEST, MANIFEST);
        assert_eq!(matches!(answer, Ok(ManifestAnswer::Unsupported(_))), unsupported, "{status}");
        assert_eq!(answer.is_err(), !unsupported, "{status}");
        assert_eq!(fake.requests("/manifests/1").len(), 1);
    }
}

#[test]
fn nothing_is_written_to_a_mirror() {
    let (mirror, home) = (Fake::start(takes_whole), Fake::start(takes_whole));
    let registries = format!(
        "mirrors: {{\"{home}\": {{endpoint: [\"http://{mirror}\", \"http://{home}\"]}}}}",
        home = home.host,
        mirror = mirror.host
    );
    put(&Client::new(settings(&registries)).unwrap(), &home.host, b"x").unwrap();
    assert!(mirror.requests("").is_empty());
    assert!(!home.requests("/blobs/uploads/").is_empty());
}
