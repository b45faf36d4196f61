//! What the mirror promises to watches, without a backend.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::{HistoryLimits, Mirror};
use crate::{Change, Entry, Error, Event, Revision, Snapshot, Watch};

fn mirror(changes_max: usize) -> Arc<Mirror> {
    Mirror::new(Snapshot::empty(1), 1, [], HistoryLimits { changes_max, bytes_max: 1 << 20 })
}

/// Writes keys, all at one revision.
fn write(mirror: &Mirror, revision: Revision, keys: &[&str]) {
    let mut state = mirror.snapshot();
    let mut changes = Vec::new();
    for key in keys {
        let previous = state.get(key).cloned();
        let created = previous.as_ref().map_or(revision, |previous| previous.created);
        let change = Change::written(Entry::new((*key).into(), Bytes::new(), created, revision), previous);
        state.apply(&change);
        changes.push(change);
    }
    mirror.publish(&changes, state);
}

/// The next batch as `key@revision` and `=revision` for progress.
async fn batch(watch: &mut Watch, max: usize) -> Result<Vec<String>, Error> {
    let mut events = Vec::new();
    watch.next_batch(&mut events, max).await?;
    let line = |event: &Event| match event {
        Event::Change(change) => format!("{}@{}", change.entry.key, change.revision()),
        Event::Progress(revision) => format!("={revision}"),
    };
    Ok(events.iter().map(line).collect())
}

/// Whether nothing is ready.
async fn is_quiet(watch: &mut Watch) -> bool {
    tokio::time::timeout(Duration::ZERO, batch(watch, 10)).await.is_err()
}

#[tokio::test]
async fn one_revision_stays_in_one_batch() {
    let mirror = mirror(100);
    let mut live = mirror.watch("a/", 1).unwrap();
    write(&mirror, 2, &["a/1"]);
    write(&mirror, 3, &["a/1", "b/1", "a/2", "a/3"]);
    write(&mirror, 4, &["a/4"]);
    for watch in [&mut live, &mut mirror.watch("a/", 1).unwrap()] {
        assert_eq!(batch(watch, 1).await.unwrap(), ["a/1@2"]);
        assert_eq!(batch(watch, 1).await.unwrap(), ["a/1@3", "a/2@3", "a/3@3"]);
        assert_eq!(batch(watch, 9).await.unwrap(), ["a/4@4"]);
        assert!(is_quiet(watch).await);
    }
    assert_eq!(batch(&mut mirror.watch("a/", 3).unwrap(), 9).await.unwrap(), ["a/4@4"]);
    assert_eq!(mirror.rewind(2).unwrap().len(), 1);
    assert_eq!(mirror.rewind(3).unwrap().len(), 4);
}

#[tokio::test]
async fn history_cut_within_a_revision_is_whole_or_too_old() {
    let mirror = mirror(2);
    write(&mirror, 2, &["a/1", "a/2", "a/3"]);
    assert!(matches!(mirror.watch("a/", 1), Err(Error::TooOld { asked: 1, oldest: 2 })));
    assert!(matches!(mirror.rewind(1), Err(Error::TooOld { asked: 1, oldest: 2 })));
    assert_eq!(mirror.rewind(2).unwrap().len(), 3);
    let mut watch = mirror.watch("a/", 2).unwrap();
    assert!(is_quiet(&mut watch).await);
    write(&mirror, 3, &["a/4"]);
    assert_eq!(batch(&mut watch, 9).await.unwrap(), ["a/4@3"]);
}

#[tokio::test]
async fn a_slow_watch_falls_out_and_others_do_not() {
    let mirror = mirror(5);
    let mut slow = mirror.watch("a/", 1).unwrap();
    let mut keeps_up = mirror.watch("a/", 1).unwrap();
    let mut quiet = mirror.watch("b/", 1).unwrap();
    write(&mirror, 2, &["b/1"]);
    assert_eq!(batch(&mut quiet, 9).await.unwrap(), ["b/1@2"]);
    for revision in 3..20 {
        write(&mirror, revision, &["a/1"]);
        assert_eq!(batch(&mut keeps_up, 9).await.unwrap(), [format!("a/1@{revision}")]);
    }
    assert!(matches!(batch(&mut slow, 9).await, Err(Error::TooOld { asked: 1, oldest: 14 })));
    write(&mirror, 20, &["b/1"]);
    assert_eq!(batch(&mut quiet, 9).await.unwrap(), ["b/1@20"]);
    mirror.compact(20);
    assert!(is_quiet(&mut keeps_up).await, "it has seen everything that was forgotten");
    write(&mirror, 21, &["a/1"]);
    assert_eq!(batch(&mut keeps_up, 9).await.unwrap(), ["a/1@21"]);
}

