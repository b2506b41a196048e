//! Retries of every kind of request: a failure that the next attempt meets again is
//! told at once.

#![allow(clippy::unwrap_used, reason = "a test ends where it cannot go on, helpers included")]

use std::io::{self, Cursor, Read, Write};
use std::net::TcpListener;
use std::time::Duration;

use anyhow::Result;
use base::digest::Digest;
use base::failure::{Class, class_of, render};
use formats::oci::ImageReference;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use reqwest::blocking::Client;
use testing::http::{Answer, BodyDelivery, Fake, encrypted_as, nobody};
use transfer::download::{Downloader, RetryPolicy, proxies};
use transfer::outbox::{SendError, request};
use transfer::registry::{self, NewBlob, Settings};

const CONTENT: &[u8] = b"content";

fn retry() -> RetryPolicy {
    RetryPolicy {
        connect: Duration::from_secs(5),
        read: Duration::from_secs(5),
        attempts: 2,
        pause: Duration::from_millis(1),
        limit: None,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NetworkClient {
    Document,
    File,
    Pull,
    Push,
    Outbox,
}

use NetworkClient::{Document, File, Outbox, Pull, Push};

/// Those that follow redirects, and ask for any URL.
const DOWNLOADS: &[NetworkClient] = &[Document, File];
const REQUESTS: &[NetworkClient] = &[Document, File, Pull, Push];
const ALL: &[NetworkClient] = &[Document, File, Pull, Push, Outbox];

/// A server that has, or is, something wrong.
struct Case {
    name: &'static str,
    url: String,
    authorities: Vec<String>,
    doors: &'static [NetworkClient],
    /// True if it may be another at the next attempt.
    passes: bool,
    says: &'static str,
    /// Keeps the server.
    _fake: Option<Fake>,
}

impl Case {
    fn at(
        name: &'static str,
        url: &str,
        doors: &'static [NetworkClient],
        passes: bool,
        says: &'static str,
    ) -> Self {
        Self { name, url: url.to_owned(), authorities: Vec::new(), doors, passes, says, _fake: None }
    }

    fn served(
        name: &'static str,
        fake: Fake,
        doors: &'static [NetworkClient],
        passes: bool,
        says: &'static str,
    ) -> Self {
        let url = fake.url();
        Self { _fake: Some(fake), ..Self::at(name, &url, doors, passes, says) }
    }
}

/// A server whose certificate is for `name` between these years, and the certificate of its authority.
fn certified(name: &str, from: i32, to: i32) -> (String, String) {
    let authority_key = KeyPair::generate().unwrap();
    let mut authority = CertificateParams::default();
    authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let vouching = authority.self_signed(&authority_key).unwrap().pem();
    let issuer = Issuer::new(authority, authority_key);
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::new([name.to_owned()]).unwrap();
    params.not_before = rcgen::date_time_ymd(from, 1, 1);
    params.not_after = rcgen::date_time_ymd(to, 1, 1);
    let certificate = params.signed_by(&key, &issuer).unwrap().pem();
    let key = key.serialize_pem();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = encrypted_as(stream.unwrap(), &certificate, &key);
            // The client goes away before it asks for something.
            let _ = stream.read(&mut [0; 1]).and_then(|_| stream.write(b""));
        }
    });
    (format!("https://{host}"), vouching)
}

/// The host of a server that answers in clear text whatever it hears.
fn clear() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let host = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ =
                stream.read(&mut [0; 512]).and_then(|_| stream.write(b"HTTP/1.1 400 Bad Request\r\n\r\n"));
        }
    });
    host
}

fn cases() -> Vec<Case> {
    let status = |name, status, passes, says| {
        Case::served(name, Fake::start(move |_| Answer::new(status, b"")), REQUESTS, passes, says)
    };
    let location = |name, to: &'static str, says| {
        let answer = move |_: &_| Answer::new(302, b"").with(&format!("Location: {to}"));
        Case::served(name, Fake::start(answer), DOWNLOADS, false, says)
    };
    let onwards = Fake::start(|request| Answer::new(302, b"").with(&format!("Location: {}x", request.path)));
    let mut cases = vec![
        Case::at("another scheme", "ftp://127.0.0.1/x", DOWNLOADS, false, "it is not an http or https URL"),
        Case::at("a file", "file:///etc/hostname", DOWNLOADS, false, "it is not an http or https URL"),
        Case::at(
            "another scheme of a webhook",
            "ftp://127.0.0.1/x",
            &[Outbox],
            false,
            "URL scheme is not allowed",
        ),
        Case::at("no server", &format!("http://{}", nobody()), ALL, true, "Connection refused"),
        // A resolver says so before the network is up, too.
        Case::at("a name that is not known", "http://server.invalid", ALL, true, "failed to lookup address"),
        status("400", 400, false, "400"),
        status("401", 401, false, "401"),
        status("403", 403, false, "403"),
        status("404", 404, false, "404"),
        status("405", 405, false, "405"),
        status("408", 408, true, "408"),
        status("410", 410, false, "404"),
        status("429", 429, true, "429"),
        status("500", 500, true, "500"),
        status("501", 501, false, "501"),
        status("503", 503, true, "503"),
        status("505", 505, false, "505"),
        status("511", 511, false, "511"),
        location("a redirect to another scheme", "ftp://127.0.0.1/", "is not an http or https URL"),
        location("a redirect in a circle", "/", "redirects in a circle"),
        Case::served("many redirects", onwards, DOWNLOADS, false, "more than 10 redirects are not followed"),
        Case::served(
            "another length",
            Fake::start(|_| Answer::ok(b"longer content")),
            &[File],
            false,
            "has 14 bytes instead of 7",
        ),
        Case::served(
            "a connection that breaks off",
            Fake::start(|_| Answer::ok(CONTENT).in_manner(BodyDelivery::Cut(3))),
            &[Document],
            true,
            "gave up",
        ),
        Case::at("no TLS", &format!("https://{}", clear()), ALL, false, "does not speak TLS"),
    ];
    let certificates = [
        ("an unknown issuer", "127.0.0.1", (2020, 2100), false, false, "UnknownIssuer"),
        ("another name", "elsewhere.example", (2020, 2100), true, false, "not valid for"),
        ("a certificate that has expired", "127.0.0.1", (2020, 2021), true, false, "expired"),
        // Machines begin with a clock that is late.
        ("a certificate that is not valid yet", "127.0.0.1", (2090, 2100), true, true, "not valid yet"),
    ];
    for (name, host, (from, to), trusted, passes, says) in certificates {
        let (url, authority) = certified(host, from, to);
        let authorities = trusted.then_some(authority).into_iter().collect();
        cases.push(Case { authorities, ..Case::at(name, &url, ALL, passes, says) });
    }
    cases
}

