//! Departures from a cluster that kubectl shows.

use std::fs;
use std::path::Path;
use std::sync::Mutex;
use std::sync::atomic::AtomicBool;

use anyhow::{Result, bail};
use serde_json::{Value, json};

use super::*;
use base::command::Invocation;
use base::digest::Digest;
use base::failure::{class_of, render};
use machine::paths::DOCUMENT;

/// A cluster as far as kubectl shows and changes it here.
#[derive(Default)]
pub(crate) struct FakeCluster {
    nodes: Mutex<Value>,
    lease: Mutex<Value>,
    pods: Mutex<Vec<Value>>,
    budgets: Vec<Value>,
    machines: Mutex<Option<Vec<Value>>>,
    volumes: Vec<Value>,
    /// Longhorn's volumes and their replicas, where it runs.
    longhorn: Option<[Vec<Value>; 2]>,
    /// Its setting for drains.
    drain_policy: Value,
    /// Whether eviction is refused.
    blocked: bool,
    /// Whether another node fails during a drain.
    loses_a_node: bool,
    /// The calls that fail, by what they contain, and how often they do yet.
    fails: Mutex<Option<(&'static str, usize)>>,
    /// What is said of them.
    trouble: &'static str,
    calls: Mutex<Vec<String>>,
}

impl FakeCluster {
    pub(crate) fn new() -> Self {
        let node = |name: &str| {
            json!({
                "metadata": { "name": name, "annotations": {}, "labels": { "node-role.kubernetes.io/control-plane": "" } },
                "spec": {},
                "status": { "conditions": [{ "type": "Ready", "status": "True" }] },
            })
        };
        let nodes = json!({ "n1": node("n1"), "n2": node("n2") });
        Self { nodes: Mutex::new(nodes), trouble: "connection refused", ..Self::default() }
    }

    fn node(&self, name: &str) -> Value {
        self.nodes.lock().unwrap()[name].clone()
    }

    pub(crate) fn holder(&self) -> Value {
        self.lease()["spec"]["holderIdentity"].clone()
    }

    pub(crate) fn lease(&self) -> Value {
        self.lease.lock().unwrap().clone()
    }

    /// Puts a Lease there.
    pub(crate) fn hold(&self, lease: Value) {
        *self.lease.lock().unwrap() = lease;
    }

    /// Lets calls fail that contain a text.
    pub(crate) fn fail(&self, calls: Option<&'static str>) {
        *self.fails.lock().unwrap() = calls.map(|calls| (calls, usize::MAX));
    }

    /// Lets so many calls fail that contain a text.
    pub(crate) fn fail_for(&self, times: usize, calls: &'static str) {
        *self.fails.lock().unwrap() = Some((calls, times));
    }

    /// Whether this call fails.
    fn fails(&self, call: &str) -> bool {
        let mut fails = self.fails.lock().unwrap();
        let hit = fails.as_mut().filter(|(calls, left)| *left > 0 && call.contains(*calls));
        hit.map(|(_, left)| *left -= 1).is_some()
    }

