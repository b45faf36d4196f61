//! Federation v1's planner, by the vectors of its own tests.
//!
//! One is different on purpose: 50 over A=10, B=70 was 0/50 there, with a note that 10/40 would be right
//! (kubernetes#31816).

use landfall_plan::replicas::{Preferences, Slot, divide, order};

type Counts<'a> = &'a [(&'a str, u32)];

struct Vector<'a> {
    rebalance: bool,
    /// The inside of `clusters`.
    preferences: &'a str,
    total: u32,
    clusters: &'a str,
    current: Counts<'a>,
    capacity: Counts<'a>,
}

const EVEN: &str = r#""*":{"weight":1}"#;

#[track_caller]
fn check(vector: &Vector<'_>, expected: &[u32], expected_overflow: Counts<'_>) {
    let text = format!(r#"{{"rebalance":{},"clusters":{{{}}}}}"#, vector.rebalance, vector.preferences);
    let preferences = Preferences::read(&text).expect("preferences of a vector");
    let names: Vec<&str> = vector.clusters.split_whitespace().collect();
    let of =
        |counts: Counts<'_>, name: &str| counts.iter().find(|(n, _)| *n == name).map(|(_, count)| *count);
    let slot = |name: &str| {
        let wished = preferences.of(name).unwrap_or_default();
        Slot {
            weight: wished.weight,
            min: wished.min_replicas,
            max: wished.max_replicas,
            capacity: of(vector.capacity, name),
            current: Some(of(vector.current, name).unwrap_or(0)),
            ..Slot::default()
        }
    };
    let order = order("", names.iter().map(|name| (*name, slot(name).weight)));
    let mut slots: Vec<Slot> = order.iter().map(|at| slot(names[*at])).collect();
    let unplaced = divide(vector.total, vector.rebalance, &mut slots);
    let mut planned = vec![0; names.len()];
    let mut overflow = Vec::new();
    for (at, slot) in order.iter().zip(&slots) {
        planned[*at] = slot.planned;
        if slot.overflow > 0 {
            overflow.push((names[*at], slot.overflow));
        }
    }
    overflow.sort_unstable();
    assert_eq!(planned, expected, "{text} {} over {}", vector.total, vector.clusters);
    assert_eq!(overflow, expected_overflow, "overflow of {text} {} over {}", vector.total, vector.clusters);
    assert_eq!(planned.iter().sum::<u32>() + unplaced, vector.total);
}

#[track_caller]
fn plain(preferences: &str, total: u32, clusters: &str, expected: &[u32]) {
    let vector = Vector { rebalance: false, preferences, total, clusters, current: &[], capacity: &[] };
    check(&vector, expected, &[]);
}

#[track_caller]
fn existing(total: u32, clusters: &str, current: Counts<'_>, expected: &[u32]) {
    check(
        &Vector { rebalance: false, preferences: EVEN, total, clusters, current, capacity: &[] },
        expected,
        &[],
    );
}

#[track_caller]
fn crowded(
    rebalance: bool,
    preferences: &str,
    total: u32,
    clusters: &str,
    capacity: Counts<'_>,
    expected: (&[u32], Counts<'_>),
) {
    let vector = Vector { rebalance, preferences, total, clusters, current: &[], capacity };
    check(&vector, expected.0, expected.1);
}

#[test]
fn equal_weights() {
    plain(EVEN, 50, "A B C", &[16, 17, 17]);
    plain(EVEN, 50, "A B", &[25, 25]);
    plain(EVEN, 1, "A B", &[0, 1]);
    plain(EVEN, 1, "A B C D", &[0, 0, 0, 1]);
    plain(EVEN, 1, "A", &[1]);
    plain(EVEN, 1, "", &[]);
}

#[test]
fn what_runs_stays() {
    existing(50, "A B C", &[("C", 30)], &[10, 10, 30]);
    existing(50, "A B", &[("A", 30)], &[30, 20]);
    for a in [0, 1, 4, 5, 6, 7] {
        existing(15, "A B", &[("A", a), ("B", 8)], &[7, 8]);
    }
    existing(500_000, "A B", &[("A", 300_000)], &[300_000, 200_000]);
    existing(50, "A B", &[("A", 10)], &[25, 25]);
    existing(50, "A B", &[("A", 10), ("B", 70)], &[10, 40]);
    existing(1, "A B", &[("A", 30)], &[1, 0]);
    existing(50, "A B", &[("A", 10), ("B", 20)], &[25, 25]);
}

#[test]
fn what_has_no_room_overflows() {
    crowded(true, EVEN, 50, "A B C", &[("C", 10)], (&[20, 20, 10], &[("C", 7)]));
    let heavy_a = r#""A":{"weight":10000},"B":{"weight":1}"#;
    crowded(true, heavy_a, 50, "B C", &[("B", 10)], (&[10, 0], &[("B", 40)]));
    let double_b = r#""A":{"weight":1},"B":{"weight":2}"#;
    crowded(true, double_b, 60, "A B C", &[("B", 10)], (&[50, 10, 0], &[("B", 30)]));
    let capped = r#""A":{"weight":10000,"maxReplicas":10},"B":{"weight":1},
        "C":{"weight":1,"maxReplicas":21},"D":{"weight":1,"maxReplicas":10}"#;
    crowded(true, capped, 71, "A B C D", &[("C", 10)], (&[10, 41, 10, 10], &[("C", 11)]));
    let two = r#""A":{"weight":1},"B":{"weight":1}"#;
    crowded(false, two, 60, "A B C", &[("A", 10), ("B", 10)], (&[10, 10, 0], &[("A", 20), ("B", 20)]));
    let five_b = r#""A":{"weight":1},"B":{"weight":5}"#;
    crowded(false, five_b, 60, "A B C", &[("B", 10)], (&[50, 10, 0], &[]));
    let min = r#""*":{"minReplicas":20,"weight":0}"#;
    crowded(false, min, 50, "A B C", &[("B", 10)], (&[20, 10, 20], &[]));
    let min_and_weight = r#""*":{"minReplicas":20,"weight":1}"#;
    crowded(true, min_and_weight, 60, "A B", &[("B", 10)], (&[50, 10], &[("B", 15)]));
}

#[test]
fn minimums() {
    plain(r#""*":{"minReplicas":2,"weight":0}"#, 50, "A B C", &[2, 2, 2]);
    plain(r#""*":{"minReplicas":20,"weight":0}"#, 50, "A B C", &[10, 20, 20]);
    plain(r#""*":{"minReplicas":20},"A":{"minReplicas":100,"weight":1}"#, 50, "A B C", &[50, 0, 0]);
    plain(r#""*":{"minReplicas":10,"weight":1,"maxReplicas":12}"#, 50, "A B C", &[12, 12, 12]);
}

#[test]
fn maximums() {
    plain(r#""*":{"weight":1,"maxReplicas":2}"#, 50, "A B C", &[2, 2, 2]);
    plain(r#""*":{"weight":0,"maxReplicas":2}"#, 50, "A B C", &[0, 0, 0]);
}

#[test]
fn weights() {
    plain(r#""A":{"weight":1},"B":{"weight":2}"#, 60, "A B C", &[20, 40, 0]);
    plain(r#""A":{"weight":10000},"B":{"weight":1}"#, 50, "A B C", &[50, 0, 0]);
    plain(r#""A":{"weight":10000},"B":{"weight":1}"#, 50, "B C", &[50, 0]);
    let a = r#""A":{"weight":10000,"maxReplicas":10},"B":{"weight":1},"C":{"weight":1"#;
    plain(&format!("{a}}}"), 50, "A B C", &[10, 20, 20]);
    plain(&format!(r#"{a},"maxReplicas":10}}"#), 50, "A B C", &[10, 30, 10]);
    let d = r#","maxReplicas":21},"D":{"weight":1,"maxReplicas":10}"#;
    plain(&format!("{a}{d}"), 71, "A B C D", &[10, 30, 21, 10]);
    plain(&format!(r#"{a}{d},"E":{{"weight":1}}"#), 91, "A B C D E", &[10, 25, 21, 10, 25]);
}
