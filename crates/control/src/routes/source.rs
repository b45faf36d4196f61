//! One look at one source: an Ingress, a MultiClusterIngress, or a Service of type LoadBalancer.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use landfall_api::landfall::{MultiClusterIngressStatus, RoutePlan, RoutePlanSpec, TrafficPlan, group_label};
use landfall_api::rules::read::{child, text};
use landfall_plan::routes::{self as plan, Backing, Standing, Surroundings};
use serde_json::{Value, json};

use super::index::Known;
use super::write::{Work, submit};
use super::{SOON, group};
use crate::events::Happening;
use crate::federation::{Federation, now_ms, rfc3339};
use crate::kinds::{self, GKE_INGRESSES, INGRESSES, PLANS, ROUTES};
use crate::shelf::{Key, Seen};
use crate::traffic;

/// The source that a plan was made of.
pub(super) fn of_plan(federation: &Federation, plan: &Key) -> Option<Key> {
    let routes = &federation.routes;
    let (prefix, rest) = plan.name.split_once('.')?;
    let kind = match prefix {
        "ingress" => routes.ingresses,
        "service" => routes.services,
        "mci" => INGRESSES,
        "gke-mci" => GKE_INGRESSES,
        _ => return None,
    };
    // Long names are cut; of a plan that is gone nothing else is known.
    let seen = routes.shelf(ROUTES).get(plan).map(|seen| seen.value());
    let told = seen.as_ref().map(|plan| text(child(child(plan, "spec"), "sourceRef"), "name"));
    Some(Key { kind, namespace: plan.namespace.clone(), name: told.unwrap_or(rest).into() })
}

/// Takes over what a source wants; gives what was made of it, and the object. Those whom it concerns are looked at.
pub(super) fn learn(federation: &Federation, key: &Key) -> Option<(plan::Routes, Arc<Seen>)> {
    let routes = &federation.routes;
    let made = find(federation, key).and_then(|seen| Some((make(federation, key, &seen)?, seen)));
    let known = made.as_ref().map(|((made, services), _)| {
        let standing = |claim: plan::Claim| {
            let standing = Standing::new(&claim, &made.spec, &key.namespace);
            (claim, standing)
        };
        Known {
            claims: plan::claims(made).into_iter().map(standing).collect(),
            services: services.clone(),
            secrets: made.secrets.iter().cloned().collect(),
            groups: made.spec.groups.clone(),
        }
    });
    let otherwise = known.as_ref().map(|known| known.groups.clone()) != routes.index.groups(key);
    let (others, secrets) = routes.index.learn(key, known);
    others.iter().for_each(|other| routes.queue.push_soon(other));
    secrets.iter().for_each(|name| routes.queue.push(routes.secret(&key.namespace, name)));
    if otherwise && key.kind == routes.ingresses {
        // Its status, and what its hosts are answered with, are somebody else's now.
        federation.queue.push_soon(key);
        traffic::carried_otherwise(federation, key);
    }
    made.map(|((made, _), seen)| (made, seen))
}

/// Looks at one source.
pub(super) fn look(federation: &Arc<Federation>, key: &Key) {
    let routes = &federation.routes;
    let row = federation.kinds.get(key.kind);
    let name = plan::plan_name(&row.kind, &row.group, &key.name).into();
    let plan_key = Key { kind: ROUTES, namespace: key.namespace.clone(), name };
    if routes.writer.busy(&plan_key) {
        // What it is about to be is not what it is.
        routes.queue.push_after(key, SOON);
        return;
    }
    let before = routes.shelf(ROUTES).get(&plan_key);
    let made = learn(federation, key);
    if [INGRESSES, GKE_INGRESSES].contains(&key.kind) {
        let led = made.as_ref().map(|(made, _)| led(made));
        traffic::led(federation, key, led.as_ref());
    }
    let Some((mut made, seen)) = made else {
        if let Some(before) = before.filter(|before| !before.deleting) {
            let work = Work { delete: Some(before.uid.to_string()), ..Work::new(key) };
            submit(federation, &plan_key, work);
        }
        return;
    };
    plan::settle(&mut made, |claim| routes.index.holder(key, claim));
    write(federation, key, &plan_key, before.as_deref(), (made, &seen));
}

/// The object, if there is one that is not about to go.
fn find(federation: &Federation, key: &Key) -> Option<Arc<Seen>> {
    let shelf = match key.kind {
        INGRESSES | GKE_INGRESSES => federation.routes.shelf(key.kind).get(key),
        _ => federation.shelf(key.kind).get(key),
    };
    shelf.filter(|seen| !seen.deleting)
}

