//! The reason why a server gave no answer.

/// Why there is no answer, as clauses that follow the name of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkTrouble {
    /// The server did not answer, or its answer is not valid.
    Silent(String),
    /// The server is not up yet: a later request may succeed, with nothing corrected.
    NotYet(String),
    /// This system cannot ask.
    Unable(String),
}
