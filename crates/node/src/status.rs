//! The status of a node, for `installer status` and the page of the node.

use std::fmt;
use std::path::Path;

use anyhow::Result;
use serde::Serialize;

use super::applied::AppliedRecord;
use super::apply;
use base::command::Runner;
use base::files;
use cluster::images::{self, BlobCount};
use cluster::kept_version::NodeKubernetes;
use cluster::stages::observed_node::ObservedNode;
use cluster::stages::readiness_watch::{self, ReadyRecord};
use cluster::stages::{self, Stage};
use machine::arrays::{self, ArrayStatus};
use machine::crash_dumps::{self, CrashDump, UnexplainedEnd};
use machine::disk_paths::DiskPaths;
use machine::host::{self, SettingState};
use machine::image_health::ImageHealth;
use machine::installed_node::InstalledNode;
use machine::network_disks::sessions::{self, SessionStatus};
use machine::nics::MissingCards;
use machine::paths::{CONFIG, DATA, DOCUMENT, PERSISTENT, below};
use machine::release_origin::ReleaseOrigin;
use machine::update_state::{UpdateNotice, UpdateState};
use machine::write_latency::{GOOD, WriteLatency};
use model::boot::{BootParameters, Slot};
use model::config::{Images, NodeRole};
use model::network_disks::DiskProtocol;

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Status {
    pub product: String,
    pub version: String,
    /// Who has signed the release, and whether the node ever had an unsigned one.
    pub trust: ReleaseOrigin,
    pub hostname: String,
    #[serde(flatten)]
    pub role: NodeRole,
    pub mode: &'static str,
    /// What was found when the OS image was read as a whole.
    pub image: ImageHealth,
    /// The running slot; `None` if the command line is not that of an installed node.
    pub slot: Option<Slot>,
    /// The persistent directories, and what is mounted there.
    pub mounts: Vec<MountedPlace>,
    /// The arrays of a mirrored system.
    pub arrays: Vec<ArrayStatus>,
    /// The paths to the disks of a running node, where these have several.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<DiskPaths>,
    /// The logins and connections to the disks of a running node that are reached over the network.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub network_disks: Vec<SessionStatus>,
    /// The settings of `os.host`, and what is found of each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub host: Vec<SettingState>,
    /// The dumps of kernels that crashed, the newest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub crashes: Vec<CrashDump>,
    /// The end of the previous start, if it was neither a shutdown nor a crash that was recorded; only with a crash kernel.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub unexplained_end: Option<UnexplainedEnd>,
    /// How long flushed writes took when the disk of etcd was last measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_latency: Option<WriteLatency>,
    /// Whether the document differs from what was applied.
    pub pending: bool,
    /// The mistakes of the document, a line each. Values that do not fit their keys are ignored.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub mistakes: Vec<String>,
    pub images: BlobCount,
    /// Network cards of the document that are missing; only for a running node.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub missing_cards: Option<MissingCards>,
    /// The stages of joining its cluster; empty for a node without a cluster or one that is not running.
    pub stages: Vec<Stage>,
    pub ready: Option<ReadyRecord>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub update: Option<UpdateNotice>,
    /// The versions of Kubernetes; none where the OS has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kubernetes: Option<NodeKubernetes>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MountedPlace {
    pub path: String,
    /// The device or directory mounted there; `None` if nothing is.
    pub source: Option<String>,
}

impl Status {
    pub fn gather(node: &InstalledNode) -> Result<Self> {
        let root = node.root();
        let (release, config) = (node.release()?, &node.config);
        let deferred = config.install.images() == Images::Defer;
        let (expected, present) = images::count(&release, config.install.own_role(), root);
        let applied = AppliedRecord::read(root)?.unwrap_or_default();
        let slot = BootParameters::parse(&proc_text(root, "cmdline")?)?.map(|installed| installed.slot);
        Ok(Self {
            product: release.name,
            version: release.version,
            trust: ReleaseOrigin::of(node),
            image: ImageHealth::read(root),
            hostname: proc_text(root, "sys/kernel/hostname")?.trim_end().to_owned(),
            role: config.install.node_role(),
            mode: config.install.mode.name(),
            slot,
            mounts: places(&proc_text(root, "self/mountinfo")?),
            arrays: arrays::arrays(root),
            paths: Vec::new(),
            network_disks: sessions::of_node(root),
            host: host::states(root, &config.os),
            crashes: crash_dumps::of_node(root),
            unexplained_end: crash_dumps::unexplained_end(root),
            write_latency: WriteLatency::recorded(root),
            pending: applied.document != Some(apply::digest_of(&below(root, DOCUMENT))?),
            images: BlobCount { expected, present, deferred },
            mistakes: node.mistakes.clone(),
            missing_cards: None,
            stages: Vec::new(),
            ready: ReadyRecord::read(root)?,
            update: UpdateState::read(root).news(slot),
            kubernetes: NodeKubernetes::look(root),
        })
    }

