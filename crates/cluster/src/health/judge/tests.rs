use super::*;
use crate::health::check::{
    ADDRESS, API_SERVER, CheckResult, ETCD, KUBELET, NODE, OWN_REQUIRED, ROOT, UNITS, WATCHDOG,
};
use crate::health::probe::Observation;
use proptest::prelude::*;

fn ok(check: &'static crate::health::HealthCheck) -> CheckResult {
    check.found(Finding::Healthy)
}

fn red(check: &'static crate::health::HealthCheck) -> CheckResult {
    check.found(Finding::failing("red"))
}

fn mute(check: &'static crate::health::HealthCheck) -> CheckResult {
    check.found(Finding::cannot_say("mute"))
}

fn baseline(alone: bool, results: &[CheckResult]) -> Baseline {
    Baseline::of(&Observation { results: results.to_vec(), alone, ..Observation::default() })
}

/// Looks every 5 s at what `seen` has for that second, until there is a verdict: when, which, and what was noted.
fn judged(
    baseline: Option<&Baseline>,
    seen: impl Fn(u64) -> Vec<CheckResult>,
) -> (u64, BootVerdict, Vec<String>) {
    let mut judge = Judge::new(baseline, Timing::default());
    let mut notes = Vec::new();
    for second in (0..).step_by(5) {
        let verdict = judge.observe(Duration::from_secs(second), &seen(second), &mut |note| notes.push(note));
        if let Some(verdict) = verdict {
            return (second, verdict, notes);
        }
        assert!(second < 2000, "no verdict");
    }
    unreachable!()
}

const GOOD: BootVerdict = BootVerdict::Good { degraded: Vec::new() };

#[test]
fn a_boot_on_which_everything_holds_is_good_after_a_minute() {
    let (at, verdict, notes) = judged(None, |_| vec![ok(&ROOT), ok(&KUBELET)]);
    assert_eq!((at, verdict), (60, GOOD));
    assert_eq!(notes, ["every check holds", "all required checks hold: good if they do for 60 s"]);
}

#[test]
fn what_holds_from_the_last_moment_of_the_budget_on_may_go_on_to_hold() {
    let before = baseline(false, &[ok(&KUBELET)]);
    let late = |from: u64| move |at: u64| vec![if at < from { red(&KUBELET) } else { ok(&KUBELET) }];
    let (at, verdict, _) = judged(Some(&before), late(890));
    assert_eq!((at, verdict), (950, GOOD));
    let (at, verdict, _) = judged(Some(&before), late(905));
    let BootVerdict::Bad { failed } = verdict else { panic!("{verdict}") };
    assert_eq!((at, failed[0].seconds, failed[0].relapses), (900, 900, 0));
    assert_eq!(failed[0].to_string(), "kubelet does not hold, for 900 s: red");
}

#[test]
fn what_breaks_while_it_is_to_hold_begins_anew_and_after_the_budget_is_the_end() {
    let before = baseline(false, &[ok(&KUBELET)]);
    let broken = |breaks: u64| move |at: u64| vec![if at == breaks { red(&KUBELET) } else { ok(&KUBELET) }];
    assert_eq!(judged(Some(&before), broken(55)).0, 120);
    let (at, verdict, _) = judged(Some(&before), |at| match at {
        0..890 | 920 => vec![red(&KUBELET)],
        _ => vec![ok(&KUBELET)],
    });
    let BootVerdict::Bad { failed } = verdict else { panic!("{verdict}") };
    assert_eq!((at, failed[0].seconds, failed[0].relapses), (920, 0, 1));
}

#[test]
fn what_flaps_never_holds() {
    let before = baseline(false, &[ok(&KUBELET)]);
    let (at, verdict, notes) =
        judged(Some(&before), |at| vec![if at % 50 == 0 { red(&KUBELET) } else { ok(&KUBELET) }]);
    let BootVerdict::Bad { failed } = verdict else { panic!("{verdict}") };
    assert_eq!((at, failed[0].relapses), (900, 18));
    assert_eq!(
        notes[..3],
        ["kubelet: failing: red", "kubelet: healthy", "all required checks hold: good if they do for 60 s"]
    );
}

