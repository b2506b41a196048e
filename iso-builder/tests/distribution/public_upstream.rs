//! The public release of Kubernetes, from doubles of its server and of its registry: the program asks for `dl.k8s.io` through
//! a proxy, behind which the test answers with a certificate for that name.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::{fs, thread};

use base::digest::Digest;
use serde_json::json;
use testing::http::{Answer, Fake, encrypted_as};

use crate::release::{KUBEADM, Place, upstream, upstream_images};

/// The server of programs, which remembers what it was asked for.
struct ProgramServer {
    proxy: String,
    certificate: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl ProgramServer {
    /// Of `files` by name, each with its digest beside it.
    fn of(files: Vec<(String, Vec<u8>)>) -> Self {
        let made = rcgen::generate_simple_self_signed(["dl.k8s.io".to_owned()]).unwrap();
        let (certificate, key) = (made.cert.pem(), made.signing_key.serialize_pem());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let proxy = format!("http://{}", listener.local_addr().unwrap());
        let asked = Arc::<Mutex<Vec<String>>>::default();
        let (heard, own) = (Arc::clone(&asked), certificate.clone());
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (heard, own, key, files) = (Arc::clone(&heard), own.clone(), key.clone(), files.clone());
                thread::spawn(move || answer(stream.unwrap(), &own, &key, &files, &heard));
            }
        });
        Self { proxy, certificate, asked }
    }

    /// The requests since the last call, sorted.
    fn asked(&self) -> Vec<String> {
        let mut asked = std::mem::take(&mut *self.asked.lock().unwrap());
        asked.sort();
        asked
    }
}

fn head(stream: &mut impl Read) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).ok()?;
        head.extend(byte);
    }
    String::from_utf8(head).ok()
}

fn answer(
    mut stream: TcpStream,
    certificate: &str,
    key: &str,
    files: &[(String, Vec<u8>)],
    heard: &Mutex<Vec<String>>,
) -> Option<()> {
    let connect = head(&mut stream)?;
    assert!(connect.starts_with("CONNECT dl.k8s.io:443 "), "{connect}");
    stream.write_all(b"HTTP/1.1 200 Connected\r\n\r\n").ok()?;
    let mut stream = encrypted_as(stream, certificate, key);
    while let Some(request) = head(&mut stream) {
        let path = request.split(' ').nth(1)?.to_owned();
        let name = path.strip_prefix(&format!("/release/{KUBEADM}/bin/linux/amd64/")).unwrap_or_default();
        let named = |name: &str| files.iter().find(|(file, _)| file == name).map(|(_, bytes)| bytes.clone());
        let beside =
            || named(name.strip_suffix(".sha256")?).map(|bytes| Digest::of(&bytes).to_string().into());
        let (status, body) = match named(name).or_else(beside) {
            Some(body) => ("200 OK", body),
            None => ("404 Not Found", Vec::new()),
        };
        heard.lock().unwrap().push(name.to_owned());
        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\n\r\n", body.len());
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body)).ok()?;
        stream.flush().ok()?;
    }
    None
}

/// A registry in which every image has the same manifest.
fn registry() -> Fake {
    let described = |media_type: &str, content: &str| json!({ "mediaType": media_type, "digest": Digest::of(content.as_bytes()).oci(), "size": content.len() });
    let config = "{\"architecture\":\"amd64\",\"os\":\"linux\"}";
    let manifest = json!({
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": described("application/vnd.oci.image.config.v1+json", config),
        "layers": [described("application/vnd.oci.image.layer.v1.tar+gzip", "layer")],
    })
    .to_string();
    Fake::start(move |request| {
        if request.path.contains("/manifests/") {
            Answer::ok(manifest.as_bytes()).with("Content-Type: application/vnd.oci.image.manifest.v1+json")
        } else if request.path.contains("/blobs/") {
            Answer::ok(config.as_bytes())
        } else {
            Answer::new(200, b"{}")
        }
    })
}

/// A place with a definition that asks for the public release.
fn place(programs: &ProgramServer, registry: &Fake) -> Place {
    let mut place = Place::new();
    let trusted = place.path("authority.pem");
    fs::write(&trusted, &programs.certificate).unwrap();
    place.environment = vec![
        ("https_proxy", programs.proxy.clone()),
        ("no_proxy", "127.0.0.1".to_owned()),
        ("SSL_CERT_FILE", trusted.to_str().unwrap().to_owned()),
    ];
    place.define(&json!({
        "kubernetes": { "distribution": "kubeadm", "version": KUBEADM },
        "install_defaults": "kubeadm.yaml",
        "registries": { "mirrors": { "registry.k8s.io": { "endpoint": [registry.url()] } } },
    }));
    place
}

fn programs(version: &str) -> Vec<(String, Vec<u8>)> {
    upstream(version, version)
        .into_iter()
        .filter(|(name, _)| name.starts_with("kube") && !name.contains('.'))
        .collect()
}

#[test]
fn programs_come_from_their_server_and_images_by_the_names_that_kubeadm_prints() {
    let (server, registry) = (ProgramServer::of(programs(KUBEADM)), registry());
    let place = place(&server, &registry);
    let images = place.images_of_roles(&[]);
    let names: Vec<_> = images.iter().map(|(name, _)| name.clone()).collect();
    let mut all = upstream_images(KUBEADM).to_vec();
    all.sort();
    assert_eq!(names, all);
    assert_eq!(images.iter().filter(|(_, roles)| roles.is_empty()).count(), 3, "{images:?}");
    let names = ["kubeadm", "kubectl", "kubelet"];
    let expected: Vec<_> =
        names.iter().flat_map(|name| [(*name).to_owned(), format!("{name}.sha256")]).collect();
    assert_eq!(server.asked(), expected);
    let lock = fs::read_to_string(place.path("image.yaml.lock")).unwrap();
    assert!(
        lock.contains("registry.k8s.io/etcd:3.7.3-0"),
        "tags are pinned as those of other images: {lock}"
    );
    // Everything is pinned now, and in the cache.
    assert_eq!(place.images_of_roles(&["--locked", "--offline"]), images);
    assert_eq!(server.asked(), [""; 0]);
    let tree = place.build_until("the base lacks what a node needs");
    assert!(tree.join("usr/local/bin/kubelet").is_file());
}

#[test]
fn a_program_that_is_not_the_one_of_its_digest_is_refused() {
    let mut files = programs(KUBEADM);
    files.push(("kubelet.sha256".to_owned(), Digest::of(b"another").to_string().into_bytes()));
    let (server, registry) = (ProgramServer::of(files), registry());
    place(&server, &registry).refused(&["images"], 4, &["/kubelet is not the expected file"]);
}
