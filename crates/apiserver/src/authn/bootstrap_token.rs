//! Bootstrap tokens, as Kubernetes has them: `abcdef.0123456789abcdef`, kept in a Secret `kube-system/bootstrap-token-abcdef`
//! until they expire. Whoever shows one is `system:bootstrap:abcdef`, in the groups the Secret says.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use landfall_api::meta;
use serde_json::Value;

use super::{Found, User, text};

/// The namespace of their Secrets.
pub const NAMESPACE: &str = "kube-system";
/// How the names of their Secrets begin.
pub const SECRET_PREFIX: &str = "bootstrap-token-";
/// The type of their Secrets.
pub const SECRET_TYPE: &str = "bootstrap.kubernetes.io/token";
/// How users with such a token are called.
pub const USER_PREFIX: &str = "system:bootstrap:";
/// The group of all of them.
pub const GROUP: &str = "system:bootstrappers";
/// The key of [`User::extra`], and of the Secret without its prefix, that says for which cluster a token is.
pub const CLUSTER_EXTRA: &str = "landfall.dev/cluster";
/// The key of the Secret that says for which cluster a token is.
pub const CLUSTER_KEY: &str = "cluster";
/// The same for the group of edges that a token is for.
pub const GROUP_EXTRA: &str = "landfall.dev/ingress-replicaset";
/// The key of the Secret that says so.
pub const GROUP_KEY: &str = "ingress-replicaset";

/// The longest name of a group after its prefix.
const GROUP_CHARS_MAX: usize = 256;
const ID_CHARS: usize = 6;
const SECRET_CHARS: usize = 16;

/// A token taken apart: its id, which is no secret, and its secret. None when it has another form.
pub fn parse(token: &str) -> Option<(&str, &str)> {
    let (id, secret) = token.split_once('.')?;
    let plain = |part: &str, chars: usize| {
        part.len() == chars && part.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit())
    };
    (plain(id, ID_CHARS) && plain(secret, SECRET_CHARS)).then_some((id, secret))
}

/// The user of a token, by what its Secret says; none when it does not open anything.
pub fn user(id: &str, secret: &str, found: &Found, now_s: i64) -> Option<User> {
    let object = &found.object;
    let wanted = decoded(object, "token-secret");
    // First, so that how long it takes says nothing of what else is wrong.
    let same =
        aws_lc_rs::constant_time::verify_slices_are_equal(wanted.as_bytes(), secret.as_bytes()).is_ok();
    let good = same
        && !meta::deleting(object)
        && text(object, "type") == SECRET_TYPE
        && decoded(object, "token-id") == id
        && !expired(object, now_s)
        && decoded(object, "usage-bootstrap-authentication") == "true";
    if !good {
        return None;
    }
    let mut groups = vec![GROUP.to_owned()];
    let extra = decoded(object, "auth-extra-groups");
    for group in extra.split(',').filter(|_| !extra.is_empty()) {
        groups.push(bootstrap_group(group)?.to_owned());
    }
    let mut user = User { name: format!("{USER_PREFIX}{id}"), groups, ..User::default() };
    for (key, extra) in [(CLUSTER_KEY, CLUSTER_EXTRA), (GROUP_KEY, GROUP_EXTRA)] {
        let only = decoded(object, key);
        if !only.is_empty() {
            user.extra.insert(extra.into(), vec![only]);
        }
    }
    Some(user.authenticated())
}

/// Whether a token's Secret says that its time is over; what is no time has been over for ever.
pub fn expired(secret: &Value, now_s: i64) -> bool {
    let until = decoded(secret, "expiration");
    if until.is_empty() {
        return false;
    }
    until.parse::<jiff::Timestamp>().map_or(true, |until| until.as_second() <= now_s)
}

/// Whether a token's Secret gives a group, and is good for a cluster.
pub fn gives(secret: &Value, group: &str, cluster: &str) -> bool {
    let only = decoded(secret, CLUSTER_KEY);
    text(secret, "type") == SECRET_TYPE
        && decoded(secret, "auth-extra-groups").split(',').any(|given| given == group)
        && (only.is_empty() || only == cluster)
}

/// A value of a Secret as text; empty when it is not there or no text.
fn decoded(secret: &Value, key: &str) -> String {
    let value = text(secret.get("data").unwrap_or(&Value::Null), key);
    STANDARD.decode(value).ok().and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_default()
}

/// Only groups of bootstrappers can be given away by a token.
fn bootstrap_group(group: &str) -> Option<&str> {
    let own = group.strip_prefix("system:bootstrappers:")?;
    let plain = own.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b':' || b == b'-');
    let end = own.bytes().last().is_some_and(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
    (plain && end && own.len() <= GROUP_CHARS_MAX).then_some(group)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn tokens_have_one_form() {
        let check = |token: &str, good: bool| assert_eq!(parse(token).is_some(), good, "{token}");
        check("abcdef.0123456789abcdef", true);
        check("abcdef.0123456789abcde", false);
        check("abcdef.0123456789abcdefg", false);
        check("Abcdef.0123456789abcdef", false);
        check("abcdef0123456789abcdef", false);
        check("abcdéf.0123456789abcdef", false);
        check("", false);
    }

    #[test]
    fn a_secret_says_who_its_token_is() {
        let check = |changes: Value, expected: Option<&[&str]>| {
            let mut data = json!({
                "token-id": "abcdef", "token-secret": "0123456789abcdef", "usage-bootstrap-authentication": "true",
            });
            let mut kind = SECRET_TYPE;
            for (key, value) in changes.as_object().expect("a map") {
                match (key.as_str(), value.as_str()) {
                    ("type", Some(_)) => kind = "Opaque",
                    (_, Some(text)) => data[key] = json!(text),
                    (_, None) => _ = data.as_object_mut().expect("a map").remove(key),
                }
            }
            for value in data.as_object_mut().expect("a map").values_mut() {
                *value = json!(STANDARD.encode(value.as_str().unwrap_or("")));
            }
            let object = json!({"type": kind, "data": data, "metadata": {}});
            let found = Found { object, ..Found::default() };
            let user = user("abcdef", "0123456789abcdef", &found, 1_000);
            let groups: Option<Vec<String>> = user.map(|user| user.groups);
            let expected = expected.map(|all| all.iter().map(|g| (*g).to_owned()).collect::<Vec<_>>());
            assert_eq!(groups, expected, "{changes}");
        };
        let plain: &[&str] = &[GROUP, "system:authenticated"];
        check(json!({}), Some(plain));
        check(json!({"expiration": "1970-01-01T01:00:00Z"}), Some(plain));
        check(json!({"expiration": "1970-01-01T00:16:40Z"}), None);
        check(json!({"expiration": "soon"}), None);
        check(json!({"token-secret": "0123456789abcdee"}), None);
        check(json!({"token-secret": null}), None);
        check(json!({"token-id": "abcdeg"}), None);
        check(json!({"type": "Opaque"}), None);
        check(json!({"usage-bootstrap-authentication": "yes"}), None);
        let edges = "system:bootstrappers:landfall:edges";
        check(json!({"auth-extra-groups": edges}), Some(&[GROUP, edges, "system:authenticated"]));
        check(json!({"auth-extra-groups": "system:masters"}), None);
        check(json!({"auth-extra-groups": format!("{edges},system:bootstrappers:-")}), None);
    }
}
