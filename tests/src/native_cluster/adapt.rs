//! Changes to the files of the image and of the node that this machine requires. A node that boots has none of them.

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

/// A file of the image builder as nodes here have it.
///
/// There is no systemd that containerd could ask for control groups. Where the machine does not let processes be protected from the
/// kernel's out-of-memory killer (no `CAP_SYS_RESOURCE`), containers must not ask for that.
pub(super) fn system_file(path: &str, text: &str) -> Result<String> {
    if path != "etc/containerd/config.toml" {
        return Ok(text.to_owned());
    }
    let text = replaced(text, "SystemdCgroup = true", "SystemdCgroup = false")?;
    replaced(&text, "  sandbox_image", "  restrict_oom_score_adj = true\n  sandbox_image")
}

/// A file of documents that `installer apply` wrote for kubeadm.
///
/// Control groups are version 1 on some machines, which kubelets and kubeadm refuse unless they are told not to. The host's disk may be
/// fuller than a node's, which kubelets would answer by throwing pods out. What is said of kubelets on the first node holds for all.
pub(super) fn kubeadm_documents(text: &str) -> Result<String> {
    let mut adapted = Vec::new();
    for document in text.split("---\n") {
        let mut document: Value = serde_json::from_str(document).context("a document for kubeadm")?;
        if document["kind"] == "KubeletConfiguration" {
            ensure!(
                document["cgroupDriver"] == "systemd",
                "kubelets do not leave control groups to systemd: {document}"
            );
            document["cgroupDriver"] = json!("cgroupfs");
            document["failCgroupV1"] = json!(false);
            document["evictionHard"] = json!({ "memory.available": "100Mi" });
        }
        if document.get("nodeRegistration").is_some() {
            document["nodeRegistration"]["ignorePreflightErrors"] = json!(["SystemVerification"]);
        }
        if document["kind"] == "UpgradeConfiguration" {
            for part in ["apply", "node"] {
                document[part]["ignorePreflightErrors"] = json!(["SystemVerification"]);
            }
        }
        adapted.push(document.to_string());
    }
    Ok(adapted.join("\n---\n"))
}

/// `text` with `known`, which has to be in it once, replaced.
fn replaced(text: &str, known: &str, new: &str) -> Result<String> {
    ensure!(text.matches(known).count() == 1, "{known:?} is not in this text once:\n{text}");
    Ok(text.replace(known, new))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_that_are_not_as_expected_are_no_documents_of_nodes() {
        let documents = r#"{"kind": "InitConfiguration", "nodeRegistration": {"taints": []}}
---
{"kind": "KubeletConfiguration", "cgroupDriver": "systemd", "maxPods": 200}
"#;
        let adapted = kubeadm_documents(documents).unwrap();
        for part in [
            r#""cgroupDriver":"cgroupfs""#,
            r#""failCgroupV1":false"#,
            r#""maxPods":200"#,
            "SystemVerification",
        ] {
            assert!(adapted.contains(part), "{adapted}");
        }
        assert!(kubeadm_documents(&documents.replace("systemd", "cgroupfs")).is_err());
        let containerd = "  sandbox_image = \"pause\"\n  SystemdCgroup = true\n";
        let adapted = system_file("etc/containerd/config.toml", containerd).unwrap();
        assert!(
            adapted.contains("SystemdCgroup = false") && adapted.contains("restrict_oom_score_adj"),
            "{adapted}"
        );
        assert!(system_file("etc/containerd/config.toml", "").is_err());
        assert_eq!(system_file("etc/other", containerd).unwrap(), containerd);
    }
}
