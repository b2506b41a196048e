//! Which images of an archive are taken, and under which names.

use base::digest::Digest;
use formats::oci::{Descriptor, ImageReference};

/// Leaves out images of other platforms where there are several. One without a platform can be the right one.
pub(crate) fn retain_platform(images: &mut Vec<Descriptor>, architecture: &str) {
    if images.len() > 1 {
        images.retain(|image| {
            image.platform.as_ref().is_none_or(|platform| platform.is_baseline_of(architecture))
        });
    }
}

#[derive(Clone, Debug)]
pub(super) struct ImageCandidate<T> {
    pub(super) name: CandidateName,
    /// The digest by which it can be selected, if it has one.
    pub(super) digest: Option<Digest>,
    pub(super) what: T,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CandidateName {
    /// A complete reference.
    Full(ImageReference),
    /// Only a tag, as in many layouts: the reader has to know the repository.
    Tag(String),
    /// No name, or text that is not one.
    None(String),
}

/// Images under the name that they get; several images of one name are its platforms.
#[derive(Debug)]
pub(super) struct ChosenImages<T> {
    pub(super) name: ImageReference,
    pub(super) images: Vec<T>,
}

impl CandidateName {
    /// Reads a name. Text without a slash, a colon and a digest is a tag.
    pub(super) fn of(text: &str) -> Self {
        if !text.contains(['/', ':', '@']) {
            return if text.is_empty() { Self::None(String::new()) } else { Self::Tag(text.to_owned()) };
        }
        text.parse().map_or_else(|_| Self::None(text.to_owned()), Self::Full)
    }

