//! The lock of a cluster's updates: the Lease `kube-system/nqrust-update` (Kubernetes API, Lease v1), which one node holds from before
//! it leaves until its verdict. It expires, so that a node that is gone for good does not stop the others; one that is marked as
//! failed does not, so that they stop.

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use base::digest::Digest;

pub const NAMESPACE: &str = "kube-system";
pub const NAME: &str = "nqrust-update";
/// The release that the holder tries.
const RELEASE: &str = "nqrust.io/update-digest";
/// Why the holder took it back.
const FAILED: &str = "nqrust.io/update-failed";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RolloutLock {
    /// The name of a node; none if it is free.
    pub holder: Option<String>,
    pub renewed: Option<Timestamp>,
    pub duration: SignedDuration,
    pub release: Option<Digest>,
    /// Why the holder took its release back.
    pub failed: Option<String>,
    /// A replacement has to name it, so that only one of two succeeds; none where there is no Lease yet.
    version: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LockDecision {
    /// It is free, its own, or its holder's time is over.
    Take,
    /// Another node has it.
    Busy { holder: String },
    /// A node took this very release back.
    Stopped { holder: String, why: String },
}

impl RolloutLock {
    /// Before the first rollout of a cluster.
    #[must_use]
    pub fn absent() -> Self {
        Self {
            holder: None,
            renewed: None,
            duration: SignedDuration::ZERO,
            release: None,
            failed: None,
            version: None,
        }
    }

    /// Reads the Lease. What cannot be read in it counts as not there: nobody else writes it.
    #[must_use]
    pub fn read(lease: &Value) -> Self {
        let text = |value: &Value| value.as_str().filter(|text| !text.is_empty()).map(str::to_owned);
        let annotation = |name: &str| text(&lease["metadata"]["annotations"][name]);
        Self {
            holder: text(&lease["spec"]["holderIdentity"]),
            renewed: text(&lease["spec"]["renewTime"]).and_then(|time| time.parse().ok()),
            duration: SignedDuration::from_secs(lease["spec"]["leaseDurationSeconds"].as_i64().unwrap_or(0)),
            release: annotation(RELEASE).and_then(|digest| digest.parse().ok()),
            failed: annotation(FAILED),
            version: text(&lease["metadata"]["resourceVersion"]),
        }
    }

    /// Whether node `me` may take it to try `release`.
    #[must_use]
    pub fn decide(&self, me: &str, release: Digest, retry: bool, now: Timestamp) -> LockDecision {
        let Some(holder) = &self.holder else { return LockDecision::Take };
        if let Some(why) = &self.failed {
            // What a node took back says nothing of other releases.
            let stops = self.release.is_none_or(|failed| failed == release) && !retry;
            return match stops {
                true => LockDecision::Stopped { holder: holder.clone(), why: why.clone() },
                false => LockDecision::Take,
            };
        }
        if holder == me || self.is_expired(now) {
            return LockDecision::Take;
        }
        LockDecision::Busy { holder: holder.clone() }
    }

    fn is_expired(&self, now: Timestamp) -> bool {
        self.renewed.is_none_or(|renewed| now.duration_since(renewed) > self.duration)
    }

    #[must_use]
    pub fn is_held_by(&self, node: &str) -> bool {
        self.holder.as_deref() == Some(node)
    }

    /// Whether there is a Lease to replace; otherwise one has to be made.
    #[must_use]
    pub fn exists(&self) -> bool {
        self.version.is_some()
    }

    /// The Lease by which `me` takes or renews it.
    #[must_use]
    pub fn taken(&self, me: &str, release: Digest, duration: SignedDuration, now: Timestamp) -> Value {
        let digest = release.to_string();
        self.lease(
            &json!({ RELEASE: digest }),
            &json!({
                "holderIdentity": me,
                "leaseDurationSeconds": duration.as_secs(),
                "acquireTime": time(now),
                "renewTime": time(now),
            }),
        )
    }

    /// The Lease by which its holder gives it back.
    #[must_use]
    pub fn free(&self) -> Value {
        self.lease(&json!({}), &json!({}))
    }

    /// The Lease by which `me`, which has it or finds it free, stops the rollout of `release`.
    #[must_use]
    pub fn stopped(&self, me: &str, release: Digest, why: &str, now: Timestamp) -> Value {
        let digest = release.to_string();
        self.lease(
            &json!({ RELEASE: digest, FAILED: why }),
            &json!({ "holderIdentity": me, "renewTime": time(now) }),
        )
    }

    fn lease(&self, annotations: &Value, spec: &Value) -> Value {
        json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {
                "name": NAME,
                "namespace": NAMESPACE,
                "resourceVersion": self.version,
                "annotations": annotations,
            },
            "spec": spec,
        })
    }
}

