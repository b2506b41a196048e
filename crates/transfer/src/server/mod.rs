//! The connections of a server: how many there may be, how slow, and how they end. What is answered is the program's.
//!
//! | Module | Content |
//! |---|---|
//! | [`accept`] | the socket that listens, and each connection from start to end |
//! | [`connection_limit`] | how many connections there may be, in all and of one client |
//! | [`transfer_rate`], `tcp_info` | how slow they may be, by counters of the kernel |
//! | `stream` | the stream of a connection, and its end |
//!
//! Only [`accept`], `stream` and `tcp_info` have sockets.

pub mod accept;
pub mod connection_limit;
mod stream;
mod tcp_info;
pub mod transfer_rate;
