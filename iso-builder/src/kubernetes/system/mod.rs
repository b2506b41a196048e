//! The files of ours that go beside those of a release, and the units of K3s and of upstream Kubernetes ([`kubeadm`]), whose
//! releases have none.
//!
//! All of them are part of the read-only OS image, and nothing is unpacked on a node. The image only brings a version: a node
//! that runs another one goes on with that under an image of any release. `/usr/lib/nqrust/kubernetes.json` says which files of
//! the image are of its version, so that a node can take them along; a drop-in of each unit asks before it starts whether the
//! version may work on the data of this node.

mod file;
mod kubeadm;

use model::config::Distribution;

use super::runtime::data_directory;
use model::kubernetes::{KUBERNETES_RELEASE, KubernetesRelease, KubernetesVersion, UpstreamImages};
use serde_json::json;

use file::{link, text};

pub use file::{SystemFile, SystemFileContent};
pub(crate) use kubeadm::NEEDED_FILES;

/// The directory of the programs and charts of RKE2's runtime image in the OS image, relative to the root.
pub const RKE2_RUNTIME: &str = "usr/lib/rke2";
/// The tmpfiles.d file for RKE2's directories, which have the version in their names.
const RKE2_DIRECTORIES: &str = "usr/lib/tmpfiles.d/rke2.conf";

/// The files for a release; `images` are those of upstream Kubernetes.
#[must_use]
pub fn files(version: &KubernetesVersion, images: Option<&UpstreamImages>) -> Vec<SystemFile> {
    let distribution = version.distribution();
    let name = distribution.name();
    let mut files = vec![
        text(&format!("usr/lib/NetworkManager/conf.d/50-{name}.conf"), network_manager(distribution)),
        text(&format!("usr/lib/sysctl.d/50-{name}.conf"), SYSCTL.to_owned()),
    ];
    files.push(release(version, images));
    files.extend(starters(distribution).iter().map(|unit| guard(unit)));
    // Pods run in the distribution's containerd. The base's own would run beside it for nothing; the image store is
    // prepared with its program, not with the service.
    let masked = link("etc/systemd/system/containerd.service", "/dev/null");
    files.extend((distribution != Distribution::Kubeadm).then_some(masked));
    match distribution {
        Distribution::Rke2 => files.push(text(RKE2_DIRECTORIES, rke2_directories(version))),
        Distribution::K3s => {
            files.push(text("usr/lib/systemd/system/k3s.service", k3s_unit("server")));
            files.push(text("usr/lib/systemd/system/k3s-agent.service", k3s_unit("agent")));
            // Upstream's installer does the same when it is told to replace commands: the base's ctr connects to the
            // base's containerd, which has no pods.
            files.extend(
                ["crictl", "ctr", "kubectl"].map(|command| link(&format!("usr/local/bin/{command}"), "k3s")),
            );
        }
        Distribution::Kubeadm => files.extend(images.iter().flat_map(|images| kubeadm::files(images))),
    }
    files
}

fn release(version: &KubernetesVersion, images: Option<&UpstreamImages>) -> SystemFile {
    let path = KUBERNETES_RELEASE.trim_start_matches('/');
    let own: &[&str] = match version.distribution() {
        Distribution::Rke2 => &["usr/local/bin/rke2", RKE2_RUNTIME, RKE2_DIRECTORIES],
        Distribution::K3s => &["usr/local/bin/k3s"],
        Distribution::Kubeadm => &["usr/local/bin/kubeadm", "usr/local/bin/kubectl", "usr/local/bin/kubelet"],
    };
    let files = own.iter().copied().chain([path]).map(str::to_owned).collect();
    let release = json!(KubernetesRelease { version: version.clone(), files, images: images.cloned() });
    text(path, format!("{release:#}\n"))
}

/// The units that start what works on the data of a node.
fn starters(distribution: Distribution) -> &'static [&'static str] {
    match distribution {
        Distribution::Rke2 => &["rke2-server", "rke2-agent"],
        Distribution::K3s => &["k3s", "k3s-agent"],
        Distribution::Kubeadm => &["kubelet"],
    }
}

