//! Text above the logins of the consoles, as agetty(8) shows it.

use std::time::Duration;

use base::command::{Invocation, Runner};

/// The number of columns that every console has.
pub const WIDTH: usize = 78;

/// Lines as agetty(8) shows them on every console.
pub fn for_console(lines: &[String]) -> String {
    escaped(&lines.iter().map(|line| wrapped(line)).collect::<String>())
}

/// The text in lines that fit every console.
pub fn wrapped(text: &str) -> String {
    let mut lines = String::new();
    let mut column = 0;
    for word in text.split(' ') {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > WIDTH {
            lines.push('\n');
            column = 0;
        } else if column > 0 {
            lines.push(' ');
            column += 1;
        }
        lines.push_str(word);
        column += width;
    }
    lines + "\n"
}

/// agetty interprets backslashes; other control characters could move the cursor.
pub fn escaped(text: &str) -> String {
    let tame = text.chars().map(|c| if c.is_control() && c != '\n' { ' ' } else { c });
    tame.collect::<String>().replace('\\', "\\\\")
}

/// Makes the consoles read again what they show above their logins. If that fails, a console shows it at its next prompt.
pub fn show_again(runner: &dyn Runner) {
    let _ = runner.run(&Invocation::new("agetty").arg("--reload").limit(Duration::from_secs(10)));
}
