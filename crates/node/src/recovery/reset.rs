//! A reset of a node, carried out by the recovery system over any number of starts.
//!
//! The order of writes is its safety. The boot loader is told to come back first; the request says `begun` before anything is erased,
//! and from then on no slot starts, whatever the boot record says (see [`crate::boot`]); each step is stored when it is done,
//! and makes everything anew when it is made again; the loader is released when all are stored; the request is removed last.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

use crate::pending_reset::{PendingReset, ResetLevel, ResetStep};
use crate::update::UpdatedNode;
use base::command::Runner;
use base::failure::{Class, Classify, Failure};
use base::files;
use base::progress::Progress;
use install::execute::{SystemHost, renew_filesystem};
use install::plan::PartitionName;
use machine::paths::{CONFIG, DEFAULTS, DOCUMENT, below};
use machine::{trust_memory, unsigned_record};
use model::boot::{BootParameters, BootVolume, Slot};
use model::release::{MANIFEST, SIGNATURES};

/// The files of the configuration partition that a reset keeps: they belong to the machine, not to the node document.
const KEPT: [&str; 9] = [
    "machine-id",
    MANIFEST,
    SIGNATURES,
    "installed.json",
    unsigned_record::FILE,
    trust_memory::FILE,
    "defaults.yaml",
    "reset.json",
    "lost+found",
];

pub trait ResetEffects {
    /// From the next start on the boot loader starts the recovery system.
    fn stay(&mut self) -> Result<()>;
    fn leave(&mut self) -> Result<()>;
    fn step(&mut self, step: ResetStep) -> Result<()>;
    fn store(&mut self, pending: &PendingReset) -> Result<()>;
    fn clear(&mut self) -> Result<()>;
}

/// Carries out the steps of `pending` that are not done yet.
///
/// # Errors
/// The request remains, and the boot loader comes back to the recovery system.
pub fn carry_out(
    mut pending: PendingReset,
    effects: &mut dyn ResetEffects,
    progress: &Progress,
) -> Result<()> {
    effects.stay()?;
    if !pending.has_begun() {
        pending.begin();
        effects.store(&pending)?;
    }
    while let Some(step) = pending.next() {
        let text = match step {
            ResetStep::Configuration => "Removing the node document and what is beside it",
            ResetStep::Data => "Making the data volume anew",
            ResetStep::Persistent => "Making the persistent file system anew",
        };
        progress.within("reset", text, || effects.step(step))?;
        pending.has_done(step);
        effects.store(&pending)?;
    }
    effects.leave()?;
    effects.clear()
}

/// The request for a reset of `level`, after that of `before`. Whatever `before` has erased has to be made anew.
///
/// # Errors
/// [`Class::Hardware`] if it would leave something half done.
pub fn follow(before: Option<&PendingReset>, level: ResetLevel) -> Result<PendingReset, Failure> {
    let mut pending = PendingReset::new(level);
    let Some(before) = before.filter(|before| before.is_under_way()) else { return Ok(pending) };
    let rest = before.level.steps().iter().all(|step| level.steps().contains(step));
    if !rest {
        let what = format!("a reset of level {} has begun", before.level.as_str());
        return Err(Failure::new(Class::Hardware, what)
            .because("what it has erased has to be made anew first")
            .hint("Complete it: restart, and the recovery system goes on with it."));
    }
    pending.begin();
    Ok(pending)
}

/// The reset of this machine, in its recovery system.
#[allow(missing_debug_implementations)]
pub struct NodeReset<'a> {
    pub root: &'a Path,
    pub node: &'a mut UpdatedNode,
    pub installed: BootParameters,
    pub runner: &'a dyn Runner,
}

impl NodeReset<'_> {
    fn renew(&self, partition: PartitionName, volume: &BootVolume) -> Result<()> {
        renew_filesystem(&SystemHost::new()?, self.runner, partition, volume)
    }
}

impl ResetEffects for NodeReset<'_> {
    fn stay(&mut self) -> Result<()> {
        self.node.start_once(Slot::Recovery)
    }

    fn leave(&mut self) -> Result<()> {
        self.node.start_as_usual()
    }

    fn step(&mut self, step: ResetStep) -> Result<()> {
        match (step, &self.installed.data) {
            (ResetStep::Configuration, _) => clear_configuration(self.root),
            (ResetStep::Data, Some(data)) => self.renew(PartitionName::Data, data),
            (ResetStep::Data, None) => Ok(()),
            (ResetStep::Persistent, _) => self.renew(PartitionName::Persistent, &self.installed.persistent),
        }
    }

    fn store(&mut self, pending: &PendingReset) -> Result<()> {
        pending.write(self.root)
    }

    fn clear(&mut self) -> Result<()> {
        PendingReset::clear(self.root)
    }
}

