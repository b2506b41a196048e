//! The step on nodes that are directories, with programs and clusters that only answer.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use anyhow::Result;

use super::machine::MovedMachine;
use super::{MoveRecord, MovedNode};
use crate::kept_version::kept::KeptVersions;
use crate::kept_version::kept::tests::image;
use crate::version_skew::{ClusterVersions, MovedPart, NodeVersions};
use base::command::{Invocation, Runner};
use base::failure::{Class, Failure, class_of, render};
use machine::paths::below;
use model::config::Distribution;
use model::kubernetes::KubernetesVersion;

const OLD: &str = "v1.33.1+rke2r1";
const NEW: &str = "v1.34.0+rke2r1";

/// A node of RKE2 whose image brings [`NEW`] and that goes on with [`OLD`], as after an update of its OS.
struct Node {
    root: tempfile::TempDir,
    asked: Mutex<Vec<String>>,
    /// The program whose command line has this text fails.
    fails: Mutex<Option<&'static str>>,
    kubelet: Mutex<&'static str>,
    unhealthy: Mutex<bool>,
    servers: Vec<(&'static str, &'static str)>,
    busy: Mutex<bool>,
    /// What it waited for its turn with: the version, and whether the step had begun.
    turns: Mutex<Vec<(String, bool)>>,
}

impl Node {
    fn new() -> Self {
        let root = tempfile::tempdir().unwrap();
        let kept = KeptVersions::of(root.path());
        let old = image(root.path(), OLD);
        kept.keep(root.path(), &old).unwrap();
        kept.choose(&old.version).unwrap();
        // Without mounts the root shows the old version; the image is where `mount --bind` shows it.
        image(&root.path().join("run/nqrust/image"), NEW);
        let mountinfo = "20 1 8:4 / / ro - squashfs /dev/sda4 ro\n\
            30 20 8:7 / /usr/local/bin/rke2 rw - ext4 /dev/sda7 rw\n31 20 8:7 / /usr/lib/rke2 rw - ext4 /dev/sda7 rw\n";
        fs::create_dir_all(root.path().join("proc/self")).unwrap();
        fs::write(root.path().join("proc/self/mountinfo"), mountinfo).unwrap();
        Self {
            root,
            asked: Mutex::default(),
            fails: Mutex::default(),
            kubelet: Mutex::new(NEW),
            unhealthy: Mutex::new(false),
            servers: vec![("b", OLD)],
            busy: Mutex::new(false),
            turns: Mutex::default(),
        }
    }

    fn advance(&self, part: Option<MovedPart>) -> Result<Option<MoveRecord>> {
        self.asked.lock().unwrap().clear();
        let node = MovedNode {
            root: self.root.path(),
            runner: self,
            machine: self,
            distribution: Distribution::Rke2,
            part,
            unit: "rke2-server.service",
        };
        let turn = |to: &KubernetesVersion, begun: bool, _: &mut dyn FnMut(&str)| {
            self.turns.lock().unwrap().push((to.to_string(), begun));
            anyhow::ensure!(!*self.busy.lock().unwrap(), "another node is moved");
            Ok(())
        };
        node.advance(&turn, &mut |_| ())
    }

    /// What was asked that changes something, without the view of the image.
    fn asked(&self) -> Vec<String> {
        let asked = self.asked.lock().unwrap();
        asked.iter().filter(|text| !text.contains("run/nqrust/image")).cloned().collect()
    }

    fn current(&self) -> KubernetesVersion {
        KeptVersions::of(self.root.path()).current().unwrap()
    }
}

impl Runner for Node {
    fn run(&self, invocation: &Invocation) -> Result<Vec<u8>> {
        let root = self.root.path().to_str().unwrap();
        let text = invocation.display().replace(root, "");
        self.asked.lock().unwrap().push(text.clone());
        anyhow::ensure!(self.fails.lock().unwrap().is_none_or(|part| !text.contains(part)), "no {text}");
        if let Some(path) = text.strip_prefix("umount --lazy ") {
            let mountinfo = below(self.root.path(), "/proc/self/mountinfo");
            let lines = fs::read_to_string(&mountinfo).unwrap();
            let rest: String = lines
                .lines()
                .filter(|line| line.split(' ').nth(4) != Some(path))
                .map(|line| format!("{line}\n"))
                .collect();
            fs::write(&mountinfo, rest).unwrap();
        }
        Ok(Vec::new())
    }
}

impl MovedMachine for Node {
    fn cluster(&self) -> Result<ClusterVersions, Failure> {
        let seen = |(name, at): &(&str, &str)| {
            let version: KubernetesVersion = at.parse().unwrap();
            NodeVersions {
                name: (*name).into(),
                kubelet: version.clone(),
                ready: true,
                api: Some(Ok(version)),
            }
        };
        let nodes = self.servers.iter().map(seen).collect();
        Ok(ClusterVersions { part: MovedPart::Server, name: "a".into(), nodes })
    }

    fn unhealthy(&self) -> Vec<String> {
        if *self.unhealthy.lock().unwrap() { vec!["etcd: failing".into()] } else { Vec::new() }
    }

    fn kubelet(&self) -> Result<KubernetesVersion, String> {
        self.kubelet.lock().unwrap().parse().map_err(|_| "none".to_owned())
    }

    fn save_datastore(&self, _: &Path) -> Result<()> {
        panic!("RKE2 saves its own")
    }

    fn pause(&self, _: Duration) {}
}

const WHOLE: [&str; 5] = [
    "rke2 etcd-snapshot save --name pre-v1.34.0-rke2r1",
    "umount --lazy /usr/lib/rke2",
    "umount --lazy /usr/local/bin/rke2",
    "systemd-tmpfiles --create /usr/lib/tmpfiles.d/rke2.conf",
    "systemctl restart rke2-server.service",
];

