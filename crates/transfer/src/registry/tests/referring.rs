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
    assert_eq!(list(there, absent).unwrap(), ReferrersList::Api(vec![LIST.to_vec()]));
    for api in [absent, || Answer::error(405, "UNSUPPORTED"), || Answer::error(403, "DENIED")] {
        assert_eq!(list(api, there).unwrap().pages().collect::<Vec<_>>(), [LIST]);
        assert_eq!(list(api, absent).unwrap().pages().count(), 0);
    }
    let error = list(absent, || Answer::error(403, "DENIED")).unwrap_err();
    assert_eq!(class_of(&error), Class::Network, "{}", render(&error));
}

/// The bodies of the pages of a list whose page with this number, from 0 on, links to `next` of it.
fn pages(next: fn(usize) -> Option<String>) -> anyhow::Result<Vec<Vec<u8>>> {
    let fake = Fake::start(move |request| {
        let Some(list) = request.path.strip_prefix("/v2/app/web/referrers/") else {
            return Answer::ok(b"{}");
        };
        let number = list.split_once("n=").map_or(0, |(_, number)| number.parse().unwrap());
        let answer = Answer::ok(format!("page {number}").as_bytes());
        match next(number) {
            Some(url) => answer.with(&format!("Link: </first>; rel=first, <{url}>; rel=\"next\"")),
            None => answer,
        }
    });
    let image = image(&format!("{}/app/web:1", fake.host));
    let found = client_of(&fake, "").referrers(image.repository(), Digest::of(MANIFEST))?;
    Ok(found.pages().map(<[u8]>::to_vec).collect())
}

fn following(number: usize) -> String {
    format!("/v2/app/web/referrers/x?n={}", number + 1)
}

#[test]
fn every_page_of_a_list_is_read_and_one_of_another_server_or_without_end_is_an_error() {
    let three = pages(|number| (number < 2).then(|| following(number))).unwrap();
    assert_eq!(three, ["page 0", "page 1", "page 2"].map(|page| page.as_bytes().to_vec()));
    for (next, why) in [
        ((|_| Some("http://192.0.2.1/v2/x".to_owned())) as fn(usize) -> Option<String>, "on another server"),
        (|number| Some(following(number)), "more than 64 pages"),
    ] {
        let error = pages(next).unwrap_err();
        assert!(render(&error).contains(why), "{}", render(&error));
    }
}
