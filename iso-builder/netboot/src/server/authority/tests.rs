use super::*;
use base::failure::{class_of, render};
use std::os::unix::fs::PermissionsExt;

fn now() -> Timestamp {
    Timestamp::from_second(1_709_164_800).unwrap()
}

/// The first name is the required one.
fn of(names: &[&str]) -> CertificateNames {
    let of = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    CertificateNames {
        required: of(&names[..1]),
        further: of(&[&names[1..], &["127.0.0.1", "::1", "localhost"]].concat()),
    }
}

/// Runs openssl in `directory`; returns its success and its output.
fn openssl(directory: &Path, arguments: &[&str]) -> (bool, String) {
    let mut command = std::process::Command::new("openssl");
    let output = command.args(arguments).current_dir(directory).output().unwrap();
    let said = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(said).unwrap())
}

#[test]
fn the_authority_stays_and_the_certificate_is_made_anew() {
    let directory = tempfile::tempdir().unwrap();
    let names = of(&["a.example.org", "192.0.2.1"]);
    let first = keep(directory.path(), &names, now()).unwrap();
    let read = |own: &OwnCertificate| {
        [&own.authority.file, &own.certificate].map(|path| fs::read_to_string(path).unwrap())
    };
    let before = read(&first);
    let second = keep(directory.path(), &names, now()).unwrap();
    let after = read(&second);
    assert_eq!(first, second);
    assert_eq!((&before[0], first.notices.len()), (&after[0], 0));
    assert_ne!(before[1], after[1]);
    let mode = |name: &str| fs::metadata(directory.path().join(name)).unwrap().permissions().mode() & 0o777;
    assert_eq!([AUTHORITY_KEY, SERVER_KEY].map(mode), [0o600; 2]);
    // openssl accepts it and prints the same fingerprint.
    let strictly = ["verify", "-x509_strict", "-purpose", "sslserver", "-attime", "1750000000"];
    for name in [["-verify_hostname", "a.example.org"], ["-verify_ip", "192.0.2.1"], ["-verify_ip", "::1"]] {
        let arguments = [&strictly[..], &name, &["-CAfile", AUTHORITY, SERVER]].concat();
        let (content, said) = openssl(directory.path(), &arguments);
        assert!(content, "{name:?}: {said}");
    }
    let (_, shown) =
        openssl(directory.path(), &["x509", "-in", AUTHORITY, "-noout", "-fingerprint", "-sha256"]);
    let shown = shown.trim().rsplit('=').next().unwrap().replace(':', "").to_lowercase();
    assert_eq!(shown, second.authority.fingerprint.to_string());
}

