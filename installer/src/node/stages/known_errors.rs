//! Messages that the services of RKE2 and K3s write into their journal, in words for the person who has to act.
//!
//! The messages are those of k3s `pkg/clientaccess`, `pkg/agent/config`, `pkg/cluster`, `pkg/etcd`, of rke2 `pkg/bootstrap`, of
//! etcd and of the kubelet. One that is not in the table is shown as it is.

use serde_json::Value;

use model::config::diagnostic::HIDDEN;

/// The longest message that is shown as it is, in characters.
const MESSAGE_CHARS_MAX: usize = 300;

/// A problem that keeps a node from joining its cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct JoinTrouble {
    /// What it is.
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

const TOKEN: &str = "Correct `token` in /oem/node.yaml (it is server/node-token below the distribution's directory \
                     on a server), then restart the node.";
const SAME_NAME: &str = "Give the node a name of its own in `os.hostname`. If it is the same machine installed again: \
                         kubectl delete node NAME, on a node of the cluster.";
const OLD_DATA: &str = "Install the node again: its data belongs to another cluster.";
const CLOCK: &str = "Correct the clock, on this node and on the servers; see `os.ntp_servers`.";
const REACH: &str =
    "Check `server_url`, that a server runs, and that the network lets the node through to it.";

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
    passing(&["too many learner members"], "another server is joining etcd, and one joins at a time", ""),
    passing(
        &["learner member", "in sync with leader"],
        "etcd on this node is copying what the others have",
        "",
    ),
    passing(&["not yet valid"], "a certificate is not valid at the time that this node's clock shows", CLOCK),
    lasting(
        &["bind: address already in use"],
        "a port that the service needs is taken by another program",
        "See which with: ss -ltnp",
    ),
    lasting(
        &["no space left on device"],
        "the persistent partition is full",
        "See what fills it with: du -xh -d 3 /var",
    ),
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
    let said: Vec<JournalLine> = lines.iter().map(|line| JournalLine::parse(line)).collect();
    let known: Vec<JoinTrouble> = said.iter().rev().filter_map(|said| known(&said.message)).collect();
    let lasting = known.iter().find(|trouble| trouble.lasting).or(known.first());
    lasting.cloned().or_else(|| {
        let error = said.iter().rev().find(|said| said.error)?;
        Some(JoinTrouble::passing(shortened(&error.message)))
    })
}

struct JournalLine {
    message: String,
    error: bool,
}

impl JournalLine {
    fn parse(line: &str) -> Self {
        if let Some((_, rest)) = line.split_once(" msg=") {
            let level = |level: &str| line.contains(&format!("level={level} "));
            let quoted = serde_json::Deserializer::from_str(rest).into_iter::<Value>().next();
            let message = match quoted {
                Some(Ok(Value::String(message))) => message,
                _ => rest.to_owned(),
            };
            return Self { message, error: level("error") || level("fatal") };
        }
        // klog: a letter for the level and the date, `E1121 12:30:57.000000    1234 file.go:12] message`.
        let mut letters = line.chars();
        let level = letters.next().filter(|_| letters.next().is_some_and(|c| c.is_ascii_digit()));
        match (level, line.split_once("] ")) {
            (Some(level @ ('I' | 'W' | 'E' | 'F')), Some((_, message))) => {
                Self { message: message.to_owned(), error: matches!(level, 'E' | 'F') }
            }
            _ => Self { message: line.to_owned(), error: false },
        }
    }
}

/// A message of one line, not too long, without join tokens: they begin with `K10`, then a hash, `::` and the secret.
fn shortened(message: &str) -> String {
    let line = message.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    let line = without_tokens(&line);
    match line.char_indices().nth(MESSAGE_CHARS_MAX) {
        Some((end, _)) => format!("{}...", &line[..end]),
        None => line,
    }
}

/// The text with each join token replaced.
pub(crate) fn without_tokens(text: &str) -> String {
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
    fn tokens_are_not_told() {
        let token = format!("K10{}::server:marked-secret", "a".repeat(64));
        let said = lines(&[&format!("time=\"t\" level=error msg=\"token is \\\"{token}\\\" and bad\"")]);
        assert_eq!(last_error(&said).unwrap().text, format!("token is \"{HIDDEN}\" and bad"));
        assert_eq!(without_tokens("K10 and K10x"), "K10 and K10x");
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
