//! The driver: keeps the view, asks the controllers, and does what they decide.
//!
//! It acts on what it has seen, and looks at nothing twice: after a controller's actions it waits until they have come
//! back as changes before anybody decides again. So no controller needs to remember what it has just done.

use std::sync::Arc;
use std::time::Duration;

use landfall_api::{Reason, Status, meta};
use landfall_apiserver::housekeeping::client::Place;
use landfall_apiserver::local::{Batch, Change, Follow, Local};
use landfall_apiserver::write::delete::{DeleteOptions, Propagation};
use landfall_apiserver::write::update::Part;
use landfall_runtime::clock;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::action::{Action, Deed, Luck, Note};
use super::events::{Record, Recorder};
use super::read::{Millis, time_text};
use super::{Context, TABLE};
use crate::member::config::Settings;
use crate::view::{Known, View};

/// How long to wait before the stream of changes is opened again.
const REOPEN: Duration = Duration::from_millis(200);
/// How long a controller whose action failed waits at first, and at most.
const RETRY_MS: (Millis, Millis) = (100, 10_000);
/// The longest sleep: clocks may be set.
const SLEEP_MS_MAX: Millis = 30_000;

/// Runs the controllers until dropped. While `up` is false the API is down, and they with it.
pub async fn run(api: Local, settings: Arc<Settings>, mut up: watch::Receiver<bool>) {
    // Names made after a restart differ from those made before.
    let luck = Luck::new(settings.seed ^ api.revision().rotate_left(32));
    loop {
        if up.wait_for(|up| *up).await.is_err() {
            return;
        }
        let mut driver = Driver::new(&api, &settings, &luck);
        let down = async { drop(up.wait_for(|up| !*up).await) };
        tokio::select! {
            why = driver.work() => {
                tracing::debug!(member = settings.name, ?why, "controllers begin anew");
                tokio::time::sleep(REOPEN).await;
            }
            () = down => {}
        }
    }
}

/// The time in milliseconds.
pub fn now() -> Millis {
    i64::try_from(clock::since_epoch().as_millis()).unwrap_or(i64::MAX)
}

struct Driver<'a> {
    settings: &'a Settings,
    luck: &'a Luck,
    managers: [Local; 2],
    recorder: Recorder,
    view: View,
    revision: u64,
    begun: Millis,
    turns: Vec<Turn>,
}

/// When a controller decides next.
#[derive(Clone, Debug, Default)]
struct Turn {
    /// Something it looks at has changed.
    dirty: bool,
    /// Time alone may change its decision then.
    again: Option<Millis>,
    /// After a failure it waits until then, and this long the next time.
    retry: Option<Millis>,
    backoff: Millis,
}

impl Turn {
    fn is_due(&self, now: Millis) -> bool {
        match self.retry {
            Some(at) => at <= now,
            None => self.dirty || self.again.is_some_and(|at| at <= now),
        }
    }

    fn due(&self) -> Option<Millis> {
        self.retry.or(self.again)
    }
}

impl<'a> Driver<'a> {
    fn new(api: &Local, settings: &'a Settings, luck: &'a Luck) -> Self {
        Self {
            settings,
            luck,
            managers: [api.named("kube-controller-manager"), api.named("kube-scheduler")],
            recorder: Recorder::default(),
            view: View::default(),
            revision: 0,
            begun: now(),
            turns: vec![Turn { dirty: true, ..Turn::default() }; TABLE.len()],
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
            let wait = due.map_or(SLEEP_MS_MAX, |at| (at - now()).clamp(1, SLEEP_MS_MAX));
            let sleep = tokio::time::sleep(Duration::from_millis(u64::try_from(wait).unwrap_or(1)));
            tokio::select! {
                batch = follow.next() => self.take(batch?),
                () = sleep => {}
            }
        }
    }

    /// One controller decides, and what it decided is done and seen.
    async fn turn(&mut self, at: usize, follow: &mut Follow) -> Result<(), Status> {
        let context = Context {
            view: &self.view,
            now: now(),
            begun: self.begun,
            luck: self.luck,
            settings: self.settings,
        };
        let plan = (TABLE[at].decide)(&context);
        let backoff = self.turns[at].backoff;
        self.turns[at] = Turn { again: plan.again, ..Turn::default() };
        let mut written = 0;
        let mut failed = false;
        for action in plan.actions {
            tracing::trace!(member = self.settings.name, controller = TABLE[at].name, %action, "acting");
            match self.act(at, &action).await {
                Ok(revision) => written = written.max(revision),
                Err(why) => {
                    failed = true;
                    tracing::debug!(controller = TABLE[at].name, %action, why = why.message, "not done");
                }
            }
        }
        if failed {
            let backoff = (backoff * 2).clamp(RETRY_MS.0, RETRY_MS.1);
            self.turns[at].backoff = backoff;
            self.turns[at].retry = Some(now() + backoff);
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
            let known = match change {
                Change::Put(place, object) => {
                    let known = Known::find(&place.group, &place.plural);
                    known.inspect(|known| self.view.put(*known, object))
                }
                Change::Gone(place) => {
                    let known = Known::find(&place.group, &place.plural);
                    known.inspect(|known| self.view.remove(*known, &place.namespace, &place.name))
                }
            };
            let Some(known) = known else { continue };
            for (turn, controller) in self.turns.iter_mut().zip(TABLE) {
                turn.dirty |= controller.reads.contains(&known);
            }
        }
    }

    /// Does one action; gives the revision at which it is done.
    async fn act(&mut self, at: usize, action: &Action) -> Result<u64, Status> {
        let controller = &TABLE[at];
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
        let now = now();
        let told = match self.recorder.record(note, component, now, self.luck) {
            Record::New(event) => {
                let place = Place::new("", "events", meta::namespace(&event), "");
                api.create(&place, event).await.map(drop)
            }
            Record::Again(namespace, name, count) => {
                let place = Place::new("", "events", &namespace, &name);
                let change = |old: &Value| {
                    let mut event = old.clone();
                    event["count"] = json!(count);
                    event["lastTimestamp"] = json!(time_text(now));
                    Ok(event)
                };
                api.modify(&place, Part::Main, change).await.map(drop)
            }
        };
        if told.is_err() {
            // It has run out, or its namespace goes: the next one is new.
            self.recorder.forget(note);
        }
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

fn change(object: &mut Value, deed: &Deed) {
    match deed {
        Deed::Set(values) => assign(object, values),
        Deed::Status(status) => object["status"] = status.clone(),
        Deed::Noted(status, notes) => {
            object["status"] = status.clone();
            let metadata = meta::metadata_mut(object);
            let annotations = metadata.entry("annotations").or_insert_with(|| json!({}));
            for (key, value) in notes {
                annotations[key] = json!(value);
            }
        }
        Deed::Bind(node, conditions) => {
            object["spec"]["nodeName"] = json!(node);
            object["status"]["conditions"] = conditions.clone();
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
}
