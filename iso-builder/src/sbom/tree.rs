//! Finds packages in the tar file of a tree, and in the layers of an image.
//!
//! Only the package managers' databases are kept in memory. Layers are stacked as in the OCI image specification
//! (`layer.md`): upper files replace lower ones, whiteouts hide them.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

use anyhow::{Context, Result, anyhow};
use base::digest::Digest;
use base::failure::{Class, Failure};

use super::contents::{ImageContents, TreePackages};
use super::{SbomPackage, copyright, package_databases};
use crate::archive::members::inside;
use crate::archive::{ArchiveMembers, MemberKind, compression};
use crate::images::Store;
use crate::images::stored_image::StoredImage;

/// In bytes; the databases of a tree or layer are smaller together.
const MAX_DATABASES_BYTES: u64 = 64 << 20;

const DPKG: &str = "var/lib/dpkg/status";
/// The directory in which images made without dpkg (distroless) have a file for each package.
const DPKG_PARTS: &str = "var/lib/dpkg/status.d/";
const APK: [&str; 2] = ["lib/apk/db/installed", "usr/lib/apk/db/installed"];
const OS_RELEASE: [&str; 2] = ["etc/os-release", "usr/lib/os-release"];
/// Directories of RPM's databases, and the names of these. Reading one would need a database library.
/// The directory with the copyright file of each package of dpkg, in a directory of its name. That may be a link to the one of another
/// package.
const DOCUMENTS: &str = "usr/share/doc/";
const COPYRIGHT: &str = "/copyright";
/// A larger one is not read.
const MAX_COPYRIGHT_BYTES: u64 = 4 << 20;
/// The directory where dpkg has the paths of each package, in `NAME.list`. Those of firmware are read, for their licences.
const LISTS: &str = "var/lib/dpkg/info/";
const FIRMWARE: [&str; 2] = ["/usr/lib/firmware/", "/lib/firmware/"];
const RPM: [&str; 2] = ["var/lib/rpm/", "usr/lib/sysimage/rpm/"];
const RPM_FILES: [&str; 3] = ["Packages", "Packages.db", "rpmdb.sqlite"];

/// The changes that one layer makes to the databases below it.
#[derive(Clone, Debug, Default)]
struct LayerChanges {
    /// Paths that it hides with everything below them.
    hidden: BTreeSet<String>,
    /// Directories whose content it hides.
    emptied: BTreeSet<String>,
    databases: Databases,
}

/// Contents of databases by path; none if one was not read.
type Databases = BTreeMap<String, Option<Vec<u8>>>;

/// The packages in the tar file of a complete tree.
pub fn of_tree(tar: &Path) -> Result<TreePackages> {
    let upper = LayerChanges::read(tar).with_context(|| format!("finding packages in {}", tar.display()))?;
    Ok(contents(&upper.databases))
}

/// Finds packages in the images of a store. Layers that images share are read once.
#[derive(Debug)]
pub struct LayerReader<'a> {
    store: &'a Store,
    known: HashMap<Digest, LayerChanges>,
}

impl<'a> LayerReader<'a> {
    #[must_use]
    pub fn new(store: &'a Store) -> Self {
        Self { store, known: HashMap::new() }
    }

    pub fn image(&mut self, image: &StoredImage) -> Result<ImageContents> {
        let mut databases = Databases::new();
        for layer in &image.layers {
            if !self.known.contains_key(&layer.digest) {
                let upper = LayerChanges::read(&self.store.blob_path(layer.digest)).with_context(|| {
                    format!("finding packages in the layer {} of {}", layer.digest.oci(), image.name)
                })?;
                self.known.insert(layer.digest, upper);
            }
            if let Some(upper) = self.known.get(&layer.digest) {
                upper.lay_over(&mut databases);
            }
        }
        let digest = image.target().blob.digest;
        Ok(ImageContents { name: image.name.clone(), digest, contents: contents(&databases) })
    }
}

