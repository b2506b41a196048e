//! Documents and blobs from one registry that lets everybody read.

use std::time::Instant;

use super::fake::{BodyDelivery, nobody};
use super::*;
use base::size::ByteSize;

#[test]
fn a_document_comes_as_it_is_with_its_kind_and_digest() {
    let index = br#"{"schemaVersion":2,"mediaType":"application/vnd.docker.distribution.manifest.list.v2+json","manifests":[]}"#;
    let fake = Fake::start(|request| match request.path.contains("manifests/list") {
        true => Answer::ok(index).with(&format!("Docker-Content-Digest: {}", Digest::of(index).oci())),
        false => plain(request),
    });
    let client = client_of(&fake, "");
    let fetched = client.document(&image(&format!("{}/app/web:1", fake.host))).unwrap();
    assert_eq!((&*fetched.bytes, fetched.digest), (MANIFEST, Digest::of(MANIFEST)));
    assert_eq!(fetched.media_type, "application/vnd.oci.image.manifest.v1+json");
    let fetched = client.document(&image(&format!("{}/app/web:list", fake.host))).unwrap();
    assert_eq!((&*fetched.bytes, fetched.digest), (&index[..], Digest::of(index)));
    assert_eq!(fetched.media_type, "application/vnd.docker.distribution.manifest.list.v2+json");
    let asked = fake.requests("/manifests/1");
    let accept = asked[0].header("accept").unwrap();
    assert!(accept.contains("image.index") && accept.contains("manifest.v2"), "{accept}");
}

#[test]
fn another_document_than_the_one_that_is_named_is_refused() {
    let named = Digest::of(b"another").oci();
    let header = named.clone();
    let fake = Fake::start(move |request| match request.path.contains("liar") {
        true => plain(request).with(&format!("Docker-Content-Digest: {header}")),
        false => plain(request),
    });
    let client = client_of(&fake, "");
    for reference in [format!("app/web@{named}"), "liar:1".into()] {
        let error = client.document(&image(&format!("{}/{reference}", fake.host))).unwrap_err();
        let text = render(&error);
        assert_eq!(class_of(&error), Class::Verification, "{text}");
        for part in [&reference, &named, &Digest::of(MANIFEST).oci(), &fake.url()] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }
}

#[test]
fn a_missing_tag_is_said_to_be_missing() {
    for code in ["MANIFEST_UNKNOWN", "NAME_UNKNOWN", "NOT_JSON"] {
        let fake = Fake::start(move |request| match (request.path.as_str(), code) {
            ("/v2/", _) => Answer::ok(b""),
            (_, "NOT_JSON") => Answer::new(404, b"<html>"),
            _ => Answer::error(404, code),
        });
        let error = client_of(&fake, "").document(&image(&format!("{}/app/web:1.2", fake.host))).unwrap_err();
        let text = render(&error);
        assert_eq!(class_of(&error), Class::Network, "{text}");
        assert!(text.contains("app/web:1.2") && text.contains("404"), "{text}");
        assert!(text.contains("Check the name and the tag") && !text.contains("docker login"), "{text}");
        assert_eq!(fake.requests("/manifests/").len(), 1, "what is not there is not asked for again");
    }
}

#[test]
fn a_registry_with_passing_trouble_is_asked_again_and_not_forever() {
    for trouble in [Answer::new(503, b""), Answer::error(429, "TOOMANYREQUESTS"), Answer::new(429, b"no")] {
        let first = trouble.clone();
        let fake = Fake::start(move |request| match request.before {
            0 => first.clone(),
            _ => plain(request),
        });
        let image = image(&format!("{}/app/web:1", fake.host));
        assert_eq!(client_of(&fake, "").document(&image).unwrap().bytes, MANIFEST);
        let fake = Fake::start(move |_| trouble.clone());
        let text =
            render(&client_of(&fake, "").document(&super::image(&format!("{}/a:1", fake.host))).unwrap_err());
        assert!(text.contains("gave up after 3 attempts"), "{text}");
    }
}

#[test]
fn a_registry_that_is_down_is_named_with_the_reason() {
    let host = nobody();
    let yaml = format!("mirrors: {{\"{host}\": {{endpoint: [\"http://{host}\"]}}}}");
    let client = Client::new(settings(&yaml)).unwrap();
    for error in [
        client.document(&image(&format!("{host}/app/web:1"))).unwrap_err(),
        read(&client, &host, 0).unwrap_err(),
        client.probe(image(&format!("{host}/app/web:1")).repository(), Digest::of(b""), 1).unwrap_err(),
    ] {
        let text = render(&error);
        assert_eq!(class_of(&error), Class::Network, "{text}");
        assert!(text.contains("refused") && text.contains(&format!("http://{host}")), "{text}");
        assert!(text.contains(&format!("{host}/app/web")) && text.contains("Check the network"), "{text}");
    }
}

#[test]
fn a_blob_is_read_whole_or_from_where_a_reader_stands() {
    let fake = Fake::start(plain);
    let client = client_of(&fake, "");
    assert_eq!(read(&client, &fake.host, 0).unwrap(), content());
    assert_eq!(read(&client, &fake.host, 150_000).unwrap(), content()[150_000..]);
    let asked = fake.requests("/blobs/");
    assert_eq!((asked[0].header("range"), asked[1].header("range")), (None, Some("bytes=150000-")));
    assert!(read(&client, &fake.host, 200_000).unwrap().is_empty());
    assert_eq!(fake.requests("/blobs/").len(), 2);
}

