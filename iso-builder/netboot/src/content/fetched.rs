//! A medium on another server: its files are fetched into the directory of `--state` before they are served, each compared with its
//! digest. They stay there, so that the next start fetches nothing; those of another release go.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use anyhow::Result;

use base::failure::{Class, Classify};
use base::files::{fill_atomically, removed, write_atomically};
use base::progress::{Progress, Step};
use medium::network_boot::files::refuse_configuration;
use medium::payload_sources::VerifyingReader;
use medium::reader::MediumReader;
use model::release::{MANIFEST, Payload, Purpose, SIGNATURES};

/// The directory below `--state`.
const MEDIA: &str = "media";
/// Everything that is served of a medium is public.
const MODE: u32 = 0o644;

/// The directory with the copy of a medium on a server; none for a medium of this machine.
pub fn copy(medium: &MediumReader, state: &Path, progress: &Progress) -> Result<Option<PathBuf>> {
    if medium.local().is_some() {
        return Ok(None);
    }
    let media = state.join(MEDIA);
    let copy = media.join(medium.release_digest().to_string());
    let release = medium.release()?;
    refuse_configuration(medium.path(), &release)?;
    // Files that an earlier start fetched were compared then.
    let is_there = |payload: &&Payload| {
        fs::metadata(copy.join(&payload.path)).is_ok_and(|file| file.len() == payload.size)
    };
    let wanted: Vec<_> = release.carried_payloads().filter(|payload| !is_there(payload)).collect();
    if !wanted.is_empty() {
        fetch(medium, &wanted, &copy, progress)?;
    }
    // A release can be signed after it was fetched.
    keep_signatures(medium, &copy)?;
    // Last, so that a directory with a manifest has everything else.
    write_atomically(&copy.join(MANIFEST), medium.manifest(), MODE)?;
    remove_others(&media, &copy)?;
    Ok(Some(copy))
}

/// Fetches the payloads into the directory `copy`. The server may lack blobs of container images, as a node does that is of
/// another role: machines get those from registries.
fn fetch(medium: &MediumReader, payloads: &[&Payload], copy: &Path, progress: &Progress) -> Result<()> {
    let total = payloads.iter().map(|payload| payload.size).sum();
    let mut step = progress.step("medium", format!("Fetching {}", medium.path().display()), Some(total));
    for payload in payloads {
        match medium.open_payload(payload) {
            Ok(content) => fetch_payload(medium, payload, content, copy, &mut step)?,
            Err(error) if payload.purpose == Purpose::ImageBlob && is_missing(&error) => {
                step.advance(payload.size);
            }
            Err(error) => return Err(error),
        }
    }
    step.done();
    Ok(())
}

fn is_missing(error: &anyhow::Error) -> bool {
    let kinds = error.chain().filter_map(|cause| cause.downcast_ref::<io::Error>()).map(io::Error::kind);
    kinds.into_iter().any(|kind| kind == io::ErrorKind::NotFound)
}

/// Makes the signatures of the copy those that the medium has.
fn keep_signatures(medium: &MediumReader, copy: &Path) -> Result<()> {
    let kept = copy.join(SIGNATURES);
    match medium.signatures()? {
        Some(text) => write_atomically(&kept, &text, MODE),
        None => {
            removed(fs::remove_file(&kept)).class(Class::DiskIo, || format!("removing {}", kept.display()))
        }
    }
}

fn fetch_payload(
    medium: &MediumReader,
    payload: &Payload,
    mut content: Box<dyn Read + Send>,
    copy: &Path,
    step: &mut Step,
) -> Result<()> {
    let source = medium.path().display().to_string();
    let target = copy.join(&payload.path);
    let what = format!("fetching {} of {source}", payload.path);
    fill_atomically(&target, MODE, |file| {
        io::copy(&mut VerifyingReader::new(step.reader(&mut content), payload, source), file).map(drop)
    })
    .class(Class::DiskIo, || what)
}

