//! Takes the parts of the step that are left.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use super::machine::MovedMachine;
use super::parts::{MoveAction, parts};
use super::record::MoveRecord;
use crate::kept_version::image::{self, UncoveredImage};
use crate::kept_version::kept::KeptVersions;
use crate::kubeadm::upgrade;
use crate::version_skew::{self as skew, MovedPart};
use base::command::{Invocation, Runner};
use base::failure::{Class, Failure, class_of, hints};
use base::files;
use machine::mounted::mounted;
use machine::paths::below;
use model::config::Distribution;
use model::kubernetes::{KubernetesRelease, KubernetesVersion};

/// kubeadm has limits of its own, which end before.
const KUBEADM_LIMIT: Duration = Duration::from_secs(60 * 60);
const SNAPSHOT_LIMIT: Duration = Duration::from_secs(30 * 60);
/// A start of RKE2 waits for etcd and its API server.
const RESTART_LIMIT: Duration = Duration::from_secs(20 * 60);
/// How often the health of the node is observed at most, and how many results have to be good in a row.
const LOOKS: u32 = 180;
const GOOD_LOOKS: u32 = 3;
const LOOK_PAUSE: Duration = Duration::from_secs(5);
const SNAPSHOTS: &str = "/var/lib/nqrust/kubernetes/snapshots";
const SNAPSHOTS_MAX: usize = 3;
const WITNESS_ETCD: &str = "/etc/kubernetes/manifests/etcd.yaml";
/// In bytes; a manifest has some kilobytes.
const MANIFEST_BYTES_MAX: u64 = 1 << 20;

/// Waits until it is this node's turn, before anything is changed towards a version; with whether the step has begun before, and with
/// what receives a line for people.
pub type TakeTurn<'a> = dyn Fn(&KubernetesVersion, bool, &mut dyn FnMut(&str)) -> Result<()> + 'a;

/// The node that is moved.
#[derive(Clone, Copy)]
#[allow(missing_debug_implementations)]
pub struct MovedNode<'a> {
    pub root: &'a Path,
    pub runner: &'a dyn Runner,
    pub machine: &'a dyn MovedMachine,
    pub distribution: Distribution,
    /// What it is for its cluster; none without a cluster.
    pub part: Option<MovedPart>,
    /// The unit that runs Kubernetes.
    pub unit: &'a str,
}

