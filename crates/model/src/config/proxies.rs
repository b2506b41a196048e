//! The proxies that a configuration names, and what is reached without them: variables of the node's environment, or the
//! cluster's setting `http-proxy`, a JSON object with `httpProxy`, `httpsProxy` and `noProxy`.

use std::borrow::Cow;
use std::net::Ipv4Addr;

use base::url::is_scheme;
use serde_json::Value;

use super::cidr::ParseCidrError;
use super::{Cidr, InstallConfig, Method, Mode, Role};

/// The cluster's setting.
pub const SETTING: &str = "http-proxy";
/// The variable that lists what is reached without proxies, in any case.
const EXCEPTIONS: &str = "no_proxy";

/// Proxies by their URLs, which may hold passwords.
#[derive(Clone, Default, PartialEq, Eq)]
#[allow(missing_debug_implementations)]
pub struct ProxySettings {
    /// For `http://`.
    pub http: Option<String>,
    /// For `https://`.
    pub https: Option<String>,
    /// Destinations without a proxy, joined by commas; always with those of [`InstallConfig::internal_hosts`].
    pub none: Option<String>,
}

impl InstallConfig {
    /// The proxies for what the installer fetches. The environment of the node is stronger than the setting.
    #[must_use]
    pub fn proxies(&self) -> ProxySettings {
        let setting = self.system_settings.get(SETTING).map(|setting| setting.expose());
        // The rules of the document have refused what does not parse.
        self.named(&setting.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default())
    }

    /// The proxies for the services of the node, which `os.environment` alone names: the setting belongs to the cluster, where
    /// it can change.
    #[must_use]
    pub fn node_proxies(&self) -> ProxySettings {
        self.named(&Value::Null)
    }

    fn named(&self, setting: &Value) -> ProxySettings {
        let find = |variable: &str, key: &str| {
            let given = self.variables(variable).next().map(|(_, value)| value.to_owned());
            let found = given.or_else(|| setting[key].as_str().map(str::to_owned));
            found.filter(|text| !text.is_empty())
        };
        let (http, https) = (find("http_proxy", "httpProxy"), find("https_proxy", "httpsProxy"));
        if http.is_none() && https.is_none() {
            return ProxySettings::default();
        }
        let mut listed: Vec<&str> = self.exceptions().map(|(_, list)| list).collect();
        if listed.is_empty() {
            listed.extend(setting["noProxy"].as_str());
        }
        let none = Some(with_internal(&listed.join(","), &self.internal_hosts()));
        ProxySettings { http, https, none }
    }

    /// Variables of the environment that list what is reached without proxies, as they are spelled.
    pub fn exceptions(&self) -> impl Iterator<Item = (&str, &str)> {
        self.variables(EXCEPTIONS)
    }

    /// Variables of the environment that name proxies, as they are spelled.
    pub fn proxy_variables(&self) -> impl Iterator<Item = (&str, &str)> {
        let all = self.os.environment.iter().map(|(name, value)| (name.as_str(), &**value));
        all.filter(|(name, value)| is_proxy(name) && !value.is_empty())
    }

    /// Variables of this name in any case, the lower case first, as curl(1) has it.
    fn variables(&self, name: &str) -> impl Iterator<Item = (&str, &str)> {
        let all = self.os.environment.iter().rev();
        all.filter(move |(known, _)| known.eq_ignore_ascii_case(name))
            .map(|(known, value)| (known.as_str(), &**value))
    }

    /// The addresses that certainly belong to the node or its cluster, according to the document: none is behind a proxy. The
    /// addresses that a DHCP server gives are not among it, nor are ranges that a worker is not told of.
    #[must_use]
    pub fn internal_hosts(&self) -> Vec<String> {
        let install = &self.install;
        let mut hosts = vec!["localhost".to_owned(), Ipv4Addr::LOCALHOST.to_string()];
        hosts.extend(self.static_subnet().map(|subnet| subnet.to_string()));
        if install.mode == Mode::Install {
            return hosts;
        }
        hosts.extend(install.vip.map(|vip| vip.to_string()));
        hosts.extend(self.server_url.as_ref().map(|url| url.host().to_owned()));
        let is_worker = install.mode == Mode::Join && install.role == Role::Worker;
        if !is_worker || install.cluster_pod_cidr.is_some() {
            hosts.push(install.pods().to_string());
        }
        if !is_worker || install.cluster_service_cidr.is_some() {
            hosts.push(install.services().to_string());
        }
        hosts.extend([".svc", ".cluster.local"].map(str::to_owned));
        hosts
    }

