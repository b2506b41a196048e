//! Searches the artifacts of a run for the secrets that it used: in clear text, in base64 and hashed.
//!
//! Base64 is searched at all three alignments, since a secret in the middle of an encoded document can start at any of
//! them.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};
use base::digest::Digest;
use walkdir::WalkDir;

use crate::identity::Identity;

#[derive(Clone, Debug)]
struct EncodedSecret {
    name: String,
    bytes: Vec<u8>,
}

/// Fails with every place below `directory` that holds the password or the token of `identity`, in any encoding. Disk
/// images are not searched: a node's own document holds its secrets, mode 0600.
pub fn search(directory: &Path, identity: &Identity) -> Result<()> {
    let mut needles = forms("password", &identity.password);
    needles.extend(forms("token", &identity.token));
    // A hash is salted and cannot be known beforehand, so the search is for the beginning of every yescrypt hash with
    // its parameters.
    needles.push(EncodedSecret { name: "a password hash".into(), bytes: b"$y$j".to_vec() });
    let mut found = Vec::new();
    let walk = WalkDir::new(directory).into_iter().filter_entry(|entry| entry.file_name() != "disks");
    for entry in walk {
        let entry = entry?;
        if entry.file_type().is_file() {
            let path = entry.path();
            let bytes = fs::read(path).with_context(|| format!("reading {}", path.display()))?;
            found.extend(finds(&bytes, &needles).map(|name| format!("{}: {name}", path.display())));
        }
    }
    if !found.is_empty() {
        bail!("secrets in captured output:\n{}", found.join("\n"));
    }
    Ok(())
}

fn finds<'a>(bytes: &'a [u8], needles: &'a [EncodedSecret]) -> impl Iterator<Item = &'a str> {
    let holds =
        |needle: &&EncodedSecret| bytes.windows(needle.bytes.len()).any(|window| window == needle.bytes);
    needles.iter().filter(holds).map(|needle| needle.name.as_str())
}

fn forms(name: &str, secret: &str) -> Vec<EncodedSecret> {
    let mut needles = vec![
        EncodedSecret { name: format!("the {name} in clear"), bytes: secret.as_bytes().to_vec() },
        EncodedSecret {
            name: format!("the {name} as SHA-256"),
            bytes: Digest::of(secret.as_bytes()).to_string().into_bytes(),
        },
    ];
    for shift in 0..3 {
        let name = format!("the {name} in base64");
        needles.push(EncodedSecret { name, bytes: base64_core(secret.as_bytes(), shift) });
    }
    needles
}

/// The characters of the base64 of `secret` that do not depend on its neighbors, when it begins `shift`
/// bytes after a multiple of three.
fn base64_core(secret: &[u8], shift: usize) -> Vec<u8> {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let skip = (3 - shift) % 3;
    let groups = secret[skip.min(secret.len())..].chunks_exact(3);
    groups
        .flat_map(|group| {
            let bits = group.iter().fold(0_usize, |bits, byte| bits << 8 | usize::from(*byte));
            [18, 12, 6, 0].map(|place| ALPHABET[bits >> place & 63])
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_found_in_base64_wherever_it_begins() {
        // `printf 'xmarked-token-abcdef' | base64` and the like, for each alignment.
        let encoded: [&[u8]; 3] = [
            b"bWFya2VkLXRva2VuLWFiY2RlZg==",
            b"eG1hcmtlZC10b2tlbi1hYmNkZWY=",
            b"eHhtYXJrZWQtdG9rZW4tYWJjZGVm",
        ];
        let needles = forms("token", "marked-token-abcdef");
        for text in encoded {
            assert!(finds(text, &needles).any(|name| name.contains("base64")), "{text:?}");
        }
        assert_eq!(finds(b"bWFya2VkLXBhc3N3b3Jk", &needles).count(), 0);
    }

    #[test]
    fn every_file_with_a_secret_is_named_and_disks_are_left_out() {
        let directory = tempfile::tempdir().unwrap();
        fs::create_dir(directory.path().join("disks")).unwrap();
        fs::write(directory.path().join("disks/node.qcow2"), "pass-0123456789").unwrap();
        let identity = Identity::sample("pass-0123456789", "token-0123456789");
        search(directory.path(), &identity).unwrap();
        fs::write(directory.path().join("serial.log"), "x\x1b[0mtoken-0123456789").unwrap();
        let error = search(directory.path(), &identity).unwrap_err().to_string();
        assert!(error.contains("serial.log: the token in clear"), "{error}");
    }
}
