//! A small server of static files on 127.0.0.1, with byte ranges, for installs over the network.
//!
//! It serves the files that a test puts into a directory and records the requests. Each connection carries one request
//! (`Connection: close`), which every client understands.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::socket::{Shutdown, shutdown};

/// A running server; it ends when dropped.
#[derive(Debug)]
pub struct Server {
    port: u16,
    heard: TcpListener,
    shared: Arc<ServerState>,
}

#[derive(Debug)]
struct ServerState {
    root: PathBuf,
    requests: Mutex<Vec<String>>,
    ended: AtomicBool,
}

impl Server {
    /// Serves `root` on `port`, or on any free port for 0.
    pub fn start(root: &Path, port: u16) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .with_context(|| format!("listening on port {port}"))?;
        Self::on(listener, root)
    }

    /// Serves `root` to whom `listener` hears, which may be in another network.
    pub fn on(listener: TcpListener, root: &Path) -> Result<Self> {
        let port = listener.local_addr()?.port();
        let heard = listener.try_clone()?;
        let shared = Arc::new(ServerState {
            root: root.to_owned(),
            requests: Mutex::default(),
            ended: AtomicBool::new(false),
        });
        let server = Self { port, heard, shared: Arc::clone(&shared) };
        thread::spawn(move || {
            for stream in listener.incoming() {
                if shared.ended.load(Ordering::Relaxed) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let shared = Arc::clone(&shared);
                // A client may close its connection early.
                thread::spawn(move || drop(shared.answer(stream)));
            }
        });
        Ok(server)
    }

    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The request lines so far, as `GET /path`.
    #[must_use]
    pub fn requests(&self) -> Vec<String> {
        self.shared.requests.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        // Whoever waits for a connection is woken by that, and then ends.
        let _ = shutdown(self.heard.as_raw_fd(), Shutdown::Both);
    }
}

impl ServerState {
    fn answer(&self, stream: TcpStream) -> io::Result<()> {
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        let mut reader = BufReader::new(stream);
        let request = read_line(&mut reader)?;
        let mut range = None;
        loop {
            let header = read_line(&mut reader)?;
            match header.split_once(':') {
                Some((name, value)) if name.eq_ignore_ascii_case("range") => {
                    range = Some(value.trim().to_owned())
                }
                Some(_) => {}
                None => break,
            }
        }
        let mut words = request.split(' ');
        let (method, target) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let told = format!("{method} {target}");
        self.requests.lock().unwrap_or_else(PoisonError::into_inner).push(told);
        let stream = reader.get_mut();
        let body = method == "GET";
        if !body && method != "HEAD" {
            return head(stream, "405 Method Not Allowed", 0, "");
        }
        let file = relative(target).map(|path| self.root.join(path)).filter(|path| path.is_file());
        let Some(path) = file else { return head(stream, "404 Not Found", 0, "") };
        send(stream, File::open(path)?, range.as_deref(), body)
    }
}

fn read_line(reader: &mut impl BufRead) -> io::Result<String> {
    let mut line = String::new();
    reader.take(8192).read_line(&mut line)?;
    Ok(line.trim_end().to_owned())
}

/// The path of a request below the root; `None` if it leads out.
fn relative(target: &str) -> Option<PathBuf> {
    let path = target.split(['?', '#']).next()?.strip_prefix('/')?;
    path.split('/').all(|part| !matches!(part, "" | "." | "..")).then(|| PathBuf::from(path))
}

/// The bytes that a `Range` header asks for, of a file with `length` bytes. Only one range is supported. `Err` is a
/// range outside the file.
fn wanted(range: Option<&str>, length: u64) -> Result<Option<Range<u64>>, ()> {
    let Some((first, last)) = range.and_then(|range| range.strip_prefix("bytes=")?.split_once('-')) else {
        return Ok(None);
    };
    let range = match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), Ok(last)) => first..length.min(last.saturating_add(1)),
        (Ok(first), Err(_)) => first..length,
        (Err(_), Ok(suffix)) => length.saturating_sub(suffix)..length,
        (Err(_), Err(_)) => return Ok(None),
    };
    if range.is_empty() { Err(()) } else { Ok(Some(range)) }
}

fn send(stream: &mut TcpStream, mut file: File, range: Option<&str>, body: bool) -> io::Result<()> {
    let length = file.metadata()?.len();
    let range = match wanted(range, length) {
        Err(()) => {
            let extra = format!("Content-Range: bytes */{length}\r\n");
            return head(stream, "416 Range Not Satisfiable", 0, &extra);
        }
        Ok(None) => {
            head(stream, "200 OK", length, "Accept-Ranges: bytes\r\n")?;
            0..length
        }
        Ok(Some(range)) => {
            let extra = format!("Content-Range: bytes {}-{}/{length}\r\n", range.start, range.end - 1);
            head(stream, "206 Partial Content", range.end - range.start, &extra)?;
            range
        }
    };
    if body {
        file.seek(SeekFrom::Start(range.start))?;
        io::copy(&mut file.take(range.end - range.start), stream)?;
    }
    Ok(())
}

fn head(stream: &mut TcpStream, status: &str, length: u64, extra: &str) -> io::Result<()> {
    write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n{extra}\r\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ask(port: u16, request: &str) -> String {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        answer
    }

    #[test]
    fn serves_files_whole_and_in_part_and_remembers_what_was_asked() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("images")).unwrap();
        std::fs::write(directory.path().join("images/blob"), "0123456789").unwrap();
        let server = Server::start(directory.path(), 0).unwrap();
        let whole = ask(server.port(), "GET /images/blob HTTP/1.1\r\nHost: x\r\n\r\n");
        assert!(whole.starts_with("HTTP/1.1 200") && whole.ends_with("\r\n\r\n0123456789"), "{whole}");
        let part = ask(server.port(), "GET /images/blob HTTP/1.1\r\nrange: bytes=7-\r\n\r\n");
        assert!(part.starts_with("HTTP/1.1 206") && part.ends_with("\r\n\r\n789"), "{part}");
        assert!(part.contains("Content-Range: bytes 7-9/10"), "{part}");
        let head = ask(server.port(), "HEAD /images/blob HTTP/1.1\r\n\r\n");
        assert!(head.contains("Content-Length: 10") && head.ends_with("\r\n\r\n"), "{head}");
        assert_eq!(server.requests()[0], "GET /images/blob");
    }

    #[test]
    fn a_request_cannot_leave_the_root() {
        let directory = tempfile::tempdir().unwrap();
        let server = Server::start(directory.path(), 0).unwrap();
        for target in ["/../etc/passwd", "//etc/passwd", "/", "etc/passwd", "/missing"] {
            let answer = ask(server.port(), &format!("GET {target} HTTP/1.1\r\n\r\n"));
            assert!(answer.starts_with("HTTP/1.1 404"), "{target}: {answer}");
        }
    }

    #[test]
    fn ranges_mean_what_http_says() {
        let cases = [
            (Some("bytes=0-3"), Ok(Some(0..4))),
            (Some("bytes=8-99"), Ok(Some(8..10))),
            (Some("bytes=-3"), Ok(Some(7..10))),
            (Some("bytes=10-"), Err(())),
            (Some("items=0-3"), Ok(None)),
            (None, Ok(None)),
        ];
        for (range, expected) in cases {
            assert_eq!(wanted(range, 10), expected, "{range:?}");
        }
    }
}
