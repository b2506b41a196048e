//! Releases that travel through a real registry and through layouts.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use base::failure::{class_of, render};
use formats::minisign::SecretKey;
use formats::oci::layout::ImageLayout;
use formats::oci::media_types;
use formats::oci::referrers::{referrers, with_referrer};
use medium::payload_sources::{
    OpenedArtifact, PayloadPlace, VerifyingReader, artifact_source, open_release, source as source_of,
};
use medium::reader::MediumReader;
use model::architecture::Architecture;
use model::release::{MANIFEST, Purpose, SIGNATURES};
use testing::http::{Answer, Fake, Request};
use testing::initrd::saying;
use testing::registry::RealRegistry;
use testing::release::replace;
use transfer::download::RetryPolicy;
use transfer::registry::Settings;
use trust::TrustStore;

use super::push::TransferCounts;
use super::*;
use crate::provenance::Subject;
use crate::provenance::statement::tests::statement;
use base::digest::Digest;
use base::failure::Class;
use base::progress::Progress;
use medium::artifact::{ArtifactForm, ArtifactReference, ReleaseDocument};
use medium::build_output::{CHECKSUMS, PROVENANCE, SBOM};
use model::release::Release;
use transfer::registry::{Client, ReferrersList};

const TRANSFERS: usize = 2;

/// A directory with the ISO of a release.
struct Bench {
    directory: tempfile::TempDir,
    release: Release,
    image: Vec<u8>,
}

impl Bench {
    fn new() -> Self {
        Self::of(testing::iso::release())
    }

    fn of(release: Release) -> Self {
        let image = testing::iso::image(&release);
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("full.iso"), &image).unwrap();
        Self { directory, release, image }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn iso(&self) -> PathBuf {
        self.path("full.iso")
    }

    fn payload(&self, purpose: Purpose) -> &model::release::Payload {
        self.release.payload(purpose).unwrap()
    }
}

fn quick() -> RetryPolicy {
    RetryPolicy { attempts: 3, pause: std::time::Duration::from_millis(1), ..RetryPolicy::default() }
}

fn client(registries: &str) -> Client {
    let registries = serde_saphyr::from_str(registries).unwrap();
    Client::new(Settings { registries, retry: quick(), ..Settings::default() }).unwrap()
}

fn reference(text: &str) -> ArtifactReference {
    text.parse().unwrap()
}

fn pushed(medium: &Path, to: &str, client: &Client) -> anyhow::Result<PushReport> {
    push(medium, &TrustStore::absent(), &[], &reference(to), client, TRANSFERS, &Progress::silent())
}

fn pulled(from: &str, client: &Client, output: &Path, iso: Option<&Path>) -> anyhow::Result<PullReport> {
    pulled_for(Architecture::Amd64, from, client, output, iso)
}

fn pulled_for(
    architecture: Architecture,
    from: &str,
    client: &Client,
    output: &Path,
    iso: Option<&Path>,
) -> anyhow::Result<PullReport> {
    let (from, known) = (reference(from), TrustStore::absent());
    pull(&from, architecture, &known, client, (output, iso), TRANSFERS, &Progress::silent())
}

/// The files of a directory with their contents' digests, sorted.
fn listing(root: &Path) -> Vec<(String, Digest)> {
    let files = walkdir::WalkDir::new(root).sort_by_file_name().into_iter().map(Result::unwrap);
    let files = files.filter(|entry| entry.file_type().is_file());
    let named = |entry: walkdir::DirEntry| {
        let path = entry.path().strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        (path, Digest::of(&fs::read(entry.path()).unwrap()))
    };
    files.map(named).collect()
}

/// Asserts that `root` has the payloads of a release, and nothing else but its manifest and boot code.
fn is_whole(root: &Path, release: &Release) {
    let mut expected: Vec<_> =
        release.payloads.iter().map(|payload| (payload.path.clone(), payload.sha256)).collect();
    expected.push((MANIFEST.into(), Digest::of(&release.to_bytes())));
    if let Some(code) = release.iso.as_ref().and_then(|iso| iso.bios) {
        expected.push(("boot/grub/eltorito.img".into(), code.eltorito_sha256));
        expected.push(("boot/grub/boot_hybrid.img".into(), code.boot_sector_sha256));
    }
    expected.sort();
    let mut found = listing(root);
    found.sort();
    assert_eq!(found, expected);
}

#[test]
fn a_release_comes_back_from_a_registry_with_a_login_and_its_iso_has_the_same_bytes() {
    let bench = Bench::new();
    let registry = RealRegistry::start(true);
    let client = client(&registry.registries(true));
    let name = format!("{}/nqrust/release:0.1.0", registry.host());
    let report = pushed(&bench.iso(), &name, &client).unwrap();
    let layers = bench.release.payloads.len() + 2;
    assert_eq!((report.form, report.iso, &*report.tag), (ArtifactForm::Artifact, true, "0.1.0"));
    assert_eq!((report.blobs.uploaded, report.blobs.present), (layers + 1, 0));

    let (tree, iso) = (bench.path("tree"), bench.path("again.iso"));
    let back = pulled(&name, &client, &tree, Some(&iso)).unwrap();
    assert_eq!((back.digest, back.fetched), (report.digest, layers));
    assert_eq!(back.release_sha256, Digest::of(&bench.release.to_bytes()));
    is_whole(&tree, &bench.release);
    assert!(fs::read(&iso).unwrap() == bench.image, "the ISO has other bytes");

    // Pushing what was pulled transfers nothing.
    let again = pushed(&tree, &name, &client).unwrap();
    assert_eq!((again.digest, again.blobs.uploaded, again.iso), (report.digest, 0, true));
    let pinned = format!("{}/nqrust/release@{}", registry.host(), report.digest.oci());
    assert_eq!(pulled(&pinned, &client, &tree, None).unwrap().fetched, 0);
}

