//! Manifests and charts that the OS image ships, which the first server of a cluster applies like those of the node document.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use super::cluster_node::{manifests, starts_cluster};
use base::files;
use machine::node_files::NodeFile;
use model::config::InstallConfig;
use model::os_image::SHIPPED_MANIFESTS;

/// Sets them apart from the document's manifests, those made from its other keys, and those of the distributions.
const PREFIX: &str = "image-";
/// In bytes; larger than any file there.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// The chart of the hypervisor among what an image ships: a chart of the definition with the name `harvester`.
const HYPERVISOR: &str = "chart-harvester.yaml";

/// Whether the image below `root` brings the charts of the hypervisor, and with them its kinds and controllers.
#[must_use]
pub fn ships_hypervisor(root: &Path) -> bool {
    root.join(SHIPPED_MANIFESTS).join(HYPERVISOR).is_file()
}

/// The files by which the first server applies what the image below `root` ships, sorted. Empty for other nodes.
pub fn shipped(config: &InstallConfig, root: &Path) -> Result<Vec<NodeFile>> {
    let directory = root.join(SHIPPED_MANIFESTS);
    if !starts_cluster(config) || !directory.is_dir() {
        return Ok(Vec::new());
    }
    let applied = manifests(config.kubernetes.distribution());
    let mut made = Vec::new();
    for entry in fs::read_dir(&directory).with_context(|| format!("reading {}", directory.display()))? {
        let entry = entry.with_context(|| format!("reading {}", directory.display()))?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !entry.path().is_file() || !name.ends_with(".yaml") || name.starts_with('.') {
            continue;
        }
        let bytes = files::read_at_most(&entry.path(), FILE_BYTES_MAX)?;
        let path = format!("{applied}/{PREFIX}{name}");
        made.push(NodeFile { bytes, ..NodeFile::new(&path, 0o600, "") });
    }
    made.sort_by(|one, other| one.path.cmp(&other.path));
    Ok(made)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::config::parse;

    fn image() -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        let directory = root.path().join(SHIPPED_MANIFESTS);
        fs::create_dir_all(directory.join("more.yaml")).unwrap();
        for name in ["manifest-web.yaml", "chart-db.yaml", "README", ".hidden.yaml"] {
            fs::write(directory.join(name), name).unwrap();
        }
        root
    }

    #[test]
    fn the_first_server_gets_what_the_image_ships() {
        let root = image();
        for distribution in ["rke2", "k3s"] {
            let config = parse(&format!("kubernetes: {{distribution: {distribution}}}"), "f").unwrap();
            let files = shipped(&config, root.path()).unwrap();
            let told: Vec<(&str, u32, &[u8])> =
                files.iter().map(|file| (&*file.path, file.mode, &*file.bytes)).collect();
            let at =
                |name: &str| format!("var/lib/rancher/{distribution}/server/manifests/image-{name}.yaml");
            let (chart, manifest) = (at("chart-db"), at("manifest-web"));
            let expected: [(&str, u32, &[u8]); 2] =
                [(&chart, 0o600, b"chart-db.yaml"), (&manifest, 0o600, b"manifest-web.yaml")];
            assert_eq!(told, expected);
        }
    }

    #[test]
    fn an_image_brings_the_hypervisor_by_a_chart_of_its_name() {
        let root = image();
        assert!(!ships_hypervisor(root.path()));
        fs::write(root.path().join(SHIPPED_MANIFESTS).join(HYPERVISOR), "x").unwrap();
        assert!(ships_hypervisor(root.path()));
    }

    #[test]
    fn nobody_else_gets_it_and_an_image_may_ship_nothing() {
        let root = image();
        for text in [
            "install: {mode: install}",
            "server_url: https://192.0.2.10\ntoken: a\ninstall: {mode: join, role: management}",
            "server_url: https://192.0.2.10\ntoken: a\ninstall: {mode: join, role: worker}",
        ] {
            assert_eq!(shipped(&parse(text, "f").unwrap(), root.path()).unwrap(), [], "{text}");
        }
        let empty = tempfile::tempdir().unwrap();
        assert_eq!(shipped(&parse("{}", "f").unwrap(), empty.path()).unwrap(), []);
    }
}
