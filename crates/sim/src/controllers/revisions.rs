//! ControllerRevisions: the templates that DaemonSets and StatefulSets have had, for `kubectl rollout`.

use std::collections::BTreeSet;
use std::sync::Arc;

use landfall_api::meta;
use serde_json::{Value, json};

use super::Context;
use super::action::{Action, Deed, Plan, fnv, safe_number};
use super::read::{controller_reference, int, set, text};
use crate::view::Known;

/// The label of pods, and of a DaemonSet's revisions, with a template's hash.
pub(super) const HASH: &str = "controller-revision-hash";
/// The same for the revisions of a StatefulSet.
const STATEFUL_HASH: &str = "controller.kubernetes.io/hash";

/// The revisions of one owner.
pub(super) struct Revisions<'a> {
    /// The hash of the owner's template.
    pub(super) hash: String,
    /// The name of its revision.
    pub(super) name: String,
    all: Vec<&'a Arc<Value>>,
}

impl<'a> Revisions<'a> {
    /// The revisions of an owner; the one of its template is made, or made the newest again, if it is not.
    pub(super) fn of(context: &Context<'a>, owner: &Value, plan: &mut Plan) -> Self {
        let mut template = owner.pointer("/spec/template").cloned().unwrap_or_default();
        let hash = safe_number(fnv(&template.to_string()));
        let name = format!("{}-{hash}", meta::name(owner));
        let mut all = context.view.owned_by(Known::ControllerRevision, meta::uid(owner));
        all.sort_by_key(|revision| (int(revision, "/revision"), meta::name(revision).to_owned()));
        let newest = all.last().map_or(0, |revision| int(revision, "/revision"));
        match all.iter().find(|revision| meta::name(revision) == name) {
            Some(found) if int(found, "/revision") == newest => {}
            Some(found) => {
                let deed = Deed::Set(vec![("/revision".into(), Some(json!(newest.saturating_add(1))))]);
                plan.act(Action::on(Known::ControllerRevision, found, deed, "its template is back"));
            }
            None => {
                set(&mut template, &["$patch"], json!("replace"));
                let mut labels = owner.pointer("/spec/template/metadata/labels").cloned().unwrap_or_default();
                let stateful = text(owner, "/kind") == "StatefulSet";
                set(&mut labels, &[if stateful { STATEFUL_HASH } else { HASH }], json!(hash));
                let revision = json!({
                    "apiVersion": "apps/v1", "kind": "ControllerRevision",
                    "metadata": {"name": name, "namespace": meta::namespace(owner), "labels": labels,
                        "ownerReferences": [controller_reference(owner)]},
                    "data": {"spec": {"template": template}}, "revision": newest.saturating_add(1),
                });
                plan.act(Action::create(Known::ControllerRevision, revision, "a new template"));
            }
        }
        Self { hash, name, all }
    }

    /// The template of a revision by its name.
    pub(super) fn template(&self, name: &str) -> Option<Value> {
        let found = self.all.iter().find(|revision| meta::name(revision) == name)?;
        let mut template = found.pointer("/data/spec/template")?.clone();
        template.as_object_mut()?.remove("$patch");
        Some(template)
    }

    /// Deletes the oldest revisions beyond the history that is kept; those in use stay.
    pub(super) fn clean_up(&self, owner: &Value, in_use: &BTreeSet<&str>, plan: &mut Plan) {
        let limit = owner.pointer("/spec/revisionHistoryLimit").and_then(Value::as_i64).unwrap_or(10);
        let limit = usize::try_from(limit).unwrap_or(usize::MAX);
        let used = |revision: &&&Arc<Value>| {
            let hash = [HASH, STATEFUL_HASH].iter().find_map(|key| meta::label(revision, key)).unwrap_or("");
            hash == self.hash || in_use.contains(hash) || in_use.contains(meta::name(revision))
        };
        let unused: Vec<_> = self.all.iter().filter(|revision| !used(revision)).collect();
        for revision in unused.iter().take(unused.len().saturating_sub(limit)) {
            let why = "beyond the revision history";
            plan.act(Action::on(Known::ControllerRevision, revision, Deed::Delete(None), why));
        }
    }
}