#[test]
fn a_server_is_moved_after_its_datastore_is_saved_and_a_second_run_finds_nothing_to_do() {
    let node = Node::new();
    let record = node.advance(Some(MovedPart::Server)).unwrap().unwrap();
    assert_eq!(node.asked(), WHOLE);
    assert_eq!(record.snapshot.unwrap(), "/var/lib/rancher/rke2/server/db/snapshots/pre-v1.34.0-rke2r1-*");
    assert_eq!(node.current(), NEW.parse().unwrap());
    let kept = KeptVersions::of(node.root.path());
    kept.verify(&NEW.parse().unwrap()).unwrap();
    assert!(!kept.directory(&OLD.parse().unwrap()).exists(), "the old version is removed");
    assert_eq!(MoveRecord::read(node.root.path()), None);
    assert_eq!(node.advance(Some(MovedPart::Server)).unwrap(), None);
    assert!(node.asked().is_empty());
}

#[test]
fn a_step_that_failed_in_any_part_says_what_is_true_and_goes_on_with_that_part() {
    for (fails, chosen, left, rest) in [
        ("etcd-snapshot", OLD, "nothing has changed", &WHOLE[..]),
        ("umount --lazy /usr/lib/rke2", NEW, "starts with the next restart", &WHOLE[1..]),
        ("systemctl restart", NEW, "starts with the next restart", &WHOLE[4..]),
    ] {
        let node = Node::new();
        *node.fails.lock().unwrap() = Some(fails);
        let error = node.advance(Some(MovedPart::Server)).unwrap_err();
        assert_eq!(class_of(&error), Class::Join, "{fails}");
        let told = render(&error);
        assert!(told.contains(left) && told.contains("go on: installer update kubernetes"), "{told}");
        assert_eq!(node.current(), chosen.parse().unwrap(), "{fails}");
        let record = MoveRecord::read(node.root.path()).unwrap();
        assert!(record.to_string().contains("is unfinished"), "{record}");
        *node.fails.lock().unwrap() = None;
        node.advance(Some(MovedPart::Server)).unwrap().unwrap();
        assert_eq!(node.asked(), rest, "{fails}");
        assert_eq!(node.current(), NEW.parse().unwrap());
    }
}

#[test]
fn a_node_that_is_not_healthy_afterwards_is_told_with_its_snapshot_and_waited_for_again() {
    let node = Node::new();
    *node.kubelet.lock().unwrap() = OLD;
    let told = render(&node.advance(Some(MovedPart::Server)).unwrap_err());
    assert!(told.contains("the cluster has the kubelet as v1.33.1+rke2r1"), "{told}");
    assert!(told.contains("The datastore as it was is in /var/lib/rancher/rke2"), "{told}");
    *node.kubelet.lock().unwrap() = NEW;
    node.advance(Some(MovedPart::Server)).unwrap().unwrap();
    assert!(node.asked().is_empty(), "{:?}", node.asked());
}

#[test]
fn nothing_begins_where_the_node_or_its_cluster_is_not_ready_for_it() {
    let mut node = Node::new();
    *node.unhealthy.lock().unwrap() = true;
    let refused = |node: &Node| {
        let error = node.advance(Some(MovedPart::Server)).unwrap_err();
        assert_eq!(class_of(&error), Class::Hardware);
        assert!(node.asked().is_empty() && MoveRecord::read(node.root.path()).is_none());
        assert_eq!(node.current(), OLD.parse().unwrap());
        render(&error)
    };
    assert!(refused(&node).contains("it is not healthy: etcd: failing"));
    *node.unhealthy.lock().unwrap() = false;
    node.servers = vec![("b", "v1.32.9+rke2r1")];
    assert!(refused(&node).contains("servers differ by one minor version at most"));
    image(&node.root.path().join("run/nqrust/image"), "v1.35.0+rke2r1");
    assert!(refused(&node).contains("minor versions are taken one by one"));
    image(&node.root.path().join("run/nqrust/image"), "v1.33.0+rke2r1");
    assert!(refused(&node).contains("Kubernetes does not go back"));
}

#[test]
fn a_worker_has_no_datastore_and_a_node_without_a_cluster_nothing_to_start() {
    let node = Node::new();
    node.advance(Some(MovedPart::Agent)).unwrap().unwrap();
    assert_eq!(node.asked(), WHOLE[1..]);
    let node = Node::new();
    node.advance(None).unwrap().unwrap();
    assert_eq!(node.asked(), WHOLE[1..4]);
    assert_eq!(node.current(), NEW.parse().unwrap());
}

#[test]
fn a_node_waits_for_its_turn_before_anything_changes_and_again_when_it_goes_on() {
    let node = Node::new();
    *node.busy.lock().unwrap() = true;
    assert!(render(&node.advance(Some(MovedPart::Server)).unwrap_err()).contains("another node is moved"));
    assert!(node.asked().is_empty() && MoveRecord::read(node.root.path()).is_none());
    *node.busy.lock().unwrap() = false;
    *node.fails.lock().unwrap() = Some("systemctl restart");
    node.advance(Some(MovedPart::Server)).unwrap_err();
    *node.fails.lock().unwrap() = None;
    node.advance(Some(MovedPart::Server)).unwrap().unwrap();
    assert_eq!(node.advance(Some(MovedPart::Server)).unwrap(), None);
    let turn = |begun| (NEW.to_owned(), begun);
    assert_eq!(*node.turns.lock().unwrap(), [turn(false), turn(false), turn(true)]);
}
