//! A cluster of nodes that are namespaces: their documents, and how the nodes come up, join, and lose their power.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base::parallel;
use model::config::Role;
use serde_json::Value;

use super::cluster_file::{ClusterNode, VIP, cluster_file};
use super::{
    BaseTree, HostSettings, Kubectl, KubernetesRelease, NativeNode, NodeDisk, NodePlace, OsLayer, Switch,
    pod_image,
};
use crate::deadline::{CLUSTER_INTERVAL, Deadline};
use crate::{paths, programs};

/// From power on until a node has joined. Some seconds where the machine has nothing else to do.
const JOIN: Duration = Duration::from_secs(240);
/// Until a node that has joined is Ready.
const READY: Duration = Duration::from_secs(120);
const COMMAND: Duration = Duration::from_secs(60);
/// Asks etcd of a node with the certificate of its own checks (etcd, "gRPC gateway").
const MEMBERS: &str = "curl --silent --show-error --fail --max-time 5 --cacert /etc/kubernetes/pki/etcd/ca.crt \
    --cert /etc/kubernetes/pki/etcd/healthcheck-client.crt --key /etc/kubernetes/pki/etcd/healthcheck-client.key \
    --data '{}' https://127.0.0.1:2379/v3/cluster/member/list";

/// Is told the name of each part of a cluster's making when it is done.
pub type Progress<'a> = &'a mut dyn FnMut(&str) -> Result<()>;

/// The parts of the cluster. Nodes are dropped before what they stand on.
#[derive(Debug)]
pub struct TestCluster {
    running: Vec<NativeNode>,
    nodes: Vec<ClusterNode>,
    documents: PathBuf,
    directory: PathBuf,
    release: KubernetesRelease,
    layer: OsLayer,
    base: BaseTree,
    /// The archives of the images of pods, beside those of the release.
    pod_images: Vec<PathBuf>,
    /// By the names of the nodes that have one.
    disks: BTreeMap<String, NodeDisk>,
    pub switch: Switch,
    _settings: HostSettings,
}

impl TestCluster {
    /// Makes everything but the nodes below `directory`, which is new, with an OS that has `release`. The first management node of
    /// `nodes` is to create the cluster.
    pub fn lay(directory: &Path, nodes: Vec<ClusterNode>, release: KubernetesRelease) -> Result<Self> {
        fs::create_dir_all(directory)?;
        let base = BaseTree::cached()?;
        let layer = OsLayer::write(&os_directory(directory, &release), &release)?;
        let pod_images = vec![pod_image::make(&directory.join("busybox"), &base)?];
        let cluster = Self {
            running: Vec::new(),
            nodes,
            documents: directory.join("documents"),
            directory: directory.to_owned(),
            release,
            layer,
            base,
            pod_images,
            disks: BTreeMap::new(),
            switch: Switch::lay()?,
            _settings: HostSettings::change()?,
        };
        cluster.render(cluster.first_management()?)?;
        Ok(cluster)
    }

    /// Renders the documents of all nodes; `creator` is the one that creates the cluster.
    pub fn render(&self, creator: &str) -> Result<()> {
        let file = self.directory.join("cluster.yaml");
        fs::write(&file, cluster_file(&self.nodes, creator).to_string())?;
        let mut render = Command::new(paths::installer()?);
        render.args(["render", "--progress", "plain", "--cluster"]).arg(&file).arg("-o").arg(&self.documents);
        programs::run(&mut render, COMMAND)?.success("installer render").map(drop)
    }

    /// Nodes have the OS with `release` from their next start.
    pub fn change_os(&mut self, release: KubernetesRelease) -> Result<()> {
        let directory = os_directory(&self.directory, &release);
        if directory.exists() {
            fs::remove_dir_all(&directory).with_context(|| format!("removing {}", directory.display()))?;
        }
        self.layer = OsLayer::write(&directory, &release)?;
        self.release = release;
        Ok(())
    }

    /// Gives a node a disk with the release of `medium` in its slot, which counts when the node starts.
    pub fn give_disk(&mut self, name: &str, medium: &Path) -> Result<()> {
        let disk = NodeDisk::make(&self.directory.join("disks").join(name), medium)?;
        self.disks.insert(name.to_owned(), disk);
        Ok(())
    }

    pub fn disk(&self, name: &str) -> Result<&NodeDisk> {
        self.disks.get(name).with_context(|| format!("{name} has no disk"))
    }

    pub fn disk_mut(&mut self, name: &str) -> Result<&mut NodeDisk> {
        self.disks.get_mut(name).with_context(|| format!("{name} has no disk"))
    }

