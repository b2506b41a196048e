//! The queue at times that tests choose, and outboxes whose destination tests play.

use std::collections::VecDeque;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::Duration;

use proptest::prelude::*;
use testing::progress::Recorder;
use testing::reports::{ReportServer, ServerReaction};

use super::*;
use base::progress::Progress;

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn policy() -> OutboxPolicy {
    OutboxPolicy {
        capacity: 8,
        batch: 3,
        timeout: millis(2000),
        rate: millis(1000),
        attempts: None,
        pause: millis(100),
        longest_pause: millis(400),
        closing_pause: millis(50),
        flush: Duration::from_secs(20),
    }
}

/// Hears what is sent, and answers as the test says. A test that ends lets it succeed.
struct ScriptedDestination {
    sent: Sender<Vec<u32>>,
    answers: Receiver<Result<(), SendError>>,
    failures: Sender<(String, u32, FailureAction)>,
}

impl Destination for ScriptedDestination {
    type Message = u32;

    fn send(&mut self, messages: &[u32]) -> Result<(), SendError> {
        let _ = self.sent.send(messages.to_vec());
        self.answers.recv().unwrap_or(Ok(()))
    }

    fn failed(&mut self, why: &str, failed: u32, next: FailureAction) {
        let _ = self.failures.send((why.to_owned(), failed, next));
    }

    /// Hundreds replace hundreds.
    fn replaces(newer: &u32, waiting: &u32) -> bool {
        newer.is_multiple_of(100) && waiting.is_multiple_of(100)
    }

    /// Even numbers give way.
    fn make_room(newer: &u32, waiting: &mut VecDeque<u32>) -> bool {
        match waiting.iter().position(|number| number.is_multiple_of(2)) {
            Some(at) => waiting.remove(at).is_some(),
            None => !newer.is_multiple_of(2),
        }
    }
}

/// One that replaces nothing, and has no more room than its policy says.
struct PlainDestination;

impl Destination for PlainDestination {
    type Message = u32;

    fn send(&mut self, _: &[u32]) -> Result<(), SendError> {
        Ok(())
    }

    fn failed(&mut self, _: &str, _: u32, _: FailureAction) {}
}

struct PlayedOutbox {
    outbox: Outbox<ScriptedDestination>,
    sent: Receiver<Vec<u32>>,
    answer: Sender<Result<(), SendError>>,
    failures: Receiver<(String, u32, FailureAction)>,
}

fn played(policy: OutboxPolicy) -> PlayedOutbox {
    let ((sender, sent), (answer, answers), (failing, failures)) =
        (mpsc::channel(), mpsc::channel(), mpsc::channel());
    let outbox = Outbox::new(ScriptedDestination { sent: sender, answers, failures: failing }, policy);
    PlayedOutbox { outbox, sent, answer, failures }
}

impl PlayedOutbox {
    /// The next batch; it gets this answer.
    fn hears(&self, answer: Result<(), SendError>) -> Vec<u32> {
        let sent = self.sent.recv().unwrap();
        self.answer.send(answer).unwrap();
        sent
    }
}

fn temporary() -> Result<(), SendError> {
    Err(SendError::Temporary("busy".into()))
}

