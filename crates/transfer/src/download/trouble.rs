//! Errors of a transfer, and whether they are retried.

use std::error::Error;

use reqwest::StatusCode;
use reqwest::blocking::Response;

use super::cause::{Absent, Unreachable, is_passing, reason};
use super::redirect::NoAnswer;
use super::retry::Passing;
use base::failure::{Class, Failure};
use base::url::shown;

pub(super) enum TransferTrouble {
    Passing(Passing),
    Lasting(Failure),
}

impl TransferTrouble {
    pub(super) fn passing(why: impl Into<String>) -> Self {
        Self::Passing(Passing::new(why))
    }
}

/// A failure of downloading `url` that another attempt does not mend.
pub(super) fn lasting(
    url: &str,
    hint: &str,
    class: Class,
    why: impl Into<Box<dyn Error + Send + Sync>>,
) -> TransferTrouble {
    let failure = Failure::new(class, format!("downloading {}", shown(url)));
    TransferTrouble::Lasting(failure.because(why).hint(hint))
}

/// The failure after the last attempt.
pub(super) fn given_up(what: String, why: &str) -> Failure {
    Failure::new(Class::Network, what)
        .because(anyhow::anyhow!("{why}"))
        .hint("Check the network and the server, then start again.")
}

pub(super) fn of_no_answer(url: &str, hint: &str, why: NoAnswer) -> TransferTrouble {
    match why {
        NoAnswer::Request(error) => match Unreachable::of(&error) {
            Some(why) => lasting(url, why.fault.hint().unwrap_or(hint), why.fault.class(), why),
            None => TransferTrouble::passing(reason(&error)),
        },
        NoAnswer::Redirect(why) => lasting(url, why.hint(), Class::Network, why),
        NoAnswer::Address => lasting(url, hint, Class::Invalid, "it is not an http or https URL"),
    }
}

pub(super) fn of_status(url: &str, hint: &str, response: &Response) -> TransferTrouble {
    match response.status() {
        StatusCode::NOT_FOUND | StatusCode::GONE => {
            let failure = Failure::new(Class::Network, format!("{} is missing", shown(url)));
            TransferTrouble::Lasting(failure.because(Absent).hint(hint))
        }
        status if is_passing(status) => {
            let trouble = Passing::new(format!("the server answered {status}"));
            TransferTrouble::Passing(trouble.asking(response.headers()))
        }
        status => lasting(url, hint, Class::Network, format!("the server answered {status}")),
    }
}
