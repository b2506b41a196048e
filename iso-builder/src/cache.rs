//! The cache of build steps: a step is named by the digest of everything that goes into it, and its outputs are
//! files in a directory of that name.
//!
//! A finished step is moved into place in one rename, so a directory that exists is complete. On use its files
//! are compared with what was recorded: a file whose size or time has changed is hashed again, and a step
//! that is damaged is done again.
//!
//! Builders can [share](shared) steps through registries. A step of another host is the same as one of this host, but for two
//! things: its files may still be in the registry, so that whoever wants one asks for its [path](StepOutputs::path); and
//! [some builds](StepTrust) do not take it.

mod figures;
mod key;
mod prune;
mod record;
mod shared;
mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions, Permissions};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Instant, SystemTime};

use anyhow::{Context, Result, anyhow};
use base::cancellation::{self, Cleanup};
use base::digest::Digest;
use base::failure::{Class, Classify};
use base::files;
use base::notes;
use base::parallel::locked;
use nix::fcntl::{Flock, FlockArg};

use crate::files::KnownFiles;

use self::record::{RECORD_FILE, StepRecord, StepState, mark_used};
use self::shared::{FoundStep, MadeStep};
use self::turns::Turns;

pub use figures::{BuildFigures, FetchedKind, StepUse};
pub use key::StepKey;
pub use prune::{PruneSummary, days_ago};
pub use shared::{SharedPruneSummary, SharedSteps, prune as prune_shared};

/// The directory of finished steps.
const STEPS: &str = "steps";
/// The directory for scratch files of steps.
const SCRATCH: &str = "scratch";
/// The name of that directory while a cancelled build removes it.
const CANCELLED: &str = "scratch.cancelled";

/// The cache of one user, as one build sees it.
#[derive(Debug)]
pub struct Cache {
    store: Arc<Store>,
    rules: StepRules,
    shared: Option<Arc<SharedSteps>>,
    figures: Arc<BuildFigures>,
    /// The steps of this build that this host has made, in this build or before.
    own: Mutex<Vec<MadeStep>>,
}

/// What the builds of one process have in common. Held exclusively: another process with the same cache waits.
#[derive(Debug)]
struct Store {
    root: PathBuf,
    downloads: PathBuf,
    known: KnownFiles,
    turns: Arc<Turns>,
    /// What was asked in this process, with the answers.
    answers: Mutex<BTreeMap<String, Vec<u8>>>,
    // Cleared before the lock is released.
    _cleanup: Cleanup,
    _lock: Flock<File>,
}

/// Whose steps a build uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StepTrust {
    /// Those of all hosts that write to the repositories that it reads.
    #[default]
    Shared,
    /// Those of this host: one of another is made again, and what follows from it as well where the outputs differ, since steps are
    /// named by the digests of what goes into them.
    Own,
}

/// Which steps a build uses of those that are there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StepRules {
    pub trust: StepTrust,
    /// Steps that are not looked for in registries: an attempt to fetch them failed.
    pub lost: BTreeSet<String>,
    /// Only those whose files are all here.
    pub whole: bool,
}

/// The files of a step are on another host and do not come from there. The context of the reason.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("fetching a step that another host has made")]
pub struct LostStep {
    /// For [`StepRules::lost`].
    pub step: String,
}

#[derive(Clone, Debug)]
pub struct StepOutputs {
    turns: Arc<Turns>,
    directory: PathBuf,
    record: StepRecord,
    /// Where files come from that are not here yet.
    found: Option<FoundStep>,
    /// True if this build ran the step; false if the outputs came from the cache.
    pub fresh: bool,
}

impl StepOutputs {
    /// The path of an output, or of all for an empty name. It and what is below it is fetched if it is not here yet.
    ///
    /// # Errors
    /// As of [`StepOutputs::fetch`].
    pub fn path(&self, name: &str) -> Result<PathBuf> {
        self.fetch(&[name])?;
        Ok(self.directory.join(name))
    }

