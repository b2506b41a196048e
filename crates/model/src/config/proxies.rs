//! The proxies that a configuration names: variables of the node's environment, or the cluster's setting
//! `http-proxy`, a JSON object with `httpProxy`, `httpsProxy` and `noProxy`.

use super::InstallConfig;

/// The cluster's setting.
const SETTING: &str = "http-proxy";

/// Proxies by their URLs, which may hold passwords.
#[derive(Clone, Default, PartialEq, Eq)]
#[allow(missing_debug_implementations)]
pub struct Named {
    /// For `http://`.
    pub http: Option<String>,
    /// For `https://`.
    pub https: Option<String>,
    /// What is reached without them.
    pub none: Option<String>,
}

impl InstallConfig {
    /// The proxies for what the installer fetches. The environment of the node is stronger than the setting.
    #[must_use]
    pub fn proxies(&self) -> Named {
        let setting = self.system_settings.get(SETTING).map(|setting| setting.expose());
        // The rules of the document have refused what does not parse.
        let setting: serde_json::Value =
            setting.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
        let find = |variable: &str, key: &str| {
            let upper = variable.to_uppercase();
            let variable = [variable, &upper].into_iter().find_map(|name| self.os.environment.get(name));
            let found =
                variable.map(ToString::to_string).or_else(|| setting[key].as_str().map(str::to_owned));
            found.filter(|text| !text.is_empty())
        };
        Named {
            http: find("http_proxy", "httpProxy"),
            https: find("https_proxy", "httpsProxy"),
            none: find("no_proxy", "noProxy"),
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::config::parse;

    #[test]
    fn the_environment_of_the_node_is_stronger_than_the_setting() {
        let text = r#"
os: {environment: {HTTPS_PROXY: "http://b:3128", no_proxy: ".example.org"}}
system_settings: {http-proxy: '{"httpProxy": "http://a:3128", "httpsProxy": "http://a:3128"}'}
"#;
        let named = parse(text, "f").unwrap().proxies();
        assert_eq!(named.http.as_deref(), Some("http://a:3128"));
        assert_eq!(named.https.as_deref(), Some("http://b:3128"));
        assert_eq!(named.none.as_deref(), Some(".example.org"));
        assert!(parse("{}", "f").unwrap().proxies() == super::Named::default());
    }
}
