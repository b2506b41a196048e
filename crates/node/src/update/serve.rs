//! This node as the source of other nodes: it serves the release that was fetched here, with the blobs of container images that its
//! containerd has, as a directory with the content of a medium.
//!
//! Nothing else is served. No part of it is secret, and all of it has digests in the release manifest: what a reader has to know is the
//! digest of that.

use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode};
use tokio::sync::watch;
use tokio::time::sleep;
use transfer::range::RangeFields;
use transfer::server::accept::{self, ConnectionService, ServerConnection, ServerLimits, listen};
use transfer::server::body::ResponseBody;
use transfer::server::connection_limit::{ClientNetwork, ConnectionRefusal};
use transfer::server::response::{CachePolicy, file_response, with_length};
use transfer::server::served_file::ServedFile;

use base::cancel::Cancel;
use base::digest::Digest;
use base::files;
use base::progress::Progress;
use install::execute::{RunningContainerd, slot_payloads};
use model::release::{MANIFEST, Purpose, Release, SIGNATURES, SIGNATURES_LENGTH};

/// Connections at the same time; a quarter of them may be of one client. With the files that they send, they stay below
/// the 1024 open files that a process may usually have.
const CONNECTIONS: usize = 256;
/// Between two checks whether to end.
const CANCEL_PAUSE: Duration = Duration::from_millis(200);

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
    /// the release, for images that this node does not have, and for the signatures of an unsigned release.
    fn file(&self, path: &str) -> Option<(PathBuf, Digest)> {
        if path == MANIFEST {
            return Some((self.directory.join(MANIFEST), self.digest));
        }
        if path == SIGNATURES {
            let file = self.directory.join(SIGNATURES);
            let text = files::read_at_most(&file, SIGNATURES_LENGTH).ok()?;
            return Some((file, Digest::of(&text)));
        }
        let of_os = slot_payloads(&self.release)
            .into_iter()
            .chain(self.release.hardware())
            .find(|payload| payload.path == path);
        if let Some(payload) = of_os {
            return Some((self.directory.join(&payload.path), payload.sha256));
        }
        let blob = self.release.payloads(Purpose::ImageBlob).find(|payload| payload.path == path)?;
        Some((self.containerd.blob(&blob.sha256), blob.sha256)).filter(|(file, _)| file.is_file())
    }

    fn answer<B>(&self, request: &Request<B>) -> io::Result<Response<ResponseBody>> {
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
        let served = ServedFile::whole(file, length, digest);
        let selection = served.select(RangeFields::of(request.headers()), head);
        // hyper sends no body in the answer to HEAD.
        let named = request.uri().path().rsplit('/').next() == Some(&*digest.to_string());
        let policy = if named { CachePolicy::Immutable } else { CachePolicy::Revalidate };
        Ok(file_response(served, selection, policy))
    }
}

fn empty(status: StatusCode) -> Response<ResponseBody> {
    with_length(status, ResponseBody::whole(""))
}

/// Serves until `cancel` is set. `ready` is told the address that it listens on.
///
/// # Errors
/// [`Class::Network`](base::failure::Class::Network) if `address` is taken or none of this machine.
pub fn serve(
    release: ServedRelease,
    address: SocketAddr,
    progress: &Progress,
    cancel: &Cancel,
    ready: impl FnOnce(SocketAddr),
) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    let service = Arc::new(ReleaseService { release, progress: progress.clone() });
    let (stop, stopped) = watch::channel(false);
    runtime.block_on(async {
        let listener = listen(address).await?;
        ready(listener.local_addr()?);
        let stopping = async {
            cancelled(cancel).await;
            let _ = stop.send(true);
        };
        tokio::join!(
            accept::serve(listener, service, ServerLimits::of(CONNECTIONS, None), stopped),
            stopping
        );
        Ok(())
    })
}

async fn cancelled(cancel: &Cancel) {
    while cancel.check().is_ok() {
        sleep(CANCEL_PAUSE).await;
    }
}

struct ReleaseService {
    release: ServedRelease,
    progress: Progress,
}

impl ConnectionService for ReleaseService {
    fn is_plain(&self) -> bool {
        true
    }

