//! A release made of scripts and small images, a definition that asks for it, and the program run with both.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use base::digest::Digest;
use serde_json::{Value, json};
use testing::elf;

pub(crate) const RKE2: &str = "v1.33.1+rke2r1";
pub(crate) const K3S: &str = "v1.33.1+k3s1";
pub(crate) const KUBEADM: &str = "v1.37.2";
/// The image that carries the virtual address, which every definition with a distribution needs.
pub(crate) const VIP: &str = "ghcr.io/kube-vip/kube-vip:v1.2.3";

/// A tar archive of files with their modes; a name with a slash at its end is a directory.
pub(crate) fn tar(files: &[(&str, u32, &[u8])]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, mode, content) in files {
        let mut header = tar::Header::new_gnu();
        let directory = name.ends_with('/');
        header.set_entry_type(if directory { tar::EntryType::Directory } else { tar::EntryType::Regular });
        header.set_mode(*mode);
        header.set_uid(0);
        header.set_gid(0);
        header.set_size(content.len() as u64);
        builder.append_data(&mut header, name, *content).unwrap();
    }
    builder.into_inner().unwrap()
}

/// An archive as `docker save` writes it, of images with one layer each.
fn docker(images: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut files = Vec::new();
    let mut list = Vec::new();
    for (name, layer) in images {
        let rootfs = json!({ "type": "layers", "diff_ids": [Digest::of(layer).oci()] });
        let config = json!({ "architecture": "amd64", "os": "linux", "config": {}, "rootfs": rootfs });
        let config = config.to_string().into_bytes();
        let (config_name, layer_name) =
            (format!("{}.json", Digest::of(&config)), format!("{}/layer.tar", Digest::of(layer)));
        list.push(json!({ "Config": config_name, "RepoTags": [name], "Layers": [layer_name] }));
        files.push((config_name, config));
        files.push((layer_name, layer.clone()));
    }
    files.insert(0, ("manifest.json".into(), Value::from(list).to_string().into_bytes()));
    tar(&files.iter().map(|(name, bytes)| (name.as_str(), 0o644, bytes.as_slice())).collect::<Vec<_>>())
}

fn piped(program: &str, bytes: &[u8]) -> Vec<u8> {
    let mut child = Command::new(program)
        .arg("-c")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap_or_else(|error| panic!("this test needs {program}: {error}"));
    let mut stdin = child.stdin.take().unwrap();
    let bytes = bytes.to_vec();
    let feed = std::thread::spawn(move || stdin.write_all(&bytes).unwrap());
    let output = child.wait_with_output().unwrap();
    feed.join().unwrap();
    assert!(output.status.success());
    output.stdout
}

/// A file for an image that nothing runs.
fn layer(text: &str) -> Vec<u8> {
    tar(&[("data", 0o644, text.as_bytes())])
}

/// The files of a release of RKE2, of which the program says `program` and the runtime image has the tag `runtime`.
pub(crate) fn rke2(program: &str, runtime: &str) -> Vec<(String, Vec<u8>)> {
    let script = format!("#!/bin/sh\necho 'rke2 version {program} (0123456789abcdef)'\n");
    let unit = |command: &str| {
        format!(
            "[Unit]\nDescription=RKE2 ({command})\n[Install]\nWantedBy=multi-user.target\n[Service]\nType=notify\n\
             EnvironmentFile=-/usr/local/lib/systemd/system/%N.env\nExecStart=/usr/local/bin/rke2 {command}\n"
        )
    };
    let installation = tar(&[
        ("bin/", 0o775, b""),
        ("bin/rke2", 0o775, script.as_bytes()),
        ("bin/rke2-killall.sh", 0o775, b"#!/bin/sh\n"),
        ("bin/rke2-uninstall.sh", 0o775, b"#!/bin/sh\n"),
        ("lib/systemd/system/rke2-server.service", 0o664, unit("server").as_bytes()),
        ("lib/systemd/system/rke2-agent.service", 0o664, unit("agent").as_bytes()),
        ("lib/systemd/system/rke2-server.env", 0o664, b"HOME=/root\n"),
        ("lib/systemd/system/rke2-agent.env", 0o664, b"HOME=/root\n"),
        ("share/rke2/LICENSE.txt", 0o664, b"license"),
    ]);
    let files = tar(&[
        ("bin/", 0o755, b""),
        ("bin/containerd", 0o755, b"#!/bin/sh\n"),
        ("bin/kubelet", 0o755, b"#!/bin/sh\n"),
        ("charts/", 0o700, b""),
        ("charts/rke2-canal.yaml", 0o600, b"kind: HelmChart\n"),
    ]);
    let core = docker(&[
        (&format!("rancher/rke2-runtime:{runtime}"), files),
        ("rancher/mirrored-pause:3.6", layer("pause")),
        ("rancher/hardened-kubernetes:v1.33.1-rke2r1-build20250515", layer("kubernetes")),
        (VIP, layer("vip")),
    ]);
    let canal = docker(&[("rancher/hardened-calico:v3.30.0", layer("calico"))]);
    let multus = docker(&[("rancher/hardened-multus-cni:v4.2.0", layer("multus"))]);
    vec![
        ("rke2.linux-amd64.tar.gz".into(), piped("gzip", &installation)),
        ("rke2-images-core.linux-amd64.tar.zst".into(), piped("zstd", &core)),
        ("rke2-images-canal.linux-amd64.tar.zst".into(), piped("zstd", &canal)),
        ("rke2-images-multus.linux-amd64.tar.zst".into(), piped("zstd", &multus)),
    ]
}

