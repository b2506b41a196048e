//! A release whose OS image and initrd are made from those that run and patches, so that little is fetched.
//!
//! Where they come from changes nothing about what is in the slot: what a patch makes counts only if it has the root hash, or the digest,
//! of the release manifest. Whatever is wrong with a patch, or with what it starts from, the whole is fetched instead.

use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result, ensure};

use super::fetched::{self, check_room};
use super::updated_node::UpdatedNode;
use crate::execute::Cancel;
use crate::node::paths::below;
use base::digest::Digest;
use base::failure::{Class, Failure, class_of};
use base::files;
use base::progress::Progress;
use formats::delta::{DeltaError, Patch};
use formats::initrd;
use formats::iso9660::Source;
use medium::patches::ReleasePatch;
use medium::sources::{PayloadPlace, PayloadSource, PayloadTransport, Verified};
use model::release::{Payload, Purpose, Release};

/// The patches with which a release is made from the one that runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Patches {
    pub image: ReleasePatch,
    pub initrd: Option<ReleasePatch>,
}

impl Patches {
    /// Those by which `source` makes `offered` from what is in the slot of `running`, if there is one of the OS image and that is less to
    /// fetch. A source that does not tell its patches has none.
    pub fn offered(running: &Release, offered: &Release, source: &dyn PayloadSource) -> Option<Self> {
        let image = offered.payload(Purpose::Rootfs)?;
        if source.place(image) != Some(PayloadPlace::Network) {
            return None;
        }
        let patches = source.patches().ok()?;
        let smallest = |from: Digest, whole: &Payload| {
            let fit = patches.iter().filter(|patch| patch.from == from && patch.size < whole.size);
            fit.min_by_key(|patch| patch.size).cloned()
        };
        let initrds = running.payload(Purpose::Initrd).zip(offered.payload(Purpose::Initrd));
        Some(Self {
            image: smallest(running.expanded.root_hash, image)?,
            initrd: initrds.and_then(|(from, whole)| smallest(from.sha256, whole)),
        })
    }

    /// How many bytes they have.
    #[must_use]
    pub fn size(&self) -> u64 {
        self.image.size + self.initrd.as_ref().map_or(0, |patch| patch.size)
    }
}

/// How many bytes of a part of the OS are fetched where `running` runs, with patches if there are some: then what has not changed comes
/// from the slot that runs.
pub fn bytes_fetched(part: &Payload, running: &Release, patches: Option<&Patches>) -> u64 {
    match (patches, part.purpose) {
        (Some(patches), Purpose::Rootfs) => patches.image.size,
        (Some(_), _) if has_same(running, part) => 0,
        (Some(Patches { initrd: Some(patch), .. }), Purpose::Initrd) => patch.size,
        _ => part.size,
    }
}

fn has_same(running: &Release, part: &Payload) -> bool {
    let same = |ours: &Payload| (ours.sha256, ours.size) == (part.sha256, part.size);
    matches!(part.purpose, Purpose::Kernel | Purpose::Initrd)
        && running.payload(part.purpose).is_some_and(same)
}

/// Stages `offered`, by patches if there are some.
pub fn stage(
    node: &mut UpdatedNode,
    offered: &Release,
    source: &dyn PayloadSource,
    progress: &Progress,
    cancel: &Cancel,
) -> Result<()> {
    let root = node.root().to_owned();
    // The image that is read is the one that the slot itself tells of.
    let slot = node.slots.slot(node.slots.running);
    let boot = slot.source().ok();
    let patched = boot.as_ref().zip(slot.source().ok()).and_then(|(boot, image)| {
        let patches = Patches::offered(&image.release, offered, source)?;
        Some(PatchedSource {
            boot: Some((boot, &boot.release)),
            workshop: Some((&root, progress)),
            ..PatchedSource::new(source, image, patches, offered)
        })
    });
    let Some(patched) = patched else { return node.stage(offered, source, progress, cancel) };
    match node.stage(offered, &patched, progress, cancel) {
        Err(error) if patched.is_useless(&error) => {
            progress
                .warn("update", &format!("the whole OS image is fetched, the patch is of no use: {error:#}"));
            node.stage(offered, source, progress, cancel)
        }
        staged => staged,
    }
}

