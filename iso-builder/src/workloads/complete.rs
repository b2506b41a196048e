//! Checks that the image store has the images that shipped manifests and charts name, for every role that runs them.

use std::collections::{BTreeMap, BTreeSet};

use base::failure::{Class, Failure};
use formats::oci::ImageReference;
use model::config::Role;

use super::found::FoundImage;
use super::spec::ImagePolicy;

/// The images that are preloaded because a manifest or chart names them ([`ImagePolicy::Include`]), each once, with the
/// roles that run it; no role means every role.
#[must_use]
pub fn included(found: &[FoundImage]) -> Vec<(ImageReference, Vec<Role>)> {
    let mut images: BTreeMap<String, (ImageReference, Vec<Role>)> = BTreeMap::new();
    for one in found.iter().filter(|one| one.policy == ImagePolicy::Include) {
        let (_, roles) =
            images.entry(one.image.to_string()).or_insert_with(|| (one.image.clone(), Vec::new()));
        roles.extend(every(&one.roles));
    }
    let list = |(image, roles): (_, Vec<Role>)| {
        let roles: Vec<Role> = Role::ALL.into_iter().filter(|role| roles.contains(role)).collect();
        (image, if roles.len() == Role::ALL.len() { Vec::new() } else { roles })
    };
    images.into_values().map(list).collect()
}

/// Fails unless every image in `found` is stored for every role that runs it. `stored` has every name of every stored
/// image with its roles; no role means every role. The failure names all that is missing.
///
/// Names are compared as nodes compare them: with a digest, by repository and digest, whatever the tag.
pub fn check(found: &[FoundImage], stored: &[(ImageReference, Vec<Role>)]) -> Result<(), Failure> {
    let mut has: BTreeMap<String, Vec<Role>> = BTreeMap::new();
    for (image, roles) in stored {
        has.entry(image.to_string()).or_default().extend(every(roles));
    }
    let mut gaps = BTreeSet::new();
    let mut lines = Vec::new();
    for one in found {
        let name = one.image.to_string();
        let has_for = |role: &Role| has.get(&name).is_some_and(|roles| roles.contains(role));
        let lacking: Vec<Role> = every(&one.roles).into_iter().filter(|role| !has_for(role)).collect();
        if !lacking.is_empty() {
            let roles: Vec<&str> = lacking.iter().map(|role| role.name()).collect();
            let missing =
                if has.contains_key(&name) { "is not preloaded for" } else { "is not preloaded; needed for" };
            lines.push(format!("{name} {missing} {}: {}", roles.join(", "), one.origin));
            gaps.insert(name);
        }
    }
    if lines.is_empty() {
        return Ok(());
    }
    let count = if gaps.len() == 1 { "1 image".to_owned() } else { format!("{} images", gaps.len()) };
    Err(Failure::new(Class::Invalid, format!("nodes would lack {count} that shipped manifests and charts run"))
        .because(lines.join("\n  because: "))
        .hint(
            "Add each to images.preload with these roles, or set `images: include` where the manifest or chart is named; or give the manifest or chart the `roles` of the nodes that run it.",
        ))
}

fn every(roles: &[Role]) -> Vec<Role> {
    if roles.is_empty() { Role::ALL.to_vec() } else { roles.to_vec() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workloads::ImageOrigin;
    use base::digest::Digest;
    use base::failure::{class_of, render};

    fn image(text: &str) -> ImageReference {
        text.parse().unwrap()
    }

    fn found(text: &str, roles: &[Role], policy: ImagePolicy) -> FoundImage {
        let origin = ImageOrigin {
            file: "manifests/web.yaml".into(),
            template: None,
            line: Some(7),
            document: 2,
            object: "Deployment web".into(),
            field: "spec.template.spec.containers[0].image".into(),
        };
        FoundImage { image: image(text), origin, roles: roles.to_vec(), policy }
    }

    #[test]
    fn images_to_include_are_listed_once_with_the_roles_of_all_who_name_them() {
        use ImagePolicy::{Include, Require};
        let digest = Digest::of(b"x").oci();
        let list = [
            found("a", &[Role::Worker], Include),
            found("docker.io/library/a:latest", &[Role::Management], Include),
            found("b:1", &[Role::Worker], Include),
            found("b:1", &[], Include),
            found("c:1", &[], Require),
            found("d:1", &[Role::Worker, Role::Default], Include),
            found("d:1", &[Role::Management, Role::Witness], Include),
            found(&format!("e:1@{digest}"), &[Role::Worker], Include),
            found(&format!("e@{digest}"), &[Role::Worker], Include),
        ];
        let told: Vec<(String, Vec<Role>)> =
            included(&list).into_iter().map(|(image, roles)| (image.to_string(), roles)).collect();
        let expected = [
            ("docker.io/library/a:latest".to_owned(), vec![Role::Management, Role::Worker]),
            ("docker.io/library/b:1".to_owned(), vec![]),
            ("docker.io/library/d:1".to_owned(), vec![]),
            (format!("docker.io/library/e@{digest}"), vec![Role::Worker]),
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn what_is_there_for_every_role_that_runs_it_is_complete() {
        let digest = Digest::of(b"x").oci();
        let policy = ImagePolicy::Require;
        for (name, roles, stored) in [
            ("a", vec![], vec![("docker.io/library/a:latest".to_owned(), vec![])]),
            ("a", vec![Role::Worker], vec![("a".to_owned(), vec![Role::Worker, Role::Default])]),
            (
                "a:1",
                vec![Role::Worker, Role::Witness],
                vec![("a:1".to_owned(), vec![Role::Worker]), ("a:1".to_owned(), vec![Role::Witness])],
            ),
            ("a:1", vec![], vec![("a:1".to_owned(), Role::ALL.to_vec())]),
            (
                &*format!("a:gone@{digest}"),
                vec![],
                vec![("a:1".to_owned(), vec![]), (format!("a@{digest}"), vec![])],
            ),
        ] {
            let stored: Vec<_> = stored.iter().map(|(name, roles)| (image(name), roles.clone())).collect();
            check(&[found(name, &roles, policy)], &stored).unwrap();
        }
    }

    #[test]
    fn every_gap_is_told_with_its_place_and_the_roles_that_lack_it() {
        let other = Digest::of(b"y").oci();
        let list = [
            found("a:1", &[], ImagePolicy::Require),
            found("b:1", &[Role::Worker], ImagePolicy::Require),
            found(&format!("c:1@{other}"), &[Role::Worker], ImagePolicy::Include),
            found("d:1", &[Role::Management], ImagePolicy::Require),
        ];
        let stored = [
            (image("a:1"), vec![Role::Management]),
            // With a digest, an image of the same tag is another image.
            (image("c:1"), vec![]),
            (image("b:2"), vec![]),
            (image("d:1"), vec![Role::Management]),
        ];
        let error = anyhow::Error::from(check(&list, &stored).unwrap_err());
        assert_eq!(class_of(&error), Class::Invalid);
        let place =
            "manifests/web.yaml:7, document 2: Deployment web: spec.template.spec.containers[0].image";
        let expected = format!(
            "error: nodes would lack 3 images that shipped manifests and charts run\n  \
             because: docker.io/library/a:1 is not preloaded for default, worker, witness: {place}\n  \
             because: docker.io/library/b:1 is not preloaded; needed for worker: {place}\n  \
             because: docker.io/library/c@{other} is not preloaded; needed for worker: {place}\n  next: Add each"
        );
        let told = render(&error);
        assert!(told.starts_with(&expected), "{told}");
    }
}
