//! Images of several variants, built by the Job of `configs/builder/images.yaml` in pods that share their steps in a registry.
//!
//! A container of the same image, elsewhere, has made another variant and given the registry its steps. The pods fetch what they have in common with it, make the
//! rest, and give that away too; the pods of a second Job, with empty disks as well, make nothing. What they publish is what a builder
//! outside makes alone.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base::files::parent;
use model::config::Role;
use nqrust_tests::containers::ContainerHost;
use nqrust_tests::deadline::{CLUSTER_INTERVAL, Deadline};
use nqrust_tests::medium::{BUILD_LIMIT, copy_tree, lock_file};
use nqrust_tests::native_cluster::{ClusterNode, Switch, TestCluster};
use nqrust_tests::registry::{Registry, RegistryAccess};
use nqrust_tests::{paths, programs};
use serde_json::{Value, json};

use super::figures::Figures;
use crate::pipeline;

const JOB: &str = include_str!("../../../../configs/builder/images.yaml");
const IMAGE: &str = concat!("localhost/nqrust-iso-builder:", env!("CARGO_PKG_VERSION"));
const PORT: u16 = 5000;
/// The variants that pods build, each with a file of its own.
const SITES: [&str; 2] = ["site-0", "site-1"];
/// What the pods have of the definition, besides the files of the variants.
const FILES: [&str; 4] =
    ["image.yaml", "image.yaml.site-0.lock", "image.yaml.site-1.lock", "registries.yaml"];
/// For all pods of a Job, which make an OS image each.
const JOB_LIMIT: Duration = Duration::from_secs(900);
const COMMAND: Duration = Duration::from_secs(120);
/// What the log of a build says when it makes an OS image, and when it makes the system that it is made from.
const MAKES_IMAGE: &str = "Making the OS image";
const MAKES_SYSTEM: &str = "Putting the base system together";

pub(super) fn nodes() -> Vec<ClusterNode> {
    vec![ClusterNode::new("node-1", Role::Management, 11), ClusterNode::new("node-4", Role::Worker, 21)]
}

pub(super) fn check(cluster: &mut TestCluster, directory: &Path, figures: &mut Figures<'_>) -> Result<()> {
    let downloads = pipeline::downloads("cluster")?;
    let layout = pipeline::builder_image(&directory.join("image"), &downloads)?;
    cluster.add_layout(&layout)?;
    let builds = OutsideBuilds::stage(directory, downloads)?;
    let mut registry = Registry::start(&directory.join("registry"), RegistryAccess::default())?;
    let steps = format!("{}/builds/steps", registry.host());
    builds.warm(&layout, &steps)?;
    figures.done("a container elsewhere has shared its steps")?;
    let mut program = cluster.switch.command("docker-registry");
    program.env("HOME", "/nonexistent");
    registry.move_to(program, &format!("{}:{PORT}", Switch::ADMINISTRATOR))?;

    cluster.create(&mut |part| figures.done(part))?;
    cluster.join_all(&["node-4"], &mut |part| figures.done(part))?;
    prepare(cluster, &builds.definition)?;
    for (name, makes) in [("first", true), ("second", false)] {
        let done = run(cluster, name, makes);
        if done.is_err() {
            figures.keep("pods.txt", &told(cluster))?;
        }
        done.with_context(|| format!("the {name} Job"))?;
        figures.done(&format!("the {name} Job has published both variants"))?;
    }
    builds.run("alone", &SITES.map(|site| format!("--variant={site}")).each_ref().map(String::as_str))?;
    for site in SITES {
        let pulled = directory.join("pulled").join(site);
        let mut pull = cluster.switch.command(&paths::iso_builder()?.display().to_string());
        pull.arg("pull").arg(format!("{}/images/{site}:latest", host())).arg(&pulled);
        pull.arg("--registries").arg(builds.definition.with_file_name("registries.yaml"));
        pull.arg("--key").arg(paths::keys().join("development.pub"));
        programs::run(&mut pull, COMMAND)?.success("iso-builder pull")?;
        let manifest = |directory: &Path| fs::read_to_string(directory.join("release.json"));
        let alone = manifest(&directory.join("alone").join(site))?;
        ensure!(manifest(&pulled)? == alone, "{site} of the pods is not what a builder makes alone");
    }
    figures.done("what the pods have published is what a builder makes alone")
}

