//! A failure in few words, for a QR code that is photographed from a screen.

use super::ShownTrouble;

/// Product and version, step, device, exit code, then the causes, the innermost first: if there is room for `room` bytes only,
/// the least important is cut off.
#[must_use]
pub fn brief(product: &str, step: Option<&str>, trouble: &ShownTrouble, room: usize) -> String {
    let mut words = trouble.causes.iter().flat_map(|cause| cause.split([' ', ':', ',']));
    let device = words.find(|word| word.starts_with("/dev/"));
    let mut place: Vec<_> = [step, device].into_iter().flatten().map(str::to_owned).collect();
    place.push(format!("exit {}", trouble.class.exit_code()));
    let mut text = format!("{product}\n{}", place.join(" "));
    for cause in trouble.causes.iter().rev() {
        text.push('\n');
        text.push_str(cause);
    }
    let end = text.char_indices().map(|(at, c)| at + c.len_utf8()).take_while(|end| *end <= room).last();
    text.truncate(end.unwrap_or(0));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::{Class, Failure};

    fn trouble() -> ShownTrouble {
        let failure = Failure::new(Class::DiskIo, "installing, step image")
            .because(anyhow::anyhow!("writing to /dev/sda: Eingabe-/Ausgabefehler \u{fc}"));
        ShownTrouble::of(&failure.into(), None)
    }

    #[test]
    fn what_matters_most_comes_first() {
        let text = brief("NQRust 1.0", Some("image"), &trouble(), 500);
        assert_eq!(
            text,
            "NQRust 1.0\nimage /dev/sda exit 6\nwriting to /dev/sda: Eingabe-/Ausgabefehler \u{fc}\ninstalling, step image"
        );
        assert_eq!(
            brief("NQRust 1.0", None, &ShownTrouble { causes: vec![], ..trouble() }, 500),
            "NQRust 1.0\nexit 6"
        );
    }

    #[test]
    fn no_room_is_exceeded_and_no_character_is_cut() {
        for room in 0..120 {
            let text = brief("NQRust 1.0", Some("image"), &trouble(), room);
            assert!(text.len() <= room, "{room}: {text}");
        }
    }
}
