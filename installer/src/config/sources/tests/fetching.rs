//! A configuration behind a URL.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::super::url::{fetch, patience};
use super::super::{Kind, Request};
use crate::digest::Digest;
use crate::download::Patience;
use crate::failure::{Class, class_of, render};

const DOCUMENT: &str = "os: {hostname: fetched}\n";
/// Made for this test: an authority, and a server at 127.0.0.1 that it vouches for.
const AUTHORITY: &str = include_str!("../fixtures/ca.pem");
const SERVER: &[u8] = include_bytes!("../fixtures/server.pem");
const KEY: &[u8] = include_bytes!("../fixtures/server.key");

/// Answers each connection in turn, the last answer for all further ones; returns the server's host and port.
fn serve(answers: Vec<String>, tls: bool) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for (number, stream) in listener.incoming().enumerate() {
            let answer = answers[number.min(answers.len() - 1)].clone();
            let stream = stream.unwrap();
            std::thread::spawn(move || {
                // A client that does not like the certificate goes away.
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

fn encrypted(stream: std::net::TcpStream) -> impl Read + Write {
    let chain = CertificateDer::pem_slice_iter(SERVER).map(Result::unwrap).collect();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config =
        rustls::ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let key = PrivateKeyDer::from_pem_slice(KEY).unwrap();
    let config = config.with_no_client_auth().with_single_cert(chain, key).unwrap();
    rustls::StreamOwned::new(rustls::ServerConnection::new(Arc::new(config)).unwrap(), stream)
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

fn request(url: String) -> Request {
    Request { url, named_by: "kernel command line".into(), sha256: None, authorities: vec![] }
}

fn quick() -> Patience {
    Patience { attempts: 3, pause: Duration::from_millis(5), read: Duration::from_secs(5), ..patience() }
}

#[test]
fn a_document_comes_however_late_the_server_is_ready() {
    let answers = vec![status("503 Not yet"), status("500 No"), found(DOCUMENT)];
    let url = format!("http://{}/a.yaml", serve(answers, false));
    let request =
        Request { sha256: Some(Digest::of(DOCUMENT.as_bytes()).to_string()), ..request(url.clone()) };
    let document = fetch(&request, quick()).unwrap();
    assert_eq!((document.kind(), document.name()), (Kind::Url, url.as_str()));
    let combined = super::combine(&[document]).unwrap();
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
        let error = fetch(&Request { sha256, ..request(url) }, quick()).unwrap_err();
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
    let patience = Patience { attempts: 1000, pause: Duration::from_millis(40), limit, ..quick() };
    let error = fetch(&request(url), patience).unwrap_err();
    assert_eq!(class_of(&error), Class::Network);
    assert!(begin.elapsed() < Duration::from_secs(20));
}

#[test]
fn an_authority_that_is_given_is_trusted_and_nobody_else() {
    let url = format!("https://{}/a.yaml", serve(vec![found(DOCUMENT)], true));
    let error = fetch(&request(url.clone()), quick()).unwrap_err();
    assert_eq!(class_of(&error), Class::Network);
    let trusting = Request { authorities: vec![AUTHORITY.to_owned()], ..request(url) };
    assert_eq!(fetch(&trusting, quick()).unwrap().kind(), Kind::Url);
}