    /// The subnet of the management network, where the document gives it.
    #[must_use]
    pub fn static_subnet(&self) -> Option<Cidr> {
        let management = self.install.management_interface.as_ref();
        let management = management.filter(|management| management.method == Method::Static)?;
        // The rules of the document refuse a mask with gaps.
        let length = u8::try_from(management.subnet_mask?.to_bits().leading_ones()).ok()?;
        Some(Cidr::containing(management.ip?, length)).filter(|subnet| subnet.length() > 0)
    }
}

/// True if a variable of this name holds a proxy, such as `https_proxy` and `ALL_PROXY`.
#[must_use]
pub fn is_proxy(name: &str) -> bool {
    let name = name.to_ascii_lowercase();
    name.ends_with("_proxy") && name != EXCEPTIONS
}

/// A proxy without the name and the password in its URL, which may lack a scheme. A proxy has no path, so that whatever is before
/// the last `@` is a login, with characters that a URL would have to encode as well.
#[must_use]
pub fn without_login(url: &str) -> Cow<'_, str> {
    // A password may have these characters too.
    let scheme = url.find("://").filter(|end| is_scheme(&url[..*end]));
    let start = scheme.map_or(0, |end| end + "://".len());
    match url[start..].rfind('@') {
        Some(login) => Cow::Owned(format!("{}{}", &url[..start], &url[start + login + 1..])),
        None => Cow::Borrowed(url),
    }
}

/// Those of `hosts` that a list of exceptions does not cover.
#[must_use]
pub fn uncovered<'h>(list: &str, hosts: &'h [String]) -> Vec<&'h str> {
    let covered = |host: &str| entries(list).any(|entry| covers(entry, host));
    hosts.iter().map(String::as_str).filter(|host| !covered(host)).collect()
}

/// A list of exceptions with those of `hosts` that it does not cover. What looks like the URL of a proxy is left out, for it
/// may hold a password.
#[must_use]
pub fn with_internal(list: &str, hosts: &[String]) -> String {
    let kept = entries(list).filter(|entry| !entry.contains('@'));
    kept.chain(uncovered(list, hosts)).collect::<Vec<_>>().join(",")
}

/// Commas or spaces are between entries.
fn entries(list: &str) -> impl Iterator<Item = &str> {
    list.split([',', ' ', '\t']).filter(|entry| !entry.is_empty())
}

/// True if an exception, as Go's `net/http` and curl(1) read it, is good for a host, a network, or all names that end so.
fn covers(entry: &str, wanted: &str) -> bool {
    if entry == "*" || entry.eq_ignore_ascii_case(wanted) {
        return true;
    }
    match (network(entry), network(wanted)) {
        (Some(entry), Some(wanted)) => entry.length() <= wanted.length() && entry.contains(wanted.address()),
        (None, None) => {
            let domain = entry.trim_start_matches('*').trim_start_matches('.').to_ascii_lowercase();
            let wanted = wanted.trim_start_matches('.').to_ascii_lowercase();
            let rest = wanted.strip_suffix(&domain);
            !domain.is_empty() && rest.is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        }
        _ => false,
    }
}

