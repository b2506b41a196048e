//! Messages that the services of a distribution write into their journal, in words for the person who has to act.
//!
//! The messages are those of k3s `pkg/clientaccess`, `pkg/agent/config`, `pkg/cluster`, `pkg/etcd`, of rke2 `pkg/bootstrap`, of
//! kubeadm (`app/discovery/token`, `app/preflight`, `app/cmd/phases/join`), of `installer kubeadm`, of etcd and of the kubelet. One
//! that is not in the table is shown as it is.

use serde_json::Value;

use model::config::diagnostic::HIDDEN;

/// The longest message that is shown as it is, in characters.
const MESSAGE_CHARS_MAX: usize = 300;

/// A problem that keeps a node from joining its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JoinTrouble {
    pub(super) text: String,
    /// What a person can do.
    pub(super) next: Option<String>,
    /// Whether it stays until a person does something.
    pub(super) lasting: bool,
}

impl JoinTrouble {
    /// A problem that may pass.
    pub(super) fn passing(text: String) -> Self {
        Self { text, next: None, lasting: false }
    }
}

struct KnownError {
    /// All of these are in the message.
    parts: &'static [&'static str],
    text: &'static str,
    /// What to do; empty if it passes by itself.
    next: &'static str,
    /// Whether it stays until a person does something.
    lasting: bool,
}

const fn lasting(parts: &'static [&'static str], text: &'static str, next: &'static str) -> KnownError {
    KnownError { parts, text, next, lasting: true }
}

const fn passing(parts: &'static [&'static str], text: &'static str, next: &'static str) -> KnownError {
    KnownError { parts, text, next, lasting: false }
}

/// Begins an error of `installer kubeadm`.
pub(super) const REPORT: &str = "error: ";

pub(super) const CONTESTED: &str = "Find that machine, by the switch's table for example, and give it another address. If it is a node of this cluster, the \
                                    network keeps the nodes' multicast from each other: let 224.0.0.18 through.";
const AWAY: &str = "Start the server that is away. If it is lost for good, on a node of the cluster: kubectl delete node NAME";
pub(super) const FULL: &str = "See what fills it with: du -xh -d 3 /var";
const OTHER_TOKEN: &str = "Correct `token` in /oem/node.yaml (it is that of the first node of the cluster), then: sudo installer \
                           apply";
const WRONG_CLUSTER: &str = "Check `server_url` and `token` in /oem/node.yaml, then: sudo installer apply";
const SMALL: &str = "Set `kubernetes.timing: relaxed` in /oem/node.yaml, then: sudo installer apply. Or give the machine what it asks for.";
const TOKEN: &str = "Correct `token` in /oem/node.yaml (it is server/node-token below the distribution's directory \
                     on a server), then restart the node.";
const SAME_NAME: &str = "Give the node a name of its own in `os.hostname`. If it is the same machine installed again: \
                         kubectl delete node NAME, on a node of the cluster.";
const OLD_DATA: &str = "Install the node again: its data belongs to another cluster.";
const CLOCK: &str = "Correct the clock, on this node and on the servers; see `os.ntp_servers`.";
const REACH: &str =
    "Check `server_url`, that a server runs, and that the network lets the node through to it.";

/// Errors that services log on healthy nodes: a worker of kubeadm has no manifests of its own.
const MEANINGLESS: &[&str] = &["Unable to read config path"];

