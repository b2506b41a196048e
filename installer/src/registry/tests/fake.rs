//! A small HTTP server that a test tells what to answer.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// What came in.
#[derive(Clone, Debug, Default)]
pub(super) struct Request {
    /// With the query.
    pub(super) path: String,
    pub(super) headers: Vec<(String, String)>,
    /// How many requests for this path came before.
    pub(super) before: usize,
}

impl Request {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }

    pub(super) fn authorization(&self) -> &str {
        self.header("authorization").unwrap_or_default()
    }
}

/// How the body goes out.
#[derive(Clone, Copy, Debug)]
pub(super) enum Manner {
    Whole,
    /// Breaks off after so many bytes.
    Cut(usize),
    /// Sends nothing more after so many bytes.
    Stall(usize),
}

#[derive(Clone, Debug)]
pub(super) struct Answer {
    status: u16,
    headers: Vec<String>,
    body: Vec<u8>,
    manner: Manner,
}

impl Answer {
    pub(super) fn new(status: u16, body: &[u8]) -> Self {
        Self { status, headers: Vec::new(), body: body.to_vec(), manner: Manner::Whole }
    }

    pub(super) fn ok(body: &[u8]) -> Self {
        Self::new(200, body)
    }

    /// As registries write errors.
    pub(super) fn error(status: u16, code: &str) -> Self {
        Self::new(status, format!(r#"{{"errors":[{{"code":"{code}","message":"said so"}}]}}"#).as_bytes())
    }

    /// The part of the content that is asked for.
    pub(super) fn range(content: &[u8], request: &Request) -> Self {
        let range = request.header("range").and_then(|range| range.strip_prefix("bytes="));
        let start = range.and_then(|range| range.trim_end_matches('-').parse::<usize>().ok());
        match start {
            Some(start) if start >= content.len() => Self::new(416, b""),
            Some(start) => {
                let last = content.len() - 1;
                let range = format!("Content-Range: bytes {start}-{last}/{}", content.len());
                Self::new(206, &content[start..]).with(&range)
            }
            None => Self::ok(content),
        }
    }

    pub(super) fn with(mut self, header: &str) -> Self {
        self.headers.push(header.to_owned());
        self
    }

    pub(super) fn in_manner(mut self, manner: Manner) -> Self {
        self.manner = manner;
        self
    }
}

pub(super) struct Fake {
    /// With the port.
    pub(super) host: String,
    log: Arc<Mutex<Vec<Request>>>,
}

impl Fake {
    pub(super) fn start(answer: impl Fn(&Request) -> Answer + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let (answer, log) = (Arc::new(answer), Arc::<Mutex<Vec<Request>>>::default());
        let (handler, entries) = (answer, log.clone());
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (handler, entries) = (handler.clone(), entries.clone());
                std::thread::spawn(move || drop(serve(stream.unwrap(), &*handler, &entries)));
            }
        });
        Self { host, log }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.host)
    }

    /// The requests whose path contains `text`.
    pub(super) fn requests(&self, text: &str) -> Vec<Request> {
        let log = self.log.lock().unwrap();
        log.iter().filter(|request| request.path.contains(text)).cloned().collect()
    }
}

/// A host at which nobody listens.
pub(super) fn nobody() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

fn serve(
    mut stream: TcpStream,
    answer: &dyn Fn(&Request) -> Answer,
    log: &Mutex<Vec<Request>>,
) -> io::Result<()> {
    let mut request = Request::default();
    for line in BufReader::new(stream.try_clone()?).lines() {
        let line = line?;
        if line.is_empty() {
            break;
        }
        match line.split_once(": ") {
            Some((name, value)) => request.headers.push((name.to_lowercase(), value.to_owned())),
            None => request.path = line.split(' ').nth(1).unwrap_or_default().to_owned(),
        }
    }
    {
        let mut log = log.lock().unwrap();
        request.before = log.iter().filter(|earlier| earlier.path == request.path).count();
        log.push(request.clone());
    }
    let Answer { status, headers, body, manner } = answer(&request);
    let headers: String = headers.iter().map(|header| format!("{header}\r\n")).collect();
    let length = body.len();
    write!(stream, "HTTP/1.1 {status} X\r\n{headers}Content-Length: {length}\r\nConnection: close\r\n\r\n")?;
    match manner {
        Manner::Whole => stream.write_all(&body),
        Manner::Cut(count) => stream.write_all(&body[..count.min(length)]),
        Manner::Stall(count) => {
            stream.write_all(&body[..count.min(length)])?;
            // Until the client hangs up.
            stream.read_to_end(&mut Vec::new()).map(drop)
        }
    }
}
