//! Counts: numbers of shards, added up by a table.

use landfall_api::rules::read::child;
use serde_json::{Map, Value};

use super::{Picture, Seen};

/// The largest number that Kubernetes' counts can be.
const MOST: i64 = i32::MAX as i64;

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

/// One number while it is added up.
struct Column<'t> {
    count: &'t Count,
    /// Where in the table the number is that it is part of, and the one that is lost in its place.
    within: Option<usize>,
    lost: Option<usize>,
    /// What the present shard tells.
    told: i64,
    /// Whether any shard tells it.
    given: bool,
    sum: i64,
}

/// Adds up all numbers of a table, in which a number comes after the one that it is part of.
pub(super) fn add_up(picture: &Picture<'_>, table: &[Count], status: &mut Map<String, Value>) {
    let mut columns: Vec<Column<'_>> = table.iter().map(|count| Column::new(count, table)).collect();
    for shard in &picture.shards {
        for at in 0..columns.len() {
            let within = columns.get(at).and_then(|column| told(&columns, column.within));
            if let Some(column) = columns.get_mut(at) {
                column.read(shard, within.unwrap_or(MOST));
            }
        }
        for at in 0..columns.len() {
            let lost = columns.get(at).and_then(|column| told(&columns, column.lost)).unwrap_or(0);
            if let Some(column) = columns.get_mut(at) {
                column.sum = column.sum.saturating_add(column.part(shard, lost)).min(MOST);
            }
        }
    }
    for Column { count, given, sum, .. } in columns {
        let write = match count.written {
            Written::Always => true,
            Written::NotZero => sum > 0,
            Written::IfGiven => given,
        };
        super::set(status, count.field, write.then_some(sum));
    }
}

fn told(columns: &[Column<'_>], at: Option<usize>) -> Option<i64> {
    columns.get(at?).map(|column| column.told)
}

impl<'t> Column<'t> {
    fn new(count: &'t Count, table: &[Count]) -> Self {
        let place = |field: &str| table.iter().position(|other| other.field == field);
        let lost = match count.how {
            How::OrLost(other) => place(other),
            How::All | How::Live | How::Current => None,
        };
        Self { count, within: count.within.and_then(place), lost, told: 0, given: false, sum: 0 }
    }

    /// Reads what a shard tells, made to fit what it is part of: nobody's nonsense makes the sums refused.
    fn read(&mut self, shard: &Seen<'_>, most: i64) {
        let number = child(shard.status, self.count.field).as_i64();
        self.given |= number.is_some();
        self.told = number.unwrap_or(0).clamp(0, MOST).min(most);
    }

    /// What a shard adds.
    fn part(&self, shard: &Seen<'_>, lost: i64) -> i64 {
        let counts = match self.count.how {
            How::All => true,
            How::Live | How::OrLost(_) => !shard.offline,
            How::Current => shard.current,
        };
        if counts { self.told } else { lost }
    }
}