    /// Lets every node that is installed from now on have an image with this static program alone.
    pub fn add_program_image(&mut self, program: &Path, name: &str) -> Result<()> {
        let directory = self.directory.join(format!("image-{}", self.pod_images.len()));
        self.pod_images.push(pod_image::make_of_program(&directory, program, name)?);
        Ok(())
    }

    /// Lets every node that is installed from now on have an image with these files.
    pub fn add_tree_image(&mut self, tree: &BaseTree, name: &str) -> Result<()> {
        let directory = self.directory.join(format!("image-{}", self.pod_images.len()));
        self.pod_images.push(pod_image::make_of_tree(&directory, tree, name)?);
        Ok(())
    }

    /// Lets every node that is installed from now on have the image of an OCI image layout.
    pub fn add_layout(&mut self, layout: &Path) -> Result<()> {
        let archive = self.directory.join(format!("image-{}.tar", self.pod_images.len()));
        self.pod_images.push(pod_image::pack_layout(layout, &archive)?);
        Ok(())
    }

    /// The Kubernetes of the nodes' OS.
    #[must_use]
    pub fn release(&self) -> &KubernetesRelease {
        &self.release
    }

    /// Gives a node another role by its document, which counts when the node starts again.
    pub fn change_role(&mut self, name: &str, role: Role) -> Result<()> {
        let node = self.nodes.iter_mut().find(|node| node.name == name);
        node.with_context(|| format!("{name} is no node"))?.role = role;
        self.render(self.first_management()?)?;
        self.place(name)?.write_document(&self.document(name)?)
    }