/// A release with the OS image, expanded, that a patch makes of another; with the initrd too, if there is a patch of it.
#[allow(missing_debug_implementations)]
pub struct PatchedSource<'a, R> {
    source: &'a dyn PayloadSource,
    /// The slot that runs with its release, for what has not changed of the files that the boot loader reads.
    boot: Option<(&'a dyn PayloadSource, &'a Release)>,
    /// The root of the node on which an initrd is made, and where is told that it could not be.
    workshop: Option<(&'a Path, &'a Progress)>,
    /// Begins with the image that the patch starts from.
    running: R,
    patches: Patches,
    /// The length of the image that comes of it.
    size: u64,
    /// Whether the patch, or the image that it starts from, has failed.
    failed: AtomicBool,
}

impl<'a, R: Source> PatchedSource<'a, R> {
    /// `running` begins with the image that the patch of it starts from.
    pub fn new(source: &'a dyn PayloadSource, running: R, patches: Patches, offered: &Release) -> Self {
        Self {
            source,
            boot: None,
            workshop: None,
            running,
            patches,
            size: offered.expanded.size,
            failed: AtomicBool::new(false),
        }
    }

    /// Whether staging ended with this error because of the patch.
    pub fn is_useless(&self, error: &anyhow::Error) -> bool {
        // An image that came out wrong is found by whoever writes it.
        self.failed.load(Ordering::Relaxed) || class_of(error) == Class::Verification
    }

    /// Where a payload comes from that is not the OS image.
    fn holder(&self, payload: &Payload) -> &dyn PayloadSource {
        match self.boot {
            Some((boot, running)) if has_same(running, payload) => boot,
            _ => self.source,
        }
    }

    fn open_patch(&self, patch: &ReleasePatch) -> Result<Patch<impl Read>, DeltaError> {
        let payload = patch.payload();
        let reader = self.source.open(&payload).map_err(|error| DeltaError::ReadPatch(carried(error)))?;
        Patch::open(Verified::new(reader, &payload, self.source.describe_of(&payload)))
    }

    /// Makes the initrd of the release from that in the slot that runs.
    fn make_initrd(&self, payload: &Payload, root: &Path, patch: &ReleasePatch) -> Result<File> {
        let (boot, running) = self.boot.context("no slot runs")?;
        let before = running.payload(Purpose::Initrd).context("the release that runs has no initrd")?;
        let opened = self.open_patch(patch)?;
        let directory = below(root, fetched::DIRECTORY);
        files::make_directory(&directory, 0o700)?;
        check_room(&directory, opened.old().length + opened.new_image().length + 2 * payload.size)?;
        let file = || tempfile::tempfile_in(&directory).context("making a file for it");
        let (mut packed, mut old, mut new, mut made) = (file()?, file()?, file()?, file()?);
        io::copy(&mut Verified::new(boot.open(before)?, before, boot.describe_of(before)), &mut packed)?;
        initrd::unpack(&mut packed, &mut old).context("unpacking the one that runs")?;
        opened.apply(&old, 0, &mut new)?;
        initrd::pack(&mut new, &mut made).context("packing it")?;
        made.rewind()?;
        let (digest, _) = Digest::of_reader(&made)?;
        ensure!(digest == payload.sha256, "it comes out as {digest}, not as {}", payload.sha256);
        made.rewind()?;
        Ok(made)
    }

    fn apply(&self, out: &mut dyn Write) -> Result<(), DeltaError> {
        let patch = self.open_patch(&self.patches.image)?;
        if patch.new_image().length != self.size {
            return Err(DeltaError::Damaged("it makes an image of another length"));
        }
        patch.apply(&self.running, 0, out)
    }
}

/// As what it is, so that the failure of a server is found in it.
fn carried(error: anyhow::Error) -> io::Error {
    io::Error::other(error.reallocate_into_boxed_dyn_error_without_backtrace())
}

