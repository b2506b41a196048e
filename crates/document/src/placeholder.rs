//! Recognizes text that stands where a secret belongs: a variable that no template engine has filled in, or the words
//! of an example. Such text is as public as the example.

/// The marks around a variable, or around words for a person to replace. The whole text is between the two.
const AROUND: &[(&str, &str)] = &[
    ("<", ">"),
    ("%", "%"),
    ("@", "@"),
    ("@@", "@@"),
    ("__", "__"),
    ("[", "]"),
    ("{", "}"),
    ("((", "))"),
    ("%(", ")s"),
    ("$(", ")"),
    ("`", "`"),
    ("«", "»"),
];
/// The marks around a variable within a longer text.
const WITHIN: &[(&str, &str)] =
    &[("${", "}"), ("{{", "}}"), ("$(", ")"), ("$((", "))"), ("<%", "%>"), ("#{", "}"), ("{%", "%}")];
/// Names of variables have these words.
const SECRETS: &[&str] = &["token", "pass", "secret", "key", "hash", "cred", "auth"];
/// Words of instructions to replace the text.
const INSTRUCTIONS: &[&str] = &[
    "change",
    "changed",
    "changeit",
    "changeme",
    "replace",
    "replaced",
    "replaceme",
    "insert",
    "enter",
    "put",
    "fill",
    "todo",
    "tbd",
    "fixme",
    "placeholder",
    "example",
    "sample",
    "dummy",
    "redacted",
    "hidden",
    "your",
    "my",
    "here",
    "value",
    "xxx",
    "undefined",
    "null",
    "none",
    "nil",
    "unset",
];
/// Words that stand beside them.
const FILLING: &[&str] = &[
    "a",
    "an",
    "and",
    "be",
    "before",
    "this",
    "that",
    "the",
    "to",
    "me",
    "it",
    "in",
    "with",
    "of",
    "for",
    "use",
    "own",
    "new",
    "some",
    "strong",
    "very",
    "real",
    "random",
    "secure",
    "long",
    "cluster",
    "node",
    "join",
    "admin",
    "user",
    "root",
    "rancher",
    "harvester",
    "nqrust",
    "kubernetes",
    "k8s",
    "server",
    "agent",
    "secret",
    "token",
    "password",
    "passwd",
    "pass",
    "key",
    "hash",
    "string",
    "text",
    "name",
    "id",
    "shared",
    "goes",
    "please",
    "must",
    "should",
    "was",
    "is",
    "by",
    "later",
    "now",
];

/// True if a text is a placeholder for a secret.
#[must_use]
pub fn is_placeholder(text: &str) -> bool {
    let text = text.trim();
    is_variable(text) || is_masked(text) || is_instruction(text)
}

/// True if a text is in the place of a secret without being one: a placeholder, or a reference to a secret store.
#[must_use]
pub fn is_no_secret(text: &str) -> bool {
    is_placeholder(text) || is_reference(text)
}

/// True if a text says where another program keeps a secret, as `op://vault/item` and `env:TOKEN` do, or is a secret that
/// one has encrypted, as SOPS, eyaml, age and Ansible write them.
#[must_use]
pub fn is_reference(text: &str) -> bool {
    let text = text.trim();
    let encrypted = ["ENC[", "$ANSIBLE_VAULT;", "!vault", "-----BEGIN AGE ", "-----BEGIN PGP ", "arn:aws:"];
    if encrypted.iter().any(|begin| text.starts_with(begin)) {
        return true;
    }
    let Some((scheme, rest)) = text.split_once(':') else { return false };
    let is_scheme = scheme.len() >= 2
        && scheme.starts_with(|c: char| c.is_ascii_alphabetic())
        && scheme.bytes().all(|b| b.is_ascii_alphanumeric() || b"+.-".contains(&b));
    let path = || rest.contains('/') && !rest.contains(char::is_whitespace);
    match scheme.to_ascii_lowercase().as_str() {
        "env" => is_shell_name(rest),
        "file" | "vault" | "bao" | "sops" | "ssm" | "secret" | "keyring" => path(),
        _ => is_scheme && rest.starts_with("//") && rest.len() > 2,
    }
}

/// True if a variable of a template stands in the text, as `${TOKEN}` or `{{ token }}`, or is all of it, as `$TOKEN` or
/// `<token>`.
#[must_use]
pub fn is_variable(text: &str) -> bool {
    let text = text.trim();
    let named = |inner: &str| inner.chars().any(char::is_alphabetic);
    let within = WITHIN.iter().any(|(begin, end)| {
        let inner = text.split_once(begin).and_then(|(_, rest)| rest.split_once(end));
        inner.is_some_and(|(inner, _)| named(inner))
    });
    let around = AROUND.iter().any(|(begin, end)| {
        let inner = text.strip_prefix(begin).and_then(|rest| rest.strip_suffix(end));
        inner.is_some_and(|inner| {
            inner.len() >= 3 && named(inner) && !inner.contains(begin) && !inner.contains(end)
        })
    });
    within || around || text.strip_prefix('$').is_some_and(is_shell_name)
}

/// A name as shells have it, in capitals or with a word for secrets, so that it is not a password that begins with `$`.
fn is_shell_name(name: &str) -> bool {
    let body = name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    let first = name.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    let capitals =
        name.bytes().any(|b| b.is_ascii_uppercase()) && !name.bytes().any(|b| b.is_ascii_lowercase());
    let lower = name.to_ascii_lowercase();
    body && first && (capitals || SECRETS.iter().any(|word| lower.contains(word)))
}

