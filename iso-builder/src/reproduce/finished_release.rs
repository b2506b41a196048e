//! A finished release on this machine: what a build wrote, or a medium of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base::digest::Digest;
use base::failure::{Class, Classify, Failure};
use base::progress::Progress;
use medium::build_output::{BuildOutput, PROVENANCE, iso_name, netboot_names};
use medium::customization::FILE;
use medium::reader::MediumReader;
use model::release::{MANIFEST, MediumKind, Payload, Release, SIGNATURES};

use crate::definition::OutputKind;
use crate::media::finished::verify::manifests_of;
use crate::media::sign::as_built;

/// Outputs that do not follow from the inputs alone: anybody may change the first, only who has the key makes the second, and the third
/// says who has built.
const OF_OTHERS: [&str; 3] = [FILE, SIGNATURES, PROVENANCE];

#[derive(Debug)]
pub(super) struct FinishedRelease {
    path: PathBuf,
    /// None for one medium.
    output: Option<BuildOutput>,
    media: Vec<ReleaseMedium>,
}

/// What has a manifest: an ISO, or a directory.
#[derive(Debug)]
pub(super) struct ReleaseMedium {
    pub(super) reader: MediumReader,
    pub(super) release: Release,
}

impl FinishedRelease {
    /// Opens what `path` names: the directory that a build wrote, an ISO, or a directory with `release.json`.
    ///
    /// # Errors
    /// Those of [`MediumReader::open`]; [`Class::Invalid`] for a URL.
    pub(super) fn open(path: &Path) -> Result<Self> {
        let open = |path: &PathBuf| {
            let reader = MediumReader::open(path)?;
            if reader.local().is_none() {
                let what = format!(
                    "{} is on a server, where not all of it can be compared",
                    reader.path().display()
                );
                return Err(Failure::new(Class::Invalid, what)
                    .hint("Download it, and name the file.")
                    .into());
            }
            Ok(ReleaseMedium { release: reader.release()?, reader })
        };
        let media = manifests_of(path)?.iter().map(open).collect::<Result<_>>()?;
        Ok(Self { path: path.to_owned(), output: BuildOutput::open(path)?, media })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// One for each manifest: several media can have the same.
    pub(super) fn media(&self) -> &[ReleaseMedium] {
        &self.media
    }

    /// The medium of this kind whose payloads can be read, or else its manifest.
    pub(super) fn medium(&self, kind: MediumKind) -> Option<&ReleaseMedium> {
        let mut media: Vec<_> = self.media.iter().filter(|medium| medium.release.medium == kind).collect();
        media.sort_by_key(|medium| medium.reader.iso().is_none());
        media.into_iter().next()
    }

    /// The directory beside whose manifest other outputs lie.
    pub(super) fn output(&self) -> Option<&BuildOutput> {
        self.output.as_ref()
    }

    /// The signatures of each manifest. An ISO says more than the directory: its bytes are compared.
    ///
    /// # Errors
    /// [`Class::Verification`] if they are too long.
    pub(super) fn signatures(&self) -> Result<BTreeMap<Digest, Vec<u8>>> {
        let mut found = BTreeMap::new();
        for ReleaseMedium { reader, .. } in &self.media {
            if let Some(text) = reader.signatures()? {
                found.insert(reader.release_digest(), text);
            }
        }
        Ok(found)
    }

    /// What has to be built to compare with it.
    pub(super) fn kinds(&self) -> BTreeSet<OutputKind> {
        let of = |medium: &ReleaseMedium| match medium.release.medium {
            MediumKind::Full => OutputKind::Full,
            MediumKind::NetInstall => OutputKind::NetInstall,
        };
        let Some(output) = &self.output else { return self.media.iter().map(of).collect() };
        let isos = self.media.iter().filter(|medium| medium.reader.iso().is_some());
        let mut kinds: BTreeSet<_> = isos.map(of).collect();
        let netboot = |medium: &ReleaseMedium| {
            netboot_names(&medium.release).iter().any(|(_, name)| output.sums().contains_key(name))
        };
        kinds.extend(self.media.iter().any(netboot).then_some(OutputKind::Netboot));
        kinds
    }

    /// The names of its files that are compared, and of those that cannot be.
    pub(super) fn files(&self) -> (Vec<String>, Vec<String>) {
        let Some(output) = &self.output else {
            let isos = self.media.iter().filter(|medium| medium.reader.iso().is_some());
            let names = isos.map(|medium| iso_name(&medium.release, medium.release.medium));
            return (names.collect(), Vec::new());
        };
        let names = output.sums().keys().filter(|name| !OF_OTHERS.contains(&name.as_str())).cloned();
        // They keep the signatures that the release had when they were made.
        names.partition(|name| !name.ends_with(".raw") && !name.ends_with(".qcow2"))
    }

    /// The digest of the file `name`; that of an ISO is without its customization. None if it is missing.
    ///
    /// # Errors
    /// [`Class::DiskIo`] if it cannot be read.
    pub(super) fn digest(&self, name: &str, progress: &Progress) -> Result<Option<Digest>> {
        if name == MANIFEST {
            return Ok(self.media.first().map(|medium| medium.reader.release_digest()));
        }
        let is_this = |medium: &&ReleaseMedium| {
            medium.reader.iso().is_some() && iso_name(&medium.release, medium.release.medium) == *name
        };
        if let Some(medium) = self.media.iter().find(is_this) {
            medium.reader.is_whole()?;
            return Ok(Some(as_built(&medium.reader, progress)?.1));
        }
        let path = self.path.join(name);
        if !path.exists() {
            return Ok(None);
        }
        let what = || format!("reading {}", path.display());
        let file = File::open(&path).class(Class::DiskIo, what)?;
        let length = file.metadata().class(Class::DiskIo, what)?.len();
        let mut step = progress.step(&format!("checksum-{name}"), format!("Hashing {name}"), Some(length));
        let (digest, _) = Digest::of_reader(step.reader(file)).class(Class::DiskIo, what)?;
        step.done();
        Ok(Some(digest))
    }

    /// Opens a payload of the medium of this kind, wherever the release has it.
    ///
    /// # Errors
    /// If it is nowhere.
    pub(super) fn open_payload(&self, kind: MediumKind, payload: &Payload) -> Result<Box<dyn Read + Send>> {
        let medium =
            self.medium(kind).with_context(|| format!("{} has no such medium", self.path.display()))?;
        let beside = netboot_names(&medium.release);
        let beside = beside.iter().find(|(purpose, _)| *purpose == payload.purpose);
        let file = beside.zip(self.output.as_ref()).map(|((_, name), output)| output.file(name));
        match file.filter(|file| medium.reader.iso().is_none() && file.exists()) {
            Some(file) => {
                let opened = File::open(&file);
                Ok(Box::new(opened.class(Class::DiskIo, || format!("opening {}", file.display()))?))
            }
            None => medium.reader.open_payload(payload),
        }
    }
}