    /// The status of a running node: it has missing network cards, and stages of joining its cluster.
    pub fn gather_running(node: &InstalledNode, runner: &dyn Runner) -> Result<Self> {
        let (mut status, root) = (Self::gather(node)?, node.root());
        if let Some(installed) = BootParameters::parse(&proc_text(root, "cmdline")?)? {
            status.paths = DiskPaths::of_node(root, &installed, runner);
        }
        status.missing_cards = MissingCards::on(root, &node.config, &below(root, DOCUMENT));
        if let Some(subject) = ObservedNode::of(node)? {
            let stages = subject.look(root, runner);
            // Only stages that the watching unit recorded have a time.
            let before = readiness_watch::recorded_stages(root);
            status.stages = if before.is_empty() {
                stages
            } else {
                readiness_watch::with_times(&before, stages, &readiness_watch::time())
            };
        }
        Ok(status)
    }
}

fn proc_text(root: &Path, name: &str) -> Result<String> {
    files::read_text(&root.join("proc").join(name))
}

/// What is mounted at the persistent directories, from the text of proc_pid_mountinfo(5).
fn places(mountinfo: &str) -> Vec<MountedPlace> {
    let source = |path: &str| {
        let line = mountinfo.lines().rev().find(|line| line.split(' ').nth(4) == Some(path))?;
        line.split_once(" - ")?.1.split(' ').nth(1).map(str::to_owned)
    };
    let place = |path: &str| MountedPlace { path: path.to_owned(), source: source(path) };
    ["/", "/etc", "/var", CONFIG, DATA].into_iter().chain(PERSISTENT).map(place).collect()
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let slot = self.slot.map_or("none (not an installed system)".to_owned(), |slot| slot.to_string());
        let pending =
            if self.pending { "the node document has changes that are not applied" } else { "nothing" };
        for line in self.missing_cards.iter().flat_map(MissingCards::lines) {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "product   {} {}", self.product, self.version)?;
        for (name, value) in self.trust.lines() {
            writeln!(f, "{name:9} {value}")?;
        }
        writeln!(f, "hostname  {}", self.hostname)?;
        writeln!(f, "role      {}", self.role.beside(&format!("mode {}", self.mode)))?;
        writeln!(f, "slot      {slot}")?;
        if let Some(read) = &self.image.read {
            writeln!(f, "OS image  {read}")?;
        }
        for warning in self.image.warnings() {
            writeln!(f, "warning   {warning}")?;
        }
        if let Some(update) = &self.update {
            writeln!(f, "update    {}", update.text)?;
        }
        if let Some(kubernetes) = &self.kubernetes {
            writeln!(f, "{:9} {}", "kubernetes", kubernetes.text())?;
        }
        let deferred = if self.images.deferred { ", the rest deferred: pulled on demand" } else { "" };
        let BlobCount { present, expected, .. } = self.images;
        writeln!(f, "images    {present} of {expected} blobs present{deferred}")?;
        writeln!(f, "pending   {pending}")?;
        for (index, line) in self.mistakes.iter().enumerate() {
            writeln!(f, "{:9} {line}", if index == 0 { "mistakes" } else { "" })?;
        }
        for (index, array) in self.arrays.iter().enumerate() {
            writeln!(f, "{:9} {array}", if index == 0 { "mirror" } else { "" })?;
        }
        for (index, paths) in self.paths.iter().enumerate() {
            writeln!(f, "{:9} {paths}", if index == 0 { "paths" } else { "" })?;
        }
        let mut shown = None;
        for session in &self.network_disks {
            let label = match session.protocol {
                _ if shown == Some(session.protocol) => "",
                DiskProtocol::Iscsi => "iscsi",
                DiskProtocol::NvmeTcp => "nvme",
            };
            shown = Some(session.protocol);
            writeln!(f, "{label:9} {session}")?;
        }
        if let Some(latency) = &self.write_latency {
            let slow = format!(", SLOW for etcd, which needs {} ms", GOOD.as_millis());
            writeln!(f, "disk      {latency}{}", if latency.is_good() { "" } else { &slow })?;
        }
        for (index, state) in self.host.iter().enumerate() {
            writeln!(f, "{:9} {state}", if index == 0 { "host" } else { "" })?;
        }
        for (index, crash) in self.crashes.iter().enumerate() {
            writeln!(f, "{:9} {crash}", if index == 0 { "crashes" } else { "" })?;
        }
        if let Some(end) = &self.unexplained_end {
            writeln!(f, "restart   {end}")?;
        }
        self.cluster(f)?;
        for (index, place) in self.mounts.iter().enumerate() {
            let head = if index == 0 { "mounts" } else { "" };
            writeln!(f, "{head:9} {} on {}", place.source.as_deref().unwrap_or("nothing"), place.path)?;
        }
        Ok(())
    }
}

