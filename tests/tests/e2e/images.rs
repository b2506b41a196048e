//! Container images from real registries on real media: what is fetched, how often, and what happens if the connection
//! fails.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use model::release::{Purpose, Release};
use nix::unistd::Uid;
use nqrust_tests::artifacts::{Artifacts, scenario};
use nqrust_tests::faults::{Fault, Relay};
use nqrust_tests::identity::Identity;
use nqrust_tests::medium::{self, Medium};
use nqrust_tests::node::{Checks, Document};
use nqrust_tests::paths;
use nqrust_tests::programs::{self, ProgramOutput};
use nqrust_tests::registry::{Layout, Registry, RegistryAccess, USER};
use serde_json::{Value, json};

/// The time limit of resolving, pulling and assembling, with the rest of the build in the cache.
const BUILD: Duration = Duration::from_secs(900);
/// The time limit of retries before a failure is reported.
const TIMEOUT: Duration = Duration::from_secs(300);

/// The host of the registry in definitions; only mirrors have its address.
const NAME: &str = "registry.nqrust.test";

/// Incompressible bytes, the same for the same seed.
fn noise(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let step = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    std::iter::repeat_with(step).take(length).collect()
}

/// A registry with 30 images that share their lower layers, one in Docker's schema 2, one with zstd layers, and one for
/// two architectures.
fn fill(artifacts: &Artifacts, registry: &Registry) -> Result<Vec<String>> {
    let layout = Layout::new(&artifacts.disk("layout"))?;
    layout.image("base", None, &[("base/data", &noise(1, 3 << 20))])?;
    let mut names = Vec::new();
    for number in 0..30_u64 {
        let name = format!("app-{number}");
        layout.image(&name, Some("base"), &[("app/data", &noise(100 + number, 20 << 10))])?;
        registry.push(&layout.source(&name), &format!("apps/{name}:1"), &[])?;
        names.push(format!("{NAME}/apps/{name}:1"));
    }
    registry.push(&layout.source("base"), "docker/schema2:1", &["--format", "v2s2"])?;
    registry.push(&layout.source("base"), "oci/zstd:1", &["--dest-compress-format", "zstd"])?;
    layout.image("other", None, &[("other/data", &noise(2, 4 << 20))])?;
    layout.architecture("other", "arm64")?;
    registry.push(&layout.source("app-0"), "multi/all:amd64", &[])?;
    registry.push(&layout.source("other"), "multi/all:arm64", &[])?;
    registry.put_index("multi/all", "1", &[("arm64", "arm64"), ("amd64", "amd64")])?;
    names.extend(["docker/schema2", "oci/zstd", "multi/all"].map(|name| format!("{NAME}/{name}:1")));
    Ok(names)
}

/// The repository's definition with these images and mirrors.
fn definition(artifacts: &Artifacts, preload: &Value, registries: &Value) -> Result<PathBuf> {
    let shared = Document::new("node-a").to_json(&Identity::load()?);
    let definition = medium::stage(&artifacts.disk("source"), &shared)?;
    let mut document: serde_yaml::Value = serde_yaml::from_slice(&fs::read(&definition)?)?;
    document["images"]["preload"] = serde_yaml::to_value(preload)?;
    document["registries"] = serde_yaml::to_value(registries)?;
    fs::write(&definition, serde_yaml::to_string(&document)?)?;
    Ok(definition)
}

/// Adds the images that the repository's definition builds from packages: with the same packages the lock of the shared
/// media fits, and everything else comes from the shared cache.
fn beside_built(mut preload: Vec<Value>) -> Result<Value> {
    let text = fs::read(paths::workspace().join(medium::DEFINITION))?;
    let document: serde_yaml::Value = serde_yaml::from_slice(&text)?;
    let entries = document["images"]["preload"].as_sequence().context("images of the definition")?;
    for entry in entries.iter().filter(|entry| entry.get("layers").is_some()) {
        preload.push(serde_json::to_value(entry)?);
    }
    Ok(Value::Array(preload))
}

fn mirror(port: u16) -> Value {
    json!({ "mirrors": { NAME: { "endpoint": [format!("http://127.0.0.1:{port}")] } } })
}

/// `iso-builder images` with a cache of its own: it needs a registry, but no build.
fn list(artifacts: &Artifacts, name: &str, definition: &Path) -> Result<Command> {
    let mut command = programs::iso_builder()?;
    command.args(["images", "--progress", "plain"]).arg(definition);
    command.arg("--cache-dir").arg(artifacts.disk(name));
    Ok(command)
}