#[tokio::test]
async fn a_replaced_state_ends_watches() {
    let mirror = mirror(100);
    let mut watch = mirror.watch("a/", 1).unwrap();
    write(&mirror, 2, &["a/1"]);
    mirror.reset(Snapshot::empty(9));
    assert!(matches!(batch(&mut watch, 9).await, Err(Error::TooOld { oldest: 9, .. })));
    drop(watch);
    assert!(matches!(mirror.watch("a/", 8), Err(Error::TooOld { .. })));
    let mut anew = mirror.watch("a/", 9).unwrap();
    write(&mirror, 10, &["a/1"]);
    assert_eq!(batch(&mut anew, 9).await.unwrap(), ["a/1@10"]);
}

#[tokio::test]
async fn progress_never_runs_ahead() {
    let every = Duration::from_millis(50);
    let mirror = mirror(100);
    let mut watch = mirror.watch("a/", 1).unwrap().with_progress(every);
    write(&mirror, 2, &["a/1"]);
    write(&mirror, 3, &["b/1"]);
    assert_eq!(batch(&mut watch, 9).await.unwrap(), ["a/1@2"]);
    assert_eq!(batch(&mut watch, 9).await.unwrap(), ["=3"]);
    tokio::time::sleep(every * 2).await;
    write(&mirror, 4, &["a/1"]);
    write(&mirror, 5, &["a/2"]);
    assert_eq!(batch(&mut watch, 1).await.unwrap(), ["a/1@4"], "more is ready, so no mark yet");
    assert_eq!(batch(&mut watch, 9).await.unwrap(), ["a/2@5", "=5"], "also when changes never pause");

    let last = tokio::time::Instant::now() + every;
    let mut ends =
        mirror.watch("a/", 5).unwrap().with_progress(Duration::from_secs(3600)).with_progress_at(last);
    assert_eq!(batch(&mut ends, 9).await.unwrap(), ["=5"], "at a certain time, too");
    assert!(is_quiet(&mut ends).await, "once");

    let mut ahead = mirror.watch("a/", 7).unwrap().with_progress(every);
    tokio::time::sleep(every * 2).await;
    assert!(is_quiet(&mut ahead).await, "no mark before where it began");
    write(&mirror, 6, &["a/1"]);
    write(&mirror, 7, &["a/1"]);
    write(&mirror, 8, &["a/1"]);
    assert_eq!(batch(&mut ahead, 9).await.unwrap()[0], "a/1@8");
}

#[tokio::test]
async fn a_paced_watch_gathers() {
    let mirror = mirror(100);
    let mut watch = mirror.watch("a/", 1).unwrap().with_pace(Duration::from_millis(200));
    write(&mirror, 2, &["a/1"]);
    let begin = tokio::time::Instant::now();
    assert_eq!(batch(&mut watch, 9).await.unwrap(), ["a/1@2"]);
    assert!(begin.elapsed() < Duration::from_millis(200), "the first comes at once");
    write(&mirror, 3, &["a/1"]);
    write(&mirror, 4, &["a/1"]);
    assert_eq!(batch(&mut watch, 9).await.unwrap(), ["a/1@3", "a/1@4"]);
    assert!(begin.elapsed() >= Duration::from_millis(200));
}

#[tokio::test]
async fn topics_go_with_their_last_watch() {
    let mirror = mirror(100);
    let (one, two) = (mirror.watch("a/", 1).unwrap(), mirror.watch("a/", 1).unwrap());
    drop(one);
    assert_eq!(mirror.core.read().topics.len(), 1);
    drop(two);
    assert_eq!(mirror.core.read().topics.len(), 0);
}

#[tokio::test]
async fn states_from_before_the_history_are_kept_until_forgotten() {
    let mirror = mirror(1);
    write(&mirror, 12, &["a/1", "a/2"]);
    let state = |revision| {
        let mut state = Snapshot::empty(revision);
        state.put(Entry::new("a/1".into(), Bytes::from_static(b"old"), 2, 2));
        state.put(Entry::new("a/2".into(), Bytes::from_static(b"same"), 12, 12));
        state
    };
    let kept = mirror.keep_fetched(state(3));
    let (now, then) = (mirror.snapshot(), mirror.fetched(3).unwrap());
    assert!(Arc::ptr_eq(kept.get("a/1").unwrap(), then.get("a/1").unwrap()), "it was not listed again");
    assert!(Arc::ptr_eq(then.get("a/2").unwrap(), now.get("a/2").unwrap()), "in memory once");
    let known = |mirror: &Mirror| (3..8).filter(|at| mirror.fetched(*at).is_some()).collect::<Vec<_>>();
    mirror.keep_fetched(state(4));
    mirror.keep_fetched(state(5));
    assert_eq!(known(&mirror), [4, 5]);
    mirror.forget_fetched(5);
    assert_eq!(known(&mirror), [5]);
    mirror.reset(Snapshot::empty(20));
    assert_eq!(known(&mirror), [] as [u64; 0]);
}
