//! Asks apt which Debian packages satisfy lists of names.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;

use anyhow::{Context, Result, bail, ensure};
use base::command::{Runner, SystemRunner};
use base::failure::{Class, Failure};
use base::files;

use super::bootstrap::mmdebstrap;
use super::repository::PackageRepository;
use super::request::StepRequest;
use crate::extensions::tools;
use crate::firmware::COMPONENT;
use crate::packages::{PackageList, ResolvedPackage, plain_name};

/// The beginning of the names of files with answers of apt; the place of the list follows.
const ANSWER: &str = "resolved.";

/// Asks apt. `mmdebstrap` sets up apt with the mirrors and keys, and verifies their signatures; a hook lets apt print
/// what it would download, with the hashes of the signed index.
pub(super) fn resolve(
    request: &StepRequest,
    (suite, mirrors): (&str, &[String]),
    wanted: &[PackageList],
    firmware: &[String],
    files: &PackageRepository,
) -> Result<()> {
    let archive = request.scratch.join("resolved.tar");
    let hooks = wanted.iter().enumerate().map(|(number, list)| {
        let essential = if list.essential { "'?essential'" } else { "" };
        // Package names were checked to hold nothing that a shell or apt would interpret.
        format!(
            "--customize-hook=APT_CONFIG=\"$MMDEBSTRAP_APT_CONFIG\" apt-get -qq --yes --print-uris \
             -o Acquire::ForceHash=sha256 -o APT::Install-Recommends=false \
             install {essential} {} > \"$1/{ANSWER}{number}\"",
            list.include.join(" ")
        )
    });
    let mut options: Vec<String> = hooks.collect();
    let mut mirrors = mirrors.to_vec();
    if !firmware.is_empty() {
        // For mirrors without components: those of mmdebstrap, and URLs alone.
        options.push(format!("--components=main,{COMPONENT}"));
        mirrors.iter_mut().for_each(|line| gain_firmware(line, suite));
    }
    if !files.0.is_empty() {
        options.extend(file_hooks(request, suite, files)?);
    }
    let command = mmdebstrap(request, "custom", suite, &archive, &mirrors, options);
    SystemRunner.run(&command).map_err(|error| {
        without_firmware(&error, suite, &mirrors, firmware)
            .or_else(|| without_module_sources(&error))
            .unwrap_or_else(|| explain(&error, suite))
    })?;
    let mut packages = BTreeMap::<String, ResolvedPackage>::new();
    let mut archive = tar::Archive::new(File::open(&archive)?);
    for entry in archive.entries()? {
        let mut entry = entry?;
        let path = entry.path()?;
        let list = path.file_name().and_then(|name| name.to_str()?.strip_prefix(ANSWER)?.parse().ok());
        if let Some(list) = list {
            let mut text = String::new();
            entry.read_to_string(&mut text)?;
            for line in text.lines() {
                let package = parse_uri_line(line)?;
                packages.entry(package.file.clone()).or_insert(package).lists.insert(list);
            }
        }
    }
    ensure!(!packages.is_empty() || wanted.is_empty(), "apt listed no packages");
    let packages: Vec<ResolvedPackage> = packages.into_values().collect();
    files::write_atomically(&request.out.join("resolved.json"), &serde_json::to_vec(&packages)?, 0o644)
}

/// Lets apt know packages in files, and prefer them (apt_preferences(5)). As hooks, because a mirror more on the command line would
/// take the place of those of the host.
fn file_hooks(request: &StepRequest, suite: &str, files: &PackageRepository) -> Result<[String; 2]> {
    let directory = request.scratch.join("files");
    files::make_directory(&directory, 0o755)?;
    let line = files.lay_out(&directory, suite, request.architecture)?;
    let pin = "Package: *\\nPin: origin \"\"\\nPin-Priority: 990\\n";
    Ok([
        format!("--setup-hook=echo '{line}' > \"$1/etc/apt/sources.list.d/files.list\""),
        format!("--setup-hook=printf '{pin}' > \"$1/etc/apt/preferences.d/files\""),
    ])
}

