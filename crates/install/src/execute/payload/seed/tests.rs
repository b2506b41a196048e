use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;
use crate::execute::disk::device::CHUNK_BYTES;
use base::failure::{class_of, render};
use model::release::{Containerd, Image, Purpose, metadata_path};

const BLOBS: &str = "io.containerd.content.v1.content/blobs/sha256";
const RKE2: &str = "/var/lib/rancher/rke2/agent/containerd";

/// What a source does with one payload of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadFault {
    Good,
    /// Ends after this many bytes.
    Cut(u64),
    Lies,
    Refuses,
    /// Gives out a few bytes at a time.
    Drips,
}

struct Blobs {
    content: Vec<(Payload, Vec<u8>)>,
    place: PayloadPlace,
    /// The fault of one blob, by its number; the others are good.
    manner: Option<(usize, ReadFault)>,
    /// After this many bytes of all blobs together, nothing more is given: as if the process were killed then.
    end: Option<AtomicUsize>,
    opened: Mutex<Vec<Digest>>,
    open: AtomicUsize,
    most_open: AtomicUsize,
    /// Nothing is given before this many were open at once, or ten seconds have passed.
    gate: usize,
    /// Nothing is given before one blob was refused, and little at a time after it.
    held: bool,
    refused: AtomicBool,
    /// The number of times that a blob is given with its fault, before it is good.
    bad: AtomicUsize,
}

impl Blobs {
    fn new(sizes: &[usize], place: PayloadPlace) -> &'static Self {
        Box::leak(Box::new(Self::of(sizes, place)))
    }

    fn of(sizes: &[usize], place: PayloadPlace) -> Self {
        let bytes = |seed: usize, size: usize| (0..size).map(|i| (i * 7 + seed + (i >> 9)) as u8).collect();
        let blobs = sizes.iter().enumerate().map(|(number, size)| -> Vec<u8> { bytes(number + 1, *size) });
        let paths = (0..sizes.len()).map(|number| (format!("images/{number}"), Purpose::ImageBlob));
        let paths = paths.chain([(metadata_path("worker"), Purpose::ImageMetadata)]);
        let content = paths.zip(blobs.chain([b"metadata".to_vec()])).map(|((path, purpose), bytes)| {
            let (size, sha256) = (bytes.len() as u64, Digest::of(&bytes));
            (Payload { path, purpose, size, sha256 }, bytes)
        });
        Self {
            content: content.collect(),
            place,
            manner: None,
            end: None,
            opened: Mutex::default(),
            open: AtomicUsize::new(0),
            most_open: AtomicUsize::new(0),
            gate: 0,
            held: false,
            refused: AtomicBool::new(false),
            bad: AtomicUsize::new(usize::MAX),
        }
    }

    fn with(sizes: &[usize], place: PayloadPlace, number: usize, manner: ReadFault) -> &'static Self {
        Box::leak(Box::new(Self { manner: Some((number, manner)), ..Self::of(sizes, place) }))
    }

    fn release(&self, root: &str) -> Release {
        let mut release = testing::release::release();
        release.payloads = self.content.iter().map(|(payload, _)| payload.clone()).collect();
        release.containerd = Containerd { root: root.into(), unpack: false };
        let blobs: Vec<_> = release.payloads(Purpose::ImageBlob).map(|blob| blob.sha256).collect();
        let image = |name: &str, blobs: &[Digest]| Image {
            name: name.into(),
            digest: blobs[0],
            roles: vec![],
            blobs: blobs.to_vec(),
            documents: 1,
        };
        release.images = vec![image("a.example.org/web:1", &blobs)];
        release.images.extend(blobs.get(1..2).map(|blobs| image("a.example.org/db:1", blobs)));
        release
    }

    fn seed(&'static self, partition: &Path) -> Result<()> {
        self.seed_at("/var/lib/containerd", partition)
    }

    fn seed_at(&'static self, root: &str, partition: &Path) -> Result<()> {
        seed_store(&Source(self), &self.release(root), Role::Worker, partition, &Progress::silent())
    }

    fn opened(&self) -> Vec<Digest> {
        std::mem::take(&mut self.opened.lock().unwrap())
    }
}

