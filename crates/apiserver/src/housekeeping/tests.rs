//! Housekeeping on a model: seeded random schedules of users, events and half-done work, and small stories.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::future::BoxFuture;
use landfall_api::meta;
use serde_json::{Value, json};

use super::client::{Event, ObjectClient, Place, Propagation};
use super::graph::{owners, waits_for_dependents};
use super::keeper::{Config, Housekeeper, Key};
use super::model::{Model, reference};
use super::queue::Outcome;

const NOW: &str = "2026-01-01T00:00:00Z";

/// Numbers from a seed (xorshift).
struct Luck(u64);

impl Luck {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(n.max(1)).unwrap()).unwrap()
    }
    fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }
}

/// One housekeeper with its place in the log and its half-done work.
struct Run {
    keeper: Housekeeper,
    seen: usize,
    now: Duration,
    jobs: Vec<(Key, BoxFuture<'static, Outcome>)>,
}

impl Run {
    fn new(model: &Model, config: Config) -> Self {
        let mut keeper = Housekeeper::new(config);
        let (objects, seen) = model.with(|world| (world.all(), world.log.len()));
        for (place, object) in objects {
            keeper.observe(&Event::Put(place, object));
        }
        keeper.observe(&Event::Synced);
        Self { keeper, seen, now: Duration::ZERO, jobs: Vec::new() }
    }

    /// Sees the next change; false when there is none.
    fn see(&mut self, model: &Model) -> bool {
        let Some(event) = model.with(|world| world.log.get(self.seen).cloned()) else { return false };
        self.seen += 1;
        self.keeper.observe(&event);
        true
    }

    /// Begins a piece of work; false when there is none.
    fn begin(&mut self, model: &Model) -> bool {
        let Some((key, job)) = self.keeper.take(self.now) else { return false };
        let model = model.clone();
        self.jobs.push((key, Box::pin(async move { job.run(&model, NOW).await })));
        true
    }

    /// Lets one piece of work go one step further; false when there is none.
    fn step(&mut self, at: usize) -> bool {
        if self.jobs.is_empty() {
            return false;
        }
        let at = at % self.jobs.len();
        let waker = futures::task::noop_waker();
        if let Poll::Ready(outcome) = self.jobs[at].1.as_mut().poll(&mut Context::from_waker(&waker)) {
            let (key, _) = self.jobs.remove(at);
            self.keeper.done(key, &outcome, self.now);
        }
        true
    }

    /// Goes on until nothing is left to see or do.
    fn settle(&mut self, model: &Model) {
        for _ in 0..200_000 {
            if self.see(model) || self.step(0) || self.begin(model) {
                continue;
            }
            match self.keeper.due(self.now) {
                Some(due) if due < Duration::from_secs(3600) => self.now = due,
                _ => return,
            }
        }
        panic!("does not come to rest");
    }
}

const KINDS: [(&str, &str, &str, bool); 3] =
    [("", "Thing", "things", true), ("", "Part", "parts", true), ("", "Globe", "globes", false)];

/// A user who creates, deletes and changes objects with owners at random.
struct User {
    luck: Luck,
    count: usize,
    /// Objects that were let go by an orphaning delete and not touched since: they must survive.
    orphans: Vec<(Place, String)>,
}

impl User {
    fn act(&mut self, model: &Model) {
        let objects = model.with(|world| world.all());
        match self.luck.below(10) {
            0..=4 => self.create(model, &objects),
            5..=7 => self.delete(model, &objects),
            8 => self.disown(model, &objects),
            _ => self.finish(model, &objects),
        }
    }

    fn create(&mut self, model: &Model, objects: &[(Place, Arc<Value>)]) {
        let (_, _, plural, namespaced) = KINDS[self.luck.below(3)];
        let namespace = if namespaced { ["a", "b"][self.luck.below(2)] } else { "" };
        let name = format!("o{}", self.count % 40);
        self.count += 1;
        let place = Place::new("", plural, namespace, &name);
        if objects.iter().any(|(other, _)| *other == place) {
            return;
        }
        let mut references = Vec::new();
        for _ in 0..self.luck.below(3) {
            let Some((owner, object)) = objects.get(self.luck.below(objects.len())) else { break };
            let kind = KINDS.iter().find(|k| k.2 == &*owner.plural).unwrap().1;
            if owner.namespace.is_empty() || owner.namespace == place.namespace {
                let uid = if self.luck.chance(10) { "never-was" } else { meta::uid(object) };
                references.push(reference(kind, &owner.name, uid, self.luck.chance(70)));
            }
        }
        let finalizers = if self.luck.chance(10) { json!(["mine/x"]) } else { json!([]) };
        let metadata = json!({"ownerReferences": references, "finalizers": finalizers});
        model.with(|world| world.put(&place, json!({"metadata": metadata})));
    }

