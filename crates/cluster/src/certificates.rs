//! When the certificates of a node in its cluster end.

use std::fmt;
use std::fs;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer;

use crate::kubernetes::kubeconfig::Kubeconfig;
use base::files;
use machine::paths::below;
use model::config::Distribution;

/// In bytes; files of certificates have some kilobytes.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// The certificate of a node that ends before its others.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertificateEnd {
    /// The file on the node that has it.
    pub file: String,
    pub at: Timestamp,
    distribution: Distribution,
}

impl CertificateEnd {
    /// Of the node at `root`, by its certificates for the API server, etcd and the kubelet, those in kubeconfigs too. A file without a
    /// certificate is passed over; none if there is no other.
    #[must_use]
    pub fn first(root: &Path, distribution: Distribution) -> Option<Self> {
        Self::all(root, distribution).into_iter().min_by_key(|end| end.at)
    }

    /// The same for each of these certificates, in the order of their files.
    #[must_use]
    pub fn all(root: &Path, distribution: Distribution) -> Vec<Self> {
        let mut all = Vec::new();
        for (directory, ending) in places(distribution) {
            let Ok(entries) = fs::read_dir(below(root, &directory)) else { continue };
            for entry in entries.flatten() {
                let name = entry.file_name().to_string_lossy().into_owned();
                if name.ends_with(ending)
                    && let Some(at) = end(&entry.path())
                {
                    all.push(Self { file: format!("{directory}/{name}"), at, distribution });
                }
            }
        }
        all.sort_by(|one, other| one.file.cmp(&other.file));
        all
    }

    /// Whether a node whose certificate this is cannot start as a part of its cluster once it has ended. RKE2 and K3s renew at their
    /// start what has ended (k3s `pkg/daemons/control/deps`); the access of administrators is used by no part of a node.
    #[must_use]
    pub fn stops_a_start(&self) -> bool {
        self.distribution == Distribution::Kubeadm
            && !self.file.ends_with("/admin.conf")
            && !self.file.ends_with("/super-admin.conf")
    }

    /// Whether it has ended, or does within `time` from `now`.
    #[must_use]
    pub fn is_within(&self, time: SignedDuration, now: Timestamp) -> bool {
        self.at.duration_since(now) <= time
    }
}

impl fmt::Display for CertificateEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let renewal = match self.distribution {
            Distribution::Kubeadm => "kubeadm certs renew all",
            Distribution::Rke2 => "a restart of RKE2 renews it",
            Distribution::K3s => "a restart of K3s renews it",
        };
        let day = self.at.strftime("%Y-%m-%d %H:%M UTC");
        write!(f, "the certificate {} is good until {day} ({renewal})", self.file)
    }
}

/// Where a node has certificates, and how the names of their files end: kubeadm, "Certificate management with kubeadm"; k3s
/// `pkg/daemons/control/deps` and `pkg/agent/config`, which RKE2 has too.
///
/// The kubelet keeps those that it had before beside its own, which has a name that stays (kubelet `certificate_store`). Its
/// `kubelet.crt` is signed by itself, and nobody asks when it ends.
fn places(distribution: Distribution) -> Vec<(String, &'static str)> {
    match distribution {
        Distribution::Kubeadm => [
            ("/etc/kubernetes", ".conf"),
            ("/etc/kubernetes/pki", ".crt"),
            ("/etc/kubernetes/pki/etcd", ".crt"),
            ("/var/lib/kubelet/pki", "-current.pem"),
        ]
        .map(|(directory, end)| (directory.to_owned(), end))
        .into(),
        Distribution::Rke2 | Distribution::K3s => ["server/tls", "server/tls/etcd", "agent"]
            .map(|directory| (format!("/var/lib/rancher/{}/{directory}", distribution.name()), ".crt"))
            .into(),
    }
}

/// The end of the certificate in a file: the first one, for the rest is its chain.
fn end(path: &Path) -> Option<Timestamp> {
    let bytes = files::read_at_most(path, FILE_BYTES_MAX).ok()?;
    let pem = match path.extension()?.to_str()? {
        "conf" => Kubeconfig::read(&String::from_utf8(bytes).ok()?)?
            .user()?
            .client_certificate_data
            .as_ref()?
            .decode()?,
        _ => bytes,
    };
    let der = CertificateDer::from_pem_slice(&pem).ok()?;
    let (_, certificate) = X509Certificate::from_der(&der).ok()?;
    Timestamp::from_second(certificate.validity().not_after.timestamp()).ok()
}

#[cfg(test)]
pub(crate) mod tests {
    use base64::Engine;
    use base64::prelude::BASE64_STANDARD;
    use rcgen::{CertificateParams, KeyPair};

    use super::*;

    /// A certificate (PEM) that is good from 2020 until a day of January 2030.
    pub(crate) fn until(day: u8) -> String {
        let mut params = CertificateParams::default();
        params.not_before = rcgen::date_time_ymd(2020, 1, 1);
        params.not_after = rcgen::date_time_ymd(2030, 1, day);
        params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem()
    }

