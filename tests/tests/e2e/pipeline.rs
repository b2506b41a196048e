//! Builds where there is no person: in a container of the builder's own image, and by the commands of `docs/how-to/ci.md`.

use std::collections::{BTreeMap, BTreeSet};
use std::env;
use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use base::digest::Digest;
use nix::unistd::Uid;
use nqrust_tests::artifacts::{Artifacts, scenario};
use nqrust_tests::ci_page::{self, JobContainer, Pipeline, PipelineScript};
use nqrust_tests::containers::ContainerHost;
use nqrust_tests::medium::{BUILD_LIMIT, copy_tree, lock, lock_file};
use nqrust_tests::node::Checks;
use nqrust_tests::{paths, programs};
use walkdir::WalkDir;

/// How long a container may take whose build finds out that it cannot begin.
const REFUSAL_LIMIT: Duration = Duration::from_secs(120);
/// The user of the image, with the same number as group.
const BUILDER: u32 = 1000;
/// In a configuration that must not be in any log.
const TOKEN: &str = "Not-In-Any-Log-41c7d0";

/// The persistent directory of these tests: downloads, and the locks that pin them.
fn kept() -> PathBuf {
    paths::e2e().join("pipeline-kept")
}

/// The downloads of one test; those of two would write the same files at the same time.
pub(crate) fn downloads(test: &str) -> Result<PathBuf> {
    let directory = kept().join("downloads").join(test);
    fs::create_dir_all(&directory)?;
    Ok(directory)
}

/// The minimal image with the kernel of virtual machines and without container images, in `directory`, locked: its build takes a minute.
pub(crate) fn small_definition(directory: &Path) -> Result<PathBuf> {
    let text = fs::read_to_string(paths::workspace().join("configs/images/minimal.yaml"))?;
    let (text, _) =
        text.split_once("\n# Container images to preload").context("the images of the definition")?;
    let mut text = text.to_owned();
    for (from, to) in
        [("id: nqrust-hypervisor-minimal", "id: edge"), ("- linux-image-amd64", "- linux-image-cloud-amd64")]
    {
        ensure!(text.contains(from), "the definition has no {from}");
        text = text.replace(from, to);
    }
    locked(directory, "image.yaml", &text)
}

/// Writes a definition, and the lock file that is kept for it; makes that where there is none.
fn locked(directory: &Path, name: &str, text: &str) -> Result<PathBuf> {
    fs::create_dir_all(directory)?;
    let definition = directory.join(name);
    fs::write(&definition, text)?;
    fs::create_dir_all(kept())?;
    let _lock = lock(&kept().join("lock"))?;
    let known = kept().join(format!("{}.lock", Digest::of(text.as_bytes())));
    if known.exists() {
        fs::copy(&known, lock_file(&definition))?;
    } else {
        let mut command = programs::iso_builder()?;
        command.arg("lock").arg(&definition).arg("--cache-dir").arg(kept().join("cache"));
        programs::run(&mut command, BUILD_LIMIT)?.success("iso-builder lock")?;
        fs::copy(lock_file(&definition), &known)?;
    }
    Ok(definition)
}

/// The layout of the builder's image, made in `directory` with a cache of its own.
pub(crate) fn builder_image(directory: &Path, downloads: &Path) -> Result<PathBuf> {
    let text = fs::read_to_string(paths::workspace().join("configs/builder/image.yaml"))?;
    let definition = locked(directory, "builder.yaml", &text)?;
    let layout = directory.join("builder-image");
    let mut command = programs::iso_builder()?;
    command.args(["builder-image", "--locked"]).arg(&definition).arg("-o").arg(&layout);
    command.arg("--installer").arg(paths::installer()?);
    command.arg("--cache-dir").arg(directory.join("cache")).arg("--downloads").arg(downloads);
    programs::run(&mut command, BUILD_LIMIT)?.success("iso-builder builder-image")?;
    Ok(layout)
}

fn files(directory: &Path) -> Result<BTreeMap<PathBuf, Digest>> {
    let mut files = BTreeMap::new();
    for entry in WalkDir::new(directory) {
        let entry = entry?;
        if entry.file_type().is_file() {
            let digest = Digest::of_reader(fs::File::open(entry.path())?)?.0;
            files.insert(entry.path().strip_prefix(directory)?.to_owned(), digest);
        }
    }
    Ok(files)
}

