//! The API server of a cluster that kubeadm joins nodes to.
//!
//! Its public answers carry their own proof ([`super::cluster_info`]). After that only servers of the proven authority are trusted.
//! They get the requests that kubeadm makes with the bootstrap token (`app/cmd/phases/join`).

use reqwest::StatusCode;

use super::authority::{Authority, AuthorityBundle, AuthorityProof, FoundAuthority, other_authority};
use super::cluster_configuration::ClusterConfiguration;
use super::cluster_info::{ClusterInfo, InfoSignature};
use super::conversation::{
    JoinConversation, answer_of, out_of_reach, refuses, silent, strange, unable, unexpected, version_of,
};
use super::members::{self, ClusterPeer};
use super::query::{ClusterAnswers, JoinQuery, see};
use super::server::{JoinServer, RequestLogin, ServerAnswer};
use machine::network_trouble::NetworkTrouble;
use model::config::cluster_secrets::ClusterSecrets;

const VERSION: &str = "/version";
const CLUSTER_INFO: &str = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
/// What a cluster was made with; every bootstrap token may read it.
const CONFIGURATION: &str = "/api/v1/namespaces/kube-system/configmaps/kubeadm-config";
/// The keys of the cluster's authorities, encrypted; tokens of agents may not read them.
const KEYS: &str = "/api/v1/namespaces/kube-system/secrets/kubeadm-certs";
const NODES: &str = "/api/v1/nodes";

pub(super) fn ask(conversation: &JoinConversation<'_>) -> ClusterAnswers {
    let question = conversation.question;
    let mut seen = ClusterAnswers::nothing(question, see("join-server"));
    let anybody = match conversation.server(question.ports.api, None, None) {
        Ok(client) => client,
        Err(trouble) => return ClusterAnswers::nothing(question, trouble),
    };
    let greeting = match greet(&anybody) {
        Ok(greeting) => greeting,
        Err(trouble) => return ClusterAnswers::nothing(question, conversation.with_hint(trouble)),
    };
    seen.server = Ok(());
    seen.clock = greeting.date.map(|date| conversation.offset(date));
    let proof = secrets(question).and_then(|secrets| prove(conversation, &anybody, secrets));
    let Proof { authority, info, secrets } = match proof {
        Ok(proof) => proof,
        Err(Unproven { authority, token }) => {
            let unknown =
                if matches!(token, NetworkTrouble::Silent(_)) { see("join-token") } else { token.clone() };
            seen.authority = Err(authority);
            seen.token = Err(token);
            seen.version = Err(unknown.clone());
            seen.namesake = Err(unknown.clone());
            seen.members = Err(unknown);
            return seen;
        }
    };
    seen.agent_token = agents(question, &info);
    match conversation.server(question.ports.api, Some(&authority.authority), None) {
        Ok(client) => Api { client, token: &secrets }.tell(question, &mut seen),
        Err(trouble) => seen.token = Err(trouble),
    }
    seen.authority = Ok(authority);
    seen
}

/// Asks for `/version`, which every API server answers without a login.
fn greet(client: &JoinServer) -> Result<ServerAnswer, NetworkTrouble> {
    match client.get(VERSION, RequestLogin::None) {
        Ok(answer) if version_of(&answer).is_some() => Ok(answer),
        Ok(answer) => unexpected(
            &answer,
            format!(
                "answers as another service than the Kubernetes API of kubeadm: GET {VERSION} gave {}",
                answer.summary()
            ),
        ),
        Err(trouble) => Err(trouble),
    }
}

/// A cluster that knows the token.
struct Proof {
    authority: FoundAuthority,
    info: ClusterInfo,
    secrets: ClusterSecrets,
}

/// Why the identity of the cluster is unknown, and what that means for the token.
struct Unproven {
    authority: NetworkTrouble,
    token: NetworkTrouble,
}

impl From<NetworkTrouble> for Unproven {
    /// What is wrong with the authority leaves the token untried.
    fn from(authority: NetworkTrouble) -> Self {
        Self { authority, token: see("join-authority") }
    }
}

