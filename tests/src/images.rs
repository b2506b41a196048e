//! The container images that are added to the media under test: one that only management nodes get, and one from an
//! archive in Docker's format.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::Result;
use serde_json::{Value, json};

use crate::medium::{copy_tree, lock};
use crate::paths;
use crate::programs;
use crate::registry::Layout;

/// Only management nodes get it.
pub const CONTROL: &str = "registry.nqrust.test/e2e/control:1";
/// Comes from an archive in Docker's own format.
pub const DOCKER: &str = "registry.nqrust.test/e2e/docker:1";

const LIMIT: Duration = Duration::from_secs(120);

/// The entries of `images.preload` for these images; their files are put beside the definition in `directory`.
pub fn entries(directory: &Path) -> Result<Vec<Value>> {
    let made = paths::e2e().join("images");
    fs::create_dir_all(paths::e2e())?;
    let _lock = lock(&paths::e2e().join("images-lock"))?;
    // Kept, because umoci writes the current time into an image: a new one would change the media each time.
    if !made.join("done").exists() {
        if made.exists() {
            fs::remove_dir_all(&made)?;
        }
        make(&made)?;
        fs::write(made.join("done"), "")?;
    }
    copy_tree(&made, &directory.join("e2e-images"))?;
    Ok(vec![
        json!({ "layout": "e2e-images/layout", "references": [CONTROL], "roles": ["management"] }),
        json!({ "archive": "e2e-images/docker.tar" }),
    ])
}

fn make(directory: &Path) -> Result<()> {
    fs::create_dir_all(directory)?;
    let layout = Layout::new(&directory.join("layout"))?;
    layout.image("base", None, &[("etc/e2e-base", b"base")])?;
    layout.image("control", Some("base"), &[("etc/e2e-control", b"control")])?;
    layout.image("docker", Some("base"), &[("etc/e2e-docker", b"docker")])?;
    layout.rename("control", CONTROL)?;
    let mut skopeo = Command::new("skopeo");
    let archive = format!("docker-archive:{}:{DOCKER}", directory.join("docker.tar").display());
    skopeo.args(["copy", "--quiet"]).arg(layout.source("docker")).arg(archive);
    programs::run(&mut skopeo, LIMIT)?.success("skopeo copy").map(drop)
}
