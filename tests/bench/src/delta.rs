//! The download of an update: a patch between two OS images beside the whole image.
//!
//! The images have the packages of the definition under test, from Debian's mirrors. The earlier ones have those versions that the mirrors
//! still have beside the newest: of the kernel, and of a few packages. No maintainer script runs, so that nothing but the packages' own
//! files differs; kernel and initrd, which are fetched apart from the image, are not counted.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{Write, stderr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use base::digest::Digest;
use formats::delta::{Patch, make::make};
use formats::squashfs::Expansion;
use nqrust_tests::artifacts::Artifacts;
use nqrust_tests::{medium, paths, programs};
use walkdir::WalkDir;

use crate::figure::{Figure, RatioLimit};
use crate::images::{ProgramCost, mebibytes, timed};

/// The arguments with which this program only makes a patch, or only applies one.
pub(crate) const MAKE_ARGUMENT: &str = "make-patch";
pub(crate) const APPLY_ARGUMENT: &str = "apply-patch";

/// Packages of which the mirrors often have two versions: that of the release and that of its security updates.
const PACKAGES: [&str; 7] = [
    "libssl3t64",
    "openssl",
    "openssl-provider-legacy",
    "openssh-client",
    "openssh-server",
    "openssh-sftp-server",
    "containerd",
];
/// The compression of the build's profile for releases, with which the whole image is fetched; and one that takes little time.
const RELEASE_LEVEL: u32 = 15;
const QUICK_LEVEL: u32 = 3;
const LIMIT: Duration = Duration::from_secs(1800);
const MEMORY_LIMIT_MIB: f64 = 512.0;

pub(crate) fn make_patch(old: &str, new: &str, patch: &str) -> Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    Ok(make(&File::open(old)?, &File::open(new)?, threads, &mut File::create(patch)?)?)
}

pub(crate) fn apply_patch(old: &str, patch: &str, new: &str) -> Result<()> {
    Ok(Patch::open(File::open(patch)?)?.apply(&File::open(old)?, &mut File::create(new)?)?)
}

/// An image in both forms.
struct ImagePair {
    compressed: PathBuf,
    expanded: PathBuf,
}

pub(crate) fn measure(artifacts: &Artifacts) -> Result<Vec<Figure>> {
    let tree = artifacts.disk("tree");
    let (suite, packages) = definition()?;
    extract(&suite, &packages.join(","), &tree)?;
    let known = KnownVersions::read(&tree)?;
    let older: Vec<_> = PACKAGES.into_iter().filter_map(|name| known.older(name)).collect();
    let kernel = known.older_kernel()?;
    let debs = artifacts.disk("packages");
    let old_packages = download(&tree, &debs.join("packages"), &older)?;
    let old_kernel = download(&tree, &debs.join("kernel"), &[kernel])?;

    let new = image(&tree, &artifacts.disk("new"), RELEASE_LEVEL)?;
    let mut figures = Vec::new();
    if older.is_empty() {
        let names = PACKAGES.join(", ");
        writeln!(stderr(), "the mirrors have one version only of {names}: packages alone are not measured")?;
    } else {
        lay_over(&tree, &old_packages)?;
        let old = image(&tree, &artifacts.disk("packages"), QUICK_LEVEL)?;
        let name = format!("{} packages", older.len());
        figures.extend(compare(&name, &old, &new, 0.04, artifacts)?);
    }
    fs::remove_dir_all(tree.join("usr/lib/modules"))?;
    lay_over(&tree, &old_kernel)?;
    let old = image(&tree, &artifacts.disk("kernel"), QUICK_LEVEL)?;
    let name = format!("kernel and {} packages", older.len());
    figures.extend(compare(&name, &old, &new, 0.10, artifacts)?);
    fs::remove_dir_all(tree)?;
    Ok(figures)
}

/// Unpacks packages, separated by commas, and what they depend on into a directory, where the lists of all packages stay.
fn extract(suite: &str, packages: &str, tree: &Path) -> Result<()> {
    let mut extract = Command::new("mmdebstrap");
    extract.args(["--quiet", "--variant=extract", "--skip=cleanup/apt"]);
    extract.arg(format!("--include={packages}")).arg(suite).arg(tree);
    programs::run(&mut extract, LIMIT)?.success("unpacking packages with mmdebstrap").map(drop)
}

