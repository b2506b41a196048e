//! This node as the source of other nodes, which read its release as a directory with the content of a medium, and of machines
//! without a system, which boot the release's installer over the network.
//!
//! What is served is the files of one release, with the blobs of container images that the containerd of the node has, and the boot
//! scripts that follow from them. No part of it is secret, and all of it has digests in the release manifest: what a reader has to
//! know is the digest of that.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs::File;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use hyper::body::Incoming;
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HOST};
use hyper::{Method, Request, Response, StatusCode};
use medium::network_boot::files::MediumFiles;
use medium::network_boot::loaders::{self, IPXE};
use medium::network_boot::system::{BootSystem, is_host, is_plain};
use medium::network_boot::{GRUB_START, IPXE_START, LOADERS, MEDIUM};
use tokio::sync::watch;
use tokio::time::sleep;
use transfer::range::RangeFields;
use transfer::server::accept::{self, ConnectionService, ServerConnection, ServerLimits, listen};
use transfer::server::body::ResponseBody;
use transfer::server::connection_limit::{ClientNetwork, ConnectionRefusal};
use transfer::server::response::{CachePolicy, file_response, set_field, with_length};
use transfer::server::served_file::ServedFile;

use super::release_files::is_release_file;
use base::cancel::Cancel;
use base::failure::{Class, Failure};
use base::percent;
use base::progress::Progress;
use install::execute::{RunningContainerd, slot_payloads};
use model::release::{MANIFEST, Payload, Purpose};

/// Connections at the same time; a quarter of them may be of one client. With the files that they send, they stay below
/// the 1024 open files that a process may usually have.
const CONNECTIONS: usize = 256;
/// Between two checks whether to end.
const CANCEL_PAUSE: Duration = Duration::from_millis(200);
/// Seconds for which GRUB shows why it goes on to the disk.
const GRUB_PAUSE: u32 = 10;

/// A release that this node serves.
#[derive(Debug)]
pub struct ServedRelease {
    files: MediumFiles,
    containerd: RunningContainerd,
    boot: Option<NetworkBoot>,
}

/// What machines boot from this node.
#[derive(Debug)]
struct NetworkBoot {
    system: BootSystem,
    loaders: BTreeMap<String, ServedFile>,
    /// Where their installer gets its configuration; none if it asks on the console.
    config_url: Option<String>,
}

/// What a node lacks of a release that it serves.
#[derive(Debug, Default)]
pub struct LackingFiles {
    /// The paths of files without which no machine can be installed.
    pub install: Vec<String>,
    /// How many blobs of container images there are not; machines get those from registries.
    pub blobs: usize,
    /// The path of a configuration in the release, which nodes do not keep.
    pub configuration: Option<String>,
}

impl ServedRelease {
    /// The release with these files, and the images of `containerd`. Machines boot from it if it has all that an install needs; their
    /// installer gets its configuration from `config_url`.
    ///
    /// # Errors
    /// [`Class::Invalid`] if a part of the OS is missing, or `config_url` cannot be used in a boot script.
    pub fn new(
        files: MediumFiles,
        containerd: RunningContainerd,
        config_url: Option<String>,
    ) -> Result<Self> {
        let release = files.release();
        let slot = slot_payloads(release);
        let absent: Vec<_> = slot.iter().filter(|part| files.get(&part.path).is_none()).collect();
        if let Some(part) = absent.first() {
            let what = format!(
                "this node cannot serve {} {}: it lacks {}",
                release.name, release.version, part.path
            );
            return Err(Failure::new(Class::Invalid, what)
                .because(anyhow::anyhow!(
                    "an update by a patch leaves only the expanded OS image, and damaged files do not count"
                ))
                .hint("Fetch what is missing: installer update fetch --from MEDIUM")
                .into());
        }
        if let Some(url) = config_url.as_ref().filter(|url| !is_config_url(url)) {
            return Err(Failure::new(Class::Invalid, format!("{url:?} is not a URL for --config-url"))
                .hint("Give an http or https URL without spaces and quotes, such as https://boot.example.org/node.yaml.")
                .into());
        }
        let mut served = Self { files, containerd, boot: None };
        let lacking = served.lacking();
        if lacking.install.is_empty() && lacking.configuration.is_none() {
            let system = BootSystem::of(&served.files, &[])?;
            // A loader that this node lacks comes from the site's TFTP server.
            let (loaders, _) = loaders::collect(Path::new(IPXE), &served.files)?;
            served.boot = Some(NetworkBoot { system, loaders, config_url });
        }
        Ok(served)
    }

