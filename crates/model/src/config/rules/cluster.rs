//! How the node finds its cluster, and what it is there.

use super::distribution;
use document::finding::Finding;

use super::shared::is_unattended;
use crate::config::{Distribution, InstallConfig, Mode, Profile, Role, Secret, ServerUrl, Token};
use document::placeholder::is_no_secret;

/// A token of fewer characters can be found by trying.
const TOKEN: usize = 16;
/// The tokens of the examples in `configs`, which everyone can read.
const EXAMPLES: [&str; 2] =
    ["d3f8a1c07b6e4952a8c4e0f15b9d27361c84ef5a90b2d673", "7e19c4b80d52f6a3c9e8b7405f1a2d6e38b4c07f95d1a62e"];
/// Parts of tokens in examples and manuals.
const COMMON: [&str; 8] =
    ["password", "passw0rd", "secret", "rancher", "harvester", "example", "123456", "qwerty"];

/// The keys of the token of servers that the document has.
fn given_tokens(config: &InstallConfig) -> impl Iterator<Item = &'static str> + use<> {
    let places = [
        ("token", config.token.is_some()),
        ("token_file", config.token_file.is_some()),
        ("token_url", config.token_url.is_some()),
    ];
    places.into_iter().filter(|(_, given)| *given).map(|(path, _)| path)
}

/// The cluster's secret comes from one place. An agent has that of agents, or one of which it follows.
pub(super) fn token_is_given_once(config: &InstallConfig) -> Vec<Finding> {
    let mut given = given_tokens(config);
    let Some(first) = given.next() else {
        let agent = config.install.is_agent();
        let message = match agent {
            true => {
                "a worker that joins a cluster by itself needs `kubernetes.agent_token`, or `token`, `token_file` or `token_url`"
            }
            false => {
                "a node that becomes part of a cluster by itself needs `token`, `token_file` or `token_url`"
            }
        };
        let missing = is_unattended(config) && !(agent && config.kubernetes.agent_token.is_some());
        return missing.then(|| Finding::new("token", "missing-value", message)).into_iter().collect();
    };
    let further = given.map(|path| {
        let message = format!("`{first}` is given too; keep one of them");
        Finding::new(path, "conflicting-keys", message)
    });
    further.collect()
}

/// An agent does not hold what adds a server to its cluster.
pub(super) fn agents_have_no_token_of_servers(config: &InstallConfig) -> Vec<Finding> {
    if !config.install.is_agent() || config.kubernetes.agent_token.is_none() {
        return Vec::new();
    }
    let finding = |path| {
        let message = format!(
            "a worker must not hold the token of servers, with which anybody who takes the machine adds a server to the \
             cluster; remove `{path}` and keep `kubernetes.agent_token`"
        );
        Finding::new(path, "conflicting-keys", message)
    };
    given_tokens(config).map(finding).collect()
}

/// A guessed token is enough to add nodes to the cluster.
pub(super) fn tokens_are_strong(config: &InstallConfig) -> Vec<Finding> {
    let tokens = [("token", &config.token), ("kubernetes.agent_token", &config.kubernetes.agent_token)];
    let given = tokens.into_iter().filter_map(|(path, token)| token.as_ref().map(|token| (path, token)));
    let mut findings: Vec<_> = given
        .filter(|(_, token)| !is_no_secret(token.expose()))
        .filter_map(|(path, token)| {
            let weakness = weakness(token, config.kubernetes.distribution())?;
            let is_example = EXAMPLES.contains(&token.expose());
            Some(match is_unattended(config) && !is_example {
                true => Finding::new(path, "weak-token", weakness),
                false => Finding::warning(path, "weak-token", weakness),
            })
        })
        .collect();
    findings.extend(same_tokens(config));
    findings
}

/// Two forms of one token have one password.
fn same_tokens(config: &InstallConfig) -> Option<Finding> {
    const PATH: &str = "kubernetes.agent_token";
    let password = |token: &Option<Secret>| {
        let token = token.as_ref()?;
        Some(Token::read(token).map_or_else(|_| token.clone(), |read| read.password().clone()))
    };
    let servers = password(&config.token)?;
    if password(&config.kubernetes.agent_token)? != servers {
        return None;
    }
    Some(match config.kubernetes.distribution() {
        Distribution::Kubeadm => {
            let message = "this is the same as `token`; remove it, and agents get a token of their own";
            Finding::new(PATH, "conflicting-keys", message)
        }
        Distribution::Rke2 | Distribution::K3s => {
            let message = "this is the same as `token`, so any node could become a server";
            Finding::warning(PATH, "no-effect", message)
        }
    })
}

fn weakness(token: &Secret, distribution: Distribution) -> Option<String> {
    let text = token.expose().to_ascii_lowercase();
    let common = COMMON.iter().any(|word| text.contains(word));
    if EXAMPLES.contains(&&*text) {
        let message = "the token is from a published example; generate one with `openssl rand -hex 24`";
        Some(message.to_owned())
    } else if distribution == Distribution::Kubeadm
        && let Some(weakness) = distribution::weakness(token.expose())
    {
        Some(weakness)
    } else if text.chars().count() < TOKEN {
        Some(format!("the token has fewer than {TOKEN} characters; generate one with `openssl rand -hex 24`"))
    } else if distribution::has_little_variety(token.expose()) {
        let message =
            "the token is a repeated or sequential pattern; generate one with `openssl rand -hex 24`";
        Some(message.to_owned())
    } else if common {
        Some(
            "the token contains a word that is easy to guess; generate one with `openssl rand -hex 24`"
                .to_owned(),
        )
    } else {
        None
    }
}

/// A node that joins knows where.
pub(super) fn the_cluster_is_named(config: &InstallConfig) -> Vec<Finding> {
    let joins = config.install.mode == Mode::Join;
    let mut findings = Vec::new();
    if joins && is_unattended(config) && config.server_url.is_none() {
        let message = "an unattended join needs `server_url`: https://HOST";
        findings.push(Finding::new("server_url", "missing-value", message));
    }
    if let Some(port) = config.server_url.as_ref().and_then(ServerUrl::unused_port) {
        let message = format!("the port {port} is ignored: nodes know the ports of a cluster");
        findings.push(Finding::warning("server_url", "no-effect", message));
    }
    if joins && config.install.profile == Profile::Trial {
        let message = "the profile trial makes small partitions; a node of a real cluster needs production";
        findings.push(Finding::warning("install.profile", "trial-profile", message));
    }
    findings
}

/// The role is one that the mode has, and what is given fits the role.
pub(super) fn roles_fit(config: &InstallConfig) -> Vec<Finding> {
    let install = &config.install;
    let mut findings = Vec::new();
    if install.mode == Mode::Create && matches!(install.role, Role::Worker | Role::Witness) {
        let message = "the first node of a cluster runs the control plane; this role is for nodes that join";
        findings.push(Finding::new("install.role", "wrong-role", message).suggest("management"));
    }
    if install.mode == Mode::Install && install.role != Role::Default {
        let message = "the role has no effect in the mode install";
        findings.push(Finding::warning("install.role", "wrong-mode", message));
    }
    if install.role == Role::Witness {
        if install.data_disk.is_some() {
            let message = "a witness keeps no data of virtual machines, so this disk has no effect";
            findings.push(Finding::new("install.data_disk", "wrong-role", message));
        }
        if install.cordoned {
            let message = "a witness takes no workloads anyway";
            findings.push(Finding::warning("install.cordoned", "wrong-role", message));
        }
    }
    findings
}
