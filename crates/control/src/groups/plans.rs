//! GroupPlans: what the edges of a group are told of it.

use std::collections::{BTreeMap, BTreeSet};

use landfall_api::landfall::{GroupPlan, GroupPlanEdge, GroupPlanMember, GroupPlanSpec};
use landfall_plan::vips::{Allocation, priorities};
use serde_json::json;

use super::gather::{Group, Scene};
use super::status::key;
use super::write::Write;
use crate::kinds::{GROUP_PLANS, GROUPS};
use crate::shelf::Key;

/// What is written of plans; groups whose addresses could not be written down, and those that could go before their edges have let go
/// of them, keep the plan that they have.
pub(super) fn plans(
    scene: &Scene,
    made: &BTreeMap<String, Allocation>,
    refused: &BTreeSet<Key>,
) -> Vec<Write> {
    let one = |(name, group): (&String, &Group)| {
        let before = group.plan.as_ref();
        let going = group.deleting && before.is_none();
        if refused.contains(&key(GROUPS, name)) || !group.guarded() || going {
            return None;
        }
        let mut spec = spec(group, made.get(name), before);
        if before.is_some_and(|before| before.spec == spec) {
            return None;
        }
        spec.revision = spec.revision.saturating_add(1);
        let at = key(GROUP_PLANS, name);
        let metadata = &group.object.metadata;
        let owner = json!([{
            "apiVersion": landfall_api::landfall::API_VERSION, "kind": "IngressReplicaSet", "name": name,
            "uid": metadata.uid,
        }]);
        Some(match before {
            Some(before) => {
                let plan = GroupPlan { spec, ..before.clone() };
                let mut object = serde_json::to_value(plan).unwrap_or_default();
                object["metadata"]["ownerReferences"] = owner;
                Write::replace(&at, object)
            }
            None => {
                let plan = GroupPlan { spec, ..GroupPlan::default() };
                let mut object = serde_json::to_value(plan).unwrap_or_default();
                object["metadata"] = json!({"name": name, "ownerReferences": owner});
                Write::create(&at, object)
            }
        })
    };
    scene.groups.iter().filter_map(one).collect()
}

/// The plan of a group, with the revision of before.
fn spec(group: &Group, made: Option<&Allocation>, before: Option<&GroupPlan>) -> GroupPlanSpec {
    let vips = made.map(|made| made.vips.as_slice()).unwrap_or_default();
    let member = |cluster: &String| {
        let old = before.and_then(|plan| plan.spec.members.iter().find(|member| member.cluster == *cluster));
        let known =
            old.into_iter().flat_map(|member| &member.edges).map(|edge| (edge.name.clone(), edge.priority));
        let own: Vec<_> = group.edges.iter().filter(|edge| edge.spec.cluster == *cluster).collect();
        let names = own.iter().map(|edge| edge.name.clone()).collect();
        let order = priorities(&known.collect(), &names);
        let here: Vec<_> = vips.iter().filter(|vip| vip.cluster == *cluster).collect();
        let edge = |edge: &&crate::traffic::Grouped| GroupPlanEdge {
            name: edge.name.clone(),
            node: edge.spec.node.clone(),
            addresses: edge.spec.link_addresses.clone(),
            priority: order.get(&edge.name).copied().unwrap_or(1),
        };
        GroupPlanMember {
            cluster: cluster.clone(),
            router_id: here.iter().find_map(|vip| vip.router_id).unwrap_or(0),
            vips: here.iter().filter(|vip| vip.router_id.is_some()).map(|vip| vip.address.clone()).collect(),
            http_port: own.iter().filter_map(|edge| edge.spec.http_port).min(),
            edges: own.iter().map(edge).collect(),
        }
    };
    GroupPlanSpec {
        revision: before.map_or(0, |before| before.spec.revision),
        interface: group.object.spec.interface.clone(),
        members: group.clusters.iter().map(member).collect(),
        unicast: group.object.spec.unicast,
    }
}