    /// Whether machines can boot from this node.
    #[must_use]
    pub fn is_bootable(&self) -> bool {
        self.boot.is_some()
    }

    #[must_use]
    pub fn lacking(&self) -> LackingFiles {
        let release = self.files.release();
        let install = self.files.lacking().filter(|payload| is_release_file(payload));
        let blobs =
            release.payloads(Purpose::ImageBlob).filter(|blob| !self.containerd.blob(&blob.sha256).is_file());
        LackingFiles {
            install: install.map(|payload| payload.path.clone()).collect(),
            blobs: blobs.count(),
            configuration: release.payload(Purpose::InstallConfig).map(|payload| payload.path.clone()),
        }
    }

    /// The file at a path without its first slash, and how long a cache may keep it; none for anything that is no part of the release,
    /// and for images that this node does not have. `iso-builder serve` has its files below [`MEDIUM`]; nodes read them at the root.
    fn file(&self, path: &str) -> io::Result<Option<(ServedFile, CachePolicy)>> {
        let path = path.strip_prefix(MEDIUM.trim_start_matches('/')).unwrap_or(path);
        if let Some((served, policy)) = self.files.find(path) {
            return Ok(Some((served.clone(), policy)));
        }
        let name = self.files.name(path);
        let mut blobs = self.files.release().payloads(Purpose::ImageBlob);
        let Some(blob) = blobs.find(|blob| blob.path == name) else { return Ok(None) };
        Ok(self.open_blob(blob)?.map(|served| (served, self.files.policy(path, blob.sha256))))
    }

