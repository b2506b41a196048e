//! One node: namespaces that are started and switched off as a machine is, around files that last.

use std::collections::BTreeMap;
use std::fs;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use model::config::Role;
use model::release::Release;
use nix::sched::{CloneFlags, setns, unshare};

use super::control_groups::ControlGroups;
use super::{BaseTree, KubernetesRelease, OsLayer, Switch, adapt};
use crate::deadline::{CLUSTER_INTERVAL, Deadline};
use crate::paths;
use crate::programs::{self, ProgramOutput};

const START: &str = include_str!("start_node.sh");
/// Enters control groups, whose directories come before `--`, and becomes the program behind it.
const IN_GROUPS: &str =
    r#"while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs"; shift; done; shift; exec "$@""#;
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// From power on until units can be started.
const START_LIMIT: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(120);
/// Until the services of a node have ended.
const OFF_LIMIT: Duration = Duration::from_secs(20);
/// Documents for kubeadm, from the root.
const KUBEADM: &str = "etc/nqrust/kubeadm";

#[derive(Clone, Debug)]
pub struct NodePlace {
    pub name: String,
    pub role: Role,
    pub address: Ipv4Addr,
    /// Of its network card.
    pub hardware_address: String,
    /// Its files that last, and its log.
    pub directory: PathBuf,
    /// The directory of its disk, if it has one.
    pub disk: Option<PathBuf>,
}

/// A node that is switched on; dropping it is a power cut.
#[derive(Debug)]
pub struct NativeNode {
    place: NodePlace,
    holder: Child,
    /// Its first process, as the host counts.
    first: u32,
    groups: ControlGroups,
}

impl NodePlace {
    /// Gives the node its document, as an install does. What it had before is lost.
    pub fn install(&self, document: &str) -> Result<()> {
        if self.directory.exists() {
            fs::remove_dir_all(&self.directory)
                .with_context(|| format!("emptying {}", self.directory.display()))?;
        }
        let oem = self.directory.join("oem");
        base::files::make_directory(&oem, 0o700)?;
        let id = base::digest::Digest::of(format!("{} {document}", self.name).as_bytes()).to_string();
        fs::write(oem.join("machine-id"), format!("{}\n", &id[..32]))?;
        // The images of these nodes are not those of a medium, which `installer images check` would count.
        let release = Release { payloads: Vec::new(), images: Vec::new(), ..testing::release::release() };
        fs::write(oem.join("release.json"), release.to_bytes())?;
        self.write_document(document)
    }

    /// Replaces the node's document, as its administrator does; it counts from the next start.
    pub fn write_document(&self, document: &str) -> Result<()> {
        base::files::write_atomically(&self.directory.join("oem/node.yaml"), document.as_bytes(), 0o600)
    }

    /// Switches the node on; nothing of Kubernetes runs yet.
    pub fn start(&self, switch: &Switch, base: &BaseTree, layer: &OsLayer) -> Result<NativeNode> {
        let groups = ControlGroups::make(&self.name)?;
        let log = fs::File::options().create(true).append(true).open(self.directory.join("start.log"))?;
        let mut start = Command::new("setpriv");
        start
            .args(["--pdeathsig", "KILL", "sh", "-euc", IN_GROUPS, "sh"])
            .args(groups.directories())
            .arg("--");
        start.args([
            "unshare",
            "--fork",
            "--kill-child",
            "--mount",
            "--uts",
            "--ipc",
            "--net",
            "--pid",
            "--cgroup",
        ]);
        start
            .args(["sh", "-euc", START, "start_node.sh"])
            .arg(&self.directory)
            .arg(layer.path())
            .arg(base.path());
        start
            .arg(paths::installer()?)
            .args([self.address, Switch::ADMINISTRATOR].map(|address| address.to_string()))
            .arg(self.disk.as_deref().unwrap_or(Path::new("")));
        start.env_clear().env("PATH", PATH).env("HOME", "/root");
        let mounts = self.directory.join("control-groups");
        fs::write(&mounts, groups.mounts())?;
        start.stdin(fs::File::open(mounts)?).stdout(log.try_clone()?).stderr(log);
        let holder = start.spawn().context("making the namespaces of a node")?;
        let mut node = NativeNode { place: self.clone(), holder, first: 0, groups };
        let deadline = Deadline::after(START_LIMIT);
        node.first = deadline.poll("the first process", || node.first_process())?;
        let port = format!("port-{}", self.name);
        deadline.poll("a network namespace", || {
            Ok(switch.connect(&port, node.first, &self.hardware_address).is_ok().then_some(()))
        })?;
        deadline
            .poll("the start of a node", || {
                if let Some(status) = node.holder.try_wait()? {
                    bail!("it ended: {status}");
                }
                Ok(node.succeeds("test -e /run/booted").then_some(()))
            })
            .with_context(|| format!("{} said: {}", self.name, self.said()))?;
        node.adapt()?;
        Ok(node)
    }

    fn said(&self) -> String {
        fs::read_to_string(self.directory.join("start.log")).unwrap_or_default()
    }
}

impl NativeNode {
    #[must_use]
    pub fn place(&self) -> &NodePlace {
        &self.place
    }

    /// The child of `unshare`, once it is there.
    fn first_process(&mut self) -> Result<Option<u32>> {
        if let Some(status) = self.holder.try_wait()? {
            bail!("the node ended at once: {status}: {}", self.place.said());
        }
        let id = self.holder.id();
        let children = fs::read_to_string(format!("/proc/{id}/task/{id}/children")).unwrap_or_default();
        Ok(children.split_whitespace().next().and_then(|child| child.parse().ok()))
    }