/// The first match counts: specific messages come before general ones.
const KNOWN: &[KnownError] = &[
    lasting(
        &["token CA hash does not match"],
        "the cluster at server_url is not the one that the token was made for",
        "Check `server_url` and `token` in /oem/node.yaml, then restart the node.",
    ),
    lasting(&["not authorized"], "the cluster refuses the token", TOKEN),
    lasting(&["/v1-", "401 Unauthorized"], "the cluster refuses the token", TOKEN),
    lasting(&["invalid token"], "the token has the wrong format", TOKEN),
    lasting(&["token must not be empty"], "there is no token", TOKEN),
    lasting(&["Node password rejected"], "the cluster has another node of this name", SAME_NAME),
    lasting(&["duplicate node name"], "etcd has another member of this name", SAME_NAME),
    lasting(
        &["encrypted with different token"],
        "the data on this node was made with another token",
        "Put the token of the node's first start back into /oem/node.yaml, or install the node again.",
    ),
    lasting(
        &["critical configuration", "mismatch"],
        "this server's networks or components are not those of the other servers",
        "Make cluster_pod_cidr, cluster_service_cidr, cluster_dns and `kubernetes` the same on all servers.",
    ),
    lasting(&["cluster ID mismatch"], "etcd on this node belongs to another cluster", OLD_DATA),
    lasting(&["permanently removed from the cluster"], "this node was removed from etcd", OLD_DATA),
    lasting(
        &["tocommit", "out of range"],
        "etcd on this node has lost data that the others know it had",
        "Delete the node from the cluster, with its member of etcd, and install it again.",
    ),
    lasting(
        &["database space exceeded"],
        "etcd is full: its data has reached the limit, and the cluster takes no changes",
        "Delete what fills it, then compact and defragment etcd on each server (etcd, \"Maintenance\", space quota).",
    ),
    lasting(
        &["token id", "is invalid for this cluster"],
        "the cluster does not know the token: it is wrong, or was deleted there",
        OTHER_TOKEN,
    ),
    lasting(
        &["could not find a JWS signature"],
        "the cluster does not know the token: it is wrong, was deleted there, or the first server is still starting",
        OTHER_TOKEN,
    ),
    lasting(
        &["failed to verify JWS signature"],
        "the cluster at server_url has another token of the same id: it is not the one that the token is for",
        WRONG_CLUSTER,
    ),
    lasting(
        &["cluster CA found in", "is invalid"],
        "the cluster at server_url is not the one that the token was made for",
        WRONG_CLUSTER,
    ),
    lasting(
        &["already exists in the cluster", "a Node with name"],
        "the cluster has another node of this name, which is ready",
        SAME_NAME,
    ),
    lasting(
        &["secrets \"kubeadm-certs\" is forbidden"],
        "the token is that of agents, and does not let a server in",
        OTHER_TOKEN,
    ),
    lasting(
        &["Secret \"kubeadm-certs\" was not found"],
        "the cluster no longer keeps the keys that a further server needs",
        "Install the node as a worker, or put the keys back: kubeadm init phase upload-certs --upload-certs, on a server.",
    ),
    lasting(
        &["joined its cluster as", "has another address now"],
        "the address of this node has changed, and etcd knows it by the old one",
        "Give it the old address again, by a reservation at the DHCP server or by `method: static`; or delete the node from the \
         cluster and install it again.",
    ),
    lasting(
        &["the cluster has a witness already"],
        "there can be one witness only",
        "Install this machine with another role; or delete the other witness first, if it is gone: kubectl delete node NAME",
    ),
    lasting(
        &["available CPUs", "less than the required"],
        "the machine has too few processors for a control plane",
        SMALL,
    ),
    lasting(
        &["system RAM", "less than the minimum"],
        "the machine has too little memory for a control plane",
        SMALL,
    ),
    lasting(
        &["[ERROR Port-"],
        "a port that the service needs is taken by another program",
        "See which with: ss -ltnp",
    ),
    passing(
        &["etcd takes no further member while one is away"],
        "another server of the cluster is away",
        AWAY,
    ),
    passing(
        &["etcdserver: unhealthy cluster"],
        "etcd takes no further member while one of its members is down",
        AWAY,
    ),
    passing(
        &["etcdserver: no leader"],
        "etcd has no majority of its members",
        "Start the other servers; see `installer status` there.",
    ),
    passing(
        &["etcdserver: request timed out"],
        "etcd does not answer in time: its disk is slow, or its members do not reach each other",
        "",
    ),
    passing(&["too many learner members"], "another server is joining etcd, and one joins at a time", ""),
    passing(
        &["learner member", "in sync with leader"],
        "etcd on this node is copying what the others have",
        "",
    ),
    passing(&["too far to join its cluster"], "the clocks of this node and of its cluster differ", CLOCK),
    passing(&["not yet valid"], "a certificate is not valid at the time that this node's clock shows", CLOCK),
    lasting(
        &["bind: address already in use"],
        "a port that the service needs is taken by another program",
        "See which with: ss -ltnp",
    ),
    lasting(&["no space left on device"], "the persistent partition is full", FULL),
    lasting(
        &["flag provided but not defined"],
        "this version of the distribution does not know an argument",
        "See which with: journalctl -u UNIT",
    ),
    lasting(
        &["unknown flag"],
        "this version of the distribution does not know an argument",
        "Check kubernetes.kubelet_args.",
    ),
    passing(
        &["failed to get runtime image"],
        "the programs of the distribution are neither on the node nor available from a registry",
        "Install from a full medium, or let the node through to the registry.",
    ),
    passing(
        &["failed to pull"],
        "an image is neither in the store nor available from its registry",
        "Install from a full medium, or let the node through to the registry.",
    ),
    passing(
        &["ErrImageNeverPull"],
        "an image is not in the store, and the document allows none from a registry",
        "Install from a full medium.",
    ),
    passing(
        &["ImagePullBackOff"],
        "an image is neither in the store nor available from its registry",
        "Install from a full medium, or let the node through to the registry.",
    ),
    passing(
        &["no default routes found"],
        "the node has no default route",
        "Set install.management_interface.gateway, or let the DHCP server announce one.",
    ),
    passing(&["cni plugin not initialized"], "the network of the pods is not set up yet (CNI)", ""),
    passing(&["cni config uninitialized"], "the network of the pods is not set up yet (CNI)", ""),
    passing(
        &["certificate signed by unknown authority"],
        "the certificate of the server is not from the authority that the node knows",
        "Check `server_url`; a proxy in between must pass TLS through.",
    ),
    passing(&["no such host"], "the name of the server cannot be looked up", REACH),
    passing(&["failed to get CA certs"], "no server answers", REACH),
    passing(&["connection refused"], "a server refuses connections; it may not run yet", ""),
    passing(&["no route to host"], "a server cannot be reached", REACH),
    passing(&["i/o timeout"], "a server does not answer in time", REACH),
    passing(
        &["cannot create certificate signing request"],
        "the cluster does not sign the kubelet's certificate",
        "Check `token` in /oem/node.yaml: the cluster may have deleted it.",
    ),
    passing(&["node \\\"", "\\\" not found"], "the node is not registered yet", ""),
    passing(&["nodes \\\"", "\\\" not found"], "the node is not registered yet", ""),
    passing(
        &["cannot evict a critical pod"],
        "the disk or the memory is nearly full, and the kubelet finds nothing that it may remove",
        FULL,
    ),
    passing(
        &["CrashLoopBackOff"],
        "a part of the cluster on this node ends again and again",
        "See its last words in /var/log/pods.",
    ),
    passing(&["context deadline exceeded"], "a server does not answer in time", REACH),
];

