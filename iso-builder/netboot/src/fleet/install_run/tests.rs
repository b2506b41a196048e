use super::*;
use base::progress::StepState;
use model::machine::Identity;
use proptest::prelude::*;

const NOW: Moment = Moment(1_700_000_000);

pub(crate) fn hello(run: u128) -> StreamHeader {
    StreamHeader {
        v: 1,
        run: Uuid::from_u128(run),
        machine: Identity::default(),
        hostname: Some("node-1".into()),
        product: None,
    }
}

fn event(seq: u64, step: &str, state: StepState) -> Event {
    let time = format!("2026-11-21T10:00:{:02}.000Z", seq % 60);
    let (step, message) = (step.to_owned(), format!("doing {step}"));
    Event {
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
        exit_code: None,
    }
}

fn counted(seq: u64, state: StepState, bytes: u64) -> Event {
    Event { bytes: Some(bytes), total: Some(1000), ..event(seq, "image", state) }
}

fn end(seq: u64, code: u8) -> Event {
    Event { exit_code: Some(code), message: "over".into(), ..event(seq, "run", StepState::Done) }
}

pub(crate) fn told(lines: impl IntoIterator<Item = ReportLine>) -> InstallRun {
    let mut run = InstallRun::new(Uuid::from_u128(1), false, NOW);
    for (seconds, line) in lines.into_iter().enumerate() {
        run.receive(&hello(1), &[line], NOW.plus(seconds as u64));
    }
    run
}

fn events(events: impl IntoIterator<Item = Event>) -> InstallRun {
    told(events.into_iter().map(ReportLine::Event))
}

#[test]
fn a_step_with_a_length_has_a_percentage_a_rate_and_an_end_in_sight() {
    let run = events([
        counted(1, StepState::Started, 0),
        counted(2, StepState::Progress, 100),
        counted(4, StepState::Progress, 300),
    ]);
    let work = run.work.as_ref().unwrap();
    assert_eq!((work.percent(), work.rate(), work.left()), (30, Some(100), Some(7)));
    assert_eq!((run.stage, run.since, run.last_report), (MachineStage::Writing, NOW, NOW.plus(2)));
    let mut run = run;
    run.receive(&hello(1), &[ReportLine::Event(counted(5, StepState::Done, 1000))], NOW.plus(9));
    assert_eq!((run.work, run.steps[0].until), (None, Some(NOW.plus(9))));
}

#[test]
fn clocks_that_jump_and_counts_that_cannot_be_make_no_rate() {
    let mut back = counted(3, StepState::Progress, 500);
    back.time = "2020-01-01T00:00:00Z".into();
    let run = events([counted(1, StepState::Started, 0), back]);
    assert_eq!(run.work.as_ref().unwrap().rate(), None);
    let run = events([counted(1, StepState::Started, 900), counted(2, StepState::Progress, 400)]);
    assert_eq!(run.work.as_ref().unwrap().rate(), None);
    let run = events([counted(1, StepState::Started, 0), counted(2, StepState::Progress, 5000)]);
    assert_eq!(run.work.as_ref().unwrap().percent(), 100);
    let nothing = Event { total: Some(0), bytes: Some(0), ..event(1, "image", StepState::Started) };
    assert_eq!(events([nothing]).work.unwrap().percent(), 100);
}

#[test]
fn what_comes_twice_or_late_changes_nothing() {
    let all = [
        event(1, "preflight", StepState::Started),
        event(2, "preflight", StepState::Done),
        event(3, "image", StepState::Started),
    ];
    let once = events(all.clone());
    let twice = told(all.clone().into_iter().chain(all).map(ReportLine::Event));
    assert_eq!(once.steps, twice.steps);
    assert_eq!((once.stage, once.since), (twice.stage, twice.since));
}

#[test]
fn the_stage_begins_with_a_step_and_the_run_ends_it() {
    let mut all = vec![event(1, "webhook", StepState::Progress), event(2, "preflight", StepState::Started)];
    assert_eq!(events(all.clone()).stage, MachineStage::Preflight);
    all.push(event(3, "webhook", StepState::Progress));
    assert_eq!(events(all.clone()).stage, MachineStage::Preflight);
    all.push(event(4, "images", StepState::Started));
    assert_eq!(events(all.clone()).stage, MachineStage::Seeding);
    let done = events(all.iter().cloned().chain([end(5, 0)]));
    assert_eq!((done.stage, done.ended), (MachineStage::Rebooting, Some(0)));
    all.push(event(5, "images", StepState::Failed));
    let failed = events(all.into_iter().chain([end(6, 6)]));
    assert_eq!((failed.stage, failed.ended), (MachineStage::Failed, Some(6)));
    assert_eq!(failed.message, "doing images");
}

#[test]
fn why_it_failed_and_the_log_come_after_the_last_event() {
    let failed = RunFailure { causes: vec!["a".into(), "b".into()], hints: vec!["c".into()], exit_code: 6 };
    let run = told([
        ReportLine::Event(end(1, 6)),
        ReportLine::Failure(failed.clone()),
        ReportLine::Log("one".into()),
        ReportLine::Log("two".into()),
    ]);
    assert_eq!((run.failure, run.has_log), (Some(failed), true));
}

