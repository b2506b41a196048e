//! In the initrd: mounts the files of the kept version of Kubernetes over those of the OS image, so that the node goes on with it.

use std::path::Path;

use anyhow::Result;

use super::image;
use super::kept::KeptVersions;
use machine::mount::{MountSource, Mounter};
use machine::paths::below;
use model::kubernetes::{KubernetesRelease, KubernetesVersion};

/// The programs that a boot uses.
#[derive(Clone, Debug, PartialEq, Eq)]
enum BootChoice {
    Image,
    Kept,
    /// Those of the image, because the kept ones cannot be used. [`super::data`] refuses a version that is too old for the data.
    Lost(String),
}

/// Decides between the image's version and the one that is to run; `kept` says whether that one is whole.
fn choose(
    brought: &KubernetesVersion,
    current: Option<&KubernetesVersion>,
    kept: impl FnOnce(&KubernetesVersion) -> Result<(), String>,
) -> BootChoice {
    let Some(current) = current.filter(|current| *current != brought) else { return BootChoice::Image };
    match kept(current) {
        Ok(()) => BootChoice::Kept,
        Err(why) => BootChoice::Lost(format!(
            "Kubernetes {current} of this node cannot be used, the OS image's {brought} takes its place: {why}"
        )),
    }
}

/// Mounts the files of the chosen version over those of the image at `root`, where that brings another one. Returns lines for the
/// console.
///
/// # Errors
/// A file cannot be mounted that is there.
pub fn mount_current(root: &Path, machine: &mut dyn Mounter) -> Result<Vec<String>> {
    let brought = match image::read(root) {
        Ok(Some(release)) => release,
        Ok(None) => return Ok(Vec::new()),
        Err(error) => return Ok(vec![format!("the Kubernetes of the OS image is not known: {error:#}")]),
    };
    let kept = KeptVersions::of(root);
    let current = kept.current();
    let mut files = Vec::new();
    let choice = choose(&brought.version, current.as_ref(), |version| {
        let release = kept.verify(version).map_err(|error| format!("{error:#}"))?;
        fits(root, &release)?;
        let directory = kept.directory(version);
        files = release.files.into_iter().map(|file| (directory.join(&file), root.join(file))).collect();
        Ok(())
    });
    match choice {
        BootChoice::Image => Ok(Vec::new()),
        BootChoice::Lost(note) => Ok(vec![note]),
        BootChoice::Kept => {
            for (from, to) in files {
                machine.mount(&MountSource::Bind(from), &to)?;
            }
            Ok(Vec::new())
        }
    }
}

