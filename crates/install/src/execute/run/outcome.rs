//! Says in which state a failed run leaves the disks.

use crate::plan::{Plan, Step, Target};
use base::failure::{Failure, class_of};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum DiskTouched {
    #[default]
    Nothing,
    OtherDisks,
    System,
    Committed,
}

impl DiskTouched {
    /// How far the writes have come in `step`.
    pub(super) fn by(step: &Step) -> Self {
        match step {
            Step::VerifyMedium { .. } => Self::Nothing,
            Step::WipeDisks => Self::OtherDisks,
            _ => Self::System,
        }
    }
}

/// Says in which state the failure of `step` leaves the disks. `begun`: the next run continues this one.
pub(super) fn disks_state(
    error: anyhow::Error,
    step: &Step,
    plan: &Plan,
    (touched, begun): (DiskTouched, bool),
) -> anyhow::Error {
    let (class, what) = (class_of(&error), format!("installing, step {}", step.id()));
    let source = error.reallocate_into_boxed_dyn_error_without_backtrace();
    Failure::new(class, what).because(source).hint(state(plan, touched, begun)).into()
}

fn state(plan: &Plan, touched: DiskTouched, begun: bool) -> String {
    let wiped = plan.wiped.iter().map(|wiped| &wiped.disk);
    let system: Vec<_> =
        [&plan.disk].into_iter().chain(plan.mirror.iter().map(|mirror| &mirror.disk)).collect();
    match touched {
        DiskTouched::Nothing => {
            let data = plan.data_disk.iter().map(|data| &data.disk);
            format!("Nothing was written to {}.", names(system.into_iter().chain(data).chain(wiped)))
        }
        DiskTouched::OtherDisks => {
            let (wiped, system) = (names(wiped), names(system.into_iter()));
            format!("{wiped} may be erased by now; nothing was written to {system}.")
        }
        DiskTouched::System => {
            let kept =
                if plan.kept.is_some() { " The data that install.keep names is unchanged." } else { "" };
            let are = if system.len() == 1 { "is" } else { "are" };
            let again = if begun { "continues where this one ended" } else { "starts over" };
            let names = names(system.into_iter());
            format!("{names} {are} not bootable now; starting the install again {again}.{kept}")
        }
        DiskTouched::Committed => format!(
            "The node starts from {} now, and from no other disk; starting the install again starts over.",
            plan.disk.path.display()
        ),
    }
}

fn names<'a>(disks: impl Iterator<Item = &'a Target>) -> String {
    disks.map(|disk| disk.path.display().to_string()).collect::<Vec<_>>().join(", ")
}
