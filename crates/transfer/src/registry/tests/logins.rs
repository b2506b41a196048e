//! Registries that want to know who asks.

use std::fs;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::*;

/// `user:hunter2`.
const BASIC: &str = "Basic dXNlcjpodW50ZXIy";

fn login(host: &str) -> String {
    format!("configs: {{\"{host}\": {{auth: {{username: user, password: hunter2}}}}}}")
}

/// A registry that gives tokens to `user`, each good for `lives` requests, and what it was told in its token requests.
fn tokens(lives: usize) -> (Fake, Arc<Mutex<Vec<String>>>) {
    let own = Arc::new(Mutex::new(String::new()));
    let (issued, used) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let asked = Arc::<Mutex<Vec<String>>>::default();
    let (host, log) = (own.clone(), asked.clone());
    let fake = Fake::start(move |request| {
        if request.path.starts_with("/token") {
            log.lock().unwrap().push(format!("{} {}", request.authorization(), request.path));
            if request.authorization() != BASIC {
                return Answer::error(401, "UNAUTHORIZED");
            }
            used.store(0, Ordering::SeqCst);
            let number = issued.fetch_add(1, Ordering::SeqCst) + 1;
            return Answer::ok(format!(r#"{{"token":"secret-token-{number}","expires_in":300}}"#).as_bytes());
        }
        let valid = format!("Bearer secret-token-{}", issued.load(Ordering::SeqCst));
        let fits = request.authorization() == valid && used.fetch_add(1, Ordering::SeqCst) < lives;
        if fits {
            return plain(request);
        }
        let host = host.lock().unwrap().clone();
        let challenge =
            format!("WWW-Authenticate: Bearer realm=\"http://{host}/token\",service=\"here\",scope=\"x\"");
        Answer::error(401, "UNAUTHORIZED").with(&challenge)
    });
    own.lock().unwrap().clone_from(&fake.host);
    (fake, asked)
}

#[test]
fn a_token_is_fetched_once_for_a_repository_and_used_for_all_of_it() {
    let (fake, asked) = tokens(usize::MAX);
    let client = client_of(&fake, &login(&fake.host));
    client.document(&image(&format!("{}/app/web:1", fake.host))).unwrap();
    assert_eq!(read(&client, &fake.host, 0).unwrap(), content());
    assert_eq!(read(&client, &fake.host, 5).unwrap(), content()[5..]);
    let asked = asked.lock().unwrap();
    assert_eq!(*asked, [format!("{BASIC} /token?scope=repository%3Aapp%2Fweb%3Apull&service=here")]);
}

#[test]
fn a_token_that_expires_is_renewed_in_the_middle_of_everything() {
    // Each serves for a single request.
    let (fake, asked) = tokens(1);
    let client = client_of(&fake, &login(&fake.host));
    let name = image(&format!("{}/app/web:1", fake.host));
    for _ in 0..2 {
        client.document(&name).unwrap();
        assert_eq!(read(&client, &fake.host, 0).unwrap(), content());
    }
    assert_eq!(asked.lock().unwrap().len(), 4);
}

#[test]
fn a_token_that_never_serves_is_renewed_once() {
    let (fake, asked) = tokens(0);
    let client = client_of(&fake, &login(&fake.host));
    for error in [
        client.document(&image(&format!("{}/app/web:1", fake.host))).unwrap_err(),
        read(&client, &fake.host, 0).unwrap_err(),
    ] {
        let text = render(&error);
        assert_eq!(class_of(&error), Class::Network, "{text}");
        assert!(text.contains("does not accept the user name and the password (401)"), "{text}");
    }
    assert_eq!(asked.lock().unwrap().len(), 3);
}

#[test]
fn a_wrong_password_is_said_to_be_wrong_and_is_not_shown() {
    for wrong in ["user", "nobody"] {
        let (fake, asked) = tokens(9);
        let auth =
            format!("configs: {{\"{}\": {{auth: {{username: {wrong}, password: hunter3}}}}}}", fake.host);
        let client = client_of(&fake, &auth);
        let text = render(&client.document(&image(&format!("{}/app/web:1", fake.host))).unwrap_err());
        assert!(text.contains("does not accept the user name and the password"), "{text}");
        assert!(text.contains(&format!("registries.configs.\"{}\".auth", fake.host)), "{text}");
        assert!(!text.contains("hunter") && !format!("{client:?}").contains("hunter"), "{text} {client:?}");
        assert!(!text.contains("Check the name"), "{text}");
        // Once: an account is not locked by tries of a wrong password.
        assert_eq!(asked.lock().unwrap().len(), 1);
    }
}

#[test]
fn without_a_login_the_way_to_one_is_told() {
    let (fake, _) = tokens(9);
    let host = &fake.host;
    let directory = tempfile::tempdir().unwrap();
    let mirrors = format!("mirrors: {{\"{host}\": {{endpoint: [\"http://{host}\"]}}}}");
    let client = Client::with_docker(settings(&mirrors), Some(directory.path().into())).unwrap();
    let text = render(&client.document(&image(&format!("{host}/app/web:1"))).unwrap_err());
    assert!(text.contains("requires a login") && text.contains(&format!("docker login {host}")), "{text}");
}

#[test]
fn a_token_service_with_a_bad_day_is_asked_again() {
    let own = Arc::new(Mutex::new(String::new()));
    let host = own.clone();
    let fake = Fake::start(move |request| match request.path.split('?').next().unwrap() {
        "/token" if request.before < 2 => Answer::new(503, b"busy"),
        "/token" => Answer::ok(br#"{"access_token":"t"}"#),
        _ if request.authorization() == "Bearer t" => plain(request),
        _ => {
            let realm = format!("WWW-Authenticate: Bearer realm=\"http://{}/token\"", host.lock().unwrap());
            Answer::error(401, "UNAUTHORIZED").with(&realm)
        }
    });
    own.lock().unwrap().clone_from(&fake.host);
    let client = client_of(&fake, &login(&fake.host));
    client.document(&image(&format!("{}/app/web:1", fake.host))).unwrap();
}

#[test]
fn a_password_goes_to_the_registry_and_not_to_where_it_redirects() {
    let store = Fake::start(plain);
    let other = store.url();
    let fake = Fake::start(move |request| match request.authorization() {
        BASIC if request.path.contains("/blobs/") => {
            Answer::new(307, b"").with(&format!("Location: {other}{}", request.path))
        }
        BASIC => plain(request),
        _ => Answer::error(401, "UNAUTHORIZED").with("WWW-Authenticate: Basic realm=\"x\""),
    });
    let client = client_of(&fake, &login(&fake.host));
    client.document(&image(&format!("{}/app/web:1", fake.host))).unwrap();
    assert_eq!(read(&client, &fake.host, 7).unwrap(), content()[7..]);
    let asked = store.requests("/blobs/");
    assert_eq!((asked.len(), asked[0].authorization(), asked[0].header("range")), (1, "", Some("bytes=7-")));
    assert_eq!(fake.requests("/blobs/")[0].authorization(), BASIC);
}

#[test]
fn a_login_that_is_wanted_for_some_repositories_only_is_given() {
    let fake = Fake::start(|request| match (request.path.as_str(), request.authorization()) {
        ("/v2/", _) | (_, BASIC) => plain(request),
        _ => Answer::error(401, "UNAUTHORIZED").with("WWW-Authenticate: Basic realm=\"x\""),
    });
    let client = client_of(&fake, &login(&fake.host));
    assert_eq!(read(&client, &fake.host, 0).unwrap(), content());
    client.document(&image(&format!("{}/app/other:1", fake.host))).unwrap();
}

#[test]
fn the_address_that_a_registry_redirects_to_is_not_shown() {
    let elsewhere = super::fake::nobody();
    let fake = Fake::start(move |request| match request.path.contains("/blobs/") {
        true => Answer::new(307, b"").with(&format!("Location: http://{elsewhere}/x?signature=hunter2")),
        false => plain(request),
    });
    let text = render(&read(&client_of(&fake, ""), &fake.host, 0).unwrap_err());
    assert!(text.contains("refused") && !text.contains("hunter2"), "{text}");
}

#[test]
fn a_mirror_does_not_get_the_login_of_the_registry() {
    let fake = Fake::start(|request| match request.authorization() {
        "" => Answer::error(401, "UNAUTHORIZED").with("WWW-Authenticate: Basic realm=\"x\""),
        _ => plain(request),
    });
    let yaml =
        format!("mirrors: {{\"localhost:1\": {{endpoint: [\"{}\"]}}}}\n{}", fake.url(), login("localhost:1"));
    let client = Client::new(settings(&yaml)).unwrap();
    client.document(&image("localhost:1/app/web:1")).unwrap_err();
    assert!(!fake.requests("").is_empty());
    assert!(fake.requests("").iter().all(|request| request.authorization().is_empty()));
}

/// A client for a registry that wants `user` and `hunter2`, and takes them from this configuration of docker.
fn with_docker(config: &str) -> anyhow::Result<Vec<u8>> {
    let fake = Fake::start(|request| match request.authorization() {
        BASIC => plain(request),
        _ => Answer::error(401, "UNAUTHORIZED").with("WWW-Authenticate: Basic realm=\"x\""),
    });
    let host = &fake.host;
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("config.json"), config.replace("HOST", host)).unwrap();
    let mirrors = format!("mirrors: {{\"{host}\": {{endpoint: [\"http://{host}\"]}}}}");
    let client = Client::with_docker(settings(&mirrors), Some(directory.path().into())).unwrap();
    client.document(&image(&format!("{host}/app/web:1")))?;
    read(&client, host, 0)
}

#[test]
fn the_login_of_docker_is_used() {
    for config in [
        r#"{"auths": {"HOST": {"auth": "dXNlcjpodW50ZXIy"}}}"#,
        r#"{"auths": {"https://HOST": {"username": "user", "password": "hunter2"}}}"#,
        r#"{"auths": {"HOST": {"auth": "dXNlcjpodW50ZXIy"}}, "credHelpers": {"other.example.org": "missing"}}"#,
    ] {
        assert_eq!(with_docker(config).unwrap(), content(), "{config}");
    }
}

#[test]
fn a_login_of_docker_that_cannot_be_used_is_an_error_that_says_why() {
    for (config, part) in [
        (r#"{"credHelpers": {"HOST": "nowhere"}}"#, "docker-credential-nowhere cannot be started"),
        (r#"{"credsStore": "nowhere"}"#, "docker-credential-nowhere cannot be started"),
        (r#"{"auths": {"HOST": {"identitytoken": "hunter2"}}}"#, "identity token"),
        (r#"{"auths": {"HOST": {"auth": "hunter2"}}}"#, "the login is not valid"),
        (r#"{"auths": "hunter2"}"#, "the login is not valid"),
        ("{hunter2", "line 1"),
    ] {
        let error = with_docker(config).unwrap_err();
        let text = render(&error);
        assert_eq!(class_of(&error), Class::Network, "{config}: {text}");
        assert!(text.contains(part) && text.contains("config.json") && !text.contains("hunter2"), "{text}");
    }
}

#[test]
fn a_login_that_is_not_one_and_a_client_certificate_are_refused() {
    for (config, part) in [
        ("auth: {auth: aHVudGVyMg==}", "base64 form of user:password"),
        ("auth: {identity_token: hunter2}", "identity tokens"),
        ("tls: {cert_file: /c, key_file: /k}", "client certificates"),
        ("tls: {ca_file: /nowhere/ca.pem}", "/nowhere/ca.pem"),
        ("tls: {ca_file: /etc/hostname}", "no certificate"),
    ] {
        let yaml = format!("configs: {{\"localhost:1\": {{{config}}}}}");
        let client = Client::new(settings(&yaml)).unwrap();
        let error = client.document(&image("localhost:1/app/web:1")).unwrap_err();
        let text = render(&error);
        assert_eq!(class_of(&error), Class::Invalid, "{text}");
        assert!(text.contains(part) && text.contains("localhost:1") && !text.contains("hunter2"), "{text}");
    }
}
