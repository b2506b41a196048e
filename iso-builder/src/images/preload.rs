//! Which images a definition preloads, from where, and for which roles: the plan before anything is pulled or built.
//!
//! An image that is needed (by an entry of the definition, a line of a list, a manifest or a chart) is pulled from its
//! registry unless the definition has it already: built, or in a layout or an archive. Then only the roles that need
//! it grow.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry as Slot;
use std::path::Path;

use anyhow::Result;
use base::failure::{Class, Classify, Failure};
use base::files::named;
use formats::oci::ImageReference;
use model::config::Role;

use super::spec::{Images, PreloadSource};
use super::stored_image::StoredImage;

const MAX_LIST_BYTES: u64 = 4 << 20;

/// An image that nodes need. An empty list of roles means every role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NeededImage {
    pub reference: ImageReference,
    pub roles: Vec<Role>,
}

/// An image that the definition has without a registry. An empty list of roles means every role.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresentImage {
    /// Its own name first, then its aliases.
    pub names: Vec<ImageReference>,
    pub roles: Vec<Role>,
}

/// Which images come from registries, and which roles get each image, whatever its source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PreloadPlan {
    /// The images to pull, sorted by name.
    pub pulled: Vec<NeededImage>,
    /// The roles of every image, by its full name.
    roles: BTreeMap<String, Vec<Role>>,
}

impl PreloadPlan {
    /// `needed` are the images that nodes need, `present` those that need no registry.
    #[must_use]
    pub fn new(present: &[PresentImage], needed: &[NeededImage]) -> Self {
        let mut plan = Self::default();
        // An image with several names has the roles of all of them.
        let mut names: BTreeMap<String, String> = BTreeMap::new();
        for PresentImage { names: all, roles } in present {
            let Some(key) = all.first().map(ToString::to_string) else { continue };
            plan.add(&key, roles);
            names.extend(all.iter().map(|name| (name.to_string(), key.clone())));
        }
        let mut pulled: BTreeMap<String, ImageReference> = BTreeMap::new();
        for NeededImage { reference, roles } in needed {
            let name = reference.to_string();
            match names.get(&name) {
                Some(known) => plan.add(known, roles),
                None => {
                    plan.add(&name, roles);
                    pulled.entry(name).or_insert_with(|| reference.clone());
                }
            }
        }
        plan.pulled = pulled
            .into_iter()
            .map(|(name, reference)| NeededImage { roles: plan.roles_of(&name), reference })
            .collect();
        plan
    }

    fn add(&mut self, name: &str, roles: &[Role]) {
        match self.roles.entry(name.to_owned()) {
            Slot::Vacant(slot) => {
                slot.insert(roles.to_vec());
            }
            Slot::Occupied(mut known) => {
                let united = union(known.get(), roles);
                known.insert(united);
            }
        }
    }

    fn roles_of(&self, name: &str) -> Vec<Role> {
        self.roles.get(name).cloned().unwrap_or_default()
    }

    /// The images with the roles that need them. Images of one name are merged if their digests are equal; otherwise
    /// they are an error.
    pub fn with_roles(&self, images: Vec<StoredImage>) -> Result<Vec<StoredImage>> {
        let mut by_name: BTreeMap<String, StoredImage> = BTreeMap::new();
        for mut image in images {
            let name = image.name.to_string();
            image.roles = self.roles_of(&name);
            match by_name.entry(name) {
                Slot::Vacant(slot) => {
                    slot.insert(image);
                }
                Slot::Occupied(other) if other.get().target() == image.target() => {}
                Slot::Occupied(other) => {
                    let [one, two] = [other.get(), &image].map(|image| image.target().blob.digest.oci());
                    let failure =
                        Failure::new(Class::Invalid, format!("two images are called {}", image.name));
                    return Err(failure
                        .because(anyhow::anyhow!("one is {one}, another {two}"))
                        .hint("Give each image a name or a tag of its own.")
                        .into());
                }
            }
        }
        Ok(by_name.into_values().collect())
    }
}

/// The roles that are in either list; an empty list means every role.
fn union(one: &[Role], two: &[Role]) -> Vec<Role> {
    if one.is_empty() || two.is_empty() {
        return Vec::new();
    }
    Role::ALL.into_iter().filter(|role| one.contains(role) || two.contains(role)).collect()
}

/// The images of registries that the entries of a definition name; `resolve` gives the paths of its lists.
pub fn named(images: &Images, resolve: &dyn Fn(&Path) -> std::path::PathBuf) -> Result<Vec<NeededImage>> {
    let mut needed = Vec::new();
    for entry in &images.preload {
        let roles = &entry.roles;
        match &entry.source {
            PreloadSource::Registry(reference) => {
                needed.push(NeededImage { reference: reference.clone(), roles: roles.clone() });
            }
            PreloadSource::List(path) => {
                let references = list(&resolve(path))?;
                needed.extend(
                    references.into_iter().map(|reference| NeededImage { reference, roles: roles.clone() }),
                );
            }
            PreloadSource::Built(_) | PreloadSource::Local(_) => {}
        }
    }
    Ok(needed)
}

