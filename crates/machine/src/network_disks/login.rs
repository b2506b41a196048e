//! One login to an iSCSI target with open-iscsi. A password goes into the configuration file that only root reads, from which iscsiadm
//! takes it into the record of the target; arguments can be read by everyone.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;

use super::Refusal;
use super::sessions::{self, SessionStatus};
use crate::inventory::iscsi;
use crate::node_files::{NodeFile, write};
use base::command::{Invocation, Runner};
use base::files::Root;
use model::network_disks::{DiskProtocol, TargetPortal};

/// iscsid has its own limits, which are shorter.
const LIMIT: Duration = Duration::from_secs(60);
/// How long a target may take to answer a login.
const LOGIN_SECONDS: u32 = 10;
/// After so much silence a target is asked whether it is there, and has as long to answer.
const SILENT_SECONDS: u32 = 5;

/// Logs in to targets, as the machine called `initiator`.
pub(super) struct Initiator<'a> {
    pub(super) root: &'a Path,
    pub(super) name: Option<&'a str>,
    /// Whether iscsid is a unit of systemd, which may run with another name.
    pub(super) restarts: bool,
    /// How long the kernel holds back what is read and written while the connection is lost, before it fails.
    pub(super) hold: Duration,
    pub(super) runner: &'a dyn Runner,
}

impl Initiator<'_> {
    /// Writes the configuration of open-iscsi, and the name that iscsid has read when it starts.
    pub(super) fn prepare(&self) -> Result<()> {
        self.configure(None)?;
        let Some(name) = self.name else { return Ok(()) };
        let file = NodeFile::new("etc/iscsi/initiatorname.iscsi", 0o600, format!("InitiatorName={name}\n"));
        if write(&Root::open(self.root)?, &file)? && self.restarts {
            self.runner
                .run(&Invocation::new("systemctl").args(["try-restart", "iscsid.service"]).limit(LIMIT))?;
        }
        Ok(())
    }

    fn configure(&self, way: Option<&TargetPortal>) -> Result<()> {
        let root = Root::open(self.root)?;
        write(&root, &NodeFile::new("etc/iscsi/iscsid.conf", 0o600, settings(self.hold, way))).map(drop)
    }

    /// # Errors
    /// The program's, in a few words.
    pub(super) fn log_in(&self, way: &TargetPortal) -> Result<()> {
        let place = way.portal.to_string();
        let record = |further: &[&str]| record(&way.target, &place, further);
        // What is left of an attempt before.
        let _ = self.runner.run(&record(&["-o", "delete"]));
        self.configure(Some(way))?;
        let made = self.runner.run(&record(&["-o", "new"]));
        self.configure(None)?;
        made.map_err(short)?;
        self.runner.run(&record(&["--login"])).map(drop).map_err(short)
    }
}

/// iscsiadm, for the record of a target at `place`, an address of it.
fn record(target: &str, place: &str, further: &[&str]) -> Invocation {
    let command = Invocation::new("iscsiadm").args(["-m", "node", "-T", target, "-p", place]);
    command.args(further.iter().copied()).limit(LIMIT)
}

/// Gives the iscsid of a running node, which takes over the logins of the initrd, a record of each in its database: by one it keeps the
/// timers, and without one it would set those of the image's configuration, by which the kernel fails what is held back after two
/// minutes. Name and password it has from the kernel (`sync_session` in usr/iscsid.c of open-iscsi).
///
/// # Errors
/// The program's.
pub fn record_logins(root: &Path, hold: Duration, runner: &dyn Runner) -> Result<()> {
    let ways = sessions::of_node(root);
    for session in iscsi::sessions(&root.join("sys")) {
        let Some((portal, group)) = session.portal.zip(session.portal_group) else { continue };
        let is_this = |way: &SessionStatus| {
            way.protocol == DiskProtocol::Iscsi && way.target == session.target && way.portal == portal
        };
        if !ways.iter().any(is_this) {
            continue;
        }
        let place = format!("{portal},{group}");
        let record = |further: &[&str]| record(&session.target, &place, further);
        // That of the start before.
        let _ = runner.run(&record(&["-o", "delete"]));
        runner.run(&record(&["-o", "new"]))?;
        for (name, value) in timers(hold) {
            runner.run(&record(&["-o", "update", "-n", name, "-v", &value]))?;
        }
    }
    Ok(())
}

