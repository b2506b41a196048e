//! Whether the token is one for the role.

use super::*;

const BOOTSTRAP: &str = "abcdef.hush456789abcdef";

/// A server with a token of its own for agents.
fn parted() -> SupervisorBehavior {
    let bootstrap_token = Some(BOOTSTRAP.to_owned());
    SupervisorBehavior {
        server_token: SERVER.into(),
        agent_token: AGENT.into(),
        bootstrap_token,
        ..SupervisorBehavior::default()
    }
}

#[test]
fn each_role_needs_its_token() {
    use Role::{Default, Management, Witness, Worker};
    let keys = Keys::make();
    let server = keys.start(parted());
    let agent = "is the token of agents, and does not let a server in";
    let servers = "is the token of the servers, and the agents of this cluster have another";
    let cases = [
        (Management, SERVER, "passed", "for role management"),
        (Witness, SERVER, "passed", ""),
        (Worker, AGENT, "passed", ""),
        (Default, AGENT, "passed", ""),
        (Worker, BOOTSTRAP, "passed", ""),
        (Management, AGENT, "found", agent),
        (Witness, AGENT, "found", agent),
        (Worker, SERVER, "found", servers),
        (Management, BOOTSTRAP, "found", "is a bootstrap token, which lets agents in and no servers"),
        (
            Management,
            "hushed",
            "found",
            "is refused: the server answered 401 Unauthorized to the login of a server",
        ),
        (
            Worker,
            "hushed",
            "found",
            "is refused: the server answered 401 Unauthorized to the login of an agent",
        ),
    ];
    for (role, token, word, part) in cases {
        let talk = Talk::begin(joining(role, server.port(), token));
        talk.expect("join-token", word, part);
    }
}

#[test]
fn a_token_that_is_none_is_told_without_being_shown() {
    let keys = Keys::make();
    let server = keys.start(good());
    let talk = Talk::begin(joining(Role::Worker, server.port(), "K10hush"));
    talk.expect("join-token", "found", "the token begins with K10");
    assert!(talk.next("join-token").contains("/var/lib/rancher/rke2/server/agent-token"));
    talk.expect("join-hostname", "could not run", "see join-token");
    let node = joining(Role::Management, server.port(), SERVER);
    let talk = Talk::begin(with(node, |join| join.agent_token = Some(Secret::new("K10hush"))));
    talk.expect("join-token", "found", "kubernetes.agent_token begins with K10");
    let node = joining(Role::Management, server.port(), SERVER);
    let talk = Talk::begin(with(node, |join| join.token = None));
    talk.expect("join-token", "could not run", "does not hold the token itself");
}

#[test]
fn the_agent_token_that_a_server_brings_along_has_to_be_the_cluster_s() {
    let keys = Keys::make();
    let server = keys.start(parted());
    for (token, word, part) in
        [(AGENT, "passed", ""), ("hushed", "found", "kubernetes.agent_token is refused")]
    {
        let node = joining(Role::Management, server.port(), SERVER);
        let talk = Talk::begin(with(node, |join| join.agent_token = Some(Secret::new(token))));
        talk.expect("join-token", word, part);
    }
    // Without it the nodes cannot be asked for, which is no reason not to join.
    let talk = Talk::begin(joining(Role::Management, server.port(), SERVER));
    talk.expect("join-token", "passed", "");
    talk.expect("join-hostname", "could not run", "client-kube-proxy.crt gave 401 Unauthorized");
}

#[test]
fn a_cluster_without_etcd_takes_no_second_server() {
    let keys = Keys::make();
    let server = keys.start(SupervisorBehavior { etcd: false, ..good() });
    let talk = Talk::begin(joining(Role::Management, server.port(), SERVER));
    talk.expect("join-token", "found", "the cluster has no etcd that another server could join");
    let talk = Talk::begin(joining(Role::Worker, server.port(), SERVER));
    talk.expect("join-token", "passed", "");
}

#[test]
fn a_server_that_cannot_tell_now_has_not_refused() {
    let keys = Keys::make();
    for (path, role) in [("/v1-rke2/server-bootstrap", Role::Management), ("/v1-rke2/config", Role::Worker)] {
        for (status, word, part) in [
            (503, "could not run", "answered 503 Service Unavailable"),
            (403, "found", "answered 403 Forbidden"),
        ] {
            let statuses = [(path.to_owned(), status)].into();
            let server = keys.start(SupervisorBehavior {
                server_token: SERVER.into(),
                statuses,
                ..SupervisorBehavior::default()
            });
            // The other user has another password, so that nothing but the status speaks.
            let talk =
                Talk::begin(joining(role, server.port(), if role == Role::Worker { AGENT } else { SERVER }));
            talk.expect("join-token", word, part);
        }
    }
}
