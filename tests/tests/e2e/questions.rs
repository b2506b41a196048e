//! The installer's questions as tests answer them: the screens in their order, and the keys for each.

use std::time::Duration;

use anyhow::{Context, Result};
use nqrust_tests::artifacts::Artifacts;
use nqrust_tests::console::{CTRL_F, CTRL_N, CTRL_P, DOWN, SCREEN_LIMIT, screen};
use nqrust_tests::identity::Identity;
use nqrust_tests::qemu::Vm;
use nqrust_tests::steps;

/// A word of each screen's title and the keys that answer it.
pub(crate) type ScreenKeys = Vec<(&'static str, String)>;

/// A machine whose questions are answered. Where a test says nothing, the first answer of the screen is taken.
#[derive(Clone, Debug)]
pub(crate) struct AnsweredMachine<'a> {
    pub(crate) name: &'a str,
    /// The mode of the machine: keys for the first screen.
    becomes: String,
    pub(crate) network: String,
    cluster: (&'static str, String),
}

impl<'a> AnsweredMachine<'a> {
    /// The first node of a cluster, with a token that the installer makes; the VIP's kind comes before it.
    pub(crate) fn first(name: &'a str) -> Self {
        Self::creating(name, format!("\t10.0.2.77{CTRL_F}{CTRL_N}"))
    }

    /// The first node of a cluster, with these keys for the screen of the cluster.
    pub(crate) fn creating(name: &'a str, cluster: String) -> Self {
        Self {
            name,
            becomes: "\r".to_owned(),
            network: CTRL_N.to_string(),
            cluster: ("the new cluster", cluster),
        }
    }

    /// A worker that joins the cluster at an address.
    pub(crate) fn joining(name: &'a str, address: &str, token: &str) -> Self {
        Self {
            name,
            // The third role is the worker; Enter selects it and goes on.
            becomes: format!("{DOWN}\r{DOWN}{DOWN}\r"),
            network: CTRL_N.to_string(),
            cluster: ("the cluster to join", format!("{address}\t{token}{CTRL_N}")),
        }
    }

    /// With a fixed address in a network of 256: the kind of address is the second field.
    pub(crate) fn at(self, address: &str, gateway: &str, name_server: &str) -> Self {
        let network = format!("\t{DOWN} \t{address}\t255.255.255.0\t{gateway}\t{name_server}{CTRL_N}");
        Self { network, ..self }
    }

    pub(crate) fn screens(self, identity: &Identity) -> ScreenKeys {
        // The only possible disk is selected; the second size is for small disks.
        let disks = ("Install: disks", format!("\t{DOWN} {CTRL_N}"));
        let mut screens = self.asked(identity, "is erased");
        screens.insert(1, disks);
        screens
    }

    /// All screens of the first start of a disk image, whose disk is as the image has it.
    pub(crate) fn screens_of_first_start(self, identity: &Identity) -> ScreenKeys {
        self.asked(identity, "The node document is written to")
    }

    /// The screens without that of the disks; these words are in the plan.
    fn asked(self, identity: &Identity, planned: &'static str) -> ScreenKeys {
        let Identity { password, public_key, .. } = identity;
        [
            ("what this machine becomes", self.becomes),
            ("management network", self.network),
            ("names and servers", format!("{}{CTRL_N}", self.name)),
            self.cluster,
            ("who may log in", format!("{password}\t{password}\t{public_key}{CTRL_N}")),
            (planned, "\r".to_owned()),
            ("Type yes", "yes\r".to_owned()),
        ]
        .into()
    }
}

pub(crate) fn answer(vm: &mut Vm, screens: &[(&'static str, String)], artifacts: &Artifacts) -> Result<()> {
    let mut limit = if screens[0].0.contains("becomes") { steps::INSTALL_LIMIT } else { SCREEN_LIMIT };
    for (title, keys) in screens {
        screen(vm, &[title], limit, artifacts)?;
        vm.serial.keys(keys)?;
        limit = SCREEN_LIMIT;
    }
    Ok(())
}

/// Opens help access from any screen; returns the password of root that the screen shows.
pub(crate) fn open_help_access(vm: &mut Vm, artifacts: &Artifacts) -> Result<String> {
    vm.serial.keys(&CTRL_P.to_string())?;
    screen(vm, &["Help access is closed. Opening it"], SCREEN_LIMIT, artifacts)?;
    vm.serial.keys("\r")?;
    screen(vm, &["Host key SHA256:"], SCREEN_LIMIT, artifacts)?;
    let shown = vm.serial.screen();
    let password = shown.lines().find_map(|line| line.trim().strip_prefix("Password"));
    Ok(password.context("a password on the screen")?.trim().to_owned())
}

/// Opens the shell that help access offers on the console, which asks for the password.
pub(crate) fn root_shell(vm: &mut Vm, password: &str) -> Result<()> {
    vm.serial.keys("\r")?;
    vm.serial.wait_for("assword: ", SCREEN_LIMIT).context("opening a shell")?;
    std::thread::sleep(Duration::from_secs(1));
    vm.serial.send(password)?;
    vm.serial.wait_for("# ", SCREEN_LIMIT).context("logging in to a shell")?;
    let answer = vm.serial.run("id -u", SCREEN_LIMIT)?;
    anyhow::ensure!(answer.text.trim() == "0", "the shell is not root's: {:?}", answer.text);
    Ok(())
}
