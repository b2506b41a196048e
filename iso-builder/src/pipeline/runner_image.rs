//! The container image by which a controller of a cluster updates a node: the installer alone, which is static and needs nothing beside
//! it (`installer update from-pod`).

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result};
use formats::oci::ImageReference;
use model::architecture::Architecture;
use tar::{EntryType, Header};

use super::image_report::ImageReport;
use super::program::{self, InstallerChoice};
use crate::images::Store;
use crate::images::contents::LayerContents;
use crate::images::image::{self, ImageProcess};
use crate::images::layer;

const INSTALLER: &str = "usr/bin/installer";

/// The name of the image unless another one is given.
#[must_use]
pub fn runner_image_name() -> String {
    format!("localhost/nqrust/update-runner:{}", env!("CARGO_PKG_VERSION"))
}

/// Makes the image of `installer`, for the architecture that this is for, and writes it as an OCI image layout. The same installer gives the same bytes.
pub fn runner_image(
    installer: &InstallerChoice,
    name: &ImageReference,
    output: &Path,
) -> Result<ImageReport> {
    let installer = installer.path(Architecture::of_this_program())?;
    let architecture = program::architecture(&installer)?;
    let installer = program::check(&installer, architecture)?;
    write_image(&installer, name, architecture, output)
}

fn write_image(
    installer: &Path,
    name: &ImageReference,
    architecture: Architecture,
    output: &Path,
) -> Result<ImageReport> {
    let store = Store::create(output)?;
    let scratch = tempfile::NamedTempFile::new().context("making a scratch file")?;
    pack(installer, scratch.as_file())?;
    let contents = LayerContents::scan(scratch.path())?;
    // The image has no build time, so that the same installer gives the same bytes.
    let epoch = 0;
    let layer = layer::write(scratch.path(), &contents, &LayerContents::default(), epoch, &store)?;
    let process = ImageProcess {
        name,
        entrypoint: &[format!("/{INSTALLER}"), "update".to_owned(), "from-pod".to_owned()],
        cmd: &[],
        env: vec![],
        // Root, because the process enters the root of the node.
        user: "0",
        working_dir: "/",
        labels: vec![
            ("org.opencontainers.image.title", "NQRust Hypervisor update runner"),
            ("org.opencontainers.image.licenses", "Apache-2.0"),
        ],
    };
    let image = image::write_process(process, &[layer], architecture.debian(), epoch, &store)?;
    store.finish(std::slice::from_ref(&image))?;
    Ok(ImageReport::of(name, &image, output))
}

fn pack(installer: &Path, file: &File) -> Result<()> {
    let reading = || format!("reading {}", installer.display());
    let content = File::open(installer).with_context(reading)?;
    let size = content.metadata().with_context(reading)?.len();
    let mut tar = tar::Builder::new(file);
    let mut header = Header::new_gnu();
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o755);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header.set_size(size);
    tar.append_data(&mut header, INSTALLER, content).with_context(reading)?;
    tar.finish().context("writing the layer of the installer")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_image_has_the_installer_alone_and_is_the_same_each_time() {
        let directory = tempfile::tempdir().unwrap();
        let installer = directory.path().join("installer");
        fs::write(&installer, "program").unwrap();
        let name: ImageReference = runner_image_name().parse().unwrap();
        let make = |output: &str| {
            let output = directory.path().join(output);
            write_image(&installer, &name, Architecture::Amd64, &output).unwrap()
        };
        let (one, other) = (make("one"), make("other"));
        assert_eq!((one.digest, one.size), (other.digest, other.size));
        let blob = |digest: &str| {
            let path = one.layout.join("blobs").join(digest.replace(':', "/"));
            fs::read(path).unwrap()
        };
        let manifest: serde_json::Value = serde_json::from_slice(&blob(&one.digest.oci())).unwrap();
        let config: serde_json::Value =
            serde_json::from_slice(&blob(manifest["config"]["digest"].as_str().unwrap())).unwrap();
        let process = &config["config"]["Entrypoint"];
        assert_eq!(*process, serde_json::json!(["/usr/bin/installer", "update", "from-pod"]));
        let layers = manifest["layers"].as_array().unwrap();
        assert_eq!(layers.len(), 1);
        let layer = blob(layers[0]["digest"].as_str().unwrap());
        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(layer.as_slice()));
        let entries: Vec<_> = archive
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap())
            .map(|entry| {
                (entry.path().unwrap().display().to_string(), entry.header().mode().unwrap() & 0o777)
            })
            .collect();
        assert_eq!(entries, [("usr/bin/installer".to_owned(), 0o755)]);
    }

    #[test]
    fn a_program_that_would_not_start_in_an_empty_image_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let name: ImageReference = runner_image_name().parse().unwrap();
        let script = directory.path().join("installer");
        fs::write(&script, "#!/bin/sh\n").unwrap();
        let choice = InstallerChoice::Named(vec![script]);
        let error = runner_image(&choice, &name, &directory.path().join("out")).unwrap_err();
        assert_eq!(base::failure::class_of(&error), base::failure::Class::Invalid);
        assert!(!directory.path().join("out").exists());
    }
}
