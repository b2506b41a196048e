//! A cluster of three machines is updated node by node: the server, the witness, the worker; a release that does not start is taken back by
//! the first node, and no other one tries it. A client writes once a second. It cannot while the only server is away, nor, with two
//! members of etcd, while the witness is: what it loses then is noted. Two servers are more than an emulated machine bears beside others.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use base::parallel;
use nqrust_tests::artifacts::{Artifacts, scenario_alone};
use nqrust_tests::deadline::{Deadline, MACHINE_INTERVAL};
use nqrust_tests::identity::Identity;
use nqrust_tests::medium::{self, Medium};
use nqrust_tests::native_cluster::KubernetesRelease;
use nqrust_tests::node::Checks;
use nqrust_tests::programs::{self, ProgramOutput};
use nqrust_tests::qemu::{Machine, Vm};
use nqrust_tests::ssh::{ForwardedPort, Ssh};
use nqrust_tests::updates::{self, BROKEN, CURRENT, NEXT, awaited, boot_id, restarted_where, slot};
use nqrust_tests::writer::Writer;
use nqrust_tests::{secrets, steps};
use serde_json::{Value, json};

use super::kubeadm::{MEMBERS, boot_all, installed, wait_until_ready};
use super::machines::{Member, VIP};

/// The places of the server, the witness and the worker.
const SERVER: usize = 0;
const WITNESS: usize = 1;
const WORKER: usize = 2;

/// The drives with the new release and with the one that does not start.
const NEXT_MEDIUM: &str = "/dev/disk/by-label/NQRUST_HYPERVISOR_1000_0_0";
const BROKEN_MEDIUM: &str = "/dev/disk/by-label/NQRUST_HYPERVISOR_1001_0_0";
/// An administrator's access on nodes that have none of their own. They restart between two uses.
const ACCESS: &str = "/var/lib/rollout.conf";

const WRITTEN: &str = "written";

/// For each part of a node's turn, three machines side by side: staging, a restart or three, and the time in which a release has to
/// be good.
const TURN_LIMIT: Duration = Duration::from_secs(2400);
/// For a report to arrive in the cluster.
const TOLD_LIMIT: Duration = Duration::from_secs(300);
/// For a node to make its recovery system new, once its release is good.
const RENEWAL_LIMIT: Duration = Duration::from_secs(900);
/// The client's longest time without a write while the worker is away, which does nothing for it.
const WORKER_AWAY: Duration = Duration::from_secs(30);

#[test]
#[ignore = "updates three machines with Kubernetes, which takes two hours: `make soak` runs it"]
fn a_cluster_of_three_machines_is_updated_node_by_node_and_stops_at_a_rollback() {
    scenario_alone("cluster-rollout", |artifacts| {
        let identity = Identity::load()?;
        let next = release(NEXT, &[])?;
        // PID 1 ends at once, so that the kernel panics.
        let broken = release(BROKEN, &["init=/bin/false"])?;
        let (machines, disks) = installed(&MEMBERS, artifacts, &identity)?;
        let attach = |machine: Machine| machine.cdrom(&next.full).cdrom(&broken.full).reboots();
        let booted = boot_all(&machines, &disks, "node", &attach, (&identity, artifacts))?;
        let ready = wait_until_ready(&booted[SERVER].1, &MEMBERS);
        let nodes = MEMBERS.iter().zip(booted).map(|(member, (vm, ssh))| Node { member, vm, ssh });
        let mut cluster = UpdatedCluster {
            nodes: nodes.collect(),
            tools: (&identity, artifacts),
            checks: Checks::default(),
            begun: Instant::now(),
        };
        let outcome = ready.and_then(|()| cluster.is_updated());
        for node in &cluster.nodes {
            // Also of a cluster that failed: what kept it is in its journals.
            let kept = steps::collect_logs(&node.ssh, artifacts, node.member.name);
            if outcome.is_ok() {
                kept?;
            }
        }
        outcome?;
        cluster.checks.finish("the updates of the cluster")?;
        for node in cluster.nodes {
            drop(node.ssh);
            node.vm.power_off(steps::SHUTDOWN_LIMIT)?;
        }
        secrets::search(artifacts.directory(), &identity)
    });
}

