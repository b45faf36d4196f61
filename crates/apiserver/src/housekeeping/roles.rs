//! Aggregated ClusterRoles: their rules follow the roles their selectors choose.
//!
//! Reads:      ClusterRoles
//! Decides:    [`crate::authz::aggregate::aggregate_all`]
//! Writes:     `rules` of aggregated ClusterRoles
//! Wakes on:   any ClusterRole changing

use landfall_api::meta;
use serde_json::Value;

use super::client::{ObjectClient, Part, Place};
use super::gc::{failed, unless_gone};
use super::queue::Outcome;
use crate::authz::aggregate::aggregate_all;

/// The group of roles.
pub const GROUP: &str = "rbac.authorization.k8s.io";
/// The resource name of cluster roles.
pub const PLURAL: &str = "clusterroles";

/// Brings all aggregated roles up to date.
pub async fn aggregate(client: &dyn ObjectClient) -> Outcome {
    let all = match client.list(GROUP, PLURAL, "").await {
        Ok(all) => all,
        Err(status) => return failed(&status),
    };
    let mut roles: Vec<Value> = all.iter().map(|role| (**role).clone()).collect();
    for name in aggregate_all(&mut roles) {
        let Some(role) = roles.iter().find(|role| meta::name(role) == name) else { continue };
        let place = Place::new(GROUP, PLURAL, "", &name);
        if let Err(status) = unless_gone(client.update(place, role.clone(), Part::Main).await) {
            return failed(&status);
        }
    }
    Outcome::Done
}
