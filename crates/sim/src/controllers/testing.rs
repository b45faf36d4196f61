//! A bench for controllers: a view, a clock, and plans carried out on the view alone.

use serde_json::{Value, json};

use super::action::{Deed, Plan};
use super::concern::Concern;
use super::driver::change;
use super::read::{Millis, set, time_text};
use super::{Context, Controller};
use crate::address::Block;
use crate::member::config::{Settings, Timings};
use crate::view::{Known, View};

/// See the module.
pub(crate) struct Bench {
    pub(crate) view: View,
    pub(crate) now: Millis,
    pub(crate) begun: Millis,
    pub(crate) settings: Settings,
    revision: u64,
}

impl Default for Bench {
    fn default() -> Self {
        let block = Block::all().next().unwrap();
        let settings = Settings::new("test", block, Timings::KUBERNETES, 7);
        let now = 1_800_000_000_000;
        Self { view: View::default(), now, begun: now, settings, revision: 1 }
    }
}

impl Bench {
    /// Takes an object in as the API would: with a uid, a version and a time.
    pub(crate) fn put(&mut self, known: Known, mut object: Value) {
        self.revision += 1;
        object["apiVersion"] = json!(known.api_version());
        object["kind"] = json!(known.kind());
        let now = time_text(self.now);
        let metadata = landfall_api::meta::metadata_mut(&mut object);
        metadata.insert("resourceVersion".into(), json!(self.revision.to_string()));
        metadata.entry("uid").or_insert_with(|| json!(format!("uid-{}", self.revision)));
        metadata.entry("creationTimestamp").or_insert_with(|| json!(now));
        metadata.entry("generation").or_insert_with(|| json!(1));
        self.view.put(known, object);
    }

    pub(crate) fn remove(&mut self, known: Known, namespace: &str, name: &str) {
        self.view.remove(known, namespace, name);
    }

    pub(crate) fn grace(&self) -> Millis {
        i64::try_from(self.settings.timings.node_grace.as_millis()).unwrap()
    }

    pub(crate) fn decide(&self, controller: &Controller) -> Plan {
        let context = Context {
            view: &self.view,
            now: self.now,
            begun: self.begun,
            settings: &self.settings,
            concern: &Concern::Everybody,
        };
        (controller.decide)(&context)
    }

    /// Decides, compares what would be done, and does it.
    #[track_caller]
    pub(crate) fn check(&mut self, controller: &Controller, expected: &[&str]) {
        let plan = self.decide(controller);
        assert_eq!(deeds(&plan), expected);
        self.perform(plan);
    }

    /// Decides and does until there is nothing to do.
    pub(crate) fn settle(&mut self, controller: &Controller) {
        for _ in 0..100 {
            let plan = self.decide(controller);
            if plan.actions.is_empty() {
                return;
            }
            self.perform(plan);
        }
        panic!("{} never settles", controller.name);
    }

    /// Does a plan as the API would; pods go at once. Actions on objects that have changed are void.
    pub(crate) fn perform(&mut self, plan: Plan) {
        for action in plan.actions {
            if let Deed::Create(object) = action.deed {
                self.put(action.known, object);
                continue;
            }
            let old = self.view.get(action.known, &action.namespace, &action.name).cloned();
            let Some(old) = old.filter(|o| o["metadata"]["resourceVersion"] == json!(action.version)) else {
                continue;
            };
            let mut object = (*old).clone();
            match &action.deed {
                Deed::Delete(_) => {
                    self.view.remove(action.known, &action.namespace, &action.name);
                    continue;
                }
                Deed::Create(_) | Deed::Tell => continue,
                Deed::Set(_) | Deed::Status(_) | Deed::Noted(..) | Deed::Bind(..) => {
                    change(&mut object, &action.deed);
                }
            }
            if matches!(action.deed, Deed::Set(_)) && object["spec"] != old["spec"] {
                let generation = landfall_api::meta::generation(&object).saturating_add(1);
                set(&mut object, &["metadata", "generation"], json!(generation));
            }
            self.put(action.known, object);
        }
    }
}

/// What a plan would do, as text.
pub(crate) fn deeds(plan: &Plan) -> Vec<String> {
    plan.actions.iter().map(ToString::to_string).collect()
}

/// A healthy node with 4 CPUs and room for 110 pods.
#[expect(clippy::needless_pass_by_value, reason = "it is given as json!(…)")]
pub(crate) fn node(name: &str, spec: Value) -> Value {
    json!({"metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}}, "spec": spec, "status": {
        "allocatable": {"cpu": "4", "memory": "8Gi", "pods": "110"},
        "conditions": crate::member::nodes::conditions(0)}})
}

/// A running pod of namespace `a` on a node.
pub(crate) fn pod_on(name: &str, node: &str, ready: bool) -> Value {
    json!({"metadata": {"name": name, "namespace": "a"},
        "spec": {"nodeName": node, "containers": [{"name": "c"}]},
        "status": {"phase": "Running", "podIP": "127.1.0.1", "conditions": [
            {"type": "Ready", "status": if ready { "True" } else { "False" },
             "lastTransitionTime": "1970-01-01T00:00:00Z"}]}})
}
