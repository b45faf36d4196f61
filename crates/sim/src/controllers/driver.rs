//! The driver: keeps the view, asks the controllers, and does what they decide.
//!
//! It acts on what it has seen, and looks at nothing twice: after a controller's actions it waits until they have come
//! back as changes before anybody decides again. So no controller needs to remember what it has just done.
//!
//! A controller that panics is logged and tried again later, while the others go on.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use landfall_api::{Reason, Status, meta};
use landfall_apiserver::housekeeping::client::Place;
use landfall_apiserver::local::{Batch, Change, Follow, Local};
use landfall_apiserver::write::delete::{DeleteOptions, Propagation};
use landfall_apiserver::write::update::Part;
use landfall_runtime::clock;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::action::{Action, Deed, Note};
use super::concern::Concern;
use super::events::{Recorder, Source};
use super::read::{Millis, set};
use super::turn::{Subject, Turn, longer};
use super::{Context, Controller, TABLE};
use crate::member::config::Settings;
use crate::member::nodes;
use crate::view::{Known, View};

/// How long to wait before the stream of changes is opened again.
const REOPEN: Duration = Duration::from_millis(200);
/// How many different events are remembered for counting.
const EVENTS_KEPT_MAX: usize = 512;
/// The longest sleep: clocks may be set.
const SLEEP_MS_MAX: Millis = 30_000;

/// Runs the controllers until dropped. While `up` is false the API is down, and they with it.
pub async fn run(api: Local, settings: Arc<Settings>, mut up: watch::Receiver<bool>) {
    let mut pause = 0;
    loop {
        if up.wait_for(|up| *up).await.is_err() {
            return;
        }
        let mut driver = Driver::new(&api, &settings, TABLE);
        let down = async { drop(up.wait_for(|up| !*up).await) };
        tokio::select! {
            why = AssertUnwindSafe(driver.work()).catch_unwind() => match why {
                Ok(why) => {
                    tracing::debug!(member = settings.name, ?why, "controllers begin anew");
                    pause = 0;
                    tokio::time::sleep(REOPEN).await;
                }
                Err(_) => {
                    pause = longer(pause);
                    tracing::error!(member = settings.name, pause_ms = pause, "controllers panicked and begin anew");
                    tokio::time::sleep(Duration::from_millis(u64::try_from(pause).unwrap_or(0))).await;
                }
            },
            () = down => {}
        }
    }
}

/// The time in milliseconds.
pub fn now() -> Millis {
    i64::try_from(clock::since_epoch().as_millis()).unwrap_or(i64::MAX)
}

struct Driver<'a> {
    table: &'static [Controller],
    settings: &'a Settings,
    managers: [Local; 2],
    recorder: Recorder,
    view: View,
    revision: u64,
    begun: Millis,
    turns: Vec<Turn>,
}

impl<'a> Driver<'a> {
    fn new(api: &Local, settings: &'a Settings, table: &'static [Controller]) -> Self {
        Self {
            table,
            settings,
            managers: [api.named("kube-controller-manager"), api.named("kube-scheduler")],
            recorder: Recorder::new(EVENTS_KEPT_MAX),
            view: View::default(),
            revision: 0,
            begun: now(),
            turns: vec![Turn::first(); table.len()],
        }
    }

    async fn work(&mut self) -> Result<(), Status> {
        let mut follow = self.managers[0].follow(Known::concerns)?;
        self.take(follow.next().await?);
        loop {
            while let Some(at) = self.turns.iter().position(|turn| turn.is_due(now())) {
                self.turn(at, &mut follow).await?;
            }
            let due = self.turns.iter().filter_map(Turn::due).min();
            let wait = due.map_or(SLEEP_MS_MAX, |at| at.saturating_sub(now()).clamp(1, SLEEP_MS_MAX));
            let sleep = tokio::time::sleep(Duration::from_millis(u64::try_from(wait).unwrap_or(1)));
            tokio::select! {
                batch = follow.next() => self.take(batch?),
                () = sleep => {}
            }
        }
    }

