//! An ISO on a web server, read by ranges without unpacking it.

use std::io::Read;

use anyhow::Result;

use super::manifest::MANIFEST_LIMIT;
use super::payload_source::{PayloadPlace, PayloadSource, PayloadTransport};
use crate::http::HttpImage;
use base::failure::{Class, Failure};
use base::url::shown;
use formats::iso9660::{DirectoryEntry, Error, Iso};
use model::release::{MANIFEST, Payload};
use transfer::download::{Download, Downloader, RetryPolicy};

/// The hint if the server does not send the needed parts of the ISO.
const HINT: &str = "Check install.medium or --medium; it must name a full ISO of the same release, unchanged, on a server that sends parts of \
                    files, or the directory with its content, as `iso-builder serve` has it.";

/// A full ISO on a web server. Its directories are read at once; each payload is one range.
#[derive(Debug)]
pub struct HttpIso {
    iso: Iso<HttpImage>,
}

impl HttpIso {
    /// The ISO at `url`. These CA certificates (PEM) are trusted too.
    pub fn open(url: &str, authorities: &[String], retry: RetryPolicy) -> Result<Self> {
        let image = HttpImage::open(url, Downloader::trusting(url, retry, HINT, authorities)?)?;
        let iso = Iso::open(image).map_err(|error| unreadable(url, error))?;
        Ok(Self { iso })
    }

    fn url(&self) -> &str {
        self.iso.source().url()
    }

    /// The entry of a file; none if it is missing.
    fn entry(&self, path: &str) -> Result<Option<DirectoryEntry>> {
        match self.iso.plain_file(path) {
            Ok(entry) => Ok(Some(entry)),
            Err(Error::NotFound(_)) => Ok(None),
            Err(error) => Err(unreadable(self.url(), error)),
        }
    }

    /// The bytes of a payload from `offset` on.
    fn download(&self, payload: &Payload, offset: u64) -> Result<Download> {
        let what = || format!("{} of {}", payload.path, shown(self.url()));
        let entry = self
            .entry(&payload.path)?
            .ok_or_else(|| Failure::new(Class::Verification, format!("{} is missing", what())).hint(HINT))?;
        if entry.size() != payload.size {
            let what = format!("{} has {} bytes instead of {}", what(), entry.size(), payload.size);
            return Err(Failure::new(Class::Verification, what).hint(HINT).into());
        }
        let start = entry.extents.first().map_or(0, |extent| extent.start.offset().0);
        let mut next = start;
        for extent in &entry.extents {
            if extent.start.offset().0 != next {
                let what = format!("{} is not contiguous on the ISO", what());
                return Err(Failure::new(Class::Verification, what).into());
            }
            next += u64::from(extent.length);
        }
        Ok(self.iso.source().part(start + offset..start + payload.size))
    }
}

impl PayloadSource for HttpIso {
    fn open(&self, payload: &Payload) -> Result<Box<dyn Read + Send>> {
        self.open_from(payload, 0)
    }

    fn open_from(&self, payload: &Payload, offset: u64) -> Result<Box<dyn Read + Send>> {
        let mut download = self.download(payload, offset)?;
        if offset < payload.size {
            download.connect_patiently()?;
        }
        Ok(Box::new(download))
    }

    // The directories are cached, so this rarely makes a request.
    fn place(&self, payload: &Payload) -> Option<PayloadPlace> {
        self.entry(&payload.path).ok().flatten().map(|_| PayloadPlace::Network)
    }

    fn probe(&self, payload: &Payload) -> Result<()> {
        self.download(payload, 0).map(drop)
    }

