//! Names and small texts: what Kubernetes accepts, and its sentences when it does not.
//!
//! Every check scans bytes in place and returns an empty list, which costs nothing, when all is well.

/// What is wrong with a text; empty when nothing is.
pub type Sentences = Vec<String>;

/// Longest DNS label.
pub const LABEL_MAX: usize = 63;
/// Longest DNS subdomain.
pub const SUBDOMAIN_MAX: usize = 253;

const LABEL_1123: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?";
const SUBDOMAIN_1123: &str = "[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*";
const LABEL_1035: &str = "[a-z]([-a-z0-9]*[a-z0-9])?";
const KEY: &str = "([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]";
const KEY_SENTENCE: &str = "must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character";
const SUBDOMAIN_SENTENCE: &str = "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character";

/// A DNS-1123 label: most names of one part, such as namespaces.
pub fn dns1123_label(text: &str) -> Sentences {
    let mut wrong = Vec::new();
    if text.len() > LABEL_MAX {
        wrong.push(characters_max(LABEL_MAX));
    }
    if !is_label(text, lower_or_digit) {
        wrong.push(if is_subdomain(text) {
            "must not contain dots".into()
        } else {
            pattern(
                "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
                LABEL_1123,
                &["my-name", "123-abc"],
            )
        });
    }
    wrong
}

/// A DNS-1123 subdomain: the usual rule for names of objects.
pub fn dns1123_subdomain(text: &str) -> Sentences {
    subdomain(text, characters_max)
}

/// A DNS-1035 label: starts with a letter; names of Services.
pub fn dns1035_label(text: &str) -> Sentences {
    let mut wrong = Vec::new();
    if text.len() > LABEL_MAX {
        wrong.push(characters_max(LABEL_MAX));
    }
    if !is_label(text, |b| b.is_ascii_lowercase()) {
        wrong.push(pattern(
            "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character",
            LABEL_1035,
            &["my-name", "abc-123"],
        ));
    }
    wrong
}

/// A DNS name whose first label is `*`.
pub fn wildcard_subdomain(text: &str) -> Sentences {
    let mut wrong = Vec::new();
    if text.len() > SUBDOMAIN_MAX {
        wrong.push(characters_max(SUBDOMAIN_MAX));
    }
    if !text.strip_prefix("*.").is_some_and(is_subdomain) {
        wrong.push(pattern(
            "a wildcard DNS-1123 subdomain must start with '*.', followed by a valid DNS subdomain, which must consist of lower case alphanumeric characters, '-' or '.' and end with an alphanumeric character",
            &format!("\\*\\.{SUBDOMAIN_1123}"),
            &["*.example.com"],
        ));
    }
    wrong
}

/// A label key, annotation key or finalizer: `[prefix/]name`.
pub fn qualified_name(text: &str) -> Sentences {
    let mut wrong = Vec::new();
    let name = match text.split_once('/') {
        None => text,
        Some((_, name)) if name.contains('/') => {
            return vec![format!(
                "a valid label key {} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
                key_pattern()
            )];
        }
        Some(("", name)) => {
            wrong.push("prefix part must be non-empty".into());
            name
        }
        Some((prefix, name)) => {
            wrong.extend(subdomain(prefix, bytes_max).into_iter().map(|s| format!("prefix part {s}")));
            name
        }
    };
    if name.is_empty() {
        wrong.push("name part must be non-empty".into());
    } else if name.len() > LABEL_MAX {
        wrong.push(format!("name part {}", bytes_max(LABEL_MAX)));
    }
    if !is_key(name) {
        wrong.push(format!("name part {}", key_pattern()));
    }
    wrong
}

/// A label's value; may be empty.
pub fn label_value(text: &str) -> Sentences {
    let mut wrong = Vec::new();
    if text.len() > LABEL_MAX {
        wrong.push(bytes_max(LABEL_MAX));
    }
    if !(text.is_empty() || is_key(text)) {
        wrong.push(pattern(
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character",
            &format!("({KEY})?"),
            &["MyValue", "my_value", "12345"],
        ));
    }
    wrong
}

/// An IANA service name: the name of a container port, or of a target port.
pub fn port_name(text: &str) -> Sentences {
    let mut wrong = Vec::new();
    if text.len() > 15 {
        wrong.push(characters_max(15));
    }
    if text.is_empty() || !text.bytes().all(|b| lower_or_digit(b) || b == b'-') {
        wrong.push("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)".into());
    }
    if !text.bytes().any(|b| b.is_ascii_lowercase()) {
        wrong.push("must contain at least one letter (a-z)".into());
    }
    if text.contains("--") {
        wrong.push("must not contain consecutive hyphens".into());
    }
    if text.starts_with('-') || text.ends_with('-') {
        wrong.push("must not begin or end with a hyphen".into());
    }
    wrong
}

/// A port number.
pub fn port_number(port: i64) -> Sentences {
    in_range(port, 1, 65535)
}

/// A number between two bounds, both included.
pub fn in_range(value: i64, low: i64, high: i64) -> Sentences {
    if (low..=high).contains(&value) { Vec::new() } else { vec![between(low, high)] }
}

