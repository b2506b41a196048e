//! The steps of a join, in order.

use serde::{Deserialize, Serialize};

use crate::configuration::ClusterPart;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum JoinedPart {
    First,
    Server,
    Witness,
    Agent,
}

impl From<ClusterPart> for JoinedPart {
    fn from(part: ClusterPart) -> Self {
        match part {
            ClusterPart::First => Self::First,
            ClusterPart::Server => Self::Server,
            ClusterPart::Witness => Self::Witness,
            ClusterPart::Agent => Self::Agent,
        }
    }
}

/// One step. Its name is what the record has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct JoinStep {
    pub(super) name: &'static str,
    pub(super) message: &'static str,
    pub(super) action: JoinAction,
    pub(super) undo: Undo,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JoinAction {
    /// kubeadm with this document, once for each list of arguments.
    Kubeadm(&'static [&'static [&'static str]], &'static str),
    /// Waits for the kubelet to get a certificate of its own. kubeadm's phase for it wants the access of an administrator.
    AwaitKubelet,
    /// Waits for the API server of the node; kubeadm's phase for it takes no document.
    AwaitApi,
    /// Keeps the authorities' encrypted keys for servers that join later than in two hours.
    KeepKeys,
    /// Makes the node a member of etcd, by kubeadm with this document. Members that are gone for good are removed first, each time:
    /// somebody may have deleted their nodes since the last attempt.
    JoinEtcd(&'static str),
    /// Refuses a second witness.
    OnlyWitness,
    /// Gives the node these labels, which a kubelet may not give itself, or gives only when it registers.
    Label(&'static [&'static str]),
    /// Removes the credentials by which a witness could act for the cluster.
    ForgetKeys,
    /// Starts the cluster's name servers again where all of them are on one node.
    SpreadNames,
    /// Cordons the node until somebody allows pods.
    Cordon,
}

/// How the remains of a step that was cut off are removed before it runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Undo {
    /// Running the step again is enough.
    Nothing,
    /// Everything that kubeadm made on the node.
    Reset,
    /// Certificates, kubeconfigs and manifests of the control plane, which may be half written.
    Prepared,
    /// What the kubelet starts with, unless it has its own certificate by now.
    Kubelet,
}

// `kubeadm init` in three runs: each skips the phases of the others. Not every phase that runs alone takes a document.
const STARTING: &str = "--skip-phases=wait-control-plane,upload-config,upload-certs,mark-control-plane,bootstrap-token,kubelet-finalize,addon,show-join-command";
const WAITING: &str = "--skip-phases=preflight,certs,kubeconfig,etcd,control-plane,kubelet-start,upload-config,upload-certs,mark-control-plane,bootstrap-token,kubelet-finalize,addon,show-join-command";
/// The phases after which other nodes know of the cluster.
const PUBLISHING: &str = "--skip-phases=preflight,certs,kubeconfig,etcd,control-plane,kubelet-start,wait-control-plane,show-join-command";

