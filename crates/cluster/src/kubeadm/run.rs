//! Takes the remaining steps.

use std::fs;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use super::address;
use super::clock;
use super::documents::{JoinSecrets, complete};
use super::etcd;
use super::kubectl::{ADMIN, await_api, kubectl, locally};
use super::member::JoiningNode;
use super::name_servers;
use super::objects;
use super::reasons;
use super::state::{JoinRecord, RecordFile};
use super::steps::{CONTROL_PLANE, JoinAction, JoinStep, JoinedPart, Undo, steps};
use super::vip;
use crate::tokens;
use base::command::{Invocation, Runner};
use base::failure::{Class, Failure, causes, hints};
use base::files;
use machine::paths::{DOCUMENT, KUBEADM, KUBELET_ACCESS, KUBELET_CERTIFICATE, below};

/// For a phase of kubeadm, whose own limits are shorter.
const KUBEADM_LIMIT: Duration = Duration::from_secs(45 * 60);
/// For the certificate of a kubelet.
const BOOTSTRAP_LIMIT: Duration = Duration::from_secs(20 * 60);
const BOOTSTRAP_INTERVAL: Duration = Duration::from_millis(200);
/// In memory: documents with secrets for kubeadm.
pub(super) const WORK: &str = "/run/nqrust/kubeadm";
const KUBERNETES: &str = "/etc/kubernetes";
/// Static pods.
const MANIFESTS: &str = "/etc/kubernetes/manifests";
const KUBELET: &str = "/var/lib/kubelet";
const WITNESS: &str = "node-role.harvesterhci.io/witness=true";
/// In bytes; documents have some kilobytes.
const DOCUMENT_BYTES_MAX: u64 = 1 << 20;

/// Makes the node at `root` a member of its cluster, or goes on with that. `say` receives what happens, a line each.
///
/// # Errors
/// [`Class::Join`] if kubeadm or the cluster refuses; trying again goes on with the step. [`Class::Invalid`] if the document asks for
/// what the node cannot become.
pub fn run(root: &Path, runner: &dyn Runner, say: &mut dyn FnMut(&str)) -> Result<()> {
    let Some(node) = JoiningNode::read(root, say)? else {
        say("This node has no cluster that kubeadm joins.");
        return Ok(());
    };
    let file = RecordFile::of(root);
    let mut record = file.read()?;
    address::check(root, runner)?;
    // A kubelet without it complains every second, also on nodes that have no static pods.
    files::make_directory(&below(root, MANIFESTS), 0o700)?;
    let own_vip = (node.part == JoinedPart::First).then_some(node.config.install.vip);
    if let Some(vip) = own_vip
        && let Err(error) = vip::carry(root, runner, &node.config, vip, say)
    {
        // The cluster begins without its address; what comes after the steps tries again.
        say(&format!("{error:#}"));
    }
    let mut joining = Joining { root, runner, node: &node, secrets: None };
    joining.begin(&mut record, say)?;
    if !record.joined {
        if record.done.is_empty() {
            clock::check(&node.config, runner)?;
        }
        let result = joining.steps(&file, &mut record, say);
        joining.hiding(result)?;
        record = JoinRecord { joined: true, begun: None, ..record };
        file.write(&record)?;
        say(&format!("{} has joined its cluster", node.name));
    }
    if node.part == JoinedPart::Witness && tokens::forget_of_servers(&below(root, DOCUMENT))? {
        say("The witness has joined and has forgotten the token of servers.");
    }
    if node.part == JoinedPart::First {
        let result = objects::apply(root, runner, say);
        joining.hiding(result)?;
    }
    match (node.part, own_vip) {
        (_, Some(vip)) => vip::carry(root, runner, &node.config, vip, say),
        (JoinedPart::Server, None) => vip::carry(root, runner, &node.config, vip::of_cluster(runner)?, say),
        _ => Ok(()),
    }
}

struct Joining<'a> {
    root: &'a Path,
    runner: &'a dyn Runner,
    node: &'a JoiningNode,
    /// Derived when a step needs them, because that takes time.
    secrets: Option<JoinSecrets>,
}

