//! The artifacts of a test: a directory of its own below `target/e2e`, with logs and screenshots.
//!
//! Logs stay after every run. Disks are removed at the end, unless `NQRUST_E2E_KEEP` is set.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

use anyhow::{Context, Result};

use crate::paths;

/// How often a waiting test looks whether it may begin.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Artifacts {
    directory: PathBuf,
    machines: AtomicU32,
}

impl Artifacts {
    /// The empty directory of the test `name`; what an earlier run left there is removed.
    pub fn new(name: &str) -> Result<Self> {
        let directory = paths::e2e().join(name);
        if directory.exists() {
            fs::remove_dir_all(&directory).with_context(|| format!("clearing {}", directory.display()))?;
        }
        fs::create_dir_all(directory.join("disks"))
            .with_context(|| format!("making {}", directory.display()))?;
        Ok(Self { directory, machines: AtomicU32::new(0) })
    }

    #[must_use]
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    #[must_use]
    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    #[must_use]
    pub fn disk(&self, name: &str) -> PathBuf {
        self.directory.join("disks").join(name)
    }

    /// The name of the next machine of this test: a number and its purpose.
    #[must_use]
    pub fn machine(&self, purpose: &str) -> String {
        format!("{}-{purpose}", self.machines.fetch_add(1, Ordering::Relaxed) + 1)
    }

    pub fn append(&self, name: &str, text: &str) -> Result<()> {
        append(&self.path(name), text)
    }

    /// A seed of random numbers, never 0: that of `NQRUST_SEED`, else a new one each time. It is in `seed.txt`, so that a failure
    /// can be reproduced.
    pub fn seed(&self) -> Result<u64> {
        let given = std::env::var("NQRUST_SEED").ok().and_then(|text| text.parse().ok());
        let seed = match given {
            Some(seed) => seed,
            None => SystemTime::now().duration_since(SystemTime::UNIX_EPOCH)?.as_secs(),
        };
        self.append("seed.txt", &format!("NQRUST_SEED={seed}\n"))?;
        Ok(seed.max(1))
    }
}

impl Drop for Artifacts {
    fn drop(&mut self) {
        if std::env::var_os("NQRUST_E2E_KEEP").is_none() {
            // Files that stay only take space, and the next run removes them.
            let _ = fs::remove_dir_all(self.directory.join("disks"));
        }
    }
}

pub fn append(path: &Path, text: &str) -> Result<()> {
    let file = OpenOptions::new().create(true).append(true).open(path);
    file.and_then(|mut file| file.write_all(text.as_bytes()))
        .with_context(|| format!("writing {}", path.display()))
}

/// Permission for a test to run; held until it ends.
struct TestPermit {
    _room: File,
    _seat: Option<File>,
}

/// Waits until a test may begin: one that runs alone waits for the others to end, and those that come after it wait for it. Of the
/// others as many run at once as there are processors, whichever test program they belong to: a machine more makes each slower, so
/// that time limits are missed, and gains nothing.
fn turn(alone: bool) -> Result<TestPermit> {
    fs::create_dir_all(paths::e2e())?;
    let open = |name: &str| File::create(paths::e2e().join(name)).context("opening the lock of the tests");
    // A waiting test holds the door, so that tests that come later cannot overtake one that runs alone.
    let (door, room) = (open("door")?, open("room")?);
    door.lock().context("waiting for the tests' door")?;
    if alone {
        room.lock().context("waiting for other tests")?;
        return Ok(TestPermit { _room: room, _seat: None });
    }
    let seats = thread::available_parallelism().map_or(1, NonZero::get);
    let mut seats: Vec<_> =
        (1..=seats).map(|number| open(&format!("seat-{number}"))).collect::<Result<_>>()?;
    let free = loop {
        match seats.iter().position(|seat| seat.try_lock().is_ok()) {
            Some(free) => break free,
            None => thread::sleep(POLL_INTERVAL),
        }
    };
    room.lock_shared().context("waiting for the test that runs alone")?;
    Ok(TestPermit { _room: room, _seat: Some(seats.swap_remove(free)) })
}

/// Runs the test `name`. An error panics with its whole chain and the place of the logs, so that the test
/// runner shows both.
pub fn scenario(name: &str, test: impl FnOnce(&Artifacts) -> Result<()>) {
    run(name, false, test);
}

/// The same for a test that keeps the processors busy by itself: no other test runs beside it, since their machines
/// would slow each other down.
pub fn scenario_alone(name: &str, test: impl FnOnce(&Artifacts) -> Result<()>) {
    run(name, true, test);
}

#[allow(clippy::panic)]
fn run(name: &str, alone: bool, test: impl FnOnce(&Artifacts) -> Result<()>) {
    let outcome = turn(alone).and_then(|_turn| {
        let begun = Instant::now();
        let outcome = Artifacts::new(name).and_then(|artifacts| test(&artifacts));
        // `make e2e` shows the slowest of them.
        append(&paths::e2e().join("seconds"), &format!("{:5} {name}\n", begun.elapsed().as_secs()))?;
        outcome
    });
    if let Err(error) = outcome {
        panic!("{error:#}\n\nlogs and screenshots: {}", paths::e2e().join(name).display());
    }
}