impl Status {
    fn cluster(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(stage) = stages::current(&self.stages) {
            writeln!(f, "cluster   not ready: in stage {}", stage.name.text())?;
        } else if !self.stages.is_empty() {
            writeln!(f, "cluster   ready")?;
        }
        if let Some(ReadyRecord { first, last, .. }) = &self.ready {
            writeln!(f, "ready     first at {first}, last at {last}")?;
        }
        for (index, stage) in self.stages.iter().enumerate() {
            writeln!(f, "{:9} {stage}", if index == 0 { "stages" } else { "" })?;
            if let Some(next) = &stage.next {
                writeln!(f, "{:9}   next: {next}", "")?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::apply::tests::image;
    use base::failure::{Class, class_of};
    use cluster::kept_version::data;
    use serde_json::json;
    use std::fs;
    use testing::node::{release_with_images as sample, store_blobs as store};
    use testing::runner::ScriptedRunner;

    const MOUNTINFO: &str = "\
22 1 8:4 / / ro,relatime shared:1 - squashfs /dev/sda4 ro
23 22 8:7 / /var rw,noatime shared:2 - ext4 /dev/sda7 rw
24 22 8:3 / /oem rw,nosuid,nodev,noexec,noatime - ext4 /dev/sda3 rw
25 22 0:40 / /etc rw,noatime shared:5 - overlay overlay rw,lowerdir=/sysroot/etc
26 22 8:7 /lib/nqrust/persistent/home /home rw,noatime shared:2 - ext4 /dev/sda7 rw
";

    pub(crate) fn node() -> tempfile::TempDir {
        let root = image();
        let put = |path: &str, text: &[u8]| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        put("oem/node.yaml", b"os: {hostname: node-1}\ninstall: {role: management, mode: join}\n");
        put("oem/release.json", &sample().to_bytes());
        put(
            "proc/cmdline",
            b"nqrust.slot=a nqrust.config=PARTUUID=0a0b0c0d-0000-4000-8000-000000000003 \
            nqrust.persistent=PARTUUID=0a0b0c0d-0000-4000-8000-000000000007\n",
        );
        put("proc/sys/kernel/hostname", b"node-1\n");
        put("proc/self/mountinfo", MOUNTINFO.as_bytes());
        store(root.path(), &[b"one", b"shared"]);
        root
    }

    fn gather(root: &Path) -> Result<Status> {
        Status::gather(&InstalledNode::open(root)?)
    }

    #[test]
    fn a_person_reads_what_the_node_is() {
        let root = node();
        apply::apply(&root.path().join("oem/node.yaml"), root.path()).unwrap();
        assert_eq!(
            gather(root.path()).unwrap().to_string(),
            "product   NQRust Hypervisor 1.0\n\
             release   not signed\n\
             warning   the running release is not signed\n\
             hostname  node-1\n\
             role      management (mode join)\n\
             slot      a\n\
             images    2 of 3 blobs present\n\
             pending   nothing\n\
             mounts    /dev/sda4 on /\n\
            \x20         overlay on /etc\n\
            \x20         /dev/sda7 on /var\n\
            \x20         /dev/sda3 on /oem\n\
            \x20         nothing on /var/lib/harvester/defaultdisk\n\
            \x20         /dev/sda7 on /home\n\
            \x20         nothing on /root\n\
            \x20         nothing on /opt\n\
            \x20         nothing on /srv\n"
        );
    }

    #[test]
    fn the_first_node_of_a_cluster_says_what_it_is_and_what_was_asked_for() {
        let root = node();
        for (role, text, asked) in [
            ("default", "role      management (asked: default, mode create)\n", json!("default")),
            ("management", "role      management (mode create)\n", json!(null)),
        ] {
            let document = format!("os: {{hostname: node-1}}\ninstall: {{role: {role}, mode: create}}\n");
            fs::write(root.path().join("oem/node.yaml"), document).unwrap();
            let status = gather(root.path()).unwrap();
            assert!(status.to_string().contains(text), "{status}");
            let value = serde_json::to_value(&status).unwrap();
            assert_eq!((&value["role"], &value["asked_role"]), (&json!("management"), &asked));
        }
    }

    #[test]
    fn a_person_reads_how_far_the_node_is_on_its_way() {
        let root = node();
        let mut status = gather(root.path()).unwrap();
        let ready =
            r#"{"name": "node-1", "cluster": null, "distribution": "rke2", "first": "1", "last": "2"}"#;
        fs::create_dir_all(root.path().join("var/lib/nqrust")).unwrap();
        fs::write(below(root.path(), readiness_watch::READY), ready).unwrap();
        let stages = r#"[{"name": "network", "state": "done", "since": "1", "detail": "there", "next": null},
                         {"name": "service", "state": "failed", "since": "2", "detail": "odd", "next": "Do it."}]"#;
        status.stages = serde_json::from_str(stages).unwrap();
        status.ready = ReadyRecord::read(root.path()).unwrap();
        let text = status.to_string();
        let expected = "cluster   not ready: in stage service\n\
                        ready     first at 1, last at 2\n\
                        stages    network    done    there\n\
                        \x20         service    failed  odd (since 2)\n\
                        \x20           next: Do it.\n\
                        mounts ";
        assert!(text.contains(expected), "{text}");
        status.stages.pop();
        assert!(status.to_string().contains("cluster   ready\n"));
    }

    #[test]
    fn a_person_reads_that_a_mirror_has_lost_a_disk() {
        let root = node();
        let put = testing::machine::put_array;
        put(root.path(), "md127", "config", 0, "idle", &[("vda3", "in_sync"), ("vdb3", "in_sync")]);
        put(root.path(), "md126", "persistent", 1, "idle", &[("vda7", "in_sync")]);
        let text = gather(root.path()).unwrap().to_string();
        let expected = "mirror    config whole: 2 of 2 disks (vda3, vdb3), md127\n\
                        \x20         persistent DEGRADED: 1 of 2 disks (vda7), md126\n";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn a_person_reads_that_a_path_to_the_disk_is_down() {
        let root = node();
        let put = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        let line = fs::read_to_string(root.path().join("proc/cmdline")).unwrap();
        put("proc/cmdline", &format!("{} nqrust.multipath=3600c0ff0\n", line.trim_end()));
        put("sys/block/dm-0/dm/uuid", "mpath-3600c0ff0\n");
        put("sys/block/dm-0/dm/name", "3600c0ff0\n");
        for (name, number) in [("sda", "8:0"), ("sdb", "8:16")] {
            put(&format!("sys/block/{name}/dev"), number);
            put(&format!("sys/block/dm-0/slaves/{name}/dev"), number);
        }
        let runner = ScriptedRunner::silent()
            .answer("dmsetup", "0 8 multipath 2 0 0 0 1 1 A 0 2 2 8:0 A 0 0 1 8:16 F 3 0 1");
        let status = Status::gather_running(&InstalledNode::open(root.path()).unwrap(), &runner).unwrap();
        let expected = "paths     /dev/mapper/3600c0ff0: ONLY ONE PATH WORKS: sda up, sdb DOWN\n";
        assert!(status.to_string().contains(expected), "{status}");
        let value = serde_json::to_value(&status).unwrap();
        assert_eq!(value["paths"][0]["paths"][1], json!({ "name": "sdb", "state": "down" }));
    }

    #[test]
    fn a_person_reads_what_the_disk_of_etcd_can_do() {
        let root = node();
        assert!(!gather(root.path()).unwrap().to_string().contains("\ndisk "));
        let path = below(root.path(), machine::write_latency::RECORD);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let latency = WriteLatency { writes: 2000, median: 400, p99: 12_300, slowest: 80_000 };
        latency.record(&path).unwrap();
        let status = gather(root.path()).unwrap();
        let expected = "disk      99 of 100 flushed writes within 12.3 ms (half within 0.4 ms, the slowest 80.0 ms, of 2000), \
                        SLOW for etcd, which needs 10 ms\n";
        assert!(status.to_string().contains(expected), "{status}");
        assert_eq!(serde_json::to_value(&status).unwrap()["write_latency"]["p99"], 12_300);
    }

    #[test]
    fn a_person_reads_which_settings_of_the_machine_are_in_effect() {
        let root = node();
        let document = "os: {hostname: node-1, host: {huge_pages: [{size: 2M, count: 8}], cpu: {governor: performance}}}\n\
                        install: {role: management, mode: join}\n";
        fs::write(root.path().join("oem/node.yaml"), document).unwrap();
        let pages = root.path().join("sys/kernel/mm/hugepages/hugepages-2048kB");
        fs::create_dir_all(&pages).unwrap();
        fs::write(pages.join("nr_hugepages"), "8\n").unwrap();
        let text = gather(root.path()).unwrap().to_string();
        let expected = "host      huge_pages: 8 of 8 pages of 2M\n\
                        \x20         cpu.governor: none, NOT as the document asks\n\
                        \x20         kernel arguments: this start was without hugepagesz=2M hugepages=8 (restart the node), \
                        NOT as the document asks\n";
        assert!(text.contains(expected), "{text}");
    }

    #[test]
    fn a_person_reads_which_crashes_there_were_from_the_newest() {
        let root = node();
        assert!(!gather(root.path()).unwrap().to_string().contains("\ncrashes "));
        for (name, record) in [
            ("20261128T235959Z", r#"{"kernel": "6.12.1", "reason": "Oops", "dump_bytes": 47185920}"#),
            (
                "20261129T023105Z",
                r#"{"kernel": "6.12.1", "reason": "sysrq triggered crash", "lacking": "no room"}"#,
            ),
        ] {
            let directory = below(root.path(), crash_dumps::DIRECTORY).join(name);
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join(crash_dumps::RECORD), record).unwrap();
        }
        let status = gather(root.path()).unwrap();
        let expected = "crashes   2026-11-29T02:31:05Z: sysrq triggered crash (only messages in \
                        /var/lib/nqrust/crash/20261129T023105Z; no room)\n\
                        \x20         2026-11-28T23:59:59Z: Oops (45 MiB in /var/lib/nqrust/crash/20261128T235959Z)\n";
        assert!(status.to_string().contains(expected), "{status}");
        let value = serde_json::to_value(&status).unwrap();
        assert_eq!(value["crashes"][1]["dump_bytes"], 47_185_920);
        assert!(value["unexplained_end"].is_null());
        fs::remove_dir_all(below(root.path(), crash_dumps::DIRECTORY)).unwrap();
        crash_dumps::arm(root.path(), "an earlier start").unwrap();
        let end = crash_dumps::judge_previous_end(root.path(), "this start").unwrap().unwrap();
        let text = gather(root.path()).unwrap().to_string();
        assert!(text.contains(&format!("\nrestart   {end}\n")), "{text}");
    }

    #[test]
    fn a_person_reads_which_kubernetes_runs_and_why_one_does_not() {
        let root = node();
        let release = below(root.path(), "/usr/lib/nqrust/kubernetes.json");
        fs::create_dir_all(release.parent().unwrap()).unwrap();
        fs::write(&release, r#"{"version": "v1.33.1+rke2r1"}"#).unwrap();
        let text = || gather(root.path()).unwrap().to_string();
        assert!(text().contains("kubernetes v1.33.1+rke2r1\n"), "{}", text());
        data::begin(root.path(), &"v1.34.0+rke2r1".parse().unwrap()).unwrap();
        assert!(
            text().contains("kubernetes NOT STARTED: Kubernetes v1.33.1+rke2r1 is older than"),
            "{}",
            text()
        );
    }

    #[test]
    fn deferred_images_are_said_to_be() {
        let root = node();
        let document = b"os: {hostname: node-1}\ninstall: {role: management, mode: join, images: defer}\n";
        fs::write(root.path().join("oem/node.yaml"), document).unwrap();
        let text = gather(root.path()).unwrap().to_string();
        assert!(
            text.contains("images    2 of 3 blobs present, the rest deferred: pulled on demand\n"),
            "{text}"
        );
    }

    #[test]
    fn the_first_node_of_a_cluster_has_the_images_of_a_management_node() {
        let root = node();
        fs::write(root.path().join("oem/node.yaml"), b"install: {mode: create}\n").unwrap();
        assert_eq!(gather(root.path()).unwrap().images.expected, 3);
    }

    #[test]
    fn a_changed_document_is_pending_until_it_is_applied() {
        let root = node();
        let document = root.path().join("oem/node.yaml");
        assert!(gather(root.path()).unwrap().pending, "nothing was applied yet");
        apply::apply(&document, root.path()).unwrap();
        assert!(!gather(root.path()).unwrap().pending);
        fs::write(&document, "os: {hostname: node-2}\n").unwrap();
        assert!(gather(root.path()).unwrap().pending);
    }

    #[test]
    fn elsewhere_than_on_a_node_the_answer_is_clear() {
        let error = gather(tempfile::tempdir().unwrap().path()).unwrap_err();
        assert_eq!(class_of(&error), Class::Hardware);
    }
}