/// With microseconds, as in leases.
fn time(time: Timestamp) -> String {
    time.strftime("%Y-%m-%dT%H:%M:%S.%6fZ").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: SignedDuration = SignedDuration::from_hours(1);

    fn now() -> Timestamp {
        "2026-03-02T10:00:00Z".parse().unwrap()
    }

    /// The Lease as the API gives it back.
    fn stored(mut lease: Value) -> RolloutLock {
        lease["metadata"]["resourceVersion"] = json!("7");
        RolloutLock::read(&lease)
    }

    #[test]
    fn a_lock_is_taken_renewed_given_back_and_expires() {
        let release = Digest::of(b"new");
        let first = RolloutLock::absent();
        assert!(!first.exists());
        assert_eq!(first.decide("n1", release, false, now()), LockDecision::Take);
        let held = stored(first.taken("n1", release, HOUR, now()));
        assert!(held.exists() && held.is_held_by("n1") && !held.is_held_by("n2"));
        assert_eq!((held.renewed, held.duration, held.release), (Some(now()), HOUR, Some(release)));
        let other = |at| held.decide("n2", release, false, at);
        assert_eq!(other(now() + HOUR), LockDecision::Busy { holder: "n1".into() });
        assert_eq!(other(now() + HOUR + SignedDuration::from_secs(1)), LockDecision::Take);
        assert_eq!(held.decide("n1", release, false, now()), LockDecision::Take);
        assert_eq!(stored(held.free()).decide("n2", release, false, now()), LockDecision::Take);
        assert_eq!(held.free()["metadata"]["resourceVersion"], "7", "of two replacements one fails");
    }

    #[test]
    fn a_failed_rollout_stops_its_release_until_somebody_says_so() {
        let (release, next) = (Digest::of(b"new"), Digest::of(b"newer"));
        let held = stored(RolloutLock::absent().taken("n1", release, HOUR, now()));
        let failed = stored(held.stopped("n1", release, "the kubelet never answered", now()));
        let later = now() + SignedDuration::from_hours(1000);
        for (node, at) in [("n1", now()), ("n2", now()), ("n2", later)] {
            let decision = failed.decide(node, release, false, at);
            let LockDecision::Stopped { holder, why } = decision else { panic!("{decision:?}") };
            assert_eq!((holder.as_str(), why.as_str()), ("n1", "the kubelet never answered"));
        }
        assert_eq!(failed.decide("n2", release, true, now()), LockDecision::Take);
        assert_eq!(failed.decide("n2", next, false, now()), LockDecision::Take, "another release");
        let retried = stored(failed.taken("n2", release, HOUR, now()));
        assert_eq!(retried.failed, None);
    }

    #[test]
    fn a_lease_of_others_or_without_times_stops_nobody_for_ever() {
        let lease = json!({ "metadata": { "resourceVersion": "1" }, "spec": { "holderIdentity": "n9" } });
        let lock = RolloutLock::read(&lease);
        assert_eq!(lock.decide("n1", Digest::of(b"new"), false, now()), LockDecision::Take);
        assert_eq!(RolloutLock::read(&json!({})), RolloutLock::absent());
    }
}