const fn kubeadm(
    name: &'static str,
    message: &'static str,
    arguments: &'static [&'static [&'static str]],
    document: &'static str,
    undo: Undo,
) -> JoinStep {
    JoinStep { name, message, action: JoinAction::Kubeadm(arguments, document), undo }
}

const fn own(name: &'static str, message: &'static str, action: JoinAction) -> JoinStep {
    JoinStep { name, message, action, undo: Undo::Nothing }
}

const PREFLIGHT: JoinStep =
    kubeadm("preflight", "Checking the node", &[&["join", "phase", "preflight"]], "join", Undo::Nothing);
const KUBELET: JoinStep =
    kubeadm("kubelet", "Starting the kubelet", &[&["join", "phase", "kubelet-start"]], "join", Undo::Kubelet);
const BOOTSTRAP: JoinStep =
    own("bootstrap", "Waiting for the kubelet's certificate", JoinAction::AwaitKubelet);
const PREPARE: JoinStep = kubeadm(
    "prepare",
    "Fetching the keys of the cluster's authorities",
    &[&["join", "phase", "control-plane-prepare", "all"]],
    "join",
    Undo::Prepared,
);
const ETCD: JoinStep = own("etcd", "Joining etcd", JoinAction::JoinEtcd("join"));
const MARK: JoinStep = kubeadm(
    "mark",
    "Marking the node as a control plane",
    &[&["join", "phase", "control-plane-join", "all"]],
    "join",
    Undo::Nothing,
);
const WAIT: JoinStep = own("wait", "Waiting for the control plane", JoinAction::AwaitApi);
const NAMES: JoinStep = own("names", "Spreading the cluster's name servers", JoinAction::SpreadNames);

const FIRST: &[JoinStep] = &[
    kubeadm(CONTROL_PLANE, "Starting the control plane", &[&["init", STARTING]], "init", Undo::Reset),
    // A step of its own: on a slow machine it may end before the API server answers, which must not begin again.
    kubeadm("api", "Waiting for the API server", &[&["init", WAITING]], "init", Undo::Nothing),
    kubeadm(
        "publish",
        "Letting other nodes join",
        &[&["init", PUBLISHING, "--upload-certs"]],
        "init",
        Undo::Nothing,
    ),
    own("keep-keys", "Keeping the keys for servers that join later", JoinAction::KeepKeys),
];
/// The step after which the node holds a cluster.
pub(super) const CONTROL_PLANE: &str = "control-plane";
const SERVER: &[JoinStep] = &[PREFLIGHT, PREPARE, KUBELET, ETCD, BOOTSTRAP, MARK, WAIT, NAMES];
const AGENT: &[JoinStep] = &[PREFLIGHT, KUBELET, BOOTSTRAP];
/// etcd alone: the node joins as one without a control plane, because the kubelet of a control plane asks an API server on its own
/// node. Whether it may is known before it is registered.
const WITNESS: &[JoinStep] = &[
    PREFLIGHT,
    kubeadm(
        "keys",
        "Fetching the keys of the cluster's authorities",
        &[
            &["join", "phase", "control-plane-prepare", "download-certs"],
            &["join", "phase", "control-plane-prepare", "certs"],
            &["join", "phase", "control-plane-prepare", "kubeconfig"],
        ],
        "etcd",
        Undo::Prepared,
    ),
    own("only-witness", "Looking for other witnesses", JoinAction::OnlyWitness),
    KUBELET,
    BOOTSTRAP,
    own("etcd", "Joining etcd", JoinAction::JoinEtcd("etcd")),
    own("label", "Labelling the node", JoinAction::Label(&["node-role.kubernetes.io/etcd=true"])),
    own("forget-keys", "Removing the keys of the authorities", JoinAction::ForgetKeys),
];
/// An agent that becomes a server.
const PROMOTION: &[JoinStep] = &[
    PREPARE,
    ETCD,
    MARK,
    WAIT,
    own(
        "label",
        "Labelling the node",
        JoinAction::Label(&[
            "node-role.harvesterhci.io/management=true",
            "node-role.harvesterhci.io/worker-",
        ]),
    ),
    NAMES,
];
const CORDON: JoinStep = own("cordon", "Cordoning the node", JoinAction::Cordon);

/// The steps of a node that was nothing before, or, with `promoted`, an agent.
pub(super) fn steps(part: JoinedPart, promoted: bool, cordoned: bool) -> Vec<JoinStep> {
    let steps = match (part, promoted) {
        (JoinedPart::First, _) => FIRST,
        (JoinedPart::Server, true) => PROMOTION,
        (JoinedPart::Server, false) => SERVER,
        (JoinedPart::Witness, _) => WITNESS,
        (JoinedPart::Agent, _) => AGENT,
    };
    steps.iter().copied().chain(cordoned.then_some(CORDON)).collect()
}
