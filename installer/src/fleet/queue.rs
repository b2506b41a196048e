//! What waits to be sent.

use std::collections::VecDeque;

use base::progress::State;
use model::fleet::Line;

/// So many lines wait. A server that is away for long costs what happened in between, never what came of it.
const WAITING: usize = 4096;

/// Lines in their order.
#[derive(Debug, Default)]
pub(super) struct Queue(VecDeque<Line>);

/// Whether a line tells how many bytes of a step are done, and of which step.
fn count(line: &Line) -> Option<&str> {
    match line {
        Line::Event(event) if event.state == State::Progress && event.bytes.is_some() => Some(&event.step),
        _ => None,
    }
}

/// Whether `newer` makes `waiting` a thing of the past.
fn replaces(newer: &Line, waiting: &Line) -> bool {
    match (newer, waiting) {
        (Line::Node(_), Line::Node(_)) => true,
        _ => count(newer).is_some() && count(newer) == count(waiting),
    }
}

fn is_progress(line: &Line) -> bool {
    matches!(line, Line::Event(event) if event.state == State::Progress)
}

impl Queue {
    /// Adds a line. The newest count of a step's bytes takes the place of the one before, and so does the newest word
    /// of a node; where too much waits, what happened within a step gives way, and the beginnings and ends of steps stay.
    pub(super) fn push(&mut self, line: Line) {
        if let Some(at) = self.0.iter().rposition(|waiting| replaces(&line, waiting)) {
            self.0.remove(at);
        }
        if self.0.len() >= WAITING {
            match self.0.iter().position(is_progress) {
                Some(at) => drop(self.0.remove(at)),
                None if is_progress(&line) => return,
                None => {}
            }
        }
        self.0.push_back(line);
    }

    /// The next lines, `size` at most.
    pub(super) fn take(&mut self, size: usize) -> Vec<Line> {
        self.0.drain(..self.0.len().min(size)).collect()
    }

    /// Lines that could not be sent, before all others.
    pub(super) fn put_back(&mut self, lines: Vec<Line>) {
        lines.into_iter().rev().for_each(|line| self.0.push_front(line));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::progress::Event;
    use model::fleet::Node;

    fn line(seq: u64, step: &str, state: State, bytes: Option<u64>) -> Line {
        let (time, message) = (String::new(), String::new());
        let step = step.to_owned();
        Line::Event(Event {
            v: 1,
            seq,
            time,
            step,
            state,
            bytes,
            total: bytes,
            message,
            result: None,
            exit_code: None,
        })
    }

    fn numbers(lines: &[Line]) -> Vec<u64> {
        let number = |line: &Line| match line {
            Line::Event(event) => event.seq,
            _ => 0,
        };
        lines.iter().map(number).collect()
    }

    #[test]
    fn only_the_newest_count_of_a_step_waits() {
        let mut queue = Queue::default();
        queue.push(line(1, "a", State::Started, Some(0)));
        queue.push(line(2, "a", State::Progress, Some(1)));
        queue.push(line(3, "a", State::Progress, None));
        queue.push(line(4, "b", State::Progress, Some(1)));
        queue.push(line(5, "a", State::Progress, Some(2)));
        queue.push(line(6, "a", State::Done, Some(3)));
        assert_eq!(numbers(&queue.take(9)), [1, 3, 4, 5, 6]);
        assert!(queue.is_empty());
    }

    #[test]
    fn only_the_newest_word_of_a_node_waits() {
        let node = |detail: &str| Line::Node(Node { detail: detail.into(), ..Node::default() });
        let mut queue = Queue::default();
        queue.push(node("before"));
        queue.push(line(1, "a", State::Done, None));
        queue.push(node("now"));
        assert_eq!(queue.take(9), [line(1, "a", State::Done, None), node("now")]);
    }

    #[test]
    fn lines_that_were_put_back_come_first_and_in_their_order() {
        let mut queue = Queue::default();
        (1..=4).for_each(|seq| queue.push(line(seq, "a", State::Done, None)));
        let batch = queue.take(2);
        queue.put_back(batch);
        assert_eq!(numbers(&queue.take(3)), [1, 2, 3]);
    }

    #[test]
    fn a_full_queue_forgets_what_happened_within_steps_and_nothing_else() {
        let mut queue = Queue::default();
        queue.push(line(0, "a", State::Progress, None));
        for seq in 1..=WAITING as u64 {
            queue.push(line(seq, "a", State::Done, None));
        }
        queue.push(line(1 << 20, "a", State::Progress, None));
        queue.push(line(1 << 21, "a", State::Failed, None));
        let left = numbers(&queue.take(usize::MAX));
        assert_eq!(left.len(), WAITING + 1);
        assert_eq!((left[0], left[WAITING]), (1, 1 << 21));
    }
}
