//! The results from a release: the images of the media and the files of the OS image.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use serde_json::json;

use crate::release::{K3S, Place, RKE2, VIP, k3s, k3s_here, publish, rke2, rke2_here, tar};
use testing::programs;

/// Every file below `root`: its mode, or what it links to.
fn files(root: &Path) -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    for entry in walkdir::WalkDir::new(root) {
        let entry = entry.unwrap();
        let name = entry.path().strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        let metadata = entry.metadata().unwrap();
        let what = if metadata.is_dir() {
            continue;
        } else if metadata.is_symlink() {
            format!("-> {}", fs::read_link(entry.path()).unwrap().display())
        } else {
            format!("{:o}", metadata.permissions().mode() & 0o7777)
        };
        found.insert(name, what);
    }
    found
}

fn expected(lines: &[(&str, &str)]) -> BTreeMap<String, String> {
    lines.iter().map(|(name, what)| ((*name).to_owned(), (*what).to_owned())).collect()
}

/// The files that a release of RKE2 becomes.
const OF_RKE2: [(&str, &str); 17] = [
    ("etc/systemd/system/containerd.service", "-> /dev/null"),
    ("usr/lib/NetworkManager/conf.d/50-rke2.conf", "644"),
    ("usr/lib/nqrust/kubernetes.json", "644"),
    ("usr/lib/rke2/bin/containerd", "755"),
    ("usr/lib/rke2/bin/kubelet", "755"),
    ("usr/lib/rke2/charts/rke2-canal.yaml", "644"),
    ("usr/lib/sysctl.d/50-rke2.conf", "644"),
    ("usr/lib/systemd/system/rke2-agent.service", "644"),
    ("usr/lib/systemd/system/rke2-agent.service.d/nqrust-guard.conf", "644"),
    ("usr/lib/systemd/system/rke2-server.service", "644"),
    ("usr/lib/systemd/system/rke2-server.service.d/nqrust-guard.conf", "644"),
    ("usr/lib/tmpfiles.d/rke2.conf", "644"),
    ("usr/local/bin/rke2", "755"),
    ("usr/local/bin/rke2-killall.sh", "755"),
    ("usr/local/lib/systemd/system/rke2-agent.env", "644"),
    ("usr/local/lib/systemd/system/rke2-server.env", "644"),
    ("usr/local/share/rke2/LICENSE.txt", "644"),
];

#[test]
fn a_release_of_rke2_becomes_files_of_the_os_image_and_images_without_the_runtime_image() {
    let place = Place::new();
    publish(&place.path("release"), &rke2(RKE2, "v1.33.1-rke2r1"));
    place.define(&rke2_here());
    let images = place.images(&[]);
    assert_eq!(
        images,
        [
            "docker.io/rancher/hardened-calico:v3.30.0",
            "docker.io/rancher/hardened-kubernetes:v1.33.1-rke2r1-build20250515",
            "docker.io/rancher/hardened-multus-cni:v4.2.0",
            "docker.io/rancher/mirrored-pause:3.6",
            VIP,
        ]
    );
    let tree = place.build();
    assert_eq!(files(&tree), expected(&OF_RKE2), "and no unit is enabled");
    let release = fs::read_to_string(tree.join("usr/lib/nqrust/kubernetes.json")).unwrap();
    let own = [
        "usr/local/bin/rke2",
        "usr/lib/rke2",
        "usr/lib/tmpfiles.d/rke2.conf",
        "usr/lib/nqrust/kubernetes.json",
    ];
    let release: serde_json::Value = serde_json::from_str(&release).unwrap();
    assert_eq!(release, json!({ "version": RKE2, "files": own }), "what a node keeps of this version");
    let unit = fs::read_to_string(tree.join("usr/lib/systemd/system/rke2-agent.service")).unwrap();
    assert!(
        unit.contains("ExecStart=/usr/local/bin/rke2 agent"),
        "the program is where the unit looks for it"
    );
}