/// An address or a network; also one that is written with the address of a machine in it.
fn network(text: &str) -> Option<Cidr> {
    match text.parse::<Cidr>() {
        Ok(network) | Err(ParseCidrError::Host(network)) => Some(network),
        Err(ParseCidrError::Form) => Some(Cidr::containing(text.parse().ok()?, 32)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::parse;
    use proptest::prelude::*;

    #[test]
    fn the_environment_of_the_node_is_stronger_than_the_setting() {
        let text = r#"
os: {environment: {HTTPS_PROXY: "http://b:3128", no_proxy: ".example.org"}}
system_settings: {http-proxy: '{"httpProxy": "http://a:3128", "httpsProxy": "http://a:3128", "noProxy": "a"}'}
"#;
        let config = parse(text, "f").unwrap();
        let named = config.proxies();
        assert_eq!(named.http.as_deref(), Some("http://a:3128"));
        assert_eq!(named.https.as_deref(), Some("http://b:3128"));
        let none = ".example.org,localhost,127.0.0.1,10.52.0.0/16,10.53.0.0/16,.svc,.cluster.local";
        assert_eq!(named.none.as_deref(), Some(none));
        assert_eq!(config.node_proxies().http, None);
        assert!(parse("{}", "f").unwrap().proxies() == ProxySettings::default());
        assert!(
            parse("os: {environment: {NO_PROXY: a}}", "f").unwrap().proxies() == ProxySettings::default()
        );
    }

    #[test]
    fn variables_count_in_any_case() {
        let text = "os: {environment: {Http_Proxy: 'http://a:1', HTTPS_PROXY: 'http://b:1', https_proxy: 'http://c:1', \
                    NO_PROXY: one, no_proxy: two}}";
        let named = parse(text, "f").unwrap().node_proxies();
        assert_eq!((named.http.as_deref(), named.https.as_deref()), (Some("http://a:1"), Some("http://c:1")));
        assert!(named.none.unwrap().starts_with("two,one,localhost,"));
    }

    #[test]
    fn what_is_internal_is_what_the_document_tells() {
        let of = |text: &str| parse(text, "f").unwrap().internal_hosts().join(",");
        assert_eq!(of("install: {mode: install}"), "localhost,127.0.0.1");
        let card = "management_interface: {interfaces: [{name: ens3}]";
        let first = format!(
            "token: a\nos: {{dns_nameservers: [192.0.2.53]}}\ninstall: {{mode: create, vip: 192.0.2.10, cluster_pod_cidr: \
             10.60.0.0/16, {card}, method: static, ip: 192.0.2.11, subnet_mask: 255.255.255.0, gateway: 192.0.2.1}}}}"
        );
        assert_eq!(
            of(&first),
            "localhost,127.0.0.1,192.0.2.0/24,192.0.2.10,10.60.0.0/16,10.53.0.0/16,.svc,.cluster.local"
        );
        let join = |role: &str| {
            format!(
                "server_url: https://cluster.example.org\ninstall: {{mode: join, role: {role}, {card}}}}}"
            )
        };
        assert_eq!(of(&join("worker")), "localhost,127.0.0.1,cluster.example.org,.svc,.cluster.local");
        assert!(of(&join("management")).contains(",10.52.0.0/16,10.53.0.0/16,"));
    }

    #[test]
    fn an_exception_covers_what_programs_take_it_for() {
        for (entry, wanted) in [
            ("*", "10.52.0.0/16"),
            ("LOCALHOST", "localhost"),
            ("127.0.0.0/8", "127.0.0.1"),
            ("127.0.0.1/8", "127.0.0.1"),
            ("10.0.0.0/8", "10.52.0.0/16"),
            ("192.0.2.10/32", "192.0.2.10"),
            ("svc", ".svc"),
            ("*.svc", ".svc"),
            (".local", ".cluster.local"),
            ("example.org", "cluster.example.org"),
        ] {
            assert!(covers(entry, wanted), "{entry} for {wanted}");
        }
        for (entry, wanted) in [
            ("10.52.0.0/24", "10.52.0.0/16"),
            ("192.0.2.1", "192.0.2.0/24"),
            ("ample.org", "cluster.example.org"),
            ("cluster.example.org", "example.org"),
            ("localhost:80", "localhost"),
            (".", ".svc"),
            ("10.52", "10.52.0.0/16"),
        ] {
            assert!(!covers(entry, wanted), "{entry} for {wanted}");
        }
    }

    #[test]
    fn a_login_goes_from_a_proxy_and_all_else_stays() {
        for (given, left) in [
            ("http://me:hush@proxy.example.org:3128/", "http://proxy.example.org:3128/"),
            ("http://me@proxy.example.org", "http://proxy.example.org"),
            ("me:h@sh@proxy.example.org:3128", "proxy.example.org:3128"),
            ("me:h://sh@proxy.example.org:3128", "proxy.example.org:3128"),
            (":hush://@proxy.example.org:3128", "proxy.example.org:3128"),
            ("http://me:h/s#h@proxy.example.org:3128", "http://proxy.example.org:3128"),
            ("proxy.example.org", "proxy.example.org"),
        ] {
            assert_eq!(without_login(given), left);
        }
        assert!(
            is_proxy("ALL_PROXY") && is_proxy("https_proxy") && !is_proxy("No_Proxy") && !is_proxy("proxy")
        );
    }

    proptest! {
        #[test]
        fn a_completed_list_lacks_nothing_and_is_not_completed_twice(list in "[a-z0-9.,*/ -]{0,40}") {
            let hosts = parse("{}", "f").unwrap().internal_hosts();
            let whole = with_internal(&list, &hosts);
            prop_assert!(uncovered(&whole, &hosts).is_empty(), "{}", whole);
            prop_assert_eq!(with_internal(&whole, &hosts), whole);
        }
    }
}