    /// Fetches these outputs and what is below them, as far as they are not here yet.
    ///
    /// # Errors
    /// [`LostStep`] with the reason if one cannot be fetched. Then nothing of the step is here any more, so that the next build that needs it
    /// makes it.
    pub fn fetch(&self, names: &[&str]) -> Result<()> {
        if self.record.missing(&self.directory, names).next().is_none() {
            return Ok(());
        }
        let name = name_of(&self.directory);
        let _turn = self.turns.take(&name);
        let fetched = match &self.found {
            Some(found) => found.bring(&self.directory, &self.record, names),
            None => self.record.missing(&self.directory, names).next().map_or(Ok(()), |(path, _)| {
                let origin = self.record.origin.as_deref().unwrap_or("another host");
                Err(anyhow!("{} is in {origin}, which this build does not read", path.display()))
            }),
        };
        fetched.map_err(|error| {
            let _ = remove(&self.directory);
            error.context(LostStep { step: name.clone() })
        })
    }

    /// True if there is a file of this name.
    #[must_use]
    pub fn has(&self, name: &str) -> bool {
        self.record.files().any(|(path, _)| path == Path::new(name))
    }

    /// The size in bytes and the digest of a file, wherever it is.
    pub fn file(&self, name: &str) -> Result<(u64, Digest)> {
        let file = self.record.files().find(|(path, _)| *path == Path::new(name));
        let (_, file) = file.with_context(|| format!("finding {name} in {}", self.directory.display()))?;
        Ok((file.size, file.sha256))
    }

    /// The digest of all outputs, wherever they are.
    pub fn digest(&self) -> Result<Digest> {
        self.digest_of("")
    }

    /// The digest of an output and what is below it, wherever it is.
    pub fn digest_of(&self, name: &str) -> Result<Digest> {
        self.record.digest(Path::new(name))
    }
}

