//! Requests for objects: from verb and path to reading or writing, and the answer in the form asked for.

mod pods;
mod remove;

use std::sync::Arc;

use bytes::Bytes;
use futures::StreamExt;
use http::header::{ACCEPT, CONTENT_TYPE, USER_AGENT};
use http::{Response, StatusCode};
use http_body::Body as HttpBody;
use landfall_api::{Kind, Scope, Status, meta, rules};
use landfall_runtime::clock;
use serde_json::json;

use crate::errors::{must_have_version, no_such_page};
use crate::http::answer;
use crate::http::body::{self, Body};
use crate::http::negotiate::{self, Content, Form, Offers};
use crate::read::logs::LogOptions;
use crate::read::select::Selection;
use crate::read::shape::{Include, Shape};
use crate::read::{get, list, watch};
use crate::reviews;
use crate::route::Target;
use crate::serve::Call;
use crate::write::body::{Decoded, object as decode_object, value as decode_value};
use crate::write::patch::Patch;
use crate::write::update::Part;
use crate::write::{By, Deed, Wanted, Written, create, patch, scale, update};
use crate::{convert, edges, vault};

pub use crate::errors::{no_such_path, not_allowed};

/// The longest name kept of a client that does not say its field manager.
const MANAGER_CHARS_MAX: usize = 128;

/// Everything a verb works with.
struct Place<'a> {
    /// The kind as served at this path.
    kind: Arc<Kind>,
    /// The kind that defaults, validates and stores; another one only where shapes differ.
    home: Arc<Kind>,
    target: &'a Target<'a>,
}

impl Place<'_> {
    fn namespace(&self) -> &str {
        &self.target.namespace
    }
    fn name(&self) -> &str {
        &self.target.name
    }
}

/// Answers a request for objects.
pub async fn dispatch<B>(
    call: &Call<'_>,
    target: &Target<'_>,
    verb: &str,
    body: B,
) -> Result<Response<Body>, Status>
where
    B: HttpBody<Data = Bytes> + Unpin + Send,
    B::Error: std::fmt::Display,
{
    let place = find(call, target)?;
    let mut response = perform(call, &place, verb, body).await?;
    if let Some(warning) = place.kind.rules.deprecation() {
        answer::warn(&mut response, &[warning]);
    }
    Ok(response)
}

async fn perform<B>(call: &Call<'_>, place: &Place<'_>, verb: &str, body: B) -> Result<Response<Body>, Status>
where
    B: HttpBody<Data = Bytes> + Unpin + Send,
    B::Error: std::fmt::Display,
{
    if !place.target.subresource.is_empty() {
        return subresource(call, place, verb, body).await;
    }
    if reviews::is_review(&place.kind) {
        return review(call, place, verb, body).await;
    }
    if !place.kind.verbs.contains(&verb) {
        return Err(not_allowed());
    }
    match verb {
        "get" => read_one(call, place).await,
        "list" => read_many(call, place).await,
        "watch" => open_watch(call, place).await,
        "create" => post(call, place, body).await,
        "update" | "patch" if place.name().is_empty() => Err(not_allowed()),
        "update" => put(call, place, Part::Main, body).await,
        "patch" => change(call, place, Part::Main, body).await,
        "delete" => remove::one(call, place, body).await,
        "deletecollection" => remove::many(call, place, body).await,
        _ => Err(not_allowed()),
    }
}

/// The kind at a path; 404 when there is none, or the scope does not fit.
fn find<'a>(call: &Call<'_>, target: &'a Target<'a>) -> Result<Place<'a>, Status> {
    let catalog = call.api.catalog.load();
    let found = catalog.find(&target.group, &target.version, &target.plural);
    let known = |k: &Arc<Kind>| k.group == target.group && k.version == target.version;
    let absent = || if call.api.builtin.iter().any(known) { no_such_path() } else { no_such_page() };
    let kind = found.filter(|_| !target.too_deep).cloned().ok_or_else(absent)?;
    let namespaced = kind.scope == Scope::Namespaced;
    if !namespaced && !target.namespace.is_empty()
        || namespaced && target.namespace.is_empty() && !target.name.is_empty()
    {
        return Err(no_such_path());
    }
    let home = match convert::of(&kind) {
        Some(_) => catalog
            .find(&kind.stored_as.0, &kind.storage_version, &kind.stored_as.1)
            .cloned()
            .ok_or_else(no_such_path)?,
        None => kind.clone(),
    };
    Ok(Place { kind, home, target })
}

