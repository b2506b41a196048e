//! Files and directories of the node.

use std::collections::{BTreeSet, HashSet};

use document::finding::Finding;

use super::shared::repeated;
use crate::config::formats::access::decimal_mode;
use crate::config::proxies::is_proxy;
use crate::config::{InstallConfig, encoding};
use document::secret::has_password;

/// Directories whose content lasts anyway.
const LASTING: [&str; 5] = ["/var", "/home", "/root", "/opt", "/srv"];
/// Where files can be written at boot: what lasts, and `/etc`, which begins fresh.
const WRITABLE: [&str; 6] = ["/etc", "/var", "/home", "/root", "/opt", "/srv"];
/// The directories of the administrator's own health checks (`installer health`).
const OWN_CHECKS: [&str; 2] = ["/oem/health.d/required", "/oem/health.d/wanted"];
/// Files that other keys make.
const MANAGED: [(&str, &str); 6] = [
    ("/etc/hostname", "os.hostname"),
    ("/etc/passwd", "os.users"),
    ("/etc/shadow", "os.users"),
    ("/etc/group", "os.users"),
    ("/etc/gshadow", "os.users"),
    ("/etc/machine-id", "the identity of the node"),
];

/// True if `path` is `tree` or below it.
fn is_within(path: &str, tree: &str) -> bool {
    path.strip_prefix(tree).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The outermost of `paths` that `path` is below.
fn outer<'p>(path: &str, paths: &BTreeSet<&'p str>) -> Option<&'p str> {
    let above = path.match_indices('/').map(|(end, _)| &path[..end]);
    above.filter_map(|above| paths.get(above).copied()).find(|above| *above != path)
}

/// Each directory is kept once, and only where it would not last anyway.
pub(super) fn kept_directories(config: &InstallConfig) -> Vec<Finding> {
    let paths = &config.os.persistent_state_paths;
    let all: BTreeSet<&str> = paths.iter().map(|path| &**path).collect();
    let mut seen = HashSet::new();
    let mut findings = Vec::new();
    for (index, path) in paths.iter().enumerate() {
        let place = format!("os.persistent_state_paths[{index}]");
        let again = !seen.insert(path);
        if let Some(tree) = LASTING.iter().find(|tree| is_within(path, tree)) {
            let message = format!("{tree} is persistent anyway");
            findings.push(Finding::warning(place, "already-persistent", message));
        } else if again {
            findings.push(Finding::warning(place, "repeated-entry", "this directory is listed already"));
        } else if let Some(outer) = outer(path, &all) {
            let message = format!("{outer} is kept with everything in it; remove one of the two");
            findings.push(Finding::new(place, "nested-paths", message));
        }
    }
    findings
}

/// Each file is written once, and no file stands where another needs a directory.
pub(super) fn each_file_once(config: &InstallConfig) -> Vec<Finding> {
    let paths: Vec<_> = config.os.write_files.iter().map(|file| &*file.path).collect();
    let place = |index: usize| format!("os.write_files[{index}].path");
    let mut findings: Vec<_> = repeated(&paths)
        .map(|(later, _)| Finding::new(place(later), "duplicate-path", "the same file is listed already"))
        .collect();
    let all: BTreeSet<&str> = paths.iter().copied().collect();
    for (index, path) in paths.iter().enumerate() {
        if let Some(outer) = outer(path, &all) {
            let message =
                format!("{outer} is a file of this list, so it cannot be the directory of this one");
            findings.push(Finding::new(place(index), "nested-paths", message));
        }
    }
    findings
}

/// Content is what its encoding says.
pub(super) fn content_decodes(config: &InstallConfig) -> Vec<Finding> {
    let files = config.os.write_files.iter().enumerate();
    let fault = |(index, file)| {
        let path = format!("os.write_files[{index}].content");
        Some(Finding::new(path, "invalid-content", encoding::decode(file).err()?))
    };
    files.filter_map(fault).collect()
}

/// Permissions are octal, and a file is not empty without intent.
pub(super) fn files_are_as_meant(config: &InstallConfig) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, file) in config.os.write_files.iter().enumerate() {
        let path = format!("os.write_files[{index}]");
        if let Some(better) = file.permissions.as_ref().and_then(|mode| decimal_mode(mode)) {
            let message = "this is a decimal number; permissions are read as octal digits";
            findings.push(
                Finding::new(format!("{path}.permissions"), "decimal-permissions", message).suggest(better),
            );
        }
        if encoding::decode(file).is_ok_and(|content| content.is_empty()) {
            let message =
                "the content is empty; is the text below `content: |` indented deeper than the key?";
            findings.push(Finding::warning(format!("{path}.content"), "empty-content", message));
        }
    }
    findings
}

/// `/etc/environment` is public: each session has its values, whatever the mode of the file. Proxies go there without
/// their logins.
pub(super) fn environment_is_public(config: &InstallConfig) -> Vec<Finding> {
    let message = "every user and every program of the node can read `/etc/environment`, and this has a password; give it to \
                   the program that needs it, in a file of `os.write_files`";
    let variables = config.os.environment.iter();
    let variables = variables.filter(|(name, value)| !is_proxy(name) && has_password(value));
    variables
        .map(|(name, _)| Finding::warning(format!("os.environment.{name}"), "public-password", message))
        .collect()
}

/// Files stand where the node can write them and keeps them to the end of the boot.
pub(super) fn places_can_be_written(config: &InstallConfig) -> Vec<Finding> {
    let kept = &config.os.persistent_state_paths;
    let mut findings = Vec::new();
    for (index, file) in config.os.write_files.iter().enumerate() {
        let place = format!("os.write_files[{index}].path");
        if let Some((_, owner)) = MANAGED.iter().find(|(path, _)| *path == &*file.path) {
            let message = format!("the installer writes this file itself, from {owner}");
            findings.push(Finding::new(place, "managed-path", message));
            continue;
        }
        let within = |tree: &str| is_within(&file.path, tree) && &*file.path != tree;
        let checks =
            OWN_CHECKS.iter().any(|tree| file.path.rsplit_once('/').is_some_and(|(of, _)| of == *tree));
        if !checks && !WRITABLE.into_iter().any(within) && !kept.iter().any(|path| within(path)) {
            let where_to = WRITABLE.join(", ");
            let message = match is_within(&file.path, "/oem") {
                true => format!(
                    "stages of a system that are kept there have no effect here; say what they do by other keys of `os`, \
                     which `installer convert` writes for such a file, and put files into {where_to}"
                ),
                false => format!("the system is read-only there; files can be in {where_to}"),
            };
            findings.push(Finding::new(place, "read-only-path", message));
        }
    }
    findings
}
