//! The public ConfigMap `kube-public/cluster-info` of a cluster of kubeadm, and its proof.
//!
//! It holds a kubeconfig with the cluster's authority, and for each bootstrap token a signature of that text, made with the
//! token: a JWS (RFC 7515, HS256) whose content is left out (appendix F), as `jws-kubeconfig-ID`. Whoever knows the token knows by
//! it that the text comes from one who knows it, too (kubeadm `app/discovery/token`, `cluster-bootstrap/token/jws`).

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use ring::hmac;
use serde::Deserialize;

use crate::kubernetes::kubeconfig::Kubeconfig;

const KUBECONFIG: &str = "kubeconfig";
const SIGNATURE: &str = "jws-kubeconfig-";

#[derive(Deserialize)]
#[cfg_attr(test, derive(Debug))]
pub(super) struct ClusterInfo {
    data: BTreeMap<String, String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InfoSignature {
    /// The cluster knows the token.
    Good,
    /// The cluster has signed nothing, with no token.
    NoneAtAll,
    /// The cluster has no token of this id.
    UnknownToken,
    /// What is there for a token of this id was not made with this token.
    Wrong,
}

impl ClusterInfo {
    /// Reads the ConfigMap as the API has it; none if it is not one about a cluster.
    pub(super) fn read(json: &[u8]) -> Option<Self> {
        let info: Self = serde_json::from_slice(json).ok()?;
        info.data.contains_key(KUBECONFIG).then_some(info)
    }

    pub(super) fn signature(&self, id: &str, key: &str) -> InfoSignature {
        let kubeconfig = self.data.get(KUBECONFIG).map_or("", String::as_str);
        match self.data.get(&format!("{SIGNATURE}{id}")) {
            Some(jws) if is_signed(jws, kubeconfig, id, key) => InfoSignature::Good,
            Some(_) => InfoSignature::Wrong,
            None if self.data.keys().any(|name| name.starts_with(SIGNATURE)) => InfoSignature::UnknownToken,
            None => InfoSignature::NoneAtAll,
        }
    }

    /// The certificates (PEM) that the cluster says are its authority. Nothing proves them but a good [`InfoSignature`].
    pub(super) fn authority(&self) -> Option<Vec<u8>> {
        let kubeconfig = Kubeconfig::read(self.data.get(KUBECONFIG)?)?;
        kubeconfig.cluster()?.certificate_authority_data.as_ref()?.decode()
    }
}

/// The head of a signature.
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: String,
}

