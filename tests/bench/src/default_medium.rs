//! Builds of the default definition, with Kubernetes and its container images.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use nqrust_tests::artifacts::Artifacts;
use nqrust_tests::medium;

use crate::builds::NOTHING_TO_DO_LIMIT;
use crate::figure::{Figure, RatioLimit, median};
use crate::timing::seconds_of;

/// For all container images until they are in an ISO, in seconds.
const IMAGES_LIMIT: f64 = 120.0;
/// What the names of the steps begin with that make, import and store container images.
const IMAGE_STEPS: [&str; 2] = ["image", "kubernetes-images"];
const ROUNDS: u32 = 5;

/// Builds the default medium; then with nothing changed, and with all steps of container images to do.
pub(crate) fn measure(artifacts: &Artifacts) -> Result<Vec<Figure>> {
    let root = artifacts.disk("default-medium");
    let definition = medium::stage_kubernetes(&root.join("source"))?;
    let cache = root.join("cache");
    let build = |further: &[&str]| -> Result<f64> {
        let mut command = medium::build_command(&definition, &root.join("out"), &cache)?;
        seconds_of(command.args(further), medium::BUILD_LIMIT)
    };
    build(&[])?;
    let again = (0..ROUNDS).map(|_| build(&["--locked"])).collect::<Result<Vec<_>>>()?;
    forget_images(&cache.join("steps"))?;
    fs::remove_dir_all(root.join("out"))?;
    let images = build(&["--locked", "--offline", "--only", "full"])?;
    fs::remove_dir_all(root)?;
    let limit = NOTHING_TO_DO_LIMIT.as_secs_f64();
    Ok(vec![
        Figure::new("build with nothing changed, with Kubernetes", median(again), "s", ("limit", limit))
            .limit(RatioLimit::AtMost(1.0)),
        Figure::new("all images of the default medium into an ISO", images, "s", ("limit", IMAGES_LIMIT))
            .limit(RatioLimit::AtMost(1.0)),
    ])
}

/// Removes the finished steps of container images.
fn forget_images(steps: &Path) -> Result<()> {
    let mut found = 0;
    for entry in fs::read_dir(steps).with_context(|| format!("reading {}", steps.display()))? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if IMAGE_STEPS.iter().any(|step| name.starts_with(step)) {
            fs::remove_dir_all(entry.path())?;
            found += 1;
        }
    }
    ensure!(found >= 3, "only {found} steps of container images in {}", steps.display());
    Ok(())
}