#[test]
fn of_a_changed_release_only_what_changed_travels() {
    let bench = Bench::new();
    let registry = RealRegistry::start(false);
    let client = client(&registry.registries(false));
    let name = |tag: &str| format!("{}/nqrust/release:{tag}", registry.host());
    let tree = bench.path("tree");
    pushed(&bench.iso(), &name("1"), &client).unwrap();
    pulled(&name("1"), &client, &tree, None).unwrap();

    // The next version has another initrd, under another path.
    let next = bench.path("next");
    let mut release = bench.release.clone();
    copy(&tree, &next);
    let initrd = release.payloads.iter_mut().find(|payload| payload.purpose == Purpose::Initrd).unwrap();
    fs::remove_file(next.join(&initrd.path)).unwrap();
    let content = vec![5; 123_456];
    (initrd.path, initrd.size) = ("live/initrd.new".into(), content.len() as u64);
    initrd.sha256 = Digest::of(&content);
    fs::write(next.join(&initrd.path), &content).unwrap();
    fs::write(next.join(MANIFEST), release.to_bytes()).unwrap();

    let (bytes, posts) = (registry.uploaded(), registry.requests("POST").len());
    let report = pushed(&next, &name("2"), &client).unwrap();
    // release.json and the initrd.
    assert_eq!(report.blobs.uploaded, 2);
    assert_eq!(report.blobs.uploaded_bytes, 123_456 + release.to_bytes().len() as u64);
    assert_eq!(registry.requests("POST").len() - posts, 2);
    let sent = registry.uploaded() - bytes;
    assert!((123_456..160_000).contains(&sent), "{sent} bytes");

    let back = pulled(&name("2"), &client, &tree, None).unwrap();
    assert_eq!((back.fetched, back.fetched_bytes), (1, 123_456));
    is_whole(&tree, &release);
}

fn copy(from: &Path, to: &Path) {
    for (path, _) in listing(from) {
        fs::create_dir_all(to.join(&path).parent().unwrap()).unwrap();
        fs::copy(from.join(&path), to.join(&path)).unwrap();
    }
}

#[test]
fn one_tag_has_a_version_for_each_architecture_and_whoever_pulls_gets_its_own() {
    let (amd64, arm64) = (Bench::new(), Bench::of(testing::iso::arm64_release()));
    let registry = RealRegistry::start(false);
    let client = client(&registry.registries(false));
    let layout = format!("oci:{}:1", amd64.path("layout").display());
    for (round, name) in [format!("{}/nqrust/release:1", registry.host()), layout].iter().enumerate() {
        let first = pushed(&amd64.iso(), name, &client).unwrap();
        assert_eq!(first.architectures, [Architecture::Amd64]);
        let second = pushed(&arm64.iso(), name, &client).unwrap();
        assert_eq!(second.architectures, Architecture::ALL);
        assert!(second.to_string().contains("which has this version for amd64 and arm64"), "{second}");
        for (bench, report) in [(&amd64, &first), (&arm64, &second)] {
            let (tree, iso) = (bench.path(&format!("tree-{round}")), bench.path(&format!("{round}.iso")));
            let back = pulled_for(bench.release.architecture, name, &client, &tree, Some(&iso)).unwrap();
            assert_eq!(back.digest, report.digest);
            is_whole(&tree, &bench.release);
            assert!(fs::read(&iso).unwrap() == bench.image);
        }
        let source = artifact_source(&reference(name), Architecture::Arm64, &client).unwrap();
        assert_eq!(source.manifest().unwrap(), arm64.release.to_bytes());
        // Pushed again, each keeps the other.
        let again = pushed(&amd64.iso(), name, &client).unwrap();
        assert_eq!((again.architectures, again.digest), (Architecture::ALL.to_vec(), first.digest));
        // Another version takes the tag for itself: none of an earlier one stays beside it.
        let next = Bench::of(Release { version: "0.2.0".into(), ..arm64.release.clone() });
        let alone = pushed(&next.iso(), name, &client).unwrap();
        assert_eq!(alone.architectures, [Architecture::Arm64]);
        let tree = next.path(&format!("tree-{round}"));
        assert_eq!(pulled(name, &client, &tree, None).unwrap().digest, alone.digest);
    }
}

#[test]
fn of_a_directory_with_a_release_for_each_architecture_all_are_pushed_to_one_tag() {
    let place = tempfile::tempdir().unwrap();
    let releases = [testing::iso::release(), testing::iso::arm64_release()];
    for release in &releases {
        let directory = place.path().join(release.architecture.debian());
        fs::create_dir(&directory).unwrap();
        let (image, manifest) = (testing::iso::image(release), release.to_bytes());
        fs::write(directory.join("full.iso"), &image).unwrap();
        fs::write(directory.join(MANIFEST), &manifest).unwrap();
        let sums = format!("{}  full.iso\n{}  {MANIFEST}\n", Digest::of(&image), Digest::of(&manifest));
        fs::write(directory.join(CHECKSUMS), sums).unwrap();
    }
    let client = client("{}");
    let name = format!("oci:{}:1", place.path().join("layout").display());
    let media = pushed_media(place.path());
    assert_eq!(media, [place.path().join("amd64"), place.path().join("arm64")]);
    let reports: Vec<_> = media.iter().map(|medium| pushed(medium, &name, &client).unwrap()).collect();
    assert_eq!(reports[1].architectures, Architecture::ALL);
    for release in &releases {
        let source = artifact_source(&reference(&name), release.architecture, &client).unwrap();
        assert_eq!(source.manifest().unwrap(), release.to_bytes());
    }
    // A command on one release says which there are.
    let told = render(&MediumReader::open(place.path()).unwrap_err());
    assert!(told.contains("for each of several architectures") && told.contains("arm64"), "{told}");
    assert_eq!(pushed_media(&media[0]), [media[0].clone()]);
}

