//! The files in the OS image from which the first server of a cluster applies manifests and charts.
//!
//! The distributions name what they apply after the file's name up to the first dot, which has to be a name in
//! Kubernetes' sense; `installer apply` adds a prefix.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Result;
use base::digest::{Digest, Hasher};
use base::failure::{Class, Failure};
use base::files;
use model::os_image::SHIPPED_MANIFESTS;

use super::Workloads;

impl Workloads {
    /// The contents of the files, by their names in the directory [`SHIPPED_MANIFESTS`] of the OS image.
    fn files(&self) -> BTreeMap<String, String> {
        let manifests = self.manifests.iter().map(|manifest| (manifest.name.clone(), manifest.text.clone()));
        let charts = self.charts.iter();
        let charts =
            charts.map(|chart| (format!("chart-{}", chart.spec.name), format!("{:#}\n", chart.object())));
        manifests.chain(charts).map(|(name, text)| (format!("{name}.yaml"), text)).collect()
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.manifests.is_empty() && self.charts.is_empty()
    }

    /// Writes the files below `root`, the root of the OS image. The same definition gives the same bytes.
    pub fn lay_out(&self, root: &Path) -> Result<()> {
        for (name, text) in self.files() {
            files::write_atomically(&root.join(SHIPPED_MANIFESTS).join(name), text.as_bytes(), 0o644)?;
        }
        Ok(())
    }

    /// The digest of the files' names and contents, as [`lay_out`](Self::lay_out) writes them.
    #[must_use]
    pub fn digest(&self) -> Digest {
        let mut hasher = Hasher::default();
        for (name, text) in self.files() {
            hasher.update(format!("{name} {} ", text.len()).as_bytes());
            hasher.update(text.as_bytes());
        }
        hasher.finish()
    }

    /// Fails if two files have the same name.
    pub(super) fn refuse_equal_names(&self) -> Result<()> {
        let manifests = self.manifests.iter().map(|manifest| (manifest.name.clone(), &manifest.file));
        let charts = self.charts.iter().map(|chart| (format!("chart-{}", chart.spec.name), &chart.file));
        let mut seen: BTreeMap<String, &PathBuf> = BTreeMap::new();
        for (name, file) in manifests.chain(charts) {
            if let Some(before) = seen.insert(name.clone(), file) {
                let what =
                    format!("{} and {} would both be {name} on the nodes", before.display(), file.display());
                let hint = "Give one another name; only letters and digits make a difference.";
                return Err(Failure::new(Class::Invalid, what).hint(hint).into());
            }
        }
        Ok(())
    }
}