#[test]
fn lines_that_no_installer_makes_are_refused() {
    let greeting = serde_json::to_string(&ReportLine::Hello(hello(1))).unwrap();
    let good = serde_json::to_value(ReportLine::Event(event(1, "image", StepState::Started))).unwrap();
    let with = |key: &str, value: serde_json::Value| {
        let mut line = good.clone();
        line["event"][key] = value;
        line.to_string()
    };
    let long = |length: usize| "x".repeat(length);
    for (line, expected) in [
        (good.to_string(), Ok(1)),
        (r#"{"of a newer version": 1}"#.into(), Ok(0)),
        (String::new(), Err(InvalidReport::Format)),
        ("[]".into(), Ok(0)),
        (greeting.clone(), Ok(0)),
        (with("v", 2.into()), Err(InvalidReport::Number)),
        (with("time", "yesterday".into()), Err(InvalidReport::Number)),
        (with("bytes", (1_u64 << 61).into()), Err(InvalidReport::Number)),
        (with("bytes", (-1).into()), Err(InvalidReport::Format)),
        (with("step", "<b>".into()), Err(InvalidReport::Text)),
        (with("step", long(65).into()), Err(InvalidReport::Text)),
        (with("state", "odd".into()), Err(InvalidReport::Format)),
        (with("message", long(5000).into()), Err(InvalidReport::Text)),
        (with("message", "a\u{1b}[2J".into()), Err(InvalidReport::Text)),
        (serde_json::json!({"log": long(LOG + 1)}).to_string(), Err(InvalidReport::Text)),
        (
            serde_json::json!({"failure": {"causes": vec![""; 65], "hints": [], "exit_code": 1}}).to_string(),
            Err(InvalidReport::Number),
        ),
        (
            serde_json::json!({"failure": {"causes": [], "hints": [], "exit_code": 999}}).to_string(),
            Err(InvalidReport::Format),
        ),
    ] {
        let body = format!("{greeting}\n{line}\n");
        assert_eq!(read(body.as_bytes()).map(|(_, lines)| lines.len()), expected, "{line:.100}");
    }
    for body in ["", "{}", &good.to_string(), &greeting.replace("\"v\":1", "\"v\":2"), "\u{0}"] {
        assert_eq!(read(body.as_bytes()).unwrap_err(), InvalidReport::Format, "{body:.100}");
    }
    assert_eq!(read(b"\xff").unwrap_err(), InvalidReport::Text);
    let shouted = StreamHeader { hostname: Some("a\nb".into()), ..hello(1) };
    let shouted = serde_json::to_vec(&ReportLine::Hello(shouted)).unwrap();
    assert_eq!(read(&shouted).unwrap_err(), InvalidReport::Text);
}

#[test]
fn a_run_with_endless_steps_is_remembered_in_part() {
    let run = events((1..1000).map(|seq| event(seq, "image", StepState::Started)));
    assert_eq!(run.steps.len(), STEPS);
}

fn any_line() -> impl Strategy<Value = ReportLine> {
    let steps = prop_oneof![Just("image"), Just("run"), Just("images"), Just("preflight"), Just("x")];
    let states = prop_oneof![
        Just(StepState::Started),
        Just(StepState::Progress),
        Just(StepState::Done),
        Just(StepState::Failed)
    ];
    let counts = prop::option::of(prop_oneof![0..2000_u64, Just(MOST), Just(u64::MAX)]);
    let event = (
        any::<u64>(),
        0..4_000_000_000_000_i64,
        steps,
        states,
        counts.clone(),
        counts,
        prop::option::of(any::<u8>()),
        ".{0,20}",
    );
    let event = event.prop_map(|(seq, time, step, state, bytes, total, exit_code, message)| {
        let time = Timestamp::from_millisecond(time).unwrap().to_string();
        let step = step.to_owned();
        ReportLine::Event(Event {
            v: 1,
            seq: seq % 64,
            time,
            step,
            state,
            bytes,
            total,
            message,
            details: None,
            result: None,
            part: None,
            exit_code,
        })
    });
    let failure = (prop::collection::vec(".{0,20}", 0..3), any::<u8>()).prop_map(|(causes, exit_code)| {
        ReportLine::Failure(RunFailure { hints: causes.clone(), causes, exit_code })
    });
    prop_oneof![8 => event, 1 => failure, 1 => ".{0,40}".prop_map(ReportLine::Log)]
}

proptest! {
    #[test]
    fn no_stream_of_lines_makes_the_fold_panic(lines in prop::collection::vec(any_line(), 0..60)) {
        let checked: Vec<_> = lines.into_iter().filter(|line| check(line).is_ok()).collect();
        let run = told(checked);
        prop_assert!(run.steps.len() <= STEPS);
        // What the store keeps of it is the same run.
        let kept: InstallRun = serde_json::from_str(&serde_json::to_string(&run).unwrap()).unwrap();
        prop_assert_eq!(&kept, &InstallRun { has_log: false, ..run.clone() });
        if let Some(work) = &run.work {
            prop_assert!(work.percent() <= 100);
            let _ = (work.rate(), work.left());
        }
    }

    #[test]
    fn no_body_makes_the_reader_panic(body in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = read(&body);
        let mut greeted = serde_json::to_vec(&ReportLine::Hello(hello(1))).unwrap();
        greeted.push(b'\n');
        greeted.extend(body);
        let _ = read(&greeted);
    }
}
