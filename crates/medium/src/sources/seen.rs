//! Knowing a payload again that was read before.

use std::collections::BTreeMap;
use std::hash::{BuildHasher, DefaultHasher, Hasher, RandomState};
use std::io::{self, Read, Write};

use super::Verified;
use base::digest::{self, Digest};
use model::release::Payload;

/// Payloads that were read to their end and found right by SHA-256. Whoever reads one of them again only needs
/// to know that the bytes are still the same, and a short hash under a key that nobody knows tells that at
/// many times the rate: on a processor without SHA instructions SHA-256 is slower than many disks.
#[derive(Debug, Default)]
pub struct Seen {
    /// Drawn anew for each run, so a medium cannot be made to hold two payloads that look the same.
    key: RandomState,
    fingerprints: BTreeMap<Digest, u64>,
}

impl Seen {
    /// Reads `inner` to its end and fails unless it is `payload`; `source` names where it comes from.
    pub fn learn(&mut self, inner: impl Read, payload: &Payload, source: String) -> io::Result<()> {
        let mut fingerprint = Fingerprint(self.key.build_hasher());
        io::copy(&mut Verified::new(inner, payload, source), &mut fingerprint)?;
        self.fingerprints.insert(payload.sha256, fingerprint.finish());
        Ok(())
    }

    /// Checks `inner` against what was learned of `payload`, or by SHA-256 if nothing was.
    pub fn verified<R: Read>(&self, inner: R, payload: &Payload, source: String) -> Verified<R> {
        match self.fingerprints.get(&payload.sha256) {
            Some(known) => Verified::again(inner, payload, source, self.key.build_hasher(), *known),
            None => Verified::new(inner, payload, source),
        }
    }

    /// A check of whether bytes from elsewhere, such as those read back from a disk, are `payload`: by what was
    /// learned, or by SHA-256 if nothing was.
    #[must_use]
    pub fn check(&self, payload: &Payload) -> Recheck {
        match self.fingerprints.get(&payload.sha256) {
            Some(known) => Recheck::Short(self.key.build_hasher(), *known),
            None => Recheck::Long(digest::Hasher::default(), payload.sha256),
        }
    }
}

/// Takes the bytes of a payload in their order and says whether they are right.
#[allow(missing_debug_implementations)]
pub enum Recheck {
    /// By the short hash of a payload that was learned.
    Short(DefaultHasher, u64),
    /// By its SHA-256.
    Long(digest::Hasher, Digest),
}

impl Recheck {
    pub fn update(&mut self, bytes: &[u8]) {
        match self {
            Self::Short(hasher, _) => hasher.write(bytes),
            Self::Long(hasher, _) => hasher.update(bytes),
        }
    }

    #[must_use]
    pub fn is_right(self) -> bool {
        match self {
            Self::Short(hasher, known) => hasher.finish() == known,
            Self::Long(hasher, known) => hasher.finish() == known,
        }
    }
}

/// Collects what a reader gives.
struct Fingerprint(DefaultHasher);

impl Fingerprint {
    fn finish(&self) -> u64 {
        self.0.finish()
    }
}

impl Write for Fingerprint {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.write(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::{Class, class_of};
    use model::release::Purpose;
    use testing::release::contents;

    /// A reader that gives at most so many bytes at once.
    struct SmallReads<'a>(&'a [u8], usize);

    impl Read for SmallReads<'_> {
        fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
            let limit = buffer.len().min(self.1);
            self.0.read(&mut buffer[..limit])
        }
    }

    fn image() -> &'static (Payload, Vec<u8>) {
        contents().iter().find(|(payload, _)| payload.purpose == Purpose::Rootfs).unwrap()
    }

    fn learned() -> Seen {
        let (payload, bytes) = image();
        let mut seen = Seen::default();
        seen.learn(bytes.as_slice(), payload, "the medium".into()).unwrap();
        seen
    }

    fn read(seen: &Seen, inner: impl Read) -> io::Result<u64> {
        io::copy(&mut seen.verified(inner, &image().0, "the medium".into()), &mut io::sink())
    }

    #[test]
    fn a_payload_is_known_again_however_it_is_divided() {
        let seen = learned();
        let (_, bytes) = image();
        for sip in [1, 7, 4096, usize::MAX] {
            assert_eq!(read(&seen, SmallReads(bytes, sip)).unwrap(), bytes.len() as u64, "{sip}");
        }
    }

    #[test]
    fn other_bytes_are_found_in_what_was_seen_and_in_what_was_not() {
        let (_, bytes) = image();
        let mut bad = bytes.clone();
        bad[bytes.len() - 1] ^= 0x80;
        let longer = [bytes.as_slice(), b"x"].concat();
        let shorter = &bytes[..bytes.len() - 1];
        for seen in [learned(), Seen::default()] {
            for other in [&bad, &longer, shorter] {
                let error = anyhow::Error::from(read(&seen, other).unwrap_err());
                assert_eq!(class_of(&error), Class::Verification, "{error:#}");
            }
        }
    }

    #[test]
    fn what_a_disk_gives_back_is_checked_with_and_without_what_was_learned() {
        let (payload, bytes) = image();
        for seen in [learned(), Seen::default()] {
            for flip in [None, Some(0), Some(bytes.len() - 1)] {
                let mut given = bytes.clone();
                flip.into_iter().for_each(|at| given[at] ^= 1);
                let mut check = seen.check(payload);
                given.chunks(7).for_each(|part| check.update(part));
                assert_eq!(check.is_right(), flip.is_none());
            }
        }
    }

    #[test]
    fn a_damaged_payload_is_not_learned() {
        let (payload, bytes) = image();
        let mut bad = bytes.clone();
        bad[0] ^= 1;
        let mut seen = Seen::default();
        assert!(seen.learn(bad.as_slice(), payload, "the medium".into()).is_err());
        assert!(read(&seen, bad.as_slice()).is_err());
        read(&seen, bytes.as_slice()).unwrap();
    }
}