/// Whether the image has a place for each file: in its read-only parts none can be made.
fn fits(root: &Path, release: &KubernetesRelease) -> Result<(), String> {
    let lacks = release.files.iter().find(|file| !below(root, file).exists());
    lacks.map_or(Ok(()), |file| Err(format!("the OS image has no /{file} in whose place it could be")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kept_version::image::UncoveredImage;
    use crate::kept_version::kept::tests::image;
    use base::command::{Invocation, Runner, SystemRunner};
    use machine::mount::SystemMounter;
    use std::fs;

    #[derive(Default)]
    struct Recorder(Vec<String>);

    impl Mounter for Recorder {
        fn wait_for(&mut self, _: &Path) -> Result<()> {
            Ok(())
        }

        fn mount(&mut self, source: &MountSource, target: &Path) -> Result<()> {
            let MountSource::Bind(from) = source else { panic!("{source:?}") };
            assert_eq!(from.is_dir(), target.is_dir());
            assert!(from.exists() && target.exists());
            self.0.push(from.components().rev().nth(1).unwrap().as_os_str().to_string_lossy().into());
            Ok(())
        }
    }

    #[test]
    fn the_version_that_is_to_run_is_taken_where_it_is_another_and_whole() {
        let [old, new] = ["v1.36.1", "v1.37.2"].map(|text| text.parse::<KubernetesVersion>().unwrap());
        let whole = |_: &KubernetesVersion| Ok(());
        let damaged = |_: &KubernetesVersion| Err("a byte".to_owned());
        let unread = |_: &KubernetesVersion| -> Result<(), String> { panic!("it is not read") };
        assert_eq!(choose(&new, None, unread), BootChoice::Image);
        assert_eq!(choose(&new, Some(&new), unread), BootChoice::Image);
        assert_eq!(choose(&new, Some(&old), whole), BootChoice::Kept);
        assert_eq!(choose(&old, Some(&new), whole), BootChoice::Kept, "an older OS changes nothing");
        let BootChoice::Lost(note) = choose(&new, Some(&old), damaged) else { panic!() };
        assert_eq!(
            note,
            "Kubernetes v1.36.1 of this node cannot be used, the OS image's v1.37.2 takes its place: a byte"
        );
    }

    #[test]
    fn the_files_of_the_kept_version_come_in_place_of_the_images() {
        let root = tempfile::tempdir().unwrap();
        let mount = || {
            let mut mounts = Recorder::default();
            let notes = mount_current(root.path(), &mut mounts).unwrap();
            (mounts.0, notes)
        };
        assert_eq!(mount(), (vec![], vec![]), "an OS without Kubernetes");
        let old = image(root.path(), "v1.33.1+rke2r1");
        let kept = KeptVersions::of(root.path());
        kept.keep(root.path(), &old).unwrap();
        assert_eq!(mount(), (vec![], vec![]), "nothing was chosen");
        kept.choose(&old.version).unwrap();
        assert_eq!(mount(), (vec![], vec![]), "the image brings just this one");
        image(root.path(), "v1.34.0+rke2r1");
        assert_eq!(mount(), (["bin", "lib", "nqrust"].map(str::to_owned).to_vec(), vec![]));
        fs::remove_dir_all(root.path().join("usr/lib/rke2")).unwrap();
        let (mounts, notes) = mount();
        assert!(mounts.is_empty() && notes[0].contains("the OS image has no /usr/lib/rke2"), "{notes:?}");
        image(root.path(), "v1.34.0+rke2r1");
        fs::write(kept.directory(&old.version).join("usr/local/bin/rke2"), "x").unwrap();
        let (mounts, notes) = mount();
        assert!(
            mounts.is_empty() && notes[0].contains("usr/local/bin/rke2 is not as it was kept"),
            "{notes:?}"
        );
    }

    #[test]
    fn what_is_mounted_over_the_image_runs_and_the_image_is_seen_beneath_it() {
        if !testing::privileges::root_runs() {
            return;
        }
        // Mounts of this thread alone, and of what it starts.
        nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).unwrap();
        let private = nix::mount::MsFlags::MS_REC | nix::mount::MsFlags::MS_PRIVATE;
        nix::mount::mount(None::<&str>, "/", None::<&str>, private, None::<&str>).unwrap();
        let root = tempfile::tempdir().unwrap();
        let old = image(root.path(), "v1.33.1+rke2r1");
        let kept = KeptVersions::of(root.path());
        kept.keep(root.path(), &old).unwrap();
        kept.choose(&old.version).unwrap();
        let new = image(root.path(), "v1.34.0+rke2r1");
        assert!(mount_current(root.path(), &mut SystemMounter).unwrap().is_empty());
        let runs = |at: &Path| {
            let programs = ["usr/local/bin/rke2", "usr/lib/rke2/bin/kubelet"];
            (
                programs.map(|path| fs::read_to_string(at.join(path)).unwrap()),
                super::image::read(at).unwrap().unwrap(),
            )
        };
        let of = |version: &str| ["program", "kubelet"].map(|what| format!("{what} of {version}"));
        assert_eq!(runs(root.path()), (of("v1.33.1+rke2r1"), old.clone()));
        let uncovered = UncoveredImage::show(root.path(), &SystemRunner).unwrap();
        assert_eq!(runs(uncovered.path()), (of("v1.34.0+rke2r1"), new.clone()));
        // As the step to the image's version has it.
        assert!(kept.keep(uncovered.path(), &new).unwrap());
        let at = uncovered.path().to_owned();
        drop(uncovered);
        assert_eq!(fs::read_dir(&at).unwrap().count(), 0, "the view is gone");
        for file in &old.files {
            SystemRunner.run(&Invocation::new("umount").arg("--lazy").arg(root.path().join(file))).unwrap();
        }
        assert_eq!(runs(root.path()), (of("v1.34.0+rke2r1"), new.clone()));
        kept.verify(&new.version).unwrap();
        kept.verify(&old.version).unwrap();
    }
}
