//! A real registry on 127.0.0.1: Debian's `docker-registry`, with or without TLS (with its own certificate authority)
//! and a password, filled by `skopeo` with images that `umoci` makes.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use crate::deadline::Deadline;
use crate::programs;

/// The only user of a registry with a password.
pub const USER: &str = "puller";

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";
const INDEX: &str = "application/vnd.oci.image.index.v1+json";

const START: Duration = Duration::from_secs(60);
const COMMAND: Duration = Duration::from_secs(600);

/// The login that a registry requires.
#[derive(Clone, Copy, Debug, Default)]
pub struct RegistryAccess<'a> {
    pub password: Option<&'a str>,
    /// TLS with a certificate of its own authority, see [`Registry::authority`].
    pub tls: bool,
}

/// A running registry; it ends when dropped.
#[derive(Debug)]
pub struct Registry {
    child: Child,
    port: u16,
    directory: PathBuf,
    password: Option<String>,
}

impl Registry {
    /// Starts a registry with its data in `directory`; existing data is served. It gets the port that it had there
    /// before, if that is free, because media contain it.
    pub fn start(directory: &Path, demands: RegistryAccess<'_>) -> Result<Self> {
        fs::create_dir_all(directory.join("storage"))?;
        let remembered = directory.join("port");
        let before = fs::read_to_string(&remembered).ok().and_then(|port| port.parse().ok()).unwrap_or(0);
        let port = free_port(before).or_else(|_| free_port(0))?;
        fs::write(remembered, port.to_string())?;
        let mut http = serde_json::json!({ "addr": format!("127.0.0.1:{port}") });
        if demands.tls {
            certificate(directory)?;
            http["tls"] = serde_json::json!({
                "certificate": directory.join("server.pem"), "key": directory.join("server.key"),
            });
        }
        let mut config = serde_json::json!({
            "version": "0.1",
            "log": { "level": "warn" },
            "storage": { "filesystem": { "rootdirectory": directory.join("storage") } },
            "http": http,
        });
        if let Some(password) = demands.password {
            let file = directory.join("htpasswd");
            fs::write(&file, htpasswd(password)?)?;
            config["auth"] = serde_json::json!({ "htpasswd": { "realm": "tests", "path": file } });
        }
        // JSON is YAML.
        let path = directory.join("config.yml");
        fs::write(&path, config.to_string())?;
        let log = File::create(directory.join("registry.log"))?;
        let mut command = Command::new("docker-registry");
        command.arg("serve").arg(&path).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        let child = command.spawn().context("starting docker-registry (package docker-registry)")?;
        let password = demands.password.map(str::to_owned);
        let registry = Self { child, port, directory: directory.to_owned(), password };
        Deadline::after(START)
            .poll("the registry's answer", || Ok(TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()))?;
        Ok(registry)
    }

    /// Goes on at `address` (host and port) in the network in which `program` runs docker-registry.
    pub fn move_to(&mut self, mut program: Command, address: &str) -> Result<()> {
        self.child.kill().context("ending the registry")?;
        self.child.wait()?;
        let path = self.directory.join("config.yml");
        let mut config: serde_json::Value = serde_json::from_slice(&fs::read(&path)?)?;
        config["http"]["addr"] = address.into();
        fs::write(&path, config.to_string())?;
        let log = File::options().append(true).open(self.directory.join("registry.log"))?;
        program.arg("serve").arg(&path).stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        self.child = program.spawn().context("starting docker-registry in another network")?;
        Ok(())
    }

    /// On 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Host and port, as in references.
    #[must_use]
    pub fn host(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The certificate (PEM) of the authority of a registry with TLS; valid for `127.0.0.1`, `localhost` and
    /// `10.0.2.2`, the address by which a guest of QEMU's user network reaches this host.
    #[must_use]
    pub fn authority(&self) -> PathBuf {
        self.directory.join("ca.pem")
    }

    /// Copies an image into the registry with `skopeo`: `from` in skopeo's notation, `to` a repository with a tag.
    pub fn push(&self, from: &str, to: &str, arguments: &[&str]) -> Result<()> {
        let mut skopeo = Command::new("skopeo");
        skopeo.args(["copy", "--quiet", "--retry-times", "2"]).args(arguments);
        if let Some(password) = &self.password {
            // The password belongs to a registry that exists only during the test.
            skopeo.args(["--dest-creds", &format!("{USER}:{password}")]);
        }
        skopeo.arg("--dest-tls-verify=false").arg(from).arg(format!("docker://{}/{to}", self.host()));
        programs::run(&mut skopeo, COMMAND)?.success("skopeo copy").map(drop)
    }

    /// Puts an index of images in the registry under `repository` and `tag`, each with its architecture. Only for a
    /// registry without TLS and password: no program of Debian 12 writes an index.
    pub fn put_index(&self, repository: &str, tag: &str, images: &[(&str, &str)]) -> Result<()> {
        let mut manifests = Vec::new();
        for (architecture, of) in images {
            let (head, body) = self.ask("GET", &format!("{repository}/manifests/{of}"), b"")?;
            let digest = head.lines().find_map(|line| line.strip_prefix("Docker-Content-Digest: "));
            manifests.push(serde_json::json!({
                "mediaType": MANIFEST,
                "digest": digest.context("the digest of a manifest")?.trim(),
                "size": body.len(),
                "platform": { "os": "linux", "architecture": architecture },
            }));
        }
        let index = serde_json::json!({ "schemaVersion": 2, "mediaType": INDEX, "manifests": manifests });
        let path = format!("{repository}/manifests/{tag}");
        let (head, body) = self.ask("PUT", &path, index.to_string().as_bytes())?;
        if !head.contains(" 201 ") {
            bail!("the registry did not take an index: {head} {}", String::from_utf8_lossy(&body));
        }
        Ok(())
    }

    /// Sends one request; returns the head and the body of the response.
    fn ask(&self, method: &str, path: &str, body: &[u8]) -> Result<(String, Vec<u8>)> {
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port))?;
        stream.set_read_timeout(Some(START))?;
        let kind = if body.is_empty() { MANIFEST } else { INDEX };
        write!(
            stream,
            "{method} /v2/{path} HTTP/1.0\r\nHost: {}\r\nAccept: {MANIFEST}\r\nContent-Type: {kind}\r\n\
             Content-Length: {}\r\n\r\n",
            self.host(),
            body.len()
        )?;
        stream.write_all(body)?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer)?;
        let end = answer.windows(4).position(|four| four == b"\r\n\r\n").context("the end of the head")?;
        let body = answer.split_off(end + 4);
        Ok((String::from_utf8_lossy(&answer).into_owned(), body))
    }

    /// The bytes of all blobs in the registry.
    pub fn stored(&self) -> Result<u64> {
        let mut bytes = 0;
        for entry in walkdir::WalkDir::new(self.directory.join("storage/docker/registry/v2/blobs")) {
            let entry = entry?;
            if entry.file_name() == "data" {
                bytes += entry.metadata()?.len();
            }
        }
        Ok(bytes)
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        // Both fail only if the process has ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The port `wanted` if it is free, else any free port.
fn free_port(wanted: u16) -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, wanted))?.local_addr()?.port())
}

