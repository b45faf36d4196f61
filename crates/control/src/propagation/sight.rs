//! What is seen of one object in one member, gathered for a decision.

use std::cell::OnceCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use landfall_api::landfall::Cluster;
use landfall_plan::placement::{self, Has};
use landfall_plan::propagation::{self, Found, Observed, Origin};
use landfall_plan::truth::Line;
use serde_json::Value;

use crate::federation::Federation;
use crate::member::{Member, Note};
use crate::membership;
use crate::shelf::{Key, Recent, Seen};

/// One member, and what it has of the object.
pub(super) struct Sight {
    /// The member.
    pub member: Arc<Member>,
    /// Its `Cluster`.
    pub cluster: Arc<Cluster>,
    /// Since when its API does not answer.
    pub offline_since_ms: Option<i64>,
    /// Everything there has been read since it was last reached.
    pub synced: bool,
    /// Its API does not serve the kind.
    pub unserved: bool,
    /// The shard as it was last seen, maybe long ago.
    pub seen: Option<Arc<Seen>>,
    /// The same, read when it is first needed.
    found: OnceCell<Option<Arc<Value>>>,
    recent: Arc<Recent>,
    /// What is remembered of it.
    pub note: Note,
    /// What was last told about it.
    pub line: Option<Line>,
}

impl Sight {
    /// Looks at one member; `line` is what was last told about it.
    pub(super) fn new(
        federation: &Arc<Federation>,
        member: Arc<Member>,
        key: &Key,
        line: Option<Line>,
    ) -> Self {
        let shelf = member.shelf(federation, key.kind);
        let seen = shelf.get(key);
        let cluster = member.cluster.read().clone();
        let mut note = member.note(key);
        note.memory.told = line.is_some();
        Self {
            cluster,
            offline_since_ms: member.silent_since_ms(),
            synced: shelf.synced() && member.session().is_some(),
            unserved: shelf.unserved(),
            found: OnceCell::new(),
            recent: federation.recent.clone(),
            seen,
            note,
            line,
            member,
        }
    }

    /// The shard, read.
    pub(super) fn found(&self) -> Option<&Value> {
        self.found.get_or_init(|| self.seen.as_ref().map(|seen| self.recent.read(seen))).as_deref()
    }

    /// Where what is there differs from what is meant; compared once per version.
    pub(super) fn drift(&self, key: &Key, shard: &Value, hash: u64) -> Vec<String> {
        let Some(seen) = &self.seen else { return Vec::new() };
        if let Some((version, known, drift)) = &self.note.compared
            && (version, *known) == (&seen.version, hash)
        {
            return drift.clone();
        }
        let drift = self.found().map(|found| propagation::drift(shard, found)).unwrap_or_default();
        self.member.noting(key, |note| note.compared = Some((seen.version.clone(), hash, drift.clone())));
        drift
    }

    /// The cluster's labels.
    pub(super) fn labels(&self) -> BTreeMap<String, String> {
        self.cluster.metadata.labels.clone().unwrap_or_default()
    }

    /// Whether it answers, but what it has is not read yet.
    pub(super) fn unread(&self) -> bool {
        !self.synced && self.offline_since_ms.is_none()
    }

    /// Whether the cluster is being taken out of the federation.
    pub(super) fn leaving(&self) -> bool {
        self.cluster.metadata.deletion_timestamp.is_some()
    }

    /// For `plan::placement`.
    pub(super) fn placed(&self, federation: &str, replicas: Option<u32>) -> placement::Member {
        let spec = &self.cluster.spec;
        placement::Member {
            name: self.member.name.clone(),
            labels: self.labels(),
            taints: spec.taints.clone(),
            cordoned: spec.cordoned,
            draining: spec.draining,
            unserved: self.unserved && self.synced,
            has: self.has(federation),
            replicas,
        }
    }

    fn has(&self, federation: &str) -> Has {
        let mark = self.seen.as_ref().and_then(|seen| seen.mark.as_ref());
        match mark.filter(|mark| mark.federation == federation) {
            Some(mark) if mark.origin == Origin::Created => Has::Created,
            Some(_) => Has::Adopted,
            // Somewhere that cannot be seen now: what was told last.
            None if !self.synced && self.line.as_ref().is_some_and(|line| line.generation > 0) => {
                Has::Created
            }
            None if self.seen.is_some() && self.remembered() => match self.note.memory.origin {
                Some(Origin::Created) => Has::Created,
                Some(Origin::Adopted) | None => Has::Adopted,
            },
            None => Has::Nothing,
        }
    }

    /// Whether what is there is what we last wrote, whatever became of its marks.
    fn remembered(&self) -> bool {
        let uid = self.seen.as_ref().map(|seen| &*seen.uid);
        uid.is_some() && uid == self.note.memory.uid.as_deref()
    }

    /// For `plan::propagation`; `drift` is where what is there differs from what is meant.
    pub(super) fn observed(&self, drift: Vec<String>) -> Observed {
        match &self.seen {
            _ if !self.synced => Observed::Unknown,
            None => Observed::Missing,
            Some(seen) => Observed::Found(Found {
                uid: seen.uid.to_string(),
                mark: seen.mark.clone(),
                drift,
                deleting: seen.deleting,
                shelters: self.note.shelters.clone().flatten(),
            }),
        }
    }

    /// What becomes of a shard whose cluster leaves: what is ours goes unless it shall stay.
    pub(super) fn stays_when_leaving(&self) -> bool {
        membership::orphaned(&self.cluster)
    }
}
