//! Owners of files.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Owner {
    pub user: u32,
    pub group: u32,
}

impl Owner {
    pub const ROOT: Self = Self { user: 0, group: 0 };
}