    /// Opened for each request: containerd may remove it at any time.
    fn open_blob(&self, blob: &Payload) -> io::Result<Option<ServedFile>> {
        match File::open(self.containerd.blob(&blob.sha256)) {
            Ok(file) if file.metadata()?.len() != blob.size => Ok(None),
            Ok(file) => Ok(Some(ServedFile::whole(file, blob.size, blob.sha256))),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn answer<B>(&self, request: &Request<B>) -> io::Result<Response<ResponseBody>> {
        let head = match *request.method() {
            Method::GET => false,
            Method::HEAD => true,
            _ => return Ok(empty(StatusCode::METHOD_NOT_ALLOWED)),
        };
        let path = request.uri().path();
        let found = match (&self.boot, path) {
            (Some(boot), IPXE_START | GRUB_START) => {
                let host = request.headers().get(HOST).and_then(|host| host.to_str().ok());
                return Ok(boot.script(path, host));
            }
            (Some(boot), path) if path.starts_with(LOADERS) => {
                let loader = boot.loaders.get(&path[LOADERS.len()..]);
                loader.map(|served| (served.clone(), CachePolicy::Revalidate))
            }
            (_, path) => match percent::decode(path) {
                Some(path) => self.file(path.trim_start_matches('/'))?,
                None => None,
            },
        };
        let Some((served, policy)) = found else { return Ok(empty(StatusCode::NOT_FOUND)) };
        let selection = served.select(RangeFields::of(request.headers()), head);
        // hyper sends no body in the answer to HEAD.
        Ok(file_response(served, selection, policy))
    }
}

impl NetworkBoot {
    /// The commands for the loader that asked for `path` at the server `host`.
    fn script(&self, path: &str, host: Option<&str>) -> Response<ResponseBody> {
        let Some(host) = host.filter(|host| is_host(host)) else { return empty(StatusCode::BAD_REQUEST) };
        let base = format!("http://{host}");
        let medium = self.system.medium().trim_end_matches('/');
        let mut install = vec![format!("nqrust.install.medium={base}{medium}")];
        install.extend(self.config_url.iter().map(|url| format!("nqrust.install.config_url={url}")));
        let text = match path {
            IPXE_START => self.system.ipxe(&base, &install),
            _ => format!("{}sleep {GRUB_PAUSE}\nexit\n", self.system.grub(&base, &install)),
        };
        let mut response = with_length(StatusCode::OK, ResponseBody::whole(text));
        set_field(&mut response, CONTENT_TYPE, "text/plain; charset=utf-8");
        // It names the host of this request.
        set_field(&mut response, CACHE_CONTROL, CachePolicy::Never.field());
        response
    }
}

/// Whether machines can be told this URL in a boot script.
fn is_config_url(url: &str) -> bool {
    let rest = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    rest.is_some_and(|rest| !rest.is_empty() && is_plain(rest))
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
            match path {
                IPXE_START | GRUB_START => {
                    self.progress.note("serve", format!("{} boots from this node", connection.peer));
                }
                _ if path.rsplit('/').next() == Some(MANIFEST) => {
                    self.progress.note("serve", format!("{} asks for the release", connection.peer));
                }
                _ => {}
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
    use super::super::fetched::{DIRECTORY, fetched};
    use super::super::release_files::release_files;
    use super::*;
    use base::digest::Digest;
    use base::failure::class_of;
    use machine::paths::below;
    use medium::payload_sources::{RetryPolicy, read_manifest, source};
    use model::release::{Release, SIGNATURES};
    use model::release_manifest::ReleaseManifest;
    use std::collections::BTreeSet;
    use std::fs;
    use std::io::{Read as _, Write as _};
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::mpsc;
    use std::thread;
    use testing::release::{contents, release};
    use walkdir::WalkDir;

    static ENDED: AtomicBool = AtomicBool::new(false);
    static NEVER: AtomicBool = AtomicBool::new(false);

    /// A node that has fetched a release.
    struct Node {
        root: tempfile::TempDir,
        release: Release,
    }

    impl Node {
        /// The release of the tests, signed by somebody, with its images.
        fn new() -> Self {
            Self::of(release())
        }

        fn of(release: Release) -> Self {
            let node = Self { root: tempfile::tempdir().unwrap(), release };
            for (payload, bytes) in contents() {
                let place = match payload.purpose {
                    Purpose::ImageBlob => node.containerd().blob(&payload.sha256),
                    _ => node.directory().join(&payload.path),
                };
                node.put(&place, bytes);
            }
            node.put(&node.directory().join(SIGNATURES), b"signed\n");
            node.put(&node.directory().join(MANIFEST), &node.release.to_bytes());
            node
        }

        fn put(&self, path: &Path, bytes: &[u8]) {
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }

        fn digest(&self) -> Digest {
            Digest::of(&self.release.to_bytes())
        }

        fn directory(&self) -> PathBuf {
            below(self.root.path(), DIRECTORY).join(self.digest().to_string())
        }

        fn containerd(&self) -> RunningContainerd {
            RunningContainerd { root: self.root.path().join("containerd"), ..RunningContainerd::of(None) }
        }

        fn served(&self, config_url: Option<&str>) -> Result<ServedRelease> {
            let (_, digest) = fetched(self.root.path()).unwrap();
            assert_eq!(digest, self.digest());
            let signatures = fs::read(self.directory().join(SIGNATURES)).ok();
            let manifest = ReleaseManifest::parse(self.release.to_bytes(), signatures).unwrap();
            let (progress, cancel) = (Progress::silent(), Cancel::new(&NEVER));
            let files = release_files(self.root.path(), None, &manifest, &progress, &cancel).unwrap();
            ServedRelease::new(files, self.containerd(), config_url.map(str::to_owned))
        }
    }

    /// The answer to a request: its status, and the digest of the file or the text.
    fn ask(served: &ServedRelease, path: &str) -> (StatusCode, Vec<u8>) {
        let Ok(request) = Request::get(path).header(HOST, "192.0.2.11:7480").body(()) else {
            return (StatusCode::BAD_REQUEST, Vec::new());
        };
        let response = served.answer(&request).unwrap();
        let status = response.status();
        let body = match response.into_body().into_parts() {
            transfer::server::body::BodyParts::Whole(bytes) => bytes.to_vec(),
            transfer::server::body::BodyParts::Part(served, span) => {
                let (mut bytes, mut piece) = (Vec::new(), vec![0; 1 << 20]);
                while bytes.len() as u64 != span.length() {
                    let count = served.read_at(&mut piece, bytes.len() as u64).unwrap();
                    bytes.extend_from_slice(&piece[..count]);
                }
                bytes
            }
        };
        (status, body)
    }

    #[test]
    fn every_file_of_the_release_is_served_under_each_of_its_names_and_no_secret_under_any() {
        const SECRET: &[u8] = b"a-very-secret-token";
        let mut with_configuration = release();
        for (path, purpose) in
            [("config/install.yaml", Purpose::InstallConfig), ("boot/password.cfg", Purpose::BootPassword)]
        {
            let (size, sha256) = (SECRET.len() as u64, Digest::of(SECRET));
            with_configuration.payloads.push(Payload { path: path.into(), purpose, size, sha256 });
        }
        for release in [release(), with_configuration] {
            let node = Node::of(release);
            for place in [
                "oem/node.yaml",
                "oem/installed.json",
                "etc/shadow",
                "var/lib/rancher/rke2/server/token",
                "var/lib/nqrust/update/state.json",
                "var/lib/nqrust/release/x/secret",
            ] {
                node.put(&node.root.path().join(place), SECRET);
            }
            for name in ["config/install.yaml", "boot/password.cfg", "secret"] {
                node.put(&node.directory().join(name), SECRET);
            }
            let served = node.served(None).unwrap();
            // Every file of the node, by its path from each directory above it, as every kind of path that is served.
            let digest = node.digest().to_string();
            let mut names = BTreeSet::from([String::new(), "..".into(), digest.clone()]);
            for file in
                WalkDir::new(node.root.path()).into_iter().flatten().filter(|one| one.file_type().is_file())
            {
                for above in file.path().ancestors().skip(1) {
                    names.insert(file.path().strip_prefix(above).unwrap().to_str().unwrap().to_owned());
                }
            }
            names.extend(served.files.release().payloads.iter().map(|payload| payload.path.clone()));
            let starts = [
                "/",
                "//",
                "/medium/",
                "/loaders/",
                "/grub/",
                "/../",
                "/medium/../../",
                "/%2e%2e/",
                "/v1/config/",
            ];
            let mut found = BTreeSet::new();
            for name in &names {
                let below_digest = format!("/medium/{digest}/");
                for start in starts.into_iter().chain([below_digest.as_str()]) {
                    let (status, body) = ask(&served, &format!("{start}{name}"));
                    assert!(!body.windows(SECRET.len()).any(|part| part == SECRET), "{start}{name}");
                    if status == StatusCode::OK {
                        found.insert((start.replace(&digest, "DIGEST"), name.clone()));
                    }
                }
            }
            // What it has below the digest is what is served; other names are of the same files.
            let below = |start: &str| -> BTreeSet<_> {
                found.iter().filter(|(kind, _)| kind == start).map(|(_, name)| name.clone()).collect()
            };
            let mut expected: BTreeSet<_> =
                contents().iter().map(|(payload, _)| payload.path.clone()).collect();
            expected.extend([MANIFEST.to_owned(), SIGNATURES.to_owned()]);
            assert_eq!(below("/medium/DIGEST/"), expected);
            assert!(below("/medium/").is_superset(&expected) && below("/").is_superset(&expected));
            assert_eq!(below("/v1/config/"), BTreeSet::new());
        }
    }

    #[test]
    fn what_the_node_lacks_is_not_served_and_named() {
        let node = Node::new();
        let blob = node.release.payloads(Purpose::ImageBlob).next().unwrap();
        fs::remove_file(node.containerd().blob(&blob.sha256)).unwrap();
        let served = node.served(None).unwrap();
        assert_eq!(ask(&served, &format!("/{}", blob.path)).0, StatusCode::NOT_FOUND);
        assert_eq!((served.lacking().blobs, served.is_bootable()), (1, true));
        // Without a file for installs it still serves nodes. A damaged file is none.
        let core = node.release.payload(Purpose::GrubCore).unwrap();
        node.put(&node.directory().join(&core.path), &vec![0; usize::try_from(core.size).unwrap()]);
        let served = node.served(None).unwrap();
        assert_eq!((served.lacking().install, served.is_bootable()), (vec![core.path.clone()], false));
        assert_eq!(ask(&served, IPXE_START).0, StatusCode::NOT_FOUND);
        assert_eq!(ask(&served, "/live/initrd").0, StatusCode::OK);
        fs::remove_file(node.directory().join("live/rootfs.squashfs")).unwrap();
        let error = node.served(None).unwrap_err();
        assert_eq!(class_of(&error), Class::Invalid);
        let text = base::failure::render(&error);
        assert!(
            text.contains("it lacks live/rootfs.squashfs") && text.contains("installer update fetch"),
            "{text}"
        );
    }

    #[test]
    fn a_release_with_a_configuration_of_its_own_boots_no_machine() {
        let mut release = release();
        let (size, sha256) = (1, Digest::of(b"x"));
        let path = "config/install.yaml".to_owned();
        release.payloads.push(Payload { path: path.clone(), purpose: Purpose::InstallConfig, size, sha256 });
        let served = Node::of(release).served(None).unwrap();
        assert_eq!((served.is_bootable(), served.lacking().configuration), (false, Some(path)));
        assert!(served.lacking().install.is_empty());
    }

    #[test]
    fn boot_scripts_name_this_node_as_the_machine_knows_it() {
        let node = Node::new();
        let url = "https://boot.example.org/node.yaml";
        let script = |path: &str, config_url: Option<&str>| {
            let (status, text) = ask(&node.served(config_url).unwrap(), path);
            assert_eq!(status, StatusCode::OK);
            String::from_utf8(text).unwrap()
        };
        let medium = format!("http://192.0.2.11:7480/medium/{}", node.digest());
        let ipxe = script(IPXE_START, None);
        for part in [
            format!("kernel {medium}/live/vmlinuz "),
            format!("root=live:{medium}/live/rootfs.squashfs "),
            format!("nqrust.release={} ", node.digest().oci()),
            format!("nqrust.install.medium={medium} "),
        ] {
            assert!(ipxe.contains(&part), "{part}: {ipxe}");
        }
        assert!(!ipxe.contains("config_url") && !ipxe.contains("automatic"), "the installer asks: {ipxe}");
        let grub = script(GRUB_START, Some(url));
        assert!(
            grub.contains(&format!("nqrust.install.config_url={url}")) && grub.ends_with("exit\n"),
            "{grub}"
        );
        for wrong in ["boot.example.org/node.yaml", "http://", "http://a b", "https://${x}", "ftp://a"] {
            assert_eq!(class_of(&node.served(Some(wrong)).unwrap_err()), Class::Invalid, "{wrong}");
        }
        let served = node.served(None).unwrap();
        for host in ["${x}", "a/b"] {
            let request = Request::get(IPXE_START).header(HOST, host).body(()).unwrap();
            assert_eq!(served.answer(&request).unwrap().status(), StatusCode::BAD_REQUEST);
        }
        let request = Request::get(IPXE_START).header(HOST, "a").body(()).unwrap();
        let response = served.answer(&request).unwrap();
        assert_eq!(response.headers()[CACHE_CONTROL], "no-store", "it is only for this host");
        let request = Request::get(format!("/medium/{}/live/initrd", node.digest())).body(()).unwrap();
        let response = served.answer(&request).unwrap();
        assert_eq!(response.headers()[CACHE_CONTROL], "public, max-age=31536000, immutable");
    }

    #[test]
    fn another_node_reads_the_release_as_from_any_server_from_any_byte() {
        let node = Node::new();
        let served = node.served(None).unwrap();
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            scope.spawn(move || {
                let any = "127.0.0.1:0".parse().unwrap();
                serve(served, any, &Progress::silent(), &Cancel::new(&ENDED), |at| tell.send(at).unwrap())
                    .unwrap();
            });
            let url = format!("http://{}", told.recv().unwrap());
            for url in [url.clone(), format!("{url}/medium/{}", node.digest())] {
                let from = source(Some(&url), &[], RetryPolicy::default()).unwrap();
                let read = read_manifest(from.as_ref(), Some(node.digest())).unwrap();
                assert_eq!((&*read, read.signatures()), (&node.release, Some(&b"signed\n"[..])));
                for (payload, bytes) in contents() {
                    for offset in [0, bytes.len() / 2] {
                        let mut read = Vec::new();
                        from.open_from(payload, offset as u64).unwrap().read_to_end(&mut read).unwrap();
                        assert_eq!(read, bytes[offset..], "{} from {offset}", payload.path);
                    }
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
        // More than the buffers of two sockets hold.
        let large = vec![7; 64 << 20];
        let mut release = release();
        let rootfs = testing::release::replace(&mut release, Purpose::Rootfs, &large);
        let node = Node::of(release);
        node.put(&node.directory().join(&rootfs), &large);
        let manifest = node.release.to_bytes();
        let served = node.served(None).unwrap();
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
        let served = Node::new().served(None).unwrap();
        let elsewhere = "192.0.2.1:7480".parse().unwrap();
        let error = serve(served, elsewhere, &Progress::silent(), &Cancel::new(&NEVER), |_| ()).unwrap_err();
        assert_eq!(class_of(&error), Class::Network);
    }
}
