//! Which release a program of a Kubernetes distribution is of, by the texts in it.

use std::io::Read;
use std::path::Path;

use anyhow::{Context, Result};
use base::failure::{Class, Failure};
use model::config::Distribution;
use model::kubernetes::KubernetesVersion;

/// In bytes; versions of distributions are shorter.
const VERSION_BYTES_MAX: usize = 64;

/// Fails unless a program is of the release: otherwise nodes would look for images that the media do not have. `from` is the
/// file of the release that it is from.
///
/// # Errors
/// [`Class::Invalid`] if the program is of another release.
pub fn check(program: impl Read, from: &Path, version: &KubernetesVersion) -> Result<()> {
    let versions =
        versions(program, version.distribution()).with_context(|| format!("reading {}", from.display()))?;
    if versions.iter().any(|found| found == version.as_str()) {
        return Ok(());
    }
    let found = if versions.is_empty() { "none".to_owned() } else { versions.join(", ") };
    Err(Failure::new(Class::Invalid, format!("{} is not of {version}", from.display()))
        .because(anyhow::anyhow!("its program contains these versions: {found}"))
        .hint("Take all files from one release, the one that kubernetes.version names.")
        .into())
}

/// The versions of the distribution that occur in the strings of a program, each once. Its own is one of them: the
/// linker writes it there, followed by a byte that cannot be part of a version.
fn versions(mut program: impl Read, distribution: Distribution) -> Result<Vec<String>> {
    const PIECE_BYTES: usize = 1 << 20;
    let mut found: Vec<String> = Vec::new();
    let mut bytes = Vec::new();
    loop {
        let kept = bytes.len();
        let count = (&mut program).take(PIECE_BYTES as u64).read_to_end(&mut bytes)?;
        for version in within(&bytes, distribution) {
            if !found.contains(&version) {
                found.push(version);
            }
        }
        if count == 0 && kept <= VERSION_BYTES_MAX {
            return Ok(found);
        }
        // A version that begins at the end of a piece ends in the next.
        bytes.drain(..bytes.len().saturating_sub(VERSION_BYTES_MAX));
    }
}

/// The versions in `bytes` that end before the last byte.
fn within(bytes: &[u8], distribution: Distribution) -> Vec<String> {
    let mark: &[u8] = match distribution {
        Distribution::Rke2 => b"+rke2r",
        Distribution::K3s => b"+k3s",
        Distribution::Kubeadm => return between_zeros(bytes),
    };
    let part = |byte: &u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'+');
    let marks =
        bytes.iter().enumerate().filter(|(index, byte)| **byte == b'+' && bytes[*index..].starts_with(mark));
    let version = |(index, _): (usize, &u8)| {
        let start = bytes[..index].iter().rposition(|byte| *byte == b'v')?;
        let length = bytes[index + 1..].iter().position(|byte| !part(byte)).map(|length| index + 1 + length);
        let text = String::from_utf8_lossy(bytes.get(start..length.unwrap_or(bytes.len()))?);
        text.parse::<KubernetesVersion>().ok().map(|version| version.as_str().to_owned())
    };
    marks.filter_map(version).collect()
}

/// The versions of upstream Kubernetes with a zero on either side. Nothing in their text tells them from those of other
/// modules, which stand among other words.
fn between_zeros(bytes: &[u8]) -> Vec<String> {
    let starts = bytes.windows(2).enumerate().filter(|(_, pair)| pair == b"\0v").map(|(index, _)| index + 1);
    let version = |start: usize| {
        let rest = bytes.get(start..)?;
        let length = rest.iter().take(VERSION_BYTES_MAX).position(|byte| *byte == 0)?;
        let version = str::from_utf8(rest.get(..length)?).ok()?.parse::<KubernetesVersion>().ok()?;
        (version.distribution() == Distribution::Kubeadm).then(|| version.as_str().to_owned())
    };
    starts.filter_map(version).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(24))]
        #[test]
        fn a_version_is_found_wherever_it_stands_among_other_bytes(
            before in proptest::collection::vec(any::<u8>(), 0..200),
            // Around the end of the first piece, which the padding fills up.
            fill in (1_usize << 20) - 260..(1 << 20) + 20,
            after in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let mut program = vec![b'.'; fill];
            program.extend(&before);
            program.extend(b"\0v1.33.1+rke2r1\0");
            program.extend(&after);
            let found = versions(&program[..], Distribution::Rke2).unwrap();
            prop_assert!(found.iter().any(|version| version == "v1.33.1+rke2r1"));
        }
    }

    #[test]
    fn a_programs_versions_are_found_among_its_texts() {
        let at = |length: usize, text: &str| {
            let mut program = vec![0; length];
            program.extend(text.as_bytes());
            program
        };
        for (program, found) in [
            (b"\0v1.33.1+rke2r1\0".to_vec(), &["v1.33.1+rke2r1"][..]),
            (b"rke2 version v1.33.1+rke2r12 (abc)".to_vec(), &["v1.33.1+rke2r12"]),
            (
                b"v1.33.1+rke2r1\0v1.33.1+rke2r1\0v1.32.0+rke2r2\n".to_vec(),
                &["v1.33.1+rke2r1", "v1.32.0+rke2r2"],
            ),
            (b"v1.33.1+k3s1\0".to_vec(), &[]),
            (b"+rke2r1 version+rke2r1 v+rke2r1".to_vec(), &[]),
            (at((1 << 20) - 7, "v1.33.1+rke2r1\0"), &["v1.33.1+rke2r1"]),
            (at((1 << 20) - 14, "v1.33.1+rke2r1"), &["v1.33.1+rke2r1"]),
            (Vec::new(), &[]),
        ] {
            assert_eq!(versions(&program[..], Distribution::Rke2).unwrap(), found);
        }
        assert_eq!(versions(&b"v1.33.1-rc1+k3s1\n"[..], Distribution::K3s).unwrap(), ["v1.33.1-rc1+k3s1"]);
        let upstream = |program: &[u8]| versions(program, Distribution::Kubeadm).unwrap();
        let other = b"\0\0v1.37.2\0v1.1\0k8s.io/x\tv0.37.2\tv1.36.0\0v1.33.1+k3s1\0v1.38.0-rc.1";
        assert_eq!(upstream(other), ["v1.37.2"]);
        assert_eq!(upstream(&at((1 << 20) - 3, "\0v1.37.2\0")), ["v1.37.2"]);
    }
}
