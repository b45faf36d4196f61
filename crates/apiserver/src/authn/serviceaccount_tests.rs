//! Tokens made, tampered with, expired, for others, and of accounts that are gone.

use super::*;

const ISSUER: &str = "https://kubernetes.default.svc";
const NOW: i64 = 1_800_000_000;

fn accounts() -> ServiceAccounts {
    ServiceAccounts::new(ISSUER, &[], SigningKey::generate().expect("a key"), vec![])
}

fn owned(list: &[&str]) -> Vec<String> {
    list.iter().map(|s| (*s).to_owned()).collect()
}

fn found(uid: &str) -> Option<Found> {
    Some(Found { uid: uid.into(), ..Found::default() })
}

fn here(plural: &str, namespace: &str, name: &str) -> Option<Found> {
    match (plural, namespace, name) {
        ("serviceaccounts", "dev", "builder") => found("u1"),
        ("secrets", "dev", "lease") => found("s1"),
        _ => None,
    }
}

fn request<'a>(audiences: &'a [String]) -> Request<'a> {
    Request { namespace: "dev", name: "builder", uid: "u1", audiences, expiration_s: 600, bound: None }
}

#[test]
fn a_token_names_its_account() {
    let accounts = accounts();
    let token = accounts.issue(&request(accounts.audiences()), NOW).expect("a token");
    let accepted = accounts.verify(&token, None, &here, NOW).expect("good").expect("ours");
    assert_eq!(accepted.user.name, "system:serviceaccount:dev:builder");
    assert_eq!(accepted.user.uid, "u1");
    assert_eq!(
        accepted.user.groups,
        ["system:serviceaccounts", "system:serviceaccounts:dev", "system:authenticated"]
    );
    assert!(accepted.user.extra[CREDENTIAL_ID][0].starts_with("JTI="));
    assert_eq!(accepted.audiences, [ISSUER]);
}

#[test]
fn tokens_are_refused_for_a_reason() {
    let accounts = accounts();
    let check = |change: &dyn Fn(&mut Request<'_>), lookup: Lookup<'_>, at_s: i64, expected: &str| {
        let audiences = owned(&[ISSUER]);
        let mut request = request(&audiences);
        change(&mut request);
        let token = accounts.issue(&request, NOW).expect("a token");
        // Twice: a remembered signature must not shorten the checks.
        for _ in 0..2 {
            let got = accounts.verify(&token, None, lookup, at_s).err().unwrap_or_default();
            assert_eq!(got, expected);
        }
    };
    let other = owned(&["vault"]);
    let gone = |plural: &str, ns: &str, name: &str| {
        here(plural, ns, name).map(|f| Found { deleted_s: Some(NOW - 61), ..f })
    };
    let recreated =
        |plural: &str, ns: &str, name: &str| here(plural, ns, name).map(|f| Found { uid: "u2".into(), ..f });
    let bound = |r: &mut Request<'_>| r.bound = Some(("secret", "lease", "s1"));
    check(&|_| (), &here, NOW, "");
    check(&|_| (), &here, NOW + 660, "");
    check(&|_| (), &here, NOW + 661, "service account token has expired");
    check(&|_| (), &here, NOW - 61, "service account token is not valid yet");
    check(&|_| (), &|_, _, _| None, NOW, "serviceaccounts \"builder\" not found");
    check(&|_| (), &recreated, NOW, "service account UID (u2) does not match claim (u1)");
    check(&|_| (), &gone, NOW, "service account dev/builder has been deleted");
    check(&bound, &here, NOW, "");
    check(
        &|r| r.bound = Some(("secret", "lease", "s0")),
        &here,
        NOW,
        "secret UID (s1) does not match service account secret ref claim (s0)",
    );
    check(
        &|r| r.bound = Some(("secret", "none", "s1")),
        &here,
        NOW,
        "service account token has been invalidated",
    );
    check(
        &|r| r.bound = Some(("pod", "none", "s1")),
        &here,
        NOW,
        "service account token has been invalidated",
    );
    let token = accounts.issue(&request(&other), NOW).expect("a token");
    assert_eq!(
        accounts.verify(&token, None, &here, NOW).expect_err("refused"),
        format!(r#"token audiences ["vault"] is invalid for the target audiences ["{ISSUER}"]"#)
    );
    assert!(accounts.verify(&token, Some(&other), &here, NOW).is_ok_and(|a| a.is_some()));
}

#[test]
fn tampered_and_foreign_tokens_are_refused() {
    let (ours, theirs) = (accounts(), accounts());
    let foreign = ServiceAccounts::new("https://else", &[], SigningKey::generate().expect("a key"), vec![]);
    let audiences = owned(&[ISSUER]);
    let good = ours.issue(&request(&audiences), NOW).expect("a token");
    let verify = |token: &str| ours.verify(token, None, &here, NOW);
    assert!(verify(&good).is_ok_and(|a| a.is_some()));

    let stranger = theirs.issue(&request(&audiences), NOW).expect("a token");
    assert_eq!(verify(&stranger).err().as_deref(), Some("invalid signature, no keys found"));
    let elsewhere = foreign.issue(&request(&audiences), NOW).expect("a token");
    assert!(verify(&elsewhere).is_ok_and(|a| a.is_none()), "another issuer's token is not ours to judge");

    let mut parts: Vec<&str> = good.split('.').collect();
    let strange = stranger.split('.').collect::<Vec<_>>();
    parts[1] = strange[1];
    assert_eq!(verify(&parts.join(".")).err().as_deref(), Some("invalid signature"));
}

#[test]
fn a_former_key_is_accepted_when_given() {
    let former = SigningKey::generate().expect("a key");
    let former_public = VerifyingKey::from_spki(&spki(&former)).expect("a public key");
    let old = ServiceAccounts::new(ISSUER, &[], former, vec![]);
    let token = old.issue(&request(old.audiences()), NOW).expect("a token");
    let new = ServiceAccounts::new(ISSUER, &[], SigningKey::generate().expect("a key"), vec![former_public]);
    assert!(new.verify(&token, None, &here, NOW).is_ok_and(|a| a.is_some()));
}

fn spki(key: &SigningKey) -> Vec<u8> {
    key.public().spki().to_vec()
}

#[test]
fn memory_of_signatures_is_bounded() {
    let accounts = accounts();
    for at in 0..REMEMBERED_MAX + 10 {
        accounts.remember(sha256(&at.to_le_bytes()), {
            let claims = json!({"sub": "system:serviceaccount:a:b",
                "kubernetes.io": {"namespace": "a", "serviceaccount": {"name": "b"}}});
            Claims::parse(&claims).expect("claims")
        });
    }
    assert!(accounts.remembered.read().len() <= REMEMBERED_MAX);
}

#[test]
fn user_names_split_only_when_they_are_accounts() {
    let check =
        |user: &str, expected: Option<(&str, &str)>| assert_eq!(split_username(user), expected, "{user}");
    check("system:serviceaccount:dev:builder", Some(("dev", "builder")));
    check("system:serviceaccount:dev:a.b-c", Some(("dev", "a.b-c")));
    check("system:serviceaccount:dev", None);
    check("system:serviceaccount:dev:", None);
    check("system:serviceaccount::x", None);
    check("system:serviceaccount:dev:a:b", None);
    check("system:serviceaccount:Dev:b", None);
    check("alice", None);
}
