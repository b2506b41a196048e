use std::process::{Command, Stdio};
use std::sync::atomic::AtomicBool;

use serde_json::Value;

use super::super::unpack::CONFIG;
use super::*;
use base::containerd::{ContainerdDaemon, ContainerdPaths, ContainerdPrograms};
use base::failure::{class_of, render};
use model::release::Purpose;
use testing::progress::Recorder;

static GO_ON: AtomicBool = AtomicBool::new(false);

/// Images of which every blob is real, and the release that has them.
struct TestImages {
    release: Release,
    blobs: BTreeMap<Digest, Vec<u8>>,
}

impl TestImages {
    fn new() -> Self {
        let release = Release { payloads: vec![], images: vec![], ..testing::release::release() };
        Self { release, blobs: BTreeMap::new() }
    }

    /// An image with a layer for each of `layers`, which are a file's name and length; with an index that names a manifest for
    /// another architecture too if `index` says so.
    fn with(mut self, name: &str, layers: &[(&str, usize)], index: bool) -> Self {
        let layers: Vec<_> = layers.iter().map(|(name, length)| layer(name, *length)).collect();
        let diff_ids: Vec<_> = layers.iter().map(|layer| Digest::of(layer).oci()).collect();
        let config = json!({
            "architecture": "amd64", "os": "linux", "config": { "Cmd": [name] },
            "rootfs": { "type": "layers", "diff_ids": diff_ids },
        });
        let layers: Vec<_> =
            layers.into_iter().map(|layer| self.blob(layer, media_types::OCI_LAYER)).collect();
        let config = self.blob(config.to_string().into_bytes(), media_types::OCI_CONFIG);
        let mut blobs: Vec<Value> = [vec![config.clone()], layers.clone()].concat();
        let manifest = json!({
            "schemaVersion": 2, "mediaType": media_types::OCI_MANIFEST, "config": config, "layers": layers,
        });
        let mut manifest = self.blob(manifest.to_string().into_bytes(), media_types::OCI_MANIFEST);
        blobs.insert(0, manifest.clone());
        if index {
            let mut other = manifest.clone();
            other["digest"] = Digest::of(b"not in the release").oci().into();
            other["platform"] = json!({ "architecture": "arm64", "os": "linux" });
            manifest["platform"] = json!({ "architecture": "amd64", "os": "linux" });
            let index = json!({
                "schemaVersion": 2, "mediaType": media_types::OCI_INDEX, "manifests": [other, manifest],
            });
            blobs.insert(0, self.blob(index.to_string().into_bytes(), media_types::OCI_INDEX));
        }
        let blobs: Vec<Digest> =
            blobs.iter().map(|blob| blob["digest"].as_str().unwrap().parse().unwrap()).collect();
        self.release.images.push(Image {
            name: name.into(),
            digest: blobs[0],
            roles: vec![],
            blobs,
            documents: 1 + usize::from(index),
        });
        self
    }

    fn blob(&mut self, bytes: Vec<u8>, media_type: &str) -> Value {
        let (sha256, size) = (Digest::of(&bytes), bytes.len() as u64);
        if self.blobs.insert(sha256, bytes).is_none() {
            let path = format!("images/blobs/sha256/{sha256}");
            self.release.payloads.push(Payload { path, purpose: Purpose::ImageBlob, size, sha256 });
            // What an install needs besides, and an import does not open.
            if self.release.image_metadata("worker").is_none() {
                let path = model::release::metadata_path("worker");
                let sha256 = Digest::of(b"");
                self.release.payloads.push(Payload {
                    path,
                    purpose: Purpose::ImageMetadata,
                    size: 0,
                    sha256,
                });
            }
        }
        json!({ "mediaType": media_type, "digest": sha256.oci(), "size": size })
    }

    fn size(&self, digests: impl IntoIterator<Item = Digest>) -> u64 {
        digests.into_iter().map(|digest| self.blobs[&digest].len() as u64).sum()
    }

    fn source(&self) -> TestSource<'_> {
        TestSource {
            images: self,
            place: PayloadPlace::Network,
            fault: None,
            bad: AtomicUsize::new(usize::MAX),
            opened: Mutex::default(),
            meanwhile: Mutex::default(),
        }
    }
}

fn layer(name: &str, length: usize) -> Vec<u8> {
    let mut layer = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(length as u64);
    header.set_mode(0o755);
    let content: Vec<u8> = (0..length).map(|at| (at * 31 + at / 251 + name.len()) as u8).collect();
    layer.append_data(&mut header, name, content.as_slice()).unwrap();
    layer.into_inner().unwrap()
}

