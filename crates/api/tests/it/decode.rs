//! Bodies in JSON and YAML: the sentences are those of a real kube-apiserver 1.36, but for YAML's syntax errors.

use landfall_api::decode::{Strict, expect_object, parse_json, parse_yaml, refuse_object};
use landfall_api::schema::{builtin, normalize};
use proptest::prelude::*;
use serde_json::{Value, json};

/// What a server answers to a Service in strict mode; empty when it takes it.
fn service(body: &[u8], yaml: bool) -> String {
    let parsed = if yaml { parse_yaml(body) } else { parse_json(body) };
    let decoded = parsed.and_then(|decoded| expect_object(&decoded.value).map(|()| decoded));
    let mut decoded = match decoded {
        Ok(decoded) => decoded,
        Err(error) => return error.refuse("Service", body).message,
    };
    let report = normalize(builtin("io.k8s.api.core.v1.Service"), &mut decoded.value);
    let strict = Strict::new(&decoded.duplicates, &report);
    match report.error.or_else(|| strict.error()) {
        Some(error) => refuse_object("Service", "v1", &error).message,
        None => String::new(),
    }
}

#[test]
fn json_that_is_none() {
    const META: &str = r#"Go value of type struct { APIVersion string "json:\"apiVersion,omitempty\""; Kind string "json:\"kind,omitempty\"" }"#;
    let deep = format!("{}1{}", r#"{"a":"#.repeat(20_000), "}".repeat(20_000));
    let head = r#"{"apiVersion":"v1","kind":"Service","#;
    for (body, words, shown) in [
        (r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"a""#, "unexpected end of JSON input", ""),
        (
            r#"{"apiVersion":"v1","kind":"Service",}"#,
            "invalid character '}' looking for beginning of object key string",
            "",
        ),
        ("nope", "invalid character 'o' in literal null (expecting 'u')", "6e6f7065"),
        ("", "unexpected end of JSON input", "<empty>"),
        ("[]", &format!("json: cannot unmarshal array into {META}"), "5b5d"),
        ("5", &format!("json: cannot unmarshal number into {META}"), "35"),
        (r#"{"apiVersion":"v1","kind":"Service"} x"#, "invalid character 'x' after top-level value", ""),
        (
            r#"{"apiVersion":"v1","kind":5}"#,
            "json: cannot unmarshal number into Go struct field .kind of type string",
            r#"{"apiVersion":"v1","kind":5}"#,
        ),
        (&format!("{head}\"a\":\"\u{1}\"}}"), r"invalid character '\x01' in string literal", ""),
        (&format!("{head}\"a\":01}}"), "invalid character '1' after object key:value pair", ""),
        (&format!("{head}\"a\":[1 2]}}"), "invalid character '2' after array element", ""),
        (&format!("{head}\"a\" 1}}"), "invalid character '1' after object key", ""),
        (&format!("{head}\"a\":-}}"), "invalid character '}' in numeric literal", ""),
        (&deep, "invalid character '{' exceeded max depth", r#"{"a":{"a":{"a":{"a":{"a":{"a": ..."#),
    ] {
        let shown = if shown.is_empty() { r#"{"apiVersion":"v1","kind":"Ser ..."# } else { shown };
        let want = format!(
            "the object provided is unrecognized (must be of type Service): couldn't get version/kind; json parse error: {words} ({shown})"
        );
        assert_eq!(service(body.as_bytes(), false), want);
    }
}

#[test]
fn strictness() {
    for (yaml, body, want) in [
        (
            false,
            r#"{"apiVersion":"v1","kind":"Service","metadata":{"name":"a","labels":{"x":"1","x":"2"}},
                "spec":{"ports":[{"port":80,"port":81}],"zoo":1,"type":"ClusterIP","type":"ClusterIP","abc":2,"abc":2}}"#,
            r#"duplicate field "metadata.labels.x", duplicate field "spec.ports[0].port", duplicate field "spec.type", unknown field "spec.abc", unknown field "spec.zoo""#,
        ),
        (false, r#"{"kind":"Service","spec":{"zoo":{"a":1,"a":2}}}"#, r#"unknown field "spec.zoo""#),
        (
            true,
            "kind: Service\nmetadata:\n  name: a\n  name: b\nspec:\n  foo: 1\n  ports:\n  - port: 80\n    port: 81\n",
            "yaml: unmarshal errors:\n  line 4: key \"name\" already set in map\n  line 9: key \"port\" already set in map, unknown field \"spec.foo\"",
        ),
    ] {
        let want = format!(
            r#"Service in version "v1" cannot be handled as a Service: strict decoding error: {want}"#
        );
        assert_eq!(service(body.as_bytes(), yaml), want);
    }
}

#[test]
fn the_last_of_two_keys_counts() {
    assert_eq!(parse_json(br#"{"a":1,"a":{"b":2}}"#).unwrap().value, json!({"a": {"b": 2}}));
    assert_eq!(parse_yaml(b"a: 1\na: {b: 2}\n").unwrap().value, json!({"a": {"b": 2}}));
}

/// Story: a fuzzer found a number that was another one after it had been written and read again, so an object could
/// have changed each time it was stored. Reading is exact now.
#[test]
fn numbers_are_read_exactly() {
    for text in ["1.8446744073709511e+24", "0.1", "5e-324", "1.7976931348623157e308", "123456789.12345679"] {
        let value = parse_json(text.as_bytes()).unwrap().value;
        assert_eq!(value.as_f64().unwrap().to_bits(), text.parse::<f64>().unwrap().to_bits(), "{text}");
    }
}

#[test]
fn bytes_that_are_not_utf8_become_replacement_characters() {
    assert_eq!(parse_json(b"\"a\xff\"").unwrap().value, json!("a\u{fffd}"));
}

#[test]
fn yaml_values() {
    for (body, want) in [
        (
            "a: [yes, no, on, off, ~, null, '', \"y\", y]",
            json!([true, false, true, false, null, null, "", "y", true]),
        ),
        ("a: [1, -1, +1, 0x1f, 017, 0o17, 0b11, 1_000, 08]", json!([1, -1, 1, 31, 15, 15, 3, 1000, 8])),
        (
            "a: [1.5, .5, 1e3, 1.0, 18446744073709551615]",
            json!([1.5, 0.5, 1000, 1, 18_446_744_073_709_551_615_u64]),
        ),
        (
            "a: [2020-01-01, 1.2.3, 0x, '1', !!str 1, 12e, 10m]",
            json!(["2020-01-01", "1.2.3", "0x", "1", "1", "12e", "10m"]),
        ),
        ("a: {1: x, true: w, 1.5: z}", json!({"1": "x", "true": "w", "1.5": "z"})),
        ("a: &x {b: 1, c: 2}\nd: {<<: *x, b: 3}", json!({"b": 1, "c": 2})),
        ("a: |\n  one\n  two\n", json!("one\ntwo\n")),
        ("a: >-\n  one\n  two\n", json!("one two")),
        ("a:\n- b: 1\n  c:\n  - d\n", json!([{"b": 1, "c": ["d"]}])),
        ("a: 1\n---\na: 2\n", json!(1)),
        (r#"{"a": {"b": "json\u0041"}}"#, json!({"b": "jsonA"})),
    ] {
        assert_eq!(parse_yaml(body.as_bytes()).unwrap().value["a"], want, "{body}");
    }
    let merged = parse_yaml(b"a: &x {b: 1, c: 2}\nd: {<<: *x, b: 3}").unwrap().value;
    assert_eq!(merged["d"], json!({"b": 3, "c": 2}));
    // JSON is YAML, and is read as YAML reads it.
    for (body, want) in [
        (r#" {"a": [1, -2, true, null, "yes", "\u00e4"]}"#, json!([1, -2, true, null, "yes", "\u{e4}"])),
        (r#"{"a": 1.0}"#, json!(1)),
        (r#"{"a": {"<<": {"b": 1}}}"#, json!({"<<": {"b": 1}})),
        (r#"{"a": 010}"#, json!(8)),
        ("{\"a\": 1} # and a word", json!(1)),
    ] {
        assert_eq!(parse_yaml(body.as_bytes()).unwrap().value["a"], want, "{body}");
    }
    assert_eq!(parse_yaml(br#"{"a": 1, "a": 2}"#).unwrap().duplicates.len(), 1);
    assert_eq!(parse_yaml(b"").unwrap().value, Value::Null);
}

#[test]
fn yaml_that_is_refused() {
    let bomb = (0..12).fold("a0: &a0 [x, x, x, x, x, x, x, x]\n".to_owned(), |text, n| {
        format!("{text}a{}: &a{} [{}]\n", n + 1, n + 1, vec![format!("*a{n}"); 8].join(", "))
    });
    let deep = format!("a: {}{}", "[".repeat(50_000), "]".repeat(50_000));
    let deep_block: String = (0..5_000).map(|n| format!("{}a:\n", " ".repeat(n))).collect();
    for (body, want) in [
        (bomb.as_str(), "yaml: document contains excessive aliasing"),
        (&deep, "yaml: line 1: recursion limit exceeded"),
        (&deep_block, "yaml: exceeded max depth"),
        ("a: .nan", "yaml: json: unsupported value: NaN"),
        ("? [a]\n: b", "yaml: unsupported map key"),
        ("a: {<<: 5}", "yaml: map merge requires map or sequence of maps as the value"),
    ] {
        assert_eq!(parse_yaml(body.as_bytes()).map(|_| ()).unwrap_err().to_string(), want);
    }
    for body in ["a: [b", "a: b: c", "a: *nope", "a: \"", "a:\n\t- b"] {
        let error = parse_yaml(body.as_bytes()).map(|d| d.value).unwrap_err().to_string();
        assert!(error.starts_with("yaml: line "), "{body}: {error}");
    }
}

proptest! {
    #[test]
    fn any_value_comes_back(value in values()) {
        let text = value.to_string();
        let decoded = parse_json(text.as_bytes()).unwrap();
        prop_assert_eq!(&decoded.value, &value);
        prop_assert!(decoded.duplicates.is_empty());
    }

    #[test]
    fn bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "[-{}\\[\\]:,&*!|>'\"%@` a0\n\t#?~.<]{0,80}") {
        for body in [&bytes[..], text.as_bytes()] {
            let _ = parse_json(body);
            let _ = parse_yaml(body);
            let _ = service(body, true);
            let _ = service(body, false);
        }
    }

    #[test]
    fn cut_and_changed_json_never_panics(value in values(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        let mut bytes = value.to_string().into_bytes();
        let at = at.index(bytes.len());
        let _ = parse_json(&bytes[..at]);
        bytes[at] = byte;
        let _ = (parse_json(&bytes), parse_yaml(&bytes));
    }
}

fn values() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        ".{0,8}".prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map("[a-z]{0,3}", inner, 0..4)
                .prop_map(|map| Value::Object(map.into_iter().collect())),
        ]
    })
}
