//! Moves the pods of a node and the configuration of its kubelet to another version by `kubeadm upgrade`. The caller moves the
//! kubelet itself.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use super::documents::name_images;
use super::kubectl::locally;
use super::reasons;
use super::run::WORK;
use base::command::{Invocation, Runner};
use base::failure::{Class, Failure, causes};
use base::files;
use machine::paths::{KUBEADM, below};
use model::kubernetes::{KubernetesRelease, KubernetesVersion};

/// The document of kubeadm (`UpgradeConfiguration`), which `installer apply` writes.
const DOCUMENT: &str = "upgrade.yaml";
/// In bytes; documents have some kilobytes.
const DOCUMENT_BYTES_MAX: u64 = 1 << 20;
const CONFIG_MAP: [&str; 4] = ["configmap", "kubeadm-config", "--namespace", "kube-system"];

/// Runs the program `kubeadm` of the version `to`. `server` says whether the node has a control plane: then the first one that is
/// moved moves what is common to the cluster too. Whatever a run that was cut off has left, kubeadm goes on from there.
///
/// # Errors
/// [`Class::Join`] with kubeadm's own words.
pub fn run(
    root: &Path,
    runner: &dyn Runner,
    kubeadm: &Path,
    to: &KubernetesRelease,
    server: bool,
    limit: Duration,
) -> Result<()> {
    let first = server && common(runner)?.version < to.version;
    if first {
        name_common_images(runner, to)?;
    }
    let rendered = below(root, KUBEADM).join(DOCUMENT);
    let rendered = files::read_at_most(&rendered, DOCUMENT_BYTES_MAX)?;
    let mut document: Value = serde_saphyr::from_str(&String::from_utf8_lossy(&rendered))
        .context("reading kubeadm's document for upgrades")?;
    document["apply"]["kubernetesVersion"] = json!(to.version);
    let directory = below(root, WORK);
    files::make_directory(&directory, 0o700)?;
    let path = directory.join(DOCUMENT);
    files::write_atomically(&path, document.to_string().as_bytes(), 0o600)?;
    let words: &[&str] = if first { &["upgrade", "apply", "--yes"] } else { &["upgrade", "node"] };
    let result = runner.run(&Invocation::new(kubeadm).args(words).arg("--config").arg(&path).limit(limit));
    let removed = fs::remove_file(&path);
    result.map_err(|error| {
        let causes: Vec<_> = causes(&error).iter().map(|cause| reasons::of(cause)).collect();
        let what = format!("kubeadm has not moved this node to {}", to.version);
        Failure::new(Class::Join, what)
            .because(causes.join("\n  because: "))
            .hint("See `kubectl get pods --namespace kube-system` and `journalctl --unit kubelet`.")
    })?;
    removed.with_context(|| format!("removing {}", path.display()))
}

/// The configuration that all nodes of the cluster share.
struct CommonConfiguration {
    version: KubernetesVersion,
    document: Value,
}

fn common(runner: &dyn Runner) -> Result<CommonConfiguration> {
    let what = || "reading the cluster's configuration, the ConfigMap kubeadm-config";
    let words = ["get"].into_iter().chain(CONFIG_MAP).chain(["--output", "json"]);
    let listed = locally(runner, &words.collect::<Vec<_>>()).with_context(what)?;
    let map: Value = serde_json::from_slice(&listed).with_context(what)?;
    let text = map["data"]["ClusterConfiguration"].as_str().with_context(what)?;
    let document: Value = serde_saphyr::from_str(text).with_context(what)?;
    let version = document["kubernetesVersion"].as_str().with_context(what)?.parse().with_context(what)?;
    Ok(CommonConfiguration { version, document })
}

