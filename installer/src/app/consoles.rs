//! `--consoles`: an unattended machine shows progress on every screen and serial line.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use anyhow::Result;

use base::failure::render;
use base::files::read_text;
use base::progress::Progress;
use base::progress::plain::PlainLines;
use ui::toolkit::outlet::Outlet;

/// The kernel's consoles, in one line.
const ACTIVE_CONSOLES: &str = "/sys/class/tty/console/active";

/// Runs `work` with progress and its failure on every console.
pub(crate) fn with<T>(wanted: bool, progress: &Progress, work: impl FnOnce() -> Result<T>) -> Result<T> {
    if !wanted {
        return work();
    }
    let active = read_text(Path::new(ACTIVE_CONSOLES)).unwrap_or_default();
    let consoles: Vec<File> = names(&active).iter().filter_map(|name| open(name)).collect();
    // A stuck console must not hold up an install.
    let outlets = || consoles.iter().filter_map(|console| Some(Outlet::new(console.try_clone().ok()?)));
    outlets().for_each(|outlet| progress.add(Box::new(PlainLines::console(outlet))));
    let result = work();
    if let Err(error) = &result {
        let text = render(error).replace('\n', "\r\n");
        for mut outlet in outlets() {
            // Errors of a console are ignored.
            let _ = outlet.write_all(text.as_bytes()).and_then(|()| outlet.flush());
        }
    }
    result
}

/// The existing devices of the kernel's consoles.
pub(crate) fn devices() -> Vec<PathBuf> {
    let active = read_text(Path::new(ACTIVE_CONSOLES)).unwrap_or_default();
    names(&active).iter().map(|name| Path::new("/dev").join(name)).filter(|path| path.exists()).collect()
}

fn names(active: &str) -> Vec<&str> {
    let mut names = vec!["tty1"];
    names.extend(active.split_whitespace().filter(|name| !matches!(*name, "tty0" | "tty1")));
    names
}

fn open(name: &str) -> Option<File> {
    // Opening a serial line that waits for a carrier would block.
    let flags = nix::libc::O_NONBLOCK | nix::libc::O_NOCTTY;
    OpenOptions::new().write(true).custom_flags(flags).open(Path::new("/dev").join(name)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_screen_is_told_once() {
        assert_eq!(names("tty0 ttyS0\n"), ["tty1", "ttyS0"]);
        assert_eq!(names(""), ["tty1"]);
    }
}
