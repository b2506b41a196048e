//! Files over plain HTTP, from the page cache to the socket by sendfile(2), so that their bytes never pass through this
//! program's memory.
//!
//! This is a second reader of requests beside hyper, and kept for one figure. 200 clients that fetch a file of 64 MiB at
//! once over the loopback interface get 5.0 GB/s by sendfile(2) and 2.1 GB/s by hyper, 2.4 times as much; the server takes
//! 0.10 s and 0.64 s of CPU time for 1 GB. Measured in one run with a release build, on two cores that the clients share,
//! with the file in the page cache; medians of three rounds. `make bench PARTS=serve` measures the factor and misses its
//! limit below 1.3.
//!
//! It knows no more of HTTP than that needs: a whole request for one of the medium's files, or for what machines fetch on the
//! same connection before them: scripts, loaders, their configuration. Anything else is left in the stream for hyper, which
//! serves the same files too, and answers all later requests of that connection.

use std::io;
use std::net::IpAddr;
use std::sync::Arc;

use http_body_util::Empty;
use hyper::body::Bytes;
use hyper::header::{CONNECTION, CONTENT_LENGTH, DATE, EXPECT, TRANSFER_ENCODING, UPGRADE};
use hyper::{Request, Response};
use nix::sys::sendfile::sendfile64;
use tokio::io::Interest;
use tokio::net::TcpStream;

use super::http::respond;
use super::metered::route;
use super::router::Router;
use crate::metrics::RequestMeter;
use crate::protocol::{BOOT, CONFIGURATION, GRUB};
use medium::network_boot::{GRUB_START, IPXE_START, LOADERS, MEDIUM};
use transfer::range::ByteSpan;
use transfer::server::body::{BodyParts, ResponseBody};
use transfer::server::served_file::{ContentLocation, ServedFile};

/// The beginnings of the paths that are answered here.
const PATHS: [&str; 7] = [MEDIUM, BOOT, GRUB, CONFIGURATION, IPXE_START, GRUB_START, LOADERS];
/// The longest head of a request, in bytes.
const HEAD: usize = 4096;
/// The most header fields of a request; browsers send about 20.
const FIELDS: usize = 32;
/// The most that is sent to one client before others have their turn, in bytes.
const TURN: u64 = 1 << 20;

#[derive(Debug)]
pub enum NextRequest {
    Files(Box<RawRequest>),
    /// Anything else; all of it is still in the stream.
    Other,
    /// The client has closed the connection.
    End,
}

#[derive(Debug)]
pub struct RawRequest {
    request: Request<Empty<Bytes>>,
    /// The length of its head in bytes, which is still in the stream.
    length: usize,
    /// True if the connection is closed after it.
    pub last: bool,
}

/// Waits for the next request. A head that does not arrive in one piece counts as [`NextRequest::Other`].
pub async fn asked(stream: &TcpStream) -> io::Result<NextRequest> {
    let mut head = [0; HEAD];
    let count = stream.peek(&mut head).await?;
    if count == 0 {
        return Ok(NextRequest::End);
    }
    Ok(read(&head[..count]).map_or(NextRequest::Other, |asked| NextRequest::Files(Box::new(asked))))
}

/// The request for something that is answered here at the start of `bytes`, if there is one.
fn read(bytes: &[u8]) -> Option<RawRequest> {
    let mut fields = [httparse::EMPTY_HEADER; FIELDS];
    let mut head = httparse::Request::new(&mut fields);
    let httparse::Status::Complete(length) = head.parse(bytes).ok()? else { return None };
    let path = head.path.filter(|path| PATHS.iter().any(|start| path.starts_with(start)))?;
    if head.method != Some("GET") || head.version != Some(1) {
        return None;
    }
    let mut request = Request::get(path);
    for field in &*head.headers {
        request = request.header(field.name, field.value);
    }
    let request = request.body(Empty::new()).ok()?;
    let has = |name| request.headers().contains_key(name);
    // A request with a body or for another protocol.
    if [CONTENT_LENGTH, TRANSFER_ENCODING, EXPECT, UPGRADE].into_iter().any(has) {
        return None;
    }
    let mut wishes = request.headers().get_all(CONNECTION).iter();
    let last = wishes.any(|wish| !wish.as_bytes().eq_ignore_ascii_case(b"keep-alive"));
    Some(RawRequest { request, length, last })
}

pub async fn answer(
    stream: &TcpStream,
    router: &Arc<Router>,
    peer: IpAddr,
    asked: RawRequest,
    last: bool,
) -> io::Result<()> {
    take(stream, asked.length).await?;
    let mut meter = RequestMeter::begin(router.store.metrics(), route(asked.request.uri().path()), "GET");
    let Ok(response) = respond(Arc::clone(router), peer, asked.request).await;
    meter.answered(response.status().as_u16());
    write(stream, head(&response, last, jiff::Timestamp::now()).as_slice()).await?;
    match response.into_body().into_parts() {
        BodyParts::Whole(bytes) => {
            write(stream, &bytes).await?;
            meter.sent(bytes.len() as u64);
            Ok(())
        }
        BodyParts::Part(served, span) => send(stream, &served, span, &meter).await,
    }
}