impl MovedNode<'_> {
    /// Moves the node to the version that its OS brings, or goes on with that, once `turn` returns; what was done, or none
    /// where it is there already. `say` receives what happens, a line each.
    ///
    /// # Errors
    /// [`Class::Hardware`] before anything was changed, if the rules of versions or the state of the cluster do not allow it;
    /// otherwise of the part that has failed, with what is true of the node then. Starting again goes on with that part.
    pub fn advance(&self, turn: &TakeTurn<'_>, say: &mut dyn FnMut(&str)) -> Result<Option<MoveRecord>> {
        let runs = image::read(self.root)?.context("the OS of this node has no Kubernetes")?.version;
        let uncovered = UncoveredImage::show(self.root, self.runner)?;
        let brought = image::read(uncovered.path())?.context("the OS image has no Kubernetes")?;
        let kept = KeptVersions::of(self.root);
        let from = kept.current().unwrap_or(runs);
        let mut record = match MoveRecord::read(self.root).filter(|record| record.to == brought.version) {
            Some(record) => {
                turn(&brought.version, true, say)?;
                record
            }
            None => match skew::step(&from, &brought.version)? {
                skew::KubernetesStep::None => return Ok(None),
                skew::KubernetesStep::Older => {
                    let what = format!("this OS brings Kubernetes {}, and {from} runs here", brought.version);
                    return Err(Failure::new(Class::Hardware, what)
                        .because("Kubernetes does not go back: its data would not be readable")
                        .hint("Update the OS to a release that brings a later one.")
                        .into());
                }
                skew::KubernetesStep::Newer => {
                    turn(&brought.version, false, say)?;
                    self.check(&brought)?;
                    MoveRecord::new(from, brought.version.clone())
                }
            },
        };
        say(&format!("Kubernetes {} becomes {}", record.from, record.to));
        let parts = parts(self.distribution, self.part);
        for (index, action) in parts.iter().enumerate() {
            if record.done.iter().any(|done| done == action.name()) {
                continue;
            }
            say(&format!("{} ({} of {})", action.message(), index + 1, parts.len()));
            record.failed = None;
            record.write(self.root)?;
            if let Err(error) = self.take(*action, &brought, uncovered.path(), &mut record) {
                record.failed = Some(format!("{error:#}"));
                record.write(self.root)?;
                return Err(self.failed(*action, &record, error).into());
            }
            record.done.push(action.name().to_owned());
            record.write(self.root)?;
        }
        MoveRecord::remove(self.root)?;
        Ok(Some(record))
    }

    /// Checks that the step may begin: faults from before would be blamed on it.
    fn check(&self, brought: &KubernetesRelease) -> Result<()> {
        if self.part.is_none() {
            return Ok(());
        }
        let wrong = self.machine.unhealthy();
        if !wrong.is_empty() {
            let what = format!("this node cannot be moved to Kubernetes {} now", brought.version);
            return Err(Failure::new(Class::Hardware, what)
                .because(format!("it is not healthy: {}", wrong.join("; ")))
                .hint("See `installer health`.")
                .into());
        }
        Ok(skew::check(&self.machine.cluster()?, &brought.version)?)
    }

    fn failed(&self, action: MoveAction, record: &MoveRecord, error: anyhow::Error) -> Failure {
        let MoveRecord { from, to, snapshot, .. } = record;
        let what =
            format!("moving Kubernetes from {from} to {to}, part {}: {}", action.name(), action.left());
        let class = match class_of(&error) {
            Class::Unexpected => Class::Join,
            class => class,
        };
        let own = hints(&error);
        let saved = snapshot.iter().map(|path| format!("The datastore as it was is in {path}."));
        let next = std::iter::once("Then go on: installer update kubernetes".to_owned());
        let hint: Vec<_> = own.into_iter().map(|hint| hint.to_string()).chain(saved).chain(next).collect();
        Failure::new(class, what)
            .because(error.reallocate_into_boxed_dyn_error_without_backtrace())
            .hint(hint.join(" "))
    }

    fn take(
        &self,
        action: MoveAction,
        brought: &KubernetesRelease,
        image: &Path,
        record: &mut MoveRecord,
    ) -> Result<()> {
        let kept = KeptVersions::of(self.root);
        match action {
            MoveAction::Keep => kept.keep(image, brought).map(drop),
            MoveAction::Snapshot => {
                record.snapshot = Some(self.save(record)?);
                Ok(())
            }
            MoveAction::Kubeadm => {
                let kubeadm = kept.directory(&brought.version).join("usr/local/bin/kubeadm");
                let server = self.part == Some(MovedPart::Server);
                upgrade::run(self.root, self.runner, &kubeadm, brought, server, KUBEADM_LIMIT)
            }
            MoveAction::Etcd => {
                let images = brought.images.as_ref().context("the OS image names no image of etcd")?;
                name_etcd(&below(self.root, WITNESS_ETCD), &images.etcd.to_string())
            }
            MoveAction::Choose => kept.choose(&brought.version),
            MoveAction::Place => self.place(brought),
            MoveAction::Restart => {
                let restart = Invocation::new("systemctl").args(["restart", self.unit]).limit(RESTART_LIMIT);
                self.runner.run(&restart).map(drop)
            }
            MoveAction::AwaitHealthy => self.await_healthy(record),
            MoveAction::Forget => kept.forget_others(&brought.version),
        }
    }

    /// Saves the datastore, and returns where it is.
    fn save(&self, record: &MoveRecord) -> Result<String> {
        if self.distribution == Distribution::Kubeadm {
            let directory = below(self.root, SNAPSHOTS);
            files::make_directory(&directory, 0o700)?;
            let name = format!("{}-before-{}.db", record.from, record.to);
            self.machine.save_datastore(&directory.join(&name))?;
            forget_old(&directory)?;
            return Ok(format!("{SNAPSHOTS}/{name}"));
        }
        let program = self.distribution.name();
        let name = format!("pre-{}", record.to.tag());
        let save = Invocation::new(program).args(["etcd-snapshot", "save", "--name", &name]);
        self.runner.run(&save.limit(SNAPSHOT_LIMIT))?;
        Ok(format!("/var/lib/rancher/{program}/server/db/snapshots/{name}-*"))
    }

    /// Unmounts what covers the files of the image, which has the chosen version. Running programs keep their open files.
    fn place(&self, brought: &KubernetesRelease) -> Result<()> {
        let mut paths = brought.files.clone();
        if let Some(over) = image::read(self.root)? {
            paths.extend(over.files);
        }
        paths.sort();
        paths.dedup();
        for path in paths {
            let path = format!("/{path}");
            // There may be several, one over the other.
            while mounted(&files::read_text(&below(self.root, "/proc/self/mountinfo"))?, &path).is_some() {
                self.runner.run(&Invocation::new("umount").arg("--lazy").arg(below(self.root, &path)))?;
            }
        }
        if self.distribution == Distribution::Rke2 {
            // It looks for its programs in a directory that has the version in its name.
            let make =
                Invocation::new("systemd-tmpfiles").args(["--create", "/usr/lib/tmpfiles.d/rke2.conf"]);
            self.runner.run(&make)?;
        }
        Ok(())
    }

    fn await_healthy(&self, record: &MoveRecord) -> Result<()> {
        let (mut good, mut wrong) = (0, Vec::new());
        for look in 0..LOOKS {
            if look > 0 {
                self.machine.pause(LOOK_PAUSE);
            }
            wrong = self.machine.unhealthy();
            match self.machine.kubelet() {
                Ok(version) if version == record.to => {}
                Ok(version) => wrong.push(format!("the cluster has the kubelet as {version}")),
                Err(why) => wrong.push(why),
            }
            good = if wrong.is_empty() { good + 1 } else { 0 };
            if good == GOOD_LOOKS {
                return Ok(());
            }
        }
        Err(Failure::new(Class::Join, "the node did not become healthy in time")
            .because(wrong.join("; "))
            .hint(format!("See `installer health` and `journalctl --unit {}`.", self.unit))
            .into())
    }
}

