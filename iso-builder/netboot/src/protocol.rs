//! The interface between a machine and the server: the paths of the server's URLs, and the kernel parameters by which the installer
//! finds its configuration and its medium. Boot scripts, the router, the fleet and the rehearsal of configurations use them.

/// iPXE's request for a boot script, with the machine's identity as its query.
pub const BOOT: &str = "/v1/boot";
/// The parameter of [`BOOT`], and of the first script, with a token that lets a machine install.
pub const ENROLL: &str = "enroll";
/// GRUB's request for its commands; a MAC address follows.
pub const GRUB: &str = "/v1/grub/";
/// A machine's configuration; its token follows.
pub const CONFIGURATION: &str = "/v1/config/";
/// Reports of installs; the token follows.
pub const REPORT: &str = "/v1/report/";

/// The kernel arguments that are part of the install's configuration. They take precedence over its documents. `medium` is the path
/// of the medium's files, with a slash at its end.
#[must_use]
pub fn parameters(base: &str, medium: &str, token: &str, word: &str) -> [String; 4] {
    [
        "nqrust.install.automatic=true".into(),
        format!("nqrust.install.medium={base}{}", medium.trim_end_matches('/')),
        format!("nqrust.install.config_url={base}{CONFIGURATION}{token}"),
        // A redeployment replaces the node on the machine, but only once: a machine that boots with these parameters a
        // second time finds the word on its disk.
        format!("nqrust.install.reinstall=once:{word}"),
    ]
}
