//! A client of a cluster that writes once a second, whatever happens to the nodes.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use crate::artifacts::append;
use crate::programs::ProgramOutput;

const INTERVAL: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct WriteResult {
    pub good: u32,
    pub failed: u32,
    /// The longest time without a good write: from one to the next, before the first, or after the last.
    pub longest: Duration,
    /// The number of the last good write.
    pub last: u32,
    /// The number of the last one, good or not.
    pub tried: u32,
}

/// Writes until it is dropped, in a thread of its own.
#[derive(Debug)]
pub struct Writer {
    over: Arc<AtomicBool>,
    thread: Option<JoinHandle<Result<WriteResult>>>,
}

impl Writer {
    /// Calls `write` once a second, with numbers that begin after `last_number`. What the failed ones said goes to `log`.
    pub fn start(
        last_number: u32,
        log: PathBuf,
        write: impl Fn(u32) -> Result<ProgramOutput> + Send + 'static,
    ) -> Self {
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        let work = move || {
            let begun = Instant::now();
            let mut written =
                WriteResult { good: 0, failed: 0, longest: Duration::ZERO, last: 0, tried: last_number };
            let mut last_good = begun;
            while !seen.load(Ordering::Relaxed) {
                written.tried += 1;
                let started = Instant::now();
                let ended = write(written.tried)?;
                if ended.code == 0 {
                    written.good += 1;
                    written.last = written.tried;
                    written.longest = written.longest.max(last_good.elapsed());
                    last_good = Instant::now();
                } else {
                    written.failed += 1;
                    let (at, number) = (begun.elapsed().as_secs(), written.tried);
                    append(&log, &format!("{at:5} s: write {number}: {}\n", ended.stderr.trim()))?;
                }
                thread::sleep(INTERVAL.saturating_sub(started.elapsed()));
            }
            written.longest = written.longest.max(last_good.elapsed());
            Ok(written)
        };
        Self { over, thread: Some(thread::spawn(work)) }
    }

    /// Ends it.
    pub fn finish(mut self) -> Result<WriteResult> {
        self.over.store(true, Ordering::Relaxed);
        let thread = self.thread.take().context("a client that writes")?;
        let written = thread.join().map_err(|_| anyhow!("the client's thread panicked"))??;
        ensure!(written.good > 0, "nothing was written: {written:?}");
        Ok(written)
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cluster_that_never_comes_back_is_noticed() {
        let log = tempfile::NamedTempFile::new().unwrap();
        let write = |number| {
            let code = i32::from(number > 8);
            Ok(ProgramOutput { code, stdout: String::new(), stderr: "connection refused".into() })
        };
        let writer = Writer::start(7, log.path().to_owned(), write);
        thread::sleep(Duration::from_millis(2500));
        let written = writer.finish().unwrap();
        assert_eq!((written.good, written.last), (1, 8));
        assert!(written.failed >= 1 && written.tried >= 9, "{written:?}");
        assert!(written.longest >= Duration::from_secs(2), "{written:?}");
        let told = std::fs::read_to_string(log.path()).unwrap();
        assert!(told.contains("write 9: connection refused"), "{told}");
    }
}