#[test]
fn a_tag_that_lacks_an_architecture_says_which_it_has() {
    let bench = Bench::of(testing::iso::arm64_release());
    let client = client("{}");
    let directory = bench.path("layout");
    let name = format!("oci:{}:1", directory.display());
    pushed(&bench.iso(), &name, &client).unwrap();
    let layout = ImageLayout::open(&directory).unwrap();
    let (_, manifest) = layout.manifests().unwrap().pop().unwrap();
    let entry = medium::artifact::index::entry(manifest.digest, manifest.size, Architecture::Arm64);
    let index = medium::artifact::index::write(vec![entry]).unwrap();
    fs::write(layout.blob(Digest::of(&index)), &index).unwrap();
    let named = formats::oci::Descriptor {
        media_type: media_types::OCI_INDEX.into(),
        digest: Digest::of(&index),
        size: index.len() as u64,
        ..manifest
    };
    layout.name("1", named).unwrap();
    let refused = pulled(&name, &client, &bench.path("tree"), None).unwrap_err();
    assert_eq!(class_of(&refused), Class::Invalid);
    let text = render(&refused);
    assert!(text.contains("has no release for amd64") && text.contains("releases for linux/arm64"), "{text}");
    pulled_for(Architecture::Arm64, &name, &client, &bench.path("tree"), None).unwrap();
}

#[test]
fn a_layout_carries_releases_and_skopeo_takes_them_to_a_registry() {
    let bench = Bench::new();
    let client = client("{}");
    let layout = format!("oci:{}", bench.path("layout").display());
    let first = pushed(&bench.iso(), &format!("{layout}:one"), &client).unwrap();
    let second = pushed(&bench.iso(), &layout, &client).unwrap();
    assert_eq!((&*second.tag, second.digest, second.blobs.uploaded), ("0.1.0", first.digest, 0));
    let iso = bench.path("again.iso");
    pulled(&layout, &client, &bench.path("tree"), Some(&iso)).unwrap();
    assert!(fs::read(&iso).unwrap() == bench.image);

    let registry = RealRegistry::start(false);
    let target = format!("docker://{}/carried/release:1", registry.host());
    let mut skopeo = std::process::Command::new("skopeo");
    let skopeo =
        skopeo.args(["copy", "--quiet", "--dest-tls-verify=false", &format!("{layout}:one"), &target]);
    let output = skopeo.output().expect("skopeo");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let name = format!("{}/carried/release@{}", registry.host(), first.digest.oci());
    let client = self::client(&registry.registries(false));
    pulled(&name, &client, &bench.path("carried"), None).unwrap();
    is_whole(&bench.path("carried"), &bench.release);
}

#[test]
fn a_push_removes_from_a_layout_what_a_killed_one_has_left_and_takes_no_medium_that_is_too_short() {
    let bench = Bench::new();
    let client = client("{}");
    let layout = format!("oci:{}", bench.path("layout").display());
    let blobs = bench.path("layout/blobs/sha256");
    fs::create_dir_all(&blobs).unwrap();
    let left = blobs.join(format!(".nqrust.{}.unfinished", "0".repeat(32)));
    fs::write(&left, "half a blob").unwrap();
    let short = bench.path("short.iso");
    fs::write(&short, &bench.image[..bench.image.len() * 3 / 4]).unwrap();
    let error = pushed(&short, &layout, &client).unwrap_err();
    assert_eq!(class_of(&error), Class::Verification, "{}", render(&error));
    assert!(render(&error).contains("is damaged: the image ends at byte"), "{}", render(&error));
    pushed(&bench.iso(), &layout, &client).unwrap();
    assert!(!left.exists());
    let names = fs::read_dir(&blobs).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    assert!(names.into_iter().all(|name| name.len() == 64));
}

#[test]
fn the_source_of_a_release_gives_every_payload_from_a_registry_and_from_a_layout() {
    let bench = Bench::new();
    let registry = RealRegistry::start(false);
    let client = client(&registry.registries(false));
    let registry = format!("{}/nqrust/release:1", registry.host());
    let layout = format!("oci:{}:1", bench.path("layout").display());
    for (name, place) in [(&registry, PayloadPlace::Network), (&layout, PayloadPlace::Here)] {
        pushed(&bench.iso(), name, &client).unwrap();
        let (judged, source) =
            open_release(&reference(name), Architecture::Amd64, &client, &TrustStore::absent()).unwrap();
        let release = judged.release;
        assert_eq!((&*release, release.bytes()), (&bench.release, &bench.release.to_bytes()[..]));
        assert_eq!(source.manifest().unwrap(), bench.release.to_bytes());
        for payload in &release.payloads {
            source.probe(payload).unwrap();
            assert_eq!(source.place(payload), Some(place));
            let mut reader = VerifyingReader::new(source.open(payload).unwrap(), payload, source.describe());
            std::io::copy(&mut reader, &mut std::io::sink()).unwrap();
        }
        if place == PayloadPlace::Here {
            let named = source_of(Some(name), &[], quick()).unwrap();
            assert_eq!(named.manifest().unwrap(), bench.release.to_bytes());
        }
        let mut stranger = release.payloads[0].clone();
        stranger.sha256 = Digest::of(b"stranger");
        assert_eq!(source.place(&stranger), None);
        assert_eq!(class_of(&source.open(&stranger).err().unwrap()), Class::Verification);
    }
}