    fn delete(&mut self, model: &Model, objects: &[(Place, Arc<Value>)]) {
        let Some((place, object)) = objects.get(self.luck.below(objects.len())) else { return };
        let ways = [Propagation::Background, Propagation::Foreground, Propagation::Orphan];
        let way = ways[self.luck.below(3)];
        self.orphans.retain(|(orphan, _)| orphan != place);
        if way == Propagation::Orphan && !meta::deleting(object) {
            let uid = meta::uid(object);
            for (dependent, object) in objects {
                let own = owners(object);
                let only = own.len() == 1 && &*own[0].uid == uid && !meta::deleting(object);
                if only && meta::finalizers(object).next().is_none() {
                    self.orphans.push((dependent.clone(), meta::uid(object).to_owned()));
                }
            }
        } else if meta::deleting(object) {
            // A second delete may change its mind about the dependents: they are no longer promised anything.
            let uid = meta::uid(object).to_owned();
            let names =
                |d: &Place| objects.iter().any(|(p, o)| p == d && owners(o).iter().any(|w| *w.uid == *uid));
            self.orphans.retain(|(orphan, _)| !names(orphan));
        }
        model.with(|world| world.delete(place, way));
    }

    fn disown(&mut self, model: &Model, objects: &[(Place, Arc<Value>)]) {
        let Some((place, object)) = objects.get(self.luck.below(objects.len())) else { return };
        let mut object = (**object).clone();
        meta::metadata_mut(&mut object).remove("ownerReferences");
        model.with(|world| world.settle(place, object));
    }

