//! Passes the failure of a step to the parent process, through a file.

use std::path::Path;

use base::failure::{Class, Failure};
use serde::{Deserialize, Serialize};

/// In bytes: less free space than this after a failure means that the disk is full.
const FULL_DISK_BYTES: u64 = 32 << 20;

/// A failure in the form in which the child passes it to the parent.
#[derive(Debug, Serialize, Deserialize)]
pub struct StepOutcome {
    class: u8,
    what: Vec<String>,
    hints: Vec<String>,
}

impl StepOutcome {
    #[must_use]
    pub fn of(error: &anyhow::Error) -> Self {
        Self {
            class: base::failure::class_of(error).exit_code(),
            what: base::failure::causes(error),
            hints: base::failure::hints(error).map(str::to_owned).collect(),
        }
    }

    /// True if the disk of `scratch` is full or almost full.
    pub(crate) fn has_no_room(scratch: &Path) -> bool {
        base::files::free_space(scratch).is_ok_and(|free| free.get() < FULL_DISK_BYTES)
    }

    /// The failure of a step that could not write.
    pub(crate) fn no_room(scratch: &Path) -> Failure {
        let what = format!("no room for a build step in {}", scratch.display());
        Failure::new(Class::DiskIo, what)
            .because(anyhow::anyhow!("the disk became full"))
            .hint(full_disk_hint(scratch))
    }

    pub(crate) fn into_failure(self, scratch: &Path) -> Failure {
        let class = match self.class {
            1 if Self::has_no_room(scratch) => Class::DiskIo,
            code => Class::from_exit_code(code),
        };
        let mut what = self.what.into_iter();
        let mut failure = Failure::new(class, what.next().unwrap_or_default());
        let causes: Vec<String> = what.collect();
        if !causes.is_empty() {
            failure = failure.because(anyhow::anyhow!("{}", causes.join("\n  because: ")));
        }
        if class == Class::DiskIo && self.hints.is_empty() {
            failure = failure.hint(full_disk_hint(scratch));
        }
        for hint in self.hints {
            failure = failure.hint(hint);
        }
        failure
    }
}

fn full_disk_hint(scratch: &Path) -> String {
    format!(
        "Free space on the disk that holds {}, or give --cache-dir and -o a larger one.",
        scratch.display()
    )
}
