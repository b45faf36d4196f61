//! What pods ask for and nodes have.

use std::collections::BTreeMap;

use landfall_api::quantity::Quantity;
use serde_json::Value;

use crate::controllers::read::{items, text};

/// Amounts by resource: thousandths of a CPU, whole units of everything else.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Amounts(BTreeMap<String, i64>);

impl Amounts {
    /// From a JSON map of quantities.
    pub fn of(map: Option<&Value>) -> Self {
        let pairs = map.and_then(Value::as_object).into_iter().flatten();
        let amount = |(name, value): (&String, &Value)| {
            let quantity = Quantity::from_value(value)?;
            Some((name.clone(), if name == "cpu" { quantity.milli() } else { quantity.whole() }))
        };
        Self(pairs.filter_map(amount).collect())
    }

    /// How much of a resource.
    pub fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Adds all of another's.
    pub fn add(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let sum = self.0.entry(name.clone()).or_insert(0);
            *sum = sum.saturating_add(*amount);
        }
    }

    /// At least as much of everything as another has.
    fn raise(&mut self, other: &Self) {
        for (name, amount) in &other.0 {
            let most = self.0.entry(name.clone()).or_insert(0);
            *most = (*most).max(*amount);
        }
    }

    /// What is asked for, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }
}

/// What a pod asks for: all containers together, or the largest moment of its init containers, and its overhead.
pub fn requests(pod: &Value) -> Amounts {
    let asked = |container: &Value| Amounts::of(container.pointer("/resources/requests"));
    let mut total = Amounts::default();
    for container in items(pod, "/spec/containers") {
        total.add(&asked(container));
    }
    let mut sidecars = Amounts::default();
    let mut start = Amounts::default();
    for container in items(pod, "/spec/initContainers") {
        let mut moment = asked(container);
        if text(container, "/restartPolicy") == "Always" {
            sidecars.add(&moment);
            start.raise(&sidecars);
        } else {
            moment.add(&sidecars);
            start.raise(&moment);
        }
    }
    total.add(&sidecars);
    total.raise(&start);
    total.add(&Amounts::of(pod.pointer("/spec/overhead")));
    total
}

/// What a node can give.
pub fn allocatable(node: &Value) -> Amounts {
    Amounts::of(node.pointer("/status/allocatable").or_else(|| node.pointer("/status/capacity")))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(spec: &Value, cpu: i64, memory: i64) {
        let amounts = requests(&json!({"spec": spec}));
        assert_eq!((amounts.get("cpu"), amounts.get("memory")), (cpu, memory), "{spec}");
    }

    #[test]
    fn requests_count_containers_sidecars_and_the_largest_start() {
        let asks =
            |cpu: &str, memory: &str| json!({"resources": {"requests": {"cpu": cpu, "memory": memory}}});
        let mut sidecar = asks("50m", "1Ki");
        sidecar["restartPolicy"] = json!("Always");
        check(&json!({"containers": [asks("100m", "1Ki"), asks("1", "2Ki")]}), 1100, 3072);
        check(&json!({"containers": [asks("100m", "1Ki")], "initContainers": [asks("2", "1")]}), 2000, 1024);
        check(
            &json!({"containers": [asks("100m", "1Ki")], "initContainers": [sidecar, asks("2", "1")]}),
            2050,
            2048,
        );
        check(&json!({"containers": [asks("100m", "1Ki")], "overhead": {"cpu": "10m"}}), 110, 1024);
        check(&json!({"containers": [{}]}), 0, 0);
    }
}
