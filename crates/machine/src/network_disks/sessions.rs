//! What became of the logins and connections to the targets of a node's disks.

use std::fmt;
use std::net::SocketAddrV4;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::inventory::iscsi::{IscsiSession, sessions};
use crate::inventory::nvme::{NvmeConnection, connections};
use crate::paths::below;
use base::files::{read_text, write_atomically};
use model::network_disks::{DiskProtocol, NetworkDiskAccess};

/// The ways to the disks of a node, without passwords; the initrd writes it. From the root.
const WAYS_FILE: &str = "run/nqrust/network-disks.json";

/// One way to the disks of a node, and whether it works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SessionStatus {
    pub protocol: DiskProtocol,
    pub target: String,
    pub portal: SocketAddrV4,
    pub state: SessionState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionState {
    Up,
    /// The connection is lost; the kernel, or iscsid with it, tries again.
    Lost,
    /// There is no login or connection.
    Absent,
}

#[derive(Deserialize, Serialize)]
struct Way {
    protocol: DiskProtocol,
    target: String,
    portal: SocketAddrV4,
}

/// Writes for [`of_node`] which ways there are.
///
/// # Errors
/// The file cannot be written.
pub(super) fn remember(root: &Path, access: &NetworkDiskAccess) -> anyhow::Result<()> {
    let ways = access.targets.iter().map(|way| Way {
        protocol: way.protocol,
        target: way.target.clone(),
        portal: way.portal,
    });
    let text = base::encode::json_line(&ways.collect::<Vec<_>>());
    let file = root.join(WAYS_FILE);
    base::files::make_directory(file.parent().unwrap_or(root), 0o755)?;
    write_atomically(&file, &text, 0o644)
}

/// The ways to the disks of the node at `root`; none where all of its disks are its own.
#[must_use]
pub fn of_node(root: &Path) -> Vec<SessionStatus> {
    let text = read_text(&below(root, &format!("/{WAYS_FILE}"))).unwrap_or_default();
    let ways: Vec<Way> = serde_json::from_str(&text).unwrap_or_default();
    if ways.is_empty() {
        return Vec::new();
    }
    let sessions = Sessions::read(&root.join("sys"));
    let status = |way: Way| SessionStatus {
        state: sessions.state(way.protocol, &way.target, way.portal),
        protocol: way.protocol,
        target: way.target,
        portal: way.portal,
    };
    ways.into_iter().map(status).collect()
}

/// All logins and connections of this machine.
pub(super) struct Sessions {
    iscsi: Vec<IscsiSession>,
    nvme: Vec<NvmeConnection>,
}

impl Sessions {
    pub(super) fn read(sys: &Path) -> Self {
        Self { iscsi: sessions(sys), nvme: connections(sys) }
    }

    pub(super) fn state(&self, protocol: DiskProtocol, target: &str, portal: SocketAddrV4) -> SessionState {
        let up = match protocol {
            DiskProtocol::Iscsi => {
                let mut found = self.iscsi.iter();
                found
                    .find(|session| session.target == target && session.portal == Some(portal))
                    .map(|session| session.logged_in)
            }
            DiskProtocol::NvmeTcp => {
                let mut found = self.nvme.iter();
                found
                    .find(|connection| connection.subsystem == target && connection.portal == Some(portal))
                    .map(|connection| connection.live)
            }
        };
        match up {
            Some(true) => SessionState::Up,
            Some(false) => SessionState::Lost,
            None => SessionState::Absent,
        }
    }
}

impl fmt::Display for SessionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} at {}: ", self.protocol.group(), self.target, self.portal)?;
        f.write_str(match (self.state, self.protocol) {
            (SessionState::Up, DiskProtocol::Iscsi) => "logged in",
            (SessionState::Up, DiskProtocol::NvmeTcp) => "connected",
            (SessionState::Lost, _) => "CONNECTION LOST, trying again",
            (SessionState::Absent, DiskProtocol::Iscsi) => "NOT LOGGED IN",
            (SessionState::Absent, DiskProtocol::NvmeTcp) => "NOT CONNECTED",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::iscsi::tests::log_in;
    use crate::inventory::nvme::tests::connect;
    use model::network_disks::TargetPortal;
    use testing::machine::MachineTree;

    #[test]
    fn each_way_to_the_disks_of_a_node_is_told_with_its_state() {
        let machine = MachineTree::new("");
        assert!(of_node(machine.path()).is_empty());
        let way = |portal: &str| TargetPortal {
            protocol: DiskProtocol::Iscsi,
            target: "iqn.2026-01.com.example:a".into(),
            portal: portal.parse().unwrap(),
            chap: None,
        };
        let over_nvme = |portal: &str| TargetPortal {
            protocol: DiskProtocol::NvmeTcp,
            target: "nqn.2026-01.com.example:a".into(),
            ..way(portal)
        };
        let iscsi = ["192.0.2.9:3260", "192.0.2.10:3260", "192.0.2.11:3260"].map(way);
        let nvme = ["192.0.2.9:4420", "192.0.2.10:4420", "192.0.2.11:4420"].map(over_nvme);
        let targets = iscsi.into_iter().chain(nvme).collect();
        remember(machine.path(), &NetworkDiskAccess { targets, ..NetworkDiskAccess::default() }).unwrap();
        log_in(machine.path(), 1, "iqn.2026-01.com.example:a", "192.0.2.9:3260", "LOGGED_IN");
        log_in(machine.path(), 12, "iqn.2026-01.com.example:a", "192.0.2.10:3260", "FAILED");
        connect(machine.path(), 1, "nqn.2026-01.com.example:a", "192.0.2.9:4420", "live");
        connect(machine.path(), 2, "nqn.2026-01.com.example:a", "192.0.2.10:4420", "connecting");
        // A volume of the cluster is no disk of the node.
        log_in(machine.path(), 3, "iqn.2019-10.io.longhorn:pvc", "10.52.0.9:3260", "LOGGED_IN");
        let told: Vec<_> = of_node(machine.path()).iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "iSCSI target iqn.2026-01.com.example:a at 192.0.2.9:3260: logged in",
                "iSCSI target iqn.2026-01.com.example:a at 192.0.2.10:3260: CONNECTION LOST, trying again",
                "iSCSI target iqn.2026-01.com.example:a at 192.0.2.11:3260: NOT LOGGED IN",
                "NVMe subsystem nqn.2026-01.com.example:a at 192.0.2.9:4420: connected",
                "NVMe subsystem nqn.2026-01.com.example:a at 192.0.2.10:4420: CONNECTION LOST, trying again",
                "NVMe subsystem nqn.2026-01.com.example:a at 192.0.2.11:4420: NOT CONNECTED",
            ]
        );
    }
}