/// Adds the component of firmware to a line of sources.list, if it is a mirror of this suite, or of its updates, with `main`. Other lines
/// stay: repositories of vendors have components of their own.
fn gain_firmware(line: &mut String, suite: &str) {
    let mut rest = line.trim().strip_prefix("deb").unwrap_or_default().trim_start();
    if let Some((_, after)) = rest.strip_prefix('[').and_then(|options| options.split_once(']')) {
        rest = after;
    }
    let mut words = rest.split_whitespace().skip(1);
    let of_suite = words.next().and_then(|word| word.strip_prefix(suite));
    let components: Vec<_> = words.collect();
    let is_mirror = of_suite.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '/']));
    if is_mirror && components.contains(&"main") && !components.contains(&COMPONENT) {
        *line = format!("{} {COMPONENT}", line.trim_end());
    }
}

/// The failure if apt finds no package of the firmware: a mirror that lacks the component is only a warning of apt.
fn without_firmware(
    error: &anyhow::Error,
    suite: &str,
    mirrors: &[String],
    firmware: &[String],
) -> Option<Failure> {
    let mut missing = unknown_packages(error);
    missing.retain(|name| firmware.iter().any(|package| plain_name(package) == name));
    if missing.is_empty() {
        return None;
    }
    // Packages of the component are there: these have another name on the mirror.
    let is_there = missing.len() < firmware.len();
    let asked = match mirrors {
        [] => format!("the usual mirrors of Debian with main and {COMPONENT}"),
        lines => lines.join("\n    "),
    };
    let (what, hint) = match is_there {
        false => (
            format!(
                "no mirror has the component {COMPONENT}, from which base.debian.firmware takes its packages"
            ),
            format!(
                "Add a mirror that has it to packages.mirrors, as in deb URL {suite} main {COMPONENT}; or \
                 write `firmware: none` below base.debian for an image without."
            ),
        ),
        true => (
            format!("no mirror has the packages of base.debian.firmware {}", missing.join(", ")),
            "Correct their names, or give a mirror that has them in packages.mirrors.".to_owned(),
        ),
    };
    let why =
        anyhow::anyhow!("apt does not find {}; it was asked for them on\n    {asked}", missing.join(", "));
    Some(Failure::new(Class::Invalid, what).because(why).hint(hint))
}

/// The packages that apt finds on no mirror; sorted, each once.
fn unknown_packages(error: &anyhow::Error) -> Vec<String> {
    let text = format!("{error:#}");
    let name = |line: &str| Some(line.trim().strip_prefix("E: Unable to locate package ")?.trim().to_owned());
    let mut names: Vec<_> = text.lines().filter_map(name).collect();
    names.sort();
    names.dedup();
    names
}

/// The failure if apt finds no headers of the kernel, or no package of an extension.
fn without_module_sources(error: &anyhow::Error) -> Option<Failure> {
    let mut missing = unknown_packages(error);
    missing.retain(|name| tools::is_headers(name) || name.ends_with("-dkms"));
    let first = missing.first()?;
    let hint = match tools::is_headers(first) {
        true => {
            "Add the mirror that has the kernel's headers to packages.mirrors, or give modules that are built already: \
             extensions: [{modules: DIRECTORY}]."
        }
        false => {
            "Correct the name; many such packages are in the component contrib or non-free: add it to packages.mirrors."
        }
    };
    let what = format!("no mirror has the packages that extensions need: {}", missing.join(", "));
    Some(
        Failure::new(Class::Invalid, what)
            .because(anyhow::anyhow!("apt does not find {}", missing.join(", ")))
            .hint(hint),
    )
}

