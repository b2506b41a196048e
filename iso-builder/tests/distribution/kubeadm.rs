//! Releases of upstream Kubernetes: roles of their images, files of the OS image, and what does not fit together.

use std::fs;
use std::process::Command;

use serde_json::{Value, json};

use crate::release::{KUBEADM, Place, kubeadm_here, publish, tar, upstream, upstream_images};

const LACKS: &str = "the base lacks what a node needs";

fn place() -> Place {
    let place = Place::new();
    publish(&place.path("release"), &upstream(KUBEADM, KUBEADM));
    place.define(&kubeadm_here());
    place
}

#[test]
fn every_image_goes_to_the_roles_that_run_it() {
    let images = place().images_of_roles(&[]);
    let names: Vec<_> = images.iter().map(|(name, _)| name.clone()).collect();
    let mut all = upstream_images(KUBEADM).to_vec();
    all.sort();
    assert_eq!(names, all, "and no image for the virtual address, which keepalived carries");
    for (name, roles) in &images {
        let expected: &[&str] = match name {
            name if name.contains("/etcd:") => &["default", "management", "witness"],
            name if name.contains("/kube-") && !name.contains("proxy") => &["default", "management"],
            _ => &[],
        };
        assert_eq!(roles, expected, "{name}");
    }
}

#[test]
fn a_release_becomes_programs_and_units_that_systemd_accepts() {
    let place = place();
    let tree = place.build_until(LACKS);
    for program in ["kubeadm", "kubectl", "kubelet"] {
        assert!(tree.join("usr/local/bin").join(program).is_file(), "{program}");
    }
    // Its version is its own.
    let version = Command::new(tree.join("usr/local/bin/crictl")).arg("--version").output().unwrap();
    assert_eq!(String::from_utf8(version.stdout).unwrap(), "crictl version 1.37.0\n");
    let read = |name: &str| fs::read_to_string(tree.join(name)).unwrap();
    let release: Value = serde_json::from_str(&read("usr/lib/nqrust/kubernetes.json")).unwrap();
    let images = json!({
        "pause": "registry.k8s.io/pause:3.10.2",
        "etcd": "registry.k8s.io/etcd:3.7.3-0",
        "coredns": "registry.k8s.io/coredns/coredns:v1.14.6",
    });
    let files = [
        "usr/local/bin/kubeadm",
        "usr/local/bin/kubectl",
        "usr/local/bin/kubelet",
        "usr/lib/nqrust/kubernetes.json",
    ];
    assert_eq!(release, json!({ "version": KUBEADM, "files": files, "images": images }));
    assert!(files.iter().all(|file| tree.join(file).is_file()));
    assert!(!tree.join("etc/systemd/system").exists(), "containerd is not masked, and no unit is enabled");
    // With another root, systemd looks for the programs there too.
    for directory in ["usr/bin", "usr/local/bin"] {
        fs::create_dir_all(tree.join(directory)).unwrap();
    }
    fs::copy("/bin/true", tree.join("usr/bin/installer")).unwrap();
    let others = [
        "basic.target",
        "containerd.service",
        "local-fs.target",
        "multi-user.target",
        "network-online.target",
        "shutdown.target",
        "sysinit.target",
        "system.slice",
        "systemd-tmpfiles-setup.service",
        "umount.target",
    ];
    for unit in others {
        let service =
            if unit.ends_with(".service") { "[Service]\nExecStart=/usr/bin/installer\n" } else { "" };
        let text = format!("[Unit]\nDescription=x\n{service}");
        fs::write(tree.join("usr/lib/systemd/system").join(unit), text).unwrap();
    }
    let own = [
        "etc-kubernetes.mount",
        "kubelet.service",
        "nqrust-kubeadm.service",
        "nqrust-pod-network.service",
        "nqrust-virtual-address.service",
    ];
    let verify = Command::new("systemd-analyze")
        .args(["verify", "--man=no", "--root"])
        .arg(&tree)
        .args(own)
        .output()
        .unwrap_or_else(|error| panic!("this test needs systemd-analyze: {error}"));
    let told = String::from_utf8_lossy(&verify.stderr);
    assert!(verify.status.success() && !told.contains("kube") && !told.contains("nqrust"), "{told}");
}

#[test]
fn containerd_takes_its_configuration_and_nodes_their_directories() {
    let place = place();
    let tree = place.build_until(LACKS);
    let dump = Command::new("containerd")
        .arg("--config")
        .arg(tree.join("etc/containerd/config.toml"))
        .args(["config", "dump"])
        .output()
        .unwrap_or_else(|error| panic!("this test needs containerd: {error}"));
    let told = String::from_utf8_lossy(&dump.stdout);
    for line in [
        "sandbox_image = \"registry.k8s.io/pause:3.10.2\"",
        "bin_dir = \"/opt/cni/bin\"",
        "config_path = \"/etc/containerd/certs.d\"",
        "SystemdCgroup = true",
    ] {
        assert!(told.contains(line), "{line}: {told}");
    }
    let listens = "unix:///run/containerd/containerd.sock";
    let crictl = fs::read_to_string(tree.join("etc/crictl.yaml")).unwrap();
    assert_eq!(crictl, format!("runtime-endpoint: {listens}\n"));
    assert!(told.contains(&format!("address = \"{}\"", listens.trim_start_matches("unix://"))), "{told}");
    // Plugins of a pod network stay, and every boot links the missing ones.
    let plugins = tree.join("opt/cni/bin");
    fs::create_dir_all(&plugins).unwrap();
    fs::write(plugins.join("loopback"), "of a pod network").unwrap();
    let status = Command::new("systemd-tmpfiles")
        .args(["--create", "--root"])
        .arg(&tree)
        .arg("kubeadm.conf")
        .output()
        .unwrap_or_else(|error| panic!("this test needs systemd-tmpfiles: {error}"));
    assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
    assert_eq!(fs::read_link(plugins.join("bridge")).unwrap().to_str(), Some("/usr/lib/cni/bridge"));
    assert_eq!(fs::read_to_string(plugins.join("loopback")).unwrap(), "of a pod network");
    assert!(tree.join("var/lib/nqrust/kubernetes/etc").is_dir());
}

