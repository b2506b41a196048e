//! What every source of payloads can do.

use std::io::{self, Read, Write};

use anyhow::Result;

use crate::patches::ReleasePatch;
use formats::iso9660::address::Source;
use model::release::Payload;

/// Where a source has a payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadPlace {
    /// On this machine: reading it twice costs little.
    Here,
    /// On a server.
    Network,
}

/// How the release manifest of a medium, and what has no digest there, come to this machine. It decides whether they are taken without
/// a digest from elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadTransport {
    /// They are on this machine.
    Local,
    /// From a server with TLS, whose certificate has been checked.
    Encrypted,
    /// From a server whose certificate was not checked, mostly one without TLS: others on the network can change them.
    Clear,
}

impl PayloadTransport {
    /// That of a URL. What begins with https stays there over every redirect.
    #[must_use]
    pub fn of(url: &str) -> Self {
        if url.starts_with("https://") { Self::Encrypted } else { Self::Clear }
    }
}

pub trait PayloadSource: Send + Sync {
    /// The payload's bytes from the beginning. The reader ends early or fails where the source does; it
    /// does not check the digest.
    fn open(&self, payload: &Payload) -> Result<Box<dyn Read + Send>>;

    /// The same without the bytes before `offset`, which is not behind the payload's end: for going on with a transfer that was
    /// broken off.
    fn open_from(&self, payload: &Payload, offset: u64) -> Result<Box<dyn Read + Send>> {
        let mut reader = self.open(payload)?;
        io::copy(&mut (&mut reader).take(offset), &mut io::sink())?;
        Ok(reader)
    }

    /// Whether the source is one of the OS image as a slot has it, expanded: then [`Self::open`] is not for the OS image.
    fn has_expanded(&self, _image: &Payload) -> bool {
        false
    }

    /// Writes the OS image in its expanded form. Whoever takes it checks it.
    fn write_expanded(&self, image: &Payload, _out: &mut dyn Write) -> Result<()> {
        anyhow::bail!("{} does not have {} in its expanded form", self.describe(), image.path)
    }

    /// Where the payload is; `None` if this source does not have it. A server is not asked.
    fn place(&self, payload: &Payload) -> Option<PayloadPlace>;

    /// Asks whether the payload is there in its full length, without reading it.
    fn probe(&self, payload: &Payload) -> Result<()>;

    fn manifest(&self) -> Result<Vec<u8>>;

    /// The patches from other OS images that are offered beside the payloads, to be opened as [`ReleasePatch::payload`].
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

    /// For messages.
    fn describe(&self) -> String;

    /// Where this payload comes from, where that is a part of the source.
    fn describe_of(&self, _: &Payload) -> String {
        self.describe()
    }
}
