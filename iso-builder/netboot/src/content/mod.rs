//! The content of the medium that is served: its documents of defaults, and the copy of a medium that another
//! server has. How files reach a client is in [`server`](crate::server).

pub mod defaults;
pub mod fetched;