    /// One controller decides, and what it decided is done and seen.
    async fn turn(&mut self, at: usize, follow: &mut Follow) -> Result<(), Status> {
        let (controller, now_ms) = (&self.table[at], now());
        let concern = self.turns[at].concern(now_ms);
        let context = Context {
            view: &self.view,
            now: now_ms,
            begun: self.begun,
            settings: self.settings,
            concern: &concern,
        };
        let decided = std::panic::catch_unwind(AssertUnwindSafe(|| (controller.decide)(&context)));
        let Ok(plan) = decided else {
            tracing::error!(
                member = self.settings.name,
                controller = controller.name,
                "a controller panicked"
            );
            self.turns[at].panicked(now());
            return Ok(());
        };
        let mut written = 0;
        for action in self.turns[at].begin(&concern, plan.again, plan.actions, now()) {
            tracing::trace!(member = self.settings.name, controller = controller.name, %action, "acting");
            let subject = Subject::of(&action);
            if !self.turns[at].may(&subject, now()) {
                continue;
            }
            match self.act(controller, &action).await {
                Ok(revision) => {
                    written = written.max(revision);
                    self.turns[at].done(&subject);
                }
                Err(why) => {
                    tracing::debug!(controller = controller.name, %action, why = why.message, "not done");
                    if is_race(&why) {
                        // What was faster is seen before the next attempt.
                        written = written.max(self.managers[0].revision());
                    }
                    self.turns[at].failed(subject, now(), is_race(&why));
                }
            }
        }
        while self.revision < written {
            let batch = follow.next().await?;
            self.take(batch);
        }
        Ok(())
    }

    fn take(&mut self, batch: Batch) {
        self.revision = batch.revision;
        for change in batch.changes {
            let (place, object) = match change {
                Change::Put(place, object) => (place, Some(object)),
                Change::Gone(place) => (place, None),
            };
            let Some(known) = Known::find(&place.group, &place.plural) else { continue };
            // Those near what it was, and those near what it is.
            match object {
                Some(object) if self.is_known(known, &place, &object) => self.view.put(known, object),
                Some(object) => {
                    self.touch(known, &place, Concern::touch);
                    self.view.put(known, object);
                    self.touch(known, &place, Concern::touch);
                }
                None => {
                    self.touch(known, &place, Concern::lose);
                    self.view.remove(known, &place.namespace, &place.name);
                }
            }
        }
    }

    /// Whether an object says nothing that was not known: a node says every minute that it is alive, and all Services of a
    /// cluster may concern its nodes.
    fn is_known(&self, known: Known, place: &Place, object: &Value) -> bool {
        known == Known::Node
            && self
                .view
                .get(known, &place.namespace, &place.name)
                .is_some_and(|old| nodes::only_alive(old, object))
    }

    fn touch(&mut self, known: Known, place: &Place, how: fn(&mut Concern, Known, &View, &str, &str)) {
        for (turn, controller) in self.turns.iter_mut().zip(self.table) {
            if controller.reads.contains(&known) {
                turn.touch(|concern| how(concern, known, &self.view, &place.namespace, &place.name));
            }
        }
    }

    /// Does one action; gives the revision at which it is done.
    async fn act(&mut self, controller: &Controller, action: &Action) -> Result<u64, Status> {
        let api = self.managers[usize::from(controller.name == "default-scheduler")].clone();
        let done = perform(&api, action).await;
        match (&done, &action.note) {
            (Ok(_), Some(note)) => self.tell(&api, note, controller.name).await,
            (Err(why), Some(note)) if note.reason == "SuccessfulCreate" && !is_race(why) => {
                let message = format!("Error creating: {}", why.message);
                let note = Note { warning: true, reason: "FailedCreate", message, about: note.about.clone() };
                self.tell(&api, &note, controller.name).await;
            }
            _ => {}
        }
        done
    }

    async fn tell(&mut self, api: &Local, note: &Note, component: &str) {
        let source = Source { component, host: "" };
        self.recorder.tell(api, note, source, &self.settings.event_luck).await;
    }
}

/// Whether somebody else was faster: nothing that anybody needs to hear about.
fn is_race(why: &Status) -> bool {
    matches!(why.reason, Reason::Conflict | Reason::NotFound | Reason::AlreadyExists)
}

