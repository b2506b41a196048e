//! SPDX 2.3 in JSON (<https://spdx.github.io/spdx-spec/v2.3/>): the same bytes for the same contents.

use std::collections::BTreeMap;

use base::digest::Digest;
use formats::oci::ImageReference;
use jiff::Timestamp;
use serde_json::{Value, json};
use uuid::Uuid;

use super::contents::{ImageContents, TreePackages};
use super::package::{SbomPackage, encode};

/// The namespace (RFC 9562, version 5) of the documents' identifiers.
const NAMESPACE: Uuid = uuid::uuid!("6c1f6a52-0a7a-5d0b-9a35-2f1c4e1a7d63");
const DOCUMENT: &str = "SPDXRef-DOCUMENT";
const PRODUCT: &str = "SPDXRef-Product";
const UNKNOWN: &str = "NOASSERTION";

#[derive(Clone, Copy, Debug)]
pub struct SbomProduct<'a> {
    /// The image definition's id, part of file names.
    pub id: &'a str,
    pub name: &'a str,
    pub version: &'a str,
}

/// The bill of materials of `product`, whose OS has the packages `os` and which carries `images`. `epoch` (seconds
/// since 1970) is the time of creation. A package in several places is one element that each of them contains.
#[must_use]
pub fn document(
    product: &SbomProduct<'_>,
    os: &TreePackages,
    images: &[ImageContents],
    epoch: u64,
) -> Vec<u8> {
    let mut images: Vec<&ImageContents> = images.iter().collect();
    images.sort_by_key(|image| (&image.name, image.digest));
    images.dedup_by_key(|image| (&image.name, image.digest));
    let mut document = json!({
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": DOCUMENT,
        "name": format!("{}-{}", product.id, product.version),
        "creationInfo": {
            "created": created(epoch),
            "creators": [format!("Tool: iso-builder-{}", env!("CARGO_PKG_VERSION"))],
        },
        "packages": packages(product, os, &images),
        "relationships": relationships(os, &images),
    });
    if let Some(comment) = unread_anywhere(os, &images) {
        document["comment"] = comment.into();
    }
    // The same document has the same namespace, and different documents have different ones.
    let namespace = Uuid::new_v5(&NAMESPACE, document.to_string().as_bytes());
    document["documentNamespace"] = namespace.urn().to_string().into();
    format!("{document:#}\n").into_bytes()
}

/// The time in the format of the specification, without fractions of a second.
fn created(epoch: u64) -> String {
    let time = i64::try_from(epoch).ok().and_then(|seconds| Timestamp::from_second(seconds).ok());
    time.unwrap_or_default().to_string()
}

fn packages(product: &SbomProduct<'_>, os: &TreePackages, images: &[&ImageContents]) -> Vec<Value> {
    let mut packages = vec![element(
        PRODUCT,
        product.name,
        product.version,
        json!({ "primaryPackagePurpose": "OPERATING-SYSTEM", "comment": unread(os) }),
    )];
    packages.extend(images.iter().map(|image| image_element(image)));
    let inside = images.iter().map(|image| &image.contents);
    // By package URL: packages that differ in nothing else are the same.
    let all: BTreeMap<String, &SbomPackage> = [os]
        .into_iter()
        .chain(inside)
        .flat_map(|contents| &contents.packages)
        .map(|package| (package.purl(), package))
        .collect();
    packages.extend(all.iter().map(|(purl, package)| package_element(purl, package)));
    packages
}

fn element(id: &str, name: &str, version: &str, more: Value) -> Value {
    let mut element = json!({
        "SPDXID": id,
        "name": name,
        "versionInfo": version,
        "downloadLocation": UNKNOWN,
        "filesAnalyzed": false,
        "licenseConcluded": UNKNOWN,
        "licenseDeclared": UNKNOWN,
        "copyrightText": UNKNOWN,
        "supplier": UNKNOWN,
    });
    if let (Value::Object(element), Value::Object(more)) = (&mut element, more) {
        element.extend(more.into_iter().filter(|(_, value)| !value.is_null()));
    }
    element
}

fn image_element(image: &ImageContents) -> Value {
    let more = json!({
        "primaryPackagePurpose": "CONTAINER",
        "checksums": [{ "algorithm": "SHA256", "checksumValue": image.digest.to_string() }],
        "externalRefs": [purl_reference(&image.purl())],
        "comment": unread(&image.contents),
    });
    element(&image.id(), &image.name.to_string(), &image.name.version(), more)
}