    fn get(&self, what: &[&str]) -> Value {
        let list = |items: &[Value]| json!({ "items": items });
        let machines = self.machines.lock().unwrap();
        match what {
            ["node", name] => self.node(name),
            ["nodes"] => {
                let nodes = self.nodes.lock().unwrap();
                list(&nodes.as_object().unwrap().values().cloned().collect::<Vec<_>>())
            }
            ["lease", ..] => self.lease.lock().unwrap().clone(),
            ["customresourcedefinition", kind, ..] => {
                let there = match *kind {
                    "virtualmachineinstances.kubevirt.io" => machines.is_some(),
                    "volumes.longhorn.io" => self.longhorn.is_some(),
                    other => panic!("{other}"),
                };
                if there { json!({ "kind": "CustomResourceDefinition" }) } else { Value::Null }
            }
            ["virtualmachineinstances.kubevirt.io", ..] => list(machines.as_ref().unwrap()),
            ["settings.longhorn.io", "node-drain-policy", ..] => self.drain_policy.clone(),
            ["volumes.longhorn.io", ..] => list(&self.longhorn.as_ref().unwrap()[0]),
            ["replicas.longhorn.io", ..] => list(&self.longhorn.as_ref().unwrap()[1]),
            ["volumeattachments"] => list(&self.volumes),
            ["pods", ..] => list(&self.pods.lock().unwrap()),
            ["poddisruptionbudgets", ..] => list(&self.budgets),
            other => panic!("{other:?}"),
        }
    }
}

impl Runner for FakeCluster {
    fn run(&self, invocation: &Invocation) -> Result<Vec<u8>> {
        let words: Vec<_> = invocation.args.iter().map(|word| word.to_string_lossy().into_owned()).collect();
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let ["--kubeconfig", _, rest @ ..] = words.as_slice() else { panic!("{words:?}") };
        let call = rest.join(" ");
        if self.fails(&call) {
            bail!("{}", self.trouble);
        }
        if rest[0] != "get" {
            self.calls.lock().unwrap().push(call.clone());
        }
        match rest {
            ["get", "--output=json", _, what @ ..] => {
                let found = self.get(what);
                Ok(if found.is_null() { Vec::new() } else { found.to_string().into_bytes() })
            }
            ["patch", "node", name, _, patch, _] => {
                let patch: Value = serde_json::from_str(patch.strip_prefix("--patch=").unwrap()).unwrap();
                let mut nodes = self.nodes.lock().unwrap();
                let cordoned = &patch["spec"]["unschedulable"];
                nodes[*name]["spec"]["unschedulable"] = cordoned.clone();
                nodes[*name]["metadata"]["annotations"] = match cordoned == true {
                    true => patch["metadata"]["annotations"].clone(),
                    false => json!({}),
                };
                Ok(Vec::new())
            }
            ["taint", "node", name, taint, ..] => {
                let there = !taint.ends_with('-');
                let taints = if there { json!([{ "key": "kubevirt.io/drain" }]) } else { json!([]) };
                self.nodes.lock().unwrap()[*name]["spec"]["taints"] = taints;
                // KubeVirt moves them.
                if there && let Some(machines) = self.machines.lock().unwrap().as_mut() {
                    machines.iter_mut().for_each(|machine| machine["status"]["nodeName"] = json!("n2"));
                }
                Ok(Vec::new())
            }
            [verb @ ("create" | "replace"), ..] => {
                let mut lease: Value = serde_json::from_slice(&invocation.stdin).unwrap();
                let mut held = self.lease.lock().unwrap();
                let same = held["metadata"]["resourceVersion"] == lease["metadata"]["resourceVersion"];
                anyhow::ensure!(
                    same && (*verb == "create") == held.is_null(),
                    "the object has been modified"
                );
                let version = self.calls.lock().unwrap().len();
                lease["metadata"]["resourceVersion"] = json!(version.to_string());
                *held = lease;
                Ok(Vec::new())
            }
            ["drain", ..] if self.blocked => {
                bail!("error when evicting pods/\"web\" -n \"shop\": global timeout reached: 1s")
            }
            ["drain", ..] => {
                self.pods.lock().unwrap().clear();
                if self.loses_a_node {
                    let mut nodes = self.nodes.lock().unwrap();
                    nodes["n2"]["status"]["conditions"][0]["status"] = json!("Unknown");
                }
                Ok(Vec::new())
            }
            ["config", ..] => Ok(b"flattened".to_vec()),
            other => panic!("{other:?}"),
        }
    }
}

/// The same, but whoever writes the lock gets no answer.
struct Lossy<'a>(&'a FakeCluster);

impl Runner for Lossy<'_> {
    fn run(&self, invocation: &Invocation) -> Result<Vec<u8>> {
        let answer = self.0.run(invocation)?;
        let writes = invocation.args.iter().any(|word| word == "--filename=-");
        anyhow::ensure!(!writes, "unexpected EOF");
        Ok(answer)
    }
}

