//! Counts: numbers of shards, added up by a table.

use landfall_api::rules::read::{child, int};
use serde_json::{Map, Value};

use super::{Picture, Shard};

/// How one number is added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum How {
    /// Over all shards: what a member that is offline last reported is still there.
    All,
    /// Over members that answer: nobody sees it elsewhere.
    Live,
    /// Over members that answer; of those that do not, all of this other number.
    OrLost(&'static str),
    /// Over shards that carry the newest intent: elsewhere it tells of an older one.
    Current,
}

/// One number of a status.
#[derive(Clone, Copy, Debug)]
pub(super) struct Count {
    /// Its field.
    pub(super) field: &'static str,
    /// How it is added up.
    pub(super) how: How,
    /// When Kubernetes writes it.
    pub(super) written: Written,
    /// It is part of this other number, so it cannot be larger.
    pub(super) within: Option<&'static str>,
}

/// When a number is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// Always.
    Always,
    /// When it is not zero.
    NotZero,
    /// When a member writes it.
    IfGiven,
}

/// A row of a table.
pub(super) const fn count(field: &'static str, how: How, written: Written) -> Count {
    Count { field, how, written, within: None }
}

impl Count {
    /// It is part of this other number.
    pub(super) const fn within(self, other: &'static str) -> Self {
        Self { within: Some(other), ..self }
    }
}

/// Adds up all numbers of a table.
pub(super) fn add_up(picture: &Picture<'_>, table: &[Count], status: &mut Map<String, Value>) {
    for count in table {
        let sum = sum(picture, table, count);
        let given = picture.shards.iter().any(|shard| child(shard.status(), count.field).is_i64());
        let write = match count.written {
            Written::Always => true,
            Written::NotZero => sum > 0,
            Written::IfGiven => given,
        };
        super::set(status, count.field, write.then_some(sum));
    }
}

/// One number, added up; never more than Kubernetes' numbers can be.
pub(super) fn sum(picture: &Picture<'_>, table: &[Count], count: &Count) -> i64 {
    let parts = picture.shards.iter().map(|shard| part(shard, table, count));
    parts.fold(0, i64::saturating_add).min(i64::from(i32::MAX))
}

/// What one shard adds.
fn part(shard: &Shard<'_>, table: &[Count], count: &Count) -> i64 {
    let told = |field: &'static str| within(shard.status(), table, field);
    match count.how {
        How::All => told(count.field),
        How::Live | How::OrLost(_) if !shard.offline => told(count.field),
        How::Live => 0,
        How::OrLost(other) => told(other),
        How::Current if shard.current => told(count.field),
        How::Current => 0,
    }
}

/// A number as a shard tells it, made to fit what it is part of: nobody's nonsense makes the sums refused.
fn within(status: &Value, table: &[Count], field: &'static str) -> i64 {
    let number = int(status, field).clamp(0, i64::from(i32::MAX));
    let mut most = number;
    let mut at = field;
    // Tables are short and without cycles; each step goes to another row.
    for _ in table {
        let Some(other) = table.iter().find(|row| row.field == at).and_then(|row| row.within) else { break };
        most = most.min(int(status, other).clamp(0, i64::from(i32::MAX)));
        at = other;
    }
    most
}
