//! What the log holds after requests.

use serde_json::{Value, json};

use super::*;
use landfall_api::Reason;

fn lines(path: &std::path::Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

fn finished<'a>(
    note: &'a Note,
    asked: &'a Attributes<'a>,
    headers: &'a HeaderMap,
    refusal: Option<&'a Status>,
) -> Finished<'a> {
    Finished {
        note,
        asked,
        uri: "/api/v1/namespaces/dev/secrets?dryRun=All",
        headers,
        peer: Some("::ffff:10.0.0.9".parse().expect("an address")),
        code: refusal.map_or(201, |status| status.reason.code()),
        refusal,
        began: Duration::from_micros(1_800_000_000_000_001),
        ended: Duration::from_micros(1_800_000_000_123_456),
    }
}

#[tokio::test]
async fn an_event_says_who_did_what() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = Config::new(dir.path().join("audit.log"));
    let (tasks, dropped) = (Tasks::default(), Arc::new(Counter::default()));
    let audit = Audit::open(&config, &tasks, Arc::clone(&dropped)).expect("a log");

    let user = User { name: "alice".into(), groups: vec!["dev".into()], ..User::default() };
    let mut note = Note { user: Some(Arc::new(user.clone())), ..Note::default() };
    note.decision(&Verdict::Allowed(Some("RBAC: allowed by …".into())));
    let mut headers = HeaderMap::new();
    for (name, value) in [("audit-id", "abc"), ("user-agent", "kubectl"), ("x-forwarded-for", "1.2.3.4, bad")]
    {
        headers.insert(name, value.parse().expect("a value"));
    }
    let asked =
        Attributes { version: "v1", ..Attributes::resource(&user, "create", "", "secrets", "dev", "") };
    audit.record(&finished(&note, &asked, &headers, None));

    let refusal = Status::new(Reason::Forbidden, "no");
    let mut denied = Note { user: note.user.clone(), ..Note::default() };
    denied.impersonated = Some(Arc::new(User { name: "bob".into(), ..User::default() }));
    denied.constraint = "impersonate:user-info";
    denied.decision(&Verdict::Denied(String::new()));
    let read = Attributes::resource(&user, "get", "", "secrets", "dev", "x");
    let none = HeaderMap::new();
    audit.record(&finished(&denied, &read, &none, Some(&refusal)));
    audit.record(&finished(&note, &read, &none, None));
    tasks.join().await;

    let events = lines(&config.path);
    assert_eq!(
        events[0],
        json!({
            "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata", "auditID": "abc",
            "stage": "ResponseComplete", "requestURI": "/api/v1/namespaces/dev/secrets?dryRun=All", "verb": "create",
            "user": {"username": "alice", "groups": ["dev"]}, "sourceIPs": ["1.2.3.4", "10.0.0.9"],
            "userAgent": "kubectl",
            "objectRef": {"resource": "secrets", "namespace": "dev", "apiVersion": "v1"},
            "responseStatus": {"metadata": {}, "code": 201},
            "requestReceivedTimestamp": "2027-01-15T08:00:00.000001Z",
            "stageTimestamp": "2027-01-15T08:00:00.123456Z",
            "annotations": {"authorization.k8s.io/decision": "allow",
                "authorization.k8s.io/reason": "RBAC: allowed by …"},
        })
    );
    assert_eq!(events.len(), 2, "an allowed read is not recorded");
    assert_eq!(events[1]["responseStatus"]["reason"], "Forbidden");
    assert_eq!(events[1]["annotations"]["authorization.k8s.io/decision"], "forbid");
    assert_eq!(events[1]["impersonatedUser"], json!({"username": "bob"}));
    assert_eq!(events[1]["authenticationMetadata"]["impersonationConstraint"], "impersonate:user-info");
    assert_eq!(events[1]["auditID"].as_str().map(str::len), Some(36));
    assert_eq!(dropped.get(), 0);
}

#[tokio::test]
async fn files_are_put_aside_and_only_some_are_kept() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = Config { bytes_max: 2000, files_max: 2, ..Config::new(dir.path().join("audit.log")) };
    let tasks = Tasks::default();
    let audit = Audit::open(&config, &tasks, Arc::default()).expect("a log");
    let user = User::default();
    let (note, headers) = (Note::default(), HeaderMap::new());
    let asked = Attributes::resource(&user, "create", "", "services", "dev", "");
    for _ in 0..100 {
        audit.record(&finished(&note, &asked, &headers, None));
    }
    tasks.join().await;
    let mut names: Vec<String> = std::fs::read_dir(dir.path())
        .expect("a directory")
        .flatten()
        .map(|entry| entry.file_name().into_string().expect("a name"))
        .collect();
    names.sort_unstable();
    assert_eq!(names, ["audit.log", "audit.log.1", "audit.log.2"]);
    for name in names {
        let path = dir.path().join(name);
        assert!(std::fs::metadata(&path).expect("a file").len() < 3000);
        lines(&path);
    }
}

#[tokio::test]
async fn a_full_queue_drops_and_counts() {
    let dir = tempfile::tempdir().expect("a directory");
    let config = Config { queue_max: 10, ..Config::new(dir.path().join("audit.log")) };
    let (tasks, dropped) = (Tasks::default(), Arc::new(Counter::default()));
    let audit = Audit::open(&config, &tasks, Arc::clone(&dropped)).expect("a log");
    let user = User::default();
    let (note, headers) = (Note::default(), HeaderMap::new());
    let asked = Attributes::resource(&user, "create", "", "services", "dev", "");
    // One thread runs the test: the writer has no turn before all records are made.
    for _ in 0..25 {
        audit.record(&finished(&note, &asked, &headers, None));
    }
    tasks.join().await;
    assert_eq!((lines(&config.path).len(), dropped.get()), (10, 15));
    audit.record(&finished(&note, &asked, &headers, None));
    assert_eq!(dropped.get(), 16, "after the end nothing is written, and that is counted");
}
