//! The routes that one edge carries: those of its group, the oldest first.

use landfall_api::landfall::RoutePlanSpec;

use crate::world::{Key, World};

/// The routes that one edge carries.
#[derive(Clone, Copy)]
pub(crate) struct Carried<'a> {
    pub(crate) world: &'a World,
    pub(crate) group: Option<&'a str>,
}

impl<'a> Carried<'a> {
    /// Oldest first.
    pub(crate) fn by_age(self) -> Vec<&'a RoutePlanSpec> {
        let carries = |plan: &RoutePlanSpec| match self.group {
            Some(group) => plan.groups.iter().any(|one| one == group),
            None => plan.groups.is_empty(),
        };
        let plans = self.world.routes.iter().filter(|(_, plan)| carries(plan));
        let mut plans: Vec<(&Key, &RoutePlanSpec)> = plans.map(|(key, plan)| (key, &**plan)).collect();
        // Whatever has no time is the youngest.
        plans.sort_by_key(|(key, plan)| {
            let made = plan.source_created.as_ref().map(|time| time.0);
            (made.is_none(), made, *key)
        });
        plans.into_iter().map(|(_, plan)| plan).collect()
    }
}