/// The meaning of a message, if it is a known one, followed by the message.
pub(super) fn known(message: &str) -> Option<JoinTrouble> {
    let known = KNOWN.iter().find(|known| known.parts.iter().all(|part| message.contains(part)))?;
    Some(JoinTrouble {
        text: format!("{} ({})", known.text, shortened(message)),
        next: (!known.next.is_empty()).then(|| known.next.to_owned()),
        lasting: known.lasting,
    })
}

/// The most useful error in the lines of a journal, oldest first: the last one that needs a person's action, else the last known
/// one, else the last line of level error.
pub(super) fn last_error(lines: &[String]) -> Option<JoinTrouble> {
    let mut said = JournalLine::all(lines);
    // An attempt of `installer kubeadm` is told of by its own report; what kept the attempts before it has passed.
    let last_report = said.iter().rposition(|said| said.report);
    let mut at = 0..;
    said.retain(|said| at.next() == last_report || !said.report);
    said.retain(|said| !MEANINGLESS.iter().any(|part| said.message.contains(part)));
    let known: Vec<JoinTrouble> = said.iter().rev().filter_map(|said| known(&said.message)).collect();
    let lasting = known.iter().find(|trouble| trouble.lasting).or(known.first());
    lasting.cloned().or_else(|| {
        let error = said.iter().rev().find(|said| said.error)?;
        let next = error.next.as_deref().map(shortened);
        Some(JoinTrouble { next, ..JoinTrouble::passing(shortened(&error.message)) })
    })
}

