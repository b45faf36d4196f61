//! Who is asking: a request's credentials in, a [`User`] or `401 Unauthorized` out.
//!
//! ```text
//!   client certificate ──► x509        (once per connection)
//!   Bearer token ────────► token_file  (static tokens)
//!                    ├───► bootstrap_token (short-lived, of Secrets)
//!                    └───► serviceaccount (signed tokens, over jwt)
//!   nothing ─────────────► system:anonymous
//!   Impersonate-* ───────► impersonate (asks authz, then swaps the user)
//! ```
//!
//! The order is Kubernetes': a certificate wins over a token, and a wrong token is refused instead of becoming
//! anonymous. Tokens are never logged and never kept; maps are keyed by their SHA-256.
//!
//! Deliberately absent: OIDC, webhooks, legacy tokens in Secrets.

pub mod bootstrap_token;
pub mod impersonate;
pub mod jwt;
pub mod oidc;
pub mod serviceaccount;
pub mod token_file;
pub mod x509;

use std::collections::BTreeMap;
use std::sync::Arc;

use http::HeaderMap;
use http::header::AUTHORIZATION;
use landfall_api::{Reason, Status};
use serde_json::{Value, json};

pub use serviceaccount::{Found, ServiceAccounts};
pub use token_file::TokenFile;
pub use x509::Peer;

/// The group whose members may do anything.
pub const MASTERS: &str = "system:masters";
/// The group of everyone with credentials.
pub const AUTHENTICATED: &str = "system:authenticated";
/// The group of everyone without.
pub const UNAUTHENTICATED: &str = "system:unauthenticated";
/// The user without credentials.
pub const ANONYMOUS: &str = "system:anonymous";
/// The key in [`User::extra`] that says which credential was used.
pub const CREDENTIAL_ID: &str = "authentication.kubernetes.io/credential-id";

/// Whoever makes a request.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct User {
    /// Name, such as `landfall-admin` or `system:serviceaccount:default:builder`.
    pub name: String,
    /// Unique over time; empty when the credential has none.
    pub uid: String,
    /// Groups, the automatic ones included.
    pub groups: Vec<String>,
    /// Anything else the credential says.
    pub extra: BTreeMap<String, Vec<String>>,
}

impl User {
    /// Whoever comes without credentials.
    pub fn anonymous() -> Self {
        Self { name: ANONYMOUS.into(), groups: vec![UNAUTHENTICATED.into()], ..Self::default() }
    }

    /// Whether the user is in that group.
    pub fn in_group(&self, group: &str) -> bool {
        self.groups.iter().any(|g| g == group)
    }

    /// Adds `system:authenticated` unless an automatic group is there already or the user is anonymous.
    fn authenticated(mut self) -> Self {
        let marked = self.in_group(AUTHENTICATED) || self.in_group(UNAUTHENTICATED);
        if !marked && self.name != ANONYMOUS {
            self.groups.push(AUTHENTICATED.into());
        }
        self
    }

    /// The `UserInfo` object that reviews and audit events show.
    pub fn to_value(&self) -> Value {
        let mut info = serde_json::Map::new();
        info.insert("username".into(), json!(self.name));
        if !self.uid.is_empty() {
            info.insert("uid".into(), json!(self.uid));
        }
        if !self.groups.is_empty() {
            info.insert("groups".into(), json!(self.groups));
        }
        if !self.extra.is_empty() {
            info.insert("extra".into(), json!(self.extra));
        }
        Value::Object(info)
    }
}