    async fn serve(&self, connection: &ServerConnection) {
        let respond = async |request: Request<Incoming>, answering| {
            let path = request.uri().path();
            if path.trim_start_matches('/') == MANIFEST {
                self.progress.note("serve", format!("{} asks for the release", connection.peer));
            }
            let response = self.release.answer(&request).unwrap_or_else(|error| {
                self.progress.warn("serve", &format!("{path}: {error}"));
                empty(StatusCode::INTERNAL_SERVER_ERROR)
            });
            Ok::<_, Infallible>(response.map(|body| body.holding(answering)))
        };
        connection.answer(connection.stream(), respond).await;
    }

    fn refused(&self, client: ClientNetwork, refusal: ConnectionRefusal, count: u64) {
        let why = match refusal {
            ConnectionRefusal::Client => "too many connections from this address",
            ConnectionRefusal::Server => "too many connections",
        };
        self.progress.warn("serve", &format!("connection refused: {client}: {why}; {count} refused so far"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::{Class, class_of};
    use medium::payload_sources::{RetryPolicy, read_manifest, source};
    use std::fs;
    use std::io::{Read as _, Write as _};
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
        assert!(served.file(SIGNATURES).is_none(), "the release is unsigned");
        let signatures = served.directory.join(SIGNATURES);
        fs::write(&signatures, "signed\n").unwrap();
        assert_eq!(served.file(SIGNATURES), Some((signatures.clone(), Digest::of(b"signed\n"))));
        fs::write(&signatures, "a".repeat(8193)).unwrap();
        assert!(served.file(SIGNATURES).is_none(), "too long for signatures");
        let blob = release.payloads(Purpose::ImageBlob).next().unwrap();
        fs::remove_file(served.containerd.blob(&blob.sha256)).unwrap();
        assert!(served.file(&blob.path).is_none(), "an image that this node lacks");
    }

    #[test]
    fn another_node_reads_the_release_as_from_any_server_from_any_byte() {
        let (_root, served) = node();
        fs::write(served.directory.join(SIGNATURES), "signed\n").unwrap();
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
            let read = read_manifest(from.as_ref(), Some(digest)).unwrap();
            assert_eq!(
                (&*read, read.signatures()),
                (
                    &release,
                    Some(
                        &b"signed
"[..]
                    )
                )
            );
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

    /// The body of the answer to a request for `path`, from a client with the address `from`.
    fn fetched_from(from: &str, server: SocketAddr, path: &str) -> Vec<u8> {
        let client = reqwest::blocking::Client::builder()
            .local_address(from.parse::<std::net::IpAddr>().unwrap())
            .timeout(Duration::from_secs(20))
            .no_proxy()
            .build()
            .unwrap();
        let answer = client.get(format!("http://{server}/{path}")).send().unwrap();
        answer.error_for_status().unwrap().bytes().unwrap().to_vec()
    }

    #[test]
    fn connections_of_one_address_that_take_nothing_keep_nobody_out() {
        static DONE: AtomicBool = AtomicBool::new(false);
        let (root, served) = node();
        // More than the buffers of two sockets hold.
        let rootfs = served.release.payloads(Purpose::Rootfs).next().unwrap().path.clone();
        let large = root.path().join("fetched").join(&rootfs);
        File::options().write(true).open(large).unwrap().set_len(64 << 20).unwrap();
        let manifest = served.release.to_bytes();
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                let any = "127.0.0.1:0".parse().unwrap();
                serve(served, any, &Progress::silent(), &Cancel::new(&DONE), |at| tell.send(at).unwrap())
                    .unwrap();
            });
            let server = told.recv().unwrap();
            // Half of them never ask, the others read nothing of what they asked for.
            let mut clients = Vec::new();
            for number in 0..CONNECTIONS / 2 {
                let mut client = std::net::TcpStream::connect(server).unwrap();
                if number % 2 == 0 {
                    // It may have been refused before it could write.
                    let _ = write!(client, "GET /{rootfs} HTTP/1.1\r\nHost: a\r\n\r\n");
                }
                clients.push(client);
            }
            assert_eq!(fetched_from("127.0.0.2", server, MANIFEST), manifest);
            DONE.store(true, Ordering::Relaxed);
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
