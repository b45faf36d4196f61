//! Conditions as they stand in a status: one of each type, with the time since when it is so.

use serde_json::Value;

use super::read::text;

/// A condition that is written anew: while its status stays, so does the time since when.
pub fn since(before: Option<&Value>, mut fresh: Value) -> Value {
    let same = before.filter(|before| text(before, "/status") == text(&fresh, "/status"));
    if let Some(time) = same.map(|before| &before["lastTransitionTime"]).filter(|time| time.is_string()) {
        fresh["lastTransitionTime"] = time.clone();
    }
    fresh
}

/// Puts a condition where the one of its type is, or behind the others.
pub fn put(conditions: &mut Vec<Value>, fresh: Value) {
    match position(conditions, text(&fresh, "/type")) {
        Some(at) => conditions[at] = since(Some(&conditions[at]), fresh),
        None => conditions.push(fresh),
    }
}

/// Puts a condition behind the others, as some controllers do.
pub fn put_last(conditions: &mut Vec<Value>, fresh: Value) {
    let before = position(conditions, text(&fresh, "/type")).map(|at| conditions.remove(at));
    conditions.push(since(before.as_ref(), fresh));
}

/// These conditions in their order, and behind them those that others have written.
pub fn before_others(old: &[Value], fresh: Vec<Value>) -> Vec<Value> {
    let find = |ty: &str| old.iter().find(|before| text(before, "/type") == ty);
    let foreign = |other: &&Value| fresh.iter().all(|own| text(own, "/type") != text(other, "/type"));
    let others: Vec<Value> = old.iter().filter(foreign).cloned().collect();
    let own = fresh.into_iter().map(|own| since(find(text(&own, "/type")), own));
    own.chain(others).collect()
}

fn position(conditions: &[Value], ty: &str) -> Option<usize> {
    conditions.iter().position(|condition| text(condition, "/type") == ty)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn condition(ty: &str, status: &str, since: &str) -> Value {
        json!({"type": ty, "status": status, "lastTransitionTime": since})
    }

    #[test]
    fn times_stay_while_the_status_does() {
        let old =
            [condition("A", "True", "then"), condition("B", "False", "then"), condition("C", "True", "then")];
        type Way = fn(&mut Vec<Value>, Value);
        let check = |way: Way, fresh: Value, want: [Value; 3]| {
            let mut conditions = old.to_vec();
            way(&mut conditions, fresh);
            assert_eq!(conditions, want);
        };
        let [a, b, c] = old.clone();
        check(put, condition("B", "False", "now"), [a.clone(), b.clone(), c.clone()]);
        check(put, condition("B", "True", "now"), [a.clone(), condition("B", "True", "now"), c.clone()]);
        check(put_last, condition("A", "True", "now"), [b.clone(), c.clone(), a.clone()]);
        check(
            put_last,
            condition("A", "False", "now"),
            [b.clone(), c.clone(), condition("A", "False", "now")],
        );
        let fresh = vec![condition("C", "True", "now"), condition("A", "Unknown", "now")];
        assert_eq!(before_others(&old, fresh), [c.clone(), condition("A", "Unknown", "now"), b.clone()]);
        let mut none = Vec::new();
        put(&mut none, a.clone());
        put_last(&mut none, b.clone());
        assert_eq!(none, [a, b]);
        // Whatever stands there.
        for odd in [
            json!(null),
            json!({"type": 3}),
            json!({"type": "A", "status": "True", "lastTransitionTime": {}}),
        ] {
            assert_eq!(since(Some(&odd), condition("A", "True", "now")), condition("A", "True", "now"));
        }
    }
}