fn package_element(purl: &str, package: &SbomPackage) -> Value {
    let source = package.source.as_ref().map(|source| format!("built from the source package {source}"));
    let licence = package.licence.as_ref().map(|licence| format!("The package says: {licence}"));
    let more = json!({
        "externalRefs": [purl_reference(purl)],
        "sourceInfo": source,
        "licenseComments": licence,
    });
    element(&package_id(purl, package), &package.name, &package.version, more)
}

fn purl_reference(purl: &str) -> Value {
    json!({ "referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl", "referenceLocator": purl })
}

fn relationships(os: &TreePackages, images: &[&ImageContents]) -> Vec<Value> {
    let relation = |from: &str, kind: &str, to: &str| json!({ "spdxElementId": from, "relationshipType": kind, "relatedSpdxElement": to });
    let contains = |from: &str, contents: &TreePackages| {
        let mut inside: Vec<String> = contents.packages.iter().map(|p| package_id(&p.purl(), p)).collect();
        inside.sort();
        inside.dedup();
        inside.iter().map(|to| relation(from, "CONTAINS", to)).collect::<Vec<_>>()
    };
    let mut all = vec![relation(DOCUMENT, "DESCRIBES", PRODUCT)];
    all.extend(contains(PRODUCT, os));
    all.extend(images.iter().map(|image| relation(PRODUCT, "CONTAINS", &image.id())));
    all.extend(images.iter().flat_map(|image| contains(&image.id(), &image.contents)));
    all
}

impl ImageContents {
    fn id(&self) -> String {
        let name = self.name.repository().path();
        let key = format!("{} {}", self.name, self.digest);
        identifier("Image", name.rsplit('/').next().unwrap_or(name), &key)
    }

    fn purl(&self) -> String {
        image_purl(&self.name, self.digest)
    }
}

/// The package URL of the image `name` with this digest:
/// `pkg:oci/web@sha256:…?repository_url=registry.example.org/app/web&tag=1.2`.
#[must_use]
pub fn image_purl(name: &ImageReference, digest: Digest) -> String {
    let repository = name.repository();
    let last = repository.path().rsplit('/').next().unwrap_or_default();
    let url = repository.to_string();
    let url: Vec<String> = url.split('/').map(encode).collect();
    let tag = name.tag().map(|tag| format!("&tag={}", encode(tag))).unwrap_or_default();
    format!("pkg:oci/{}@{}?repository_url={}{tag}", encode(last), digest.oci(), url.join("/"))
}

fn package_id(purl: &str, package: &SbomPackage) -> String {
    identifier("Package", &package.name, purl)
}

/// An identifier may have letters, digits, dots and dashes; a digest distinguishes names that differ in other
/// characters.
fn identifier(kind: &str, name: &str, key: &str) -> String {
    let plain = |c: char| if c.is_ascii_alphanumeric() || c == '.' { c } else { '-' };
    let name: String = name.chars().map(plain).collect();
    let digest: String = Digest::of(key.as_bytes()).to_string().chars().take(16).collect();
    format!("SPDXRef-{kind}-{name}-{digest}")
}

/// The comment about databases that could not be read.
fn unread(contents: &TreePackages) -> Option<String> {
    let paths = contents.unread.join(", ");
    (!paths.is_empty()).then(|| format!("Not read, so that its packages are missing here: {paths}"))
}

fn unread_anywhere(os: &TreePackages, images: &[&ImageContents]) -> Option<String> {
    let names =
        images.iter().filter(|image| !image.contents.unread.is_empty()).map(|image| image.name.to_string());
    let of_os = (!os.unread.is_empty()).then(|| "the operating system".to_owned());
    let names: Vec<String> = of_os.into_iter().chain(names).collect();
    (!names.is_empty()).then(|| {
        format!("Package databases that could not be read (RPM's, for instance) are in: {}", names.join(", "))
    })
}

#[cfg(test)]
mod tests {
    use super::super::package_databases;
    use super::*;
    use std::collections::BTreeSet;

    const PRODUCT_OF_TEST: SbomProduct<'_> =
        SbomProduct { id: "nqrust", name: "NQRust Hypervisor", version: "1.0" };

    fn contents(names: &[&str]) -> TreePackages {
        let text: String = names
            .iter()
            .map(|name| format!("Package: {name}\nVersion: 1:1+x\nArchitecture: all\n\n"))
            .collect();
        TreePackages { packages: package_databases::dpkg(&text, "debian"), unread: vec![] }
    }

