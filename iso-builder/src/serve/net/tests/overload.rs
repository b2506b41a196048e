//! A machine boots while somebody does all that he can to keep the server busy.

use super::*;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::serve::nodes::Origin;
use crate::serve::testing::NODE;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::runtime::{Builder, Runtime};

/// Slow clients, all from one address.
const SLOW: usize = 2000;
/// How often a machine boots meanwhile, from each of two addresses.
const BOOTS: u8 = 10;
/// How long one machine may take to boot: what it fetches takes a few milliseconds from a server that has nothing to do.
const BOOT: Duration = Duration::from_secs(5);
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

/// What a slow client begins with, and whether it goes on writing; else it reads, and hardly anything.
const KINDS: [(&str, bool); 4] = [
    ("GET /boot.ipxe HTTP/1.1\r\nHost: a\r\nX: ", true),
    ("POST /fleet HTTP/1.1\r\nHost: a\r\nContent-Length: 4000\r\n\r\nx", true),
    (
        "POST /v1/report/ffffffffffffffffffffffffffffffff HTTP/1.1\r\nHost: a\r\nContent-Length: 4000\r\n\r\nx",
        true,
    ),
    ("GET /medium/large HTTP/1.1\r\nHost: a\r\n\r\n", false),
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
    for (path, expected) in [("/medium/live/initrd", INITRD), ("/medium/live/rootfs.squashfs", &rootfs())] {
        let fetched = fetch(from, to, path).await.ok_or(format!("{path} of machine {number}"))?;
        assert!(fetched == expected, "{path}");
    }
    let mut words = script.split_whitespace();
    let url = words.find_map(|word| word.strip_prefix("nqrust.install.config_url="));
    let url = url.ok_or(format!("machine {number} is not installed: {script}"))?;
    let path = url.split('/').skip(3).fold(String::new(), |path, part| path + "/" + part);
    let configuration = text(fetch(from, to, &path).await, "the configuration")?;
    assert!(configuration.contains("node-1"), "{configuration}");
    Ok(())
}

#[test]
fn a_machine_boots_every_time_while_2000_slow_clients_of_one_address_do_what_they_can() {
    openable(10_000);
    let nodes = tempfile::tempdir().unwrap();
    for number in 0..2 * BOOTS {
        std::fs::write(nodes.path().join(format!("mac-52-54-00-00-00-{number:02x}.yaml")), NODE).unwrap();
    }
    let configurations = Configurations::load(&Origin::Directory(nodes.path().to_owned()), &[]).unwrap();
    let server = Server::of(&with_large_file("large"), configurations, Limits::default(), None);
    let attack = Attack::begin(server.address);
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    let mut longest = Duration::ZERO;
    let mut beside = 0;
    for number in 0..BOOTS {
        std::thread::sleep(Duration::from_millis(600));
        let began = Instant::now();
        let booted =
            runtime.block_on(async { timeout(BOOT, boot([127, 0, 0, 2], server.address, number)).await });
        booted.unwrap_or_else(|_| panic!("machine {number} is kept waiting")).unwrap();
        longest = longest.max(began.elapsed());
        // One that shares the address of the slow ones, as behind a NAT, may be refused, but is never kept waiting.
        let boot = boot([127, 0, 0, 1], server.address, BOOTS + number);
        let booted = runtime.block_on(async { timeout(BOOT, boot).await });
        let booted = booted.unwrap_or_else(|_| panic!("the machine beside them is kept waiting"));
        beside += usize::from(booted.is_ok());
    }
    drop(attack);
    println!(
        "the longest boot took {longest:?}; from the same address {beside} of {BOOTS} booted at the first try"
    );
}
