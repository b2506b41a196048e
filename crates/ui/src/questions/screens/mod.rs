//! The questions of each screen, made from the answers; and the new answers, put back there. One file a screen.

mod access;
mod cluster;
mod disks;
mod names;
mod welcome;

use super::ConversationFacts;

use crate::answers::Answers;
use crate::fields::take_plain;
use crate::network_fields as network;
use crate::toolkit::form::{Field, FieldKind};
pub use access::REPETITION;
use model::config::Mode;
use preflight::PlannedNode;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QuestionScreen {
    /// The machine, and the mode of the install.
    Welcome,
    Disks,
    Network,
    Names,
    Cluster,
    Access,
}

/// The screens of a conversation; the disks of a machine that starts from a disk image are as they are.
#[must_use]
pub fn order(mode: Mode, first_start: bool) -> &'static [QuestionScreen] {
    use QuestionScreen::{Access, Cluster, Disks, Names, Network, Welcome};
    match (mode, first_start) {
        (Mode::Create | Mode::Join, false) => &[Welcome, Disks, Network, Names, Cluster, Access],
        (Mode::Install, false) => &[Welcome, Disks, Network, Names, Access],
        (Mode::Create | Mode::Join, true) => &[Welcome, Network, Names, Cluster, Access],
        (Mode::Install, true) => &[Welcome, Network, Names, Access],
    }
}

impl QuestionScreen {
    /// Stable.
    #[must_use]
    pub fn title(self, mode: Mode) -> &'static str {
        match self {
            Self::Welcome => "Install: what this machine becomes",
            Self::Disks => "Install: disks",
            Self::Network => "Install: management network",
            Self::Names => "Install: names and servers",
            Self::Cluster if mode == Mode::Join => "Install: the cluster to join",
            Self::Cluster => "Install: the new cluster",
            Self::Access => "Install: who may log in",
        }
    }

    #[must_use]
    pub fn fields(self, answers: &Answers, facts: &ConversationFacts) -> Vec<Field> {
        match self {
            Self::Welcome => welcome::fields(answers, facts),
            Self::Disks => disks::fields(answers, facts),
            Self::Network => management_network(answers, facts),
            Self::Names => names::fields(answers),
            Self::Cluster => cluster::fields(answers),
            Self::Access => access::fields(answers),
        }
    }

    pub fn take(self, field: &Field, answers: &mut Answers, facts: &ConversationFacts) {
        match (self, &field.kind) {
            (_, FieldKind::Text) => {}
            (Self::Disks, FieldKind::Choice { .. }) => disks::take(field, answers, facts),
            (Self::Network, _) if network::take(field, answers, &facts.inventory.nics) => {}
            (Self::Names, _) if names::take(field, answers) => {}
            _ => take_plain(field, answers),
        }
    }

    /// Groups whose mistakes are shown on this screen though no field has them.
    #[must_use]
    pub fn groups(self) -> &'static [&'static str] {
        match self {
            Self::Access => &["os"],
            Self::Network => &["install.management_interface"],
            _ => &[],
        }
    }
}

/// The management network, with a warning where the kind of address does not fit the node.
fn management_network(answers: &Answers, facts: &ConversationFacts) -> Vec<Field> {
    let mut fields = network::fields(answers, &facts.inventory.nics);
    let method = fields.iter_mut().find(|field| field.id == "install.management_interface.method");
    if let Some(method) = method.filter(|_| PlannedNode::of(&answers.understood()).etcd_address_can_change())
    {
        method.warnings.push(CHANGING_ADDRESS.to_owned());
    }
    fields
}

const CHANGING_ADDRESS: &str = "etcd, the database of the cluster, knows this node by its address. Choose Fixed, or reserve \
                                the address at the DHCP server.";

/// Answers for most machines, if there is no answer and nothing was found.
pub fn suggest(screen: QuestionScreen, answers: &mut Answers, facts: &ConversationFacts) {
    match screen {
        QuestionScreen::Network => network::suggest(answers, &facts.inventory.nics),
        QuestionScreen::Disks => disks::suggest(answers, facts),
        _ => {}
    }
}