/// The package of the kernel before the newest in the mirrors of the definition under test; `scratch` is made and removed.
pub(crate) fn older_kernel(scratch: &Path) -> Result<String> {
    let (suite, _) = definition()?;
    // For the lists of packages; some package has to be named.
    extract(&suite, "base-files", scratch)?;
    let older = KnownVersions::read(scratch)?.older_kernel()?;
    fs::remove_dir_all(scratch)?;
    Ok(older)
}

/// The release of Debian and the packages of the definition under test.
fn definition() -> Result<(String, Vec<String>)> {
    let definition = fs::read(paths::workspace().join(medium::DEFINITION))?;
    let definition: serde_yaml::Value = serde_yaml::from_slice(&definition)?;
    let suite = definition["packages"]["suite"].as_str().context("the definition names no suite")?;
    let packages = definition["base"]["debian"]["include"].as_sequence();
    let packages = packages.context("the definition names no packages")?;
    Ok((suite.to_owned(), packages.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect()))
}

/// The packages of the mirrors with all of their versions.
struct KnownVersions(BTreeMap<String, BTreeSet<String>>);

impl KnownVersions {
    /// From the lists that apt has in `tree`.
    fn read(tree: &Path) -> Result<Self> {
        let mut known: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for entry in fs::read_dir(tree.join("var/lib/apt/lists"))? {
            let path = entry?.path();
            if !path.to_string_lossy().ends_with("_Packages") {
                continue;
            }
            let mut name = String::new();
            for line in fs::read_to_string(&path)?.lines() {
                if let Some(package) = line.strip_prefix("Package: ") {
                    name = package.to_owned();
                } else if let Some(version) = line.strip_prefix("Version: ") {
                    known.entry(name.clone()).or_default().insert(version.to_owned());
                }
            }
        }
        if known.is_empty() { bail!("mmdebstrap left no lists of packages") } else { Ok(Self(known)) }
    }

    /// The version before the newest, as apt wants it.
    fn older(&self, name: &str) -> Option<String> {
        let mut versions: Vec<_> = self.0.get(name)?.iter().collect();
        versions.sort_by(|one, other| compare_versions(one, other));
        let older = versions.len().checked_sub(2)?;
        Some(format!("{name}={}", versions[older]))
    }

    /// The package of the kernel before the newest.
    fn older_kernel(&self) -> Result<String> {
        let image = |name: &str| {
            let rest = name.strip_prefix("linux-image-")?.strip_suffix("-amd64")?;
            let plain = rest.starts_with(|c: char| c.is_ascii_digit()) && !rest.contains('-');
            plain.then(|| rest.to_owned())
        };
        let mut kernels: Vec<_> = self.0.keys().filter_map(|name| image(name)).collect();
        kernels.sort_by(|one, other| compare_versions(one, other));
        let older = kernels.len().checked_sub(2).context("the mirrors have one kernel only")?;
        Ok(format!("linux-image-{}-amd64", kernels[older]))
    }
}

fn compare_versions(one: &str, other: &str) -> std::cmp::Ordering {
    let is = |relation| {
        let dpkg = Command::new("dpkg").args(["--compare-versions", one, relation, other]).status();
        dpkg.is_ok_and(|status| status.success())
    };
    if is("lt") {
        std::cmp::Ordering::Less
    } else if is("gt") {
        std::cmp::Ordering::Greater
    } else {
        std::cmp::Ordering::Equal
    }
}

/// Fetches packages with the lists of `tree` into a directory; returns their files.
fn download(tree: &Path, to: &Path, packages: &[String]) -> Result<Vec<PathBuf>> {
    fs::create_dir_all(to)?;
    if packages.is_empty() {
        return Ok(Vec::new());
    }
    let mut apt = Command::new("apt-get");
    apt.current_dir(to).arg("-o").arg(format!("Dir={}", tree.display()));
    apt.args(["-o", "Dir::State::status=/dev/null", "-o", "APT::Sandbox::User=root", "-qq", "download"]);
    programs::run(apt.args(packages), LIMIT)?.success("fetching packages with apt-get")?;
    fs::read_dir(to)?.map(|entry| Ok(entry?.path())).collect()
}

