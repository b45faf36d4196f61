//! What others can see of requests: lines of the access log, and spans of traces.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use landfall_api::landfall::{FixedResponseAction, RouteAction, RouteMatch, Timeouts};
use landfall_proxy::{AccessLog, Collect, Config, LogTo};
use parking_lot::Mutex;
use serde_json::Value;
use tokio::io::AsyncReadExt as _;
use tokio::io::AsyncWriteExt as _;

use crate::support::backend::{self, Backend};
use crate::support::raw::{ask, get};
use crate::support::{OWN, Rig};

#[tokio::test]
async fn every_line_of_the_access_log_says_why() {
    let (dir, backend) = (tempfile::tempdir().unwrap(), Backend::new("one").await);
    let file = dir.path().join("access.log");
    let config = |which: AccessLog| Config {
        access_log: which,
        access_log_to: LogTo::File(file.clone()),
        ..Config::default()
    };
    let rig = Rig::with_config(&[backend.address], config(AccessLog::Sampled(1)));
    let at = rig.address();
    get(at, "shop.example", "/a?secret=1").await;
    ask(at, "POST /b HTTP/1.1\r\nhost: a\r\ncontent-length: 2\r\n\r\nhi").await.unwrap();
    rig.stop().await;
    let nobody = backend::nobody().await;
    let rig = Rig::with_config(&[nobody], config(AccessLog::Errors));
    assert_eq!(get(rig.address(), "a", "/c").await.status, 502);
    rig.stop().await;
    let rig = Rig::with_config(&[backend.address], config(AccessLog::Errors));
    get(rig.address(), "a", "/not-written").await;
    rig.stop().await;
    let lines = lines(&file, 3).await;
    let endpoint = backend.address.to_string();
    for (line, wanted) in lines.iter().zip([
        serde_json::json!({"method": "GET", "host": "shop.example", "path": "/a", "status": 200, "cluster": OWN,
            "endpoint": endpoint, "why": "Local", "route": "shop/web", "service": "shop/web", "retries": 0,
            "client": "127.0.0.1", "edge": "paris-1"}),
        serde_json::json!({"method": "POST", "path": "/b", "status": 200, "why": "Local", "endpoint": endpoint}),
        serde_json::json!({"method": "GET", "path": "/c", "status": 502, "fault": "no connection could be made"}),
    ]) {
        for (name, value) in wanted.as_object().unwrap() {
            assert_eq!(&line[name], value, "{name} of {line}");
        }
        assert!(line["tookMs"].is_number() && line["time"].as_str().unwrap().ends_with('Z'), "{line}");
    }
    assert_eq!(lines.len(), 3, "what went well is not among the errors");
}

/// Whom a request was asked of in vain is told, of those alone that were asked more than once if that is wanted.
#[tokio::test]
async fn the_log_tells_who_was_asked_in_vain() {
    let (dir, backend) = (tempfile::tempdir().unwrap(), Backend::new("one").await);
    let file = dir.path().join("access.log");
    let to = LogTo::File(file.clone());
    let config = Config { access_log: AccessLog::Retried, access_log_to: to, ..Config::default() };
    let broken = backend::script(|mut stream| async move {
        backend::read_head(&mut stream).await;
    })
    .await;
    let rig = Rig::with_config(&[backend.address, broken], config);
    // The less busy of two is asked: some come to the one that closes, until it is left out.
    let mut sent = 0;
    while sent < 30 || std::fs::read_to_string(&file).unwrap().is_empty() {
        let request = format!("DELETE /{sent} HTTP/1.1\r\nhost: a\r\n\r\n");
        assert_eq!(ask(rig.address(), &request).await.unwrap().status, 200);
        sent += 1;
    }
    rig.stop().await;
    let lines = lines(&file, 1).await;
    assert!(lines.len() < backend.requests(), "those that went well are not told of");
    for line in lines {
        assert_eq!((&line["status"], &line["tried"]), (&200.into(), &serde_json::json!([OWN])), "{line}");
        assert_eq!(
            (&line["retries"], &line["endpoint"]),
            (&1.into(), &backend.address.to_string().into()),
            "{line}"
        );
    }
}

/// The lines of an access log, as soon as there are so many.
async fn lines(file: &Path, many: usize) -> Vec<Value> {
    loop {
        let text = std::fs::read_to_string(file).unwrap();
        if text.lines().count() >= many {
            return text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        }
        tokio::task::yield_now().await;
    }
}