    fn finish(&mut self, model: &Model, objects: &[(Place, Arc<Value>)]) {
        if let Some((place, object)) = objects.get(self.luck.below(objects.len())) {
            unhold(model, place, object);
        }
    }
}

/// Takes the user's own finalizer off.
fn unhold(model: &Model, place: &Place, object: &Value) {
    if let Some(freed) = super::plan::without_finalizer(object, "mine/x") {
        model.with(|world| world.settle(place, freed));
    }
}

fn check_collected(seed: u64, model: &Model, user: &User) {
    for (place, object) in model.with(|world| world.all()) {
        assert!(!meta::deleting(&object), "seed {seed}: {place} is still going: {object}");
        let lives = model.with(|world| world.living_owner(&place, &object));
        assert!(
            owners(&object).is_empty() || lives.is_some(),
            "seed {seed}: {place} has no owner left: {object}"
        );
        for owner in owners(&object) {
            let there = model.with(|world| world.all().iter().any(|(_, o)| meta::uid(o) == &*owner.uid));
            assert!(there, "seed {seed}: {place} names {} which is gone", owner.name);
        }
    }
    for (place, uid) in &user.orphans {
        let found = model.with(|world| world.get(place));
        let same = found.is_some_and(|object| meta::uid(&object) == uid);
        assert!(same, "seed {seed}: {place} was let go and should be there");
    }
}

/// `runs` housekeepers at once, all working on one world.
fn schedule(seed: u64, runs: usize) {
    let model = Model::new(&KINDS);
    let mut luck = Luck(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1);
    let mut user = User { luck: Luck(seed | 1 << 40), count: 0, orphans: Vec::new() };
    let mut keepers: Vec<Run> = (0..runs).map(|_| Run::new(&model, Config::default())).collect();
    for _ in 0..400 {
        if luck.chance(25) {
            user.act(&model);
        }
        if luck.chance(2) {
            model.with(|world| world.failures = 2);
        }
        let at = luck.below(keepers.len());
        let run = &mut keepers[at];
        match luck.below(3) {
            0 => run.see(&model),
            1 => run.begin(&model),
            _ => run.step(luck.below(8)),
        };
        if luck.chance(1) {
            // A crash: what was half done is lost, and another begins from what is there.
            keepers[at] = Run::new(&model, Config::default());
        }
    }
    for _ in 0..10 {
        keepers.iter_mut().for_each(|run| run.settle(&model));
        for (place, object) in model.with(|world| world.all()) {
            unhold(&model, &place, &object);
        }
    }
    keepers.iter_mut().for_each(|run| run.settle(&model));
    let broken = model.with(|world| world.broken.clone());
    assert!(broken.is_empty(), "seed {seed}: {broken:?}");
    check_collected(seed, &model, &user);
}

#[test]
fn what_has_no_owner_left_goes_and_nothing_else() {
    (0..300).for_each(|seed| schedule(seed, 1));
}

#[test]
fn two_at_once_do_no_harm() {
    (1000..1150).for_each(|seed| schedule(seed, 2));
}

fn put(model: &Model, place: &Place, object: Value) -> String {
    model.with(|world| {
        world.put(place, object);
        meta::uid(&world.get(place).unwrap()).to_owned()
    })
}

#[test]
fn an_owner_that_cannot_be_judged_keeps_its_dependents() {
    let model = Model::new(&KINDS);
    let unknown = Place::new("", "things", "a", "of-unknown-kind");
    put(&model, &unknown, json!({"metadata": {"ownerReferences": [reference("Ghost", "g", "u", true)]}}));
    let crossed = Place::new("", "globes", "", "of-namespaced-kind");
    put(&model, &crossed, json!({"metadata": {"ownerReferences": [reference("Thing", "t", "u", true)]}}));
    let mut run = Run::new(&model, Config::default());
    for _ in 0..200 {
        let _ = run.begin(&model) || run.step(0);
        run.now += Duration::from_secs(10);
    }
    assert_eq!(model.with(|world| world.all().len()), 2);
}

#[test]
fn a_circle_deleted_in_the_foreground_goes() {
    let model = Model::new(&KINDS);
    let (first, second) = (Place::new("", "things", "a", "1"), Place::new("", "things", "a", "2"));
    let uid = put(&model, &first, json!({}));
    let uid2 =
        put(&model, &second, json!({"metadata": {"ownerReferences": [reference("Thing", "1", &uid, true)]}}));
    put(
        &model,
        &first,
        json!({"metadata": {"uid": uid, "ownerReferences": [reference("Thing", "2", &uid2, true)]}}),
    );
    let mut run = Run::new(&model, Config::default());
    run.settle(&model);
    assert_eq!(model.with(|world| world.all().len()), 2, "each has an owner");
    model.with(|world| world.delete(&first, Propagation::Foreground));
    assert!(model.with(|world| waits_for_dependents(&world.get(&first).unwrap())));
    run.settle(&model);
    assert_eq!(model.with(|world| world.all().len()), 0);
}

const NAMESPACED: [(&str, &str, &str, bool); 6] = [
    ("", "Namespace", "namespaces", false),
    ("", "Pod", "pods", true),
    ("", "ConfigMap", "configmaps", true),
    ("", "ServiceAccount", "serviceaccounts", true),
    ("ex.dev", "Widget", "widgets", true),
    ("apiextensions.k8s.io", "CustomResourceDefinition", "customresourcedefinitions", false),
];

fn namespace(model: &Model, name: &str) -> Place {
    let place = super::namespaces::place(name);
    put(model, &place, json!({"spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"}}));
    place
}

