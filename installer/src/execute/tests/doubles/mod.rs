//! Doubles of a machine for tests of the executor: its disks, its mounts, the medium; and a bench with all of them, on which a
//! plan is carried out.

mod disk;
mod ext4;
mod host;
mod medium;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::Result;

pub(in crate::execute) use disk::{Act, Fault, Recording, TestDisk};
pub(in crate::execute) use ext4::{Ext4Machine, copy_data};
pub(in crate::execute) use host::{TestHost, TestRunner};
pub(in crate::execute) use medium::TestMedium;

use super::super::{BlockDevice, Host, RunEffects, Unpacking, execute};
use crate::inventory::Inventory;
use crate::plan::tests::{GUID, disk, release, trial};
use crate::plan::{NodeTexts, PartitionName, Plan, SealedPlan, Target};
use base::cancel::Cancel;
use base::command::Runner;
use base::failure::{Class, class_of, render};
use base::progress::Progress;
use base::size::ByteSize;
use model::config::{InstallConfig, Secret};
use testing::progress::Recorder;

/// Everything for one run.
pub(in crate::execute) struct Bench {
    pub(in crate::execute) plan: Plan,
    pub(in crate::execute) disk: TestDisk,
    pub(in crate::execute) others: BTreeMap<String, TestDisk>,
    pub(in crate::execute) medium: TestMedium,
    pub(in crate::execute) host: &'static TestHost,
    pub(in crate::execute) runner: TestRunner,
    pub(in crate::execute) recorder: Recorder,
    pub(in crate::execute) stop: &'static AtomicBool,
}

impl Bench {
    pub(in crate::execute) fn new() -> Self {
        Self::with_sector(512)
    }

    pub(in crate::execute) fn with_sector(sector: u32) -> Self {
        let mut target = disk("vda", ByteSize::gib(16));
        target.logical_sector = sector;
        Self::with(&[target], trial())
    }

    /// An install on the first of `disks`.
    pub(in crate::execute) fn with(disks: &[crate::inventory::Disk], mut config: InstallConfig) -> Self {
        let inventory = Inventory { disks: disks.to_vec(), nics: vec![] };
        config.install.device = disks[0].path.to_str().unwrap().parse().ok();
        config.token = Some(Secret::new("hush-token"));
        let plan = crate::plan::plan(&config, &inventory, &release(), GUID).unwrap();
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
            runner: TestRunner::default(),
            recorder: Recorder::default(),
            stop: Box::leak(Box::new(AtomicBool::new(false))),
        }
    }

    pub(in crate::execute) fn run(&self) -> Result<()> {
        self.run_on(&self.disk)
    }

    pub(in crate::execute) fn run_on(&self, device: &dyn BlockDevice) -> Result<()> {
        self.run_with(device, &self.host, &self.runner)
    }

    pub(in crate::execute) fn run_with(
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
    pub(in crate::execute) fn fail(&self) -> (Class, String) {
        let error = self.run().unwrap_err();
        assert_eq!(self.host.mounted.load(Ordering::Relaxed), 0, "a mount was left behind");
        assert!(!self.disk.committed(), "the disk boots after a failure");
        (class_of(&error), render(&error))
    }

    pub(in crate::execute) fn acts(&self) -> Vec<Act> {
        self.disk.acts.lock().unwrap().clone()
    }

    pub(in crate::execute) fn partition(&self, name: PartitionName) -> u64 {
        self.plan.partition(name).unwrap().start.get()
    }
}
