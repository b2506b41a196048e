//! What a lock file and a definition name, as dependencies of a build. Functions of values: nothing here reads a file.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use base::digest::Digest;
use base::percent;
use serde::Deserialize;

use super::public;
use super::statement::{Dependency, DependencyDigest};
use crate::definition::Definition;
use crate::images::PreloadSource;
use crate::images::pull::PinnedImage;
use crate::lock::{LockedFile, LockedRelease};
use crate::packages::ResolvedPackage;
use crate::sbom::{PackageManager, SbomPackage, image_purl};

/// The start of the package URLs of Debian packages.
const DEB: &str = "pkg:deb/";

/// The package URLs of the Debian packages that a bill of materials lists.
#[derive(Clone, Debug, Default)]
pub struct FoundPackages {
    urls: BTreeSet<String>,
    /// The distributions that they are of.
    distributions: BTreeSet<String>,
}

impl FoundPackages {
    /// Those of a bill of materials: the SPDX document of this builder.
    ///
    /// # Errors
    /// It is another document.
    pub fn of_sbom(document: &[u8]) -> serde_json::Result<Self> {
        #[derive(Deserialize)]
        struct Document {
            packages: Vec<Package>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Package {
            #[serde(default)]
            external_refs: Vec<ExternalReference>,
        }
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct ExternalReference {
            reference_locator: String,
        }
        let Document { packages } = serde_json::from_slice(document)?;
        let references = packages.into_iter().flat_map(|package| package.external_refs);
        let urls: BTreeSet<String> = references
            .map(|reference| reference.reference_locator)
            .filter(|url| url.starts_with(DEB))
            .collect();
        let distribution = |url: &String| Some(url.strip_prefix(DEB)?.split('/').next()?.to_owned());
        let distributions = urls.iter().filter_map(distribution).collect();
        Ok(Self { urls, distributions })
    }

    /// The package URL of the package with the file name `NAME_VERSION_ARCHITECTURE.deb`. None if no package or packages of several
    /// distributions have this name and version.
    fn url(&self, file: &str) -> Option<String> {
        let mut parts = file.strip_suffix(".deb")?.split('_');
        let (Some(name), Some(version), Some(architecture), None) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return None;
        };
        // apt writes the colon of an epoch as %3a.
        let version = percent::decode(version)?;
        let url = |distribution: &String| {
            SbomPackage {
                manager: PackageManager::Dpkg,
                distribution: distribution.clone(),
                name: name.to_owned(),
                version: version.clone(),
                architecture: architecture.to_owned(),
                source: None,
                licence: None,
            }
            .purl()
        };
        let mut known = self.distributions.iter().map(url).filter(|url| self.urls.contains(url));
        known.next().filter(|_| known.next().is_none())
    }
}

/// A file of which only the name and the digest are known.
#[must_use]
pub fn file(name: impl Into<String>, sha256: Digest) -> Dependency {
    let digest = DependencyDigest::File(sha256);
    Dependency { name: name.into(), uri: None, download_location: None, digest }
}

/// A file or directory that a definition names; `is_directory` is asked for its path as it is written there.
#[must_use]
pub fn named(path: &Path, sha256: Digest, is_directory: &dyn Fn(&Path) -> bool) -> Dependency {
    let digest = match is_directory(path) {
        true => DependencyDigest::Directory(sha256),
        false => DependencyDigest::File(sha256),
    };
    Dependency { name: public::written_path(path), uri: None, download_location: None, digest }
}

/// The Debian packages of a lock file.
pub fn packages<'a>(
    locked: &'a [ResolvedPackage],
    found: &'a FoundPackages,
) -> impl Iterator<Item = Dependency> + 'a {
    locked.iter().map(|package| Dependency {
        name: package.file.clone(),
        uri: found.url(&package.file),
        download_location: public::url(&package.url),
        digest: DependencyDigest::File(package.sha256),
    })
}

/// The images of registries in a lock file.
pub fn images(locked: &[PinnedImage]) -> impl Iterator<Item = Dependency> + '_ {
    locked.iter().map(|image| Dependency {
        name: image.reference.to_string(),
        uri: Some(image_purl(&image.reference, image.digest)),
        download_location: None,
        digest: DependencyDigest::File(image.digest),
    })
}

/// The files of the Kubernetes distribution in a lock file; `url` is the package URL of its release.
pub fn release_files<'a>(release: &'a LockedRelease, url: &'a str) -> impl Iterator<Item = Dependency> + 'a {
    release
        .files
        .iter()
        .map(move |known| Dependency { uri: Some(url.to_owned()), ..file(known.name.clone(), known.sha256) })
}

/// Archives and layouts of images, extended definitions: files of a lock file.
pub fn files<'a>(
    locked: &'a [LockedFile],
    is_directory: &'a dyn Fn(&Path) -> bool,
) -> impl Iterator<Item = Dependency> + 'a {
    locked.iter().map(|known| named(&known.path, known.sha256, is_directory))
}

