//! A release that came over a network, kept on this node until it is in a slot: a transfer that was cut off goes on where it ended,
//! and a release can be fetched long before it is written.
//!
//! It is a directory with the content of a medium, named after the digest of the release manifest, which is written last.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Result;

use super::room::StoredPart;
use base::cancel::Cancel;
use base::digest::{Digest, Hasher};
use base::failure::{Class, Classify, Failure};
use base::files;
use base::progress::{Progress, Step};
use base::size::ByteSize;
use install::execute::{install_files, slot_payloads};
use machine::paths::below;
use machine::update_state::ReleaseId;
use medium::patches::ReleasePatch;
use medium::payload_sources::{
    LocalMedium, PayloadPlace, PayloadSource, PayloadTransport, damaged, fetch_again, is_medium,
    read_manifest,
};
use model::release::{MANIFEST, Payload, Purpose, SIGNATURES};
use model::release_manifest::ReleaseManifest;
use transfer::download::is_absent;
use walkdir::WalkDir;

pub(super) const DIRECTORY: &str = "/var/lib/nqrust/update/fetched";
/// Free space that a fetch leaves in the file system.
const SPARE_ROOM: ByteSize = ByteSize::mib(256);
const BUFFER_BYTES: usize = 1 << 20;
/// At most this much of a file is lost in a power failure.
const FLUSHED_BYTES: u64 = 64 << 20;

/// The directory of a complete release, and the digest of its manifest; `None` if nothing was fetched.
#[must_use]
pub fn fetched(root: &Path) -> Option<(PathBuf, Digest)> {
    let entries = fs::read_dir(below(root, DIRECTORY)).ok()?;
    let whole = entries.flatten().map(|entry| entry.path()).filter(|path| is_medium(path));
    whole.into_iter().find_map(|path| {
        let digest = path.file_name()?.to_str()?.parse().ok()?;
        Some((path, digest))
    })
}

/// The fetched release, by its manifest; `None` if nothing was fetched.
#[must_use]
pub fn fetched_release(root: &Path) -> Option<ReleaseId> {
    let (directory, digest) = fetched(root)?;
    let release = read_manifest(&LocalMedium::new(directory), Some(digest)).ok()?;
    Some(ReleaseId::of(&release))
}

pub fn forget(root: &Path) -> Result<()> {
    remove(&below(root, DIRECTORY))
}

fn remove(path: &Path) -> Result<()> {
    files::removed(fs::remove_dir_all(path)).class(Class::DiskIo, || format!("removing {}", path.display()))
}

fn remove_file(path: &Path) -> Result<()> {
    files::removed(fs::remove_file(path)).class(Class::DiskIo, || format!("removing {}", path.display()))
}

/// What [`KeptSource`] stores of a release on the node at `root` if `bytes` of it come over a network: without what is there of it
/// already, and of other releases, which make room.
#[must_use]
pub fn to_store(root: &Path, bytes: u64) -> StoredPart {
    let directory = below(root, DIRECTORY);
    let files = WalkDir::new(&directory).into_iter().flatten();
    let there = files.filter_map(|file| file.metadata().ok()).filter(fs::Metadata::is_file);
    let there = there.fold(0_u64, |sum, file| sum.saturating_add(file.len()));
    let size = ByteSize::bytes(bytes.saturating_sub(there));
    StoredPart { what: "the release, until it is in its slot", directory, size, spare: SPARE_ROOM }
}

/// A source that stores the parts of the OS that come over a network on this node before they are read. Container images are not
/// stored: containerd has its own store.
#[allow(missing_debug_implementations)]
pub struct KeptSource<'a> {
    directory: PathBuf,
    source: &'a dyn PayloadSource,
    progress: &'a Progress,
    cancel: &'a Cancel,
}

impl<'a> KeptSource<'a> {
    /// Stores what comes from `source` of `release`, on the node at `root`. Stored parts of other releases are removed.
    pub fn new(
        root: &Path,
        release: &ReleaseManifest,
        source: &'a dyn PayloadSource,
        progress: &'a Progress,
        cancel: &'a Cancel,
    ) -> Result<Self> {
        let all = below(root, DIRECTORY);
        let directory = all.join(ReleaseId::of(release).digest.to_string());
        for other in fs::read_dir(&all).into_iter().flatten().flatten() {
            if other.path() != directory {
                remove(&other.path())?;
            }
        }
        Ok(Self { directory, source, progress, cancel })
    }

