//! A double of the supervisor and the API of an RKE2 or K3s server, or of the API of a kubeadm server
//! ([`crate::kubeadm_cluster`]), over TLS on 127.0.0.1: it responds like a real server to requests before a join
//! (k3s `pkg/server/handlers`, `pkg/server/auth`), and can misbehave.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection, StreamOwned};
use serde_json::{Value, json};

use crate::api_exchange::{Reply, Request};
use crate::kubeadm_cluster::KubeadmCluster;

/// Longer than any test waits.
const STALL: Duration = Duration::from_secs(60);

/// How a server behaves. The default is a good RKE2 server that has etcd and no nodes, and lets no node join.
#[derive(Clone, Debug)]
pub struct SupervisorBehavior {
    /// `rke2` or `k3s`.
    pub distribution: &'static str,
    /// The password of servers.
    pub server_token: String,
    /// The password of agents.
    pub agent_token: String,
    /// A bootstrap token.
    pub bootstrap_token: Option<String>,
    /// Whether another server could join.
    pub etcd: bool,
    /// The version in `/version`.
    pub version: String,
    /// The nodes, as the API has them.
    pub nodes: Vec<Value>,
    /// How far its clock is ahead, in seconds.
    pub ahead: i64,
    /// The paths that get this status instead of an answer.
    pub statuses: BTreeMap<String, u16>,
    /// The cluster, if kubeadm made it; then there is no supervisor.
    pub kubeadm: Option<KubeadmCluster>,
    /// What is wrong with it.
    pub fault: Option<Fault>,
}

/// A defect of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It accepts connections and never responds.
    Stall,
    /// It closes connections before the TLS handshake.
    Close,
    /// It speaks HTTP without TLS.
    Plain,
    /// It is a web server without any of the paths.
    Web,
    /// It shows the authority of [`Authorities::other`] with its own certificate.
    Liar,
}

impl Default for SupervisorBehavior {
    fn default() -> Self {
        Self {
            distribution: "rke2",
            server_token: String::new(),
            agent_token: String::new(),
            bootstrap_token: None,
            etcd: true,
            version: "v1.33.1+rke2r1".to_owned(),
            nodes: Vec::new(),
            ahead: 0,
            statuses: BTreeMap::new(),
            kubeadm: None,
            fault: None,
        }
    }
}

/// A node as the API has it.
#[must_use]
pub fn node(name: &str, labels: &[&str], address: &str, uuid: &str) -> Value {
    let labels: BTreeMap<_, _> = labels.iter().map(|label| (*label, "true")).collect();
    json!({
        "metadata": { "name": name, "labels": labels },
        "status": {
            "addresses": [
                { "type": "InternalIP", "address": address }, { "type": "Hostname", "address": name },
            ],
            "nodeInfo": { "systemUUID": uuid },
        },
    })
}

/// The keys of a cluster, made by `openssl` in a directory.
#[derive(Clone, Debug)]
pub struct Authorities {
    directory: PathBuf,
}

impl Authorities {
    /// Makes the keys of a cluster whose authority signs its own certificate, as servers make it.
    pub fn make(directory: &Path) -> Result<Self> {
        let made = Self { directory: directory.to_owned() };
        made.root("server-ca", "rke2-server-ca")?;
        made.rest()?;
        Ok(made)
    }

    /// The same where the authority's certificate is signed by one that stands above it, as administrators make it;
    /// `/cacerts` then shows both.
    pub fn make_chain(directory: &Path) -> Result<Self> {
        let made = Self { directory: directory.to_owned() };
        made.root("root", "root")?;
        made.signed("server-ca", "intermediate", "root", "basicConstraints=critical,CA:TRUE\n")?;
        made.rest()?;
        let both = [made.read("server-ca.pem")?, made.read("root.pem")?].concat();
        fs::write(directory.join("server-ca.pem"), both)?;
        Ok(made)
    }

    /// The other authority, which no token of the cluster names.
    pub fn other(&self) -> Result<Vec<u8>> {
        self.read("other.pem")
    }

    /// The content of `/cacerts`.
    pub fn bundle(&self) -> Result<Vec<u8>> {
        self.read("server-ca.pem")
    }

    /// One certificate of the keys, by name.
    pub fn read(&self, name: &str) -> Result<Vec<u8>> {
        let path = self.directory.join(name);
        fs::read(&path).with_context(|| format!("reading {}", path.display()))
    }

    fn rest(&self) -> Result<()> {
        self.root("client-ca", "rke2-client-ca")?;
        self.root("other", "rke2-server-ca")?;
        let names =
            "subjectAltName=IP:127.0.0.1,IP:10.0.2.2,DNS:cluster.example.org\nbasicConstraints=CA:FALSE\n";
        self.signed("server", "rke2", "server-ca", names)?;
        self.signed("kube-proxy", "system:kube-proxy", "client-ca", "extendedKeyUsage=clientAuth\n")
    }

