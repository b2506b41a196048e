//! The cluster of this test: its cluster file, its nodes, and how they come up.

use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail, ensure};
use model::config::Role;
use nqrust_tests::artifacts::Artifacts;
use nqrust_tests::deadline::Deadline;
use nqrust_tests::native_cluster::{
    BaseTree, HostSettings, Kubectl, KubernetesRelease, NativeNode, NodePlace, OsLayer, Switch,
};
use nqrust_tests::{paths, programs};
use serde_json::{Value, json};

use super::figures::Figures;
use super::traffic;

pub(super) const VIP: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);
/// Name, role and last number of the address of each node.
const NODES: [(&str, Role, u8); 4] = [
    ("node-1", Role::Management, 11),
    ("node-2", Role::Management, 12),
    ("node-3", Role::Witness, 13),
    ("node-4", Role::Worker, 21),
];
/// Made up for this test; they protect nothing else.
pub(super) const TOKEN: &str = "e2e-9c1f7ab04d6e82355d0f";
pub(super) const AGENT_TOKEN: &str = "e2e-agents-41c0b7d2e98a66f3";
/// A label that one node has by its document, beside those of its role.
pub(super) const LABEL: (&str, &str) = ("example.org/rack", "r1");
/// A taint that one node has by its document.
pub(super) const TAINT: &str = "example.org/kept=true:PreferNoSchedule";

/// From power on until a node has joined. Some seconds where the machine has nothing else to do.
const JOIN: Duration = Duration::from_secs(240);
/// Until a node that has joined is Ready.
const READY: Duration = Duration::from_secs(120);
const COMMAND: Duration = Duration::from_secs(60);

/// The parts of the cluster. Nodes are dropped before what they stand on.
pub(super) struct TestCluster {
    nodes: Vec<NativeNode>,
    places: Vec<NodePlace>,
    documents: PathBuf,
    directory: PathBuf,
    release: KubernetesRelease,
    layer: OsLayer,
    base: BaseTree,
    pod_image: PathBuf,
    pub(super) switch: Switch,
    _settings: HostSettings,
}

impl TestCluster {
    /// Makes everything but the nodes.
    pub(super) fn lay(artifacts: &Artifacts) -> Result<Self> {
        let directory = artifacts.disk("cluster");
        fs::create_dir_all(&directory)?;
        let release = KubernetesRelease::built()?;
        let base = BaseTree::cached()?;
        let layer = OsLayer::write(&directory.join("os"), &release)?;
        let pod_image = traffic::make_image(&directory, &base)?;
        let place = |(name, role, last): (&str, Role, u8)| NodePlace {
            name: name.to_owned(),
            role,
            address: Ipv4Addr::new(198, 51, 100, last),
            hardware_address: hardware_address(last),
            directory: directory.join(name),
        };
        let cluster = Self {
            nodes: Vec::new(),
            places: NODES.into_iter().map(place).collect(),
            documents: directory.join("documents"),
            directory,
            release,
            layer,
            base,
            pod_image,
            switch: Switch::lay()?,
            _settings: HostSettings::change()?,
        };
        cluster.render("node-1")?;
        Ok(cluster)
    }

    /// Renders the documents of all nodes; `creator` is the one that creates the cluster.
    pub(super) fn render(&self, creator: &str) -> Result<()> {
        let file = self.directory.join("cluster.yaml");
        fs::write(&file, cluster_file(creator).to_string())?;
        let mut render = Command::new(paths::installer()?);
        render.args(["render", "--progress", "plain", "--cluster"]).arg(&file).arg("-o").arg(&self.documents);
        programs::run(&mut render, COMMAND)?.success("installer render").map(drop)
    }

    /// The rendered document of a node.
    pub(super) fn document(&self, name: &str) -> Result<String> {
        let path = self.documents.join(format!("{name}.yaml"));
        fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    }

    pub(super) fn places(&self) -> &[NodePlace] {
        &self.places
    }

    pub(super) fn place(&self, name: &str) -> Result<&NodePlace> {
        self.places.iter().find(|place| place.name == name).with_context(|| format!("{name} is no node"))
    }

    pub(super) fn running(&self) -> &[NativeNode] {
        &self.nodes
    }

    pub(super) fn node(&self, name: &str) -> Result<&NativeNode> {
        self.nodes.iter().find(|node| node.place().name == name).with_context(|| format!("{name} is off"))
    }

