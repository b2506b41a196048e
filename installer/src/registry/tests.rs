//! Against a small registry in this process: tokens that run out, redirects, refusals, broken connections.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::*;
use crate::failure::{class_of, render};

const PASSWORD: &str = "secret-of-the-tests";

/// One request: its first line and its headers in lower case.
#[derive(Clone, Debug)]
struct Request {
    line: String,
    headers: BTreeMap<String, String>,
}

/// What a request gets: status, further headers, body; and after how many bytes of it the connection ends.
struct Answer {
    status: &'static str,
    headers: String,
    body: Vec<u8>,
    cut: Option<usize>,
}

impl Answer {
    fn new(status: &'static str, headers: &str, body: &[u8]) -> Self {
        Self { status, headers: headers.into(), body: body.to_vec(), cut: None }
    }
}

struct Server {
    host: String,
    requests: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    /// Answers each request with what `answer` says, which hears the request and the number of its like before it.
    fn start(answer: impl Fn(&Request, usize, &str) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let requests = Arc::new(Mutex::new(Vec::<Request>::new()));
        let (log, own, answer) = (Arc::clone(&requests), host.clone(), Arc::new(answer));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (log, own, answer) = (Arc::clone(&log), own.clone(), Arc::clone(&answer));
                std::thread::spawn(move || drop(serve(stream.unwrap(), &log, &own, answer.as_ref())));
            }
        });
        Self { host, requests }
    }

    fn asked(&self, what: &str) -> Vec<Request> {
        let requests = self.requests.lock().unwrap();
        requests.iter().filter(|request| request.line.contains(what)).cloned().collect()
    }
}

fn serve(
    mut stream: TcpStream,
    log: &Mutex<Vec<Request>>,
    own: &str,
    answer: &(dyn Fn(&Request, usize, &str) -> Answer + Send + Sync),
) -> std::io::Result<()> {
    let mut lines = BufReader::new(stream.try_clone()?).lines();
    let line = lines.next().unwrap_or_else(|| Ok(String::new()))?;
    let mut headers = BTreeMap::new();
    for line in lines {
        let line = line?;
        let Some((name, value)) = line.split_once(": ") else { break };
        headers.insert(name.to_lowercase(), value.to_owned());
    }
    let request = Request { line, headers };
    let number = {
        let mut log = log.lock().unwrap();
        let number = log.iter().filter(|before| before.line == request.line).count();
        log.push(request.clone());
        number
    };
    let Answer { status, headers, mut body, cut } = answer(&request, number, own);
    let mut status = status.to_owned();
    let mut headers = headers;
    let start = request
        .headers
        .get("range")
        .and_then(|range| range.strip_prefix("bytes=")?.trim_end_matches('-').parse::<usize>().ok());
    if let Some(start) = start.filter(|_| status.starts_with("200")) {
        status = "206 Partial Content".into();
        headers.push_str(&format!("Content-Range: bytes {start}-{}/{}\r\n", body.len() - 1, body.len()));
        body.drain(..start);
    }
    write!(
        stream,
        "HTTP/1.1 {status}\r\n{headers}Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    )?;
    stream.write_all(&body[..cut.unwrap_or(body.len()).min(body.len())])
}

fn patience() -> Patience {
    Patience {
        connect: Duration::from_secs(5),
        read: Duration::from_secs(5),
        attempts: 3,
        pause: Duration::from_millis(1),
        limit: None,
    }
}

fn client(registries: &str) -> Client {
    Client::new(Settings {
        registries: Registries::parse(registries).unwrap(),
        authorities: Vec::new(),
        docker_config: false,
        patience: patience(),
        rate: None,
    })
    .unwrap()
}

/// A client that finds the registry `a.b` at this server.
fn of(server: &Server) -> Client {
    let host = &server.host;
    client(&format!(
        r#"{{"mirrors": {{"a.b": {{"endpoint": ["http://{host}"]}}}},
            "configs": {{"{host}": {{"auth": {{"username": "u", "password": "{PASSWORD}"}}}}}}}}"#
    ))
}

fn image(text: &str) -> ImageReference {
    text.parse().unwrap()
}

fn manifest() -> Vec<u8> {
    br#"{"schemaVersion": 2, "layers": []}"#.to_vec()
}