#[test]
fn a_build_in_a_container_by_an_ordinary_user_gives_the_bytes_of_one_outside() {
    scenario("pipeline-container", |artifacts| {
        ensure!(Uid::effective().is_root(), "containerd needs root");
        let downloads = downloads("container")?;
        let layout = builder_image(&artifacts.disk("image"), &downloads)?;
        let mut inspect = Command::new("skopeo");
        inspect.args(["inspect", "--config"]).arg(format!(
            "oci:{}:localhost/nqrust-iso-builder:{}",
            layout.display(),
            env!("CARGO_PKG_VERSION")
        ));
        let config = programs::run(&mut inspect, REFUSAL_LIMIT)?.success("skopeo inspect")?;
        let mut checks = Checks::default();
        checks.that("the image's user is an ordinary one", config.contains(r#""User": "builder""#));
        checks.that("its bill of materials is beside it", {
            fs::read_to_string(artifacts.disk("image/builder-image.spdx.json"))?
                .contains("pkg:deb/debian/mmdebstrap@")
        });

        let work = artifacts.disk("work");
        let definition = small_definition(&work)?;
        let mut outside = programs::iso_builder()?;
        outside.args(["build", "--locked", "--only", "full", "--sign-with", "development"]);
        outside.arg(&definition).arg("--installer");
        outside.arg(paths::installer()?).arg("-o").arg(artifacts.disk("outside"));
        outside.arg("--cache-dir").arg(artifacts.disk("cache")).arg("--downloads").arg(&downloads);
        programs::run(&mut outside, BUILD_LIMIT)?.success("the build outside")?;

        for name in ["tmp", "out"] {
            fs::create_dir_all(work.join(name))?;
        }
        copy_tree(&downloads, &work.join("downloads"))?;
        copy_tree(&paths::keys(), &work.join("keys"))?;
        give(&work)?;
        let mut host = ContainerHost::start(&layout, &artifacts.path("containerd.log"))?;
        refusals(&mut host, &work, &mut checks)?;
        let build =
            ["iso-builder", "build", "image.yaml", "--locked", "--offline", "--only", "full", "-o", "out"];
        let signing = ["--sign-with", "development", "--keys", "keys"];
        let stores = ["--cache-dir", "cache", "--downloads", "downloads"];
        let ended =
            host.run(&["--allow-new-privs"], &work, &[&build[..], &signing, &stores].concat(), BUILD_LIMIT)?;
        artifacts.append("inside.log", &ended.said())?;
        ended.success("the build in a container")?;
        let sums = |directory: PathBuf| -> Result<Vec<String>> {
            let text = fs::read_to_string(directory.join("SHA256SUMS"))?;
            // The provenance names the versions of the programs of its host.
            let same = text.lines().filter(|line| !line.ends_with("provenance.intoto.jsonl"));
            Ok(same.map(str::to_owned).collect())
        };
        checks.equal("SHA256SUMS", sums(work.join("out"))?, sums(artifacts.disk("outside"))?);
        // They would share all of them.
        checks.equal("the steps", steps(&work.join("cache"))?, steps(&artifacts.disk("cache"))?);
        checks.finish("a build in a container")
    });
}

/// The names of the steps in a cache, which follow from all that goes into them.
fn steps(cache: &Path) -> Result<BTreeSet<String>> {
    let names =
        fs::read_dir(cache.join("steps"))?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    names.collect()
}

/// A refusal by the container's defaults is reported at once, with the setting that allows it, before any download.
fn refusals(host: &mut ContainerHost, work: &Path, checks: &mut Checks) -> Result<()> {
    for (what, options, told) in [
        ("seccomp", &["--allow-new-privs", "--seccomp"][..], "seccomp=unconfined"),
        ("no new privileges", &[], "allowPrivilegeEscalation: true"),
    ] {
        let begun = Instant::now();
        let words = ["iso-builder", "build", "image.yaml", "-o", "refused", "--cache-dir", "refused-cache"];
        let ended = host.run(options, work, &words, BUILD_LIMIT)?;
        checks.equal(&format!("the exit code with {what}"), ended.code, 3);
        checks.that(&format!("{what} is told: {}", ended.stderr), ended.stderr.contains(told));
        checks.that(&format!("{what} is told soon"), begun.elapsed() < REFUSAL_LIMIT);
        checks
            .that("nothing was made", !work.join("refused-cache").exists() && !work.join("refused").exists());
    }
    Ok(())
}

/// Gives a tree to the user of the image.
pub(crate) fn give(directory: &Path) -> Result<()> {
    for entry in WalkDir::new(directory) {
        let entry = entry?;
        if !entry.file_type().is_symlink() {
            chown(entry.path(), Some(BUILDER), Some(BUILDER))?;
        }
    }
    Ok(())
}

#[test]
#[ignore = "two installs of the image's packages: `make soak` runs it"]
fn two_images_of_the_builder_have_the_same_bytes() {
    scenario("pipeline-image", |artifacts| {
        let downloads = downloads("image")?;
        let [first, second] =
            ["first", "second"].map(|name| builder_image(&artifacts.disk(name), &downloads));
        let mut checks = Checks::default();
        checks.equal("the files of the layouts", files(&second?)?, files(&first?)?);
        checks.finish("two images of the builder")
    });
}

#[test]
fn the_commands_of_the_page_for_pipelines_do_what_it_says() {
    scenario("pipeline-page", |artifacts| {
        let project = artifacts.disk("project");
        small_definition(&project)?;
        fs::create_dir_all(project.join("cache"))?;
        symlink(downloads("page")?, project.join("cache/downloads"))?;
        fs::copy(paths::keys().join("development.pub"), project.join("release.pub"))?;
        let key = fs::read_to_string(paths::keys().join("development.key"))?;
        let node = format!(
            "token: {TOKEN}\nos: {{hostname: node-1, password: {TOKEN}}}\n\
             install: {{automatic: true, device: /dev/vda, vip: 192.0.2.10}}\n"
        );
        let run = PageRun { artifacts, project, node, key };
        let mut checks = Checks::default();
        for pipeline in ci_page::pipelines(&ci_page::page()?)? {
            match pipeline {
                Pipeline::GitHub(steps) => run.github(&steps, &mut checks)?,
                Pipeline::GitLab(jobs, variables) => run.gitlab(&jobs, &variables, &mut checks)?,
                Pipeline::Kubernetes(containers) => run.kubernetes(&containers, &mut checks)?,
            }
        }
        let log = fs::read_to_string(artifacts.path("commands.log"))?;
        let secret = run.key.lines().nth(1).context("the line of the key")?;
        checks.that("no secret is in what the commands said", !log.contains(TOKEN) && !log.contains(secret));
        checks.finish("the pipelines of docs/how-to/ci.md")
    });
}

/// A run of the page's commands, one pipeline after the other, in one project with one cache.
struct PageRun<'a> {
    artifacts: &'a Artifacts,
    project: PathBuf,
    /// The configuration of a node, a secret.
    node: String,
    /// The key that signs, another one.
    key: String,
}

impl PageRun<'_> {
    fn github(&self, steps: &[PipelineScript], checks: &mut Checks) -> Result<()> {
        let summary = self.artifacts.path("github-summary.md");
        for step in steps {
            let mut command = self.shell(step)?;
            command.env("GITHUB_STEP_SUMMARY", &summary);
            for secret in &step.secrets {
                command.env(secret, self.secret(secret)?);
            }
            self.run(&step.name, command)?;
        }
        checks.that("the summary has tables", fs::read_to_string(&summary)?.contains("\n|---"));
        let site = self.project.join("site");
        checks.that("the clear text of the secret is gone", !site.join("node.yaml").exists());
        self.artifacts("dist", &site.join("edge.iso"), checks)
    }

    fn gitlab(
        &self,
        jobs: &[PipelineScript],
        variables: &[(String, String)],
        checks: &mut Checks,
    ) -> Result<()> {
        // A variable of the type file.
        let file = self.artifacts.disk("node.yaml");
        fs::write(&file, &self.node)?;
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600))?;
        let project = self.project.display().to_string();
        for job in jobs {
            let mut command = self.shell(job)?;
            command.env("CI_PROJECT_DIR", &project).env("NODE_CONFIGURATION", &file);
            command.env("RELEASE_KEY", self.secret("RELEASE_KEY")?);
            for (name, value) in variables {
                command.env(name, value.replace("$CI_PROJECT_DIR", &project));
            }
            self.run(&job.name, command)?;
        }
        checks.that("there is a summary", self.project.join("summary.md").is_file());
        self.artifacts("dist", &self.project.join("edge-site.iso"), checks)
    }

    fn kubernetes(&self, containers: &[JobContainer], checks: &mut Checks) -> Result<()> {
        let (media, secrets) = (self.artifacts.disk("media"), self.artifacts.disk("secret"));
        fs::create_dir_all(&media)?;
        fs::create_dir_all(&secrets)?;
        fs::write(secrets.join("node.yaml"), &self.node)?;
        fs::write(secrets.join("release.key"), &self.key)?;
        let cache = self.project.join("cache");
        let volume = |name: &str| match name {
            "definition" => Ok(&self.project),
            "cache" => Ok(&cache),
            "media" => Ok(&media),
            "node" => Ok(&secrets),
            _ => anyhow::bail!("a volume {name} that the test does not know"),
        };
        for container in containers {
            let mut command = self.program(&paths::iso_builder()?)?;
            for arg in &container.args {
                let mut word = arg.clone();
                for (name, path) in &container.mounts {
                    if word == *path || word.starts_with(&format!("{path}/")) {
                        word = format!("{}{}", volume(name)?.display(), &word[path.len()..]);
                        break;
                    }
                }
                command.arg(word);
            }
            self.run(&container.name, command)?;
        }
        checks.that("there is a summary", media.join("summary.md").is_file());
        let site = media.join("edge-site.iso");
        fs::rename(media.join("dist"), self.project.join("media"))?;
        self.artifacts("media", &site, checks)
    }

    /// Checks what a pipeline leaves, and removes it, so that the next one makes its own.
    fn artifacts(&self, directory: &str, site: &Path, checks: &mut Checks) -> Result<()> {
        let directory = self.project.join(directory);
        let iso = concat!("edge-", env!("CARGO_PKG_VERSION"), "-amd64.iso");
        for name in [
            iso,
            "SHA256SUMS",
            "sbom.spdx.json",
            "provenance.intoto.jsonl",
            "build-report.json",
            "release.json",
        ] {
            checks.that(&format!("{name} is among the artifacts"), directory.join(name).is_file());
        }
        let mode = fs::metadata(site).with_context(|| format!("finding {}", site.display()))?.permissions();
        checks.equal("the mode of a medium with secrets", mode.mode() & 0o777, 0o600);
        fs::remove_file(site)?;
        Ok(fs::remove_dir_all(directory)?)
    }

    /// What the pipeline keeps as a secret of this name.
    fn secret(&self, name: &str) -> Result<&str> {
        match name {
            "NODE_CONFIGURATION" => Ok(&self.node),
            "RELEASE_KEY" => Ok(&self.key),
            // The key of the tests has none.
            "NQRUST_KEY_PASSPHRASE" => Ok(""),
            _ => anyhow::bail!("a secret {name} that the test does not know"),
        }
    }

    /// The shell of a step or a job.
    fn shell(&self, script: &PipelineScript) -> Result<Command> {
        let mut command = self.program(Path::new("sh"))?;
        command.args(["-e", "-c", &script.text]);
        Ok(command)
    }

    fn program(&self, program: &Path) -> Result<Command> {
        let programs = paths::iso_builder()?;
        let directory = programs.parent().context("the directory of the programs")?;
        let path = env::var_os("PATH").unwrap_or_default();
        let path = env::join_paths([directory.to_owned()].into_iter().chain(env::split_paths(&path)))?;
        let mut command = Command::new(program);
        command.current_dir(&self.project).env("PATH", path);
        Ok(command)
    }

    fn run(&self, name: &str, mut command: Command) -> Result<()> {
        let ended = programs::run(&mut command, BUILD_LIMIT)?;
        self.artifacts.append("commands.log", &format!("== {name}\n{}", ended.said()))?;
        ended.success(name).map(drop)
    }
}
