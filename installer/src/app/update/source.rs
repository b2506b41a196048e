//! Where a release for an update comes from.

use std::path::Path;

use anyhow::Result;

use crate::app::gather::take_proxies;
use crate::app::registries;
use crate::execute::slot_payloads;
use crate::update::fetched;
use base::digest::Digest;
use base::failure::{Class, Failure};
use medium::artifact::{ArtifactReference, LAYOUT};
use medium::sources::{
    Chain, LocalMedium, PayloadSource, RetryPolicy, is_url, open_release, read_release, source,
};
use model::config::InstallConfig;
use model::release::{Purpose, Release};

/// Opens the release at `from`, with the proxies, registries and authorities of the node document.
pub(super) fn open(
    from: &str,
    sha256: Option<Digest>,
    config: &InstallConfig,
) -> Result<(Box<dyn PayloadSource>, Release)> {
    take_proxies(config)?;
    if is_reference(from) {
        return in_registry(from, sha256, config);
    }
    let source = source(Some(from), &registries::authorities(config), RetryPolicy::default())?;
    let release = read_release(source.as_ref(), sha256)?;
    Ok((source, release))
}

/// Opens the release that was fetched, which nobody has to be asked for.
///
/// # Errors
/// [`Class::Invalid`] if none was.
pub(super) fn open_fetched(root: &Path, sha256: Option<Digest>) -> Result<(Box<dyn PayloadSource>, Release)> {
    let Some((directory, digest)) = fetched(root) else {
        return Err(Failure::new(Class::Invalid, "no release was fetched")
            .hint("Name one: --from MEDIUM")
            .into());
    };
    let source = LocalMedium::new(directory);
    let release = read_release(&source, Some(sha256.unwrap_or(digest)))?;
    Ok((Box::new(source), release))
}

/// Whether `from` names a release in a registry: neither a URL, a layout nor a file.
fn is_reference(from: &str) -> bool {
    let local = is_url(from) || from.starts_with(LAYOUT) || from.starts_with(['/', '.']);
    !local && !Path::new(from).exists()
}

fn in_registry(
    from: &str,
    sha256: Option<Digest>,
    config: &InstallConfig,
) -> Result<(Box<dyn PayloadSource>, Release)> {
    let reference: ArtifactReference = from.parse()?;
    let (client, _) = registries::client(config, &[])?;
    let (release, digest, source) = open_release(&reference, &client)?;
    if let Some(wanted) = sha256.filter(|wanted| *wanted != digest) {
        let what =
            format!("the release manifest of {from} has the SHA-256 {digest}, and {wanted} was wanted");
        return Err(Failure::new(Class::Verification, what).hint("Name the release that was meant.").into());
    }
    Ok((source, release))
}

/// The source, and the registries of the images where it does not hold all of their blobs.
pub(super) fn with_images(
    source: Box<dyn PayloadSource>,
    config: &InstallConfig,
    release: &Release,
) -> Result<Box<dyn PayloadSource>> {
    let lacks = release.payloads(Purpose::ImageBlob).any(|blob| source.place(blob).is_none());
    if !lacks {
        return Ok(source);
    }
    let registries = registries::source(config, &[], release)?;
    Ok(Box::new(Chain::new(source, vec![registries])))
}

/// Fails if the source leaves a part of the OS to another one.
pub(super) fn has_slot(source: &dyn PayloadSource, release: &Release) -> Result<()> {
    let lacks = slot_payloads(release).into_iter().find(|part| source.place(part).is_none());
    lacks.map_or(Ok(()), |part| {
        let what = format!("{} does not hold {}", source.describe(), part.path);
        Err(Failure::new(Class::Invalid, what)
            .hint("A net-install medium has no OS image. Name the full one, or the URL of the directory on its server.")
            .into())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_and_no_url_is_a_name_in_a_registry() {
        for (from, reference) in [
            ("registry.example.com/nqrust/release:1.3.0", true),
            ("localhost:5000/release@sha256:00", true),
            ("https://example.com/nqrust.iso", false),
            ("oci:/mnt/layout:1.3.0", false),
            ("/mnt/nqrust.iso", false),
            ("./nqrust.iso", false),
        ] {
            assert_eq!(is_reference(from), reference, "{from}");
        }
    }
}
