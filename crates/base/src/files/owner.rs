//! To whom files belong.

/// To whom a file belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    /// User id.
    pub user: u32,
    /// Group id.
    pub group: u32,
}

impl Owner {
    /// root and its group.
    pub const ROOT: Self = Self { user: 0, group: 0 };
}
