//! Where an installed node has its parts, and how a path of the node is reached below another root.

use std::path::{Path, PathBuf};

/// Directories of the image that persist, besides `/var`. Each is kept below [`KEPT`] and filled from the image at the first
/// boot.
pub const PERSISTENT: [&str; 4] = ["/home", "/root", "/opt", "/srv"];

pub const KEPT: &str = "/var/lib/nqrust/persistent";

pub const CONFIG: &str = "/oem";

pub const DOCUMENT: &str = "/oem/node.yaml";

/// The configuration that a copied disk starts with, until there is a document.
pub const DEFAULTS: &str = "/oem/defaults.yaml";

/// The host keys of SSH: beside the document, so that the recovery system, which mounts nothing else, is the same host.
pub const HOST_KEYS: &str = "/oem/ssh";

pub const DATA: &str = "/var/lib/harvester/defaultdisk";

/// The input of kubeadm: its documents, patches and the audit policy.
pub const KUBEADM: &str = "/etc/nqrust/kubeadm";

/// The access of the kubelet of kubeadm to its cluster, once it has a certificate of its own.
pub const KUBELET_ACCESS: &str = "/etc/kubernetes/kubelet.conf";

/// That certificate, which is also there where the image does not mount `/etc/kubernetes`.
pub const KUBELET_CERTIFICATE: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";

/// Arguments of the kubelet beside kubeadm's.
pub const KUBELET_SETTINGS: &str = "/etc/default/kubelet";

/// The proxies of services, which the OS image's drop-ins of units name too.
pub const PROXIES: &str = "/etc/nqrust/proxies.env";

/// The lasting state of a node that kubeadm joins.
pub const KUBERNETES: &str = "/var/lib/nqrust/kubernetes";

/// `path`, which is absolute, below `root`.
pub fn below(root: &Path, path: &str) -> PathBuf {
    root.join(path.trim_start_matches('/'))
}