/// Removes everything but [`KEPT`] from the configuration partition. The next start of a slot is then a first start, which takes the
/// node document from a source or asks for it.
fn clear_configuration(root: &Path) -> Result<()> {
    let what = || "removing the configuration".to_owned();
    let defaults = below(root, DEFAULTS);
    if !defaults.exists() {
        files::write_atomically(&defaults, b"{}\n", 0o600).class(Class::DiskIo, what)?;
    }
    let directory = below(root, CONFIG);
    // The document is removed last: without it, the other files have no effect.
    let document = below(root, DOCUMENT);
    let cleared = (|| {
        for entry in fs::read_dir(&directory)? {
            let entry = entry?;
            if KEPT.iter().any(|kept| entry.file_name() == *kept) || entry.path() == document {
                continue;
            }
            match entry.file_type()?.is_dir() {
                true => fs::remove_dir_all(entry.path())?,
                false => fs::remove_file(entry.path())?,
            }
        }
        files::removed(fs::remove_file(&document))?;
        fs::File::open(&directory)?.sync_all()
    })();
    cleared.with_context(|| format!("emptying {}", directory.display())).class(Class::DiskIo, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What lasts of a node, and what was done to it. The power fails before the change of that number.
    #[derive(Debug, Default)]
    struct Node {
        /// Whether the boot loader starts the recovery system.
        once: bool,
        pending: Option<PendingReset>,
        /// Whether each of data and persistent is empty and whole.
        made: Vec<ResetStep>,
        /// What is being erased when the power fails.
        torn: Vec<ResetStep>,
        changes: usize,
        fails_at: Option<usize>,
    }

    impl Node {
        fn change(&mut self) -> Result<()> {
            self.changes += 1;
            match self.fails_at == Some(self.changes) {
                true => Err(Failure::new(Class::DiskIo, "the power is off").into()),
                false => Ok(()),
            }
        }

        /// What a start after a power cut does: GRUB takes what is asked for once, and a slot does not start over a begun reset.
        fn starts_recovery(&mut self) -> bool {
            let under_way = self.pending.as_ref().is_some_and(PendingReset::is_under_way);
            std::mem::take(&mut self.once) || under_way
        }
    }

    impl ResetEffects for Node {
        fn stay(&mut self) -> Result<()> {
            self.change()?;
            self.once = true;
            Ok(())
        }

        fn leave(&mut self) -> Result<()> {
            self.change()?;
            self.once = false;
            Ok(())
        }

        fn step(&mut self, step: ResetStep) -> Result<()> {
            assert!(
                self.pending.as_ref().is_some_and(PendingReset::is_under_way),
                "nothing is erased unannounced"
            );
            self.torn.push(step);
            self.change()?;
            self.torn.retain(|torn| *torn != step);
            self.made.push(step);
            Ok(())
        }

        fn store(&mut self, pending: &PendingReset) -> Result<()> {
            self.change()?;
            self.pending = Some(pending.clone());
            Ok(())
        }

        fn clear(&mut self) -> Result<()> {
            self.change()?;
            self.pending = None;
            Ok(())
        }
    }

    #[test]
    fn a_reset_that_is_cut_at_any_place_goes_on_and_a_step_that_is_stored_is_not_made_again() {
        for level in [ResetLevel::Config, ResetLevel::State, ResetLevel::Full] {
            let mut cuts = 0;
            for fails_at in 1.. {
                let pending = PendingReset::new(level);
                let mut node = Node {
                    once: true,
                    pending: Some(pending.clone()),
                    fails_at: Some(fails_at),
                    ..Node::default()
                };
                assert!(node.starts_recovery());
                if carry_out(pending, &mut node, &Progress::silent()).is_ok() {
                    break;
                }
                cuts += 1;
                node.fails_at = None;
                let stored = node.pending.clone().unwrap();
                match node.starts_recovery() {
                    true => {
                        let left: Vec<_> = std::iter::successors(Some(stored.clone()), |pending| {
                            let mut pending = pending.clone();
                            let step = pending.next()?;
                            pending.has_done(step);
                            Some(pending)
                        })
                        .filter_map(|pending| pending.next())
                        .collect();
                        node.made.clear();
                        carry_out(stored, &mut node, &Progress::silent()).unwrap();
                        assert_eq!(node.made, left, "{level:?} {fails_at}");
                    }
                    // A slot starts: nothing was erased yet, or all of it is whole.
                    false => assert!(!stored.has_begun() || stored.next().is_none(), "{level:?} {fails_at}"),
                }
                assert_eq!(node.torn, [], "{level:?} {fails_at}");
                assert!(!node.once);
            }
            assert_eq!(cuts, level.steps().len() * 2 + 4, "every change is a place for a cut");
        }
    }

    #[test]
    fn another_level_may_follow_if_it_makes_anew_what_was_begun() {
        let mut before = PendingReset::new(ResetLevel::State);
        assert!(!follow(Some(&before), ResetLevel::Config).unwrap().has_begun());
        before.begin();
        assert!(follow(Some(&before), ResetLevel::Full).unwrap().is_under_way());
        let error = follow(Some(&before), ResetLevel::Config).unwrap_err();
        assert_eq!(error.class(), Class::Hardware);
        assert!(!follow(None, ResetLevel::Config).unwrap().has_begun());
    }

    #[test]
    fn the_configuration_goes_and_the_identity_of_the_machine_stays() {
        let root = tempfile::tempdir().unwrap();
        let oem = root.path().join("oem");
        fs::create_dir_all(oem.join("ssh")).unwrap();
        fs::create_dir_all(oem.join("health.d")).unwrap();
        for name in [
            "node.yaml",
            "node.previous.yaml",
            "machine-id",
            "release.json",
            "release.json.minisig",
            "unsigned.json",
            "trust-memory.json",
            "reset.json",
            "ssh/key",
            "health.d/own",
        ] {
            fs::write(oem.join(name), name).unwrap();
        }
        for _ in 0..2 {
            clear_configuration(root.path()).unwrap();
            let mut names: Vec<_> = fs::read_dir(&oem)
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            let kept = [
                "machine-id",
                "release.json",
                "release.json.minisig",
                "reset.json",
                "trust-memory.json",
                "unsigned.json",
            ];
            assert_eq!((&names[0][..], &names[1..]), ("defaults.yaml", &kept.map(str::to_owned)[..]));
        }
    }
}
