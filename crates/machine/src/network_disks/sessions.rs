//! What became of the logins to the targets of a node's disks.

use std::fmt;
use std::net::SocketAddrV4;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::inventory::iscsi::{IscsiSession, sessions};
use crate::paths::below;
use base::files::{read_text, write_atomically};
use model::network_disks::NetworkDiskAccess;

/// The ways to the disks of a node, without passwords; the initrd writes it. From the root.
const WAYS_FILE: &str = "run/nqrust/network-disks.json";

/// One way to the disks of a node, and whether it works.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SessionStatus {
    pub target: String,
    pub portal: SocketAddrV4,
    pub state: SessionState,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum SessionState {
    Up,
    /// The connection is lost; the kernel and iscsid try again.
    Lost,
    /// There is no login.
    Absent,
}

#[derive(Deserialize, Serialize)]
struct Way {
    target: String,
    portal: SocketAddrV4,
}

/// Writes for [`of_node`] which ways there are.
///
/// # Errors
/// The file cannot be written.
pub(super) fn remember(root: &Path, access: &NetworkDiskAccess) -> anyhow::Result<()> {
    let ways = access.targets.iter().map(|way| Way { target: way.target.clone(), portal: way.portal });
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
    let sessions = sessions(&root.join("sys"));
    let state = |way: &Way| {
        let same =
            |session: &&IscsiSession| session.target == way.target && session.portal == Some(way.portal);
        match sessions.iter().find(same) {
            Some(session) if session.logged_in => SessionState::Up,
            Some(_) => SessionState::Lost,
            None => SessionState::Absent,
        }
    };
    ways.into_iter()
        .map(|way| SessionStatus { state: state(&way), target: way.target, portal: way.portal })
        .collect()
}

impl fmt::Display for SessionStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "iSCSI target {} at {}: ", self.target, self.portal)?;
        f.write_str(match self.state {
            SessionState::Up => "logged in",
            SessionState::Lost => "CONNECTION LOST, trying again",
            SessionState::Absent => "NOT LOGGED IN",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inventory::iscsi::tests::log_in;
    use model::network_disks::TargetPortal;
    use testing::machine::MachineTree;

    #[test]
    fn each_way_to_the_disks_of_a_node_is_told_with_its_state() {
        let machine = MachineTree::new("");
        assert!(of_node(machine.path()).is_empty());
        let way = |portal: &str| TargetPortal {
            target: "iqn.2026-01.com.example:a".into(),
            portal: portal.parse().unwrap(),
            chap: None,
        };
        let targets = ["192.0.2.9:3260", "192.0.2.10:3260", "192.0.2.11:3260"].map(way).to_vec();
        remember(machine.path(), &NetworkDiskAccess { targets, ..NetworkDiskAccess::default() }).unwrap();
        log_in(machine.path(), 1, "iqn.2026-01.com.example:a", "192.0.2.9:3260", "LOGGED_IN");
        log_in(machine.path(), 12, "iqn.2026-01.com.example:a", "192.0.2.10:3260", "FAILED");
        // A volume of the cluster is no disk of the node.
        log_in(machine.path(), 3, "iqn.2019-10.io.longhorn:pvc", "10.52.0.9:3260", "LOGGED_IN");
        let told: Vec<_> = of_node(machine.path()).iter().map(ToString::to_string).collect();
        assert_eq!(
            told,
            [
                "iSCSI target iqn.2026-01.com.example:a at 192.0.2.9:3260: logged in",
                "iSCSI target iqn.2026-01.com.example:a at 192.0.2.10:3260: CONNECTION LOST, trying again",
                "iSCSI target iqn.2026-01.com.example:a at 192.0.2.11:3260: NOT LOGGED IN",
            ]
        );
    }
}
