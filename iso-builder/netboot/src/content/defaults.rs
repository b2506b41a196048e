//! The medium's documents of defaults: configurations are checked together with them, as an install does.

use std::io;

use anyhow::{Result, anyhow};
use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use model::release::Purpose;
use transfer::server::served_file::ServedFile;

use medium::network_boot::files::MediumFiles;

/// In bytes.
const DEFAULTS: u64 = 16 << 20;
/// Name and text of the medium's documents of defaults. One that is missing, damaged or longer than [`DEFAULTS`] is
/// [`Class::Verification`]: configurations would be checked against other defaults than those that machines have.
pub fn defaults(files: &MediumFiles) -> Result<Vec<(String, String)>> {
    let mut documents = Vec::new();
    for payload in files.release().payloads(Purpose::InstallDefaults) {
        let what = || format!("reading {}", payload.path);
        let refuse = |why: String| Failure::new(Class::Verification, what()).because(anyhow!("{why}"));
        let served = files.get(&payload.path).ok_or_else(|| refuse("it is not on the medium".into()))?;
        if served.length > DEFAULTS {
            return Err(refuse(format!("it is longer than {DEFAULTS} bytes")).into());
        }
        let bytes = whole(served).class(Class::DiskIo, what)?;
        if Digest::of(&bytes) != payload.sha256 {
            return Err(refuse("its digest differs from the release manifest".into()).into());
        }
        let text = String::from_utf8(bytes).class(Class::Verification, what)?;
        documents.push((payload.path.clone(), text));
    }
    Ok(documents)
}

/// Reads a whole file; one read gives no more than one run of it.
fn whole(served: &ServedFile) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(served.length).map_err(io::Error::other)?];
    let mut position = 0;
    while position < bytes.len() {
        let count = served.read_at(&mut bytes[position..], position as u64)?;
        if count == 0 {
            return Err(io::Error::new(
                io::ErrorKind::UnexpectedEof,
                "it is shorter than the release manifest says",
            ));
        }
        position += count;
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::{medium, write_manifest};
    use model::release::{MediumKind, Payload};

    /// The defaults of a medium whose manifest names `text`, and which has `on_the_medium` in its place.
    fn defaults_of(text: &str, on_the_medium: Option<&str>) -> Result<Vec<(String, String)>> {
        let mut sample = medium(MediumKind::Full);
        sample.release.payloads.retain(|payload| payload.purpose != Purpose::InstallDefaults);
        let path = "config/defaults.yaml".to_owned();
        let (size, sha256) = (text.len() as u64, Digest::of(text.as_bytes()));
        let file = sample.tree().join(&path);
        std::fs::write(&file, on_the_medium.unwrap_or(text)).unwrap();
        sample.release.payloads.push(Payload { path, purpose: Purpose::InstallDefaults, size, sha256 });
        write_manifest(&sample);
        defaults(&MediumFiles::open(&sample.tree())?)
    }

    #[test]
    fn a_document_of_defaults_is_read_whole_or_refused() {
        let long = format!("# {}\nos: {{hostname: a}}\n", "x".repeat(3 << 20));
        assert!(defaults_of(&long, None).unwrap()[0].1 == long);
        let huge = "#".repeat(usize::try_from(DEFAULTS).unwrap() + 1);
        let error = base::failure::render(&defaults_of(&huge, None).unwrap_err());
        assert!(error.contains("config/defaults.yaml") && error.contains("longer than"), "{error}");
        let error = defaults_of("os: {hostname: a}\n", Some("os: {hostname: b}\n")).unwrap_err();
        let error = base::failure::render(&error);
        assert!(error.contains("its digest differs from the release manifest"), "{error}");
    }
}
