//! The requests that make one upload.

use anyhow::Result;
use reqwest::blocking::{Body, Response};
use reqwest::header::{CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, RANGE};
use reqwest::{Method, StatusCode, Url};

use super::content::{BlobReadError, BlobReader, NewBlob, PieceReader};
use super::request::{RepositoryWriter, UploadRequestError};
use crate::download::Attempts;
use crate::registry::problem::{Problem, ProblemKind};
use crate::registry::rate::RateLimiter;

/// Bytes in one piece. Registries on object stores require at least 5 MiB; a piece is kept in memory until it is sent.
pub(super) const PIECE: u64 = 16 << 20;
/// The largest accepted minimum of a piece.
const LARGEST_PIECE: u64 = 128 << 20;
/// The smallest piece that a registry accepts (distribution-spec 1.1, "Pushing a blob in chunks").
const SMALLEST: &str = "OCI-Chunk-Min-Length";
const BYTES: &str = "application/octet-stream";

pub(super) struct Session<'a> {
    writer: &'a RepositoryWriter<'a>,
    blob: &'a NewBlob<'a>,
    /// The address of the next request.
    at: Url,
    piece: u64,
}

impl<'a> Session<'a> {
    /// Begins an upload; none if the registry has mounted the blob from another repository.
    pub(super) fn begin(
        writer: &'a RepositoryWriter<'a>,
        blob: &'a NewBlob<'a>,
    ) -> Result<Option<Self>, UploadRequestError> {
        let url = writer.url("blobs", "uploads/")?;
        let post = |url: &Url| {
            writer.send(&mut |client| Ok(client.request(Method::POST, url.clone()).header(CONTENT_LENGTH, 0)))
        };
        let mut response = match blob.elsewhere {
            Some(repository) => {
                let mut mount = url.clone();
                let mut query = mount.query_pairs_mut();
                query.append_pair("mount", &blob.digest.oci()).append_pair("from", repository.path());
                drop(query);
                post(&mount)?
            }
            None => post(&url)?,
        };
        // Without read access elsewhere the blob can still be uploaded here.
        if blob.elsewhere.is_some() && response.status().is_client_error() {
            response = post(&url)?;
        }
        match response.status() {
            StatusCode::CREATED if blob.elsewhere.is_some() => Ok(None),
            StatusCode::ACCEPTED => {
                let smallest = response.headers().get(SMALLEST).and_then(|value| value.to_str().ok());
                let smallest = smallest.and_then(|value| value.parse().ok()).unwrap_or(0);
                let at = writer.next(&response)?.ok_or_else(|| {
                    Problem::new(ProblemKind::Strange, "it does not name the address of the upload")
                })?;
                let piece = PIECE.max(smallest).min(LARGEST_PIECE);
                Ok(Some(Self { writer, blob, at, piece }))
            }
            _ => Err(writer.trouble(response)),
        }
    }

    pub(super) fn send_whole(&self, limiter: Option<&RateLimiter>) -> Result<(), UploadRequestError> {
        let failed = BlobReadError::default();
        let (at, size) = (self.finish(), self.blob.size);
        let answer = self.writer.send(&mut |client| {
            // Checked before anything is sent where it fits into memory, on the way where it does not.
            let body = match size <= PIECE {
                true => Body::from(PieceReader::open(self.blob, limiter)?.next(size)?),
                false => Body::sized(BlobReader::open(self.blob, limiter, &failed)?, size),
            };
            let request = client.request(Method::PUT, at.clone()).header(CONTENT_TYPE, BYTES);
            Ok(request.timeout(self.writer.time(size)).body(body))
        });
        match failed.take() {
            Some(trouble) => Err(trouble),
            None => self.end(answer?),
        }
    }

    /// Sends the blob piece by piece; `told` hears how much the registry has.
    pub(super) fn send_pieces(
        mut self,
        limiter: Option<&RateLimiter>,
        told: &dyn Fn(u64),
    ) -> Result<(), UploadRequestError> {
        let mut pieces = PieceReader::open(self.blob, limiter)?;
        let mut start = 0;
        while start < self.blob.size {
            let piece = pieces.next(self.piece)?;
            self.send_piece(start, &piece, told)?;
            start += piece.len() as u64;
        }
        let at = self.finish();
        let answer = self
            .writer
            .send(&mut |client| Ok(client.request(Method::PUT, at.clone()).header(CONTENT_LENGTH, 0)))?;
        self.end(answer)
    }