/// Does an action; gives the revision at which it is done.
pub async fn perform(api: &Local, action: &Action) -> Result<u64, Status> {
    let place = Place::new(action.known.group(), action.known.plural(), &action.namespace, &action.name);
    let part = match &action.deed {
        Deed::Tell => return Ok(0),
        Deed::Create(object) => {
            let made = api.create(&place, object.clone()).await?;
            return Ok(meta::resource_version(&made).parse().unwrap_or(0));
        }
        Deed::Delete(grace) => {
            let options = DeleteOptions {
                propagation: Propagation::Background,
                resource_version: action.version.clone(),
                grace_period_s: *grace,
                ..DeleteOptions::BACKGROUND
            };
            return api.delete(&place, &options).await;
        }
        Deed::Set(_) => Part::Main,
        Deed::Status(_) | Deed::Noted(..) => Part::Status,
        Deed::Bind(..) => Part::Binding,
    };
    let wanted = |old: &Value| {
        if meta::resource_version(old) != action.version {
            return Err(Status::conflict(&place.group, &place.plural, &place.name, "it has changed"));
        }
        let mut object = old.clone();
        change(&mut object, &action.deed);
        Ok(object)
    };
    api.modify(&place, part, wanted).await
}

/// Changes an object as a deed says.
pub(super) fn change(object: &mut Value, deed: &Deed) {
    match deed {
        Deed::Set(values) => assign(object, values),
        Deed::Status(status) => object["status"] = status.clone(),
        Deed::Noted(status, notes) => {
            object["status"] = status.clone();
            for (key, value) in notes {
                set(object, &["metadata", "annotations", key], json!(value));
            }
        }
        Deed::Bind(node, conditions, labels) => {
            for (key, value) in labels {
                set(object, &["metadata", "labels", key], json!(value));
            }
            set(object, &["spec", "nodeName"], json!(node));
            set(object, &["status", "conditions"], conditions.clone());
        }
        Deed::Create(_) | Deed::Delete(_) | Deed::Tell => {}
    }
}

/// Sets values at JSON pointers, making maps on the way; none removes.
pub fn assign(object: &mut Value, values: &[(String, Option<Value>)]) {
    for (pointer, value) in values {
        let mut parts: Vec<String> =
            pointer.split('/').skip(1).map(|part| part.replace("~1", "/").replace("~0", "~")).collect();
        let Some(last) = parts.pop() else { continue };
        let mut at = &mut *object;
        for part in &parts {
            if !at.get(part).is_some_and(Value::is_object) {
                at[part] = json!({});
            }
            at = &mut at[part];
        }
        match (value, at.as_object_mut()) {
            (Some(value), Some(map)) => drop(map.insert(last, value.clone())),
            (None, Some(map)) => drop(map.remove(&last)),
            (_, None) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::action::Plan;
    use super::*;

    #[test]
    fn values_are_set_made_and_removed() {
        let mut object = json!({"a": {"b": 1, "c": 2}});
        let values = [
            ("/a/b".to_owned(), Some(json!(3))),
            ("/a/c".to_owned(), None),
            ("/m/annotations/x.dev~1y".to_owned(), Some(json!("z"))),
        ];
        assign(&mut object, &values);
        assert_eq!(object, json!({"a": {"b": 3}, "m": {"annotations": {"x.dev/y": "z"}}}));
    }

    /// A ConfigMap would do, if controllers knew them: what tells that a controller has run.
    fn mark(context: &Context<'_>) -> Plan {
        let mut plan = Plan::default();
        if context.view.get(Known::Lease, "kube-node-lease", "mark").is_none() {
            let lease = json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
                "metadata": {"name": "mark", "namespace": "kube-node-lease"}, "spec": {}});
            plan.act(Action::create(Known::Lease, lease, "to be seen"));
        }
        plan
    }

    const PANICKING: &[Controller] = &[
        Controller { name: "panics", reads: &[Known::Lease], decide: |_| panic!("on purpose") },
        Controller { name: "marks", reads: &[Known::Lease], decide: mark },
    ];

    /// A panic ended all controllers of a member for good.
    #[tokio::test]
    async fn a_controller_that_panics_leaves_the_others_alone() {
        let world = crate::testing::World::start().await;
        let api = Local::new(world.member.api().clone(), "test");
        let settings = Settings::new("test", world.claim.block(), crate::Timings::KUBERNETES, 1);
        let mut driver = Driver::new(&api, &settings, PANICKING);
        let place = Place::new("coordination.k8s.io", "leases", "kube-node-lease", "mark");
        let made = async {
            while api.get(&place).await.is_err() {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::select! {
            ended = driver.work() => panic!("it ended: {ended:?}"),
            made = tokio::time::timeout(Duration::from_secs(20), made) => made.unwrap(),
        }
    }
}