    pub(crate) fn put(root: &Path, path: &str, text: &str) {
        let path = below(root, path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn first(root: &Path, distribution: Distribution) -> Option<(String, String)> {
        let first = CertificateEnd::first(root, distribution)?;
        Some((first.file, first.at.strftime("%Y-%m-%d").to_string()))
    }

    #[test]
    fn the_certificate_that_ends_first_is_found_in_every_place() {
        let kubeconfig = |day| {
            let data = BASE64_STANDARD.encode(until(day));
            format!("users: [{{name: a, user: {{client-certificate-data: {data}}}}}]\n")
        };
        for (distribution, places) in [
            (
                Distribution::Kubeadm,
                [
                    ("/etc/kubernetes/pki/apiserver.crt", until(9)),
                    ("/etc/kubernetes/pki/etcd/peer.crt", until(8)),
                    ("/var/lib/kubelet/pki/kubelet-client-current.pem", until(7)),
                    ("/etc/kubernetes/scheduler.conf", kubeconfig(6)),
                ],
            ),
            (
                Distribution::K3s,
                [
                    ("/var/lib/rancher/k3s/server/tls/serving-kube-apiserver.crt", until(9)),
                    ("/var/lib/rancher/k3s/server/tls/etcd/client.crt", until(8)),
                    ("/var/lib/rancher/k3s/agent/client-kubelet.crt", until(7)),
                    ("/var/lib/rancher/k3s/agent/serving-kubelet.crt", until(6)),
                ],
            ),
        ] {
            let root = tempfile::tempdir().unwrap();
            assert_eq!(CertificateEnd::first(root.path(), distribution), None);
            for ((path, text), day) in places.iter().zip([9, 8, 7, 6]) {
                put(root.path(), path, text);
                let expected = ((*path).to_owned(), format!("2030-01-0{day}"));
                assert_eq!(first(root.path(), distribution), Some(expected));
            }
        }
    }

    #[test]
    fn what_is_no_certificate_in_use_is_passed_over() {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in [
            ("/etc/kubernetes/pki/sa.pub", until(1)),
            ("/etc/kubernetes/pki/garbage.crt", "-----BEGIN CERTIFICATE-----\nAAAA\n".to_owned()),
            ("/etc/kubernetes/pki/empty.crt", String::new()),
            ("/etc/kubernetes/kubelet.conf", "users: [{user: {client-certificate: /x.pem}}]".to_owned()),
            ("/etc/kubernetes/odd.conf", "]".to_owned()),
            ("/var/lib/kubelet/pki/kubelet-client-2029-01-01-00-00-00.pem", until(2)),
            ("/var/lib/kubelet/pki/kubelet.crt", until(2)),
        ] {
            put(root.path(), path, &text);
        }
        fs::create_dir_all(root.path().join("etc/kubernetes/pki/directory.crt")).unwrap();
        assert_eq!(first(root.path(), Distribution::Kubeadm), None);
        // A chain: the certificate itself comes first.
        put(root.path(), "/etc/kubernetes/pki/apiserver.crt", &(until(9) + &until(3)));
        assert_eq!(first(root.path(), Distribution::Kubeadm).unwrap().1, "2030-01-09");
    }

    #[test]
    fn a_certificate_of_kubeadm_that_a_part_of_the_node_uses_stops_its_start() {
        let root = tempfile::tempdir().unwrap();
        let kubeconfig = format!(
            "users: [{{name: a, user: {{client-certificate-data: {}}}}}]\n",
            BASE64_STANDARD.encode(until(6))
        );
        put(root.path(), "/etc/kubernetes/admin.conf", &kubeconfig);
        put(root.path(), "/etc/kubernetes/super-admin.conf", &kubeconfig);
        put(root.path(), "/etc/kubernetes/scheduler.conf", &kubeconfig);
        put(root.path(), "/etc/kubernetes/pki/etcd/peer.crt", &until(7));
        put(root.path(), "/var/lib/rancher/k3s/agent/client-kubelet.crt", &until(7));
        let stops = |distribution| -> Vec<_> {
            let all = CertificateEnd::all(root.path(), distribution);
            all.into_iter().map(|end| (end.file.clone(), end.stops_a_start())).collect()
        };
        let expected = [
            ("/etc/kubernetes/admin.conf", false),
            ("/etc/kubernetes/pki/etcd/peer.crt", true),
            ("/etc/kubernetes/scheduler.conf", true),
            ("/etc/kubernetes/super-admin.conf", false),
        ];
        assert_eq!(stops(Distribution::Kubeadm), expected.map(|(file, stops)| (file.to_owned(), stops)));
        let agent = "/var/lib/rancher/k3s/agent/client-kubelet.crt".to_owned();
        assert_eq!(stops(Distribution::K3s), [(agent, false)]);
    }

    #[test]
    fn an_end_is_told_with_what_to_do() {
        let root = tempfile::tempdir().unwrap();
        put(root.path(), "/var/lib/rancher/rke2/agent/client-kubelet.crt", &until(5));
        let end = CertificateEnd::first(root.path(), Distribution::Rke2).unwrap();
        let (day, at) = (SignedDuration::from_hours(24), |text: &str| text.parse::<Timestamp>().unwrap());
        assert!(!end.is_within(day, at("2030-01-03T23:59:59Z")));
        assert!(
            end.is_within(day, at("2030-01-04T00:00:00Z")) && end.is_within(day, at("2031-01-01T00:00:00Z"))
        );
        let told = end.to_string();
        assert!(
            told.contains("agent/client-kubelet.crt is good until 2030-01-05 00:00 UTC (a restart"),
            "{told}"
        );
    }
}
