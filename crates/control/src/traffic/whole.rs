//! The plan about the federation itself: members, edges, and where clients stand.

use std::collections::BTreeMap;
use std::sync::Arc;

use landfall_api::landfall::{GROUP, ObjectReference, PlanFederation, TrafficPlan, TrafficPlanSpec};
use landfall_api::rules::read::{child, text};
use landfall_plan::proximity;
use serde_json::Value;

use super::decide::object;
use super::write::{Work, submit};
use super::{SOON, everything, federation_plan};
use crate::events::Happening;
use crate::federation::Federation;
use crate::shelf::Key;

/// Looks at the federation as a whole.
pub(super) fn look(federation: &Arc<Federation>) {
    let traffic = &federation.traffic;
    let key = federation_plan();
    if traffic.writer.busy(&key) {
        traffic.queue.push_after(&key, SOON);
        return;
    }
    let seen = traffic.plans.get(&key);
    let before: Option<TrafficPlanSpec> = seen
        .as_ref()
        .and_then(|seen| serde_json::from_value::<TrafficPlan>(seen.value()).ok())
        .map(|plan| plan.spec);
    let config = &federation.config;
    if before.is_none() && traffic.geography.members().is_empty() && traffic.edges.roster().is_empty() {
        // There is nobody to tell of, and nobody to tell.
        return;
    }
    let told = PlanFederation {
        name: config.federation.clone(),
        domain: config.domain.clone(),
        members: traffic.geography.members().iter().map(|facts| facts.place.clone()).collect(),
        edges: traffic.edges.roster(),
        prefixes: traffic.geography.prefixes(),
    };
    let mut spec = TrafficPlanSpec {
        target_ref: ObjectReference {
            group: GROUP.into(),
            kind: "Federation".into(),
            name: config.federation.clone(),
        },
        revision: before.as_ref().map_or(0, |before| before.revision),
        federation: Some(told),
        ..TrafficPlanSpec::default()
    };
    if before.as_ref() == Some(&spec) {
        return;
    }
    spec.revision = spec.revision.saturating_add(1);
    let object = object(&key, seen.as_deref(), &spec, None);
    let work = Work { object: Some(object), ..Work::new(&key) };
    submit(federation, &key, work);
}

/// Takes over what the ConfigMap of regions says; what is wrong with it is told at it.
pub(super) fn regions(federation: &Arc<Federation>, key: &Key, map: Option<&Value>) {
    let traffic = &federation.traffic;
    let data: BTreeMap<String, String> =
        map.and_then(|map| serde_json::from_value(child(map, "data").clone()).ok()).unwrap_or_default();
    let read = proximity::regions(data.iter().map(|(key, text)| (key.as_str(), text.as_str())));
    if traffic.geography.set_prefixes(read.prefixes) {
        traffic.queue.push(federation_plan());
        everything(federation);
    }
    if !read.wrong.is_empty() {
        let uid = map.map(|map| text(child(map, "metadata"), "uid").to_owned()).unwrap_or_default();
        let message = format!("lines left out: {}", read.wrong.join("; "));
        let happening = Happening { warning: true, reason: "InvalidRegions", message };
        let happenings = vec![(key.clone(), uid, happening)];
        submit(federation, key, Work { happenings, ..Work::new(&federation_plan()) });
    }
}
