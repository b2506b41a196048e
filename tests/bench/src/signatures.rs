//! What it costs to sign a release and to judge its signatures, beside reading its manifest, which every command does anyway.

use std::time::Instant;

use anyhow::{Context, Result, ensure};
use base::digest::Digest;
use formats::minisign::SecretKey;
use jiff::Timestamp;
use model::release::{Payload, Purpose, Release};
use trust::{ReleaseTrust, TrustStore, TrustedKey, UnsignedRelease, judge, sign_release};

use crate::figure::{Figure, RatioLimit};

/// Blobs of container images, more than any medium of ours has.
const BLOBS: u64 = 10_000;
/// For both figures.
const LIMIT_MS: f64 = 50.0;
const KEYS: u8 = 3;
/// How often it is measured; the quickest round counts, which other work on the host disturbs least.
const ROUNDS: usize = 10;

/// Three keys sign a manifest, and three signatures are verified.
pub(crate) fn measure() -> Result<Vec<Figure>> {
    let release = release();
    let manifest = release.to_bytes();
    let keys: Vec<_> = (1..=KEYS).map(|number| SecretKey::of_seed([number; 8], [number; 32])).collect();
    let trusted = |key: &SecretKey| TrustedKey {
        name: key.public_key().id().to_string(),
        key: key.public_key(),
        development: false,
    };
    let store = TrustStore::new(keys.iter().map(trusted).collect(), keys.len(), UnsignedRelease::Refuse)?;
    let (mut signing, mut judging) = (f64::INFINITY, f64::INFINITY);
    for _ in 0..ROUNDS {
        let begin = Instant::now();
        let mut text = String::new();
        for key in &keys {
            let sign = |bytes: &[u8]| Ok::<_, anyhow::Error>(key.sign_bytes(bytes));
            text += &sign_release(&release, &manifest, Timestamp::UNIX_EPOCH, &key.public_key(), sign)?
                .to_string();
        }
        signing = signing.min(begin.elapsed().as_secs_f64() * 1000.0);
        let begin = Instant::now();
        let trust = judge(&release, &manifest, Some(text.as_bytes()), &store).context("judging")?;
        judging = judging.min(begin.elapsed().as_secs_f64() * 1000.0);
        ensure!(
            matches!(trust, ReleaseTrust::Signed(signers) if signers.len() == keys.len()),
            "not all count"
        );
    }
    let figure = |what: &str, value| {
        let name = format!("{what} {KEYS} signatures, {} KiB of manifest", manifest.len() / 1024);
        Figure::new(&name, value, "ms", ("limit", LIMIT_MS)).limit(RatioLimit::AtMost(1.0))
    };
    Ok(vec![figure("make", signing), figure("judge", judging)])
}

fn release() -> Release {
    let payload = |number: u64| {
        let sha256 = Digest::of(&number.to_le_bytes());
        Payload {
            path: format!("images/blobs/sha256/{sha256}"),
            purpose: Purpose::ImageBlob,
            size: number,
            sha256,
        }
    };
    testing::release::minimal("bench", (0..BLOBS).map(payload).collect())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_signatures_that_are_measured_are_made_and_count() {
        super::measure().unwrap();
    }
}