impl Joining<'_> {
    /// Fits the record to what the document asks for now.
    fn begin(&self, record: &mut JoinRecord, say: &mut dyn FnMut(&str)) -> Result<()> {
        let wanted = self.node.part;
        let Some(part) = record.part.filter(|part| *part != wanted) else {
            record.part = Some(wanted);
            return Ok(());
        };
        if record.joined && (part, wanted) == (JoinedPart::Agent, JoinedPart::Server) {
            say("The node becomes a server of its cluster.");
            *record = JoinRecord { part: Some(wanted), promoted_from: Some(part), ..JoinRecord::default() };
            return Ok(());
        }
        let serves = part == JoinedPart::First && record.done.iter().any(|step| step == CONTROL_PLANE);
        if record.joined || serves || record.promoted_from.is_some() {
            let what =
                format!("this node is {} of its cluster and cannot become {}", words(part), words(wanted));
            return Err(Failure::new(Class::Invalid, what)
                .hint("Put the mode and the role in /oem/node.yaml back; or delete the node from the cluster and install it again.")
                .into());
        }
        say(&format!("The node was to be {}; what that left is removed.", words(part)));
        self.reset()?;
        *record = JoinRecord { part: Some(wanted), ..JoinRecord::default() };
        Ok(())
    }

    fn steps(&mut self, file: &RecordFile, record: &mut JoinRecord, say: &mut dyn FnMut(&str)) -> Result<()> {
        let all = steps(self.node.part, record.promoted_from.is_some(), self.node.cordoned);
        for (index, step) in all.iter().enumerate() {
            if record.done.iter().any(|done| done == step.name) {
                continue;
            }
            say(&format!("{} ({} of {})", step.message, index + 1, all.len()));
            let finished = record.begun.as_deref() == Some(step.name) && self.undo(step)?;
            if !finished {
                record.begun = Some(step.name.to_owned());
                file.write(record)?;
                if let Err(error) = self.take(step, say) {
                    if step.action == JoinAction::OnlyWitness {
                        // Nothing of the cluster stays on a node that it does not take.
                        self.remove_prepared()?;
                        self.remove(&format!("{KUBERNETES}/pki"), &["ca.crt"])?;
                        *record = JoinRecord { part: record.part, ..JoinRecord::default() };
                        file.write(record)?;
                    }
                    return Err(error);
                }
            }
            record.begun = None;
            record.done.push(step.name.to_owned());
            file.write(record)?;
        }
        Ok(())
    }

    /// Removes the remains of a step that was cut off. Returns whether the step is complete anyway.
    fn undo(&self, step: &JoinStep) -> Result<bool> {
        match step.undo {
            Undo::Nothing => {}
            Undo::Reset => self.reset()?,
            Undo::Prepared => self.remove_prepared()?,
            Undo::Kubelet if self.has_certificate() => return Ok(true),
            Undo::Kubelet => {
                self.remove(KUBERNETES, &["bootstrap-kubelet.conf", "kubelet.conf"])?;
                self.remove(KUBELET, &["config.yaml", "instance-config.yaml", "kubeadm-flags.env"])?;
            }
        }
        Ok(false)
    }

    fn reset(&self) -> Result<()> {
        let reset = Invocation::new("kubeadm").args(["reset", "--force"]).limit(KUBEADM_LIMIT);
        self.runner.run(&reset).map(drop).context("removing what a cut-off start of the cluster left")
    }

    /// Keys and certificates can be half written. The authority's certificate stays: a running kubelet needs it.
    fn remove_prepared(&self) -> Result<()> {
        self.remove(KUBERNETES, &["admin.conf", "controller-manager.conf", "scheduler.conf"])?;
        self.remove(
            MANIFESTS,
            &["kube-apiserver.yaml", "kube-controller-manager.yaml", "kube-scheduler.yaml"],
        )?;
        let keys = below(self.root, KUBERNETES).join("pki");
        if !keys.exists() {
            return Ok(());
        }
        for entry in fs::read_dir(&keys).with_context(|| format!("reading {}", keys.display()))? {
            let path = entry.with_context(|| format!("reading {}", keys.display()))?.path();
            let removed = match path.is_dir() {
                true => fs::remove_dir_all(&path),
                false if path.ends_with("ca.crt") => continue,
                false => fs::remove_file(&path),
            };
            removed.with_context(|| format!("removing {}", path.display()))?;
        }
        Ok(())
    }

    fn remove(&self, directory: &str, names: &[&str]) -> Result<()> {
        for name in names {
            let path = below(self.root, directory).join(name);
            match fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("removing {}", path.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn take(&mut self, step: &JoinStep, say: &mut dyn FnMut(&str)) -> Result<()> {
        let name = self.node.name.as_str();
        match step.action {
            JoinAction::Kubeadm(runs, document) => self.kubeadm(step, runs, document),
            JoinAction::AwaitKubelet => self.await_kubelet(),
            JoinAction::AwaitApi => await_api(self.runner),
            JoinAction::KeepKeys => {
                // kubeadm gives the Secret an owner that expires after two hours.
                let patch = r#"{"metadata":{"ownerReferences":null}}"#;
                let words =
                    ["patch", "secret", "kubeadm-certs", "--namespace", "kube-system", "--type=merge"];
                let words: Vec<&str> = words.into_iter().chain(["--patch", patch]).collect();
                locally(self.runner, &words)
                    .map(drop)
                    .context("keeping the keys of the cluster's authorities")
            }
            JoinAction::JoinEtcd(document) => {
                for gone in self.remove_stale_members()? {
                    say(&format!("The member {gone} of etcd is gone for good, and was removed."));
                }
                self.kubeadm(step, &[&["join", "phase", "etcd-join"]], document)
            }
            JoinAction::OnlyWitness => self.only_witness(),
            JoinAction::Label(labels) => {
                let words = ["label", "node", name, "--overwrite"];
                let words: Vec<&str> = words.into_iter().chain(labels.iter().copied()).collect();
                self.administrate(&words).map(drop).context("giving the node its role")
            }
            JoinAction::ForgetKeys => self.forget_keys(),
            JoinAction::SpreadNames => self.spread_names(),
            JoinAction::Cordon => {
                let kubeconfig = if below(self.root, ADMIN).exists() { ADMIN } else { KUBELET_ACCESS };
                let cordon = kubectl(&["--kubeconfig", kubeconfig, "cordon", name]);
                self.runner.run(&cordon).map(drop).context("cordoning the node")
            }
        }
    }

    fn kubeadm(&mut self, step: &JoinStep, runs: &[&[&str]], document: &str) -> Result<()> {
        if self.secrets.is_none() {
            self.secrets = Some(self.node.secrets()?);
        }
        let secrets = self.secrets.as_ref().context("the secrets were derived")?;
        let rendered = below(self.root, KUBEADM).join(format!("{document}.yaml"));
        let rendered = files::read_at_most(&rendered, DOCUMENT_BYTES_MAX)?;
        let address = vip::address_without_route(self.runner, &self.node.config)?;
        let release = (&self.node.version, &self.node.images);
        let whole = complete(&String::from_utf8_lossy(&rendered), secrets, release, address)?;
        let directory = below(self.root, WORK);
        files::make_directory(&directory, 0o700)?;
        let path = directory.join(format!("{document}.yaml"));
        files::write_atomically(&path, whole.as_bytes(), 0o600)?;
        let result = runs.iter().try_for_each(|arguments| {
            // kubeadm hands proxies to the pods of the control plane, which would ask them for webhooks of the cluster.
            let run =
                Invocation::new("kubeadm").args(*arguments).arg("--config").arg(&path).without_proxies();
            self.runner.run(&run.limit(KUBEADM_LIMIT)).map(drop)
        });
        let removed = fs::remove_file(&path);
        result.map_err(|error| {
            let what = format!("{}: kubeadm has not done it", step.message);
            let causes: Vec<_> = causes(&error).iter().map(|cause| reasons::of(cause)).collect();
            let cause = anyhow::anyhow!("{}", causes.join("\n  because: "));
            Failure::new(Class::Join, what).because(cause).hint(hint(self.node.part))
        })?;
        removed.with_context(|| format!("removing {}", path.display()))
    }

    /// Whether the kubelet can do without the bootstrap token: it writes its kubeconfig before it has the certificate.
    fn has_certificate(&self) -> bool {
        [KUBELET_ACCESS, KUBELET_CERTIFICATE].iter().all(|path| below(self.root, path).exists())
    }

    /// The kubelet asks for a certificate with the bootstrap token, which it does not need afterwards.
    fn await_kubelet(&self) -> Result<()> {
        let end = Instant::now() + BOOTSTRAP_LIMIT;
        while !self.has_certificate() {
            if Instant::now() >= end {
                let what = "the kubelet has no certificate of the cluster yet";
                return Err(Failure::new(Class::Join, what)
                    .hint("It goes on trying. See what keeps it: journalctl --unit kubelet")
                    .into());
            }
            thread::sleep(BOOTSTRAP_INTERVAL);
        }
        self.remove(KUBERNETES, &["bootstrap-kubelet.conf"])
    }

    /// kubectl as an administrator of the cluster, at the address that the kubeconfig names.
    fn administrate(&self, arguments: &[&str]) -> Result<Vec<u8>> {
        let all: Vec<&str> = ["--kubeconfig", ADMIN].into_iter().chain(arguments.iter().copied()).collect();
        self.runner.run(&kubectl(&all))
    }

    fn remove_stale_members(&self) -> Result<Vec<String>> {
        let words = ["get", "pods", "--namespace", "kube-system", "--selector", "component=etcd"];
        let words: Vec<&str> = words.into_iter().chain(["--output", "json"]).collect();
        let pods = self.administrate(&words).context("looking for the members of etcd")?;
        let nodes = self.administrate(&["get", "nodes", "--output", "json"]);
        let nodes = nodes.context("looking for the nodes of the members of etcd")?;
        etcd::remove_stale(self.root, &self.node.name, &pods, &nodes)
    }

    /// Two witnesses would let two failures of them count like two of management nodes.
    fn only_witness(&self) -> Result<()> {
        let words = ["get", "nodes", "--selector", WITNESS, "--output", "name"];
        let listed = self.administrate(&words).context("looking for other witnesses")?;
        let listed = String::from_utf8_lossy(&listed);
        let others = listed.lines().filter_map(|line| line.trim().strip_prefix("node/"));
        let Some(other) = others.into_iter().find(|other| *other != self.node.name) else { return Ok(()) };
        Err(Failure::new(Class::Join, format!("the cluster has a witness already, {other}"))
            .hint(format!(
                "Install this machine with another role; or delete the node {other} first, if it is gone: kubectl delete node {other}"
            ))
            .into())
    }

    /// Name servers that all run on one node are started again, which puts them on several.
    fn spread_names(&self) -> Result<()> {
        let listed =
            self.administrate(&name_servers::LIST).context("looking for the cluster's name servers")?;
        let Some(deployment) = name_servers::gathered(&listed)? else { return Ok(()) };
        let deployment = format!("deployment/{deployment}");
        self.administrate(&["rollout", "restart", &deployment, "--namespace", "kube-system"])
            .map(drop)
            .context("starting the cluster's name servers again")
    }

    /// What a witness needs is etcd's certificate and the kubelet's: whoever takes the machine gets no key of the cluster.
    fn forget_keys(&self) -> Result<()> {
        self.remove(KUBERNETES, &["admin.conf", "controller-manager.conf", "scheduler.conf"])?;
        let keys = format!("{KUBERNETES}/pki");
        self.remove(
            &keys,
            &[
                "ca.key",
                "sa.key",
                "sa.pub",
                "front-proxy-ca.crt",
                "front-proxy-ca.key",
                "front-proxy-client.crt",
                "front-proxy-client.key",
                "apiserver.crt",
                "apiserver.key",
                "apiserver-etcd-client.crt",
                "apiserver-etcd-client.key",
                "apiserver-kubelet-client.crt",
                "apiserver-kubelet-client.key",
            ],
        )?;
        self.remove(&format!("{keys}/etcd"), &["ca.key"])
    }

    /// Errors of kubeadm can quote its secrets.
    fn hiding(&self, result: Result<()>) -> Result<()> {
        let Err(error) = result else { return Ok(()) };
        let hidden = self.node.redaction(self.secrets.as_ref());
        let (class, hints) = (base::failure::class_of(&error), hints(&error).collect::<Vec<_>>());
        let mut causes = causes(&error).into_iter().map(|cause| hidden.hide(&cause));
        let mut failure = Failure::new(class, causes.next().unwrap_or_default());
        let causes: Vec<String> = causes.collect();
        if !causes.is_empty() {
            failure = failure.because(anyhow::anyhow!("{}", causes.join("\n  because: ")));
        }
        Err(match hints.first() {
            Some(hint) => failure.hint(hidden.hide(hint)),
            None => failure,
        }
        .into())
    }
}

fn hint(part: JoinedPart) -> &'static str {
    match part {
        JoinedPart::First => "It is tried again. The kubelet tells more: journalctl --unit kubelet",
        _ => {
            "It is tried again. `installer status` tells what the cluster answers, the kubelet more: journalctl --unit kubelet"
        }
    }
}

fn words(part: JoinedPart) -> &'static str {
    match part {
        JoinedPart::First => "the first node",
        JoinedPart::Server => "a management node",
        JoinedPart::Witness => "the witness",
        JoinedPart::Agent => "a worker",
    }
}