    pub(super) fn kubectl(&self) -> Kubectl<'_> {
        Kubectl::new(&self.switch, &self.release, self.directory.join("admin.conf"))
    }

    /// Installs the first node and waits until it is Ready.
    pub(super) fn create(&mut self, figures: &mut Figures<'_>) -> Result<()> {
        self.install("node-1")?;
        figures.done("node-1 has its images")?;
        self.node("node-1")?.start_units()?;
        self.await_joined("node-1")?;
        figures.done("node-1 has created the cluster")?;
        let access = self.node("node-1")?.run("cat /etc/kubernetes/admin.conf")?;
        self.kubectl().write_access(&access)?;
        self.await_ready(&["node-1"])?;
        figures.done("node-1 is Ready")
    }

    /// Installs the others, which then join at the same time.
    pub(super) fn join_all(&mut self, figures: &mut Figures<'_>) -> Result<()> {
        let others = ["node-2", "node-3", "node-4"];
        for name in others {
            self.switch_on_new(name)?;
        }
        self.seed(&others)?;
        figures.done("the others have their images")?;
        for name in others {
            self.node(name)?.start_units()?;
        }
        for name in ["node-4", "node-2", "node-3"] {
            self.await_joined(name)?;
            figures.done(&format!("{name} has joined"))?;
        }
        self.await_ready(&others)?;
        figures.done("all are Ready")
    }

    /// Installs a node anew, with its images.
    pub(super) fn install(&mut self, name: &str) -> Result<()> {
        self.switch_on_new(name)?;
        self.seed(&[name])
    }

    fn switch_on_new(&mut self, name: &str) -> Result<()> {
        self.place(name)?.install(&self.document(name)?)?;
        self.switch_on(name)
    }

    /// Starts a node with what it has; its units wait.
    pub(super) fn switch_on(&mut self, name: &str) -> Result<()> {
        self.switch_on_at(name, self.place(name)?.address)
    }

    /// The same with another address.
    pub(super) fn switch_on_at(&mut self, name: &str, address: Ipv4Addr) -> Result<()> {
        let place = NodePlace { address, ..self.place(name)?.clone() };
        let node = place.start(&self.switch, &self.base, &self.layer)?;
        self.nodes.push(node);
        Ok(())
    }

    fn seed(&self, names: &[&str]) -> Result<()> {
        let seed = |name: &&str| self.node(name)?.seed(&self.release, &[&self.pod_image]);
        thread::scope(|scope| {
            let started: Vec<_> = names.iter().map(|name| scope.spawn(move || seed(name))).collect();
            started
                .into_iter()
                .try_for_each(|seed| seed.join().unwrap_or_else(|_| bail!("a thread has panicked")))
        })
    }

    /// Cuts the power of a node. Nothing of what its processes send at their end reaches the others.
    pub(super) fn cut_off(&mut self, name: &str) -> Result<()> {
        self.switch.plug(&format!("port-{name}"), false)?;
        self.switch_off(name)
    }

    /// Ends all processes of a node.
    fn switch_off(&mut self, name: &str) -> Result<()> {
        let index = self.nodes.iter().position(|node| node.place().name == name);
        drop(self.nodes.remove(index.with_context(|| format!("{name} is off"))?));
        Ok(())
    }

    /// A machine that is in the network of the cluster and not part of it.
    pub(super) fn newcomer(&self, document: &str) -> Result<NativeNode> {
        let place = NodePlace {
            name: "newcomer".to_owned(),
            role: Role::Worker,
            address: Ipv4Addr::new(198, 51, 100, 31),
            hardware_address: hardware_address(31),
            directory: self.directory.join("newcomer"),
        };
        place.install(document)?;
        place.start(&self.switch, &self.base, &self.layer)
    }

    /// Waits until the unit of `installer kubeadm` has done its work.
    pub(super) fn await_joined(&self, name: &str) -> Result<()> {
        let node = self.node(name)?;
        Deadline::after(JOIN)
            .poll(&format!("the join of {name}"), || {
                Ok(node.succeeds("systemctl is-active nqrust-kubeadm").then_some(()))
            })
            .with_context(|| format!("{name} said: {}", node.log("nqrust-kubeadm")))
    }

    /// Waits until the API calls these nodes Ready.
    pub(super) fn await_ready(&self, names: &[&str]) -> Result<()> {
        let kubectl = self.kubectl();
        Deadline::after(READY).poll(&format!("{} being Ready", names.join(", ")), || {
            let nodes = kubectl.list(&["nodes"]);
            let ready =
                |name: &&str| nodes.iter().any(|node| node["metadata"]["name"] == **name && is_ready(node));
            Ok(names.iter().all(ready).then_some(()))
        })
    }

    /// The node that answers for the virtual address; exactly one does.
    pub(super) fn holder(&self) -> Result<String> {
        let has = |node: &&NativeNode| {
            let told = node.run("ip -4 -oneline address show dev mgmt-br").unwrap_or_default();
            told.contains(&format!("inet {VIP}/32"))
        };
        let holders: Vec<_> = self.nodes.iter().filter(has).map(|node| node.place().name.clone()).collect();
        ensure!(holders.len() == 1, "these answer for {VIP}: {holders:?}");
        Ok(holders.concat())
    }

    /// Keeps what the nodes said, for the person who reads a failure.
    pub(super) fn keep_logs(&self, artifacts: &Artifacts) -> Result<()> {
        let kept = artifacts.path("logs");
        for place in &self.places {
            for (from, to) in
                [("var/log/units", "units"), ("var/log/pods", "pods"), ("start.log", "start.log")]
            {
                let from = place.directory.join(from);
                if from.exists() {
                    let to = kept.join(&place.name).join(to);
                    copy_logs(&from, &to)?;
                }
            }
        }
        let kubectl = self.kubectl();
        for (name, words) in
            [("nodes", "describe nodes"), ("pods", "get pods -A -o wide"), ("events", "get events -A")]
        {
            let words: Vec<_> = words.split(' ').collect();
            if let Ok(told) = kubectl.call(&words, "") {
                artifacts.append(&format!("{name}.txt"), &told.said())?;
            }
        }
        Ok(())
    }
}

