//! The cluster as an administrator sees and changes it, through kubectl: it evicts pods, and takes every kind of access.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::api_objects::{self, LEAVING};
use super::gate::{BoundMachine, GateMember, GateNode, GateView, StrandedVolume};
use super::lock::{self, RolloutLock};
use super::query_pod;
use crate::api::etcd::EtcdGateway;
use crate::certificates::CertificateEnd;
use crate::kubeadm::kubectl;
use crate::kubernetes::node::{Node, NodeList};
use crate::node_object::NodeObject;
use base::command::{Invocation, Runner};
use base::failure::{Class, Failure};
use machine::paths::below;
use model::config::Distribution;

const LIMIT: Duration = Duration::from_secs(60);
const REQUEST_TIMEOUT: &str = "--request-timeout=30s";
/// The taint by which KubeVirt empties a node (KubeVirt, "Node maintenance").
const TAINT: &str = "kubevirt.io/drain";
const MACHINES: &str = "virtualmachineinstances.kubevirt.io";
/// Longhorn's volumes, and the copies that each of them has.
const VOLUMES: &str = "volumes.longhorn.io";
const REPLICAS: &str = "replicas.longhorn.io";
/// Longhorn's setting for drains, in its namespace.
const DRAIN_POLICY: [&str; 4] =
    ["settings.longhorn.io", "node-drain-policy", "--namespace=longhorn-system", "--ignore-not-found"];

/// kubectl with the access of an administrator, or of a service account with the same rights.
pub struct AdminAccess<'a> {
    runner: &'a dyn Runner,
    distribution: Distribution,
    kubeconfig: PathBuf,
}

/// The kubeconfig of administrators that nodes with a control plane have.
#[must_use]
pub fn own_kubeconfig(distribution: Distribution) -> &'static str {
    match distribution {
        Distribution::Kubeadm => "/etc/kubernetes/admin.conf",
        Distribution::Rke2 => "/etc/rancher/rke2/rke2.yaml",
        Distribution::K3s => "/etc/rancher/k3s/k3s.yaml",
    }
}

impl<'a> AdminAccess<'a> {
    #[must_use]
    pub fn new(runner: &'a dyn Runner, distribution: Distribution, kubeconfig: PathBuf) -> Self {
        Self { runner, distribution, kubeconfig }
    }

    /// For whoever is on the node at `root`, or on no node: with the access at `kubeconfig`, or that of administrators which servers have.
    ///
    /// # Errors
    /// [`Class::Hardware`] if there is no access; [`Class::Invalid`] if `kubeconfig` is none.
    pub fn of_administrator(root: &Path, runner: &'a dyn Runner, kubeconfig: Option<&Path>) -> Result<Self> {
        let own = NodeObject::read(root);
        let distribution = own.map_or(Distribution::Kubeadm, |own| own.distribution);
        let administrators = below(root, own_kubeconfig(distribution));
        let found =
            kubeconfig.map(Path::to_owned).or_else(|| administrators.exists().then_some(administrators));
        let Some(found) = found else {
            let what = "this machine has no access of an administrator to a cluster";
            return Err(Failure::new(Class::Hardware, what)
                .hint("Run this on a server of the cluster as root, or name an access: --kubeconfig FILE")
                .into());
        };
        let admin = Self::new(runner, distribution, found);
        // kubectl takes a missing file for an empty one.
        kubeconfig.map(|_| admin.flattened()).transpose()?;
        Ok(admin)
    }

    fn kubectl(&self, arguments: &[&str]) -> Invocation {
        let mut invocation = kubectl(&[]).arg("--kubeconfig").arg(&self.kubeconfig).args(arguments);
        if self.distribution == Distribution::Rke2 {
            // The agent of RKE2 links its programs there (rke2 `pkg/bootstrap`).
            invocation.program = "/var/lib/rancher/rke2/bin/kubectl".into();
        }
        invocation
    }

    fn run(&self, invocation: &Invocation) -> Result<Vec<u8>> {
        self.runner.run(invocation).with_context(|| "asking the cluster".to_owned())
    }

