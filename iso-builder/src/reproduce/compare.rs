//! Compares a release with what was built again: manifests field by field, payloads and files by their digests.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use anyhow::Result;
use base::digest::Digest;
use base::progress::Progress;
use model::release::{Image, MediumKind, Payload, Purpose, Release};
use serde_json::Value;

use super::contents;
use super::finished_release::{FinishedRelease, ReleaseMedium};
use super::report::{Agreement, ComparedPart};

/// The fields of a manifest that are compared entry by entry.
const LISTS: [&str; 2] = ["payloads", "images"];

/// Every part of every medium of `first`, and then every file beside them. OS images and initrds that differ are unpacked below
/// `scratch`.
///
/// # Errors
/// If something cannot be read.
pub(super) fn compare(
    first: &FinishedRelease,
    again: &FinishedRelease,
    scratch: &Path,
    progress: &Progress,
) -> Result<Vec<ComparedPart>> {
    let mut parts = Vec::new();
    let mut compared = BTreeSet::new();
    for medium in first.media() {
        if compared.insert(medium.reader.release_digest()) {
            parts.extend(medium_parts(medium, first, again, scratch, progress)?);
        }
    }
    let (names, _) = first.files();
    for name in names {
        let (one, other) = (first.digest(&name, progress)?, again.digest(&name, progress)?);
        parts.extend(ComparedPart::of_digests(name, one, other));
    }
    Ok(parts)
}

fn medium_parts(
    medium: &ReleaseMedium,
    first: &FinishedRelease,
    again: &FinishedRelease,
    scratch: &Path,
    progress: &Progress,
) -> Result<Vec<ComparedPart>> {
    let kind = medium.release.medium;
    let label = kind_label(kind);
    let Some(made) = again.medium(kind) else {
        let name = format!("{label} release.json");
        return Ok(vec![ComparedPart { name, agreement: Agreement::OnlyFirst, differences: Vec::new() }]);
    };
    let mut parts = vec![manifest_part(label, &medium.release, &made.release)];
    let loose = first.output().is_none() && medium.reader.iso().is_none();
    let (one, other) = (by_path(&medium.release), by_path(&made.release));
    let paths: BTreeSet<_> = one.keys().chain(other.keys()).collect();
    for path in paths {
        let (one, other) = (one.get(*path), other.get(*path));
        // No list and no ISO vouches for the files of a plain directory.
        let found = match one.filter(|payload| loose && !payload.is_remote_on(kind)) {
            Some(payload) => Some(digest_of_payload(medium, payload, progress)?),
            None => one.map(|payload| payload.sha256),
        };
        let name = format!("{label} {path}");
        let Some(mut part) = ComparedPart::of_digests(name, found, other.map(|payload| payload.sha256))
        else {
            continue;
        };
        if let (Agreement::Differs, Some(one), Some(other)) = (part.agreement, one, other) {
            let both = [(first, *one), (again, *other)];
            part.differences.extend(within(both, kind, scratch, progress));
        }
        parts.push(part);
    }
    Ok(parts)
}

/// What people call the media of this kind.
fn kind_label(kind: MediumKind) -> &'static str {
    match kind {
        MediumKind::Full => "full:",
        MediumKind::NetInstall => "net-install:",
    }
}

fn by_path(release: &Release) -> BTreeMap<&str, &Payload> {
    release.all_payloads().map(|payload| (payload.path.as_str(), payload)).collect()
}

fn digest_of_payload(medium: &ReleaseMedium, payload: &Payload, progress: &Progress) -> Result<Digest> {
    let text = format!("Hashing {}", payload.path);
    let mut step = progress.step("payload", text, Some(payload.size));
    let (digest, _) = Digest::of_reader(step.reader(medium.reader.open_payload(payload)?))?;
    step.done();
    Ok(digest)
}

/// The manifests without their lists of payloads, which are compared one by one.
fn manifest_part(label: &str, one: &Release, other: &Release) -> ComparedPart {
    let mut differences = Vec::new();
    let values = [one, other].map(|release| serde_json::to_value(release).unwrap_or_default());
    let fields: BTreeSet<_> = values.iter().filter_map(Value::as_object).flat_map(|map| map.keys()).collect();
    for field in fields.into_iter().filter(|field| !LISTS.contains(&field.as_str())) {
        let [one, other] = values.each_ref().map(|value| &value[field.as_str()]);
        if one != other {
            differences.push(format!("{field}: {one} in the release, {other} now"));
        }
    }
    let images = [one, other].map(|release| {
        release.images.iter().map(|image| (image.name.as_str(), image)).collect::<BTreeMap<&str, &Image>>()
    });
    let names: BTreeSet<_> = images.iter().flat_map(BTreeMap::keys).collect();
    for name in names {
        let [one, other] = images.each_ref().map(|images| images.get(name));
        let told = |image: Option<&&Image>| image.map_or("missing".into(), |image| image.digest.oci());
        if one != other {
            let (one, other) = (told(one), told(other));
            differences.push(format!("image {name}: {one} in the release, {other} now"));
        }
    }
    let agreement = if differences.is_empty() { Agreement::Same } else { Agreement::Differs };
    ComparedPart { name: format!("{label} release.json"), agreement, differences }
}

/// What differs within a payload that is not the same in both.
fn within(
    both: [(&FinishedRelease, &Payload); 2],
    kind: MediumKind,
    scratch: &Path,
    progress: &Progress,
) -> Vec<String> {
    let look = || -> Result<Vec<String>> {
        let purpose = both[0].1.purpose;
        let compared = match purpose {
            Purpose::Rootfs => contents::of_os_images,
            Purpose::Initrd => contents::of_initrds,
            _ => return Ok(Vec::new()),
        };
        let what = format!("Looking for what differs in {}", both[0].1.path);
        progress.within("reproduce", what, || {
            let names = ["first", "again"].into_iter().zip(both);
            let files = names.map(|(name, (release, payload))| {
                contents::copied(release.open_payload(kind, payload)?, scratch, name)
            });
            let files = files.collect::<Result<Vec<_>>>()?;
            let found = compared(&files[0], &files[1], scratch)?;
            Ok(match found.is_empty() {
                true => vec!["no path differs: order, compression or extended attributes do".to_owned()],
                false => found.iter().map(ToString::to_string).collect(),
            })
        })
    };
    // That they differ is known, whatever comes of this.
    look().unwrap_or_else(|error| {
        vec![format!("what differs is not known: {}", base::failure::causes(&error).join(": "))]
    })
}