/// The error by a door, its class, and whether there were several attempts.
fn try_door(case: &Case, door: NetworkClient) -> (String, Option<Class>, bool) {
    let downloader = || Downloader::trusting(&case.url, retry(), "hint", &case.authorities);
    let host = case.url.split_once("://").unwrap().1.to_owned();
    let client = || {
        let mirrors = format!("mirrors: {{\"{host}\": {{endpoint: [\"{}\"]}}}}", case.url);
        registry::Client::new(Settings {
            registries: serde_saphyr::from_str(&mirrors).unwrap(),
            authorities: case.authorities.clone(),
            retry: retry(),
            ..Settings::default()
        })
    };
    let image: ImageReference =
        format!("{host}/app/web:1").parse().unwrap_or_else(|_| "a.b/c:1".parse().unwrap());
    let result: Result<()> = (|| match door {
        Document => Ok(downloader()?.document(&case.url, 1 << 20).map(drop)?),
        File => {
            let mut file = downloader()?.open(&case.url, Some(CONTENT.len() as u64));
            Ok(file.read_to_end(&mut Vec::new()).map(drop)?)
        }
        Pull => client()?.document(&image).map(drop),
        Push => {
            let open = || -> Result<Box<dyn Read + Send>> { Ok(Box::new(Cursor::new(CONTENT))) };
            let (digest, size) = (Digest::of(CONTENT), CONTENT.len() as u64);
            let blob = NewBlob { digest, size, open: &open, elsewhere: None };
            client()?.put_blob(image.repository(), &blob, &|_| ()).map(drop)
        }
        Outbox => {
            let client =
                request::client(&case.url, &case.authorities, Client::builder).map_err(io::Error::other)?;
            Ok(request::send(client.post(&case.url)).map(drop).map_err(|error| match error {
                SendError::Temporary(why) | SendError::Busy(why, _) => {
                    io::Error::other(format!("{why}; gave up after 2 attempts"))
                }
                SendError::Distrusted(why) | SendError::Refused(why) => io::Error::other(why),
            })?)
        }
    })();
    let error = result.err().unwrap();
    let text = render(&error);
    let again = text.contains("gave up after 2 attempts");
    (text, (door != Outbox).then(|| class_of(&error)), again)
}

#[test]
fn what_the_next_attempt_meets_again_is_told_at_once() {
    let mut wrong = Vec::new();
    for case in cases() {
        for door in case.doors {
            let (text, _, again) = try_door(&case, *door);
            if again != case.passes || !text.contains(case.says) {
                wrong.push(format!("{} by {door:?}, again: {again}: {text}", case.name));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn a_url_of_another_scheme_is_invalid_and_not_the_networks_fault() {
    let case = Case::at("", "ftp://127.0.0.1/x", DOWNLOADS, false, "");
    for door in DOWNLOADS {
        assert_eq!(try_door(&case, *door).1, Some(Class::Invalid), "{door:?}");
    }
}

#[test]
fn a_proxy_that_wants_a_login_is_asked_once() {
    let proxy = Fake::start(|_| Answer::new(407, b""));
    // The other tests' servers are not reached through it.
    let none = "127.0.0.0/8,server.invalid";
    proxies::choose(proxies::Proxies::new(None, Some(&proxy.host), Some(none)).unwrap());
    let case = Case::at("", "https://192.0.2.1", ALL, false, "");
    for (number, door) in ALL.iter().enumerate() {
        let (text, _, again) = try_door(&case, *door);
        assert!(!again && text.contains("the proxy requires a login (407)"), "{door:?}: {text}");
        assert_eq!(proxy.requests("").len(), number + 1, "{door:?}");
    }
}