#[test]
fn the_authority_vouches_for_no_other_name() {
    let directory = tempfile::tempdir().unwrap();
    keep(directory.path(), &of(&["a.example.org", "192.0.2.1"]), now()).unwrap();
    let (_, text) = openssl(directory.path(), &["x509", "-in", AUTHORITY, "-noout", "-text"]);
    assert!(text.contains("X509v3 Name Constraints: critical"), "{text}");
    for (subject, alternative, good) in [
        ("/CN=a", Some("DNS:a.example.org"), true),
        ("/CN=a", Some("IP:192.0.2.1"), true),
        ("/CN=a", Some("DNS:bank.example.com"), false),
        ("/CN=a", Some("DNS:example.org"), false),
        ("/CN=a", Some("DNS:a.example.org,DNS:b.example.org"), false),
        ("/CN=a", Some("IP:192.0.2.2"), false),
        ("/CN=a", Some("IP:2001:db8::1"), false),
        ("/CN=bank.example.com", None, false),
    ] {
        let mut request = vec!["req", "-new", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"];
        request.extend(["-nodes", "-keyout", "other.key", "-out", "other.csr", "-subj", subject]);
        let alternative = alternative.map(|names| format!("subjectAltName={names}"));
        request.extend(alternative.iter().flat_map(|names| ["-addext", names.as_str()]));
        let sign = ["x509", "-req", "-in", "other.csr", "-copy_extensions", "copy", "-days", "30"];
        let with = ["-CA", AUTHORITY, "-CAkey", AUTHORITY_KEY, "-out", "other.pem"];
        for arguments in [request, [&sign[..], &with].concat()] {
            let (done, said) = openssl(directory.path(), &arguments);
            assert!(done, "{said}");
        }
        let (content, said) = openssl(directory.path(), &["verify", "-CAfile", AUTHORITY, "other.pem"]);
        assert_eq!(content, good, "{subject} {alternative:?}: {said}");
        assert!(good || said.contains("permitted subtree violation"), "{said}");
    }
}

#[test]
fn an_authority_without_constraints_is_replaced_and_its_key_removed() {
    let directory = tempfile::tempdir().unwrap();
    let (file, key) = (directory.path().join(AUTHORITY), directory.path().join(AUTHORITY_KEY));
    let old = KeyPair::generate().unwrap();
    let names = of(&["a.example.org"]);
    let mut params = issuing(&old, &names, now());
    params.name_constraints = None;
    fs::write(&file, params.self_signed(&old).unwrap().pem()).unwrap();
    fs::write(&key, old.serialize_pem()).unwrap();
    let own = keep(directory.path(), &names, now()).unwrap();
    assert!(own.notices[0].contains("could vouch for every site"), "{:?}", own.notices);
    assert!(!fs::read_to_string(&key).unwrap().contains(&old.serialize_pem()));
    let (content, said) =
        openssl(directory.path(), &["verify", "-attime", "1750000000", "-CAfile", AUTHORITY, SERVER]);
    assert!(content, "{said}");
    assert_eq!(keep(directory.path(), &names, now()).unwrap().notices, Vec::<String>::new());
}

#[test]
fn a_name_that_came_later_is_left_out_unless_machines_are_told_to_use_it() {
    let directory = tempfile::tempdir().unwrap();
    keep(directory.path(), &of(&["a.example.org"]), now()).unwrap();
    let own = keep(directory.path(), &of(&["a.example.org", "198.51.100.7"]), now()).unwrap();
    assert!(own.notices[0].contains("not for 198.51.100.7"), "{:?}", own.notices);
    let (_, text) = openssl(directory.path(), &["x509", "-in", SERVER, "-noout", "-text"]);
    assert!(text.contains("a.example.org") && !text.contains("198.51.100.7"), "{text}");
    let error = keep(directory.path(), &of(&["b.example.net"]), now()).unwrap_err();
    let text = render(&error);
    assert_eq!(class_of(&error), Class::Invalid);
    assert!(text.contains("b.example.net") && text.contains("remove authority.pem"), "{text}");
}

#[test]
fn a_key_that_is_none_is_named_and_not_shown() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join(AUTHORITY_KEY), "-----BEGIN A SECRET-----").unwrap();
    let error = keep(directory.path(), &of(&["a"]), now()).unwrap_err();
    let text = render(&error);
    assert_eq!(class_of(&error), Class::Invalid);
    assert!(text.contains("authority.key") && text.contains("Remove it"), "{text}");
    assert!(!text.contains("A SECRET"), "{text}");
}

#[test]
fn a_server_is_known_by_its_addresses_and_the_host_of_its_url() {
    let names = |listen: &str, base| names(listen.parse().unwrap(), base);
    let one = names("192.0.2.1", Some("https://boot.example.org:8443/nqrust"));
    for name in ["192.0.2.1", "boot.example.org", "localhost", "127.0.0.1", "::1"] {
        assert!(one.all().contains(name), "{name} in {one:?}");
    }
    assert_eq!(one.required.len(), 2);
    let every = names("0.0.0.0", Some("https://[2001:db8::1]:8443"));
    assert!(every.required.contains("2001:db8::1") && !every.all().contains("0.0.0.0"), "{every:?}");
    for (url, expected) in [
        ("https://a", Some("a")),
        ("https://192.0.2.1:80/x", Some("192.0.2.1")),
        ("https://:80", None),
        ("https://[2001:db8::1", Some("2001:db8::1")),
        ("https://a_b", None),
        ("a", None),
    ] {
        assert_eq!(host(url), expected, "{url}");
    }
}
