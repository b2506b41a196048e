use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::sync::atomic::AtomicBool;

use serde_json::json;

use super::*;
use base::digest::Digest;
use base::failure::{class_of, render};
use testing::progress::Recorder;

static GO_ON: AtomicBool = AtomicBool::new(false);
static STOP: AtomicBool = AtomicBool::new(true);

/// A containerd that ends when it is told to, once it is ready.
const RUNS: &str = "trap 'exit 0' TERM; : >\"${0%/*}/ready\"; while :; do sleep 0.02; done";
/// Nothing is asked of it before.
const AWAITS: &str = "while [ ! -e \"${0%/*}/ready\" ]; do sleep 0.02; done";

fn images() -> Vec<UnpackedImage> {
    [("a.example.org/web:1", "web"), ("a.example.org/db:1", "db")]
        .map(|(name, bytes)| UnpackedImage { name: name.into(), digest: Digest::of(bytes.as_bytes()) })
        .into()
}

fn scripted(directory: &Path, ctr: &str) -> Unpacking {
    for (name, script) in [("containerd", RUNS), ("ctr", &format!("{AWAITS}; {ctr}"))] {
        let path = directory.join(name);
        fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }
    let programs = ContainerdPrograms {
        prefix: ["sh".into()].into(),
        containerd: directory.join("containerd"),
        ctr: directory.join("ctr"),
        limit: Duration::from_secs(20),
    };
    Unpacking { programs, run: directory.into() }
}

fn unpack(unpacking: &Unpacking, flag: &'static AtomicBool, recorder: &Recorder) -> Result<()> {
    let partition = tempfile::tempdir().unwrap();
    let progress = Progress::new(vec![Box::new(recorder.clone())]);
    let containerd = Containerd { root: "/var/lib/containerd".into(), unpack: true };
    unpacking.unpack(partition.path(), &containerd, &images(), &progress, &Cancel::new(flag))
}

#[test]
fn each_image_is_unpacked_by_its_digest_and_counted() {
    let directory = tempfile::tempdir().unwrap();
    let log = directory.path().join("calls");
    let unpacking = scripted(directory.path(), &format!("echo \"$*\" >> {}", log.display()));
    let recorder = Recorder::default();
    unpack(&unpacking, &GO_ON, &recorder).unwrap();
    let calls = fs::read_to_string(log).unwrap();
    let calls: Vec<_> = calls.lines().filter(|call| call.contains("unpack")).collect();
    assert_eq!(calls.len(), 2);
    let digest = images()[1].digest.oci();
    let end = format!("--namespace k8s.io snapshots --snapshotter overlayfs unpack {digest}");
    assert!(calls[1].ends_with(&end), "{calls:?}");
    let events = recorder.0.lock().unwrap();
    let told: Vec<_> = events.iter().map(|event| event.message.as_str()).collect();
    assert_eq!(
        told,
        ["Unpacking image 1 of 2: a.example.org/web:1", "Unpacking image 2 of 2: a.example.org/db:1"]
    );
}

#[test]
fn an_image_that_cannot_be_unpacked_is_named_with_what_containerd_says() {
    let directory = tempfile::tempdir().unwrap();
    let script = "case $* in *unpack*) echo no space left on device >&2; exit 1;; esac";
    let unpacking = scripted(directory.path(), script);
    let error = unpack(&unpacking, &GO_ON, &Recorder::default()).unwrap_err();
    assert_eq!(class_of(&error), Class::DiskIo);
    let text = render(&error);
    assert!(text.contains("unpacking a.example.org/web:1") && text.contains("no space left"), "{text}");
}

#[test]
fn a_stop_ends_the_unpacking_of_an_image() {
    let directory = tempfile::tempdir().unwrap();
    let unpacking = scripted(directory.path(), "case $* in *unpack*) exec sleep 60;; esac");
    let error = unpack(&unpacking, &STOP, &Recorder::default()).unwrap_err();
    assert_eq!(class_of(&error), Class::Cancelled);
}

#[test]
fn a_live_system_without_containerd_is_found_before_anything_is_written() {
    let mut unpacking = Unpacking::of_live_system();
    unpacking.programs.containerd = "/nonexistent/containerd".into();
    let error = unpacking.check(&base::command::SystemRunner).unwrap_err();
    assert_eq!(class_of(&error), Class::Hardware);
    assert!(render(&error).contains("/nonexistent/containerd does not run"), "{}", render(&error));
}