/// What is wrong with a blob.
#[derive(Clone, Copy)]
enum BlobFault {
    /// One byte, near its beginning.
    Lies,
    /// It ends so many bytes early.
    Cut(usize),
    /// One byte, and the run is stopped in its middle.
    Stops(&'static AtomicBool),
}

type Meanwhile<'a> = (Digest, Box<dyn FnOnce() + Send + 'a>);

struct TestSource<'a> {
    images: &'a TestImages,
    place: PayloadPlace,
    fault: Option<(Digest, BlobFault)>,
    /// So often the fault is given.
    bad: AtomicUsize,
    opened: Mutex<Vec<Digest>>,
    /// Done once, when this blob is opened.
    meanwhile: Mutex<Option<Meanwhile<'a>>>,
}

impl TestSource<'_> {
    fn opened(&self) -> Vec<Digest> {
        let mut opened = std::mem::take(&mut *self.opened.lock().unwrap());
        opened.sort();
        opened
    }
}

/// Gives all bytes, and sets a flag behind the first part of them.
struct StoppingReader(io::Cursor<Vec<u8>>, Option<&'static AtomicBool>);

impl Read for StoppingReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.0.position() as usize * 2 > self.0.get_ref().len()
            && let Some(flag) = self.1
        {
            flag.store(true, Ordering::Relaxed);
        }
        self.0.read(buffer)
    }
}

impl PayloadSource for TestSource<'_> {
    fn open(&self, payload: &Payload) -> Result<Box<dyn Read + Send>> {
        self.opened.lock().unwrap().push(payload.sha256);
        let now = |(blob, _): &mut Meanwhile<'_>| *blob == payload.sha256;
        if let Some((_, work)) = self.meanwhile.lock().unwrap().take_if(now) {
            work();
        }
        let mut bytes = self.images.blobs[&payload.sha256].clone();
        let mut flag = None;
        let one_less = |left: usize| left.checked_sub(1);
        if let Some((digest, fault)) = self.fault
            && digest == payload.sha256
            && self.bad.fetch_update(Ordering::SeqCst, Ordering::SeqCst, one_less).is_ok()
        {
            match fault {
                BlobFault::Cut(less) => bytes.truncate(bytes.len() - less),
                BlobFault::Lies => bytes[600] ^= 1,
                BlobFault::Stops(stop) => {
                    bytes[600] ^= 1;
                    flag = Some(stop);
                }
            }
        }
        Ok(Box::new(StoppingReader(io::Cursor::new(bytes), flag)))
    }

    fn place(&self, _: &Payload) -> Option<PayloadPlace> {
        Some(self.place)
    }

    fn probe(&self, _: &Payload) -> Result<()> {
        Ok(())
    }

    fn manifest(&self) -> Result<Vec<u8>> {
        Ok(Vec::new())
    }

    fn describe(&self) -> String {
        "the test source".into()
    }
}

/// The containerd of a node.
struct Node {
    directory: tempfile::TempDir,
    programs: ContainerdPrograms,
}

impl Node {
    fn new() -> Self {
        let programs = ContainerdPrograms {
            prefix: vec![],
            containerd: "containerd".into(),
            ctr: "ctr".into(),
            limit: Duration::from_secs(60),
        };
        Self { directory: tempfile::tempdir().unwrap(), programs }
    }

    fn start(&self) -> (ContainerdDaemon<'_>, RunningContainerd) {
        let paths = ContainerdPaths::within(self.directory.path());
        let containerd = RunningContainerd {
            ctr: "ctr".into(),
            socket: self.directory.path().join("s"),
            root: self.directory.path().join("root"),
        };
        (ContainerdDaemon::start(&self.programs, paths, CONFIG).unwrap(), containerd)
    }
}

fn import(containerd: &RunningContainerd, source: &TestSource<'_>) -> Result<ImportOutcome> {
    let (release, cancel) = (&source.images.release, Cancel::new(&GO_ON));
    import_missing(containerd, source, release, Role::Worker, &Progress::silent(), &cancel)
}

fn ctr(daemon: &ContainerdDaemon<'_>, words: &[&str]) -> String {
    let words = ["--namespace", NAMESPACE].into_iter().chain(words.iter().copied());
    String::from_utf8(daemon.client().ctr(words).unwrap()).unwrap()
}