/// One character over and over, as forms show a secret: `xxx`, `****`, `...`.
fn is_masked(text: &str) -> bool {
    let mut characters = text.chars();
    let Some(first) = characters.next() else { return false };
    let masks = "xX*.-_?#•…=~0";
    masks.contains(first)
        && characters.all(|c| c == first)
        && (text.chars().count() >= 3 || matches!(first, '…' | '•'))
}

/// True if the letters of a text are words of an instruction and nothing else: `CHANGEME`, `your-secret-cluster-token`.
fn is_instruction(text: &str) -> bool {
    let decorated = |c: char| c.is_ascii_alphanumeric() || " -_.,:!".contains(c);
    if text.len() > 80 || !text.chars().all(decorated) {
        return false;
    }
    let letters: String =
        text.chars().filter(char::is_ascii_alphanumeric).map(|c| c.to_ascii_lowercase()).collect();
    // For each length of a beginning: whether it is words only, and whether one of them is an instruction.
    let mut reached: Vec<Option<bool>> = vec![None; letters.len() + 1];
    reached[0] = Some(false);
    for at in 0..letters.len() {
        let Some(instructed) = reached[at] else { continue };
        for (words, instructs) in [(INSTRUCTIONS, true), (FILLING, false)] {
            for word in words.iter().filter(|word| letters[at..].starts_with(**word)) {
                let end = &mut reached[at + word.len()];
                *end = Some(end.unwrap_or(false) || instructed || instructs);
            }
        }
    }
    !letters.is_empty() && reached[letters.len()] == Some(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_templates_and_examples_leave_is_a_placeholder() {
        for text in [
            "${TOKEN}",
            "${token:-x}",
            "$TOKEN",
            "$HARVESTER_TOKEN",
            "$token",
            "$cluster_secret",
            "{{ token }}",
            "{{token}}",
            "{{ .Values.token }}",
            "{% raw %}",
            "<token>",
            "<YOUR TOKEN>",
            "<your-token-here>",
            "%TOKEN%",
            "%(token)s",
            "@TOKEN@",
            "@@TOKEN@@",
            "__TOKEN__",
            "[token]",
            "[hidden]",
            "{token}",
            "((token))",
            "$(cat token)",
            "`cat token`",
            "<%= token %>",
            "#{token}",
            "CHANGEME",
            "changeme",
            "change-me",
            "CHANGE_ME",
            "Change Me!",
            "changeit",
            "change-me-before-use",
            "REPLACE_ME",
            "replace-this-token",
            "xxx",
            "XXXXXXXX",
            "****",
            "...",
            "…",
            "TODO",
            "tbd",
            "FIXME",
            "your-secret-cluster-token",
            "YourAdminPassword",
            "your_token_here",
            "TOKEN_VALUE",
            "my-token",
            "mysecrettoken",
            "example",
            "example-token",
            "insert-token-here",
            "placeholder",
            "redacted",
            "prefix-${TOKEN}-suffix",
            "null",
        ] {
            assert!(is_placeholder(text), "{text}");
        }
    }

    #[test]
    fn a_secret_that_somebody_chose_is_none() {
        for text in [
            "",
            "1b161e5c1fa7425e73043362938b98241b5f3f0c2f3c4a5d",
            "correct horse battery",
            "abcdef.0123456789abcdef",
            "hunter2",
            "Sup3r$ecret$",
            "$mile $now fall",
            "pa$$word",
            "$y$j9T$salt$hash",
            "K10abc::server:def",
            "100%sure%",
            "a<b>c",
            "rancher",
            "my-horse-is-blue",
            "tok{en",
            "x",
            "$5,00",
            "P@ss@w0rd",
            "token",
            "secret",
        ] {
            assert!(!is_placeholder(text), "{text}");
        }
    }

    #[test]
    fn what_another_program_keeps_or_has_encrypted_is_a_reference() {
        for text in [
            "ENC[AES256_GCM,data:abcd,iv:efgh,tag:ijkl,type:str]",
            "ENC[PKCS7,MIIBiQYJKoZIhvcNAQcDoIIBejCCAXYCAQAx]",
            "$ANSIBLE_VAULT;1.1;AES256",
            "!vault |",
            "-----BEGIN AGE ENCRYPTED FILE-----",
            "op://servers/cluster/token",
            "ref+vault://secret/data/cluster#/token",
            "vault:secret/data/cluster#token",
            "awssm://cluster-token",
            "arn:aws:secretsmanager:eu-central-1:123456789012:secret:token",
            "file:///run/secrets/token",
            "file:/run/secrets/token",
            "env:CLUSTER_TOKEN",
        ] {
            assert!(is_reference(text), "{text}");
        }
        for text in [
            "",
            "1b161e5c1fa7425e73043362938b98241b5f3f0c2f3c4a5d",
            "K10abc::server:def",
            "server:abcdef",
            "env: staging",
            "file: under b",
            "pass:word/1",
            "a://",
            "://a",
            "secret:squirrel",
        ] {
            assert!(!is_reference(text), "{text}");
        }
    }

    proptest::proptest! {
        #[test]
        fn random_tokens_are_none(text in "[0-9a-f]{16,64}|[A-Za-z0-9+/]{32,44}={0,2}") {
            proptest::prop_assert!(!is_no_secret(&text));
        }
    }
}
