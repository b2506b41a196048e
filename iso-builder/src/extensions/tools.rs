//! The packages that modules are built and signed with. They are installed in a tree of their own.

use crate::packages::{PackageList, plain_name};

use super::spec::{ExtensionSpec, ModuleSource};

/// Compiler, library headers and make, beside what the headers of the kernel and DKMS depend on.
const COMPILER: [&str; 3] = ["gcc", "libc6-dev", "make"];
const KERNEL: &str = "linux-image-";
const HEADERS: &str = "linux-headers-";
/// The end of a package with a kernel that Debian has not signed; its headers are those of the signed one.
const UNSIGNED: &str = "-unsigned";

/// The list of packages for the tree in which modules are built and signed, beside a base of these packages; none where nothing is
/// built or signed. It has no headers where no package of the base is a kernel.
#[must_use]
pub fn packages(extensions: &[ExtensionSpec], base: &[String], is_signed: bool) -> Option<PackageList> {
    if extensions.is_empty() || !is_signed && !extensions.iter().any(ExtensionSpec::is_compiled) {
        return None;
    }
    let sources = extensions.iter().filter_map(|extension| match &extension.source {
        ModuleSource::Dkms(package) => Some(package.clone()),
        _ => None,
    });
    let compiler = COMPILER.into_iter().map(str::to_owned);
    let mut include: Vec<_> = compiler.chain(headers(base)).chain(sources).collect();
    include.sort();
    include.dedup();
    Some(PackageList { essential: true, include })
}

/// The packages with the headers of the kernels among the packages of a base: `linux-headers-amd64` for `linux-image-amd64`.
fn headers(base: &[String]) -> Vec<String> {
    let of_kernel = |package: &String| {
        let name = plain_name(package);
        let flavor = name.strip_prefix(KERNEL)?;
        let version = &package[name.len()..];
        Some(format!("{HEADERS}{}{version}", flavor.strip_suffix(UNSIGNED).unwrap_or(flavor)))
    };
    base.iter().filter_map(of_kernel).collect()
}

/// The release of the kernel among the packages of a lock file, as `uname -r` prints it; none if there is not exactly one.
pub fn kernel_release<'a>(files: impl Iterator<Item = &'a str>) -> Option<String> {
    let release = |file: &'a str| {
        let name = file.split('_').next()?.strip_prefix(KERNEL)?;
        // Metapackages are named after a flavor alone.
        name.starts_with(|c: char| c.is_ascii_digit()).then(|| name.strip_suffix(UNSIGNED).unwrap_or(name))
    };
    let mut found: Vec<_> = files.filter_map(release).collect();
    found.sort_unstable();
    found.dedup();
    match found[..] {
        [only] => Some(only.to_owned()),
        _ => None,
    }
}

/// True for the name of a package with headers of a kernel.
#[must_use]
pub fn is_headers(package: &str) -> bool {
    package.starts_with(HEADERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_headers_are_those_of_the_kernel_that_the_base_names() {
        for (package, expected) in [
            ("linux-image-amd64", "linux-headers-amd64"),
            ("linux-image-cloud-amd64=6.12.1-1", "linux-headers-cloud-amd64=6.12.1-1"),
            ("linux-image-6.12.1-amd64-unsigned", "linux-headers-6.12.1-amd64"),
            ("linux-image-arm64/trixie-backports", "linux-headers-arm64/trixie-backports"),
        ] {
            assert_eq!(headers(&["dash".to_owned(), package.to_owned()]), [expected]);
        }
        assert!(headers(&["dash".to_owned()]).is_empty());
    }

    #[test]
    fn tools_are_needed_where_something_is_compiled_or_signed() {
        let list = |extensions: &str, is_signed| {
            let extensions: Vec<ExtensionSpec> = serde_saphyr::from_str(extensions).unwrap();
            packages(&extensions, &["linux-image-amd64".to_owned()], is_signed).map(|list| list.include)
        };
        assert_eq!(list("[]", false), None);
        assert_eq!(list("[{modules: a.ko}]", false), None);
        let tools = ["gcc", "libc6-dev", "linux-headers-amd64", "make"];
        assert_eq!(list("[{source: a}]", false).unwrap(), tools);
        assert_eq!(list("[{modules: a.ko}]", true).unwrap(), tools);
        assert_eq!(list("[]", true), None);
        let dkms = list("[{dkms: a-dkms}, {dkms: a-dkms}]", false).unwrap();
        assert_eq!(dkms, ["a-dkms", "gcc", "libc6-dev", "linux-headers-amd64", "make"]);
    }

    #[test]
    fn the_kernel_of_a_lock_file_is_known_by_its_package() {
        let release = |files: &[&str]| kernel_release(files.iter().copied());
        let image = "linux-image-6.12.1+deb13-amd64_6.12.1-1_amd64.deb";
        let meta = "linux-image-amd64_6.12.1-1_amd64.deb";
        assert_eq!(release(&["dash_1_amd64.deb", meta, image]).unwrap(), "6.12.1+deb13-amd64");
        assert_eq!(release(&[meta]), None);
        assert_eq!(release(&[image, "linux-image-6.1.0-9-amd64_6.1-1_amd64.deb"]), None);
    }
}