impl Cache {
    /// Opens the cache below `root`, made if absent; waits for another build that holds it.
    /// Downloads are kept in `downloads`, which may be shared by several caches.
    pub fn open(root: &Path, downloads: Option<&Path>, on_wait: impl FnOnce()) -> Result<Self> {
        files::output_directory(&root.join(STEPS), 0o755)?;
        let downloads = downloads.map_or_else(|| root.join("downloads"), Path::to_owned);
        files::output_directory(&downloads, 0o755)?;
        let path = root.join("lock");
        // Readable by its owner only: anyone who can open it could hold the lock.
        let open = || {
            let opened = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&path);
            let own = opened.and_then(|file| {
                file.set_permissions(Permissions::from_mode(0o600))?;
                Ok(file)
            });
            own.class(Class::DiskIo, || format!("opening {}", path.display()))
        };
        let lock = match Flock::lock(open()?, FlockArg::LockExclusiveNonblock) {
            Ok(lock) => lock,
            Err(_) => {
                on_wait();
                Flock::lock(open()?, FlockArg::LockExclusive)
                    .map_err(|(_, error)| error)
                    .with_context(|| format!("locking {}", path.display()))?
            }
        };
        let root = root.canonicalize().with_context(|| format!("resolving {}", root.display()))?;
        let downloads = downloads.canonicalize()?;
        sweep(&root)?;
        files::make_directory(&root.join(SCRATCH), 0o755)?;
        let left = root.clone();
        let _cleanup = cancellation::on_end(move || {
            // Threads may still be writing; they do not find the renamed directory.
            let _ = fs::rename(left.join(SCRATCH), left.join(CANCELLED));
            let _ = sweep(&left);
        });
        let known = KnownFiles::open(&root.join("known-files.json"));
        let (turns, answers) = (Arc::default(), Mutex::default());
        let store = Arc::new(Store { root, downloads, known, turns, answers, _cleanup, _lock: lock });
        Ok(Self::of(store, StepRules::default()))
    }

    fn of(store: Arc<Store>, rules: StepRules) -> Self {
        Self { store, rules, shared: None, figures: Arc::default(), own: Mutex::default() }
    }

    /// The same cache for another build, with these rules. Builds can run side by side: a step that several need is made once.
    #[must_use]
    pub fn for_build(&self, rules: StepRules) -> Self {
        Self::of(Arc::clone(&self.store), rules)
    }

    /// The same cache with the steps of registries.
    #[must_use]
    pub fn sharing(self, shared: SharedSteps) -> Self {
        Self { shared: Some(Arc::new(shared)), ..self }
    }

    /// Gives the registries the steps of this build that this host has made. What fails is told and changes nothing here.
    pub fn share(&self) {
        if let Some(shared) = &self.shared {
            shared.publish(&locked(&self.own), &self.scratch());
        }
    }

    /// What is known of the files of this host that builds read.
    #[must_use]
    pub fn known_files(&self) -> &KnownFiles {
        &self.store.known
    }

    /// Where downloads are kept; the file names are digests.
    #[must_use]
    pub fn downloads(&self) -> &Path {
        &self.store.downloads
    }

    /// Where steps may keep trees while they work. Emptied when the cache is opened.
    #[must_use]
    pub fn scratch(&self) -> PathBuf {
        self.store.root.join(SCRATCH)
    }

    /// The directory for the output of programs that failed.
    #[must_use]
    pub fn logs(&self) -> PathBuf {
        self.store.root.join("logs")
    }

    /// The directory of records about outputs that lie outside the cache.
    #[must_use]
    pub fn records(&self) -> PathBuf {
        self.store.root.join("outputs")
    }

    /// The answer to `question`, which is asked once in this process.
    pub fn answer(&self, question: &str, ask: impl FnOnce() -> Result<Vec<u8>>) -> Result<Vec<u8>> {
        let _turn = self.store.turns.take(question);
        if let Some(known) = locked(&self.store.answers).get(question) {
            return Ok(known.clone());
        }
        let answer = ask()?;
        locked(&self.store.answers).insert(question.to_owned(), answer.clone());
        Ok(answer)
    }

    /// Returns the outputs of the step `key`, from the cache or by doing `work`, which is given an empty directory.
    pub fn step(&self, key: &StepKey, work: impl FnOnce(&Path) -> Result<()>) -> Result<StepOutputs> {
        let begun = Instant::now();
        let outputs = self.cached_or_made(key, work)?;
        notes::detail(key.name, || {
            let how = match &outputs.record.origin {
                Some(origin) => format!("from {origin}"),
                None if outputs.fresh => "made".to_owned(),
                None => "from the cache".to_owned(),
            };
            format!("{}: {how}, {}", key.name, outputs.directory.display())
        });
        let used = StepUse {
            step: key.name.to_owned(),
            cached: !outputs.fresh,
            origin: outputs.record.origin.clone(),
            seconds: begun.elapsed().as_secs_f64(),
            size: outputs.record.size(),
        };
        self.figures.used(used);
        if outputs.record.origin.is_none() {
            let (key, directory, record) = (key.clone(), outputs.directory.clone(), outputs.record.clone());
            locked(&self.own).push(MadeStep { key, directory, record });
        }
        Ok(outputs)
    }

    /// The figures of this build, which go on while it runs.
    #[must_use]
    pub fn figures(&self) -> &Arc<BuildFigures> {
        &self.figures
    }

    /// True if the step `key` need not be made. Its outputs are looked at when they are used.
    pub fn has(&self, key: &StepKey) -> Result<bool> {
        Ok(self.directory_of(key)?.is_dir() || self.found(key)?.is_some())
    }

    /// The directories of finished steps of this name that this build may use, whatever went into them, and the last used first. Their
    /// files may be missing or damaged.
    #[must_use]
    pub fn earlier(&self, name: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        for entry in fs::read_dir(self.store.root.join(STEPS)).into_iter().flatten().flatten() {
            let directory = entry.path();
            let of_name = name_of(&directory)
                .rsplit_once('-')
                .is_some_and(|(step, digest)| step == name && !digest.contains('.'));
            let Some(record) = StepRecord::read(&directory).filter(|_| of_name) else { continue };
            let used = fs::metadata(directory.join(RECORD_FILE)).and_then(|record| record.modified());
            if record.origin.is_none() || self.rules.trust == StepTrust::Shared {
                found.push((used.unwrap_or(SystemTime::UNIX_EPOCH), directory));
            }
        }
        found.sort_by(|one, other| other.cmp(one));
        found.into_iter().map(|(_, directory)| directory).collect()
    }

    fn directory_of(&self, key: &StepKey) -> Result<PathBuf> {
        let digest = key.digest()?.to_string();
        Ok(self.store.root.join(STEPS).join(format!("{}-{}", key.name, &digest[..24])))
    }

    /// The step of another host, if this build may use it.
    fn found(&self, key: &StepKey) -> Result<Option<FoundStep>> {
        let StepRules { trust, lost, .. } = &self.rules;
        match &self.shared {
            Some(shared) if *trust == StepTrust::Shared => {
                match lost.contains(&name_of(&self.directory_of(key)?)) {
                    true => Ok(None),
                    false => shared.find(key),
                }
            }
            _ => Ok(None),
        }
    }

    fn cached_or_made(&self, key: &StepKey, work: impl FnOnce(&Path) -> Result<()>) -> Result<StepOutputs> {
        let directory = self.directory_of(key)?;
        let name = name_of(&directory);
        let _turn = self.store.turns.take(&name);
        let turns = Arc::clone(&self.store.turns);
        let state = match StepRecord::state(&directory)? {
            StepState::Partial(_) if self.rules.whole || self.rules.lost.contains(&name) => StepState::Absent,
            StepState::Partial(record) | StepState::Whole(record)
                if record.origin.is_some() && self.rules.trust == StepTrust::Own =>
            {
                StepState::Absent
            }
            state => state,
        };
        if let StepState::Whole(record) = state {
            mark_used(&directory);
            return Ok(StepOutputs { turns, directory, record, found: None, fresh: false });
        }
        let found = self.found(key)?;
        if let StepState::Partial(record) = state
            && found.as_ref().is_none_or(|found| found.is_in(&directory, &record))
        {
            mark_used(&directory);
            return Ok(StepOutputs { turns, directory, record, found, fresh: false });
        }
        let unfinished = directory.with_extension("new");
        remove(&directory)?;
        remove(&unfinished)?;
        files::make_directory(&unfinished, 0o755)?;
        let record = match &found {
            Some(found) => found.begin(&unfinished)?,
            None => {
                work(&unfinished).with_context(|| format!("the build step {}", key.name))?;
                let record = StepRecord::survey(&unfinished)?;
                let bytes = serde_json::to_vec_pretty(&record)?;
                files::write_atomically(&unfinished.join(RECORD_FILE), &bytes, 0o644)?;
                record
            }
        };
        fs::rename(&unfinished, &directory)
            .with_context(|| format!("moving {} into place", directory.display()))?;
        let fresh = found.is_none();
        Ok(StepOutputs { turns, directory, record, found, fresh })
    }
}

