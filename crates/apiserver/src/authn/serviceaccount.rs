//! Service accounts' tokens: made for TokenRequest, checked for requests and TokenReview.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::RwLock;
use serde_json::{Map, Value, json};

use super::jwt::{self, KeyError, SigningKey, VerifyingKey};
use super::{Accepted, CREDENTIAL_ID, Lookup, User, sha256, text, uuid};

/// The group of all service accounts.
pub const ALL: &str = "system:serviceaccounts";
/// What service accounts' user names begin with.
const PREFIX: &str = "system:serviceaccount:";
/// How far clocks may differ.
const LEEWAY_S: i64 = 60;
/// How many checked signatures are remembered; at more, all are forgotten and checked anew.
const REMEMBERED_MAX: usize = 4096;
/// Objects a token can be bound to: the claim's key, the plural, and whether they live in a namespace.
const BOUND: [(&str, &str, bool); 3] =
    [("secret", "secrets", true), ("pod", "pods", true), ("node", "nodes", false)];

/// An object that a credential refers to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Its uid.
    pub uid: String,
    /// Its deletionTimestamp in seconds since 1970, when it is being deleted.
    pub deleted_s: Option<i64>,
    /// The object itself.
    pub object: Value,
}

/// Makes and checks service accounts' tokens.
pub struct ServiceAccounts {
    issuer: String,
    audiences: Vec<String>,
    signing: SigningKey,
    others: Vec<VerifyingKey>,
    remembered: RwLock<HashMap<[u8; 32], Arc<Claims>>>,
}

/// What a token is asked to say.
#[derive(Clone, Debug, Default)]
pub struct Request<'a> {
    /// The account's namespace.
    pub namespace: &'a str,
    /// The account's name.
    pub name: &'a str,
    /// The account's uid.
    pub uid: &'a str,
    /// Whom it is for.
    pub audiences: &'a [String],
    /// How long it is good.
    pub expiration_s: i64,
    /// The object whose life it shares: claim key (`secret`, `pod`, `node`), name, uid.
    pub bound: Option<(&'a str, &'a str, &'a str)>,
}

/// The claims of a token whose signature and issuer are right.
#[derive(Debug)]
struct Claims {
    user: Arc<User>,
    namespace: String,
    name: String,
    uid: String,
    audiences: Vec<String>,
    bound: Vec<(usize, String, String)>,
    expires_s: Option<i64>,
    not_before_s: Option<i64>,
    issued_s: Option<i64>,
}

/// `system:serviceaccount:<namespace>:<name>`.
pub fn username(namespace: &str, name: &str) -> String {
    format!("{PREFIX}{namespace}:{name}")
}

/// Namespace and name of a service account's user name.
pub fn split_username(user: &str) -> Option<(&str, &str)> {
    let (namespace, name) = user.strip_prefix(PREFIX)?.split_once(':')?;
    (is_label(namespace) && is_subdomain(name)).then_some((namespace, name))
}

/// The groups every account of a namespace is in.
pub fn groups(namespace: &str) -> Vec<String> {
    vec![ALL.into(), format!("{ALL}:{namespace}")]
}

// === impl ServiceAccounts ===

impl ServiceAccounts {
    /// With the issuer's URL, the API's own audiences (the issuer when there are none), the key that signs, and
    /// other keys whose tokens are accepted too (the key before, another hub's).
    pub fn new(issuer: &str, audiences: &[String], signing: SigningKey, others: Vec<VerifyingKey>) -> Self {
        let audiences = if audiences.is_empty() { vec![issuer.to_owned()] } else { audiences.to_vec() };
        Self { issuer: issuer.into(), audiences, signing, others, remembered: RwLock::default() }
    }

    /// The issuer's URL.
    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// The API's own audiences.
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    /// The keys whose tokens are accepted; the first signs.
    pub fn keys(&self) -> impl Iterator<Item = &VerifyingKey> {
        std::iter::once(self.signing.public()).chain(&self.others)
    }