/// Makes routes of an object, if it is ours to carry; gives the Services that it names too.
fn make(federation: &Federation, key: &Key, seen: &Seen) -> Option<(plan::Routes, BTreeSet<Key>)> {
    let routes = &federation.routes;
    let object = seen.value();
    if !kinds::eligible(&federation.kinds.get(key.kind), &object) {
        return None;
    }
    if key.kind == routes.services {
        let reserving = |port: &str| federation.traffic.edges.reserving(port);
        return plan::carried_service(&object)
            .then(|| (plan::balancer(&object, &reserving), BTreeSet::new()));
    }
    let named = RefCell::new(BTreeSet::new());
    let secret = |wanted: &plan::Wanted| {
        let secret = routes.secret(&key.namespace, &wanted.name);
        routes.checks.problem(federation, &secret, wanted.part)
    };
    let misfit = |name: &str, host: &str| {
        let secret = routes.secret(&key.namespace, name);
        routes.checks.misfit(federation, &secret, host)
    };
    if key.kind == routes.ingresses {
        if !routes.classes.lock().carry(&object) {
            return None;
        }
        let backing = |name: &str| {
            let service = routes.service(&key.namespace, name);
            let seen = federation.shelf(service.kind).get(&service);
            named.borrow_mut().insert(service);
            seen.map(|seen| Backing::of_service(&seen.value()))
        };
        let around = Surroundings { backing: &backing, secret: &secret, misfit: &misfit, kind: "Service" };
        // One that waits for a group is nobody else's meanwhile.
        let groups = federation.groups.carrying(key, &object)?;
        let mut made = plan::of_ingress(&object, &around);
        made.spec.groups = groups;
        return Some((made, named.into_inner()));
    }
    let backing = |name: &str| {
        let service = routes.multi_cluster_service(key, name);
        let seen = routes.shelf(service.kind).get(&service).filter(|seen| !seen.deleting);
        let group = group(service.kind);
        named.borrow_mut().insert(service);
        seen.map(|seen| Backing::of_multi_cluster(&seen.value(), group))
    };
    let kind = "MultiClusterService";
    let around = Surroundings { backing: &backing, secret: &secret, misfit: &misfit, kind };
    let made = plan::of_multi_cluster(&object, group(key.kind), &around);
    Some((made, named.into_inner()))
}

/// The hosts of routes, and the Services that they lead to, as an Ingress would say it.
fn led(made: &plan::Routes) -> Value {
    let backend = |service: &landfall_api::landfall::RouteService| json!({"backend": {"service": {"name": service.name}}});
    let rule = |host: &landfall_api::landfall::RouteHost| {
        let paths = host.paths.iter().filter_map(|path| path.action.service.as_ref());
        json!({"host": host.host, "http": {"paths": paths.map(backend).collect::<Vec<_>>()}})
    };
    let fallback = made.spec.default_action.as_ref().and_then(|action| action.service.as_ref());
    let fallback = fallback.map(|service| json!({"service": {"name": service.name}}));
    json!({"spec": {"defaultBackend": fallback, "rules": made.spec.hosts.iter().map(rule).collect::<Vec<_>>()}})
}

/// Has written what is different.
fn write(
    federation: &Arc<Federation>,
    key: &Key,
    plan_key: &Key,
    before: Option<&Seen>,
    (made, seen): (plan::Routes, &Seen),
) {
    let row = federation.kinds.get(key.kind);
    let previous: Option<RoutePlan> = before.and_then(|before| serde_json::from_value(before.value()).ok());
    let source = seen.value();
    let generation = source.pointer("/metadata/generation").and_then(Value::as_i64);
    let told = previous.as_ref().and_then(|plan| plan.status.clone()).unwrap_or_default().conditions;
    let conditions = plan::conditions(&made.troubles, &told, generation, &now());
    let mut work = Work::new(key);
    // As long as nobody has joined, there is nobody who could carry it, and nothing is wrong.
    if !federation.all_members().is_empty() {
        let news = happenings(&told, &conditions).into_iter();
        work.happenings = news.map(|one| (key.clone(), seen.uid.to_string(), one)).collect();
    }
    let mut spec = made.spec;
    spec.revision = previous.as_ref().map_or(0, |plan| plan.spec.revision);
    // One of the same name that was there before takes its plan along when it goes.
    let owned = previous.as_ref().and_then(|plan| plan.metadata.owner_references.as_ref());
    let owned = owned.is_some_and(|owners| owners.iter().any(|owner| *owner.uid == *seen.uid));
    let labels = labels(&spec);
    let labelled = previous.as_ref().and_then(|plan| plan.metadata.labels.as_ref()) == Some(&labels);
    if previous.as_ref().map(|plan| &plan.spec) != Some(&spec) || !owned || !labelled {
        spec.revision = spec.revision.saturating_add(1);
        let mut object = before.map_or_else(
            || {
                json!({
                    "apiVersion": landfall_api::landfall::API_VERSION, "kind": "RoutePlan",
                    "metadata": {"name": &*plan_key.name, "namespace": &*plan_key.namespace},
                })
            },
            Seen::value,
        );
        object["metadata"]["ownerReferences"] = json!([{
            "apiVersion": row.api_version(), "kind": row.kind, "name": &*key.name, "uid": &*seen.uid,
        }]);
        object["metadata"]["labels"] = json!(labels);
        object["spec"] = serde_json::to_value(&spec).unwrap_or_default();
        work.object = Some(object);
    }
    if told != conditions {
        work.status = Some(json!({ "conditions": conditions }));
    }
    if [INGRESSES, GKE_INGRESSES].contains(&key.kind) {
        work.source_status = source_status(federation, key, &source, &spec, &conditions);
    }
    if !work.is_empty() {
        submit(federation, plan_key, work);
    }
}