#[test]
fn images_are_pulled_once_and_checked_and_a_second_build_fetches_only_what_is_missing() {
    scenario("images-pulled", |artifacts| {
        // The media of the install tests; their build fills the cache.
        let identity = Identity::load()?;
        Medium::shared("node-a", &Document::new("node-a").to_json(&identity))?;
        let media = paths::e2e().join("media");
        let registry = Registry::start(&artifacts.disk("registry"), RegistryAccess::default())?;
        let names = fill(artifacts, &registry)?;
        let relay = Relay::start(registry.port())?;
        let preload = names.iter().map(|name| json!({ "image": name, "roles": ["management"] })).collect();
        let definition = definition(artifacts, &beside_built(preload)?, &mirror(relay.port()))?;
        let downloads = artifacts.disk("downloads");
        fs::create_dir_all(&downloads)?;
        let build = |out: &str| -> Result<ProgramOutput> {
            let _lock = medium::lock(&media.join("lock"))?;
            let mut command = medium::build_command(&definition, &artifacts.disk(out), &media.join("cache"))?;
            command.args(["--only", "full", "--downloads"]).arg(&downloads);
            programs::run(&mut command, BUILD)
        };
        let mut checks = Checks::default();

        // Packages come from a downloads directory of their own too; only bytes through the relay are counted.
        relay.next(&[Fault::Cut(200_000), Fault::Corrupt(150_000), Fault::Cut(1_000)]);
        let first = build("out")?;
        artifacts.append("build.log", &first.said())?;
        first.success("a build through a bad connection")?;
        let release = Medium::in_directory(&artifacts.disk("out"))?.release()?;
        check_release(&release, &names, &mut checks);
        let (unique, largest) = pulled_bytes(&release);
        let fetched = relay.sent();
        // The blob that was damaged in transit was fetched twice.
        checks.that(&format!("{fetched} bytes fetched are the blobs' {unique} and little more"), {
            (unique..unique + unique / 10 + (1 << 20) + largest).contains(&fetched)
        });
        let other = noise(2, 4 << 20).len() as u64;
        checks.that("the registry keeps another platform's layers", registry.stored()? > unique + other / 2);

        build("again")?.success("a second build")?;
        checks.equal("bytes fetched by a second build", relay.sent(), 0);

        // A tag that moves keeps its locked digest until it is locked anew.
        let before = fs::read(medium::lock_file(&definition))?;
        let layout = Layout::new(&artifacts.disk("moved"))?;
        layout.image("moved", None, &[("moved", b"moved")])?;
        registry.push(&layout.source("moved"), "apps/app-0:1", &[])?;
        build("again")?.success("a third build")?;
        checks.that("the lock has not moved", fs::read(medium::lock_file(&definition))? == before);

        damage_and_repair(artifacts, &definition, &downloads, &relay, &build, &mut checks)?;
        checks.finish("images of a registry")
    });
}

/// Bytes of the blobs that images of the registry have, each counted once, and of the largest blob.
fn pulled_bytes(release: &Release) -> (u64, u64) {
    let pulled = release.images.iter().filter(|image| image.name.starts_with(NAME));
    let blobs: BTreeSet<_> = pulled.flat_map(|image| image.blobs.iter().copied()).collect();
    let payloads = release.payloads(Purpose::ImageBlob);
    let sizes: Vec<_> =
        payloads.filter(|payload| blobs.contains(&payload.sha256)).map(|payload| payload.size).collect();
    (sizes.iter().sum(), sizes.iter().copied().max().unwrap_or(0))
}

/// Checks what the release manifest says about the images.
fn check_release(release: &Release, names: &[String], checks: &mut Checks) {
    let listed: Vec<_> = release.images.iter().map(|image| image.name.as_str()).collect();
    for name in names {
        checks.that(&format!("{name} is in the release manifest"), listed.contains(&name.as_str()));
    }
    let blobs: Vec<_> = release.payloads(Purpose::ImageBlob).map(|payload| payload.sha256).collect();
    let mut unique = blobs.clone();
    unique.sort_unstable();
    unique.dedup();
    checks.equal("blobs listed, each once", blobs.len(), unique.len());
}

