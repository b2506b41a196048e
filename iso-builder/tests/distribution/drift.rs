//! Pinned inputs: digests in the lock, downloads in the cache.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

use crate::release::{K3S, Place, RKE2, k3s, k3s_here, publish, rke2, rke2_here};

/// A server of the files of a directory, which remembers what it was asked for. It runs as long as the test does.
struct Server {
    url: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    fn of(directory: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/v1.33.1%2Bk3s1", listener.local_addr().unwrap());
        let asked = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&asked);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (directory, heard) = (directory.clone(), Arc::clone(&heard));
                thread::spawn(move || answer(&stream.unwrap(), &directory, &heard));
            }
        });
        Self { url, asked }
    }

    /// The requests since the last call, sorted.
    fn asked(&self) -> Vec<String> {
        let mut asked = std::mem::take(&mut *self.asked.lock().unwrap());
        asked.sort();
        asked
    }
}

fn answer(mut stream: &TcpStream, directory: &Path, heard: &Mutex<Vec<String>>) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let Some(request) = lines.next() else { return };
    lines.find(String::is_empty);
    let path = request.split(' ').nth(1).unwrap().to_owned();
    let name = path.strip_prefix("/v1.33.1%2Bk3s1/").unwrap().to_owned();
    let (status, body) = match fs::read(directory.join(&name)) {
        Ok(body) => ("200 OK", body),
        Err(_) => ("404 Not Found", Vec::new()),
    };
    heard.lock().unwrap().push(name);
    let head = format!("HTTP/1.1 {status}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n", body.len());
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body));
}

fn k3s_at(url: &str) -> Value {
    json!({ "kubernetes": { "distribution": "k3s", "version": K3S, "artifacts": url } })
}

fn lock(place: &Place) -> Value {
    serde_json::from_slice(&fs::read(place.path("image.yaml.lock")).unwrap()).unwrap()
}

#[test]
fn a_release_is_downloaded_once_and_then_comes_from_the_cache() {
    let place = Place::new();
    publish(&place.path("server"), &k3s(K3S));
    let server = Server::of(place.path("server"));
    place.define(&k3s_at(&server.url));
    place.refused(&["images", "--locked"], 2, &["there is no lock file", "--locked"]);
    assert_eq!(server.asked(), [""; 0], "nothing is downloaded for a build that is refused");
    let images = place.images(&[]);
    assert_eq!(server.asked(), ["k3s", "k3s-airgap-images-amd64.tar.zst", "sha256sum-amd64.txt"]);
    let locked = &lock(&place)["kubernetes"];
    assert_eq!((&locked["version"], &locked["artifacts"]), (&json!(K3S), &json!(server.url)));
    assert_eq!(locked["files"].as_array().unwrap().len(), 2);
    assert_eq!(place.images(&["--locked", "--offline"]), images);
    assert_eq!(server.asked(), [""; 0]);
    // A file that is damaged in the cache is had again, and is missed where there is no network.
    let cached = place.path(&format!("cache/downloads/k3s/{K3S}/k3s"));
    fs::write(&cached, "damaged").unwrap();
    place.refused(
        &["images", "--offline"],
        4,
        &["1 of the release's files are damaged in the cache", "/k3s"],
    );
    assert_eq!(place.images(&[]), images);
    assert_eq!(server.asked(), ["k3s"]);
}

#[test]
fn the_lock_counts_and_not_what_a_server_has_later() {
    let place = Place::new();
    publish(&place.path("server"), &k3s(K3S));
    let server = Server::of(place.path("server"));
    place.define(&k3s_at(&server.url));
    place.images(&[]);
    let before = lock(&place);
    let mut files = k3s(K3S);
    files[0].1.extend(b"# published again\n");
    publish(&place.path("server"), &files);
    fs::remove_dir_all(place.path("cache")).unwrap();
    server.asked();
    place.refused(&["images"], 4, &["/k3s is not the expected file", "iso-builder lock"]);
    let relocked = place.run(&["lock"]);
    assert_eq!(relocked.code, 0, "{}", relocked.told);
    assert_ne!(lock(&place)["kubernetes"], before["kubernetes"]);
    place.images(&["--locked"]);
}

#[test]
fn a_file_that_a_server_does_not_have_or_has_otherwise_is_named() {
    let place = Place::new();
    publish(&place.path("server"), &k3s(K3S));
    fs::write(place.path("server/k3s"), "an error page").unwrap();
    let server = Server::of(place.path("server"));
    place.define(&k3s_at(&server.url));
    place.refused(&["images"], 4, &["/k3s is not the expected file"]);
    fs::remove_file(place.path("server/k3s")).unwrap();
    place.refused(&["images"], 5, &["/k3s", "kubernetes.version"]);
    fs::remove_file(place.path("server/sha256sum-amd64.txt")).unwrap();
    place.refused(&["images"], 5, &["sha256sum-amd64.txt"]);
}

#[test]
fn a_lock_names_what_of_the_distribution_has_changed() {
    let place = Place::new();
    let mut files = rke2(RKE2, "v1.33.1-rke2r1");
    publish(&place.path("release"), &files);
    place.define(&rke2_here());
    let images = place.images(&[]);
    assert_eq!(place.images(&["--locked"]), images);
    files[0].1 = rke2("v1.33.1+rke2r1 ", "v1.33.1-rke2r1").remove(0).1;
    publish(&place.path("release"), &files);
    place.refused(&["images", "--locked"], 2, &["rke2.linux-amd64.tar.gz is not locked, or has changed"]);
    assert_eq!(place.images(&[]), images, "without --locked it is locked anew");
    publish(&place.path("release"), &k3s(K3S));
    place.define(&k3s_here());
    place.refused(&["images", "--locked"], 2, &["rke2 v1.33.1+rke2r1 is locked and not k3s v1.33.1+k3s1"]);
}

#[test]
fn locking_again_without_a_changed_input_leaves_every_byte_of_the_lock_file() {
    let mut place = Place::new();
    publish(&place.path("release"), &k3s(K3S));
    place.define(&k3s_here());
    let locked = |place: &Place| {
        let ended = place.run(&["lock"]);
        assert_eq!(ended.code, 0, "{}", ended.told);
        fs::read_to_string(place.path("image.yaml.lock")).unwrap()
    };
    let first = locked(&place);
    assert!(first.contains("\"epoch\": 1700000000"), "{first}");
    place.environment.push(("SOURCE_DATE_EPOCH", "1800000000".into()));
    assert_eq!(locked(&place), first);
    let mut changed = fs::read(place.path("base.tar")).unwrap();
    changed.extend([0; 512]);
    fs::write(place.path("base.tar"), changed).unwrap();
    assert!(locked(&place).contains("\"epoch\": 1800000000"));
}
