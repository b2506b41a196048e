//! The Debian packages of both programs, in systems that have nothing but Debian's smallest set of packages: what the packages depend
//! on suffices for a build, shells and man(1) find what is for them, and a purge leaves nothing.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use nix::unistd::Uid;
use nqrust_tests::artifacts::{Artifacts, scenario};
use nqrust_tests::node::Checks;
use nqrust_tests::{paths, programs};

/// For making the packages, or for a build on a machine that does other things too.
const LIMIT: Duration = Duration::from_secs(3600);

/// Each program, and a beginning of one of its commands with the rest of it.
const PROGRAMS: [(&str, &str, &str); 2] =
    [("iso-builder", "custom", "customize"), ("installer", "vali", "validate")];

/// Lists what a system has, but for what package managers keep of their work.
const LIST: &str = "find / -xdev \\( -path /proc -o -path /packages -o -path /var/cache -o -path /var/lib/apt -o -path /var/lib/dpkg \
                    -o -path /var/log \\) -prune -o -print | sort";

#[test]
#[ignore = "makes two systems of Debian and a medium in each; as root"]
fn packages_build_a_medium_in_a_clean_debian_12_and_13_and_leave_nothing() {
    scenario("packages", |artifacts| {
        ensure!(Uid::effective().is_root(), "the roots of systems are entered as root");
        let output = artifacts.disk("output");
        let mut make = Command::new("make");
        // The programs are those that the other tests run.
        make.current_dir(paths::workspace()).args(["--assume-old=binaries", "packages"]);
        make.arg(format!("OUTPUT={}", output.display()));
        let ended = programs::run(&mut make, LIMIT)?;
        artifacts.append("make.log", &ended.said())?;
        ended.success("make packages")?;
        let mut checks = Checks::default();
        for suite in ["bookworm", "trixie"] {
            let system = CleanSystem::make(suite, artifacts)?;
            fs::rename(output.join("packages"), system.root.join("packages"))?;
            try_packages(&system, &mut checks).with_context(|| format!("trying the packages in {suite}"))?;
            fs::rename(system.root.join("packages"), output.join("packages"))?;
        }
        checks.finish("the packages")
    });
}

fn try_packages(system: &CleanSystem<'_>, checks: &mut Checks) -> Result<()> {
    let suite = system.suite;
    let before = system.run(LIST)?;
    system.run("apt-get install -q -y --no-install-recommends /packages/*.deb")?;
    let installed =
        system.run("dpkg-query --show --showformat='${Package} ${db:Status-Status}\\n' 'nqrust-*'")?;
    checks.equal(
        &format!("{suite}: the packages"),
        installed.as_str(),
        "nqrust-installer installed\nnqrust-iso-builder installed\n",
    );
    for (program, ..) in PROGRAMS {
        let expected = format!("{program} {}\n", env!("CARGO_PKG_VERSION"));
        checks.equal(&format!("{suite}: a version"), system.run(&format!("{program} --version"))?, expected);
    }
    // Nothing that was installed brings certificates.
    let asked = system.run("installer verify --medium https://192.0.2.1/ 2>&1 || true")?;
    checks.contains(
        &format!("{suite}: HTTPS without authorities"),
        &asked,
        "install the package ca-certificates",
    );
    build(system, checks)?;
    try_shells(system, checks)?;
    system.run("apt-get purge -q -y nqrust-iso-builder nqrust-installer; rm -r /project")?;
    let words = ["iso-builder", "nqrust", "installer"];
    let after = system.run(LIST)?;
    let is_ours = |path: &&str| words.iter().any(|word| path.contains(word));
    let known: Vec<_> = before.lines().collect();
    let left: Vec<_> = after.lines().filter(is_ours).filter(|path| !known.contains(path)).collect();
    checks.equal(&format!("{suite}: what a purge leaves"), left, Vec::<&str>::new());
    Ok(())
}

/// Makes a medium of the project's minimal definition with what the packages depend on, and judges it.
fn build(system: &CleanSystem<'_>, checks: &mut Checks) -> Result<()> {
    let suite = system.suite;
    system.run("installer validate /project/nodes/create.yaml")?;
    let definition = "/project/images/minimal.yaml";
    let checked = system.run(&format!("iso-builder check {definition}"))?;
    checks.contains(
        &format!("{suite}: a check before the first build"),
        &checked,
        "this host: it has the programs that a build runs",
    );
    system.run(&format!(
        "iso-builder build {definition} --only net-install --cache-dir /project/cache --output /project/dist \
         --sign-with development --keys /project/keys"
    ))?;
    system.run("iso-builder verify --keys /project/keys /project/dist/*.iso").map(drop)
}