/// Before the unit starts, the node compares the version with that of its data. One that is lower is not started, which is no
/// failure of the unit (systemd.service(5), `ExecCondition=`): the machine stays up without it.
fn guard(unit: &str) -> SystemFile {
    let condition = "ExecCondition=/usr/bin/installer --progress plain kubernetes-guard";
    text(
        &format!("usr/lib/systemd/system/{unit}.service.d/nqrust-guard.conf"),
        format!("[Service]\n{condition}\n"),
    )
}

/// Keeps NetworkManager away from the devices of pods' networks: it would take routes and addresses from them (RKE2,
/// "Known issues and limitations"; Calico, "Configure NetworkManager").
fn network_manager(distribution: Distribution) -> String {
    const CALICO: [&str; 6] =
        ["cali*", "tunl*", "vxlan.calico", "vxlan-v6.calico", "wireguard.cali", "wg-v6.cali"];
    const CILIUM: [&str; 2] = ["cilium_*", "lxc*"];
    let own = match distribution {
        Distribution::Rke2 => CALICO.to_vec(),
        Distribution::K3s => Vec::new(),
        Distribution::Kubeadm => [CALICO.as_slice(), CILIUM.as_slice()].concat(),
    };
    let common = ["flannel*", "cni*", "veth*", "kube-ipvs0", "nodelocaldns"];
    let devices: Vec<_> =
        own.iter().chain(&common).map(|device| format!("interface-name:{device}")).collect();
    format!("[keyfile]\nunmanaged-devices+={}\n", devices.join(";"))
}

/// Pods share the kernel's limits on watching files. The defaults are for one desktop: with many pods programs fail
/// with "too many open files" (RKE2, "Known issues and limitations").
const SYSCTL: &str = "fs.inotify.max_user_instances = 8192\nfs.inotify.max_user_watches = 524288\n";

/// Points RKE2 to the files of its runtime image in the OS image, so that its start unpacks and downloads nothing. RKE2
/// finds both directories and the mark of a complete extraction, makes its link `/var/lib/rancher/rke2/bin` and removes
/// directories of other releases; for that, and for `charts.tmp` beside `charts`, everything but the programs has to be
/// writable. The charts have to be a directory and no link, which RKE2 would copy as a link. They are made anew at each
/// boot, as a power cut may have left half of them.
fn rke2_directories(version: &KubernetesVersion) -> String {
    let directory = format!("/var/lib/rancher/rke2/data/{}", data_directory(version));
    let tag = version.tag();
    [
        format!("d {directory} 0755 - - -"),
        format!("L+ {directory}/bin - - - - /{RKE2_RUNTIME}/bin"),
        format!("R! {directory}/charts*"),
        format!("C {directory}/charts - - - - /{RKE2_RUNTIME}/charts"),
        format!("f {directory}/.extracted 0644 - - - index.docker.io/rancher/rke2-runtime:{tag}"),
    ]
    .map(|line| line + "\n")
    .concat()
}

/// A unit as upstream's installer writes it, with the same settings.
fn k3s_unit(command: &str) -> String {
    format!(
        "[Unit]
Description=Lightweight Kubernetes ({command})
Documentation=https://k3s.io
Wants=network-online.target
After=network-online.target

[Service]
Type=notify
EnvironmentFile=-/etc/default/%N
EnvironmentFile=-/etc/sysconfig/%N
EnvironmentFile=-/etc/systemd/system/%N.service.env
KillMode=process
Delegate=yes
User=root
LimitNOFILE=1048576
LimitNPROC=infinity
LimitCORE=infinity
TasksMax=infinity
TimeoutStartSec=0
Restart=always
RestartSec=5s
ExecStartPre=-/sbin/modprobe br_netfilter
ExecStartPre=-/sbin/modprobe overlay
ExecStart=/usr/local/bin/k3s {command}

[Install]
WantedBy=multi-user.target
"
    )
}