/// The secrets of the token, which takes some tenths of a second.
fn secrets(question: &JoinQuery) -> Result<ClusterSecrets, Unproven> {
    let unknown = |why: String| Unproven { authority: NetworkTrouble::Unable(why), token: see("join-token") };
    let token = question.token.as_ref();
    let token = token.ok_or_else(|| unknown("cannot be proven without the token; see join-token".into()))?;
    ClusterSecrets::derive(token.password()).map_err(|error| unknown(format!("cannot be proven: {error:#}")))
}

/// Checks that the cluster knows the token, and that its server has a certificate of the authority that it names.
fn prove(
    conversation: &JoinConversation<'_>,
    anybody: &JoinServer,
    secrets: ClusterSecrets,
) -> Result<Proof, Unproven> {
    let question = conversation.question;
    let answer = anybody.get(CLUSTER_INFO, RequestLogin::None)?;
    let Some(info) = ClusterInfo::read(&answer.body).filter(|_| answer.is_ok()) else {
        return Err(untold(&answer).into());
    };
    match info.signature(secrets.id(), secrets.signing_key()) {
        InfoSignature::Good => {}
        InfoSignature::NoneAtAll => {
            let why =
                "has not signed its cluster-info with any token yet, as in the first minute of a cluster";
            return Err(NetworkTrouble::NotYet(why.into()).into());
        }
        InfoSignature::UnknownToken => {
            let why = "cannot be proven, because the cluster does not know the token; see join-token";
            return Err(Unproven {
                authority: NetworkTrouble::Unable(why.into()),
                token: unknown_token(&secrets),
            });
        }
        InfoSignature::Wrong => {
            let why = format!(
                "signs its cluster-info with another token of the same id {}: \
                 it is another cluster, or pretends to be this one",
                secrets.id()
            );
            return Err(NetworkTrouble::Silent(why).into());
        }
    }
    let Some(bundle) = info.authority().as_deref().and_then(AuthorityBundle::read) else {
        let why = format!("has signed no certificates: those in GET {CLUSTER_INFO} cannot be read");
        return Err(NetworkTrouble::Silent(why).into());
    };
    let wanted = question.token.as_ref().and_then(|token| token.authority);
    let is_wanted = |authority: &Authority| wanted.is_none_or(|wanted| authority.digest == wanted);
    let candidates: Vec<_> = bundle.keys().filter(is_wanted).collect();
    if let (true, Some(wanted)) = (candidates.is_empty(), wanted) {
        return Err(other_authority(bundle.keys(), wanted).into());
    }
    let authority = conversation.proven(question.ports.api, VERSION, candidates)?;
    let proof = if wanted.is_some() { AuthorityProof::Named } else { AuthorityProof::Signed };
    Ok(Proof { authority: FoundAuthority { authority, proof }, info, secrets })
}

/// Why there is no ConfigMap about the cluster.
fn untold(answer: &ServerAnswer) -> NetworkTrouble {
    let why = match answer.status {
        StatusCode::NOT_FOUND => ": it was not made by kubeadm, or is still starting",
        status if refuses(status) => ": it answers only nodes that have joined",
        _ => "",
    };
    let what = format!("does not identify its cluster: GET {CLUSTER_INFO} gave {}{why}", answer.summary());
    // kubeadm makes the ConfigMap, and lets everybody read it, as one of its last steps. Until then the API forbids it, or
    // does not find it.
    match answer.status {
        StatusCode::NOT_FOUND | StatusCode::FORBIDDEN => NetworkTrouble::NotYet(what),
        status if status.is_server_error() => NetworkTrouble::NotYet(what),
        _ => NetworkTrouble::Silent(what),
    }
}

fn unknown_token(secrets: &ClusterSecrets) -> NetworkTrouble {
    NetworkTrouble::Silent(format!(
        "is not known to the cluster, which has no bootstrap token {}: it is wrong, or was deleted there, or this is another \
         cluster",
        secrets.id()
    ))
}