/// apt's messages for a repository whose signature it cannot accept, from apt-secure(8) with gpgv or Sequoia's sqv.
const SIGNATURE_FAULTS: [&str; 7] = [
    "is not signed",
    "NO_PUBKEY",
    "Missing key",
    "signatures were invalid",
    "signatures couldn't be verified",
    "EXPKEYSIG",
    "no longer signed",
];

/// The failure, from apt's output: its own errors are the lines that begin with `E:` or `Err:`.
fn explain(error: &anyhow::Error, suite: &str) -> Failure {
    let text = format!("{error:#}");
    let said = |what: &str| text.contains(what);
    let is_signature = |line: &str| SIGNATURE_FAULTS.iter().any(|fault| line.contains(fault));
    let lines = text.lines().filter(|line| {
        ["E: ", "Err:", "  Could not"].iter().any(|head| line.starts_with(head)) || is_signature(line)
    });
    let lines: Vec<&str> = lines.map(str::trim).collect();
    let told = if lines.is_empty() { text.clone() } else { lines.join("\n    ") };
    let what = format!("asking the Debian mirrors for the packages of {suite}");
    let (class, hint) = if said("No space left on device") {
        (Class::DiskIo, "Free space, or give --cache-dir a larger disk.")
    } else if said("Unable to locate package") || said("has no installation candidate") {
        (Class::Invalid, "Check the names in the definition against the suite and its mirrors.")
    } else if said("have unmet dependencies") {
        (Class::Invalid, "These packages cannot be installed together; change the definition.")
    } else if text.lines().any(is_signature) {
        (
            Class::Invalid,
            "Name the key of the repository in its line: deb [signed-by=/path/of/key.asc] URL SUITE COMPONENT. For a repository without signatures that you trust: [trusted=yes].",
        )
    } else if said("does not have a Release file") {
        (Class::Invalid, "Check the URL and the suite of the mirror: it has no such release.")
    } else {
        (Class::Network, "Check the network and the mirrors, then build again; what was downloaded is kept.")
    };
    Failure::new(class, what).because(anyhow::anyhow!("{told}")).hint(hint)
}

