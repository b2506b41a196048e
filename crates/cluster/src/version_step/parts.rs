//! The parts of the step to another version of Kubernetes, by distribution and by what the node is: a table.

use crate::version_skew::MovedPart;
use model::config::Distribution;

/// What a part does. Each can be done again after it was cut off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MoveAction {
    Keep,
    Snapshot,
    /// kubeadm changes what runs as pods, and the configuration of the kubelet.
    Kubeadm,
    /// The image of etcd, where kubeadm does not change it.
    Etcd,
    /// Makes the new version the one that runs after every restart.
    Choose,
    /// Uncovers the new programs.
    Place,
    Restart,
    AwaitHealthy,
    /// Removes the programs of the old version.
    Forget,
}

impl MoveAction {
    /// Its name in records and messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Keep => "programs",
            Self::Snapshot => "snapshot",
            Self::Kubeadm => "kubeadm",
            Self::Etcd => "etcd",
            Self::Choose => "choice",
            Self::Place => "place",
            Self::Restart => "restart",
            Self::AwaitHealthy => "health",
            Self::Forget => "tidy",
        }
    }

    pub(super) fn message(self) -> &'static str {
        match self {
            Self::Keep => "Keeping the programs of the new version",
            Self::Snapshot => "Saving the datastore as it is",
            Self::Kubeadm => "Letting kubeadm move this node",
            Self::Etcd => "Moving etcd of the witness",
            Self::Choose => "Choosing the new version for every start",
            Self::Place => "Putting the new programs in their place",
            Self::Restart => "Starting Kubernetes again",
            Self::AwaitHealthy => "Waiting until the node is healthy",
            Self::Forget => "Removing the programs of the old version",
        }
    }

    /// The state of the node when the part has failed.
    pub(super) fn left(self) -> &'static str {
        match self {
            Self::Keep | Self::Snapshot => "nothing has changed: the version before goes on",
            Self::Kubeadm => {
                "kubeadm puts back what it could not move; what it had moved before goes on beside the older parts, as the rules of \
                 versions allow"
            }
            Self::Etcd => "the witness goes on with the etcd that runs",
            Self::Choose => "the version before goes on, and starts again after a restart",
            Self::Place | Self::Restart => "the new version starts with the next restart of the machine",
            Self::AwaitHealthy => "the new version runs, and the node is not healthy with it",
            Self::Forget => "the new version runs and is healthy",
        }
    }
}

/// The parts for a node; `part` is none where the node has no cluster.
pub(super) fn parts(distribution: Distribution, part: Option<MovedPart>) -> Vec<MoveAction> {
    use MoveAction::{AwaitHealthy, Choose, Etcd, Forget, Keep, Kubeadm, Place, Restart, Snapshot};
    let Some(part) = part else { return vec![Keep, Choose, Place, Forget] };
    let has_etcd = part != MovedPart::Agent;
    let mut parts = vec![Keep];
    parts.extend(has_etcd.then_some(Snapshot));
    if distribution == Distribution::Kubeadm {
        parts.push(Kubeadm);
        parts.extend((part == MovedPart::Witness).then_some(Etcd));
    }
    parts.extend([Choose, Place, Restart, AwaitHealthy, Forget]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_datastore_is_saved_before_anything_changes_and_the_choice_is_made_before_anything_starts() {
        for distribution in Distribution::ALL {
            for part in [MovedPart::Server, MovedPart::Witness, MovedPart::Agent] {
                let parts = parts(distribution, Some(part));
                let at = |action| parts.iter().position(|part| *part == action);
                assert_eq!(at(MoveAction::Keep), Some(0), "{parts:?}");
                assert_eq!(at(MoveAction::Snapshot).is_some(), part != MovedPart::Agent, "{parts:?}");
                let chosen = at(MoveAction::Choose).unwrap();
                assert!(at(MoveAction::Snapshot) < Some(chosen) && chosen < at(MoveAction::Restart).unwrap());
                // A kubelet is never newer than the API server of its node.
                assert!(at(MoveAction::Kubeadm) < Some(chosen), "{parts:?}");
                assert_eq!(at(MoveAction::Kubeadm).is_some(), distribution == Distribution::Kubeadm);
                assert_eq!(
                    at(MoveAction::Etcd).is_some(),
                    distribution == Distribution::Kubeadm && part == MovedPart::Witness
                );
            }
        }
        let alone = parts(Distribution::K3s, None);
        assert!(!alone.contains(&MoveAction::Restart) && alone.contains(&MoveAction::Choose));
    }
}
