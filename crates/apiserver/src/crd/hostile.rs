//! Bad input: definitions, objects and rules made to break the server. Nothing may panic, hang or take much memory.

use std::time::{Duration, Instant};

use landfall_api::Rules;
use serde_json::{Value, json};

use super::schema::{Schema, list};
use super::{CrdRules, cel, kinds};

const VECTORS: &str = include_str!("vectors.json");

/// Numbers from a seed (xorshift).
struct Luck(u64);

impl Luck {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % u64::try_from(n.max(1)).unwrap()).unwrap()
    }

    fn value(&mut self) -> Value {
        let odd = [
            json!(null),
            json!(true),
            json!(-1),
            json!(i64::MIN),
            json!(u64::MAX),
            json!(1e308),
            json!(0.1),
            json!(""),
            json!("é\u{0}…"),
            json!("[[:^"),
            json!("object"),
            json!("map"),
            json!([]),
            json!({}),
            json!([[[]]]),
            json!({"": {"": null}}),
            json!({"type": "object", "properties": {"x": {"type": "array", "items": {}}}}),
            json!([{"rule": "self.x[0] == oldSelf || has(self.x.y)"}]),
        ];
        odd[self.below(odd.len())].clone()
    }

    /// Replaces, removes or adds something somewhere.
    fn harm(&mut self, value: &mut Value) {
        match value {
            Value::Object(map) if !map.is_empty() && self.below(4) > 0 => {
                let at = self.below(map.len());
                let name = map.keys().nth(at).unwrap().clone();
                match self.below(12) {
                    0 => drop(map.remove(&name)),
                    1 => drop(map.insert(format!("{name}x"), self.value())),
                    _ => self.harm(map.get_mut(&name).unwrap()),
                }
            }
            Value::Array(items) if !items.is_empty() && self.below(4) > 0 => {
                let at = self.below(items.len());
                self.harm(&mut items[at]);
            }
            other => *other = self.value(),
        }
    }
}

#[test]
fn harmed_definitions_and_objects_are_refused_not_fatal() {
    let vectors: Value = serde_json::from_str(VECTORS).unwrap();
    let mut luck = Luck(42);
    let groups = list(&vectors, "objects");
    for round in 0..3000 {
        let group = &groups[round % groups.len()];
        let mut crd = group["crd"].clone();
        for _ in 0..luck.below(3) {
            luck.harm(&mut crd);
        }
        CrdRules.default(&mut crd);
        CrdRules.prepare_create(&mut crd);
        let _ =
            (CrdRules.validate(&crd), CrdRules.validate_update(&crd, &group["crd"]), CrdRules.warnings(&crd));
        let _ = super::status_for(&crd, &super::Taken::default(), "t");
        let cases = list(group, "cases");
        for kind in kinds(&crd) {
            let whole = cases[luck.below(cases.len())]["object"].clone();
            let mut object = whole.clone();
            for _ in 0..luck.below(4) {
                luck.harm(&mut object);
            }
            kind.rules.prune(&mut object);
            kind.rules.default(&mut object);
            let _ = (kind.rules.validate(&object), kind.rules.validate_update(&object, &whole));
            let _ = (kind.rules.validate_status(&whole, &object), kind.printer.row(&object, 0));
        }
    }
}