fn lay_over(tree: &Path, packages: &[PathBuf]) -> Result<()> {
    for package in packages {
        let mut dpkg = Command::new("dpkg-deb");
        dpkg.arg("--extract").arg(package).arg(tree);
        programs::run(&mut dpkg, LIMIT)?.success("unpacking a package")?;
    }
    Ok(())
}

/// Makes an image of the tree, as the build's step of the OS image does: without what is kept elsewhere, with plain kernel modules.
fn image(tree: &Path, at: &Path, level: u32) -> Result<ImagePair> {
    fs::create_dir_all(at)?;
    for elsewhere in ["boot", "var/lib/apt", "var/cache/apt"] {
        let path = tree.join(elsewhere);
        if path.exists() {
            fs::remove_dir_all(path)?;
        }
    }
    let packed = WalkDir::new(tree.join("usr/lib/modules")).into_iter().collect::<Result<Vec<_>, _>>()?;
    let packed: Vec<_> =
        packed.into_iter().filter(|entry| entry.path().to_string_lossy().ends_with(".ko.xz")).collect();
    for some in packed.chunks(500) {
        let mut xz = Command::new("xz");
        xz.args(["--decompress", "--force"]).args(some.iter().map(walkdir::DirEntry::path));
        programs::run(&mut xz, LIMIT)?.success("xz")?;
    }
    let pair = ImagePair { compressed: at.join("image.squashfs"), expanded: at.join("image.expanded") };
    let mut squash = Command::new("mksquashfs");
    squash.arg(tree).arg(&pair.compressed);
    squash.args(["-noappend", "-no-progress", "-quiet", "-b", "128K", "-comp", "zstd"]);
    squash.args(["-Xcompression-level", &level.to_string(), "-mkfs-time", "0", "-all-time", "0"]);
    programs::run(&mut squash, LIMIT)?.success("mksquashfs")?;
    let compressed = File::open(&pair.compressed)?;
    Expansion::plan(&compressed)?.write(2, &mut File::create(&pair.expanded)?)?;
    Ok(pair)
}

/// The figures of one step from `old` to `new`; a patch may have `limit` of the whole image.
fn compare(
    name: &str,
    old: &ImagePair,
    new: &ImagePair,
    limit: f64,
    artifacts: &Artifacts,
) -> Result<Vec<Figure>> {
    let whole = ("the whole image, compressed", size(&new.compressed)?);
    let (patch, made) = (artifacts.disk("patch"), artifacts.disk("made"));
    let making = run(&[MAKE_ARGUMENT.as_ref(), &old.expanded, &new.expanded, &patch])?;
    let applying = run(&[APPLY_ARGUMENT.as_ref(), &old.expanded, &patch, &made])?;
    if digest(&made)? != digest(&new.expanded)? {
        bail!("the patch makes another image");
    }
    let figure =
        |what: &str, value, unit, baseline| Figure::new(&format!("{name}: {what}"), value, unit, baseline);
    let figures = vec![
        figure("patch", size(&patch)?, "MiB", whole).limit(RatioLimit::AtMost(limit)),
        figure("making the patch", making.seconds, "s", ("applying it", applying.seconds)),
        figure(
            "memory to apply it",
            mebibytes(applying.peak << 10),
            "MiB",
            ("the most that it may take", MEMORY_LIMIT_MIB),
        )
        .limit(RatioLimit::AtMost(1.0)),
    ];
    [patch, made].iter().try_for_each(fs::remove_file)?;
    Ok(figures)
}

fn run(arguments: &[&Path]) -> Result<ProgramCost> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(arguments);
    timed(command)
}

fn digest(path: &Path) -> Result<Digest> {
    Ok(Digest::of_reader(File::open(path)?)?.0)
}

fn size(path: &Path) -> Result<f64> {
    Ok(mebibytes(fs::metadata(path)?.len()))
}