#[test]
fn a_pull_that_was_cut_off_goes_on_where_it_was_and_the_directory_is_no_medium_meanwhile() {
    let bench = Bench::new();
    let layout = bench.path("layout");
    let (name, client, tree) = (format!("oci:{}", layout.display()), client("{}"), bench.path("tree"));
    pushed(&bench.iso(), &name, &client).unwrap();
    let rootfs = bench.payload(Purpose::Rootfs);
    let blob = layout.join("blobs/sha256").join(rootfs.sha256.to_string());
    let content = fs::read(&blob).unwrap();
    fs::remove_file(&blob).unwrap();
    let error = pulled(&name, &client, &tree, None).unwrap_err();
    assert_eq!(class_of(&error), Class::Verification);
    assert!(MediumReader::open(&tree).is_err());

    // A part of the file is there, as an interrupted transfer leaves it.
    fs::write(&blob, &content).unwrap();
    let part = tree.join(".nqrust.pull").join(rootfs.sha256.to_string());
    fs::write(&part, &content[..1_500_000]).unwrap();
    let report = pulled(&name, &client, &tree, None).unwrap();
    let all: u64 = bench.release.payloads.iter().map(|payload| payload.size).sum();
    assert!(report.fetched_bytes >= rootfs.size - 1_500_000, "{report:?}");
    assert!(report.fetched_bytes < all - 1_400_000, "{report:?}");
    is_whole(&tree, &bench.release);

    // A damaged part is found out, and what is damaged afterwards is mended.
    fs::write(tree.join(&rootfs.path), "damaged").unwrap();
    fs::create_dir(tree.join(".nqrust.pull")).unwrap();
    fs::write(&part, vec![0; 1000]).unwrap();
    let report = pulled(&name, &client, &tree, None).unwrap();
    assert_eq!(report.fetched, 1);
    is_whole(&tree, &bench.release);
}

#[test]
fn a_blob_with_other_bytes_than_its_digest_is_refused() {
    let bench = Bench::new();
    let registry = RealRegistry::start(false);
    let client = client(&registry.registries(false));
    let name = format!("{}/nqrust/release:1", registry.host());
    pushed(&bench.iso(), &name, &client).unwrap();
    let kernel = bench.payload(Purpose::Kernel);
    let stored = registry.blob(&kernel.sha256.to_string());
    let mut content = fs::read(&stored).unwrap();
    content[1000] ^= 1;
    fs::write(&stored, &content).unwrap();
    let error = pulled(&name, &client, &bench.path("tree"), None).unwrap_err();
    let text = render(&error);
    assert_eq!(class_of(&error), Class::Verification, "{text}");
    assert!(text.contains("live/vmlinuz") && text.contains("damaged"), "{text}");
    assert!(!bench.path("tree").join(MANIFEST).exists());
    let digest = Digest::of(b"another").oci();
    let pinned = format!("{}/nqrust/release@{digest}", registry.host());
    assert_eq!(class_of(&pulled(&pinned, &client, &bench.path("other"), None).unwrap_err()), Class::Network);
}

/// A registry whose tag leads to another release whenever it is asked.
fn fickle(blobs: Vec<Vec<u8>>, manifests: [Vec<u8>; 2]) -> Fake {
    Fake::start(move |request: &Request| {
        let path = request.path.as_str();
        if path.ends_with("/manifests/1") {
            return Answer::ok(&manifests[request.before.min(1)]);
        }
        let blob = blobs.iter().find(|blob| path.ends_with(&Digest::of(blob).oci()));
        match (path, blob) {
            ("/v2/", _) => Answer::ok(b"{}"),
            (_, Some(blob)) => Answer::range(blob, request),
            _ => Answer::error(404, "BLOB_UNKNOWN"),
        }
    })
}

/// The blobs of a layout, and the manifest in it with this digest.
fn contents(layout: &Path, manifest: Digest) -> (Vec<Vec<u8>>, Vec<u8>) {
    let blobs = layout.join("blobs/sha256");
    let all = fs::read_dir(&blobs).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap());
    (all.collect(), fs::read(blobs.join(manifest.to_string())).unwrap())
}

#[test]
fn a_tag_that_moves_in_the_middle_does_not_mix_two_releases() {
    let bench = Bench::new();
    let (none, layout) = (client("{}"), bench.path("layout"));
    let one = pushed(&bench.iso(), &format!("oci:{}:1", layout.display()), &none).unwrap();
    let other = Release { version: "0.2.0".into(), ..bench.release.clone() };
    fs::write(bench.path("other.iso"), testing::iso::image(&other)).unwrap();
    let two = pushed(&bench.path("other.iso"), &format!("oci:{}:2", layout.display()), &none).unwrap();
    let (blobs, first) = contents(&layout, one.digest);
    let (_, second) = contents(&layout, two.digest);
    let fake = fickle(blobs, [first, second]);
    let client = client(&format!("mirrors: {{\"{0}\": {{endpoint: [\"http://{0}\"]}}}}", fake.host));
    let name = format!("{}/nqrust/release:1", fake.host);
    let tree = bench.path("tree");
    let report = pulled(&name, &client, &tree, None).unwrap();
    assert_eq!((report.digest, &*report.version), (one.digest, "0.1.0"));
    is_whole(&tree, &bench.release);
    assert_eq!(fake.requests("/manifests/").len(), 1);
    let report = pulled(&name, &client, &tree, None).unwrap();
    assert_eq!((report.digest, report.fetched), (two.digest, 0));
    is_whole(&tree, &other);
}

/// A registry that stores nothing, and takes manifests only that `takes` lets pass.
fn choosy(takes: impl Fn(&str) -> bool + Send + Sync + 'static) -> Fake {
    Fake::start(move |request| match (request.method.as_str(), request.path.as_str()) {
        ("PUT", path) if path.contains("/manifests/") => {
            match takes(&String::from_utf8_lossy(&request.body)) {
                true => Answer::new(201, b""),
                false => Answer::error(400, "MANIFEST_INVALID"),
            }
        }
        ("HEAD", _) => Answer::new(404, b""),
        ("POST", _) => Answer::new(202, b"").with("Location: /upload"),
        ("PUT", _) => Answer::new(201, b""),
        _ => Answer::ok(b"{}"),
    })
}