// === reading ===

fn shape(call: &Call<'_>, place: &Place<'_>) -> Result<Shape, Status> {
    let accept = negotiate::accept(call.header(&ACCEPT), Offers::Objects)?;
    let include = match accept.form {
        Form::Table(_) => Include::parse(&call.options.include_object)?,
        _ => Include::Metadata,
    };
    Ok(Shape::new(place.kind.clone(), accept.form, include, clock::epoch_s()))
}

async fn read_one(call: &Call<'_>, place: &Place<'_>) -> Result<Response<Body>, Status> {
    let shape = shape(call, place)?;
    let version = &call.options.resource_version;
    let entry = get::entry(&*call.api.store, &place.kind, place.namespace(), place.name(), version).await?;
    if let Some(label) = shown_label(call, place) {
        // What is not shown is not there.
        let selection = Selection::parse(&place.kind, place.namespace(), place.name(), call.options)?;
        if !selection.having(Some(label)).matches(&entry) {
            return Err(Status::not_found(&place.kind.group, &place.kind.plural, place.name()));
        }
    }
    Ok(answer::styled(StatusCode::OK, shape.single(&entry)?, call.style))
}

/// Where keys begin that are not for whoever asks.
fn hidden(call: &Call<'_>, place: &Place<'_>) -> Option<String> {
    if call.api.vault { vault::hidden(&place.kind, call.user) } else { None }
}

/// The label that whatever is shown must have, for whoever asks.
fn shown_label(call: &Call<'_>, place: &Place<'_>) -> Option<String> {
    edges::shown_label(&call.api.store.snapshot(), &place.kind, call.user)
}

async fn read_many(call: &Call<'_>, place: &Place<'_>) -> Result<Response<Body>, Status> {
    let shape = shape(call, place)?;
    let selection = Selection::parse(&place.kind, place.namespace(), "", call.options)?;
    let selection = selection.without(hidden(call, place)).having(shown_label(call, place));
    let bytes = list::list(&*call.api.store, &shape, &selection, call.options).await?;
    Ok(answer::styled(StatusCode::OK, bytes, call.style))
}

async fn open_watch(call: &Call<'_>, place: &Place<'_>) -> Result<Response<Body>, Status> {
    let shape = shape(call, place)?;
    let selection = Selection::parse(&place.kind, place.namespace(), place.name(), call.options)?;
    let selection = selection.without(hidden(call, place)).having(shown_label(call, place));
    let stop = edges::dismissed(call.api, call.user);
    let frames = watch::watch(&*call.api.store, shape, selection, call.options, stop).await?;
    let mut response = answer::json(StatusCode::OK, Bytes::new());
    *response.body_mut() = Body::stream(frames);
    Ok(response)
}

// === writing ===

fn content(call: &Call<'_>) -> Option<Content> {
    negotiate::content(call.header(&CONTENT_TYPE))
}

/// The name recorded in managedFields: as given, else the first word of the client's name.
fn manager(call: &Call<'_>) -> String {
    let given = &*call.options.field_manager;
    if !given.is_empty() {
        return given.to_owned();
    }
    let agent = call.header(&USER_AGENT).unwrap_or("unknown");
    let first = agent.split('/').next().unwrap_or(agent);
    first.chars().filter(|c| !c.is_control()).take(MANAGER_CHARS_MAX).collect()
}

fn by<'a>(call: &'a Call<'_>, place: &'a Place<'_>, manager: &'a str) -> By<'a> {
    By {
        user: call.user,
        manager,
        dry_run: call.options.dry_run,
        validation: call.options.field_validation,
        served: (!Arc::ptr_eq(&place.kind, &place.home)).then_some(&*place.kind),
    }
}

/// A decoded body in the shape that is stored.
fn decoded(call: &Call<'_>, place: &Place<'_>, bytes: &[u8]) -> Result<Wanted, Status> {
    let Decoded { object, warnings } =
        decode_object(&place.kind, content(call), bytes, call.options.field_validation)?;
    let object = match convert::of(&place.kind) {
        Some(conversion) => (conversion.write)(&object),
        None => object,
    };
    Ok(Wanted::new(object, warnings))
}

