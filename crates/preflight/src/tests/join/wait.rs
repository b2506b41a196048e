//! What a machine waits for whose cluster is not up, and what it does not wait for.

use std::cell::{Cell, RefCell};

use super::kubeadm::{cluster, joins as joins_kubeadm, made};
use super::*;
use crate::wait::{ClusterWait, PAUSE, STEP};
use crate::{cluster_is_awaited, run};
use base::progress::{Progress, StepState};
use testing::kubeadm_cluster::KubeadmCluster;
use testing::progress::Recorder;
use testing::supervisor::Fault;

/// Why an install with this node waits; none if it goes on or ends.
#[track_caller]
fn awaited(node: &PlannedNode) -> Option<String> {
    let facts = Machine::fit().facts();
    let report = run(&facts, node, &SystemNetwork::default());
    let reason = report.awaited().map(str::to_owned);
    // While it waits the cluster alone is asked, with the same result.
    let asked = cluster_is_awaited(&facts, node, &SystemNetwork::default());
    assert_eq!(reason.is_some(), asked.is_some(), "{reason:?} {asked:?}");
    reason
}

#[test]
fn a_supervisor_that_is_not_up_is_waited_for_and_one_that_refuses_is_not() {
    let keys = Keys::make();
    let fault = |fault| SupervisorBehavior { fault: Some(fault), ..good() };
    let status =
        |path: &str, status| SupervisorBehavior { statuses: [(path.to_owned(), status)].into(), ..good() };
    for (what, behaviour, token, waits) in [
        ("a connection that is closed", fault(Fault::Close), SERVER, true),
        ("a starting server", status("/ping", 503), SERVER, true),
        ("a server without certificates yet", status("/cacerts", 503), SERVER, true),
        ("another service", fault(Fault::Web), SERVER, false),
        ("no TLS", fault(Fault::Plain), SERVER, false),
        ("a wrong token", good(), "wrong-hush", false),
        ("another authority", good(), &format!("K10{}::server:{SERVER}", Digest::of(b"other")), false),
        ("a good server", good(), SERVER, false),
    ] {
        let server = keys.start(behaviour);
        let found = awaited(&joining(Role::Worker, server.port(), token));
        assert_eq!(found.is_some(), waits, "{what}: {found:?}");
    }
    let nobody = awaited(&joining(Role::Management, closed(), SERVER)).unwrap();
    assert!(nobody.contains("refuses the connection"), "{nobody}");
}

#[test]
fn a_server_of_the_other_distribution_is_not_waited_for() {
    let keys = Keys::make();
    let server = keys.start(good());
    let node = joining(Role::Worker, closed(), SERVER);
    let node = with(node, |join| {
        join.distribution = Distribution::K3s;
        join.ports.other = server.port();
    });
    assert_eq!(awaited(&node), None);
}

#[test]
fn a_cluster_that_kubeadm_is_still_making_is_waited_for() {
    let keys = Keys::make();
    let info = "/api/v1/namespaces/kube-public/configmaps/cluster-info";
    let status =
        |status| SupervisorBehavior { statuses: [(info.to_owned(), status)].into(), ..made(cluster()) };
    for (behaviour, waits) in [
        (status(403), true),
        (status(404), true),
        (status(500), true),
        (status(401), false),
        (made(KubeadmCluster { tokens: vec![], ..cluster() }), true),
        (made(KubeadmCluster { kubeconfig: Some(String::new()), ..cluster() }), false),
        (made(cluster()), false),
    ] {
        let server = keys.start(behaviour);
        let found = awaited(&joins_kubeadm(Role::Worker, &server, SERVER));
        assert_eq!(found.is_some(), waits, "{found:?}");
    }
}

