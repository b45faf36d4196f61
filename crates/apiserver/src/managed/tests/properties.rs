//! What holds for every object, configuration and schema.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::thing::thing;
use crate::managed::compare::{Made, compare};
use crate::managed::element::Element;
use crate::managed::walk::field_set;
use crate::managed::{Set, Writer, apply, entries, fields, is_noop, strip_set, track_update};

const WRITER: Writer<'static> = Writer {
    manager: "one",
    kind: "Thing",
    api_version: "example.com/v1",
    subresource: "",
    now: "2026-01-01T00:00:00Z",
    reset: &Set::EMPTY,
};

fn text() -> impl Strategy<Value = String> {
    prop_oneof!["[a-d]", "[ -~]{0,4}"]
}

fn texts() -> impl Strategy<Value = Value> {
    proptest::collection::btree_set(text(), 0..4).prop_map(|set| json!(set))
}

fn texts_map() -> impl Strategy<Value = Value> {
    proptest::collection::btree_map(text(), text(), 0..4).prop_map(|map| json!(map))
}

fn items() -> impl Strategy<Value = Value> {
    let item =
        (proptest::option::of(0..3i64), proptest::option::of(texts()), proptest::option::of(texts_map()));
    proptest::collection::btree_map("[a-d]", item, 0..4).prop_map(|items| {
        let items = items.into_iter().map(|(name, (v, inner, extra))| {
            let mut item = json!({"name": name});
            v.inspect(|v| item["v"] = json!(v));
            inner.inspect(|inner| item["inner"] = inner.clone());
            extra.inspect(|extra| item["extra"] = extra.clone());
            item
        });
        items.collect()
    })
}

fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i32>().prop_map(Value::from),
        any::<i16>().prop_map(|half| json!(f64::from(half) / 2.0)),
        text().prop_map(Value::from),
    ];
    let names = prop_oneof![
        Just("spec"),
        Just("metadata"),
        Just("name"),
        Just("list"),
        Just("set"),
        Just("dlist"),
        Just("st"),
        Just("deep"),
        Just("map"),
        Just("free"),
        Just("labels"),
        Just("managedFields"),
        Just("template"),
        Just("containers"),
        Just("$patch"),
        Just("$retainKeys"),
        Just("$setElementOrder/containers"),
        Just("$deleteFromPrimitiveList/finalizers"),
        Just("finalizers"),
        Just("fieldsV1"),
        Just("f:a"),
    ];
    leaf.prop_recursive(5, 48, 5, move |inner| {
        prop_oneof![
            proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            proptest::collection::btree_map(names.clone(), inner, 0..5).prop_map(|map| json!(map)),
        ]
    })
}

/// A valid `Thing`.
fn any_thing() -> impl Strategy<Value = Value> {
    let values: Vec<(&str, BoxedStrategy<Value>)> = vec![
        ("s", text().prop_map(Value::from).boxed()),
        ("n", (0..3i64).prop_map(Value::from).boxed()),
        ("set", texts().boxed()),
        ("list", items().boxed()),
        ("alist", texts().boxed()),
        ("map", texts_map().boxed()),
        ("amap", texts_map().boxed()),
        ("mapmap", proptest::collection::btree_map(text(), texts_map(), 0..3).prop_map(|m| json!(m)).boxed()),
        ("maplist", proptest::collection::btree_map(text(), texts(), 0..3).prop_map(|m| json!(m)).boxed()),
        ("free", proptest::collection::btree_map(text(), any_json(), 0..3).prop_map(|m| json!(m)).boxed()),
        ("st", texts().prop_map(|e| json!({"deep": {"e": e}})).boxed()),
    ];
    let fields: Vec<_> = values
        .into_iter()
        .map(|(name, value)| proptest::option::of(value).prop_map(move |v| v.map(|v| (name.to_owned(), v))))
        .collect();
    (fields, proptest::option::of(texts_map())).prop_map(|(fields, labels)| {
        let spec: Map<String, Value> = fields.into_iter().flatten().collect();
        let mut object = json!({"apiVersion": "example.com/v1", "kind": "Thing", "spec": spec});
        labels.inspect(|labels| object["metadata"] = json!({"labels": labels}));
        object
    })
}

/// The set of the only owner.
fn owned(object: &Value) -> Set {
    match entries::raw(object).and_then(Value::as_array).map(Vec::as_slice) {
        None => Set::EMPTY,
        Some([entry]) => fields::decode(&entry["fieldsV1"]).unwrap(),
        Some(more) => panic!("{more:?}"),
    }
}

