//! Documents: read whole into memory, with a limit, before they are used.
//!
//! A document without a known digest is consistent only if all of it is from one response. So a transfer that breaks off
//! starts again from the first byte.

use std::io::{self, Read};
use std::time::Duration;

use reqwest::StatusCode;
use reqwest::blocking::Response;
use reqwest::header::{ACCEPT_ENCODING, HeaderMap, HeaderValue};

use super::cause::reason;
use super::downloader::Downloader;
use super::redirect;
use super::retry::Attempts;
use super::transfer_error::{self, TransferError};
use base::failure::{Class, Failure};
use base::url::shown;

/// Bytes in one read.
const PIECE: usize = 16 << 10;

/// A response is larger than the limit of a document.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("it has more than {0} bytes")]
pub struct TooLargeError(pub u64);

/// Why the body of a response was not read to its end.
#[derive(Debug)]
pub enum BodyError {
    TooLarge(TooLargeError),
    /// The time limit of all attempts together has passed.
    Late,
    Read(io::Error),
}

impl Downloader {
    /// The file at `url`, of at most `limit` bytes, all of them from one answer.
    ///
    /// # Errors
    /// `Class::Network`; the cause is [`TooLargeError`] where it is larger, and [`super::NotFoundError`] where it does not exist.
    pub fn document(&self, url: &str, limit: u64) -> Result<Vec<u8>, Failure> {
        let mut attempts = Attempts::new(self.retry.for_documents(), url);
        loop {
            match self.attempt(url, limit, &attempts) {
                Ok(bytes) => return Ok(bytes),
                Err(TransferError::Permanent(failure)) => return Err(failure),
                Err(TransferError::Temporary(temporary)) => {
                    let what = || format!("downloading {}", shown(url));
                    attempts.pause(temporary).map_err(|why| transfer_error::given_up(what(), &why))?;
                }
            }
        }
    }

    fn attempt(&self, url: &str, limit: u64, attempts: &Attempts) -> Result<Vec<u8>, TransferError> {
        let headers = HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static("identity"))]);
        let response = redirect::get(&self.client, url, &headers, None);
        let response = response.map_err(|why| transfer_error::of_no_answer(url, self.hint, why))?;
        if response.status() != StatusCode::OK {
            return Err(transfer_error::of_status(url, self.hint, &response));
        }
        body(response, limit, attempts).map_err(|error| match error {
            BodyError::TooLarge(cause) => transfer_error::permanent(url, self.hint, Class::Network, cause),
            BodyError::Late => {
                let why = "the transfer timed out";
                TransferError::Permanent(transfer_error::given_up(format!("downloading {}", shown(url)), why))
            }
            BodyError::Read(error) => TransferError::temporary(reason(&error)),
        })
    }
}

/// The body of a response if it has at most `limit` bytes, whatever its head announces, and arrives in the time of
/// `attempts`. No more than that is read.
pub fn body(mut response: Response, limit: u64, attempts: &Attempts) -> Result<Vec<u8>, BodyError> {
    let too_large = || BodyError::TooLarge(TooLargeError(limit));
    if response.content_length().is_some_and(|announced| announced > limit) {
        return Err(too_large());
    }
    let (mut bytes, mut piece) = (Vec::new(), vec![0; PIECE]);
    loop {
        match response.read(&mut piece).map_err(BodyError::Read)? {
            0 => return Ok(bytes),
            count => bytes.extend_from_slice(&piece[..count]),
        }
        if bytes.len() as u64 > limit {
            return Err(too_large());
        }
        if attempts.is_late(Duration::ZERO) {
            return Err(BodyError::Late);
        }
    }
}