fn collect_garbage(daemon: &ContainerdDaemon<'_>) {
    ctr(daemon, &["leases", "create", "--id", "check"]);
    ctr(daemon, &["leases", "delete", "--sync", "check"]);
}

/// Requires that containerd has these images only, complete under all their names and pinned, also after its collector ran.
fn has_all(daemon: &ContainerdDaemon<'_>, images: &TestImages) {
    collect_garbage(daemon);
    let mut names: Vec<_> = images
        .release
        .images
        .iter()
        .flat_map(|image| image.name.parse::<ImageReference>().unwrap().names_on_nodes(image.digest))
        .map(|name| name.to_string())
        .collect();
    names.sort();
    let pinned = format!(r#"labels."{}"=={}"#, PINNED.0, PINNED.1);
    let mut listed: Vec<_> =
        ctr(daemon, &["images", "ls", "--quiet", &pinned]).lines().map(str::to_owned).collect();
    listed.sort();
    assert_eq!(listed, names);
    let check = ctr(daemon, &["images", "check"]);
    assert_eq!(check.lines().filter(|line| line.contains(" complete (")).count(), names.len(), "{check}");
    let blobs = ctr(daemon, &["content", "ls", "--quiet"]);
    let blobs: BTreeSet<Digest> = blobs.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(blobs, images.blobs.keys().copied().collect(), "its collector removed what no image needs");
}

const LARGE: usize = 3 << 20;

/// Two images that share a layer, one of them with an index.
fn two() -> TestImages {
    let images =
        TestImages::new().with("localhost/nqrust/tools:1", &[("base", 5_000), ("tools", 400)], false);
    images.with("registry.example.org/web:2", &[("base", 5_000), ("web", LARGE)], true)
}

#[test]
#[ignore = "needs root and containerd"]
fn a_running_containerd_gets_all_images_and_what_it_shares_is_not_fetched() {
    let node = Node::new();
    let (daemon, containerd) = node.start();
    let old = TestImages::new().with("localhost/nqrust/tools:1", &[("base", 5_000), ("tools", 400)], false);
    let outcome = import(&containerd, &old.source()).unwrap();
    let all = old.size(old.blobs.keys().copied());
    let name = || "localhost/nqrust/tools:1".to_owned();
    assert_eq!(outcome, ImportOutcome { images: vec![name()], fetched: all, present: 0 });
    has_all(&daemon, &old);

    let new = two();
    let source = new.source();
    let plan = missing_images(&containerd, &new.release, Role::Worker).unwrap();
    let lacking: Vec<_> = new.blobs.keys().copied().filter(|blob| !old.blobs.contains_key(blob)).collect();
    let fetch = new.size(lacking.iter().copied());
    let web = || vec!["registry.example.org/web:2".to_owned()];
    assert_eq!(plan, MissingImages { images: web(), fetch, present: all });
    assert_eq!(source.opened(), []);

    let recorder = Recorder::default();
    let progress = Progress::new(vec![Box::new(recorder.clone())]);
    let cancel = Cancel::new(&GO_ON);
    let done = import_missing(&containerd, &source, &new.release, Role::Worker, &progress, &cancel);
    assert_eq!(done.unwrap(), ImportOutcome { images: web(), fetched: fetch, present: all });
    assert_eq!(source.opened(), lacking);
    let last = recorder.0.lock().unwrap().last().unwrap().clone();
    assert_eq!((last.bytes, last.total), (Some(fetch), Some(fetch)));
    has_all(&daemon, &new);
    daemon.stop().unwrap();
}

#[test]
#[ignore = "needs root and containerd"]
fn what_is_there_is_not_fetched_again_and_only_what_is_lost_is_given_back() {
    let node = Node::new();
    let (daemon, containerd) = node.start();
    let images = two();
    let source = images.source();
    import(&containerd, &source).unwrap();
    source.opened();

    let begun = Instant::now();
    let outcome = import(&containerd, &source).unwrap();
    assert!(begun.elapsed() < Duration::from_secs(2), "{:?}", begun.elapsed());
    let all = images.size(images.blobs.keys().copied());
    assert_eq!(outcome, ImportOutcome { present: all, ..ImportOutcome::default() });

    // A name, the label that pins, and the file of a blob.
    let web = &images.release.images[1];
    ctr(&daemon, &["images", "rm", &web.name]);
    ctr(&daemon, &["images", "label", "--replace-all", "localhost/nqrust/tools:1", "a=b"]);
    let lost = *web.blobs.last().unwrap();
    fs::remove_file(containerd.blob(&lost)).unwrap();
    let outcome = import(&containerd, &source).unwrap();
    assert_eq!((outcome.images, outcome.fetched), (vec![web.name.clone()], images.size([lost])));
    assert_eq!(source.opened(), [lost]);
    has_all(&daemon, &images);

    // Nothing but a name: no blob is opened for it.
    ctr(&daemon, &["images", "rm", &web.name]);
    let outcome = import(&containerd, &source).unwrap();
    assert_eq!((outcome.images, outcome.fetched), (vec![web.name.clone()], 0));
    assert_eq!(source.opened(), []);
    has_all(&daemon, &images);
    daemon.stop().unwrap();
}

#[test]
#[ignore = "needs root and containerd"]
fn a_name_that_meant_another_image_means_the_new_one() {
    let node = Node::new();
    let (daemon, containerd) = node.start();
    let name = "localhost/nqrust/tools:1";
    let [old, new] = ["old", "new"].map(|layer| TestImages::new().with(name, &[(layer, 300)], false));
    import(&containerd, &old.source()).unwrap();
    let outcome = import(&containerd, &new.source()).unwrap();
    assert_eq!(outcome.images, [name]);
    let meant = ctr(&daemon, &["images", "check", &format!("name=={name}")]);
    assert!(meant.contains(&new.release.images[0].digest.oci()), "{meant}");
    let by_digest = format!("localhost/nqrust/tools@{}", old.release.images[0].digest.oci());
    let kept = ctr(&daemon, &["images", "check", &format!("name=={by_digest}")]);
    assert!(kept.contains("complete (2/2)"), "{kept}");
    daemon.stop().unwrap();
}

#[test]
#[ignore = "needs root and containerd"]
fn a_damaged_blob_is_fetched_again_from_a_server_and_its_image_gets_no_name() {
    let images = two();
    // A multiple of 512 bytes: after it an archive could end.
    let layer = *images.release.images[1].blobs.last().unwrap();
    assert_eq!(images.size([layer]) % 512, 0);
    let manifest = images.release.images[1].blobs[1];
    use BlobFault::{Cut, Lies};
    for (place, blob, fault, bad, opened) in [
        (PayloadPlace::Network, layer, Lies, usize::MAX, 3),
        (PayloadPlace::Network, layer, Cut(512), usize::MAX, 3),
        (PayloadPlace::Network, layer, Cut(LARGE / 2), usize::MAX, 3),
        (PayloadPlace::Network, layer, Cut(LARGE / 2), 2, 3),
        (PayloadPlace::Here, layer, Lies, usize::MAX, 1),
        (PayloadPlace::Network, manifest, Cut(7), usize::MAX, 3),
    ] {
        let node = Node::new();
        let (daemon, containerd) = node.start();
        let mut source = images.source();
        (source.place, source.fault, source.bad) = (place, Some((blob, fault)), bad.into());
        let imported = import(&containerd, &source);
        assert_eq!(source.opened().iter().filter(|digest| **digest == blob).count(), opened);
        if bad < opened {
            imported.unwrap();
            has_all(&daemon, &images);
            continue;
        }
        let error = imported.unwrap_err();
        assert_eq!(class_of(&error), Class::Verification, "{}", render(&error));
        let text = render(&error);
        assert!(text.contains("adding registry.example.org/web:2") && text.contains("is damaged"), "{text}");
        // What was finished before stays, and what was begun does not.
        let rest =
            TestImages::new().with("localhost/nqrust/tools:1", &[("base", 5_000), ("tools", 400)], false);
        has_all(&daemon, &rest);
        // And the next run goes on.
        let source = images.source();
        import(&containerd, &source).unwrap();
        assert!(source.opened().iter().all(|blob| !rest.blobs.contains_key(blob)));
        has_all(&daemon, &images);
        daemon.stop().unwrap();
    }
}

#[test]
#[ignore = "needs root and containerd"]
fn a_run_that_was_stopped_in_a_blob_is_finished_by_the_next_one() {
    static STOP: AtomicBool = AtomicBool::new(false);
    let images = two();
    let node = Node::new();
    let (daemon, containerd) = node.start();
    let layer = *images.release.images[1].blobs.last().unwrap();
    let mut source = images.source();
    source.fault = Some((layer, BlobFault::Stops(&STOP)));
    let cancel = Cancel::new(&STOP);
    let stopped =
        import_missing(&containerd, &source, &images.release, Role::Worker, &Progress::silent(), &cancel);
    let error = stopped.unwrap_err();
    assert_eq!(class_of(&error), Class::Cancelled, "{}", render(&error));
    assert_eq!(ctr(&daemon, &["images", "ls", "--quiet"]).lines().count(), 2, "one image with two names");
    assert_eq!(ctr(&daemon, &["leases", "ls", "--quiet"]), "");

    // What came before the stop was damaged, and is not used.
    let source = images.source();
    import(&containerd, &source).unwrap();
    assert_eq!(source.opened().iter().filter(|digest| **digest == layer).count(), 1);
    has_all(&daemon, &images);
    daemon.stop().unwrap();
}

#[test]
#[ignore = "needs root and containerd"]
fn an_image_whose_blobs_are_collected_meanwhile_is_added_whole() {
    let images = two();
    let node = Node::new();
    let (daemon, containerd) = node.start();
    import(&containerd, &images.source()).unwrap();
    // A layer and one of two names are missing; the other name goes while the layer is fetched.
    let web = &images.release.images[1];
    let names = web.name.parse::<ImageReference>().unwrap().names_on_nodes(web.digest);
    let [tag, by_digest] = names.as_slice() else { panic!("{names:?}") };
    ctr(&daemon, &["images", "rm", &tag.to_string()]);
    let layer = *web.blobs.last().unwrap();
    fs::remove_file(containerd.blob(&layer)).unwrap();
    let source = images.source();
    let remove = || drop(ctr(&daemon, &["images", "rm", "--sync", &by_digest.to_string()]));
    *source.meanwhile.lock().unwrap() = Some((layer, Box::new(remove)));
    import(&containerd, &source).unwrap();
    assert!(source.opened().contains(&web.digest), "it was there at first");
    has_all(&daemon, &images);
    drop(source);
    daemon.stop().unwrap();
}

#[test]
#[ignore = "needs root and containerd"]
fn part_of_a_blob_that_a_killed_import_left_does_not_come_into_an_image() {
    let images = two();
    let node = Node::new();
    let (daemon, containerd) = node.start();
    let layer = *images.release.images[1].blobs.last().unwrap();
    let mut bytes = images.blobs[&layer].clone();
    bytes[600] ^= 1;
    let mut child = Command::new("ctr")
        .args(["--address", containerd.socket.to_str().unwrap(), "-n", NAMESPACE, "images", "import", "-"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut header = tar::Header::new_gnu();
    header.set_path(format!("blobs/sha256/{layer}")).unwrap();
    header.set_size(bytes.len() as u64);
    header.set_cksum();
    let mut pipe = child.stdin.take().unwrap();
    pipe.write_all(header.as_bytes()).unwrap();
    pipe.write_all(&bytes[..LARGE / 2]).unwrap();
    std::thread::sleep(Duration::from_millis(500));
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(ctr(&daemon, &["content", "active"]).contains(&layer.to_string()), "it is there");

    let source = images.source();
    import(&containerd, &source).unwrap();
    assert_eq!(source.opened().iter().filter(|digest| **digest == layer).count(), 1);
    let check = ctr(&daemon, &["images", "check"]);
    assert_eq!(check.lines().filter(|line| line.contains(" complete (")).count(), 4, "{check}");
    daemon.stop().unwrap();
}

#[test]
#[ignore = "needs root and containerd"]
fn images_are_unpacked_where_the_release_says_so() {
    let mut images = two();
    images.release.containerd.unpack = true;
    let node = Node::new();
    let (daemon, containerd) = node.start();
    for _ in 0..2 {
        import(&containerd, &images.source()).unwrap();
        collect_garbage(&daemon);
        let snapshots = ctr(&daemon, &["snapshots", "ls"]);
        assert_eq!(snapshots.lines().filter(|line| line.contains("Committed")).count(), 3, "{snapshots}");
        let check = ctr(&daemon, &["images", "check"]);
        assert_eq!(check.lines().filter(|line| line.trim_end().ends_with("true")).count(), 4, "{check}");
    }
    daemon.stop().unwrap();
}

#[test]
#[ignore = "needs root and containerd"]
fn a_file_of_wrong_length_in_the_store_is_named_before_anything_is_fetched() {
    let images = two();
    let node = Node::new();
    let (daemon, containerd) = node.start();
    import(&containerd, &images.source()).unwrap();
    let path = containerd.blob(images.release.images[1].blobs.last().unwrap());
    fs::remove_file(&path).unwrap();
    fs::write(&path, b"short").unwrap();
    let source = images.source();
    let error = import(&containerd, &source).unwrap_err();
    assert_eq!(class_of(&error), Class::DiskIo);
    assert!(render(&error).contains("is damaged: 5 bytes instead of"), "{}", render(&error));
    assert_eq!(source.opened(), []);
    daemon.stop().unwrap();
}

/// A containerd whose `ctr` is a script. Another process writes it: while a file is open for writing, a child that was started
/// meanwhile has it too, and it cannot be executed.
fn scripted(directory: &Path, script: &str) -> RunningContainerd {
    let ctr = directory.join("ctr");
    let script = format!("#!/bin/sh\ncase $* in --version) echo ctr x 1.6.20;; {script} esac\n");
    let write = format!("cat > {0} && chmod +x {0}", ctr.display());
    let mut shell = Command::new("sh").args(["-c", &write]).stdin(Stdio::piped()).spawn().unwrap();
    shell.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
    assert!(shell.wait().unwrap().success());
    RunningContainerd { ctr, socket: directory.join("s"), root: directory.into() }
}

#[test]
fn what_containerd_cannot_store_is_disk_io_with_its_words() {
    let directory = tempfile::tempdir().unwrap();
    let script = "*import*) head -c 100000 >/dev/null; echo no space left on device >&2; exit 1;;";
    let containerd = scripted(directory.path(), script);
    let images = TestImages::new().with("localhost/nqrust/tools:1", &[("tools", LARGE)], false);
    let source = images.source();
    let error = import(&containerd, &source).unwrap_err();
    assert_eq!(class_of(&error), Class::DiskIo);
    let text = render(&error);
    assert!(text.contains("adding localhost/nqrust/tools:1") && text.contains("no space left"), "{text}");
    assert_eq!(source.opened().len(), 3, "it is not tried again");
}

#[test]
fn an_image_that_is_not_kept_is_an_error_after_a_second_attempt() {
    let directory = tempfile::tempdir().unwrap();
    let containerd = scripted(directory.path(), "*import*) cat >/dev/null;;");
    let images = TestImages::new().with("localhost/nqrust/tools:1", &[("tools", 500)], false);
    let source = images.source();
    let error = import(&containerd, &source).unwrap_err();
    assert_eq!(class_of(&error), Class::DiskIo);
    let text = render(&error);
    assert!(text.contains("does not keep the image localhost/nqrust/tools:1"), "{text}");
    assert_eq!(source.opened().len(), 2 * 3);
}

#[test]
fn a_containerd_that_does_not_answer_and_a_missing_ctr_are_told_before_anything_is_fetched() {
    let directory = tempfile::tempdir().unwrap();
    let images = two();
    let refuses = scripted(directory.path(), "*) echo connection refused >&2; exit 1;;");
    let absent = RunningContainerd { ctr: "/nonexistent/ctr".into(), ..refuses.clone() };
    for (containerd, told) in [(refuses, "connection refused"), (absent, "starting /nonexistent/ctr")] {
        let source = images.source();
        let error = import(&containerd, &source).unwrap_err();
        assert_eq!(class_of(&error), Class::Hardware, "{}", render(&error));
        assert!(render(&error).contains(told), "{}", render(&error));
        assert_eq!(source.opened(), []);
    }
}

#[test]
fn a_store_without_room_is_told_with_both_sizes_before_anything_is_fetched() {
    let directory = tempfile::tempdir().unwrap();
    let containerd = scripted(directory.path(), "");
    let mut images = two();
    let blob = images.release.payloads.iter_mut().find(|blob| blob.purpose == Purpose::ImageBlob);
    blob.unwrap().size = 1 << 60;
    let source = images.source();
    let error = import(&containerd, &source).unwrap_err();
    assert_eq!(class_of(&error), Class::DiskIo);
    let text = render(&error);
    assert!(text.contains("need 1") && text.contains("are free"), "{text}");
    assert_eq!(source.opened(), []);
}

#[test]
fn a_stop_before_the_first_image_fetches_nothing() {
    static STOP: AtomicBool = AtomicBool::new(true);
    let directory = tempfile::tempdir().unwrap();
    let containerd = scripted(directory.path(), "");
    let (images, cancel) = (two(), Cancel::new(&STOP));
    let source = images.source();
    let stopped =
        import_missing(&containerd, &source, &images.release, Role::Worker, &Progress::silent(), &cancel);
    assert_eq!(class_of(&stopped.unwrap_err()), Class::Cancelled);
    assert_eq!(source.opened(), []);
}
