//! The settings of a client.

use base::size::ByteSize;
use model::config::registries::Registries;

use crate::download::RetryPolicy;

#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Mirrors, logins and certificates of single hosts.
    pub registries: Registries,
    /// Trusted CA certificates (PEM), in addition to those of the machine.
    pub authorities: Vec<String>,
    /// True if to use the logins of docker (`$DOCKER_CONFIG` or `~/.docker`), where `registries` has none.
    pub docker_config: bool,
    pub retry: RetryPolicy,
    /// Bytes a second, all transfers together.
    pub rate: Option<ByteSize>,
}
