//! A release whose OS image is made from the one that runs and a patch, so that little is fetched.
//!
//! Where the image comes from changes nothing about what is in the slot: what a patch makes counts only if it has the root hash of the
//! release manifest. Whatever is wrong with a patch, or with the image that it starts from, the whole image is fetched instead.

use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;

use super::updated_node::UpdatedNode;
use crate::execute::Cancel;
use base::failure::{Class, Failure, class_of};
use base::progress::Progress;
use formats::delta::{DeltaError, Patch};
use formats::iso9660::Source;
use medium::patches::ImagePatch;
use medium::sources::{PayloadPlace, PayloadSource, PayloadTransport, Verified};
use model::release::{Payload, Purpose, Release};

/// The patch by which `source` makes the OS image of `offered` from the one in the slot of `running`, if that is less to fetch. A source
/// that does not tell its patches has none.
pub fn patch_for(running: &Release, offered: &Release, source: &dyn PayloadSource) -> Option<ImagePatch> {
    let image = offered.payload(Purpose::Rootfs)?;
    if source.place(image) != Some(PayloadPlace::Network) {
        return None;
    }
    let fits = |patch: &ImagePatch| patch.from == running.expanded.root_hash && patch.size < image.size;
    source.patches().ok()?.into_iter().filter(fits).min_by_key(|patch| patch.size)
}

/// How many bytes of a part of the OS are fetched where `running` runs, with a patch if there is one: then what has not changed comes
/// from the slot that runs.
pub fn bytes_fetched(part: &Payload, running: &Release, patch: Option<&ImagePatch>) -> u64 {
    match patch {
        Some(patch) if part.purpose == Purpose::Rootfs => patch.size,
        Some(_) if has_same(running, part) => 0,
        _ => part.size,
    }
}

fn has_same(running: &Release, part: &Payload) -> bool {
    let same = |ours: &Payload| (ours.sha256, ours.size) == (part.sha256, part.size);
    matches!(part.purpose, Purpose::Kernel | Purpose::Initrd)
        && running.payload(part.purpose).is_some_and(same)
}

/// Stages `offered`, by a patch if there is one.
pub fn stage(
    node: &mut UpdatedNode,
    offered: &Release,
    source: &dyn PayloadSource,
    progress: &Progress,
    cancel: &Cancel,
) -> Result<()> {
    // The image that is read is the one that the slot itself tells of.
    let slot = node.slots.slot(node.slots.running);
    let boot = slot.source().ok();
    let patched = boot.as_ref().zip(slot.source().ok()).and_then(|(boot, image)| {
        let patch = patch_for(&image.release, offered, source)?;
        Some(PatchedSource {
            boot: Some((boot, &boot.release)),
            ..PatchedSource::new(source, image, patch, offered)
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

/// A release with the OS image, expanded, that a patch makes of another.
#[allow(missing_debug_implementations)]
pub struct PatchedSource<'a, R> {
    source: &'a dyn PayloadSource,
    /// The slot that runs with its release, for what has not changed of the files that the boot loader reads.
    boot: Option<(&'a dyn PayloadSource, &'a Release)>,
    /// Begins with the image that the patch starts from.
    running: R,
    patch: ImagePatch,
    /// The length of the image that comes of it.
    size: u64,
    /// Whether the patch, or the image that it starts from, has failed.
    failed: AtomicBool,
}

impl<'a, R: Source> PatchedSource<'a, R> {
    /// `running` begins with the image that `patch` starts from.
    pub fn new(source: &'a dyn PayloadSource, running: R, patch: ImagePatch, offered: &Release) -> Self {
        Self {
            source,
            boot: None,
            running,
            patch,
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

    fn apply(&self, out: &mut dyn Write) -> Result<(), DeltaError> {
        let payload = self.patch.payload();
        let reader = self.source.open(&payload).map_err(|error| DeltaError::ReadPatch(carried(error)))?;
        let patch = Patch::open(Verified::new(reader, &payload, self.source.describe_of(&payload)))?;
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
            let what = format!("making the OS image with {}", self.patch.path);
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
    use base::digest::Digest;
    use base::failure::render;
    use formats::delta::make::make;
    use proptest::prelude::*;
    use std::sync::{LazyLock, Mutex};
    use testing::squashfs::{described, expanded, image};

    /// A server with the OS image of a release and patches to it.
    struct Server {
        image: Vec<u8>,
        patches: Vec<(ImagePatch, Vec<u8>)>,
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
        fn patches(&self) -> Result<Vec<ImagePatch>> {
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
            let offer = |from| ImagePatch::new(from, patch.len() as u64, Digest::of(&patch));
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
                *patch = ImagePatch::new(patch.from, bytes.len() as u64, Digest::of(&bytes));
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
            let source = PatchedSource::new(&self.server, old, patch, &self.offered);
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
        assert_eq!(patch_for(&running, &offered, &server), Some(server.patches[1].0.clone()));
        assert_eq!(patch_for(&offered, &offered, &server), None);
        server.place = PayloadPlace::Here;
        assert_eq!(patch_for(&running, &offered, &server), None);
        server.place = PayloadPlace::Network;
        server.patches[1].0.size = server.image.len() as u64;
        assert_eq!(patch_for(&running, &offered, &server), None);
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
        let patch = &scene.server.patches[1].0;
        let source = PatchedSource {
            boot: Some((&slot, &running)),
            ..PatchedSource::new(&scene.server, scene.old.clone(), patch.clone(), &scene.offered)
        };
        let part = |purpose| scene.offered.payload(purpose).unwrap();
        let sizes = [Purpose::Rootfs, Purpose::Kernel, Purpose::Initrd]
            .map(|purpose| bytes_fetched(part(purpose), &running, Some(patch)));
        assert_eq!(sizes, [patch.size, 0, part(Purpose::Initrd).size]);
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