fn blob() -> Vec<u8> {
    (0..200_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

fn read(client: &Client, offset: u64) -> Result<Vec<u8>> {
    let (bytes, mut got) = (blob(), Vec::new());
    let repository = image("a.b/c:1").repository().clone();
    client.blob(&repository, Digest::of(&bytes), bytes.len() as u64, offset)?.read_to_end(&mut got)?;
    Ok(got)
}

/// A registry with tokens: each is good for `uses` requests.
fn with_tokens(uses: usize) -> Server {
    let spent = Mutex::new(BTreeMap::<String, usize>::new());
    let issued = Mutex::new(0);
    Server::start(move |request, _, own| {
        if request.line.starts_with("GET /token") {
            let mut issued = issued.lock().unwrap();
            *issued += 1;
            return Answer::new("200 OK", "", format!(r#"{{"token": "t{issued}"}}"#).as_bytes());
        }
        let challenge = format!("WWW-Authenticate: Bearer realm=\"http://{own}/token\",service=\"s\"\r\n");
        let token = request.headers.get("authorization").and_then(|value| value.strip_prefix("Bearer "));
        let mut spent = spent.lock().unwrap();
        let uses_left =
            token.map(|token| spent.entry(token.to_owned()).or_insert(0)).filter(|used| **used < uses);
        let Some(used) = uses_left else {
            return Answer::new(
                "401 Unauthorized",
                &challenge,
                br#"{"errors":[{"code":"UNAUTHORIZED","message":"no"}]}"#,
            );
        };
        *used += 1;
        match request.line.contains("/manifests/") {
            true => Answer::new("200 OK", "", &manifest()),
            false => Answer::new("200 OK", "", &blob()),
        }
    })
}

#[test]
fn a_token_is_had_with_the_password_and_used_for_everything() {
    let server = with_tokens(100);
    let client = of(&server);
    let fetched = client.document(&image("a.b/c:1")).unwrap();
    assert_eq!((fetched.digest, fetched.bytes), (Digest::of(&manifest()), manifest()));
    assert!(read(&client, 0).unwrap() == blob());
    assert!(read(&client, 199_999).unwrap() == blob()[199_999..]);
    let tokens = server.asked("GET /token");
    assert!(tokens.iter().all(|request| request.headers["authorization"].starts_with("Basic ")));
    assert!(tokens.len() <= 2, "one for each half: {}", tokens.len());
    for request in server.asked("GET /v2/c/") {
        assert!(!request.headers.get("authorization").is_some_and(|value| value.starts_with("Basic ")));
    }
}

#[test]
fn a_token_that_has_run_out_is_renewed_once_for_each_transfer() {
    let server = with_tokens(1);
    let client = of(&server);
    for _ in 0..3 {
        assert!(read(&client, 0).unwrap() == blob());
    }
    assert!(server.asked("GET /token").len() >= 3);
}

#[test]
fn a_wrong_password_is_told_from_a_missing_tag_and_neither_is_tried_again() {
    let denies = with_tokens(0);
    let error = of(&denies).document(&image("a.b/c:1")).unwrap_err();
    let told = render(&error);
    assert!(class_of(&error) == Class::Network && told.contains("a.b/c:1"), "{told}");
    assert!(told.contains("docker login a.b") && !told.contains(PASSWORD), "{told}");
    assert!(read(&of(&denies), 0).is_err());
    let lacks = Server::start(|_, _, _| {
        Answer::new(
            "404 Not Found",
            "",
            br#"{"errors":[{"code":"MANIFEST_UNKNOWN","message":"manifest unknown"}]}"#,
        )
    });
    let error = of(&lacks).document(&image("a.b/c:2")).unwrap_err();
    let told = render(&error);
    assert!(told.contains("no such image") && told.contains("Check the name, the tag"), "{told}");
    assert_eq!(lacks.asked("/manifests/").len(), 1);
    assert!(render(&read(&of(&lacks), 0).unwrap_err()).contains("no such image or blob"));
}

#[test]
fn trouble_that_passes_is_borne_with_and_a_server_that_says_when_is_obeyed() {
    let server = Server::start(|request, number, _| match (request.line.contains("/manifests/"), number) {
        (true, 0) => Answer::new("503 Later", "", b"busy"),
        (true, _) => Answer::new("200 OK", "", &manifest()),
        (false, 0) if request.line.contains("/blobs/") => {
            Answer::new("429 Too Many Requests", "Retry-After: 1\r\n", b"")
        }
        (false, 1) => Answer { cut: Some(90_000), ..Answer::new("200 OK", "", &blob()) },
        _ => Answer::new("200 OK", "", &blob()),
    });
    let client = of(&server);
    assert_eq!(client.document(&image("a.b/c:1")).unwrap().bytes, manifest());
    let began = Instant::now();
    assert!(read(&client, 0).unwrap() == blob());
    assert!(began.elapsed() >= Duration::from_secs(1));
    let last = server.asked("/blobs/").pop().unwrap();
    assert_eq!(last.headers["range"], "bytes=90000-");
}

#[test]
fn another_host_to_which_a_blob_is_redirected_does_not_see_who_asks() {
    let store = Server::start(|_, _, _| Answer::new("200 OK", "", &blob()));
    let location = format!("Location: http://{}/elsewhere\r\n", store.host);
    let server = Server::start(move |request, _, _| {
        if request.line.contains("/v2/ ") {
            return Answer::new("401 Unauthorized", "WWW-Authenticate: Basic realm=\"r\"\r\n", b"");
        }
        Answer::new("307 Temporary Redirect", &location, b"")
    });
    assert!(read(&of(&server), 0).unwrap() == blob());
    assert!(server.asked("/blobs/")[0].headers["authorization"].starts_with("Basic "));
    let seen = store.asked("GET /elsewhere");
    assert!(!seen.is_empty() && seen.iter().all(|request| !request.headers.contains_key("authorization")));
}

#[test]
fn a_mirror_that_lacks_an_image_or_does_not_answer_leads_to_the_next() {
    let lacks = Server::start(|_, _, _| Answer::new("404 Not Found", "", b"{}"));
    let has = Server::start(|request, _, _| match request.line.contains("/v2/hub/x/c/manifests/1") {
        true => Answer::new("200 OK", "", &manifest()),
        false => Answer::new("404 Not Found", "", b""),
    });
    let registries = format!(
        r#"{{"mirrors": {{"a.b": {{"endpoint": ["http://127.0.0.1:1", "http://{}", "http://{}/v2/hub"],
             "rewrite": {{"^c$": "x/c"}}}}}}}}"#,
        lacks.host, has.host
    );
    assert_eq!(client(&registries).document(&image("a.b/c:1")).unwrap().bytes, manifest());
    let none = format!(
        r#"{{"mirrors": {{"a.b": {{"endpoint": ["http://127.0.0.1:1", "http://{}"]}}}}}}"#,
        lacks.host
    );
    let told = render(&client(&none).document(&image("a.b/c:1")).unwrap_err());
    for part in ["http://127.0.0.1:1", &lacks.host, "https://a.b"] {
        assert!(told.contains(part), "{told}");
    }
}