/// Something that can stand in a URL path: names of RBAC roles.
pub fn path_segment(text: &str, prefix: bool) -> Sentences {
    if !prefix && matches!(text, "." | "..") {
        return vec![format!("may not be '{text}'")];
    }
    ["/", "%"]
        .iter()
        .filter(|bad| text.contains(**bad))
        .map(|bad| format!("may not contain '{bad}'"))
        .collect()
}

/// A C identifier.
pub fn c_identifier(text: &str) -> Sentences {
    let first = text.bytes().next().is_some_and(|b| b.is_ascii_alphabetic() || b == b'_');
    if first && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        return Vec::new();
    }
    vec![pattern(
        "a valid C identifier must start with alphabetic character or '_', followed by a string of alphanumeric characters or '_'",
        "[A-Za-z_][A-Za-z0-9_]*",
        &["my_name", "MY_NAME", "MyName"],
    )]
}

/// The name of an environment variable, by the older, stricter rule.
pub fn env_var_name(text: &str) -> Sentences {
    let mut wrong = Vec::new();
    let first = text.bytes().next().is_some_and(|b| !b.is_ascii_digit());
    if !(first && text.bytes().all(config_byte)) {
        wrong.push(pattern(
            "a valid environment variable name must consist of alphabetic characters, digits, '_', '-', or '.', and must not start with a digit",
            "[-._a-zA-Z][-._a-zA-Z0-9]*",
            &["my.env-name", "MY_ENV.NAME", "MyEnvName1"],
        ));
    }
    dots(text, &mut wrong);
    wrong
}

/// The name of an environment variable, as accepted since 1.34: printable ASCII without `=`.
pub fn env_var_name_relaxed(text: &str) -> Sentences {
    let mut wrong = Vec::new();
    if text.is_empty() {
        wrong.push("environment variable name must be non-empty".into());
    }
    if text.bytes().any(|b| !(b' '..=b'~').contains(&b) || b == b'=') {
        wrong.push(
            "a valid environment variable name must consist only of printable ASCII characters other than '='"
                .into(),
        );
    }
    wrong
}

/// A key of a ConfigMap or Secret.
pub fn config_map_key(text: &str) -> Sentences {
    let mut wrong = Vec::new();
    if text.len() > SUBDOMAIN_MAX {
        wrong.push(characters_max(SUBDOMAIN_MAX));
    }
    if text.is_empty() || !text.bytes().all(config_byte) {
        wrong.push(pattern(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.'",
            "[-._a-zA-Z0-9]+",
            &["key.name", "KEY_NAME", "key-name"],
        ));
    }
    dots(text, &mut wrong);
    wrong
}

/// The name of an HTTP header.
pub fn http_header_name(text: &str) -> Sentences {
    if !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-') {
        return Vec::new();
    }
    vec![pattern(
        "a valid HTTP header must consist of alphanumeric characters or '-'",
        "[-A-Za-z0-9]+",
        &["X-Header-Name"],
    )]
}

/// A percentage such as `25%`.
pub fn percent(text: &str) -> Sentences {
    let digits = text.strip_suffix('%').unwrap_or("");
    if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) {
        return Vec::new();
    }
    vec![pattern(
        "a valid percent string must be a numeric string followed by an ending '%'",
        "[0-9]+%",
        &["1%", "93%"],
    )]
}

/// A name rule: the text, and whether it is only a prefix (`generateName`).
pub type NameRule = fn(&str, bool) -> Sentences;

/// The name of an object: a DNS-1123 subdomain.
pub fn name_is_subdomain(name: &str, prefix: bool) -> Sentences {
    masked(name, prefix, dns1123_subdomain)
}

/// The name of an object: a DNS-1123 label.
pub fn name_is_label(name: &str, prefix: bool) -> Sentences {
    masked(name, prefix, dns1123_label)
}

/// The name of an object: a DNS-1035 label.
pub fn name_is_dns1035(name: &str, prefix: bool) -> Sentences {
    masked(name, prefix, dns1035_label)
}

/// `must be no more than N characters`.
pub fn characters_max(max: usize) -> String {
    format!("must be no more than {max} characters")
}

/// `must be no more than N bytes`.
pub fn bytes_max(max: usize) -> String {
    format!("must be no more than {max} bytes")
}

/// `must be between A and B, inclusive`.
pub fn between(low: i64, high: i64) -> String {
    format!("must be between {low} and {high}, inclusive")
}

/// A sentence that ends with examples and the pattern.
pub fn pattern(sentence: &str, regex: &str, examples: &[&str]) -> String {
    let mut text = format!("{sentence} (");
    for (at, example) in examples.iter().enumerate() {
        text.push_str(if at == 0 { "e.g. '" } else { " or '" });
        text.push_str(example);
        text.push_str("', ");
    }
    text.push_str("regex used for validation is '");
    text.push_str(regex);
    text.push_str("')");
    text
}