/// The images of a list: one in each line, `#` begins a comment.
fn list(path: &Path) -> Result<Vec<ImageReference>> {
    let text = named::read_text_at_most(path, MAX_LIST_BYTES)
        .class(Class::Invalid, || format!("reading the list of images {}", path.display()))?;
    // Windows editors write a byte order mark.
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let mut references = Vec::new();
    let mut wrong = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let words = line.split('#').next().unwrap_or_default().trim();
        if words.is_empty() {
            continue;
        }
        match words.parse() {
            Ok(reference) => references.push(reference),
            Err(_) if words.starts_with("- ") => wrong.push(format!(
                "{}:{}: a list of images is not YAML: remove the dash",
                path.display(),
                number + 1
            )),
            Err(error) => wrong.push(format!("{}:{}: {error}", path.display(), number + 1)),
        }
    }
    if wrong.is_empty() {
        return Ok(references);
    }
    Err(Failure::new(Class::Invalid, format!("{} is not a list of images", path.display()))
        .because(anyhow::anyhow!("{}", wrong.join("\n  because: ")))
        .hint("Write one reference a line, such as registry.example.org/app/web:1.2.")
        .into())
}

#[cfg(test)]
mod tests {
    use super::super::blob::Blob;
    use super::super::stored_image::ImageDocument;
    use super::*;
    use base::digest::Digest;

    fn image(name: &str, content: &str, roles: &[Role]) -> StoredImage {
        let blob = Blob { digest: Digest::of(content.as_bytes()), size: 1 };
        StoredImage {
            name: name.parse().unwrap(),
            roles: roles.to_vec(),
            indexes: Vec::new(),
            siblings: Vec::new(),
            manifest: ImageDocument { media_type: "m".into(), blob },
            config: blob,
            layers: vec![],
        }
    }

    fn there(image: &StoredImage) -> PresentImage {
        PresentImage { names: image.names(), roles: image.roles.clone() }
    }

    fn needed(name: &str, roles: &[Role]) -> NeededImage {
        NeededImage { reference: name.parse().unwrap(), roles: roles.to_vec() }
    }

    #[test]
    fn what_is_there_is_not_pulled_and_gets_the_roles_that_need_it() {
        let present = [image("a.b/local:1", "x", &[Role::Worker])];
        let pinned = format!("a.b/local@{}", Digest::of(b"x").oci());
        let plan = PreloadPlan::new(
            &[there(&present[0])],
            &[
                needed(&pinned, &[Role::Witness]),
                needed("nginx:1", &[Role::Worker]),
                needed("docker.io/library/nginx:1", &[Role::Management]),
                needed("a.b/all:1", &[]),
                needed("a.b/all:1", &[Role::Worker]),
            ],
        );
        assert_eq!(
            plan.pulled,
            [needed("a.b/all:1", &[]), needed("nginx:1", &[Role::Management, Role::Worker])]
        );
        let images = plan.with_roles(present.to_vec()).unwrap();
        assert_eq!(images[0].roles, [Role::Worker, Role::Witness]);
    }

    #[test]
    fn one_name_is_one_image() {
        let same = [image("a.b/c:1", "x", &[Role::Worker]), image("a.b/c:1", "x", &[Role::Management])];
        let plan = PreloadPlan::new(&same.each_ref().map(there), &[]);
        let united = plan.with_roles(same.to_vec()).unwrap();
        assert_eq!((united.len(), &united[0].roles[..]), (1, &[Role::Management, Role::Worker][..]));
        let other = vec![same[0].clone(), image("a.b/c:1", "y", &[])];
        let error = plan.with_roles(other).unwrap_err();
        assert_eq!(base::failure::class_of(&error), Class::Invalid);
    }

    #[test]
    fn a_list_has_comments_and_every_wrong_line_is_named() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("list");
        std::fs::write(&path, "# all\n\nnginx:1 # web\n  a.b/c@sha256:2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881\n").unwrap();
        assert_eq!(list(&path).unwrap().len(), 2);
        std::fs::write(&path, "\u{feff}nginx:1\r\n").unwrap();
        assert_eq!(list(&path).unwrap()[0], "nginx:1".parse().unwrap());
        // As PowerShell writes it.
        let wide: Vec<u8> = "\u{feff}nginx:1\r\n".encode_utf16().flat_map(u16::to_le_bytes).collect();
        std::fs::write(&path, wide).unwrap();
        assert_eq!(list(&path).unwrap()[0], "nginx:1".parse().unwrap());
        std::fs::write(&path, "nginx:1\nNo\na b\n- nginx:1\n").unwrap();
        let told = base::failure::render(&list(&path).unwrap_err());
        assert!(
            told.contains(":2: ")
                && told.contains(":3: ")
                && told.contains(":4: a list of images is not YAML"),
            "{told}"
        );
    }
}
