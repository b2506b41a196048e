//! The network of the nodes: one segment without a way out, and a place in it for the person who administers the cluster.

use std::fs;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use nix::sched::{CloneFlags, setns};

use crate::deadline::Deadline;
use crate::programs;

const LIMIT: Duration = Duration::from_secs(30);

/// A bridge in a network namespace of its own; it is removed when dropped.
#[derive(Debug)]
pub struct Switch {
    holder: Child,
}

impl Switch {
    /// The address of the administrator, which is every node's gateway too, in a /24 network.
    pub const ADMINISTRATOR: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 1);

    pub fn lay() -> Result<Self> {
        let mut unshare = Command::new("setpriv");
        unshare.args(["--pdeathsig", "KILL", "unshare", "--net", "sleep", "infinity"]).stdin(Stdio::null());
        let switch = Self { holder: unshare.spawn().context("making a network namespace")? };
        let (own, theirs) = ("/proc/self/ns/net", format!("/proc/{}/ns/net", switch.holder.id()));
        let own = fs::read_link(own)?;
        Deadline::after(LIMIT).poll("a network namespace", || {
            Ok(fs::read_link(&theirs).is_ok_and(|link| link != own).then_some(()))
        })?;
        // A bridge that waits for loops to be found would hold frames back.
        switch.run("ip link set lo up")?;
        switch.run("ip link add nodes type bridge forward_delay 0 mcast_snooping 0")?;
        switch.run(&format!("ip address add {}/24 dev nodes", Self::ADMINISTRATOR))?;
        switch.run("ip link set nodes up")?;
        Ok(switch)
    }

    /// Lays a cable from the switch to the card `mgmt-br` of the network namespace of the process `process`.
    pub(super) fn connect(&self, port: &str, process: u32, hardware_address: &str) -> Result<()> {
        // The kernel removes the cable of a node that was switched off, but not at once.
        drop(self.run(&format!("ip link delete {port}")));
        self.run(&format!(
            "ip link add {port} type veth peer name mgmt-br address {hardware_address} netns {process}"
        ))?;
        self.run(&format!("ip link set {port} master nodes up"))
    }

    /// Pulls the cable of a port, or puts it back.
    pub fn plug(&self, port: &str, is_in: bool) -> Result<()> {
        self.run(&format!("ip link set {port} {}", if is_in { "up" } else { "down" }))
    }

    #[must_use]
    pub fn network(&self) -> AdministratorNetwork {
        AdministratorNetwork { process: self.holder.id() }
    }

    /// A program as the administrator runs it.
    #[must_use]
    pub fn command(&self, program: &str) -> Command {
        self.network().command(program)
    }

    fn run(&self, words: &str) -> Result<()> {
        let mut words_of = words.split(' ');
        let mut command = self.command(words_of.next().unwrap_or_default());
        programs::run(command.args(words_of), LIMIT)?.success(words).map(drop)
    }
}

/// The network of the nodes, as the administrator is in it.
#[derive(Clone, Copy, Debug)]
pub struct AdministratorNetwork {
    process: u32,
}

impl AdministratorNetwork {
    /// A listener there, at the address of the administrator.
    pub fn listen(self, port: u16) -> Result<TcpListener> {
        Ok(self.within(|| TcpListener::bind((Switch::ADMINISTRATOR, port)))??)
    }

    /// Does `work` of this process there; threads that it starts are there too.
    pub fn within<T: Send>(self, work: impl FnOnce() -> T + Send) -> Result<T> {
        let network = fs::File::open(format!("/proc/{}/ns/net", self.process))?;
        let enter = || -> Result<T> {
            setns(network, CloneFlags::CLONE_NEWNET)?;
            Ok(work())
        };
        thread::scope(|scope| scope.spawn(enter).join())
            .unwrap_or_else(|_| bail!("what was done in the network of the nodes has panicked"))
    }

    #[must_use]
    pub fn command(self, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--target={}", self.process)).args(["--net", "--", program]);
        command
    }
}

impl Drop for Switch {
    fn drop(&mut self) {
        // Both fail only if the child has ended.
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}