/// What edges choose plans by: each is shown those of its group.
fn labels(spec: &RoutePlanSpec) -> BTreeMap<String, String> {
    let groups: Vec<Option<&str>> = match spec.groups.as_slice() {
        [] => vec![None],
        groups => groups.iter().map(|group| Some(group.as_str())).collect(),
    };
    groups.into_iter().map(|group| (group_label(group), String::new())).collect()
}

/// The status of a MultiClusterIngress, if it is different.
fn source_status(
    federation: &Federation,
    key: &Key,
    source: &Value,
    spec: &RoutePlanSpec,
    conditions: &[Condition],
) -> Option<Value> {
    let before: MultiClusterIngressStatus =
        serde_json::from_value(child(source, "status").clone()).unwrap_or_default();
    let addresses = federation.traffic.edges.addresses();
    let actions = spec.hosts.iter().flat_map(|host| &host.paths).map(|path| &path.action);
    let services = actions.chain(spec.default_action.as_deref()).filter_map(|action| action.service.as_ref());
    let mut clusters: BTreeSet<String> = BTreeSet::new();
    for service in services {
        clusters.extend(serving(federation, &key.namespace, &service.name).0);
    }
    let since = |condition: &Condition| {
        let known = before.conditions.iter().find(|known| known.type_ == condition.type_);
        let known = known.filter(|known| known.status == condition.status);
        let last_transition_time = known.map_or_else(
            || condition.last_transition_time.clone(),
            |known| known.last_transition_time.clone(),
        );
        Condition { last_transition_time, ..condition.clone() }
    };
    let status = MultiClusterIngressStatus {
        vip: plan::lasting_address(before.vip.as_deref(), &addresses),
        addresses,
        clusters: clusters.into_iter().collect(),
        conditions: conditions.iter().map(since).collect(),
    };
    (status != before).then(|| serde_json::to_value(status).unwrap_or_default())
}

/// The members that serve a Service, as its plan has it, and how many endpoints are ready.
pub(super) fn serving(federation: &Federation, namespace: &Arc<str>, name: &str) -> (Vec<String>, i32) {
    let key = Key { kind: PLANS, namespace: namespace.clone(), name: name.into() };
    let plan: Option<TrafficPlan> =
        federation.traffic.plans.get(&key).and_then(|seen| serde_json::from_value(seen.value()).ok());
    let clusters = plan.map(|plan| plan.spec.clusters).unwrap_or_default();
    let ready = clusters.iter().fold(0_i32, |sum, cluster| sum.saturating_add(cluster.endpoints));
    (clusters.into_iter().map(|cluster| cluster.name).collect(), ready)
}

/// What happened between what was told before and what is told now.
pub(super) fn happenings(before: &[Condition], now: &[Condition]) -> Vec<Happening> {
    let mut all = Vec::new();
    for condition in now {
        let known = before.iter().find(|known| known.type_ == condition.type_);
        let fine = condition.status == "True";
        let said = |known: &Condition| (known.status.clone(), known.message.clone());
        if known.map(said) == Some(said(condition))
            || fine && known.is_none_or(|known| known.status == "True")
        {
            continue;
        }
        // Words for conditions are words for Events, and there are only so many.
        let words = [
            "Conflict",
            "Invalid",
            "InvalidAnnotation",
            "UnsupportedAnnotation",
            "BackendNotFound",
            "UnsupportedBackend",
            "InvalidCertificate",
            "PortTaken",
        ];
        let word = words.into_iter().find(|word| *word == condition.reason);
        let reason = if fine { "Resolved" } else { word.unwrap_or("NotCarried") };
        all.push(Happening { warning: !fine, reason, message: condition.message.clone() });
    }
    all
}

/// The present, to the second, as objects have it.
pub(super) fn now() -> Time {
    let text = Value::from(rfc3339(now_ms()));
    serde_json::from_value(text).unwrap_or(Time(jiff::Timestamp::UNIX_EPOCH))
}

/// The name of an object.
pub(super) fn name_of(object: &Value) -> &str {
    text(child(object, "metadata"), "name")
}
