//! Two builders with a cache each and a real registry between them.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;
use base::digest::Digest;
use base::failure::{Class, class_of, render};
use base::progress::Progress;
use base::progress::plain::PlainLines;
use base::progress::shared_bytes::SharedBytes;
use serde_json::json;
use testing::registry::RealRegistry;
use transfer::download::RetryPolicy;
use transfer::registry::{Client, Settings};

use super::SharedSteps;
use crate::cache::{
    Cache, FetchedKind, LostStep, StepKey, StepOutputs, StepRules, StepTrust, days_ago, prune_shared,
};

/// What packs well, and is large enough for it.
fn text() -> Vec<u8> {
    b"a line of a file that packs well\n".repeat(10_000)
}

/// A builder that shares steps through the repository `steps` of a registry.
struct Builder {
    directory: tempfile::TempDir,
    repository: String,
    tools: Digest,
    rules: StepRules,
    log: SharedBytes,
}

impl Builder {
    fn new(host: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (tools, rules) = (Digest::of(b"tools"), StepRules::default());
        Self {
            directory,
            repository: format!("{host}/builds/steps"),
            tools,
            rules,
            log: SharedBytes::default(),
        }
    }

    fn cache(&self, reads: bool, writes: bool) -> Cache {
        let repository =
            |wanted: bool| wanted.then(|| self.repository.parse().unwrap()).into_iter().collect();
        let cache = Cache::open(self.directory.path(), None, || ()).unwrap().for_build(self.rules.clone());
        let shared = SharedSteps {
            from: repository(reads),
            to: repository(writes),
            client: client(),
            tools: self.tools,
            transfers: 2,
            progress: Progress::new(vec![Box::new(PlainLines::new(self.log.clone()))]),
            figures: Arc::clone(cache.figures()),
            silent: Default::default(),
        };
        cache.sharing(shared)
    }

    fn log(&self) -> String {
        String::from_utf8(self.log.bytes()).unwrap()
    }
}

fn client() -> Client {
    Client::new(Settings { retry: RetryPolicy::at_once(), ..Settings::default() }).unwrap()
}

fn key() -> StepKey {
    StepKey::new("test", 1, json!({ "input": 1 }))
}

fn work(out: &Path) -> Result<()> {
    fs::create_dir_all(out.join("tree/empty"))?;
    fs::write(out.join("tree/program"), "#!/bin/sh\n")?;
    fs::set_permissions(out.join("tree/program"), fs::Permissions::from_mode(0o755))?;
    symlink("program", out.join("tree/link"))?;
    fs::write(out.join("nothing"), "")?;
    Ok(fs::write(out.join("large"), text())?)
}

fn refuse(_: &Path) -> Result<()> {
    panic!("the step is in the registry")
}

/// A registry that has the step of one builder.
fn shared() -> (RealRegistry, Builder, Digest) {
    let registry = RealRegistry::start(false);
    let first = Builder::new(registry.host());
    let cache = first.cache(true, true);
    let outputs = cache.step(&key(), work).unwrap();
    assert!(outputs.fresh);
    cache.share();
    let (blobs, bytes) = cache.figures().shared();
    assert!(blobs >= 2 && (1..text().len() as u64 / 2).contains(&bytes), "{blobs} blobs, {bytes} bytes");
    drop(cache);
    let digest = outputs.digest().unwrap();
    (registry, first, digest)
}

fn files(outputs: &StepOutputs) -> Vec<String> {
    let walk = walkdir::WalkDir::new(&outputs.directory).sort_by_file_name();
    let names = walk.into_iter().map(|entry| entry.unwrap()).filter(|entry| entry.file_type().is_file());
    let names = names.map(|entry| entry.file_name().to_str().unwrap().to_owned());
    names.filter(|name| !name.starts_with('.')).collect()
}

#[test]
fn another_builder_has_the_outputs_at_once_and_each_file_when_it_asks_for_it() {
    let (registry, first, digest) = shared();
    assert!(registry.uploaded() < text().len() as u64 / 2, "the large file travels packed");
    let second = Builder::new(registry.host());
    let outputs = second.cache(true, false).step(&key(), refuse).unwrap();
    assert!(!outputs.fresh);
    assert_eq!((outputs.digest().unwrap(), files(&outputs)), (digest, vec![]));
    assert_eq!(outputs.file("large").unwrap(), (text().len() as u64, Digest::of(&text())));
    let tree = outputs.path("tree").unwrap();
    assert_eq!(files(&outputs), ["program"]);
    assert!(tree.join("empty").is_dir() && fs::read_link(tree.join("link")).unwrap() == Path::new("program"));
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&tree.join("program")), 0o755);
    // The next build goes on with what is here.
    let cache = second.cache(true, true);
    let outputs = cache.step(&key(), refuse).unwrap();
    assert_eq!(files(&outputs), ["program"]);
    assert_eq!(fs::read(outputs.path("large").unwrap()).unwrap(), text());
    let fetched = cache.figures().fetched_bytes(FetchedKind::Steps);
    assert!((1..text().len() as u64 / 2).contains(&fetched), "{fetched} bytes come over the network");
    assert_eq!(mode(&outputs.path("large").unwrap()), 0o644);
    assert_eq!(fs::read(outputs.path("nothing").unwrap()).unwrap(), b"");
    assert_eq!(files(&outputs), ["large", "nothing", "program"]);
    let used = cache.figures().uses().remove(0);
    assert_eq!((used.origin.as_deref(), used.cached), (Some(&*second.repository), true));
    // It was not made here, so it is not shared from here.
    let before = registry.requests("PUT").len();
    cache.share();
    drop(cache);
    assert_eq!(registry.requests("PUT").len(), before);
    // What is whole needs no registry.
    assert!(!second.cache(false, false).step(&key(), refuse).unwrap().fresh);
    assert!(!first.log().contains("warning") && !second.log().contains("warning"));
}

