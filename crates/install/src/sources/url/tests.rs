//! A configuration behind a URL.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::time::{Duration, Instant};

use super::{fetch, retry};
use base::digest::Digest;
use base::failure::{Class, class_of, render};
use model::config::sources::{SourceKind, SourceRequest};
use testing::http::{AUTHORITY, Answer, BodyDelivery, Fake, encrypted};
use transfer::download::RetryPolicy;

const DOCUMENT: &str = "os: {hostname: fetched}\n";
/// Sends one answer for each connection, the last one for all further ones; returns the server's host and port.
fn serve(answers: Vec<String>, tls: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let answer = answers[number.min(answers.len() - 1)].clone();
            let stream = stream.unwrap();
            std::thread::spawn(move || {
                // A client that rejects the certificate closes the connection.
                let _ = if tls {
                    reply(&mut encrypted(stream), &answer)
                } else {
                    reply(&mut { stream }, &answer)
                };
            });
        }
    });
    address
}

fn reply(stream: &mut (impl Read + Write), answer: &str) -> std::io::Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    stream.write_all(answer.as_bytes())?;
    stream.flush()
}

fn found(body: &str) -> String {
    let length = body.len();
    format!("HTTP/1.1 200 OK\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}")
}

fn status(status: &str) -> String {
    format!("HTTP/1.1 {status}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
}

fn request(url: String) -> SourceRequest {
    SourceRequest { url, named_by: "kernel command line".into(), sha256: None, authorities: vec![] }
}

#[test]
fn an_answer_without_a_configuration_is_the_error_of_an_empty_file_and_names_the_url_without_its_query() {
    for body in ["", "\n", "---\n", "# nothing yet\n", "...\n"] {
        let host = serve(vec![found(body)], false);
        let error = fetch(&request(format!("http://{host}/node.yaml?key=secret")), quick()).unwrap_err();
        let text = render(&error);
        assert_eq!(class_of(&error), Class::Invalid, "{body:?}: {text}");
        assert!(text.contains(&format!("http://{host}/node.yaml")), "{text}");
        assert!(text.contains("the document is empty"), "{text}");
        assert!(!text.contains("secret"), "{text}");
    }
}

fn quick() -> RetryPolicy {
    RetryPolicy { attempts: 3, pause: Duration::from_millis(5), read: Duration::from_secs(5), ..retry() }
}

#[test]
fn a_document_comes_however_late_the_server_is_ready() {
    let answers = vec![status("503 Not yet"), status("500 No"), found(DOCUMENT)];
    let url = format!("http://{}/a.yaml", serve(answers, false));
    let request =
        SourceRequest { sha256: Some(Digest::of(DOCUMENT.as_bytes()).to_string()), ..request(url.clone()) };
    let document = fetch(&request, quick()).unwrap();
    assert_eq!((document.kind(), document.name()), (SourceKind::Url, url.as_str()));
    let combined = model::config::sources::combine(&[document]).unwrap();
    assert_eq!(combined.config.os.hostname.as_deref(), Some("fetched"));
}

#[test]
fn a_named_document_that_cannot_be_had_is_an_error_of_its_class() {
    let other = Some(Digest::of(b"other").to_string());
    for (answer, sha256, class) in [
        (status("404 Not Found"), None, Class::Network),
        (status("500 No"), None, Class::Network),
        (found(DOCUMENT), other, Class::Verification),
        (found(&"#".repeat((1 << 20) + 1)), None, Class::Invalid),
    ] {
        let url = format!("http://user:hunter2@{}/a.yaml", serve(vec![answer.clone()], false));
        let error = fetch(&SourceRequest { sha256, ..request(url) }, quick()).unwrap_err();
        let told = render(&error);
        assert_eq!(class_of(&error), class, "{told}");
        assert!(told.contains("which the kernel command line names") && told.contains("next: "), "{told}");
        assert!(!told.contains("hunter2"), "{told}");
    }
}

#[test]
fn there_is_a_limit_for_all_attempts_together() {
    let url = format!("http://{}/a.yaml", serve(vec![status("503 Not yet")], false));
    let begin = Instant::now();
    let limit = Some(Duration::from_millis(200));
    let retry = RetryPolicy { attempts: 1000, pause: Duration::from_millis(40), limit, ..quick() };
    let error = fetch(&request(url), retry).unwrap_err();
    assert_eq!(class_of(&error), Class::Network);
    assert!(begin.elapsed() < Duration::from_secs(20));
}

#[test]
fn an_authority_that_is_given_is_trusted_and_nobody_else() {
    let url = format!("https://{}/a.yaml", serve(vec![found(DOCUMENT)], true));
    let error = fetch(&request(url.clone()), quick()).unwrap_err();
    assert_eq!(class_of(&error), Class::Network);
    let trusting = SourceRequest { authorities: vec![AUTHORITY.to_owned()], ..request(url) };
    assert_eq!(fetch(&trusting, quick()).unwrap().kind(), SourceKind::Url);
}

#[test]
fn a_document_that_changes_while_its_transfer_breaks_is_never_a_mixture() {
    let old = "os:\n  hostname: old-name\ninstall:\n  # the old one ends here\n";
    let new = "os:\n  hostname: new-name\ninstall:\n  # the new one goes on\n  poweroff: true\n";
    // What the server answers for the second version when it is asked for the rest of the first one.
    for second in ["200", "206", "206 without a validator", "206 weak"] {
        let server = Fake::start(move |request| match (request.before, second) {
            (0, "206 weak") => {
                Answer::ok(old.as_bytes()).with("ETag: W/\"1\"").in_manner(BodyDelivery::Cut(45))
            }
            (0, _) => Answer::ok(old.as_bytes()).with("ETag: \"1\"").in_manner(BodyDelivery::Cut(45)),
            (_, "200") => Answer::ok(new.as_bytes()).with("ETag: \"2\""),
            (_, "206") => Answer::range(new.as_bytes(), request).with("ETag: \"2\""),
            (_, "206 weak") => Answer::range(new.as_bytes(), request).with("ETag: W/\"1\""),
            _ => Answer::range(new.as_bytes(), request),
        });
        let document = fetch(&request(format!("{}/a.yaml", server.url())), quick()).unwrap();
        let config = model::config::sources::combine(&[document]).unwrap().config;
        assert_eq!(config.os.hostname.as_deref(), Some("new-name"), "{second}");
        assert!(config.install.poweroff, "{second}");
    }
}

#[test]
fn a_document_over_https_is_not_taken_from_where_there_is_no_tls() {
    let plain = Fake::start(|_| Answer::ok(DOCUMENT.as_bytes()));
    let to = plain.url();
    let server = Fake::with_tls(move |request| match request.path.as_str() {
        "/a.yaml" => Answer::new(302, b"").with("Location: /b.yaml"),
        _ => Answer::new(301, b"").with(&format!("Location: {to}/c.yaml?signature=hush")),
    });
    let request = SourceRequest {
        authorities: vec![AUTHORITY.to_owned()],
        ..request(format!("{}/a.yaml", server.url()))
    };
    let error = fetch(&request, quick()).unwrap_err();
    let text = render(&error);
    assert_eq!(class_of(&error), Class::Network, "{text}");
    for part in [&format!("{}/a.yaml", server.url()), &plain.url(), "without TLS", "next: "] {
        assert!(text.contains(part), "{part} in {text}");
    }
    assert!(!text.contains("hush") && plain.requests("").is_empty(), "{text}");
}

#[test]
fn the_login_of_a_url_stays_with_its_server_over_any_number_of_redirects() {
    let other = Fake::at("127.0.0.2", false, |request| match request.path.as_str() {
        "/two" => Answer::ok(DOCUMENT.as_bytes()),
        _ => Answer::new(302, b"").with("Location: /two"),
    });
    let to = other.url();
    let server = Fake::start(move |request| match request.path.as_str() {
        "/a.yaml" => Answer::new(302, b"").with("Location: /b.yaml"),
        _ => Answer::new(302, b"").with(&format!("Location: {to}/one")),
    });
    fetch(&request(format!("http://user:hunter2@{}/a.yaml", server.host)), quick()).unwrap();
    let told = |server: &Fake| -> Vec<String> {
        server.requests("").iter().map(|request| request.authorization().to_owned()).collect()
    };
    assert_eq!(told(&server), ["Basic dXNlcjpodW50ZXIy"; 2]);
    assert_eq!(told(&other), [""; 2]);
}