fn copy_logs(from: &Path, to: &Path) -> Result<()> {
    let mut copy = Command::new("cp");
    fs::create_dir_all(to.parent().context("a log is in a directory")?)?;
    programs::run(copy.args(["-r", "--dereference"]).arg(from).arg(to), COMMAND)?
        .success("keeping logs")
        .map(drop)
}

/// Whether a Node of the API (core/v1) is Ready, and whether it takes pods by now.
pub(super) fn is_ready(node: &Value) -> bool {
    let any = |list: &Value, fits: &dyn Fn(&Value) -> bool| {
        list.as_array().is_some_and(|list| list.iter().any(fits))
    };
    let is_new =
        |taint: &Value| taint["key"].as_str().is_some_and(|key| key.starts_with("node.kubernetes.io/"));
    any(&node["status"]["conditions"], &|condition| {
        condition["type"] == "Ready" && condition["status"] == "True"
    }) && !any(&node["spec"]["taints"], &is_new)
}

fn hardware_address(last: u8) -> String {
    format!("52:54:00:6e:72:{last:02x}")
}

fn cluster_file(creator: &str) -> Value {
    let machine = |(name, _, last): &(&str, Role, u8)| {
        let mut machine = json!({
            "hostname": name,
            "ip": Ipv4Addr::new(198, 51, 100, *last),
            "macs": [hardware_address(*last)],
        });
        match *name {
            "node-1" | "node-2" => machine["create"] = json!(*name == creator),
            "node-4" => {
                machine["overrides"] = json!({ "os": { "labels": { LABEL.0: LABEL.1 } }, "kubernetes": { "node_taints": [TAINT] } });
            }
            _ => {}
        }
        machine
    };
    let pool = |name: &str, role: Role| {
        let machines: Vec<_> = NODES.iter().filter(|(_, own, _)| *own == role).map(machine).collect();
        json!({ "name": name, "role": role, "machines": machines })
    };
    json!({
        "scheme_version": 1,
        "cluster": {
            "name": "namespaces",
            "token": TOKEN,
            "os": {
                "password": "e2e-only-in-namespaces",
                "dns_nameservers": [Switch::ADMINISTRATOR],
                "ntp_servers": [Switch::ADMINISTRATOR],
            },
            "install": {
                "automatic": true,
                "device": "/dev/vda",
                "vip": VIP,
                "management_interface": { "subnet_mask": "255.255.255.0", "gateway": Switch::ADMINISTRATOR },
            },
            "kubernetes": { "distribution": "kubeadm", "agent_token": AGENT_TOKEN },
        },
        "pools": [
            pool("control", Role::Management),
            pool("vote", Role::Witness),
            pool("work", Role::Worker),
        ],
    })
}
