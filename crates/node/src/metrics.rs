//! The status of a node as metrics, for a node_exporter that runs beside it. They have no addresses, no names and no texts of the node.

use std::collections::BTreeMap;

use base::files::FileSystemRoom;
use cluster::certificates::CertificateEnd;
use cluster::configuration::ClusterMember;
use cluster::stages::{StageState, all_done};
use jiff::Timestamp;
use machine::arrays::ArrayState;
use machine::disk_paths::PathState;
use machine::installed_node::InstalledNode;
use machine::network_disks::sessions::SessionState;
use machine::paths::below;
use metrics::{Gauge, GaugeSnapshot, gauges};
use model::network_disks::DiskProtocol;

use crate::status::Status;

/// The file that a node keeps up to date. Its directory has nothing else, so that a pod can mount it.
pub const FILE: &str = "/run/nqrust-metrics/node.prom";

/// The persistent partition.
const PERSISTENT: &str = "/var";

gauges! { "nqrust_node_":
    INFO = "info", "The release that runs, its slot, the role of the node, and its version of Kubernetes";
    RELEASE_SIGNED = "release_signed", "Whether trusted keys have signed the release that runs";
    OS_IMAGE_WHOLE = "os_image_whole", "Whether nothing was damaged when the OS image was last read as a whole";
    OS_IMAGE_READ_TIME = "os_image_read_time_seconds", "When that was, in seconds since 1970";
    READY = "ready", "Whether the node is ready in its cluster";
    STAGE_DONE = "stage_done", "Whether a stage on the way to ready is reached";
    READY_TIME = "ready_time_seconds",
        "When the node was ready after its last start that came so far, in seconds since 1970";
    KUBERNETES_REFUSED = "kubernetes_refused", "Whether Kubernetes is not started because its data is of a later version";
    UPDATE_STAGED = "update_staged", "Whether a release is in a slot, or on trial, without a verdict";
    UPDATE_ROLLED_BACK = "update_rolled_back", "Whether the last release that was tried was taken back";
    CONFIGURATION_PENDING = "configuration_pending", "Whether the node document differs from what was applied";
    CONFIGURATION_MISTAKES = "configuration_mistakes", "Mistakes in the node document, whose values are not used";
    SETTING_IN_EFFECT = "setting_in_effect", "Whether a setting of os.host is in effect; some need a restart";
    NETWORK_CARDS_MISSING = "network_cards_missing", "Network cards of the node document that are missing";
    MIRROR_DISKS = "mirror_disks", "Disks that an array of a mirrored system should have";
    MIRROR_DISKS_IN_SYNC = "mirror_disks_in_sync", "Disks of the array that are there and up to date";
    MIRROR_REBUILDING = "mirror_rebuilding", "Whether a disk of the array is being filled";
    MIRROR_REBUILT_RATIO = "mirror_rebuilt_ratio", "How much of that disk is filled";
    DISK_PATHS = "disk_paths", "Paths to a disk that has several";
    DISK_PATHS_UP = "disk_paths_up", "Paths to the disk that work";
    NETWORK_DISK_PATHS = "network_disk_paths", "Logins and connections for disks over the network";
    NETWORK_DISK_PATHS_UP = "network_disk_paths_up", "Logins and connections that work";
    WRITE_LATENCY = "write_latency_p99_seconds", "99 of 100 flushed writes were no slower when the disk of etcd was last measured";
    PERSISTENT_SIZE = "persistent_size_bytes", "Size of the persistent file system";
    PERSISTENT_FREE = "persistent_free_bytes", "Free space of the persistent file system for users other than root";
    IMAGE_BLOBS_EXPECTED = "image_blobs_expected", "Blobs of container images that the release has for the node";
    IMAGE_BLOBS_PRESENT = "image_blobs_present", "Blobs of these that are in the store";
    CERTIFICATE_END = "certificate_end_time_seconds", "When a certificate of the node in its cluster ends, in seconds since 1970";
    CRASH_DUMPS = "crash_dumps", "Kernel crashes of which something is kept";
    LAST_CRASH_TIME = "last_crash_time_seconds", "When the last of these was, in seconds since 1970";
    UNEXPLAINED_END = "unexplained_end", "Whether the previous start ended without a shutdown and without a recorded crash";
}