#[test]
fn a_blob_is_read_whole_however_the_connection_fails() {
    for manner in [BodyDelivery::Cut(70_000), BodyDelivery::Stall(70_000), BodyDelivery::Cut(0)] {
        let fake = Fake::start(move |request| match request.before {
            0 if request.path.contains("/blobs/") => plain(request).in_manner(manner),
            _ => plain(request),
        });
        let client = client_of(&fake, "");
        assert_eq!(read(&client, &fake.host, 10_000).unwrap(), content()[10_000..], "{manner:?}");
        assert_eq!(fake.requests("/blobs/").len(), 2, "{manner:?}");
    }
}

#[test]
fn a_document_comes_whole_however_the_connection_fails() {
    for manner in [BodyDelivery::Cut(20), BodyDelivery::Stall(20), BodyDelivery::Cut(0)] {
        let fake = Fake::start(move |request| match request.before {
            0 if request.path.contains("/manifests/") => plain(request).in_manner(manner),
            _ => plain(request),
        });
        let fetched = client_of(&fake, "").document(&image(&format!("{}/app/web:1", fake.host))).unwrap();
        assert_eq!((&*fetched.bytes, fake.requests("/manifests/").len()), (MANIFEST, 2), "{manner:?}");
    }
}

#[test]
fn a_client_serves_several_threads_at_once() {
    let fake = Fake::start(plain);
    let client = client_of(&fake, "");
    let pull = |number| {
        let (client, host) = (client.clone(), fake.host.clone());
        std::thread::spawn(move || {
            let fetched = client.document(&image(&format!("{host}/app/web{number}:1"))).unwrap();
            (fetched.bytes, read(&client, &host, number).unwrap().len() as u64)
        })
    };
    let threads: Vec<_> = (0..8).map(|number| (number, pull(number))).collect();
    for (number, thread) in threads {
        assert_eq!(thread.join().unwrap(), (MANIFEST.to_vec(), 200_000 - number));
    }
}

#[test]
fn a_blob_of_another_length_is_refused_and_the_probe_sees_it_too() {
    let fake = Fake::start(|request| match request.path.contains("/blobs/") {
        true => Answer::range(&content()[..1000], request),
        false => plain(request),
    });
    let client = client_of(&fake, "");
    let image = image(&format!("{}/app/web:1", fake.host));
    let digest = Digest::of(&content());
    let probed = client.probe(image.repository(), digest, 200_000);
    for (error, told) in [
        (read(&client, &fake.host, 0).unwrap_err(), "1000 bytes instead of 200000"),
        (probed.unwrap_err(), "ends before byte 199999"),
    ] {
        let text = render(&error);
        assert_eq!(class_of(&error), Class::Verification, "{text}");
        assert!(text.contains(&digest.oci()) && text.contains(told), "{text}");
    }
    client.probe(image.repository(), digest, 1000).unwrap();
}

#[test]
fn a_blob_whose_bytes_differ_is_handed_over_for_the_reader_to_judge() {
    let fake = Fake::start(|request| {
        let mut bytes = content();
        bytes[5] ^= 1;
        if request.path.contains("/blobs/") { Answer::range(&bytes, request) } else { plain(request) }
    });
    let bytes = read(&client_of(&fake, ""), &fake.host, 0).unwrap();
    assert_ne!(Digest::of(&bytes), Digest::of(&content()));
}

#[test]
fn a_server_that_asks_for_time_gets_it() {
    let fake = Fake::start(|request| match request.before {
        0 if request.path.contains("/blobs/") => Answer::new(429, b"").with("Retry-After: 1"),
        _ => plain(request),
    });
    let begun = Instant::now();
    assert_eq!(read(&client_of(&fake, ""), &fake.host, 0).unwrap(), content());
    assert!(begun.elapsed() >= Duration::from_secs(1));
}

#[test]
fn a_server_that_asks_for_an_hour_is_given_up_at_once() {
    let fake = Fake::start(|request| match request.path.contains("/blobs/") {
        true => Answer::new(503, b"").with("Retry-After: 3600"),
        false => plain(request),
    });
    let text = render(&read(&client_of(&fake, ""), &fake.host, 0).unwrap_err());
    assert!(text.contains("asks to come back in 3600 seconds"), "{text}");
    assert_eq!(fake.requests("/blobs/").len(), 1);
}

#[test]
fn all_transfers_together_stay_below_the_limit() {
    let fake = Fake::start(plain);
    let host = fake.host.clone();
    let yaml = format!("mirrors: {{\"{host}\": {{endpoint: [\"http://{host}\"]}}}}");
    let rate = Some(ByteSize::bytes(1_000_000));
    let client = Client::new(Settings { rate, ..settings(&yaml) }).unwrap();
    let begun = Instant::now();
    let reader = || {
        let (client, host) = (client.clone(), host.clone());
        std::thread::spawn(move || read(&client, &host, 0).unwrap())
    };
    for reader in [reader(), reader()] {
        assert_eq!(reader.join().unwrap(), content());
    }
    assert!(begun.elapsed() >= Duration::from_millis(400), "{:?}", begun.elapsed());
}