#[test]
fn different_checks_that_fail_in_turn_do_not_hold_at_once() {
    let before = baseline(false, &[ok(&KUBELET), ok(&ADDRESS)]);
    let (_, verdict, _) = judged(Some(&before), |at| match at / 30 % 2 {
        0 => vec![red(&KUBELET), ok(&ADDRESS)],
        _ => vec![ok(&KUBELET), red(&ADDRESS)],
    });
    assert!(matches!(verdict, BootVerdict::Bad { .. }), "{verdict}");
}

#[test]
fn a_unit_that_fails_now_condemns_and_one_that_had_failed_does_not() {
    let unit = |name: &str| UNITS.found_at(name, Finding::failing("it has failed"));
    let before = baseline(false, &[unit("nqrust-old.service")]);
    let (at, verdict, _) = judged(Some(&before), |_| vec![unit("nqrust-old.service")]);
    assert_eq!(at, 60);
    assert_eq!(verdict.to_string(), "good, but degraded: units nqrust-old.service: it has failed");
    let (_, verdict, _) =
        judged(Some(&before), |_| vec![unit("nqrust-old.service"), unit("nqrust-new.service")]);
    assert_eq!(verdict.to_string(), "bad: units nqrust-new.service does not hold, for 900 s: it has failed");
}

#[test]
fn a_unit_that_recovers_is_no_result_any_more_and_told_to_be_healthy() {
    let unit = UNITS.found_at("nqrust-x.service", Finding::failing("it has failed"));
    let before = baseline(false, &[ok(&UNITS)]);
    let (at, verdict, notes) =
        judged(Some(&before), |at| if at < 30 { vec![unit.clone()] } else { vec![ok(&UNITS)] });
    assert_eq!((at, verdict), (90, GOOD));
    assert_eq!(notes[1], "units nqrust-x.service: healthy");
}

#[test]
fn the_table_of_what_was_and_is() {
    use Weight::{Condemns, Excused, Holds, Waits};
    let na = |check: &'static crate::health::HealthCheck| check.found(Finding::NotApplicable);
    // For one check: what is seen now, and the weight with no baseline, and after healthy, failing, mute, not applicable.
    let table = [
        (red(&ROOT), [Condemns, Condemns, Excused, Condemns, Condemns]),
        (mute(&ROOT), [Condemns, Condemns, Excused, Excused, Condemns]),
        (red(&ADDRESS), [Excused, Condemns, Excused, Excused, Excused]),
        (mute(&ADDRESS), [Excused, Condemns, Excused, Excused, Excused]),
        (red(&KUBELET), [Excused, Condemns, Excused, Condemns, Waits]),
        (mute(&KUBELET), [Excused, Condemns, Excused, Waits, Waits]),
        (red(&OWN_REQUIRED), [Condemns, Condemns, Excused, Condemns, Condemns]),
        (red(&WATCHDOG), [Excused; 5]),
        (ok(&ROOT), [Holds; 5]),
        (na(&KUBELET), [Holds; 5]),
    ];
    for (now, weights) in table {
        let check = now.check;
        let before = [ok(check), red(check), mute(check), na(check)]
            .map(|result| baseline(false, &[result, ok(&NODE)]));
        let baselines = std::iter::once(None).chain(before.iter().map(Some));
        for (baseline, expected) in baselines.zip(weights) {
            assert_eq!(weigh(&now, baseline), expected, "{now} after {baseline:?}");
        }
    }
}

#[test]
fn a_cluster_that_was_not_there_before_either_is_waited_for() {
    let before = baseline(false, &[ok(&ROOT), ok(&KUBELET), mute(&NODE)]);
    let (at, verdict, notes) = judged(Some(&before), |_| vec![ok(&ROOT), mute(&KUBELET), mute(&NODE)]);
    assert_eq!(at, 900);
    assert_eq!(verdict.to_string(), "still on trial: kubelet: mute; node: mute");
    assert_eq!(notes[0], "kubelet: cannot say: mute (waiting)");
    // A fault of this machine condemns all the same.
    let (_, verdict, _) = judged(Some(&before), |_| vec![ok(&ROOT), red(&KUBELET), mute(&NODE)]);
    assert!(verdict.to_string().starts_with("bad: kubelet"), "{verdict}");
    let (at, verdict, _) = judged(Some(&before), |at| vec![if at < 600 { mute(&NODE) } else { ok(&NODE) }]);
    assert_eq!((at, verdict), (660, GOOD), "the cluster has come back");
}

