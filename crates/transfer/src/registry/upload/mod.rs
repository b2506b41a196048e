//! Uploading to one registry (distribution-spec 1.1, "Push").
//!
//! A blob that exists already is not sent; one that another repository of the registry has is mounted. Otherwise a small
//! blob is sent in one request, and a large one in pieces, so that only one piece is sent again after a broken connection.
//! If the registry does not support pieces, the blob is sent in one request; if it has lost the upload, the blob is sent
//! again.
//!
//! | Module | What it knows |
//! |---|---|
//! | `request` | one request that writes: login, where the registry sends the next one to, what its answer means |
//! | `content` | the bytes that are sent, piece by piece |
//! | `session` | the requests that make one upload |

mod content;
mod request;
mod session;

use anyhow::Result;
use reqwest::header::{CONTENT_TYPE, HeaderValue};
use reqwest::{Method, StatusCode};

use super::endpoint::Endpoint;
use super::problem::{Problem, ProblemKind};
use super::rate::RateLimiter;
use super::site::Site;
use base::digest::Digest;
pub use content::NewBlob;
use formats::oci::ImageReference;
pub(super) use request::UploadError;
use request::{RepositoryWriter, UploadRequestError};
use session::Session;

/// How an upload of a blob ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlobTransfer {
    /// The blob existed already.
    Present,
    /// Mounted from another repository of the same registry.
    Mounted,
    Uploaded,
}

/// A registry's response to a manifest.
#[derive(Debug)]
pub enum ManifestAnswer {
    Taken,
    /// It does not accept manifests of this kind.
    Unsupported(String),
}

/// Puts a blob into the repository of `endpoint`. `told` hears how many of its bytes the registry has.
pub(super) fn blob(
    (site, endpoint): (&Site, &Endpoint),
    blob: &NewBlob<'_>,
    limiter: Option<&RateLimiter>,
    told: &dyn Fn(u64),
) -> Result<BlobTransfer, UploadError> {
    let writer = RepositoryWriter::new(site, endpoint, blob.elsewhere)?;
    let mut attempts = site.transfer_attempts();
    let mut whole = blob.size <= session::PIECE;
    loop {
        let trouble = match attempt(&writer, blob, limiter, whole, told) {
            Ok(transfer) => return Ok(transfer),
            Err(trouble) => trouble,
        };
        match trouble {
            UploadRequestError::Unsupported if !whole => whole = true,
            trouble => writer.bear(&mut attempts, trouble)?,
        }
    }
}

fn attempt(
    writer: &RepositoryWriter<'_>,
    blob: &NewBlob<'_>,
    limiter: Option<&RateLimiter>,
    whole: bool,
    told: &dyn Fn(u64),
) -> Result<BlobTransfer, UploadRequestError> {
    if writer.has(blob.digest, blob.size)? {
        return Ok(BlobTransfer::Present);
    }
    let Some(session) = Session::begin(writer, blob)? else { return Ok(BlobTransfer::Mounted) };
    match whole {
        true => session.send_whole(limiter)?,
        false => session.send_pieces(limiter, told)?,
    }
    Ok(BlobTransfer::Uploaded)
}

/// Puts a manifest under the tag of `image`, or under its digest.
pub(super) fn manifest(
    (site, endpoint): (&Site, &Endpoint),
    image: &ImageReference,
    media_type: &'static str,
    bytes: &[u8],
) -> Result<ManifestAnswer, UploadError> {
    let writer = RepositoryWriter::new(site, endpoint, None)?;
    let url = writer.url("manifests", &image.version())?;
    let digest = Digest::of(bytes);
    let mut attempts = site.transfer_attempts();
    loop {
        let answer = writer.send(&mut |client| {
            let put = client.request(Method::PUT, url.clone()).body(bytes.to_vec());
            Ok(put.header(CONTENT_TYPE, HeaderValue::from_static(media_type)))
        });
        let trouble = match answer {
            Ok(response) if response.status().is_success() => {
                writer.check_digest(&response, digest)?;
                return Ok(ManifestAnswer::Taken);
            }
            Ok(response) if is_unsupported(response.status()) => {
                return Ok(ManifestAnswer::Unsupported(writer.refusal(response).to_string()));
            }
            Ok(response) => writer.trouble(response),
            Err(trouble) => trouble,
        };
        writer.bear(&mut attempts, trouble)?;
    }
}

/// Removes a manifest by its digest (distribution-spec 1.1, "Content Management"). One that is not there counts as removed.
pub(super) fn delete((site, endpoint): (&Site, &Endpoint), digest: Digest) -> Result<(), UploadError> {
    let writer = RepositoryWriter::deleting(site, endpoint)?;
    let url = writer.url("manifests", &digest.oci())?;
    let mut attempts = site.transfer_attempts();
    loop {
        let trouble = match writer.send(&mut |client| Ok(client.request(Method::DELETE, url.clone()))) {
            Ok(response) if response.status().is_success() || response.status() == StatusCode::NOT_FOUND => {
                return Ok(());
            }
            Ok(response) if response.status() == StatusCode::METHOD_NOT_ALLOWED => {
                let why = "it does not let manifests be removed; its administrator can allow it";
                return Err(Problem::new(ProblemKind::Strange, why).into());
            }
            Ok(response) => writer.trouble(response),
            Err(trouble) => trouble,
        };
        writer.bear(&mut attempts, trouble)?;
    }
}

/// True if a registry says by this status that it does not take the kind of manifest.
fn is_unsupported(status: StatusCode) -> bool {
    matches!(
        status,
        StatusCode::BAD_REQUEST
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::NOT_ACCEPTABLE
            | StatusCode::UNSUPPORTED_MEDIA_TYPE
            | StatusCode::UNPROCESSABLE_ENTITY
    )
}
