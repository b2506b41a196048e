//! Objects that the first node gives its cluster: the files of its directory of manifests, each again when its content changes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::kubectl::{await_api, locally};
use base::command::Runner;
use base::digest::Digest;
use base::encode;
use base::failure::{Class, Failure};
use base::files;
use machine::paths::{KUBERNETES, below};

/// What the names of manifests begin with that the installer makes itself.
const OWN: &str = "nqrust-";
/// In bytes; larger than any manifest.
const MANIFEST_BYTES_MAX: u64 = 64 << 20;

/// Applies each manifest that is new or has changed. One that the cluster refuses does not keep the others away.
pub(super) fn apply(root: &Path, runner: &dyn Runner, say: &mut dyn FnMut(&str)) -> Result<()> {
    let record = below(root, KUBERNETES).join("applied.json");
    let mut applied = read(&record)?;
    let wanted = manifests(root)?;
    applied.retain(|name, _| wanted.contains_key(name));
    let changed: Vec<_> =
        wanted.iter().filter(|(name, (_, digest))| applied.get(*name) != Some(digest)).collect();
    if changed.is_empty() {
        return Ok(());
    }
    await_api(runner)?;
    let mut refused = Vec::new();
    for (name, (path, digest)) in changed {
        match locally(runner, &words(name, &path.to_string_lossy())) {
            Ok(_) => {
                say(&format!("applied {name}"));
                applied.insert(name.clone(), *digest);
                files::write_atomically(&record, encode::json_text(&applied).as_bytes(), 0o600)?;
            }
            Err(error) => refused.push(format!("{name}: {error:#}")),
        }
    }
    if refused.is_empty() {
        return Ok(());
    }
    let what = format!("the cluster does not take {} of its manifests yet", refused.len());
    Err(Failure::new(Class::Join, what)
        .because(anyhow::anyhow!("{}", refused.join("\n  because: ")))
        .hint("They are tried again; correct kubernetes.manifests in /oem/node.yaml if a kind or a field is wrong.")
        .into())
}

/// The arguments of kubectl for a manifest. To check fields, kubectl asks for the API's own description, megabytes that a slow first
/// API server makes for longer than a request may take. Manifests of ours need no such check; those that people wrote do.
fn words<'a>(name: &str, path: &'a str) -> Vec<&'a str> {
    let unchecked = name.starts_with(OWN).then_some("--validate=false");
    ["apply", "--server-side", "--force-conflicts", "--field-manager=nqrust"]
        .into_iter()
        .chain(unchecked)
        .chain(["--filename", path])
        .collect()
}

fn read(record: &Path) -> Result<BTreeMap<String, Digest>> {
    match record.exists() {
        true => {
            let bytes = files::read_at_most(record, MANIFEST_BYTES_MAX)?;
            // A record that cannot be read costs no more than applying everything again.
            Ok(serde_json::from_slice(&bytes).unwrap_or_default())
        }
        false => Ok(BTreeMap::new()),
    }
}

/// The manifests by their names, with their digests.
fn manifests(root: &Path) -> Result<BTreeMap<String, (PathBuf, Digest)>> {
    let directory = below(root, KUBERNETES).join("manifests");
    let mut found = BTreeMap::new();
    if !directory.is_dir() {
        return Ok(found);
    }
    for entry in fs::read_dir(&directory).with_context(|| format!("reading {}", directory.display()))? {
        let path = entry.with_context(|| format!("reading {}", directory.display()))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if let Some(name) = name.strip_suffix(".yaml").filter(|name| !name.starts_with('.')) {
            let digest = Digest::of(&files::read_at_most(&path, MANIFEST_BYTES_MAX)?);
            found.insert(name.to_owned(), (path, digest));
        }
    }
    Ok(found)
}
