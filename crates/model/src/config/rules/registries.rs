//! The setting that every node needs before it can ask the cluster for settings.

use super::finding::Finding;
use crate::config::InstallConfig;
use crate::config::registries::{Registries, SETTING};

/// The value becomes the node's own file, so it is read now.
pub(super) fn are_readable(config: &InstallConfig) -> Vec<Finding> {
    let setting = config.system_settings.get(SETTING);
    let unreadable = setting.is_some_and(|value| Registries::parse(value.expose()).is_none());
    let message = "the value is not a JSON object with Mirrors, Configs and Auths as the cluster's \
                   setting has them";
    let finding = || Finding::new(format!("system_settings.{SETTING}"), "invalid-registries", message);
    unreadable.then(finding).into_iter().collect()
}

#[cfg(test)]
mod tests {
    use crate::config::check;

    #[test]
    fn registries_that_cannot_be_read_are_refused_and_not_shown() {
        assert!(check(r#"system_settings: {containerd-registry: '{"Mirrors": null}'}"#, "f").is_ok());
        let invalid =
            check(r#"system_settings: {containerd-registry: '{"Mirrors": "marked"}'}"#, "f").unwrap_err();
        assert!(!invalid.to_string().contains("marked"));
        let found: Vec<_> = invalid.0.iter().map(|mistake| (&*mistake.path, mistake.code)).collect();
        assert_eq!(found, [("system_settings.containerd-registry", "invalid-registries")]);
    }
}
