//! Releasing what holds a disk, as the plan says: swap, arrays, and devices of the device mapper.

use std::fs;
use std::path::Path;

use anyhow::{Result, anyhow};

use crate::plan::describe_holder;
use base::command::{Invocation, Runner};
use base::failure::{Class, Failure};
use base::progress::Progress;
use machine::inventory::{Holder, HolderKind};

/// Takes the holders down in order. `sys` is the mount point of sysfs. Writes nothing to a disk.
pub fn take_down(holders: &[Holder], sys: &Path, runner: &dyn Runner, progress: &Progress) -> Result<()> {
    for holder in holders {
        let name = describe_holder(holder);
        progress.note("run", format!("Taking down {name}"));
        one(holder, sys, runner).map_err(|error| {
            Failure::new(Class::Hardware, format!("taking down {name}")).because(anyhow!("{error:#}")).hint(
                "Something may still use it. Nothing was written; take it down by hand and start the \
                    install again.",
            )
        })?;
    }
    Ok(())
}

fn one(holder: &Holder, sys: &Path, runner: &dyn Runner) -> Result<()> {
    match (holder.kind, &holder.device, &holder.name) {
        (HolderKind::Swap, ..) => runner.run(&Invocation::new("swapoff").arg(&holder.on)).map(drop),
        (HolderKind::Md, Some(device), _) => {
            let name = device.file_name().ok_or_else(|| anyhow!("{} has no name", device.display()))?;
            // The same request to the kernel by which mdadm stops an array (Documentation/admin-guide/md.rst).
            let state = sys.join("block").join(name).join("md/array_state");
            fs::write(&state, "clear").map_err(|error| anyhow!("writing {}: {error}", state.display()))
        }
        (HolderKind::Lvm | HolderKind::Crypt | HolderKind::Partition, _, Some(name)) => {
            // udev probes new devices for moments, and keeps them busy.
            runner.run(&Invocation::new("dmsetup").args(["remove", "--retry", name])).map(drop)
        }
        _ => Err(anyhow!("there is no way to take it down")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::{class_of, render};
    use testing::runner::ScriptedRunner;

    fn holder(kind: HolderKind, on: &str, name: Option<&str>, device: Option<&str>) -> Holder {
        Holder { on: on.into(), kind, name: name.map(Into::into), device: device.map(Into::into) }
    }

    fn holders() -> Vec<Holder> {
        vec![
            holder(HolderKind::Swap, "/dev/dm-0", None, None),
            holder(HolderKind::Lvm, "/dev/md127", Some("vg0-swap"), Some("/dev/dm-0")),
            holder(HolderKind::Md, "/dev/sda2", None, Some("/dev/md127")),
        ]
    }

    #[test]
    fn each_is_taken_down_in_its_own_way_and_named() {
        let sys = tempfile::tempdir().unwrap();
        let state = sys.path().join("block/md127/md/array_state");
        base::files::write_atomically(&state, b"active-idle\n", 0o644).unwrap();
        let (ran, recorder) = (ScriptedRunner::silent(), testing::progress::Recorder::default());
        take_down(&holders(), sys.path(), &ran, &Progress::new(vec![Box::new(recorder.clone())])).unwrap();
        assert_eq!(ran.commands(), ["swapoff /dev/dm-0", "dmsetup remove --retry vg0-swap"]);
        assert!(fs::read_to_string(&state).unwrap().starts_with("clear"));
        let told: Vec<_> = recorder.0.lock().unwrap().iter().map(|event| event.message.clone()).collect();
        assert_eq!(
            told,
            [
                "Taking down swap on /dev/dm-0",
                "Taking down vg0-swap (LVM) on /dev/md127",
                "Taking down /dev/md127 (RAID) on /dev/sda2"
            ]
        );
    }

    #[test]
    fn one_that_stays_busy_ends_the_install_before_the_others() {
        let ran = ScriptedRunner::failing("mkfs.ext4 ended with exit status: 1");
        let error =
            take_down(&holders(), Path::new("/nonexistent"), &ran, &Progress::new(vec![])).unwrap_err();
        assert_eq!(class_of(&error), Class::Hardware);
        let text = render(&error);
        assert!(text.contains("taking down swap on /dev/dm-0") && text.contains("exit status: 1"), "{text}");
        assert_eq!(ran.commands().len(), 1);
    }
}