    pub fn document(&self, name: &str) -> Result<String> {
        let path = self.documents.join(format!("{name}.yaml"));
        fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))
    }

    /// All nodes, also those that are off.
    #[must_use]
    pub fn nodes(&self) -> &[ClusterNode] {
        &self.nodes
    }

    pub fn place(&self, name: &str) -> Result<NodePlace> {
        let node = self.nodes.iter().find(|node| node.name == name);
        Ok(self.place_of(node.with_context(|| format!("{name} is no node"))?))
    }

    fn place_of(&self, node: &ClusterNode) -> NodePlace {
        NodePlace {
            name: node.name.clone(),
            role: node.role,
            address: node.address(),
            hardware_address: node.hardware_address(),
            directory: self.directory.join(&node.name),
            disk: self.disks.get(&node.name).map(|disk| disk.directory().to_owned()),
        }
    }

    fn first_management(&self) -> Result<&str> {
        let first = self.nodes.iter().find(|node| node.role == Role::Management);
        Ok(first.context("a cluster has a management node")?.name.as_str())
    }

    #[must_use]
    pub fn running(&self) -> &[NativeNode] {
        &self.running
    }

    pub fn node(&self, name: &str) -> Result<&NativeNode> {
        self.running.iter().find(|node| node.place().name == name).with_context(|| format!("{name} is off"))
    }

    #[must_use]
    pub fn kubectl(&self) -> Kubectl {
        Kubectl::new(&self.switch, &self.release, self.directory.join("admin.conf"))
    }

    /// Installs the first management node and waits until it is Ready.
    pub fn create(&mut self, done: Progress<'_>) -> Result<()> {
        let first = self.first_management()?.to_owned();
        self.install(&first)?;
        done(&format!("{first} has its images"))?;
        self.node(&first)?.start_units()?;
        self.await_joined(&first)?;
        done(&format!("{first} has created the cluster"))?;
        let access = self.node(&first)?.run("cat /etc/kubernetes/admin.conf")?;
        self.kubectl().write_access(&access)?;
        self.await_ready(&[&first])?;
        done(&format!("{first} is Ready"))
    }

    /// Installs these nodes, which then join at the same time.
    pub fn join_all(&mut self, names: &[&str], done: Progress<'_>) -> Result<()> {
        for name in names {
            self.switch_on_new(name)?;
        }
        self.seed(names)?;
        done(&format!("{} have their images", names.join(", ")))?;
        for name in names {
            self.node(name)?.start_units()?;
        }
        for name in names {
            self.await_joined(name)?;
            done(&format!("{name} has joined"))?;
        }
        self.await_ready(names)?;
        done(&format!("{} are Ready", names.join(", ")))
    }

    /// Installs a node anew, with its images.
    pub fn install(&mut self, name: &str) -> Result<()> {
        self.switch_on_new(name)?;
        self.seed(&[name])
    }

    fn switch_on_new(&mut self, name: &str) -> Result<()> {
        self.place(name)?.install(&self.document(name)?)?;
        self.switch_on(name)
    }

    /// Starts a node with what it has; its units wait.
    pub fn switch_on(&mut self, name: &str) -> Result<()> {
        self.switch_on_at(name, self.place(name)?.address)
    }

    /// The same with another address.
    pub fn switch_on_at(&mut self, name: &str, address: Ipv4Addr) -> Result<()> {
        let place = NodePlace { address, ..self.place(name)? };
        if let Some(disk) = self.disks.get(name) {
            disk.boot()?;
        }
        let node = place.start(&self.switch, &self.base, &self.layer)?;
        self.running.push(node);
        Ok(())
    }

    /// Puts the images of the OS into the stores of these nodes, as an install and an update do.
    pub fn seed(&self, names: &[&str]) -> Result<()> {
        parallel::for_each(names, names.len(), |name| {
            let further: Vec<_> = self.pod_images.iter().map(PathBuf::as_path).collect();
            self.node(name)?.seed(&self.release, &further)
        })
    }

    /// Cuts the power of a node. Nothing of what its processes send at their end reaches the others.
    pub fn cut_off(&mut self, name: &str) -> Result<()> {
        self.switch.plug(&format!("port-{name}"), false)?;
        let index = self.running.iter().position(|node| node.place().name == name);
        drop(self.running.remove(index.with_context(|| format!("{name} is off"))?));
        Ok(())
    }

    /// Cuts the power of a node, and starts it with the image that the cluster has by now; `prepare` comes before its units. Returns when
    /// its kubelet tells that it is Ready.
    pub fn start_again(&mut self, name: &str, prepare: &dyn Fn(&NativeNode) -> Result<()>) -> Result<()> {
        let mut heartbeats = self.heartbeats()?;
        heartbeats.retain(|node, _| node == name);
        self.cut_off(name)?;
        self.switch_on(name)?;
        prepare(self.node(name)?)?;
        self.seed(&[name])?;
        self.node(name)?.start_units()?;
        self.await_ready_after(&heartbeats)
    }

    /// Starts a machine that is in the network of the cluster and not part of it.
    pub fn newcomer(&self, node: &ClusterNode, document: &str) -> Result<NativeNode> {
        let place = self.place_of(node);
        place.install(document)?;
        place.start(&self.switch, &self.base, &self.layer)
    }

    /// Waits until the unit of `installer kubeadm` has done its work.
    pub fn await_joined(&self, name: &str) -> Result<()> {
        let node = self.node(name)?;
        Deadline::after(JOIN)
            .every(CLUSTER_INTERVAL)
            .poll(&format!("the join of {name}"), || {
                Ok(node.succeeds("systemctl is-active nqrust-kubeadm").then_some(()))
            })
            .with_context(|| format!("{name} said: {}", node.log("nqrust-kubeadm")))
    }

    /// Waits until the API calls these nodes Ready.
    pub fn await_ready(&self, names: &[&str]) -> Result<()> {
        let kubectl = self.kubectl();
        Deadline::after(READY).every(CLUSTER_INTERVAL).poll(
            &format!("{} being Ready", names.join(", ")),
            || {
                let nodes = kubectl.list(&["nodes"]);
                let ready = |name: &&str| {
                    nodes.iter().any(|node| node["metadata"]["name"] == **name && is_ready(node))
                };
                Ok(names.iter().all(ready).then_some(()))
            },
        )
    }

    /// When the kubelet of each node has last told its state, by the names of the nodes.
    pub fn heartbeats(&self) -> Result<BTreeMap<String, String>> {
        let nodes = self.kubectl().get(&["nodes"])?;
        let nodes = nodes["items"].as_array().context("a list of nodes")?;
        let of =
            |node: &Value| Some((node["metadata"]["name"].as_str()?.to_owned(), heartbeat(node)?.to_owned()));
        Ok(nodes.iter().filter_map(of).collect())
    }

    /// Waits until the API calls the nodes of `heartbeats` Ready by what their kubelets have told after those. A node that has lost
    /// its power is Ready in the API until its kubelet tells otherwise, or somebody misses it.
    pub fn await_ready_after(&self, heartbeats: &BTreeMap<String, String>) -> Result<()> {
        let kubectl = self.kubectl();
        Deadline::after(READY).every(CLUSTER_INTERVAL).poll(
            "all nodes having told that they are Ready",
            || {
                let nodes = kubectl.list(&["nodes"]);
                let told = |(name, before): (&String, &String)| {
                    let node = nodes.iter().find(|node| node["metadata"]["name"] == name.as_str());
                    node.is_some_and(|node| {
                        is_ready(node) && heartbeat(node).is_some_and(|now| now > before.as_str())
                    })
                };
                Ok(heartbeats.iter().all(told).then_some(()))
            },
        )
    }

    /// The node that answers for the virtual address; exactly one does.
    pub fn holder(&self) -> Result<String> {
        let has = |node: &&NativeNode| {
            let told = node.run("ip -4 -oneline address show dev mgmt-br").unwrap_or_default();
            told.contains(&format!("inet {VIP}/32"))
        };
        let holders: Vec<_> = self.running.iter().filter(has).map(|node| node.place().name.clone()).collect();
        ensure!(holders.len() == 1, "these answer for {VIP}: {holders:?}");
        Ok(holders.concat())
    }

    /// Writes a ConfigMap of this name, as a client that gives up after two seconds.
    pub fn write(&self, name: &str) -> Result<()> {
        let ended = self.kubectl().write(name)?;
        // An answer that was lost on its way is no failure of the write.
        if ended.code != 0 && ended.stderr.contains("AlreadyExists") {
            return Ok(());
        }
        ended.success("kubectl create").map(drop)
    }

    /// The names of the members of etcd that vote, sorted, as the etcd of the node `asked` has them.
    pub fn voters(&self, asked: &str) -> Result<Vec<String>> {
        let told = self.node(asked)?.run(MEMBERS)?;
        let told: Value = serde_json::from_str(&told).with_context(|| format!("etcd said {told:?}"))?;
        let members = told["members"].as_array().context("a list of members")?;
        let votes = members.iter().filter(|member| member["isLearner"] != true);
        let mut names: Vec<_> =
            votes.filter_map(|member| Some(member["name"].as_str()?.to_owned())).collect();
        names.sort();
        Ok(names)
    }

    /// Keeps what the nodes said in the directory `kept`, for the person who reads a failure.
    pub fn keep_logs(&self, kept: &Path) -> Result<()> {
        fs::create_dir_all(kept).with_context(|| format!("making {}", kept.display()))?;
        for node in &self.nodes {
            let place = self.place_of(node);
            for (from, to) in
                [("var/log/units", "units"), ("var/log/pods", "pods"), ("start.log", "start.log")]
            {
                let from = place.directory.join(from);
                if from.exists() {
                    copy_logs(&from, &kept.join(&place.name).join(to))?;
                }
            }
        }
        let kubectl = self.kubectl();
        for (name, words) in
            [("nodes", "describe nodes"), ("pods", "get pods -A -o wide"), ("events", "get events -A")]
        {
            let words: Vec<_> = words.split(' ').collect();
            if let Ok(told) = kubectl.call(&words, "") {
                fs::write(kept.join(format!("{name}.txt")), told.said())?;
            }
        }
        Ok(())
    }
}

