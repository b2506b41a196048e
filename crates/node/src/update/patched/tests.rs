//! Patches that make a release, damaged and not.

use std::io::{self, Read};
use std::path::Path;
use std::sync::{LazyLock, Mutex};

use super::*;
use base::digest::Digest;
use base::failure::render;
use formats::delta::make::make;
use medium::patches::ReleasePatch;
use medium::payload_sources::PayloadPlace;
use model::release::{Payload, Purpose, Release};
use proptest::prelude::*;
use testing::initrd::saying;
use testing::release::replace;
use testing::squashfs::{described, expanded, image};

/// A server with the OS image of a release and patches to it.
struct Server {
    image: Vec<u8>,
    patches: Vec<(ReleasePatch, Vec<u8>)>,
    opened: Mutex<Vec<String>>,
    place: PayloadPlace,
}

impl PayloadSource for Server {
    fn open(&self, payload: &Payload) -> Result<Box<dyn Read + Send>> {
        self.opened.lock().unwrap().push(payload.path.clone());
        let patch = self.patches.iter().find(|(patch, _)| patch.payload() == *payload);
        let bytes = patch.map_or_else(|| self.image.clone(), |(_, bytes)| bytes.clone());
        Ok(Box::new(io::Cursor::new(bytes)))
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
    fn patches(&self) -> Result<Vec<ReleasePatch>> {
        Ok(self.patches.iter().map(|(patch, _)| patch.clone()).collect())
    }
    fn describe(&self) -> String {
        "the server".into()
    }
}

fn release(image: &[u8]) -> Release {
    let mut release = testing::release::release();
    release.expanded = described(image);
    replace(&mut release, Purpose::Rootfs, image);
    release
}

/// A node with an image, and a server with another one and a patch.
struct Scene {
    running: Release,
    old: Vec<u8>,
    offered: Release,
    new: Vec<u8>,
    server: Server,
}

impl Scene {
    fn new() -> Self {
        type Made = (Vec<u8>, Vec<u8>, Vec<u8>, Vec<u8>, Vec<u8>);
        static MADE: LazyLock<Made> = LazyLock::new(|| {
            let noise = |seed: u64| -> Vec<u8> {
                (0..400_000).map(|at| ((at + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as u8).collect()
            };
            let (before, after) = (image(&noise(1)), image(&[&noise(1)[..], &noise(9)[..20_000]].concat()));
            let (old, new, mut patch) = (expanded(&before), expanded(&after), Vec::new());
            make(&old, &new, 1, &mut patch).unwrap();
            (before, after, old, new, patch)
        });
        static RELEASES: LazyLock<[Release; 2]> = LazyLock::new(|| [release(&MADE.0), release(&MADE.1)]);
        let (_, after, old, new, patch) = MADE.clone();
        let [running, offered] = RELEASES.clone();
        let offer = |from| ReleasePatch::new(from, patch.len() as u64, Digest::of(&patch));
        let patches = [Digest::of(b"another image"), running.expanded.root_hash];
        let patches = patches.map(|from| (offer(from), patch.clone())).into();
        let (opened, place) = (Mutex::default(), PayloadPlace::Network);
        Self { running, old, offered, new, server: Server { image: after, patches, opened, place } }
    }

    /// Serves other bytes as the patch, with a digest that fits them or with that of the right patch.
    fn with_patch(bytes: Vec<u8>, listed: bool) -> Self {
        let mut scene = Self::new();
        let (patch, content) = &mut scene.server.patches[1];
        if listed {
            *patch = ReleasePatch::new(patch.from, bytes.len() as u64, Digest::of(&bytes));
        }
        *content = bytes;
        scene
    }

    fn patch(&self) -> &[u8] {
        &self.server.patches[1].1
    }

    /// The image that the patch makes of `old`; or the error, of which whoever stages knows that it is the patch's.
    fn applied(&self, old: Vec<u8>) -> Result<Vec<u8>, String> {
        let patch = self.server.patches[1].0.clone();
        let patches = Patches { image: patch, initrd: None };
        let (root, progress) = (Path::new("/nonexistent"), Progress::silent());
        let slot = RunningSlot { source: &self.server, release: &self.running, root, progress: &progress };
        let source = PatchedSource::new(&self.server, (slot, old), patches, &self.offered);
        let mut out = Vec::new();
        match source.write_expanded(self.offered.payload(Purpose::Rootfs).unwrap(), &mut out) {
            Ok(()) => Ok(out),
            Err(error) => {
                assert!(source.is_useless(&error), "{error:#}");
                assert!(self.new.starts_with(&out), "nothing wrong is written");
                Err(render(&error))
            }
        }
    }
}

#[test]
fn only_a_patch_from_the_image_that_runs_is_taken_and_only_where_it_saves_a_transfer() {
    let Scene { running, offered, mut server, .. } = Scene::new();
    let image = server.patches[1].0.clone();
    let patches = Patches { image, initrd: None };
    assert_eq!(Patches::offered(&running, &offered, &server), Some(patches.clone()));
    assert_eq!(Patches::offered(&offered, &offered, &server), None);
    let before = running.payload(Purpose::Initrd).unwrap();
    let initrd = ReleasePatch::new(before.sha256, before.size - 1, Digest::of(b"a patch"));
    server.patches.push((initrd.clone(), Vec::new()));
    let both = Patches { initrd: Some(initrd), ..patches };
    assert_eq!(Patches::offered(&running, &offered, &server), Some(both));
    server.place = PayloadPlace::Here;
    assert_eq!(Patches::offered(&running, &offered, &server), None);
    server.place = PayloadPlace::Network;
    server.patches[1].0.size = server.image.len() as u64;
    assert_eq!(Patches::offered(&running, &offered, &server), None, "the initrd alone");
}

#[test]
fn the_image_comes_of_the_one_that_runs_and_the_patch_alone() {
    let scene = Scene::new();
    assert!(scene.patch().len() < 40_000, "{}", scene.patch().len());
    assert!(scene.applied(scene.old.clone()).unwrap() == scene.new);
    assert_eq!(*scene.server.opened.lock().unwrap(), [scene.server.patches[1].0.path.clone()]);
}

#[test]
fn kernel_and_initrd_that_have_not_changed_come_from_the_slot_that_runs() {
    let scene = Scene::new();
    let slot = Scene::new().server;
    let mut running = scene.running.clone();
    let initrd = running.payloads.iter_mut().find(|payload| payload.purpose == Purpose::Initrd).unwrap();
    initrd.sha256 = Digest::of(b"another");
    let patches = Patches { image: scene.server.patches[1].0.clone(), initrd: None };
    let progress = Progress::silent();
    let running_slot = RunningSlot {
        source: &slot,
        release: &running,
        root: Path::new("/nonexistent"),
        progress: &progress,
    };
    let source =
        PatchedSource::new(&scene.server, (running_slot, scene.old.clone()), patches.clone(), &scene.offered);
    let part = |purpose| scene.offered.payload(purpose).unwrap();
    let sizes = [Purpose::Rootfs, Purpose::Kernel, Purpose::Initrd]
        .map(|purpose| bytes_fetched(part(purpose), &running, Some(&patches)));
    assert_eq!(sizes, [patches.image.size, 0, part(Purpose::Initrd).size]);
    assert_eq!(bytes_fetched(part(Purpose::Kernel), &running, None), part(Purpose::Kernel).size);
    for purpose in [Purpose::Kernel, Purpose::Initrd] {
        source.open(part(purpose)).unwrap();
    }
    let opened = |server: &Server| server.opened.lock().unwrap().clone();
    assert_eq!(
        (opened(&slot), opened(&scene.server)),
        (vec![part(Purpose::Kernel).path.clone()], vec![part(Purpose::Initrd).path.clone()])
    );
}

#[test]
fn an_initrd_that_has_changed_is_made_of_the_one_that_runs_or_fetched_whole() {
    let ((before, packed_before), (after, packed_after)) = (saying("before"), saying("after"));
    let mut patch = Vec::new();
    make(&before, &after, 1, &mut patch).unwrap();
    assert!(patch.len() < 1000, "{}", patch.len());
    let mut rotten = patch.clone();
    *rotten.last_mut().unwrap() ^= 1;
    // A node that packs in another way gets other bytes.
    let elsewhere = [&packed_after[..], &[0; 4]].concat();
    let none = Vec::new();
    for (runs, bytes, whole, made) in [
        (packed_before.clone(), &patch, packed_after.clone(), true),
        (packed_before.clone(), &rotten, packed_after.clone(), false),
        (packed_before.clone(), &none, packed_after.clone(), false),
        (packed_before.clone(), &patch, elsewhere, false),
        (packed_after.clone(), &patch, packed_after.clone(), true),
        (before.clone(), &patch, packed_after.clone(), false),
    ] {
        let Scene { mut running, old, mut offered, mut server, .. } = Scene::new();
        for (release, initrd) in [(&mut running, &runs), (&mut offered, &whole)] {
            replace(release, Purpose::Initrd, initrd);
        }
        let initrd = ReleasePatch::new(Digest::of(&runs), bytes.len() as u64, Digest::of(bytes));
        let patches = Patches { image: server.patches[1].0.clone(), initrd: Some(initrd.clone()) };
        server.patches.push((initrd, bytes.clone()));
        // Everything that is no patch.
        server.image.clone_from(&whole);
        let slot = Server { image: runs, ..Scene::new().server };
        let (root, progress) = (tempfile::tempdir().unwrap(), Progress::silent());
        let slot = RunningSlot { source: &slot, release: &running, root: root.path(), progress: &progress };
        let source = PatchedSource::new(&server, (slot, old), patches, &offered);
        let payload = offered.payload(Purpose::Initrd).unwrap();
        let mut found = Vec::new();
        source.open(payload).unwrap().read_to_end(&mut found).unwrap();
        assert!(found == whole);
        assert_eq!(!server.opened.lock().unwrap().contains(&payload.path), made);
    }
}

#[test]
fn a_damaged_image_another_one_and_a_patch_to_another_one_are_told() {
    let scene = Scene::new();
    let mut rotten = scene.old.clone();
    rotten[200_000] ^= 1;
    for old in [rotten, Vec::new(), scene.new.clone(), scene.old[1..].to_vec()] {
        let told = scene.applied(old).unwrap_err();
        assert!(told.contains("making the OS image with patches/"), "{told}");
    }
    let mut longer = Scene::new();
    longer.offered.expanded.size += 4096;
    let told = longer.applied(longer.old.clone()).unwrap_err();
    assert!(told.contains("it makes an image of another length"), "{told}");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_cut_or_garbled_patch_is_an_error_or_makes_the_right_image(
        cut in prop::option::of(any::<prop::sample::Index>()),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>(), any::<bool>()), 0..4),
        listed in any::<bool>(),
    ) {
        let mut patch = Scene::new().patch().to_vec();
        for (at, change, early) in changes {
            let at = at.index(if early { 144 } else { patch.len() });
            patch[at] ^= change;
        }
        if let Some(cut) = cut {
            patch.truncate(cut.index(patch.len()));
        }
        let scene = Scene::with_patch(patch, listed);
        if let Ok(made) = scene.applied(scene.old.clone()) {
            prop_assert!(made == scene.new);
        }
    }

    #[test]
    fn garbage_is_no_patch(bytes in prop::collection::vec(any::<u8>(), 0..400), magic in any::<bool>()) {
        let bytes = if magic { [b"NQDELTA1".as_slice(), &bytes].concat() } else { bytes };
        let scene = Scene::with_patch(bytes, true);
        prop_assert!(scene.applied(scene.old.clone()).is_err());
    }
}