/// The files of a release of K3s, of which the program says `version`.
pub(crate) fn k3s(version: &str) -> Vec<(String, Vec<u8>)> {
    let script = format!("#!/bin/sh\necho 'k3s version {version} (01234567)'\n");
    let images = docker(&[("rancher/mirrored-pause:3.6", layer("pause")), (VIP, layer("vip"))]);
    vec![
        ("k3s".into(), script.into_bytes()),
        ("k3s-airgap-images-amd64.tar.zst".into(), piped("zstd", &images)),
    ]
}

/// The images of a release of upstream Kubernetes.
pub(crate) fn upstream_images(version: &str) -> [String; 7] {
    [
        format!("registry.k8s.io/kube-apiserver:{version}"),
        format!("registry.k8s.io/kube-controller-manager:{version}"),
        format!("registry.k8s.io/kube-proxy:{version}"),
        format!("registry.k8s.io/kube-scheduler:{version}"),
        "registry.k8s.io/coredns/coredns:v1.14.6".to_owned(),
        "registry.k8s.io/etcd:3.7.3-0".to_owned(),
        "registry.k8s.io/pause:3.10.2".to_owned(),
    ]
}

/// The files of a release of upstream Kubernetes, whose programs are of `programs` and whose images of `images`. The programs
/// have their version between zeros, as the linker writes it; its kubeadm knows the names of its images. crictl has another version.
pub(crate) fn upstream(programs: &str, images: &str) -> Vec<(String, Vec<u8>)> {
    let script = |name: &str| {
        let list = upstream_images(images).join("\n");
        format!(
            "#!/bin/sh\n[ \"$*\" = 'config images list --kubernetes-version {programs}' ] || exit 1\necho '{list}'\nexit\n{name}\0{programs}\0"
        )
    };
    let programs = ["kubeadm", "kubectl", "kubelet"].map(|name| (name.to_owned(), script(name).into_bytes()));
    let archives = upstream_images(images).map(|image| {
        let name = image.rsplit('/').next().unwrap().split(':').next().unwrap().to_owned();
        (format!("{name}.tar.zst"), piped("zstd", &docker(&[(&image, layer(&name))])))
    });
    let crictl = ("crictl".to_owned(), b"#!/bin/sh\necho crictl version 1.37.0\n".to_vec());
    programs.into_iter().chain([crictl]).chain(archives).collect()
}

/// Writes the files of a release into a directory, with their checksums.
pub(crate) fn publish(directory: &Path, files: &[(String, Vec<u8>)]) {
    fs::create_dir_all(directory).unwrap();
    let mut sums = format!("{}  rke2.windows-amd64.exe\n", Digest::of(b"another file"));
    for (name, bytes) in files {
        fs::write(directory.join(name), bytes).unwrap();
        sums.push_str(&format!("{}  {name}\n", Digest::of(bytes)));
    }
    fs::write(directory.join("sha256sum-amd64.txt"), sums).unwrap();
}