/// A merge patch from one object to another; nulls cannot be said.
fn diff(from: &Map<String, Value>, to: &Map<String, Value>) -> Map<String, Value> {
    let gone = from.keys().filter(|key| !to.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let changed = to.iter().filter(|(key, value)| from.get(*key) != Some(value)).map(|(key, value)| {
        let value = match (from.get(key), value) {
            (Some(Value::Object(from)), Value::Object(to)) => Value::Object(diff(from, to)),
            _ => value.clone(),
        };
        (key.clone(), value)
    });
    gone.chain(changed).collect()
}

fn without_nulls(value: &Value) -> Value {
    match value {
        Value::Object(map) => {
            let kept = map.iter().filter(|(_, value)| !value.is_null());
            kept.map(|(key, value)| (key.clone(), without_nulls(value))).collect()
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

fn each_path(set: &Set) -> Vec<Vec<Element>> {
    let mut paths = Vec::new();
    set.each(&mut |path| paths.push(path.iter().map(|&element| element.clone()).collect()));
    paths
}

proptest! {
    #[test]
    fn applying_twice_is_applying_once(live in any_thing(), config in any_thing()) {
        let schema = thing();
        let mut live = live;
        track_update(&schema, None, &mut live, &Writer { manager: "other", ..WRITER });
        let once = apply(&schema, Some(&live), &config, &WRITER, true).unwrap();
        let twice = apply(&schema, Some(&once), &config, &WRITER, false).unwrap();
        prop_assert!(is_noop(&once, &twice), "{once}\n{twice}");
    }

    #[test]
    fn the_result_has_what_was_applied(live in any_thing(), config in any_thing()) {
        let schema = thing();
        let result = apply(&schema, Some(&live), &config, &WRITER, true).unwrap();
        // Applying the configuration to the result changes nothing: all of it is there.
        let mut bare = result;
        entries::take(&mut bare);
        let merged = crate::managed::merge::merge(&schema, &bare, &config).unwrap();
        prop_assert_eq!(bare, merged);
    }

    #[test]
    fn every_leaf_of_a_new_object_is_owned(object in any_thing()) {
        let schema = thing();
        let leaves = field_set(&schema, &object).leaves().difference(strip_set());
        let mut tracked = object;
        track_update(&schema, None, &mut tracked, &WRITER);
        let owned = owned(&tracked);
        for path in each_path(&leaves) {
            prop_assert!(owned.has(&path), "{path:?} in {tracked}");
        }
    }

    #[test]
    fn the_fast_way_to_track_a_create_is_right(object in any_json(), valid in any_thing()) {
        let schema = thing();
        let deployment = landfall_api::schema::builtin("io.k8s.api.apps.v1.Deployment");
        for schema in [&schema, deployment] {
            for object in [&object, &valid] {
                let mut bare = object.clone();
                entries::take(&mut bare);
                let mut tracked = bare.clone();
                track_update(schema, None, &mut tracked, &WRITER);
                if !bare.is_object() {
                    continue;
                }
                let delta = compare(schema, None, &bare, Made::Whole);
                let wanted = delta.added.union(&delta.modified).difference(strip_set());
                prop_assert_eq!(owned(&tracked), wanted);
            }
        }
    }

    #[test]
    fn sets_keep_their_laws(a in any_thing(), b in any_thing()) {
        let schema = thing();
        let (a, b) = (field_set(&schema, &a), field_set(&schema, &b));
        prop_assert_eq!(&fields::decode(&fields::encode(&a)).unwrap(), &a);
        prop_assert_eq!(a.union(&b), b.union(&a));
        prop_assert_eq!(a.intersection(&b), a.difference(&a.difference(&b)));
        prop_assert_eq!(a.difference(&b).union(&a.intersection(&b)), a.clone());
        prop_assert!(a.difference(&a).is_empty());
        for path in each_path(&a.union(&b)) {
            prop_assert!(a.has(&path) || b.has(&path));
        }
    }

    #[test]
    fn a_merge_patch_of_the_difference_gives_the_target(a in any_json(), b in any_json()) {
        let wrap = |value: &Value| without_nulls(&json!({"x": value}));
        let (from, to) = (wrap(&a), wrap(&b));
        let patch = Value::Object(diff(from.as_object().unwrap(), to.as_object().unwrap()));
        let got = crate::patch::merge::apply(from, patch.to_string().as_bytes()).unwrap();
        prop_assert_eq!(without_nulls(&got), to);
    }

    #[test]
    fn nothing_makes_it_panic(a in any_json(), b in any_json(), c in any_json(), force: bool) {
        let thing = thing();
        let deployment = landfall_api::schema::builtin("io.k8s.api.apps.v1.Deployment");
        let config = {
            let mut config = c.clone();
            if let Some(map) = config.as_object_mut() {
                map.insert("apiVersion".into(), json!("example.com/v1"));
                map.insert("kind".into(), json!("Thing"));
            }
            config
        };
        for schema in [&thing, deployment] {
            let _ = apply(schema, Some(&a), &config, &WRITER, force);
            let _ = apply(schema, None, &config, &WRITER, force);
            let mut new = b.clone();
            track_update(schema, Some(&a), &mut new, &WRITER);
            let _ = crate::patch::strategic::apply(schema, a.clone(), c.to_string().as_bytes());
        }
        let _ = crate::patch::merge::apply(a.clone(), c.to_string().as_bytes());
        let patch = json!([
            {"op": "add", "path": "/spec/-", "value": b}, {"op": "copy", "from": "/spec", "path": "/spec/0"},
            {"op": "test", "path": "/metadata", "value": c}, {"op": "move", "from": "/list/-1", "path": "/x"},
        ]);
        for operation in patch.as_array().unwrap() {
            let _ = crate::patch::json::apply(a.clone(), json!([operation]).to_string().as_bytes());
        }
    }
}