#[test]
fn a_release_of_k3s_becomes_one_program_its_links_and_units_that_systemd_accepts() {
    let place = Place::new();
    publish(&place.path("release"), &k3s(K3S));
    place.define(&k3s_here());
    assert_eq!(place.images(&[]), ["docker.io/rancher/mirrored-pause:3.6", VIP]);
    let tree = place.build();
    let of_k3s = [
        ("etc/systemd/system/containerd.service", "-> /dev/null"),
        ("usr/lib/NetworkManager/conf.d/50-k3s.conf", "644"),
        ("usr/lib/nqrust/kubernetes.json", "644"),
        ("usr/lib/sysctl.d/50-k3s.conf", "644"),
        ("usr/lib/systemd/system/k3s-agent.service", "644"),
        ("usr/lib/systemd/system/k3s-agent.service.d/nqrust-guard.conf", "644"),
        ("usr/lib/systemd/system/k3s.service", "644"),
        ("usr/lib/systemd/system/k3s.service.d/nqrust-guard.conf", "644"),
        ("usr/local/bin/crictl", "-> k3s"),
        ("usr/local/bin/ctr", "-> k3s"),
        ("usr/local/bin/k3s", "755"),
        ("usr/local/bin/kubectl", "-> k3s"),
    ];
    assert_eq!(files(&tree), expected(&of_k3s));
    // With another root, systemd looks for the programs there too.
    fs::create_dir_all(tree.join("sbin")).unwrap();
    fs::copy("/bin/true", tree.join("sbin/modprobe")).unwrap();
    fs::create_dir_all(tree.join("usr/bin")).unwrap();
    fs::copy("/bin/true", tree.join("usr/bin/installer")).unwrap();
    for unit in ["basic.target", "sysinit.target", "shutdown.target", "network-online.target", "system.slice"]
    {
        fs::write(tree.join("usr/lib/systemd/system").join(unit), "[Unit]\nDescription=x\n").unwrap();
    }
    let verify = Command::new("systemd-analyze")
        .args(["verify", "--man=no", "--root"])
        .arg(&tree)
        .args(["k3s.service", "k3s-agent.service"])
        .output()
        .unwrap_or_else(|error| panic!("this test needs systemd-analyze: {error}"));
    let told = String::from_utf8_lossy(&verify.stderr);
    assert!(verify.status.success() && !told.contains("k3s"), "{told}");
}

#[test]
fn systemd_leads_rke2_to_the_programs_and_charts_of_the_image_at_every_boot() {
    let place = Place::new();
    publish(&place.path("release"), &rke2(RKE2, "v1.33.1-rke2r1"));
    place.define(&rke2_here());
    let tree = place.build();
    let directory = tree.join("var/lib/rancher/rke2/data/v1.33.1-rke2r1-c1c56f262526");
    let boot = || {
        let status = Command::new("systemd-tmpfiles")
            .args(["--create", "--remove", "--boot", "--root"])
            .arg(&tree)
            .arg("rke2.conf")
            .output()
            .unwrap_or_else(|error| panic!("this test needs systemd-tmpfiles: {error}"));
        assert!(status.status.success(), "{}", String::from_utf8_lossy(&status.stderr));
    };
    let whole = || {
        let data = tree.join("var/lib/rancher/rke2/data");
        let named = fs::read_dir(&data).unwrap().map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>();
        assert_eq!(named, [directory.file_name().unwrap()]);
        // RKE2 looks for two directories, of which the charts are not a link, and a file.
        assert_eq!(fs::read_link(directory.join("bin")).unwrap(), Path::new("/usr/lib/rke2/bin"));
        assert!(directory.join("charts").symlink_metadata().unwrap().is_dir());
        let chart = directory.join("charts/rke2-canal.yaml");
        assert_eq!(fs::read_to_string(chart).unwrap(), "kind: HelmChart\n");
        assert!(directory.join(".extracted").is_file() && !directory.join("charts.tmp").exists());
    };
    boot();
    whole();
    fs::remove_file(directory.join("charts/rke2-canal.yaml")).unwrap();
    fs::write(directory.join("charts/half"), "x").unwrap();
    fs::create_dir(directory.join("charts.tmp")).unwrap();
    boot();
    whole();
    assert!(!directory.join("charts/half").exists(), "a copy that a power cut broke off is made anew");
}