struct Stream {
    from: &'static Blobs,
    bytes: &'static [u8],
    /// The position of one byte that is given wrong.
    wrong: Option<usize>,
    sip: usize,
    given: usize,
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let begun = Instant::now();
        while self.from.most_open.load(Ordering::SeqCst) < self.from.gate
            && begun.elapsed() < Duration::from_secs(10)
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        if self.from.held {
            while !self.from.refused.load(Ordering::SeqCst) {
                std::thread::sleep(Duration::from_millis(1));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        let mut count = buffer.len().min(self.bytes.len() - self.given).min(self.sip);
        if let Some(end) = &self.from.end {
            let left = end.load(Ordering::Relaxed);
            if left == 0 {
                return Err(io::Error::other("killed"));
            }
            count = count.min(left);
            end.store(left - count, Ordering::Relaxed);
        }
        buffer[..count].copy_from_slice(&self.bytes[self.given..self.given + count]);
        if let Some(place) = self.wrong.and_then(|wrong| wrong.checked_sub(self.given))
            && place < count
        {
            buffer[place] ^= 1;
        }
        self.given += count;
        Ok(count)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.from.open.fetch_sub(1, Ordering::SeqCst);
    }
}

/// The blobs as a source. They are never freed, because readers live as long as they like.
struct Source(&'static Blobs);

impl PayloadSource for Source {
    fn open(&self, payload: &Payload) -> Result<Box<dyn Read + Send>> {
        let from = self.0;
        let number = from.content.iter().position(|(known, _)| known == payload).unwrap();
        from.opened.lock().unwrap().push(payload.sha256);
        let chosen = from.manner.filter(|(one, _)| *one == number);
        let bad =
            || from.bad.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
        let manner = chosen.filter(|_| bad()).map_or(ReadFault::Good, |(_, manner)| manner);
        if manner == ReadFault::Refuses {
            from.refused.store(true, Ordering::SeqCst);
            return Err(Failure::new(Class::Network, "the server does not answer").into());
        }
        let open = from.open.fetch_add(1, Ordering::SeqCst) + 1;
        from.most_open.fetch_max(open, Ordering::SeqCst);
        let bytes = &from.content[number].1;
        let cut =
            if let ReadFault::Cut(length) = manner { usize::try_from(length).unwrap() } else { bytes.len() };
        let sip = if manner == ReadFault::Drips { 7 } else { 64 << 10 };
        let wrong = (manner == ReadFault::Lies).then_some(bytes.len() / 2);
        Ok(Box::new(Stream { from, bytes: &bytes[..cut], wrong, sip, given: 0 }))
    }

    fn place(&self, _: &Payload) -> Option<PayloadPlace> {
        Some(self.0.place)
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

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o7777
}

/// Names and content of the blobs in the store; each must match its name.
fn stored(root: &Path) -> Vec<Digest> {
    let mut names = Vec::new();
    for entry in fs::read_dir(root.join(BLOBS)).into_iter().flatten() {
        let path = entry.unwrap().path();
        let name: Digest = path.file_name().unwrap().to_str().unwrap().parse().unwrap();
        assert_eq!(Digest::of(&fs::read(&path).unwrap()), name, "a blob is not what its name says");
        assert_eq!(mode(&path), 0o444);
        names.push(name);
    }
    names.sort();
    names
}

fn digests(blobs: &Blobs) -> Vec<Digest> {
    let blobs = blobs.content.iter().filter(|(payload, _)| payload.purpose == Purpose::ImageBlob);
    let mut digests: Vec<_> = blobs.map(|(payload, _)| payload.sha256).collect();
    digests.sort();
    digests
}

/// Sizes round the limits of chunks, and small ones.
const SIZES: [usize; 6] = [70_000, CHUNK_BYTES, 0, 2 * CHUNK_BYTES + 1, CHUNK_BYTES - 1, 500];

#[test]
fn every_blob_is_where_containerd_looks_with_the_modes_that_it_gives() {
    for place in [PayloadPlace::Here, PayloadPlace::Network] {
        let partition = tempfile::tempdir().unwrap();
        let blobs = Blobs::new(&SIZES, place);
        blobs.seed_at(RKE2, partition.path()).unwrap();
        let agent = partition.path().join("lib/rancher/rke2/agent");
        let root = agent.join("containerd");
        assert_eq!(stored(&root), digests(blobs), "{place:?}");
        assert_eq!(fs::read(root.join("io.containerd.metadata.v1.bolt/meta.db")).unwrap(), b"metadata");
        assert_eq!((mode(&agent), mode(&root), mode(&root.join(BLOBS))), (0o755, 0o711, 0o755));
        let names: Vec<_> = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(names.len(), 2, "containerd's directories and nothing else: {names:?}");
    }
}

#[test]
fn what_is_on_this_machine_is_read_once_and_in_the_order_of_the_manifest() {
    let partition = tempfile::tempdir().unwrap();
    let blobs = Blobs::new(&SIZES, PayloadPlace::Here);
    blobs.seed(partition.path()).unwrap();
    let order: Vec<_> = blobs.content.iter().map(|(payload, _)| payload.sha256).collect();
    assert_eq!(blobs.opened(), order);
    assert_eq!(blobs.most_open.load(Ordering::SeqCst), 1);
}

#[test]
fn servers_are_asked_for_a_few_blobs_at_once_and_the_largest_first() {
    let partition = tempfile::tempdir().unwrap();
    let sizes: Vec<_> = (1..=20).map(|number| number * 30_000).collect();
    let blobs: &Blobs =
        Box::leak(Box::new(Blobs { gate: PARALLEL_FILES, ..Blobs::of(&sizes, PayloadPlace::Network) }));
    blobs.seed(partition.path()).unwrap();
    assert_eq!(blobs.most_open.load(Ordering::SeqCst), PARALLEL_FILES);
    assert!(blobs.opened()[..PARALLEL_FILES].contains(&blobs.content[19].0.sha256));
}

#[test]
fn a_second_run_keeps_what_is_whole_and_replaces_what_is_not() {
    for place in [PayloadPlace::Here, PayloadPlace::Network] {
        let partition = tempfile::tempdir().unwrap();
        let blobs = Blobs::new(&SIZES, place);
        blobs.seed(partition.path()).unwrap();
        blobs.opened();
        let path = |number: usize| -> PathBuf {
            let name = blobs.content[number].0.sha256.to_string();
            partition.path().join("lib/containerd").join(BLOBS).join(name)
        };
        for (number, bytes) in [(0, vec![1; 70_000]), (5, vec![0; 3])] {
            fs::remove_file(path(number)).unwrap();
            fs::write(path(number), bytes).unwrap();
        }
        blobs.seed(partition.path()).unwrap();
        let mut opened = blobs.opened();
        opened.sort();
        let mut missing = [0, 5, 6].map(|number| blobs.content[number].0.sha256);
        missing.sort();
        assert_eq!(opened, missing, "two damaged blobs, and the metadata");
        assert_eq!(stored(&partition.path().join("lib/containerd")), digests(blobs));
    }
}

#[test]
fn a_blob_that_does_not_come_right_is_named_with_its_image_and_never_lands() {
    let cases = [
        (ReadFault::Cut(60_000), Class::Verification, "60000 bytes instead of 70000"),
        (ReadFault::Lies, Class::Verification, "SHA-256"),
        (ReadFault::Refuses, Class::Network, "the server does not answer"),
    ];
    for (place, (manner, class, told)) in [PayloadPlace::Here, PayloadPlace::Network]
        .into_iter()
        .flat_map(|place| cases.map(|case| (place, case)))
    {
        let partition = tempfile::tempdir().unwrap();
        let blobs = Blobs::with(&[400, 70_000, 90_000], place, 1, manner);
        let error = blobs.seed(partition.path()).unwrap_err();
        assert_eq!(class_of(&error), class, "{manner:?}");
        let text = render(&error);
        let wrong = blobs.content[1].0.sha256;
        assert!(text.contains(told), "{text}");
        assert!(
            text.contains(&format!("storing blob {} of a.example.org/web:1 and 1 more", wrong.oci())),
            "{text}"
        );
        assert!(!stored(&partition.path().join("lib/containerd")).contains(&wrong), "{manner:?}");
        let metadata = partition.path().join("lib/containerd/io.containerd.metadata.v1.bolt/meta.db");
        assert!(!metadata.exists(), "containerd would take its images for complete");
    }
}

#[test]
fn a_source_that_gives_a_few_bytes_at_a_time_is_read_to_the_end() {
    for place in [PayloadPlace::Here, PayloadPlace::Network] {
        let partition = tempfile::tempdir().unwrap();
        let blobs = Blobs::with(&[2_000, 9_000], place, 1, ReadFault::Drips);
        blobs.seed(partition.path()).unwrap();
        assert_eq!(stored(&partition.path().join("lib/containerd")), digests(blobs));
    }
}

#[test]
fn the_first_failure_stops_what_is_under_way_elsewhere() {
    let partition = tempfile::tempdir().unwrap();
    let sizes: Vec<_> = (1..=60).map(|number| 3_000_000 - number).collect();
    let refusing = Blobs {
        manner: Some((2, ReadFault::Refuses)),
        held: true,
        ..Blobs::of(&sizes, PayloadPlace::Network)
    };
    let blobs: &Blobs = Box::leak(Box::new(refusing));
    blobs.seed(partition.path()).unwrap_err();
    assert!(blobs.opened().len() <= PARALLEL_FILES, "another blob was begun after a failure");
    assert_eq!(stored(&partition.path().join("lib/containerd")), [], "blobs that were finished all the same");
}

#[test]
fn a_blob_that_a_server_damages_is_fetched_again_and_counted_once() {
    for (place, damaged, times, stores) in [
        (PayloadPlace::Network, 1, 2, true),
        (PayloadPlace::Network, 2, 3, true),
        (PayloadPlace::Network, 3, 3, false),
        // What is wrong on a medium stays wrong.
        (PayloadPlace::Here, 1, 1, false),
    ] {
        for manner in [ReadFault::Lies, ReadFault::Cut(60_000)] {
            let partition = tempfile::tempdir().unwrap();
            let blobs = Blobs { manner: Some((1, manner)), ..Blobs::of(&[400, 300_000, 90_000], place) };
            blobs.bad.store(damaged, Ordering::SeqCst);
            let blobs: &Blobs = Box::leak(Box::new(blobs));
            let recorder = testing::progress::Recorder::default();
            let progress = Progress::new(vec![Box::new(recorder.clone())]);
            let release = blobs.release("/var/lib/containerd");
            let done = seed_store(&Source(blobs), &release, Role::Worker, partition.path(), &progress);
            assert_eq!(done.is_ok(), stores, "{place:?} {damaged} {manner:?}");
            let last = recorder.0.lock().unwrap().last().unwrap().clone();
            assert!(!stores || last.bytes == last.total, "{last:?}");
            let asked = blobs.opened().iter().filter(|blob| **blob == blobs.content[1].0.sha256).count();
            assert_eq!(asked, times, "{place:?} {damaged} {manner:?}");
        }
    }
}

#[test]
fn a_disk_that_cannot_be_written_is_disk_io_with_the_image() {
    let partition = tempfile::tempdir().unwrap();
    let blobs = Blobs::new(&[400, 500], PayloadPlace::Network);
    let place =
        partition.path().join("lib/containerd").join(BLOBS).join(blobs.content[0].0.sha256.to_string());
    fs::create_dir_all(place.join("in-the-way")).unwrap();
    let error = blobs.seed(partition.path()).unwrap_err();
    assert_eq!(class_of(&error), Class::DiskIo);
    assert!(render(&error).contains("of a.example.org/web:1"), "{}", render(&error));
}

#[test]
#[ignore = "needs root"]
fn a_full_disk_is_disk_io_with_the_image_and_the_reader_ends() {
    let _namespace = crate::execute::SystemHost::new().unwrap();
    let none: Option<&str> = None;
    for place in [PayloadPlace::Here, PayloadPlace::Network] {
        let partition = tempfile::tempdir().unwrap();
        let flags = nix::mount::MsFlags::empty();
        nix::mount::mount(none, partition.path(), Some("tmpfs"), flags, Some("size=2m")).unwrap();
        let error = Blobs::new(&[400, 20 * CHUNK_BYTES], place).seed(partition.path());
        nix::mount::umount(partition.path()).unwrap();
        let error = error.unwrap_err();
        assert_eq!(class_of(&error), Class::DiskIo);
        let text = render(&error);
        assert!(
            text.contains("No space left on device") && text.contains("of a.example.org/web:1"),
            "{text}"
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn after_an_end_at_any_byte_no_name_lies_and_the_next_run_fetches_only_what_is_missing(
        end in 0_usize..450_000,
        network in any::<bool>(),
    ) {
        let sizes = [70_000, 300_000, 0, 65_536, 500];
        let place = if network { PayloadPlace::Network } else { PayloadPlace::Here };
        let partition = tempfile::tempdir().unwrap();
        let root = partition.path().join("lib/containerd");
        let killed = Blobs { end: Some(AtomicUsize::new(end)), ..Blobs::of(&sizes, place) };
        let killed: &'static Blobs = Box::leak(Box::new(killed));
        let whole = killed.seed(partition.path()).is_ok();
        // The files of a killed run stay.
        fs::create_dir_all(root.join("nqrust-unfinished")).unwrap();
        fs::write(root.join("nqrust-unfinished").join(killed.content[1].0.sha256.to_string()), b"part").unwrap();
        let before = stored(&root);
        prop_assert!(!whole || before == digests(killed));
        let blobs = Blobs::new(&sizes, place);
        blobs.seed(partition.path()).unwrap();
        prop_assert_eq!(stored(&root), digests(blobs));
        let opened = blobs.opened();
        prop_assert!(!opened.iter().any(|digest| before.contains(digest)));
        prop_assert_eq!(opened.len(), sizes.len() + 1 - before.len());
    }
}
