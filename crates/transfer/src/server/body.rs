//! Bodies. A response's file is read piece by piece, as fast as the client takes it: a transfer costs one piece of memory,
//! however large the file is. A request's body tells the connection limit while it is being received.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use tokio::task::JoinHandle;

use super::connection_limit::ConnectionPermit;
use super::served_file::ServedFile;
use super::transfer_rate::TransferPhase;
use crate::range::ByteSpan;

/// Bytes of a file that one transfer has in memory. Larger pieces make it no faster.
const PIECE: u64 = 256 * 1024;

pub struct ResponseBody {
    kind: BodyContent,
    /// Dropped with the response: ends the phase "answering" of its connection.
    _held: Option<Box<dyn Send>>,
}

#[derive(Debug)]
pub enum BodyParts {
    Whole(Bytes),
    Part(ServedFile, ByteSpan),
}

enum BodyContent {
    Whole(Bytes),
    Part { served: ServedFile, left: ByteSpan, reading: Option<JoinHandle<io::Result<Bytes>>> },
}

impl fmt::Debug for ResponseBody {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseBody").field("left", &self.left()).finish_non_exhaustive()
    }
}

impl ResponseBody {
    #[must_use]
    pub fn whole(bytes: impl Into<Bytes>) -> Self {
        Self { kind: BodyContent::Whole(bytes.into()), _held: None }
    }

    #[must_use]
    pub fn part(served: ServedFile, left: ByteSpan) -> Self {
        Self { kind: BodyContent::Part { served, left, reading: None }, _held: None }
    }

    /// Drops `held` when the body has been sent or abandoned.
    #[must_use]
    pub fn holding(mut self, held: impl Send + 'static) -> Self {
        self._held = Some(Box::new(held));
        self
    }

    /// The content, for `sendfile`, which sends it without polling the body.
    #[must_use]
    pub fn into_parts(self) -> BodyParts {
        match self.kind {
            BodyContent::Whole(bytes) => BodyParts::Whole(bytes),
            BodyContent::Part { served, left, .. } => BodyParts::Part(served, left),
        }
    }

    /// Bytes that are still to be sent.
    fn left(&self) -> u64 {
        match &self.kind {
            BodyContent::Whole(bytes) => bytes.len() as u64,
            BodyContent::Part { left, .. } => left.length(),
        }
    }
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        if self.left() == 0 {
            return Poll::Ready(None);
        }
        match &mut self.kind {
            BodyContent::Whole(bytes) => Poll::Ready(Some(Ok(Frame::data(std::mem::take(bytes))))),
            BodyContent::Part { served, left, reading } => {
                let task = reading.get_or_insert_with(|| read(served.clone(), *left));
                let read = match Pin::new(task).poll(context) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(read) => read,
                };
                *reading = None;
                let piece = read.map_err(io::Error::other).and_then(|piece| piece);
                left.start = left.end.min(left.start + piece.as_ref().map_or(0, Bytes::len) as u64);
                Poll::Ready(Some(piece.map(Frame::data)))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left() == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left())
    }
}

/// Reads the next piece on a thread that may wait for the disk.
fn read(served: ServedFile, left: ByteSpan) -> JoinHandle<io::Result<Bytes>> {
    tokio::task::spawn_blocking(move || {
        let mut piece = vec![0; usize::try_from(left.length().min(PIECE)).unwrap_or(usize::MAX)];
        let count = served.read_at(&mut piece, left.start)?;
        if count == 0 {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file has become shorter"));
        }
        piece.truncate(count);
        Ok(piece.into())
    })
}

/// The body of a request, which is only received when it is polled.
#[derive(Debug)]
pub struct RequestBody<B> {
    body: B,
    permit: Arc<ConnectionPermit>,
    receiving: bool,
    unread: Arc<AtomicBool>,
}

impl<B: Body> RequestBody<B> {
    #[must_use]
    pub fn new(body: B, permit: &Arc<ConnectionPermit>) -> Self {
        let unread = Arc::new(AtomicBool::new(!body.is_end_stream()));
        Self { body, permit: Arc::clone(permit), receiving: false, unread }
    }

    /// Set while part of the body has not been received.
    #[must_use]
    pub fn unread(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.unread)
    }
}

impl<B> RequestBody<B> {
    fn enter(&mut self, receiving: bool) {
        if self.receiving != receiving {
            self.receiving = receiving;
            self.permit.enter(if receiving { TransferPhase::Receiving } else { TransferPhase::Answering });
        }
    }
}

impl<B: Body + Unpin> Body for RequestBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        self.enter(true);
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if self.body.is_end_stream() || frame.is_none() {
            self.unread.store(false, Ordering::Relaxed);
            self.enter(false);
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B> Drop for RequestBody<B> {
    fn drop(&mut self) {
        self.enter(false);
    }
}
