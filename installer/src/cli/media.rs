//! What `plan` and `install` begin with: a medium, its manifest, and a configuration from all of its sources.

use std::io::Read;
use std::path::Path;

use anyhow::Result;

use crate::config::sources::{Combined, Document, Effects, Gathering, Kind, Request, gather, url, volume};
use crate::download::shown;
use crate::failure::{Class, Classify};
use crate::files::read_text;
use crate::inventory::BOOT_MEDIUM;
use crate::medium::{
    Chain, HttpMedium, LocalMedium, PayloadSource, Verified, expected_manifest, is_medium, is_url,
    read_release, source,
};
use crate::release::{Payload, Purpose, Release};

/// The command line that the kernel was started with.
const COMMAND_LINE: &str = "/proc/cmdline";

/// Everything that a plan needs beside the machine.
pub(super) struct Media {
    pub(super) source: Box<dyn PayloadSource>,
    pub(super) release: Release,
    pub(super) combined: Combined,
}

/// Opens the medium, reads its manifest, and gathers the configuration.
///
/// The medium of the live system comes first if there is one; a URL, of `--medium` or of `install.medium`,
/// provides what it does not hold.
pub(super) fn prepare(medium: Option<&str>, gathering: Gathering) -> Result<Media> {
    let live = medium.is_none_or(is_url) && is_medium(Path::new(BOOT_MEDIUM));
    let mut machine = ThisMachine { medium, live, opened: None };
    let gathering = Gathering { medium_at_hand: live || medium.is_some(), ..gathering };
    let combined = gather(gathering, &mut machine)?;
    let (first, release) = match machine.opened {
        Some(opened) => opened,
        None => opened(source(None)?)?,
    };
    let url = medium.filter(|medium| is_url(medium)).map(str::to_owned);
    let source = match url.or_else(|| combined.config.install.medium.clone()) {
        Some(url) if first.describe() != shown(&url) => {
            let second = HttpMedium::trusting(&url, &combined.authorities)?;
            Box::new(Chain::new(first, Box::new(second)))
        }
        _ => first,
    };
    Ok(Media { source, release, combined })
}

/// The document that `--config` names.
pub(super) fn file(path: Option<&Path>) -> Result<Option<Document>> {
    let document = |path: &Path| {
        let name = path.display().to_string();
        let text = read_text(path).class(Class::Invalid, || format!("reading the configuration {name}"))?;
        Ok(Document::yaml(Kind::File, name, text))
    };
    path.map(document).transpose()
}

/// The text of a `--cmdline` argument: itself, or the content of the file that follows an `@`.
pub(super) fn command_line(argument: &str) -> Result<String> {
    match argument.strip_prefix('@') {
        None => Ok(argument.to_owned()),
        Some(path) => read_text(Path::new(path)).class(Class::Invalid, || "reading --cmdline".into()),
    }
}

/// The digest that the kernel command line of this boot demands of a manifest.
pub(super) fn expected() -> Result<Option<crate::digest::Digest>> {
    expected_manifest(&read_text(Path::new(COMMAND_LINE))?)
}

type Opened = (Box<dyn PayloadSource>, Release);

fn opened(source: Box<dyn PayloadSource>) -> Result<Opened> {
    let release = read_release(source.as_ref(), expected()?)?;
    Ok((source, release))
}

/// The sources of the machine that this process runs on.
struct ThisMachine<'a> {
    medium: Option<&'a str>,
    live: bool,
    opened: Option<Opened>,
}

impl Effects for ThisMachine<'_> {
    fn medium(&mut self, url: Option<&Request>) -> Result<Vec<Document>> {
        let source: Box<dyn PayloadSource> = match url {
            Some(request) => Box::new(HttpMedium::trusting(&request.url, &request.authorities)?),
            None if self.live => Box::new(LocalMedium::new(BOOT_MEDIUM)),
            None => source(self.medium)?,
        };
        let (source, release) = opened(source)?;
        let kinds = [(Purpose::InstallDefaults, Kind::Defaults), (Purpose::InstallConfig, Kind::Embedded)];
        let mut documents = Vec::new();
        for (purpose, kind) in kinds {
            for payload in release.payloads(purpose) {
                documents.push(document(source.as_ref(), payload, kind)?);
            }
        }
        self.opened = Some((source, release));
        Ok(documents)
    }

    fn volume(&mut self) -> Result<Option<Document>> {
        volume::read(&volume::Roots::default())
    }

    fn command_line(&mut self) -> Result<String> {
        read_text(Path::new(COMMAND_LINE))
    }

    fn fetch(&mut self, request: &Request) -> Result<Document> {
        url::fetch(request, url::patience())
    }
}

fn document(source: &dyn PayloadSource, payload: &Payload, kind: Kind) -> Result<Document> {
    let mut text = String::new();
    let mut reader = Verified::new(source.open(payload)?, payload, source.describe());
    reader.read_to_string(&mut text).class(Class::Verification, || format!("reading {}", payload.path))?;
    Ok(Document::yaml(kind, payload.path.clone(), text))
}
