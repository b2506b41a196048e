//! Why a question to the network has no answer.

/// Why there is no answer, as clauses that follow the name of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NetworkTrouble {
    /// Asked, and no good answer came.
    Silent(String),
    /// Asked, and the answer is that of a server that is not up yet: it may be good later, with nothing corrected.
    NotYet(String),
    /// Not asked: this system has no way to.
    Unable(String),
}
