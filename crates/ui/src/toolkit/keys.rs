//! Bytes from a terminal as keys.
//!
//! Terminals agree on most keys and not on all: arrows come as `ESC [ A` and as `ESC O A`, the Linux console has `ESC [ [ A` for
//! F1, Backspace is 0x7f or 0x08, Enter is CR, LF or both. Everything that any of them sends is understood, and an unknown
//! sequence is dropped as a whole. If a terminal or the line to it has no function keys, Escape and a digit do as well.

use std::time::Duration;

/// How long the rest of a sequence may take after an ESC before that is the key itself. A byte takes a millisecond at 9600 baud;
/// remote consoles send a sequence in one piece.
pub const ESCAPE_TIMEOUT: Duration = Duration::from_millis(60);

/// No sequence of a key is longer, in bytes.
const SEQUENCE_BYTES_MAX: usize = 24;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs)]
pub enum Key {
    /// Never a control character.
    Char(char),
    /// Control and a letter, which is lower-case.
    Control(char),
    /// A function key, from 1.
    Function(u8),
    Enter,
    Escape,
    Tab,
    BackTab,
    Backspace,
    Delete,
    Insert,
    Up,
    Down,
    Left,
    Right,
    Home,
    End,
    PageUp,
    PageDown,
}

#[derive(Debug, Default)]
pub struct Decoder {
    pending: Vec<u8>,
    after_return: bool,
}

/// The first bytes of a stream.
enum Decoded {
    /// This many bytes are a key, or an unknown one.
    Bytes(usize, Option<Key>),
    Beginning,
}

impl Decoder {
    /// The keys that are complete with these bytes.
    pub fn feed(&mut self, bytes: &[u8]) -> Vec<Key> {
        self.pending.extend_from_slice(bytes);
        let mut keys = Vec::new();
        while let Some(found) = (!self.pending.is_empty()).then(|| first(&self.pending)) {
            let Decoded::Bytes(length, key) = found else { break };
            let taken: Vec<u8> = self.pending.drain(..length).collect();
            // CR and LF together are one press of Enter.
            let second_half = taken == b"\n" && self.after_return;
            self.after_return = taken == b"\r";
            if !second_half {
                keys.extend(key);
            }
        }
        keys
    }

    /// Whether bytes wait for the rest of a key.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        !self.pending.is_empty()
    }

    /// Nothing has come for [`ESCAPE_TIMEOUT`]: an ESC is the key Escape, and half a sequence is dropped.
    pub fn give_up(&mut self) -> Vec<Key> {
        let lone = self.pending == [ESC];
        self.pending.clear();
        if lone { vec![Key::Escape] } else { Vec::new() }
    }
}

const ESC: u8 = 0x1b;

fn first(bytes: &[u8]) -> Decoded {
    match bytes {
        [ESC, rest @ ..] => escaped(rest),
        [byte @ ..=0x7f, ..] => Decoded::Bytes(1, ascii(*byte)),
        _ => multibyte(bytes),
    }
}

fn ascii(byte: u8) -> Option<Key> {
    Some(match byte {
        b'\r' | b'\n' => Key::Enter,
        b'\t' => Key::Tab,
        0x08 | 0x7f => Key::Backspace,
        1..=26 => Key::Control(char::from(byte - 1 + b'a')),
        b' '..=b'~' => Key::Char(char::from(byte)),
        _ => return None,
    })
}

/// A character of more than one byte in UTF-8. Invalid bytes are dropped one by one.
fn multibyte(bytes: &[u8]) -> Decoded {
    let length = match bytes[0] {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return Decoded::Bytes(1, None),
    };
    let available = &bytes[..length.min(bytes.len())];
    match std::str::from_utf8(available) {
        Ok(text) => {
            let key = text.chars().next().filter(|c| !c.is_control()).map(Key::Char);
            Decoded::Bytes(length, key)
        }
        Err(error) if error.error_len().is_none() && available.len() < length => Decoded::Beginning,
        Err(_) => Decoded::Bytes(1, None),
    }
}

