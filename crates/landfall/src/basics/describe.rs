//! `landfall describe`: an object as an outline, and the events about it.

use anyhow::Result;
use landfall_api::meta;
use serde_json::Value;

use super::kinds::Kinds;
use super::options::DescribeOptions;
use super::target::{Target, escape};
use super::{get, outline, print, table};

const JSON: &str = "application/json";

pub(super) async fn run(options: &DescribeOptions, target: &Target) -> Result<()> {
    let kinds = Kinds::ask(target).await?;
    let mut first = true;
    for (served, name) in get::asked(&kinds, &options.what)? {
        let path = served.path(&target.namespace, &name);
        let path =
            if name.is_empty() { get::with_selector(&path, options.selector.as_deref()) } else { path };
        for (_, object) in get::objects(served, &target.get(&path, JSON).await?) {
            if !std::mem::replace(&mut first, false) {
                print("\n\n");
            }
            print(&outline::render(&object));
            print(&events(&object, target).await?);
        }
    }
    if first {
        print("No resources found.\n");
    }
    Ok(())
}

/// The events about an object, oldest first.
async fn events(object: &Value, target: &Target) -> Result<String> {
    let uid = object.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default();
    let own = meta::namespace(object);
    // Events about what has no namespace are kept in this one.
    let namespace = if own.is_empty() { "default" } else { own };
    let selector = escape(&format!("involvedObject.uid={uid}"));
    let path = format!("/api/v1/namespaces/{}/events?fieldSelector={selector}", escape(namespace));
    let found = target.get(&path, JSON).await?;
    let mut events: Vec<&Value> =
        found.get("items").and_then(Value::as_array).into_iter().flatten().collect();
    if events.is_empty() {
        return Ok("Events:  <none>\n".into());
    }
    let text =
        |event: &Value, key: &str| event.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    events.sort_by_key(|event| text(event, "lastTimestamp"));
    let mut lines = vec![["  Type", "Reason", "Last seen", "From", "Message"].map(String::from).to_vec()];
    for event in events {
        let from = event.pointer("/source/component").and_then(Value::as_str).unwrap_or_default();
        lines.push(vec![
            format!("  {}", text(event, "type")),
            text(event, "reason"),
            text(event, "lastTimestamp"),
            from.to_owned(),
            text(event, "message"),
        ]);
    }
    Ok(format!("Events:\n{}", table::align(&lines)))
}
