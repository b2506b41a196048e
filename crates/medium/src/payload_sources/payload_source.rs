//! The interface of sources of payloads.

use std::io::{self, Read, Write};

use anyhow::Result;

use crate::patches::ReleasePatch;
use crate::signatures;
use formats::iso9660::address::Source;
use model::release::{Payload, SIGNATURES};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadPlace {
    /// On this machine, where reading it twice is cheap.
    Here,
    Network,
}

/// The transport of the release manifest and of files without a digest in it. It decides whether they are accepted without an
/// expected digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadTransport {
    Local,
    /// From a server with TLS, whose certificate has been checked.
    Encrypted,
    /// From a server whose certificate was not checked, mostly one without TLS: others on the network can change them.
    Clear,
}

impl PayloadTransport {
    /// By the scheme of a URL. No redirect leads from https to http.
    #[must_use]
    pub fn of(url: &str) -> Self {
        if url.starts_with("https://") { Self::Encrypted } else { Self::Clear }
    }
}

pub trait PayloadSource: Send + Sync {
    /// The payload's bytes from the beginning. The reader ends early or fails where the source does; it
    /// does not check the digest.
    fn open(&self, payload: &Payload) -> Result<Box<dyn Read + Send>>;

    /// The same from `offset` on, which is at most the payload's size: to resume a transfer.
    fn open_from(&self, payload: &Payload, offset: u64) -> Result<Box<dyn Read + Send>> {
        let mut reader = self.open(payload)?;
        io::copy(&mut (&mut reader).take(offset), &mut io::sink())?;
        Ok(reader)
    }

    /// True if the source provides the OS image in its expanded form only, by [`Self::write_expanded`].
    fn has_expanded(&self, _image: &Payload) -> bool {
        false
    }

    /// Writes the OS image in its expanded form. The caller checks it.
    fn write_expanded(&self, image: &Payload, _out: &mut dyn Write) -> Result<()> {
        anyhow::bail!("{} does not have {} in its expanded form", self.describe(), image.path)
    }

    /// The location of the payload; `None` if this source does not have it. Makes no request.
    fn place(&self, payload: &Payload) -> Option<PayloadPlace>;

    /// Checks that the payload exists in full length, without reading it.
    fn probe(&self, payload: &Payload) -> Result<()>;

    fn manifest(&self) -> Result<Vec<u8>>;

    /// The signatures of the manifest, as text without padding; none if the release is unsigned. They are not checked.
    ///
    /// # Errors
    /// [`Class::Verification`](base::failure::Class::Verification) if they are longer than [`SIGNATURES_LENGTH`](model::release::SIGNATURES_LENGTH).
    fn signatures(&self) -> Result<Option<Vec<u8>>> {
        match self.beside(SIGNATURES)? {
            Some(file) => signatures::read(file, || self.describe()),
            None => Ok(None),
        }
    }

    /// The offered patches, to be opened as [`ReleasePatch::payload`].
    fn patches(&self) -> Result<Vec<ReleasePatch>> {
        Ok(Vec::new())
    }

    /// A file of the medium that is no payload, from its beginning; `None` if the source has none of this name.
    fn beside(&self, _path: &str) -> Result<Option<Box<dyn Read + Send>>> {
        Ok(None)
    }

    fn transport(&self) -> PayloadTransport {
        PayloadTransport::Local
    }

    /// The bytes of the ISO that the source is; none for a directory or a server.
    fn image(&self) -> Result<Option<Box<dyn Source>>> {
        Ok(None)
    }

    fn describe(&self) -> String;

    /// The part of the source that has this payload.
    fn describe_of(&self, _: &Payload) -> String {
        self.describe()
    }
}
