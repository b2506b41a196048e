use super::*;
use crate::fleet::card::ActionForms;
use crate::fleet::document::FleetDocument;
use crate::fleet::history::FleetHistory;
use crate::fleet::install_run::tests::{hello, told};
use crate::fleet::listing;
use crate::fleet::query::{ListQuery, MachineOrder};
use crate::machines::access_token::TokenRole;
use crate::machines::machine::DeploymentEvent;
use base::progress::{self, StepState};
use model::fleet::{NodeReport, ReportLine, SlotReport, UpdateReport};

const NOW: Moment = Moment(1_700_000_000);
const FORMS: ActionForms<'_> = ActionForms { value: "", back: "" };

fn machine(mac: &str, events: &[DeploymentEvent]) -> Machine {
    let identity = Identity { macs: vec![mac.parse().unwrap()], ..Identity::default() };
    let mut machine = Machine::stranger(identity, NOW);
    events.iter().for_each(|event| machine.apply(*event, NOW));
    machine
}

fn line(seq: u64, step: &str, state: StepState, exit_code: Option<u8>) -> ReportLine {
    let (time, step, message) = ("2026-11-21T10:00:00Z".into(), step.to_owned(), "m".into());
    ReportLine::Event(progress::Event {
        v: 1,
        seq,
        time,
        step,
        state,
        bytes: None,
        total: None,
        message,
        details: None,
        result: None,
        part: None,
        exit_code,
    })
}

const MAC: &str = "52:54:00:00:00:01";
const BEGUN: [DeploymentEvent; 2] = [DeploymentEvent::Booted, DeploymentEvent::Took];

#[test]
fn a_machine_is_where_its_last_run_is_and_not_where_one_before_it_was() {
    let running = told([line(1, "image", StepState::Started, None)]);
    let ended = told([line(1, "run", StepState::Done, Some(0))]);
    let failed = told([
        line(1, "image", StepState::Started, None),
        line(2, "image", StepState::Failed, None),
        line(3, "run", StepState::Failed, Some(6)),
    ]);
    let late = |events: &[DeploymentEvent]| {
        let mut machine = machine(MAC, events);
        machine.since = NOW.plus(100);
        machine
    };
    let with = |event| [DeploymentEvent::Booted, DeploymentEvent::Took, event];
    for (machine, run, stage) in [
        (machine(MAC, &BEGUN), None, MachineStage::Preparing),
        (machine(MAC, &BEGUN), Some(&running), MachineStage::Writing),
        (machine(MAC, &BEGUN), Some(&failed), MachineStage::Preparing),
        (machine(MAC, &with(DeploymentEvent::Finished)), Some(&ended), MachineStage::Rebooting),
        (machine(MAC, &with(DeploymentEvent::Finished)), Some(&running), MachineStage::Installed),
        (machine(MAC, &with(DeploymentEvent::Failed)), Some(&failed), MachineStage::Failed),
        (late(&with(DeploymentEvent::Redeploy)), Some(&ended), MachineStage::Waiting),
        (late(&with(DeploymentEvent::Redeploy)), Some(&running), MachineStage::Waiting),
        (late(&[DeploymentEvent::Booted]), Some(&failed), MachineStage::Booting),
    ] {
        assert_eq!(row(&machine, run, ConfigurationFit::Own, NOW).stage, stage, "{:?}", machine.state);
    }
    let row = row(&machine(MAC, &with(DeploymentEvent::Failed)), Some(&failed), ConfigurationFit::Own, NOW);
    assert_eq!(row.failed_in, Some(MachineStage::Writing));
}

fn update(state: &str, reason: Option<&str>) -> ReportLine {
    let slot = |slot: &str, state: &str, version: &str| SlotReport {
        slot: slot.into(),
        state: Some(state.into()),
        version: Some(version.into()),
    };
    ReportLine::Update(UpdateReport {
        state: state.into(),
        running: "a".into(),
        slots: vec![slot("a", "good", "1.2.0"), slot("b", "bad", "1.3.0")],
        offered: Some("1.3.0".into()),
        tries_left: 3,
        reason: reason.map(Into::into),
        trust: Some("signed by <Maker>".into()),
        warnings: Vec::new(),
    })
}