#[test]
fn a_login_finds_the_cluster_and_leaves_what_is_set() {
    let place = place();
    let profile = place.build_until(LACKS).join("etc/profile.d/nqrust-kubernetes.sh");
    let text = fs::read_to_string(profile).unwrap();
    let access = place.path("etc-kubernetes");
    fs::create_dir_all(&access).unwrap();
    let script =
        text.replace("/etc/kubernetes", access.to_str().unwrap()).replace("$(id -u)", "${USER_ID:-0}");
    let told = |before: &str| {
        let script = format!(
            "set -eu; {before}\n{script}\necho \"${{KUBECONFIG:-none}} ${{CONTAINERD_NAMESPACE:-none}}\""
        );
        let output = Command::new("sh").args(["-c", &script]).env_remove("KUBECONFIG").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().replace(access.to_str().unwrap(), "K")
    };
    assert_eq!(told(""), "none k8s.io");
    fs::write(access.join("kubelet.conf"), "").unwrap();
    assert_eq!(told(""), "K/kubelet.conf k8s.io");
    fs::write(access.join("admin.conf"), "").unwrap();
    assert_eq!(told(""), "K/admin.conf k8s.io");
    assert_eq!(told("KUBECONFIG=own CONTAINERD_NAMESPACE=other"), "own other");
    assert_eq!(told("USER_ID=1000"), "none none");
}

#[test]
fn a_base_without_what_nodes_start_is_refused_with_the_packages() {
    let place = place();
    let output = place.path("out");
    let build = ["build", "--output", output.to_str().unwrap()];
    let words = ["usr/lib/cni/bridge", "containerd", "containernetworking-plugins", "keepalived", "nftables"];
    place.refused(&build, 2, &words);
    let programs = ["containerd", "runc", "nft", "iptables", "conntrack", "ip", "mount", "losetup"];
    let mut files: Vec<_> = programs.iter().map(|name| format!("./usr/bin/{name}")).collect();
    files.extend(["bridge", "host-local", "portmap"].map(|name| format!("./usr/lib/cni/{name}")));
    files.extend(["./boot/config-6.12.1-amd64", "./etc/os-release"].map(str::to_owned));
    let entries: Vec<(&str, u32, &[u8])> =
        files.iter().map(|name| (name.as_str(), 0o755, &b""[..])).collect();
    fs::write(place.path("base.tar"), tar(&entries)).unwrap();
    let lacks = |package: &str| {
        let ended = place.run(&build);
        assert_eq!(ended.code, 2, "{}", ended.told);
        ended.told.contains(package)
    };
    assert!(lacks("keepalived") && !lacks("nftables") && !lacks("conntrack"));
    // An overlay of the definition is as good as a package.
    fs::create_dir_all(place.path("overlay/usr/sbin")).unwrap();
    fs::write(place.path("overlay/usr/sbin/keepalived"), "").unwrap();
    let mut keys = kubeadm_here();
    keys["overlays"] = json!({ "rootfs": ["overlay"] });
    place.define(&keys);
    assert!(!lacks("keepalived") && lacks("dracut"));
}

#[test]
fn programs_images_and_version_have_to_be_of_one_release() {
    let place = Place::new();
    place.define(&kubeadm_here());
    let output = place.path("out");
    let build = ["build", "--output", output.to_str().unwrap()];
    // A check says the same of the programs before a build, and nothing of crictl, which has a version of its own.
    let checked = |programs: &str| {
        publish(&place.path("release"), &upstream(programs, KUBEADM));
        place.check()
    };
    let told = checked(KUBEADM);
    assert!(told.contains("ok       kubernetes: kubeadm v1.37.2: 11 files in release"), "{told}");
    assert!(checked("v1.37.1").contains("/kubeadm is not of v1.37.2"));
    publish(&place.path("release"), &upstream("v1.37.1", KUBEADM));
    place.refused(&build, 2, &["/kubeadm is not of v1.37.2", "contains these versions: v1.37.1"]);
    publish(&place.path("release"), &upstream(KUBEADM, "v1.37.1"));
    let words = [
        "the images are not those of Kubernetes v1.37.2",
        "there is no registry.k8s.io/kube-apiserver:v1.37.2",
    ];
    place.refused(&["images"], 2, &words);
    let mut files = upstream(KUBEADM, KUBEADM);
    files.retain(|(name, _)| name != "etcd.tar.zst");
    fs::remove_dir_all(place.path("release")).unwrap();
    publish(&place.path("release"), &files);
    place.refused(&["images"], 2, &["no checksum for etcd.tar.zst"]);
}

#[test]
fn a_definition_that_kubeadm_cannot_follow_is_told_why() {
    let place = place();
    let mut keys = kubeadm_here();
    keys["kubernetes"]["version"] = json!("v1.34.9");
    keys["kubernetes"]["images"] = json!(["core"]);
    place.define(&keys);
    let words = ["v1.34.9 is too old", "etcd-join", "one archive for each of its images", "images.preload"];
    place.refused(&["images"], 2, &words);
}