#[test]
fn a_namespace_is_furnished_emptied_and_let_go() {
    let model = Model::new(&NAMESPACED);
    model.with(|world| world.owners_protect = false);
    let place = namespace(&model, "shop");
    let root_ca: Arc<str> = "PEM".into();
    let mut run = Run::new(&model, Config { root_ca: Some(root_ca), ..Config::default() });
    run.settle(&model);
    let bundle = Place::new("", "configmaps", "shop", "kube-root-ca.crt");
    let account = Place::new("", "serviceaccounts", "shop", "default");
    assert_eq!(model.with(|world| world.get(&bundle).unwrap()["data"].clone()), json!({"ca.crt": "PEM"}));
    assert!(model.with(|world| world.get(&account)).is_some());
    model.with(|world| world.delete(&account, Propagation::Background));
    put(&model, &bundle, json!({"data": {"ca.crt": "forged"}}));
    run.settle(&model);
    assert!(model.with(|world| world.get(&account)).is_some(), "made again");
    assert_eq!(model.with(|world| world.get(&bundle).unwrap()["data"].clone()), json!({"ca.crt": "PEM"}));

    let pod = Place::new("", "pods", "shop", "p");
    put(&model, &pod, json!({"metadata": {"finalizers": ["mine/x"]}}));
    let other = namespace(&model, "other");
    model.with(|world| world.delete(&place, Propagation::Background));
    for _ in 0..500 {
        let _ = run.see(&model) || run.step(0) || run.begin(&model);
    }
    let now = model.with(|world| world.get(&place).unwrap());
    assert_eq!(now["status"]["phase"], "Terminating");
    let message = |ty: &str| {
        let conditions = now["status"]["conditions"].as_array().unwrap();
        conditions.iter().find(|c| c["type"] == ty).unwrap()["message"].clone()
    };
    let content = "Some resources are remaining: pods. has 1 resource instances";
    assert_eq!(message("NamespaceContentRemaining"), content);
    let finalizers = "Some content in the namespace has finalizers remaining: mine/x in 1 resource instances";
    assert_eq!(message("NamespaceFinalizersRemaining"), finalizers);
    assert!(model.with(|world| world.get(&account)).is_some(), "pods go first");

    let held = model.with(|world| world.get(&pod).unwrap());
    unhold(&model, &pod, &held);
    run.settle(&model);
    let left: Vec<Place> = model.with(|world| world.all()).into_iter().map(|(place, _)| place).collect();
    assert!(left.contains(&other), "another namespace stays");
    assert!(left.iter().all(|p| &*p.namespace != "shop" && *p != place), "{left:?}");
}

#[test]
fn a_definition_is_established_and_takes_its_objects_with_it() {
    let model = Model::new(&NAMESPACED);
    model.with(|world| world.owners_protect = false);
    let place = super::definitions::place("widgets.ex.dev");
    let names = json!({"plural": "widgets", "kind": "Widget"});
    let versions = json!([{"name": "v1", "served": true, "storage": true}]);
    let spec = json!({"group": "ex.dev", "names": names, "versions": versions});
    put(&model, &place, json!({"metadata": {"finalizers": [crate::crd::FINALIZER]}, "spec": spec}));
    let mut run = Run::new(&model, Config::default());
    run.settle(&model);
    let made = model.with(|world| world.get(&place).unwrap());
    assert!(crate::crd::status::is_true(&made, "Established"));

    let widget = Place::new("ex.dev", "widgets", "a", "w");
    put(&model, &widget, json!({"metadata": {"finalizers": ["mine/x"]}}));
    model.with(|world| world.delete(&place, Propagation::Background));
    for _ in 0..200 {
        let _ = run.see(&model) || run.step(0) || run.begin(&model);
    }
    assert!(model.with(|world| world.get(&place)).is_some(), "it waits for its objects");
    let held = model.with(|world| world.get(&widget).unwrap());
    unhold(&model, &widget, &held);
    run.settle(&model);
    assert_eq!(model.with(|world| world.all().len()), 0);
}

#[tokio::test]
async fn the_loop_runs_in_earnest() {
    let model = Model::new(&KINDS);
    let (owner, part) = (Place::new("", "things", "a", "t"), Place::new("", "parts", "a", "p"));
    let uid = put(&model, &owner, json!({}));
    put(&model, &part, json!({"metadata": {"ownerReferences": [reference("Thing", "t", &uid, true)]}}));
    let client: Arc<dyn ObjectClient> = Arc::new(model.clone());
    let user = async {
        tokio::task::yield_now().await;
        model.with(|world| world.delete(&owner, Propagation::Foreground));
        while !model.with(|world| world.all()).is_empty() {
            tokio::task::yield_now().await;
        }
    };
    tokio::select! {
        () = super::run(client, Config::default()) => {}
        () = user => {}
    }
    assert_eq!(model.with(|world| world.all().len()), 0);
}
