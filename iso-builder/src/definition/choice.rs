//! Which of the images of a definition a command is about: a definition can have several architectures, and several variants.

use std::path::Path;

use anyhow::{Result, anyhow};
use base::failure::{Class, Failure};
use base::files::named;
use document::nearest::nearest;
use model::architecture::Architecture;

use crate::wording::enumerated;

/// The images of a definition that are meant; without a restriction all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageChoice {
    /// Only those for this architecture.
    pub architecture: Option<Architecture>,
    /// Only these variants.
    pub variants: Vec<String>,
}

/// The images of one variant, or of a definition without variants.
#[derive(Clone, Debug)]
pub(super) struct ImageSet {
    /// That of the variant.
    pub name: Option<String>,
    pub architectures: Vec<Architecture>,
}

impl ImageChoice {
    /// Those of the definition `file` that are meant, in its order, each with the place of its set among `all`.
    ///
    /// # Errors
    /// [`Class::Invalid`] if one that is named is not there, or if none is for the architecture.
    pub(super) fn of(&self, all: &[ImageSet], file: &Path) -> Result<Vec<(usize, Architecture)>> {
        self.check_names(all, file)?;
        let is_named = |set: &ImageSet| {
            self.variants.is_empty() || set.name.as_ref().is_some_and(|name| self.variants.contains(name))
        };
        let sets = all.iter().enumerate().filter(|(_, set)| is_named(set));
        let images: Vec<_> =
            sets.flat_map(|(at, set)| set.architectures.iter().map(move |one| (at, *one))).collect();
        let Some(only) = self.architecture else { return Ok(images) };
        let meant: Vec<_> = images.iter().copied().filter(|(_, one)| *one == only).collect();
        match meant.is_empty() {
            true => {
                let known: Vec<_> = images.into_iter().map(|(_, one)| one).collect();
                Err(not_for(only, &known, file).into())
            }
            false => Ok(meant),
        }
    }

    fn check_names(&self, all: &[ImageSet], file: &Path) -> Result<()> {
        let names: Vec<_> = all.iter().filter_map(|set| set.name.as_deref()).collect();
        let Some(unknown) = self.variants.iter().find(|name| !names.contains(&name.as_str())) else {
            return Ok(());
        };
        let what = format!("{} has no variant {unknown}", named::told(file));
        let (why, hint) = match nearest(unknown, names.iter().copied()) {
            _ if names.is_empty() => {
                (anyhow!("it has no variants"), "Leave out --variant, or add the key `variants`.".to_owned())
            }
            Some(meant) => {
                (anyhow!("its variants are {}", enumerated(&names)), format!("Did you mean {meant}?"))
            }
            None => (anyhow!("its variants are {}", enumerated(&names)), "Name one of them.".to_owned()),
        };
        Err(Failure::new(Class::Invalid, what).because(why).hint(hint).into())
    }
}

/// The refusal of an architecture that `file` is not for; it is for `all`.
fn not_for(other: Architecture, all: &[Architecture], file: &Path) -> Failure {
    let mut known = all.to_vec();
    known.sort_by_key(|one| Architecture::ALL.iter().position(|each| each == one));
    known.dedup();
    let names: Vec<_> = known.iter().copied().chain([other]).map(Architecture::debian).collect();
    Failure::new(Class::Invalid, format!("{} is not for {other}", named::told(file)))
        .because(anyhow!("it is for {}", enumerated(&known)))
        .hint(format!("Leave out --architecture, or set `architectures: [{}]`.", names.join(", ")))
}

/// The refusal where a command takes one image, and more are meant.
pub(super) fn several(file: &Path, variants: &[Option<&str>]) -> Failure {
    let mut names: Vec<_> = variants.iter().flatten().collect();
    names.dedup();
    let told = named::told(file);
    match &names[..] {
        [first, _, ..] => Failure::new(Class::Invalid, format!("{told} has more than one variant"))
            .because(anyhow!("its variants are {}", enumerated(&names)))
            .hint(format!("Name one: --variant {first}.")),
        _ => Failure::new(Class::Invalid, format!("{told} is for more than one architecture"))
            .hint("Name one: --architecture amd64."),
    }
}
