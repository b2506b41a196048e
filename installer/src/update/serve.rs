//! This node as the source of other nodes: it serves the release that was fetched here, with the blobs of container images that its
//! containerd has, as a directory with the content of a medium.
//!
//! Nothing else is served. No part of it is secret, and all of it has digests in the release manifest: what a reader has to know is the
//! digest of that.

use std::convert::Infallible;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use anyhow::Result;
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};
use hyper::header::{
    ACCEPT_RANGES, CONTENT_RANGE, CONTENT_TYPE, ETAG, HeaderName, IF_NONE_MATCH, IF_RANGE, RANGE,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};
use transfer::range::{ByteSpan, RangeFields, RangeSelection, select};

use crate::execute::{Cancel, RunningContainerd, slot_payloads};
use base::digest::Digest;
use base::failure::{Class, Failure};
use base::progress::Progress;
use model::release::{MANIFEST, Purpose, Release};

/// Connections at the same time; further ones wait for their turn.
const CONNECTIONS: usize = 64;
/// How long the head of a request may take, and how long one connection may go on.
const HEAD_LIMIT: Duration = Duration::from_secs(30);
const CONNECTION_LIMIT: Duration = Duration::from_secs(4 * 60 * 60);
/// How often it is asked whether to end.
const CANCEL_PAUSE: Duration = Duration::from_millis(200);
/// After accept(2) has failed, mostly because too many files are open.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Of a file that one transfer has in memory.
const PIECE_BYTES: u64 = 256 << 10;

/// A release whose OS is in a directory of this node.
#[derive(Debug)]
pub struct ServedRelease {
    directory: PathBuf,
    digest: Digest,
    release: Release,
    containerd: RunningContainerd,
}

impl ServedRelease {
    #[must_use]
    pub fn new(directory: PathBuf, digest: Digest, release: Release, containerd: RunningContainerd) -> Self {
        Self { directory, digest, release, containerd }
    }

    /// The file that is served at a path without its first slash, and the digest of its content; none for anything that is no part of
    /// the release, and for images that this node does not have.
    fn file(&self, path: &str) -> Option<(PathBuf, Digest)> {
        if path == MANIFEST {
            return Some((self.directory.join(MANIFEST), self.digest));
        }
        let of_os = slot_payloads(&self.release).into_iter().find(|payload| payload.path == path);
        if let Some(payload) = of_os {
            return Some((self.directory.join(&payload.path), payload.sha256));
        }
        let blob = self.release.payloads(Purpose::ImageBlob).find(|payload| payload.path == path)?;
        Some((self.containerd.blob(&blob.sha256), blob.sha256)).filter(|(file, _)| file.is_file())
    }

    fn answer<B>(&self, request: &Request<B>) -> io::Result<Response<FilePart>> {
        let head = match *request.method() {
            Method::GET => false,
            Method::HEAD => true,
            _ => return Ok(empty(StatusCode::METHOD_NOT_ALLOWED)),
        };
        let Some((path, digest)) = self.file(request.uri().path().trim_start_matches('/')) else {
            return Ok(empty(StatusCode::NOT_FOUND));
        };
        let file = File::open(path)?;
        let length = file.metadata()?.len();
        let field = |name: HeaderName| request.headers().get(name).and_then(|value| value.to_str().ok());
        let fields = RangeFields {
            range: field(RANGE).filter(|_| !head),
            if_range: field(IF_RANGE),
            if_none_match: field(IF_NONE_MATCH),
        };
        let tag = format!("\"{digest}\"");
        let selection = select(fields, length, &tag);
        let (status, span) = match selection {
            RangeSelection::Whole => (StatusCode::OK, ByteSpan { start: 0, end: length }),
            RangeSelection::Part(span) => (StatusCode::PARTIAL_CONTENT, span),
            RangeSelection::Unsatisfiable => return Ok(empty(StatusCode::RANGE_NOT_SATISFIABLE)),
            RangeSelection::NotModified => return Ok(empty(StatusCode::NOT_MODIFIED)),
        };
        let mut response = Response::builder()
            .status(status)
            .header(ETAG, tag)
            .header(ACCEPT_RANGES, "bytes")
            .header(CONTENT_TYPE, "application/octet-stream");
        if let Some(range) = selection.content_range(length) {
            response = response.header(CONTENT_RANGE, range);
        }
        // hyper sends no body in the answer to HEAD, and its length all the same.
        response.body(FilePart::of(file, span)?).map_err(io::Error::other)
    }
}

fn empty(status: StatusCode) -> Response<FilePart> {
    let mut response = Response::new(FilePart { file: None, left: 0 });
    *response.status_mut() = status;
    response
}

/// A part of a file, read as fast as the reader takes it.
#[derive(Debug)]
struct FilePart {
    file: Option<File>,
    /// In bytes.
    left: u64,
}

impl FilePart {
    fn of(mut file: File, span: ByteSpan) -> io::Result<Self> {
        file.seek(SeekFrom::Start(span.start))?;
        Ok(Self { file: Some(file), left: span.length() })
    }

    fn piece(&mut self) -> io::Result<Bytes> {
        let wanted = self.left.min(PIECE_BYTES);
        let mut piece = Vec::new();
        if let Some(file) = &mut self.file {
            file.take(wanted).read_to_end(&mut piece)?;
        }
        if piece.is_empty() {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the file has become shorter"));
        }
        self.left -= piece.len() as u64;
        Ok(piece.into())
    }
}

