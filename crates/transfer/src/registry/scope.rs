//! The permissions that a login must have (distribution's token specification, "Resource scopes").

/// The access to repositories that a request needs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RegistryScope {
    path: String,
    access: Access,
    /// The path of another repository whose blobs are mounted.
    from: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Access {
    Pull,
    Push,
    Delete,
}

impl RegistryScope {
    pub(super) fn pull(path: &str) -> Self {
        Self { path: path.to_owned(), access: Access::Pull, from: None }
    }

    pub(super) fn push(path: &str) -> Self {
        Self { access: Access::Push, ..Self::pull(path) }
    }

    /// To remove manifests.
    pub(super) fn delete(path: &str) -> Self {
        Self { access: Access::Delete, ..Self::pull(path) }
    }

    /// Adds read access to `from`, to mount its blobs.
    pub(super) fn mounting(self, from: &str) -> Self {
        Self { from: Some(from.to_owned()), ..self }
    }

    /// The scopes for a token service.
    pub(super) fn words(&self) -> Vec<String> {
        let actions = match self.access {
            Access::Pull => "pull",
            Access::Push => "pull,push",
            Access::Delete => "pull,delete",
        };
        let from = self.from.iter().map(|from| format!("repository:{from}:pull"));
        [format!("repository:{}:{actions}", self.path)].into_iter().chain(from).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writing_needs_reading_and_taking_over_needs_reading_elsewhere() {
        assert_eq!(RegistryScope::pull("a/b").words(), ["repository:a/b:pull"]);
        assert_eq!(RegistryScope::delete("a/b").words(), ["repository:a/b:pull,delete"]);
        let mounting = RegistryScope::push("a/b").mounting("c");
        assert_eq!(mounting.words(), ["repository:a/b:pull,push", "repository:c:pull"]);
    }
}