    fn root(&self, name: &str, subject: &str) -> Result<()> {
        fs::create_dir_all(&self.directory)?;
        self.openssl(&format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 30 -subj /CN={subject} \
             -keyout {name}.key -out {name}.pem -addext keyUsage=critical,digitalSignature,keyCertSign"
        ))
    }

    fn signed(&self, name: &str, subject: &str, by: &str, extensions: &str) -> Result<()> {
        fs::write(self.directory.join(format!("{name}.ext")), extensions)?;
        self.openssl(&format!(
            "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN={subject} -keyout {name}.key \
             -out {name}.csr"
        ))?;
        self.openssl(&format!(
            "x509 -req -in {name}.csr -CA {by}.pem -CAkey {by}.key -CAcreateserial -days 30 \
             -extfile {name}.ext -out {name}.pem"
        ))
    }

    fn openssl(&self, words: &str) -> Result<()> {
        let mut command = Command::new("openssl");
        command.current_dir(&self.directory).args(words.split_whitespace()).stdin(Stdio::null());
        let output = command.output().context("starting openssl")?;
        ensure!(output.status.success(), "openssl {words}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(())
    }
}

/// A running server; it takes no more connections when dropped.
#[derive(Debug)]
pub struct Supervisor {
    address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    manner: SupervisorBehavior,
    authorities: Authorities,
    asked: Mutex<Vec<String>>,
    ended: AtomicBool,
}

impl Supervisor {
    /// Starts a server with these keys on any free port.
    pub fn start(authorities: &Authorities, manner: SupervisorBehavior) -> Result<Self> {
        Self::start_on(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), authorities, manner)
    }

    /// As [`Supervisor::start`], at this address.
    pub fn start_on(
        address: SocketAddr,
        authorities: &Authorities,
        manner: SupervisorBehavior,
    ) -> Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let tls = Arc::new(tls(authorities)?);
        let shared = Shared {
            manner,
            authorities: authorities.clone(),
            asked: Mutex::default(),
            ended: AtomicBool::new(false),
        };
        let shared = Arc::new(shared);
        let own = Arc::clone(&shared);
        thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if own.ended.load(Ordering::Relaxed) {
                    return;
                }
                let (own, tls) = (Arc::clone(&own), Arc::clone(&tls));
                // A client that disconnects gets no response.
                thread::spawn(move || own.serve(stream, &tls).ok());
            }
        });
        Ok(Self { address, shared })
    }

    /// Its port, for the supervisor and for the API.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// The requests so far, `METHOD PATH`.
    #[must_use]
    pub fn asked(&self) -> Vec<String> {
        self.shared.asked.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.shared.ended.store(true, Ordering::Relaxed);
        // Lets the listener look; that it is gone already is as good.
        let _ = TcpStream::connect_timeout(&self.address, Duration::from_secs(1));
    }
}

/// Asks for client certificates, and takes those who have none, as the servers do.
fn tls(authorities: &Authorities) -> Result<ServerConfig> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let mut clients = RootCertStore::empty();
    clients.add_parsable_certificates(chain(&authorities.read("client-ca.pem")?)?);
    let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(clients), Arc::clone(&provider));
    let verifier = verifier.allow_unauthenticated().build()?;
    let key = PrivateKeyDer::from_pem_slice(&authorities.read("server.key")?)?;
    Ok(ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier)
        .with_single_cert(chain(&authorities.read("server.pem")?)?, key)?)
}

