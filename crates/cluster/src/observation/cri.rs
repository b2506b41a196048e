//! The first request of a kubelet to containerd: `Version` of `runtime.v1.RuntimeService` (Kubernetes, CRI).
//!
//! It is one exchange of gRPC over the socket (RFC 9113, gRPC "over HTTP2"), written by hand. No program can make it on every node:
//! images with the public release of Kubernetes have no `crictl`, those of RKE2 and K3s unpack theirs where their releases choose
//! to, and `ctr` asks services of containerd that answer without its CRI plugin. Headers are skipped: they need a table.

use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RESET: u8 = 3;
const SETTINGS: u8 = 4;
const GO_AWAY: u8 = 7;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const STREAM: u32 = 1;
const HEADER_FIELDS: [(&str, &str); 6] = [
    (":method", "POST"),
    (":scheme", "http"),
    (":path", "/runtime.v1.RuntimeService/Version"),
    (":authority", "localhost"),
    ("content-type", "application/grpc"),
    ("te", "trailers"),
];
/// More frames, or longer ones, than the answer to a small question has.
const FRAMES_MAX: usize = 64;
const FRAME_BYTES_MAX: usize = 1 << 14;

/// The name and the version that the runtime behind `socket` gives.
///
/// # Errors
/// Why there is none, a clause.
pub(super) fn version(socket: &Path, limit: Duration) -> Result<String, String> {
    let silent = |error: io::Error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
            format!("{} does not answer in {} s", socket.display(), limit.as_secs())
        }
        _ => format!("{} does not answer: {error}", socket.display()),
    };
    let stream = UnixStream::connect(socket).map_err(silent)?;
    stream.set_write_timeout(Some(limit)).map_err(silent)?;
    let answer = ask(stream, Instant::now() + limit).map_err(silent)?;
    let answer = answer.ok_or_else(|| format!("{} did not answer the version request", socket.display()))?;
    named(&answer).ok_or_else(|| format!("{} answers something other than a version", socket.display()))
}

/// The first message of the answer; `None` if there is none.
fn ask(mut stream: UnixStream, deadline: Instant) -> io::Result<Option<Vec<u8>>> {
    // A message of no bytes: not compressed, length 0.
    let fields: Vec<u8> = HEADER_FIELDS.iter().flat_map(|(name, value)| field(name, value)).collect();
    let request = [
        PREFACE.to_vec(),
        frame(SETTINGS, 0, 0, &[]),
        frame(HEADERS, END_HEADERS, STREAM, &fields),
        frame(DATA, END_STREAM, STREAM, &[0; 5]),
    ];
    stream.write_all(&request.concat())?;
    let mut message = Vec::new();
    for _ in 0..FRAMES_MAX {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let mut head = [0; 9];
        stream.read_exact(&mut head)?;
        let length = head[..3].iter().fold(0_usize, |length, byte| length << 8 | usize::from(*byte));
        if length > FRAME_BYTES_MAX {
            return Ok(None);
        }
        let mut payload = vec![0; length];
        stream.read_exact(&mut payload)?;
        let own = head[5..] == STREAM.to_be_bytes();
        match head[3] {
            DATA if own => message.extend(payload),
            HEADERS if own && head[4] & END_STREAM != 0 => return Ok(None),
            RESET | GO_AWAY => return Ok(None),
            _ => {}
        }
        if let Some((prefix, body)) = message.split_first_chunk::<5>() {
            let length = prefix[1..].iter().fold(0_usize, |length, byte| length << 8 | usize::from(*byte));
            if prefix[0] == 0 && body.len() >= length {
                return Ok(Some(body[..length].to_vec()));
            }
        }
    }
    Ok(None)
}

/// A frame. What is sent here is far shorter than 64 KiB.
fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap_or(u16::MAX).to_be_bytes();
    let mut frame = vec![0, length[0], length[1], kind, flags];
    frame.extend(stream.to_be_bytes());
    frame.extend(payload);
    frame
}

/// A header field as it is, for no table (RFC 7541, 6.2.2); names and values are shorter than 127 bytes.
fn field(name: &str, value: &str) -> Vec<u8> {
    let text = |text: &str| {
        let length = u8::try_from(text.len()).unwrap_or(u8::MAX);
        std::iter::once(length).chain(text.bytes()).collect::<Vec<_>>()
    };
    [vec![0], text(name), text(value)].concat()
}

/// Name and version in a `VersionResponse`: its fields 2 and 3, and all of its fields are texts (protobuf, "Encoding").
fn named(message: &[u8]) -> Option<String> {
    let (mut name, mut version, mut rest) = (None, None, message);
    while let [key, length, text @ ..] = rest {
        let length = usize::from(*length);
        if key & 7 != 2 || length > 127 {
            return None;
        }
        let (text, after) = text.split_at_checked(length)?;
        let text = std::str::from_utf8(text).ok()?;
        match key >> 3 {
            2 => name = Some(text),
            3 => version = Some(text),
            _ => {}
        }
        rest = after;
    }
    Some(format!("{} {}", name?, version?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;
    use std::thread;

    const LIMIT: Duration = Duration::from_millis(300);

    /// The answer of something that says `bytes` to whatever it is asked.
    fn answer(bytes: Vec<u8>) -> Result<String, String> {
        let dir = tempfile::tempdir().unwrap();
        let socket = dir.path().join("s");
        let listener = UnixListener::bind(&socket).unwrap();
        let server = thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            stream.write_all(&bytes).unwrap();
            let mut asked = Vec::new();
            let _ = stream.read_to_end(&mut asked);
            asked
        });
        let answer = version(&socket, LIMIT);
        let asked = server.join().unwrap();
        assert!(asked.starts_with(PREFACE) && asked.ends_with(&[0; 5]), "{asked:?}");
        answer
    }

    fn data(message: &[u8]) -> Vec<u8> {
        let length = u8::try_from(message.len()).unwrap();
        frame(DATA, 0, STREAM, &[&[0, 0, 0, 0, length], message].concat())
    }

    #[test]
    fn the_runtime_gives_its_name_and_version() {
        let message = b"\x0a\x050.1.0\x12\x0acontainerd\x1a\x062.1.4\x00";
        let whole = &message[..message.len() - 1];
        let message = [&b"\x0a\x050.1.0\x12\x0acontainerd\x1a\x05"[..], b"2.1.4\x22\x02v1"].concat();
        assert_eq!(named(whole), None, "a length beyond the end");
        let frames = [frame(SETTINGS, 0, 0, &[]), frame(HEADERS, END_HEADERS, STREAM, b"x"), data(&message)];
        assert_eq!(answer(frames.concat()).unwrap(), "containerd 2.1.4");
    }

    #[test]
    fn what_is_no_answer_is_told_as_what_it_is() {
        let cases = [
            (frame(HEADERS, END_HEADERS | END_STREAM, STREAM, b"x"), "did not answer the version"),
            (frame(RESET, 0, STREAM, &[0; 4]), "did not answer the version"),
            (data(b"\x08\x01"), "something other than a version"),
            (data(b""), "something other than a version"),
            (Vec::new(), "does not answer in"),
            (vec![0xff; 20], "did not answer the version"),
        ];
        for (bytes, expected) in cases {
            let told = answer(bytes.clone()).unwrap_err();
            assert!(told.contains(expected), "{bytes:?}: {told}");
        }
        assert!(version(Path::new("/nonexistent/s"), LIMIT).unwrap_err().contains("No such file"));
    }
}