/// The files and directories of `definition` that no lock file has: overlays, manifests, charts, install configurations, lists of
/// images and of revoked keys. Not the configuration of a disk image, which is not in every output, and may be secret.
#[must_use]
pub fn unlocked_paths(definition: &Definition) -> BTreeSet<PathBuf> {
    let overlays = definition.overlays.rootfs.iter().chain(&definition.overlays.initrd).cloned();
    let manifests = definition.manifests.iter().map(|manifest| manifest.path.clone());
    let charts =
        definition.charts.iter().flat_map(|chart| [Some(chart.path.clone()), chart.values.clone()]).flatten();
    let configurations =
        [&definition.install_config, &definition.install_defaults, &definition.trust.revoked.list];
    let lists = definition.images.preload.iter().filter_map(|entry| match &entry.source {
        PreloadSource::List(path) => Some(path.clone()),
        _ => None,
    });
    overlays
        .chain(lists)
        .chain(manifests)
        .chain(charts)
        .chain(configurations.into_iter().flatten().cloned())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn package(file: &str, url: &str) -> ResolvedPackage {
        let sha256 = Digest::of(file.as_bytes());
        ResolvedPackage { file: file.into(), url: url.into(), size: 1, sha256, lists: Default::default() }
    }

    fn found(urls: &[&str]) -> FoundPackages {
        let package = |url: &&str| serde_json::json!({ "externalRefs": [{ "referenceLocator": url }] });
        let packages: Vec<_> = urls.iter().map(package).chain([serde_json::json!({})]).collect();
        FoundPackages::of_sbom(serde_json::json!({ "packages": packages }).to_string().as_bytes()).unwrap()
    }

    #[test]
    fn a_package_has_the_url_of_the_bill_of_materials_and_no_credentials() {
        let found = found(&[
            "pkg:deb/debian/libstdc%2B%2B6@1:12.2.0-14%2Bdeb12u1?arch=amd64",
            "pkg:deb/debian/both@1?arch=all",
            "pkg:deb/ubuntu/both@1?arch=all",
            "pkg:oci/web@sha256:00",
        ]);
        let url = "http://me:word@deb.example.org/pool/libstdc++6_12.2.0-14+deb12u1_amd64.deb?token=1";
        let locked = [
            package("libstdc++6_1%3a12.2.0-14+deb12u1_amd64.deb", url),
            package("both_1_all.deb", "file:///home/me/both_1_all.deb"),
            package("absent_1_all.deb", ""),
        ];
        let [first, both, absent] = packages(&locked, &found).collect::<Vec<_>>().try_into().unwrap();
        assert_eq!(first.uri.unwrap(), "pkg:deb/debian/libstdc%2B%2B6@1:12.2.0-14%2Bdeb12u1?arch=amd64");
        let location = "http://deb.example.org/pool/libstdc++6_12.2.0-14+deb12u1_amd64.deb";
        assert_eq!(first.download_location.unwrap(), location);
        assert_eq!(first.digest, DependencyDigest::File(locked[0].sha256));
        assert_eq!((both.uri, both.download_location, absent.uri), (None, None, None));
    }

    #[test]
    fn a_directory_is_told_from_a_file_and_an_absolute_path_is_only_a_name() {
        let sha256 = Digest::of(b"x");
        let locked = |path: &str| LockedFile { path: path.into(), sha256 };
        let locked = [locked("layouts/a"), locked("/home/me/b.tar")];
        let is_directory = |path: &Path| path == Path::new("layouts/a");
        let found: Vec<_> = files(&locked, &is_directory).map(|one| (one.name, one.digest)).collect();
        let (directory, file) = (DependencyDigest::Directory(sha256), DependencyDigest::File(sha256));
        assert_eq!(found, [("layouts/a".to_owned(), directory), ("b.tar".to_owned(), file)]);
    }

    #[test]
    fn an_image_is_named_by_its_reference_and_digest() {
        let digest = Digest::of(b"index");
        let pinned = [PinnedImage { reference: "registry.example.org/app/web:1.2".parse().unwrap(), digest }];
        let image = images(&pinned).next().unwrap();
        assert_eq!(image.name, "registry.example.org/app/web:1.2");
        let url = format!("pkg:oci/web@{}?repository_url=registry.example.org/app/web&tag=1.2", digest.oci());
        assert_eq!(image.uri.unwrap(), url);
    }

    #[test]
    fn what_a_definition_adds_to_media_is_found_and_the_configuration_of_a_disk_is_not() {
        let text = "{id: os, name: OS, version: '1', base: {directory: {path: r}}, overlays: {rootfs: [a], initrd: [b]}, \
            manifests: [{path: c}], charts: [{name: d, path: d, values: v}], install_config: e, images: {preload: [{list: h}]}, \
            install_defaults: f, trust: {revoked: {list: g}}, disk: {config: secret}}";
        let definition: Definition = serde_saphyr::from_str(text).unwrap();
        let paths: Vec<_> = unlocked_paths(&definition).into_iter().collect();
        let expected = ["a", "b", "c", "d", "e", "f", "g", "h", "v"].map(PathBuf::from);
        assert_eq!(paths, expected);
    }
}
