//! One file of ours in the OS image.

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SystemFile {
    /// Relative to the root.
    pub path: String,
    pub content: SystemFileContent,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SystemFileContent {
    Text(String),
    Link(String),
}

pub(super) fn text(path: &str, text: String) -> SystemFile {
    SystemFile { path: path.to_owned(), content: SystemFileContent::Text(text) }
}

pub(super) fn link(path: &str, target: &str) -> SystemFile {
    SystemFile { path: path.to_owned(), content: SystemFileContent::Link(target.to_owned()) }
}
