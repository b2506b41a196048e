//! Answers that are larger than anything a registry has to say.

use super::*;
use fake::BodyDelivery;

/// More than any limit for documents, with room for what is in the buffers of sockets.
const BOUND: u64 = 24 << 20;

#[test]
fn a_manifest_of_any_announced_length_is_read_up_to_4_mib() {
    let more = vec![b' '; (4 << 20) + 1];
    for (answer, told) in [
        (Answer::ok(&[b' '; 65536]).in_manner(BodyDelivery::Endless), "more than 4194304 bytes"),
        (Answer::ok(b" ").with("Content-Length: 1500000000"), "more than 4194304 bytes"),
        (Answer::ok(&more), "more than 4194304 bytes"),
    ] {
        let fake = Fake::start(move |request| match request.path.contains("/manifests/") {
            true => answer.clone(),
            false => plain(request),
        });
        let client = client_of(&fake, "");
        let digest = Digest::of(b"other").oci();
        for name in ["app/web:1".to_owned(), format!("app/web@{digest}")] {
            let error = client.document(&image(&format!("{}/{name}", fake.host))).unwrap_err();
            let text = render(&error);
            assert!(text.contains(told) && text.contains(&fake.url()), "{text}");
        }
        assert_eq!(fake.requests("/manifests/").len(), 2, "what is too large is not asked for again");
        assert!(fake.sent() < 2 * BOUND, "{} bytes were sent", fake.sent());
    }
}

#[test]
fn a_manifest_of_exactly_4_mib_is_taken() {
    let mut manifest = MANIFEST.to_vec();
    manifest.resize(4 << 20, b' ');
    let whole = manifest.clone();
    let fake = Fake::start(move |request| match request.path.contains("/manifests/") {
        true => Answer::ok(&whole),
        false => plain(request),
    });
    let fetched = client_of(&fake, "").document(&image(&format!("{}/app/web:1", fake.host))).unwrap();
    assert_eq!(fetched.digest, Digest::of(&manifest));
}

#[test]
fn an_endless_answer_of_a_token_service_is_read_up_to_a_limit() {
    let service =
        Fake::at("127.0.0.2", false, |_| Answer::ok(&[b' '; 65536]).in_manner(BodyDelivery::Endless));
    let challenge = format!("WWW-Authenticate: Bearer realm=\"{}/token\"", service.url());
    let fake = Fake::start(move |_| Answer::error(401, "UNAUTHORIZED").with(&challenge));
    let error = client_of(&fake, "").document(&image(&format!("{}/app/web:1", fake.host))).unwrap_err();
    let text = render(&error);
    assert_eq!(class_of(&error), Class::Network, "{text}");
    assert!(text.contains("token service") && text.contains("more than 1048576 bytes"), "{text}");
    assert!(service.sent() < BOUND, "{} bytes were sent", service.sent());
}

#[test]
fn an_endless_reason_for_a_refusal_is_not_read_to_its_end() {
    let fake = Fake::start(|request| match request.path.as_str() {
        "/v2/" => Answer::ok(b"{}"),
        _ => Answer::new(404, &[b' '; 65536]).in_manner(BodyDelivery::Endless),
    });
    let error = client_of(&fake, "").document(&image(&format!("{}/app/web:1", fake.host))).unwrap_err();
    assert!(render(&error).contains("404"), "{}", render(&error));
    assert!(fake.sent() < BOUND, "{} bytes were sent", fake.sent());
}
