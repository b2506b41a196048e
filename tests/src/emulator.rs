//! Tells a fault of the emulator from one of what is tested.
//!
//! Linux changes its own code while it runs: it puts a breakpoint over the first byte of an instruction, changes the rest, and puts
//! the new first byte over the breakpoint (`text_poke_bp_batch` in arch/x86/kernel/alternative.c). QEMU translates code before it
//! executes it, and with a thread for each processor one of them can execute the translation of a breakpoint that is there no more.
//! The kernel then meets a breakpoint that nobody has set, and panics. No real processor does that, so a test that ends in this way
//! says nothing about what it tests.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context, Result};

use crate::paths;

/// Keeps the artifacts of the test `name` beside those of its next attempt, and returns their directory, if a log in them tells of
/// the emulator's fault.
pub fn set_fault_aside(name: &str) -> Result<Option<PathBuf>> {
    let directory = paths::e2e().join(name);
    let mut logs = fs::read_dir(&directory).with_context(|| format!("listing {}", directory.display()))?;
    let is_fault =
        |path: PathBuf| fs::read(path).is_ok_and(|log| is_stale_breakpoint(&String::from_utf8_lossy(&log)));
    if !logs.any(|entry| entry.is_ok_and(|entry| is_fault(entry.path()))) {
        return Ok(None);
    }
    let kept = paths::e2e().join(format!("{name}-emulator-fault"));
    if kept.exists() {
        fs::remove_dir_all(&kept).with_context(|| format!("clearing {}", kept.display()))?;
    }
    fs::rename(&directory, &kept).with_context(|| format!("keeping {}", directory.display()))?;
    Ok(Some(kept))
}

/// Whether the kernel panicked at a breakpoint where its code has none: of the bytes that it prints, the one before the marked one
/// is what stands in the place of the breakpoint.
fn is_stale_breakpoint(log: &str) -> bool {
    const INT3: &str = "cc";
    let Some((_, panicked)) = log.split_once("Oops: int3: 0000") else { return false };
    let code = panicked.lines().find_map(|line| Some(line.split_once("Code: ")?.1)).unwrap_or_default();
    let bytes: Vec<_> = code.split_whitespace().collect();
    let next = bytes.iter().position(|byte| byte.starts_with('<'));
    let at = next.and_then(|next| bytes.get(next.checked_sub(1)?));
    at.is_some_and(|byte| *byte != INT3)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kernel's words, with the bytes around the place.
    fn panicked(kind: &str, code: &str) -> String {
        format!(
            "[   75.0] Oops: {kind}: 0000 [#1] PREEMPT SMP NOPTI\n[   75.1] RIP: 0010:x+0xe4/0x310\n[   75.1] Code: {code}\n"
        )
    }

    #[test]
    fn a_breakpoint_that_the_code_does_not_have_is_the_emulators() {
        assert!(is_stale_breakpoint(&panicked("int3", "89 44 24 18 0f <1f> 44 00 00 41")));
        assert!(!is_stale_breakpoint(&panicked("int3", "89 44 24 18 cc <1f> 44 00 00 41")), "it is there");
        assert!(!is_stale_breakpoint(&panicked("invalid opcode", "89 44 24 18 0f <0b> 44 00")));
        for log in
            ["", "Oops: int3: 0000", "Oops: int3: 0000\nCode: <0f> 1f", "Oops: int3: 0000\nCode: 0f 1f"]
        {
            assert!(!is_stale_breakpoint(log), "{log}");
        }
    }
}
