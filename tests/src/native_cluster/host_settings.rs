//! Settings of the kernel that kubelets and the image's files change for the whole machine; they are as before afterwards.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};

/// What kubelets want (kubelet, `setupKernelTunables`), and what many pods need.
const CHANGED: [&str; 7] = [
    "vm/overcommit_memory",
    "kernel/panic",
    "kernel/panic_on_oops",
    "kernel/keys/root_maxkeys",
    "kernel/keys/root_maxbytes",
    "fs/inotify/max_user_instances",
    "fs/inotify/max_user_watches",
];

/// The settings as they were; they are put back when this is dropped.
#[derive(Debug)]
pub struct HostSettings(Vec<(&'static str, String)>);

impl HostSettings {
    /// Remembers the settings, and lets nodes watch as many files as theirs do.
    pub fn change() -> Result<Self> {
        let read = |name: &'static str| -> Result<(&'static str, String)> {
            let path = Path::new("/proc/sys").join(name);
            let value = fs::read_to_string(&path).with_context(|| format!("reading {}", path.display()))?;
            Ok((name, value))
        };
        let settings = Self(CHANGED.into_iter().map(read).collect::<Result<_>>()?);
        for (name, value) in
            [("fs/inotify/max_user_instances", "8192"), ("fs/inotify/max_user_watches", "524288")]
        {
            fs::write(Path::new("/proc/sys").join(name), value).with_context(|| format!("setting {name}"))?;
        }
        Ok(settings)
    }
}

impl Drop for HostSettings {
    // What is left is for the person who runs the test; nobody else can be told here.
    #[allow(clippy::print_stderr)]
    fn drop(&mut self) {
        for (name, value) in &self.0 {
            if let Err(error) = fs::write(Path::new("/proc/sys").join(name), value) {
                eprintln!("{name} is not {} again: {error}", value.trim());
            }
        }
    }
}
