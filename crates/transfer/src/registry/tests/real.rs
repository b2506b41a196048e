//! Pulling from Debian's `docker-registry`, filled by `skopeo`, with TLS of a private authority and a login.

use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};
use testing::registry::{DockerRegistry, login};

use super::*;

struct Registry(DockerRegistry);

fn run(program: &str, directory: &Path, arguments: &[&str]) {
    let output = Command::new(program).current_dir(directory).args(arguments).output().expect(program);
    assert!(output.status.success(), "{program}: {}", String::from_utf8_lossy(&output.stderr));
}

/// A private authority and a certificate of it for 127.0.0.1.
fn certificates(directory: &Path) {
    let authority = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=authority \
                     -keyout ca.key -out ca.pem -addext basicConstraints=critical,CA:TRUE";
    let request = "req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -subj /CN=registry -keyout key.pem \
                   -out request.pem";
    let signing = "x509 -req -in request.pem -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -out cert.pem \
                   -extfile names";
    fs::write(directory.join("names"), "subjectAltName=IP:127.0.0.1\nbasicConstraints=CA:FALSE\n").unwrap();
    for line in [authority, request, signing] {
        run("openssl", directory, &line.split_whitespace().collect::<Vec<_>>());
    }
}

impl Registry {
    /// `auth` gives the part of its configuration about logins, from its directory.
    fn start(auth: impl FnOnce(&Path) -> Value) -> Self {
        Self(DockerRegistry::start(|directory, config| {
            certificates(directory);
            let (certificate, key) = (directory.join("cert.pem"), directory.join("key.pem"));
            config["http"]["tls"] = json!({ "certificate": certificate, "key": key });
            config["auth"] = auth(directory);
        }))
    }

    fn host(&self) -> &str {
        &self.0.address
    }

    fn directory(&self) -> &Path {
        self.0.directory.path()
    }

    /// Puts an image of one layer into the registry; returns its manifest.
    fn push(&self, layer: &[u8]) -> Vec<u8> {
        let layout = self.directory().join("layout");
        let blobs = layout.join("blobs/sha256");
        fs::create_dir_all(&blobs).unwrap();
        let store = |media_type: &str, bytes: &[u8]| {
            let digest = Digest::of(bytes);
            fs::write(blobs.join(digest.to_string()), bytes).unwrap();
            json!({ "mediaType": media_type, "digest": digest.oci(), "size": bytes.len() })
        };
        let oci = |kind: &str| format!("application/vnd.oci.image.{kind}");
        let config = json!({
            "architecture": "amd64", "os": "linux",
            "rootfs": { "type": "layers", "diff_ids": [Digest::of(layer).oci()] },
        });
        let manifest = serde_json::to_vec_pretty(&json!({
            "schemaVersion": 2, "mediaType": oci("manifest.v1+json"),
            "config": store(&oci("config.v1+json"), &serde_json::to_vec(&config).unwrap()),
            "layers": [store(&oci("layer.v1.tar"), layer)],
        }))
        .unwrap();
        let index = json!({
            "schemaVersion": 2, "manifests": [store(&oci("manifest.v1+json"), &manifest)],
        });
        fs::write(layout.join("index.json"), index.to_string()).unwrap();
        fs::write(layout.join("oci-layout"), r#"{"imageLayoutVersion":"1.0.0"}"#).unwrap();
        let target = format!("docker://{}/app/web:1", self.host());
        fs::create_dir(self.directory().join("trusted")).unwrap();
        fs::copy(self.directory().join("ca.pem"), self.directory().join("trusted/ca.crt")).unwrap();
        let login = ["--dest-creds", "user:hunter2", "--dest-cert-dir", "trusted"];
        let rest = ["--insecure-policy", "copy", "--preserve-digests", "oci:layout", &target];
        run("skopeo", self.directory(), &[&rest[..3], &login, &rest[3..]].concat());
        manifest
    }

    /// The setting that names the authority.
    fn ca_file(&self) -> String {
        format!("ca_file: {}", self.directory().join("ca.pem").display())
    }

    fn client(&self, password: &str, tls: &str) -> Client {
        let auth = format!("{{username: user, password: {password}}}");
        let yaml = format!("configs: {{\"{}\": {{auth: {auth}, tls: {{{tls}}}}}}}", self.host());
        Client::new(Settings {
            retry: RetryPolicy { read: Duration::from_secs(30), ..retry() },
            ..settings(&yaml)
        })
        .unwrap()
    }
}

#[test]
fn an_image_comes_from_a_real_registry_with_tls_and_a_login_as_it_was_pushed() {
    let registry = Registry::start(login);
    let layer = content();
    let manifest = registry.push(&layer);
    let host = registry.host();
    let client = registry.client("hunter2", &registry.ca_file());
    let by_tag = client.document(&image(&format!("{host}/app/web:1"))).unwrap();
    assert_eq!((&by_tag.bytes, by_tag.digest), (&manifest, Digest::of(&manifest)));
    let by_digest = format!("{host}/app/web@{}", by_tag.digest.oci());
    assert_eq!(client.document(&image(&by_digest)).unwrap(), by_tag);
    assert_eq!(read(&client, host, 0).unwrap(), layer);
    assert_eq!(read(&client, host, 123_456).unwrap(), layer[123_456..]);
    let repository = image(&by_digest).repository().clone();
    client.probe(&repository, Digest::of(&layer), layer.len() as u64).unwrap();
    client.probe(&repository, Digest::of(b"other"), 5).unwrap_err();

    let told = |client: &Client, name: &str| {
        let error = client.document(&image(&format!("{host}/{name}"))).unwrap_err();
        assert_eq!(class_of(&error), Class::Network);
        render(&error)
    };
    let missing = told(&client, "app/web:2");
    assert!(missing.contains("does not have this tag or digest (404)"), "{missing}");
    let wrong = told(&registry.client("hunter3", &registry.ca_file()), "app/web:1");
    assert!(wrong.contains("does not accept the user name and the password (401)"), "{wrong}");
    let unknown = told(&registry.client("hunter2", ""), "app/web:1");
    assert!(unknown.contains("ca_file") && unknown.contains("certificate"), "{unknown}");
    assert!(!unknown.contains("gave up after"), "{unknown}");

    let pem = fs::read_to_string(registry.directory().join("ca.pem")).unwrap();
    let yaml = format!("configs: {{\"{host}\": {{auth: {{auth: dXNlcjpodW50ZXIy}}}}}}");
    let general = Settings { authorities: vec![pem], ..settings(&yaml) };
    let careless = registry.client("hunter2", "insecure_skip_verify: true");
    for client in [Client::new(general).unwrap(), careless] {
        assert_eq!(client.document(&image(&by_digest)).unwrap().bytes, by_tag.bytes);
        assert_eq!(read(&client, host, 0).unwrap(), layer);
    }
}

#[test]
fn a_password_for_a_registry_with_tls_is_not_sent_in_clear_text() {
    let listener = Fake::start(|_| Answer::ok(br#"{"token": "t"}"#));
    let realm = format!("{}/token", listener.url());
    let registry = Registry::start(|directory| {
        let bundle = directory.join("cert.pem");
        json!({ "token": { "realm": realm, "service": "s", "issuer": "i", "rootcertbundle": bundle } })
    });
    let client = registry.client("hunter2", &registry.ca_file());
    let text = render(&client.document(&image(&format!("{}/app/web:1", registry.host()))).unwrap_err());
    assert!(text.contains("at an address without TLS"), "{text}");
    assert!(listener.requests("").is_empty());
}
