//! Registries that redirect: who hears the login, and where a redirect may lead.

use std::sync::Mutex;

use super::*;
use testing::http::AUTHORITY;

/// `user:hunter2`.
const BASIC: &str = "Basic dXNlcjpodW50ZXIy";

fn login(host: &str) -> String {
    format!("configs: {{\"{host}\": {{auth: {{username: user, password: hunter2}}}}}}")
}

fn to(url: &str) -> Answer {
    Answer::new(307, b"").with(&format!("Location: {url}"))
}

fn wanting(challenge: &str) -> Answer {
    Answer::error(401, "UNAUTHORIZED").with(&format!("WWW-Authenticate: {challenge}"))
}

/// A server at another address that redirects each request once to itself and then answers it.
fn storage() -> Fake {
    Fake::at("127.0.0.2", false, |request| match request.path.strip_prefix("/again") {
        Some(path) => plain(&Request { path: path.to_owned(), ..request.clone() }),
        None => to(&format!("/again{}", request.path)),
    })
}

/// A registry that lets in whoever sends `grant`, hands out tokens for the login, and has everything in `storage`.
fn registry(storage: &Fake, grant: &'static str) -> Fake {
    let (own, store) = (Arc::new(Mutex::new(String::new())), storage.url());
    let host = own.clone();
    let fake = Fake::start(move |request| match request.path.as_str() {
        path if path.starts_with("/token") => match request.authorization() {
            BASIC => Answer::ok(br#"{"token": "secret-token"}"#),
            _ => Answer::error(401, "UNAUTHORIZED"),
        },
        path if request.authorization() == grant && path != "/v2/" => to(&format!("{store}{path}")),
        _ if grant == BASIC => wanting("Basic realm=\"x\""),
        _ => wanting(&format!("Bearer realm=\"http://{}/token\"", host.lock().unwrap())),
    });
    own.lock().unwrap().clone_from(&fake.host);
    fake
}

#[test]
fn a_credential_never_reaches_a_second_origin() {
    for grant in [BASIC, "Bearer secret-token"] {
        let storage = storage();
        let registry = registry(&storage, grant);
        let client = client_of(&registry, &login(&registry.host));
        let name = image(&format!("{}/app/web:1", registry.host));
        assert_eq!(client.document(&name).unwrap().bytes, MANIFEST);
        assert_eq!(read(&client, &registry.host, 0).unwrap(), content());
        let asked = storage.requests("");
        assert_eq!(asked.len(), 4, "a manifest and a blob, each over two redirects");
        for request in asked {
            assert_eq!(request.authorization(), "", "{} got {grant}", request.path);
        }
    }
}

#[test]
fn a_redirect_within_the_registry_keeps_the_login() {
    let fake = Fake::start(|request| match (request.path.as_str(), request.authorization()) {
        (_, "") => wanting("Basic realm=\"x\""),
        ("/v2/app/web/manifests/1", BASIC) => to("../../../elsewhere/manifests/1"),
        _ => plain(request),
    });
    let client = client_of(&fake, &login(&fake.host));
    client.document(&image(&format!("{}/app/web:1", fake.host))).unwrap();
    assert_eq!(fake.requests("/v2/elsewhere/manifests/1")[0].authorization(), BASIC);
}

#[test]
fn a_login_is_not_sent_again_once_a_redirect_has_left_the_registry() {
    let own = Arc::new(Mutex::new(String::new()));
    let home = own.clone();
    let away = Fake::at("127.0.0.2", false, move |_| to(&format!("http://{}/back", home.lock().unwrap())));
    let url = away.url();
    let fake = Fake::start(move |request| match (request.path.as_str(), request.authorization()) {
        ("/back", _) => Answer::ok(MANIFEST),
        (path, BASIC) => to(&format!("{url}{path}")),
        _ => wanting("Basic realm=\"x\""),
    });
    own.lock().unwrap().clone_from(&fake.host);
    let client = client_of(&fake, &login(&fake.host));
    assert_eq!(client.document(&image(&format!("{}/app/web:1", fake.host))).unwrap().bytes, MANIFEST);
    assert_eq!(fake.requests("/back")[0].authorization(), "");
}

#[test]
fn a_server_that_a_registry_redirects_to_does_not_decide_where_the_password_goes() {
    let thief = Fake::at("127.0.0.2", false, |_| Answer::ok(br#"{"token": "t"}"#));
    let realm = format!("Bearer realm=\"{}/token\"", thief.url());
    let away = Fake::at("127.0.0.2", false, move |_| wanting(&realm));
    let url = away.url();
    let fake = Fake::start(move |request| match request.authorization() {
        "" => to(&format!("{url}{}", request.path)),
        _ => plain(request),
    });
    let client = client_of(&fake, &login(&fake.host));
    // The registry itself asks for no token; what it refuses is asked for again with the login, at its own address.
    client.document(&image(&format!("{}/app/web:1", fake.host))).unwrap();
    assert!(thief.requests("").is_empty(), "{:?}", thief.requests(""));
    assert!(away.requests("").iter().all(|request| request.authorization().is_empty()));
}

#[test]
fn a_registry_with_tls_is_never_left_for_a_server_without() {
    let storage = Fake::at("127.0.0.2", false, plain);
    let url = storage.url();
    let fake = Fake::with_tls(move |request| match request.path.as_str() {
        "/v2/" => plain(request),
        path => to(&format!("{url}{path}?signature=hush")),
    });
    let trusting = Settings { authorities: vec![AUTHORITY.to_owned()], ..settings("{}") };
    let client = Client::new(trusting).unwrap();
    for error in [
        client.document(&image(&format!("{}/app/web:1", fake.host))).unwrap_err(),
        read(&client, &fake.host, 0).unwrap_err(),
    ] {
        let text = render(&error);
        assert_eq!(class_of(&error), Class::Network, "{text}");
        for part in [&fake.url(), &storage.url(), "without TLS", "next: "] {
            assert!(text.contains(part), "{part} in {text}");
        }
        assert!(!text.contains("hush"), "{text}");
    }
    assert!(storage.requests("").is_empty());
}

#[test]
fn a_token_service_that_redirects_does_not_pass_the_password_on() {
    let other = Fake::at("127.0.0.2", false, |request| match request.path.as_str() {
        "/two" => Answer::ok(br#"{"token": "t"}"#),
        _ => to("/two"),
    });
    let (own, url) = (Arc::new(Mutex::new(String::new())), other.url());
    let host = own.clone();
    let fake = Fake::start(move |request| match (request.path.as_str(), request.authorization()) {
        (path, BASIC) if path.starts_with("/token") => to(&format!("{url}/one")),
        (_, "Bearer t") => plain(request),
        _ => wanting(&format!("Bearer realm=\"http://{}/token\"", host.lock().unwrap())),
    });
    own.lock().unwrap().clone_from(&fake.host);
    let client = client_of(&fake, &login(&fake.host));
    client.document(&image(&format!("{}/app/web:1", fake.host))).unwrap();
    let asked = other.requests("");
    assert_eq!(asked.len(), 2);
    assert!(asked.iter().all(|request| request.authorization().is_empty()), "{asked:?}");
}

#[test]
fn redirects_in_a_circle_or_without_end_are_given_up() {
    for (endless, told) in [(false, "in a circle"), (true, "more than 10 redirects")] {
        let fake = Fake::start(move |request| match (request.path.as_str(), endless) {
            ("/v2/", _) => plain(request),
            (path, true) => to(&format!("{path}x")),
            (path, false) => to(path),
        });
        let client = client_of(&fake, "");
        for error in [
            client.document(&image(&format!("{}/app/web:1", fake.host))).unwrap_err(),
            read(&client, &fake.host, 0).unwrap_err(),
        ] {
            let text = render(&error);
            assert_eq!(class_of(&error), Class::Network, "{text}");
            assert!(text.contains(told) && text.contains(&fake.url()), "{text}");
        }
        assert!(fake.requests("/manifests/").len() <= 11, "{}", fake.requests("/manifests/").len());
    }
}