/// The rest of a sequence after ESC.
fn escaped(rest: &[u8]) -> Decoded {
    match rest {
        [] => Decoded::Beginning,
        [ESC, ..] => Decoded::Bytes(1, Some(Key::Escape)),
        [b'[', rest @ ..] => control_sequence(rest),
        [b'O', rest @ ..] => match rest.first() {
            None => Decoded::Beginning,
            Some(&ESC) => Decoded::Bytes(2, None),
            Some(last) => Decoded::Bytes(3, application(*last)),
        },
        [digit @ b'0'..=b'9', ..] => {
            Decoded::Bytes(2, Some(Key::Function(if *digit == b'0' { 10 } else { digit - b'0' })))
        }
        // Alt and another key.
        [_, ..] => Decoded::Bytes(2, None),
    }
}

/// `ESC [`, parameters, a last byte (ECMA-48 section 5.4); or, on the Linux console, a second `[` and a letter.
fn control_sequence(rest: &[u8]) -> Decoded {
    if let [b'[', after @ ..] = rest {
        return match after.first() {
            None => Decoded::Beginning,
            Some(letter @ b'A'..=b'E') => Decoded::Bytes(4, Some(Key::Function(letter - b'A' + 1))),
            Some(&ESC) => Decoded::Bytes(3, None),
            Some(_) => Decoded::Bytes(4, None),
        };
    }
    let middle = rest.iter().take_while(|byte| (0x20..=0x3f).contains(*byte)).count();
    match rest.get(middle) {
        None if middle < SEQUENCE_BYTES_MAX => Decoded::Beginning,
        None => Decoded::Bytes(2 + middle, None),
        Some(last @ 0x40..=0x7e) => Decoded::Bytes(3 + middle, in_sequence(&rest[..middle], *last)),
        // A byte that breaks a sequence off begins something new.
        Some(_) => Decoded::Bytes(2 + middle, None),
    }
}

fn in_sequence(parameters: &[u8], last: u8) -> Option<Key> {
    // Modifiers come as a second parameter; Shift and an arrow is an arrow.
    let number = parameters.split(|byte| *byte == b';').next().unwrap_or_default();
    match last {
        b'A'..=b'D' | b'H' | b'F' => application(last),
        b'Z' => Some(Key::BackTab),
        b'~' => numbered(std::str::from_utf8(number).ok()?.parse().ok()?),
        _ => None,
    }
}

/// The last byte of `ESC O` and of `ESC [`, which have these in common.
fn application(last: u8) -> Option<Key> {
    Some(match last {
        b'A' => Key::Up,
        b'B' => Key::Down,
        b'C' => Key::Right,
        b'D' => Key::Left,
        b'H' => Key::Home,
        b'F' => Key::End,
        b'M' => Key::Enter,
        b'P'..=b'S' => Key::Function(last - b'P' + 1),
        _ => return None,
    })
}

