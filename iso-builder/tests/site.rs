//! The cache of a site: nginx with the configuration in `configs/sites`, between machines and a server, whose line becomes
//! slow, is cut, and is down.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test ends where it cannot go on, helpers included")]

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread::sleep;
use std::time::{Duration, Instant};

use base::size::ByteSize;
use medium::payload_sources::{HttpMedium, PayloadSource, RetryPolicy, VerifyingReader};
use model::release::{MANIFEST, Release};
use nqrust_load::boot_server::{BootServer, BootServerPlan, free_address};
use nqrust_load::line::{Line, LineState};
use nqrust_load::prepare::{self, MediumSizes};
use nqrust_load::report::LoadReport;
use nqrust_load::run::{Content, LoadPlan, RetryLimits};
use nqrust_load::servers::Servers;

const CONFIGURATION: &str = include_str!("../../configs/sites/nginx.conf");
const NGINX: &str = "/usr/sbin/nginx";
const MACHINES: u32 = 7;
/// What is looked at of a file in the cache, in bytes.
const BEGINNING: u64 = 16 << 10;
/// What a machine may cost the line besides files: scripts, its configuration, answers to its reports.
const MACHINE_BYTES: u64 = 16 << 10;

/// What crosses the line from one cut to the next: more than a file for each of the two machines, so that one of them is always
/// stored.
const BYTES_OF_A_CUT: u64 = 12 << 20;

/// nginx with an empty cache; it ends when dropped.
struct SiteCache {
    child: Child,
    address: SocketAddr,
    directory: PathBuf,
}

impl SiteCache {
    /// Replaces what an operator replaces in the configuration: addresses and the directory of the cache.
    fn start(directory: &Path, address: SocketAddr, origin: SocketAddr) -> Self {
        fs::create_dir_all(directory).unwrap();
        let shown = directory.display();
        let mut site = CONFIGURATION.to_owned();
        for (in_file, here) in [
            ("boot-origin.example.org:8080", origin.to_string()),
            ("listen 80;", format!("listen {address} backlog=1024;")),
            ("/var/cache/nginx/nqrust", format!("{shown}/cache")),
        ] {
            assert_eq!(site.matches(in_file).count(), 1, "{in_file}");
            site = site.replace(in_file, &here);
        }
        // The user of nginx's workers, where root starts it, could not write there.
        let user = if nix::unistd::Uid::effective().is_root() { "user root;\n" } else { "" };
        let temporary: String = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
            .map(|name| format!("{name}_temp_path {shown}/{name};\n"))
            .concat();
        let whole = format!(
            "{user}daemon off;\npid {shown}/pid;\nerror_log {shown}/error.log;\nevents {{ worker_connections 1024; }}\n\
             http {{\n{temporary}{site}}}\n"
        );
        let file = directory.join("nginx.conf");
        fs::write(&file, whole).unwrap();
        let mut command = Command::new(NGINX);
        command.arg("-p").arg(directory).arg("-c").arg(&file).stdin(Stdio::null()).stderr(Stdio::null());
        let child =
            command.spawn().unwrap_or_else(|error| panic!("nginx, which `make setup` installs: {error}"));
        let mut cache = Self { child, address, directory: directory.to_owned() };
        let since = Instant::now();
        while TcpStream::connect(address).is_err() {
            let log = || fs::read_to_string(directory.join("error.log")).unwrap_or_default();
            let ended = cache.child.try_wait().unwrap();
            assert!(ended.is_none() && since.elapsed() < Duration::from_secs(30), "{}", log());
            sleep(Duration::from_millis(20));
        }
        cache
    }

    /// The beginning of each file that nginx has stored; all of what is as short as a configuration. And how many bytes they
    /// have together.
    fn stored(&self) -> (Vec<u8>, u64) {
        let (mut all, mut length) = (Vec::new(), 0);
        for entry in walkdir::WalkDir::new(self.directory.join("cache")) {
            let entry = entry.unwrap();
            if entry.file_type().is_file() {
                let file = fs::File::open(entry.path()).unwrap();
                length += entry.metadata().unwrap().len();
                file.take(BEGINNING).read_to_end(&mut all).unwrap();
            }
        }
        (all, length)
    }

    /// The status of the answer to a GET.
    fn status(&self, path: &str) -> u16 {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", self.address);
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).unwrap();
        std::str::from_utf8(&answer[9..]).unwrap().parse().unwrap()
    }
}

impl Drop for SiteCache {
    fn drop(&mut self) {
        // The workers end with their master only if it is asked to end.
        let pid = nix::unistd::Pid::from_raw(i32::try_from(self.child.id()).unwrap());
        let _ = nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGTERM);
        let _ = self.child.wait();
    }
}

/// Installs machines by way of the cache; every file is checked against its digest.
fn install(cache: &SiteCache, first: u32, machines: u32) {
    let mut plan = LoadPlan { first, machines, ..LoadPlan::default() };
    plan.install.content = Content::Whole { digests: true };
    plan.install.retry = RetryLimits { patience: Duration::from_secs(60), pause: Duration::from_millis(100) };
    let result = plan.run(Servers::new(vec![cache.address]).unwrap()).unwrap();
    let report = LoadReport::new(&plan, &result, &[], &[]);
    let log = fs::read_to_string(cache.directory.join("error.log")).unwrap_or_default();
    assert!(
        report.is_good(),
        "{}{}",
        report.table(),
        log.lines().rev().take(5).collect::<Vec<_>>().join("\n")
    );
}

