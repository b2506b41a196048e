//! The certificates of this node in its cluster, as far as they end before or soon after an update.

use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use serde::Serialize;

use base::failure::{Class, Failure};
use cluster::certificates::CertificateEnd;
use cluster::configuration::ClusterMember;
use model::config::InstallConfig;
use model::release::Release;

/// A certificate that ends within this time is told. kubeadm makes certificates for a year; kubelets renew theirs while a tenth of the
/// time or more is left (kubelet `certificate_manager`, `nextRotationDeadline`).
const SOON: SignedDuration = SignedDuration::from_hours(30 * 24);

/// What is told of the certificates of a node, as clauses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CertificateVerdict {
    /// Those that have ended, and without which the node would not come back to its cluster.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub ended: Vec<String>,
    /// The others that have ended, or end soon.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub soon: Vec<String>,
}

impl CertificateVerdict {
    /// The verdict on the node at `root` with the node document `config`, at the time `now`. A node without a cluster has no
    /// certificates.
    #[must_use]
    pub fn of(root: &Path, config: &InstallConfig, now: Timestamp) -> Self {
        let Some(member) = ClusterMember::of(config) else { return Self::default() };
        let ends = CertificateEnd::all(root, member.distribution);
        let soon = ends.into_iter().filter(|end| end.is_within(SOON, now));
        let (ended, soon): (Vec<_>, Vec<_>) =
            soon.partition(|end| end.stops_a_start() && end.is_within(SignedDuration::ZERO, now));
        let text = |ends: Vec<CertificateEnd>| ends.iter().map(ToString::to_string).collect();
        Self { ended: text(ended), soon: text(soon) }
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ended.is_empty() && self.soon.is_empty()
    }

    /// Fails if the node would not come back to its cluster.
    ///
    /// # Errors
    /// [`Class::Hardware`], with each certificate and what to do.
    pub fn require(&self, release: &Release) -> Result<(), Failure> {
        if self.ended.is_empty() {
            return Ok(());
        }
        let what = format!(
            "this node would not come back to its cluster with {} {}: its certificates have ended",
            release.name, release.version
        );
        Err(Failure::new(Class::Hardware, what)
            .because(anyhow::anyhow!("{}", self.ended.join("; ")))
            .hint(
                "Renew those of a server with `kubeadm certs renew all`, and restart its static pods; a node whose kubelet's own has \
                 ended has to join again. Then start this again. To update nevertheless: --accept-hardware",
            ))
    }
}

#[cfg(test)]
mod tests {
    use base::failure::render;
    use machine::paths::below;
    use rcgen::{CertificateParams, KeyPair};
    use testing::release::release;

    use super::*;

    const MEMBER: &str = "server_url: https://192.0.2.10:6443\ntoken: a-token-of-enough-length\n\
                          os: {hostname: node-2}\ninstall: {mode: join, role: management}\n\
                          kubernetes: {distribution: kubeadm}\n";

    /// A node on 2030-01-31 whose certificates of these names end on these days of 2030.
    fn verdict(document: &str, certificates: &[(&str, u8, u8)]) -> CertificateVerdict {
        let root = tempfile::tempdir().unwrap();
        for (name, month, day) in certificates {
            let mut params = CertificateParams::default();
            params.not_before = rcgen::date_time_ymd(2020, 1, 1);
            params.not_after = rcgen::date_time_ymd(2030, *month, *day);
            let pem = params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem();
            let path = below(root.path(), "/etc/kubernetes/pki").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, pem).unwrap();
        }
        let config = model::config::parse(document, "f").unwrap();
        CertificateVerdict::of(root.path(), &config, "2030-01-31T00:00:00Z".parse().unwrap())
    }

    #[test]
    fn certificates_of_the_next_months_are_no_subject() {
        let verdict = verdict(MEMBER, &[("apiserver.crt", 3, 3), ("etcd/peer.crt", 12, 31)]);
        assert!(verdict.is_empty(), "{verdict:?}");
        verdict.require(&release()).unwrap();
    }

    #[test]
    fn one_that_ends_soon_is_told_and_no_reason_to_refuse() {
        let verdict = verdict(MEMBER, &[("apiserver.crt", 3, 2), ("etcd/peer.crt", 3, 3)]);
        assert_eq!(
            verdict.soon,
            [
                "the certificate /etc/kubernetes/pki/apiserver.crt is good until 2030-03-02 00:00 UTC (kubeadm certs renew all)"
            ]
        );
        verdict.require(&release()).unwrap();
    }

    #[test]
    fn one_that_has_ended_is_refused_with_what_to_do() {
        let verdict = verdict(MEMBER, &[("apiserver.crt", 1, 31), ("etcd/peer.crt", 2, 1)]);
        assert_eq!(verdict.soon.len(), 1, "{verdict:?}");
        let failure = verdict.require(&release()).unwrap_err();
        assert_eq!(failure.class(), Class::Hardware);
        let text = render(&failure.into());
        for part in [
            "would not come back to its cluster",
            "pki/apiserver.crt",
            "kubeadm certs renew all",
            "--accept-hardware",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("peer.crt"), "{text}");
    }

    #[test]
    fn a_node_without_a_cluster_has_none() {
        assert!(verdict("install: {mode: install}", &[("apiserver.crt", 1, 1)]).is_empty());
    }
}