/// Consumes `length` bytes of the stream, a head that was peeked at.
async fn take(stream: &TcpStream, mut length: usize) -> io::Result<()> {
    let mut head = [0; HEAD];
    while length > 0 {
        stream.readable().await?;
        match stream.try_read(&mut head[..length]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(count) => length -= count,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

fn head(response: &Response<ResponseBody>, last: bool, now: jiff::Timestamp) -> Vec<u8> {
    let status = response.status();
    let reason = status.canonical_reason().unwrap_or_default();
    let mut head = format!("HTTP/1.1 {} {reason}\r\n", status.as_str()).into_bytes();
    let mut field = |name: &str, value: &[u8]| {
        head.extend([name.as_bytes(), b": ", value, b"\r\n"].concat());
    };
    for (name, value) in response.headers() {
        field(name.as_str(), value.as_bytes());
    }
    // RFC 9110, section 6.6.1.
    if let Ok(date) = jiff::fmt::rfc2822::DateTimePrinter::new().timestamp_to_rfc9110_string(&now) {
        field(DATE.as_str(), date.as_bytes());
    }
    if last {
        field(CONNECTION.as_str(), b"close");
    }
    head.extend(b"\r\n");
    head
}

async fn send(
    stream: &TcpStream,
    served: &ServedFile,
    mut left: ByteSpan,
    meter: &RequestMeter,
) -> io::Result<()> {
    while left.length() > 0 {
        let turn = left.length().min(TURN);
        let count = match served.at(left.start) {
            ContentLocation::Memory(bytes) => {
                let bytes = &bytes[..bytes.len().min(usize::try_from(turn).unwrap_or(usize::MAX))];
                write(stream, bytes).await?;
                bytes.len()
            }
            ContentLocation::File { file, span } => {
                let turn = usize::try_from(turn.min(span.length())).unwrap_or(usize::MAX);
                let mut offset = i64::try_from(span.start).map_err(io::Error::other)?;
                let sent = stream
                    .async_io(Interest::WRITABLE, || Ok(sendfile64(stream, file, Some(&mut offset), turn)?));
                sent.await?
            }
        };
        if count == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file has become shorter"));
        }
        left.start += count as u64;
        meter.sent(count as u64);
    }
    Ok(())
}

async fn write(stream: &TcpStream, mut bytes: &[u8]) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.writable().await?;
        match stream.try_write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_whole_request_of_a_machine_is_taken() {
        let path = "/medium/live/initrd";
        for (line, fields, taken) in [
            (format!("GET {path} HTTP/1.1"), "Host: a\r\n", Some(false)),
            (format!("GET {path}?x HTTP/1.1"), "Connection: keep-alive\r\nRange: bytes=1-\r\n", Some(false)),
            (format!("GET {path} HTTP/1.1"), "connection: close\r\n", Some(true)),
            (format!("GET {path} HTTP/1.1"), "Connection: keep-alive, close\r\n", Some(true)),
            (format!("HEAD {path} HTTP/1.1"), "", None),
            (format!("POST {path} HTTP/1.1"), "", None),
            (format!("GET {path} HTTP/1.0"), "", None),
            (format!("GET http://a{path} HTTP/1.1"), "", None),
            (format!("GET {path} HTTP/1.1"), "Content-Length: 0\r\n", None),
            (format!("GET {path} HTTP/1.1"), "Transfer-Encoding: chunked\r\n", None),
            (format!("GET {path} HTTP/1.1"), "Expect: 100-continue\r\n", None),
            (format!("GET {path} HTTP/1.1"), "Connection: upgrade\r\nUpgrade: h2c\r\n", None),
            (format!("GET {path} HTTP/1.1"), "Host a\r\n", None),
            (format!("GET {path} HTTP/1.1"), &"A: b\r\n".repeat(FIELDS + 1), None),
            ("GET /v1/boot?serial=a HTTP/1.1".to_owned(), "", Some(false)),
            ("GET /boot.ipxe HTTP/1.1".to_owned(), "Connection: keep-alive\r\n", Some(false)),
            ("GET /v1/config/0123 HTTP/1.1".to_owned(), "", Some(false)),
            ("POST /v1/report/0123 HTTP/1.1".to_owned(), "", None),
            ("GET /v1/fleet HTTP/1.1".to_owned(), "", None),
            ("GET /fleet HTTP/1.1".to_owned(), "", None),
            ("GET / HTTP/1.1".to_owned(), "", None),
            ("\u{16}\u{3}\u{1}".to_owned(), "", None),
        ] {
            let head = format!("{line}\r\n{fields}\r\n");
            let with_more = format!("{head}GET /");
            let asked = read(with_more.as_bytes());
            let found = asked.as_ref().map(|asked| (asked.last, asked.length));
            assert_eq!(found, taken.map(|last| (last, head.len())), "{head}");
            assert!(read(&head.as_bytes()[..head.len() - 1]).is_none(), "half of {head}");
        }
    }

    #[test]
    fn a_head_is_written_as_hyper_writes_it() {
        let mut response = Response::new(ResponseBody::whole("a"));
        response.headers_mut().insert(CONTENT_LENGTH, 1.into());
        let written = |last| {
            let now = jiff::Timestamp::from_second(1_700_000_000).unwrap();
            String::from_utf8(head(&response, last, now)).unwrap()
        };
        let common = "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ndate: Tue, 14 Nov 2023 22:13:20 GMT\r\n";
        assert_eq!(written(false), format!("{common}\r\n"));
        assert_eq!(written(true), format!("{common}connection: close\r\n\r\n"));
    }
}
