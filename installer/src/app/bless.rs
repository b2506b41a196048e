//! What `installer bless` does: it reports to the boot loader that this boot is good, so that the loader neither counts it as a
//! try nor as a miss.

use std::path::PathBuf;
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::Result;

use super::gather::kernel_command_line;
use crate::execute::change_record;
use base::command::{Invocation, Runner, SystemRunner};
use base::failure::{Class, Failure};
use base::progress::Progress;
use model::boot::record::{BootRecord, SlotState, TRIES, UpdateSlot};
use model::boot::{Installed, Slot};

/// How long a boot may take to become good.
const LIMIT: Duration = Duration::from_secs(900);
const INTERVAL: Duration = Duration::from_secs(5);

/// Waits until the system is up and none of our units has failed, then writes the boot record.
pub(crate) fn bless(progress: &Progress) -> Result<()> {
    let line = kernel_command_line()?;
    let Some(installed) = Installed::parse(&line)? else { return Ok(()) };
    // A kernel that was not started by the boot loader says nothing about starts by it.
    let Some(esp) = installed.esp else { return Ok(()) };
    let begun = Instant::now();
    while !is_up(&SystemRunner) {
        if begun.elapsed() > LIMIT {
            let what =
                format!("slot {} did not come up within {} minutes", installed.slot, LIMIT.as_secs() / 60);
            return Err(Failure::new(Class::Unexpected, what)
                .hint("See `systemctl --failed` and the journal. The boot loader counts this start as a failed one.")
                .into());
        }
        sleep(INTERVAL);
    }
    let device = PathBuf::from(format!("/dev/disk/by-partuuid/{esp}"));
    change_record(&device, |record| report(record, installed.slot))?;
    progress.note("bless", format!("Slot {} is good", installed.slot));
    Ok(())
}

fn is_up(runner: &dyn Runner) -> bool {
    let active = Invocation::new("systemctl").args(["is-active", "--quiet", "multi-user.target"]);
    let failed =
        Invocation::new("systemctl").args(["list-units", "--failed", "--plain", "--no-legend", "nqrust-*"]);
    runner.run(&active).is_ok() && runner.run(&failed).is_ok_and(|text| text.trim_ascii().is_empty())
}

/// What a good boot of `slot` changes.
fn report(record: &mut BootRecord, slot: Slot) {
    record.run = None;
    record.miss = 0;
    let Some(slot) = UpdateSlot::of(slot) else { return };
    if record.state(slot) == SlotState::Try {
        record.left = TRIES;
    }
    record.set_state(slot, SlotState::Good);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_good_boot_ends_the_trial_of_its_slot_and_nothing_else() {
        let mut record = BootRecord { run: Some(Slot::A), left: 2, ..BootRecord::installed() };
        report(&mut record, Slot::A);
        let expected = BootRecord { a: SlotState::Good, ..BootRecord::installed() };
        assert_eq!(record, expected);
        let trial = BootRecord { b: SlotState::Try, left: 1, run: Some(Slot::Recovery), miss: 2, ..expected };
        let mut record = trial.clone();
        report(&mut record, Slot::Recovery);
        assert_eq!(record, BootRecord { run: None, miss: 0, ..trial });
    }
}
