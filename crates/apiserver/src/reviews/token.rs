//! Is this token good, and give me one: TokenReview and TokenRequest.

use landfall_api::field::{ErrorList, Path};
use landfall_api::{Status, meta};
use serde_json::{Value, json};

use super::{AUTHENTICATION, Context, time};
use crate::authn::{serviceaccount, text};

/// The shortest life of a token.
const EXPIRATION_S_MIN: i64 = 600;
/// The longest.
const EXPIRATION_S_MAX: i64 = 1 << 32;
/// The life of a token that asks for none.
const EXPIRATION_S: i64 = 3600;

/// TokenReview.
pub(super) fn token_review(mut body: Value, context: &Context<'_>) -> Result<Value, Status> {
    let none = Value::Null;
    let spec = body.get("spec").unwrap_or(&none);
    let token = text(spec, "token");
    if token.is_empty() {
        return Err(Status::bad_request("token is required for TokenReview in authentication"));
    }
    let audiences = audiences(spec);
    let wanted = (!audiences.is_empty()).then_some(audiences.as_slice());
    let status = match context.authenticator.token(token, wanted, context.lookup, context.now_s) {
        Ok(accepted) => json!({
            "authenticated": true, "user": accepted.user.to_value(), "audiences": accepted.audiences,
        }),
        Err(why) => json!({"user": {}, "error": why}),
    };
    meta::metadata_mut(&mut body);
    body["status"] = status;
    Ok(body)
}

/// TokenRequest: a token for `account` (a ServiceAccount), as `/token` of a service account answers it.
pub fn token_request(account: &Value, mut body: Value, context: &Context<'_>) -> Result<Value, Status> {
    if !body.is_object() {
        body = json!({});
    }
    check_identity(account, &body)?;
    let (namespace, name, uid) = (meta::namespace(account), meta::name(account), meta::uid(account));
    let spec = body.get("spec").cloned().unwrap_or_default();
    let accounts = context.authenticator.accounts();
    let mut audiences = audiences(&spec);
    if audiences.is_empty() {
        audiences = accounts.audiences().to_vec();
    }
    let expiration_s = spec.get("expirationSeconds").and_then(Value::as_i64).unwrap_or(EXPIRATION_S);
    check_expiration(expiration_s)?;
    let reference = spec.get("boundObjectRef").filter(|reference| reference.is_object());
    let bound = reference.map(|reference| find_bound(reference, namespace, context)).transpose()?;
    let request = serviceaccount::Request {
        namespace,
        name,
        uid,
        audiences: &audiences,
        expiration_s,
        bound: bound.as_ref().map(|(claim, name, uid)| (*claim, name.as_str(), uid.as_str())),
    };
    let token = accounts
        .issue(&request, context.now_s)
        .map_err(|why| Status::internal(format!("failed to generate token: {why}")))?;
    let metadata = meta::metadata_mut(&mut body);
    for (field, value) in [("name", name), ("namespace", namespace), ("uid", uid)] {
        metadata.insert(field.into(), json!(value));
    }
    metadata.insert("creationTimestamp".into(), json!(time(context.now_s)));
    body["apiVersion"] = json!(format!("{AUTHENTICATION}/v1"));
    body["kind"] = json!("TokenRequest");
    body["spec"] =
        json!({"audiences": audiences, "expirationSeconds": expiration_s, "boundObjectRef": reference});
    let expires = time(context.now_s.saturating_add(expiration_s));
    body["status"] = json!({"token": token, "expirationTimestamp": expires});
    Ok(body)
}

/// Name, namespace and uid in the body are the account's, if they are there at all.
fn check_identity(account: &Value, body: &Value) -> Result<(), Status> {
    for field in ["name", "namespace"] {
        let given = meta::string(body, field);
        if !given.is_empty() && given != meta::string(account, field) {
            let mut errors = ErrorList::new();
            let why = format!("must match the service account {field} if specified");
            errors.invalid(&Path::new("metadata").child(field), given, why);
            return Err(Status::invalid(AUTHENTICATION, "TokenRequest", meta::name(account), &errors));
        }
    }
    let (given, uid) = (meta::uid(body), meta::uid(account));
    if !given.is_empty() && given != uid {
        let why = format!(
            "the UID in the token request ({given}) does not match the UID of the service account ({uid})"
        );
        return Err(Status::conflict(AUTHENTICATION, "TokenRequest", meta::name(account), &why));
    }
    Ok(())
}

fn check_expiration(expiration_s: i64) -> Result<(), Status> {
    let why = if expiration_s < EXPIRATION_S_MIN {
        "may not specify a duration less than 10 minutes"
    } else if expiration_s > EXPIRATION_S_MAX {
        "may not specify a duration larger than 2^32 seconds"
    } else {
        return Ok(());
    };
    let mut errors = ErrorList::new();
    errors.invalid(&Path::new("spec").child("expirationSeconds"), expiration_s, why);
    Err(Status::invalid(AUTHENTICATION, "TokenRequest", "", &errors))
}

/// The claim, name and uid of the object whose life the token shares.
fn find_bound(
    reference: &Value,
    namespace: &str,
    context: &Context<'_>,
) -> Result<(&'static str, String, String), Status> {
    let (kind, version, name) =
        (text(reference, "kind"), text(reference, "apiVersion"), text(reference, "name"));
    let (claim, plural, namespace) = match (version.contains('/'), kind) {
        (false, "Secret") => ("secret", "secrets", namespace),
        (false, "Pod") => ("pod", "pods", namespace),
        (false, "Node") => ("node", "nodes", ""),
        _ => {
            let (group, version) = version.split_once('/').unwrap_or(("", version));
            let why = format!("cannot bind token to object of type {group}/{version}, Kind={kind}");
            return Err(Status::bad_request(why));
        }
    };
    let found =
        (context.lookup)(plural, namespace, name).ok_or_else(|| Status::not_found("", plural, name))?;
    let asked = text(reference, "uid");
    if !asked.is_empty() && asked != found.uid {
        let why = format!(
            "the UID in the bound object reference ({asked}) does not match the UID in record. The object might have been deleted and then recreated"
        );
        return Err(Status::conflict("", kind, name, &why));
    }
    Ok((claim, name.to_owned(), found.uid))
}

fn audiences(spec: &Value) -> Vec<String> {
    let list = spec.get("audiences").and_then(Value::as_array);
    list.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect()
}
