//! `installer rollout check` in a cluster whose nodes could take a release, then one of them could not, then one does not answer. The
//! pods run on the nodes' kubelets, and each starts the node's own `installer update check`.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use base::digest::Digest;
use nqrust_tests::deadline::{CLUSTER_INTERVAL, Deadline};
use nqrust_tests::native_cluster::{TestCluster, is_ready};
use rcgen::{CertificateParams, KeyPair};
use serde_json::{Value, json};

const NODES: [&str; 4] = ["node-1", "node-2", "node-3", "node-4"];
/// A certificate that nothing on the node uses.
const CERTIFICATE: &str = "/etc/kubernetes/pki/ended.crt";
/// Until a node that was cut off is ready again.
const RETURN: Duration = Duration::from_secs(180);

pub(super) fn check(cluster: &TestCluster, from: &str, digest: Digest, version: &str) -> Result<()> {
    let ask = |node: &str, more: &str| ask(cluster, node, &format!("--from={from} --sha256={digest} {more}"));
    let (code, all) = ask("node-1", "")?;
    ensure!(code == 0 && verdicts(&all) == ["ready"; 4], "{code} {all}");
    ensure!(all["release"] == version && all["digest"] == digest.to_string(), "{all}");
    let parts: Vec<_> = rows(&all).map(|row| row["part"].clone()).collect();
    ensure!(parts == ["server", "server", "witness", "worker"].map(|part| json!(part)), "{all}");
    table(cluster, from, digest)?;

    let worker = cluster.node("node-4")?;
    let ended = ended_certificate()?;
    worker.within(|| base::files::write_atomically(Path::new(CERTIFICATE), ended.as_bytes(), 0o644))??;
    let (code, all) = ask("node-2", "")?;
    ensure!(code == 3 && verdicts(&all) == ["ready", "ready", "ready", "refused"], "{code} {all}");
    let reasons = all["nodes"][3]["reasons"].to_string();
    ensure!(reasons.contains(CERTIFICATE) && reasons.contains("its certificates have ended"), "{reasons}");
    let (code, all) = ask("node-2", "--accept-hardware")?;
    ensure!(code == 0 && all["nodes"][3]["warnings"].to_string().contains(CERTIFICATE), "{code} {all}");
    worker.run(&format!("rm {CERTIFICATE}"))?;

    // Its kubelet hears of no pod.
    cluster.switch.plug("port-node-4", false)?;
    let unanswered = ask("node-1", "--timeout=60");
    cluster.switch.plug("port-node-4", true)?;
    let (code, all) = unanswered?;
    ensure!(code == 3 && verdicts(&all) == ["ready", "ready", "ready", "unknown"], "{code} {all}");
    Deadline::after(RETURN).every(CLUSTER_INTERVAL).poll("the node that was cut off", || {
        Ok(cluster.kubectl().list(&["nodes"]).iter().all(is_ready).then_some(()))
    })?;
    // That node has to hear of it, too.
    Deadline::after(RETURN).every(CLUSTER_INTERVAL).poll("the end of the pods", || {
        let pods = ["pods", "--namespace=kube-system", "--selector=nqrust.io/rollout-check"];
        Ok(cluster.kubectl().list(&pods).is_empty().then_some(()))
    })
}

/// The exit code of the check on `node`, and its document.
fn ask(cluster: &TestCluster, node: &str, arguments: &str) -> Result<(i32, Value)> {
    let told = cluster.node(node)?.call(&format!("installer --format json rollout check {arguments}"))?;
    let document = serde_json::from_str(&told.stdout);
    Ok((told.code, document.with_context(|| format!("{node} ended with {}: {}", told.code, told.said()))?))
}

fn rows(document: &Value) -> impl Iterator<Item = &Value> {
    document["nodes"].as_array().into_iter().flatten()
}

/// In the order of the nodes.
fn verdicts(document: &Value) -> Vec<&str> {
    let names: Vec<_> = rows(document).filter_map(|row| row["node"].as_str()).collect();
    if names != NODES {
        return names;
    }
    rows(document).filter_map(|row| row["verdict"].as_str()).collect()
}

/// What a person sees.
fn table(cluster: &TestCluster, from: &str, digest: Digest) -> Result<()> {
    let command = format!("installer rollout check --from={from} --sha256={digest}");
    let told = cluster.node("node-1")?.run(&command)?;
    let ready = told.lines().filter(|line| line.starts_with("node-") && line.ends_with("ready")).count();
    ensure!(ready == NODES.len() && told.starts_with("node    part     runs"), "{told}");
    Ok(())
}

/// In PEM.
fn ended_certificate() -> Result<String> {
    let mut params = CertificateParams::default();
    params.not_before = rcgen::date_time_ymd(2020, 1, 1);
    params.not_after = rcgen::date_time_ymd(2021, 1, 1);
    Ok(params.self_signed(&KeyPair::generate()?)?.pem())
}
