//! Deletes: of one object, and of all that a selection means.

use std::sync::Arc;

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt};
use http::{Response, StatusCode};
use http_body::Body as HttpBody;
use landfall_api::{Reason, Scope, Status, decode, meta, schema};
use landfall_runtime::clock;
use landfall_store::Entry;
use serde_json::{Value, json};

use super::{Place, by, content, manager, written_answer};
use crate::encode;
use crate::errors;
use crate::http::answer;
use crate::http::body::{self, Body};
use crate::http::negotiate::{Content, Form};
use crate::read::list;
use crate::read::select::Selection;
use crate::read::shape::{Include, Shape};
use crate::serve::Call;
use crate::vault;
use crate::write::body::value as decode_value;
use crate::write::delete::{self, DeleteOptions};
use crate::write::{By, Deed, update};

/// How many objects of a collection are deleted at once, so that they share the store's commits.
const AT_ONCE_MAX: usize = 32;

/// Deletes one object.
pub(super) async fn one<B>(call: &Call<'_>, place: &Place<'_>, sent: B) -> Result<Response<Body>, Status>
where
    B: HttpBody<Data = Bytes> + Unpin + Send,
    B::Error: std::fmt::Display,
{
    let options = delete_options(call, sent).await?;
    let manager = manager(call);
    let by = by(call, place, &manager);
    let written =
        delete::delete(call.api, &place.home, place.namespace(), place.name(), &options, &by).await?;
    let hides = call.api.vault && vault::hides(&place.kind, place.namespace(), call.user);
    if written.deed == Deed::Marked && !hides {
        return written_answer(call, place, &written);
    }
    let uid = encode::decode(&written.entry).map(|o| meta::uid(&o).to_owned()).unwrap_or_default();
    let mut details = json!({"name": place.name(), "kind": &*place.kind.plural, "uid": uid});
    if !place.kind.group.is_empty() {
        details["group"] = json!(&*place.kind.group);
    }
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details,
    });
    Ok(answer::object(StatusCode::OK, &status, call.style))
}

/// Deletes what a selection means, a chunk of it if a limit is given; answers with what it was.
pub(super) async fn many<B>(call: &Call<'_>, place: &Place<'_>, sent: B) -> Result<Response<Body>, Status>
where
    B: HttpBody<Data = Bytes> + Unpin + Send,
    B::Error: std::fmt::Display,
{
    if place.kind.scope == Scope::Namespaced && place.namespace().is_empty() {
        // Nobody means the objects of all namespaces.
        return Err(errors::not_allowed());
    }
    let options = delete_options(call, sent).await?;
    let selection = Selection::parse(&place.kind, place.namespace(), "", call.options)?;
    let manager = manager(call);
    let by = by(call, place, &manager);
    let shape = Shape::new(place.kind.clone(), Form::Plain, Include::Metadata, clock::epoch_s());
    let (entries, metadata) = list::page(&*call.api.store, &shape, &selection, call.options).await?;
    let deletes: Vec<_> =
        entries.into_iter().map(|entry| delete_seen(call, place, &shape, entry, &options, &by)).collect();
    let items: Vec<Option<Value>> =
        futures::stream::iter(deletes).buffered(AT_ONCE_MAX).try_collect().await?;
    let items: Vec<Value> = items.into_iter().flatten().collect();
    let kind = &place.kind;
    let answer = json!({
        "kind": &*kind.list_kind, "apiVersion": encode::api_version(&kind.group, &kind.version),
        "metadata": metadata, "items": items,
    });
    Ok(answer::object(StatusCode::OK, &answer, call.style))
}

/// Deletes an object of a list: that one, and no other that came to its name since. None when somebody was faster.
async fn delete_seen(
    call: &Call<'_>,
    place: &Place<'_>,
    shape: &Shape,
    entry: Arc<Entry>,
    options: &DeleteOptions,
    by: &By<'_>,
) -> Result<Option<Value>, Status> {
    let object = shape.value(&entry)?;
    let (namespace, name, uid) = (meta::namespace(&object), meta::name(&object), meta::uid(&object));
    let mut options = options.clone();
    let any = options.uid.is_empty();
    if any {
        uid.clone_into(&mut options.uid);
    }
    match delete::delete(call.api, &place.home, namespace, name, &options, by).await {
        Ok(_) => Ok(Some(object)),
        Err(status) if status.reason == Reason::NotFound => Ok(None),
        Err(status) if status.reason == Reason::Conflict && any => {
            let now = update::existing(call.api, &place.home, namespace, name).await?;
            let same = now.and_then(|e| encode::decode(&e).ok()).is_some_and(|o| meta::uid(&o) == uid);
            if same { Err(status) } else { Ok(None) }
        }
        Err(status) => Err(status),
    }
}

async fn delete_options<B>(call: &Call<'_>, sent: B) -> Result<DeleteOptions, Status>
where
    B: HttpBody<Data = Bytes> + Unpin + Send,
    B::Error: std::fmt::Display,
{
    let bytes = body::read(sent).await?;
    let body = if bytes.is_empty() { Value::Null } else { options_body(content(call), &bytes)? };
    DeleteOptions::parse(&body, call.options)
}

/// A body that must be DeleteOptions, of whichever group: clients name the one they delete in.
fn options_body(content: Option<Content>, bytes: &[u8]) -> Result<Value, Status> {
    const KIND: &str = "DeleteOptions";
    let mut body = decode_value(("v1", KIND), content, bytes)?;
    if body.is_null() {
        return Ok(body);
    }
    if body.get("kind").and_then(Value::as_str).is_some_and(|kind| !kind.is_empty() && kind != KIND) {
        return Err(Status::bad_request("decoded object cannot be converted to DeleteOptions"));
    }
    let of = schema::builtin("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions");
    match schema::normalize(of, &mut body).error {
        Some(error) => Err(decode::refuse_object(KIND, "v1", &error)),
        None => Ok(body),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_delete_options_are_taken() {
        let check = |body: &str, expected: Result<Value, &str>| match (
            options_body(Some(Content::Json), body.as_bytes()),
            expected,
        ) {
            (Ok(found), Ok(expected)) => assert_eq!(found, expected, "{body}"),
            (Err(found), Err(expected)) => {
                assert_eq!(found.reason.code(), 400, "{body}");
                assert!(found.message.contains(expected), "{body}: {}", found.message);
            }
            (found, _) => panic!("{body}: {found:?}"),
        };
        check(r#"{"propagationPolicy":"Orphan"}"#, Ok(json!({"propagationPolicy": "Orphan"})));
        check(
            r#"{"kind":"DeleteOptions","apiVersion":"apps/v1","gracePeriodSeconds":3,"no":1}"#,
            Ok(json!({"kind": "DeleteOptions", "apiVersion": "apps/v1", "gracePeriodSeconds": 3})),
        );
        check(r#"{"kind":"Service","apiVersion":"v1"}"#, Err("cannot be converted to DeleteOptions"));
        check(r#"{"preconditions":{"uid":7}}"#, Err("cannot be handled as a DeleteOptions"));
        check(r#"{"propagationPolicy":["Orphan"]}"#, Err("cannot be handled as a DeleteOptions"));
        check(r#"{"dryRun":"All"}"#, Err("cannot be handled as a DeleteOptions"));
        check("[]", Err("unrecognized"));
    }
}
