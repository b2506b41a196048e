//! Joins that are cut off at every step.

use std::fs;
use std::path::Path;
use std::sync::Mutex;

use anyhow::{Result, bail};

use super::run;
use super::state::{JoinRecord, RecordFile};
use base::command::{Invocation, Runner};
use machine::paths::below;
use model::config::Secret;
use model::config::cluster_secrets::{ClusterSecrets, agent_token};

/// What `ip` says of the node.
const ADDRESSES: &str =
    r#"[{"ifname": "mgmt-br", "addr_info": [{"local": "192.0.2.11", "prefixlen": 24, "scope": "global"}]}]"#;

/// kubeadm and kubectl as far as a join sees them. The run of number `fails` breaks off, if there is one.
#[derive(Default)]
struct Programs {
    fails: Option<usize>,
    asked: Mutex<Vec<String>>,
    /// What `kubectl get nodes` finds.
    witnesses: &'static str,
    documents: Mutex<Vec<String>>,
    /// What `kubectl get deployments,pods` finds.
    name_servers: &'static str,
    /// The virtual address that the cluster tells.
    vip: &'static str,
    /// The head of what the cluster answers to anybody.
    head: &'static str,
    /// Whether the DHCP server named no router.
    routeless: bool,
}

impl Runner for Programs {
    fn run(&self, invocation: &Invocation) -> Result<Vec<u8>> {
        let display = invocation.display();
        if display.starts_with("ip ") && display.contains(" route ") {
            return Ok(if self.routeless { "[]" } else { r#"[{"dst": "default"}]"# }.into());
        }
        if display.starts_with("ip ") {
            return Ok(ADDRESSES.into());
        }
        if display.starts_with("curl ") {
            return Ok(self.head.into());
        }
        let mut asked = self.asked.lock().unwrap();
        asked.push(display.clone());
        if let Some(path) = display.split(" --config ").nth(1) {
            self.documents.lock().unwrap().push(fs::read_to_string(path).unwrap());
            if display.contains("kubelet-start") && self.fails != Some(asked.len() - 1) {
                let root = path.split("/run/nqrust/").next().unwrap();
                for file in
                    ["/etc/kubernetes/kubelet.conf", "/var/lib/kubelet/pki/kubelet-client-current.pem"]
                {
                    let path = below(Path::new(root), file);
                    fs::create_dir_all(path.parent().unwrap()).unwrap();
                    fs::write(path, "").unwrap();
                }
            }
        }
        if self.fails == Some(asked.len() - 1) {
            bail!("cut off, with the token marked-token");
        }
        Ok(match display {
            nodes if nodes.contains("get nodes --selector") => self.witnesses.into(),
            names if names.contains("get deployments,pods") => match self.name_servers {
                "" => "{}".into(),
                listed => listed.into(),
            },
            facts if facts.contains("get configmap") => {
                format!(r#"{{"data": {{"vip": "{}"}}}}"#, self.vip).into()
            }
            _ => Vec::new(),
        })
    }
}

fn node(document: &str) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let write = |path: &str, text: &str| {
        let path = below(root.path(), path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    };
    let release = r#"{"version": "v1.37.2", "images": {"pause": "registry.k8s.io/pause:3.10.2",
        "etcd": "registry.k8s.io/etcd:3.7.3-0", "coredns": "registry.k8s.io/coredns/coredns:v1.14.6"}}"#;
    write("/usr/lib/nqrust/kubernetes.json", release);
    write("/oem/node.yaml", document);
    // etcd's own answers are not part of these tests: a node with a copy asks for none.
    write("/var/lib/etcd/member/snap", "");
    apply(root.path());
    root
}

/// The files of `installer apply` that a join reads.
fn apply(root: &Path) {
    let config = model::config::load(&below(root, "/oem/node.yaml")).unwrap();
    let size = crate::configuration::MachineSize { cpus: 2, memory: 4096 };
    for file in crate::configuration::files(&config, Some("node-1"), size, false) {
        if file.path.starts_with("etc/nqrust") || file.path.starts_with("var/") {
            let path = root.join(&file.path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, &file.bytes).unwrap();
        }
    }
}

fn create() -> String {
    "token: marked-token\nos: {hostname: node-1}\ninstall: {mode: create}\n\
     kubernetes: {distribution: kubeadm, agent_token: marked-agents}\n"
        .to_owned()
}

fn join(role: &str) -> String {
    format!(
        "server_url: https://192.0.2.10\ntoken: marked-token\nos: {{hostname: node-1}}\n\
         install: {{mode: join, role: {role}}}\nkubernetes: {{distribution: kubeadm}}\n"
    )
}

/// Joins, and returns what was asked.
fn whole(root: &Path, programs: &Programs) -> Result<Vec<String>> {
    let result = run(root, programs, &mut |_| {});
    let named = root.display().to_string();
    result.map(|()| programs.asked.lock().unwrap().iter().map(|run| run.replace(&named, "")).collect())
}

#[test]
fn a_join_that_is_cut_off_anywhere_goes_on_and_repeats_nothing_that_is_done() {
    for document in [create(), join("management"), join("witness"), join("worker")] {
        let straight = whole(node(&document).path(), &Programs::default()).unwrap();
        assert!(straight.len() >= 2, "{straight:?}");
        // What comes after the steps has a test of its own.
        let steps = straight.iter().position(|run| run.contains("get --raw")).unwrap_or(straight.len());
        for fails in 0..steps {
            let root = node(&document);
            let programs = Programs { fails: Some(fails), ..Programs::default() };
            assert!(whole(root.path(), &programs).is_err(), "{fails}");
            let mut again = whole(root.path(), &Programs::default()).unwrap();
            // Only the very first step of a cluster may be undone as a whole, and only before anybody knows of it.
            let reset = again.iter().position(|run| run.contains("reset"));
            assert!(reset.is_none() || (document == create() && fails == 0), "{fails}: {again:?}");
            again.retain(|run| !run.contains("reset"));
            let expected = &straight[straight.len() - again.len()..];
            assert_eq!(again, expected, "{fails}");
            assert!(again.len() >= straight.len() - fails, "{fails}: something was left out");
            assert!(RecordFile::of(root.path()).read().unwrap().joined);
        }
    }
}

#[test]
fn a_node_that_has_joined_asks_nothing_more() {
    for document in [create(), join("management"), join("witness"), join("worker")] {
        let root = node(&document);
        whole(root.path(), &Programs::default()).unwrap();
        assert!(below(root.path(), "/etc/kubernetes/manifests").is_dir(), "the kubelet looks there");
        let mut asked = whole(root.path(), &Programs::default()).unwrap();
        // The virtual address can be another one by now.
        asked.retain(|run| !run.contains("get --raw") && !run.contains("get configmap"));
        assert_eq!(asked, [""; 0]);
    }
}

#[test]
fn the_secrets_of_a_join_are_in_no_argument_no_message_and_no_file_that_stays() {
    for document in [create(), join("witness"), join("worker")] {
        let root = node(&document);
        let programs = Programs { fails: Some(1), ..Programs::default() };
        let error = run(root.path(), &programs, &mut |line| assert!(!line.contains("marked"))).unwrap_err();
        let told = base::failure::render(&error);
        assert!(told.contains("cut off, with the token [hidden]"), "{told}");
        whole(root.path(), &Programs::default()).unwrap();
        let documents = programs.documents.lock().unwrap().join("\n");
        let token = documents.split("\"token\":\"").nth(1).unwrap().split('"').next().unwrap().to_owned();
        assert!(token.len() == 23 && !documents.contains("marked"), "{documents}");
        assert!(!programs.asked.lock().unwrap().join(" ").contains(&token));
        for file in walkdir::WalkDir::new(root.path()).into_iter().map(Result::unwrap) {
            let held = file.file_type().is_file()
                && String::from_utf8_lossy(&fs::read(file.path()).unwrap()).contains(&token);
            assert!(!held, "{}", file.path().display());
        }
    }
}

#[test]
fn documents_have_the_release_of_the_image_and_tokens_that_do_not_end() {
    let root = node(&create());
    let programs = Programs::default();
    whole(root.path(), &programs).unwrap();
    let documents = programs.documents.lock().unwrap();
    let init = documents.first().unwrap();
    for part in [
        r#""kubernetesVersion":"v1.37.2""#,
        r#""dns":{"imageRepository":"registry.k8s.io/coredns","imageTag":"v1.14.6"}"#,
        r#""imageTag":"3.7.3-0""#,
        r#""ttl":"0s""#,
        "system:bootstrappers:nqrust:agents",
        r#""certificateKey":""#,
    ] {
        assert!(init.contains(part), "{part}: {init}");
    }
}

#[test]
fn a_node_whose_dhcp_server_names_no_router_is_reached_at_its_management_address() {
    for routeless in [true, false] {
        for document in [create(), join("management"), join("witness"), join("worker")] {
            let programs = Programs { routeless, ..Programs::default() };
            whole(node(&document).path(), &programs).unwrap();
            for given in programs.documents.lock().unwrap().iter() {
                assert_eq!(
                    given.contains(r#"{"name":"node-ip","value":"192.0.2.11"}"#),
                    routeless,
                    "{given}"
                );
                let serves = given.contains("InitConfiguration") || given.contains("controlPlane\"");
                let told = given.contains(r#""advertiseAddress":"192.0.2.11""#);
                assert_eq!(told, routeless && serves, "{given}");
            }
        }
    }
}

/// The bootstrap token that follows from a token.
fn bootstrap_token(token: &str) -> String {
    let made = ClusterSecrets::derive(&Secret::new(token)).unwrap();
    made.bootstrap_token.expose().to_owned()
}

#[test]
fn agents_join_with_a_token_that_the_first_node_registers_for_them_alone() {
    let derived = agent_token(&Secret::new("marked-token")).unwrap();
    for (document, agents) in [
        (create(), bootstrap_token("marked-agents")),
        (create().replace(", agent_token: marked-agents", ""), bootstrap_token(derived.expose())),
    ] {
        let programs = Programs::default();
        whole(node(&document).path(), &programs).unwrap();
        let init = programs.documents.lock().unwrap()[0].clone();
        let registered = format!(r#"["system:bootstrappers:nqrust:agents"],"token":"{agents}""#);
        assert!(init.contains(&registered), "{registered}: {init}");
        assert!(init.contains(&bootstrap_token("marked-token")));
    }
    for role in ["worker", "default"] {
        let programs = Programs::default();
        let root = node(&join(role));
        whole(root.path(), &programs).unwrap();
        let joined = programs.documents.lock().unwrap().join("\n");
        assert!(joined.contains(&bootstrap_token(derived.expose())), "{joined}");
        assert!(!joined.contains(&bootstrap_token("marked-token")), "{joined}");
    }
}

#[test]
fn a_witness_forgets_the_token_of_servers_when_it_has_joined_and_not_before() {
    let root = node(&join("witness"));
    let document = || fs::read_to_string(below(root.path(), "/oem/node.yaml")).unwrap();
    for fails in [0, 3] {
        let programs = Programs { fails: Some(fails), ..Programs::default() };
        whole(root.path(), &programs).unwrap_err();
        assert!(document().contains("marked-token"));
    }
    whole(root.path(), &Programs::default()).unwrap();
    assert!(!document().contains("marked"), "{}", document());
    for file in walkdir::WalkDir::new(root.path()).into_iter().map(Result::unwrap) {
        let held = file.file_type().is_file()
            && String::from_utf8_lossy(&fs::read(file.path()).unwrap()).contains("marked-token");
        assert!(!held, "{}", file.path().display());
    }
    let later = whole(root.path(), &Programs::default()).unwrap();
    assert_eq!(later, [""; 0], "it is a member without its token");
}

#[test]
fn a_token_that_names_the_authority_pins_it() {
    let pin = "ab".repeat(32);
    let document =
        join("worker").replace("token: marked-token", &format!("token: K10{pin}::server:marked-token"));
    let programs = Programs::default();
    whole(node(&document).path(), &programs).unwrap();
    let documents = programs.documents.lock().unwrap();
    assert!(documents[0].contains(&format!("sha256:{pin}")) && !documents[0].contains("unsafeSkip"));
}

#[test]
fn a_second_witness_is_refused_before_it_is_registered_and_keeps_no_key() {
    let root = node(&join("witness"));
    let key = below(root.path(), "/etc/kubernetes/pki/ca.key");
    fs::create_dir_all(key.parent().unwrap()).unwrap();
    fs::write(&key, "key").unwrap();
    let programs = Programs { witnesses: "node/node-9\n", ..Programs::default() };
    let told = base::failure::render(&run(root.path(), &programs, &mut |_| {}).unwrap_err());
    assert!(told.contains("has a witness already, node-9"), "{told}");
    assert!(!programs.asked.lock().unwrap().join(" ").contains("kubelet-start"));
    assert!(!key.exists());
    let own = Programs { witnesses: "node/node-1\n", ..Programs::default() };
    whole(root.path(), &own).unwrap();
}

#[test]
fn a_node_with_a_wrong_clock_takes_no_step_into_its_cluster() {
    for document in [join("management"), join("witness"), join("worker")] {
        let root = node(&document);
        let head = "HTTP/2 200\r\ndate: Sat, 01 Jan 2000 00:00:00 GMT\r\n";
        let wrong = Programs { head, ..Programs::default() };
        let told = base::failure::render(&whole(root.path(), &wrong).unwrap_err());
        assert!(told.contains("ahead of https://192.0.2.10:6443: too far to join"), "{told}");
        assert_eq!(*wrong.asked.lock().unwrap(), [""; 0]);
        assert_eq!(RecordFile::of(root.path()).read().unwrap(), JoinRecord::default());
        whole(root.path(), &Programs::default()).unwrap();
        // One that has joined goes on.
        whole(root.path(), &wrong).unwrap();
    }
}

#[test]
fn a_default_node_is_promoted_by_its_document_and_nothing_else_changes_what_it_is() {
    let root = node(&join("default"));
    whole(root.path(), &Programs::default()).unwrap();
    fs::write(below(root.path(), "/oem/node.yaml"), join("management")).unwrap();
    apply(root.path());
    let promoted = whole(root.path(), &Programs::default()).unwrap();
    assert!(
        promoted.iter().any(|run| run.contains("etcd-join")) && !promoted.join(" ").contains("kubelet-start")
    );
    let label = "label node node-1 --overwrite node-role.harvesterhci.io/management=true";
    assert!(promoted.iter().any(|run| run.contains(label)), "{promoted:?}");
    for document in [join("worker"), join("witness"), create()] {
        fs::write(below(root.path(), "/oem/node.yaml"), &document).unwrap();
        let told = base::failure::render(&run(root.path(), &Programs::default(), &mut |_| {}).unwrap_err());
        assert!(told.contains("is a management node of its cluster and cannot become"), "{told}");
    }
}

#[test]
fn a_further_control_plane_starts_name_servers_again_that_are_all_on_one_node() {
    let gathered = r#"{"items": [{"kind": "Deployment", "metadata": {"name": "coredns"}},
        {"kind": "Pod", "spec": {"nodeName": "node-9"}}, {"kind": "Pod", "spec": {"nodeName": "node-9"}}]}"#;
    let restarts = |document: &str, name_servers| {
        let asked = whole(node(document).path(), &Programs { name_servers, ..Programs::default() }).unwrap();
        asked.iter().filter(|run| run.contains("rollout restart deployment/coredns")).count()
    };
    assert_eq!(restarts(&join("management"), gathered), 1);
    assert_eq!(restarts(&join("management"), ""), 0);
    for document in [create(), join("witness"), join("worker")] {
        assert_eq!(restarts(&document, gathered), 0, "{document}");
    }
}

#[test]
fn nodes_with_a_control_plane_answer_for_the_address_of_their_cluster_and_no_other_node_does() {
    let carried = |document: &str, vip| {
        let root = node(document);
        whole(root.path(), &Programs { vip, ..Programs::default() }).unwrap();
        fs::read_to_string(below(root.path(), "/var/lib/nqrust/kubernetes/keepalived.conf")).ok()
    };
    let given = create().replace("{mode: create}", "{mode: create, vip: 192.0.2.10}");
    for (document, vip) in [(given, ""), (join("management"), "192.0.2.10")] {
        let text = carried(&document, vip).unwrap();
        assert!(text.contains("192.0.2.10/32 dev mgmt-br"), "{text}");
    }
    // They join at an address that may be another node's.
    for (document, vip) in [
        (create(), ""),
        (join("management"), ""),
        (join("worker"), "192.0.2.10"),
        (join("witness"), "192.0.2.10"),
    ] {
        assert_eq!(carried(&document, vip), None);
    }
}

#[test]
fn an_address_that_cannot_be_carried_keeps_no_cluster_from_beginning() {
    let root = node(&create().replace("{mode: create}", "{mode: create, vip: 198.51.100.10}"));
    let mut said = Vec::new();
    let error = run(root.path(), &Programs::default(), &mut |line| said.push(line.to_owned())).unwrap_err();
    let said = said.join("\n");
    assert!(error.to_string().contains("198.51.100.10 is not in any network of this node"), "{error:#}");
    assert!(
        said.contains("node-1 has joined its cluster") && said.contains("applied nqrust-cluster"),
        "{said}"
    );
}

#[test]
fn manifests_are_applied_again_only_when_they_change_and_one_keeps_no_other_away() {
    let manifest = |content: &str| {
        let manifests = format!(
            "manifests: [{{name: a, content: '{content}'}}, {{name: b, content: '{{apiVersion: v1, kind: B, metadata: {{}}}}'}}]"
        );
        create().replace("agent_token: marked-agents", &manifests)
    };
    let root = node(&manifest("{apiVersion: v1, kind: A, metadata: {}}"));
    let asked = whole(root.path(), &Programs::default()).unwrap();
    let applied = |asked: &[String]| asked.iter().filter(|run| run.contains(" apply ")).count();
    assert_eq!(applied(&asked), 6, "{asked:?}");
    for run in asked.iter().filter(|run| run.contains(" apply ")) {
        let own = run.contains("/manifests/nqrust-");
        assert_eq!(
            run.contains("--validate=false"),
            own,
            "manifests of people are checked, ours were: {run}"
        );
    }
    let document = manifest("{apiVersion: v1, kind: A, metadata: {name: x}}");
    fs::write(below(root.path(), "/oem/node.yaml"), document).unwrap();
    apply(root.path());
    let failing = Programs { fails: Some(1), ..Programs::default() };
    let told = base::failure::render(&run(root.path(), &failing, &mut |_| {}).unwrap_err());
    assert!(told.contains("does not take 1 of its manifests yet") && told.contains("manifest-a"), "{told}");
    assert_eq!(applied(&whole(root.path(), &Programs::default()).unwrap()), 1);
}
