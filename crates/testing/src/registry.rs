//! A real registry of container images on 127.0.0.1, Debian's `docker-registry`, and a relay before it that counts what is
//! uploaded and can break off.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

/// The user of a registry with a login.
pub const USER: &str = "user";
/// The password of [`USER`].
pub const PASSWORD: &str = "hunter2";
/// The password as `htpasswd -B` writes it.
const HTPASSWD: &str = "user:$2y$05$cJYJS9YQiZU35iYNC6QrgOwRD05VE2GE9bDETi5wPqBYRypl0m9ty\n";

/// A running `docker-registry`; it ends when dropped.
pub struct DockerRegistry {
    child: Child,
    /// Host and port.
    pub address: String,
    /// Its files: `htpasswd` with the login of [`USER`], `data`, `log`.
    pub directory: tempfile::TempDir,
}

impl DockerRegistry {
    /// A registry without a login, unless `configure` changes its directory and configuration.
    pub fn start(configure: impl FnOnce(&Path, &mut Value)) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let root = directory.path();
        fs::write(root.join("htpasswd"), HTPASSWD).unwrap();
        let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
        let mut config = json!({
            "version": "0.1",
            "log": { "level": "error" },
            "storage": { "filesystem": { "rootdirectory": root.join("data") }, "delete": { "enabled": true } },
            "http": { "addr": address },
        });
        configure(root, &mut config);
        // JSON is YAML.
        fs::write(root.join("config.yml"), config.to_string()).unwrap();
        let log = File::create(root.join("log")).unwrap();
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(root.join("config.yml"));
        let child = command.stdout(log.try_clone().unwrap()).stderr(log).spawn().expect("docker-registry");
        let registry = Self { child, address, directory };
        for _ in 0..200 {
            if TcpStream::connect(&registry.address).is_ok() {
                return registry;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        panic!("docker-registry does not listen");
    }
}

impl Drop for DockerRegistry {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The part of a registry's configuration that only admits [`USER`]; `directory` is the registry's.
pub fn login(directory: &Path) -> Value {
    json!({ "htpasswd": { "realm": "tests", "path": directory.join("htpasswd") } })
}

/// A registry without TLS behind a relay.
pub struct RealRegistry {
    registry: DockerRegistry,
    relay: Relay,
}

impl RealRegistry {
    /// A registry without a login, or one with the login of [`USER`].
    pub fn start(wants_login: bool) -> Self {
        let registry = DockerRegistry::start(|directory, config| {
            if wants_login {
                config["auth"] = login(directory);
            }
        });
        Self { relay: Relay::start(&registry.address), registry }
    }

    /// The relay's host with its port, as in references.
    pub fn host(&self) -> &str {
        &self.relay.host
    }

    /// The entry for it in `registries.yaml`.
    pub fn registries(&self, login: bool) -> String {
        let host = self.host();
        let auth = format!("configs: {{\"{host}\": {{auth: {{username: {USER}, password: {PASSWORD}}}}}}}\n");
        let auth = if login { auth } else { String::new() };
        format!("mirrors: {{\"{host}\": {{endpoint: [\"http://{host}\"]}}}}\n{auth}")
    }

    /// The requests that it has answered with their status, as `PATCH /v2/… 202`.
    pub fn requests(&self, method: &str) -> Vec<String> {
        let log = fs::read_to_string(self.registry.directory.path().join("log")).unwrap();
        let request = |line: &str| {
            let (_, rest) = line.split_once(&format!("\"{method} "))?;
            let (path, rest) = rest.split_once(" HTTP/1.1\" ")?;
            Some(format!("{method} {path} {}", rest.split(' ').next()?))
        };
        log.lines().filter_map(request).collect()
    }

    /// Where it keeps a blob with this hexadecimal digest.
    pub fn blob(&self, digest: &str) -> PathBuf {
        self.all_blobs().join(&digest[..2]).join(digest).join("data")
    }

    /// The files of all manifests and blobs that it keeps.
    pub fn blobs(&self) -> Vec<PathBuf> {
        let listed = |directory: PathBuf| fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
        let digests = listed(self.all_blobs()).flat_map(listed);
        digests.map(|directory| directory.join("data")).collect()
    }

    fn all_blobs(&self) -> PathBuf {
        self.registry.directory.path().join("data/docker/registry/v2/blobs/sha256")
    }

    /// Bytes that clients have sent so far.
    pub fn uploaded(&self) -> u64 {
        self.relay.up.load(Ordering::SeqCst)
    }

    /// Breaks one connection after `bytes` more bytes.
    pub fn break_after(&self, bytes: u64) {
        *self.relay.cut.lock().unwrap() = Some(bytes);
    }

    /// Whether a connection was broken off as [`RealRegistry::break_after`] said.
    pub fn has_broken(&self) -> bool {
        self.relay.cut.lock().unwrap().is_none()
    }
}

struct Relay {
    host: String,
    up: Arc<AtomicU64>,
    cut: Arc<Mutex<Option<u64>>>,
}

impl Relay {
    fn start(to: &str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let (up, cut) = (Arc::<AtomicU64>::default(), Arc::<Mutex<Option<u64>>>::default());
        let (to, count, limit) = (to.to_owned(), up.clone(), cut.clone());
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let Ok(server) = TcpStream::connect(&to) else { continue };
                let (count, limit) = (count.clone(), limit.clone());
                let (mut back_from, mut back_to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                std::thread::spawn(move || {
                    let _ = std::io::copy(&mut back_from, &mut back_to);
                    let _ = back_to.shutdown(Shutdown::Both);
                });
                std::thread::spawn(move || forward(client, server, &count, &limit));
            }
        });
        Self { host, up, cut }
    }
}

fn forward(mut client: TcpStream, mut server: TcpStream, up: &AtomicU64, cut: &Mutex<Option<u64>>) {
    let mut buffer = vec![0; 64 << 10];
    loop {
        let count = client.read(&mut buffer).unwrap_or(0);
        let broken = {
            let mut cut = cut.lock().unwrap();
            let broken = cut.is_some_and(|left| left < count as u64);
            *cut = cut.filter(|_| !broken).map(|left| left.saturating_sub(count as u64));
            broken
        };
        if count == 0 || broken || server.write_all(&buffer[..count]).is_err() {
            let _ = server.shutdown(Shutdown::Both);
            let _ = client.shutdown(Shutdown::Both);
            return;
        }
        up.fetch_add(count as u64, Ordering::SeqCst);
    }
}
