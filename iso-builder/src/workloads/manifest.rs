//! Files of manifests, in the form in which the OS image ships them.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use base::failure::{Class, Classify, Failure};
use base::files;
use model::config::Role;
use serde_json::Value;
use walkdir::WalkDir;

use super::spec::{ImagePolicy, ManifestSpec};

/// In bytes. More than a cluster accepts in one object; a file may hold many.
const MAX_MANIFEST_BYTES: u64 = 32 << 20;
/// In characters: leaves room for a prefix, within the 253 characters that a name may have.
const MAX_NAME_LENGTH: usize = 200;

#[derive(Debug)]
pub(super) struct ManifestFile {
    /// Its name in the OS image, without an extension.
    pub(super) name: String,
    pub(super) file: PathBuf,
    /// Its content, as YAML.
    pub(super) text: String,
    /// True if the content is, line by line, that of the source.
    pub(super) verbatim: bool,
    pub(super) roles: Vec<Role>,
    pub(super) policy: ImagePolicy,
}

impl ManifestFile {
    pub(super) fn read(spec: &ManifestSpec, path: &Path) -> Result<Vec<Self>> {
        let files = if path.is_dir() { files_below(path)? } else { vec![path.to_owned()] };
        if files.is_empty() {
            let what = format!("the directory {} has no manifests", path.display());
            let hint = "Manifests are files *.yaml, *.yml and *.json.";
            return Err(Failure::new(Class::Invalid, what).hint(hint).into());
        }
        let read = |file: PathBuf| {
            let inside = file.strip_prefix(path).ok().filter(|inside| !inside.as_os_str().is_empty());
            let inside =
                inside.map_or_else(|| PathBuf::from(file.file_name().unwrap_or_default()), Path::to_owned);
            let (text, verbatim) =
                text(&file).class(Class::Invalid, || format!("reading the manifest {}", file.display()))?;
            let name = format!("manifest-{}", slug(&inside));
            Ok(Self { name, file, text, verbatim, roles: spec.roles.clone(), policy: spec.images })
        };
        files.into_iter().map(read).collect()
    }
}

/// The manifests in a directory and its subdirectories. Hidden files are left out.
fn files_below(directory: &Path) -> Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let entries = WalkDir::new(directory).min_depth(1).sort_by_file_name();
    let hidden = |name: &std::ffi::OsStr| name.as_encoded_bytes().starts_with(b".");
    for entry in entries.into_iter().filter_entry(|entry| !hidden(entry.file_name())) {
        let entry = entry.with_context(|| format!("reading {}", directory.display()))?;
        let ending = entry.path().extension().and_then(std::ffi::OsStr::to_str);
        if entry.file_type().is_dir() || !matches!(ending, Some("yaml" | "yml" | "json")) {
            continue;
        }
        // A link could lead to a file that is not recorded as an input of the build.
        if !entry.file_type().is_file() {
            let what = format!("{} is not a file", entry.path().display());
            return Err(Failure::new(Class::Invalid, what).hint("Put the manifest itself there.").into());
        }
        files.push(entry.into_path());
    }
    Ok(files)
}

/// A manifest as YAML, and whether it was YAML already. JSON is YAML except for escapes that not every reader of YAML
/// understands.
fn text(file: &Path) -> Result<(String, bool)> {
    let text =
        String::from_utf8(files::read_at_most(file, MAX_MANIFEST_BYTES)?).context("it is not UTF-8")?;
    if file.extension().is_some_and(|ending| ending == "json") {
        let value: Value = serde_json::from_str(&text)?;
        return Ok((format!("{value:#}\n"), false));
    }
    Ok((text, true))
}

/// A name made from a path: `crds/01_base.v1.yaml` becomes `crds-01-base-v1`.
fn slug(path: &Path) -> String {
    let text = path.with_extension("").to_string_lossy().to_lowercase();
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let words: Vec<&str> = text.split(|c| !plain(c)).filter(|word| !word.is_empty()).collect();
    words.join("-").chars().take(MAX_NAME_LENGTH).collect::<String>().trim_end_matches('-').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_made_of_what_kubernetes_takes() {
        for (path, name) in [
            ("web.yaml", "web"),
            ("crds/01_base.v1.yaml", "crds-01-base-v1"),
            ("A b--c.yml", "a-b-c"),
            ("-x-.json", "x"),
            ("é.yaml", ""),
        ] {
            assert_eq!(slug(Path::new(path)), name, "{path}");
        }
        let long = slug(Path::new(&format!("{}/-/x.yaml", "y".repeat(199))));
        assert_eq!(long.len(), 199);
    }
}
