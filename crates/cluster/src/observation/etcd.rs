//! The etcd on this node.

use crate::api::open::text;

/// Where etcd gives its state without certificates, to this machine alone: kubeadm sets it (`listen-metrics-urls`), and so do RKE2
/// and K3s (k3s `pkg/etcd`).
const URL: &str = "http://127.0.0.1:2381";

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EtcdState {
    Silent(String),
    /// It runs, and finds too few of the others.
    NoLeader,
    Unhealthy(String),
    /// A member without a vote.
    Learner,
    Voter {
        /// Whether it is the only member.
        alone: bool,
    },
}

impl EtcdState {
    pub(super) fn observe() -> Self {
        match text(&format!("{URL}/health")) {
            Ok(health) => Self::of(&health, &text(&format!("{URL}/metrics")).unwrap_or_default()),
            Err(why) => Self::Silent(why),
        }
    }

    /// From etcd's health (JSON of etcd `etcdhttp.Health`) and its metrics.
    fn of(health: &str, metrics: &str) -> Self {
        let answer: serde_json::Value = serde_json::from_str(health).unwrap_or_default();
        let metric = |name: &str| {
            let mut lines = metrics.lines().filter_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
            lines.next().map(str::trim)
        };
        if answer["health"] != "true" {
            let reason = answer["reason"].as_str().filter(|reason| !reason.is_empty());
            return match metric("etcd_server_has_leader") {
                Some("0") => Self::NoLeader,
                _ => Self::Unhealthy(format!(
                    "etcd is not healthy: {}",
                    reason.unwrap_or("it gives no reason")
                )),
            };
        }
        match metric("etcd_server_is_learner") {
            Some("1") => Self::Learner,
            Some("0") => {
                Self::Voter { alone: !metrics.lines().any(|line| line.starts_with("etcd_network_peer_")) }
            }
            _ => Self::Unhealthy("etcd does not tell whether it has a vote".into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn etcd_tells_its_health_its_vote_and_whether_it_is_alone() {
        let metrics = |learner: u8, leader: u8| {
            format!("# HELP x\netcd_server_has_leader {leader}\netcd_server_is_learner {learner}\n")
        };
        let healthy = r#"{"health":"true","reason":""}"#;
        assert_eq!(EtcdState::of(healthy, &metrics(0, 1)), EtcdState::Voter { alone: true });
        let peers = metrics(0, 1) + "etcd_network_peer_sent_bytes_total{To=\"a\"} 5\n";
        assert_eq!(EtcdState::of(healthy, &peers), EtcdState::Voter { alone: false });
        assert_eq!(EtcdState::of(healthy, &metrics(1, 1)), EtcdState::Learner);
        let lost = r#"{"health":"false","reason":"RAFT NO LEADER"}"#;
        assert!(matches!(EtcdState::of(lost, &metrics(0, 0)), EtcdState::NoLeader));
        let full = r#"{"health":"false","reason":"ALARM NOSPACE"}"#;
        assert_eq!(
            EtcdState::of(full, &metrics(0, 1)),
            EtcdState::Unhealthy("etcd is not healthy: ALARM NOSPACE".into())
        );
        assert!(matches!(EtcdState::of(healthy, ""), EtcdState::Unhealthy(_)));
        assert!(matches!(EtcdState::of("<", ""), EtcdState::Unhealthy(_)));
    }
}
