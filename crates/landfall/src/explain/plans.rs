//! The plans at the hub, and where a client stands among what they tell of.

use std::collections::BTreeMap;
use std::net::IpAddr;

use anyhow::{Context, Result, bail};
use landfall_api::addresses::parse_cidr;
use landfall_api::landfall::{
    FEDERATION_PLAN, PlanFederation, SYSTEM_NAMESPACE, TrafficPlan, TrafficPlanSpec,
};
use landfall_plan::records::Scene;
use landfall_plan::records::explain::From;
use landfall_plan::records::places::Place;

use crate::basics::target::Target;

const PLANS: &str = "/apis/landfall.dev/v1alpha1/trafficplans";

/// Plans by namespace and name.
pub(super) type Plans = BTreeMap<(String, String), TrafficPlanSpec>;

/// Reads all plans.
pub(super) async fn read(target: &Target) -> Result<Plans> {
    let list = target.get(PLANS, "application/json").await.context("cannot read the plans")?;
    let items = list.get("items").cloned().unwrap_or_default();
    let plans: Vec<TrafficPlan> = serde_json::from_value(items).context("cannot read the plans")?;
    let key = |plan: &TrafficPlan| {
        let metadata = &plan.metadata;
        (metadata.namespace.clone().unwrap_or_default(), metadata.name.clone().unwrap_or_default())
    };
    Ok(plans.into_iter().map(|plan| (key(&plan), plan.spec)).collect())
}

/// What the plans tell of the federation.
pub(super) fn federation(plans: &Plans) -> Result<&PlanFederation> {
    let whole = plans.get(&(SYSTEM_NAMESPACE.to_owned(), FEDERATION_PLAN.to_owned()));
    let Some(federation) = whole.and_then(|plan| plan.federation.as_ref()) else {
        bail!("the hub has not planned anything yet: has a cluster joined? See `landfall status`");
    };
    Ok(federation)
}

/// Where a client stands, and the federation as it is seen from there.
pub(super) fn stand(federation: &PlanFederation, from: Option<&str>) -> Result<(Scene, From)> {
    let Some(text) = from else {
        return Ok((Scene::new(federation, None), From { place: Place::Unknown, inside: false }));
    };
    let address = text.parse::<IpAddr>().ok().or_else(|| parse_cidr(text).map(|(address, _)| address));
    if let Some(address) = address {
        let scene = Scene::new(federation, None);
        let from = From::address(&scene, address);
        return Ok((scene, from));
    }
    let scene = Scene::new(federation, Some(text));
    let Some(from) = From::cluster(&scene, text) else {
        let known: Vec<&str> = federation.members.iter().map(|member| member.name.as_str()).collect();
        bail!(
            "{text:?} is no address, no prefix and no cluster; there are the clusters {}",
            known.join(", ")
        );
    };
    Ok((scene, from))
}
