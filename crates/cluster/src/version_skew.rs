//! The steps between versions of Kubernetes that are allowed: decisions without effects.
//!
//! The rules are those of Kubernetes ("Version Skew Policy"): API servers differ by one minor version at most, a kubelet is never
//! newer than an API server that it talks to and at most three minor versions older; and minor versions are taken one by one, as
//! etcd and stored objects are only ever tested so. RKE2 and K3s have the same rules.

use std::fmt;

use serde::Serialize;

use base::failure::{Class, Failure};
use model::kubernetes::KubernetesVersion;

/// How much older a kubelet may be than an API server, in minor versions.
const KUBELET_MINORS: u32 = 3;

/// What an OS that brings a version means for the one that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum KubernetesStep {
    /// It brings the same.
    None,
    /// A step of its own, after the OS, moves the node to it.
    Newer,
    /// It is not used: the version that runs goes on.
    Older,
}

/// The step from the version `runs` to the version `brought`.
///
/// # Errors
/// [`Class::Hardware`] if no step leads there, as a minor version would be skipped.
pub fn step(runs: &KubernetesVersion, brought: &KubernetesVersion) -> Result<KubernetesStep, Failure> {
    if brought == runs {
        return Ok(KubernetesStep::None);
    }
    if brought < runs {
        return Ok(KubernetesStep::Older);
    }
    if brought.major() == runs.major() && brought.minor() <= runs.minor() + 1 {
        return Ok(KubernetesStep::Newer);
    }
    let what = format!("no step leads from Kubernetes {runs}, which runs here, to {brought}");
    Err(Failure::new(Class::Hardware, what)
        .because("minor versions are taken one by one, and at least one would be skipped")
        .hint(format!(
            "Take a release with Kubernetes {}.{} first, and move the cluster to that: installer update kubernetes",
            runs.major(),
            runs.minor() + 1
        )))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MovedPart {
    /// It has an API server.
    Server,
    /// It has etcd, and a kubelet of the others' API servers.
    Witness,
    Agent,
}

/// A node of the cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeVersions {
    pub name: String,
    /// Of its kubelet.
    pub kubelet: KubernetesVersion,
    pub ready: bool,
    /// The version of its API server, or why it is unknown; none on a node without one.
    pub api: Option<Result<KubernetesVersion, String>>,
}

/// The cluster of a node that is to be moved.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterVersions {
    pub part: MovedPart,
    /// The name of the node.
    pub name: String,
    /// All nodes, this one too.
    pub nodes: Vec<NodeVersions>,
}

/// Checks that the node may be moved to `to` now.
///
/// # Errors
/// [`Class::Hardware`] with the first reason why not.
pub fn check(cluster: &ClusterVersions, to: &KubernetesVersion) -> Result<(), Failure> {
    let others = || cluster.nodes.iter().filter(|node| node.name != cluster.name);
    for node in cluster.nodes.iter() {
        if node.kubelet.minor() + KUBELET_MINORS < to.minor() {
            return Err(refused(
                to,
                format!(
                    "the kubelet of {} is {}, and may be at most {KUBELET_MINORS} minor versions older than an API server",
                    node.name, node.kubelet
                ),
                "Move that node on first, or take it out of the cluster.",
            ));
        }
    }
    for node in others() {
        let Some(api) = &node.api else { continue };
        let api = match api {
            Ok(api) if node.ready => api,
            Ok(_) => return Err(away(to, node, &"its node is not ready")),
            Err(why) => return Err(away(to, node, why)),
        };
        if cluster.part != MovedPart::Server {
            if api < to {
                let why = format!(
                    "the server {} is at {api}, and a kubelet is never newer than an API server",
                    node.name
                );
                return Err(refused(
                    to,
                    why,
                    "Move the servers first, one by one, on each: installer update kubernetes",
                ));
            }
        } else if api.minor().abs_diff(to.minor()) > 1 {
            let why = format!(
                "the server {} is at {api}, and servers differ by one minor version at most",
                node.name
            );
            return Err(refused(
                to,
                why,
                "Bring all servers to one version first: installer update kubernetes",
            ));
        }
    }
    if cluster.part != MovedPart::Server && others().all(|node| node.api.is_none()) {
        let why = "the cluster shows no server".to_owned();
        return Err(refused(to, why, "See `kubectl get nodes` on a server of the cluster."));
    }
    Ok(())
}

fn away(to: &KubernetesVersion, node: &NodeVersions, why: &dyn fmt::Display) -> Failure {
    refused(
        to,
        format!("the server {} cannot do without this one now: {why}", node.name),
        "Servers are moved one by one while all others work. See `kubectl get nodes`.",
    )
}

