//! A small HTTP server that a test tells what to answer, with or without TLS, at any address of the loopback network.
//! The tests of everything that transfers over HTTP use it.

use std::io::{self, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// An authority (PEM) that vouches for servers with TLS at 127.0.0.1; made for these tests.
pub const AUTHORITY: &str = include_str!("../fixtures/ca.pem");
/// The certificate (PEM) of such a server.
pub const CERTIFICATE: &str = include_str!("../fixtures/server.pem");
/// Its key (PEM).
pub const KEY: &str = include_str!("../fixtures/server.key");

/// Bytes after which an endless answer ends all the same, so that a client without a limit ends too.
const ENDLESS: u64 = 256 << 20;

#[derive(Clone, Debug, Default)]
pub struct Request {
    pub method: String,
    /// With the query.
    pub path: String,
    pub headers: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// How many requests for this path came before.
    pub before: usize,
}

impl Request {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub fn authorization(&self) -> &str {
        self.header("authorization").unwrap_or_default()
    }
}

/// How the body goes out.
#[derive(Clone, Copy, Debug)]
pub enum BodyDelivery {
    Whole,
    /// Breaks off after so many bytes.
    Cut(usize),
    /// Sends nothing more after so many bytes.
    Stall(usize),
    /// Announces no length and repeats the body until the client hangs up.
    Endless,
}

#[derive(Clone, Debug)]
pub struct Answer {
    status: u16,
    headers: Vec<String>,
    body: Vec<u8>,
    manner: BodyDelivery,
}

impl Answer {
    pub fn new(status: u16, body: &[u8]) -> Self {
        Self { status, headers: Vec::new(), body: body.to_vec(), manner: BodyDelivery::Whole }
    }

    pub fn ok(body: &[u8]) -> Self {
        Self::new(200, body)
    }

    /// As registries write errors.
    pub fn error(status: u16, code: &str) -> Self {
        Self::new(status, format!(r#"{{"errors":[{{"code":"{code}","message":"said so"}}]}}"#).as_bytes())
    }

    /// The part of the content that is asked for.
    pub fn range(content: &[u8], request: &Request) -> Self {
        let range = request.header("range").and_then(|range| range.strip_prefix("bytes="));
        let Some((start, last)) = range.and_then(|range| range.split_once('-')) else {
            return Self::ok(content);
        };
        let start: usize = start.parse().unwrap();
        if start >= content.len() {
            return Self::new(416, b"");
        }
        let last = last.parse().unwrap_or(usize::MAX).min(content.len() - 1);
        let range = format!("Content-Range: bytes {start}-{last}/{}", content.len());
        Self::new(206, &content[start..=last]).with(&range)
    }

    pub fn with(mut self, header: &str) -> Self {
        self.headers.push(header.to_owned());
        self
    }

    pub fn in_manner(mut self, manner: BodyDelivery) -> Self {
        self.manner = manner;
        self
    }
}

pub struct Fake {
    /// With the port.
    pub host: String,
    tls: bool,
    log: Arc<Mutex<Vec<Request>>>,
    sent: Arc<AtomicU64>,
}

impl Fake {
    pub fn start(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        Self::at("127.0.0.1", false, answer)
    }

    /// With a certificate of [`AUTHORITY`].
    pub fn with_tls(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        Self::at("127.0.0.1", true, answer)
    }

    /// At an address of the loopback network: another address is another origin.
    pub fn at(address: &str, tls: bool, answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((address, 0)).unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let (log, sent) = (Arc::<Mutex<Vec<Request>>>::default(), Arc::<AtomicU64>::default());
        let (answer, entries, bytes) = (Arc::new(answer), log.clone(), sent.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (answer, entries, bytes) = (answer.clone(), entries.clone(), bytes.clone());
                let stream = stream.unwrap();
                // A client that does not like the certificate, or has read enough, goes away.
                std::thread::spawn(move || match tls {
                    true => drop(serve(&mut encrypted(stream), &*answer, &entries, &bytes)),
                    false => drop(serve(&mut { stream }, &*answer, &entries, &bytes)),
                });
            }
        });
        Self { host, tls, log, sent }
    }

    pub fn url(&self) -> String {
        format!("{}://{}", if self.tls { "https" } else { "http" }, self.host)
    }

    /// Bytes of bodies that have been written to the network so far.
    pub fn sent(&self) -> u64 {
        self.sent.load(Ordering::SeqCst)
    }

    /// The requests whose path contains `text`.
    pub fn requests(&self, text: &str) -> Vec<Request> {
        let log = self.log.lock().unwrap();
        log.iter().filter(|request| request.path.contains(text)).cloned().collect()
    }
}

/// A host, with its port, on which no server listens.
pub fn nobody() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// The server's side of TLS.
pub fn encrypted(stream: TcpStream) -> impl Read + Write {
    encrypted_as(stream, CERTIFICATE, KEY)
}

/// The same with another certificate and its key (PEM).
pub fn encrypted_as(stream: TcpStream, certificate: &str, key: &str) -> impl Read + Write + use<> {
    let chain = CertificateDer::pem_slice_iter(certificate.as_bytes()).map(Result::unwrap).collect();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ServerConfig::builder_with_provider(provider);
    let config = config.with_safe_default_protocol_versions().unwrap().with_no_client_auth();
    let config =
        config.with_single_cert(chain, PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap()).unwrap();
    rustls::StreamOwned::new(rustls::ServerConnection::new(Arc::new(config)).unwrap(), stream)
}

fn head(stream: &mut impl Read) -> io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte)?;
        head.extend(byte);
    }
    String::from_utf8(head).map_err(io::Error::other)
}