pub(crate) const SERVER: &str = "server_url: https://192.0.2.10:6443\ntoken: a-token-of-enough-length\nos: {hostname: n1}\n\
                      install: {mode: join, role: management}\nkubernetes: {distribution: kubeadm}\n";

pub(crate) fn root() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (file, text) in [(DOCUMENT, SERVER), ("/etc/kubernetes/admin.conf", "")] {
        let path = below(root.path(), file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    root
}

fn release() -> ReleaseId {
    ReleaseId { digest: Digest::of(b"new"), version: "2".into() }
}

fn request() -> DepartureRequest {
    DepartureRequest { drain: Drain::Own, timeout: Duration::ZERO, wait: Duration::ZERO, retry: false }
}

/// Longer than any test waits.
const LONG: Duration = Duration::from_secs(60);

fn never() -> Cancel {
    static NEVER: AtomicBool = AtomicBool::new(false);
    Cancel::new(&NEVER)
}

fn leave(root: &Path, cluster: &FakeCluster, request: &DepartureRequest) -> Result<()> {
    NodeDeparture::open(root, cluster, None, &|_| ())?.leave(request, &release(), &never())
}

fn may_leave(root: &Path, cluster: &FakeCluster, request: &DepartureRequest) -> Result<()> {
    NodeDeparture::open(root, cluster, None, &|_| ())?.may_leave(request, &release())
}

fn undo(root: &Path, cluster: &FakeCluster, outcome: &UpdateOutcome) -> Result<()> {
    NodeDeparture::open(root, cluster, None, &|_| ())?.undo(outcome)
}

fn cordoned(cluster: &FakeCluster) -> bool {
    cluster.node("n1")["spec"]["unschedulable"] == true
}

#[test]
fn a_node_leaves_and_comes_back_as_it_was() {
    let (root, mut cluster) = (root(), FakeCluster::new());
    let machine = json!({ "metadata": { "namespace": "shop", "name": "db" }, "status": { "nodeName": "n1", "phase": "Running" } });
    cluster.machines = Mutex::new(Some(vec![machine]));
    leave(root.path(), &cluster, &request()).unwrap();
    assert!(cordoned(&cluster));
    assert_eq!(cluster.node("n1")["metadata"]["annotations"]["nqrust.io/update-cordoned"], "true");
    assert_eq!(cluster.node("n1")["spec"]["taints"][0]["key"], "kubevirt.io/drain");
    assert_eq!(cluster.holder(), "n1");
    undo(root.path(), &cluster, &UpdateOutcome::Good).unwrap();
    assert!(!cordoned(&cluster));
    assert_eq!(cluster.node("n1")["spec"]["taints"], json!([]));
    assert_eq!((cluster.holder(), RolloutRecord::read(root.path())), (Value::Null, None));
    let calls = cluster.calls.lock().unwrap().len();
    undo(root.path(), &cluster, &UpdateOutcome::Good).unwrap();
    assert_eq!(cluster.calls.lock().unwrap().len(), calls, "there is nothing to undo any more");
}

#[test]
fn what_was_cordoned_before_stays_cordoned() {
    let (root, cluster) = (root(), FakeCluster::new());
    cluster.nodes.lock().unwrap()["n1"]["spec"]["unschedulable"] = json!(true);
    leave(root.path(), &cluster, &request()).unwrap();
    undo(root.path(), &cluster, &UpdateOutcome::Good).unwrap();
    assert!(cordoned(&cluster));
}

#[test]
fn who_drained_the_node_lets_pods_in_again() {
    let (root, cluster) = (root(), FakeCluster::new());
    leave(root.path(), &cluster, &DepartureRequest { drain: Drain::External, ..request() }).unwrap();
    assert_eq!(cluster.calls.lock().unwrap().len(), 1, "only the lock is taken");
    undo(root.path(), &cluster, &UpdateOutcome::Good).unwrap();
    assert_eq!(cluster.calls.lock().unwrap().len(), 2, "and given back");
}

#[test]
fn a_blocked_drain_names_the_budget_and_leaves_everything_as_it_was() {
    let (root, mut cluster) = (root(), FakeCluster::new());
    let labels = json!({ "app": "web" });
    cluster.blocked = true;
    cluster.pods =
        Mutex::new(vec![json!({ "metadata": { "namespace": "shop", "name": "web", "labels": labels } })]);
    cluster.budgets = vec![json!({
        "metadata": { "namespace": "shop", "name": "always-one" },
        "spec": { "selector": { "matchLabels": labels } },
        "status": { "disruptionsAllowed": 0 },
    })];
    let error = leave(root.path(), &cluster, &request()).unwrap_err();
    assert_eq!(class_of(&error).exit_code(), 3);
    assert!(
        render(&error).contains("PodDisruptionBudget shop/always-one keeps shop/web"),
        "{}",
        render(&error)
    );
    assert!(!cordoned(&cluster));
    assert_eq!((cluster.holder(), RolloutRecord::read(root.path())), (Value::Null, None));
}

#[test]
fn a_node_stays_where_another_one_fails_during_its_drain() {
    let (root, cluster) = (root(), FakeCluster { loses_a_node: true, ..FakeCluster::new() });
    let error = leave(root.path(), &cluster, &request()).unwrap_err();
    assert_eq!(class_of(&error).exit_code(), 3);
    assert!(render(&error).contains("n2 is not ready"), "{}", render(&error));
    assert_eq!((cluster.holder(), cordoned(&cluster)), (Value::Null, false));
}

#[test]
fn volumes_that_stay_attached_are_named() {
    let (root, mut cluster) = (root(), FakeCluster::new());
    cluster.volumes = vec![
        json!({ "metadata": { "name": "a" }, "spec": { "nodeName": "n1", "source": { "persistentVolumeName": "pv-7" } } }),
    ];
    let error = leave(root.path(), &cluster, &request()).unwrap_err();
    assert!(
        render(&error).contains("volumes are attached still on n1\n  because: pv-7"),
        "{}",
        render(&error)
    );
    assert!(!cordoned(&cluster));
}

#[test]
fn a_node_with_the_last_whole_replica_of_a_volume_stays() {
    let (root, mut cluster) = (root(), FakeCluster::new());
    let volume = json!({ "metadata": { "name": "pvc-1" }, "status": { "state": "attached" } });
    let replica = |node: &str| json!({ "spec": { "volumeName": "pvc-1", "nodeID": node, "healthyAt": "2030-01-01T00:00:00Z" }, "status": { "currentState": "running" } });
    cluster.longhorn = Some([vec![volume.clone()], vec![replica("n1")]]);
    let error = leave(root.path(), &cluster, &request()).unwrap_err();
    assert_eq!(class_of(&error).exit_code(), 3);
    let text = render(&error);
    assert!(text.contains("no other node has a whole replica of the volume pvc-1"), "{text}");
    assert!(!cordoned(&cluster), "{text}");
    cluster.drain_policy = json!({ "value": "block-for-eviction" });
    leave(root.path(), &cluster, &request()).unwrap();
    undo(root.path(), &cluster, &UpdateOutcome::Untried).unwrap();
    cluster.drain_policy = Value::Null;
    cluster.longhorn = Some([vec![volume], vec![replica("n1"), replica("n2")]]);
    leave(root.path(), &cluster, &request()).unwrap();
}

#[test]
fn a_node_waits_for_the_lock_and_stops_where_another_one_has_rolled_back() {
    let (first, second, cluster) = (root(), root(), FakeCluster::new());
    fs::write(below(second.path(), DOCUMENT), SERVER.replace("n1", "n2")).unwrap();
    leave(first.path(), &cluster, &request()).unwrap();
    let error = leave(second.path(), &cluster, &request()).unwrap_err();
    assert_eq!(class_of(&error).exit_code(), 8);
    assert!(render(&error).contains("n1 is being updated"), "{}", render(&error));
    assert_eq!(cluster.holder(), "n1");
    undo(first.path(), &cluster, &UpdateOutcome::RolledBack("the kubelet died".into())).unwrap();
    assert!(!cordoned(&cluster), "a node that has rolled back takes pods again");
    let error = leave(second.path(), &cluster, &request()).unwrap_err();
    assert_eq!(class_of(&error).exit_code(), 3);
    let text = render(&error);
    assert!(text.contains("the rollout of 2 has stopped: n1 took it back: the kubelet died"), "{text}");
    leave(second.path(), &cluster, &DepartureRequest { retry: true, ..request() }).unwrap();
    assert_eq!(cluster.holder(), "n2");
}

#[test]
fn only_what_does_not_pass_is_told_before_a_release_is_staged() {
    let (root, mut cluster) = (root(), FakeCluster::new());
    let held = |cluster: &FakeCluster| RolloutLock::read(&cluster.lease());
    cluster.hold(RolloutLock::absent().taken("n2", release().digest, LOCK_TIME, Timestamp::now()));
    may_leave(root.path(), &cluster, &request()).unwrap();
    cluster.hold(held(&cluster).stopped("n2", release().digest, "the kubelet died", Timestamp::now()));
    let error = may_leave(root.path(), &cluster, &request()).unwrap_err();
    assert_eq!(class_of(&error).exit_code(), 3);
    assert!(render(&error).contains("n2 took it back: the kubelet died"), "{}", render(&error));
    may_leave(root.path(), &cluster, &DepartureRequest { retry: true, ..request() }).unwrap();
    cluster.hold(held(&cluster).free());
    cluster.nodes.lock().unwrap()["n2"]["status"]["conditions"][0]["status"] = json!("Unknown");
    may_leave(root.path(), &cluster, &request()).unwrap();
    cluster.fail(Some("get"));
    may_leave(root.path(), &cluster, &request()).unwrap();
    cluster.trouble =
        "Error from server (Forbidden): leases.coordination.k8s.io \"nqrust-update\" is forbidden";
    let error = may_leave(root.path(), &cluster, &request()).unwrap_err();
    assert!(render(&error).contains("is forbidden"), "{}", render(&error));
    assert_eq!(*cluster.calls.lock().unwrap(), [""; 0], "nothing is changed");
}

#[test]
fn a_gate_that_is_closed_says_why_and_gives_the_lock_back() {
    let (root, cluster) = (root(), FakeCluster::new());
    cluster.nodes.lock().unwrap()["n2"]["status"]["conditions"][0]["status"] = json!("Unknown");
    let error = leave(root.path(), &cluster, &request()).unwrap_err();
    assert_eq!(class_of(&error).exit_code(), 3);
    assert!(render(&error).contains("n2 is not ready"), "{}", render(&error));
    assert_eq!((cluster.holder(), cordoned(&cluster)), (Value::Null, false));
    assert_eq!(*cluster.calls.lock().unwrap(), [""; 0], "who waits keeps nobody else from the lock");
}

/// Wherever kubectl stops to answer, the node is as it was, or knows what it has to undo.
#[test]
fn a_departure_that_is_cut_off_anywhere_is_undone() {
    for fails in ["get", "create", "patch", "taint", "drain", "volumeattachments", "pods", "customresource"] {
        let (root, mut cluster) = (root(), FakeCluster::new());
        cluster.machines = Mutex::new(Some(Vec::new()));
        cluster.fail(Some(fails));
        let error = leave(root.path(), &cluster, &request()).unwrap_err();
        assert_eq!(class_of(&error).exit_code(), 3, "{fails}");
        cluster.fail(None);
        undo(root.path(), &cluster, &UpdateOutcome::Untried).unwrap();
        assert!(!cordoned(&cluster), "{fails}");
        assert_eq!((cluster.holder(), RolloutRecord::read(root.path())), (Value::Null, None), "{fails}");
        leave(root.path(), &cluster, &request()).unwrap();
    }
}

/// As while the address moves to another server.
#[test]
fn a_cluster_that_does_not_answer_for_a_while_is_waited_for() {
    let patient = || DepartureRequest { timeout: LONG, wait: LONG, ..request() };
    for fails in ["get", "create", "patch", "taint", "drain", "volumeattachments", "pods", "customresource"] {
        let (root, mut cluster) = (root(), FakeCluster::new());
        cluster.machines = Mutex::new(Some(Vec::new()));
        // A drain that goes wrong twice in the same way was refused.
        let times = if fails == "drain" { 1 } else { 3 };
        cluster.fail_for(times, fails);
        leave(root.path(), &cluster, &patient()).unwrap();
        assert_eq!((cluster.holder().as_str(), cordoned(&cluster)), (Some("n1"), true), "{fails}");
        undo(root.path(), &cluster, &UpdateOutcome::Good).unwrap();
        assert_eq!((cluster.holder(), cordoned(&cluster)), (Value::Null, false), "{fails}");
    }
}

#[test]
fn an_access_that_is_refused_is_not_waited_for() {
    for trouble in [
        "error: You must be logged in to the server (Unauthorized)",
        "Error from server (Forbidden): leases.coordination.k8s.io \"nqrust-update\" is forbidden",
        "Unable to connect to the server: tls: failed to verify certificate: x509: certificate signed by unknown authority",
        "error: stat /run/given: no such file or directory",
    ] {
        let (root, cluster) = (root(), FakeCluster { trouble, ..FakeCluster::new() });
        cluster.fail(Some("get"));
        let error = leave(root.path(), &cluster, &DepartureRequest { wait: LONG, ..request() }).unwrap_err();
        assert_eq!(class_of(&error).exit_code(), 3);
        assert!(!render(&error).contains("--wait"), "{}", render(&error));
    }
}

#[test]
fn a_lock_that_is_written_without_an_answer_is_its_own() {
    let (root, cluster) = (root(), FakeCluster::new());
    let lossy = Lossy(&cluster);
    let node_departure = NodeDeparture::open(root.path(), &lossy, None, &|_| ()).unwrap();
    node_departure.leave(&request(), &release(), &never()).unwrap();
    assert_eq!(cluster.holder(), "n1");
}

#[test]
fn a_drain_that_is_refused_says_why_though_there_is_time() {
    let (root, mut cluster) = (root(), FakeCluster::new());
    cluster.trouble = "cannot delete Pods that declare no controller: shop/once";
    cluster.fail(Some("drain"));
    let error = leave(root.path(), &cluster, &DepartureRequest { timeout: LONG, ..request() }).unwrap_err();
    assert!(render(&error).contains("shop/once"), "{}", render(&error));
    assert_eq!((cluster.holder(), cordoned(&cluster)), (Value::Null, false));
}

#[test]
fn a_node_without_the_access_of_an_administrator_needs_one() {
    let (root, cluster) = (root(), FakeCluster::new());
    fs::remove_file(below(root.path(), "/etc/kubernetes/admin.conf")).unwrap();
    let error = leave(root.path(), &cluster, &request()).unwrap_err();
    assert_eq!(class_of(&error).exit_code(), 3);
    assert!(render(&error).contains("--kubeconfig FILE"));
    let given = root.path().join("given");
    let leave_with_given = || {
        NodeDeparture::open(root.path(), &cluster, Some(&given), &|_| ())?.leave(
            &request(),
            &release(),
            &never(),
        )
    };
    let error = leave_with_given().unwrap_err();
    assert_eq!(class_of(&error).exit_code(), 2);
    assert!(
        render(&error).contains("given gives no access to a cluster")
            && render(&error).contains("No such file")
    );
    nix::unistd::mkfifo(&given, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert!(render(&leave_with_given().unwrap_err()).contains("it is not a file"));
    fs::remove_file(&given).unwrap();
    fs::write(&given, "").unwrap();
    leave_with_given().unwrap();
    // The boot after it has the access still.
    undo(root.path(), &cluster, &UpdateOutcome::Good).unwrap();
    assert_eq!(RolloutRecord::kept_access(root.path()), None);
    fs::write(below(root.path(), DOCUMENT), "install: {mode: install}\n").unwrap();
    let error = leave(root.path(), &cluster, &request()).unwrap_err();
    assert!(render(&error).contains("not in a cluster"));
}
