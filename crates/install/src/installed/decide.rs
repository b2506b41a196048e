//! The rule of `install.reinstall`.

use anyhow::Result;

use super::read::{FinishedNode, NodeOrigin};
use super::record::InstallOffer;
use model::config::{OnceWord, Reinstall};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReinstallDecision {
    Install,
    /// It writes nothing, for this reason.
    Leave(LeaveReason),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LeaveReason {
    /// The rule does not ask for a reinstall.
    NotAsked,
    /// It was installed from this medium with this configuration.
    Same,
    /// The install for this word was made already.
    Used(OnceWord),
    /// It is unknown how the node was installed.
    Unknown,
    /// The configuration could not be loaded, for this reason.
    NoConfiguration(String),
}

/// Whether an automatic install may overwrite `nodes`, the finished nodes on the disks that it would write.
///
/// It may only if the next start of the same medium is certain not to: a node that cannot be compared is left as it is.
///
/// # Errors
/// The configurations could not be compared.
pub fn decide(rule: &Reinstall, nodes: &[FinishedNode], offer: &InstallOffer) -> Result<ReinstallDecision> {
    if nodes.is_empty() {
        return Ok(ReinstallDecision::Install);
    }
    if *rule == Reinstall::Never {
        return Ok(ReinstallDecision::Leave(LeaveReason::NotAsked));
    }
    for node in nodes {
        if let Some(reason) = reason_to_leave(rule, node, offer)? {
            return Ok(ReinstallDecision::Leave(reason));
        }
    }
    Ok(ReinstallDecision::Install)
}

fn reason_to_leave(
    rule: &Reinstall,
    node: &FinishedNode,
    offer: &InstallOffer,
) -> Result<Option<LeaveReason>> {
    Ok(match (rule, &node.origin) {
        (Reinstall::Never, _) => Some(LeaveReason::NotAsked),
        (_, NodeOrigin::Unreadable(_)) => Some(LeaveReason::Unknown),
        (Reinstall::Once(word), NodeOrigin::Recorded(record)) => {
            record.words.contains(word).then(|| LeaveReason::Used(word.clone()))
        }
        (Reinstall::Once(_), NodeOrigin::Unrecorded(_)) => None,
        (Reinstall::Changed, NodeOrigin::Recorded(record)) => {
            record.is_of(offer)?.then_some(LeaveReason::Same)
        }
        // Its configuration is unknown; another manifest is enough.
        (Reinstall::Changed, NodeOrigin::Unrecorded(known)) => match known {
            Some(known) if known.release != offer.release => None,
            _ => Some(LeaveReason::Unknown),
        },
    })
}

/// The words for the record of a new install: those of the nodes that it overwrites, and that of its own rule.
#[must_use]
pub fn words(rule: &Reinstall, nodes: &[FinishedNode]) -> Vec<OnceWord> {
    let recorded = nodes.iter().flat_map(|node| match &node.origin {
        NodeOrigin::Recorded(record) => record.words.as_slice(),
        _ => &[],
    });
    let own = match rule {
        Reinstall::Once(word) => Some(word),
        _ => None,
    };
    recorded.chain(own).cloned().collect()
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::installed::find::{find, tests::node as disk};
    use crate::installed::read::{FinishedIdentity, KnownRelease};
    use crate::installed::record::InstallRecord;
    use crate::installed::record::tests::offer;
    use base::digest::Digest;
    use model::config::{NodeRole, Role};

    pub(crate) fn node(origin: NodeOrigin) -> FinishedNode {
        let place = find(&[&disk("vda", true)]).remove(0);
        let identity = FinishedIdentity {
            hostname: Some("node-1".into()),
            role: NodeRole { role: Role::Management, asked_role: Some(Role::Default) },
            cluster: Some("192.0.2.10".into()),
        };
        FinishedNode { place, twin: None, identity: Some(identity), origin }
    }

    pub(crate) fn recorded(offer: &InstallOffer, words: &[&str]) -> FinishedNode {
        let words: Vec<OnceWord> = words.iter().map(|word| word.parse().unwrap()).collect();
        node(NodeOrigin::Recorded(Box::new(InstallRecord::begin(offer, &words).unwrap())))
    }

    fn once(word: &str) -> Reinstall {
        format!("once:{word}").parse().unwrap()
    }

    #[test]
    fn a_disk_without_a_node_is_installed_on_whatever_the_rule() {
        for rule in [Reinstall::Never, Reinstall::Changed, once("a")] {
            assert_eq!(decide(&rule, &[], &offer("{}")).unwrap(), ReinstallDecision::Install);
        }
    }

    #[test]
    fn no_automatic_install_goes_over_a_node_unless_it_is_asked_to() {
        let (here, other) = (offer("{os: {hostname: a}}"), offer("{os: {hostname: b}}"));
        for nodes in [vec![recorded(&here, &[])], vec![recorded(&other, &[])]] {
            let decision = decide(&Reinstall::default(), &nodes, &here).unwrap();
            assert_eq!(decision, ReinstallDecision::Leave(LeaveReason::NotAsked));
        }
    }

    #[test]
    fn the_same_medium_never_installs_twice_with_the_same_configuration() {
        let (here, other) = (offer("{os: {hostname: a}}"), offer("{os: {hostname: b}}"));
        let newer = InstallOffer { release: Digest::of(b"newer"), ..here.clone() };
        let rule = Reinstall::Changed;
        assert_eq!(
            decide(&rule, &[recorded(&here, &[])], &here).unwrap(),
            ReinstallDecision::Leave(LeaveReason::Same)
        );
        assert_eq!(decide(&rule, &[recorded(&here, &[])], &other).unwrap(), ReinstallDecision::Install);
        assert_eq!(decide(&rule, &[recorded(&here, &[])], &newer).unwrap(), ReinstallDecision::Install);
        // After that install the rule does not apply again.
        assert_eq!(
            decide(&rule, &[recorded(&newer, &[])], &newer).unwrap(),
            ReinstallDecision::Leave(LeaveReason::Same)
        );
        // One of two nodes is enough.
        let both = [recorded(&other, &[]), recorded(&here, &[])];
        assert_eq!(decide(&rule, &both, &here).unwrap(), ReinstallDecision::Leave(LeaveReason::Same));
    }

    #[test]
    fn a_word_forces_one_install_and_is_recorded() {
        let here = offer("{os: {hostname: a}}");
        let before = [recorded(&here, &["first"])];
        assert_eq!(decide(&once("second"), &before, &here).unwrap(), ReinstallDecision::Install);
        let words: Vec<_> =
            words(&once("second"), &before).iter().map(|word| word.as_str().to_owned()).collect();
        assert_eq!(words, ["first", "second"]);
        let after = [recorded(&here, &["first", "second"])];
        for word in ["first", "second"] {
            let used = LeaveReason::Used(word.parse().unwrap());
            assert_eq!(decide(&once(word), &after, &here).unwrap(), ReinstallDecision::Leave(used));
        }
    }

    #[test]
    fn a_node_that_cannot_be_read_stays_under_every_rule() {
        let here = offer("{}");
        let nodes = [node(NodeOrigin::Unreadable("Input/output error".into()))];
        for rule in [Reinstall::Changed, once("a")] {
            assert_eq!(decide(&rule, &nodes, &here).unwrap(), ReinstallDecision::Leave(LeaveReason::Unknown));
        }
    }

    #[test]
    fn a_node_without_a_record_goes_for_another_release_and_for_a_word() {
        let here = offer("{}");
        let known = |release| {
            node(NodeOrigin::Unrecorded(Some(KnownRelease { product: "NQRust 0.9".into(), release })))
        };
        let decided = |rule: &Reinstall, node| decide(rule, &[node], &here).unwrap();
        assert_eq!(decided(&Reinstall::Changed, known(Digest::of(b"older"))), ReinstallDecision::Install);
        assert_eq!(
            decided(&Reinstall::Changed, known(here.release)),
            ReinstallDecision::Leave(LeaveReason::Unknown)
        );
        assert_eq!(decided(&once("a"), known(here.release)), ReinstallDecision::Install);
    }
}
