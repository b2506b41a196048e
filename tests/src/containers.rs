//! Containers of an image that was just made, under a containerd of Debian's with directories of its own.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;

use crate::deadline::Deadline;
use crate::programs::{self, ProgramOutput};

const START_LIMIT: Duration = Duration::from_secs(60);
/// To import an image, or to remove what a container left.
const COMMAND_LIMIT: Duration = Duration::from_secs(300);
/// A containerd with one image; it ends when dropped.
#[derive(Debug)]
pub struct ContainerHost {
    daemon: Child,
    // Sockets have short paths only.
    directory: TempDir,
    image: String,
}

impl ContainerHost {
    /// Starts containerd, with its log in `log`, and imports the image of an OCI image layout that has one image.
    pub fn start(layout: &Path, log: &Path) -> Result<Self> {
        let directory = tempfile::Builder::new().prefix("nqrust-").tempdir_in("/var/tmp")?;
        let path = |name: &str| directory.path().join(name).display().to_string();
        let config = format!(
            "version = 2\nroot = {:?}\nstate = {:?}\ndisabled_plugins = [\"io.containerd.grpc.v1.cri\"]\n\
             [grpc]\naddress = {:?}\n[ttrpc]\naddress = {:?}\n",
            path("root"),
            path("state"),
            path("socket"),
            path("ttrpc"),
        );
        fs::write(directory.path().join("config.toml"), config)?;
        let log = File::create(log).with_context(|| format!("opening {}", log.display()))?;
        let mut daemon = Command::new("containerd");
        daemon.arg("--config").arg(path("config.toml")).stdin(Stdio::null());
        let daemon = daemon.stdout(log.try_clone()?).stderr(log).spawn().context("starting containerd")?;
        let mut host = Self { daemon, directory, image: named(layout)? };
        Deadline::after(START_LIMIT).poll("an answer of containerd", || {
            let asked = host.ctr(&["version"], START_LIMIT)?;
            Ok((asked.code == 0).then_some(()))
        })?;
        let archive = host.path("image.tar");
        let mut tar = Command::new("tar");
        tar.arg("--create").arg("--file").arg(&archive).arg("--directory").arg(layout).arg(".");
        programs::run(&mut tar, COMMAND_LIMIT)?.success("packing the layout")?;
        let archive = archive.display().to_string();
        host.ctr(&["images", "import", &archive], COMMAND_LIMIT)?.success("importing the image")?;
        Ok(host)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn ctr(&mut self, args: &[&str], limit: Duration) -> Result<ProgramOutput> {
        let mut command = Command::new("ctr");
        command.arg("--address").arg(self.path("socket")).args(args);
        programs::run(&mut command, limit)
    }

    /// Runs a container of the image to its end, as the image's user. `options` are those of `ctr run`; `directory` is `/work` in the
    /// container. ctr passes by the entry point of an image where there are arguments, so `words` begin with a program.
    pub fn run(
        &mut self,
        options: &[&str],
        directory: &Path,
        words: &[&str],
        limit: Duration,
    ) -> Result<ProgramOutput> {
        let mount = format!("type=bind,src={},dst=/work,options=rbind:rw", directory.display());
        let image = self.image.clone();
        let mut args = vec!["run", "--rm", "--mount", &mount, "--cwd", "/work"];
        args.extend(options);
        args.extend([image.as_str(), "build"]);
        args.extend(words);
        self.ctr(&args, limit)
    }
}

impl Drop for ContainerHost {
    // Errors go to standard error: a destructor cannot return them.
    #[allow(clippy::print_stderr)]
    fn drop(&mut self) {
        let pid = Pid::from_raw(i32::try_from(self.daemon.id()).unwrap_or_default());
        let ended = kill(pid, Signal::SIGTERM).map_err(anyhow::Error::from).and_then(|()| {
            Deadline::after(START_LIMIT).poll("the end of containerd", || Ok(self.daemon.try_wait()?))
        });
        if let Err(error) = ended {
            eprintln!("containerd is left: {error:#}");
        }
    }
}

/// The name of the image in a layout: its index names each image by its tag first.
fn named(layout: &Path) -> Result<String> {
    let index: Value = serde_json::from_slice(&fs::read(layout.join("index.json"))?)?;
    let name = &index["manifests"][0]["annotations"]["io.containerd.image.name"];
    Ok(name.as_str().context("the image's name in the index")?.to_owned())
}