/// What metrics have beside the status of a node.
#[derive(Clone, Debug, Default)]
pub struct StoredFacts {
    /// None if it cannot be read.
    pub room: Option<FileSystemRoom>,
    pub certificates: Vec<CertificateEnd>,
}

impl StoredFacts {
    #[must_use]
    pub fn of(node: &InstalledNode) -> Self {
        let member = ClusterMember::of(&node.config);
        Self {
            room: FileSystemRoom::of(&below(node.root(), PERSISTENT)).ok(),
            certificates: member
                .map(|member| CertificateEnd::all(node.root(), member.distribution))
                .unwrap_or_default(),
        }
    }
}

/// The metrics of a node. What a node does not have, such as a mirror, has no series.
#[must_use]
pub fn of(status: &Status, facts: &StoredFacts) -> GaugeSnapshot {
    let mut all = GaugeSnapshot::default();
    let slot = status.slot.map(|slot| slot.to_string()).unwrap_or_default();
    let kubernetes = status.kubernetes.as_ref();
    let version = kubernetes.map(|kubernetes| kubernetes.runs.to_string()).unwrap_or_default();
    let labels = [
        ("version", &*status.version),
        ("slot", &slot),
        ("role", status.role.role.name()),
        ("kubernetes", &version),
    ];
    all.set(INFO, &labels, 1.0);
    all.set_if(RELEASE_SIGNED, &[], !status.trust.signers.is_empty());
    if let Some(read) = &status.image.read {
        all.set_if(OS_IMAGE_WHOLE, &[], read.whole);
        set_time(&mut all, OS_IMAGE_READ_TIME, &read.at);
    }
    cluster(&mut all, status);
    let update = status.update.as_ref();
    all.set_if(UPDATE_STAGED, &[], update.is_some_and(|update| !update.bad));
    all.set_if(UPDATE_ROLLED_BACK, &[], update.is_some_and(|update| update.bad));
    all.set_if(CONFIGURATION_PENDING, &[], status.pending);
    all.set(CONFIGURATION_MISTAKES, &[], status.mistakes.len() as f64);
    let mut settings = BTreeMap::<&str, bool>::new();
    for setting in &status.host {
        *settings.entry(&setting.key).or_insert(true) &= setting.in_effect;
    }
    for (setting, in_effect) in settings {
        all.set_if(SETTING_IN_EFFECT, &[("setting", setting)], in_effect);
    }
    let missing = status.missing_cards.as_ref().map_or(0, |missing| missing.cards.len());
    all.set(NETWORK_CARDS_MISSING, &[], missing as f64);
    disks(&mut all, status);
    if let Some(FileSystemRoom { size, free }) = facts.room {
        all.set(PERSISTENT_SIZE, &[], size.get() as f64);
        all.set(PERSISTENT_FREE, &[], free.get() as f64);
    }
    all.set(IMAGE_BLOBS_EXPECTED, &[], status.images.expected as f64);
    all.set(IMAGE_BLOBS_PRESENT, &[], status.images.present as f64);
    for CertificateEnd { file, at, .. } in &facts.certificates {
        all.set(CERTIFICATE_END, &[("file", file)], at.as_second() as f64);
    }
    all.set(CRASH_DUMPS, &[], status.crashes.len() as f64);
    if let Some(last) = status.crashes.first() {
        set_time(&mut all, LAST_CRASH_TIME, &last.moment);
    }
    all.set_if(UNEXPLAINED_END, &[], status.unexplained_end.is_some());
    all
}

fn cluster(all: &mut GaugeSnapshot, status: &Status) {
    if !status.stages.is_empty() {
        all.set_if(READY, &[], all_done(&status.stages));
    }
    for stage in &status.stages {
        all.set_if(STAGE_DONE, &[("stage", stage.name.text())], stage.state == StageState::Done);
    }
    if let Some(ready) = &status.ready {
        set_time(all, READY_TIME, &ready.last);
    }
    if let Some(kubernetes) = &status.kubernetes {
        all.set_if(KUBERNETES_REFUSED, &[], kubernetes.refused.is_some());
    }
}