pub(super) fn release(version: &str, arguments: &[&str]) -> Result<Medium> {
    // One place and one cache for all versions: what they have in common is made once.
    Medium::built_apart("kubernetes", |directory| {
        let definition = medium::stage_kubernetes(directory)?;
        updates::set_version(&definition, version, |definition| {
            updates::set_kernel_arguments(definition, arguments)
        })?;
        Ok(definition)
    })
}

struct Node {
    member: &'static Member,
    vm: Vm,
    ssh: Ssh,
}

struct UpdatedCluster<'a> {
    nodes: Vec<Node>,
    tools: (&'a Identity, &'a Artifacts),
    checks: Checks,
    begun: Instant,
}

impl UpdatedCluster<'_> {
    fn is_updated(&mut self) -> Result<()> {
        let artifacts = self.tools.1;
        let access = self.nodes[SERVER].ssh.read_as_root("/etc/kubernetes/admin.conf")?;
        for place in [WITNESS, WORKER] {
            let ssh = &self.nodes[place].ssh;
            ssh.run(&format!("sudo -n install -m 600 /dev/null {ACCESS}"))?;
            ssh.write_as_root(ACCESS, access.as_bytes())?;
        }
        let api = Api::new(&access, &self.nodes[WORKER].ssh, artifacts)?;
        for node in &self.nodes {
            awaited(&node.ssh, TURN_LIMIT, "a first boot that is good", |told| told["state"] == "idle")?;
        }
        self.told("the cluster runs, and every boot is good")?;
        api.call(&["create", "configmap", WRITTEN])?.success("creating what is written")?;
        self.stage_everywhere()?;
        self.told("the new release is staged on all nodes")?;
        let early = self.nodes[WITNESS].ssh.attempt(&self.apply(WITNESS, None), TURN_LIMIT)?;
        self.checks.equal("a witness before the server: the exit code", early.code, 3);
        self.checks.contains("what it says", &early.stderr, "servers come first");
        let mut last_number = 0;
        for place in [SERVER, WITNESS, WORKER] {
            // The client goes by a node that stays.
            let stays = if place == WORKER { SERVER } else { WORKER };
            let api = api.by(&self.nodes[stays].ssh)?;
            let writer = api.writer(last_number, artifacts);
            self.update(place, &api).with_context(|| format!("updating {}", MEMBERS[place].name))?;
            let written = writer.finish()?;
            last_number = written.tried;
            self.told(&format!("the client meanwhile: {written:?}"))?;
            if place == WORKER {
                self.checks.that(
                    &format!("no write waits longer than {WORKER_AWAY:?}: {written:?}"),
                    written.longest <= WORKER_AWAY,
                );
            }
            let kept = api.get(&["configmap", WRITTEN])?["data"]["number"].clone();
            // A write that failed for the client may have been made.
            let kept: u32 = kept.as_str().context("what is written")?.parse()?;
            self.checks.that(&format!("the last write is there: {kept}, {written:?}"), kept >= written.last);
        }
        for node in &self.nodes {
            let boots = boots(&node.ssh)?;
            self.checks.equal(&format!("{}: the starts so far", node.member.name), boots, 2);
        }
        self.is_stopped(&api)
    }

    /// Stages the new release on all nodes at once.
    fn stage_everywhere(&self) -> Result<()> {
        let command = format!("sudo -n installer update stage --from {NEXT_MEDIUM}");
        parallel::for_each(&self.nodes, self.nodes.len(), |Node { member, ssh, .. }| {
            let staged = ssh.attempt(&command, TURN_LIMIT)?;
            staged.success(&format!("staging on {}", member.name)).map(drop)
        })
    }

    /// The command that updates a node.
    fn apply(&self, place: usize, from: Option<&str>) -> String {
        let from = from.map(|drive| format!(" --from {drive}")).unwrap_or_default();
        let access = if place == SERVER { String::new() } else { format!(" --kubeconfig {ACCESS}") };
        format!("sudo -n installer update apply{from} --drain self{access}")
    }

    /// Lets a node run a command that restarts it, and logs in to the system after that for which `holds`.
    fn restarts(&mut self, place: usize, command: &str, holds: &dyn Fn(&Ssh) -> Result<bool>) -> Result<()> {
        let tools = self.tools;
        let Node { member, vm, ssh } = &mut self.nodes[place];
        let what = format!("{} after its restart", member.name);
        *ssh = restarted_where(vm, ssh, command, tools, (&what, TURN_LIMIT), holds)?;
        self.told(&what)
    }

    /// Updates a node to the release that is staged.
    fn update(&mut self, place: usize, api: &Api) -> Result<()> {
        let name = MEMBERS[place].name;
        // A node is told about its neighbors by the API, which notices a restart some time after it.
        let command = format!("{} --wait 1200", self.apply(place, None));
        self.told(&format!("{name} begins"))?;
        self.restarts(place, &command, &|_| Ok(true))?;
        let ssh = &self.nodes[place].ssh;
        let what = format!("{name}, whose release is good");
        let status = awaited(ssh, TURN_LIMIT, &what, |told| told["state"] == "idle")?;
        self.checks.equal(&format!("{name}: the slot"), status["running"].as_str(), Some("b"));
        self.checks.equal(&format!("{name}: it is good"), slot(&status, "b"), (NEXT.into(), "good".into()));
        let expected = ReportedState { version: NEXT, state: "good" };
        self.is_back(name, &expected, api)?;
        self.told(&format!("{name} is updated, and takes pods"))?;
        // A further node need not wait for this; three machines on few processors do better one after the other.
        let renewed = || Ok((!ssh.succeeds("systemctl is-active --quiet nqrust-good")?).then_some(()));
        Deadline::after(RENEWAL_LIMIT)
            .every(MACHINE_INTERVAL)
            .poll(&format!("the recovery system of {name}"), renewed)
    }

    /// Waits until a node has told the cluster of its update, and is not cordoned.
    fn is_back(&self, name: &str, expected: &ReportedState, api: &Api) -> Result<()> {
        let mut last = Value::Null;
        let back = Deadline::after(TOLD_LIMIT).every(MACHINE_INTERVAL).poll(
            &format!("the report of {name}"),
            || {
                last = api.get(&["node", name]).unwrap_or_default();
                let told = &last["metadata"]["annotations"];
                Ok((told["nqrust.io/os-version"] == expected.version
                    && told["nqrust.io/update-state"] == expected.state
                    && last["spec"]["unschedulable"] != true)
                    .then_some(()))
            },
        );
        back.with_context(|| format!("the node is {last}"))
    }

    /// A release that does not start: the first node takes it back, and no other one starts it.
    fn is_stopped(&mut self, api: &Api) -> Result<()> {
        let command = format!("{} --wait 1200", self.apply(SERVER, Some(BROKEN_MEDIUM)));
        self.told("node-1 tries a release that does not start")?;
        self.restarts(SERVER, &command, &|ssh| Ok(updates::running(ssh)? == "b"))?;
        let ssh = &self.nodes[SERVER].ssh;
        let status = awaited(ssh, TOLD_LIMIT, "the verdict", |told| told["state"] == "rolled-back")?;
        let reason = status["reason"].as_str().unwrap_or_default().to_owned();
        self.checks.contains("the reason", &reason, "started 3 times");
        self.told(&format!("node-1 has taken it back: {reason}"))?;
        let what = "node-1, whose release of before is good again";
        awaited(ssh, TURN_LIMIT, what, |told| slot(told, "b").1 == "good")?;
        let expected = ReportedState { version: NEXT, state: "rolled-back" };
        self.is_back(MEMBERS[SERVER].name, &expected, api)?;
        let before = boot_id(&self.nodes[WITNESS].ssh)?;
        let other = self.nodes[WITNESS].ssh.attempt(&self.apply(WITNESS, Some(BROKEN_MEDIUM)), TURN_LIMIT)?;
        self.checks.equal("another node: the exit code", other.code, 3);
        self.checks.contains("what it says", &other.stderr, "node-1 took it back");
        let status = updates::status(&self.nodes[WITNESS].ssh)?;
        self.checks.equal("it stages nothing", slot(&status, "a").0.as_str(), CURRENT);
        self.checks.equal("it does not restart", boot_id(&self.nodes[WITNESS].ssh)?, before);
        self.told("node-2 does not try it")
    }

    /// Records the time of an event.
    fn told(&self, what: &str) -> Result<()> {
        self.tools.1.append("figures.txt", &format!("{:5} s: {what}\n", self.begun.elapsed().as_secs()))
    }
}