fn refused(to: &KubernetesVersion, why: String, hint: &str) -> Failure {
    Failure::new(Class::Hardware, format!("this node cannot be moved to Kubernetes {to} now"))
        .because(why)
        .hint(hint)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn version(text: &str) -> KubernetesVersion {
        text.parse().unwrap()
    }

    #[test]
    fn minor_versions_are_taken_one_by_one() {
        for (runs, brought, expected) in [
            ("v1.37.2", "v1.37.2", Some(KubernetesStep::None)),
            ("v1.37.2", "v1.37.3", Some(KubernetesStep::Newer)),
            ("v1.37.2", "v1.38.0", Some(KubernetesStep::Newer)),
            ("v1.37.2", "v1.39.0", None),
            ("v1.37.2", "v2.37.2", None),
            ("v1.37.2", "v1.37.1", Some(KubernetesStep::Older)),
            ("v1.37.2", "v1.30.0", Some(KubernetesStep::Older)),
            ("v1.33.1+rke2r1", "v1.33.1+rke2r2", Some(KubernetesStep::Newer)),
            ("v1.33.1+k3s1", "v1.35.0+k3s1", None),
        ] {
            assert_eq!(step(&version(runs), &version(brought)).ok(), expected, "{runs} to {brought}");
        }
        let told = base::failure::render(&step(&version("v1.37.2"), &version("v1.39.0")).unwrap_err().into());
        assert!(
            told.contains("minor versions are taken one by one") && told.contains("Kubernetes 1.38"),
            "{told}"
        );
    }

    fn node(name: &str, kubelet: &str, api: Option<Result<&str, &str>>) -> NodeVersions {
        let api = api.map(|api| api.map(version).map_err(str::to_owned));
        NodeVersions { name: name.into(), kubelet: version(kubelet), ready: true, api }
    }

    fn checked(part: MovedPart, nodes: Vec<NodeVersions>, to: &str) -> Result<(), String> {
        let cluster = ClusterVersions { part, name: "self".into(), nodes };
        check(&cluster, &version(to)).map_err(|failure| {
            assert_eq!(failure.class(), Class::Hardware);
            base::failure::render(&failure.into())
        })
    }

    #[test]
    fn servers_are_moved_one_by_one_while_all_others_work() {
        let cluster = |other: NodeVersions| {
            let own = node("self", "v1.37.2", Some(Ok("v1.37.2")));
            checked(MovedPart::Server, vec![own, other], "v1.38.0")
        };
        cluster(node("b", "v1.37.2", Some(Ok("v1.37.2")))).unwrap();
        cluster(node("b", "v1.38.0", Some(Ok("v1.38.0")))).unwrap();
        cluster(node("w", "v1.35.0", None)).unwrap();
        let told = cluster(node("b", "v1.37.2", Some(Err("it is silent")))).unwrap_err();
        assert!(told.contains("b cannot do without this one now: it is silent"), "{told}");
        let told =
            cluster(NodeVersions { ready: false, ..node("b", "v1.37.2", Some(Ok("v1.37.2"))) }).unwrap_err();
        assert!(told.contains("its node is not ready"), "{told}");
        let told = cluster(node("b", "v1.36.1", Some(Ok("v1.36.1")))).unwrap_err();
        assert!(told.contains("servers differ by one minor version at most"), "{told}");
        let told = cluster(node("w", "v1.34.1", None)).unwrap_err();
        assert!(told.contains("the kubelet of w is v1.34.1"), "{told}");
    }

    #[test]
    fn workers_and_the_witness_come_after_every_server() {
        for part in [MovedPart::Agent, MovedPart::Witness] {
            let cluster = |servers: &[&str]| {
                let own = node("self", "v1.37.2", None);
                let servers = servers.iter().zip(["b", "c"]).map(|(at, name)| node(name, at, Some(Ok(at))));
                checked(part, std::iter::once(own).chain(servers).collect(), "v1.37.3")
            };
            cluster(&["v1.37.3", "v1.37.3"]).unwrap();
            cluster(&["v1.38.0"]).unwrap();
            let told = cluster(&["v1.37.3", "v1.37.2"]).unwrap_err();
            assert!(
                told.contains("the server c is at v1.37.2") && told.contains("Move the servers first"),
                "{told}"
            );
            assert!(cluster(&[]).unwrap_err().contains("shows no server"));
        }
    }

    proptest! {
        #[test]
        fn no_step_that_is_allowed_breaks_the_policy(
            to in 30_u32..40, own in 30_u32..40, others in proptest::collection::vec((30_u32..40, proptest::bool::ANY), 1..5),
            part in proptest::sample::select(vec![MovedPart::Server, MovedPart::Witness, MovedPart::Agent]),
        ) {
            let of = |minor: u32| format!("v1.{minor}.0");
            let mut nodes: Vec<_> = others.iter().enumerate().map(|(index, (minor, server))| {
                let at = of(*minor);
                node(&format!("n{index}"), &at, server.then_some(Ok(at.as_str())))
            }).collect();
            nodes.push(node("self", &of(own), (part == MovedPart::Server).then_some(Ok(of(own).as_str()))));
            if checked(part, nodes.clone(), &of(to)).is_err() {
                return Ok(());
            }
            // After the step: every pair of an API server and a kubelet.
            let servers: Vec<u32> = others.iter().filter(|(_, server)| *server).map(|(minor, _)| *minor).collect();
            let own_server = (part == MovedPart::Server).then_some(to);
            for server in servers.iter().copied() {
                prop_assert!(part == MovedPart::Server || to <= server, "a kubelet of {} beside {}", to, server);
                prop_assert!(own_server.is_none_or(|own| own.abs_diff(server) <= 1));
            }
            for (kubelet, _) in &others {
                prop_assert!(own_server.is_none_or(|server| kubelet + 3 >= server));
            }
        }
    }
}