    fn is(&self, reference: &ImageReference) -> bool {
        matches!(self, Self::Full(name) if name == reference)
    }
}

/// Chooses the images that `references` name, or all that have a name; notes say what was left out. The error is the
/// reference that matches none of them, and the names that there are.
pub(super) fn choose<T>(
    candidates: Vec<ImageCandidate<T>>,
    references: &[ImageReference],
) -> Result<(Vec<ChosenImages<T>>, Vec<String>), String> {
    if references.is_empty() {
        return named(candidates);
    }
    let mut candidates: Vec<_> = candidates.into_iter().map(Some).collect();
    let mut chosen = Vec::new();
    for reference in references {
        let found = matching(&candidates, reference);
        if found.is_empty() {
            let there: Vec<String> = candidates.iter().flatten().map(ImageCandidate::told).collect();
            let there = if there.is_empty() { "nothing else".to_owned() } else { there.join(", ") };
            return Err(format!("it has no image {reference}; it has: {there}"));
        }
        let images = found.into_iter().filter_map(|index| candidates.get_mut(index)?.take());
        let images = images.map(|candidate| candidate.what).collect();
        chosen.push(ChosenImages { name: reference.clone(), images });
    }
    Ok((chosen, Vec::new()))
}

/// Matches by digest if the reference has one, else by name, else by tag only.
fn matching<T>(candidates: &[Option<ImageCandidate<T>>], reference: &ImageReference) -> Vec<usize> {
    let all = |fits: &dyn Fn(&ImageCandidate<T>) -> bool| -> Vec<usize> {
        let fitting = |(index, candidate): (usize, &Option<ImageCandidate<T>>)| {
            candidate.as_ref().is_some_and(fits).then_some(index)
        };
        candidates.iter().enumerate().filter_map(fitting).collect()
    };
    if let Some(digest) = reference.digest() {
        return all(&|candidate| candidate.digest == Some(digest));
    }
    let full = all(&|candidate| candidate.name.is(reference));
    if !full.is_empty() {
        return full;
    }
    all(
        &|candidate| matches!(&candidate.name, CandidateName::Tag(tag) if Some(tag.as_str()) == reference.tag()),
    )
}

fn named<T>(candidates: Vec<ImageCandidate<T>>) -> Result<(Vec<ChosenImages<T>>, Vec<String>), String> {
    let (mut chosen, mut notes) = (Vec::<ChosenImages<T>>::new(), Vec::new());
    for candidate in candidates {
        let told = candidate.told();
        let CandidateName::Full(name) = candidate.name else {
            notes.push(format!("{told} is left out: add it to the references to include it"));
            continue;
        };
        match chosen.iter_mut().find(|chosen| chosen.name == name) {
            Some(same) => same.images.push(candidate.what),
            None => chosen.push(ChosenImages { name, images: vec![candidate.what] }),
        }
    }
    match chosen.is_empty() {
        true if notes.is_empty() => Err("it has no image".to_owned()),
        true => Err(format!("it has no image with a name: {}", notes.join("; "))),
        false => Ok((chosen, notes)),
    }
}

impl<T> ImageCandidate<T> {
    fn told(&self) -> String {
        let name = match &self.name {
            CandidateName::Full(name) => name.to_string(),
            CandidateName::Tag(tag) => format!("an image with the tag {tag} and no repository"),
            CandidateName::None(text) if text.is_empty() => "an image without a name".to_owned(),
            CandidateName::None(text) => format!("an image with the name {text:?}, which is not a reference"),
        };
        match self.digest {
            Some(digest) => format!("{name} ({})", digest.oci()),
            None => name,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn candidates(names: &[&str]) -> Vec<ImageCandidate<usize>> {
        let candidate = |(what, name): (usize, &&str)| {
            let digest = Some(Digest::of(name.as_bytes()));
            ImageCandidate { name: CandidateName::of(name), digest, what }
        };
        names.iter().enumerate().map(candidate).collect()
    }

    fn chosen(names: &[&str], references: &[&str]) -> Result<Vec<(String, Vec<usize>)>, String> {
        let references: Vec<_> = references.iter().map(|text| text.parse().unwrap()).collect();
        let (chosen, _) = choose(candidates(names), &references)?;
        Ok(chosen.into_iter().map(|chosen| (chosen.name.to_string(), chosen.images)).collect())
    }

    #[test]
    fn names_are_those_that_nodes_use() {
        let found = chosen(&["rancher/pause:3.6", "a.b/c:1", "docker.io/rancher/pause:3.6"], &[]).unwrap();
        let expected =
            [("docker.io/rancher/pause:3.6".to_owned(), vec![0, 2]), ("a.b/c:1".to_owned(), vec![1])];
        assert_eq!(found, expected);
        assert_eq!(chosen(&["a.b/c:1", "pause:1"], &["library/pause:1"]).unwrap()[0].1, [1]);
    }

    #[test]
    fn a_tag_alone_takes_its_repository_from_the_reference() {
        assert_eq!(chosen(&["1.0", "2.0"], &["a.b/c:2.0"]).unwrap(), [("a.b/c:2.0".to_owned(), vec![1])]);
        assert_eq!(
            chosen(&["1.0", "a.b/c:1.0"], &["a.b/c:1.0"]).unwrap()[0].1,
            [1],
            "a whole name goes first"
        );
    }

    #[test]
    fn a_digest_finds_an_image_without_a_name() {
        let reference = format!("a.b/c@{}", Digest::of(b"").oci());
        assert_eq!(chosen(&["a.b/c:1", ""], &[&reference]).unwrap(), [(reference, vec![1])]);
    }

    #[test]
    fn what_is_left_out_is_noted_and_what_is_absent_lists_what_there_is() {
        let (_, notes) = choose(candidates(&["a.b/c:1", "", "1.0", "a.b/C:1"]), &[]).unwrap();
        assert_eq!(notes.len(), 3);
        assert!(notes[0].starts_with("an image without a name (sha256:"), "{notes:?}");
        let error = chosen(&["a.b/c:1", "1.0"], &["a.b/c:2"]).unwrap_err();
        assert!(error.contains("no image a.b/c:2; it has: a.b/c:1 (sha256:"), "{error}");
        assert!(chosen(&[], &[]).is_err() && chosen(&["1.0"], &[]).unwrap_err().contains("the tag 1.0"));
    }
}