#[test]
fn a_cluster_that_was_there_before_condemns() {
    let before = baseline(false, &[ok(&ROOT), ok(&NODE)]);
    let (_, verdict, _) = judged(Some(&before), |_| vec![ok(&ROOT), mute(&NODE)]);
    assert!(matches!(verdict, BootVerdict::Bad { .. }), "{verdict}");
}

#[test]
fn the_only_server_of_a_cluster_waits_for_nobody() {
    let before = |node: CheckResult| baseline(true, &[ok(&ETCD), ok(&API_SERVER), node]);
    let now = |_| vec![mute(&ETCD), ok(&API_SERVER), mute(&NODE)];
    let (_, verdict, _) = judged(Some(&before(mute(&NODE))), now);
    assert!(verdict.to_string().starts_with("bad: etcd"), "{verdict}");
    let (_, verdict, _) = judged(Some(&before(ok(&NODE))), |_| vec![ok(&ETCD), mute(&NODE)]);
    assert!(verdict.to_string().starts_with("bad: node"), "{verdict}");
    let (at, verdict, _) = judged(Some(&before(mute(&NODE))), |_| vec![ok(&ETCD), mute(&NODE)]);
    assert_eq!((at, verdict.to_string().as_str()), (60, "good, but degraded: node: mute"));
}

#[test]
fn a_first_boot_that_joins_slowly_is_not_condemned_by_its_cluster() {
    let (at, verdict, notes) = judged(None, |_| vec![ok(&ROOT), red(&KUBELET), mute(&NODE)]);
    assert!(at == 60 && matches!(verdict, BootVerdict::Good { .. }), "{verdict}");
    assert_eq!(notes[0], "kubelet: failing: red (ignored: there is no baseline from before the restart)");
    let (_, verdict, _) = judged(None, |_| vec![red(&ROOT), red(&KUBELET)]);
    let BootVerdict::Bad { failed } = verdict else { panic!("{verdict}") };
    assert_eq!(failed.len(), 1, "its cluster does not condemn it");
}

#[test]
fn what_nobody_has_watched_has_not_held() {
    let mut judge = Judge::new(None, Timing::default());
    let mut look = |second| judge.observe(Duration::from_secs(second), &[ok(&ROOT)], &mut drop);
    assert_eq!(look(0), None);
    assert_eq!(look(400), None, "the machine was stopped meanwhile");
    assert_eq!(look(455), None);
    assert_eq!(look(400), None, "a clock that goes back");
    assert_eq!(look(460), Some(GOOD));
}

fn finding() -> impl Strategy<Value = Finding> {
    prop_oneof![
        4 => Just(Finding::Healthy),
        1 => Just(Finding::failing("r")),
        1 => Just(Finding::cannot_say("r")),
        1 => Just(Finding::NotApplicable),
    ]
}

proptest! {
    #[test]
    fn good_means_that_nothing_condemned_or_was_waited_for_in_the_last_minute(
        before in proptest::option::of((finding(), finding(), any::<bool>())),
        seen in proptest::collection::vec((finding(), finding(), finding(), 1_u64..40), 80..400),
    ) {
        let before = before.map(|(kubelet, node, alone)| baseline(alone, &[ok(&ROOT), KUBELET.found(kubelet), NODE.found(node)]));
        let mut judge = Judge::new(before.as_ref(), Timing::default());
        let (mut at, mut held_since, mut over) = (0, None, false);
        for (root, kubelet, node, pause) in seen {
            let results = [ROOT.found(root), KUBELET.found(kubelet), NODE.found(node)];
            let holds = results.iter().all(|result| matches!(weigh(result, before.as_ref()), Weight::Holds | Weight::Excused));
            held_since = if holds { held_since.or(Some(at)) } else { None };
            let held = held_since.is_some_and(|since| at - since >= 60);
            match judge.observe(Duration::from_secs(at), &results, &mut drop) {
                None => prop_assert!(!held && (holds || at < 900)),
                Some(BootVerdict::Good { .. }) => { prop_assert!(held); over = true; }
                Some(BootVerdict::Bad { failed }) => { prop_assert!(at >= 900 && !failed.is_empty()); over = true; }
                Some(BootVerdict::StayOnTrial { why }) => { prop_assert!(at >= 900 && !why.is_empty()); over = true; }
            }
            if over { break; }
            at += pause;
        }
    }
}
