use super::*;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream as ClientConnections};
use std::time::{Duration, Instant};

use crate::machines::configurations::Configurations;
use crate::test_support::{INITRD, medium, write_manifest};
use base::digest::Digest;
use medium::network_boot::files::MediumFiles;
use medium::network_boot::system::BootSystem;
use medium::payload_sources::{HttpMedium, PayloadSource as _, RetryPolicy};
use model::release::{MediumKind, Payload, Purpose};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use testing::medium::SampleMedium;
use tokio::net::TcpSocket;
use tokio::sync::watch;
use transfer::server::accept::{ServerLimits, listen, serve};
use transfer::server::transfer_rate::{TransferRate, TransferRates};

/// A server in a thread of its own.
struct Server {
    address: SocketAddr,
    stop: watch::Sender<bool>,
    thread: Option<std::thread::JoinHandle<()>>,
    _directory: tempfile::TempDir,
}

impl Server {
    fn start(limits: ServerLimits) -> Self {
        Self::secured(limits, None)
    }

    fn secured(limits: ServerLimits, tls: Option<TlsAcceptor>) -> Self {
        let sample = medium(MediumKind::Full);
        Self::of(&sample, Configurations::default(), limits, tls)
    }

    fn of(
        sample: &SampleMedium,
        configurations: Configurations,
        limits: ServerLimits,
        tls: Option<TlsAcceptor>,
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let files = MediumFiles::open(&sample.tree()).unwrap();
        let system = BootSystem::of(&files, &[]).unwrap();
        let store = crate::test_support::registry(directory.path());
        let router = Arc::new(Router::new(files, system, store, configurations));
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let listener = runtime.block_on(listen(([127, 0, 0, 1], 0).into())).unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = watch::channel(false);
        let thread = std::thread::spawn(move || {
            let connections = Arc::new(NetbootConnections { router, tls });
            runtime.block_on(serve(listener, connections, limits, stopped));
        });
        Self { address, stop, thread: Some(thread), _directory: directory }
    }

    fn connect(&self) -> ClientConnections {
        let client = ClientConnections::connect(self.address).unwrap();
        client.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        client
    }

