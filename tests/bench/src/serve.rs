//! `iso-builder serve` with 200 clients at once, beside nginx with the same file in the same run: throughput and
//! memory; and the throughput of sendfile(2) beside that of hyper, which answers all other requests: the reason for two
//! readers of requests (`sendfile.rs` of netboot).

use std::fs;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use base::digest::Digest;
use model::release::{MANIFEST, Payload, Purpose};
use nqrust_tests::artifacts::Artifacts;
use nqrust_tests::deadline::Deadline;
use nqrust_tests::programs;
use testing::release::minimal;

use crate::figure::{Figure, RatioLimit};
use crate::images::high_water;
use crate::scale::Scale;

/// Clients that fetch at the same time.
const CLIENTS: usize = 200;
/// The length of the file that each fetches.
const FILE_BYTES: usize = 64 << 20;
/// The path of the file on both servers.
const FILE_PATH: &str = "/medium/rootfs.squashfs";
/// With this field, which changes nothing else, a request for a file is answered by hyper.
const BY_HYPER: &str = "Content-Length: 0\r\n";
const PEAK_LIMIT_MIB: f64 = 300.0;
/// From the start of a server to its first answer.
const START_LIMIT: Duration = Duration::from_secs(30);

/// Measures both servers, each after a fetch that brings the file into the page cache.
#[allow(clippy::cast_precision_loss)]
pub(crate) fn measure(artifacts: &Artifacts, scale: Scale) -> Result<Vec<Figure>> {
    let medium = medium(&artifacts.disk("served"), FILE_BYTES)?;
    let ours = BenchServer::ours(&medium, artifacts)?;
    let rate = ours.rate("")?;
    let peak = high_water(&ours.child).context("the memory of iso-builder serve")? as f64 / 1024.0;
    let hyper = ours.rate(BY_HYPER)?;
    drop(ours);
    let mut figures = Vec::new();
    // The short form runs where only tests run, and tests do not need nginx.
    if scale == Scale::Full {
        let nginx = BenchServer::nginx(&medium, artifacts)?.rate("")?;
        let name = format!("serve, {CLIENTS} clients at once");
        figures.push(Figure::new(&name, rate, "MB/s", ("nginx", nginx)).limit(RatioLimit::AtLeast(0.95)));
    }
    figures.extend([
        Figure::new("serve, files by sendfile(2)", rate, "MB/s", ("hyper", hyper))
            .limit(RatioLimit::AtLeast(1.3)),
        Figure::new("peak memory of serve", peak, "MiB", ("limit", PEAK_LIMIT_MIB))
            .limit(RatioLimit::AtMost(1.0)),
    ]);
    Ok(figures)
}

/// Makes the smallest medium that can be served: a kernel, an initrd and an OS image of `size` bytes.
pub(crate) fn medium(directory: &Path, size: usize) -> Result<PathBuf> {
    fs::create_dir_all(directory)?;
    let rootfs: Vec<u8> = (0..size).map(|n| (n % 251) as u8).collect();
    let files: [(&str, Purpose, &[u8]); 3] = [
        ("vmlinuz", Purpose::Kernel, b"kernel"),
        ("initrd", Purpose::Initrd, b"initrd"),
        ("rootfs.squashfs", Purpose::Rootfs, &rootfs),
    ];
    let mut payloads = Vec::new();
    for (path, purpose, bytes) in files {
        fs::write(directory.join(path), bytes)?;
        let (size, sha256) = (bytes.len() as u64, Digest::of(bytes));
        payloads.push(Payload { path: path.into(), purpose, size, sha256 });
    }
    fs::write(directory.join(MANIFEST), minimal("bench", payloads).to_bytes())?;
    Ok(directory.to_owned())
}

/// A running server; it ends when dropped.
pub(crate) struct BenchServer {
    child: Child,
    /// On the loopback interface.
    pub(crate) port: u16,
}

impl BenchServer {
    fn ours(medium: &Path, artifacts: &Artifacts) -> Result<Self> {
        Self::with_state(medium, &artifacts.disk("serve-state"), None, START_LIMIT)
    }

