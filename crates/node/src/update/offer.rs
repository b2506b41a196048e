//! Whether a release may take the place of the one that runs: a decision without effects.

use std::cmp::Ordering;

use serde::Serialize;

use base::failure::{Class, Failure};
use cluster::version_skew::{self as skew, KubernetesStep};
use machine::update_state::{ReleaseId, UpdateState};
use model::boot::record::SlotState;
use model::kubernetes::KubernetesVersion;
use model::release::Release;
use model::release_manifest::ReleaseManifest;

/// What whoever asks has allowed.
#[derive(Clone, Copy, Debug, Default)]
pub struct UpdatePermissions {
    /// A version that is lower than the one that runs.
    pub downgrade: bool,
    /// A release that was bad on this node before.
    pub retry: bool,
    /// A release under which devices of this node, or modules of its document, would not work as they do now; also a restart after which
    /// the node would not come back to its cluster.
    pub hardware: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OfferStatus {
    Runs,
    /// It is written into the other slot, and starts on request or at the next restart.
    Staged,
    New,
}

/// The parts of the node that the decision needs.
#[derive(Clone, Copy, Debug)]
pub struct RunningSystem<'a> {
    pub release: &'a ReleaseManifest,
    /// The state of its slot; none for the recovery system.
    pub state: Option<SlotState>,
    pub memory: &'a UpdateState,
    /// The version of Kubernetes that runs, which need not be the release's; none where the OS has none.
    pub kubernetes: Option<&'a KubernetesVersion>,
}

/// Decides on `offered`.
///
/// # Errors
/// [`Class::Invalid`] for another product and for a lower version, [`Class::RolledBack`] for a release that was bad here,
/// [`Class::Hardware`] if the node is not ready for an update, or no step leads to the Kubernetes of the release.
pub fn decide(
    running: RunningSystem<'_>,
    offered: &ReleaseManifest,
    allowed: UpdatePermissions,
) -> Result<OfferStatus, Failure> {
    let RunningSystem { release: now, state, memory, kubernetes } = running;
    let id = ReleaseId::of(offered);
    // The recovery system is no node: the same release in a slot is what it is asked for.
    if id == ReleaseId::of(now) && state.is_some() {
        return Ok(OfferStatus::Runs);
    }
    let name = format!("{} {}", offered.name, offered.version);
    same_node(now, offered)?;
    kubernetes_step(kubernetes, offered)?;
    if let Some(verdict) = memory.verdict(id.digest).filter(|verdict| !verdict.good && !allowed.retry) {
        return Err(Failure::new(
            Class::RolledBack,
            format!("{name} was tried on {} and rolled back", verdict.at),
        )
        .because(verdict.reason.clone())
        .hint("Use another release. To try this one again: --retry"));
    }
    if compare(&offered.version, &now.version) == Ordering::Less && !allowed.downgrade {
        let what = format!("{name} is older than {}, which runs", now.version);
        return Err(Failure::new(Class::Invalid, what)
            .hint("To go back to the release before: installer update rollback. To write this one: --allow-downgrade"));
    }
    if state.is_some_and(|state| state != SlotState::Good) {
        let what = "the running release has not passed its health check yet";
        return Err(Failure::new(Class::Hardware, what)
            .hint("See `installer health` and `installer update status`; wait until it is good."));
    }
    let staged = memory.staged.as_ref().is_some_and(|staged| staged.release == id);
    Ok(if staged { OfferStatus::Staged } else { OfferStatus::New })
}