struct JournalLine {
    message: String,
    error: bool,
    /// Whether `installer kubeadm` says so at the end of an attempt.
    report: bool,
    /// What to do, where the program says so.
    next: Option<String>,
}

impl JournalLine {
    /// All lines; those of one report of `installer kubeadm` ([`base::failure::render`]) make one.
    fn all(lines: &[String]) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for line in lines {
            match all.last_mut().filter(|last| last.error) {
                Some(last) if line.starts_with("  because: ") => {
                    last.message = format!("{}: {}", last.message, &line["  because: ".len()..]);
                }
                Some(last) if line.starts_with("  next: ") => {
                    last.next.get_or_insert_with(|| line["  next: ".len()..].to_owned());
                }
                _ => all.push(Self::parse(line)),
            }
        }
        all
    }

    fn parse(line: &str) -> Self {
        if let Some((_, rest)) = line.split_once(" msg=") {
            let level = |level: &str| line.contains(&format!("level={level} "));
            let quoted = serde_json::Deserializer::from_str(rest).into_iter::<Value>().next();
            let message = match quoted {
                Some(Ok(Value::String(message))) => message,
                _ => rest.to_owned(),
            };
            return Self { message, error: level("error") || level("fatal"), report: false, next: None };
        }
        if let Some(what) = line.strip_prefix(REPORT) {
            return Self { message: what.to_owned(), error: true, report: true, next: None };
        }
        // klog: a letter for the level and the date, `E1121 12:30:57.000000    1234 file.go:12] message`.
        let mut letters = line.chars();
        let level = letters.next().filter(|_| letters.next().is_some_and(|c| c.is_ascii_digit()));
        match (level, line.split_once("] ")) {
            (Some(level @ ('I' | 'W' | 'E' | 'F')), Some((_, message))) => Self {
                message: message.to_owned(),
                error: matches!(level, 'E' | 'F'),
                report: false,
                next: None,
            },
            _ => Self { message: line.to_owned(), error: false, report: false, next: None },
        }
    }
}