fn chain(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>> {
    Ok(CertificateDer::pem_slice_iter(pem).collect::<Result<_, _>>()?)
}

impl Shared {
    fn serve(&self, stream: TcpStream, tls: &Arc<ServerConfig>) -> Result<()> {
        stream.set_read_timeout(Some(STALL))?;
        match self.manner.fault {
            Some(Fault::Stall) => {
                thread::sleep(STALL);
                Ok(())
            }
            Some(Fault::Close) => Ok(()),
            Some(Fault::Plain) => {
                let mut stream = stream;
                let mut beginning = [0; 5];
                stream.read_exact(&mut beginning)?;
                stream.write_all(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n")?;
                Ok(())
            }
            _ => {
                let mut stream = StreamOwned::new(ServerConnection::new(Arc::clone(tls))?, stream);
                let request = read(&mut stream)?;
                self.answer(&mut stream, &request)?;
                stream.conn.send_close_notify();
                Ok(stream.flush()?)
            }
        }
    }

    fn answer(&self, stream: &mut impl Write, request: &Request) -> Result<()> {
        let line = format!("{} {}", request.method, request.path);
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).push(line);
        let reply = self.reply(request)?;
        let date = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(self.manner.ahead);
        let date = date.strftime("%a, %d %b %Y %H:%M:%S GMT");
        let Reply { status, kind, body } = reply;
        let server = if self.manner.fault == Some(Fault::Web) { "Server: nginx\r\n" } else { "" };
        write!(
            stream,
            "HTTP/1.1 {status} Status\r\nDate: {date}\r\n{server}Content-Type: {kind}\r\nContent-Length: {}\r\n\
             Connection: close\r\n\r\n",
            body.len()
        )?;
        if request.method != "HEAD" {
            stream.write_all(&body)?;
        }
        Ok(())
    }

    fn reply(&self, request: &Request) -> Result<Reply> {
        let manner = &self.manner;
        if manner.fault == Some(Fault::Web) {
            return Ok(Reply::text(404, "not found"));
        }
        if let Some(status) = manner.statuses.get(&request.path) {
            return Ok(Reply::error(*status, "told to"));
        }
        if let Some(cluster) = &manner.kubeadm {
            let authority = match manner.fault {
                Some(Fault::Liar) => self.authorities.other()?,
                _ => self.authorities.bundle()?,
            };
            return Ok(cluster.reply(request, &authority, &manner.version, &manner.nodes));
        }
        let own = format!("/v1-{}/", manner.distribution);
        Ok(match request.path.as_str() {
            "/ping" => Reply::text(200, "pong"),
            "/cacerts" if manner.fault == Some(Fault::Liar) => Reply::text(200, self.authorities.other()?),
            "/cacerts" => Reply::text(200, self.authorities.bundle()?),
            path => match path.strip_prefix(&own) {
                Some(file) => self.supervisor(file, request)?,
                None => self.api(path, request),
            },
        })
    }

    /// The response to requests with a token.
    fn supervisor(&self, file: &str, request: &Request) -> Result<Reply> {
        let manner = &self.manner;
        let server = file == "server-bootstrap";
        let (user, password) =
            if server { ("server", &manner.server_token) } else { ("node", &manner.agent_token) };
        if !self.is_let_in(request, user, password, server) {
            return Ok(Reply::error(401, "not authorized"));
        }
        Ok(match file {
            "server-bootstrap" if manner.etcd => Reply::json(&json!({ "ServerCAKey": "secret" })),
            "server-bootstrap" => Reply::error(400, "etcd disabled"),
            "config" => Reply::json(&json!({ "ClusterDomain": "cluster.local" })),
            "client-kube-proxy.crt" => {
                let parts = ["kube-proxy.pem", "client-ca.pem", "kube-proxy.key"];
                let parts = parts.map(|part| self.authorities.read(part));
                Reply::text(200, parts.into_iter().collect::<Result<Vec<_>>>()?.concat())
            }
            _ => Reply::error(404, "not found"),
        })
    }

    fn is_let_in(&self, request: &Request, user: &str, password: &str, server: bool) -> bool {
        let basic = format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}")));
        let bearer = self.manner.bootstrap_token.as_ref().map(|token| format!("Bearer {token}"));
        let bearer = bearer.is_some_and(|bearer| !server && request.authorization == bearer);
        bearer || !password.is_empty() && request.authorization == basic
    }

    fn api(&self, path: &str, request: &Request) -> Reply {
        match path {
            _ if !request.certified => Reply::error(401, "Unauthorized"),
            "/version" => Reply::json(&json!({ "major": "1", "gitVersion": self.manner.version })),
            "/api/v1/nodes" => Reply::json(&json!({ "kind": "NodeList", "items": self.manner.nodes })),
            path => {
                let name = path.strip_prefix("/api/v1/nodes/");
                let known = self.manner.nodes.iter().find(|node| node["metadata"]["name"].as_str() == name);
                known.map_or_else(|| Reply::error(404, "not found"), Reply::json)
            }
        }
    }
}

fn read(stream: &mut StreamOwned<ServerConnection, TcpStream>) -> Result<Request> {
    let mut request = Request {
        method: String::new(),
        path: String::new(),
        authorization: String::new(),
        accept: String::new(),
        certified: false,
    };
    let mut reader = BufReader::new(&mut *stream);
    let mut line = String::new();
    reader.read_line(&mut line)?;
    let mut words = line.split_whitespace().map(str::to_owned);
    request.method = words.next().context("a method")?;
    request.path = words.next().context("a path")?;
    loop {
        let mut line = String::new();
        ensure!(reader.read_line(&mut line)? > 0, "the head broke off");
        match line.trim_end().split_once(": ") {
            Some((name, value)) if name.eq_ignore_ascii_case("authorization") => {
                request.authorization = value.to_owned();
            }
            Some((name, value)) if name.eq_ignore_ascii_case("accept") => request.accept = value.to_owned(),
            Some(_) => {}
            None => break,
        }
    }
    request.certified = stream.conn.peer_certificates().is_some();
    Ok(request)
}