fn disks(all: &mut GaugeSnapshot, status: &Status) {
    for array in &status.arrays {
        let name = [("array", &*array.name)];
        all.set(MIRROR_DISKS, &name, array.disks.into());
        all.set(MIRROR_DISKS_IN_SYNC, &name, array.members.len() as f64);
        all.set_if(MIRROR_REBUILDING, &name, array.state == ArrayState::Rebuilding);
        if let Some(percent) = array.percent {
            all.set(MIRROR_REBUILT_RATIO, &name, f64::from(percent) / 100.0);
        }
    }
    for disk in &status.paths {
        let name = [("disk", &*disk.disk)];
        let up = disk.paths.iter().filter(|path| path.state == PathState::Up).count();
        all.set(DISK_PATHS, &name, disk.paths.len() as f64);
        all.set(DISK_PATHS_UP, &name, up as f64);
    }
    let mut sessions = BTreeMap::<DiskProtocol, (u32, u32)>::new();
    for session in &status.network_disks {
        let (count, up) = sessions.entry(session.protocol).or_default();
        *count += 1;
        *up += u32::from(session.state == SessionState::Up);
    }
    for (protocol, (count, up)) in sessions {
        let protocol = match protocol {
            DiskProtocol::Iscsi => "iscsi",
            DiskProtocol::NvmeTcp => "nvme-tcp",
        };
        all.set(NETWORK_DISK_PATHS, &[("protocol", protocol)], count.into());
        all.set(NETWORK_DISK_PATHS_UP, &[("protocol", protocol)], up.into());
    }
    if let Some(latency) = &status.write_latency {
        all.set(WRITE_LATENCY, &[], latency.p99 as f64 / 1e6);
    }
}