    /// Fetches the missing parts of the OS of `release` now; afterwards the source is not needed.
    pub fn fetch(&self, release: &ReleaseManifest) -> Result<()> {
        for payload in slot_payloads(release) {
            self.keep(payload)?;
        }
        for payload in install_files(release) {
            // A directory, or a node of an earlier version, may lack what only installs need.
            let optional = payload.purpose != Purpose::Hardware;
            match self.keep(payload) {
                Err(error) if optional && (self.place(payload).is_none() || is_absent(&error)) => {
                    self.progress.note("fetch", format!("{error:#}"));
                }
                kept => drop(kept?),
            }
        }
        self.keep_signatures(release.signatures())?;
        let manifest = self.directory.join(MANIFEST);
        files::write_atomically(&manifest, release.bytes(), 0o600)
            .class(Class::DiskIo, || format!("writing {}", manifest.display()))
    }

    /// Keeps the signatures of the release. Whoever reads the release from here checks them.
    fn keep_signatures(&self, signatures: Option<&[u8]>) -> Result<()> {
        let kept = self.directory.join(SIGNATURES);
        match signatures {
            Some(text) => files::write_atomically(&kept, text, 0o600)
                .class(Class::DiskIo, || format!("writing {}", kept.display())),
            None => remove_file(&kept),
        }
    }

    fn keeps(&self, payload: &Payload) -> bool {
        payload.purpose != Purpose::ImageBlob && self.place(payload) == Some(PayloadPlace::Network)
    }

    /// Returns the file of a payload when all of it is there.
    fn keep(&self, payload: &Payload) -> Result<File> {
        let path = self.directory.join(&payload.path);
        let what = || format!("keeping {}", path.display());
        files::make_directory(files::parent(&path), 0o700).class(Class::DiskIo, what)?;
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(0o600);
        let mut file = options.open(&path).class(Class::DiskIo, what)?;
        let message = format!("Fetching {}", payload.path);
        let mut step = self.progress.step("fetch", message, Some(payload.size));
        fetch_again(
            || {
                step.back_to(0);
                self.complete(&mut file, payload, &mut step)
            },
            |error| self.progress.note("fetch", format!("Fetching it again: {error:#}")),
        )?;
        step.done();
        Ok(file)
    }

    /// Reads what there is of a file, and fetches the rest.
    ///
    /// # Errors
    /// [`Class::Verification`] if that does not give the payload; the file is empty then.
    fn complete(&self, file: &mut File, payload: &Payload, step: &mut Step) -> Result<()> {
        let mut hasher = Hasher::default();
        let reading = || format!("reading what was fetched of {}", payload.path);
        file.rewind().class(Class::DiskIo, reading)?;
        let here = self
            .pass(file, payload.size, step, |bytes| {
                hasher.update(bytes);
                Ok(())
            })
            .class(Class::DiskIo, reading)?;
        let missing = payload.size - here;
        let writing = || format!("keeping {} on this node", payload.path);
        if missing > 0 {
            check_room(&self.directory, missing)?;
            file.seek(SeekFrom::Start(here)).class(Class::DiskIo, writing)?;
            let mut source = self.source.open_from(payload, here)?;
            let mut unflushed = 0;
            let came = self.pass(&mut source, missing, step, |bytes| {
                file.write_all(bytes).class(Class::DiskIo, writing)?;
                hasher.update(bytes);
                unflushed += bytes.len() as u64;
                if unflushed >= FLUSHED_BYTES {
                    unflushed = 0;
                    file.sync_data().class(Class::DiskIo, writing)?;
                }
                Ok(())
            })?;
            file.sync_all().class(Class::DiskIo, writing)?;
            if came < missing {
                let how = format!("{} bytes instead of {}", here + came, payload.size);
                return Err(damaged(payload, &self.source.describe_of(payload), &how).into());
            }
        }
        // More than there should be is as wrong as other bytes.
        let length = file.metadata().class(Class::DiskIo, reading)?.len();
        let found = hasher.finish();
        if found == payload.sha256 && length == payload.size {
            return Ok(());
        }
        file.set_len(0).class(Class::DiskIo, writing)?;
        let how = format!("SHA-256 {found} instead of {}", payload.sha256);
        Err(damaged(payload, &self.source.describe_of(payload), &how).into())
    }