#[test]
fn deep_schemas_and_objects_are_walked_within_the_stack() {
    for wrap in [
        |inner: Value| json!({"type": "array", "items": inner}),
        |inner: Value| json!({"type": "object", "additionalProperties": inner}),
        |inner: Value| json!({"type": "object", "not": {"anyOf": [inner]}}),
    ] {
        let mut deep = json!({"type": "string", "default": "x"});
        let mut value = json!("y");
        for _ in 0..300 {
            deep = wrap(deep);
            value = json!([value]);
        }
        let schema = json!({"type": "object", "properties": {"spec": deep}});
        let version =
            json!({"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}});
        let names = json!({"plural": "w", "kind": "W"});
        let crd = json!({"metadata": {"name": "w.ex.dev"}, "spec": {"group": "ex.dev", "names": names,
            "scope": "Cluster", "versions": [version]}});
        let refused = CrdRules.validate(&crd).iter().any(|e| e.detail == "schemas may not be nested so deep");
        assert!(refused, "nested too deep");
        for kind in kinds(&crd) {
            let mut object = json!({"metadata": {"name": "x"}, "spec": value});
            kind.rules.prune(&mut object);
            kind.rules.default(&mut object);
            let _ = kind.rules.validate(&object);
        }
    }
}

fn errors(rule: &str, object: &Value) -> Vec<String> {
    let text = json!({"type": "string"});
    let list = json!({"type": "array", "items": {"type": "string"}});
    let mut schema = Schema::read(&json!({"type": "object", "properties": {"s": text, "l": list},
        "x-kubernetes-validations": [{"rule": rule}]}));
    cel::compile(&mut schema);
    cel::validate(&schema, object, None).iter().map(ToString::to_string).collect()
}

#[test]
fn deep_and_odd_rules_do_not_compile() {
    for rule in [
        "(".repeat(5000),
        "!".repeat(5000),
        "-".repeat(5000),
        "[".repeat(5000),
        format!("self{}", ".a".repeat(5000)),
        format!("true{}", " && true".repeat(5000)),
        format!("{}true", "true ? true : ".repeat(5000)),
        format!("{}self.s{}", "size(".repeat(3000), ")".repeat(3000)),
        "x".repeat(200_000),
        "'unterminated".into(),
        "\"\\q\"".into(),
        "99999999999999999999".into(),
        "self.s.all(1, true)".into(),
        "has(self)".into(),
        "has()".into(),
        "cel.bind(1, 2, 3)".into(),
        "\u{0}".into(),
    ] {
        let schema = Schema::read(&json!({"type": "object", "properties": {"s": {"type": "string"}}}));
        let text = super::schema::RuleText { rule: rule.clone(), ..Default::default() };
        let shown: String = rule.chars().take(40).collect();
        assert!(!cel::check_rule(&schema, &text, false).errors.is_empty(), "{shown}");
    }
}

#[test]
fn greedy_rules_run_out_of_budget() {
    let start = Instant::now();
    let many: Vec<String> = (0..20_000).map(|n| n.to_string()).collect();
    let object = json!({"s": "x".repeat(1_000_000), "l": many});
    let exhausted = "running out of cost budget";
    for rule in [
        "self.l.all(a, self.l.all(b, self.l.all(c, a + b != c + 'x')))",
        "self.s.replace('', self.s).size() > 0",
        "self.l.join(self.s).size() > 0",
        "cel.bind(a, self.s + self.s, cel.bind(b, a + a, cel.bind(c, b + b, cel.bind(d, c + c, cel.bind(e, d + d, e + e + e + e + e))))).size() > 0",
        "self.l.map(a, self.l).size() > 0 && self.l.all(a, sets.contains(self.l, self.l))",
        "self.l.map(a, self.s + a).size() > 0",
    ] {
        let found = errors(rule, &object);
        assert!(found.iter().any(|e| e.contains(exhausted)), "{rule}: {found:?}");
    }
    assert!(start.elapsed() < Duration::from_secs(60), "{:?}", start.elapsed());
}

#[test]
fn rules_that_fail_say_why() {
    let object = json!({"s": "abc", "l": ["x"]});
    for (rule, expected) in [
        ("self.l[1] == 'x'", "index out of bounds: 1 evaluating rule: self.l[1] == 'x'"),
        ("9223372036854775807 + 1 > 0", "integer overflow evaluating rule: 9223372036854775807 + 1 > 0"),
        ("-9223372036854775808 / -1 > 0", "integer overflow evaluating rule: -9223372036854775808 / -1 > 0"),
        ("1 % 0 == 1", "modulus by zero evaluating rule: 1 % 0 == 1"),
        ("self.s.matches('(')", "evaluating rule: self.s.matches('(')"),
        ("self.s.substring(9) == ''", "index out of range: 9 evaluating rule: self.s.substring(9) == ''"),
        ("format.dns1123Label().validate(self.s).hasValue()", "failed rule: format.dns1123Label()"),
        ("format.named('uuid').value().validate(self.s).value().size() == 0", "failed rule: format.named"),
        ("timestamp('x') > timestamp('y')", "evaluating rule: timestamp('x') > timestamp('y')"),
    ] {
        let found = errors(rule, &object);
        assert!(found.len() == 1 && found[0].contains(expected), "{rule}: {found:?}");
    }
}
