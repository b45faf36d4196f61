//! Patching: the four ways to say a change, all ending in the same update.

use std::borrow::Cow;

use landfall_api::decode::Duplicate;
use landfall_api::field::{ErrorList, Path};
use landfall_api::{Kind, Reason, Status, meta};
use serde_json::{Value, json};

use super::body::{self, Decoded};
use super::update::{Part, existing, update};
use super::{By, Wanted, Written, create};
use crate::api::Api;
use crate::convert::{self, Conversion};
use crate::http::negotiate::{self, Content};
use crate::managed;
use crate::options::FieldValidation;
use crate::{encode, patch};

/// A patch as sent.
#[derive(Debug)]
pub struct Patch<'a> {
    /// What sort of patch.
    pub content: Option<Content>,
    /// Its body.
    pub bytes: &'a [u8],
    /// For server-side apply: take fields from other managers.
    pub force: Option<bool>,
    /// Whether the client named its field manager.
    pub manager_given: bool,
}

/// Patches one object of the stored `kind` as its endpoint shows it; server-side apply creates it if it is not there.
pub async fn patch(
    api: &Api,
    kind: &Kind,
    namespace: &str,
    name: &str,
    part: Part,
    patch: &Patch<'_>,
    by: &By<'_>,
) -> Result<Written, Status> {
    if patch.content == Some(Content::ApplyPatch) {
        return apply(api, kind, namespace, name, part, patch, by).await;
    }
    if patch.force.is_some() {
        return Err(invalid_options("force: Forbidden: may not be specified for non-apply patch"));
    }
    let shown = Shown::new(by.served.unwrap_or(kind));
    let change = Change::parse(shown.kind, patch)?;
    update(api, kind, namespace, name, part, by, |old| {
        let mut wanted = change.apply(shown.kind, &shown.read(old), by.validation)?;
        wanted.object = shown.write(wanted.object);
        Ok(wanted)
    })
    .await
}

fn invalid_options(what: &str) -> Status {
    let message = format!("PatchOptions.meta.k8s.io \"\" is invalid: {what}");
    Status::new(Reason::Invalid, message).about("meta.k8s.io", "PatchOptions", "")
}

/// A kind as its endpoint shows it, and the way there and back from what is stored.
struct Shown<'a> {
    kind: &'a Kind,
    conversion: Option<Conversion>,
}

impl<'a> Shown<'a> {
    fn new(kind: &'a Kind) -> Self {
        Self { kind, conversion: convert::of(kind) }
    }

    fn read<'o>(&self, stored: &'o Value) -> Cow<'o, Value> {
        match self.conversion {
            Some(conversion) => Cow::Owned((conversion.read)(stored)),
            None => Cow::Borrowed(stored),
        }
    }

    fn write(&self, shown: Value) -> Value {
        match self.conversion {
            Some(conversion) => (conversion.write)(&shown),
            None => shown,
        }
    }
}

/// A patch, read once and applied as often as the race needs.
struct Change<'a> {
    content: Content,
    bytes: &'a [u8],
    /// What a strict decoder minds about the patch itself.
    duplicates: Vec<Duplicate>,
}

impl<'a> Change<'a> {
    fn parse(kind: &Kind, patch: &Patch<'a>) -> Result<Self, Status> {
        let json = || body::parse("", &kind.kind, Some(Content::Json), patch.bytes);
        let duplicates = match patch.content {
            Some(Content::JsonPatch) => Vec::new(),
            Some(Content::MergePatch) => json()?.duplicates,
            Some(Content::StrategicPatch) if kind.strategic => json()?.duplicates,
            _ => return Err(negotiate::unsupported(accepted(kind))),
        };
        Ok(Self { content: patch.content.unwrap_or(Content::MergePatch), bytes: patch.bytes, duplicates })
    }

    fn apply(&self, kind: &Kind, old: &Value, validation: FieldValidation) -> Result<Wanted, Status> {
        let object = self.patched(kind, old)?;
        if !object.is_object() {
            return Err(Status::bad_request("the patched object is not a JSON object"));
        }
        let given = object.get("kind").and_then(Value::as_str).unwrap_or(&kind.kind);
        if given != kind.kind {
            let (version, group) = (&kind.version, if kind.group.is_empty() { "core" } else { &*kind.group });
            let why =
                format!("converting ({version}.{given}) to ({group}.{}): unknown conversion", kind.kind);
            return Err(self.refuse(kind, old, &Status::bad_request(why)));
        }
        let Decoded { object, warnings } = body::shape(kind, object, &self.duplicates, validation)
            .map_err(|status| self.refuse(kind, old, &status))?;
        same_uid(kind, old, &object)?;
        Ok(Wanted::new(object, warnings))
    }
}

/// 422 when a patch changes the uid. In an update the uid is a precondition, and its failure a conflict.
fn same_uid(kind: &Kind, old: &Value, new: &Value) -> Result<(), Status> {
    let wanted = meta::uid(new);
    if wanted.is_empty() || wanted == meta::uid(old) {
        return Ok(());
    }
    let mut errors = ErrorList::new();
    errors.invalid(&Path::new("metadata").child("uid"), wanted, "field is immutable");
    Err(Status::invalid(&kind.group, &kind.kind, meta::name(old), &errors))
}