    /// Gives `take` what `reader` has, at most `limit` bytes; returns how many.
    fn pass(
        &self,
        reader: &mut dyn Read,
        limit: u64,
        step: &mut Step,
        mut take: impl FnMut(&[u8]) -> Result<()>,
    ) -> Result<u64> {
        let (mut reader, mut buffer, mut passed) = (reader.take(limit), vec![0; BUFFER_BYTES], 0);
        loop {
            self.cancel.check()?;
            match reader.read(&mut buffer) {
                Ok(0) => return Ok(passed),
                Ok(count) => {
                    take(&buffer[..count])?;
                    passed += count as u64;
                    step.advance(count as u64);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

/// Checks that a release may take so many bytes more of the file system of `directory`.
///
/// # Errors
/// [`Class::DiskIo`] if it may not.
pub(super) fn check_room(directory: &Path, bytes: u64) -> Result<()> {
    let free = files::free_space(directory)?;
    let needed = ByteSize::bytes(bytes.saturating_add(SPARE_ROOM.get()));
    if free >= needed {
        return Ok(());
    }
    let what = format!("the new release needs {needed} in {}, and {free} are free", directory.display());
    Err(Failure::new(Class::DiskIo, what)
        .hint("Free space there, for instance with `journalctl --vacuum-size=100M` or `crictl rmi --prune`, or update from an ISO on this machine.")
        .into())
}

impl PayloadSource for KeptSource<'_> {
    fn open(&self, payload: &Payload) -> Result<Box<dyn Read + Send>> {
        if !self.keeps(payload) {
            return self.source.open(payload);
        }
        let mut file = self.keep(payload)?;
        file.rewind().class(Class::DiskIo, || format!("reading {}", payload.path))?;
        Ok(Box::new(file))
    }

    fn place(&self, payload: &Payload) -> Option<PayloadPlace> {
        self.source.place(payload)
    }

    fn probe(&self, payload: &Payload) -> Result<()> {
        self.source.probe(payload)
    }

    fn manifest(&self) -> Result<Vec<u8>> {
        self.source.manifest()
    }

    fn signatures(&self) -> Result<Option<Vec<u8>>> {
        self.source.signatures()
    }

    fn patches(&self) -> Result<Vec<ReleasePatch>> {
        self.source.patches()
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
    use base::failure::class_of;
    use std::sync::Mutex;
    use std::sync::atomic::AtomicBool;
    use testing::release::{contents, release};

    static NEVER: AtomicBool = AtomicBool::new(false);

    /// A server that ends each answer after so many bytes, and tells from where it was asked.
    struct Server {
        answer: usize,
        signatures: Option<&'static [u8]>,
        asked: Mutex<Vec<(String, u64)>>,
    }

    impl Server {
        fn that_ends_after(answer: usize) -> Self {
            Self { answer, signatures: None, asked: Mutex::default() }
        }

        /// The places from which the OS image was asked for.
        fn image_from(&self) -> Vec<u64> {
            let asked = self.asked.lock().unwrap();
            asked.iter().filter(|(path, _)| path.ends_with(".squashfs")).map(|(_, from)| *from).collect()
        }
    }

    impl PayloadSource for Server {
        fn open(&self, payload: &Payload) -> Result<Box<dyn Read + Send>> {
            self.open_from(payload, 0)
        }

        fn open_from(&self, payload: &Payload, offset: u64) -> Result<Box<dyn Read + Send>> {
            self.asked.lock().unwrap().push((payload.path.clone(), offset));
            let (_, bytes) = contents().iter().find(|(one, _)| one.path == payload.path).unwrap();
            let rest = &bytes[usize::try_from(offset)?..];
            match rest.len() <= self.answer {
                true => Ok(Box::new(rest)),
                false => {
                    let broken = io::Error::other(Failure::new(Class::Network, "the connection broke off"));
                    Ok(Box::new(rest[..self.answer].chain(Broken(Some(broken)))))
                }
            }
        }

        fn place(&self, _: &Payload) -> Option<PayloadPlace> {
            Some(PayloadPlace::Network)
        }

        fn probe(&self, _: &Payload) -> Result<()> {
            Ok(())
        }

        fn manifest(&self) -> Result<Vec<u8>> {
            Ok(release().to_bytes())
        }

        fn signatures(&self) -> Result<Option<Vec<u8>>> {
            Ok(self.signatures.map(Vec::from))
        }

        fn describe(&self) -> String {
            "the server".into()
        }
    }

    struct Broken(Option<io::Error>);

    impl Read for Broken {
        fn read(&mut self, _: &mut [u8]) -> io::Result<usize> {
            self.0.take().map_or(Ok(0), Err)
        }
    }

    fn fetch(root: &Path, server: &Server) -> Result<()> {
        let (progress, cancel) = (Progress::silent(), Cancel::new(&NEVER));
        let signatures = server.signatures.map(Vec::from);
        let release = ReleaseManifest::parse(release().to_bytes(), signatures)?;
        KeptSource::new(root, &release, server, &progress, &cancel)?.fetch(&release)
    }

    fn file(root: &Path, path: &str) -> PathBuf {
        below(root, DIRECTORY).join(ReleaseId::of(&release().into()).digest.to_string()).join(path)
    }

    fn image() -> &'static (Payload, Vec<u8>) {
        contents().iter().find(|(payload, _)| payload.purpose == Purpose::Rootfs).unwrap()
    }

    #[test]
    fn a_transfer_that_was_cut_off_goes_on_where_it_ended() {
        let root = tempfile::tempdir().unwrap();
        let third = image().1.len() / 3 + 1;
        let server = Server::that_ends_after(third);
        for _ in 0..2 {
            let error = fetch(root.path(), &server).unwrap_err();
            assert_eq!(class_of(&error), Class::Network, "{error:#}");
            assert_eq!(fetched(root.path()), None, "only what is whole counts");
        }
        fetch(root.path(), &server).unwrap();
        assert_eq!(server.image_from(), [0, third as u64, 2 * third as u64]);
        let digest = ReleaseId::of(&release().into()).digest;
        let (directory, found) = fetched(root.path()).unwrap();
        assert_eq!((found, fetched_release(root.path()).unwrap().digest), (digest, digest));
        for payload in slot_payloads(&release()) {
            let kept = Digest::of(&fs::read(directory.join(&payload.path)).unwrap());
            assert_eq!(kept, payload.sha256, "{}", payload.path);
        }
        // Again: everything is there.
        fetch(root.path(), &server).unwrap();
        assert_eq!(server.image_from().len(), 3);
    }

    #[test]
    fn the_signatures_of_a_release_are_kept_as_they_are_at_its_source() {
        let root = tempfile::tempdir().unwrap();
        for signatures in [Some(&b"one\n"[..]), Some(b"one\ntwo\n"), None] {
            let server = Server { signatures, ..Server::that_ends_after(usize::MAX) };
            fetch(root.path(), &server).unwrap();
            let (directory, digest) = fetched(root.path()).unwrap();
            let kept = LocalMedium::new(&directory);
            assert_eq!(kept.signatures().unwrap().as_deref(), signatures);
            assert_eq!(*read_manifest(&kept, Some(digest)).unwrap(), release());
        }
    }

    #[test]
    fn what_is_stored_of_a_release_or_of_another_one_is_room_for_it() {
        let root = tempfile::tempdir().unwrap();
        let missing = |bytes| to_store(root.path(), bytes).size.get();
        assert_eq!((missing(0), missing(4000)), (0, 4000));
        for (path, bytes) in [("a/live/vmlinuz", 1000), ("b/live/initrd", 500)] {
            let path = below(root.path(), DIRECTORY).join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, vec![0; bytes]).unwrap();
        }
        assert_eq!((missing(4000), missing(1000)), (2500, 0));
    }

    #[test]
    fn what_was_damaged_on_this_node_is_fetched_anew() {
        let (payload, bytes) = image();
        let zeroed = vec![0; bytes.len()];
        let half_zeroed = [&bytes[..5000], &zeroed[5000..]].concat();
        let longer = [bytes.as_slice(), b"x"].concat();
        for damage in [zeroed, half_zeroed, longer, bytes[..77].iter().map(|byte| !byte).collect()] {
            let root = tempfile::tempdir().unwrap();
            let path = file(root.path(), &payload.path);
            files::make_directory(files::parent(&path), 0o700).unwrap();
            fs::write(&path, damage).unwrap();
            fetch(root.path(), &Server::that_ends_after(usize::MAX)).unwrap();
            assert!(fs::read(&path).unwrap() == *bytes);
        }
    }

    #[test]
    fn other_releases_make_room_and_nobody_else_may_read() {
        use std::os::unix::fs::PermissionsExt;
        let root = tempfile::tempdir().unwrap();
        let other = below(root.path(), DIRECTORY).join("other");
        fs::create_dir_all(&other).unwrap();
        fs::write(other.join("file"), "x").unwrap();
        fetch(root.path(), &Server::that_ends_after(usize::MAX)).unwrap();
        assert!(!other.exists());
        let mode = |path: PathBuf| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(file(root.path(), MANIFEST)), 0o600);
        assert_eq!(mode(file(root.path(), "live")), 0o700);
        forget(root.path()).unwrap();
        assert_eq!(fetched(root.path()), None);
        forget(root.path()).unwrap();
    }

    #[test]
    fn a_release_that_is_not_what_its_manifest_says_leaves_nothing_that_counts() {
        let root = tempfile::tempdir().unwrap();
        let mut wrong = release();
        for payload in &mut wrong.payloads {
            payload.sha256 = Digest::of(b"another");
        }
        let wrong = wrong.into();
        let (progress, cancel) = (Progress::silent(), Cancel::new(&NEVER));
        let server = Server::that_ends_after(usize::MAX);
        let source = KeptSource::new(root.path(), &wrong, &server, &progress, &cancel).unwrap();
        assert_eq!(class_of(&source.fetch(&wrong).unwrap_err()), Class::Verification);
        assert_eq!(fetched(root.path()), None);
    }
}