impl Body for FilePart {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        match self.left {
            0 => Poll::Ready(None),
            _ => Poll::Ready(Some(self.piece().map(Frame::data))),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}

/// Serves until `cancel` is set. `ready` is told the address that it listens on.
///
/// # Errors
/// [`Class::Network`] if `address` is taken or none of this machine.
pub fn serve(
    release: ServedRelease,
    address: SocketAddr,
    progress: &Progress,
    cancel: &Cancel,
    ready: impl FnOnce(SocketAddr),
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let listening = |error: io::Error| {
        Failure::new(Class::Network, format!("listening on {address}"))
            .because(error)
            .hint("Give --listen an address of this node and a port that is free.")
    };
    runtime.block_on(async {
        let listener = TcpListener::bind(address).await.map_err(listening)?;
        ready(listener.local_addr().map_err(listening)?);
        tokio::select! {
            () = accept(listener, Arc::new(release), progress) => {}
            () = cancelled(cancel) => {}
        }
        Ok(())
    })
}

async fn cancelled(cancel: &Cancel) {
    while cancel.check().is_ok() {
        sleep(CANCEL_PAUSE).await;
    }
}

async fn accept(listener: TcpListener, release: Arc<ServedRelease>, progress: &Progress) {
    let turns = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(turn) = Arc::clone(&turns).acquire_owned().await else { return };
        let Ok((stream, peer)) = listener.accept().await else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let (release, progress) = (Arc::clone(&release), progress.clone());
        tokio::spawn(async move {
            let _turn = turn;
            let answer = service_fn(move |request: Request<Incoming>| {
                let answered = release.answer(&request).unwrap_or_else(|error| {
                    progress.warn("serve", &format!("{}: {error}", request.uri().path()));
                    empty(StatusCode::INTERNAL_SERVER_ERROR)
                });
                if request.uri().path().trim_start_matches('/') == MANIFEST {
                    progress.note("serve", format!("{} asks for the release", peer.ip()));
                }
                async move { Ok::<_, Infallible>(answered) }
            });
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEAD_LIMIT)
                .serve_connection(TokioIo::new(stream), answer);
            // Whoever reads may go away at any moment.
            let _ = timeout(CONNECTION_LIMIT, connection).await;
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::class_of;
    use medium::sources::{RetryPolicy, read_release, source};
    use std::fs;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::thread;
    use testing::release::{contents, release};

    static ENDED: AtomicBool = AtomicBool::new(false);

    /// A node that has fetched the release of the tests, and has one of its images.
    fn node() -> (tempfile::TempDir, ServedRelease) {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join("fetched");
        let release = release();
        let containerd =
            RunningContainerd { root: root.path().join("containerd"), ..RunningContainerd::of(None) };
        for (payload, bytes) in contents() {
            let place = match payload.purpose {
                Purpose::ImageBlob => containerd.blob(&payload.sha256),
                _ => directory.join(&payload.path),
            };
            base::files::make_directory(base::files::parent(&place), 0o700).unwrap();
            fs::write(place, bytes).unwrap();
        }
        fs::write(directory.join(MANIFEST), release.to_bytes()).unwrap();
        let digest = Digest::of(&release.to_bytes());
        (root, ServedRelease::new(directory, digest, release, containerd))
    }

    #[test]
    fn what_is_no_part_of_the_os_or_an_image_is_not_served() {
        let (_root, served) = node();
        let release = served.release.clone();
        for payload in &release.payloads {
            let of_os = [Purpose::Rootfs, Purpose::Kernel, Purpose::Initrd, Purpose::ImageBlob];
            assert_eq!(
                served.file(&payload.path).is_some(),
                of_os.contains(&payload.purpose),
                "{}",
                payload.path
            );
        }
        for path in ["", "/", "../../../etc/shadow", "release.json/", "images", "/etc/shadow"] {
            assert!(served.file(path).is_none(), "{path}");
        }
        let blob = release.payloads(Purpose::ImageBlob).next().unwrap();
        fs::remove_file(served.containerd.blob(&blob.sha256)).unwrap();
        assert!(served.file(&blob.path).is_none(), "an image that this node lacks");
    }

    #[test]
    fn another_node_reads_the_release_as_from_any_server_from_any_byte() {
        let (_root, served) = node();
        let (release, digest) = (served.release.clone(), served.digest);
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                let any = "127.0.0.1:0".parse().unwrap();
                serve(served, any, &Progress::silent(), &Cancel::new(&ENDED), |at| tell.send(at).unwrap())
                    .unwrap();
            });
            let url = format!("http://{}", told.recv().unwrap());
            let from = source(Some(&url), &[], RetryPolicy::default()).unwrap();
            assert_eq!(read_release(from.as_ref(), Some(digest)).unwrap(), release);
            for (payload, bytes) in contents().iter().filter(|(payload, _)| {
                [Purpose::Rootfs, Purpose::Kernel, Purpose::Initrd, Purpose::ImageBlob]
                    .contains(&payload.purpose)
            }) {
                for offset in [0, bytes.len() / 2] {
                    let mut read = Vec::new();
                    from.open_from(payload, offset as u64).unwrap().read_to_end(&mut read).unwrap();
                    assert_eq!(read, bytes[offset..], "{} from {offset}", payload.path);
                }
            }
            ENDED.store(true, Ordering::Relaxed);
        });
    }

    #[test]
    fn an_address_of_nobody_is_told() {
        let (_root, served) = node();
        static NEVER: AtomicBool = AtomicBool::new(false);
        let elsewhere = "192.0.2.1:7480".parse().unwrap();
        let error = serve(served, elsewhere, &Progress::silent(), &Cancel::new(&NEVER), |_| ()).unwrap_err();
        assert_eq!(class_of(&error), Class::Network);
    }
}