    fn adapt(&self) -> Result<()> {
        let documents = Path::new("/proc").join(self.first.to_string()).join("root").join(KUBEADM);
        for name in ["init", "join", "etcd", "upgrade"] {
            let path = documents.join(format!("{name}.yaml"));
            if path.exists() {
                let text = adapt::kubeadm_documents(&fs::read_to_string(&path)?)?;
                fs::write(&path, text)?;
            }
        }
        Ok(())
    }

    /// A program on the node, with its environment and in its control groups.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-euc", IN_GROUPS, "sh"]).args(self.groups.processes()).arg("--");
        command.args(["nsenter", "--mount", "--uts", "--ipc", "--net", "--pid", "--cgroup"]);
        command.arg(format!("--target={}", self.first)).args(["--", program]);
        command.env_clear().env("PATH", PATH).env("HOME", "/root").env("CONTAINERD_NAMESPACE", "k8s.io");
        command
    }

    /// Does `work` of this process as a process of the node would: with its files and its network.
    pub fn within<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let open = |kind: &str| {
            let path = format!("/proc/{}/ns/{kind}", self.first);
            fs::File::open(&path).with_context(|| format!("opening {path}"))
        };
        let (files, network) = (open("mnt")?, open("net")?);
        let enter = || -> Result<T> {
            // A thread has a root directory of its own only when it shares it with no other one (setns(2)).
            unshare(CloneFlags::CLONE_FS)?;
            setns(network, CloneFlags::CLONE_NEWNET)?;
            setns(files, CloneFlags::CLONE_NEWNS)?;
            Ok(work())
        };
        thread::scope(|scope| scope.spawn(enter).join())
            .unwrap_or_else(|_| bail!("what was done on {} has panicked", self.place.name))
    }

    /// Runs a line of shell on the node, successful or not.
    pub fn call(&self, line: &str) -> Result<ProgramOutput> {
        programs::run(self.command("sh").args(["-c", line]), LIMIT)
    }

    /// The output of a line of shell, which has to succeed.
    pub fn run(&self, line: &str) -> Result<String> {
        self.call(line)?.success(&format!("{}: {line}", self.place.name))
    }

    #[must_use]
    pub fn succeeds(&self, line: &str) -> bool {
        self.call(line).is_ok_and(|ended| ended.code == 0)
    }

    /// Resident memory of the node's processes in KiB, by the names of the programs. Those in pods count as well.
    pub fn memory(&self) -> Result<BTreeMap<String, u64>> {
        let mut programs = BTreeMap::new();
        for line in self.run("ps -e -o rss=,comm=")?.lines() {
            let mut words = line.split_whitespace();
            if let (Some(Ok(size)), Some(name)) = (words.next().map(str::parse::<u64>), words.next()) {
                *programs.entry(name.to_owned()).or_default() += size;
            }
        }
        Ok(programs)
    }

    /// Puts the images of the node's role into its store, as an install does.
    pub fn seed(&self, release: &KubernetesRelease, further: &[&Path]) -> Result<()> {
        self.run("systemctl start containerd")?;
        Deadline::after(LIMIT).poll("containerd", || Ok(self.succeeds("ctr version").then_some(())))?;
        for archive in release.archives_for(self.place.role)?.into_iter().chain(further.iter().copied()) {
            // zstd passes on what is not compressed.
            let mut import = self.command("sh");
            import.args(["-c", "zstd --decompress --stdout --force | ctr images import -"]);
            let bytes = fs::read(archive).with_context(|| format!("reading {}", archive.display()))?;
            programs::run_with_input(&mut import, &bytes, LIMIT)?
                .success(&format!("importing {}", archive.display()))?;
        }
        Ok(())
    }

    /// Starts what the node's document has enabled, as the last part of a boot.
    pub fn start_units(&self) -> Result<()> {
        self.run("systemctl start containerd; cd /etc/systemd/system/multi-user.target.wants; for unit in *; do systemctl start $unit; done")
            .map(drop)
    }

    /// The output of `installer status`.
    pub fn status(&self) -> Result<String> {
        self.run("installer status")
    }

    /// Waits until `installer status` tells all of this.
    pub fn await_status(&self, parts: &[&str], limit: Duration) -> Result<()> {
        let mut last = String::new();
        Deadline::after(limit)
            .every(CLUSTER_INTERVAL)
            .poll(&format!("{} telling {parts:?}", self.place.name), || {
                last = self.status()?;
                // Long values are wrapped.
                let words = last.split_whitespace().collect::<Vec<_>>().join(" ");
                Ok(parts.iter().all(|part| words.contains(part)).then_some(()))
            })
            .with_context(|| format!("the status of {} is\n{last}", self.place.name))
    }

    #[must_use]
    pub fn log(&self, unit: &str) -> String {
        fs::read_to_string(self.place.directory.join(format!("var/log/units/{unit}.service.log")))
            .unwrap_or_default()
    }
}

impl Drop for NativeNode {
    // Errors go to standard error: a destructor cannot return them.
    #[allow(clippy::print_stderr)]
    fn drop(&mut self) {
        // With its first process every other of the node ends; the rest fails only if they have ended.
        let _ = Command::new("kill").args(["-KILL", &self.first.to_string()]).status();
        let _ = self.holder.kill();
        let _ = self.holder.wait();
        let first = PathBuf::from(format!("/proc/{}", self.first));
        let ended =
            Deadline::after(OFF_LIMIT).poll("the end of a node", || Ok((!first.exists()).then_some(())));
        if let Err(error) = ended {
            eprintln!("{}: {error:#}", self.place.name);
        }
    }
}
