//! Proxies that a configuration names.
//!
//! The proxies are global, like the environment: the last [`choose`] holds for every client that is made afterwards, in place
//! of `http_proxy` and similar variables.

use std::sync::{PoisonError, RwLock};

use anyhow::Result;
use reqwest::blocking::ClientBuilder;
use reqwest::{NoProxy, Proxy};

use base::failure::{Class, Failure};

static CHOSEN: RwLock<Option<Proxies>> = RwLock::new(None);

/// The proxies for plain and for encrypted connections. Their URLs may hold passwords.
#[derive(Clone, Default)]
#[allow(missing_debug_implementations)]
pub struct Proxies {
    http: Option<String>,
    https: Option<String>,
    /// Hosts, domains and networks to connect to directly, joined by commas.
    none: Option<String>,
}

impl Proxies {
    /// Proxies by their URLs, without a scheme if they speak HTTP; and the hosts, domains and networks that are
    /// reached without them, joined by commas.
    pub fn new(http: Option<&str>, https: Option<&str>, none: Option<&str>) -> Result<Self> {
        let url = |url: &str| if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
        let given = |proxy: Option<&str>| proxy.filter(|proxy| !proxy.trim().is_empty()).map(url);
        let proxies = Self { http: given(http), https: given(https), none: none.map(str::to_owned) };
        // The cause could quote the URL with its password.
        let wrong = |_| Failure::new(Class::Invalid, "a proxy in the configuration is not a valid URL");
        proxies.list().map_err(wrong)?;
        Ok(proxies)
    }

    fn is_empty(&self) -> bool {
        self.http.is_none() && self.https.is_none()
    }

    fn list(&self) -> reqwest::Result<Vec<Proxy>> {
        let http = self.http.as_ref().map(Proxy::http).transpose()?;
        let https = self.https.as_ref().map(Proxy::https).transpose()?;
        let none = self.none.as_deref().and_then(NoProxy::from_string);
        Ok([http, https].into_iter().flatten().map(|proxy| proxy.no_proxy(none.clone())).collect())
    }

    fn apply(&self, builder: ClientBuilder) -> ClientBuilder {
        // Invalid URLs were refused at construction.
        let list = self.list().unwrap_or_default();
        list.into_iter().fold(builder, ClientBuilder::proxy)
    }
}

/// Takes `proxies` for all clients that are made from now on; no proxies leave the environment's in place. Answers on
/// a console can change what a configuration said before.
pub fn choose(proxies: Proxies) {
    let chosen = (!proxies.is_empty()).then_some(proxies);
    *CHOSEN.write().unwrap_or_else(PoisonError::into_inner) = chosen;
}

pub(super) fn apply(builder: ClientBuilder) -> ClientBuilder {
    match &*CHOSEN.read().unwrap_or_else(PoisonError::into_inner) {
        Some(proxies) => proxies.apply(builder),
        None => builder,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{BufRead, BufReader, Write};
    use std::net::TcpListener;

    /// A server for one request, whose first line it returns.
    fn once() -> (String, std::thread::JoinHandle<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().unwrap();
            let mut line = String::new();
            BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).unwrap();
            write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").unwrap();
            line
        });
        (address, served)
    }

    fn get(proxies: &Proxies, url: &str) {
        let client = proxies.apply(reqwest::blocking::Client::builder().tls_certs_only([])).build().unwrap();
        client.get(url).send().unwrap();
    }

    #[test]
    fn what_is_fetched_goes_through_the_proxy_but_for_the_exceptions() {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let (proxy, asked) = once();
        get(&Proxies::new(Some(&proxy), None, None).unwrap(), "http://images.example.org/a");
        assert!(asked.join().unwrap().starts_with("GET http://images.example.org/a "));
        let (server, asked) = once();
        let proxies = Proxies::new(Some("http://127.0.0.1:9"), None, Some("example.org,127.0.0.1")).unwrap();
        get(&proxies, &format!("http://{server}/b"));
        assert!(asked.join().unwrap().starts_with("GET /b "));
    }

    #[test]
    fn a_proxy_that_is_no_url_is_told_of_without_its_password() {
        let error = Proxies::new(None, Some("http://me:hush@:x"), None).err().unwrap();
        assert!(!base::failure::render(&error).contains("hush"));
        assert!(Proxies::new(Some(""), Some(" "), Some("a")).unwrap().is_empty());
    }
}