#[test]
fn an_old_registry_gets_the_release_in_the_newest_form_that_it_takes() {
    const IMAGE: &str = r#""mediaType": "application/vnd.oci.image.config.v1+json""#;
    let bench = Bench::new();
    type NameFilter = fn(&str) -> bool;
    let takes: [(NameFilter, _); 4] = [
        (|_| true, Some(ArtifactForm::Artifact)),
        (|text| !text.contains("artifactType"), Some(ArtifactForm::Config)),
        (|text| text.contains(IMAGE), Some(ArtifactForm::Image)),
        (|_| false, None),
    ];
    for (takes, form) in takes {
        let fake = choosy(takes);
        let client = client(&format!("mirrors: {{\"{0}\": {{endpoint: [\"http://{0}\"]}}}}", fake.host));
        let report = pushed(&bench.iso(), &format!("{}/nqrust/release:1", fake.host), &client);
        match (report, form) {
            (Ok(report), Some(form)) => assert_eq!(report.form, form),
            (Err(error), None) => {
                let text = render(&error);
                assert_eq!(class_of(&error), Class::Network);
                assert!(text.contains("does not accept the manifest"), "{text}");
            }
            (report, form) => panic!("{report:?} instead of {form:?}"),
        }
    }
}

#[test]
fn blobs_of_images_that_the_registry_has_are_taken_over_from_there() {
    let bench = Bench::new();
    let registry = RealRegistry::start(false);
    let client = client(&registry.registries(false));
    let mut release = bench.release.clone();
    for image in &mut release.images {
        image.name = image.name.replace("localhost", registry.host());
    }
    fs::write(bench.path("named.iso"), testing::iso::image(&release)).unwrap();
    pushed(&bench.path("named.iso"), &format!("{}/nqrust/tools:1", registry.host()), &client).unwrap();
    let name = format!("{}/nqrust/release:1", registry.host());
    let TransferCounts { mounted, uploaded, present, .. } =
        pushed(&bench.path("named.iso"), &name, &client).unwrap().blobs;
    // Those of the image whose repository has them.
    assert_eq!((mounted, present, uploaded), (2, 0, release.payloads.len() + 1));
}

#[test]
fn a_damaged_medium_is_not_published() {
    let bench = Bench::new();
    let registry = RealRegistry::start(false);
    let client = client(&registry.registries(false));
    let tree = bench.path("tree");
    pushed(&bench.iso(), &format!("oci:{}", bench.path("layout").display()), &client).unwrap();
    pulled(&format!("oci:{}", bench.path("layout").display()), &client, &tree, None).unwrap();
    let kernel = bench.payload(Purpose::Kernel);
    testing::medium::damage(&tree.join(&kernel.path), &fs::read(tree.join(&kernel.path)).unwrap());
    let error = pushed(&tree, &format!("{}/nqrust/release:1", registry.host()), &client).unwrap_err();
    assert_eq!(class_of(&error), Class::Verification, "{}", render(&error));
    assert!(!registry.requests("PUT").iter().any(|request| request.contains("/manifests/")));
    assert!(!registry.blob(&kernel.sha256.to_string()).exists());
}

#[test]
fn what_cannot_be_done_is_refused_before_anything_is_written() {
    let bench = Bench::new();
    let client = client("{}");
    let refused = |error: anyhow::Error, words: &[&str]| {
        let text = render(&error);
        assert_eq!(class_of(&error), Class::Invalid, "{text}");
        assert!(words.iter().all(|word| text.contains(word)), "{text}");
    };
    let layout = format!("oci:{}", bench.path("layout").display());
    let digest = Digest::of(b"x").oci();
    let pinned = format!("{layout}@{digest}");
    refused(pushed(&bench.iso(), &pinned, &client).unwrap_err(), &["digest", "Name a tag"]);

    // Without the boot code no ISO can be made.
    pushed(&bench.iso(), &layout, &client).unwrap();
    let tree = bench.path("tree");
    pulled(&layout, &client, &tree, None).unwrap();
    fs::remove_file(tree.join("boot/grub/boot_hybrid.img")).unwrap();
    let bare = format!("oci:{}", bench.path("bare").display());
    assert!(!pushed(&tree, &bare, &client).unwrap().iso);
    let iso = bench.path("x.iso");
    let error = pulled(&bare, &client, &bench.path("out"), Some(&iso)).unwrap_err();
    refused(error, &["no ISO can be made", "boot code"]);
    assert!(!bench.path("out").exists() && !iso.exists());

    fs::create_dir(bench.path("home")).unwrap();
    fs::write(bench.path("home/letter"), "x").unwrap();
    let error = pulled(&layout, &client, &bench.path("home"), None).unwrap_err();
    refused(error, &["other files", "empty directory"]);
    refused(pulled(&format!("{layout}:9"), &client, &tree, None).unwrap_err(), &["it has 0.1.0"]);
    refused(pulled("oci:/nonexistent", &client, &tree, None).unwrap_err(), &["not an OCI layout"]);
}