/// Removes what an interrupted build left behind in the cache at `root`.
fn sweep(root: &Path) -> Result<()> {
    for scratch in [SCRATCH, CANCELLED] {
        crate::namespaces::remove_tree(&root.join(scratch))?;
    }
    for entry in fs::read_dir(root.join(STEPS))? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "new") {
            remove(&path)?;
        }
    }
    Ok(())
}

/// The name of a step with the digest of what goes into it.
fn name_of(directory: &Path) -> String {
    directory.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn remove(directory: &Path) -> Result<()> {
    match fs::remove_dir_all(directory) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| format!("removing {}", directory.display()))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn build(cache: &Cache, input: &str, done: &mut u32) -> StepOutputs {
        let key = StepKey::new("test", 1, json!({ "input": input }));
        let work = |out: &Path| {
            *done += 1;
            Ok(fs::write(out.join("file"), input)?)
        };
        cache.step(&key, work).unwrap()
    }

    #[test]
    fn a_step_is_done_once_for_the_same_inputs_and_again_when_damaged() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path(), None, || ()).unwrap();
        let mut done = 0;
        let first = build(&cache, "a", &mut done);
        assert!(first.fresh && !build(&cache, "a", &mut done).fresh);
        build(&cache, "b", &mut done);
        assert_eq!(done, 2);
        fs::write(first.path("file").unwrap(), "x").unwrap();
        let again = build(&cache, "a", &mut done);
        assert_eq!((done, fs::read(again.path("file").unwrap()).unwrap()), (3, b"a".to_vec()));
        let uses: Vec<_> = cache.figures().uses().iter().map(|used| (used.cached, used.size)).collect();
        assert_eq!(uses, [(false, 1), (true, 1), (false, 1), (false, 1)]);
    }

    #[test]
    fn builds_side_by_side_make_a_step_once_and_each_knows_its_own_uses() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path(), None, || ()).unwrap();
        let builds: Vec<_> = (0..4).map(|_| cache.for_build(StepRules::default())).collect();
        let (made, asked) = (Mutex::new(0), Mutex::new(0));
        std::thread::scope(|scope| {
            for build in &builds {
                scope.spawn(|| {
                    for input in ["a", "b"] {
                        let key = StepKey::new("test", 1, json!({ "input": input }));
                        let work = |out: &Path| {
                            *locked(&made) += 1;
                            std::thread::sleep(std::time::Duration::from_millis(20));
                            Ok(fs::write(out.join("file"), input)?)
                        };
                        let outputs = build.step(&key, work).unwrap();
                        assert_eq!(fs::read(outputs.path("file").unwrap()).unwrap(), input.as_bytes());
                        let ask = || {
                            *locked(&asked) += 1;
                            Ok(input.into())
                        };
                        assert_eq!(build.answer(input, ask).unwrap(), input.as_bytes());
                    }
                });
            }
        });
        assert_eq!((*locked(&made), *locked(&asked)), (2, 2));
        let fresh =
            builds.iter().flat_map(|build| build.figures().uses()).filter(|used| !used.cached).count();
        assert!(fresh == 2 && builds.iter().all(|build| build.figures().uses().len() == 2));
        assert!(cache.answer("fails", || anyhow::bail!("no")).is_err());
        assert_eq!(cache.answer("fails", || Ok(b"yes".to_vec())).unwrap(), b"yes", "a failure is no answer");
    }

    #[test]
    fn earlier_steps_of_a_name_are_found_by_their_last_use_and_those_of_others_where_they_may_be_used() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path(), None, || ()).unwrap();
        let step = |name: &'static str, input: &str| {
            let key = StepKey::new(name, 1, json!({ "input": input }));
            cache.step(&key, |out| Ok(fs::write(out.join("file"), input)?)).unwrap().path("").unwrap()
        };
        let [one, two] = ["a", "b"].map(|input| step("test", input));
        step("test-other", "a");
        let used = |directory: &Path, seconds: u64| {
            let time = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(seconds);
            File::options()
                .append(true)
                .open(directory.join(RECORD_FILE))
                .unwrap()
                .set_modified(time)
                .unwrap();
        };
        fs::create_dir(one.with_extension("new")).unwrap();
        fs::copy(one.join(RECORD_FILE), one.with_extension("new").join(RECORD_FILE)).unwrap();
        used(&one, 2);
        used(&two, 1);
        assert_eq!(cache.earlier("test"), [one.clone(), two.clone()]);
        used(&two, 3);
        assert_eq!(cache.earlier("test"), [two.clone(), one.clone()]);
        let record = fs::read_to_string(two.join(RECORD_FILE)).unwrap();
        let of_another = record.replacen('{', r#"{"origin": "registry.example.com/steps","#, 1);
        fs::write(two.join(RECORD_FILE), of_another).unwrap();
        assert_eq!(cache.earlier("test"), [two, one.clone()]);
        let own = cache.for_build(StepRules { trust: StepTrust::Own, ..StepRules::default() });
        assert_eq!(own.earlier("test"), [one]);
    }

    #[test]
    fn a_step_that_fails_leaves_nothing_that_looks_finished() {
        let directory = tempfile::tempdir().unwrap();
        let cache = Cache::open(directory.path(), None, || ()).unwrap();
        let key = StepKey::new("test", 1, json!({}));
        let work = |out: &Path| {
            fs::write(out.join("half"), "x")?;
            anyhow::bail!("stopped")
        };
        assert!(cache.step(&key, work).is_err());
        let outputs = cache.step(&key, |out| Ok(fs::write(out.join("whole"), "y")?)).unwrap();
        assert!(outputs.fresh && outputs.file("whole").is_ok() && outputs.file("half").is_err());
    }
}