    fn image(name: &str, packages: &[&str]) -> ImageContents {
        ImageContents {
            name: name.parse().unwrap(),
            digest: Digest::of(name.as_bytes()),
            contents: contents(packages),
        }
    }

    fn parsed(os: &TreePackages, images: &[ImageContents]) -> Value {
        serde_json::from_slice(&document(&PRODUCT_OF_TEST, os, images, 1_700_000_000)).unwrap()
    }

    fn texts<'a>(document: &'a Value, list: &str, key: &str) -> Vec<&'a str> {
        document[list].as_array().unwrap().iter().map(|item| item[key].as_str().unwrap()).collect()
    }

    #[test]
    fn a_package_in_several_places_is_one_element_that_each_of_them_contains() {
        let images = [image("localhost/b:1", &["shared", "own"]), image("localhost/a:1", &["shared"])];
        let document = parsed(&contents(&["shared", "os"]), &images);
        let names = texts(&document, "packages", "name");
        assert_eq!(names, ["NQRust Hypervisor", "localhost/a:1", "localhost/b:1", "os", "own", "shared"]);
        let shared = document["packages"][5]["SPDXID"].as_str().unwrap();
        let related = texts(&document, "relationships", "relatedSpdxElement");
        assert_eq!(related.iter().filter(|id| **id == shared).count(), 3);
    }

    #[test]
    fn the_structure_is_that_of_spdx_2_3() {
        let mut images = [image("localhost/a/web:1", &["one", "libstdc++6"]), image("docker.io/x/y:1", &[])];
        images[1].name = format!("docker.io/x/y@{}", Digest::of(b"").oci()).parse().unwrap();
        images[1].contents.unread.push("var/lib/rpm/rpmdb.sqlite".into());
        let document = parsed(&contents(&["one"]), &images);
        assert_eq!(document["spdxVersion"], "SPDX-2.3");
        assert_eq!(document["creationInfo"]["created"], "2023-11-14T22:13:20Z");
        assert!(document["documentNamespace"].as_str().unwrap().starts_with("urn:uuid:"));
        assert!(document["comment"].as_str().unwrap().contains("are in: docker.io/x/y@sha256:"));
        let ids: BTreeSet<&str> =
            texts(&document, "packages", "SPDXID").into_iter().chain([DOCUMENT]).collect();
        assert_eq!(ids.len(), document["packages"].as_array().unwrap().len() + 1, "identifiers are unique");
        let valid = |id: &&str| {
            let rest = id.strip_prefix("SPDXRef-").unwrap_or_default();
            !rest.is_empty()
                && rest.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-'))
        };
        assert!(ids.iter().all(valid), "{ids:?}");
        for key in ["spdxElementId", "relatedSpdxElement"] {
            assert!(texts(&document, "relationships", key).iter().all(|id| ids.contains(id)));
        }
        // Every element but the document is contained or described.
        let related: BTreeSet<&str> =
            texts(&document, "relationships", "relatedSpdxElement").into_iter().chain([DOCUMENT]).collect();
        assert_eq!(related, ids);
        for package in document["packages"].as_array().unwrap() {
            for key in ["licenseConcluded", "licenseDeclared", "copyrightText", "downloadLocation"] {
                assert_eq!(package[key], UNKNOWN);
            }
            assert_eq!(package["filesAnalyzed"], false);
            assert!(package.as_object().unwrap().values().all(|value| !value.is_null()));
        }
        let web = document["packages"]
            .as_array()
            .unwrap()
            .iter()
            .find(|p| p["name"] == "localhost/a/web:1")
            .unwrap();
        let digest = Digest::of(b"localhost/a/web:1");
        let purl = format!("pkg:oci/web@sha256:{digest}?repository_url=localhost/a/web&tag=1");
        assert_eq!(web["externalRefs"][0]["referenceLocator"], purl);
        assert_eq!(web["checksums"][0]["checksumValue"], digest.to_string());
    }

    #[test]
    fn order_does_not_matter_and_content_does() {
        let (one, two) = (image("localhost/a:1", &["x", "y"]), image("localhost/b:1", &["y", "x"]));
        let made = |images: &[ImageContents]| document(&PRODUCT_OF_TEST, &contents(&["x"]), images, 1);
        assert_eq!(made(&[one.clone(), two.clone()]), made(&[two.clone(), one.clone()]));
        let namespace =
            |bytes: Vec<u8>| serde_json::from_slice::<Value>(&bytes).unwrap()["documentNamespace"].clone();
        assert_ne!(namespace(made(&[one])), namespace(made(&[two])));
    }
}