impl LayerChanges {
    /// Reads a tar file, compressed or not.
    fn read(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("opening {}", path.display()))?;
        Self::of(BufReader::with_capacity(128 << 10, file)).map_err(|error| {
            let failure =
                Failure::new(Class::Invalid, format!("{} is not a readable tar archive", path.display()));
            failure.because(error).into()
        })
    }

    fn of(reader: impl std::io::BufRead) -> Result<Self> {
        let mut members = ArchiveMembers::new(compression::plain(reader)?);
        let (mut upper, mut room) = (Self::default(), MAX_DATABASES_BYTES);
        while let Some(member) = members.advance()? {
            let first = member.path.iter().position(|byte| *byte != b'/').unwrap_or(member.path.len());
            let path = inside(&member.path[first..]).and_then(|path| String::from_utf8(path).ok());
            // The names of databases are UTF-8, so other paths do not matter.
            let Some(path) = path.filter(|path| !path.is_empty()) else { continue };
            if upper.whiteout(&path) || member.kind == MemberKind::Directory {
                continue;
            }
            if is_near(&path) {
                upper.hidden.insert(path.clone());
            }
            if let MemberKind::Symlink(target) = &member.kind
                && let Some(name) = linked_documents(&path, target)
            {
                upper.databases.insert(path, Some(name.into_bytes()));
                continue;
            }
            if is_copyright(&path) && matches!(member.kind, MemberKind::File(_)) {
                let mut text = Vec::new();
                members.by_ref().take(MAX_COPYRIGHT_BYTES).read_to_end(&mut text)?;
                let text = copyright::reduced(&String::from_utf8_lossy(&text));
                upper.databases.insert(path, Some(text.into_bytes()));
                continue;
            }
            if is_database(&path) {
                let read = matches!(member.kind, MemberKind::File(_)) && !is_rpm(&path);
                let content = if read { Some(take(&mut members, &mut room)?) } else { None };
                // A symbolic link may lead to a database with another name of the list.
                if !matches!(member.kind, MemberKind::Symlink(_)) {
                    upper.databases.insert(path, content);
                }
            }
        }
        Ok(upper)
    }

    /// Records what a whiteout hides; false if the path is no whiteout.
    fn whiteout(&mut self, path: &str) -> bool {
        let (directory, name) = path.rsplit_once('/').unwrap_or(("", path));
        let Some(hidden) = name.strip_prefix(".wh.") else { return false };
        let slash = if directory.is_empty() { "" } else { "/" };
        match hidden {
            ".wh..opq" => drop(self.emptied.insert(directory.to_owned())),
            hidden => drop(self.hidden.insert(format!("{directory}{slash}{hidden}"))),
        }
        true
    }

    fn lay_over(&self, lower: &mut Databases) {
        lower.retain(|path, _| {
            let parents = path.match_indices('/').map(|(end, _)| &path[..end]);
            let gone = parents.clone().chain([path.as_str()]).any(|path| self.hidden.contains(path));
            !gone && !parents.chain([""]).any(|parent| self.emptied.contains(parent))
        });
        lower.extend(self.databases.iter().map(|(path, content)| (path.clone(), content.clone())));
    }
}

/// Reads a database and subtracts its length from `room`, the bytes that are left.
fn take(content: &mut impl Read, room: &mut u64) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    content.take(*room + 1).read_to_end(&mut bytes)?;
    let rest = room.checked_sub(bytes.len() as u64);
    *room =
        rest.ok_or_else(|| anyhow!("its package databases are larger than {MAX_DATABASES_BYTES} bytes"))?;
    Ok(bytes)
}

fn is_copyright(path: &str) -> bool {
    let name = path.strip_prefix(DOCUMENTS).and_then(|rest| rest.strip_suffix(COPYRIGHT));
    name.is_some_and(|name| !name.is_empty() && !name.contains('/'))
}

