//! Events as controllers and kubelets record them: one object per thing that happened, counted when it happens again.

use std::collections::HashMap;

use landfall_api::Status;
use landfall_apiserver::housekeeping::client::Place;
use landfall_apiserver::local::Local;
use landfall_apiserver::write::update::Part;
use serde_json::{Value, json};

use super::action::Note;
use super::driver;
use super::read::{Millis, int, time_text};
use crate::luck::Luck;

/// Who tells something.
#[derive(Clone, Copy)]
pub(crate) struct Source<'a> {
    /// Its name, such as `kubelet`.
    pub(crate) component: &'a str,
    /// Its node; empty for those that run on none.
    pub(crate) host: &'a str,
}

/// What an event says of whom, which tells it apart from others.
type Key = (String, String, &'static str, String);

/// Remembers what was told, so that repetitions are counted.
pub(crate) struct Recorder {
    /// The name of the event of each.
    told: HashMap<Key, String>,
    kept_max: usize,
}

impl Recorder {
    /// Remembers so many different events; forgetting one only means that a repetition becomes an event of its own.
    pub(crate) fn new(kept_max: usize) -> Self {
        Self { told: HashMap::new(), kept_max }
    }

    /// Writes an event, or counts one more of the same. An event that cannot be written is lost.
    pub(crate) async fn tell(&mut self, api: &Local, note: &Note, source: Source<'_>, luck: &Luck) {
        let about = &note.about;
        let key = (about.uid.clone(), about.field.clone(), note.reason, note.message.clone());
        let namespace = if about.namespace.is_empty() { "default" } else { &about.namespace };
        let now = driver::now();
        if let Some(name) = self.told.get(&key)
            && again(api, &Place::new("", "events", namespace, name), now).await.is_ok()
        {
            return;
        }
        let thing = format!("{}/{}/{}/{}", about.uid, about.field, note.reason, note.message);
        let name = format!("{}.{:016x}", about.name, luck.draw(&thing) >> 64);
        let event = event(note, namespace, &name, source, now);
        if let Err(status) = api.create(&Place::new("", "events", namespace, ""), event).await {
            tracing::debug!(about = about.name, reason = note.reason, error = %status.message, "an event is lost");
            self.told.remove(&key);
            return;
        }
        if self.told.len() >= self.kept_max {
            self.told.clear();
        }
        self.told.insert(key, name);
    }
}

/// Counts one more; an error when the event is gone, as they go after a while.
async fn again(api: &Local, place: &Place, now: Millis) -> Result<(), Status> {
    let change = |old: &Value| {
        let mut event = old.clone();
        event["count"] = json!(int(old, "/count").max(1).saturating_add(1));
        event["lastTimestamp"] = json!(time_text(now));
        Ok(event)
    };
    api.modify(place, Part::Main, change).await.map(drop)
}

fn event(note: &Note, namespace: &str, name: &str, source: Source<'_>, now: Millis) -> Value {
    let (about, at) = (&note.about, time_text(now));
    let mut event = json!({
        "apiVersion": "v1", "kind": "Event",
        "metadata": {"name": name, "namespace": namespace},
        "involvedObject": {
            "apiVersion": about.api_version, "kind": about.kind, "namespace": about.namespace,
            "name": about.name, "uid": about.uid, "resourceVersion": about.version,
        },
        "type": if note.warning { "Warning" } else { "Normal" },
        "reason": note.reason, "message": note.message, "count": 1,
        "firstTimestamp": at, "lastTimestamp": at,
        "source": {"component": source.component},
        "reportingComponent": source.component, "reportingInstance": source.host,
    });
    if !source.host.is_empty() {
        event["source"]["host"] = json!(source.host);
    }
    if !about.field.is_empty() {
        event["involvedObject"]["fieldPath"] = json!(about.field);
    }
    event
}

#[cfg(test)]
mod tests {
    use landfall_api::meta;
    use landfall_apiserver::write::delete::DeleteOptions;

    use super::*;
    use crate::testing::World;

    #[tokio::test(flavor = "multi_thread")]
    async fn repetitions_are_counted_and_what_is_gone_is_told_anew() {
        let world = World::start().await;
        let api = Local::new(world.member.api().clone(), "test");
        let (mut recorder, luck) = (Recorder::new(2), Luck::new(7));
        let source = Source { component: "kubelet", host: "n1" };
        let pod = json!({"apiVersion": "v1", "kind": "Pod",
            "metadata": {"name": "p", "namespace": "default", "uid": "u", "resourceVersion": "3"}});
        let mut note = Note::warning(&pod, "BackOff", "again and again");
        note.about.field = "spec.containers{c}".into();
        let about_p = || -> Vec<Value> {
            let all = api.list("", "events", "default").into_iter();
            all.filter(|event| event["involvedObject"]["uid"] == "u").collect()
        };
        for count in 1..=3 {
            recorder.tell(&api, &note, source, &luck).await;
            let [event] = about_p().try_into().expect("one event");
            assert_eq!(event["count"], count);
        }
        let event = about_p().remove(0);
        assert_eq!(event["source"], json!({"component": "kubelet", "host": "n1"}));
        assert_eq!(event["involvedObject"]["fieldPath"], "spec.containers{c}");
        assert_eq!((&event["type"], &event["reason"]), (&json!("Warning"), &json!("BackOff")));
        let place = Place::new("", "events", "default", meta::name(&event));
        api.delete(&place, &DeleteOptions::BACKGROUND).await.unwrap();
        recorder.tell(&api, &note, source, &luck).await;
        let [fresh] = about_p().try_into().expect("one event");
        assert_eq!(fresh["count"], 1);
        assert_ne!(meta::name(&fresh), meta::name(&event));
        // The same of another part is another event.
        note.about.field.clear();
        recorder.tell(&api, &note, source, &luck).await;
        assert_eq!(about_p().len(), 2);
        world.stop().await;
    }
}
