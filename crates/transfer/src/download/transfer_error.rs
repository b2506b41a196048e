//! Errors of a transfer, and whether they are retried.

use std::error::Error;

use reqwest::StatusCode;
use reqwest::blocking::Response;

use super::cause::{ConnectionError, NotFoundError, is_temporary, reason};
use super::redirect::RequestError;
use super::retry::TemporaryError;
use base::failure::{Class, Failure};
use base::url::shown;

pub(super) enum TransferError {
    Temporary(TemporaryError),
    Permanent(Failure),
}

impl TransferError {
    pub(super) fn temporary(why: impl Into<String>) -> Self {
        Self::Temporary(TemporaryError::new(why))
    }
}

/// A failure of downloading `url` that another attempt does not mend.
pub(super) fn permanent(
    url: &str,
    hint: &str,
    class: Class,
    why: impl Into<Box<dyn Error + Send + Sync>>,
) -> TransferError {
    let failure = Failure::new(class, format!("downloading {}", shown(url)));
    TransferError::Permanent(failure.because(why).hint(hint))
}

/// The failure after the last attempt.
pub(super) fn given_up(what: String, why: &str) -> Failure {
    Failure::new(Class::Network, what)
        .because(anyhow::anyhow!("{why}"))
        .hint("Check the network and the server, then start again.")
}

pub(super) fn of_no_answer(url: &str, hint: &str, why: RequestError) -> TransferError {
    match why {
        RequestError::Request(error) => match ConnectionError::of(&error) {
            Some(why) => permanent(url, why.fault.hint().unwrap_or(hint), why.fault.class(), why),
            None => TransferError::temporary(reason(&error)),
        },
        RequestError::Redirect(why) => permanent(url, why.hint(), Class::Network, why),
        RequestError::Address => permanent(url, hint, Class::Invalid, "it is not an http or https URL"),
    }
}

pub(super) fn of_status(url: &str, hint: &str, response: &Response) -> TransferError {
    match response.status() {
        StatusCode::NOT_FOUND | StatusCode::GONE => {
            let failure = Failure::new(Class::Network, format!("{} is missing", shown(url)));
            TransferError::Permanent(failure.because(NotFoundError).hint(hint))
        }
        status if is_temporary(status) => {
            let trouble = TemporaryError::new(format!("the server answered {status}"));
            TransferError::Temporary(trouble.asking(response.headers()))
        }
        status => permanent(url, hint, Class::Network, format!("the server answered {status}")),
    }
}