#[test]
fn an_update_that_was_taken_back_needs_an_operator_until_there_is_another() {
    let joined =
        [DeploymentEvent::Booted, DeploymentEvent::Took, DeploymentEvent::Finished, DeploymentEvent::Joined];
    let look = |lines: Vec<ReportLine>| {
        row(&machine(MAC, &joined), Some(&told(lines)), ConfigurationFit::Own, NOW.plus(9))
    };
    let back = update("rolled-back", Some("kubelet: it <never> answers"));
    // Also where a server that was started anew knows nothing of the install.
    for before in [vec![node(true, false)], vec![]] {
        let with = |line: ReportLine| look(before.iter().cloned().chain([line]).collect());
        let bad = with(back.clone());
        assert_eq!((bad.stage, bad.group), (MachineStage::UpdateRolledBack, StageGroup::Failed));
        let error = bad.error.clone().unwrap();
        assert_eq!(error.exit_code, 9);
        assert_eq!(
            error.causes,
            ["the update to 1.3.0 was taken back; the release before runs", "kubelet: it <never> answers"]
        );
        let shown = super::super::card::card(&bad, false, FORMS, NOW).into_string();
        assert!(shown.contains("1.2.0</bdi> runs in slot a") && shown.contains("&lt;never&gt;"), "{shown}");
        let trial = with(update("trial", None));
        assert_eq!((trial.stage, trial.group), (MachineStage::Joined, StageGroup::Installed));
        let shown = super::super::card::card(&trial, false, FORMS, NOW).into_string();
        assert!(shown.contains("on trial, 3 more tries"), "{shown}");
        assert!(shown.contains(", <bdi>signed by &lt;Maker&gt;</bdi>"), "{shown}");
        let ReportLine::Update(unsigned) = update("idle", None) else { panic!() };
        let unsigned = UpdateReport { warnings: vec!["it is <not> signed".into()], ..unsigned };
        let shown =
            super::super::card::card(&with(ReportLine::Update(unsigned)), false, FORMS, NOW).into_string();
        assert!(
            shown.contains("Warning: <bdi>it is &lt;not&gt; signed") && !shown.contains("Maker"),
            "{shown}"
        );
    }
    let after = look(vec![node(true, false), back, update("staged", None)]);
    assert_eq!((after.stage, after.error), (MachineStage::Joined, None));
}

#[test]
fn a_machine_that_restarts_is_installed_after_a_while() {
    let machine = machine(MAC, &[DeploymentEvent::Booted, DeploymentEvent::Took, DeploymentEvent::Finished]);
    let run = told([line(1, "run", StepState::Done, Some(0))]);
    let stage = |seconds| row(&machine, Some(&run), ConfigurationFit::Own, NOW.plus(seconds)).stage;
    assert_eq!((stage(RESTART - 1), stage(RESTART)), (MachineStage::Rebooting, MachineStage::Installed));
}

fn node(ready: bool, failed: bool) -> ReportLine {
    let next = failed.then(|| "Set the clock.".to_owned());
    ReportLine::Node(NodeReport {
        ready,
        failed,
        stage: "registered".into(),
        detail: "a <word>".into(),
        next,
    })
}

#[test]
fn a_node_is_on_its_way_until_it_is_ready_and_a_redeployment_is_offered_all_the_while() {
    let installed = [DeploymentEvent::Booted, DeploymentEvent::Took, DeploymentEvent::Finished];
    let look = |machine: &Machine, line: ReportLine, after: u64| {
        let run = told([line]);
        row(machine, Some(&run), ConfigurationFit::Own, NOW.plus(after))
    };
    let joining = look(&machine(MAC, &installed), node(false, false), 600);
    assert_eq!(
        (joining.stage, joining.group, joining.silent),
        (MachineStage::Joining, StageGroup::Installing, false)
    );
    assert_eq!(joining.message.as_deref(), Some("registered: a <word>"));
    assert_eq!(joining.actions, [OperatorAction::Redeploy]);
    assert!(look(&machine(MAC, &installed), node(false, false), 1000).silent);
    let stuck = look(&machine(MAC, &installed), node(false, true), 600);
    assert_eq!((stuck.stage, stuck.group), (MachineStage::NotJoined, StageGroup::Failed));
    let error = stuck.error.unwrap();
    assert_eq!(
        (error.causes.concat().as_str(), error.hints.concat().as_str(), error.exit_code),
        ("registered: a <word>", "Set the clock.", 7)
    );
    assert_eq!((stuck.next, stuck.actions), (None, vec![OperatorAction::Redeploy]));
    let events = installed.into_iter().chain([DeploymentEvent::Joined]).collect::<Vec<_>>();
    for run in [Some(told([node(false, true), node(true, false)])), None] {
        let joined = row(&machine(MAC, &events), run.as_ref(), ConfigurationFit::Own, NOW.plus(5000));
        assert_eq!(
            (joined.stage, joined.group, joined.error),
            (MachineStage::Joined, StageGroup::Installed, None)
        );
    }
}

#[test]
fn an_install_that_says_nothing_is_told_apart() {
    let run = told([line(1, "image", StepState::Started, None)]);
    let machine = machine(MAC, &BEGUN);
    let silent = |run, seconds| row(&machine, run, ConfigurationFit::Own, NOW.plus(seconds)).silent;
    assert!(!silent(Some(&run), SILENT) && silent(Some(&run), SILENT + 1));
    assert!(!silent(None, START) && silent(None, START + 1));
}