/// A directory with an earlier release, whose OS image is a little different.
fn earlier(bench: &Bench, name: &str, change: impl Fn(&mut Release)) -> String {
    let mut release = bench.release.clone();
    let lines = (0..).flat_map(|number: u32| format!("line {number} of the OS\n").into_bytes());
    let image = testing::squashfs::image(&lines.take(2_900_000).collect::<Vec<_>>());
    release.version = "0.0.9".into();
    release.expanded = testing::squashfs::described(&image);
    replace(&mut release, Purpose::Rootfs, &image);
    change(&mut release);
    let directory = bench.path(name);
    fs::create_dir_all(directory.join("live")).unwrap();
    fs::write(directory.join("live/rootfs.squashfs"), image).unwrap();
    fs::write(directory.join(MANIFEST), release.to_bytes()).unwrap();
    directory.display().to_string()
}

#[test]
fn patches_travel_with_a_release_and_make_its_image_of_an_earlier_one() {
    let bench = Bench::new();
    let client = client("{}");
    let old = earlier(&bench, "old", |_| ());
    let layout = format!("oci:{}", bench.path("layout").display());
    let from = [old, bench.iso().display().to_string()];
    let to = reference(&layout);
    let report =
        push(&bench.iso(), &TrustStore::absent(), &from, &to, &client, TRANSFERS, &Progress::silent())
            .unwrap();
    // An image needs no patch from itself.
    let [patch] = &report.patches[..] else { panic!("{:?}", report.patches) };
    let whole = bench.payload(Purpose::Rootfs).size;
    assert!(patch.size < whole, "{} of {whole}", patch.size);
    assert_eq!(report.release_sha256, Digest::of(&bench.release.to_bytes()));

    let tree = bench.path("tree");
    pulled(&layout, &client, &tree, None).unwrap();
    assert_eq!(Digest::of(&fs::read(tree.join(&patch.path)).unwrap()), patch.sha256);
    let served = tree.clone();
    let server = Fake::start(move |request: &Request| {
        match fs::read(served.join(request.path.trim_start_matches('/'))) {
            Ok(content) => Answer::range(&content, request),
            Err(_) => Answer::new(404, b""),
        }
    });
    let source = source_of(Some(&server.url()), &[], quick()).unwrap();
    assert_eq!(source.patches().unwrap(), report.patches);
    let old = fs::read(bench.path("old/live/rootfs.squashfs")).unwrap();
    let mut made = Vec::new();
    let opened = formats::delta::Patch::open(source.open(&patch.payload()).unwrap()).unwrap();
    opened.apply(&testing::squashfs::expanded(&old), &mut made).unwrap();
    assert!(made == testing::release::expanded_image());

    // They go on with the directory, and are gone with a release that has none.
    let further = format!("oci:{}", bench.path("further").display());
    assert_eq!(pushed(&tree, &further, &client).unwrap().patches, report.patches);
    let plain = format!("oci:{}", bench.path("plain").display());
    pushed(&bench.iso(), &plain, &client).unwrap();
    pulled(&plain, &client, &tree, None).unwrap();
    is_whole(&tree, &bench.release);
    assert_eq!(source.patches().unwrap(), []);
}

fn with_initrd(release: &mut Release, root: &Path, content: &[u8]) {
    let path = root.join(replace(release, Purpose::Initrd, content));
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, content).unwrap();
}

#[test]
fn an_initrd_gets_a_patch_if_a_node_that_packs_it_gets_the_same_bytes() {
    let bench = Bench::new();
    let client = client("{}");
    let (layout, new) = (format!("oci:{}", bench.path("layout").display()), bench.path("new"));
    pushed(&bench.iso(), &layout, &client).unwrap();
    pulled(&layout, &client, &new, None).unwrap();
    let (before, packed) = saying("before");
    let old = earlier(&bench, "old", |release| with_initrd(release, &bench.path("old"), &packed));
    let (after, whole) = saying("after");
    for (initrd, patched) in [(&whole, true), (&[&whole[..], &[0; 4]].concat(), false), (&packed, false)] {
        let mut release = bench.release.clone();
        with_initrd(&mut release, &new, initrd);
        fs::write(new.join(MANIFEST), release.to_bytes()).unwrap();
        let report = push(
            &new,
            &TrustStore::absent(),
            std::slice::from_ref(&old),
            &reference(&layout),
            &client,
            TRANSFERS,
            &Progress::silent(),
        )
        .unwrap();
        let found: Vec<_> = report.patches.iter().filter(|patch| patch.from == Digest::of(&packed)).collect();
        assert_eq!((report.patches.len(), found.len()), if patched { (2, 1) } else { (1, 0) });
        for patch in found {
            assert!(patch.size < 1000, "{}", patch.size);
            let source = source_of(Some(&layout), &[], quick()).unwrap();
            let opened = formats::delta::Patch::open(source.open(&patch.payload()).unwrap()).unwrap();
            let mut made = Vec::new();
            opened.apply(&before, &mut made).unwrap();
            assert!(made == after);
        }
    }
}

#[test]
fn patches_from_other_products_too_many_and_wrong_images_are_refused() {
    let bench = Bench::new();
    let client = client("{}");
    let layout = reference(&format!("oci:{}", bench.path("layout").display()));
    let class = |from: &[String]| {
        let error =
            push(&bench.iso(), &TrustStore::absent(), from, &layout, &client, TRANSFERS, &Progress::silent())
                .unwrap_err();
        (class_of(&error), render(&error))
    };
    let (refused, told) = class(&[earlier(&bench, "other", |release| release.id = "other".into())]);
    assert!(refused == Class::Invalid && told.contains("other for amd64"), "{told}");
    let old = earlier(&bench, "old", |_| ());
    let (refused, told) = class(&[&old; 4].map(Clone::clone));
    assert!(refused == Class::Invalid && told.contains("patches from 4 releases"), "{told}");
    let wrong = earlier(&bench, "wrong", |release| release.expanded.root_hash = Digest::of(b"another"));
    let (refused, told) = class(&[wrong]);
    assert!(refused == Class::Verification && told.contains("its release manifest says"), "{told}");
}

