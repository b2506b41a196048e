//! GRUB's environment block as its `load_env` and `save_env` see it (grub-core/lib/envblk.c of GRUB 2.12), with the oddities
//! that show only on blocks that nobody wrote on purpose: so that what is computed here is what a machine does.

/// The beginning of a block; the rest are lines `name=value` and, after them, [`FILLER`].
pub(super) const SIGNATURE: &[u8] = b"# GRUB Environment Block\n";
pub(super) const FILLER: u8 = b'#';

/// True if GRUB takes `block` for one. It does not look at the length.
fn is_block(block: &[u8]) -> bool {
    block.len() > SIGNATURE.len() && block.starts_with(SIGNATURE)
}

/// The variables in a block, as `load_env` sets them one after the other: of a name that comes twice, the last counts.
/// Empty if GRUB would not accept it as an environment block.
pub(super) fn variables(block: &[u8]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut found = Vec::new();
    if !is_block(block) {
        return found;
    }
    let mut at = SIGNATURE.len();
    while let Some(first) = block.get(at) {
        if *first != FILLER {
            // A line without `=` is the beginning of the next one's name.
            let Some(equals) = block[at..].iter().position(|byte| *byte == b'=').map(|length| at + length)
            else {
                break;
            };
            let end = equals + 1 + line_length(&block[equals + 1..]);
            if end >= block.len() {
                break;
            }
            found.push((c_string(&block[at..equals]), c_string(&unescaped(&block[equals + 1..end]))));
            at = end;
        }
        at += line_length(&block[at.min(block.len())..]) + 1;
    }
    found
}

/// The value that `load_env` leaves in the variable `name`.
pub(super) fn value(block: &[u8], name: &str) -> Option<Vec<u8>> {
    let found = variables(block).into_iter().rev().find(|(found, _)| found == name.as_bytes());
    found.map(|(_, value)| value)
}

/// Changes a variable as `save_env` does: in the first line with its name, or after the last. False, with the block as it
/// was, where GRUB refuses: it is no block, or has no room. `value` needs no escaping.
#[must_use]
pub(super) fn set(block: &mut [u8], name: &str, value: &str) -> bool {
    let (name, value) = (name.as_bytes(), value.as_bytes());
    if !is_block(block) {
        return false;
    }
    let length = block.len();
    let used = block.iter().rposition(|byte| *byte != FILLER).map_or(0, |last| last + 1);
    if used == 0 || block[used - 1] != b'\n' {
        return false;
    }
    let mut line = SIGNATURE.len();
    let found = loop {
        if line + name.len() + 1 >= used {
            break None;
        }
        if block[line..].starts_with(name) && block[line + name.len()] == b'=' {
            break Some(line + name.len() + 1);
        }
        line += line_length(&block[line..]) + 1;
    };
    let at = match found {
        Some(at) => {
            let old = line_length(&block[at..]);
            if at + old >= length || length - used < value.len().saturating_sub(old) {
                return false;
            }
            if value.len() < old {
                // GRUB then fills the wrong place, beyond the end of what was used, and not what became free. That is
                // filler already, as long as so much of it was left.
                block.copy_within(at + old.., at + value.len());
                let shift = old - value.len();
                let (from, to) = ((used + shift).min(length), (used + 2 * shift).min(length));
                block[from..to].fill(FILLER);
            } else {
                block.copy_within(at + old..length - (value.len() - old), at + value.len());
            }
            at
        }
        None => {
            if length - used < name.len() + 1 + value.len() + 1 {
                return false;
            }
            block[used..used + name.len()].copy_from_slice(name);
            block[used + name.len()] = b'=';
            used + name.len() + 1
        }
    };
    block[at..at + value.len()].copy_from_slice(value);
    block[at + value.len()] = b'\n';
    true
}

/// How far it is to the end of the line, where a backslash takes away what a newline means. May be one more than there is.
fn line_length(rest: &[u8]) -> usize {
    let mut length = 0;
    while let Some(byte) = rest.get(length) {
        match byte {
            b'\n' => break,
            b'\\' => length += 2,
            _ => length += 1,
        }
    }
    length
}

fn unescaped(value: &[u8]) -> Vec<u8> {
    let mut bytes = value.iter();
    let mut plain = Vec::new();
    while let Some(byte) = bytes.next() {
        plain.extend(if *byte == b'\\' { bytes.next() } else { Some(byte) });
    }
    plain
}

/// The bytes up to the first zero, as GRUB sees a C string.
fn c_string(bytes: &[u8]) -> Vec<u8> {
    bytes.iter().copied().take_while(|byte| *byte != 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(lines: &str, length: usize) -> Vec<u8> {
        let mut block = [SIGNATURE, lines.as_bytes()].concat();
        block.resize(length, FILLER);
        block
    }

    fn texts(block: &[u8]) -> Vec<(String, String)> {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        variables(block).into_iter().map(|(name, value)| (text(name), text(value))).collect()
    }

    #[test]
    fn variables_are_read_as_grub_reads_them() {
        let read = |lines: &str| texts(&block(lines, 200));
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(read("a=1\n# note\nb=x=y\n"), [pair("a", "1"), pair("b", "x=y")]);
        assert_eq!(read("a=one\\\ntwo\\\\\n"), [pair("a", "one\ntwo\\")]);
        assert_eq!(read("noise\na=1\n"), [pair("noise\na", "1")]);
        assert_eq!(read("a=1\0x\nb\0=2\n"), [pair("a", "1"), pair("b", "2")]);
        assert_eq!(read("a=1"), [], "the filler belongs to a line that does not end");
        for none in [&b""[..], SIGNATURE, &[0; 1024], b"# grub environment block\na=1\n"] {
            assert_eq!(variables(none), []);
        }
        assert_eq!(value(&block("a=1\na=2\n", 99), "a").unwrap(), b"2");
    }

    #[test]
    fn a_variable_is_changed_where_it_is_and_added_at_the_end() {
        let mut changed = block("a=1\nb=22\nc=3\n", 100);
        for (name, value) in [("b", "4444"), ("c", ""), ("a", "1"), ("new", "5"), ("b", "6")] {
            assert!(set(&mut changed, name, value));
        }
        assert_eq!(changed, block("a=1\nb=6\nc=\nnew=5\n", 100));
    }

    #[test]
    fn a_block_without_room_or_end_is_left_as_it_is() {
        let full = block("a=12345\n", SIGNATURE.len() + 10);
        let broken = [block("a=1\n", 60), vec![0]].concat();
        for (mut refused, name, value) in
            [(full.clone(), "b", ""), (full, "a", "12345678"), (broken, "a", "2"), (vec![0; 9], "a", "1")]
        {
            let before = refused.clone();
            assert!(!set(&mut refused, name, value), "{name}={value}");
            assert_eq!(refused, before);
        }
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_make_reading_or_changing_panic_or_change_the_length(
            lines in "[ab=#\\\\\n\0]{0,60}",
            filler in 0usize..20,
            value in "[a-z]{0,12}",
        ) {
            let mut bytes = block(&lines, SIGNATURE.len() + lines.len() + filler);
            let length = bytes.len();
            variables(&bytes);
            let before = bytes.clone();
            let done = set(&mut bytes, "a", &value);
            proptest::prop_assert_eq!(bytes.len(), length);
            proptest::prop_assert!(done || bytes == before);
        }
    }
}