#[test]
fn the_definitions_overlays_lie_over_what_the_distribution_brings_in_the_os_image() {
    let place = Place::new();
    publish(&place.path("release"), &rke2(RKE2, "v1.33.1-rke2r1"));
    place.define(&rke2_here());
    let tree = place.build();
    let own = place.path("overlay/usr/lib/sysctl.d");
    fs::create_dir_all(&own).unwrap();
    fs::write(own.join("50-rke2.conf"), "fs.inotify.max_user_instances = 1\n").unwrap();
    let (out, scratch) = (place.path("rootfs"), place.path("scratch"));
    for directory in [&out, &scratch] {
        fs::create_dir(directory).unwrap();
    }
    // The step as the build does it, on the base with a kernel, which a build would want before.
    let base = tar(&[
        ("./", 0o755, b""),
        ("./usr/", 0o755, b""),
        ("./usr/bin/", 0o755, b""),
        ("./usr/lib/", 0o755, b""),
        ("./usr/lib/modules/", 0o755, b""),
        ("./usr/lib/modules/6.1.0/", 0o755, b""),
        ("./etc/", 0o755, b""),
        ("./boot/", 0o755, b""),
        ("./boot/vmlinuz-6.1.0", 0o644, b"kernel"),
    ]);
    fs::write(place.path("with-kernel.tar"), base).unwrap();
    let request = json!({
        "work": { "rootfs": {
            "base": place.path("with-kernel.tar"),
            "overlays": [tree, concat!(env!("CARGO_MANIFEST_DIR"), "/../overlays/rootfs"), place.path("overlay")],
            "installer": "/bin/true",
            "identity": { "id": "test", "name": "Test", "version": "1" },
            "level": 3,
        } },
        "architecture": "amd64",
        "out": out,
        "scratch": scratch,
        "epoch": 1_700_000_000,
    });
    fs::write(place.path("request"), request.to_string()).unwrap();
    let mut step = Command::new("unshare");
    if !nix::unistd::geteuid().is_root() {
        step.args(["--user", "--map-auto", "--map-root-user"]);
    }
    step.args(["--mount", "--", env!("CARGO_BIN_EXE_iso-builder"), "step"]);
    let status = step.arg(place.path("request")).arg(place.path("outcome")).status().unwrap();
    assert!(status.success(), "{}", fs::read_to_string(place.path("outcome")).unwrap_or_default());
    let image = out.join("rootfs.squashfs");
    let list = Command::new("unsquashfs").args(["-lln", "-UTC"]).arg(&image).output().unwrap();
    let list = String::from_utf8(list.stdout).unwrap();
    for (name, mode) in [
        ("usr/local/bin/rke2", "-rwxr-xr-x"),
        ("usr/lib/rke2/bin/kubelet", "-rwxr-xr-x"),
        ("usr/lib/rke2/charts", "drwxr-xr-x"),
        ("usr/lib/systemd/system/rke2-server.service", "-rw-r--r--"),
        ("etc/systemd/system/containerd.service -> /dev/null", "lrwxrwxrwx"),
    ] {
        let line = list.lines().find(|line| line.ends_with(&format!("squashfs-root/{name}")));
        let line = line.unwrap_or_else(|| panic!("{name} is not in {list}"));
        assert!(line.starts_with(&format!("{mode} 0/0 ")) && line.contains(" 2023-11-14 "), "{line}");
    }
    let cat =
        Command::new("unsquashfs").arg("-cat").arg(&image).arg("usr/lib/sysctl.d/50-rke2.conf").output();
    assert_eq!(cat.unwrap().stdout, b"fs.inotify.max_user_instances = 1\n");
}

#[test]
fn networkmanager_leaves_the_devices_of_pods_alone() {
    let Some(manager) = programs::find("NetworkManager") else {
        let why = "NetworkManager is not on this machine";
        return programs::leave_out("networkmanager_leaves_the_devices_of_pods_alone", why);
    };
    let place = Place::new();
    for (files, key, version) in
        [(rke2(RKE2, "v1.33.1-rke2r1"), rke2_here(), RKE2), (k3s(K3S), k3s_here(), K3S)]
    {
        let _ = fs::remove_dir_all(place.path("cache"));
        let _ = fs::remove_dir_all(place.path("release"));
        publish(&place.path("release"), &files);
        place.define(&key);
        let given = place.build().join("usr/lib/NetworkManager/conf.d");
        let main = place.path("NetworkManager.conf");
        fs::write(&main, "[keyfile]\nunmanaged-devices=interface-name:own0\n").unwrap();
        let printed = Command::new(&manager)
            .arg("--print-config")
            .arg("--config")
            .arg(&main)
            .arg("--config-dir")
            .arg(&given)
            .args(["--system-config-dir", "/nonexistent", "--intern-config", "/nonexistent/intern"])
            .output()
            .unwrap();
        let printed = String::from_utf8(printed.stdout).unwrap();
        for device in ["own0", "flannel*", "cni*", "veth*"] {
            assert!(printed.contains(&format!("interface-name:{device}")), "{version}: {device}: {printed}");
        }
        assert_eq!(printed.contains("interface-name:cali*"), version == RKE2);
    }
}
