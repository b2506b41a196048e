//! A medium in memory.

use std::collections::BTreeMap;
use std::io::{self, Read};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;

use crate::plan::tests::{contents, release};
use formats::iso9660::address::Source;
use medium::payload_sources::{PayloadPlace, PayloadSource};
use model::release::Payload;

/// The small medium of the plan's tests, in memory; one payload may be damaged, after a number of good openings, and a number of
/// times.
pub(crate) struct TestMedium {
    pub(crate) damaged: Option<&'static str>,
    pub(crate) good_openings: usize,
    pub(crate) bad_openings: usize,
    pub(crate) place: PayloadPlace,
    pub(crate) openings: Mutex<BTreeMap<String, usize>>,
    pub(crate) stop_at: Option<(&'static str, &'static AtomicBool)>,
    /// The release manifest and the ISO of the medium.
    pub(crate) image: Option<(Vec<u8>, Vec<u8>)>,
}

impl Default for TestMedium {
    fn default() -> Self {
        Self {
            damaged: None,
            good_openings: 0,
            bad_openings: usize::MAX,
            place: PayloadPlace::Here,
            openings: Mutex::default(),
            stop_at: None,
            image: None,
        }
    }
}

impl PayloadSource for TestMedium {
    fn open(&self, payload: &Payload) -> Result<Box<dyn Read + Send>> {
        let (_, bytes) = contents().iter().find(|(known, _)| known == payload).unwrap();
        let mut openings = self.openings.lock().unwrap();
        let opening = openings.entry(payload.path.clone()).or_default();
        *opening += 1;
        let bad = opening.checked_sub(self.good_openings + 1).is_some_and(|bad| bad < self.bad_openings);
        if self.damaged == Some(payload.path.as_str()) && bad {
            let mut bad = bytes.clone();
            bad[bytes.len() / 2] ^= 1;
            return Ok(Box::new(io::Cursor::new(bad)));
        }
        if let Some((path, flag)) = self.stop_at
            && path == payload.path
            && *opening == 2
        {
            flag.store(true, Ordering::Relaxed);
        }
        Ok(Box::new(bytes.as_slice()))
    }

    fn place(&self, _: &Payload) -> Option<PayloadPlace> {
        Some(self.place)
    }

    fn probe(&self, _: &Payload) -> Result<()> {
        Ok(())
    }

    fn manifest(&self) -> Result<Vec<u8>> {
        Ok(self.image.as_ref().map_or_else(|| release().to_bytes(), |(manifest, _)| manifest.clone()))
    }

    fn image(&self) -> Result<Option<Box<dyn Source>>> {
        Ok(self.image.clone().map(|(_, image)| Box::new(image) as Box<dyn Source>))
    }

    fn describe(&self) -> String {
        "the test medium".into()
    }
}
