//! What the release of a source can drive.

use std::io::Read;

use anyhow::Result;

use super::payload_source::PayloadSource;
use super::verify::VerifyingReader;
use base::failure::{Class, Classify, Failure};
use base::size::ByteSize;
use model::hardware::HardwareCoverage;
use model::hardware::coverage::LARGEST;
use model::release::Release;

/// Reads what `release` of `source` can drive, checked by its digest in the manifest; none for a release of an older builder.
///
/// # Errors
/// [`Class::Verification`] if it is damaged or of another format; those of the source.
pub fn read_hardware(source: &dyn PayloadSource, release: &Release) -> Result<Option<HardwareCoverage>> {
    let Some(payload) = release.hardware() else { return Ok(None) };
    let what = || format!("reading {} of {}", payload.path, source.describe());
    if payload.size > LARGEST {
        let why = anyhow::anyhow!(
            "it has {}, and the limit is {}",
            ByteSize::bytes(payload.size),
            ByteSize::bytes(LARGEST)
        );
        return Err(Failure::new(Class::Verification, what()).because(why).into());
    }
    let mut bytes = Vec::new();
    VerifyingReader::new(source.open(payload)?, payload, source.describe_of(payload))
        .read_to_end(&mut bytes)?;
    HardwareCoverage::parse(&bytes).map(Some).class(Class::Verification, what)
}