/// Whether a text is a DNS-1123 subdomain, apart from its length.
pub fn is_subdomain(text: &str) -> bool {
    text.split('.').all(|part| is_label(part, lower_or_digit))
}

fn subdomain(text: &str, too_long: fn(usize) -> String) -> Sentences {
    let mut wrong = Vec::new();
    if text.len() > SUBDOMAIN_MAX {
        wrong.push(too_long(SUBDOMAIN_MAX));
    }
    if !is_subdomain(text) {
        wrong.push(pattern(SUBDOMAIN_SENTENCE, SUBDOMAIN_1123, &["example.com"]));
    }
    wrong
}

/// A generated name goes on after its last dash, so that dash may stand there.
fn masked(name: &str, prefix: bool, rule: fn(&str) -> Sentences) -> Sentences {
    match name.strip_suffix('-') {
        Some(stem) if prefix && !stem.is_empty() => {
            // As in Kubernetes, the byte before the dash goes too; the generated name is checked again.
            let stem = stem.strip_suffix(|c: char| c.is_ascii()).unwrap_or(stem);
            rule(&format!("{stem}a"))
        }
        _ => rule(name),
    }
}

const fn lower_or_digit(byte: u8) -> bool {
    byte.is_ascii_lowercase() || byte.is_ascii_digit()
}

const fn config_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.')
}

fn is_label(text: &str, first: fn(u8) -> bool) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(|b| first(*b))
        && bytes.last().is_some_and(|b| lower_or_digit(*b))
        && bytes.iter().all(|b| lower_or_digit(*b) || *b == b'-')
}

fn is_key(text: &str) -> bool {
    let bytes = text.as_bytes();
    bytes.first().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.last().is_some_and(u8::is_ascii_alphanumeric)
        && bytes.iter().all(|b| config_byte(*b))
}

fn key_pattern() -> String {
    pattern(KEY_SENTENCE, KEY, &["MyName", "my.name", "123-abc"])
}

fn dots(text: &str, wrong: &mut Sentences) {
    match text {
        "." => wrong.push("must not be '.'".into()),
        ".." => wrong.push("must not be '..'".into()),
        _ if text.starts_with("..") => wrong.push("must not start with '..'".into()),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rule: impl Fn(&str) -> Sentences, good: &[&str], bad: &[(&str, &str)]) {
        for text in good {
            assert_eq!(rule(text), Vec::<String>::new(), "{text:?} is good");
        }
        for (text, expected) in bad {
            assert_eq!(rule(text).join("; "), *expected, "{text:?}");
        }
    }

    #[test]
    fn labels_and_subdomains() {
        let label = pattern(
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character",
            LABEL_1123,
            &["my-name", "123-abc"],
        );
        let long = "a".repeat(64);
        check(
            dns1123_label,
            &["a", "0", "a-b", &"a".repeat(63)],
            &[("", &label), ("a.b", "must not contain dots"), ("-a", &label), ("A", &label)],
        );
        check(dns1123_label, &[], &[(&long, "must be no more than 63 characters")]);
        check(
            dns1123_subdomain,
            &["a", "a.b", "0.9-a"],
            &[(
                "a..b",
                "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')",
            )],
        );
        check(
            dns1035_label,
            &["a", "a1-b"],
            &[(
                "1a",
                "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')",
            )],
        );
        check(|t| name_is_label(t, true), &["a-", "ab--"], &[("-", &label), ("é-", &label)]);
        check(wildcard_subdomain, &["*.a", "*.a.b"], &[]);
        assert_eq!(wildcard_subdomain("*").len(), 1);
        assert_eq!(wildcard_subdomain("a.*").len(), 1);
    }

    #[test]
    fn keys_and_values() {
        check(
            qualified_name,
            &["a", "A.b_c-9", "example.com/A"],
            &[
                ("/a", "prefix part must be non-empty"),
                (
                    "a/",
                    "name part must be non-empty; name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
                ),
                (&"a".repeat(64), "name part must be no more than 63 bytes"),
            ],
        );
        assert!(qualified_name("a/b/c")[0].starts_with("a valid label key must consist of"));
        check(label_value, &["", "a", "A_b.c"], &[(&"a".repeat(64), "must be no more than 63 bytes")]);
        assert_eq!(label_value("-a").len(), 1);
        check(
            config_map_key,
            &["a", ".a", "A_b-c.d"],
            &[("..", "must not be '..'"), ("..a", "must not start with '..'"), (".", "must not be '.'")],
        );
        check(
            port_name,
            &["http", "a-1"],
            &[
                ("a--b", "must not contain consecutive hyphens"),
                ("1", "must contain at least one letter (a-z)"),
            ],
        );
        check(
            |t| path_segment(t, false),
            &["a:b", "A"],
            &[(".", "may not be '.'"), ("a/b%", "may not contain '/'; may not contain '%'")],
        );
        check(env_var_name, &["a", "-A.b"], &[]);
        assert_eq!(env_var_name("1a").len(), 1);
        check(env_var_name_relaxed, &["1 a"], &[]);
        assert_eq!(env_var_name_relaxed("a=b").len(), 1);
    }
}