    /// Sends a piece that begins at the byte `start` of the blob; after a broken connection what the registry lacks of it.
    fn send_piece(&mut self, start: u64, piece: &[u8], told: &dyn Fn(u64)) -> Result<(), UploadRequestError> {
        let mut attempts = self.writer.attempts();
        let end = start + piece.len() as u64;
        let mut position = start;
        while position < end {
            let rest = usize::try_from(position - start).ok().and_then(|sent| piece.get(sent..));
            let found = match self.patch(position, rest.unwrap_or_default()) {
                Ok(found) => Ok(found.unwrap_or(end)),
                Err(UploadRequestError::Temporary(temporary)) => {
                    attempts.pause(temporary).map_err(UploadRequestError::temporary)?;
                    self.position(&mut attempts)
                }
                Err(trouble) => Err(trouble),
            }?;
            if !(start..=end).contains(&found) {
                return Err(UploadRequestError::temporary("it has lost the upload"));
            }
            if found > position {
                attempts.succeeded();
            }
            position = found;
            told(position);
        }
        Ok(())
    }

    /// Sends bytes that begin at `position`; returns how many bytes of the blob the registry then has, where it says so.
    fn patch(&mut self, position: u64, bytes: &[u8]) -> Result<Option<u64>, UploadRequestError> {
        let length = bytes.len() as u64;
        let range = format!("{position}-{}", position + length.saturating_sub(1));
        let at = self.at.clone();
        let response = self.writer.send(&mut |client| {
            let request = client.request(Method::PATCH, at.clone()).header(CONTENT_TYPE, BYTES);
            let request = request.header(CONTENT_RANGE, &range).timeout(self.writer.time(length));
            Ok(request.body(bytes.to_vec()))
        })?;
        match response.status() {
            status if status.is_success() => self.move_on(&response),
            StatusCode::BAD_REQUEST
            | StatusCode::NOT_FOUND
            | StatusCode::METHOD_NOT_ALLOWED
            | StatusCode::LENGTH_REQUIRED
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::UNSUPPORTED_MEDIA_TYPE
            | StatusCode::NOT_IMPLEMENTED
                if position == 0 =>
            {
                Err(UploadRequestError::Unsupported)
            }
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::RANGE_NOT_SATISFIABLE => {
                Err(UploadRequestError::temporary("it is not ready for the next piece"))
            }
            _ => Err(self.writer.trouble(response)),
        }
    }

    /// The number of bytes that the registry has.
    fn position(&mut self, attempts: &mut Attempts) -> Result<u64, UploadRequestError> {
        loop {
            let at = self.at.clone();
            let answer = self.writer.send(&mut |client| Ok(client.request(Method::GET, at.clone())));
            let trouble = match answer {
                Ok(response) if response.status().is_success() => {
                    return Ok(self.move_on(&response)?.unwrap_or_default());
                }
                Ok(response) if response.status().is_client_error() => {
                    return Err(UploadRequestError::temporary("it has lost the upload"));
                }
                Ok(response) => self.writer.trouble(response),
                Err(trouble) => trouble,
            };
            match trouble {
                UploadRequestError::Temporary(temporary) => {
                    attempts.pause(temporary).map_err(UploadRequestError::temporary)?;
                }
                trouble => return Err(trouble),
            }
        }
    }

    /// Reads the next address and the number of received bytes from a response.
    fn move_on(&mut self, response: &Response) -> Result<Option<u64>, UploadRequestError> {
        if let Some(next) = self.writer.next(response)? {
            self.at = next;
        }
        let range = response.headers().get(RANGE).and_then(|range| range.to_str().ok());
        Ok(range.and_then(received))
    }

    /// The address of the request that ends the upload.
    fn finish(&self) -> Url {
        let mut url = self.at.clone();
        url.query_pairs_mut().append_pair("digest", &self.blob.digest.oci());
        url
    }

    /// Checks the response to the last request.
    fn end(&self, response: Response) -> Result<(), UploadRequestError> {
        match response.status() {
            status if status.is_success() => Ok(self.writer.check_digest(&response, self.blob.digest)?),
            // It received other bytes, or has lost the upload.
            StatusCode::BAD_REQUEST | StatusCode::NOT_FOUND | StatusCode::RANGE_NOT_SATISFIABLE => {
                let problem = self.writer.refusal(response);
                match problem.kind {
                    ProblemKind::Refused | ProblemKind::Full => Err(UploadRequestError::Permanent(problem)),
                    _ => Err(UploadRequestError::temporary(problem.to_string())),
                }
            }
            _ => Err(self.writer.trouble(response)),
        }
    }
}

/// How many bytes there are by a `Range` of an upload, `0-LAST`. Registries that have none say `0-0` as well as those that
/// have one; no piece has one byte.
fn received(range: &str) -> Option<u64> {
    let range = range.strip_prefix("bytes=").unwrap_or(range);
    let last: u64 = range.strip_prefix("0-")?.trim().parse().ok()?;
    Some(if last == 0 { 0 } else { last + 1 })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_registry_tells_how_many_bytes_it_has() {
        for (range, bytes) in
            [("0-15", Some(16)), ("bytes=0-15", Some(16)), ("0-0", Some(0)), ("5-15", None), ("", None)]
        {
            assert_eq!(received(range), bytes, "{range}");
        }
    }
}
