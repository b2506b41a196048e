//! Two builds of one definition give the same bytes, wherever and by whoever they are made.
//!
//! The second build shares only the downloads with the first: with the whole cache it would reuse finished steps and
//! prove nothing.

use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use base::digest::Digest;
use nqrust_tests::artifacts::scenario;
use nqrust_tests::builder::BuilderDirectory;
use nqrust_tests::identity::Identity;
use nqrust_tests::medium::{self, Medium};
use nqrust_tests::node::{Checks, Document};
use nqrust_tests::paths;
use nqrust_tests::programs;
use nqrust_tests::steps;

/// The directory of downloads in a build cache, with digests as file names.
const DOWNLOADS: &str = "downloads";

#[test]
fn two_builds_by_different_users_in_different_places_and_ways_give_identical_isos() {
    scenario("reproducible", |artifacts| {
        let identity = Identity::load()?;
        let first = steps::medium(&identity)?;
        let media = paths::e2e().join("media");

        let place = BuilderDirectory::new()?;
        let definition = medium::stage(&place.path("src"), &Document::new("node-a").to_json(&identity))?;
        let locked = medium::lock_file(&media.join("node-a/source").join(medium::DEFINITION));
        fs::copy(locked, medium::lock_file(&definition)).context("copying the lock of the first build")?;
        medium::copy_tree(&media.join("cache").join(DOWNLOADS), &place.path(DOWNLOADS))?;

        let mut build = second_build(&place, &definition)?;
        let ended = programs::run(&mut build, medium::BUILD_LIMIT)?;
        artifacts.append("build.log", &ended.said())?;
        ended.success("the second build")?;
        let second = Medium::in_directory(&place.path("out"))?;

        let mut checks = Checks::default();
        let pairs = [
            ("full", Some(&first.full), Some(&second.full)),
            ("net-install", first.net_install.as_ref(), second.net_install.as_ref()),
        ];
        for (name, first, second) in pairs {
            let (first, second) = (first.context(name)?, second.context(name)?);
            checks.equal(&format!("the digest of the {name} ISO"), digest(second)?, digest(first)?);
        }
        if let Err(error) = checks.finish("two builds") {
            fs::copy(&second.full, artifacts.path("second.iso"))?;
            return Err(error.context(format!("{} and second.iso differ", first.full.display())));
        }
        Ok(())
    });
}

fn digest(path: &Path) -> Result<Digest> {
    let file = fs::File::open(path).with_context(|| format!("opening {}", path.display()))?;
    Ok(Digest::of_reader(file)?.0)
}

/// The build of `definition` with everything changed that must not matter.
fn second_build(place: &BuilderDirectory, definition: &Path) -> Result<Command> {
    let mut command = place.build(definition)?;
    command.args(["--locked", "--offline", "--downloads"]).arg(place.path(DOWNLOADS));
    command.env("TZ", "Pacific/Kiritimati").env("LC_ALL", "C").env("LANG", "C");
    command.env_remove("SOURCE_DATE_EPOCH").env_remove("CARGO_TARGET_DIR");
    Ok(command)
}
