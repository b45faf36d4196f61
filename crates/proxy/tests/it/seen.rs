//! What others can see of requests: lines of the access log, and spans of traces.

use std::net::SocketAddr;
use std::sync::Arc;

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
    let lines = loop {
        let text = std::fs::read_to_string(&file).unwrap();
        if text.lines().count() >= 3 {
            break text;
        }
        tokio::task::yield_now().await;
    };
    let lines: Vec<Value> = lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
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