#[test]
fn what_is_not_whole_is_enough_without_a_registry_until_a_missing_file_is_needed_and_is_made_then() {
    let (registry, _, digest) = shared();
    let mut second = Builder::new(registry.host());
    second.cache(true, false).step(&key(), refuse).unwrap();
    second.rules.whole = true;
    assert!(second.cache(false, false).step(&key(), work).unwrap().fresh);
    second = Builder::new(registry.host());
    second.cache(true, false).step(&key(), refuse).unwrap().path("tree").unwrap();
    let cache = second.cache(false, false);
    let outputs = cache.step(&key(), refuse).unwrap();
    assert!(outputs.path("tree").unwrap().join("program").exists() && outputs.digest().unwrap() == digest);
    let error = outputs.path("").unwrap_err();
    assert!(error.downcast_ref::<LostStep>().is_some());
    assert!(render(&error).contains(&format!("is in {}, which this build does not read", second.repository)));
    let outputs = cache.step(&key(), work).unwrap();
    assert!(outputs.fresh && outputs.digest().unwrap() == digest);
}

#[test]
fn a_build_that_trusts_its_own_steps_makes_those_of_others_again() {
    let (registry, _, digest) = shared();
    let mut second = Builder::new(registry.host());
    second.cache(true, false).step(&key(), refuse).unwrap().path("").unwrap();
    second.rules.trust = StepTrust::Own;
    let outputs = second.cache(true, false).step(&key(), work).unwrap();
    assert!(outputs.fresh && outputs.digest().unwrap() == digest);
    // From now on it is a step of this host.
    assert!(!second.cache(true, false).step(&key(), refuse).unwrap().fresh);
}

#[test]
fn a_step_made_by_other_programs_is_another_step() {
    let (registry, ..) = shared();
    let mut second = Builder::new(registry.host());
    second.tools = Digest::of(b"newer tools");
    assert!(second.cache(true, false).step(&key(), work).unwrap().fresh);
}

#[test]
fn a_changed_file_is_refused_and_leaves_nothing_so_that_the_step_is_made() {
    for name in ["tree/program", "large"] {
        let (registry, ..) = shared();
        let mut second = Builder::new(registry.host());
        let cache = second.cache(true, false);
        let outputs = cache.step(&key(), refuse).unwrap();
        for blob in registry.blobs().into_iter().filter(|blob| fs::metadata(blob).unwrap().len() < 2000) {
            let bytes = fs::read(&blob).unwrap();
            // Not the list of outputs, which is read already.
            fs::write(&blob, bytes.iter().map(|byte| byte ^ 1).collect::<Vec<_>>()).unwrap();
        }
        let error = outputs.path(name).unwrap_err();
        let told = render(&error);
        assert_eq!(class_of(&error), Class::Verification, "{told}");
        assert!(told.contains("fetching the step test from"), "{told}");
        assert!(error.downcast_ref::<LostStep>().is_some() && !outputs.directory.exists());
        drop(cache);
        let lost = error.downcast_ref::<LostStep>().unwrap().step.clone();
        second.rules.lost.insert(lost);
        assert!(second.cache(true, false).step(&key(), work).unwrap().fresh);
    }
}

#[test]
fn a_changed_list_of_outputs_or_a_silent_registry_is_told_once_and_the_step_is_made() {
    let (registry, ..) = shared();
    for blob in registry.blobs() {
        fs::write(&blob, b"{}").unwrap();
    }
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    for host in [registry.host(), &gone] {
        let second = Builder::new(host);
        let cache = second.cache(true, false);
        assert!(cache.step(&key(), work).unwrap().fresh);
        let other = StepKey::new("test", 1, json!({ "input": 2 }));
        assert!(cache.step(&other, work).unwrap().fresh);
        let log = second.log();
        assert_eq!(log.matches("is not used any more in this build").count(), 1, "{log}");
    }
}

#[test]
fn steps_that_no_build_has_used_for_long_are_removed_and_others_and_images_stay() {
    let (registry, first, _) = shared();
    let repository = first.repository.parse().unwrap();
    let pruned = |limit, keep| {
        let summary = prune_shared(&client(), &repository, limit, keep, &Progress::silent()).unwrap();
        (summary.removed, summary.kept)
    };
    assert_eq!(pruned(days_ago(1), false), (0, 1));
    let soon = std::time::SystemTime::now() + std::time::Duration::from_secs(60);
    assert_eq!(pruned(soon, true), (1, 0));
    assert_eq!(pruned(soon, false), (1, 0));
    assert_eq!(pruned(soon, false), (0, 0));
    let second = Builder::new(registry.host());
    assert!(second.cache(true, false).step(&key(), work).unwrap().fresh);
    // It is shared again by a builder that still has it.
    let cache = first.cache(true, true);
    assert!(!cache.step(&key(), refuse).unwrap().fresh);
    cache.share();
    assert_eq!(pruned(days_ago(1), false), (0, 1));
}