    /// Head and body of the answer to a request on a connection of its own.
    fn ask(&self, request: &str) -> (String, Vec<u8>) {
        let mut client = self.connect();
        client
            .write_all(format!("{request}Host: localhost\r\nConnection: close\r\n\r\n").as_bytes())
            .unwrap();
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap();
        (String::from_utf8(answer[..end + 2].to_vec()).unwrap().to_lowercase(), answer[end + 4..].to_vec())
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn rootfs() -> Vec<u8> {
    (0..300_000_u32).map(|n| (n % 253) as u8).collect()
}

#[test]
fn a_file_comes_whole_in_parts_and_without_its_body() {
    let server = Server::start(ServerLimits::default());
    let (head, body) = server.ask("GET /medium/live/rootfs.squashfs HTTP/1.1\r\n");
    assert!(head.starts_with("http/1.1 200 ok\r\n") && head.contains("content-length: 300000\r\n"), "{head}");
    assert!(head.contains("accept-ranges: bytes\r\n"), "{head}");
    assert!(body == rootfs());
    let tag = head.lines().find_map(|line| line.strip_prefix("etag: ")).unwrap().to_owned();
    let path = "GET /medium/live/rootfs.squashfs HTTP/1.1\r\n";
    let (head, body) = server.ask(&format!("{path}Range: bytes=299990-\r\nIf-Range: {tag}\r\n"));
    assert!(head.starts_with("http/1.1 206"), "{head}");
    assert!(head.contains("content-range: bytes 299990-299999/300000\r\n"), "{head}");
    assert_eq!(body, &rootfs()[299_990..]);
    let (head, body) = server.ask(&format!("{path}Range: bytes=300000-\r\n"));
    assert!(head.starts_with("http/1.1 416") && head.contains("content-range: bytes */300000\r\n"), "{head}");
    assert!(body.is_empty());
    let (head, body) = server.ask(&format!("{path}If-None-Match: {tag}\r\n"));
    assert!(head.starts_with("http/1.1 304") && head.contains(&tag) && body.is_empty(), "{head}");
    let (head, body) = server.ask("HEAD /medium/live/rootfs.squashfs HTTP/1.1\r\n");
    assert!(head.contains("content-length: 300000\r\n") && body.is_empty(), "{head}");
}

#[test]
fn one_connection_carries_files_and_all_else_in_any_order_and_any_pieces() {
    let server = Server::start(ServerLimits::default());
    let mut client = server.connect();
    let file = "GET /medium/live/initrd HTTP/1.1\r\nHost: a\r\n\r\n";
    let part = file.replace("Host", "Range: bytes=4-10\r\nHost");
    let script = "GET /v1/boot?serial=a1 HTTP/1.1\r\nHost: localhost\r\n\r\n";
    // Requests that are sent ahead of answers wait in the stream.
    client.write_all([file, &part, script, file].concat().as_bytes()).unwrap();
    let last = file.replace("Host", "Connection: close\r\nHost");
    let (begun, rest) = last.split_at(30);
    client.write_all(begun.as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(20));
    client.write_all(rest.as_bytes()).unwrap();
    let mut answers = Vec::new();
    client.read_to_end(&mut answers).unwrap();
    let answers = String::from_utf8(answers).unwrap();
    let initrd = std::str::from_utf8(INITRD).unwrap();
    assert_eq!(answers.matches(initrd).count(), 3, "{answers}");
    let statuses: Vec<_> = answers.split("HTTP/1.1 ").skip(1).map(|answer| &answer[..3]).collect();
    assert_eq!(statuses, ["200", "206", "200", "200", "200"], "{answers}");
    assert!(answers.contains(&format!("\r\n\r\n{}HTTP/1.1", &initrd[4..11])), "{answers}");
}

#[test]
fn a_file_is_the_same_however_it_is_sent() {
    let server = Server::start(ServerLimits::default());
    for fields in ["", "Range: bytes=7-\r\n", "Range: bytes=999999-\r\n", "If-None-Match: *\r\n"] {
        for path in ["live/rootfs.squashfs", "release.json", "absent"] {
            let request = format!("GET /medium/{path} HTTP/1.1\r\n{fields}");
            // A length, even of nothing, leaves a request to hyper.
            let (direct, hyper) =
                (server.ask(&request), server.ask(&format!("{request}Content-Length: 0\r\n")));
            let sorted = |head: &str| {
                let date = |line: &&str| !line.starts_with("date: ");
                let mut lines: Vec<_> = head.lines().filter(date).map(str::to_owned).collect();
                lines.sort();
                lines
            };
            assert_eq!(sorted(&direct.0), sorted(&hyper.0), "{request}");
            assert!(direct.1 == hyper.1, "{request}");
        }
    }
}

#[test]
fn what_is_not_served_is_refused_with_its_status() {
    let server = Server::start(ServerLimits::default());
    for (request, status) in [
        ("GET /medium/../../etc/passwd HTTP/1.1\r\n", "404"),
        ("GET /medium/%2e%2e/%2e%2e/etc/passwd HTTP/1.1\r\n", "404"),
        ("GET /medium/live/initrd%00 HTTP/1.1\r\n", "404"),
        ("GET //etc/passwd HTTP/1.1\r\n", "404"),
        ("POST /medium/live/initrd HTTP/1.1\r\nContent-Length: 0\r\n", "405"),
        ("HEAD /v1/boot?serial=a1 HTTP/1.1\r\n", "405"),
        ("GET /v1/boot HTTP/1.1\r\n", "400"),
        ("GET /v1/config/00000000000000000000000000000000 HTTP/1.1\r\n", "404"),
        ("GET /v1/boot?serial=a1 HTTP/1.1\r\n", "200"),
    ] {
        let (head, _) = server.ask(request);
        assert!(head.starts_with(&format!("http/1.1 {status}")), "{request}{head}");
    }
}

#[test]
fn a_client_that_trusts_the_authority_is_served_over_https() {
    let directory = tempfile::tempdir().unwrap();
    let (certificate, key) = crate::server::tls::tests::certificate(directory.path());
    let tls = crate::server::tls::acceptor(&certificate, &key).unwrap();
    let server = Server::secured(ServerLimits::of(5, None), Some(tls));
    // Connections without a handshake do not block others.
    let silent: Vec<_> = (0..20).map(|_| server.connect()).collect();
    let url = format!("https://{}/medium/live/initrd", server.address);
    let fetch = |arguments: &[&std::ffi::OsStr]| {
        let mut curl = std::process::Command::new("curl");
        curl.args(["--silent", "--fail", &url]).args(arguments).output().unwrap()
    };
    assert_eq!(fetch(&["--cacert".as_ref(), certificate.as_os_str()]).stdout, INITRD);
    assert!(!fetch(&[]).status.success(), "an unknown authority");
    drop(silent);
}

#[test]
fn an_installer_that_trusts_the_servers_own_authority_takes_a_medium_from_it_and_goes_on_after_a_new_start() {
    let state = tempfile::tempdir().unwrap();
    let names = crate::server::authority::names([127, 0, 0, 1].into(), None);
    let mut authorities = Vec::new();
    for _ in 0..2 {
        let own = crate::server::authority::keep(state.path(), &names, jiff::Timestamp::now()).unwrap();
        authorities.push(std::fs::read_to_string(&own.authority.file).unwrap());
        let tls = crate::server::tls::acceptor(&own.certificate, &own.key).unwrap();
        let server = Server::secured(ServerLimits::default(), Some(tls));
        let url = format!("https://{}/medium", server.address);
        // The authority that was handed out at the first start.
        let medium = HttpMedium::open(&url, &authorities[..1], RetryPolicy::default()).unwrap();
        let release = String::from_utf8(medium.manifest().unwrap()).unwrap();
        assert!(release.contains("live/initrd"), "{release}");
    }
}

/// As many of `wanted` connections as the limit on open files allows, which is raised as far as possible.
fn openable(wanted: usize) -> usize {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let _ = setrlimit(Resource::RLIMIT_NOFILE, hard.min(65_536), hard);
    let (open, _) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    // Other tests have files open too.
    wanted.min(usize::try_from(open).unwrap().saturating_sub(2000)).max(300)
}

#[test]
fn ten_thousand_clients_that_never_ask_keep_nobody_out() {
    let limits = ServerLimits::default();
    let server = Server::start(limits);
    let idle: Vec<_> = (0..openable(10_000))
        .map(|number| {
            if number % 50 == 0 {
                // The kernel drops connections while its queue is full, and clients retry after a second only.
                std::thread::sleep(Duration::from_millis(10));
            }
            let mut client = server.connect();
            if number % 2 == 0 {
                // It may have been refused before it could write.
                let _ = client.write_all(b"GET /medium/live/initrd HTTP/1.1\r\nHost: ");
            }
            client
        })
        .collect();
    for _ in 0..3 {
        let (_, body) = server.ask("GET /medium/live/initrd HTTP/1.1\r\n");
        assert_eq!(body, INITRD);
    }
    drop(idle);
}

#[test]
fn a_handful_of_connections_is_enough_for_who_asks() {
    let server = Server::start(ServerLimits::of(20, None));
    let silent: Vec<_> = (0..300).map(|_| server.connect()).collect();
    for _ in 0..3 {
        let (_, body) = server.ask("GET /medium/live/initrd HTTP/1.1\r\n");
        assert_eq!(body, INITRD);
    }
    drop(silent);
}

#[test]
fn a_request_that_does_not_come_to_its_end_is_given_up() {
    let server = Server::start(ServerLimits { wait: Duration::from_millis(200), ..ServerLimits::default() });
    for sent in [&b""[..], b"GET / HTTP/1.1\r\nX: ", b"GET /medium/live/initrd HTTP/1.1\r\nHost: a\r\n\r\n"] {
        let mut client = server.connect();
        client.write_all(sent).unwrap();
        // Reads to the end of the connection; there is an answer if a whole request was sent.
        let mut answer = Vec::new();
        client.read_to_end(&mut answer).unwrap();
        assert_eq!(answer.ends_with(INITRD), sent.ends_with(b"\r\n\r\n"));
    }
}

/// Rates with windows that are short enough for a test.
fn impatient() -> TransferRates {
    let (bytes, window) = (32 << 10, Duration::from_millis(600));
    let never = TransferRate { bytes: 0, window };
    TransferRates {
        least: TransferRate { bytes, window },
        floor: never,
        ample: TransferRate { bytes, window: window / 4 },
    }
}

/// A medium with a file of 64 MiB, which is more than the buffers of two sockets hold.
fn with_large_file(path: &str) -> SampleMedium {
    let mut sample = medium(MediumKind::Full);
    let size = 64 << 20;
    std::fs::File::create(sample.tree().join(path)).unwrap().set_len(size).unwrap();
    let (path, purpose, sha256) = (path.to_owned(), Purpose::GrubCore, Digest::of(b""));
    sample.release.payloads.push(Payload { path, purpose, size, sha256 });
    write_manifest(&sample);
    sample
}

#[test]
fn a_client_that_takes_nothing_or_too_little_is_given_up() {
    let limits = ServerLimits { rates: impatient(), ..ServerLimits::default() };
    let server = Server::of(&with_large_file("large"), Configurations::default(), limits, None);
    // A length, even of nothing, leaves a request to hyper.
    for (field, trickles) in [("", false), ("", true), ("Content-Length: 0\r\n", true)] {
        let mut greedy = server.connect();
        greedy.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        greedy.write_all(format!("GET /medium/large HTTP/1.1\r\nHost: a\r\n{field}\r\n").as_bytes()).unwrap();
        let began = Instant::now();
        let reset = loop {
            std::thread::sleep(Duration::from_millis(50));
            assert!(began.elapsed() < Duration::from_secs(20), "{field:?}");
            // A reset shows in the next write or read.
            if let Err(error) = greedy.write(b"x").and_then(|_| match trickles {
                true => greedy.read(&mut [0; 64]),
                false => Ok(1),
            }) && error.kind() != std::io::ErrorKind::WouldBlock
            {
                break error.kind();
            }
        };
        use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
        assert!(matches!(reset, ConnectionReset | BrokenPipe), "{reset:?}");
        assert!(began.elapsed() >= Duration::from_millis(500), "{:?}", began.elapsed());
    }
}

#[test]
fn a_client_that_takes_enough_is_not_given_up_though_its_window_is_mostly_closed() {
    let server = Server::of(
        &with_large_file("large"),
        Configurations::default(),
        ServerLimits { rates: impatient(), ..ServerLimits::default() },
        None,
    );
    let socket =
        tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(async {
            let socket = TcpSocket::new_v4().unwrap();
            // Small, so that its window closes when it stops reading.
            socket.set_recv_buffer_size(16 << 10).unwrap();
            socket.connect(server.address).await.unwrap().into_std().unwrap()
        });
    let mut client: ClientConnections = socket;
    client.set_nonblocking(false).unwrap();
    client.write_all(b"GET /medium/large HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let (began, mut taken) = (Instant::now(), 0);
    while began.elapsed() < Duration::from_secs(3) {
        taken += client.read(&mut [0; 16 << 10]).unwrap();
        std::thread::sleep(Duration::from_millis(40));
    }
    assert!(taken > 100 << 10 && taken < 10 << 20, "{taken}");
}

#[test]
fn a_head_that_trickles_in_is_given_up_before_its_time_is_over() {
    let server = Server::start(ServerLimits { rates: impatient(), ..ServerLimits::default() });
    let (mut client, began) = (server.connect(), Instant::now());
    client.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    client.write_all(b"GET /boot.ipxe HTTP/1.1\r\nX: ").unwrap();
    while client.write_all(b"x").is_ok() && !matches!(client.read(&mut [0; 9]), Ok(0)) {
        assert!(began.elapsed() < Duration::from_secs(20));
    }
}

#[test]
fn a_connection_for_which_there_is_no_room_is_told_so_at_once() {
    let server =
        Server::of(&with_large_file("large"), Configurations::default(), ServerLimits::of(2, Some(2)), None);
    let busy: Vec<_> = (0..2)
        .map(|_| {
            let mut client = server.connect();
            client.write_all(b"GET /medium/large HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
            client.read_exact(&mut [0; 100]).unwrap();
            client
        })
        .collect();
    let (mut client, began) = (server.connect(), Instant::now());
    let mut answer = String::new();
    client.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("Retry-After: "), "{answer}");
    assert!(began.elapsed() < Duration::from_secs(5));
    drop(busy);
    // The server hears of it when it sends the next part of the large file.
    let until = Instant::now() + Duration::from_secs(20);
    while server.ask("GET /medium/live/initrd HTTP/1.1\r\n").1 != INITRD {
        assert!(Instant::now() < until, "the room is not free again");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_transfer_ends_though_the_server_is_told_to_stop() {
    let server = Server::start(ServerLimits { grace: Duration::from_secs(60), ..ServerLimits::default() });
    let mut client = server.connect();
    let request = "GET /medium/live/rootfs.squashfs HTTP/1.1\r\nHost: a\r\n\r\n";
    client.write_all(request.as_bytes()).unwrap();
    let mut begun = vec![0; 1000];
    client.read_exact(&mut begun).unwrap();
    let idle = server.connect();
    server.stop.send(true).unwrap();
    let mut rest = Vec::new();
    client.read_to_end(&mut rest).unwrap();
    assert!(rest.ends_with(&rootfs()[2000..]));
    drop(server);
    drop(idle);
}

/// Runs the initrd's download of an OS image with this digest; its messages, and the image if it accepted one.
fn fetch(server: &Server, digest: &str, begun: Option<&[u8]>) -> (String, Option<Vec<u8>>) {
    let module = std::path::Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../overlays/initrd/usr/lib/dracut/modules.d/95nqrust/nqrustroot.sh");
    let directory = tempfile::tempdir().unwrap();
    let image = directory.path().join("image");
    if let Some(begun) = begun {
        std::fs::write(&image, begun).unwrap();
    }
    // The functions of dracut's library, and a next program that reports its call.
    let script = "getarg() { [ \"$1\" != nqrust.rootfs= ] || echo \"$DIGEST\"; }\n\
                  info() { echo \"$*\"; }\nwarn() { echo \"$*\"; }\ndie() { echo \"$*\"; exit 1; }\n\
                  module=\"$1\"; set -- eth0 \"$2\"; . \"$module\"\n";
    let output = std::process::Command::new("sh")
        .args(["-c", script, "sh"])
        .arg(module)
        .arg(format!("nqrust:http://{}/medium/rootfs.squashfs", server.address))
        .env("DIGEST", digest)
        .env("NQRUST_IMAGE", &image)
        .env("NQRUST_NEXT", "/bin/echo")
        .env("NQRUST_PAUSE", "0")
        .env("NQRUST_ATTEMPTS", "5")
        .output()
        .unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let handed = said.lines().any(|line| line == image.display().to_string());
    assert_eq!(handed, output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    // The manifest comes with it, and the signatures if there are some.
    assert_eq!(handed, directory.path().join("release.json").exists());
    assert!(!directory.path().join("release.json.minisig").exists());
    (said, handed.then(|| std::fs::read(image).unwrap()))
}

/// A medium as it is built: the manifest is beside the OS image.
fn with_image_at_the_root() -> SampleMedium {
    let mut sample = medium(MediumKind::Full);
    let tree = sample.tree();
    let image =
        sample.release.payloads.iter_mut().find(|payload| payload.purpose == Purpose::Rootfs).unwrap();
    let from = std::mem::replace(&mut image.path, "rootfs.squashfs".to_owned());
    std::fs::rename(tree.join(from), tree.join(&image.path)).unwrap();
    write_manifest(&sample);
    sample
}

#[test]
fn the_initrd_hands_over_the_os_image_whole_and_only_if_it_is_the_right_one() {
    let server =
        Server::of(&with_image_at_the_root(), Configurations::default(), ServerLimits::default(), None);
    let digest = base::digest::Digest::of(&rootfs()).oci();
    let (_, image) = fetch(&server, &digest, None);
    assert!(image.as_deref() == Some(&rootfs()));
    // An interrupted transfer resumes; one of another file starts again.
    let begun = &rootfs()[..100_000];
    assert!(fetch(&server, &digest, Some(begun)).1.as_deref() == Some(&rootfs()));
    let (said, image) = fetch(&server, &digest, Some(b"something else"));
    assert!(image.as_deref() == Some(&rootfs()) && said.contains("has the SHA-256"), "{said}");
    assert!(fetch(&server, &digest, Some(&rootfs())).1.as_deref() == Some(&rootfs()));
    let other = base::digest::Digest::of(b"").oci();
    let (said, image) = fetch(&server, &other, None);
    assert!(image.is_none() && said.contains("is not the one that this boot is for"), "{said}");
}

#[test]
fn the_initrd_gives_up_on_a_server_that_is_not_there() {
    let server = Server::start(ServerLimits::default());
    server.stop.send(true).unwrap();
    // Wait until the socket is closed.
    while ClientConnections::connect(server.address).is_ok() {
        std::thread::sleep(Duration::from_millis(10));
    }
    let (said, image) = fetch(&server, "sha256:00", None);
    assert!(image.is_none() && said.contains("cannot be fetched"), "{said}");
}