/// A message of one line, not too long, without join tokens.
fn shortened(message: &str) -> String {
    let line = message.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let line = without_tokens(&line);
    match line.char_indices().nth(MESSAGE_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

/// The text with each join token replaced: those that begin with `K10`, a hash and `::`, and bootstrap tokens, of which the secret
/// part is.
pub fn without_tokens(text: &str) -> String {
    let mut told = String::new();
    let mut rest = text;
    while let Some(start) = rest.find("K10") {
        let (before, token) = rest.split_at(start);
        told.push_str(before);
        let end = token.find(|c: char| c.is_whitespace() || "\"'`,;)\\".contains(c)).unwrap_or(token.len());
        let (token, after) = token.split_at(end);
        told.push_str(if token.contains("::") { HIDDEN } else { token });
        rest = after;
    }
    without_bootstrap_tokens(&(told + rest))
}

/// `[a-z0-9]{6}.[a-z0-9]{16}`, with nothing of the kind before or after it.
fn without_bootstrap_tokens(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let mut told = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('.') {
        let (before, after) = rest.split_at(at);
        let id = before.chars().rev().take_while(|c| is_part(*c)).count();
        let secret = after[1..].chars().take_while(|c| is_part(*c)).count();
        let is_token = id == 6 && secret == 16;
        told.push_str(before);
        told.push('.');
        if is_token {
            told.push_str(HIDDEN);
        }
        rest = &after[if is_token { 1 + secret } else { 1 }..];
    }
    told + rest
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn lines(lines: &[&str]) -> Vec<String> {
        lines.iter().map(|line| (*line).to_owned()).collect()
    }

    #[test]
    fn what_upstream_writes_is_told_in_words() {
        let hash = "0".repeat(64);
        let other = "1".repeat(64);
        let cases = [
            (format!("token CA hash does not match the Cluster CA certificate hash: {hash} != {other}"), "not the one that the token", true),
            ("failed to retrieve configuration from server: https://127.0.0.1:6444/v1-rke2/config: 401 Unauthorized".into(), "refuses the token", true),
            ("Node password rejected, duplicate hostname or contents of '/etc/rancher/node/password' may not match server node-passwd entry, try enabling a unique node name with the --with-node-id flag".into(), "another node of this name", true),
            ("etcd cluster join failed: duplicate node name found, please use a unique name for this node".into(), "another member of this name", true),
            ("preparing server: failed to bootstrap cluster data: failed to reconcile with local datastore: bootstrap data already found and encrypted with different token".into(), "made with another token", true),
            ("preparing server: failed to validate server configuration: critical configuration value mismatch between servers".into(), "networks or components", true),
            ("request cluster ID mismatch (got 1 want 2)".into(), "another cluster", true),
            ("etcdserver: too many learner members in cluster".into(), "one joins at a time", false),
            ("failed to get CA certs: Get \"https://127.0.0.1:6444/cacerts\": EOF".into(), "no server answers", false),
            ("dial tcp: lookup cluster.example.org: no such host".into(), "cannot be looked up", false),
            ("tls: failed to verify certificate: x509: certificate has expired or is not yet valid: current time 2020-01-01T00:00:00Z is before 2026-01-01T00:00:00Z".into(), "clock", false),
            ("starting kubernetes: listen tcp 0.0.0.0:6443: bind: address already in use".into(), "taken by another program", true),
            ("container runtime network not ready: NetworkReady=false reason:NetworkPluginNotReady message:Network plugin returns error: cni plugin not initialized".into(), "network of the pods", false),
        ];
        for (message, text, lasting) in cases {
            let trouble = known(&message).unwrap_or_else(|| panic!("{message}"));
            assert!(trouble.text.contains(text), "{message}: {}", trouble.text);
            assert_eq!(trouble.lasting, lasting, "{message}");
            assert!(!trouble.lasting || trouble.next.is_some(), "{message}: nothing to do");
        }
    }

    #[test]
    fn each_row_of_the_table_is_reached() {
        for row in KNOWN {
            let message = row.parts.join(" ");
            assert!(known(&message).unwrap().text.starts_with(row.text), "{message} is another row's");
        }
    }

    #[test]
    fn a_reason_that_needs_a_person_is_told_before_a_later_one_that_does_not() {
        let said = lines(&[
            "time=\"2026-11-21T12:00:00Z\" level=info msg=\"Starting rke2 agent v1.33.1+rke2r1\"",
            "time=\"2026-11-21T12:00:01Z\" level=info msg=\"Waiting to retrieve agent configuration; server is not ready: Node password rejected, duplicate hostname or contents of '/etc/rancher/node/password' may not match\"",
            "E1121 12:00:02.000000    1234 server.go:12] \"Failed\" err=\"dial tcp 192.0.2.10:6443: connect: connection refused\"",
        ]);
        assert!(last_error(&said).unwrap().text.starts_with("the cluster has another node of this name ("));
        assert!(last_error(&said[2..]).unwrap().text.starts_with("a server refuses connections"));
        assert_eq!(last_error(&said[..1]), None);
    }

    #[test]
    fn of_the_attempts_to_join_only_the_last_one_counts() {
        let attempt = |because: &str| {
            lines(&[
                "error: Checking the node",
                &format!("  because: {because}"),
                "  next: It is tried again.",
            ])
        };
        let unknown =
            attempt("could not find a JWS signature in the cluster-info ConfigMap for token ID \"abcdef\"");
        let late = attempt("error downloading the secret: context deadline exceeded");
        let said = [unknown.clone(), late.clone()].concat();
        assert_eq!(last_error(&said), last_error(&late));
        assert!(!last_error(&said).unwrap().lasting);
        assert!(last_error(&[late, unknown].concat()).unwrap().lasting);
    }

    #[test]
    fn an_unknown_error_is_shown_as_it_is_and_a_message_that_is_none_is_not() {
        let said = lines(&[
            "time=\"2026-11-21T12:00:00Z\" level=fatal msg=\"starting kubernetes: \\\"odd\\\" thing\"",
            "time=\"2026-11-21T12:00:01Z\" level=info msg=\"all is well\"",
            "I1121 12:00:02.000000    1234 server.go:12] fine",
            "é",
            "",
        ]);
        assert_eq!(last_error(&said).unwrap().text, "starting kubernetes: \"odd\" thing");
        let said = lines(&["F1121 12:00:02.000000    1234 server.go:12] failed to run Kubelet: odd"]);
        assert_eq!(last_error(&said).unwrap().text, "failed to run Kubelet: odd");
    }

    #[test]
    fn what_kubeadm_and_its_programs_write_is_told_in_words() {
        let report = |what: &str, because: &str, next: &str| {
            lines(&[&format!("error: {what}"), &format!("  because: {because}"), &format!("  next: {next}")])
        };
        let failed = "Checking the node: kubeadm has not done it";
        let cases = [
            (
                report(
                    failed,
                    "kubeadm join phase preflight ended with exit status 1: error execution phase preflight: couldn't validate the identity of the API Server: could not find a JWS signature in the cluster-info ConfigMap for token ID \"abcdef\"",
                    "n",
                ),
                "the cluster does not know the token",
                true,
            ),
            (
                report(
                    failed,
                    "couldn't validate the identity of the API Server: failed to verify JWS signature of received cluster info object, can't trust this API Server",
                    "n",
                ),
                "has another token of the same id",
                true,
            ),
            (
                report(
                    failed,
                    "cluster CA found in cluster-info ConfigMap is invalid: none of the public keys \"sha256:00\" are pinned",
                    "n",
                ),
                "not the one that the token was made for",
                true,
            ),
            (
                report(
                    "Fetching the keys",
                    "error downloading certs: error downloading the secret: secrets \"kubeadm-certs\" is forbidden: User \"system:bootstrap:abcdef\" cannot get resource \"secrets\"",
                    "n",
                ),
                "the token is that of agents",
                true,
            ),
            (
                report(
                    "Starting the kubelet",
                    "a Node with name \"node-2\" and status \"Ready\" already exists in the cluster. You must delete the existing Node",
                    "n",
                ),
                "another node of this name",
                true,
            ),
            (
                report(
                    "this node joined its cluster as 192.0.2.11 and has another address now",
                    "it has 192.0.2.9",
                    "n",
                ),
                "the address of this node has changed",
                true,
            ),
            (report("the cluster has a witness already, node-9", "a", "n"), "one witness only", true),
            (
                report(
                    failed,
                    "[preflight] Some fatal errors occurred: [ERROR Port-10250]: Port 10250 is in use",
                    "n",
                ),
                "taken by another program",
                true,
            ),
            (
                report(failed, "[ERROR Mem]: the system RAM (900 MB) is less than the minimum 1700 MB", "n"),
                "too little memory",
                true,
            ),
            (
                lines(&[
                    "E1123 10:00:00.000000     100 kubelet_node_status.go:1] \"Unable to update node status\" err=\"etcdserver: mvcc: database space exceeded\"",
                ]),
                "etcd is full",
                true,
            ),
            (
                lines(&[
                    "E1123 10:00:00.000000     100 eviction_manager.go:1] \"write failed\" err=\"write /var/lib/etcd/member/wal/1.tmp: no space left on device\"",
                ]),
                "the persistent partition is full",
                true,
            ),
            (
                lines(&[
                    "E1123 10:00:00.000000     100 kubelet.go:1] \"Error getting the current node from lister\" err=\"node \\\"node-2\\\" not found\"",
                ]),
                "the node is not registered yet",
                false,
            ),
            (
                lines(&[
                    "E1123 10:00:00.000000     100 pod_workers.go:1] \"Error syncing pod\" err=\"failed to \\\"StartContainer\\\" for \\\"etcd\\\" with ImagePullBackOff\"",
                ]),
                "an image is neither in the store",
                false,
            ),
            (
                lines(&[
                    "E1123 10:00:00.000000     100 reflector.go:1] \"Failed\" err=\"tls: failed to verify certificate: x509: certificate signed by unknown authority\"",
                ]),
                "not from the authority",
                false,
            ),
            (
                lines(&[
                    "E1123 10:00:00.000000     100 reflector.go:1] \"Failed\" err=\"x509: certificate has expired or is not yet valid: current time\"",
                ]),
                "clock",
                false,
            ),
        ];
        for (said, text, lasting) in cases {
            let trouble = last_error(&said).unwrap_or_else(|| panic!("{said:?}"));
            assert!(trouble.text.contains(text), "{said:?}: {}", trouble.text);
            assert_eq!(trouble.lasting, lasting, "{said:?}");
        }
        let said = report("odd", "because of abcdef.0123456789abcdef", "Do something.");
        let trouble = last_error(&said).unwrap();
        assert_eq!(trouble.text, "odd: because of abcdef.[hidden]");
        assert_eq!(trouble.next.as_deref(), Some("Do something."));
    }

    #[test]
    fn what_is_said_all_the_time_explains_nothing() {
        let noise = "E1123 11:48:41.175216   12371 file_linux.go:59] \"Unable to read config path\" err=\"path does not exist, ignoring\" path=\"/etc/kubernetes/manifests\"";
        assert_eq!(last_error(&lines(&[noise])), None);
        let odd = "E1123 11:48:40.000000   12371 kubelet.go:1] \"odd\"";
        assert_eq!(last_error(&lines(&[odd, noise])).unwrap().text, "\"odd\"");
    }

    #[test]
    fn tokens_are_not_told() {
        let token = format!("K10{}::server:marked-secret", "a".repeat(64));
        let said = lines(&[&format!("time=\"t\" level=error msg=\"token is \\\"{token}\\\" and bad\"")]);
        assert_eq!(last_error(&said).unwrap().text, format!("token is \"{HIDDEN}\" and bad"));
        assert_eq!(without_tokens("K10 and K10x"), "K10 and K10x");
        for (text, told) in [
            ("token abcdef.0123456789abcdef is", "token abcdef.[hidden] is"),
            ("a.b abcdef.0123456789abcdef.", "a.b abcdef.[hidden]."),
            ("xabcdef.0123456789abcdef", "xabcdef.0123456789abcdef"),
            ("abcdef.0123456789abcdef0", "abcdef.0123456789abcdef0"),
            ("lookup vip.example.org: no such host", "lookup vip.example.org: no such host"),
        ] {
            assert_eq!(without_tokens(text), told);
        }
    }

    proptest! {
        #[test]
        fn no_line_is_too_odd_and_none_is_told_at_length(line in "\\PC{0,400}") {
            if let Some(trouble) = last_error(std::slice::from_ref(&line)) {
                prop_assert!(trouble.text.chars().count() < 2 * MESSAGE_CHARS_MAX);
            }
            without_tokens(&line);
        }
    }
}
