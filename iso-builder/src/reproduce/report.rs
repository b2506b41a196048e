//! What came of building a release again.

use std::collections::BTreeSet;
use std::fmt;
use std::path::PathBuf;

use anyhow::anyhow;
use base::digest::Digest;
use base::failure::{Class, Failure};
use serde::Serialize;

use crate::wording::printable;

/// The differences within one part that are shown to people.
const SHOWN: usize = 20;

/// A release, compared with what its inputs made now.
#[derive(Clone, Debug, Serialize)]
pub struct Reproduction {
    /// As the user named it.
    pub release: PathBuf,
    /// The digests of its manifests.
    pub manifests: BTreeSet<Digest>,
    /// The name and version of the product.
    pub product: String,
    /// What was built now.
    pub definition: PathBuf,
    /// True if every part that can be compared is the same, byte for byte.
    pub reproduced: bool,
    /// What the release says that it was made of, and what was used now.
    pub inputs: Vec<ComparedInput>,
    pub parts: Vec<ComparedPart>,
    /// Files that do not follow from the inputs alone.
    pub not_compared: Vec<String>,
    /// Where what was built now is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub output: Option<PathBuf>,
    /// The keys that have signed the release now that it was reproduced.
    pub signed_by: Vec<String>,
}

/// One input of a build.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ComparedInput {
    pub name: String,
    /// What made the release, by its provenance; none where it does not say.
    pub first: Option<String>,
    pub again: Option<String>,
}

impl ComparedInput {
    /// True if the release was made of another one.
    #[must_use]
    pub fn differs(&self) -> bool {
        self.first.is_some() && self.first != self.again
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Agreement {
    Same,
    Differs,
    /// Only the release has it.
    OnlyFirst,
    /// Only what was built now has it.
    OnlyAgain,
}

/// A payload, a manifest or a file of a release.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ComparedPart {
    pub name: String,
    pub agreement: Agreement,
    /// What is known of the difference, a line each.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<String>,
}

impl ComparedPart {
    /// None if neither has it.
    pub(super) fn of_digests(name: String, first: Option<Digest>, again: Option<Digest>) -> Option<Self> {
        let (agreement, differences) = match (first, again) {
            (None, None) => return None,
            (Some(_), None) => (Agreement::OnlyFirst, Vec::new()),
            (None, Some(_)) => (Agreement::OnlyAgain, Vec::new()),
            (Some(first), Some(again)) if first == again => (Agreement::Same, Vec::new()),
            (Some(first), Some(again)) => {
                (Agreement::Differs, vec![format!("{} in the release, {} now", first.oci(), again.oci())])
            }
        };
        Some(Self { name, agreement, differences })
    }
}

impl Reproduction {
    /// # Errors
    /// [`Class::Verification`] if something differs.
    pub fn into_result(self) -> Result<(), Failure> {
        if self.reproduced {
            return Ok(());
        }
        let differ = self.parts.iter().filter(|part| part.agreement != Agreement::Same).count();
        let what = format!(
            "{} was not reproduced: {differ} of {} parts differ",
            self.release.display(),
            self.parts.len()
        );
        let inputs: Vec<_> =
            self.inputs.iter().filter(|input| input.differs()).map(|input| input.name.as_str()).collect();
        let failure = Failure::new(Class::Verification, what);
        Err(match inputs.is_empty() {
            true => failure
                .because(anyhow!("the inputs are those that the release names, or it names none"))
                .hint("Whoever made the release used other inputs than it says, or another machine makes other bytes of them: compare the lines above with its maker."),
            false => failure
                .because(anyhow!("the release was made with another {}", printable(&inputs.join(", "))))
                .hint("Take the definition, the lock file and the programs that it was made with, then build again."),
        })
    }
}

impl fmt::Display for Reproduction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}: {}", self.release.display(), printable(&self.product))?;
        for manifest in &self.manifests {
            writeln!(f, "release {}", manifest.oci())?;
        }
        writeln!(f, "built    {}", self.definition.display())?;
        for input in &self.inputs {
            let text = |value: &Option<String>| printable(value.as_deref().unwrap_or("none"));
            let (name, first, again) = (printable(&input.name), text(&input.first), text(&input.again));
            match (&input.first, input.differs()) {
                (Some(_), false) => writeln!(f, "same     {name}: {again}")?,
                (Some(_), true) => writeln!(f, "differs  {name}: {first} made the release, {again} is here")?,
                (None, _) => writeln!(f, "unknown  {name}: not named by the release, {again} is here")?,
            }
        }
        let same = self.parts.iter().filter(|part| part.agreement == Agreement::Same).count();
        writeln!(f, "same     {same} of {} parts", self.parts.len())?;
        for part in self.parts.iter().filter(|part| part.agreement != Agreement::Same) {
            let how = match part.agreement {
                Agreement::Same | Agreement::Differs => "differs ",
                Agreement::OnlyFirst => "missing ",
                Agreement::OnlyAgain => "added   ",
            };
            writeln!(f, "{how} {}", printable(&part.name))?;
            for line in part.differences.iter().take(SHOWN) {
                writeln!(f, "           {}", printable(line))?;
            }
            if part.differences.len() > SHOWN {
                writeln!(
                    f,
                    "           … and {} more (--format json has all)",
                    part.differences.len() - SHOWN
                )?;
            }
        }
        for name in &self.not_compared {
            writeln!(f, "skipped  {}", printable(name))?;
        }
        if let Some(output) = &self.output {
            writeln!(f, "what was built now is in {}", output.display())?;
        }
        for key in &self.signed_by {
            writeln!(f, "signed by {key}")?;
        }
        match self.reproduced {
            true => write!(f, "reproduced: these inputs make this release, byte for byte"),
            false => write!(f, "not reproduced"),
        }
    }
}