/// Looks up objects that credentials refer to, by plural of the core group, namespace and name.
pub type Lookup<'a> = &'a (dyn Fn(&str, &str, &str) -> Option<Found> + 'a);

/// A token that was accepted.
#[derive(Clone, Debug)]
pub struct Accepted {
    /// Whose it is.
    pub user: Arc<User>,
    /// The audiences asked for that the token is meant for; none when tokens of this sort have no audience.
    pub audiences: Vec<String>,
}

/// Every way in.
pub struct Authenticator {
    tokens: TokenFile,
    accounts: Arc<ServiceAccounts>,
    anonymous: Option<Arc<User>>,
}

impl Authenticator {
    /// With a file of static tokens (it may be empty), service accounts, and whether anonymous requests go on.
    pub fn new(tokens: TokenFile, accounts: Arc<ServiceAccounts>, anonymous: bool) -> Self {
        let anonymous = anonymous.then(|| Arc::new(User::anonymous()));
        Self { tokens, accounts, anonymous }
    }

    /// The service accounts' token maker and checker.
    pub fn accounts(&self) -> &Arc<ServiceAccounts> {
        &self.accounts
    }

    /// The user of a request. `peer` is who the connection's client certificate names, found once per connection
    /// by [`crate::pki::Tls::peer`]. The cost for a certificate is one reference count.
    pub fn authenticate(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        lookup: Lookup<'_>,
        now_s: i64,
    ) -> Result<Arc<User>, Status> {
        match (peer, bearer(headers)) {
            (Peer::User(user), _) => Ok(Arc::clone(user)),
            (_, Some(token)) => match self.token(token, None, lookup, now_s) {
                Ok(accepted) => Ok(accepted.user),
                Err(why) => {
                    tracing::debug!(why, "refused a bearer token");
                    Err(unauthorized())
                }
            },
            (Peer::Refused, None) => Err(unauthorized()),
            (Peer::Nobody, None) => self.anonymous.clone().ok_or_else(unauthorized),
        }
    }

    /// Checks one token, for `audiences` or for the API's own when there are none; the error is for TokenReview
    /// and logs and holds no part of the token.
    pub fn token(
        &self,
        token: &str,
        audiences: Option<&[String]>,
        lookup: Lookup<'_>,
        now_s: i64,
    ) -> Result<Accepted, String> {
        let known = self.tokens.find(token).or_else(|| bootstrapper(token, lookup, now_s));
        if let Some(user) = known {
            // Such a token is meant for this API only.
            let ours = self.accounts.audiences();
            let wanted = audiences.unwrap_or(ours);
            let audiences: Vec<_> = ours.iter().filter(|a| wanted.contains(a)).cloned().collect();
            if !audiences.is_empty() {
                return Ok(Accepted { user, audiences });
            }
        }
        match self.accounts.verify(token, audiences, lookup, now_s) {
            Ok(Some(accepted)) => Ok(accepted),
            Ok(None) => Err("invalid bearer token".into()),
            Err(why) => Err(format!("[invalid bearer token, {why}]")),
        }
    }
}

/// Who shows a bootstrap token, if it is one.
fn bootstrapper(token: &str, lookup: Lookup<'_>, now_s: i64) -> Option<Arc<User>> {
    let (id, secret) = bootstrap_token::parse(token)?;
    let name = format!("{}{id}", bootstrap_token::SECRET_PREFIX);
    let found = lookup("secrets", bootstrap_token::NAMESPACE, &name)?;
    bootstrap_token::user(id, secret, &found, now_s).map(Arc::new)
}

/// The 401 of Kubernetes.
pub fn unauthorized() -> Status {
    Status::new(Reason::Unauthorized, "Unauthorized")
}

/// The token of `Authorization: Bearer …`; none for other schemes, as Kubernetes has it.
fn bearer(headers: &HeaderMap) -> Option<&str> {
    let bytes = headers.get(AUTHORIZATION)?.as_bytes();
    // What is no text is no token either, and the empty token is nobody's.
    let Ok(text) = std::str::from_utf8(bytes) else { return Some("") };
    let mut parts = text.trim().split(' ');
    let scheme = parts.next()?;
    let token = parts.next()?;
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

/// A text field of a JSON object, or `""`.
pub(crate) fn text<'a>(object: &'a Value, key: &str) -> &'a str {
    object.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// SHA-256, by which tokens are known here.
pub(crate) fn sha256(bytes: &[u8]) -> [u8; 32] {
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, bytes);
    let mut out = [0; 32];
    out.copy_from_slice(digest.as_ref());
    out
}

/// A random (version 4) UUID.
pub(crate) fn uuid() -> String {
    let mut bytes = [0_u8; 16];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system gives random bytes");
    let number = u128::from_be_bytes(bytes) & !(0xf << 76) & !(0b11 << 62) | (4 << 76) | (0b10 << 62);
    let hex = format!("{number:032x}");
    format!("{}-{}-{}-{}-{}", &hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..])
}

/// Lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        let _ = write!(out, "{byte:02x}");
        out
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authn::jwt::SigningKey;

    fn doors(anonymous: bool) -> Authenticator {
        let key = SigningKey::generate().expect("a key");
        let accounts = ServiceAccounts::new("https://kubernetes.default.svc", &[], key, vec![]);
        let tokens = TokenFile::parse("s3cret,alice,1,\"dev,ops\"\n").expect("a good file");
        Authenticator::new(tokens, Arc::new(accounts), anonymous)
    }

    fn headers(authorization: &str) -> HeaderMap {
        let mut map = HeaderMap::new();
        if !authorization.is_empty() {
            let value = http::HeaderValue::from_bytes(authorization.as_bytes());
            map.insert(AUTHORIZATION, value.expect("a header value"));
        }
        map
    }

    #[test]
    fn a_request_becomes_a_user_or_401() {
        let check = |anonymous: bool, header: &str, expected: Result<&str, u16>| {
            let user = doors(anonymous).authenticate(&Peer::Nobody, &headers(header), &|_, _, _| None, 0);
            let got = user.as_ref().map(|u| u.name.as_str()).map_err(|s| s.reason.code());
            assert_eq!(got, expected, "{header:?}");
        };
        check(true, "", Ok(ANONYMOUS));
        check(false, "", Err(401));
        check(true, "Bearer s3cret", Ok("alice"));
        check(true, "bearer s3cret trailing", Ok("alice"));
        check(true, "Bearer wrong", Err(401));
        check(true, "Bearer ", Ok(ANONYMOUS));
        check(true, "Basic YTpi", Ok(ANONYMOUS));
        check(true, "Bearer a.b.c", Err(401));
        check(true, "Bearer s3crét", Err(401));
    }

    #[test]
    fn a_certificate_wins_over_a_token() {
        let check = |peer: &Peer, header: &str, expected: Result<&str, u16>| {
            let user = doors(true).authenticate(peer, &headers(header), &|_, _, _| None, 0);
            assert_eq!(user.as_ref().map(|u| u.name.as_str()).map_err(|s| s.reason.code()), expected);
        };
        let carol = Peer::User(Arc::new(User { name: "carol".into(), ..User::default() }));
        check(&carol, "Bearer s3cret", Ok("carol"));
        check(&carol, "", Ok("carol"));
        check(&Peer::Refused, "", Err(401));
        check(&Peer::Refused, "Bearer s3cret", Ok("alice"));
    }

    #[test]
    fn automatic_groups_are_added_once() {
        let check = |name: &str, groups: &[&str], expected: &[&str]| {
            let groups = groups.iter().map(|g| (*g).to_owned()).collect();
            let user = User { name: name.into(), groups, ..User::default() }.authenticated();
            assert_eq!(user.groups, expected);
        };
        check("a", &["g"], &["g", AUTHENTICATED]);
        check("a", &[AUTHENTICATED, "g"], &[AUTHENTICATED, "g"]);
        check(ANONYMOUS, &[UNAUTHENTICATED], &[UNAUTHENTICATED]);
    }

    proptest::proptest! {
        /// Whatever comes in at the doors is refused or taken, never a panic.
        #[test]
        fn no_input_breaks_a_decoder(text in ".{0,200}", bytes in proptest::collection::vec(0_u8.., 0..300)) {
            let _ = TokenFile::parse(&text);
            let _ = jwt::parse(&text);
            let _ = SigningKey::from_pem(&text);
            let _ = x509::user(&bytes);
            let _ = jwt::VerifyingKey::from_spki(&bytes);
            let doors = doors(true);
            let _ = doors.token(&text, None, &|_, _, _| None, 0);
            let mut headers = HeaderMap::new();
            if let Ok(value) = http::HeaderValue::from_bytes(&bytes) {
                headers.insert(AUTHORIZATION, value.clone());
                headers.insert("impersonate-user", value.clone());
                headers.insert("impersonate-extra-a%2", value);
            }
            let _ = doors.authenticate(&Peer::Nobody, &headers, &|_, _, _| None, 0);
            let policy = crate::authz::Policy::default();
            let _ = impersonate::impersonate(&headers, &User::anonymous(), &policy);
        }
    }

    #[test]
    fn uuids_are_version_4_and_differ() {
        let (a, b) = (uuid(), uuid());
        assert_ne!(a, b);
        assert_eq!((a.len(), &a[14..15]), (36, "4"));
        assert!("89ab".contains(&a[19..20]), "{a}");
    }
}