async fn post<B>(call: &Call<'_>, place: &Place<'_>, sent: B) -> Result<Response<Body>, Status>
where
    B: HttpBody<Data = Bytes> + Unpin + Send,
    B::Error: std::fmt::Display,
{
    if !place.name().is_empty() {
        return Err(not_allowed());
    }
    if place.kind.scope == Scope::Namespaced && place.namespace().is_empty() {
        return Err(not_allowed());
    }
    let bytes = body::read(sent).await?;
    let wanted = decoded(call, place, &bytes)?;
    let manager = manager(call);
    let written =
        create::create(call.api, &place.home, place.namespace(), wanted, &by(call, place, &manager)).await?;
    written_answer(call, place, &written)
}

async fn put<B>(call: &Call<'_>, place: &Place<'_>, part: Part, sent: B) -> Result<Response<Body>, Status>
where
    B: HttpBody<Data = Bytes> + Unpin + Send,
    B::Error: std::fmt::Display,
{
    let bytes = body::read(sent).await?;
    let mut wanted = decoded(call, place, &bytes)?;
    let (namespace, name) = (place.namespace(), place.name());
    let given = meta::name(&wanted.object);
    if given.is_empty() && place.kind.strategic {
        meta::metadata_mut(&mut wanted.object).insert("name".into(), json!(name));
    } else if given != name {
        return Err(Status::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    if place.kind.scope == Scope::Namespaced && meta::namespace(&wanted.object).is_empty() {
        meta::metadata_mut(&mut wanted.object).insert("namespace".into(), json!(namespace));
    }
    let manager = manager(call);
    let by = by(call, place, &manager);
    if part == Part::Main && rules::creates_on_update(&place.home.group, &place.home.kind) {
        let absent = update::existing(call.api, &place.home, namespace, name).await?.is_none();
        if absent && meta::resource_version(&wanted.object).is_empty() {
            by.may_create(call.api, &place.kind, namespace, name)?;
            let written = create::create(call.api, &place.home, namespace, wanted, &by).await?;
            return written_answer(call, place, &written);
        }
    }
    let blindly = place.kind.strategic && rules::updates_unconditionally(&place.home.group, &place.home.kind);
    if !blindly && meta::resource_version(&wanted.object).is_empty() {
        return Err(must_have_version(&place.kind, name));
    }
    let written = update::update(call.api, &place.home, namespace, name, part, &by, |_| {
        Ok(Wanted::new(wanted.object.clone(), wanted.warnings.clone()))
    })
    .await?;
    written_answer(call, place, &written)
}

async fn change<B>(call: &Call<'_>, place: &Place<'_>, part: Part, sent: B) -> Result<Response<Body>, Status>
where
    B: HttpBody<Data = Bytes> + Unpin + Send,
    B::Error: std::fmt::Display,
{
    let bytes = body::read(sent).await?;
    let manager = manager(call);
    let sent = Patch {
        content: content(call),
        bytes: &bytes,
        force: call.options.force,
        manager_given: !call.options.field_manager.is_empty(),
    };
    let written = patch::patch(
        call.api,
        &place.home,
        place.namespace(),
        place.name(),
        part,
        &sent,
        &by(call, place, &manager),
    )
    .await?;
    written_answer(call, place, &written)
}

fn written_answer(call: &Call<'_>, place: &Place<'_>, written: &Written) -> Result<Response<Body>, Status> {
    let code = if written.deed == Deed::Created { StatusCode::CREATED } else { StatusCode::OK };
    let shape = shape(call, place)?;
    let mut response = if written.entry.revision == 0 {
        // A dry-run create has no resourceVersion.
        let mut object = shape.value(&written.entry)?;
        meta::metadata_mut(&mut object).remove("resourceVersion");
        answer::object(code, &object, call.style)
    } else {
        answer::styled(code, shape.single(&written.entry)?, call.style)
    };
    answer::warn(&mut response, &written.warnings);
    Ok(response)
}

// === subresources and reviews ===

async fn subresource<B>(
    call: &Call<'_>,
    place: &Place<'_>,
    verb: &str,
    sent: B,
) -> Result<Response<Body>, Status>
where
    B: HttpBody<Data = Bytes> + Unpin + Send,
    B::Error: std::fmt::Display,
{
    let sub = &place.kind.sub;
    match (&*place.target.subresource, verb) {
        ("status", "get") if sub.status => read_one(call, place).await,
        ("status", "update") if sub.status => put(call, place, Part::Status, sent).await,
        ("status", "patch") if sub.status => change(call, place, Part::Status, sent).await,
        ("approval", "get") if sub.approval => read_one(call, place).await,
        ("approval", "update") if sub.approval => put(call, place, Part::Approval, sent).await,
        ("approval", "patch") if sub.approval => change(call, place, Part::Approval, sent).await,
        ("finalize", "update") if sub.finalize => put(call, place, Part::Finalize, sent).await,
        ("scale", _) if sub.scale.is_some() => scale_of(call, place, verb, sent).await,
        ("token", "create") if sub.token => token(call, place, sent).await,
        ("binding", "create") if sub.eviction => pods::bind(call, place, sent).await,
        ("eviction", "create") if sub.eviction => pods::evict(call, place, sent).await,
        ("log", "get") if place.kind.group.is_empty() && place.kind.kind == "Pod" => log(call, place).await,
        ("status", _) if sub.status => Err(not_allowed()),
        _ => Err(no_such_path()),
    }
}

/// What a container of a pod has written; 404 when nobody runs pods beside this server.
async fn log(call: &Call<'_>, place: &Place<'_>) -> Result<Response<Body>, Status> {
    let logs = call.api.pod_logs.get().ok_or_else(no_such_path)?;
    let entry = get::entry(&*call.api.store, &place.kind, place.namespace(), place.name(), "").await?;
    let pod = update::current(&place.kind, &entry)?;
    let mut options = LogOptions::parse(call.head.uri.query().unwrap_or(""), clock::epoch_s())?;
    options.choose(&pod)?;
    let lines = logs.open(&pod, &options)?;
    let stop = call.api.tasks.stopping();
    let mut response = answer::text(StatusCode::OK, Bytes::new());
    *response.body_mut() = Body::stream(lines.take_until(stop).boxed());
    Ok(response)
}

async fn scale_of<B>(
    call: &Call<'_>,
    place: &Place<'_>,
    verb: &str,
    sent: B,
) -> Result<Response<Body>, Status>
where
    B: HttpBody<Data = Bytes> + Unpin + Send,
    B::Error: std::fmt::Display,
{
    let (namespace, name) = (place.namespace(), place.name());
    if verb == "get" {
        let entry = get::entry(&*call.api.store, &place.home, namespace, name, "").await?;
        let scale = scale::of(&place.home, &update::current(&place.home, &entry)?)?;
        return Ok(answer::object(StatusCode::OK, &scale, call.style));
    }
    let bytes = body::read(sent).await?;
    let manager = manager(call);
    let by = by(call, place, &manager);
    let kind = content(call);
    let written = match verb {
        "update" => {
            let wanted = decode_value(("autoscaling/v1", "Scale"), kind, &bytes)?;
            if meta::name(&wanted) != name {
                return Err(Status::bad_request(format!(
                    "the name of the object ({}) does not match the name on the URL ({name})",
                    meta::name(&wanted)
                )));
            }
            scale::change(call.api, &place.home, namespace, name, &by, |_| Ok(wanted.clone())).await?
        }
        "patch" => {
            scale::change(call.api, &place.home, namespace, name, &by, |old| {
                scale::patched(kind, old, &bytes)
            })
            .await?
        }
        _ => return Err(not_allowed()),
    };
    let scale = scale::of(&place.home, &update::current(&place.home, &written.entry)?)?;
    Ok(answer::object(StatusCode::OK, &scale, call.style))
}

async fn review<B>(call: &Call<'_>, place: &Place<'_>, verb: &str, sent: B) -> Result<Response<Body>, Status>
where
    B: HttpBody<Data = Bytes> + Unpin + Send,
    B::Error: std::fmt::Display,
{
    if verb != "create" {
        return Err(not_allowed());
    }
    let bytes = body::read(sent).await?;
    let Decoded { object, .. } =
        decode_object(&place.kind, content(call), &bytes, call.options.field_validation)?;
    let answer = call.api.review(&place.kind, place.namespace(), object, call.user)?;
    Ok(answer::object(StatusCode::CREATED, &answer, call.style))
}

async fn token<B>(call: &Call<'_>, place: &Place<'_>, sent: B) -> Result<Response<Body>, Status>
where
    B: HttpBody<Data = Bytes> + Unpin + Send,
    B::Error: std::fmt::Display,
{
    let bytes = body::read(sent).await?;
    let request = decode_value(("authentication.k8s.io/v1", "TokenRequest"), content(call), &bytes)?;
    let entry = get::entry(&*call.api.store, &place.kind, place.namespace(), place.name(), "").await?;
    let account = update::current(&place.kind, &entry)?;
    let answer = call.api.token(&account, request, call.user)?;
    Ok(answer::object(StatusCode::CREATED, &answer, call.style))
}
