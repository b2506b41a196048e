//! What `plan` and `install` begin with: a medium, its manifest, and a configuration.

use std::path::Path;

use anyhow::Result;

use crate::config::{self, InstallConfig};
use crate::failure::{Class, Classify, Failure};
use crate::files::read_text;
use crate::inventory::BOOT_MEDIUM;
use crate::medium::{
    Chain, HttpMedium, LocalMedium, PayloadSource, Verified, expected_manifest, is_medium, is_url,
    read_release, source,
};
use crate::release::{Purpose, Release};

/// Everything that a plan needs beside the machine.
pub(super) struct Media {
    pub(super) source: Box<dyn PayloadSource>,
    pub(super) release: Release,
    pub(super) config: InstallConfig,
}

/// Opens the medium, reads its manifest, and reads the configuration: from `config`, or from the medium.
///
/// The medium of the live system comes first if there is one; a URL, of `--medium` or of `install.medium`,
/// provides what it does not hold.
pub(super) fn prepare(medium: Option<&str>, config: Option<&Path>) -> Result<Media> {
    let config = config.map(config::load).transpose()?;
    let configured = |config: &Option<InstallConfig>| config.as_ref().and_then(|c| c.install.medium.clone());
    let url = medium.filter(|medium| is_url(medium)).map(str::to_owned).or_else(|| configured(&config));
    let live = medium.is_none_or(is_url) && is_medium(Path::new(BOOT_MEDIUM));
    let first: Box<dyn PayloadSource> = match (&url, medium) {
        _ if live => Box::new(LocalMedium::new(BOOT_MEDIUM)),
        (_, Some(path)) if !is_url(path) => Box::new(LocalMedium::new(path)),
        (Some(url), _) => Box::new(HttpMedium::new(url)?),
        (None, _) => source(None)?,
    };
    let release = read_release(first.as_ref(), expected()?)?;
    let config = match config {
        Some(config) => config,
        None => embedded(first.as_ref(), &release)?,
    };
    let url = url.or_else(|| config.install.medium.clone());
    let source = match url {
        Some(url) if first.describe() != crate::download::shown(&url) => {
            Box::new(Chain::new(first, Box::new(HttpMedium::new(&url)?)))
        }
        _ => first,
    };
    Ok(Media { source, release, config })
}

/// The digest that the kernel command line of this boot demands of a manifest.
pub(super) fn expected() -> Result<Option<crate::digest::Digest>> {
    expected_manifest(&read_text(Path::new("/proc/cmdline"))?)
}

fn embedded(source: &dyn PayloadSource, release: &Release) -> Result<InstallConfig> {
    let Some(payload) = release.payload(Purpose::InstallConfig) else {
        return Err(Failure::new(Class::Invalid, "there is no install configuration")
            .hint("Give one with --config, or build it into the medium.")
            .into());
    };
    let mut text = String::new();
    let mut reader = Verified::new(source.open(payload)?, payload, source.describe());
    std::io::Read::read_to_string(&mut reader, &mut text)
        .class(Class::Verification, || format!("reading {}", payload.path))?;
    config::parse(&text, &payload.path)
}