/// What no update changes.
fn same_node(now: &Release, offered: &Release) -> Result<(), Failure> {
    let differs = [
        ("product", &now.id, &offered.id),
        ("directory of containerd", &now.containerd.root, &offered.containerd.root),
    ];
    let distribution = |release: &Release| release.distribution.map_or("none", |one| one.name()).to_owned();
    let (ours, theirs) = (distribution(now), distribution(offered));
    let machine = [now, offered].map(|release| release.architecture.to_string());
    let further =
        [("architecture", &machine[0], &machine[1]), ("distribution of Kubernetes", &ours, &theirs)];
    let differs = differs.into_iter().chain(further);
    for (what, ours, theirs) in differs {
        if ours != theirs {
            let told = format!("the release is for another {what}: {theirs:?}, and this node has {ours:?}");
            return Err(
                Failure::new(Class::Invalid, told).hint("Name a release of the product that runs here.")
            );
        }
    }
    Ok(())
}

/// What the Kubernetes of a release is to the version that runs and goes on: the update of the OS does not change that, and a later
/// one has to be able to.
///
/// # Errors
/// As [`skew::step`] has them; [`Class::Invalid`] for a release that does not say which version it brings.
pub fn kubernetes_step(
    runs: Option<&KubernetesVersion>,
    offered: &Release,
) -> Result<KubernetesStep, Failure> {
    match (runs, &offered.kubernetes) {
        (Some(runs), Some(brought)) => skew::step(runs, brought),
        (Some(runs), None) => {
            let what =
                format!("the release does not say which Kubernetes it brings, and this node runs {runs}");
            Err(Failure::new(Class::Invalid, what)
                .hint("Build the release again with this version of iso-builder."))
        }
        (None, _) => Ok(KubernetesStep::None),
    }
}

