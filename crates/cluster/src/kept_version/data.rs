//! The last version of Kubernetes that used the data of etcd and the kubelet on a node. A lower version must not start: etcd cannot
//! read what a newer one wrote, and trying loses data.
//!
//! The record is written before a version starts for the first time, so data is never newer than its record.

use std::path::Path;

use anyhow::Result;
use serde::{Deserialize, Serialize};

use super::kept::KeptVersions;
use base::encode;
use base::failure::{Class, Failure};
use base::files::{self, Attributes, Root};
use machine::paths::below;
use model::kubernetes::KubernetesVersion;

const RECORD: &str = "/var/lib/nqrust/kubernetes/data.json";

#[derive(Serialize, Deserialize)]
struct DataRecord {
    version: KubernetesVersion,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DataVersion(Option<KubernetesVersion>);

impl DataVersion {
    /// A damaged record is replaced by the chosen version: a node on which none was chosen has only had one version.
    #[must_use]
    pub fn read(root: &Path) -> Self {
        let path = below(root, RECORD);
        let recorded = files::read_text(&path).ok();
        let recorded = recorded.and_then(|text| serde_json::from_str::<DataRecord>(&text).ok());
        match recorded {
            Some(record) => Self(Some(record.version)),
            None if path.exists() => Self(KeptVersions::of(root).current()),
            None => Self(None),
        }
    }

    /// Checks that `version` may start. Data of another distribution is elsewhere and does not matter.
    ///
    /// # Errors
    /// [`Class::Hardware`] for a lower version.
    pub fn check(&self, version: &KubernetesVersion) -> Result<(), Failure> {
        let Some(worked) = &self.0 else { return Ok(()) };
        if worked.distribution() != version.distribution() || version >= worked {
            return Ok(());
        }
        let what = format!(
            "Kubernetes {version} is older than {worked}, which has worked on the data of this node, and would damage it"
        );
        Err(Failure::new(Class::Hardware, what).hint(format!(
            "Start an OS that brings {worked} or later: `installer update status` tells what each slot has, `installer update apply \
             --from MEDIUM` writes another."
        )))
    }
}

/// To be called before `version` starts: checks that it may, and records it.
///
/// # Errors
/// As [`DataVersion::check`] has them; a record that cannot be written is an error too.
pub fn begin(root: &Path, version: &KubernetesVersion) -> Result<()> {
    DataVersion::read(root).check(version)?;
    let record = encode::json_text(&DataRecord { version: version.clone() });
    Root::open(root)?.write(RECORD, record.as_bytes(), Attributes { mode: 0o644, owner: None }).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::failure::class_of;
    use std::fs;

    fn version(text: &str) -> KubernetesVersion {
        text.parse().unwrap()
    }

    #[test]
    fn only_a_lower_version_is_kept_from_the_data() {
        for (worked, starts, may) in [
            (None, "v1.37.2", true),
            (Some("v1.37.2"), "v1.37.2", true),
            (Some("v1.37.2"), "v1.37.3", true),
            (Some("v1.37.2"), "v1.37.1", false),
            (Some("v1.37.2"), "v1.36.9", false),
            (Some("v1.33.1+rke2r2"), "v1.33.1+rke2r1", false),
            (Some("v1.33.1+k3s1"), "v1.30.0+rke2r1", true),
        ] {
            let worked_on = DataVersion(worked.map(version));
            assert_eq!(worked_on.check(&version(starts)).is_ok(), may, "{starts} on {worked:?}");
        }
    }

    #[test]
    fn what_starts_is_remembered_and_what_must_not_start_is_not() {
        let root = tempfile::tempdir().unwrap();
        begin(root.path(), &version("v1.36.1")).unwrap();
        begin(root.path(), &version("v1.37.2")).unwrap();
        let error = begin(root.path(), &version("v1.36.1")).unwrap_err();
        assert_eq!(class_of(&error), Class::Hardware);
        assert!(error.to_string().contains("older than v1.37.2"), "{error}");
        assert_eq!(DataVersion::read(root.path()), DataVersion(Some(version("v1.37.2"))));
        begin(root.path(), &version("v1.37.2")).unwrap();
    }

    #[test]
    fn a_damaged_record_counts_as_what_was_to_run() {
        let root = tempfile::tempdir().unwrap();
        let record = below(root.path(), RECORD);
        fs::create_dir_all(record.parent().unwrap()).unwrap();
        fs::write(&record, [0; 20]).unwrap();
        assert_eq!(DataVersion::read(root.path()), DataVersion(None));
        KeptVersions::of(root.path()).choose(&version("v1.37.2")).unwrap();
        assert!(begin(root.path(), &version("v1.36.1")).is_err());
        begin(root.path(), &version("v1.37.2")).unwrap();
        assert_eq!(DataVersion::read(root.path()), DataVersion(Some(version("v1.37.2"))));
    }
}
