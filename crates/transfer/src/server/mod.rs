//! The code that the servers of both programs share: the limits of connections, and how a file or a part of it is answered.
//! Which files there are, and every other answer, is the program's.
//!
//! | Module | Content |
//! |---|---|
//! | [`accept`] | the socket that listens, and each connection from start to end |
//! | [`connection_limit`] | how many connections there may be, in all and of one client |
//! | [`transfer_rate`], `tcp_info` | how slow they may be, by counters of the kernel |
//! | `stream` | the stream of a connection, and its end |
//! | [`served_file`], [`body`], [`response`] | a file, read piece by piece as the client takes it, and the response with it |
//!
//! Only [`accept`], `stream` and `tcp_info` have sockets.

pub mod accept;
pub mod body;
pub mod connection_limit;
pub mod response;
pub mod served_file;
mod stream;
mod tcp_info;
pub mod transfer_rate;