/// kubeadm keeps to the tags of images that the cluster was made with; the new version has others.
fn name_common_images(runner: &dyn Runner, to: &KubernetesRelease) -> Result<()> {
    let images = to.images.as_ref().context("the OS image names no images of Kubernetes")?;
    let mut document = common(runner)?.document;
    let before = document.clone();
    name_images(&mut document, images);
    if document == before {
        return Ok(());
    }
    let patch = json!({ "data": { "ClusterConfiguration": document.to_string() } }).to_string();
    let words = ["patch"].into_iter().chain(CONFIG_MAP).chain(["--type=merge", "--patch", &patch]);
    locally(runner, &words.collect::<Vec<_>>())
        .map(drop)
        .context("telling the cluster which images the new version has")
}

#[cfg(test)]
mod tests {
    use super::*;
    use testing::runner::ScriptedRunner;

    const DOCUMENT_TEXT: &str = r#"{"apiVersion": "kubeadm.k8s.io/v1beta4", "kind": "UpgradeConfiguration", "apply": {"a": 1}, "node": {}}"#;

    /// A cluster at this version.
    fn cluster(version: &str, etcd: &str, fails: bool) -> ScriptedRunner {
        let common = format!(
            "kind: ClusterConfiguration\nkubernetesVersion: {version}\ndns: {{imageRepository: registry.k8s.io/coredns, imageTag: v1}}\n\
             etcd: {{local: {{dataDir: /d, imageRepository: registry.k8s.io, imageTag: {etcd}}}}}\n"
        );
        let map = json!({ "data": { "ClusterConfiguration": common } }).to_string();
        ScriptedRunner::new().answer("", map).reply("upgrade ", move |invocation| {
            let document = fs::read_to_string(invocation.args.last().unwrap()).unwrap();
            let document: Value = serde_json::from_str(&document).unwrap();
            assert_eq!(document["apply"], json!({ "a": 1, "kubernetesVersion": "v1.37.3" }));
            anyhow::ensure!(!fails, "timed out");
            Ok(Vec::new())
        })
    }

    fn moved(version: &str, etcd: &str, server: bool, fails: bool) -> (Vec<String>, Result<()>) {
        let root = tempfile::tempdir().unwrap();
        let directory = below(root.path(), KUBEADM);
        fs::create_dir_all(&directory).unwrap();
        fs::write(directory.join(DOCUMENT), DOCUMENT_TEXT).unwrap();
        let release = r#"{"version": "v1.37.3", "images": {"pause": "registry.k8s.io/pause:3",
            "etcd": "registry.k8s.io/etcd:3.7.4-0", "coredns": "registry.k8s.io/coredns/coredns:v1"}}"#;
        let cluster = cluster(version, etcd, fails);
        let kubeadm = Path::new("/kept/kubeadm");
        let release = serde_json::from_str(release).unwrap();
        let result = run(root.path(), &cluster, kubeadm, &release, server, Duration::from_secs(1));
        assert!(!below(root.path(), WORK).join(DOCUMENT).exists());
        let verb = |text: &String| {
            let words =
                text.split(' ').filter(|word| ["get", "patch", "apply", "node", "upgrade"].contains(word));
            words.collect::<Vec<_>>().join(" ")
        };
        (cluster.commands().iter().map(verb).collect(), result)
    }

    #[test]
    fn the_first_server_moves_the_cluster_and_every_other_node_itself() {
        let told = |version, etcd, server| {
            let (told, result) = moved(version, etcd, server, false);
            result.unwrap();
            told
        };
        assert_eq!(told("v1.37.2", "3.7.3-0", true), ["get", "get", "patch", "upgrade apply"]);
        assert_eq!(told("v1.37.2", "3.7.4-0", true), ["get", "get", "upgrade apply"], "the images are told");
        assert_eq!(told("v1.37.3", "3.7.4-0", true), ["get", "upgrade node"]);
        assert_eq!(told("v1.37.2", "3.7.3-0", false), ["upgrade node"]);
    }

    #[test]
    fn kubeadms_own_words_are_told() {
        let (_, result) = moved("v1.37.3", "3.7.4-0", true, true);
        let told = base::failure::render(&result.unwrap_err());
        assert!(
            told.contains("kubeadm has not moved this node to v1.37.3") && told.contains("timed out"),
            "{told}"
        );
    }
}
