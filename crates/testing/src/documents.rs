//! Configurations that tests look for again in what is shown.

/// A document that has a marked value in every place where a secret can be.
pub const MARKED: &str = r#"
token: MARK-token "quoted"
system_settings: {ssl-certificates: '{"ca": "MARK-certificate"}', log-level: info}
os:
  hostname: node-1
  password: MARK-password
  users: [{name: me, password: MARK-user}]
  write_files: [{path: /etc/x, content: "MARK-file"}]
  environment: {http_proxy: "http://a:MARK-proxy@b"}
install:
  webhooks:
  - {event: FAILED, method: POST, url: "https://a/MARK-path", payload: "MARK-payload",
     headers: {X-Key: [MARK-header]}, basic_auth: {user: me, password: MARK-auth}}
kubernetes: {agent_token: MARK-agent}
"#;

/// What grub-mkpasswd-pbkdf2 makes of `correct horse`.
pub const HASH: &str = "grub.pbkdf2.sha512.10000.5AE15B2B2400C5DFE3276F4E2550EBBAC102CE035D49E0E3AAE872A9AE08C59B38317026AEBAC373053A15E81340A25F581304B78A4A13D5DFD7E48A3E141FC9.7EED6CF54330BDC1F4A09E7B97A88535B61944C6111D7FC8D9E49BFFCD9C8A4882AC89A58E8650895A67379CDD4B9B6D86C273B5855FC85EC821D04B822622C8";