fn serve(
    stream: &mut (impl Read + Write),
    answer: &dyn Fn(&Request) -> Answer,
    log: &Mutex<Vec<Request>>,
    sent: &AtomicU64,
) -> io::Result<()> {
    let mut request = Request::default();
    for line in head(stream)?.lines().filter(|line| !line.is_empty()) {
        match line.split_once(": ") {
            Some((name, value)) => request.headers.push((name.to_lowercase(), value.to_owned())),
            None => {
                let mut words = line.split(' ').map(str::to_owned);
                request.method = words.next().unwrap_or_default();
                request.path = words.next().unwrap_or_default();
            }
        }
    }
    let length = request.header("content-length").and_then(|length| length.parse().ok()).unwrap_or(0);
    request.body = vec![0; length];
    stream.read_exact(&mut request.body)?;
    {
        let mut log = log.lock().unwrap();
        request.before = log.iter().filter(|earlier| earlier.path == request.path).count();
        log.push(request.clone());
    }
    let Answer { status, headers, body, manner } = answer(&request);
    let mut headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    if !matches!(manner, BodyDelivery::Endless) && !headers.to_lowercase().contains("content-length:") {
        headers.push_str(&format!("Content-Length: {}\r\n", body.len()));
    }
    write!(stream, "HTTP/1.1 {status} X\r\n{headers}Connection: close\r\n\r\n")?;
    let mut put = |bytes: &[u8]| {
        stream.write_all(bytes)?;
        stream.flush()?;
        io::Result::Ok(sent.fetch_add(bytes.len() as u64, Ordering::SeqCst) + bytes.len() as u64)
    };
    match manner {
        _ if request.method == "HEAD" => Ok(()),
        BodyDelivery::Whole => put(&body).map(drop),
        BodyDelivery::Cut(count) => put(&body[..count.min(body.len())]).map(drop),
        BodyDelivery::Endless => {
            while put(&body)? < ENDLESS {}
            Ok(())
        }
        BodyDelivery::Stall(count) => {
            put(&body[..count.min(body.len())])?;
            // Until the client hangs up.
            stream.read_to_end(&mut Vec::new()).map(drop)
        }
    }
}