#[test]
fn a_document_with_another_digest_is_damaged() {
    let server = Server::start(|_, _, _| Answer::new("200 OK", "", &manifest()));
    let good = image("a.b/c:1").repository().with_digest(Digest::of(&manifest()));
    assert!(of(&server).document(&good).is_ok());
    let other = image("a.b/c:1").repository().with_digest(Digest::of(b"x"));
    let error = of(&server).document(&other).unwrap_err();
    assert_eq!(class_of(&error), Class::Verification, "{}", render(&error));
    let lies = Server::start(|_, _, _| {
        let header = format!("Docker-Content-Digest: {}\r\n", Digest::of(b"x").oci());
        Answer::new("200 OK", &header, &manifest())
    });
    let error = of(&lies).document(&image("a.b/c:1")).unwrap_err();
    assert_eq!(class_of(&error), Class::Verification, "{}", render(&error));
}

#[test]
fn settings_that_cannot_be_used_are_refused() {
    for (registries, told) in [
        (r#"{"mirrors": {"a.b": {"endpoint": ["http://x"], "rewrite": {"(": "y"}}}}"#, "no expression"),
        (r#"{"mirrors": {"a.b": {"endpoint": ["ftp://x"]}}}"#, "no HTTP URL"),
        (r#"{"configs": {"a.b": {"tls": {"cert_file": "/x"}}}}"#, "client certificate"),
    ] {
        let settings = Settings {
            registries: Registries::parse(registries).unwrap(),
            authorities: Vec::new(),
            docker_config: false,
            patience: patience(),
            rate: None,
        };
        let told_now = render(&Client::new(settings).unwrap_err());
        assert!(told_now.contains(told), "{told_now}");
    }
}
