use super::*;
use crate::health::check::{Finding, GATEWAY, KUBELET, ROOT};
use std::cell::Cell;

/// A machine in which time passes by pausing and by looking, and that is seen as a function of the second.
struct Machine<F> {
    now: Cell<u64>,
    look: u64,
    looks: Cell<u32>,
    seen: F,
}

impl<F: Fn(u64) -> Vec<CheckResult>> Machine<F> {
    fn new(look: u64, seen: F) -> Self {
        Self { now: Cell::new(0), look, looks: Cell::new(0), seen }
    }
}

impl<F: Fn(u64) -> Vec<CheckResult>> HealthProbe for Machine<F> {
    fn look(&self) -> Observation {
        self.looks.set(self.looks.get() + 1);
        let results = (self.seen)(self.now.get());
        self.now.set(self.now.get() + self.look);
        Observation { results, ..Observation::default() }
    }

    fn elapsed(&self) -> Duration {
        Duration::from_secs(self.now.get())
    }

    fn pause(&self, time: Duration) {
        self.now.set(self.now.get() + time.as_secs());
    }
}

fn kubelet(holds: bool) -> Vec<CheckResult> {
    let finding = if holds { Finding::Healthy } else { Finding::failing("refused") };
    vec![ROOT.found(Finding::Healthy), KUBELET.found(finding)]
}

#[test]
fn a_boot_is_looked_at_until_there_is_a_verdict_which_is_noted_last() {
    let mut notes = Vec::new();
    let machine = Machine::new(0, |at| kubelet(at >= 100));
    let before = take_baseline(&Machine::new(0, |_| kubelet(true)));
    let verdict =
        observe_until_verdict(&machine, Some(&before), Timing::default(), &mut |note| notes.push(note));
    assert_eq!(verdict, BootVerdict::Good { degraded: Vec::new() });
    assert_eq!(machine.now.get(), 160);
    assert_eq!(
        notes,
        [
            "kubelet: failing: refused",
            "kubelet: healthy",
            "all required checks hold: good if they do for 60 s",
            "good"
        ]
    );
}

#[test]
fn looks_that_take_long_as_with_an_own_check_that_hangs_change_no_verdict() {
    let machine = Machine::new(30, |_| kubelet(true));
    let verdict = observe_until_verdict(&machine, None, Timing::default(), &mut drop);
    assert_eq!(verdict, BootVerdict::Good { degraded: Vec::new() });
    assert!(machine.looks.get() >= 3, "two looks are not a minute");
}

#[test]
fn an_answer_that_is_lost_once_is_no_excuse_for_a_release() {
    let steady = Machine::new(0, |_| kubelet(true));
    assert_eq!(take_baseline(&steady).results.len(), 2);
    assert_eq!(steady.looks.get(), 1, "nothing is waited for on a node on which everything holds");
    let lost = take_baseline(&Machine::new(0, |at| kubelet(at > 0)));
    assert_eq!(lost.results[1].state, "healthy");
    let flaps = take_baseline(&Machine::new(0, |at| {
        let of = |holds| if holds { Finding::Healthy } else { Finding::failing("x") };
        vec![KUBELET.found(of(at == 0)), GATEWAY.found(of(false))]
    }));
    let states: Vec<_> = flaps.results.iter().map(|result| result.state.as_str()).collect();
    assert_eq!(states, ["healthy", "failing"]);
}