impl<R: Source> PayloadSource for PatchedSource<'_, R> {
    fn open(&self, payload: &Payload) -> Result<Box<dyn Read + Send>> {
        let changed = payload.purpose == Purpose::Initrd
            && !self.boot.is_some_and(|(_, running)| has_same(running, payload));
        if let (true, Some(patch), Some((root, progress))) = (changed, &self.patches.initrd, self.workshop) {
            match self.make_initrd(payload, root, patch) {
                Ok(made) => return Ok(Box::new(made)),
                Err(error) => progress.warn(
                    "update",
                    &format!(
                        "the whole initrd is fetched, it could not be made with {}: {error:#}",
                        patch.path
                    ),
                ),
            }
        }
        self.holder(payload).open(payload)
    }

    fn has_expanded(&self, _: &Payload) -> bool {
        true
    }

    fn write_expanded(&self, _: &Payload, out: &mut dyn Write) -> Result<()> {
        self.apply(out).map_err(|error| {
            // What takes the image tells its own error.
            if !matches!(error, DeltaError::Write(_)) {
                self.failed.store(true, Ordering::Relaxed);
            }
            let what = format!("making the OS image with {}", self.patches.image.path);
            match error {
                DeltaError::ReadPatch(_) | DeltaError::ReadImage(..) | DeltaError::Write(_) => {
                    anyhow::Error::new(error).context(what)
                }
                error => Failure::new(Class::Verification, what)
                    .because(error)
                    .hint("Publish the release again, or without patches.")
                    .into(),
            }
        })
    }

    /// The OS image is made here, and is not made again by asking a server again.
    fn place(&self, payload: &Payload) -> Option<PayloadPlace> {
        match payload.purpose {
            Purpose::Rootfs => Some(PayloadPlace::Here),
            _ => self.holder(payload).place(payload),
        }
    }

    fn probe(&self, payload: &Payload) -> Result<()> {
        self.source.probe(payload)
    }

    fn manifest(&self) -> Result<Vec<u8>> {
        self.source.manifest()
    }

    fn transport(&self) -> PayloadTransport {
        self.source.transport()
    }

    fn describe(&self) -> String {
        self.source.describe()
    }

    fn describe_of(&self, payload: &Payload) -> String {
        self.source.describe_of(payload)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::render;
    use formats::delta::make::make;
    use proptest::prelude::*;
    use std::sync::{LazyLock, Mutex};
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
        let os = release.payloads.iter_mut().find(|payload| payload.purpose == Purpose::Rootfs).unwrap();
        (os.size, os.sha256) = (image.len() as u64, Digest::of(image));
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
                    (0..400_000)
                        .map(|at| ((at + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33) as u8)
                        .collect()
                };
                let (before, after) =
                    (image(&noise(1)), image(&[&noise(1)[..], &noise(9)[..20_000]].concat()));
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
            let source = PatchedSource::new(&self.server, old, patches, &self.offered);
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
        let source = PatchedSource {
            boot: Some((&slot, &running)),
            ..PatchedSource::new(&scene.server, scene.old.clone(), patches.clone(), &scene.offered)
        };
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

    /// An initrd with these files, unpacked.
    fn archives(seed: u64) -> Vec<u8> {
        let noise: Vec<u8> =
            (0..90_000_u64).map(|at| (at.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 41) as u8).collect();
        testing::cpio::archive(&[("init", &noise), ("release", seed.to_string().as_bytes())])
    }

    fn packed(archives: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        initrd::pack(&mut io::Cursor::new(archives), &mut out).unwrap();
        out
    }

    #[test]
    fn an_initrd_that_has_changed_is_made_of_the_one_that_runs_or_fetched_whole() {
        let (before, after) = (archives(1), archives(2));
        let mut patch = Vec::new();
        make(&before, &after, 1, &mut patch).unwrap();
        assert!(patch.len() < 1000, "{}", patch.len());
        let mut rotten = patch.clone();
        *rotten.last_mut().unwrap() ^= 1;
        // A node that packs in another way gets other bytes.
        let elsewhere = [&packed(&after)[..], &[0; 4]].concat();
        let none = Vec::new();
        for (runs, bytes, whole, made) in [
            (packed(&before), &patch, packed(&after), true),
            (packed(&before), &rotten, packed(&after), false),
            (packed(&before), &none, packed(&after), false),
            (packed(&before), &patch, elsewhere, false),
            (packed(&after), &patch, packed(&after), true),
            (before.clone(), &patch, packed(&after), false),
        ] {
            let Scene { mut running, old, mut offered, mut server, .. } = Scene::new();
            for (release, initrd) in [(&mut running, &runs), (&mut offered, &whole)] {
                let payload =
                    release.payloads.iter_mut().find(|part| part.purpose == Purpose::Initrd).unwrap();
                (payload.size, payload.sha256) = (initrd.len() as u64, Digest::of(initrd));
            }
            let initrd = ReleasePatch::new(Digest::of(&runs), bytes.len() as u64, Digest::of(bytes));
            let patches = Patches { image: server.patches[1].0.clone(), initrd: Some(initrd.clone()) };
            server.patches.push((initrd, bytes.clone()));
            // Everything that is no patch.
            server.image.clone_from(&whole);
            let slot = Server { image: runs, ..Scene::new().server };
            let (root, progress) = (tempfile::tempdir().unwrap(), Progress::silent());
            let source = PatchedSource {
                boot: Some((&slot, &running)),
                workshop: Some((root.path(), &progress)),
                ..PatchedSource::new(&server, old, patches, &offered)
            };
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
}
