//! Lists of what refers to a manifest.

use super::*;

const LIST: &[u8] = br#"{ "schemaVersion": 2, "manifests": [] }"#;

/// What a registry says that answers the API with `api` and the tag with `tag`.
fn list(api: fn() -> Answer, tag: fn() -> Answer) -> anyhow::Result<ReferrersList> {
    let subject = Digest::of(MANIFEST);
    let fake = Fake::start(move |request| match request.path.as_str() {
        "/v2/" => Answer::ok(b"{}"),
        path if path == format!("/v2/app/web/referrers/{}", subject.oci()) => api(),
        path if path == format!("/v2/app/web/manifests/sha256-{subject}") => tag(),
        path => panic!("{path}"),
    });
    let image = image(&format!("{}/app/web:1", fake.host));
    let found = client_of(&fake, "").referrers(image.repository(), subject)?;
    if let ReferrersList::Tag(tag, _) = &found {
        assert_eq!(tag.to_string(), format!("{}/app/web:sha256-{subject}", fake.host));
    }
    Ok(found)
}

#[test]
fn the_api_of_a_registry_is_asked_before_the_tag_that_stands_for_it() {
    let absent = || Answer::error(404, "NOT_FOUND");
    let there = || Answer::ok(LIST);
    assert_eq!(list(there, absent).unwrap(), ReferrersList::Api(LIST.to_vec()));
    for api in [absent, || Answer::error(405, "UNSUPPORTED"), || Answer::error(403, "DENIED")] {
        assert_eq!(list(api, there).unwrap().bytes(), Some(LIST));
        assert_eq!(list(api, absent).unwrap().bytes(), None);
    }
    let error = list(absent, || Answer::error(403, "DENIED")).unwrap_err();
    assert_eq!(class_of(&error), Class::Network, "{}", render(&error));
}