/// What a login waits for, in seconds.
fn timers(hold: Duration) -> [(&'static str, String); 4] {
    [
        ("node.session.timeo.replacement_timeout", hold.as_secs().to_string()),
        ("node.conn[0].timeo.login_timeout", LOGIN_SECONDS.to_string()),
        ("node.conn[0].timeo.noop_out_interval", SILENT_SECONDS.to_string()),
        ("node.conn[0].timeo.noop_out_timeout", SILENT_SECONDS.to_string()),
    ]
}

/// `/etc/iscsi/iscsid.conf`: what records of targets begin with (open-iscsi's README, "iSCSI settings").
fn settings(hold: Duration, way: Option<&TargetPortal>) -> String {
    let mut text = String::from(
        "# Written by `installer`.\n\
         iscsid.startup = /usr/sbin/iscsid\n\
         node.startup = onboot\n\
         node.session.initial_login_retry_max = 1\n",
    );
    text.extend(timers(hold).map(|(name, value)| format!("{name} = {value}\n")));
    if let Some(chap) = way.and_then(|way| way.chap.as_ref()) {
        text += &format!(
            "node.session.auth.authmethod = CHAP\n\
             node.session.auth.username = {}\n\
             node.session.auth.password = {}\n",
            chap.user,
            chap.password.expose()
        );
    }
    text
}

/// What an error of iscsiadm means, by its numbers (`include/iscsi_err.h` of open-iscsi); its own words for others.
fn short(error: anyhow::Error) -> anyhow::Error {
    let text = format!("{error:#}");
    let refused = [
        ("(19 - ", "it refuses this machine: it may not have this target, or not know the initiator's name"),
        ("(24 - ", "it refuses the name and password of this machine"),
    ];
    let failed =
        [("(4 - ", "it cannot be reached"), ("(5 - ", "it ended the login"), ("(8 - ", "it does not answer")];
    let of = |known: &[(&str, &'static str)]| {
        known.iter().find(|(number, _)| text.contains(number)).map(|(_, words)| *words)
    };
    match (of(&refused), of(&failed)) {
        (Some(words), _) => Refusal(words).into(),
        (None, Some(words)) => anyhow::anyhow!("{words}"),
        (None, None) => error,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::config::{Chap, Secret};
    use std::os::unix::fs::PermissionsExt;
    use testing::runner::ScriptedRunner;

    fn way(password: Option<&str>) -> TargetPortal {
        let chap = password
            .map(|password| Chap { user: "node-1".parse().unwrap(), password: Secret::new(password) });
        TargetPortal {
            protocol: DiskProtocol::Iscsi,
            target: "iqn.2026-01.com.example:a".into(),
            portal: "192.0.2.9:3260".parse().unwrap(),
            chap,
        }
    }

    #[test]
    fn a_password_is_in_no_argument_and_only_for_a_moment_in_a_file_of_root() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("etc")).unwrap();
        let file = root.path().join("etc/iscsi/iscsid.conf");
        let seen = std::sync::Arc::new(std::sync::Mutex::new(String::new()));
        let (copy, place) = (seen.clone(), file.clone());
        let runner = ScriptedRunner::silent().reply("-o new", move |_| {
            assert_eq!(std::fs::metadata(&place)?.permissions().mode() & 0o777, 0o600);
            *copy.lock().unwrap() = std::fs::read_to_string(&place)?;
            Ok(Vec::new())
        });
        let name = Some("iqn.2026-01.com.example:node-1");
        let initiator = Initiator {
            root: root.path(),
            name,
            restarts: true,
            hold: Duration::from_secs(120),
            runner: &runner,
        };
        initiator.prepare().unwrap();
        initiator.log_in(&way(Some("correct horse"))).unwrap();
        assert!(
            seen.lock()
                .unwrap()
                .contains("auth.username = node-1\nnode.session.auth.password = correct horse\n")
        );
        assert!(seen.lock().unwrap().contains("replacement_timeout = 120\n"));
        let after = std::fs::read_to_string(&file).unwrap();
        assert!(!after.contains("correct horse") && !after.contains("CHAP"), "{after}");
        let commands = runner.commands();
        assert!(!commands.iter().any(|command| command.contains("correct")), "{commands:?}");
        let node = "iscsiadm -m node -T iqn.2026-01.com.example:a -p 192.0.2.9:3260";
        assert_eq!(
            commands,
            [
                "systemctl try-restart iscsid.service".to_owned(),
                format!("{node} -o delete"),
                format!("{node} -o new"),
                format!("{node} --login"),
            ]
        );
        let own = std::fs::read_to_string(root.path().join("etc/iscsi/initiatorname.iscsi")).unwrap();
        assert_eq!(own, "InitiatorName=iqn.2026-01.com.example:node-1\n");
    }

    #[test]
    fn the_iscsid_of_a_node_keeps_the_timers_of_its_disks_and_not_those_of_volumes() {
        let machine = testing::machine::MachineTree::new("");
        let targets = vec![way(Some("correct horse"))];
        let access = model::network_disks::NetworkDiskAccess { targets, ..Default::default() };
        sessions::remember(machine.path(), &access).unwrap();
        let log_in = crate::inventory::iscsi::tests::log_in;
        log_in(machine.path(), 1, "iqn.2026-01.com.example:a", "192.0.2.9:3260", "LOGGED_IN");
        log_in(machine.path(), 2, "iqn.2019-10.io.longhorn:pvc", "10.52.0.9:3260", "LOGGED_IN");
        let runner = ScriptedRunner::silent().fail("-o delete", "no records found");
        record_logins(machine.path(), Duration::from_secs(86400), &runner).unwrap();
        let record = "iscsiadm -m node -T iqn.2026-01.com.example:a -p 192.0.2.9:3260,1 -o";
        assert_eq!(
            runner.commands(),
            [
                format!("{record} delete"),
                format!("{record} new"),
                format!("{record} update -n node.session.timeo.replacement_timeout -v 86400"),
                format!("{record} update -n node.conn[0].timeo.login_timeout -v 10"),
                format!("{record} update -n node.conn[0].timeo.noop_out_interval -v 5"),
                format!("{record} update -n node.conn[0].timeo.noop_out_timeout -v 5"),
            ]
        );
        let failing = ScriptedRunner::silent().fail("-o new", "no room");
        assert!(record_logins(machine.path(), LIMIT, &failing).is_err());
    }

    #[test]
    fn an_error_says_what_the_target_does() {
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("etc")).unwrap();
        for (said, words) in [
            (
                "iscsiadm: initiator reported error (24 - iSCSI login failed due to authorization failure)",
                "it refuses the name and password",
            ),
            ("iscsiadm: initiator reported error (8 - connection timed out)", "it does not answer"),
            (
                "iscsiadm: initiator reported error (19 - encountered non-retryable iSCSI login failure)",
                "it refuses this machine",
            ),
            ("iscsiadm: Out of memory", "Out of memory"),
        ] {
            let runner = ScriptedRunner::silent().fail("--login", said);
            let initiator =
                Initiator { root: root.path(), name: None, restarts: true, hold: LIMIT, runner: &runner };
            let error = format!("{:#}", initiator.log_in(&way(None)).unwrap_err());
            assert!(error.contains(words), "{error}");
        }
    }
}