    fn manifest(&self) -> Result<Vec<u8>> {
        let missing =
            || Failure::new(Class::Verification, format!("{} has no {MANIFEST}", shown(self.url())));
        let file = self.beside(MANIFEST)?.ok_or_else(|| missing().hint(HINT))?;
        let mut bytes = Vec::new();
        file.take(MANIFEST_LIMIT).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    fn beside(&self, path: &str) -> Result<Option<Box<dyn Read + Send>>> {
        match self.iso.open_file(path) {
            Ok(file) => Ok(Some(Box::new(file))),
            Err(Error::NotFound(_)) => Ok(None),
            Err(error) => Err(unreadable(self.url(), error)),
        }
    }

    fn transport(&self) -> PayloadTransport {
        PayloadTransport::of(self.url())
    }

    fn describe(&self) -> String {
        shown(self.url())
    }
}

/// Network errors keep their class; anything else means that the file is not an ISO of this product.
fn unreadable(url: &str, error: Error) -> anyhow::Error {
    match error {
        Error::Io { source, .. } => anyhow::Error::from(source).context(format!("reading {}", shown(url))),
        error => Failure::new(Class::Verification, format!("reading {}", shown(url)))
            .because(error)
            .hint(HINT)
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::digest::Digest;
    use base::failure::{class_of, render};
    use std::time::Duration;
    use testing::http::{Answer, BodyDelivery, Fake};

    fn quick() -> RetryPolicy {
        RetryPolicy { pause: Duration::from_millis(1), ..RetryPolicy::default() }
    }

    fn opened(
        answer: impl Fn(&testing::http::Request) -> Answer + Send + Sync + 'static,
    ) -> (Fake, Result<HttpIso>) {
        let fake = Fake::start(answer);
        let iso = HttpIso::open(&format!("{}/full.iso?release=1", fake.url()), &[], quick());
        (fake, iso)
    }

    #[test]
    fn every_payload_of_a_served_iso_is_read_and_nothing_beside_it() {
        let release = testing::iso::release();
        let image = testing::iso::image(&release);
        let (fake, iso) = opened(move |request| Answer::range(&image, request));
        let iso = iso.unwrap();
        assert_eq!(iso.manifest().unwrap(), release.to_bytes());
        let mut needed = 0;
        for payload in &release.payloads {
            iso.probe(payload).unwrap();
            let (digest, length) = Digest::of_reader(iso.open(payload).unwrap()).unwrap();
            assert_eq!((digest, length), (payload.sha256, payload.size), "{}", payload.path);
            needed += payload.size;
        }
        assert!(fake.sent() < needed + (1 << 20), "{} bytes of {needed}", fake.sent());
        assert!(iso.beside("nothing").unwrap().is_none());
        assert_eq!(iso.transport(), PayloadTransport::Clear);
    }

    #[test]
    fn a_payload_goes_on_after_a_broken_connection() {
        let release = testing::iso::release();
        let image = testing::iso::image(&release);
        let cut = move |request: &testing::http::Request| {
            let answer = Answer::range(&image, request);
            match request.before {
                // The directories come by the first requests.
                0..=4 => answer,
                before if before % 2 == 1 => answer.in_manner(BodyDelivery::Cut(3)),
                _ => answer,
            }
        };
        let (_fake, iso) = opened(cut);
        let iso = iso.unwrap();
        for payload in &release.payloads {
            let (digest, _) = Digest::of_reader(iso.open(payload).unwrap()).unwrap();
            assert_eq!(digest, payload.sha256, "{}", payload.path);
        }
    }

    #[test]
    fn what_cannot_be_read_in_parts_or_is_no_medium_says_so() {
        let release = testing::iso::release();
        let image = testing::iso::image(&release);
        let whole = image.clone();
        let (_fake, iso) = opened(move |_| Answer::ok(&whole));
        let text = render(&iso.unwrap_err());
        assert!(text.contains("whole files only") && text.contains("iso-builder serve"), "{text}");

        let (_fake, iso) = opened(move |request| Answer::range(&[7; 4096], request));
        assert_eq!(class_of(&iso.unwrap_err()), Class::Verification);

        let (_fake, iso) = opened(|_| Answer::error(404, "GONE"));
        assert_eq!(class_of(&iso.unwrap_err()), Class::Network);

        let (_fake, iso) = opened(move |request| Answer::range(&image, request));
        let iso = iso.unwrap();
        let mut absent = release.payloads[0].clone();
        absent.path = "images/nothing".to_owned();
        let mut longer = release.payloads[0].clone();
        longer.size += 1;
        for payload in [absent, longer] {
            assert_eq!(class_of(&iso.open(&payload).err().unwrap()), Class::Verification, "{}", payload.path);
        }
    }
}
