//! A medium that is an ISO on this machine, as a file or on a drive, and is not mounted.

use std::io::Read;

use anyhow::Result;

use super::image;
use super::payload_source::{PayloadPlace, PayloadSource};
use crate::reader::MediumReader;
use base::failure::{Class, Failure};
use formats::iso9660::address::Source;
use model::release::Payload;

#[derive(Debug)]
pub struct IsoFile {
    medium: MediumReader,
}

impl IsoFile {
    /// The opened ISO; an error if the medium is not one.
    #[must_use]
    pub fn new(medium: MediumReader) -> Self {
        Self { medium }
    }

    fn size(&self, payload: &Payload) -> Option<u64> {
        self.medium.iso()?.plain_file(&payload.path).ok().map(|entry| entry.size())
    }

    fn lacking(&self, payload: &Payload) -> anyhow::Error {
        let what = format!("{} is not on {}", payload.path, self.describe());
        let hint = "A net-install medium needs install.medium or --medium with a full one.";
        Failure::new(Class::Verification, what).hint(hint).into()
    }
}

impl PayloadSource for IsoFile {
    fn open(&self, payload: &Payload) -> Result<Box<dyn Read + Send>> {
        if self.size(payload).is_none() {
            return Err(self.lacking(payload));
        }
        self.medium.open_payload(payload)
    }

    fn place(&self, payload: &Payload) -> Option<PayloadPlace> {
        self.size(payload).map(|_| PayloadPlace::Here)
    }

    fn probe(&self, payload: &Payload) -> Result<()> {
        let size = self.size(payload).ok_or_else(|| self.lacking(payload))?;
        if size == payload.size {
            return Ok(());
        }
        let what =
            format!("{} of {} has {size} bytes instead of {}", payload.path, self.describe(), payload.size);
        Err(Failure::new(Class::Verification, what).into())
    }

    fn manifest(&self) -> Result<Vec<u8>> {
        Ok(self.medium.manifest().to_vec())
    }

    fn beside(&self, path: &str) -> Result<Option<Box<dyn Read + Send>>> {
        match self.medium.open_file(path) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    fn image(&self) -> Result<Option<Box<dyn Source>>> {
        self.medium.local().map(image::open).transpose()
    }

    fn describe(&self) -> String {
        format!("the medium at {}", self.medium.path().display())
    }
}
