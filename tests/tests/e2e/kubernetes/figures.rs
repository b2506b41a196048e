//! Measurements of the run: seconds of each part, and memory of the nodes' processes. They are reported, never judged.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use nqrust_tests::artifacts::Artifacts;
use nqrust_tests::native_cluster::TestCluster;

pub(super) struct Figures<'a> {
    artifacts: &'a Artifacts,
    begun: Instant,
    last: Instant,
}

impl<'a> Figures<'a> {
    pub(super) fn new(artifacts: &'a Artifacts) -> Self {
        Self { artifacts, begun: Instant::now(), last: Instant::now() }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.artifacts.path(name)
    }

    /// Prints that a part is done, and its duration.
    pub(super) fn done(&mut self, part: &str) -> Result<()> {
        let took = self.last.elapsed();
        self.last = Instant::now();
        self.say(&format!("{:6.1} s  {part}", took.as_secs_f64()))
    }

    /// A line behind the seconds since the start.
    #[allow(clippy::print_stderr)]
    pub(super) fn say(&self, line: &str) -> Result<()> {
        let line = format!("{:6.1}  {line}\n", self.begun.elapsed().as_secs_f64());
        eprint!("{line}");
        self.artifacts.append("figures.txt", &line)
    }

    /// Keeps a text in a file of the artifacts.
    pub(super) fn keep(&self, name: &str, text: &str) -> Result<()> {
        self.artifacts.append(name, text)
    }

    /// Prints the resident memory of each node's processes, in MB.
    pub(super) fn memory(&mut self, cluster: &TestCluster) -> Result<()> {
        for node in cluster.running() {
            let mut programs: Vec<_> =
                node.memory()?.into_iter().map(|(name, size)| (size / 1000, name)).collect();
            programs.sort_by(|one, other| other.cmp(one));
            let sum: u64 = programs.iter().map(|(size, _)| size).sum();
            let told: Vec<_> = programs
                .iter()
                .filter(|(size, _)| *size > 3)
                .map(|(size, name)| format!("{name} {size}"))
                .collect();
            self.say(&format!("{}: {sum} MB: {}", node.place().name, told.join(", ")))?;
        }
        self.done("memory")
    }
}