/// Compares versions: the numbers in them as numbers, the rest as text; what has a `-` before it comes before what has nothing there
/// (Semantic Versioning 2.0.0, 11, for the versions that are such).
#[must_use]
pub fn compare(one: &str, other: &str) -> Ordering {
    let split = |version: &str| {
        let version = version.split('+').next().unwrap_or_default();
        let (release, before) = version.split_once('-').map_or((version, None), |(a, b)| (a, Some(b)));
        (parts(release), before.map(parts))
    };
    let ((one, one_before), (other, other_before)) = (split(one), split(other));
    one.cmp(&other).then_with(|| match (one_before, other_before) {
        (None, None) => Ordering::Equal,
        (None, Some(_)) => Ordering::Greater,
        (Some(_), None) => Ordering::Less,
        (Some(one), Some(other)) => one.cmp(&other),
    })
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum VersionPart {
    Number(u64),
    Text(String),
}

fn parts(text: &str) -> Vec<VersionPart> {
    let part =
        |part: &str| part.parse().map_or_else(|_| VersionPart::Text(part.to_owned()), VersionPart::Number);
    text.split('.').map(part).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use machine::update_state::WrittenRelease;
    use model::boot::record::UpdateSlot;

    fn version(version: &str) -> Release {
        Release { version: version.into(), ..testing::release::release() }
    }

    fn decided(
        memory: &UpdateState,
        state: SlotState,
        offered: &Release,
        allowed: UpdatePermissions,
    ) -> Result<OfferStatus, Class> {
        let now = version("1.2.0").into();
        let running = RunningSystem { release: &now, state: Some(state), memory, kubernetes: None };
        decide(running, &offered.clone().into(), allowed).map_err(|failure| failure.class())
    }

    #[test]
    fn versions_are_compared_by_their_numbers() {
        let ascending = ["1.2.0-rc.2", "1.2.0-rc.10", "1.2.0", "1.2.1", "1.10.0", "2"];
        for pair in ascending.windows(2) {
            assert_eq!(compare(pair[0], pair[1]), Ordering::Less, "{pair:?}");
            assert_eq!(compare(pair[1], pair[0]), Ordering::Greater, "{pair:?}");
        }
        assert_eq!(compare("1.2.0+build7", "1.2.0"), Ordering::Equal);
    }

    #[test]
    fn what_runs_and_what_is_staged_is_known_again() {
        let memory = UpdateState {
            staged: Some(WrittenRelease::now(ReleaseId::of(&version("1.3.0").into()), UpdateSlot::B)),
            ..UpdateState::default()
        };
        let offer =
            |release: &Release| decided(&memory, SlotState::Good, release, UpdatePermissions::default());
        assert_eq!(offer(&version("1.2.0")), Ok(OfferStatus::Runs));
        assert_eq!(offer(&version("1.3.0")), Ok(OfferStatus::Staged));
        assert_eq!(offer(&version("1.3.1")), Ok(OfferStatus::New));
        // The same version built again is another release.
        assert_eq!(offer(&Release { epoch: 1, ..version("1.2.0") }), Ok(OfferStatus::New));
    }

    #[test]
    fn the_recovery_system_writes_its_own_release_into_a_slot() {
        let (now, memory) = (version("1.2.0").into(), UpdateState::default());
        let running = RunningSystem { release: &now, state: None, memory: &memory, kubernetes: None };
        assert_eq!(decide(running, &now, UpdatePermissions::default()).unwrap(), OfferStatus::New);
    }

    #[test]
    fn older_and_bad_releases_need_a_word_and_other_products_are_refused() {
        let good =
            |release: &Release, allowed| decided(&UpdateState::default(), SlotState::Good, release, allowed);
        assert_eq!(good(&version("1.1.9"), UpdatePermissions::default()), Err(Class::Invalid));
        let downgrade = UpdatePermissions { downgrade: true, ..UpdatePermissions::default() };
        assert_eq!(good(&version("1.1.9"), downgrade), Ok(OfferStatus::New));
        let other = Release { id: "another".into(), ..version("1.3.0") };
        assert_eq!(
            good(&other, UpdatePermissions { downgrade: true, retry: true, hardware: true }),
            Err(Class::Invalid)
        );
        let mut memory = UpdateState {
            staged: Some(WrittenRelease::now(ReleaseId::of(&version("1.3.0").into()), UpdateSlot::B)),
            ..UpdateState::default()
        };
        memory.conclude(false, "the kubelet never answered".into());
        let offer = |allowed| decided(&memory, SlotState::Good, &version("1.3.0"), allowed);
        assert_eq!(offer(UpdatePermissions::default()), Err(Class::RolledBack));
        assert_eq!(
            offer(UpdatePermissions { retry: true, ..UpdatePermissions::default() }),
            Ok(OfferStatus::New)
        );
    }

    #[test]
    fn a_release_that_is_itself_on_trial_is_not_built_upon() {
        let memory = UpdateState::default();
        let offer = decided(&memory, SlotState::Try, &version("1.3.0"), UpdatePermissions::default());
        assert_eq!(offer, Err(Class::Hardware));
    }

    #[test]
    fn another_kubernetes_is_taken_if_a_step_leads_to_it() {
        let bringing = |kubernetes: Option<&str>| Release {
            kubernetes: kubernetes.map(|text| text.parse().unwrap()),
            ..version("1.3.0")
        };
        let now = bringing(Some("v1.36.0"));
        let runs: KubernetesVersion = "v1.37.2".parse().unwrap();
        let decided = |offered: &Release| {
            let (memory, state) = (UpdateState::default(), Some(SlotState::Good));
            let now = Release { version: "1.2.0".into(), ..now.clone() }.into();
            let running = RunningSystem { release: &now, state, memory: &memory, kubernetes: Some(&runs) };
            decide(running, &offered.clone().into(), UpdatePermissions::default())
                .map_err(|failure| failure.class())
        };
        for (brought, expected) in [
            ("v1.37.2", Ok(OfferStatus::New)),
            ("v1.37.9", Ok(OfferStatus::New)),
            ("v1.38.0", Ok(OfferStatus::New)),
            ("v1.36.0", Ok(OfferStatus::New)),
            ("v1.39.0", Err(Class::Hardware)),
        ] {
            assert_eq!(decided(&bringing(Some(brought))), expected, "{brought}");
        }
        assert_eq!(decided(&bringing(None)), Err(Class::Invalid));
    }
}
