//! Input that no good client sends: each gets the right `Status`, nothing changes, the hub lives on.

use serde_json::{Value, json};

use crate::support::{Answer, Asker, Hub, SECRETS, secret};

const ONE: &str = "/api/v1/namespaces/default/secrets/a";
const MERGE: &str = "application/merge-patch+json";
const JSON_PATCH: &str = "application/json-patch+json";
const STRATEGIC: &str = "application/strategic-merge-patch+json";
const APPLY: &str = "application/apply-patch+yaml";
const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const YAML: &str = "application/yaml";
const PLAIN: &str = "application/json";

/// One request and what must come of it: method, path, content type, body; code, reason, part of the message.
type Case<'a> = (&'a str, &'a str, &'a str, Vec<u8>, u16, &'a str, &'a str);

/// Outside of the groups that are served, Kubernetes answers in plain text.
const NO_STATUS: &str = "";

fn bytes(text: impl Into<String>) -> Vec<u8> {
    text.into().into_bytes()
}

fn deep(levels: usize) -> Vec<u8> {
    bytes(format!(
        "{{\"metadata\":{{\"name\":\"deep\"}},\"data\":{}1{}}}",
        "{\"a\":".repeat(levels),
        "}".repeat(levels)
    ))
}

/// Everything there is, so that a change of anything shows.
async fn state(ask: &Asker) -> Value {
    let mut all = Vec::new();
    for path in ["/api/v1/secrets", "/api/v1/namespaces", "/apis/apps/v1/deployments", "/api/v1/services"] {
        let mut list = ask.get(path).await.ok();
        list["metadata"] = Value::Null;
        all.push(list);
    }
    Value::Array(all)
}

/// Says where a real Kubernetes is, to see whether it answers the same: `LANDFALL_PEER=kubeconfig cargo test bad_input`.
fn peer() -> Option<std::path::PathBuf> {
    std::env::var_os("LANDFALL_PEER").map(Into::into)
}

fn plain(answer: &Answer) -> bool {
    answer.body["kind"] != "Status"
}

