//! What the federation refuses before it is stored, beyond what schemas say: ranges that overlap, groups that ask for what is no
//! address, claims without Ingresses, Ingresses that ask for groups in words nobody can read.

use landfall_api::field::{ErrorList, Path};
use landfall_api::landfall::{
    GROUP, INGRESS_GROUP_ANNOTATION, INGRESS_GROUPS_ANNOTATION, INGRESS_SELECTOR_ANNOTATION,
    IngressClaimSpec, IngressReplicaSetSpec, IngressVIPRangeSpec,
};
use landfall_api::rules::read::child;
use landfall_api::{Kind, Status, meta};
use landfall_apiserver::admission::{Admission, Also};
use landfall_apiserver::{encode, keys};
use landfall_plan::binding::{Ask, asks};
use landfall_plan::claims;
use landfall_plan::vips::{check_group, check_range, label_selector};
use landfall_store::Snapshot;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The plural of `IngressVIPRange`.
const RANGES: &str = "ingressvipranges";

/// The federation's own.
pub(crate) struct FederationAdmission;

impl Admission for FederationAdmission {
    fn create(&self, state: &Snapshot, kind: &Kind, object: &mut Value) -> Result<(), Status> {
        check(state, kind, object, None)
    }

    fn update(&self, state: &Snapshot, kind: &Kind, object: &mut Value, old: &Value) -> Result<(), Status> {
        check(state, kind, object, Some(old))
    }

    /// A claim makes a group on behalf of whoever writes it. What decides for others, where pods run and which address they take, is
    /// for those who may make groups themselves.
    fn also(&self, kind: &Kind, object: &Value, old: Option<&Value>) -> Option<Also> {
        if (kind.group.as_ref(), kind.kind.as_ref()) != (GROUP, "IngressClaim") {
            return None;
        }
        let group =
            |object: &Value| spec::<IngressClaimSpec>(object).map(|spec| spec.ingress_replica_set_spec);
        let (now, before) = (group(object)?, old.and_then(group));
        let why = claims::beyond(&now)?;
        let known = before.as_ref().is_some_and(|before| *before == now);
        (!known).then_some(Also { verb: "create", group: GROUP, resource: "ingressreplicasets", why })
    }
}

fn check(state: &Snapshot, kind: &Kind, object: &Value, old: Option<&Value>) -> Result<(), Status> {
    let same = |field: &str| old.is_some_and(|old| old.get(field) == object.get(field));
    let errors = match (kind.group.as_ref(), kind.kind.as_ref()) {
        // What stands there already is told in conditions; it may still be changed otherwise, and deleted.
        (GROUP, _) if same("spec") => ErrorList::new(),
        (GROUP, "IngressVIPRange") => range(state, object),
        (GROUP, "IngressReplicaSet") => spec(object)
            .map_or_else(ErrorList::new, |spec: IngressReplicaSetSpec| {
                check_group(&spec, &Path::new("spec"))
            }),
        (GROUP, "IngressClaim") => {
            spec(object).map_or_else(ErrorList::new, |spec: IngressClaimSpec| claim(&spec))
        }
        ("networking.k8s.io", "Ingress") => ingress(object, old),
        _ => ErrorList::new(),
    };
    if errors.is_empty() {
        return Ok(());
    }
    Err(Status::invalid(&kind.group, &kind.kind, meta::name(object), &errors))
}

/// The spec of an object, if the schema will let it pass.
fn spec<T: DeserializeOwned>(object: &Value) -> Option<T> {
    serde_json::from_value(child(object, "spec").clone()).ok()
}

fn range(state: &Snapshot, object: &Value) -> ErrorList {
    let Some(own) = spec::<IngressVIPRangeSpec>(object) else { return ErrorList::new() };
    let prefix = keys::collection(GROUP, RANGES);
    let all = state.range(&prefix, "").filter_map(|entry| encode::decode(entry).ok());
    let others = all.filter(|other| meta::name(other) != meta::name(object));
    let others: Vec<_> =
        others.filter_map(|other| Some((meta::name(&other).to_owned(), spec(&other)?))).collect();
    check_range(&own, &others)
}

fn claim(spec: &IngressClaimSpec) -> ErrorList {
    let root = Path::new("spec");
    let mut errors = check_group(&spec.ingress_replica_set_spec, &root.child("ingressReplicaSetSpec"));
    if spec.ingresses.is_empty() && spec.ingress_selector.is_none() {
        errors.required(&root.child("ingresses"), "name ingresses, or select them with ingressSelector");
    }
    if let Some(selector) = &spec.ingress_selector {
        let value = serde_json::to_value(selector).unwrap_or_default();
        label_selector(&value, &root.child("ingressSelector"), &mut errors);
    }
    errors
}

/// An Ingress that asks for a group, in words that are new.
fn ingress(object: &Value, old: Option<&Value>) -> ErrorList {
    let mut errors = ErrorList::new();
    let note = |object: &Value, name: &str| meta::annotation(object, name).map(str::to_owned);
    let asked = [INGRESS_GROUP_ANNOTATION, INGRESS_SELECTOR_ANNOTATION, INGRESS_GROUPS_ANNOTATION];
    let changed = asked.iter().find(|name| {
        let now = note(object, name);
        now.is_some() && old.is_none_or(|old| note(old, name) != now)
    });
    if let (Some(name), Ask::Wrong(why)) = (changed, asks(object)) {
        let named = asked.iter().find(|name| why.starts_with(**name)).unwrap_or(name);
        let root = Path::new("metadata");
        let annotations = root.child("annotations");
        let detail = why.strip_prefix(*named).unwrap_or(&why).trim_start_matches([':', ' ']).to_owned();
        errors.invalid(&annotations.key(named), note(object, named).unwrap_or_default(), detail);
    }
    errors
}