/// The state that a node reports to its cluster.
struct ReportedState {
    version: &'static str,
    state: &'static str,
}

/// How often a node has started since it was installed.
fn boots(ssh: &Ssh) -> Result<usize> {
    let listed = ssh.run("sudo -n journalctl --list-boots --no-pager --quiet")?;
    // From the first, with a negative number, to this one, with 0, under a heading.
    Ok(listed.lines().filter(|line| line.trim_start().starts_with(['-', '0'])).count())
}

/// The API at the virtual address, by way of one of the nodes.
#[derive(Clone)]
struct Api {
    program: PathBuf,
    access: PathBuf,
    forwarded: Arc<ForwardedPort>,
}

impl Api {
    fn new(access: &str, ssh: &Ssh, artifacts: &Artifacts) -> Result<Self> {
        let path = artifacts.disk("admin.conf");
        fs::write(&path, access)?;
        fs::set_permissions(&path, Permissions::from_mode(0o600))?;
        let program = KubernetesRelease::built()?.program("kubectl");
        Ok(Self { program, access: path, forwarded: forwarded(ssh)? })
    }

    /// The same by way of another node.
    fn by(&self, ssh: &Ssh) -> Result<Self> {
        Ok(Self { forwarded: forwarded(ssh)?, ..self.clone() })
    }

