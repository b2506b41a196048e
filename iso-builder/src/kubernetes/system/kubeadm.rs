//! The files of ours beside the programs of upstream Kubernetes: containerd's configuration, the units, settings of the
//! kernel and of login shells. None of the units is enabled: `installer apply` links those that the node's document asks
//! for.

use super::file::{SystemFile, text};
use model::kubernetes::UpstreamImages;

/// Files that the OS image has to have, each with the package of Debian that has it: a name in one of the directories of
/// programs, or a path. kubeadm looks for some of them before it begins; without the others there are no pods, no services
/// or no virtual address.
pub(crate) const NEEDED_FILES: [(&str, &str); 12] = [
    ("containerd", "containerd"),
    ("runc", "runc"),
    ("usr/lib/cni/bridge", "containernetworking-plugins"),
    ("usr/lib/cni/host-local", "containernetworking-plugins"),
    ("usr/lib/cni/portmap", "containernetworking-plugins"),
    ("nft", "nftables"),
    ("iptables", "iptables"),
    ("conntrack", "conntrack"),
    ("keepalived", "keepalived"),
    ("ip", "iproute2"),
    ("mount", "mount"),
    ("losetup", "mount"),
];

/// Debian's plugins of the Container Network Interface.
const CNI_PLUGINS: [&str; 16] = [
    "bandwidth",
    "bridge",
    "dhcp",
    "firewall",
    "host-device",
    "host-local",
    "ipvlan",
    "loopback",
    "macvlan",
    "portmap",
    "ptp",
    "sbr",
    "static",
    "tuning",
    "vlan",
    "vrf",
];

pub(super) fn files(images: &UpstreamImages) -> Vec<SystemFile> {
    let unit =
        |name: &str, content: &str| text(&format!("usr/lib/systemd/system/{name}"), content.to_owned());
    vec![
        text("etc/containerd/config.toml", containerd(images)),
        text("usr/lib/modules-load.d/50-kubeadm.conf", MODULES.to_owned()),
        text("usr/lib/sysctl.d/51-kubeadm.conf", SYSCTL.to_owned()),
        text("usr/lib/tmpfiles.d/kubeadm.conf", directories()),
        text("etc/profile.d/nqrust-kubernetes.sh", PROFILE.to_owned()),
        text("etc/crictl.yaml", CRICTL.to_owned()),
        unit("etc-kubernetes.mount", MOUNT),
        unit("kubelet.service", KUBELET),
        unit("nqrust-kubeadm.service", KUBEADM),
        unit(
            "nqrust-pod-network.service",
            &node_watcher("Keep the routes to the pods of other nodes", "pod-network"),
        ),
        unit(
            "nqrust-virtual-address.service",
            &node_watcher(
                "Tell keepalived whether other servers could take the virtual address",
                "virtual-address",
            ),
        ),
    ]
}

/// Its version 2 is read by containerd 1.6 and later. The image of sandboxes has to be one that the node has; Kubernetes and
/// containerd have to leave control groups to systemd, both of them.
fn containerd(images: &UpstreamImages) -> String {
    let cri = "plugins.\"io.containerd.grpc.v1.cri\"";
    let pause = &images.pause;
    format!(
        "version = 2

[{cri}]
  sandbox_image = \"{pause}\"

[{cri}.cni]
  bin_dir = \"/opt/cni/bin\"
  conf_dir = \"/etc/cni/net.d\"

[{cri}.registry]
  config_path = \"/etc/containerd/certs.d\"

[{cri}.containerd.runtimes.runc]
  runtime_type = \"io.containerd.runc.v2\"

[{cri}.containerd.runtimes.runc.options]
  SystemdCgroup = true
"
    )
}

/// Layers of images; pods on one bridge, whose packets the packet filter has to see; the packet filter.
const MODULES: &str = "overlay\nbr_netfilter\nnf_tables\nnf_conntrack\n";

/// kubeadm refuses a node that does not forward. Answers of a pod on the same bridge have to pass the packet filter too, or
/// they come from another address than the service's.
const SYSCTL: &str = "net.ipv4.ip_forward = 1\nnet.bridge.bridge-nf-call-iptables = 1\n";

