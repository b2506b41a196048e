//! The permissions that a login must have (distribution's token specification, "Resource scopes").

/// The access to repositories that a request needs.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RegistryScope {
    path: String,
    writes: bool,
    /// The path of another repository whose blobs are mounted.
    from: Option<String>,
}

impl RegistryScope {
    pub(super) fn pull(path: &str) -> Self {
        Self { path: path.to_owned(), writes: false, from: None }
    }

    pub(super) fn push(path: &str) -> Self {
        Self { writes: true, ..Self::pull(path) }
    }

    /// Adds read access to `from`, to mount its blobs.
    pub(super) fn mounting(self, from: &str) -> Self {
        Self { from: Some(from.to_owned()), ..self }
    }

    /// The scopes for a token service.
    pub(super) fn words(&self) -> Vec<String> {
        let actions = if self.writes { "pull,push" } else { "pull" };
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
        let mounting = RegistryScope::push("a/b").mounting("c");
        assert_eq!(mounting.words(), ["repository:a/b:pull,push", "repository:c:pull"]);
    }
}