/// Of a key that nobody knows.
static SIGNED: LazyLock<Vec<u8>> =
    LazyLock::new(|| SecretKey::of_seed([7; 8], [7; 32]).sign(b"", "a", "b").to_string().into_bytes());

/// A directory with the ISO of a release, signed.
fn signed_bench() -> Bench {
    let mut bench = Bench::new();
    bench.image = testing::iso::signed_image(&bench.release, Some(&SIGNED[..]));
    fs::write(bench.iso(), &bench.image).unwrap();
    bench
}

#[test]
fn signatures_travel_with_their_release_and_go_with_it() {
    let (bench, unsigned) = (signed_bench(), Bench::new());
    let registry = RealRegistry::start(false);
    let client = client(&registry.registries(false));
    let host = registry.host();
    let layout = format!("oci:{}", bench.path("layout").display());
    for name in [&format!("{host}/nqrust/release:1"), &layout] {
        let tree = tempfile::tempdir().unwrap();
        let (tree, iso) = (tree.path().join("tree"), tree.path().join("again.iso"));
        let report = pushed(&bench.iso(), name, &client).unwrap();
        let back = pulled(name, &client, &tree, Some(&iso)).unwrap();
        assert_eq!(fs::read(tree.join(SIGNATURES)).unwrap(), *SIGNED, "{name}");
        assert!(fs::read(&iso).unwrap() == bench.image, "the ISO has other bytes");
        let source = artifact_source(&reference(name), Architecture::Amd64, &client).unwrap();
        assert_eq!(source.signatures().unwrap().as_deref(), Some(&SIGNED[..]), "{name}");
        assert_eq!(pushed(&tree, name, &client).unwrap().digest, report.digest, "from the directory");

        // The same release, signed by one more: nothing else travels.
        let more = SIGNED.repeat(2);
        fs::write(tree.join(SIGNATURES), &more).unwrap();
        let again = pushed(&tree, name, &client).unwrap();
        assert_eq!((again.blobs.uploaded, again.release_sha256), (1, report.release_sha256));
        fs::write(tree.join(SIGNATURES), &*SIGNED).unwrap();
        assert_eq!(pulled(name, &client, &tree, None).unwrap().fetched, 1);
        assert_eq!(fs::read(tree.join(SIGNATURES)).unwrap(), more, "{name}");

        pushed(&unsigned.iso(), name, &client).unwrap();
        assert_eq!(pulled(name, &client, &tree, None).unwrap().digest, {
            let source = artifact_source(&reference(name), Architecture::Amd64, &client).unwrap();
            assert_eq!(source.signatures().unwrap(), None);
            is_whole(&tree, &bench.release);
            pulled(name, &client, &tree, None).unwrap().digest
        });
        assert_ne!(back.digest, pulled(name, &client, &tree, None).unwrap().digest);
    }
}

#[test]
fn the_signatures_of_an_opened_release_are_read_once() {
    let bench = signed_bench();
    let layout = bench.path("layout");
    let (name, client) = (format!("oci:{}", layout.display()), client("{}"));
    pushed(&bench.iso(), &name, &client).unwrap();
    let artifact = OpenedArtifact::open(&reference(&name), Architecture::Amd64, &client).unwrap();
    assert_eq!(artifact.signatures().unwrap().as_deref(), Some(&SIGNED[..]));
    let (digest, size) = artifact.signatures_blob().unwrap();
    fs::remove_file(layout.join("blobs/sha256").join(digest.to_string())).unwrap();
    assert_eq!(artifact.signatures().unwrap().as_deref(), Some(&SIGNED[..]));
    for offset in [0, 7, size] {
        let mut rest = Vec::new();
        artifact.blob(digest, size, offset).unwrap().read_to_end(&mut rest).unwrap();
        assert_eq!(rest, &SIGNED[usize::try_from(offset).unwrap()..], "from {offset}");
    }
}

#[test]
fn signatures_that_are_too_long_damaged_or_missing_are_refused() {
    let bench = signed_bench();
    let layout = bench.path("layout");
    let (name, client) = (format!("oci:{}", layout.display()), client("{}"));
    let report = pushed(&bench.iso(), &name, &client).unwrap();
    let blob = layout.join("blobs/sha256").join(Digest::of(&SIGNED).to_string());
    for damage in [Some(&b"untrusted comment: a\n"[..]), None] {
        match damage {
            Some(other) => fs::write(&blob, other).unwrap(),
            None => fs::remove_file(&blob).unwrap(),
        }
        let source = artifact_source(&reference(&name), Architecture::Amd64, &client).unwrap();
        for error in
            [source.signatures().unwrap_err(), pulled(&name, &client, &bench.path("tree"), None).unwrap_err()]
        {
            assert_eq!(class_of(&error), Class::Verification, "{}", render(&error));
        }
        assert!(!bench.path("tree").join(MANIFEST).exists());
    }
    let path = layout.join("blobs/sha256").join(report.digest.to_string());
    let mut manifest: serde_json::Value = serde_json::from_slice(&fs::read(path).unwrap()).unwrap();
    let last = manifest["layers"].as_array_mut().unwrap().last_mut().unwrap();
    last["size"] = 8193.into();
    let manifest = serde_json::to_vec(&manifest).unwrap();
    fs::write(layout.join("blobs/sha256").join(Digest::of(&manifest).to_string()), &manifest).unwrap();
    let pinned = format!("{name}@{}", Digest::of(&manifest).oci());
    let error = artifact_source(&reference(&pinned), Architecture::Amd64, &client).err().unwrap();
    assert_eq!(class_of(&error), Class::Verification, "{}", render(&error));
    assert!(render(&error).contains("release.json.minisig of"), "{}", render(&error));
}

