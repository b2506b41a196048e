//! Unpacking: the live system's containerd turns the layers of seeded images into snapshots on the new node, so that the first
//! pods start at once. It is the containerd of the same OS image that the node runs.
//!
//! Only here does a daemon work on the new node's file system: the layout of snapshots is internal to containerd. Its socket,
//! state and configuration are below `/run`; it has no runtime and starts no container.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::plan::UnpackedImage;
use base::cancel::Cancel;
use base::command::{Invocation, Runner};
use base::containerd::{ContainerdClient, ContainerdDaemon, ContainerdPaths, ContainerdPrograms, NAMESPACE};
use base::failure::{Class, Classify, Failure};
use base::progress::Progress;
use model::release::Containerd;

/// For the start, each image, and the stop. Gigabytes of small files take minutes on a slow disk.
pub(super) const CTR_TIMEOUT: Duration = Duration::from_secs(1800);

/// The default snapshotter of kubelets.
const SNAPSHOTTER: &str = "overlayfs";

/// What unpacking needs, and nothing that touches the machine outside the root directory.
pub(super) const CONFIG: &str = r#"version = 2
required_plugins = ["io.containerd.metadata.v1.bolt", "io.containerd.snapshotter.v1.overlayfs"]
disabled_plugins = [
  "io.containerd.grpc.v1.cri",
  "io.containerd.grpc.v1.tasks",
  "io.containerd.internal.v1.opt",
  "io.containerd.internal.v1.restart",
  "io.containerd.monitor.v1.cgroups",
  "io.containerd.runtime.v1.linux",
  "io.containerd.runtime.v2.task",
  "io.containerd.service.v1.tasks-service",
  "io.containerd.snapshotter.v1.aufs",
  "io.containerd.snapshotter.v1.btrfs",
  "io.containerd.snapshotter.v1.devmapper",
  "io.containerd.snapshotter.v1.native",
  "io.containerd.snapshotter.v1.zfs",
]
"#;

/// The containerd that unpacks, and a directory for its files while it runs.
#[derive(Clone, Debug)]
pub struct Unpacking {
    pub programs: ContainerdPrograms,
    /// An existing directory; its path is short because it holds a socket.
    pub run: PathBuf,
}

impl Unpacking {
    /// The containerd of the live system. It ends when this process ends, in any way.
    #[must_use]
    pub fn of_live_system() -> Self {
        let programs = ContainerdPrograms {
            prefix: ["setpriv", "--pdeathsig", "KILL"].map(Into::into).into(),
            containerd: "containerd".into(),
            ctr: "ctr".into(),
            limit: CTR_TIMEOUT,
        };
        Self { programs, run: "/run".into() }
    }

    /// Fails if a program is missing; called before anything is written.
    pub(crate) fn check(&self, runner: &dyn Runner) -> Result<()> {
        let ContainerdPrograms { containerd, ctr, .. } = &self.programs;
        for program in [containerd, ctr] {
            let answered = runner.run(&Invocation::new(program).arg("--version"));
            answered.map_err(|error| {
                let what = format!("this release needs its images unpacked, and {} does not run", program.display());
                Failure::new(Class::Hardware, what).because(anyhow::anyhow!("{error:#}")).hint(
                    "Build the medium with the package containerd in the OS image, or without images.unpack. Nothing was written.",
                )
            })?;
        }
        Ok(())
    }

    /// Unpacks `images` of the store on the partition mounted at `partition`.
    pub(crate) fn unpack(
        &self,
        partition: &Path,
        containerd: &Containerd,
        images: &[UnpackedImage],
        progress: &Progress,
        cancel: &Cancel,
    ) -> Result<()> {
        let work = tempfile::Builder::new().prefix("nq").tempdir_in(&self.run);
        let work = work.with_context(|| format!("making a directory in {}", self.run.display()))?;
        let places = ContainerdPaths {
            work: work.path().into(),
            work_inside: work.path().into(),
            root_inside: partition.join(containerd.on_partition()),
        };
        let daemon = ContainerdDaemon::start(&self.programs, places, CONFIG)
            .class(Class::DiskIo, || "starting containerd on the new node's images".into())?;
        unpack_each(daemon.client(), images, progress, cancel)?;
        daemon.stop().class(Class::DiskIo, || "stopping containerd after unpacking".into())
    }
}

/// Lets a containerd unpack images of its store.
pub(super) fn unpack_each(
    containerd: &ContainerdClient,
    images: &[UnpackedImage],
    progress: &Progress,
    cancel: &Cancel,
) -> Result<()> {
    for (number, image) in (1..).zip(images) {
        progress.note("unpack", format!("Unpacking image {number} of {}: {}", images.len(), image.name));
        let digest = image.digest.oci();
        let call = ["--namespace", NAMESPACE, "snapshots", "--snapshotter", SNAPSHOTTER, "unpack", &digest];
        let unpacked = containerd.ctr_while(call, None, &mut || Ok(cancel.check()?));
        unpacked.class(Class::DiskIo, || format!("unpacking {} ({digest})", image.name))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests;
