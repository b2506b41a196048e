//! `iso-builder images`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use base::digest::Digest;
use base::program::Context;
use base::size::ByteSize;
use model::config::Role;
use serde::Serialize;

use super::build::InputArguments;
use crate::images::stored_image::StoredImage;
use crate::pipeline;

/// List the container images of a definition: sizes, what they share, and which roles need them.
///
/// Pulls manifests and no layers. Images that the definition builds from packages are built for it. SIZE is what an
/// image takes alone, OWN what no other image has; a blob that several images have is stored once.
#[derive(Debug, clap::Args)]
pub(super) struct ImagesCommand {
    /// The image definition; `-` is standard input.
    definition: PathBuf,
    #[command(flatten)]
    inputs: InputArguments,
}

#[derive(Debug, Serialize)]
struct ImagesReport {
    images: Vec<ImageLine>,
    /// Bytes of all blobs, each once.
    stored: u64,
    /// Bytes that all images would take one by one.
    unshared: u64,
    /// Bytes of the blobs that nodes of each role get.
    roles: BTreeMap<&'static str, u64>,
}

#[derive(Debug, Serialize)]
struct ImageLine {
    name: String,
    digest: Digest,
    /// Bytes of its blobs.
    size: u64,
    /// Bytes of the blobs that no other image has.
    own: u64,
    blobs: usize,
    /// Empty for every role.
    roles: Vec<Role>,
}

impl ImagesCommand {
    pub(super) fn run(self, context: &Context) -> Result<()> {
        let images = pipeline::list_images(&self.definition, &self.inputs.into(), &context.progress)?;
        let report = ImagesReport::of(&images);
        context.show(&report, || report.to_string())
    }
}

impl ImagesReport {
    fn of(images: &[StoredImage]) -> Self {
        let mut users: BTreeMap<_, usize> = BTreeMap::new();
        for image in images {
            for blob in distinct(image) {
                *users.entry(blob).or_default() += 1;
            }
        }
        let line = |image: &StoredImage| {
            let blobs = distinct(image);
            let own = blobs.iter().filter(|blob| users.get(blob) == Some(&1)).map(|blob| blob.size).sum();
            ImageLine {
                name: image.name.to_string(),
                digest: image.target().blob.digest,
                size: blobs.iter().map(|blob| blob.size).sum(),
                own,
                blobs: blobs.len(),
                roles: image.roles.clone(),
            }
        };
        let lines: Vec<_> = images.iter().map(line).collect();
        let of_role = |role: Role| {
            let needed = images.iter().filter(|image| image.is_for(role));
            let blobs: std::collections::BTreeSet<_> = needed.flat_map(StoredImage::blobs).collect();
            (role.name(), blobs.iter().map(|blob| blob.size).sum())
        };
        Self {
            stored: users.keys().map(|blob| blob.size).sum(),
            unshared: lines.iter().map(|line| line.size).sum(),
            roles: Role::ALL.into_iter().map(of_role).collect(),
            images: lines,
        }
    }
}

fn distinct(image: &StoredImage) -> std::collections::BTreeSet<crate::images::blob::Blob> {
    image.blobs().collect()
}

impl std::fmt::Display for ImagesReport {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let size = |bytes| ByteSize::bytes(bytes).to_string();
        let width = self.images.iter().map(|line| line.name.len()).max().unwrap_or(0).max("IMAGE".len());
        writeln!(f, "{:width$}  {:>10}  {:>10}  {:12}  ROLES", "IMAGE", "SIZE", "OWN", "DIGEST")?;
        for line in &self.images {
            let roles: Vec<_> = line.roles.iter().map(|role| role.name()).collect();
            let roles = if roles.is_empty() { "every role".to_owned() } else { roles.join(", ") };
            let digest = line.digest.to_string();
            let digest = digest.get(..12).unwrap_or_default();
            writeln!(
                f,
                "{:width$}  {:>10}  {:>10}  {digest:12}  {roles}",
                line.name,
                size(line.size),
                size(line.own)
            )?;
        }
        let count = self.images.len();
        writeln!(f, "\n{count} images, {} stored; {} one by one", size(self.stored), size(self.unshared))?;
        let roles: Vec<_> =
            self.roles.iter().map(|(role, bytes)| format!("{role} {}", size(*bytes))).collect();
        write!(f, "on a node: {}", roles.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::images::blob::Blob;
    use crate::images::stored_image::ImageDocument;

    fn image(name: &str, roles: &[Role], layers: &[(&str, u64)]) -> StoredImage {
        let blob = |content: &str, size| Blob { digest: Digest::of(content.as_bytes()), size };
        StoredImage {
            name: name.parse().unwrap(),
            roles: roles.to_vec(),
            indexes: Vec::new(),
            siblings: Vec::new(),
            manifest: ImageDocument { media_type: "m".into(), blob: blob(&format!("{name} m"), 1) },
            config: blob(&format!("{name} c"), 1),
            layers: layers.iter().map(|(content, size)| blob(content, *size)).collect(),
        }
    }

    #[test]
    fn shared_blobs_count_once_and_roles_get_their_own() {
        let images = [
            image("a.b/one:1", &[Role::Management], &[("base", 1000), ("one", 50)]),
            image("a.b/two:1", &[], &[("base", 1000)]),
        ];
        let report = ImagesReport::of(&images);
        assert_eq!((report.stored, report.unshared), (1054, 2054));
        assert_eq!((report.images[0].size, report.images[0].own), (1052, 52));
        assert_eq!((report.roles["management"], report.roles["worker"]), (1054, 1002));
        let text = report.to_string();
        assert!(text.contains("every role") && text.contains("management"), "{text}");
    }
}