/// A long answer that broke off had begun with 200, and was no error to the log.
#[tokio::test]
async fn answers_that_break_off_and_those_that_never_come_are_errors_of_the_log() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("access.log");
    let short = backend::bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi", false).await;
    let long = backend::bytes(b"HTTP/1.1 200 OK\r\ncontent-length: 99999\r\n\r\nhi", false).await;
    let silent = backend::bytes(b"", true).await;
    let garbage = backend::bytes(b"SSH-2.0-OpenSSH_9.2\r\n", false).await;
    let to = LogTo::File(file.clone());
    let config = Config { access_log: AccessLog::Errors, access_log_to: to, ..Config::default() };
    let mut rig = Rig::with_config(&[short], config);
    rig.route("slow", "slow", "/", RouteMatch::Prefix, "slow");
    rig.route("long", "long", "/", RouteMatch::Prefix, "long");
    rig.route("garbage", "garbage", "/", RouteMatch::Prefix, "garbage");
    rig.serve("garbage", &[garbage], |_| {});
    rig.serve("long", &[long], |_| {});
    rig.serve("slow", &[silent], |plan| {
        plan.timeouts = Some(Timeouts { idle_ms: Some(300), ..Timeouts::default() });
    });
    rig.follow();
    let at = rig.address();
    assert!(ask(at, "GET /get HTTP/1.1\r\nhost: long\r\n\r\n").await.is_none());
    assert!(ask(at, "POST /post HTTP/1.1\r\nhost: long\r\ncontent-length: 0\r\n\r\n").await.is_none());
    // Nobody has seen anything of a short one.
    for request in ["GET /short-get HTTP/1.1\r\n", "POST /short-post HTTP/1.1\r\ncontent-length: 0\r\n"] {
        assert_eq!(ask(at, &format!("{request}host: a\r\n\r\n")).await.unwrap().status, 502);
    }
    assert_eq!(get(at, "slow", "/wait").await.status, 504);
    assert_eq!(get(at, "garbage", "/garbage").await.status, 502);
    let broke_off = "the answer broke off: the sender is gone";
    let mut got: Vec<String> = Vec::new();
    for line in lines(&file, 6).await {
        got.push(format!("{} {} {}", line["path"], line["status"], line["fault"]));
    }
    got.sort();
    assert_eq!(
        got,
        [
            "\"/garbage\" 502 \"the answer is not HTTP\"".to_owned(),
            format!("\"/get\" 200 \"{broke_off}\""),
            format!("\"/post\" 200 \"{broke_off}\""),
            "\"/short-get\" 502 \"the answer broke off\"".to_owned(),
            "\"/short-post\" 502 \"the answer broke off\"".to_owned(),
            "\"/wait\" 504 \"no answer in time\"".to_owned(),
        ]
    );
    rig.stop().await;
}

#[tokio::test]
async fn answers_of_our_own_are_written_down_and_counted() {
    let (dir, backend) = (tempfile::tempdir().unwrap(), Backend::new("one").await);
    let file = dir.path().join("access.log");
    let to = LogTo::File(file.clone());
    let config = Config { access_log: AccessLog::Sampled(1), access_log_to: to, ..Config::default() };
    let mut rig = Rig::with_config(&[backend.address], config);
    rig.world.routes.clear();
    let fixed = FixedResponseAction { status_code: 418, ..FixedResponseAction::default() };
    let fixed = RouteAction { fixed_response: Some(Box::new(fixed)), ..RouteAction::default() };
    rig.act("tea", "a", "/tea", RouteMatch::Prefix, fixed);
    let gone = RouteAction { unavailable: Some("it has no port".to_owned()), ..RouteAction::default() };
    rig.act("gone", "a", "/gone", RouteMatch::Prefix, gone);
    rig.follow();
    let at = rig.address();
    for (path, status) in [("/tea", 418), ("/gone", 503), ("/lost", 404), ("/%zz", 400)] {
        assert_eq!(get(at, "a", path).await.status, status);
    }
    let mut got = Vec::new();
    for line in lines(&file, 4).await {
        got.push(format!("{} {} {} {}", line["path"], line["status"], line["route"], line["fault"]));
    }
    assert_eq!(
        got,
        [
            "\"/tea\" 418 \"shop/tea\" null",
            "\"/gone\" 503 \"shop/gone\" \"it has no port\"",
            "\"/lost\" 404 null \"no route leads there\"",
            "\"/%zz\" 400 null \"that is no path\"",
        ]
    );
    let counted = rig.registry.render();
    for row in [
        "requests_total{route=\"shop/tea\",service=\"\",cluster=\"\",code=\"4xx\"} 1",
        "requests_total{route=\"shop/gone\",service=\"\",cluster=\"\",code=\"5xx\"} 1",
        "requests_total{route=\"\",service=\"\",cluster=\"\",code=\"4xx\"} 2",
        "landfall_proxy_unmatched_total 1",
        "landfall_proxy_refused_total 1",
    ] {
        assert!(counted.contains(row), "{row} in {counted}");
    }
    rig.stop().await;
}

