//! Deployments step by step, and what never happens on the way.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::controllers::read::{condition, items};
use crate::controllers::replicaset;
use crate::controllers::testing::Bench;

fn deployment(replicas: i64, spec: &Value) -> Value {
    let mut object = json!({"metadata": {"name": "web", "namespace": "a", "uid": "d"}, "spec": {
        "replicas": replicas, "selector": {"matchLabels": {"app": "x"}}, "progressDeadlineSeconds": 600,
        "strategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": "25%", "maxUnavailable": "25%"}},
        "template": {"metadata": {"labels": {"app": "x"}}, "spec": {"containers": [{"image": "1"}]}}}});
    for (key, value) in spec.as_object().unwrap() {
        object["spec"][key] = value.clone();
    }
    object
}

/// A Deployment, its ReplicaSets and its pods, step by step.
struct World(Bench);

impl World {
    fn new(replicas: i64, spec: &Value) -> Self {
        let mut bench = Bench::default();
        bench.put(Known::Deployment, deployment(replicas, spec));
        let mut world = Self(bench);
        world.finish();
        world
    }

    fn step(&mut self) -> bool {
        let mut acted = false;
        for controller in [&CONTROLLER, &replicaset::CONTROLLER] {
            let plan = self.0.decide(controller);
            acted |= !plan.actions.is_empty();
            self.0.perform(plan);
        }
        acted
    }

    /// Makes so many pods that are not ready ready.
    fn ready(&mut self, count: usize) -> usize {
        let waiting: Vec<Value> =
            self.0.view.all(Known::Pod).filter(|p| !pods::is_ready(p)).map(|p| (**p).clone()).collect();
        let waiting: Vec<Value> = waiting.into_iter().take(count).collect();
        let done = waiting.len();
        for mut pod in waiting {
            pod["status"] = json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]});
            self.0.put(Known::Pod, pod);
        }
        done
    }

    /// Until nothing moves any more.
    fn finish(&mut self) {
        for _ in 0..500 {
            let acted = self.step();
            if self.ready(usize::MAX) == 0 && !acted {
                return;
            }
        }
        panic!("it never ends");
    }

    fn change(&mut self, change: impl Fn(&mut Value)) {
        let mut object = self.deployment().clone();
        change(&mut object);
        object["metadata"]["generation"] = json!(meta::generation(&object) + 1);
        self.0.put(Known::Deployment, object);
    }

    fn image(&mut self, image: &str) {
        self.change(|d| d["spec"]["template"]["spec"]["containers"][0]["image"] = json!(image));
    }

    fn deployment(&self) -> &Value {
        self.0.view.get(Known::Deployment, "a", "web").unwrap()
    }

    /// Replicas by image.
    fn sets(&self) -> BTreeMap<String, i64> {
        let of = |set: &Arc<Value>| {
            (text(set, "/spec/template/spec/containers/0/image").to_owned(), replicas(set))
        };
        self.0.view.all(Known::ReplicaSet).map(of).collect()
    }

    fn pods(&self) -> (usize, usize) {
        let all: Vec<_> = self.0.view.all(Known::Pod).collect();
        (all.len(), all.iter().filter(|pod| pods::is_ready(pod)).count())
    }

    fn reason(&self, ty: &str) -> &str {
        condition(self.deployment(), ty).map_or("", |c| text(c, "/reason"))
    }
}

fn sizes(list: &[(&str, i64)]) -> BTreeMap<String, i64> {
    list.iter().map(|(image, count)| ((*image).to_owned(), *count)).collect()
}

#[test]
fn a_new_deployment_comes_up() {
    let world = World::new(3, &json!({}));
    assert_eq!((world.sets(), world.pods()), (sizes(&[("1", 3)]), (3, 3)));
    assert_eq!(world.reason("Available"), "MinimumReplicasAvailable");
    assert_eq!(world.reason("Progressing"), "NewReplicaSetAvailable");
    let status = &world.deployment()["status"];
    assert_eq!((&status["updatedReplicas"], &status["availableReplicas"]), (&json!(3), &json!(3)));
    let types: Vec<&str> = items(status, "/conditions").iter().map(|c| text(c, "/type")).collect();
    assert_eq!(types, ["Available", "Progressing"], "in the order in which Kubernetes shows them");
    assert_eq!(meta::annotation(world.deployment(), REVISION), Some("1"));
    let set = world.0.view.all(Known::ReplicaSet).next().unwrap();
    assert_eq!(meta::name(set), format!("web-{}", text(set, "/metadata/labels/pod-template-hash")));
}

const REVISION: &str = "deployment.kubernetes.io/revision";

#[test]
fn templates_roll_forth_and_back_and_old_ones_are_forgotten() {
    let mut world = World::new(4, &json!({"revisionHistoryLimit": 1}));
    for image in ["2", "3"] {
        world.image(image);
        world.finish();
    }
    assert_eq!(world.sets(), sizes(&[("2", 0), ("3", 4)]), "the first is beyond the history");
    assert_eq!(meta::annotation(world.deployment(), REVISION), Some("3"));
    world.image("2");
    world.finish();
    assert_eq!(world.sets(), sizes(&[("2", 4), ("3", 0)]), "the same ReplicaSet again");
    assert_eq!(meta::annotation(world.deployment(), REVISION), Some("4"));
}

