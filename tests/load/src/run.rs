//! Many machines at once, begun at a rate or as fast as the servers answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::runtime::Builder;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::sleep_until;

use crate::install::{ReadyCreators, RunningMachine};
use crate::measurements::Measurements;
use crate::servers::Servers;
use crate::virtual_machine::VirtualMachine;

pub use crate::install::{Content, Goal, InstallPlan, MachineOutcome, MachineResult};
pub use crate::patience::RetryLimits;

/// Threads of the machines. The servers are on the same processors.
const THREADS: usize = 2;

/// Which machines run, and when.
#[derive(Clone, Copy, Debug)]
pub struct LoadPlan {
    pub install: InstallPlan,
    /// The number of the first machine.
    pub first: u32,
    pub machines: u32,
    /// The most machines that run at a time.
    pub at_once: usize,
    /// Machines that begin in an hour; none for as many as run at once.
    pub per_hour: Option<f64>,
}

impl Default for LoadPlan {
    /// One machine to its node, with patience for a server that is started again.
    fn default() -> Self {
        let retry = RetryLimits { patience: Duration::from_secs(60), pause: Duration::from_secs(1) };
        let install = InstallPlan {
            goal: Goal::Joined,
            content: Content::Sampled,
            cluster_size: 1,
            duration: Duration::ZERO,
            retry,
            own_addresses: true,
            asks_again: true,
        };
        Self { install, first: 0, machines: 1, at_once: 200, per_hour: None }
    }
}

/// All machines after a run.
#[derive(Debug)]
pub struct LoadResult {
    /// In the order of their numbers.
    pub machines: Vec<MachineResult>,
    pub measured: Measurements,
    /// From the first request to the last answer.
    pub time: Duration,
}

impl LoadPlan {
    /// When the machine `place` of the run begins, after the first one.
    fn begin(&self, place: u32) -> Duration {
        let apart = self.per_hour.map_or(0.0, |rate| 3600.0 / rate.max(f64::MIN_POSITIVE));
        Duration::try_from_secs_f64(apart * f64::from(place)).unwrap_or_default()
    }

    /// Runs all machines on threads of its own. Raises this process's limit of open files as far as it may.
    pub fn run(&self, servers: Servers) -> Result<LoadResult> {
        let (_, hard) = getrlimit(Resource::RLIMIT_NOFILE).context("reading the limit of open files")?;
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard).context("raising the limit of open files")?;
        let mut threads = Builder::new_multi_thread();
        let runtime = threads.worker_threads(THREADS).enable_all().build().context("starting threads")?;
        runtime.block_on(self.run_here(Arc::new(servers)))
    }

    async fn run_here(&self, servers: Arc<Servers>) -> Result<LoadResult> {
        let measured = Arc::new(Measurements::default());
        let creators = Arc::new(ReadyCreators::new(self.first, self.machines));
        let places = Arc::new(Semaphore::new(self.at_once.clamp(1, Semaphore::MAX_PERMITS)));
        let begun = Instant::now();
        let mut running = JoinSet::new();
        for place in 0..self.machines {
            sleep_until((begun + self.begin(place)).into()).await;
            let permit = Arc::clone(&places).acquire_owned().await.context("waiting for a place")?;
            let machine = VirtualMachine::new(self.first + place, self.install.cluster_size);
            let (plan, servers) = (self.install, Arc::clone(&servers));
            let (measured, creators) = (Arc::clone(&measured), Arc::clone(&creators));
            running.spawn(async move {
                let _permit = permit;
                RunningMachine::new(machine, plan, servers, &measured, &creators).run().await
            });
        }
        let mut machines = Vec::new();
        while let Some(ended) = running.join_next().await {
            machines.push(ended.context("a machine panicked")?);
        }
        let time = begun.elapsed();
        machines.sort_by_key(|result: &MachineResult| result.machine.number);
        let measured = Arc::into_inner(measured).context("a machine still measures")?;
        Ok(LoadResult { machines, measured, time })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn machines_begin_at_the_rate_of_the_plan_or_all_at_once() {
        let plan = LoadPlan { per_hour: Some(7200.0), ..LoadPlan::default() };
        assert_eq!([0, 1, 10].map(|place| plan.begin(place).as_millis()), [0, 500, 5000]);
        assert_eq!(LoadPlan::default().begin(1000), Duration::ZERO);
    }
}