/// Reads a line of `apt-get --print-uris`: quoted URI, file name, size and hash, as apt-get(8) documents it.
fn parse_uri_line(line: &str) -> Result<ResolvedPackage> {
    let mut words = line.split_whitespace();
    let (Some(url), Some(file), Some(size), Some(hash)) =
        (words.next(), words.next(), words.next(), words.next())
    else {
        bail!("apt printed {line:?}, which is not a URI, a file name, a size and a hash");
    };
    let hash = hash.strip_prefix("SHA256:").with_context(|| format!("finding a SHA-256 in {line:?}"))?;
    Ok(ResolvedPackage {
        file: file.replace('/', ""),
        url: url.trim_matches('\'').to_owned(),
        size: size.parse().with_context(|| format!("reading the size in {line:?}"))?,
        sha256: hash.parse()?,
        lists: BTreeSet::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_apt_prints() {
        let hash = "3d8c29c8c21ec6007635e1b2591edf98b771c9572a085968f47452b33040f384";
        let line = format!(
            "'http://mirror.example/pool/x/xz_5.4.1-1%2bd_amd64.deb' xz_5.4.1-1+d_amd64.deb 205796 SHA256:{hash}"
        );
        let package = parse_uri_line(&line).unwrap();
        assert_eq!(package.url, "http://mirror.example/pool/x/xz_5.4.1-1%2bd_amd64.deb");
        assert_eq!((package.file.as_str(), package.size), ("xz_5.4.1-1+d_amd64.deb", 205_796));
    }

    #[test]
    fn apts_words_decide_whose_mistake_it_is() {
        for (said, class) in [
            ("E: Unable to locate package nosuch", Class::Invalid),
            ("Err:1 http://m/debian bookworm InRelease\n  Could not connect", Class::Network),
            (
                "W: GPG error: http://m ./ InRelease: The following signatures couldn't be verified because the public key \
                 is not available: NO_PUBKEY 0123456789ABCDEF\nE: The repository 'http://m ./ InRelease' is not signed.",
                Class::Invalid,
            ),
            (
                "E: The repository 'http://m/debian sid2 Release' does not have a Release file.",
                Class::Invalid,
            ),
            ("E: Write error - write (28: No space left on device)", Class::DiskIo),
        ] {
            let failure = explain(&anyhow::anyhow!("I: running\n{said}"), "bookworm");
            assert_eq!(failure.class(), class, "{said}");
            let text = base::failure::render(&failure.into());
            assert!(text.contains(said.lines().next().unwrap()) && !text.contains("I: running"), "{text}");
        }
    }

    #[test]
    fn mirrors_of_the_suite_gain_the_component_of_firmware_and_other_lines_stay() {
        for (line, gains) in [
            ("deb http://m/debian trixie main", true),
            ("deb http://m/debian trixie main contrib", true),
            ("deb [arch=amd64 signed-by=/a.gpg] http://m/debian trixie-updates main", true),
            ("deb [ trusted=yes ] http://m/debian-security trixie-security main ", true),
            ("deb http://m/debian trixie main non-free-firmware", false),
            ("deb http://m/debian sid main", false),
            ("deb http://m/debian trixie2 main", false),
            ("deb https://vendor.example.org/apt trixie stable", false),
            ("deb [trusted=yes] http://m ./", false),
            ("http://m/debian", false),
        ] {
            let mut gained = line.to_owned();
            gain_firmware(&mut gained, "trixie");
            let expected =
                if gains { format!("{} non-free-firmware", line.trim_end()) } else { line.to_owned() };
            assert_eq!(gained, expected);
        }
    }

    #[test]
    fn a_mirror_without_the_component_is_told_with_its_line_and_with_what_to_do() {
        let mirrors = ["deb http://m/debian trixie main non-free-firmware".to_owned()];
        let firmware = ["firmware-bnx2".to_owned(), "firmware-qlogic=1".to_owned()];
        let told = |said: &str| {
            let error = anyhow::anyhow!("I: running\n{said}");
            without_firmware(&error, "trixie", &mirrors, &firmware).map(|failure| {
                assert_eq!(failure.class(), Class::Invalid);
                base::failure::render(&failure.into())
            })
        };
        let all =
            told("E: Unable to locate package firmware-bnx2\nE: Unable to locate package firmware-qlogic");
        let all = all.unwrap();
        for part in ["no mirror has the component non-free-firmware", &mirrors[0], "firmware: none"] {
            assert!(all.contains(part), "{part}: {all}");
        }
        let one = told("E: Unable to locate package firmware-bnx2").unwrap();
        assert!(one.contains("the packages of base.debian.firmware firmware-bnx2"), "{one}");
        assert_eq!(told("E: Unable to locate package nosuch"), None);
    }

    #[test]
    fn headers_and_sources_of_modules_that_no_mirror_has_are_told() {
        let told = |said: &str| {
            let failure = without_module_sources(&anyhow::anyhow!("I: running\n{said}"))?;
            Some(base::failure::render(&failure.into()))
        };
        let headers =
            told("E: Unable to locate package linux-headers-6.12.1-acme\nE: Unable to locate package x")
                .unwrap();
        assert!(
            headers.contains("extensions need: linux-headers-6.12.1-acme")
                && headers.contains("modules: DIRECTORY")
        );
        let sources = told("E: Unable to locate package acme-dkms").unwrap();
        assert!(sources.contains("acme-dkms") && sources.contains("non-free"), "{sources}");
        assert_eq!(told("E: Unable to locate package nosuch"), None);
    }

    #[test]
    fn a_line_without_a_sha256_is_refused() {
        assert!(parse_uri_line("'http://m/x.deb' x.deb 12 MD5Sum:00").is_err());
        assert!(parse_uri_line("Reading package lists...").is_err());
    }
}