/// Whether the cluster knows the agents' token that a server brings along.
fn agents(question: &JoinQuery, info: &ClusterInfo) -> Option<Result<(), NetworkTrouble>> {
    let token = question.agent_token.as_ref().filter(|_| question.server)?;
    let secrets = match ClusterSecrets::derive(token.password()) {
        Ok(secrets) => secrets,
        Err(error) => return Some(unable(format!("cannot be tried: {error:#}"))),
    };
    Some(match info.signature(secrets.id(), secrets.signing_key()) {
        InfoSignature::Good => Ok(()),
        _ => Err(unknown_token(&secrets)),
    })
}

/// The API of the proven cluster, with the login of one that joins.
struct Api<'a> {
    client: JoinServer,
    token: &'a ClusterSecrets,
}

impl Api<'_> {
    fn login(&self) -> RequestLogin<'_> {
        RequestLogin::Bearer(&self.token.bootstrap_token)
    }

    fn tell(&self, question: &JoinQuery, seen: &mut ClusterAnswers) {
        let configuration = self.client.get(CONFIGURATION, self.login());
        seen.token = match &configuration {
            Ok(answer) => admitted(answer.status).and_then(|()| match question.server {
                true => self.gets_keys(),
                false => Ok(()),
            }),
            Err(trouble) => untried(trouble.clone()),
        };
        let configuration = configuration.map_err(out_of_reach).and_then(|answer| {
            let unreadable = || match answer.is_ok() {
                true => strange(&format!("GET {CONFIGURATION}")),
                false => NetworkTrouble::Unable(format!(
                    "cannot be asked for: GET {CONFIGURATION} gave {}",
                    answer.summary()
                )),
            };
            ClusterConfiguration::read(&answer.body).filter(|_| answer.is_ok()).ok_or_else(unreadable)
        });
        seen.networks = configuration.as_ref().ok().and_then(|configuration| configuration.networks);
        seen.version = configuration.map(|configuration| configuration.version);
        seen.namesake = match &question.name {
            Some(name) => self.namesake(name),
            None => Ok(None),
        };
        seen.members = answer_of(&self.client, NODES, self.login())
            .and_then(|body| members::members(&body).map_err(|_| strange(&format!("GET {NODES}"))));
    }

    /// Checks that the token can read the Secret with the keys that a further server needs. The keys are not requested.
    fn gets_keys(&self) -> Result<(), NetworkTrouble> {
        let answer = match self.client.metadata(KEYS, self.login()) {
            Ok(answer) => answer,
            Err(trouble) => return untried(trouble),
        };
        match answer.status {
            StatusCode::OK => Ok(()),
            StatusCode::FORBIDDEN => silent("is the token of agents, and does not let a server in"),
            StatusCode::NOT_FOUND => silent(
                "is good, but the cluster no longer keeps the keys that a further server needs (Secret kubeadm-certs of \
                 namespace kube-system), and takes agents only",
            ),
            status => admitted(status),
        }
    }

    /// The node of this name. A token may ask for one that it can name.
    fn namesake(&self, name: &str) -> Result<Option<ClusterPeer>, NetworkTrouble> {
        // The API knows names in lower case only.
        let path = format!("{NODES}/{}", name.to_ascii_lowercase());
        let answer = self.client.get(&path, self.login()).map_err(out_of_reach)?;
        match answer.status {
            StatusCode::NOT_FOUND => Ok(None),
            StatusCode::OK => {
                members::member(&answer.body).map(Some).map_err(|_| strange(&format!("GET {path}")))
            }
            _ => unable(format!("cannot be asked for: GET {path} gave {}", answer.summary())),
        }
    }
}

fn untried(trouble: NetworkTrouble) -> Result<(), NetworkTrouble> {
    let (NetworkTrouble::Silent(why) | NetworkTrouble::NotYet(why) | NetworkTrouble::Unable(why)) = trouble;
    unable(format!("could not be tried: the server {why}"))
}

/// The cluster has signed with the token, so it knows it. The token may still be for signing only, or deleted since.
fn admitted(status: StatusCode) -> Result<(), NetworkTrouble> {
    match status {
        StatusCode::OK => Ok(()),
        status if refuses(status) => silent(format!("is refused: the server answered {status} to its login")),
        status => {
            unable(format!("could not be tried: the server answered {status}, as it does while it starts"))
        }
    }
}