/// Whether `jws` is a signature of `content` by the token of this id and key. Takes as long for any wrong signature.
fn is_signed(jws: &str, content: &str, id: &str, key: &str) -> bool {
    let mut parts = jws.split('.');
    let (Some(header), Some(""), Some(signature), None) =
        (parts.next(), parts.next(), parts.next(), parts.next())
    else {
        return false;
    };
    let (Ok(head), Ok(signature)) =
        (BASE64_URL_SAFE_NO_PAD.decode(header), BASE64_URL_SAFE_NO_PAD.decode(signature))
    else {
        return false;
    };
    let is_ours = |head: Header| head.alg == "HS256" && head.kid == id;
    if !serde_json::from_slice(&head).is_ok_and(is_ours) {
        return false;
    }
    let key = hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes());
    let signed = format!("{header}.{}", BASE64_URL_SAFE_NO_PAD.encode(content));
    hmac::verify(&key, signed.as_bytes(), &signature).is_ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const ID: &str = "a1b2c3";
    const KEY: &str = "0123456789abcdef";
    const CONTENT: &str = "apiVersion: v1\nkind: Config\nclusters:\n- cluster:\n    certificate-authority-data: cGVt\n    \
                           server: https://192.0.2.10:6443\n  name: \"\"\n";

    /// Made by Python's `hmac` and `base64`, with the header that Kubernetes writes.
    const SIGNED: &str =
        "eyJhbGciOiJIUzI1NiIsImtpZCI6ImExYjJjMyJ9..-MOBiI0lt7vwjHdzNRW8YD23Fl5cf8rEWFhASFftGG8";

    fn info(signatures: &[(&str, &str)]) -> ClusterInfo {
        let mut data = json!({ "kubeconfig": CONTENT });
        for (id, jws) in signatures {
            data[format!("jws-kubeconfig-{id}")] = json!(jws);
        }
        ClusterInfo::read(json!({ "kind": "ConfigMap", "data": data }).to_string().as_bytes()).unwrap()
    }

    /// A signature with this header.
    fn signed(header: &serde_json::Value, key: &str) -> String {
        let header = BASE64_URL_SAFE_NO_PAD.encode(header.to_string());
        let text = format!("{header}.{}", BASE64_URL_SAFE_NO_PAD.encode(CONTENT));
        let tag = hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key.as_bytes()), text.as_bytes());
        format!("{header}..{}", BASE64_URL_SAFE_NO_PAD.encode(tag))
    }

    #[test]
    fn a_cluster_that_knows_the_token_is_told_from_those_that_do_not() {
        assert_eq!(info(&[(ID, SIGNED)]).signature(ID, KEY), InfoSignature::Good);
        assert_eq!(info(&[(ID, SIGNED)]).signature(ID, "0123456789abcdeg"), InfoSignature::Wrong);
        assert_eq!(info(&[("a1b2c4", SIGNED)]).signature(ID, KEY), InfoSignature::UnknownToken);
        assert_eq!(info(&[]).signature(ID, KEY), InfoSignature::NoneAtAll);
    }

    #[test]
    fn a_signature_of_another_kind_counts_for_nothing() {
        for (header, key, good) in [
            (json!({ "alg": "HS256", "kid": ID }), KEY, true),
            (json!({ "kid": ID, "alg": "HS256" }), KEY, true),
            (json!({ "alg": "HS256", "kid": "a1b2c4" }), KEY, false),
            (json!({ "alg": "HS256" }), KEY, false),
            (json!({ "alg": "none", "kid": ID }), "", false),
            (json!({ "alg": "HS512", "kid": ID }), KEY, false),
            (json!([]), KEY, false),
        ] {
            let expected = if good { InfoSignature::Good } else { InfoSignature::Wrong };
            assert_eq!(info(&[(ID, &signed(&header, key))]).signature(ID, KEY), expected, "{header}");
        }
        let (header, tag) = SIGNED.split_once("..").unwrap();
        let content = BASE64_URL_SAFE_NO_PAD.encode(CONTENT);
        for jws in [
            String::new(),
            "..".to_owned(),
            format!("{header}.."),
            format!("..{tag}"),
            format!("{header}.{content}.{tag}"),
            format!("{header}..{tag}."),
            format!("{header}..{tag}="),
            SIGNED.to_uppercase(),
        ] {
            assert_eq!(info(&[(ID, &jws)]).signature(ID, KEY), InfoSignature::Wrong, "{jws}");
        }
    }

    #[test]
    fn the_authority_is_read_from_the_text_that_is_signed() {
        assert_eq!(info(&[]).authority().unwrap(), b"pem");
        for text in
            ["", "{}", "clusters: []", "clusters: [{cluster: {certificate-authority-data: '%'}}]", "- ]["]
        {
            let data = json!({ "data": { "kubeconfig": text } });
            assert_eq!(ClusterInfo::read(data.to_string().as_bytes()).unwrap().authority(), None, "{text}");
        }
        for json in ["", "{}", "{\"data\": {}}", "{\"data\": {\"kubeconfig\": 1}}", "[1]"] {
            assert!(ClusterInfo::read(json.as_bytes()).is_none(), "{json}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_signature_or_none(jws in "\\PC{0,80}", dotted in "[A-Za-z0-9_-]{0,40}\\.{0,3}[A-Za-z0-9_-]{0,50}") {
            prop_assert_eq!(info(&[(ID, &jws)]).signature(ID, KEY), InfoSignature::Wrong);
            prop_assert_eq!(info(&[(ID, &dotted)]).signature(ID, KEY), InfoSignature::Wrong);
        }

        #[test]
        fn any_bytes_are_a_cluster_or_none(bytes in proptest::collection::vec(any::<u8>(), 0..200), text in "\\PC{0,200}") {
            prop_assert!(ClusterInfo::read(&bytes).is_none());
            let data = json!({ "data": { "kubeconfig": text } });
            let info = ClusterInfo::read(data.to_string().as_bytes());
            prop_assert!(info.is_some_and(|info| info.authority().is_none()));
        }

        #[test]
        fn a_signature_that_is_changed_anywhere_is_wrong(at: prop::sample::Index, byte in "[A-Za-z0-9._-]") {
            let at = at.index(SIGNED.len());
            let mut changed = SIGNED.to_owned();
            changed.replace_range(at..=at, &byte);
            let expected = if changed == SIGNED { InfoSignature::Good } else { InfoSignature::Wrong };
            prop_assert_eq!(info(&[(ID, &changed)]).signature(ID, KEY), expected);
        }
    }
}