fn htpasswd(password: &str) -> Result<String> {
    let mut htpasswd = Command::new("htpasswd");
    htpasswd.args(["-nbB", USER, password]);
    programs::run(&mut htpasswd, COMMAND)?.success("htpasswd (package apache2-utils)")
}

/// Makes an authority and a certificate in `directory`, unless they exist.
fn certificate(directory: &Path) -> Result<()> {
    if directory.join("server.pem").exists() {
        return Ok(());
    }
    let names = "subjectAltName=IP:127.0.0.1,IP:10.0.2.2,DNS:localhost\n";
    fs::write(directory.join("names"), names)?;
    let openssl = |words: &str| -> Result<()> {
        let mut command = Command::new("openssl");
        command.current_dir(directory).args(words.split(' '));
        programs::run(&mut command, COMMAND)?.success("openssl").map(drop)
    };
    openssl("req -x509 -newkey rsa:2048 -nodes -days 30 -subj /CN=tests -keyout ca.key -out ca.pem")?;
    openssl("req -newkey rsa:2048 -nodes -subj /CN=registry -keyout server.key -out server.csr")?;
    openssl(
        "x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 30 -extfile names -out server.pem",
    )
}

/// An OCI layout in `directory` with images made by `umoci`.
#[derive(Debug)]
pub struct Layout(PathBuf);

impl Layout {
    pub fn new(directory: &Path) -> Result<Self> {
        let layout = Self(directory.to_owned());
        layout.umoci(&["init", "--layout", &layout.path()])?;
        Ok(layout)
    }

    fn path(&self) -> String {
        self.0.display().to_string()
    }

    fn umoci(&self, arguments: &[&str]) -> Result<()> {
        let mut umoci = Command::new("umoci");
        umoci.args(arguments);
        programs::run(&mut umoci, COMMAND)?.success("umoci").map(drop)
    }

    /// The image in skopeo's notation.
    #[must_use]
    pub fn source(&self, name: &str) -> String {
        format!("oci:{}:{name}", self.path())
    }

    /// Makes an image `name` on top of the image `base`, or from nothing, with one layer that holds the `files`
    /// (path and content).
    pub fn image(&self, name: &str, base: Option<&str>, files: &[(&str, &[u8])]) -> Result<()> {
        let image = format!("{}:{name}", self.path());
        match base {
            Some(base) => self.umoci(&["tag", "--image", &format!("{}:{base}", self.path()), name])?,
            None => self.umoci(&["new", "--image", &image])?,
        }
        let scratch = tempfile::tempdir()?;
        for (path, content) in files {
            let path = scratch.path().join("tree").join(path);
            fs::create_dir_all(path.parent().context("a file's directory")?)?;
            fs::write(&path, content)?;
        }
        let layer = scratch.path().join("layer.tar");
        let mut tar = Command::new("tar");
        tar.args(["--create", "--sort=name", "--mtime=@0", "--owner=0", "--group=0", "--numeric-owner"]);
        tar.arg("--file").arg(&layer).arg("--directory").arg(scratch.path().join("tree")).arg(".");
        programs::run(&mut tar, COMMAND)?.success("tar")?;
        self.umoci(&["raw", "add-layer", "--image", &image, &layer.display().to_string()])?;
        let architecture = ["config", "--image", &image, "--architecture", "amd64", "--os", "linux"];
        self.umoci(&architecture)
    }

    /// Gives the image `name` another name, one that umoci itself would not accept as a tag.
    pub fn rename(&self, name: &str, to: &str) -> Result<()> {
        let path = self.0.join("index.json");
        let mut index: serde_json::Value = serde_json::from_slice(&fs::read(&path)?)?;
        for manifest in index["manifests"].as_array_mut().into_iter().flatten() {
            let called = &mut manifest["annotations"]["org.opencontainers.image.ref.name"];
            if called.as_str() == Some(name) {
                *called = to.into();
            }
        }
        Ok(fs::write(path, index.to_string())?)
    }

    pub fn architecture(&self, name: &str, architecture: &str) -> Result<()> {
        let image = format!("{}:{name}", self.path());
        self.umoci(&["config", "--image", &image, "--architecture", architecture])
    }
}
