//! APIs of Kubernetes that this cluster uses and a later version no longer has.
//!
//! Each API server counts the requests for APIs that are deprecated, since it was started (Kubernetes, "Deprecation guide":
//! `apiserver_requested_deprecated_apis`, with the release that removes each).

use std::fmt;
use std::path::Path;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::api::kubelet::KubeApi;
use crate::rollout::admin::own_kubeconfig;
use machine::paths::below;
use model::config::Distribution;
use model::kubernetes::KubernetesVersion;

const METRIC: &str = "apiserver_requested_deprecated_apis";
/// The API server of the node itself: others have their own counts.
const LOCAL: &str = "https://127.0.0.1:6443";
/// The metrics of an API server have some megabytes.
const TIMEOUT: Duration = Duration::from_secs(30);

/// A minor version of Kubernetes, such as 1.32.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct MinorVersion(u32, u32);

impl MinorVersion {
    fn read(text: &str) -> Option<Self> {
        let (major, minor) = text.split_once('.')?;
        Some(Self(major.parse().ok()?, minor.parse().ok()?))
    }

    fn of(version: &KubernetesVersion) -> Self {
        Self(version.major(), version.minor())
    }
}

/// An API that was requested lately, and is removed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct RemovedApi {
    /// Empty for the core group.
    pub group: String,
    pub version: String,
    /// In the plural, as kubectl names it.
    pub resource: String,
    /// The version of Kubernetes that no longer has it, such as 1.32.
    pub removed_in: String,
}

impl fmt::Display for RemovedApi {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { group, version, resource, removed_in } = self;
        let separator = if group.is_empty() { "" } else { "/" };
        write!(
            f,
            "{resource} of {group}{separator}{version} is in use, and Kubernetes {removed_in} no longer has it"
        )
    }
}

impl RemovedApi {
    /// What to do about such APIs.
    pub const HINT: &str = "The audit log names who requests it (annotation k8s.io/deprecated). Move that to a later version of the API before \
                            the cluster moves to that Kubernetes.";

    /// Those of the API server on the node at `root` that `brought` no longer has; none on a node without an API server, and where
    /// `brought` is of the minor version `runs`, or an older one.
    ///
    /// # Errors
    /// Why they are not known, a clause.
    pub fn in_use(
        root: &Path,
        distribution: Distribution,
        runs: &KubernetesVersion,
        brought: &KubernetesVersion,
    ) -> Result<Vec<Self>, String> {
        let access = own_kubeconfig(distribution);
        if MinorVersion::of(brought) <= MinorVersion::of(runs) || !below(root, access).exists() {
            return Ok(Vec::new());
        }
        let metrics = KubeApi::open_for(root, access, TIMEOUT)?.at(LOCAL).metrics()?;
        Ok(removed(&metrics, MinorVersion::of(brought)))
    }
}

/// The APIs in these metrics that `brought` no longer has, each once.
fn removed(metrics: &str, brought: MinorVersion) -> Vec<RemovedApi> {
    let samples = metrics.lines().filter_map(|line| line.strip_prefix(METRIC)?.strip_prefix('{'));
    let mut found: Vec<_> = samples
        .filter_map(sample)
        .filter(|api| MinorVersion::read(&api.removed_in).is_some_and(|removed| removed <= brought))
        .collect();
    found.sort();
    found.dedup();
    found
}

/// A sample in the text format of Prometheus, behind its opening brace; none if it was not requested. No label of this metric has a
/// character that is escaped.
fn sample(rest: &str) -> Option<RemovedApi> {
    let (labels, value) = rest.rsplit_once('}')?;
    if value.split_whitespace().next()?.parse::<f64>().ok()? == 0.0 {
        return None;
    }
    let label = |name: &str| {
        let pairs = labels.split("\",").filter_map(|pair| pair.split_once("=\""));
        let mut values =
            pairs.filter(|(key, _)| *key == name).map(|(_, value)| value.trim_end_matches('"').to_owned());
        values.next()
    };
    Some(RemovedApi {
        group: label("group")?,
        version: label("version")?,
        resource: label("resource")?,
        removed_in: label("removed_release")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const METRICS: &str = "\
# HELP apiserver_requested_deprecated_apis [STABLE] Gauge of deprecated APIs that have been requested, broken out by API group.
# TYPE apiserver_requested_deprecated_apis gauge
apiserver_requested_deprecated_apis{group=\"flowcontrol.apiserver.k8s.io\",removed_release=\"1.32\",resource=\"flowschemas\",subresource=\"\",version=\"v1beta3\"} 1
apiserver_requested_deprecated_apis{group=\"flowcontrol.apiserver.k8s.io\",removed_release=\"1.32\",resource=\"flowschemas\",subresource=\"status\",version=\"v1beta3\"} 1
apiserver_requested_deprecated_apis{group=\"\",removed_release=\"\",resource=\"componentstatuses\",subresource=\"\",version=\"v1\"} 1
apiserver_requested_deprecated_apis{group=\"\",removed_release=\"1.100\",resource=\"endpoints\",subresource=\"\",version=\"v1\"} 1
apiserver_requested_deprecated_apis{group=\"batch\",removed_release=\"1.25\",resource=\"cronjobs\",subresource=\"\",version=\"v1beta1\"} 0
apiserver_requested_deprecated_apis_other{group=\"x\",removed_release=\"1.2\",resource=\"y\",subresource=\"\",version=\"v1\"} 1
apiserver_request_total{code=\"200\"} 7
";

    fn told(brought: &str) -> Vec<String> {
        removed(METRICS, MinorVersion::read(brought).unwrap()).iter().map(ToString::to_string).collect()
    }

    #[test]
    fn an_api_that_is_used_and_removed_is_told_once() {
        assert_eq!(told("1.31"), [""; 0]);
        let flow = "flowschemas of flowcontrol.apiserver.k8s.io/v1beta3 is in use, and Kubernetes 1.32 no longer has it";
        assert_eq!(told("1.32"), [flow]);
        assert_eq!(told("1.99"), [flow], "1.100 is later than 1.99");
        assert_eq!(told("1.100"), ["endpoints of v1 is in use, and Kubernetes 1.100 no longer has it", flow]);
    }

    #[test]
    fn nothing_is_asked_where_the_minor_version_stays_or_no_api_server_is() {
        let root = tempfile::tempdir().unwrap();
        let version = |text: &str| text.parse::<KubernetesVersion>().unwrap();
        let in_use = |runs: &str, brought: &str| {
            RemovedApi::in_use(root.path(), Distribution::Kubeadm, &version(runs), &version(brought))
        };
        assert_eq!(in_use("v1.37.2", "v1.38.0"), Ok(Vec::new()), "a worker");
        let access = below(root.path(), own_kubeconfig(Distribution::Kubeadm));
        std::fs::create_dir_all(access.parent().unwrap()).unwrap();
        std::fs::write(&access, "users: []\n").unwrap();
        assert_eq!(in_use("v1.37.2", "v1.37.3"), Ok(Vec::new()));
        let why = in_use("v1.37.2", "v1.38.0").unwrap_err();
        assert!(why.contains("names no server or no user"), "{why}");
    }
}
