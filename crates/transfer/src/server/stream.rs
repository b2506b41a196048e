//! The stream of one connection, which is read and written here while others ask for its socket's counters; and its end.

use std::io::{self, IoSlice};
use std::net::TcpStream as Blocking;
use std::os::fd::AsRawFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use nix::sys::socket::{Shutdown, shutdown};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long, and how many bytes, are still read from a client that has been answered.
const DRAIN: Duration = Duration::from_secs(1);
const DRAINED: usize = 1 << 20;
/// The answer to a connection beyond the limits.
const OVERLOADED: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\n\
    Content-Length: 39\r\nCache-Control: no-store\r\nRetry-After: 5\r\nConnection: close\r\n\r\ntoo many connections; try again in 5 s\n";

/// A socket that is read and written here while its owner asks for its counters.
#[derive(Clone, Debug)]
pub(super) struct SharedStream(pub(super) Arc<TcpStream>);

impl AsyncRead for SharedStream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            ready!(self.0.poll_read_ready(context))?;
            match self.0.try_read(buffer.initialize_unfilled()) {
                Ok(count) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                // It is not ready any more; poll again.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

impl SharedStream {
    fn poll_written(
        &self,
        context: &mut Context<'_>,
        write: impl Fn(&TcpStream) -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(self.0.poll_write_ready(context))?;
            match write(&self.0) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                written => return Poll::Ready(written),
            }
        }
    }
}

impl AsyncWrite for SharedStream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll_written(context, |stream| stream.try_write(bytes))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.poll_written(context, |stream| stream.try_write_vectored(bytes))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(shutdown(self.0.as_raw_fd(), Shutdown::Write)?))
    }
}

/// Ends a connection whose client has been answered and may still be sending: closing a socket with unread bytes resets
/// the connection, and the reset overtakes the answer (RFC 9112, section 9.6).
pub(super) async fn end(stream: &TcpStream) {
    let _ = shutdown(stream.as_raw_fd(), Shutdown::Write);
    let draining = async {
        let (mut scratch, mut drained) = (vec![0; 16 << 10], 0);
        while drained < DRAINED && stream.readable().await.is_ok() {
            match stream.try_read(&mut scratch) {
                Ok(0) => return,
                Ok(count) => drained += count,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return,
            }
        }
    };
    let _ = timeout(DRAIN, draining).await;
}

/// Refuses a connection without blocking. With `plain` the client gets an HTTP answer.
pub(super) fn refuse(stream: TcpStream, plain: bool) {
    // tokio does not know yet whether a new stream is writable.
    let Ok(mut stream) = stream.into_std() else { return };
    if plain {
        answer_overloaded(&mut stream);
    }
}

fn answer_overloaded(stream: &mut Blocking) {
    use std::io::{Read, Write};
    // The socket does not block, and its empty buffer has room for this. Bytes that have arrived are read for the reason
    // in `end`.
    let _ = stream.write(OVERLOADED);
    let _ = stream.shutdown(std::net::Shutdown::Write);
    let _ = stream.read(&mut [0; 4096]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_answer_to_a_newcomer_without_room_has_the_length_that_it_tells() {
        let text = std::str::from_utf8(OVERLOADED).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.contains(&format!("Content-Length: {}\r\n", body.len())), "{}", body.len());
    }
}
