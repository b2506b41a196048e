//! `iso-builder serve` with its default limits, as a process: a machine boots while somebody does all that he can to keep the
//! server busy. On its own, because other tests beside it would be part of the attack.
#![allow(clippy::unwrap_used, clippy::panic, clippy::print_stdout, reason = "a test")]

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use base::digest::Digest;
use model::release::{MANIFEST, Payload, Purpose};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpSocket;
use tokio::runtime::{Builder, Runtime};
use tokio::time::{sleep, timeout};

/// Slow clients, all from one address.
const SLOW: usize = 2000;
/// How often a machine boots meanwhile, from each of two addresses.
const BOOTS: u8 = 10;
/// How long one machine may take to boot: what it fetches takes a few milliseconds from a server that has nothing to do.
const BOOT: Duration = Duration::from_secs(5);
/// As many files as the server may have open when it starts, which are too few for its connections.
const FILES: u64 = 1024;
const INITRD: &[u8] = b"the initial RAM file system";
/// A configuration that a machine can be installed with.
const NODE: &str = "token: 9f2c4e6a8b0d1357924680acebdf1357\n\
     os: {hostname: node-1, password: a-very-secret-password, ntp_servers: [192.0.2.123]}\n\
     install: {mode: create, vip: 192.0.2.10, device: /dev/disk/by-id/virtio-1}\n";
/// The attack ends by itself after this, whatever becomes of the test.
const ATTACK: Duration = Duration::from_secs(60);

/// A connection from this address of the loopback interface.
async fn connect(
    from: [u8; 4],
    to: SocketAddr,
    buffer: Option<u32>,
) -> std::io::Result<tokio::net::TcpStream> {
    let socket = TcpSocket::new_v4()?;
    if let Some(size) = buffer {
        socket.set_recv_buffer_size(size)?;
    }
    socket.bind((from, 0).into())?;
    socket.connect(to).await
}

/// The first bytes of a slow client, and whether it goes on writing; otherwise it reads very slowly.
const KINDS: [(&str, bool); 4] = [
    ("GET /boot.ipxe HTTP/1.1\r\nHost: a\r\nX: ", true),
    ("POST /fleet HTTP/1.1\r\nHost: a\r\nContent-Length: 4000\r\n\r\nx", true),
    (
        "POST /v1/report/ffffffffffffffffffffffffffffffff HTTP/1.1\r\nHost: a\r\nContent-Length: 4000\r\n\r\nx",
        true,
    ),
    ("GET /medium/rootfs.squashfs HTTP/1.1\r\nHost: a\r\n\r\n", false),
];

/// Is one slow client after the other until the attack is over.
async fn be_slow(number: usize, to: SocketAddr, over: Arc<AtomicBool>, connected: Arc<AtomicUsize>) {
    let (request, writes) = KINDS[number % KINDS.len()];
    while !over.load(Ordering::Relaxed) {
        if let Ok(mut stream) = connect([127, 0, 0, 1], to, (!writes).then_some(4096)).await {
            connected.fetch_add(1, Ordering::Relaxed);
            // No port is to be taken for a minute after its end.
            let _ = stream.set_zero_linger();
            let _ = stream.write_all(request.as_bytes()).await;
            while !over.load(Ordering::Relaxed) {
                sleep(Duration::from_secs(1)).await;
                let alive = match writes {
                    true => stream.write_all(b"x").await.is_ok() && !is_closed(&stream),
                    false => stream.read(&mut [0; 100]).await.is_ok_and(|count| count > 0),
                };
                if !alive {
                    break;
                }
            }
        }
        sleep(Duration::from_millis(500)).await;
    }
}

fn is_closed(stream: &tokio::net::TcpStream) -> bool {
    matches!(stream.try_read(&mut [0; 512]), Ok(0))
}

/// The attack; it is over when this is dropped.
struct Attack {
    over: Arc<AtomicBool>,
    runtime: Option<Runtime>,
}

impl Attack {
    /// Begins it, and waits until all slow clients have had a connection.
    fn begin(to: SocketAddr) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let (over, connected) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        for number in 0..SLOW {
            runtime.spawn(be_slow(number, to, Arc::clone(&over), Arc::clone(&connected)));
        }
        let limit = Arc::clone(&over);
        runtime.spawn(async move {
            sleep(ATTACK).await;
            limit.store(true, Ordering::Relaxed);
        });
        let began = Instant::now();
        while connected.load(Ordering::Relaxed) < SLOW && began.elapsed() < BOOT {
            std::thread::sleep(Duration::from_millis(50));
        }
        assert!(connected.load(Ordering::Relaxed) > SLOW / 2, "there is hardly an attack");
        Self { over, runtime: Some(runtime) }
    }
}