/// An OCI archive with one image of two layers, and the digest of its manifest.
fn archive() -> (Vec<u8>, Digest) {
    let mut archive = tar::Builder::new(Vec::new());
    let mut add = |path: &str, bytes: &[u8]| {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o644);
        archive.append_data(&mut header, path, bytes).unwrap();
    };
    let layers = ["one", "two"].map(|name| {
        let mut layer = tar::Builder::new(Vec::new());
        let mut header = tar::Header::new_gnu();
        header.set_size(name.len() as u64);
        header.set_mode(0o755);
        layer.append_data(&mut header, name, name.as_bytes()).unwrap();
        layer.into_inner().unwrap()
    });
    let mut blob = |bytes: &[u8], media_type: &str| {
        let digest = Digest::of(bytes);
        add(&format!("blobs/sha256/{digest}"), bytes);
        json!({ "mediaType": media_type, "digest": digest.oci(), "size": bytes.len() })
    };
    let diff_ids = layers.each_ref().map(|layer| Digest::of(layer).oci());
    let config = json!({
        "architecture": "amd64", "os": "linux", "config": {},
        "rootfs": { "type": "layers", "diff_ids": diff_ids },
    });
    let layers = layers.each_ref().map(|layer| blob(layer, "application/vnd.oci.image.layer.v1.tar"));
    let config = blob(config.to_string().as_bytes(), "application/vnd.oci.image.config.v1+json");
    let media_type = "application/vnd.oci.image.manifest.v1+json";
    let manifest = json!({ "schemaVersion": 2, "mediaType": media_type, "config": config, "layers": layers });
    let manifest = manifest.to_string().into_bytes();
    let mut entry = blob(&manifest, media_type);
    entry["annotations"] = json!({ "io.containerd.image.name": "localhost/nqrust/layers:1" });
    add("index.json", json!({ "schemaVersion": 2, "manifests": [entry] }).to_string().as_bytes());
    add("oci-layout", br#"{"imageLayoutVersion": "1.0.0"}"#);
    (archive.into_inner().unwrap(), Digest::of(&manifest))
}

#[test]
#[ignore = "needs root and containerd"]
fn a_real_containerd_leaves_snapshots_that_the_next_one_starts_containers_from() {
    use std::io::Write;
    let directory = tempfile::tempdir().unwrap();
    let unpacking = Unpacking { run: directory.path().into(), ..Unpacking::of_live_system() };
    let partition = directory.path().join("partition");
    let containerd = Containerd { root: "/var/lib/rancher/k3s/agent/containerd".into(), unpack: true };
    let work = directory.path().join("node");
    fs::create_dir(&work).unwrap();
    let root = partition.join(containerd.on_partition());
    let places = ContainerdPaths { work: work.clone(), work_inside: work, root_inside: root.clone() };
    let (bytes, digest) = archive();
    let start = || ContainerdDaemon::start(&unpacking.programs, places.clone(), CONFIG).unwrap();
    let ctr = |daemon: &ContainerdDaemon<'_>, words: &[&str]| {
        let args = ["--namespace", NAMESPACE].into_iter().chain(words.iter().copied());
        String::from_utf8(daemon.client().ctr(args).unwrap()).unwrap()
    };

    let daemon = start();
    let feed: Box<base::containerd::StdinWriter<'_>> = Box::new(move |mut pipe| Ok(pipe.write_all(&bytes)?));
    let import = ["--namespace", NAMESPACE, "images", "import", "--no-unpack", "-"];
    daemon.client().ctr_while(import, Some(feed), &mut || Ok(())).unwrap();
    assert_eq!(ctr(&daemon, &["snapshots", "ls"]).lines().count(), 1, "nothing but a heading");
    daemon.stop().unwrap();

    let images = [UnpackedImage { name: "localhost/nqrust/layers:1".into(), digest }];
    let cancel = Cancel::new(&GO_ON);
    unpacking.unpack(&partition, &containerd, &images, &Progress::silent(), &cancel).unwrap();

    let daemon = start();
    let snapshots = ctr(&daemon, &["snapshots", "ls"]);
    assert_eq!(
        snapshots.lines().filter(|line| line.trim_end().ends_with("Committed")).count(),
        2,
        "{snapshots}"
    );
    let check = ctr(&daemon, &["images", "check"]);
    assert!(check.lines().any(|line| line.contains("complete (3/3)") && line.contains("true")), "{check}");
    // A new container uses it without unpacking again.
    ctr(&daemon, &["containers", "create", "localhost/nqrust/layers:1", "first", "one"]);
    let snapshots = ctr(&daemon, &["snapshots", "ls"]);
    assert!(
        snapshots.lines().any(|line| line.starts_with("first") && line.trim_end().ends_with("Active")),
        "{snapshots}"
    );
    let info = ctr(&daemon, &["snapshots", "mounts", "/nonexistent", "first"]);
    assert!(info.contains("overlay") && info.contains("lowerdir="), "{info}");
    daemon.stop().unwrap();
    let layers = walkdir::WalkDir::new(root.join("io.containerd.snapshotter.v1.overlayfs/snapshots"));
    let names: Vec<_> = layers.into_iter().map(|entry| entry.unwrap().file_name().to_owned()).collect();
    assert!(names.iter().any(|name| name == "one") && names.iter().any(|name| name == "two"), "{names:?}");
}