    /// Makes a token.
    pub fn issue(&self, request: &Request<'_>, now_s: i64) -> Result<String, KeyError> {
        let mut kubernetes = json!({
            "namespace": request.namespace,
            "serviceaccount": {"name": request.name, "uid": request.uid},
        });
        if let Some((claim, name, uid)) = request.bound {
            kubernetes[claim] = json!({"name": name, "uid": uid});
        }
        self.signing.sign(&json!({
            "aud": request.audiences,
            "exp": now_s.saturating_add(request.expiration_s),
            "iat": now_s,
            "iss": self.issuer,
            "jti": uuid(),
            "kubernetes.io": kubernetes,
            "nbf": now_s,
            "sub": username(request.namespace, request.name),
        }))
    }

    /// Checks a token for `audiences`, or for the API's own. `Ok(None)`: it is no token of ours at all. The
    /// account and whatever the token is bound to are looked up every time; only the signature is remembered.
    pub fn verify(
        &self,
        token: &str,
        audiences: Option<&[String]>,
        lookup: Lookup<'_>,
        now_s: i64,
    ) -> Result<Option<Accepted>, String> {
        let hash = sha256(token.as_bytes());
        let remembered = self.remembered.read().get(&hash).cloned();
        let claims = match remembered {
            Some(claims) => claims,
            None => match self.check_signature(token)? {
                Some(claims) => self.remember(hash, claims),
                None => return Ok(None),
            },
        };
        let wanted = audiences.unwrap_or(&self.audiences);
        // A token without audience is for the API itself.
        let meant = if claims.audiences.is_empty() { &self.audiences } else { &claims.audiences };
        let both: Vec<String> = meant.iter().filter(|a| wanted.contains(a)).cloned().collect();
        if both.is_empty() {
            let why =
                format!("token audiences {} is invalid for the target audiences {}", go(meant), go(wanted));
            return Err(why);
        }
        claims.check_time(now_s)?;
        claims.check_objects(lookup, now_s)?;
        Ok(Some(Accepted { user: Arc::clone(&claims.user), audiences: both }))
    }

    fn check_signature(&self, token: &str) -> Result<Option<Claims>, String> {
        let Some(parts) = jwt::parse(token) else { return Ok(None) };
        if text(&parts.claims, "iss") != self.issuer {
            return Ok(None);
        }
        let mut candidates =
            self.keys().filter(|key| parts.key_id.is_empty() || key.id() == parts.key_id).peekable();
        if candidates.peek().is_none() {
            return Err("invalid signature, no keys found".into());
        }
        if !candidates.any(|key| key.verify(&parts)) {
            return Err("invalid signature".into());
        }
        Claims::parse(&parts.claims).map(Some)
    }

    fn remember(&self, hash: [u8; 32], claims: Claims) -> Arc<Claims> {
        let claims = Arc::new(claims);
        let mut remembered = self.remembered.write();
        if remembered.len() >= REMEMBERED_MAX {
            remembered.clear();
        }
        remembered.insert(hash, Arc::clone(&claims));
        claims
    }
}

// === impl Claims ===

impl Claims {
    fn parse(claims: &Value) -> Result<Self, String> {
        let empty = Value::Object(Map::new());
        let kubernetes = claims.get("kubernetes.io").unwrap_or(&empty);
        let account = kubernetes.get("serviceaccount").unwrap_or(&empty);
        let (namespace, name, uid) =
            (text(kubernetes, "namespace"), text(account, "name"), text(account, "uid"));
        if namespace.is_empty() || name.is_empty() || text(claims, "sub") != username(namespace, name) {
            return Err("service account token claims do not name a service account".into());
        }
        let mut bound = Vec::new();
        let mut extra = Vec::new();
        for (at, (claim, ..)) in BOUND.iter().enumerate() {
            let Some(object) = kubernetes.get(*claim) else { continue };
            let (name, uid) = (text(object, "name").to_owned(), text(object, "uid").to_owned());
            if *claim != "secret" {
                extra.push((format!("authentication.kubernetes.io/{claim}-name"), vec![name.clone()]));
                extra.push((format!("authentication.kubernetes.io/{claim}-uid"), vec![uid.clone()]));
            }
            bound.push((at, name, uid));
        }
        let id = text(claims, "jti");
        if !id.is_empty() {
            extra.push((CREDENTIAL_ID.into(), vec![format!("JTI={id}")]));
        }
        let user = User {
            name: username(namespace, name),
            uid: uid.into(),
            groups: groups(namespace),
            extra: extra.into_iter().collect(),
        };
        let seconds = |key: &str| claims.get(key).and_then(Value::as_f64).map(|s| s as i64);
        Ok(Self {
            user: Arc::new(user.authenticated()),
            namespace: namespace.into(),
            name: name.into(),
            uid: uid.into(),
            audiences: strings(claims.get("aud")),
            bound,
            expires_s: seconds("exp"),
            not_before_s: seconds("nbf"),
            issued_s: seconds("iat"),
        })
    }