#[test]
fn only_what_can_be_done_is_offered_and_a_machine_without_a_configuration_is_told_what_it_lacks() {
    use OperatorAction::{Allow, Deny, Forget, Redeploy};
    let denied = |mut machine: Machine| {
        machine.permission = InstallPermission::Denied;
        machine
    };
    let assigned = |mut machine: Machine| {
        machine.assigned = Some("a.yaml".into());
        machine
    };
    for (machine, fit, actions) in [
        (machine(MAC, &[]), ConfigurationFit::Nothing, vec![Deny, Forget]),
        (machine(MAC, &[]), ConfigurationFit::Fallback, vec![Allow, Deny, Forget]),
        (machine(MAC, &[]), ConfigurationFit::Own, vec![Deny, Forget]),
        (assigned(machine(MAC, &[])), ConfigurationFit::Own, vec![Deny]),
        (assigned(machine(MAC, &[])), ConfigurationFit::Nothing, vec![Deny, Forget]),
        (denied(machine(MAC, &[])), ConfigurationFit::Own, vec![Allow]),
        (machine(MAC, &BEGUN), ConfigurationFit::Own, vec![]),
        (
            machine(MAC, &[BEGUN[0], BEGUN[1], DeploymentEvent::Finished]),
            ConfigurationFit::Own,
            vec![Redeploy],
        ),
        (denied(machine(MAC, &BEGUN)), ConfigurationFit::Own, vec![Allow]),
    ] {
        assert_eq!(row(&machine, None, fit, NOW).actions, actions, "{fit:?} {:?}", machine.state);
    }
    let silent = row(&machine(MAC, &BEGUN), None, ConfigurationFit::Own, NOW.plus(START + 1));
    assert_eq!(silent.actions, [Redeploy]);
    let next = row(&machine(MAC, &[]), None, ConfigurationFit::Nothing, NOW).next.unwrap();
    assert!(next.contains("mac-52-54-00-00-00-01.yaml"), "{next}");
}

#[test]
fn those_come_first_that_somebody_has_to_look_at_and_all_are_counted() {
    let machines = [
        machine(
            "52:54:00:00:00:05",
            &[DeploymentEvent::Booted, DeploymentEvent::Took, DeploymentEvent::Finished],
        ),
        machine("52:54:00:00:00:04", &[]),
        machine("52:54:00:00:00:03", &BEGUN),
        machine("52:54:00:00:00:02", &BEGUN),
        machine(
            "52:54:00:00:00:01",
            &[DeploymentEvent::Booted, DeploymentEvent::Took, DeploymentEvent::Failed],
        ),
    ];
    let row = |machine| row(machine, None, ConfigurationFit::Nothing, NOW).into();
    let mut view = FleetView::new(machines.iter().map(row).collect(), NOW);
    view.machines.sort_by(|one, other| listing::compare(one, other, MachineOrder::Attention));
    let last: Vec<_> = view.machines.iter().map(|row| row.name.rsplit(':').next().unwrap()).collect();
    assert_eq!(last, ["01", "02", "03", "04", "05"]);
    let counts: Vec<_> =
        view.summary.iter().map(|count| format!("{} {}", count.count, count.group.name())).collect();
    assert_eq!(counts, ["1 failed", "2 installing", "1 unknown", "1 installed"]);
}

#[test]
fn the_json_has_its_version_and_the_fields_that_are_promised() {
    let run = told([line(1, "image", StepState::Started, None)]);
    let machine = machine(MAC, &BEGUN);
    let view = FleetView::new(vec![row(&machine, Some(&run), ConfigurationFit::Own, NOW).into()], NOW);
    let (history, query) = (FleetHistory::default(), ListQuery::default());
    let changes = history.changes(None);
    let json =
        serde_json::to_value(FleetDocument::new(&view, &query, TokenRole::Operate, "e-1".into(), &changes))
            .unwrap();
    assert_eq!(hello(1).hostname.as_deref(), json["machines"][0]["name"].as_str());
    let mut row = json["machines"][0].clone();
    row["id"] = "x".into();
    let expected = serde_json::json!({
        "id": "x", "name": "node-1", "identity": {"macs": [MAC], "serial": null, "uuid": null, "asset_tag": null},
        "role": null, "cluster": null, "rack": null, "configuration": null, "clients": [], "product": null, "stage": "writing", "group": "installing", "failed_in": null,
        "since": "2023-11-14T22:13:20Z", "seen": "2023-11-14T22:13:20Z", "silent": false, "message": "m",
        "progress": null, "error": null, "update": null, "next": null, "log": false, "actions": [],
    });
    assert_eq!(row, expected);
    assert_eq!(
        (&json["version"], &json["since"], &json["removed"]),
        (&"e-1".into(), &serde_json::Value::Null, &serde_json::json!([]))
    );
    assert_eq!((&json["v"], &json["time"]), (&1.into(), &"2023-11-14T22:13:20Z".into()));
    assert_eq!(json["summary"], serde_json::json!([{"group": "installing", "count": 1}]));
    assert_eq!((&json["conflicts"], &json["more"]), (&serde_json::json!([]), &0.into()));
    assert_eq!(json["next"], serde_json::Value::Null);
}