/// The registry as the pods reach it.
fn host() -> String {
    format!("{}:{PORT}", Switch::ADMINISTRATOR)
}

/// Builds on this machine, each with a cache of its own.
struct OutsideBuilds {
    definition: PathBuf,
    directory: PathBuf,
    downloads: PathBuf,
}

impl OutsideBuilds {
    /// The small definition with the variants, which are locked as it is.
    fn stage(directory: &Path, downloads: PathBuf) -> Result<Self> {
        let definition = pipeline::small_definition(&directory.join("definition"))?;
        let mut text = fs::read_to_string(&definition)?;
        let mirror = json!({ "mirrors": { host(): { "endpoint": [format!("http://{}", host())] } } });
        let site = |name: &str| (name.to_owned(), json!({ "overlays": { "rootfs": [name] } }));
        let mut variants: serde_json::Map<_, _> = SITES.iter().map(|name| site(name)).collect();
        variants.insert("plain".to_owned(), json!({}));
        text += &format!("\nregistries: {mirror}\nvariants: {}\n", Value::Object(variants));
        fs::write(&definition, text)?;
        fs::write(definition.with_file_name("registries.yaml"), mirror.to_string())?;
        for name in SITES.iter().chain(&["plain"]) {
            fs::copy(lock_file(&definition), definition.with_file_name(format!("image.yaml.{name}.lock")))?;
        }
        for name in SITES {
            let overlay = definition.with_file_name(name).join("etc");
            fs::create_dir_all(&overlay)?;
            fs::write(overlay.join("site"), name)?;
        }
        Ok(Self { definition, directory: directory.to_owned(), downloads })
    }

    /// Builds the variant without a file of its own in a container of the image: builders share steps if their programs have the same versions.
    fn warm(&self, layout: &Path, steps: &str) -> Result<()> {
        let work = self.directory.join("warm");
        for (from, to) in [
            (parent(&self.definition), work.clone()),
            (&self.downloads, work.join("downloads")),
            (&paths::keys(), work.join("keys")),
        ] {
            copy_tree(from, &to)?;
        }
        pipeline::give(&work)?;
        let mut host = ContainerHost::start(layout, &self.directory.join("containerd.log"))?;
        let build = ["iso-builder", "build", "image.yaml", "--variant=plain", "--locked", "--only=full"];
        let signing = ["--sign-with=development", "--keys=keys", "--output=out"];
        let cache_to = format!("--cache-to={steps}");
        let stores = ["--cache-dir=cache", "--downloads=downloads", &cache_to];
        let options = ["--allow-new-privs", "--net-host"];
        let words = [&build[..], &signing, &stores].concat();
        host.run(&options, &work, &words, BUILD_LIMIT)?.success("the build in a container").map(drop)
    }

    fn run(&self, name: &str, options: &[&str]) -> Result<()> {
        let mut build = programs::iso_builder()?;
        build.arg("build").arg(&self.definition).args(options);
        build.args(["--locked", "--only=full", "--sign-with=development", "--keys"]).arg(paths::keys());
        build.arg("--installer").arg(paths::installer()?).arg("-o").arg(self.directory.join(name));
        build.arg("--cache-dir").arg(self.directory.join(format!("cache-{name}")));
        build.arg("--downloads").arg(&self.downloads);
        programs::run(&mut build, BUILD_LIMIT)?.success("iso-builder build").map(drop)
    }
}