async fn check(cases: Vec<Case<'_>>) {
    let hub = Hub::start().await;
    let other = match peer() {
        Some(kubeconfig) => Some(Asker::of(&kubeconfig).await),
        None => None,
    };
    let ask = other.as_ref().unwrap_or(&hub.admin);
    ask.delete(ONE).await;
    ask.post(SECRETS, &secret("a", &json!({}))).await.ok();
    let before = state(ask).await;
    let mut wrong = Vec::new();
    for (method, path, media, body, code, reason, said) in cases {
        let shown = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
        let headers = [("content-type", media)];
        let headers = if media.is_empty() { &headers[..0] } else { &headers[..] };
        let answer = ask.send(method, path, headers, body).await;
        let got = (answer.code, answer.body["reason"].as_str().unwrap_or(""));
        let message = answer.body["message"].as_str().unwrap_or("");
        if got != (code, reason)
            || !message.contains(said)
            || plain(&answer) != (code == 404 && reason == NO_STATUS)
        {
            wrong.push(format!(
                "{method} {path} {media} {shown}\n  want {code} {reason} {said}\n  got  {} {}",
                answer.code, answer.body
            ));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(state(ask).await, before, "nothing changed");
    assert_eq!(ask.get("/readyz").await.code, 200);
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn bodies_that_are_no_objects() {
    let post = |media, body: Vec<u8>, code, reason, said| ("POST", SECRETS, media, body, code, reason, said);
    let bad = "BadRequest";
    check(vec![
        post(PLAIN, bytes(""), 400, bad, ""),
        post(PLAIN, bytes("{"), 400, bad, "unexpected end of JSON input"),
        post(
            PLAIN,
            bytes("{\"metadata\":}"),
            400,
            bad,
            "invalid character '}' looking for beginning of value",
        ),
        post(PLAIN, bytes("[]"), 400, bad, ""),
        post(PLAIN, bytes("\"x\""), 400, bad, ""),
        post(PLAIN, bytes("null"), 422, "Invalid", "name or generateName is required"),
        post(PLAIN, bytes("12"), 400, bad, ""),
        post(PLAIN, bytes("{} {}"), 400, bad, ""),
        post(PLAIN, b"{\"metadata\":{\"name\":\"\xff\xfe\"}}".to_vec(), 422, "Invalid", "metadata.name"),
        post(PLAIN, b"\xef\xbb\xbf{}".to_vec(), 400, bad, ""),
        post(PLAIN, bytes("{\"metadata\":[]}"), 400, bad, "cannot unmarshal array into Go struct field"),
        post(
            PLAIN,
            bytes("{\"metadata\":{\"name\":7}}"),
            400,
            bad,
            "cannot unmarshal number into Go struct field",
        ),
        post(
            PLAIN,
            bytes("{\"metadata\":{\"name\":\"x\"},\"data\":{\"a\":\"***\"}}"),
            400,
            bad,
            "illegal base64 data",
        ),
        post(
            PLAIN,
            bytes("{\"metadata\":{\"name\":\"x\",\"labels\":{\"a\":{}}}}"),
            400,
            bad,
            "cannot unmarshal object",
        ),
        post(PLAIN, deep(100), 400, bad, ""),
        post(PLAIN, deep(10_000), 400, bad, ""),
        post(PLAIN, bytes("[".repeat(10_000)), 400, bad, ""),
        post(PLAIN, bytes("[".repeat(1_000_000)), 400, bad, ""),
        post(PLAIN, bytes("{\"a\":".repeat(200_000)), 400, bad, ""),
        post(YAML, bytes("a: [1, 2"), 400, bad, ""),
        post(YAML, bytes("\t"), 400, bad, ""),
        post(YAML, bytes("- 1\n- 2\n"), 400, bad, ""),
        post(YAML, bytes("[".repeat(10_000)), 400, bad, ""),
        post(YAML, bytes("- ".repeat(10_000)), 400, bad, ""),
        post(YAML, bytes(yaml_bomb()), 400, bad, ""),
        post(YAML, b"metadata: {name: \xff}".to_vec(), 400, bad, ""),
        post(PROTOBUF, bytes(""), 400, bad, ""),
        post(PROTOBUF, bytes("k8s"), 400, bad, ""),
        post(PROTOBUF, b"k8s\0".to_vec(), 400, bad, ""),
        post(PROTOBUF, b"k8s\0\xff\xff\xff\xff\xff\xff\xff\xff\xff".to_vec(), 400, bad, ""),
        post(PROTOBUF, bytes("{\"metadata\":{\"name\":\"x\"}}"), 400, bad, ""),
        post(PROTOBUF, nested_protobuf(5_000), 422, "Invalid", "name or generateName is required"),
        post(PLAIN, b"k8s\0\x0a\x00".to_vec(), 400, bad, ""),
        post(
            "text/plain",
            bytes("{}"),
            415,
            "UnsupportedMediaType",
            "accepted media types include: application/json",
        ),
        post("application/xml", bytes("<a/>"), 415, "UnsupportedMediaType", ""),
        post("///", bytes("{}"), 415, "UnsupportedMediaType", ""),
        post(MERGE, bytes("{}"), 415, "UnsupportedMediaType", ""),
    ])
    .await;
}

/// Nine levels of nine references each: 387 million strings when unfolded.
fn yaml_bomb() -> String {
    let mut text = "a0: &a0 x\n".to_owned();
    for level in 1..10 {
        let before = level - 1;
        let row = vec![format!("*a{before}"); 9].join(",");
        text.push_str(&format!("a{level}: &a{level} [{row}]\n"));
    }
    text
}

/// A message inside a message inside …: all of it unknown fields, so an object without a name is left.
fn nested_protobuf(levels: usize) -> Vec<u8> {
    let mut inner = vec![0x0a, 0x00];
    for _ in 0..levels {
        let mut outer = vec![0x0a];
        let mut length = inner.len();
        while length >= 0x80 {
            outer.push(u8::try_from(length & 0x7f).unwrap() | 0x80);
            length >>= 7;
        }
        outer.push(u8::try_from(length).unwrap());
        outer.extend(inner);
        inner = outer;
    }
    let mut all = b"k8s\0".to_vec();
    all.extend(inner);
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn objects_that_do_not_belong() {
    let post = |path, body: Value, code, reason, said| {
        ("POST", path, PLAIN, bytes(body.to_string()), code, reason, said)
    };
    let bad = "BadRequest";
    check(vec![
        post(
            SECRETS,
            json!({"kind": "Pod", "apiVersion": "v1"}),
            400,
            bad,
            "Pod in version \"v1\" cannot be handled as a Secret",
        ),
        post(SECRETS, json!({"kind": "Secret", "apiVersion": "v2"}), 400, bad, ""),
        post(SECRETS, json!({"kind": "Secret", "apiVersion": "apps/v1"}), 400, bad, ""),
        post(SECRETS, json!({"kind": "Secret", "apiVersion": "a/b/c"}), 400, bad, ""),
        post(SECRETS, json!({"kind": 5}), 400, bad, ""),
        post(
            SECRETS,
            json!({"metadata": {"name": "x", "namespace": "other"}}),
            400,
            bad,
            "does not match the namespace",
        ),
        post(
            SECRETS,
            json!({"metadata": {"name": "x", "resourceVersion": "5"}}),
            500,
            "",
            "resourceVersion should not be set",
        ),
        post(SECRETS, json!({"metadata": {"name": "a"}}), 409, "AlreadyExists", ""),
        post(SECRETS, json!({"metadata": {"name": "../x"}}), 422, "Invalid", "metadata.name"),
        post(SECRETS, json!({"metadata": {"name": "x".repeat(300)}}), 422, "Invalid", "metadata.name"),
        post(
            SECRETS,
            json!({"metadata": {"name": "x", "labels": {"a b": "c"}}}),
            422,
            "Invalid",
            "metadata.labels",
        ),
        post(
            SECRETS,
            json!({"metadata": {"name": "x", "labels": {"a": "c d"}}}),
            422,
            "Invalid",
            "metadata.labels",
        ),
        post(
            SECRETS,
            json!({"metadata": {"name": "x", "finalizers": ["a b"]}}),
            422,
            "Invalid",
            "metadata.finalizers",
        ),
        post(
            SECRETS,
            json!({"metadata": {"name": "x", "ownerReferences": [{}]}}),
            422,
            "Invalid",
            "metadata.ownerReferences",
        ),
        post(
            SECRETS,
            json!({"metadata": {"name": "x", "annotations": {"a": "y".repeat(300_000)}}}),
            422,
            "Invalid",
            "Too long",
        ),
        post(
            "/api/v1/namespaces/nope/secrets",
            json!({"metadata": {"name": "x"}}),
            404,
            "NotFound",
            "namespaces \"nope\" not found",
        ),
        post("/api/v1/secrets", json!({"metadata": {"name": "x"}}), 405, "MethodNotAllowed", ""),
        post(
            "/apis/apps/v1/namespaces/default/deployments",
            json!({"metadata": {"name": "x"}}),
            422,
            "Invalid",
            "spec.selector: Required value",
        ),
        post(
            "/api/v1/namespaces/default/services",
            json!({"metadata": {"name": "x"}, "spec": {"ports": [{"port": 70_000}]}}),
            422,
            "Invalid",
            "spec.ports[0].port",
        ),
        post(
            "/api/v1/namespaces/default/services",
            json!({"metadata": {"name": "x"}, "spec": {"ports": [{"port": 1e30}]}}),
            400,
            bad,
            "cannot unmarshal number",
        ),
        post(
            "/api/v1/namespaces/default/services",
            json!({"metadata": {"name": "x"}, "spec": {"ports": "no"}}),
            400,
            bad,
            "cannot unmarshal string",
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn patches_that_cannot_be() {
    let patch =
        |media, body: &str, code, reason, said| ("PATCH", ONE, media, bytes(body), code, reason, said);
    let bad = "BadRequest";
    let (invalid, unknown) = ("Invalid", "UnsupportedMediaType");
    check(vec![
        patch(JSON_PATCH, "", 400, bad, ""),
        patch(JSON_PATCH, "{}", 400, bad, ""),
        patch(JSON_PATCH, "[{}]", 422, invalid, ""),
        patch(JSON_PATCH, "[{\"op\":\"fly\",\"path\":\"/a\"}]", 422, invalid, ""),
        patch(JSON_PATCH, "[{\"op\":\"remove\",\"path\":\"/none/at/all\"}]", 422, invalid, ""),
        patch(JSON_PATCH, "[{\"op\":\"test\",\"path\":\"/data/a\",\"value\":\"no\"}]", 422, invalid, ""),
        patch(JSON_PATCH, "[{\"op\":\"replace\",\"path\":\"/metadata/name\",\"value\":\"b\"}]", 400, bad, ""),
        patch(JSON_PATCH, "[{\"op\":\"replace\",\"path\":\"\",\"value\":[]}]", 400, bad, ""),
        patch(JSON_PATCH, "[{\"op\":\"add\",\"path\":\"/data\",\"value\":7}]", 422, invalid, ""),
        patch(MERGE, "", 400, bad, ""),
        patch(MERGE, "[]", 400, bad, ""),
        patch(MERGE, "{\"data\":{\"a\":{\"b\":1}}}", 422, invalid, ""),
        patch(
            MERGE,
            "{\"metadata\":{\"uid\":\"other\"}}",
            422,
            invalid,
            "metadata.uid: Invalid value: \"other\": field is immutable",
        ),
        patch(MERGE, "{\"metadata\":{\"resourceVersion\":\"1\"}}", 409, "Conflict", ""),
        patch(MERGE, "{\"metadata\":{\"labels\":{\"a b\":\"c\"}}}", 422, invalid, "metadata.labels"),
        patch(
            MERGE,
            "{\"type\":\"other\"}",
            422,
            invalid,
            "type: Invalid value: \"other\": field is immutable",
        ),
        patch(MERGE, &"{\"a\":".repeat(20_000), 400, bad, ""),
        patch(STRATEGIC, "", 400, bad, ""),
        patch(STRATEGIC, "[]", 400, bad, ""),
        patch(STRATEGIC, "{\"metadata\":{\"finalizers\":{\"a\":1}}}", 422, invalid, ""),
        patch(STRATEGIC, "{\"$patch\":\"fly\"}", 500, "", "unknown patch type: fly"),
        patch(APPLY, "", 422, invalid, "fieldManager: Required value: is required for apply patch"),
        patch("application/json", "{}", 415, unknown, ""),
        patch("text/html", "{}", 415, unknown, ""),
        patch("", "{}", 415, unknown, ""),
    ])
    .await;
    let apply =
        |path, body: &str, code, reason, said| ("PATCH", path, APPLY, bytes(body), code, reason, said);
    let mine = "/api/v1/namespaces/default/secrets/a?fieldManager=me";
    check(vec![
        apply(mine, "", 400, bad, ""),
        apply(mine, "[1]", 400, bad, ""),
        apply(mine, "a: b: c", 400, bad, ""),
        apply(mine, "apiVersion: v1\nkind: Pod\nmetadata: {name: a}", 400, bad, ""),
        apply(mine, "apiVersion: v2\nkind: Secret\nmetadata: {name: a}", 400, bad, ""),
        apply(mine, "apiVersion: v1\nkind: Secret\nmetadata: {name: b}", 400, bad, ""),
        apply(mine, "apiVersion: v1\nkind: Secret\nmetadata: {name: a, managedFields: [{}]}", 400, bad, ""),
        apply(mine, &"[".repeat(20_000), 400, bad, ""),
        (
            "PATCH",
            "/api/v1/namespaces/default/secrets/none",
            MERGE,
            bytes("{}"),
            404,
            "NotFound",
            "secrets \"none\" not found",
        ),
        ("PATCH", SECRETS, MERGE, bytes("{}"), 405, "MethodNotAllowed", ""),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::too_many_lines, reason = "a table")]
async fn questions_that_make_no_sense() {
    let get = |path, code, reason, said| ("GET", path, "", Vec::new(), code, reason, said);
    let bad = "BadRequest";
    check(vec![
        get("/api/v1/secrets?labelSelector=a%20b", 400, bad, ""),
        get("/api/v1/secrets?labelSelector=%3D%3D%3D", 400, bad, ""),
        get("/api/v1/secrets?labelSelector=a%20in%20(", 400, bad, ""),
        get("/api/v1/secrets?labelSelector=a%20in%20()%20in%20()", 400, bad, ""),
        get("/api/v1/secrets?labelSelector=%FF", 400, bad, ""),
        get("/api/v1/secrets?fieldSelector=a", 400, bad, ""),
        get("/api/v1/secrets?fieldSelector=status.x%3Dy", 400, bad, "field label not supported: status.x"),
        get("/api/v1/secrets?fieldSelector=%3D%3D%3D", 400, bad, ""),
        get("/api/v1/secrets?limit=abc", 400, bad, ""),
        get("/api/v1/secrets?limit=99999999999999999999", 400, bad, ""),
        get("/api/v1/secrets?timeoutSeconds=abc", 400, bad, ""),
        get("/api/v1/secrets?continue=!!!", 400, bad, "continue key is not valid"),
        get("/api/v1/secrets?continue=e30", 400, bad, "continue key is not valid"),
        get(
            "/api/v1/secrets?continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEiLCJydiI6OTk5OTk5OTk5LCJzdGFydCI6ImEvYiJ9",
            504,
            "Timeout",
            "",
        ),
        get("/api/v1/secrets?resourceVersion=-1", 400, bad, ""),
        get("/api/v1/secrets?resourceVersion=99999999999999999999999", 400, bad, ""),
        get("/api/v1/secrets?watch=1&resourceVersion=abc", 400, bad, ""),
        get("/api/v1/namespaces/default/secrets/none", 404, "NotFound", "secrets \"none\" not found"),
        get("/api/v1/namespaces/nope/secrets/none", 404, "NotFound", "secrets \"none\" not found"),
        get("/api/v1/nothings", 404, "NotFound", "the server could not find the requested resource"),
        get("/api/v2/secrets", 404, NO_STATUS, ""),
        get("/apis/none/v1/secrets", 404, NO_STATUS, ""),
        get("/apis/none", 404, NO_STATUS, ""),
        get("/api/v1/namespaces/default/secrets/a/none", 404, "NotFound", ""),
        get("/api/v1/namespaces/default/secrets/a/status", 404, "NotFound", ""),
        get("/api/v1/namespaces/default/secrets/a/b/c/d/e", 404, "NotFound", ""),
        get("/none", 404, NO_STATUS, ""),
        get("/api/v1/namespaces/default/secrets/%FF%FE", 404, "NotFound", ""),
        get("/api/v1/namespaces/default/secrets/..%2F..%2Fnamespaces%2Fdefault", 404, "NotFound", ""),
        get("/api/v1/namespaces/%2E%2E/secrets/a", 404, "NotFound", ""),
        get("/openapi/v3/none", 404, NO_STATUS, ""),
        get("/healthz/none", 404, NO_STATUS, ""),
        ("DELETE", "/api/v1/namespaces/default/secrets/none", "", Vec::new(), 404, "NotFound", ""),
        ("DELETE", "/api/v1/namespaces/default/secrets/a", PLAIN, bytes("{"), 400, bad, ""),
        (
            "DELETE",
            "/api/v1/namespaces/default/secrets/a",
            PLAIN,
            bytes("{\"gracePeriodSeconds\":\"x\"}"),
            400,
            bad,
            "cannot unmarshal string into Go struct field DeleteOptions.gracePeriodSeconds",
        ),
        (
            "DELETE",
            "/api/v1/namespaces/default/secrets/a",
            PLAIN,
            bytes("{\"kind\":\"Pod\",\"apiVersion\":\"v1\"}"),
            400,
            bad,
            "",
        ),
        ("DELETE", "/api/v1/namespaces/default/secrets/a?gracePeriodSeconds=x", "", Vec::new(), 400, bad, ""),
        ("DELETE", "/api/v1/namespaces/default/secrets?labelSelector=a%20b", "", Vec::new(), 400, bad, ""),
        ("PUT", "/api/v1/namespaces/default/secrets", PLAIN, bytes("{}"), 405, "MethodNotAllowed", ""),
        ("POST", "/api/v1/namespaces/default/secrets/a", PLAIN, bytes("{}"), 405, "MethodNotAllowed", ""),
        ("OPTIONS", "/api/v1/namespaces/default/secrets/a", "", Vec::new(), 405, "MethodNotAllowed", ""),
        ("TRACE", "/api/v1/namespaces/default/secrets/a", "", Vec::new(), 405, "MethodNotAllowed", ""),
        ("FLY", "/api/v1/namespaces/default/secrets/a", "", Vec::new(), 405, "MethodNotAllowed", ""),
        ("POST", "/version", PLAIN, bytes("{}"), 405, "MethodNotAllowed", ""),
        ("POST", "/apis/apps", PLAIN, bytes("{}"), 405, "MethodNotAllowed", ""),
        ("GET", "/apis/authentication.k8s.io/v1/tokenreviews", "", Vec::new(), 405, "MethodNotAllowed", ""),
        (
            "POST",
            "/apis/authentication.k8s.io/v1/tokenreviews",
            PLAIN,
            bytes("{}"),
            400,
            bad,
            "token is required for TokenReview",
        ),
        (
            "POST",
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            PLAIN,
            bytes("{}"),
            422,
            "Invalid",
            "",
        ),
    ])
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn answers_nobody_can_give() {
    let hub = Hub::start().await;
    for accept in ["text/html", "application/cbor", "application/json;as=Poem;v=v1;g=meta.k8s.io", "x"] {
        let said =
            hub.admin.send("GET", SECRETS, &[("accept", accept)], "").await.refused(406, "NotAcceptable");
        assert!(said.starts_with("only the following media types are accepted: application/json"), "{said}");
    }
    let table = "application/json;as=Table;v=v1;g=meta.k8s.io";
    let path = format!("{SECRETS}?includeObject=Some");
    hub.admin.send("GET", &path, &[("accept", table)], "").await.refused(400, "BadRequest");
    hub.stop().await;
}
