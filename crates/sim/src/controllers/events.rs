//! Events as controllers record them: one object per thing that happened, counted when it happens again.

use std::collections::HashMap;

use serde_json::{Value, json};

use super::action::Note;
use super::read::{Millis, time_text};
use crate::luck::Luck;

/// How many different events are remembered for counting.
const KEPT_MAX: usize = 512;

/// Remembers what was told, so that repetitions are counted.
#[derive(Default)]
pub(super) struct Recorder {
    told: HashMap<(String, &'static str, String), (String, i64)>,
}

/// What to write for a note.
pub(super) enum Record {
    /// A new event.
    New(Value),
    /// An event of this namespace and name happened this often by now.
    Again(String, String, i64),
}

impl Recorder {
    /// What to write for a note of a controller.
    pub(super) fn record(&mut self, note: &Note, component: &str, now: Millis, luck: &Luck) -> Record {
        let about = &note.about;
        let namespace = if about.namespace.is_empty() { "default" } else { &about.namespace };
        let key = (about.uid.clone(), note.reason, note.message.clone());
        if let Some((name, count)) = self.told.get_mut(&key) {
            *count += 1;
            return Record::Again(namespace.to_owned(), name.clone(), *count);
        }
        if self.told.len() >= KEPT_MAX {
            // Forgetting only means that a repetition becomes an event of its own.
            self.told.clear();
        }
        let thing = format!("{}/{}/{}", about.uid, note.reason, note.message);
        let name = format!("{}.{:016x}", about.name, luck.draw(&thing) >> 64);
        self.told.insert(key, (name.clone(), 1));
        let at = time_text(now);
        Record::New(json!({
            "apiVersion": "v1", "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": {
                "apiVersion": about.api_version, "kind": about.kind, "namespace": about.namespace,
                "name": about.name, "uid": about.uid, "resourceVersion": about.version,
            },
            "type": if note.warning { "Warning" } else { "Normal" },
            "reason": note.reason, "message": note.message, "count": 1,
            "firstTimestamp": at, "lastTimestamp": at,
            "source": {"component": component},
            "reportingComponent": component, "reportingInstance": "",
        }))
    }

    /// The event is not there any more.
    pub(super) fn forget(&mut self, note: &Note) {
        self.told.remove(&(note.about.uid.clone(), note.reason, note.message.clone()));
    }
}