#[test]
fn a_machine_that_would_be_refused_for_something_else_does_not_wait() {
    let mut facts = Machine::fit().facts();
    facts.inventory.disks.clear();
    let report = run(&facts, &joining(Role::Worker, closed(), SERVER), &SystemNetwork::default());
    assert!(report.stops().any(|verdict| verdict.check == "join-server"));
    assert_eq!(report.awaited(), None, "the disk does not come with the cluster");
    // Without the check nothing is waited for.
    let skip = vec!["join-server".to_owned()];
    let node = PlannedNode { skip, ..joining(Role::Worker, closed(), SERVER) };
    assert_eq!(run(&Machine::fit().facts(), &node, &SystemNetwork::default()).awaited(), None);
}

#[test]
fn a_wait_tells_what_failed_on_the_creator_until_it_tries_again() {
    const FAILED: &str = "dc1-0, which creates the cluster, has failed in stage writing (disk-io): I/O error. Correct this and start \
                          dc1-0 again; this install then goes on by itself.";
    let recorder = Recorder::default();
    let now = Cell::new(Duration::ZERO);
    // The server knows of the failure after ten seconds, and of the next attempt a minute and a half later.
    let creator = || match now.get().as_secs() {
        0..10 => None,
        10..100 => Some(FAILED.to_owned()),
        _ => Some("dc1-0, which creates the cluster, is not ready yet (preflight).".to_owned()),
    };
    let ask = || (now.get().as_secs() < 120).then(|| "no route".to_owned());
    let pause = |time| now.set(now.get() + time);
    let wait = ClusterWait { ask: &ask, creator: &creator, pause: &pause, clock: &|| now.get() };
    wait.wait("no route", &Progress::new(vec![Box::new(recorder.clone())]));
    let events = recorder.0.lock().unwrap();
    let told =
        |state| events.iter().filter(move |event| event.state == state).map(|event| event.message.as_str());
    let begun: Vec<_> = told(StepState::Started).collect();
    assert_eq!(
        begun,
        [
            "Waiting for the cluster: no route",
            &format!("Waiting for the cluster: no route. {FAILED}"),
            "Waiting for the cluster: no route. dc1-0, which creates the cluster, is not ready yet (preflight).",
        ]
    );
    let reminders: Vec<_> = told(StepState::Progress).collect();
    let failed = FAILED.trim_end_matches('.');
    assert_eq!(
        reminders,
        [format!("Waiting for the cluster for 1 min: no route. {failed}. Nothing is written yet")]
    );
}

#[test]
fn a_wait_tells_each_reason_once_and_then_every_minute_until_the_cluster_is_up() {
    let recorder = Recorder::default();
    let now = Cell::new(Duration::ZERO);
    // Two and a half minutes of one reason, a second one, and the cluster.
    let asked = RefCell::new(0);
    let ask = || {
        *asked.borrow_mut() += 1;
        match *asked.borrow() {
            0..30 => Some("no route".to_owned()),
            30..40 => Some("refused".to_owned()),
            _ => None,
        }
    };
    let pause = |time| now.set(now.get() + time);
    let wait = ClusterWait { ask: &ask, creator: &|| None, pause: &pause, clock: &|| now.get() };
    wait.wait("no route", &Progress::new(vec![Box::new(recorder.clone())]));
    let events = recorder.0.lock().unwrap();
    assert!(events.iter().all(|event| event.step == STEP));
    let told = |state| events.iter().filter(move |event| event.state == state);
    let begun: Vec<_> = told(StepState::Started).map(|event| event.message.as_str()).collect();
    assert_eq!(begun, ["Waiting for the cluster: no route", "Waiting for the cluster: refused"]);
    assert_eq!(told(StepState::Done).count(), 2);
    let reminders: Vec<_> = told(StepState::Progress).map(|event| event.message.as_str()).collect();
    assert_eq!(
        reminders,
        [
            "Waiting for the cluster for 1 min: no route. Nothing is written yet",
            "Waiting for the cluster for 2 min: no route. Nothing is written yet",
        ]
    );
    assert_eq!(now.get(), PAUSE * 40);
}