fn remove_others(media: &Path, kept: &Path) -> Result<()> {
    let what = || format!("removing media that are no longer served from {}", media.display());
    for entry in fs::read_dir(media).class(Class::DiskIo, what)? {
        let path = entry.class(Class::DiskIo, what)?.path();
        if path != kept {
            fs::remove_dir_all(path).class(Class::DiskIo, what)?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_support::medium;
    use base::failure::class_of;
    use medium::network_boot::files::MediumFiles;
    use model::release::MediumKind;
    use testing::medium::SampleMedium;

    /// The copy of the medium `name` on the server with this URL.
    fn fetched(server: &str, name: &str, state: &Path) -> Result<PathBuf> {
        let medium = MediumReader::open(Path::new(&format!("{server}/{name}")))?;
        Ok(copy(&medium, state, &Progress::silent())?.unwrap())
    }

    #[test]
    fn an_iso_and_a_directory_on_a_server_are_fetched_once_and_compared() {
        let sample = medium(MediumKind::Full);
        let server = sample.served();
        let state = tempfile::tempdir().unwrap();
        let fetched = |name: &str| fetched(&server.url(), name, state.path());
        for name in ["tree/", "full.iso"] {
            let copy = fetched(name).unwrap();
            let files = MediumFiles::open(&copy).unwrap();
            assert_eq!(files.missing(), 0, "{name}");
            let asked = server.requests("").len();
            assert_eq!(fetched(name).unwrap(), copy);
            assert!(server.requests("").len() < asked + 6, "only the manifest is read again");
            fs::remove_dir_all(copy).unwrap();
        }
        fs::create_dir_all(state.path().join("media/another")).unwrap();
        fs::write(sample.tree().join("live/initrd"), vec![b'x'; crate::test_support::INITRD.len()]).unwrap();
        assert_eq!(class_of(&fetched("tree/").unwrap_err()), Class::Verification);
        fetched("full.iso").unwrap();
        assert_eq!(fs::read_dir(state.path().join("media")).unwrap().count(), 1);
    }

    #[test]
    fn the_signatures_of_a_fetched_medium_are_those_that_the_server_has_now() {
        let sample = medium(MediumKind::Full);
        let server = sample.served();
        let state = tempfile::tempdir().unwrap();
        for signatures in [None, Some("one\n"), Some("one\ntwo\n"), None] {
            let path = sample.tree().join(SIGNATURES);
            match signatures {
                Some(text) => fs::write(&path, text).unwrap(),
                None => removed(fs::remove_file(&path)).unwrap(),
            }
            let copy = fetched(&server.url(), "tree/", state.path()).unwrap();
            let files = MediumFiles::open(&copy).unwrap();
            let kept = fs::read_to_string(copy.join(SIGNATURES)).ok();
            assert_eq!(
                (kept.as_deref(), files.get(SIGNATURES).is_some()),
                (signatures, signatures.is_some())
            );
        }
    }

    #[test]
    fn a_medium_that_is_not_served_is_not_fetched() {
        let server = SampleMedium::new(MediumKind::Full).served();
        let state = tempfile::tempdir().unwrap();
        let error = fetched(&server.url(), "tree/", state.path()).unwrap_err();
        assert_eq!(class_of(&error), Class::Invalid);
        assert_eq!(fs::read_dir(state.path()).unwrap().count(), 0);
    }

    #[test]
    fn blobs_that_the_server_lacks_are_left_to_registries_and_fetched_once_it_has_them() {
        let sample = medium(MediumKind::Full);
        let server = sample.served();
        let state = tempfile::tempdir().unwrap();
        let blob = sample.release.payloads(Purpose::ImageBlob).next().unwrap();
        let (path, aside) = (sample.tree().join(&blob.path), state.path().join("aside"));
        fs::rename(&path, &aside).unwrap();
        for (lacking, back) in [(1, true), (0, false)] {
            let copy = fetched(&server.url(), "tree/", state.path()).unwrap();
            assert_eq!(MediumFiles::open(&copy).unwrap().missing(), lacking);
            if back {
                fs::rename(&aside, &path).unwrap();
            }
        }
        fs::remove_dir_all(state.path().join(MEDIA)).unwrap();
        fs::remove_file(sample.tree().join("live/vmlinuz")).unwrap();
        let error = fetched(&server.url(), "tree/", state.path()).unwrap_err();
        assert_eq!(class_of(&error), Class::Verification, "no machine boots without it");
    }

    #[test]
    fn a_medium_of_this_machine_stays_where_it_is() {
        let state = tempfile::tempdir().unwrap();
        let sample = SampleMedium::new(MediumKind::Full);
        let medium = MediumReader::open(&sample.tree()).unwrap();
        assert_eq!(copy(&medium, state.path(), &Progress::silent()).unwrap(), None);
    }
}