/// A directory for one test: the definition, its base, the cache.
pub(crate) struct Place {
    directory: tempfile::TempDir,
    /// Variables in the program's environment beside the test's own.
    pub(crate) environment: Vec<(&'static str, String)>,
}

#[derive(Debug)]
pub(crate) struct ProgramRun {
    pub(crate) code: i32,
    pub(crate) printed: String,
    pub(crate) told: String,
}

impl Place {
    pub(crate) fn new() -> Self {
        let place = Self { directory: tempfile::tempdir().unwrap(), environment: Vec::new() };
        let base = tar(&[
            ("./", 0o755, b""),
            ("./usr/", 0o755, b""),
            ("./usr/bin/", 0o755, b""),
            ("./etc/", 0o755, b""),
        ]);
        fs::write(place.path("base.tar"), base).unwrap();
        for distribution in ["k3s", "kubeadm"] {
            let defaults = format!("kubernetes: {{distribution: {distribution}}}\n");
            fs::write(place.path(&format!("{distribution}.yaml")), defaults).unwrap();
        }
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// Writes the definition with these keys beside the common ones.
    pub(crate) fn define(&self, more: &Value) {
        let mut definition = json!({ "id": "test", "name": "Test", "version": "1", "base": { "archive": { "path": "base.tar" } }, "trust": { "unsigned": "allow" } });
        definition.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        fs::write(self.path("image.yaml"), definition.to_string()).unwrap();
    }

    /// Runs a command of the program with the definition.
    pub(crate) fn run(&self, words: &[&str]) -> ProgramRun {
        let cache = self.path("cache");
        self.ended(&[words, &["--cache-dir", cache.to_str().unwrap()]].concat())
    }

    /// What a check of the definition prints.
    pub(crate) fn check(&self) -> String {
        self.ended(&["check"]).printed
    }

    fn ended(&self, words: &[&str]) -> ProgramRun {
        let output = Command::new(env!("CARGO_BIN_EXE_iso-builder"))
            .args(words)
            .arg(self.path("image.yaml"))
            .env("SOURCE_DATE_EPOCH", "1700000000")
            .envs(self.environment.clone())
            .env("NQRUST_INSTALLER", elf::installer(&self.path("")))
            .output()
            .unwrap();
        ProgramRun {
            code: output.status.code().unwrap(),
            printed: String::from_utf8(output.stdout).unwrap(),
            told: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// The names of the images that the media would carry, which every role needs.
    pub(crate) fn images(&self, words: &[&str]) -> Vec<String> {
        let named = |(name, roles): (String, Vec<String>)| {
            assert_eq!(roles, [""; 0], "every role needs {name}");
            name
        };
        self.images_of_roles(words).into_iter().map(named).collect()
    }

    /// The images that the media would carry, each with the roles that need it.
    pub(crate) fn images_of_roles(&self, words: &[&str]) -> Vec<(String, Vec<String>)> {
        let ended = self.run(&[&["images", "--format", "json"], words].concat());
        assert_eq!(ended.code, 0, "{}", ended.told);
        let report: Value = serde_json::from_str(&ended.printed).unwrap();
        let image = |image: &Value| {
            let roles = serde_json::from_value(image["roles"].clone()).unwrap();
            (image["name"].as_str().unwrap().to_owned(), roles)
        };
        let mut images: Vec<_> = report["images"].as_array().unwrap().iter().map(image).collect();
        images.sort();
        images
    }

    /// Builds as far as it goes without a kernel, and returns what the distribution brings to the OS image.
    pub(crate) fn build(&self) -> PathBuf {
        self.build_until("the base lacks what a node needs")
    }

    /// Builds until it ends with `told`, and returns what the distribution brings to the OS image.
    pub(crate) fn build_until(&self, told: &str) -> PathBuf {
        let output = self.path("out");
        let ended = self.run(&["build", "--output", output.to_str().unwrap()]);
        assert!(ended.code == 2 && ended.told.contains(told), "{ended:?}");
        let steps = fs::read_dir(self.path("cache/steps")).unwrap().map(|entry| entry.unwrap().path());
        let mut found: Vec<_> = steps
            .filter(|step| step.file_name().unwrap().to_str().unwrap().starts_with("distribution-"))
            .collect();
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0).join("tree")
    }

    /// The command fails with this code, and tells all of `words`.
    pub(crate) fn refused(&self, command: &[&str], code: i32, words: &[&str]) {
        let ended = self.run(command);
        assert_eq!(ended.code, code, "{}", ended.told);
        for word in words.iter().chain(&["error: ", "next: "]) {
            assert!(ended.told.contains(word), "{word:?} is not in {}", ended.told);
        }
    }
}

/// The key `kubernetes` for RKE2 in the directory `release`.
pub(crate) fn rke2_here() -> Value {
    json!({ "kubernetes": { "distribution": "rke2", "version": RKE2, "artifacts": "release" } })
}

/// The key `kubernetes` for K3s in the directory `release`.
pub(crate) fn k3s_here() -> Value {
    let kubernetes = json!({ "distribution": "k3s", "version": K3S, "artifacts": "release" });
    json!({ "kubernetes": kubernetes, "install_defaults": "k3s.yaml" })
}

/// The key `kubernetes` for kubeadm in the directory `release`.
pub(crate) fn kubeadm_here() -> Value {
    let kubernetes = json!({ "distribution": "kubeadm", "version": KUBEADM, "artifacts": "release" });
    json!({ "kubernetes": kubernetes, "install_defaults": "kubeadm.yaml" })
}