impl Drop for Attack {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

/// The body of what `path` is answered with; none unless it is all there.
async fn fetch(from: [u8; 4], to: SocketAddr, path: &str) -> Option<Vec<u8>> {
    let mut stream = connect(from, to, None).await.ok()?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {to}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.ok()?;
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.ok()?;
    let end = answer.windows(4).position(|window| window == b"\r\n\r\n")?;
    let body = answer.split_off(end + 4);
    let head = String::from_utf8(answer).ok()?.to_lowercase();
    let whole = head.contains(&format!("content-length: {}\r\n", body.len()));
    (head.starts_with("http/1.1 200 ") && whole).then_some(body)
}

/// Boots a machine as iPXE, the initrd and the installer do, each thing on a connection of its own: what did not come, if
/// anything did not.
async fn boot(from: [u8; 4], to: SocketAddr, number: u8) -> Result<(), String> {
    let text = |body: Option<Vec<u8>>, what: &str| {
        body.and_then(|body| String::from_utf8(body).ok()).ok_or(format!("{what} of machine {number}"))
    };
    let start = text(fetch(from, to, "/boot.ipxe").await, "boot.ipxe")?;
    assert!(start.contains("/v1/boot?"), "{start}");
    let script = fetch(from, to, &format!("/v1/boot?mac=52-54-00-00-00-{number:02x}")).await;
    let script = text(script, "the boot script")?;
    let initrd = fetch(from, to, "/medium/initrd").await.ok_or(format!("the initrd of machine {number}"))?;
    assert!(initrd == INITRD);
    let mut words = script.split_whitespace();
    let url = words.find_map(|word| word.strip_prefix("nqrust.install.config_url="));
    let url = url.ok_or(format!("machine {number} is not installed: {script}"))?;
    let path = url.split('/').skip(3).fold(String::new(), |path, part| path + "/" + part);
    let configuration = text(fetch(from, to, &path).await, "the configuration")?;
    assert!(configuration.contains("node-1"), "{configuration}");
    Ok(())
}

/// The smallest medium that can be served. Its OS image is 64 MiB of nothing, more than the buffers of two sockets hold.
fn medium(directory: &Path) {
    let size = 64 << 20;
    fs::write(directory.join("vmlinuz"), b"kernel").unwrap();
    fs::write(directory.join("initrd"), INITRD).unwrap();
    fs::File::create(directory.join("rootfs.squashfs")).unwrap().set_len(size).unwrap();
    let payload = |path: &str, purpose, size, content: &[u8]| Payload {
        path: path.into(),
        purpose,
        size,
        sha256: Digest::of(content),
    };
    let payloads = vec![
        payload("vmlinuz", Purpose::Kernel, 6, b"kernel"),
        payload("initrd", Purpose::Initrd, INITRD.len() as u64, INITRD),
        // Nobody looks at the digest of what no machine starts.
        payload("rootfs.squashfs", Purpose::Rootfs, size, b""),
    ];
    let release = testing::release::minimal("overload", payloads);
    fs::write(directory.join(MANIFEST), serde_json::to_vec(&release).unwrap()).unwrap();
}

/// The server; it ends when dropped.
struct Server {
    child: Child,
    address: SocketAddr,
}

impl Server {
    /// Starts it with a medium and configurations in `directory`, and few files that it may have open.
    fn start(directory: &Path) -> Self {
        let [medium_directory, nodes] = ["medium", "nodes"].map(|name| directory.join(name));
        fs::create_dir(&medium_directory).unwrap();
        fs::create_dir(&nodes).unwrap();
        medium(&medium_directory);
        for number in 0..2 * BOOTS {
            fs::write(nodes.join(format!("mac-52-54-00-00-00-{number:02x}.yaml")), NODE).unwrap();
        }
        // A port that is free now.
        let address = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let mut command = Command::new("sh");
        command.args(["-c", &format!("ulimit -S -n {FILES}; exec \"$@\""), "sh"]);
        command
            .args([
                env!("CARGO_BIN_EXE_iso-builder"),
                "serve",
                "--allow-unsigned",
                "--progress",
                "plain",
                "--configs",
            ])
            .arg(nodes);
        command.arg("--state").arg(directory.join("state"));
        command.args(["--listen", &address.to_string()]).arg(medium_directory);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let server = Self { child: command.spawn().unwrap(), address };
        let began = Instant::now();
        while std::net::TcpStream::connect(address).is_err() {
            assert!(began.elapsed() < Duration::from_secs(30), "the server does not start");
            std::thread::sleep(Duration::from_millis(20));
        }
        server
    }

    /// As many files as it may have open.
    fn files(&self) -> u64 {
        let limits = fs::read_to_string(format!("/proc/{}/limits", self.child.id())).unwrap();
        let line = limits.lines().find(|line| line.starts_with("Max open files")).unwrap();
        line.split_whitespace().nth(3).unwrap().parse().unwrap()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn a_machine_boots_every_time_while_2000_slow_clients_of_one_address_do_what_they_can() {
    let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    assert!(hard > 2 * SLOW as u64, "so many slow clients need as many open files: raise `ulimit -Hn`");
    setrlimit(Resource::RLIMIT_NOFILE, hard, hard).unwrap();
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    assert!(server.files() > FILES, "it has made its limit of open files fit its connections");
    let attack = Attack::begin(server.address);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let (mut longest, mut beside) = (Duration::ZERO, 0);
    for number in 0..BOOTS {
        std::thread::sleep(Duration::from_millis(600));
        let began = Instant::now();
        let machine = boot([127, 0, 0, 2], server.address, number);
        let booted = runtime.block_on(async { timeout(BOOT, machine).await });
        booted.unwrap_or_else(|_| panic!("machine {number} is kept waiting")).unwrap();
        longest = longest.max(began.elapsed());
        // One that shares the address of the slow ones, as behind a NAT, may be refused, but is never kept waiting.
        let machine = boot([127, 0, 0, 1], server.address, BOOTS + number);
        let booted = runtime.block_on(async { timeout(BOOT, machine).await });
        beside +=
            usize::from(booted.unwrap_or_else(|_| panic!("machine {number} beside them waits")).is_ok());
    }
    drop(attack);
    println!(
        "the longest boot took {longest:?}; from the same address {beside} of {BOOTS} booted at the first try"
    );
}