/// Gives a manifest of etcd another image; the kubelet starts it again by itself.
fn name_etcd(path: &Path, image: &str) -> Result<()> {
    let what = || format!("reading {}", path.display());
    let text = files::read_at_most(path, MANIFEST_BYTES_MAX)?;
    let mut manifest: Value = serde_saphyr::from_str(&String::from_utf8_lossy(&text)).with_context(what)?;
    let containers = manifest["spec"]["containers"].as_array_mut().with_context(what)?;
    let etcd = containers.iter_mut().find(|container| container["name"] == "etcd").with_context(what)?;
    if etcd["image"] == image {
        return Ok(());
    }
    etcd["image"] = image.into();
    files::write_atomically(path, format!("{manifest:#}\n").as_bytes(), 0o600)
}

/// Removes all but the newest snapshots.
fn forget_old(directory: &Path) -> Result<()> {
    let mut snapshots: Vec<(std::time::SystemTime, PathBuf)> = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.path().extension().is_some_and(|extension| extension == "db") {
            snapshots.push((entry.metadata()?.modified()?, entry.path()));
        }
    }
    snapshots.sort();
    let surplus = snapshots.len().saturating_sub(SNAPSHOTS_MAX);
    for (_, path) in &snapshots[..surplus] {
        fs::remove_file(path).with_context(|| format!("removing {}", path.display()))?;
    }
    Ok(())
}
