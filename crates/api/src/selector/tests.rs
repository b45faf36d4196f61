//! Selectors against what a kube-apiserver 1.36 answered to the same texts.

use super::*;
use serde_json::json;

#[test]
fn label_selectors_refused_as_kubernetes_does() {
    let value = "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')";
    let key = "a valid label key must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')";
    let value = format!("unable to parse requirement: values[0][a]: Invalid value: \"-\": {value}");
    let key = format!("unable to parse requirement: <nil>: Invalid value: \"a/b/c\": {key}");
    for (text, expected) in [
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=b=c", "found '=', expected: ',' or 'end of string'"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("a in", "unable to parse requirement: found '' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b,c),", "found '', expected: identifier after ','"),
        (",a", "found ',', expected: !, identifier, or 'end of string'"),
        ("a=-", &value),
        ("a/b/c", &key),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        (
            "a>x",
            "unable to parse requirement: values[0]: Invalid value: \"x\": for 'Gt', 'Lt' operators, the value must be an integer",
        ),
        ("a in (b=c)", "unable to parse requirement: found '=', expected: ',' or ')'"),
        ("a!b", "unable to parse requirement: found '!', expected: in, notin, =, ==, !=, gt, lt"),
        ("=a", "found '=', expected: !, identifier, or 'end of string'"),
        ("a in (b c)", "unable to parse requirement: found 'c', expected: ',' or ')'"),
        ("a=!", "unable to parse requirement: found '!', expected: identifier"),
        ("a=(b)", "unable to parse requirement: found '(', expected: identifier"),
        ("!!a", "unable to parse requirement: found '!', expected: identifier"),
    ] {
        assert_eq!(Selector::parse(text).unwrap_err(), expected, "{text:?}");
    }
}

#[test]
fn label_selectors_match() {
    let labels = json!({"app": "web", "tier": "a", "n": "5", "in": "in", "empty": ""});
    for (text, expected) in [
        ("", true),
        ("app=web", true),
        ("app==web,tier!=b", true),
        ("app in (x, web)", true),
        ("app notin (x,web)", false),
        ("nope notin (x)", true),
        ("nope!=x", true),
        ("nope=", false),
        ("empty=", true),
        ("empty in (,x)", true),
        ("empty in ()", true),
        ("in in (in)", true),
        ("app", true),
        ("!app", false),
        ("!nope", true),
        ("n>4,n<6", true),
        ("n>5", false),
        ("app>1", false),
    ] {
        let selector = Selector::parse(text).unwrap();
        assert_eq!(selector.matches(Some(&labels)), expected, "{text:?}");
        assert_eq!(Selector::parse(&selector.to_string()).unwrap(), selector, "{text:?} written and read");
    }
    assert_eq!(Selector::parse("b in (z,a,a),a==x,!c").unwrap().to_string(), "a==x,b in (a,z),!c");
}

#[test]
fn label_selector_objects_match() {
    let labels = json!({"app": "web"});
    let check = |object: Value, expected: Result<bool, &str>| {
        let found = Selector::from_object(Some(&object)).map(|s| s.matches(Some(&labels)));
        assert_eq!(found, expected.map_err(String::from), "{object}");
    };
    check(json!(null), Ok(false));
    check(json!({}), Ok(true));
    check(json!({"matchLabels": {"app": "web"}}), Ok(true));
    check(json!({"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]}), Ok(false));
    check(json!({"matchExpressions": [{"key": "app", "operator": "NotIn", "values": ["x"]}]}), Ok(true));
    check(
        json!({"matchExpressions": [{"key": "app", "operator": "Gt"}]}),
        Err("\"Gt\" is not a valid label selector operator"),
    );
    check(
        json!({"matchExpressions": [{"key": "app", "operator": "In"}]}),
        Err("values: Invalid value: []: for 'in', 'notin' operators, values set can't be empty"),
    );
    assert!(!Selector::from_object(None).unwrap().matches(Some(&labels)));
    assert!(Selector::from_map(Some(&json!({"app": "web"}))).matches(Some(&labels)));
}

#[test]
fn field_selectors() {
    let object = json!({
        "metadata": {"name": "a,b", "namespace": "n"}, "type": "Opaque",
        "status": {"succeeded": 2}, "source": {"component": "kubelet"}, "spec": {"on": true},
    });
    for (text, expected) in [
        ("", Ok(true)),
        (r"metadata.name=a\,b", Ok(true)),
        ("metadata.namespace==n,type!=x", Ok(true)),
        ("status.successful=2", Ok(true)),
        ("source=kubelet,spec.on=true", Ok(true)),
        ("status.replicas=0,spec.off=", Ok(true)),
        ("spec.nothing!=", Ok(false)),
        ("metadata.name", Err("invalid selector: 'metadata.name'; can't understand 'metadata.name'")),
        (r"metadata.name=a\x", Err(r"invalid field selector: invalid escape sequence: \x")),
        (r"metadata.name=a\", Err(r"invalid field selector: invalid escape sequence: \")),
        ("metadata.name=a=b", Err("invalid field selector: unescaped character in value: 61")),
    ] {
        let found = FieldSelector::parse(text).map(|s| s.matches(&object));
        assert_eq!(found, expected.map_err(String::from), "{text:?}");
    }
    let newer = json!({"source": {}, "reportingComponent": "scheduler"});
    assert!(FieldSelector::parse("source=scheduler").unwrap().matches(&newer));
    assert_eq!(FieldSelector::parse("metadata.name=x").unwrap().exact("metadata.name"), Some("x"));
    assert_eq!(FieldSelector::parse("metadata.name!=x").unwrap().exact("metadata.name"), None);
}

proptest::proptest! {
    #[test]
    fn no_text_makes_it_panic(text in ".{0,40}", tail in "[ab=!,()<> inot\\\\é\0]{0,20}") {
        let text = format!("{tail}{text}{tail}");
        if let Ok(selector) = Selector::parse(&text) {
            selector.matches(None);
        }
        drop(FieldSelector::parse(&text));
    }
}

#[test]
fn fields_that_a_kind_cannot_be_selected_by() {
    for (kind, text, expected) in [
        ("Service", "spec.type=ClusterIP,metadata.name=a", Ok(())),
        ("Service", "spec.foo=1", Err("field label not supported: spec.foo")),
        ("Job", "spec.foo=1", Err("field label \"spec.foo\" not supported for Job")),
        (
            "ConfigMap",
            "spec.foo=1",
            Err("\"spec.foo\" is not a known field selector: only \"metadata.name\", \"metadata.namespace\""),
        ),
    ] {
        let kind = crate::kinds::federation().into_iter().find(|k| k.kind == kind).unwrap();
        let found = FieldSelector::parse(text).unwrap().check(&kind);
        assert_eq!(found, expected.map_err(String::from), "{} {text}", kind.kind);
    }
}