/// A collector of traces: what it is sent, as it is.
async fn collector() -> (SocketAddr, Arc<Mutex<Vec<Value>>>) {
    let got: Arc<Mutex<Vec<Value>>> = Arc::default();
    let keeps = got.clone();
    let at = backend::script(move |mut stream| {
        let keeps = keeps.clone();
        async move {
            let head = backend::read_head(&mut stream).await.to_ascii_lowercase();
            assert!(head.starts_with("post /base/v1/traces http/1.1\r\n"), "{head}");
            assert!(head.contains("content-type: application/json\r\n"), "{head}");
            let length =
                head.split("content-length: ").nth(1).unwrap().lines().next().unwrap().parse().unwrap();
            let mut body = vec![0; length];
            stream.read_exact(&mut body).await.unwrap();
            keeps.lock().push(serde_json::from_slice(&body).unwrap());
            let answer = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 2\r\n\r\n{}";
            stream.write_all(answer).await.unwrap();
        }
    })
    .await;
    (at, got)
}

fn spans(got: &Mutex<Vec<Value>>) -> Vec<Value> {
    let all = got.lock();
    let of =
        |message: &Value| message["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().unwrap().clone();
    all.iter().flat_map(of).collect()
}

#[tokio::test]
async fn a_recorded_trace_gets_our_span_and_others_pass_as_they_came() {
    let (at, got) = collector().await;
    let backend = Backend::new("one").await;
    let collect = |one_of: u32| Some(Collect { url: format!("http://{at}/base/"), one_of });
    let rig = Rig::with_config(&[backend.address], Config { collector: collect(0), ..Config::default() });
    let trace = "4bf92f3577b34da6a3ce929d0e0e4736";
    let send = async |parent: &str| {
        let request =
            format!("GET /x HTTP/1.1\r\nhost: a\r\ntraceparent: {parent}\r\ntracestate: v=1\r\n\r\n");
        ask(rig.address(), &request).await.unwrap()
    };
    let answer = send(&format!("00-{trace}-00f067aa0ba902b7-01")).await;
    let ours = answer.got("traceparent").unwrap().to_owned();
    assert!(ours.starts_with(&format!("00-{trace}-")) && ours.ends_with("-01"), "{ours}");
    assert!(!ours.contains("00f067aa0ba902b7") && answer.got("tracestate") == Some("v=1"), "{ours}");
    for quiet in [format!("00-{trace}-00f067aa0ba902b7-00"), "nonsense".to_owned()] {
        assert_eq!(send(&quiet).await.got("traceparent"), Some(quiet.as_str()));
    }
    let span = loop {
        if let Some(span) = spans(&got).first() {
            break span.clone();
        }
        tokio::task::yield_now().await;
    };
    let ours = ours.split('-').nth(2).unwrap();
    assert_eq!((&span["traceId"], &span["spanId"]), (&Value::from(trace), &Value::from(ours)));
    assert_eq!((&span["parentSpanId"], &span["kind"]), (&Value::from("00f067aa0ba902b7"), &Value::from(2)));
    let text = span["attributes"].to_string();
    for part in ["\"url.path\"", "\"/x\"", "\"landfall.why\"", "\"Local\"", "\"landfall.cluster\"", "\"200\""]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    rig.stop().await;
    assert_eq!(spans(&got).len(), 1, "only what is recorded is told of");

    // Where one of so many begins a trace, all do if that is one of one.
    got.lock().clear();
    let rig = Rig::with_config(&[backend.address], Config { collector: collect(1), ..Config::default() });
    let answer = get(rig.address(), "a", "/root").await;
    let began = answer.got("traceparent").unwrap().to_owned();
    let span = loop {
        if let Some(span) = spans(&got).first() {
            break span.clone();
        }
        tokio::task::yield_now().await;
    };
    assert!(
        began.contains(span["traceId"].as_str().unwrap()) && span.get("parentSpanId").is_none(),
        "{span}"
    );
    rig.stop().await;
}

#[tokio::test]
async fn a_collector_that_is_away_holds_up_nobody() {
    let (backend, nobody) = (Backend::new("one").await, backend::nobody().await);
    let collector = Some(Collect { url: format!("http://{nobody}"), one_of: 1 });
    let rig = Rig::with_config(&[backend.address], Config { collector, ..Config::default() });
    for _ in 0..20 {
        assert_eq!(get(rig.address(), "a", "/").await.status, 200);
    }
    while rig.registry.render().contains("landfall_proxy_spans_dropped_total 0\n") {
        get(rig.address(), "a", "/").await;
    }
    rig.stop().await;
}