/// A time that a file has in RFC 3339; none if it cannot be read.
fn set_time(all: &mut GaugeSnapshot, gauge: Gauge, at: &str) {
    if let Ok(at) = at.parse::<Timestamp>() {
        all.set(gauge, &[], at.as_second() as f64);
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use cluster::kept_version::NodeKubernetes;
    use cluster::stages::readiness_watch::ReadyRecord;
    use machine::arrays::ArrayStatus;
    use machine::crash_dumps::{CrashDump, CrashRecord, UnexplainedEnd};
    use machine::disk_paths::{DiskPaths, PathStatus};
    use machine::host::SettingState;
    use machine::image_health::WholeRead;
    use machine::network_disks::sessions::SessionStatus;
    use machine::nics::MissingCards;
    use machine::nics::missing::MissingCard;
    use machine::update_state::UpdateNotice;
    use machine::write_latency::WriteLatency;
    use metrics::series_of;
    use rcgen::{CertificateParams, KeyPair};

    use super::*;
    use crate::status::tests::node;

    const CERTIFICATE: &str = "/etc/kubernetes/pki/apiserver.crt";

    fn gathered(document: &str) -> (tempfile::TempDir, Status, StoredFacts) {
        let root = node();
        fs::write(root.path().join("oem/node.yaml"), document).unwrap();
        let mut params = CertificateParams::default();
        params.not_after = rcgen::date_time_ymd(2030, 1, 31);
        let certificate = params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
        let path = below(root.path(), CERTIFICATE);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, certificate).unwrap();
        let opened = InstalledNode::open(root.path()).unwrap();
        let (status, facts) = (Status::gather(&opened).unwrap(), StoredFacts::of(&opened));
        (root, status, facts)
    }

    fn member() -> (tempfile::TempDir, Status, StoredFacts) {
        gathered(
            "server_url: https://192.0.2.10:6443\ntoken: a-token-of-enough-length\n\
             os: {hostname: node-1}\ninstall: {mode: join, role: management}\n\
             kubernetes: {distribution: kubeadm}\n",
        )
    }

    /// The status of a node that has everything that a status can have.
    fn full() -> (tempfile::TempDir, Status, StoredFacts) {
        let (root, mut status, facts) = member();
        let stages = r#"[{"name": "network", "state": "done", "since": "1", "detail": "there", "next": null},
                         {"name": "ready", "state": "waiting", "since": "2", "detail": "marked-detail", "next": null}]"#;
        status.stages = serde_json::from_str(stages).unwrap();
        status.ready = Some(ReadyRecord {
            name: "node-1".into(),
            cluster: None,
            distribution: "kubeadm".into(),
            first: "2026-11-28T00:00:00Z".into(),
            last: "2026-11-29T00:00:00Z".into(),
        });
        status.kubernetes = Some(NodeKubernetes {
            runs: "v1.33.1".parse().unwrap(),
            brought: None,
            refused: Some("marked-detail".into()),
        });
        status.image.read = Some(WholeRead { at: "2026-11-29T00:00:01Z".into(), whole: false });
        status.update = Some(UpdateNotice { version: "2.0".into(), bad: true, text: "marked-detail".into() });
        status.mistakes = vec!["marked-detail".into()];
        let setting =
            |key: &str, in_effect| SettingState { key: key.into(), found: "marked-detail".into(), in_effect };
        status.host = vec![
            setting("huge_pages", true),
            setting("huge_pages", false),
            setting("huge_pages", true),
            setting("iommu", true),
        ];
        let card = MissingCard { name: None, address: None, network: "mgmt".into() };
        status.missing_cards = Some(MissingCards { cards: vec![card], present: Vec::new() });
        status.arrays = vec![ArrayStatus {
            name: "persistent".into(),
            device: "md126".into(),
            state: ArrayState::Rebuilding,
            disks: 2,
            members: vec!["vda7".into()],
            filled: vec!["vdb7".into()],
            percent: Some(25),
        }];
        let path = |name: &str, state| PathStatus { name: name.into(), address: None, state };
        let paths = vec![path("sda", PathState::Up), path("sdb", PathState::Down)];
        status.paths = vec![DiskPaths { disk: "/dev/mapper/3600c0ff0".into(), map: true, paths }];
        let session = |state| SessionStatus {
            protocol: DiskProtocol::Iscsi,
            target: "iqn.2026-11.org.example:marked-target".into(),
            portal: "192.0.2.7:3260".parse().unwrap(),
            state,
        };
        status.network_disks = vec![session(SessionState::Up), session(SessionState::Lost)];
        status.write_latency = Some(WriteLatency { writes: 2000, median: 400, p99: 12_300, slowest: 80_000 });
        let crash = |moment: &str| CrashDump {
            moment: moment.into(),
            directory: "/var/lib/nqrust/crash/x".into(),
            record: CrashRecord { reason: Some("marked-detail".into()), ..CrashRecord::default() },
        };
        status.crashes = vec![crash("2026-11-29T02:31:05Z"), crash("2026-11-28T23:59:59Z")];
        status.unexplained_end = Some(UnexplainedEnd { started: "2026-11-28T00:00:00Z".into() });
        (root, status, facts)
    }

    fn time(at: &str) -> f64 {
        at.parse::<Timestamp>().unwrap().as_second() as f64
    }

    /// The value of the only series of this gauge, of those with this label.
    fn value(text: &str, gauge: Gauge, label: Option<(&str, &str)>) -> Option<f64> {
        let mut all = series_of(text, gauge.name);
        all.retain(|series| {
            label.is_none_or(|(name, value)| series.labels.contains(&(name.to_owned(), value.to_owned())))
        });
        assert!(all.len() < 2, "{all:?}");
        all.first().map(|series| series.value)
    }

    #[test]
    fn everything_that_a_status_has_becomes_a_figure() {
        let (_root, status, facts) = full();
        let text = of(&status, &facts).text();
        let label = |name, value| Some((name, value));
        for (gauge, label, expected) in [
            (INFO, label("slot", "a"), 1.0),
            (INFO, label("version", "1.0"), 1.0),
            (INFO, label("role", "management"), 1.0),
            (INFO, label("kubernetes", "v1.33.1"), 1.0),
            (RELEASE_SIGNED, None, 0.0),
            (OS_IMAGE_WHOLE, None, 0.0),
            (OS_IMAGE_READ_TIME, None, time("2026-11-29T00:00:01Z")),
            (READY, None, 0.0),
            (STAGE_DONE, label("stage", "network"), 1.0),
            (STAGE_DONE, label("stage", "ready"), 0.0),
            (READY_TIME, None, time("2026-11-29T00:00:00Z")),
            (KUBERNETES_REFUSED, None, 1.0),
            (UPDATE_STAGED, None, 0.0),
            (UPDATE_ROLLED_BACK, None, 1.0),
            (CONFIGURATION_PENDING, None, 1.0),
            (CONFIGURATION_MISTAKES, None, 1.0),
            (SETTING_IN_EFFECT, label("setting", "huge_pages"), 0.0),
            (SETTING_IN_EFFECT, label("setting", "iommu"), 1.0),
            (NETWORK_CARDS_MISSING, None, 1.0),
            (MIRROR_DISKS, label("array", "persistent"), 2.0),
            (MIRROR_DISKS_IN_SYNC, label("array", "persistent"), 1.0),
            (MIRROR_REBUILDING, None, 1.0),
            (MIRROR_REBUILT_RATIO, None, 0.25),
            (DISK_PATHS, label("disk", "/dev/mapper/3600c0ff0"), 2.0),
            (DISK_PATHS_UP, None, 1.0),
            (NETWORK_DISK_PATHS, label("protocol", "iscsi"), 2.0),
            (NETWORK_DISK_PATHS_UP, None, 1.0),
            (WRITE_LATENCY, None, 0.0123),
            (IMAGE_BLOBS_EXPECTED, None, 3.0),
            (IMAGE_BLOBS_PRESENT, None, 2.0),
            (CERTIFICATE_END, label("file", CERTIFICATE), time("2030-01-31T00:00:00Z")),
            (CRASH_DUMPS, None, 2.0),
            (LAST_CRASH_TIME, None, time("2026-11-29T02:31:05Z")),
            (UNEXPLAINED_END, None, 1.0),
        ] {
            assert_eq!(value(&text, gauge, label), Some(expected), "{} {label:?}: {text}", gauge.name);
        }
        let free = value(&text, PERSISTENT_FREE, None).unwrap();
        let size = value(&text, PERSISTENT_SIZE, None).unwrap();
        assert!(0.0 < free && free <= size, "{free} of {size}");
    }

    #[test]
    fn no_text_name_address_or_secret_of_the_node_is_told() {
        let (_root, status, facts) = full();
        let text = of(&status, &facts).text();
        for part in ["marked-", "a-token-of-enough-length", "node-1", "192.0.2."] {
            assert!(!text.contains(part), "{part}: {text}");
        }
    }

    #[test]
    fn what_a_node_does_not_have_has_no_series() {
        let (_root, status, facts) = gathered("os: {hostname: node-1}\ninstall: {mode: install}\n");
        let text = of(&status, &facts).text();
        for gauge in [READY, STAGE_DONE, MIRROR_DISKS, CERTIFICATE_END, LAST_CRASH_TIME, OS_IMAGE_WHOLE] {
            assert!(!text.contains(gauge.name), "{text}");
        }
        assert_eq!(value(&text, CRASH_DUMPS, None), Some(0.0));
    }

    #[test]
    fn a_staged_release_is_not_one_that_was_taken_back() {
        let (_root, mut status, facts) = member();
        status.update = Some(UpdateNotice { version: "2.0".into(), bad: false, text: String::new() });
        let text = of(&status, &facts).text();
        assert_eq!(value(&text, UPDATE_STAGED, None), Some(1.0));
        assert_eq!(value(&text, UPDATE_ROLLED_BACK, None), Some(0.0));
    }

    #[test]
    fn the_page_about_metrics_has_those_of_a_node_and_no_others() {
        let (_root, status, facts) = full();
        let text = of(&status, &facts).text();
        testing::docs::metrics_are_those_of("Nodes", &text);
    }
}