    /// Starts `iso-builder serve` with this state and these configurations; it has to answer within `limit`.
    pub(crate) fn with_state(
        medium: &Path,
        state: &Path,
        nodes: Option<&Path>,
        limit: Duration,
    ) -> Result<Self> {
        let mut command = programs::iso_builder()?;
        let port = free_port()?;
        command.args(["serve", "--allow-unsigned"]).arg(medium).args(["--progress", "json", "--listen"]);
        command.arg(format!("127.0.0.1:{port}")).arg("--state").arg(state);
        if let Some(nodes) = nodes {
            command.arg("--configs").arg(nodes);
        }
        Self::start(command, port, limit)
    }

    /// The id of its process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    fn nginx(medium: &Path, artifacts: &Artifacts) -> Result<Self> {
        let directory = artifacts.disk("nginx");
        fs::create_dir_all(&directory)?;
        let port = free_port()?;
        // The user of nginx's workers, where root starts it, need not be able to read below its home directory.
        let user = if nix::unistd::Uid::effective().is_root() { "user root;\n" } else { "" };
        let configuration = format!(
            "{user}daemon off;\nworker_processes auto;\npid {0}/pid;\nerror_log {0}/error.log;\n\
             events {{ worker_connections 1024; }}\n\
             http {{\n  access_log off;\n  sendfile on;\n  tcp_nopush on;\n  client_body_temp_path {0}/body;\n  \
             proxy_temp_path {0}/proxy;\n  fastcgi_temp_path {0}/fastcgi;\n  uwsgi_temp_path {0}/uwsgi;\n  \
             scgi_temp_path {0}/scgi;\n  server {{\n    listen 127.0.0.1:{port} backlog=1024;\n    \
             location /medium/ {{ alias {1}/; }}\n  }}\n}}\n",
            directory.display(),
            medium.display()
        );
        let file = directory.join("nginx.conf");
        fs::write(&file, configuration)?;
        let mut command = Command::new("/usr/sbin/nginx");
        command.arg("-p").arg(&directory).arg("-c").arg(file);
        Self::start(command, port, START_LIMIT)
    }

    fn start(mut command: Command, port: u16, limit: Duration) -> Result<Self> {
        let name = command.get_program().to_string_lossy().into_owned();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().with_context(|| format!("starting {name}"))?;
        let mut server = Self { child, port };
        Deadline::after(limit).poll(&format!("the first answer of {name}"), || {
            if let Some(status) = server.child.try_wait()? {
                bail!("{name} ended with {status}");
            }
            Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok().map(drop))
        })?;
        Ok(server)
    }

    /// Megabytes a second, all clients together, each of which sends the header fields `further` too.
    #[allow(clippy::cast_precision_loss)]
    fn rate(&self, further: &'static str) -> Result<f64> {
        fetch(self.port, further)?;
        let began = Instant::now();
        let port = self.port;
        let clients: Vec<_> = (0..CLIENTS).map(|_| thread::spawn(move || fetch(port, further))).collect();
        let mut bytes = 0;
        for client in clients {
            bytes += client.join().map_err(|_| anyhow::anyhow!("a client panicked"))??;
        }
        Ok(bytes as f64 / 1e6 / began.elapsed().as_secs_f64())
    }
}

impl Drop for BenchServer {
    fn drop(&mut self) {
        // nginx's workers end with their master only if the master is asked to end.
        let id = i32::try_from(self.child.id()).unwrap_or(i32::MAX);
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(id), nix::sys::signal::Signal::SIGTERM);
        let _ = self.child.wait();
    }
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}

/// Fetches the file once, with the header fields `further`; returns how many bytes were received, headers included.
fn fetch(port: u16, further: &str) -> Result<usize> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).context("connecting")?;
    stream.write_all(
        format!("GET {FILE_PATH} HTTP/1.1\r\nHost: bench\r\n{further}Connection: close\r\n\r\n").as_bytes(),
    )?;
    let mut buffer = vec![0; 256 * 1024];
    let mut total = 0;
    loop {
        match stream.read(&mut buffer).context("fetching")? {
            0 if total > FILE_BYTES => return Ok(total),
            0 => bail!("only {total} bytes came"),
            count => total += count,
        }
    }
}