/// Pod networks install their plugins into /opt/cni/bin, which is persistent; containerd looks into one directory only, so
/// Debian's plugins are linked there. A file that has one of the names stays.
fn directories() -> String {
    let mut lines = vec![
        "d /var/lib/nqrust/kubernetes 0700 - - -".to_owned(),
        "d /var/lib/nqrust/kubernetes/etc 0755 - - -".to_owned(),
        "d /opt/cni/bin 0755 - - -".to_owned(),
    ];
    lines.extend(CNI_PLUGINS.map(|plugin| format!("L /opt/cni/bin/{plugin} - - - - /usr/lib/cni/{plugin}")));
    lines.join("\n") + "\n"
}

/// `kubectl` and `ctr` find the cluster's access and the pods' containers without options.
const PROFILE: &str = "\
if [ \"$(id -u)\" = 0 ]; then
  for nqrust_access in /etc/kubernetes/admin.conf /etc/kubernetes/kubelet.conf; do
    if [ -z \"${KUBECONFIG:-}\" ] && [ -r \"$nqrust_access\" ]; then export KUBECONFIG=\"$nqrust_access\"; fi
  done
  unset nqrust_access
  export CONTAINERD_NAMESPACE=\"${CONTAINERD_NAMESPACE:-k8s.io}\"
fi
";

/// `crictl` finds the pods' containerd (cri-tools, "crictl", configuration). The public release has none; then an overlay can bring it.
const CRICTL: &str = "runtime-endpoint: unix:///run/containerd/containerd.sock\n";

/// /etc is new at each boot. The directory below is made by systemd-tmpfiles, which runs when all file systems of the machine
/// are there.
const MOUNT: &str = "[Unit]
Description=Keep what Kubernetes has in /etc
DefaultDependencies=no
After=local-fs.target systemd-tmpfiles-setup.service
Requires=systemd-tmpfiles-setup.service
RequiresMountsFor=/var/lib/nqrust
Conflicts=umount.target
Before=umount.target

[Mount]
What=/var/lib/nqrust/kubernetes/etc
Where=/etc/kubernetes
Type=none
Options=bind
";

/// As the packages of Kubernetes have it, with the node's own arguments last. Until kubeadm has written the configuration
/// there is nothing to start.
const KUBELET: &str = "[Unit]
Description=The kubelet of Kubernetes
Documentation=https://kubernetes.io/docs/
ConditionPathExists=/var/lib/kubelet/config.yaml
Wants=network-online.target containerd.service
Requires=etc-kubernetes.mount
After=network-online.target containerd.service etc-kubernetes.mount
StartLimitIntervalSec=0

[Service]
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=/usr/local/bin/kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf \\
  --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml \\
  $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
Restart=always
RestartSec=10

[Install]
WantedBy=multi-user.target
";

/// kubeadm starts the kubelet itself. Waiting for the cluster has no time limit.
const KUBEADM: &str = "[Unit]
Description=Make this node a member of its Kubernetes cluster
Wants=network-online.target containerd.service
Requires=etc-kubernetes.mount
After=network-online.target containerd.service etc-kubernetes.mount kubelet.service
StartLimitIntervalSec=0

[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/bin/installer --progress plain kubeadm
TimeoutStartSec=infinity
SuccessExitStatus=143
Restart=on-failure
RestartSec=15

[Install]
WantedBy=multi-user.target
";

/// A unit that watches the nodes of the cluster with a command of the installer. While it does not run, everything stays as it
/// is.
fn node_watcher(description: &str, command: &str) -> String {
    format!(
        "[Unit]
Description={description}
Wants=network-online.target
Requires=etc-kubernetes.mount
After=network-online.target etc-kubernetes.mount
StartLimitIntervalSec=0

[Service]
Type=simple
ExecStart=/usr/bin/installer --progress plain {command}
SuccessExitStatus=143
Restart=always
RestartSec=5

[Install]
WantedBy=multi-user.target
"
    )
}