/// The name of the package whose documents are also those of another one, if this link in the directory of documents is to a
/// directory beside it.
fn linked_documents(path: &str, target: &[u8]) -> Option<String> {
    let name = path.strip_prefix(DOCUMENTS)?;
    let target = std::str::from_utf8(target).ok()?;
    let is_name = |text: &str| !text.is_empty() && !text.contains('/');
    (is_name(name) && is_name(target)).then(|| target.to_owned())
}

/// True for the list of paths of a package of firmware.
fn is_firmware_list(path: &str) -> bool {
    let name = path.strip_prefix(LISTS).and_then(|file| file.strip_suffix(".list"));
    name.is_some_and(|name| !name.contains('/') && (name.contains("firmware") || name.contains("microcode")))
}

fn is_rpm(path: &str) -> bool {
    let file = |directory: &str| path.strip_prefix(directory).is_some_and(|file| RPM_FILES.contains(&file));
    RPM.iter().any(|directory| file(directory))
}

fn is_database(path: &str) -> bool {
    let part = |path: &str| {
        path.strip_prefix(DPKG_PARTS).is_some_and(|file| !file.contains('/') && !file.ends_with(".md5sums"))
    };
    path == DPKG
        || is_firmware_list(path)
        || part(path)
        || APK.contains(&path)
        || OS_RELEASE.contains(&path)
        || is_rpm(path)
}

/// True if a file with this path replaces databases: it is one, or has the path of a directory above one.
fn is_near(path: &str) -> bool {
    let all = [DPKG, DPKG_PARTS].into_iter().chain(APK).chain(OS_RELEASE).chain(RPM);
    let above = |place: &str| place.strip_prefix(path).is_some_and(|rest| rest.starts_with('/'));
    is_database(path) || all.into_iter().any(above)
}

fn contents(databases: &Databases) -> TreePackages {
    let text = |path: &str| databases.get(path)?.as_deref().map(String::from_utf8_lossy);
    let named = OS_RELEASE.iter().find_map(|path| package_databases::distribution(&text(path)?));
    let named = |usual: &str| named.clone().unwrap_or_else(|| usual.to_owned());
    let licence = |package: &SbomPackage| licence(&text, package);
    let (mut packages, mut unread) = (BTreeSet::new(), Vec::new());
    for (path, content) in databases {
        let Some(content) = content else {
            unread.push(path.clone());
            continue;
        };
        let content = String::from_utf8_lossy(content);
        packages.extend(match path.as_str() {
            path if OS_RELEASE.contains(&path) || path.starts_with(DOCUMENTS) || is_firmware_list(path) => {
                vec![]
            }
            path if APK.contains(&path) => package_databases::apk(&content, &named("alpine")),
            _ => {
                let mut packages = package_databases::dpkg(&content, &named("debian"));
                for package in &mut packages {
                    package.licence = licence(package);
                }
                packages
            }
        });
    }
    TreePackages { packages: packages.into_iter().collect(), unread }
}

