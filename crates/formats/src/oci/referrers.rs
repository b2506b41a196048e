//! Artifacts that refer to another one, such as a provenance to its release: the list of them (image-spec 1.1, `image-index.md`), and
//! the tag that it has in registries without an API for it (distribution-spec 1.1, "Referrers Tag Schema").

use base::digest::Digest;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::document::Descriptor;
use super::media_types;

/// An artifact that refers to another one, as lists have it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Referrer {
    /// Of its manifest.
    #[serde(flatten)]
    pub manifest: Descriptor,
    #[serde(default)]
    pub artifact_type: String,
}

/// The tag of the list of those that refer to `subject`: `sha256-…`.
#[must_use]
pub fn referrers_tag(subject: Digest) -> String {
    format!("sha256-{subject}")
}

/// The referrers in a list. Entries of another form are left out: they are of others.
pub fn referrers(list: &[u8]) -> serde_json::Result<Vec<Referrer>> {
    #[derive(Deserialize)]
    struct List {
        manifests: Vec<Value>,
    }
    let List { manifests } = serde_json::from_slice(list)?;
    Ok(manifests.into_iter().filter_map(|entry| serde_json::from_value(entry).ok()).collect())
}

/// The list with `referrer`; `existing` is the list so far. What else is in it stays as it is.
///
/// # Errors
/// `existing` is no index.
pub fn with_referrer(existing: Option<&[u8]>, referrer: &Referrer) -> serde_json::Result<Vec<u8>> {
    let mut list = match existing {
        Some(existing) => serde_json::from_slice(existing)?,
        None => json!({ "schemaVersion": 2, "mediaType": media_types::OCI_INDEX, "manifests": [] }),
    };
    let manifests = list.get_mut("manifests").and_then(Value::as_array_mut);
    let manifests = manifests.ok_or_else(|| serde::de::Error::custom("it has no list of manifests"))?;
    let digest = referrer.manifest.digest.oci();
    manifests.retain(|other| other.get("digest").and_then(Value::as_str) != Some(&digest));
    manifests.push(serde_json::to_value(referrer)?);
    serde_json::to_vec(&list)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    fn referrer(text: &str) -> Referrer {
        Referrer {
            manifest: Descriptor {
                media_type: media_types::OCI_MANIFEST.into(),
                digest: Digest::of(text.as_bytes()),
                size: 1,
                annotations: BTreeMap::from([("a".into(), "b".into())]),
                platform: None,
            },
            artifact_type: "application/x".into(),
        }
    }

    #[test]
    fn a_list_keeps_what_others_have_put_there() {
        let list = with_referrer(None, &referrer("one")).unwrap();
        assert_eq!(referrers(&list).unwrap(), [referrer("one")]);
        let mut list: Value = serde_json::from_slice(&list).unwrap();
        list["annotations"] = json!({ "theirs": "x" });
        list["manifests"][0]["theirs"] = json!(1);
        list["manifests"].as_array_mut().unwrap().insert(0, json!({ "digest": "sha512:00" }));
        let list = with_referrer(Some(list.to_string().as_bytes()), &referrer("two")).unwrap();
        let again = with_referrer(Some(&list), &referrer("two")).unwrap();
        assert_eq!(list, again);
        assert_eq!(referrers(&list).unwrap(), [referrer("one"), referrer("two")]);
        let list: Value = serde_json::from_slice(&list).unwrap();
        assert_eq!(
            (&list["annotations"]["theirs"], &list["manifests"][1]["theirs"]),
            (&json!("x"), &json!(1))
        );
        assert_eq!(list["manifests"].as_array().unwrap().len(), 3);
    }

    #[test]
    fn what_is_no_list_is_not_replaced() {
        for text in ["", "[]", "{}", r#"{"manifests": 1}"#] {
            assert!(with_referrer(Some(text.as_bytes()), &referrer("one")).is_err(), "{text}");
            assert!(referrers(text.as_bytes()).is_err(), "{text}");
        }
        assert_eq!(referrers_tag(Digest::of(b"")).len(), 71);
    }
}
