//! Doubles of a machine for tests of the executor: its disks, its mounts, the medium; and a bench with all of them, on which a
//! plan is carried out.

mod disk;
mod ext4;
mod host;
mod medium;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;

pub(crate) use disk::{Act, Fault, Recording, TestDisk};
pub(crate) use ext4::{Ext4Machine, copy_data};
pub(crate) use host::TestHost;
pub(crate) use medium::TestMedium;

use super::super::{BlockDevice, Host, RunEffects, Unpacking, execute};
use crate::plan::tests::{GUID, disk, release, trial};
use crate::plan::{NodeTexts, PartitionName, Plan, SealedPlan, Target};
use base::cancel::Cancel;
use base::command::Runner;
use base::failure::{Class, class_of, render};
use base::progress::Progress;
use base::size::ByteSize;
use machine::inventory::Inventory;
use model::config::{InstallConfig, Secret};
use testing::progress::Recorder;
use testing::runner::ScriptedRunner;

/// Everything for one run.
pub(crate) struct Bench {
    pub(crate) plan: Plan,
    pub(crate) disk: TestDisk,
    pub(crate) others: BTreeMap<String, TestDisk>,
    pub(crate) medium: TestMedium,
    pub(crate) host: &'static TestHost,
    pub(crate) runner: ScriptedRunner,
    pub(crate) recorder: Recorder,
    pub(crate) stop: &'static AtomicBool,
}

impl Bench {
    pub(crate) fn new() -> Self {
        Self::with_sector(512)
    }

    pub(crate) fn with_sector(sector: u32) -> Self {
        let mut target = disk("vda", ByteSize::gib(16));
        target.logical_sector = sector;
        Self::with(&[target], trial())
    }

    /// An install on the first of `disks`.
    pub(crate) fn with(disks: &[machine::inventory::Disk], mut config: InstallConfig) -> Self {
        let inventory = Inventory { disks: disks.to_vec(), ..Inventory::default() };
        config.install.device = disks[0].path.to_str().unwrap().parse().ok();
        config.token = Some(Secret::new("hush-token"));
        let plan = crate::plan::plan(&config, &inventory, &release().into(), GUID).unwrap();
        let data = plan.data_disk.iter().map(|data| &data.disk);
        let others = data.chain(plan.wiped.iter().map(|wiped| &wiped.disk));
        let other = |target: &Target| {
            (target.name.clone(), TestDisk::other(target, tempfile::NamedTempFile::new().unwrap()))
        };
        Self {
            disk: TestDisk::new(&plan),
            others: others.map(other).collect(),
            plan,
            medium: TestMedium::default(),
            host: TestHost::new(),
            runner: ScriptedRunner::silent(),
            recorder: Recorder::default(),
            stop: Box::leak(Box::new(AtomicBool::new(false))),
        }
    }

    pub(crate) fn run(&self) -> Result<()> {
        self.run_on(&self.disk)
    }

    pub(crate) fn run_on(&self, device: &dyn BlockDevice) -> Result<()> {
        self.run_with(device, &self.host, &self.runner)
    }

    pub(crate) fn run_with(
        &self,
        device: &dyn BlockDevice,
        host: &dyn Host,
        runner: &dyn Runner,
    ) -> Result<()> {
        let token = self.plan.document.token.as_ref().map(Secret::expose).unwrap_or_default();
        let texts = NodeTexts {
            document: Some(Secret::new(format!("token: {token}\n"))),
            defaults: None,
            machine_id: Some("0123456789abcdef0123456789abcdef".into()),
            fleet: Some(Secret::new("{\"v\": 1}\n")),
            installed: Some(Secret::new("{\"version\": 1}\n")),
            unsigned: None,
            preflight: "passed  cpu  a test\n".into(),
        };
        let open = |target: &Target| -> Result<Box<dyn BlockDevice + '_>> {
            let disk = self.others.get(&target.name).ok_or_else(|| anyhow::anyhow!("no {}", target.name))?;
            Ok(Box::new(disk))
        };
        let effects = RunEffects {
            device,
            open: &open,
            source: &self.medium,
            runner,
            host,
            progress: &Progress::new(vec![Box::new(self.recorder.clone())]),
            cancel: &Cancel::new(self.stop),
            unpacking: &Unpacking::of_live_system(),
        };
        execute(&SealedPlan::new(self.plan.clone(), texts), &effects)
    }

    /// Runs to a failure; returns its class and text. Nothing may be mounted after it.
    pub(crate) fn fail(&self) -> (Class, String) {
        let error = self.run().unwrap_err();
        assert_eq!(self.host.mounted.load(Ordering::Relaxed), 0, "a mount was left behind");
        assert!(!self.disk.committed(), "the disk boots after a failure");
        (class_of(&error), render(&error))
    }

    pub(crate) fn acts(&self) -> Vec<Act> {
        self.disk.acts.lock().unwrap().clone()
    }

    pub(crate) fn partition(&self, name: PartitionName) -> u64 {
        self.plan.partition(name).unwrap().start.get()
    }
}