/// The licences of a package of dpkg, as its copyright file names them; where that is prose, its path.
fn licence<'a>(
    text: &impl Fn(&str) -> Option<std::borrow::Cow<'a, str>>,
    package: &SbomPackage,
) -> Option<String> {
    let name = &package.name;
    let owner = text(&format!("{DOCUMENTS}{name}"));
    let path = format!("{DOCUMENTS}{}{COPYRIGHT}", owner.as_deref().unwrap_or(name));
    let copyright = text(&path)?;
    let list = text(&format!("{LISTS}{name}.list")).unwrap_or_default();
    let firmware = |line: &'_ str| -> Option<String> {
        FIRMWARE.iter().find_map(|directory| line.strip_prefix(directory)).map(str::to_owned)
    };
    let files: Vec<String> = list.lines().filter_map(firmware).collect();
    // Directories are in the list too, before what is in them.
    let is_file = |file: &&String| !files.iter().any(|other| other.starts_with(&format!("{file}/")));
    let files: Vec<&str> = files.iter().filter(is_file).map(String::as_str).collect();
    let named = copyright::licences(&copyright, &files);
    Some(named.unwrap_or_else(|| format!("the text in /{path}")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use tar::EntryType;

    /// A layer of files; a path with `@` is a symbolic link, one with a slash at its end a directory.
    fn layer(files: &[(&str, &str)]) -> Vec<u8> {
        let mut builder = tar::Builder::new(Vec::new());
        for (path, content) in files {
            let mut header = tar::Header::new_gnu();
            header.set_mode(0o644);
            let kind = match path.strip_prefix('@') {
                Some(_) => EntryType::Symlink,
                None if path.ends_with('/') => EntryType::Directory,
                None => EntryType::Regular,
            };
            header.set_entry_type(kind);
            if kind == EntryType::Symlink {
                header.set_size(0);
                builder.append_link(&mut header, &path[1..], content).unwrap();
            } else {
                header.set_size(content.len() as u64);
                builder.append_data(&mut header, path, content.as_bytes()).unwrap();
            }
        }
        builder.into_inner().unwrap()
    }

    fn paragraph(name: &str) -> String {
        format!("Package: {name}\nStatus: install ok installed\nVersion: 1\nArchitecture: all\n\n")
    }

    /// The names of the installed packages in a stack of layers.
    fn names(layers: &[&[(&str, &str)]]) -> Vec<String> {
        let mut databases = Databases::new();
        for files in layers {
            LayerChanges::of(layer(files).as_slice()).unwrap().lay_over(&mut databases);
        }
        contents(&databases).packages.into_iter().map(|package| package.name).collect()
    }

    #[test]
    fn upper_layers_replace_and_hide_what_is_below() {
        let (one, two) = (paragraph("one"), paragraph("two"));
        let base: &[(&str, &str)] = &[(DPKG, &one), ("var/lib/dpkg/status.d/part", &two)];
        assert_eq!(names(&[base]), ["one", "two"]);
        for (upper, left) in [
            (&[(DPKG, two.as_str())][..], &["two"][..]),
            (&[("usr/bin/x", "x")], &["one", "two"]),
            (&[("var/lib/dpkg/.wh.status", "")], &["two"]),
            (&[("var/lib/.wh.dpkg", "")], &[]),
            (&[("var/.wh..wh..opq", "")], &[]),
            (&[(".wh..wh..opq", "")], &[]),
            (&[("@var/lib/dpkg", "elsewhere")], &[]),
            (&[("var/lib/dpkg/", "")], &["one", "two"]),
            (&[("@var/lib/dpkg/status", "elsewhere")], &["two"]),
            // A whiteout does not hide files of its own layer, whichever comes first.
            (&[("var/lib/dpkg/.wh..wh..opq", ""), (DPKG, &two)], &["two"]),
            (&[(DPKG, &two), ("var/lib/dpkg/.wh..wh..opq", "")], &["two"]),
        ] {
            assert_eq!(names(&[base, upper]), left, "{upper:?}");
        }
    }

    #[test]
    fn the_distribution_is_the_trees_own_and_what_cannot_be_read_is_listed() {
        let apk = "P:musl\nV:1\nA:x86_64\n";
        let files = [
            ("./lib/apk/db/installed", apk),
            ("@etc/os-release", "../usr/lib/os-release"),
            ("usr/lib/os-release", "ID=wolfi\n"),
            ("var/lib/rpm/rpmdb.sqlite", "SQLite"),
            ("var/lib/dpkg/status.d/x.md5sums", "Package: no\nVersion: 1\n"),
        ];
        let mut databases = Databases::new();
        LayerChanges::of(layer(&files).as_slice()).unwrap().lay_over(&mut databases);
        let found = contents(&databases);
        assert_eq!(found.packages[0].purl(), "pkg:apk/wolfi/musl@1?arch=x86_64");
        assert_eq!((found.packages.len(), found.unread), (1, vec!["var/lib/rpm/rpmdb.sqlite".to_owned()]));
    }

    #[test]
    fn packages_of_dpkg_have_the_licences_of_their_copyright_files() {
        let status: String = ["firmware-bnx2", "intel-microcode", "linked", "bare"].map(paragraph).concat();
        let copyright = "Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\n\
                         Files: bnx2/*\nLicense: binary-redist-firmware\n\nFiles: qed/*\nLicense: other\n";
        let files = [
            (DPKG, status.as_str()),
            ("usr/share/doc/firmware-bnx2/copyright", copyright),
            ("usr/share/doc/intel-microcode/copyright", "Upstream License: Redistribution."),
            ("@usr/share/doc/linked", "firmware-bnx2"),
            ("@usr/share/doc/elsewhere", "../../etc"),
            (
                "var/lib/dpkg/info/firmware-bnx2.list",
                "/.\n/usr/lib/firmware\n/usr/lib/firmware/bnx2\n/usr/lib/firmware/bnx2/a.fw\n",
            ),
        ];
        let mut databases = Databases::new();
        LayerChanges::of(layer(&files).as_slice()).unwrap().lay_over(&mut databases);
        let found = contents(&databases);
        assert_eq!(found.unread, Vec::<String>::new());
        let licence = |name: &str| {
            let package = found.packages.iter().find(|package| package.name == name).unwrap();
            package.licence.clone()
        };
        assert_eq!(licence("firmware-bnx2").as_deref(), Some("binary-redist-firmware"));
        assert_eq!(
            licence("intel-microcode").unwrap(),
            "the text in /usr/share/doc/intel-microcode/copyright"
        );
        assert_eq!(licence("linked").as_deref(), Some("binary-redist-firmware, other"));
        assert_eq!(licence("bare"), None);
    }

    #[test]
    fn layers_are_read_compressed_or_not() {
        let plain = layer(&[(DPKG, &paragraph("one"))]);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
        gzip.write_all(&plain).unwrap();
        for layer in [gzip.finish().unwrap(), zstd::encode_all(&plain[..], 3).unwrap(), plain] {
            assert_eq!(LayerChanges::of(layer.as_slice()).unwrap().databases.len(), 1);
        }
    }

    #[test]
    fn an_image_of_a_store_is_read_layer_by_layer() {
        use crate::images::image;
        let directory = tempfile::tempdir().unwrap();
        let store = Store::create(directory.path()).unwrap();
        let spec = serde_json::json!({ "name": "localhost/a:1", "layers": [], "entrypoint": [], "cmd": [], "env": [] });
        let layers: Vec<_> = [layer(&[(DPKG, &paragraph("one"))]), layer(&[(DPKG, &paragraph("two"))])]
            .iter()
            .map(|bytes| crate::images::layer::ImageLayer {
                diff_id: Digest::of(bytes),
                blob: store.add(bytes).unwrap(),
            })
            .collect();
        let spec = serde_json::from_value(spec).unwrap();
        let image = image::write(&spec, &layers, "amd64", 1, &store).unwrap();
        let found = LayerReader::new(&store).image(&image).unwrap();
        assert_eq!((found.name, found.digest), (image.name.clone(), image.manifest.blob.digest));
        assert_eq!(found.contents.packages.iter().map(|p| p.name.as_str()).collect::<Vec<_>>(), ["two"]);
        store.add(b"no layer").unwrap();
        let mut bad = image;
        bad.layers.push(store.add(b"no layer").unwrap());
        let error = LayerReader::new(&store).image(&bad).unwrap_err();
        assert_eq!(base::failure::class_of(&error), Class::Invalid);
        assert!(format!("{error:#}").contains("localhost/a:1"), "{error:#}");
    }

    #[test]
    fn a_tree_is_read_from_its_tar_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let tree =
            layer(&[("./var/lib/dpkg/status", &paragraph("one")), ("./etc/os-release", "ID=debian\n")]);
        std::fs::write(file.path(), tree).unwrap();
        assert_eq!(of_tree(file.path()).unwrap().packages[0].purl(), "pkg:deb/debian/one@1?arch=all");
    }
}