/// Nodes that are switched on have their OS below it, so that each release has a place of its own.
fn os_directory(directory: &Path, release: &KubernetesRelease) -> PathBuf {
    directory.join(format!("os-{}", release.version))
}

fn copy_logs(from: &Path, to: &Path) -> Result<()> {
    let mut copy = Command::new("cp");
    fs::create_dir_all(to.parent().context("a log is in a directory")?)?;
    programs::run(copy.args(["-r", "--dereference"]).arg(from).arg(to), COMMAND)?
        .success("keeping logs")
        .map(drop)
}

/// True if a Node of the API (core/v1) is Ready, and takes pods by now where it is not cordoned.
#[must_use]
pub fn is_ready(node: &Value) -> bool {
    let any = |list: &Value, fits: &dyn Fn(&Value) -> bool| {
        list.as_array().is_some_and(|list| list.iter().any(fits))
    };
    // A cordon says nothing of what the node can do.
    let is_new = |taint: &Value| {
        let key = taint["key"].as_str().unwrap_or_default();
        key.starts_with("node.kubernetes.io/") && key != "node.kubernetes.io/unschedulable"
    };
    any(&node["status"]["conditions"], &|condition| {
        condition["type"] == "Ready" && condition["status"] == "True"
    }) && !any(&node["spec"]["taints"], &is_new)
}

/// When a node's kubelet has last told its state, in RFC 3339.
fn heartbeat(node: &Value) -> Option<&str> {
    let conditions = node["status"]["conditions"].as_array()?;
    conditions.iter().find(|condition| condition["type"] == "Ready")?["lastHeartbeatTime"].as_str()
}