    /// The kubeconfig in one file, without paths of others.
    ///
    /// # Errors
    /// [`Class::Invalid`] if it cannot be read, or is none.
    pub fn flattened(&self) -> Result<Vec<u8>> {
        let path = &self.kubeconfig;
        let unusable = |why: anyhow::Error| {
            let hint = "Name a file with the access of an administrator, such as /etc/kubernetes/admin.conf of a server. See docs/how-to/cluster-updates.md.";
            Failure::new(Class::Invalid, format!("{} gives no access to a cluster", path.display()))
                .because(why)
                .hint(hint)
        };
        // kubectl takes a file that is missing for an empty one, and reads it again for each question.
        match fs::metadata(path) {
            Ok(found) if found.is_file() => {}
            Ok(_) => return Err(unusable(anyhow::anyhow!("it is not a file")).into()),
            Err(error) => return Err(unusable(error.into()).into()),
        }
        let words = ["config", "view", "--raw", "--flatten", "--minify"];
        Ok(self.runner.run(&self.kubectl(&words).limit(LIMIT)).map_err(unusable)?)
    }

    /// An object, or a list of objects.
    fn get(&self, arguments: &[&str]) -> Result<Value> {
        let words = ["get", "--output=json", REQUEST_TIMEOUT];
        let all: Vec<_> = words.into_iter().chain(arguments.iter().copied()).collect();
        let told = self.run(&self.kubectl(&all).limit(LIMIT))?;
        // With --ignore-not-found it prints nothing where there is none.
        if told.trim_ascii().is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&told)
            .with_context(|| format!("reading what kubectl says of {}", arguments.join(" ")))
    }

    pub fn node(&self, name: &str) -> Result<Node> {
        serde_json::from_value(self.get(&["node", name])?).with_context(|| format!("reading the node {name}"))
    }

    pub fn nodes(&self) -> Result<Vec<Node>> {
        let list: NodeList =
            serde_json::from_value(self.get(&["nodes"])?).context("reading the nodes of the cluster")?;
        Ok(list.items)
    }

    /// The cluster as `name` sees it, whose files are at `root`.
    pub fn look(&self, root: &Path, name: &str) -> Result<GateView> {
        Ok(GateView {
            nodes: self.nodes()?.iter().map(GateNode::of).collect(),
            etcd: self.members(root)?,
            holder: self.lock()?.holder,
            bound: self.bound(name)?,
            stranded: self.stranded(name)?,
            certificate: CertificateEnd::first(root, self.distribution),
        })
    }

    /// The members of etcd; none on a node that has no access to them.
    fn members(&self, root: &Path) -> Result<Option<Vec<GateMember>>> {
        let data = crate::configuration::etcd_data(self.distribution);
        if !below(root, &data).join("member").exists() {
            return Ok(None);
        }
        let etcd = EtcdGateway::open(root, self.distribution).context("asking etcd for its members")?;
        let members = etcd.own_members().context("asking etcd for its members")?;
        let seen = members.iter().map(|member| GateMember {
            name: member.name.clone(),
            votes: !member.learns,
            healthy: etcd.is_healthy(member),
        });
        Ok(Some(seen.collect()))
    }

    pub fn has_machines(&self) -> Result<bool> {
        self.knows(MACHINES)
    }

    /// Whether the cluster has resources of this kind at all.
    fn knows(&self, kind: &str) -> Result<bool> {
        Ok(!self.get(&["customresourcedefinition", kind, "--ignore-not-found"])?.is_null())
    }

    fn bound(&self, node: &str) -> Result<Vec<BoundMachine>> {
        match self.has_machines()? {
            true => Ok(api_objects::bound(&self.get(&[MACHINES, "--all-namespaces"])?, node)),
            false => Ok(Vec::new()),
        }
    }

    fn stranded(&self, node: &str) -> Result<Vec<StrandedVolume>> {
        if !self.knows(VOLUMES)? || !api_objects::keeps_last_replica(&self.get(&DRAIN_POLICY)?) {
            return Ok(Vec::new());
        }
        let [volumes, replicas] = [VOLUMES, REPLICAS].map(|kind| self.get(&[kind, "--all-namespaces"]));
        Ok(api_objects::stranded(&volumes?, &replicas?, node))
    }

    pub fn machines(&self, node: &str) -> Result<Vec<String>> {
        let instances = self.get(&[MACHINES, "--all-namespaces"])?;
        Ok(api_objects::names(&api_objects::machines_on(&instances, node)))
    }

    pub fn volumes(&self, node: &str) -> Result<Vec<String>> {
        Ok(api_objects::attached(&self.get(&["volumeattachments"])?, node))
    }

    fn pods(&self, node: &str) -> Result<Value> {
        let selector = format!("--field-selector=spec.nodeName={node}");
        self.get(&["pods", "--all-namespaces", &selector])
    }

    /// The pods of `node` whose eviction loses the content of an `emptyDir`.
    pub fn with_scratch(&self, node: &str) -> Result<Vec<String>> {
        Ok(api_objects::with_scratch(&api_objects::evictable(&self.pods(node)?)))
    }

    /// What is left on `node` to be evicted, and what keeps it there.
    pub fn left(&self, node: &str) -> Result<(Vec<String>, Vec<String>)> {
        let pods = self.pods(node)?;
        let pods = api_objects::evictable(&pods);
        let budgets = api_objects::budgets(&pods, &self.get(&["poddisruptionbudgets", "--all-namespaces"])?);
        Ok((api_objects::names(&pods), budgets))
    }

    /// Evicts pods for so long; whether all are gone.
    ///
    /// # Errors
    /// What kubectl refuses to begin with, such as pods that nobody would make again.
    pub fn evict(&self, node: &str, time: Duration) -> Result<bool> {
        let timeout = format!("--timeout={}s", time.as_secs().max(1));
        let selector = format!("--pod-selector=!{}", api_objects::UPGRADE_JOB);
        let words = ["drain", node, "--ignore-daemonsets", "--delete-emptydir-data", &selector, &timeout];
        let invocation = self.kubectl(&words).limit(time + LIMIT);
        match self.run(&invocation) {
            Ok(_) => Ok(true),
            // kubectl has one exit code for everything (kubectl 1.37 `pkg/drain`, `evictPods` and `waitForDelete`).
            Err(error) => {
                let told = format!("{error:#}");
                let timed_out = ["global timeout reached", "context deadline exceeded"];
                if timed_out.iter().any(|words| told.contains(words)) { Ok(false) } else { Err(error) }
            }
        }
    }

    /// Keeps further pods from `node`, or lets them in again; both together with the mark that says it was for an update.
    pub fn cordon(&self, node: &str, cordoned: bool) -> Result<()> {
        let mark = if cordoned { json!("true") } else { Value::Null };
        let patch = json!({
            "metadata": { "annotations": { LEAVING: mark } },
            "spec": { "unschedulable": cordoned },
        });
        let patch = format!("--patch={patch}");
        self.run(
            &self.kubectl(&["patch", "node", node, "--type=merge", &patch, REQUEST_TIMEOUT]).limit(LIMIT),
        )
        .map(drop)
    }

    /// Asks KubeVirt to move its machines away from `node`.
    pub fn taint(&self, node: &str) -> Result<()> {
        let taint = format!("{TAINT}=draining:NoSchedule");
        let words = ["taint", "node", node, &taint, "--overwrite", REQUEST_TIMEOUT];
        self.run(&self.kubectl(&words).limit(LIMIT)).map(drop)
    }

    /// Succeeds where there is no taint.
    pub fn untaint(&self, node: &str) -> Result<()> {
        let tainted = self.node_has_taint(node)?;
        if !tainted {
            return Ok(());
        }
        let taint = format!("{TAINT}:NoSchedule-");
        self.run(&self.kubectl(&["taint", "node", node, &taint, REQUEST_TIMEOUT]).limit(LIMIT)).map(drop)
    }

    fn node_has_taint(&self, node: &str) -> Result<bool> {
        let node = self.get(&["node", node])?;
        let taints = node["spec"]["taints"].as_array();
        Ok(taints.is_some_and(|taints| taints.iter().any(|taint| taint["key"] == TAINT)))
    }

    /// The pods of a run of the query of nodes, or of all runs.
    pub(super) fn query_pods(&self, run: Option<&str>) -> Result<Value> {
        let label = query_pod::RUN;
        let selector =
            run.map_or_else(|| format!("--selector={label}"), |run| format!("--selector={label}={run}"));
        self.get(&["pods", "--namespace", query_pod::NAMESPACE, &selector])
    }

    /// What a pod of the query has printed.
    pub(super) fn query_log(&self, pod: &str) -> Result<String> {
        let words = ["logs", pod, "--namespace", query_pod::NAMESPACE, REQUEST_TIMEOUT];
        let log = self.run(&self.kubectl(&words).limit(LIMIT))?;
        Ok(String::from_utf8_lossy(&log).into_owned())
    }

    /// Does nothing without a name.
    pub(super) fn remove_query_pods(&self, names: &[String]) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        let words =
            ["delete", "pod", "--namespace", query_pod::NAMESPACE, "--ignore-not-found", "--wait=false"];
        let all: Vec<_> =
            words.into_iter().chain(names.iter().map(String::as_str)).chain([REQUEST_TIMEOUT]).collect();
        self.run(&self.kubectl(&all).limit(LIMIT)).map(drop)
    }

    /// Makes an object.
    pub(super) fn make(&self, object: &Value) -> Result<()> {
        let words = ["create", "--filename=-", REQUEST_TIMEOUT];
        self.run(&self.kubectl(&words).stdin(object.to_string()).limit(LIMIT)).map(drop)
    }

    pub fn lock(&self) -> Result<RolloutLock> {
        let lease = self.get(&["lease", lock::NAME, "--namespace", lock::NAMESPACE, "--ignore-not-found"])?;
        Ok(RolloutLock::read(&lease))
    }

    /// Writes the lock, if it is still what `before` was read from.
    pub fn write_lock(&self, before: &RolloutLock, lease: &Value) -> Result<()> {
        let verb = if before.exists() { "replace" } else { "create" };
        let words = [verb, "--filename=-", REQUEST_TIMEOUT];
        self.run(&self.kubectl(&words).stdin(lease.to_string()).limit(LIMIT)).map(drop)
    }

    /// Takes the lock for `node` by this lease, if it is still what `before` was read from; the node that was faster otherwise.
    pub fn take_lock(&self, node: &str, before: &RolloutLock, lease: &Value) -> Result<Option<String>> {
        let Err(error) = self.write_lock(before, lease) else { return Ok(None) };
        let now = self.lock()?;
        match &now.holder {
            // It was written, and only the answer was lost.
            Some(holder) if holder == node && now != *before => Ok(None),
            Some(holder) if holder != node => Ok(Some(holder.clone())),
            _ => Err(error),
        }
    }
}

impl std::fmt::Debug for AdminAccess<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "AdminAccess({})", self.kubeconfig.display())
    }
}

/// What kubectl says where asking again does not help: an access that the API refuses, or that cannot be used (kubectl 1.37
/// `pkg/cmd/util`, client-go `tools/clientcmd`), or a program or a file that is missing here.
const REFUSED: [&str; 6] = [
    "you must be logged in to the server",
    "(forbidden)",
    "x509:",
    "error loading config file",
    "invalid configuration",
    "no such file or directory",
];

/// Whether a request that failed may succeed later.
pub(super) fn may_pass(error: &anyhow::Error) -> bool {
    let told = format!("{error:#}").to_lowercase();
    !REFUSED.iter().any(|words| told.contains(words))
}

pub(super) fn unanswered(error: anyhow::Error) -> anyhow::Error {
    let hint = match may_pass(&error) {
        true => {
            "Wait for it: --wait SECONDS. To restart without asking it: installer update apply --drain none"
        }
        false => "To restart without asking it: installer update apply --drain none",
    };
    Failure::new(Class::Hardware, "this node may not leave its cluster: the cluster cannot be asked")
        .because(error.reallocate_into_boxed_dyn_error_without_backtrace())
        .hint(hint)
        .into()
}
