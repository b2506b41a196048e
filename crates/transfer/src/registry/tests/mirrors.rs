//! Several places for one image.

use super::fake::{AUTHORITY, BodyDelivery, nobody};
use super::*;

/// A client for `example.org`, whose images are looked for at `endpoints` and at last at a server of nobody.
fn mirrored(endpoints: &[String], more: &str) -> Client {
    let list: Vec<_> = endpoints.iter().map(|url| format!("{url:?}")).collect();
    let yaml = format!("mirrors: {{\"localhost:1\": {{endpoint: [{}]{more}}}}}", list.join(", "));
    Client::new(settings(&yaml)).unwrap()
}

const NAME: &str = "localhost:1/app/web:1";

#[test]
fn the_next_endpoint_is_asked_where_one_lacks_the_image_or_does_not_answer() {
    let without = Fake::start(|request| match request.path.as_str() {
        "/v2/" => Answer::ok(b""),
        _ => Answer::error(404, "MANIFEST_UNKNOWN"),
    });
    let good = Fake::start(plain);
    let client = mirrored(&[format!("http://{}", nobody()), without.url(), good.url()], "");
    assert_eq!(client.document(&image(NAME)).unwrap().bytes, MANIFEST);
    assert_eq!(read(&client, "localhost:1", 0).unwrap(), content());
    assert!(without.requests("/blobs/").is_empty(), "who had the image is asked for its blobs first");
    // A mirror is told whose image it is.
    assert_eq!(good.requests("/v2/app/web/manifests/1?ns=localhost:1").len(), 1);
    assert_eq!(good.requests("?ns=localhost:1").len(), 2);
}

#[test]
fn a_document_is_authenticated_if_the_endpoint_that_sent_it_has_shown_a_certificate() {
    let (clear, encrypted) = (Fake::start(plain), Fake::with_tls(plain));
    let gone = format!("https://{}", nobody());
    let skip = format!("configs: {{{:?}: {{tls: {{insecure_skip_verify: true}}}}}}", encrypted.host);
    for (endpoints, more, expected) in [
        (vec![clear.url()], "", false),
        (vec![encrypted.url()], "", true),
        // Whoever keeps the first from answering decides who is asked.
        (vec![gone, clear.url()], "", false),
        (vec![encrypted.url()], skip.as_str(), false),
    ] {
        let yaml = format!("mirrors: {{\"localhost:1\": {{endpoint: {endpoints:?}}}}}\n{more}");
        let trusting = Settings { authorities: vec![AUTHORITY.to_owned()], ..settings(&yaml) };
        let document = Client::new(trusting).unwrap().document(&image(NAME)).unwrap();
        assert_eq!(document.authenticated, expected, "{endpoints:?} {more}");
    }
}

#[test]
fn when_all_fail_each_is_named_with_its_reason() {
    let without = Fake::start(|request| match request.path.as_str() {
        "/v2/" => Answer::ok(b""),
        _ => Answer::error(404, "MANIFEST_UNKNOWN"),
    });
    let dead = nobody();
    let client = mirrored(&[format!("http://{dead}"), without.url()], "");
    let error = client.document(&image(NAME)).unwrap_err();
    let text = render(&error);
    assert_eq!(class_of(&error), Class::Network);
    for part in [
        NAME,
        &format!("http://{dead}: "),
        &format!("{}: it does not have", without.url()),
        "https://localhost:1: ",
    ] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert_eq!(text.matches("gave up after").count(), 2, "{text}");
}

#[test]
fn a_blob_goes_on_at_the_next_endpoint_when_one_goes_away_in_the_middle() {
    let failing = Fake::start(|request| match (request.path.contains("/blobs/"), request.before) {
        (false, _) => plain(request),
        (true, 0) => plain(request).in_manner(BodyDelivery::Cut(50_000)),
        (true, _) => Answer::new(502, b""),
    });
    let good = Fake::start(plain);
    let client = mirrored(&[failing.url(), good.url()], "");
    assert_eq!(read(&client, "localhost:1", 0).unwrap(), content());
    let asked = good.requests("/blobs/");
    let from = asked[0].header("range").unwrap().trim_start_matches("bytes=").trim_end_matches('-');
    assert!((1..=50_000).contains(&from.parse::<u64>().unwrap()), "{from}");
}

#[test]
fn a_mirror_that_does_not_answer_is_tried_last_afterwards() {
    let failing = Fake::start(|_| Answer::new(503, b""));
    let good = Fake::start(plain);
    let client = mirrored(&[failing.url(), good.url()], "");
    client.document(&image(NAME)).unwrap();
    let asked = failing.requests("").len();
    client.document(&image("localhost:1/app/other:1")).unwrap();
    assert_eq!(failing.requests("").len(), asked);
}

#[test]
fn a_tag_is_looked_for_in_the_order_of_the_mirrors_and_a_digest_where_the_rest_was_found() {
    let first = Fake::start(|request| match request.path.contains("/manifests/old") {
        true => Answer::error(404, "MANIFEST_UNKNOWN"),
        false => plain(request),
    });
    let second = Fake::start(plain);
    let client = mirrored(&[first.url(), second.url()], "");
    client.document(&image("localhost:1/app/web:old")).unwrap();
    let digest = Digest::of(MANIFEST).oci();
    client.document(&image(&format!("localhost:1/app/web@{digest}"))).unwrap();
    client.document(&image("localhost:1/app/web:new")).unwrap();
    let asked = |fake: &Fake| fake.requests("/manifests/").len();
    assert_eq!((asked(&first), asked(&second)), (2, 2));
}

#[test]
fn a_wrong_document_of_a_mirror_is_passed_over_for_the_right_one() {
    let wrong = Fake::start(|request| match request.path.contains("/manifests/") {
        true => Answer::ok(b"{}"),
        false => plain(request),
    });
    let good = Fake::start(plain);
    let client = mirrored(&[wrong.url(), good.url()], "");
    let name = format!("localhost:1/app/web@{}", Digest::of(MANIFEST).oci());
    assert_eq!(client.document(&image(&name)).unwrap().bytes, MANIFEST);
}

#[test]
fn a_mirror_is_asked_for_the_rewritten_path() {
    let good = Fake::start(plain);
    let client = mirrored(&[good.url() + "/v2/cache"], r#", rewrite: {"^app/(.*)": "team/$1"}"#);
    client.document(&image(NAME)).unwrap();
    read(&client, "localhost:1", 0).unwrap();
    assert_eq!(good.requests("/v2/cache/team/web/manifests/1?").len(), 1);
    assert_eq!(good.requests("/v2/cache/team/web/blobs/sha256:").len(), 1);
}

#[test]
fn a_registry_on_this_machine_without_tls_is_asked_without_it() {
    let good = Fake::start(plain);
    let client = Client::new(settings("{}")).unwrap();
    for image in [format!("{}/app/web:1", good.host), format!("{}/app/other:1", good.host)] {
        assert_eq!(client.document(&image.parse().unwrap()).unwrap().bytes, MANIFEST);
    }
    assert_eq!(read(&client, &good.host, 0).unwrap(), content());
    assert_eq!(good.requests("/v2/app/web/manifests/1").len(), 1);
}

#[test]
fn a_registry_on_this_machine_that_speaks_tls_is_asked_with_it_and_gets_no_request_without_it() {
    let fake = Fake::with_tls(plain);
    let client = Client::new(settings("{}")).unwrap();
    let text = render(&client.document(&image(&format!("{}/app/web:1", fake.host))).unwrap_err());
    assert!(text.contains(&format!("https://{}", fake.host)) && text.contains("authority"), "{text}");
    assert!(fake.requests("").is_empty());
}
