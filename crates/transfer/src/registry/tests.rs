//! Pulling from a registry that is told how to behave, and from a real one.

mod environment;
mod limits;
mod logins;
mod mirrors;
mod pulling;
mod real;
mod redirects;
mod referring;
mod uploading;

use std::io::Read;
use std::time::Duration;

use super::*;
use crate::download::RetryPolicy;
use base::failure::{Class, class_of, render};
use fake::{Answer, Fake, Request};
use testing::http as fake;

/// Quick, so that giving up is quick too.
fn retry() -> RetryPolicy {
    RetryPolicy {
        connect: Duration::from_secs(5),
        read: Duration::from_secs(2),
        attempts: 3,
        pause: Duration::from_millis(1),
        limit: None,
    }
}

fn settings(registries: &str) -> Settings {
    let registries = serde_saphyr::from_str(registries).unwrap();
    Settings { registries, retry: retry(), ..Settings::default() }
}

/// A client for one registry without TLS; `more` is further YAML of its configuration.
fn client_of(fake: &Fake, more: &str) -> Client {
    let host = &fake.host;
    let mirrors = format!("mirrors: {{\"{host}\": {{endpoint: [\"http://{host}\"]}}}}\n{more}");
    Client::new(settings(&mirrors)).unwrap()
}

fn image(text: &str) -> ImageReference {
    text.parse().unwrap()
}

/// Bytes that no two places of which look alike.
fn content() -> Vec<u8> {
    (0..200_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
}

const MANIFEST: &[u8] = br#"{ "schemaVersion": 2, "config": {}, "layers": [] }"#;

/// A registry that has one manifest under every name and one blob under its digest, for everybody.
fn plain(request: &Request) -> Answer {
    match request.path.split('?').next().unwrap_or_default() {
        "/v2/" => Answer::ok(b"{}"),
        path if path.contains("/manifests/") => Answer::ok(MANIFEST),
        path if path.ends_with(&format!("/blobs/{}", Digest::of(&content()).oci())) => {
            Answer::range(&content(), request)
        }
        _ => Answer::error(404, "BLOB_UNKNOWN"),
    }
}

fn read(client: &Client, host: &str, offset: u64) -> anyhow::Result<Vec<u8>> {
    let content = content();
    let image = image(&format!("{host}/app/web:1"));
    let size = content.len() as u64;
    let mut reader = client.blob(image.repository(), Digest::of(&content), size, offset)?;
    let mut bytes = Vec::new();
    reader.read_to_end(&mut bytes)?;
    Ok(bytes)
}