/// Reads every file of the release by way of the cache, as the installer does.
fn read_all(cache: &SiteCache, release: &Release, folder: &str) {
    let url = format!("http://{}/medium/{folder}", cache.address);
    let source = HttpMedium::open(&url, &[], RetryPolicy::default()).unwrap();
    assert_eq!(source.manifest().unwrap(), release.to_bytes());
    for payload in &release.payloads {
        let mut reader = VerifyingReader::new(source.open(payload).unwrap(), payload, payload.path.clone());
        std::io::copy(&mut reader, &mut std::io::sink()).unwrap();
    }
}

#[test]
fn a_site_fetches_files_once_and_installs_from_its_cache_while_its_line_is_slow_cut_or_down() {
    let directory = tempfile::tempdir().unwrap();
    let [medium, nodes] = ["medium", "nodes"].map(|name| directory.path().join(name));
    let size = ByteSize::mib(5);
    let sizes = MediumSizes { kernel: size, initrd: size, os_image: size, blobs: 3, blob: size };
    prepare::medium(&medium, sizes).unwrap();
    prepare::configurations(&nodes, MACHINES, 1).unwrap();
    let release = Release::parse(&fs::read(medium.join(MANIFEST)).unwrap()).unwrap();
    let folder = base::digest::Digest::of(&release.to_bytes()).to_string();
    let whole: u64 = release.payloads.iter().map(|payload| payload.size).sum();
    let address = free_address().unwrap();
    let base = format!("http://{address}");
    let server = BootServer::start(
        &directory.path().join("server"),
        BootServerPlan {
            program: Path::new(env!("CARGO_BIN_EXE_iso-builder")),
            medium: &medium,
            nodes: &nodes,
            database: None,
            further: &["--base-url", &base, "--connections-per-address", "1000"],
        },
    )
    .unwrap();
    let line = Line::to(server.address).unwrap();
    let cache = SiteCache::start(&directory.path().join("site"), address, line.address);
    // The first machine fills the cache: each file crosses the line once, although the OS image is fetched twice.
    install(&cache, 0, 1);
    let filled = line.bytes();
    assert!((whole..whole + whole / 20).contains(&filled), "{filled} bytes crossed the line for {whole}");
    // More machines at once cost the line no bytes of files.
    install(&cache, 1, 3);
    let more = line.bytes() - filled;
    assert!(more < 3 * MACHINE_BYTES, "{more} bytes crossed the line for three machines");
    // A line on which the files alone would take an hour.
    line.set(LineState::Slow(16 << 10));
    install(&cache, 4, 1);
    line.set(LineState::Open);
    // Nothing crosses a line that is down: machines that have their scripts go on, and none gets a configuration.
    let configurations: Vec<_> = line.configurations().into_keys().collect();
    assert_eq!(configurations, (0..5).collect::<Vec<_>>());
    line.set(LineState::Down);
    let before = line.bytes();
    read_all(&cache, &release, &folder);
    assert_eq!(line.bytes(), before);
    for path in
        ["/v1/boot?mac=52-54-00-00-00-05", "/boot.ipxe", "/v1/config/0123", &format!("/medium/{MANIFEST}")]
    {
        assert_eq!(cache.status(path), 502, "{path}");
    }
    line.set(LineState::Open);
    // What is a secret or changes is not in the cache.
    let (stored, length) = cache.stored();
    let has = |text: &str| stored.windows(text.len()).any(|window| window == text.as_bytes());
    assert!(has("\"format\"") && length >= whole, "it holds the manifest and all files");
    for text in ["the-password-of-", "#!ipxe", "nqrust.install", "untrusted comment"] {
        assert!(!has(text), "{text}");
    }
    drop(cache);
    // A line that is cut again and again while an empty cache is filled.
    let cache = SiteCache::start(&directory.path().join("other-site"), address, line.address);
    let (over, cut) = mpsc::channel::<()>();
    let cuts = std::thread::scope(|scope| {
        let line = &line;
        // Files take long enough to be under way when the line is cut.
        line.set(LineState::Slow(32 << 20));
        let cutting = scope.spawn(move || {
            let (mut cuts, mut last) = (0, line.bytes());
            while cut.recv_timeout(Duration::from_millis(5)) == Err(RecvTimeoutError::Timeout) {
                if line.bytes() - last > BYTES_OF_A_CUT {
                    line.cut();
                    (cuts, last) = (cuts + 1, line.bytes());
                }
            }
            cuts
        });
        install(&cache, 5, 2);
        drop(over);
        cutting.join().unwrap()
    });
    assert!(cuts >= 2, "the line was cut {cuts} times");
    assert_eq!(line.configurations().len(), 7);
    assert!(line.configurations().values().all(|count| *count == 1), "{:?}", line.configurations());
}
