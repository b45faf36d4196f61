//! Input that no good client sends: each gets the right `Status`, nothing changes, the hub lives on.
//!
//! `bad_input.txt` has it all, and says how to read it.

use std::path::PathBuf;

use serde_json::{Value, json};

use crate::support::{Answer, Asker, Hub, SECRETS, secret};

const TABLE: &str = include_str!("bad_input.txt");
const HERE: &str = "/api/v1/namespaces/default";

/// Short words for media types.
const MEDIA: &[(&str, &str)] = &[
    ("-", ""),
    ("json", "application/json"),
    ("yaml", "application/yaml"),
    ("protobuf", "application/vnd.kubernetes.protobuf"),
    ("merge", "application/merge-patch+json"),
    ("json-patch", "application/json-patch+json"),
    ("strategic", "application/strategic-merge-patch+json"),
    ("apply", "application/apply-patch+yaml"),
];

/// One request and what must come of it.
struct Case {
    method: &'static str,
    path: String,
    media: &'static str,
    body: Vec<u8>,
    code: u16,
    reason: &'static str,
    said: &'static str,
}

/// The cases below a title.
fn cases(title: &str) -> Vec<Case> {
    let section = TABLE.split("\n## ").find_map(|text| text.strip_prefix(title)?.strip_prefix('\n'));
    let mut cases: Vec<Case> = Vec::new();
    for line in
        section.unwrap_or_else(|| panic!("no section {title}")).lines().filter(|line| !line.is_empty())
    {
        match (line.strip_prefix("    "), cases.last_mut()) {
            (Some(text), Some(case)) => case.body = body(text),
            _ => cases.push(case(line)),
        }
    }
    cases
}

fn case(line: &'static str) -> Case {
    let mut words = line.splitn(6, ' ');
    let mut word = || words.next().unwrap_or_else(|| panic!("too short: {line}"));
    let (method, path, media) = (word(), word().replace('…', HERE), word());
    let (code, reason) = (word().parse().unwrap(), word());
    let media = MEDIA.iter().find(|(short, _)| *short == media).map_or(media, |(_, long)| *long);
    let reason = if reason == "-" { "" } else { reason };
    Case { method, path, media, body: Vec::new(), code, reason, said: words.next().unwrap_or("") }
}

fn body(text: &str) -> Vec<u8> {
    match text {
        "@yaml-bomb" => yaml_bomb().into_bytes(),
        "@nested-protobuf" => nested_protobuf(5_000),
        text => bytes(&unfold(text)),
    }
}

/// With every `⟨N×text⟩` N times.
fn unfold(text: &str) -> String {
    let Some((before, rest)) = text.split_once('⟨') else { return text.to_owned() };
    let (inner, after) = rest.split_once('⟩').unwrap();
    let (times, what) = inner.split_once('×').unwrap();
    [before, &what.repeat(times.parse().unwrap()), &unfold(after)].concat()
}

/// With every `\xNN` as one byte.
fn bytes(text: &str) -> Vec<u8> {
    let mut parts = text.split("\\x");
    let mut all = parts.next().unwrap_or("").as_bytes().to_vec();
    for part in parts {
        let (number, rest) = part.split_at(2);
        all.push(u8::from_str_radix(number, 16).unwrap());
        all.extend(rest.as_bytes());
    }
    all
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
fn peer() -> Option<PathBuf> {
    std::env::var_os("LANDFALL_PEER").map(Into::into)
}

/// What is wrong with an answer; none when it is as it should be.
fn wrong(case: &Case, answer: &Answer) -> Option<String> {
    let got = (answer.code, answer.body["reason"].as_str().unwrap_or(""));
    let message = answer.body["message"].as_str().unwrap_or("");
    let plain = answer.body["kind"] != "Status";
    let right = got == (case.code, case.reason)
        && message.contains(case.said)
        && plain == (case.code == 404 && case.reason.is_empty());
    let Case { method, path, media, code, reason, said, .. } = case;
    let shown = String::from_utf8_lossy(&case.body[..case.body.len().min(80)]);
    (!right).then(|| {
        let (asked, wanted) = (format!("{method} {path} {media} {shown}"), format!("{code} {reason} {said}"));
        format!("{asked}\n  want {wanted}\n  got  {} {}", answer.code, answer.body)
    })
}

async fn check(title: &str) {
    let hub = Hub::start().await;
    let other = match peer() {
        Some(kubeconfig) => Some(Asker::of(&kubeconfig).await),
        None => None,
    };
    let ask = other.as_ref().unwrap_or(&hub.admin);
    ask.delete(&format!("{SECRETS}/a")).await;
    ask.post(SECRETS, &secret("a", &json!({}))).await.ok();
    let before = state(ask).await;
    let mut all_wrong = Vec::new();
    for case in cases(title) {
        let headers = [("content-type", case.media)];
        let headers = if case.media.is_empty() { &headers[..0] } else { &headers[..] };
        let answer = ask.send(case.method, &case.path, headers, case.body.clone()).await;
        all_wrong.extend(wrong(&case, &answer));
    }
    assert!(all_wrong.is_empty(), "{}", all_wrong.join("\n"));
    assert_eq!(state(ask).await, before, "nothing changed");
    assert_eq!(ask.get("/readyz").await.code, 200);
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bodies_that_are_no_objects() {
    check("bodies that are no objects").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_that_do_not_belong() {
    check("objects that do not belong").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn patches_that_cannot_be() {
    check("patches that cannot be").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn questions_that_make_no_sense() {
    check("questions that make no sense").await;
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