/// The directory of a release with a provenance and a bill of materials, as `pull` leaves it.
fn documented(bench: &Bench) -> PathBuf {
    let (from, tree) = (format!("oci:{}", bench.path("plain").display()), bench.path("documented"));
    let client = client("{}");
    pushed(&bench.iso(), &from, &client).unwrap();
    pulled(&from, &client, &tree, None).unwrap();
    fs::write(tree.join(SBOM), "{\"spdxVersion\": \"SPDX-2.3\"}").unwrap();
    let subject = |name: &str| Subject::new(name, Digest::of(&fs::read(tree.join(name)).unwrap()));
    let statement = statement(vec![subject(MANIFEST), subject(SBOM)]);
    fs::write(tree.join(PROVENANCE), statement.to_envelope().to_line()).unwrap();
    tree
}

fn same_documents(one: &Path, other: &Path) {
    for name in [PROVENANCE, SBOM] {
        assert_eq!(fs::read(one.join(name)).unwrap(), fs::read(other.join(name)).unwrap(), "{name}");
    }
}

#[test]
fn provenance_and_bill_of_materials_refer_to_the_release_in_a_registry_and_come_back_with_it() {
    let bench = Bench::new();
    let tree = documented(&bench);
    let registry = RealRegistry::start(false);
    let client = client(&registry.registries(false));
    let name = format!("{}/nqrust/release:1", registry.host());
    let report = pushed(&tree, &name, &client).unwrap();
    assert_eq!(report.documents, [PROVENANCE, SBOM]);
    let repository: formats::oci::ImageReference = name.parse().unwrap();
    let list = || match client.referrers(repository.repository(), report.digest).unwrap() {
        ReferrersList::Tag(tag, Some(list)) => (tag, list),
        other => panic!("Debian's registry has no such API: {other:?}"),
    };
    let (tag, first) = list();
    assert_eq!(tag.tag(), Some(format!("sha256-{}", report.digest).as_str()));
    let kinds = referrers(&first).unwrap();
    assert_eq!(
        kinds.iter().map(|one| one.artifact_type.as_str()).collect::<Vec<_>>(),
        ["application/vnd.in-toto+json", "application/spdx+json"]
    );
    assert_eq!(kinds[0].manifest.annotations["in-toto.io/predicate-type"], "https://slsa.dev/provenance/v1");

    // What others list stays, and the same documents are listed once.
    let mut theirs = kinds[1].clone();
    theirs.artifact_type = "application/x-theirs".into();
    theirs.manifest.digest = report.digest;
    let more = with_referrer(Some(&first), &theirs).unwrap();
    client.put_manifest(&tag, media_types::OCI_INDEX, &more).unwrap();
    assert_eq!(pushed(&tree, &name, &client).unwrap().blobs.uploaded, 0);
    let kinds: Vec<_> = referrers(&list().1).unwrap().into_iter().map(|one| one.artifact_type).collect();
    assert_eq!(kinds.len(), 3);
    assert!(kinds.contains(&theirs.artifact_type));

    let back = bench.path("back");
    assert_eq!(pulled(&name, &client, &back, None).unwrap().documents, [PROVENANCE, SBOM]);
    same_documents(&tree, &back);
    // A release without them takes them away.
    let plain = format!("{}/nqrust/plain:1", registry.host());
    assert_eq!(pushed(&bench.iso(), &plain, &client).unwrap().documents, [""; 0]);
    assert_eq!(pulled(&plain, &client, &back, None).unwrap().documents, [""; 0]);
    is_whole(&back, &bench.release);
}

#[test]
fn provenance_and_bill_of_materials_travel_through_a_layout_and_are_no_second_release_in_it() {
    let bench = Bench::new();
    let tree = documented(&bench);
    let (client, layout) = (client("{}"), format!("oci:{}", bench.path("layout").display()));
    for _ in 0..2 {
        assert_eq!(pushed(&tree, &layout, &client).unwrap().documents, [PROVENANCE, SBOM]);
    }
    assert_eq!(ImageLayout::open(&bench.path("layout")).unwrap().manifests().unwrap().len(), 3);
    let back = bench.path("back");
    assert_eq!(pulled(&layout, &client, &back, None).unwrap().documents, [PROVENANCE, SBOM]);
    same_documents(&tree, &back);
}

#[test]
fn a_provenance_of_another_release_is_not_pushed_and_one_that_is_found_does_not_come() {
    let bench = Bench::new();
    let tree = documented(&bench);
    let (client, layout) = (client("{}"), format!("oci:{}", bench.path("layout").display()));
    let report = pushed(&tree, &layout, &client).unwrap();
    let other = statement(vec![Subject::new(MANIFEST, Digest::of(b"other"))]).to_envelope().to_line();
    fs::write(tree.join(PROVENANCE), &other).unwrap();
    let error = pushed(&tree, &layout, &client).unwrap_err();
    assert_eq!(class_of(&error), Class::Verification, "{}", render(&error));
    // Somebody else lists it all the same, after ours.
    let named = reference(&layout);
    let target = super::target::Target::open(&named, &client, &bench.release).unwrap();
    let opened = ImageLayout::open(&bench.path("layout")).unwrap();
    let put = |bytes: &[u8]| -> anyhow::Result<()> { Ok(fs::write(opened.blob(Digest::of(bytes)), bytes)?) };
    let manifests = opened.manifests().unwrap();
    let (_, subject) = manifests.iter().find(|(_, one)| one.digest == report.digest).unwrap();
    assert_eq!(target.put_document(ReleaseDocument::Provenance, &other, subject, &put).unwrap(), None);
    let back = bench.path("back");
    assert_eq!(pulled(&layout, &client, &back, None).unwrap().documents, [PROVENANCE, SBOM]);
    assert_ne!(fs::read(back.join(PROVENANCE)).unwrap(), other);
}