/// What the pods mount: the definition with its files, and the key.
fn prepare(cluster: &TestCluster, definition: &Path) -> Result<()> {
    let mut files = serde_json::Map::new();
    for name in FILES {
        files.insert(name.to_owned(), fs::read_to_string(definition.with_file_name(name))?.into());
    }
    for name in SITES {
        files.insert(name.to_owned(), name.into());
    }
    let key = |name: &str| fs::read_to_string(paths::keys().join(name));
    cluster.kubectl().apply_on_server(&json!({
        "apiVersion": "v1", "kind": "ConfigMap", "data": files,
        "metadata": { "name": "nqrust-definition", "namespace": "default" },
    }))?;
    cluster.kubectl().apply(&json!({
        "apiVersion": "v1", "kind": "Secret", "metadata": { "name": "nqrust-keys", "namespace": "default" },
        "stringData": { "development.key": key("development.key")?, "development.pub": key("development.pub")? },
    }))
}

/// The Job of the repository for this cluster: its registry, its image, and a ConfigMap in place of the volume with the definition.
fn job(name: &str) -> Result<Value> {
    let image = "registry.example.com/nqrust/iso-builder:0.2.0";
    ensure!(JOB.matches(image).count() == 2, "{image} is to be replaced");
    let text = JOB.replace(image, IMAGE).replace("registry.example.com", &host());
    let mut job: Value = serde_yaml::from_str(&text)?;
    job["metadata"] = json!({ "name": name, "namespace": "default" });
    let pod = &mut job["spec"]["template"]["spec"];
    let files = FILES.map(|name| (name, name.to_owned())).into_iter();
    let sites = SITES.map(|name| (name, format!("{name}/etc/site"))).into_iter();
    let items: Vec<_> = files.chain(sites).map(|(key, path)| json!({ "key": key, "path": path })).collect();
    let volumes = pod["volumes"].as_array_mut().context("the volumes")?;
    let definition = volumes.iter_mut().find(|volume| volume["name"] == "definition");
    *definition.context("the volume of the definition")? =
        json!({ "name": "definition", "configMap": { "name": "nqrust-definition", "items": items } });
    let push = pod["containers"][0]["args"].as_array_mut().context("what is pushed")?;
    push.push("--registries=/definition/registries.yaml".into());
    Ok(job)
}

/// Runs the Job to its end. `makes` says whether its builds have to make OS images.
fn run(cluster: &TestCluster, name: &str, makes: bool) -> Result<()> {
    let kubectl = cluster.kubectl();
    kubectl.apply(&job(name)?)?;
    Deadline::after(JOB_LIMIT).every(CLUSTER_INTERVAL).poll("the end of the Job", || {
        let status = kubectl.get(&["job", name])?["status"].clone();
        let failed = status["failedIndexes"].as_str().unwrap_or_default();
        ensure!(failed.is_empty(), "these indexes have failed: {failed}");
        let is_done = status["succeeded"] == 2 && status["completedIndexes"] == "0,1";
        Ok(is_done.then_some(()))
    })?;
    for pod in kubectl.list(&["pods", &format!("--selector=job-name={name}")]) {
        let pod = pod["metadata"]["name"].as_str().context("the name of a pod")?;
        let log = kubectl.run(&["logs", pod, "--container=build"])?;
        ensure!(!log.contains(MAKES_SYSTEM), "a pod has put a base system together: {log}");
        ensure!(log.contains(MAKES_IMAGE) == makes, "whether a pod has made an OS image: {log}");
    }
    Ok(())
}

/// Everything about the pods, for the person who reads a failure.
fn told(cluster: &TestCluster) -> String {
    let kubectl = cluster.kubectl();
    let say = |words: &[&str]| kubectl.call(words, "").map(|told| told.said()).unwrap_or_default();
    let mut text = say(&["get", "pods,jobs", "--output=wide"]) + &say(&["describe", "pods"]);
    for pod in kubectl.list(&["pods"]) {
        let pod = pod["metadata"]["name"].as_str().unwrap_or_default();
        text += &say(&["logs", pod, "--all-containers"]);
    }
    text
}