    fn check_time(&self, now_s: i64) -> Result<(), String> {
        let late = now_s.saturating_sub(LEEWAY_S);
        let early = now_s.saturating_add(LEEWAY_S);
        if self.not_before_s.is_some_and(|s| early < s) {
            return Err("service account token is not valid yet".into());
        }
        // We never sign a token without an end, so one without was not made by this code.
        if self.expires_s.is_none_or(|s| late > s) {
            return Err("service account token has expired".into());
        }
        if self.issued_s.is_some_and(|s| early < s) {
            return Err("service account token is issued in the future".into());
        }
        Ok(())
    }

    fn check_objects(&self, lookup: Lookup<'_>, now_s: i64) -> Result<(), String> {
        let gone = |found: &Found| found.deleted_s.is_some_and(|s| s < now_s.saturating_sub(LEEWAY_S));
        let (namespace, name) = (self.namespace.as_str(), self.name.as_str());
        let Some(account) = lookup("serviceaccounts", namespace, name) else {
            return Err(format!("serviceaccounts \"{name}\" not found"));
        };
        if account.uid != self.uid {
            return Err(format!("service account UID ({}) does not match claim ({})", account.uid, self.uid));
        }
        if gone(&account) {
            return Err(format!("service account {namespace}/{name} has been deleted"));
        }
        // A pod's token names its node too, as information only.
        let by_pod = self.bound.iter().any(|(at, ..)| BOUND[*at].0 == "pod");
        for (at, name, uid) in &self.bound {
            let (claim, plural, namespaced) = BOUND[*at];
            if claim == "node" && by_pod {
                continue;
            }
            match lookup(plural, if namespaced { namespace } else { "" }, name) {
                Some(found) if found.uid != *uid => {
                    return Err(format!(
                        "{claim} UID ({}) does not match service account {claim} ref claim ({uid})",
                        found.uid
                    ));
                }
                Some(found) if !gone(&found) => {}
                _ => return Err("service account token has been invalidated".into()),
            }
        }
        Ok(())
    }
}

/// A text or a list of texts.
fn strings(value: Option<&Value>) -> Vec<String> {
    match value {
        Some(Value::String(one)) => vec![one.clone()],
        Some(Value::Array(many)) => many.iter().filter_map(Value::as_str).map(str::to_owned).collect(),
        _ => Vec::new(),
    }
}

/// A list as Go's `%q` prints it.
fn go(list: &[String]) -> String {
    let quoted: Vec<String> = list.iter().map(|s| format!("{s:?}")).collect();
    format!("[{}]", quoted.join(" "))
}

fn is_label(text: &str) -> bool {
    text.len() <= 63 && is_word(text)
}

pub(super) fn is_subdomain(text: &str) -> bool {
    text.len() <= 253 && text.split('.').all(is_word)
}

/// Lower-case letters, digits and, inside, hyphens.
fn is_word(text: &str) -> bool {
    let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
    !text.is_empty() && text.bytes().all(allowed) && !text.starts_with('-') && !text.ends_with('-')
}

#[cfg(test)]
#[path = "serviceaccount_tests.rs"]
mod tests;