    fn call(&self, arguments: &[&str]) -> Result<ProgramOutput> {
        let server = format!("https://127.0.0.1:{}", self.forwarded.port());
        let mut kubectl = Command::new(&self.program);
        kubectl.arg("--kubeconfig").arg(&self.access).args(["--server", &server]);
        kubectl.args(["--tls-server-name", "kubernetes", "--request-timeout", "5s"]).args(arguments);
        // It keeps there what it has found out about the API.
        kubectl.env("HOME", self.access.with_extension("home"));
        programs::run(&mut kubectl, steps::COMMAND_LIMIT)
    }

    /// A client whose writes have numbers that begin after `last_number`.
    fn writer(&self, last_number: u32, artifacts: &Artifacts) -> Writer {
        let api = self.clone();
        Writer::start(last_number, artifacts.path("writes.txt"), move |number| {
            let patch = json!({ "data": { "number": number.to_string() } }).to_string();
            api.call(&["patch", "configmap", WRITTEN, "--type", "merge", "--patch", &patch])
        })
    }

    fn get(&self, arguments: &[&str]) -> Result<Value> {
        let all: Vec<&str> =
            ["get", "--output", "json"].into_iter().chain(arguments.iter().copied()).collect();
        Ok(serde_json::from_str(&self.call(&all)?.success("kubectl get")?)?)
    }
}

/// The way to the API by this node.
fn forwarded(ssh: &Ssh) -> Result<Arc<ForwardedPort>> {
    Ok(Arc::new(ssh.forward(&format!("{VIP}:6443"))?))
}
