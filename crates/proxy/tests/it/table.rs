//! The live table, as an edge tells it: what is compiled, where it leads, and how each endpoint fares.

use std::sync::Arc;

use landfall_api::landfall::{FixedResponseAction, Outlier, Retries, RouteAction, RouteMatch};
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::support::backend::{self, nobody};
use crate::support::raw::{Client, ask, get};
use crate::support::{OWN, Rig, key, plan};

const GET: &str = "GET / HTTP/1.1\r\nhost: a.example\r\n\r\n";

/// The endpoints of the own member.
fn endpoints(table: &Value) -> &Vec<Value> {
    table["services"][0]["clusters"][0]["endpoints"].as_array().unwrap()
}

#[tokio::test]
async fn the_table_tells_hosts_paths_clusters_and_endpoints_as_they_are_now() {
    let ((go, gone), (came, mut comes)) = (tokio::sync::watch::channel(false), tokio::sync::mpsc::channel(8));
    let slow = backend::script(move |mut stream| {
        let (mut gone, came) = (gone.clone(), came.clone());
        async move {
            while !backend::read_head(&mut stream).await.is_empty() {
                let _ = came.send(()).await;
                let _ = gone.wait_for(|go| *go).await;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
            }
        }
    })
    .await;
    let mut rig = Rig::with(&[slow]);
    rig.world.routes.clear();
    rig.route("web", "a.example", "/", RouteMatch::Prefix, "web");
    rig.route("wild", "*.example", "/deep/", RouteMatch::Prefix, "web");
    let teapot = FixedResponseAction { status_code: 418, body: None, content_type: None };
    let action = RouteAction { fixed_response: Some(Box::new(teapot)), ..RouteAction::default() };
    rig.act("tea", "a.example", "/tea", RouteMatch::Exact, action);
    let two = plan(&[(OWN, 0.75, &[]), ("rome", 0.25, &["127.94.9.1"])]);
    rig.world.plans.insert(key("web"), Arc::new(two));
    rig.follow();
    let table = rig.proxy.table();
    let web = json!({"service": "shop/web", "port": 80});
    assert_eq!(
        table["hosts"],
        json!([
            {"host": "*.example", "paths": [{"path": "/deep", "match": "Prefix", "plan": "shop/wild", "to": web}]},
            {"host": "a.example", "paths": [
                {"path": "/tea", "match": "Exact", "plan": "shop/tea", "to": {"status": 418}},
                {"path": "/", "match": "Prefix", "plan": "shop/web", "to": web},
            ]},
        ])
    );
    let clusters = &table["services"][0]["clusters"];
    assert_eq!(
        (&clusters[0]["cluster"], &clusters[0]["fraction"]),
        (&json!(OWN), &json!(0.75)),
        "{clusters}"
    );
    assert_eq!((&clusters[1]["cluster"], &clusters[1]["own"]), (&json!("rome"), &json!(false)), "{clusters}");
    assert_eq!(clusters[1]["endpoints"][0]["address"], "127.94.9.1:80");
    let alone = plan(&[(OWN, 1.0, &[])]);
    rig.world.plans.insert(key("web"), Arc::new(alone));
    rig.follow();
    // Requests in flight, over all threads and by both ways.
    let mut busy = Vec::new();
    for request in [GET, "DELETE / HTTP/1.1\r\nhost: a.example\r\n\r\n", GET] {
        let mut client = Client::new(rig.address()).await;
        client.send(request.as_bytes()).await;
        comes.recv().await.unwrap();
        busy.push(client);
    }
    let table = rig.proxy.table();
    assert_eq!(endpoints(&table), &vec![json!({"address": slow.to_string(), "inFlight": 3, "failures": 0})]);
    go.send_replace(true);
    for client in &mut busy {
        assert_eq!(client.answer().await.unwrap().status, 200);
    }
    while endpoints(&rig.proxy.table())[0]["inFlight"] != 0 {
        tokio::task::yield_now().await;
    }
    rig.stop().await;
}

#[tokio::test]
async fn the_table_tells_who_is_left_out() {
    let nobody = nobody().await;
    let mut rig = Rig::with(&[nobody]);
    rig.serve("web", &[nobody], |plan| {
        plan.outlier =
            Some(Outlier { consecutive_errors: Some(1), ejection_seconds: Some(600), ..Outlier::default() });
        plan.retries = Some(Retries { attempts: Some(0), budget_percent: None });
    });
    rig.follow();
    assert_eq!(endpoints(&rig.proxy.table())[0]["outForMs"], Value::Null);
    assert_eq!(get(rig.address(), "a", "/").await.status, 502);
    let table = rig.proxy.table();
    assert!(endpoints(&table)[0]["outForMs"].as_u64().unwrap() > 0, "{table}");
    assert!(endpoints(&table)[0]["failures"].as_u64().unwrap() > 0, "{table}");
    assert_eq!(ask(rig.address(), GET).await.unwrap().status, 502, "what is left is tried");
    rig.stop().await;
}