/// `ESC [ NUMBER ~`.
fn numbered(number: u8) -> Option<Key> {
    Some(match number {
        1 | 7 => Key::Home,
        2 => Key::Insert,
        3 => Key::Delete,
        4 | 8 => Key::End,
        5 => Key::PageUp,
        6 => Key::PageDown,
        11..=15 => Key::Function(number - 10),
        17..=21 => Key::Function(number - 11),
        23 | 24 => Key::Function(number - 12),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn keys(bytes: &[u8]) -> Vec<Key> {
        let mut decoder = Decoder::default();
        let mut keys = decoder.feed(bytes);
        keys.extend(decoder.give_up());
        keys
    }

    #[test]
    fn every_terminals_way_of_saying_a_key_is_understood() {
        let table: &[(&[u8], &[Key])] = &[
            (b"a \xc3\xa9\xe2\x82\xac", &[Key::Char('a'), Key::Char(' '), Key::Char('é'), Key::Char('€')]),
            (b"\r", &[Key::Enter]),
            (b"\n", &[Key::Enter]),
            (b"\r\n", &[Key::Enter]),
            (b"\r\r\n\n", &[Key::Enter, Key::Enter, Key::Enter]),
            (b"\x1bOM", &[Key::Enter]),
            (b"\x7f\x08", &[Key::Backspace, Key::Backspace]),
            (b"\t\x1b[Z", &[Key::Tab, Key::BackTab]),
            (b"\x1b[A\x1bOB\x1b[1;2C\x1b[D", &[Key::Up, Key::Down, Key::Right, Key::Left]),
            (b"\x1b[H\x1b[1~\x1b[7~\x1bOH", &[Key::Home; 4]),
            (b"\x1b[F\x1b[4~\x1b[8~\x1bOF", &[Key::End; 4]),
            (b"\x1b[5~\x1b[6~\x1b[2~\x1b[3~", &[Key::PageUp, Key::PageDown, Key::Insert, Key::Delete]),
            (b"\x1b[[A\x1bOP\x1b[11~\x1b1", &[Key::Function(1); 4]),
            (b"\x1b[[E\x1b[15~\x1b5", &[Key::Function(5); 3]),
            (
                b"\x1b[17~\x1b[21~\x1b0\x1b[24~",
                &[Key::Function(6), Key::Function(10), Key::Function(10), Key::Function(12)],
            ),
            (b"\x0c\x03", &[Key::Control('l'), Key::Control('c')]),
            (b"\x1b", &[Key::Escape]),
            (b"\x1b\x1b", &[Key::Escape, Key::Escape]),
            (b"\x1b\x1b[A", &[Key::Escape, Key::Up]),
        ];
        for (bytes, expected) in table {
            assert_eq!(keys(bytes), *expected, "{}", bytes.escape_ascii());
        }
    }

    #[test]
    fn what_nobody_knows_is_dropped_as_a_whole_and_leaves_no_stray_characters() {
        for bytes in [
            &b"\x1b[24;80R"[..],
            b"\x1b[?1;2c",
            b"\x1b[[Z",
            b"\x1bx",
            b"\x1b[200~",
            b"\xff\xc3",
            b"\x00",
            b"\x1b[1;",
        ] {
            assert_eq!(keys(bytes), [], "{}", bytes.escape_ascii());
        }
        assert_eq!(keys(b"\x1b[1;\x1b[Aa"), [Key::Up, Key::Char('a')], "a broken sequence costs only itself");
    }

    #[test]
    fn an_escape_waits_for_what_may_follow_and_is_a_key_when_nothing_does() {
        let mut decoder = Decoder::default();
        assert_eq!(decoder.feed(b"\x1b"), []);
        assert!(decoder.is_waiting());
        assert_eq!(decoder.feed(b"[A"), [Key::Up]);
        assert_eq!(decoder.feed(b"\x1b"), []);
        assert_eq!(decoder.give_up(), [Key::Escape]);
        assert!(!decoder.is_waiting());
    }

    proptest! {
        #[test]
        fn it_does_not_matter_how_bytes_are_cut_into_pieces(
            bytes in proptest::collection::vec(
                prop_oneof![any::<u8>(), Just(0x1b), Just(b'['), Just(b'O'), Just(b'~'), Just(b'1')], 0..60),
            cut in 0usize..60,
        ) {
            let cut = cut.min(bytes.len());
            let (mut whole, mut pieces) = (Decoder::default(), Decoder::default());
            let at_once = whole.feed(&bytes);
            let mut parts = pieces.feed(&bytes[..cut]);
            parts.extend(pieces.feed(&bytes[cut..]));
            prop_assert_eq!(&at_once, &parts);
            prop_assert!(whole.pending.len() <= SEQUENCE_BYTES_MAX + 2);
            for key in at_once {
                if let Key::Char(c) = key {
                    prop_assert!(!c.is_control());
                }
            }
        }

        #[test]
        fn text_comes_through_as_it_was_typed(text in "[ -~é€😀äß]{0,40}") {
            let typed: Vec<_> = text.chars().map(Key::Char).collect();
            prop_assert_eq!(keys(text.as_bytes()), typed);
        }
    }
}