fn batch<D: Destination<Message = u32>>(queue: &mut OutboxQueue<D>, now: Instant) -> Vec<u32> {
    match queue.next(now) {
        NextAttempt::Send(messages) => messages,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_pause_follows_each_attempt_and_is_short_while_the_queue_is_closed() {
    let start = Instant::now();
    let mut queue = OutboxQueue::<PlainDestination>::new(policy());
    assert_eq!(queue.next(start), NextAttempt::Wait(None));
    (1..=9).for_each(|number| queue.push(number));
    let wait = |time| NextAttempt::Wait(Some(millis(time)));
    let mut now = start;
    for pause in [100, 200, 400, 400] {
        let messages = batch(&mut queue, now);
        assert_eq!(messages, [1, 2, 3]);
        queue.settle(messages, Some(FailureAction::Retry), now, now + millis(7));
        now += millis(7);
        assert_eq!(queue.next(now + millis(10)), wait(pause - 10));
        now += millis(pause);
    }
    let messages = batch(&mut queue, now);
    queue.settle(messages, None, now, now + millis(300));
    assert_eq!(queue.next(now + millis(300)), wait(700), "from one request to the next");
    now += millis(1000);
    let messages = batch(&mut queue, now);
    assert_eq!(messages, [4, 5, 6]);
    queue.settle(messages, Some(FailureAction::Retry), now, now);
    assert_eq!(queue.next(now), wait(100), "pauses begin anew");
    queue.close();
    assert_eq!(queue.next(now), wait(50));
    let messages = batch(&mut queue, now + millis(50));
    queue.settle(messages, None, now, now);
    assert_eq!(batch(&mut queue, now), [7, 8]);
    queue.settle(Vec::new(), None, now, now);
    assert_eq!(queue.next(now), NextAttempt::End);
}

#[test]
fn a_destination_that_asks_for_a_pause_gets_it_up_to_a_minute_and_not_while_the_queue_is_closed() {
    let now = Instant::now();
    for (asked, pause) in [(millis(20), 100), (millis(3000), 3000), (Duration::from_secs(3600), 60_000)] {
        let mut queue = OutboxQueue::<PlainDestination>::new(policy());
        queue.push(1);
        let messages = batch(&mut queue, now);
        let (failed, next) = queue.after(&SendError::Busy("busy".into(), asked));
        assert_eq!((failed, next), (1, FailureAction::Retry));
        queue.settle(messages, Some(next), now, now);
        assert_eq!(queue.next(now), NextAttempt::Wait(Some(millis(pause))), "{asked:?}");
        // A requested pause applies once.
        let messages = batch(&mut queue, now + millis(pause));
        let (_, next) = queue.after(&SendError::Temporary("busy".into()));
        queue.settle(messages, Some(next), now, now);
        assert_eq!(queue.next(now), NextAttempt::Wait(Some(millis(200))));
        queue.close();
        assert_eq!(queue.next(now), NextAttempt::Wait(Some(millis(50))));
    }
}

#[test]
fn messages_that_could_not_be_sent_come_first_and_in_their_order() {
    let mut queue = OutboxQueue::<PlainDestination>::new(OutboxPolicy { batch: 2, ..policy() });
    let now = Instant::now();
    (1..=4).for_each(|number| queue.push(number));
    let messages = batch(&mut queue, now);
    queue.push(5);
    queue.settle(messages, Some(FailureAction::Retry), now, now);
    let mut all = batch(&mut queue, now + millis(100));
    queue.settle(Vec::new(), None, now, now);
    all.extend(batch(&mut queue, now + millis(1000)));
    assert_eq!(all, [1, 2, 3, 4]);
}

#[test]
fn a_full_queue_drops_what_its_destination_says() {
    let now = Instant::now();
    let policy = OutboxPolicy { capacity: 3, batch: 9, ..policy() };
    let mut plain = OutboxQueue::<PlainDestination>::new(policy);
    (1..=5).for_each(|number| plain.push(number));
    assert_eq!(plain.result(), OutboxResult { unsent: 3, dropped: 2, refused: false });
    assert_eq!(batch(&mut plain, now), [1, 2, 3]);
    let mut player = OutboxQueue::<ScriptedDestination>::new(policy);
    [1, 100, 3, 200, 5, 7, 8].into_iter().for_each(|number| player.push(number));
    assert_eq!(batch(&mut player, now), [1, 3, 5, 7], "200 takes the place of 100, and 5 that of 200");
}

#[test]
fn an_outbox_sends_again_what_did_not_arrive_and_tells_what_follows() {
    let played = played(OutboxPolicy { pause: millis(1), rate: millis(1), batch: 1, ..policy() });
    played.outbox.push(1);
    assert_eq!(played.hears(temporary()), [1]);
    played.outbox.push(2);
    assert_eq!(played.hears(temporary()), [1]);
    assert_eq!(played.hears(Ok(())), [1]);
    assert_eq!(played.hears(temporary()), [2]);
    assert_eq!(played.hears(Ok(())), [2]);
    assert_eq!(played.outbox.close(), OutboxResult { unsent: 0, dropped: 0, refused: false });
    let failures: Vec<_> = played.failures.try_iter().collect();
    let retry = |failed| ("busy".to_owned(), failed, FailureAction::Retry);
    assert_eq!(failures, [retry(1), retry(2), retry(1)]);
}

#[test]
fn an_outbox_gives_up_after_its_attempts_and_goes_on_with_the_next_message() {
    let policy = OutboxPolicy { pause: millis(1), rate: millis(1), attempts: Some(2), batch: 1, ..policy() };
    let played = played(policy);
    [1, 3].into_iter().for_each(|number| played.outbox.push(number));
    assert_eq!([played.hears(temporary()), played.hears(temporary()), played.hears(Ok(()))], [[1], [1], [3]]);
    assert_eq!(played.outbox.close().unsent, 0);
    let next: Vec<_> = played.failures.try_iter().map(|(_, failed, next)| (failed, next)).collect();
    assert_eq!(next, [(1, FailureAction::Retry), (2, FailureAction::GiveUp)]);
}

#[test]
fn a_destination_that_refuses_is_sent_nothing_more() {
    let played = played(policy());
    played.outbox.push(1);
    assert_eq!(played.sent.recv().unwrap(), [1]);
    played.outbox.push(3);
    played.answer.send(Err(SendError::Refused("gone".into()))).unwrap();
    assert_eq!(played.failures.recv().unwrap(), ("gone".into(), 1, FailureAction::Close));
    assert_eq!(played.outbox.close(), OutboxResult { unsent: 0, dropped: 0, refused: true });
    played.outbox.push(5);
    // The thread ends, and the destination with it.
    assert_eq!(played.sent.recv(), Err(mpsc::RecvError));
}

#[test]
fn closing_waits_no_longer_than_the_policy_says() {
    let played = played(OutboxPolicy { flush: millis(50), batch: 1, ..policy() });
    [1, 3, 5].into_iter().for_each(|number| played.outbox.push(number));
    assert_eq!(played.sent.recv().unwrap(), [1]);
    assert_eq!(played.outbox.close(), OutboxResult { unsent: 3, dropped: 0, refused: false });
    played.outbox.push(7);
    played.answer.send(Ok(())).unwrap();
    assert_eq!(played.sent.recv(), Err(mpsc::RecvError), "no attempt begins after the end");
}

#[test]
fn a_pause_ends_early_when_the_outbox_is_closed() {
    let hour = Duration::from_secs(3600);
    let policy = OutboxPolicy { rate: hour, pause: hour, longest_pause: hour, batch: 1, ..policy() };
    let played = played(policy);
    [1, 3].into_iter().for_each(|number| played.outbox.push(number));
    assert_eq!(played.hears(temporary()), [1]);
    assert_eq!(played.failures.recv().unwrap().1, 1);
    let outbox = played.outbox.clone();
    let closing = std::thread::spawn(move || outbox.close());
    assert_eq!([played.hears(Ok(())), played.hears(Ok(()))], [[1], [3]]);
    assert_eq!(closing.join().unwrap().unsent, 0);
}

#[test]
fn a_request_is_made_once_and_its_errors_do_not_show_the_path() {
    let ask = |url: &str| {
        let client = request::client(url, &[], || reqwest::blocking::Client::builder().timeout(millis(300)));
        request::send(client.unwrap().post(format!("{url}/MARK"))).map(|answer| answer.status())
    };
    let server =
        ReportServer::new(&[ServerReaction::Status(302), ServerReaction::Hang, ServerReaction::Close]);
    assert_eq!(ask(&server.url).unwrap(), 302);
    assert!(server.requests()[0].contains(concat!("user-agent: nqrust/", env!("CARGO_PKG_VERSION"))));
    assert_eq!(ask(&server.url), Err(SendError::Temporary("the server did not answer in time".into())));
    let closed = ask(&server.url).unwrap_err();
    assert!(matches!(&closed, SendError::Temporary(why) if !why.contains("MARK")), "{closed:?}");
    assert_eq!(server.paths(), ["/MARK"; 3]);
    assert_eq!(request::origin("https://name:MARK@host:8443/MARK?MARK"), "https://host:8443");
    let client = request::client("http://a", &[], reqwest::blocking::Client::builder).unwrap();
    let refused = request::send(client.post("http://a").header("X", "MARK\n")).unwrap_err();
    assert!(matches!(&refused, SendError::Refused(why) if !why.contains("MARK")), "{refused:?}");
}

#[test]
fn nothing_is_warned_of_after_the_end_of_a_run() {
    let recorder = Recorder::default();
    let warnings = DeliveryWarnings::new(Progress::new(vec![Box::new(recorder.clone())]), "report");
    warnings.warn("one");
    warnings.fall_silent();
    warnings.warn("two");
    let events = recorder.0.lock().unwrap();
    let told: Vec<_> = events.iter().map(|event| (&*event.step, &*event.message)).collect();
    assert_eq!(told, [("report", "warning: one")]);
}

#[derive(Clone, Copy, Debug)]
enum OutboxAction {
    Push,
    Attempt(Option<FailureAction>),
    Pass(u64),
    Close,
}

fn act() -> impl Strategy<Value = OutboxAction> {
    prop_oneof![
        6 => Just(OutboxAction::Push),
        2 => Just(OutboxAction::Attempt(None)),
        2 => Just(OutboxAction::Attempt(Some(FailureAction::Retry))),
        1 => Just(OutboxAction::Attempt(Some(FailureAction::GiveUp))),
        4 => (0_u64..600).prop_map(OutboxAction::Pass),
        1 => Just(OutboxAction::Close),
    ]
}

proptest! {
    #[test]
    fn each_message_is_sent_or_waits_or_was_dropped_in_its_order(acts in proptest::collection::vec(act(), 0..80)) {
        let policy = policy();
        let mut queue = OutboxQueue::<PlainDestination>::new(policy);
        let mut now = Instant::now();
        let (mut pushed, mut closed, mut dropped) = (0, false, 0);
        // Settled messages; the start and the length of the present pause.
        let (mut settled, mut since, mut pause, mut failed) = (Vec::<u32>::new(), now, Duration::ZERO, 0);
        for act in acts {
            match act {
                OutboxAction::Push => {
                    let before = queue.result();
                    queue.push(pushed);
                    let after = queue.result();
                    prop_assert!(after.unsent <= policy.capacity + policy.batch);
                    dropped += usize::from(!closed && before.unsent == after.unsent);
                    prop_assert_eq!(after.dropped, dropped);
                    pushed += 1;
                }
                OutboxAction::Pass(time) => now += millis(time),
                OutboxAction::Close => {
                    queue.close();
                    closed = true;
                }
                OutboxAction::Attempt(failure) => {
                    let due = since
                        + match (closed, failed) {
                            (false, _) => pause,
                            (true, 0) => Duration::ZERO,
                            (true, _) => pause.min(policy.closing_pause),
                        };
                    match queue.next(now) {
                        NextAttempt::Send(messages) => {
                            prop_assert!(now >= due && !messages.is_empty() && messages.len() <= policy.batch);
                            prop_assert!(messages.is_sorted() && settled.last() < messages.first());
                            failed = if failure == Some(FailureAction::Retry) { failed + 1 } else { 0 };
                            pause = if failed > 0 { policy.pause_after(failed, None) } else { policy.rate };
                            since = now;
                            if failed == 0 {
                                settled.extend(&messages);
                            }
                            queue.settle(messages, failure, now, now);
                        }
                        NextAttempt::Wait(Some(left)) => prop_assert_eq!(left, due - now),
                        NextAttempt::Wait(None) => prop_assert!(!closed && queue.result().unsent == 0),
                        NextAttempt::End => prop_assert!(closed && queue.result().unsent == 0),
                    }
                }
            }
        }
        let mut accepted = queue.result().unsent + settled.len() + dropped;
        if !closed {
            prop_assert_eq!(accepted, pushed as usize);
        }
        // The rest is sent without further failures and in order.
        queue.close();
        now += Duration::from_secs(3600);
        while let NextAttempt::Send(messages) = queue.next(now) {
            settled.extend(&messages);
            queue.settle(messages, None, now, now);
        }
        accepted -= dropped;
        prop_assert_eq!(settled.len(), accepted);
        prop_assert!(settled.is_sorted());
    }
}