/// A damaged blob of the cache is fetched again, and nothing else is.
fn damage_and_repair(
    artifacts: &Artifacts,
    definition: &Path,
    downloads: &Path,
    relay: &Relay,
    build: &dyn Fn(&str) -> Result<ProgramOutput>,
    checks: &mut Checks,
) -> Result<()> {
    let blobs = fs::read_dir(downloads.join("blobs"))?.collect::<std::io::Result<Vec<_>>>()?;
    let largest = blobs.iter().max_by_key(|entry| entry.metadata().map_or(0, |metadata| metadata.len()));
    let path = largest.context("a blob in the cache")?.path();
    let good = fs::read(&path)?;
    let mut bad = good.clone();
    bad[good.len() / 2] ^= 1;
    // A new file: the cache's file of the blob may be a hard link to the store's.
    fs::remove_file(&path)?;
    fs::write(&path, &bad)?;
    // Other roles, so that the store is assembled again.
    let text = fs::read_to_string(definition)?;
    fs::write(definition, text.replace("- management", "- worker"))?;
    relay.sent();
    let ended = build("repaired")?;
    artifacts.append("build.log", &ended.said())?;
    ended.success("a build with a damaged cache")?;
    let fetched = relay.sent();
    let size = good.len() as u64;
    checks.that(&format!("{fetched} bytes repair a blob of {size}"), {
        (size..size + (64 << 10)).contains(&fetched)
    });
    checks.that("the cache is sound again", fs::read(&path)? == good);
    Ok(())
}

#[test]
fn a_registry_that_wants_tls_and_a_password_gets_both_from_the_usual_places() {
    scenario("images-credentials", |artifacts| {
        let password = "Not-In-Any-Log-7f3a";
        let registry = Registry::start(
            &artifacts.disk("registry"),
            RegistryAccess { password: Some(password), tls: true },
        )?;
        let layout = Layout::new(&artifacts.disk("layout"))?;
        layout.image("web", None, &[("data", b"web")])?;
        registry.push(&layout.source("web"), "app/web:1", &[])?;
        let image = format!("{}/app/web:1", registry.host());
        let tls = json!({ "configs": { registry.host(): { "tls": { "ca_file": registry.authority() } } } });
        let definition = definition(artifacts, &json!([{ "image": image }]), &tls)?;

        let docker = artifacts.disk("docker");
        fs::create_dir_all(docker.join("bin"))?;
        let mut checks = Checks::default();
        let config = docker.join("config.json");
        let mut tries = 0;
        let mut attempt = |content: &Value| -> Result<ProgramOutput> {
            tries += 1;
            fs::write(&config, content.to_string())?;
            let mut command = list(artifacts, &format!("cache-{tries}"), &definition)?;
            let path = std::env::var("PATH").unwrap_or_default();
            command
                .env("DOCKER_CONFIG", &docker)
                .env("PATH", format!("{}:{path}", docker.join("bin").display()));
            let ended = programs::run(&mut command, TIMEOUT)?;
            checks.that("the password is in no output", !ended.said().contains(password));
            Ok(ended)
        };
        let auth = |password: &str| STANDARD.encode(format!("{USER}:{password}"));
        let good = attempt(&json!({ "auths": { registry.host(): { "auth": auth(password) } } }))?;
        let helper = docker.join("bin/docker-credential-tests");
        let answer = json!({ "ServerURL": registry.host(), "Username": USER, "Secret": password });
        fs::write(&helper, format!("#!/bin/sh\ncat > /dev/null\necho '{answer}'\n"))?;
        fs::set_permissions(&helper, fs::Permissions::from_mode(0o755))?;
        let helped = attempt(&json!({ "credHelpers": { registry.host(): "tests" } }))?;
        let wrong = attempt(&json!({ "auths": { registry.host(): { "auth": auth("wrong") } } }))?;
        let nobody = attempt(&json!({}))?;
        let absent = attempt(&json!({ "credHelpers": { registry.host(): "absent" } }))?;
        for (case, ended) in [("config.json", good), ("a credential helper", helped)] {
            let listed = ended.success(case)?;
            checks.contains(case, &listed, &image);
        }
        for (case, ended, words) in [
            ("a wrong password", wrong, "app/web"),
            ("no password", nobody, "app/web"),
            ("a helper that is not there", absent, "docker-credential-absent"),
        ] {
            checks.equal(&format!("{case}: the exit code"), ended.code, 5);
            checks.contains(case, &ended.stderr, words);
            checks.contains(case, &ended.stderr, "next: ");
        }
        checks.finish("credentials")
    });
}