fn try_shells(system: &CleanSystem<'_>, checks: &mut Checks) -> Result<()> {
    let suite = system.suite;
    system.run("apt-get install -q -y --no-install-recommends man-db bash-completion zsh fish")?;
    for (program, beginning, command) in PROGRAMS {
        let page =
            system.run(&format!("man --warnings {program}-{command} 2>&1 | tr --squeeze-repeats ' '"))?;
        checks.contains(&format!("{suite}: a page of the manual"), &page, &format!("{program}-{command} - "));
        checks.that(&format!("{suite}: the page has no warning: {page}"), !page.contains("warning:"));
        let found = system.run(&format!("apropos {program}"))?;
        checks.contains(&format!("{suite}: apropos"), &found, &format!("{program}-{command} (1)"));
        let completions = [
            (
                "bash",
                format!(
                    "bash -c '. /usr/share/bash-completion/bash_completion; _completion_loader {program} || _comp_load {program}; \
                     complete -p {program}'"
                ),
                format!(" {program}\n"),
            ),
            (
                "zsh",
                format!("zsh -fc 'autoload -Uz compinit; compinit -D; print $_comps[{program}]'"),
                format!("_{program}\n"),
            ),
            ("fish", format!("fish -c \"complete -C '{program} {beginning}'\""), format!("{command}\t")),
        ];
        for (shell, script, expected) in completions {
            checks.contains(&format!("{suite}: {program} in {shell}"), &system.run(&script)?, &expected);
        }
    }
    Ok(())
}

/// The smallest system of a suite, with the project's configurations.
struct CleanSystem<'a> {
    suite: &'a str,
    root: PathBuf,
    artifacts: &'a Artifacts,
}

impl<'a> CleanSystem<'a> {
    fn make(suite: &'a str, artifacts: &'a Artifacts) -> Result<Self> {
        let root = artifacts.disk(suite);
        let mut make = Command::new("mmdebstrap");
        make.args(["--quiet", "--variant=minbase", "--skip=cleanup/apt/lists", "--format=directory"]);
        programs::run(make.arg(suite).arg(&root), LIMIT)?.success("mmdebstrap")?;
        fs::copy("/etc/resolv.conf", root.join("etc/resolv.conf"))?;
        // Definitions find overlays beside the directory that they are in.
        let (configs, overlays) = (paths::workspace().join("configs"), paths::workspace().join("overlays"));
        let mut copy = Command::new("cp");
        copy.args(["--recursive", "--no-target-directory"]).arg(&configs).arg(root.join("project"));
        programs::run(&mut copy, LIMIT)?.success("copying the configurations")?;
        let mut copy = Command::new("cp");
        copy.arg("--recursive").arg(&overlays).arg(&root);
        programs::run(&mut copy, LIMIT)?.success("copying the overlays")?;
        Ok(Self { suite, root, artifacts })
    }

    /// Runs a script as root of the system; it has to succeed.
    fn run(&self, script: &str) -> Result<String> {
        // The builder makes its own mounts private, for which the root has to be a mount.
        let enter = "mount --bind \"$ROOT\" \"$ROOT\"; cd \"$ROOT\"; mount -t proc proc proc; mount --rbind /dev dev; \
                     mount -t sysfs -o ro sysfs sys; exec chroot . /bin/sh -euc \"$SCRIPT\"";
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--pid", "--fork", "--kill-child", "/bin/sh", "-euc", enter]).env_clear();
        unshare.envs([
            ("ROOT", self.root.as_os_str()),
            ("SCRIPT", script.as_ref()),
            ("HOME", "/root".as_ref()),
            ("LC_ALL", "C.UTF-8".as_ref()),
            ("DEBIAN_FRONTEND", "noninteractive".as_ref()),
            ("PATH", "/usr/sbin:/usr/bin:/sbin:/bin".as_ref()),
        ]);
        let ended = programs::run(&mut unshare, LIMIT)?;
        self.artifacts.append(&format!("{}.log", self.suite), &format!("# {script}\n{}", ended.said()))?;
        ended.success(script)
    }
}