impl Change<'_> {
    fn patched(&self, kind: &Kind, old: &Value) -> Result<Value, Status> {
        match self.content {
            Content::JsonPatch => patch::json::apply(old.clone(), self.bytes),
            Content::StrategicPatch => patch::strategic::apply(kind.schema.get(), old.clone(), self.bytes),
            _ => patch::merge::apply(old.clone(), self.bytes),
        }
    }

    /// 422 that blames the patch for an object that cannot be; Kubernetes shows what came of it, or the patch itself.
    fn refuse(&self, kind: &Kind, old: &Value, status: &Status) -> Status {
        let prefix = format!("{0} in version {1:?} cannot be handled as a {0}: ", kind.kind, kind.version);
        let why = status.message.strip_prefix(&prefix).unwrap_or(&status.message);
        let shown = match (self.content, serde_json::from_slice::<Value>(self.bytes)) {
            (Content::StrategicPatch, Ok(patch)) => go_map(&patch),
            _ => self.patched(kind, old).map(|patched| patched.to_string()).unwrap_or_default(),
        };
        let mut errors = ErrorList::new();
        errors.invalid(&Path::new("patch"), shown, why);
        let mut refusal = Status::invalid("", "", "", &errors);
        refusal.message = format!(" \"\" is invalid: {}", errors.summary());
        refusal
    }
}

/// A value as Go prints a map, which is how Kubernetes shows a strategic patch.
fn go_map(value: &Value) -> String {
    match value {
        Value::Null => "<nil>".into(),
        Value::String(text) => text.clone(),
        Value::Array(list) => format!("[{}]", list.iter().map(go_map).collect::<Vec<_>>().join(" ")),
        Value::Object(map) => {
            let mut fields: Vec<_> = map.iter().collect();
            fields.sort_unstable_by_key(|(key, _)| *key);
            let shown: Vec<_> =
                fields.iter().map(|(key, value)| format!("{key}:{}", go_map(value))).collect();
            format!("map[{}]", shown.join(" "))
        }
        other => other.to_string(),
    }
}

fn accepted(kind: &Kind) -> &'static [&'static str] {
    if kind.strategic {
        &[
            "application/json-patch+json",
            "application/merge-patch+json",
            "application/strategic-merge-patch+json",
            "application/apply-patch+yaml",
        ]
    } else {
        &["application/json-patch+json", "application/merge-patch+json", "application/apply-patch+yaml"]
    }
}

/// Server-side apply.
async fn apply(
    api: &Api,
    kind: &Kind,
    namespace: &str,
    name: &str,
    part: Part,
    patch: &Patch<'_>,
    by: &By<'_>,
) -> Result<Written, Status> {
    if !patch.manager_given {
        return Err(invalid_options("fieldManager: Required value: is required for apply patch"));
    }
    let shown = Shown::new(by.served.unwrap_or(kind));
    let Decoded { object: applied, warnings } =
        body::object(shown.kind, Some(Content::ApplyPatch), patch.bytes, by.validation)?;
    check_applied(shown.kind, namespace, name, &applied)?;
    let force = patch.force.unwrap_or(false);
    let now = api.now_text();
    let api_version = encode::api_version(&shown.kind.group, &shown.kind.version);
    let writer = by.writer(shown.kind, part.subresource(), &api_version, &now);
    let schema = shown.kind.schema.get();
    for _ in 0..2 {
        if existing(api, kind, namespace, name).await?.is_some() {
            return update(api, kind, namespace, name, part, by, |old| {
                same_uid(kind, old, &applied)?;
                let object = managed::apply(schema, Some(&*shown.read(old)), &applied, &writer, force)?;
                Ok(Wanted { object: shown.write(object), applied: true, warnings: warnings.clone() })
            })
            .await;
        }
        if part != Part::Main {
            return Err(Status::not_found(&kind.group, &kind.plural, name));
        }
        by.may_create(api, shown.kind, namespace, name)?;
        let mut object = shown.write(managed::apply(schema, None, &applied, &writer, force)?);
        meta::metadata_mut(&mut object).remove("uid");
        let wanted = Wanted { object, applied: true, warnings: warnings.clone() };
        match create::create(api, kind, namespace, wanted, by).await {
            Err(status) if status.reason == Reason::AlreadyExists => {}
            done => return done,
        }
    }
    Err(Status::conflict(&kind.group, &kind.plural, name, "the object was created and deleted meanwhile"))
}

fn check_applied(kind: &Kind, namespace: &str, name: &str, applied: &Value) -> Result<(), Status> {
    let given = meta::name(applied);
    if !given.is_empty() && given != name {
        return Err(Status::bad_request(format!(
            "the name of the object ({given}) does not match the name on the URL ({name})"
        )));
    }
    let given = meta::namespace(applied);
    if !given.is_empty() && given != namespace {
        return Err(Status::bad_request(format!(
            "the namespace of the object ({given}) does not match the namespace on the request ({namespace})"
        )));
    }
    if applied.get("kind").and_then(Value::as_str).is_none_or(str::is_empty) {
        return Err(Status::bad_request(format!(
            "Object 'Kind' is missing in the applied configuration (expected {})",
            json!(&*kind.kind)
        )));
    }
    Ok(())
}