#[test]
fn failed_pulls_are_reported_with_their_exit_code_and_the_cache_stays_valid() {
    scenario("images-refused", |artifacts| {
        let registry = Registry::start(&artifacts.disk("registry"), RegistryAccess::default())?;
        let layout = Layout::new(&artifacts.disk("layout"))?;
        layout.image("web", None, &[("data", &noise(7, 1 << 20))])?;
        registry.push(&layout.source("web"), "app/web:1", &[])?;
        layout.architecture("web", "arm64")?;
        registry.push(&layout.source("web"), "app/arm:1", &[])?;
        registry.put_index("app/arm", "index", &[("arm64", "1")])?;
        let absent = "0".repeat(64);
        let down = json!({ "mirrors": { NAME: { "endpoint": ["http://127.0.0.1:1"] } } });
        let there = mirror(registry.port());
        let cases = [
            ("a registry that is down", "app/web:1".to_owned(), &down, 5, vec!["127.0.0.1:1"]),
            ("a tag that is missing", "app/web:2".to_owned(), &there, 5, vec!["app/web:2"]),
            (
                "a digest that is missing",
                format!("app/web@sha256:{absent}"),
                &there,
                5,
                vec!["app/web@sha256:0"],
            ),
            ("another platform", "app/arm:index".to_owned(), &there, 2, vec!["linux/amd64", "linux/arm64"]),
        ];
        let mut checks = Checks::default();
        thread::scope(|scope| -> Result<()> {
            let running: Vec<_> = cases
                .iter()
                .enumerate()
                .map(|(number, (case, image, registries, code, words))| {
                    scope.spawn(move || -> Result<_> {
                        let own = artifacts.disk(&format!("case-{number}"));
                        fs::create_dir_all(&own)?;
                        let place = Artifacts::new(&format!("images-refused-{number}"))?;
                        let preload = json!([{ "image": format!("{NAME}/{image}") }]);
                        let definition = definition(&place, &preload, registries)?;
                        let ended = programs::run(&mut list(&place, "cache", &definition)?, TIMEOUT)?;
                        Ok((*case, image, *code, words, ended))
                    })
                })
                .collect();
            for thread in running {
                let Ok(outcome) = thread.join() else { anyhow::bail!("a case panicked") };
                let (case, image, code, words, ended) = outcome?;
                artifacts.append("refusals.log", &format!("{case}:\n{}\n", ended.said()))?;
                checks.equal(&format!("{case}: the exit code"), ended.code, code);
                checks.contains(case, &ended.stderr, image);
                checks.contains(case, &ended.stderr, "next: ");
                for word in words {
                    checks.contains(case, &ended.stderr, word);
                }
            }
            Ok(())
        })?;
        full_disk(artifacts, &registry, &mut checks)?;
        checks.finish("refusals")
    });
}

/// Blobs that do not fit on the disk: exit code 6, a message with the image, and no incomplete file with a blob's name.
fn full_disk(artifacts: &Artifacts, registry: &Registry, checks: &mut Checks) -> Result<()> {
    // A small file system needs a mount, which needs root; it belongs to the test and is unmounted at its end.
    if !Uid::effective().is_root() {
        return Ok(());
    }
    let preload = beside_built(vec![json!({ "image": format!("{NAME}/app/web:1") })])?;
    Medium::shared("node-a", &Document::new("node-a").to_json(&Identity::load()?))?;
    let definition = definition(artifacts, &preload, &mirror(registry.port()))?;
    let media = paths::e2e().join("media");
    let downloads = artifacts.disk("small");
    fs::create_dir_all(&downloads)?;
    let _lock = medium::lock(&media.join("lock"))?;
    let mut build = medium::build_command(&definition, &artifacts.disk("out"), &media.join("cache"))?;
    build.args(["--only", "full", "--downloads"]).arg(&downloads);
    let mut command = Command::new("unshare");
    let script =
        "mount -t tmpfs -o size=512k none \"$0\" && { \"$@\"; code=$?; ls \"$0/blobs\"; exit $code; }";
    command.args(["--mount", "sh", "-c", script]).arg(&downloads);
    command.arg(build.get_program()).args(build.get_args());
    let ended = programs::run(&mut command, BUILD)?;
    artifacts.append("refusals.log", &format!("a full disk:\n{}\n", ended.said()))?;
    checks.equal("a full disk: the exit code", ended.code, 6);
    checks.contains("a full disk", &ended.stderr, &format!("{NAME}/app/web:1"));
    checks.contains("a full disk", &ended.stderr, "No space left");
    Ok(())
}