#[test]
fn recreate_waits_for_the_last_old_pod() {
    let mut world = World::new(2, &json!({"strategy": {"type": "Recreate"}}));
    world.image("2");
    for _ in 0..20 {
        world.step();
        let images: Vec<&str> =
            world.0.view.all(Known::Pod).map(|pod| text(pod, "/spec/containers/0/image")).collect();
        assert!(!(images.contains(&"1") && images.contains(&"2")), "{images:?}");
    }
    world.finish();
    assert_eq!(world.sets(), sizes(&[("1", 0), ("2", 2)]));
}

#[test]
fn a_paused_deployment_scales_and_does_not_roll() {
    let mut world = World::new(2, &json!({}));
    world.change(|d| d["spec"]["paused"] = json!(true));
    world.image("2");
    world.change(|d| d["spec"]["replicas"] = json!(5));
    world.finish();
    assert_eq!(world.sets(), sizes(&[("1", 5)]));
    assert_eq!(world.reason("Progressing"), "DeploymentPaused");
    world.change(|d| d["spec"]["paused"] = json!(false));
    world.finish();
    assert_eq!(world.sets(), sizes(&[("1", 0), ("2", 5)]));
    assert_eq!(world.reason("Progressing"), "NewReplicaSetAvailable");
}

#[test]
fn scaling_in_the_middle_keeps_the_proportion() {
    let mut world = World::new(10, &json!({}));
    world.image("2");
    for _ in 0..3 {
        world.step();
    }
    assert_eq!(world.sets(), sizes(&[("1", 8), ("2", 5)]), "stuck: nothing new is ready");
    world.change(|d| d["spec"]["replicas"] = json!(20));
    for _ in 0..3 {
        world.step();
    }
    assert_eq!(world.sets(), sizes(&[("1", 15), ("2", 10)]));
}

#[test]
fn what_stands_still_is_said_to() {
    let mut world = World::new(2, &json!({}));
    world.image("2");
    for _ in 0..5 {
        world.step();
    }
    assert_eq!(world.reason("Progressing"), "ReplicaSetUpdated");
    let again = world.0.decide(&CONTROLLER).again.unwrap();
    assert!(again > world.0.now && again <= world.0.now + 602_000);
    world.0.now += 602_000;
    for _ in 0..3 {
        world.step();
    }
    assert_eq!(world.reason("Progressing"), "ProgressDeadlineExceeded");
    world.finish();
    assert_eq!(world.reason("Progressing"), "NewReplicaSetAvailable");
}

#[test]
fn somebody_elses_replica_set_of_the_same_name_is_left_alone() {
    let mut world = World::new(1, &json!({}));
    let set = world.0.view.all(Known::ReplicaSet).next().unwrap().clone();
    let mut other = (*set).clone();
    other["metadata"]["ownerReferences"] = json!([{"uid": "other", "controller": true}]);
    other["metadata"]["uid"] = json!("theirs");
    other["spec"]["replicas"] = json!(0);
    world.0.put(Known::ReplicaSet, other);
    world.finish();
    assert_eq!(world.0.view.all(Known::ReplicaSet).count(), 2);
    assert_eq!(world.deployment()["status"]["collisionCount"], json!(1));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// However pods become ready, there are never fewer than the least and never more than the most.
    #[test]
    fn a_rolling_update_stays_within_its_bounds(
        replicas in 1_i64..12,
        surge in 0_i64..4,
        unavailable in 0_i64..4,
        steps in prop::collection::vec((any::<bool>(), 0_usize..4), 10..60),
        rolls in 1_usize..3,
    ) {
        prop_assume!(surge + unavailable > 0);
        let rolling = json!({"strategy": {"type": "RollingUpdate", "rollingUpdate": {
            "maxSurge": surge, "maxUnavailable": unavailable}}});
        let mut world = World::new(replicas, &rolling);
        let least = usize::try_from((replicas - unavailable).max(0)).unwrap();
        let most = usize::try_from(replicas + surge).unwrap();
        let mut roll = 2;
        for (at, (decide, ready)) in steps.iter().enumerate() {
            if at % (steps.len() / rolls + 1) == 0 {
                world.image(&roll.to_string());
                roll += 1;
            }
            // Either controller may be slower than the other.
            let controller = if *decide { &CONTROLLER } else { &replicaset::CONTROLLER };
            let plan = world.0.decide(controller);
            world.0.perform(plan);
            world.ready(*ready);
            let (pods, ready) = world.pods();
            prop_assert!(ready >= least, "{ready} ready of at least {least}");
            prop_assert!(pods <= most, "{pods} pods of at most {most}");
        }
        world.finish();
        prop_assert_eq!(world.pods(), (usize::try_from(replicas).unwrap(), usize::try_from(replicas).unwrap()));
        let last = (roll - 1).to_string();
        prop_assert_eq!(world.sets().get(&last).copied(), Some(replicas));
    }
}
