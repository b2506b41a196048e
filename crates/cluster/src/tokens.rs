//! Removes tokens that a node does not need from its document, so that the disk of an agent or a witness cannot add a server.

use std::path::Path;

use anyhow::Result;

use base::files;
use model::config::InstallConfig;

/// Removes the token of servers from the document of an agent, which earlier releases left there. Returns whether it had one.
///
/// # Errors
/// If the document cannot be read or written, or its token cannot be read.
pub fn forget_foreign(document: &Path) -> Result<bool> {
    rewrite(document, InstallConfig::without_foreign_tokens)
}

/// Removes the token of servers from the document of a node that has joined. The document cannot install a machine unattended any
/// more. Returns whether there was a token.
///
/// # Errors
/// If the document cannot be read or written.
pub fn forget_of_servers(document: &Path) -> Result<bool> {
    rewrite(document, |mut config| {
        if config.token.is_some() {
            (config.token, config.install.automatic) = (None, false);
        }
        Ok(config)
    })
}

/// Replaces the document where `change` changes it. One that is no configuration stays as it is: who applies it says why.
fn rewrite(document: &Path, change: impl FnOnce(InstallConfig) -> Result<InstallConfig>) -> Result<bool> {
    let text = files::read_text(document)?;
    let Ok(config) = serde_saphyr::from_str::<InstallConfig>(&text) else { return Ok(false) };
    let changed = change(config.clone())?;
    if changed == config {
        return Ok(false);
    }
    files::write_atomically(document, changed.to_yaml().as_bytes(), 0o600)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;
    use model::config::cluster_secrets::agent_token;
    use model::config::{Secret, load};
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    const TOKEN: &str = "1b161e5c1fa7425e73043362938b98241b5f3f0c2f3c4a5d";

    fn document(text: &str) -> (tempfile::TempDir, std::path::PathBuf) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("node.yaml");
        fs::write(&path, text).unwrap();
        (directory, path)
    }

    fn joins(role: &str, rest: &str) -> String {
        format!(
            "server_url: https://192.0.2.10\ntoken: {TOKEN}\nos: {{hostname: node-1, password: correct horse battery}}\n\
             install: {{automatic: true, mode: join, role: {role}, device: /dev/sda}}\n\
             kubernetes: {{distribution: kubeadm{rest}}}\n"
        )
    }

    #[test]
    fn an_agent_of_an_earlier_release_loses_the_token_of_servers_once() {
        let derived = agent_token(&Secret::new(TOKEN)).unwrap();
        for (rest, kept) in
            [(", agent_token: of-agents-0123456789ab", "of-agents-0123456789ab"), ("", derived.expose())]
        {
            for role in ["worker", "default"] {
                let (_directory, path) = document(&joins(role, rest));
                assert!(forget_foreign(&path).unwrap());
                let config = load(&path).unwrap();
                assert_eq!((config.token, config.kubernetes.agent_token), (None, Some(Secret::new(kept))));
                assert!(!fs::read_to_string(&path).unwrap().contains(TOKEN));
                assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
                assert!(!forget_foreign(&path).unwrap(), "there is nothing more to forget");
            }
        }
    }

    #[test]
    fn servers_and_documents_with_mistakes_stay_byte_for_byte() {
        for text in [joins("management", ""), joins("witness", ""), "token: [".into(), "a: 1\n".into()] {
            let (_directory, path) = document(&text);
            assert!(!forget_foreign(&path).unwrap());
            assert_eq!(fs::read_to_string(&path).unwrap(), text);
        }
    }

    #[test]
    fn a_witness_without_its_token_still_has_a_document() {
        let (_directory, path) = document(&joins("witness", ""));
        assert!(forget_of_servers(&path).unwrap());
        let config = load(&path).unwrap();
        assert_eq!((config.token, config.os.hostname.unwrap().to_string()), (None, "node-1".into()));
        assert!(!forget_of_servers(&path).unwrap());
    }
}
