//! Members whose doors change: other keys, and answers that make no sense.

use base64::Engine as _;
use serde_json::{Value, json};

use super::member::{Member, Mood};
use super::world::World;
use super::{CONFIGMAPS, MEMBERS, configmap, counts};

const SECRET: &str = "/api/v1/namespaces/landfall-system/secrets";

fn credentials(token: &str) -> Value {
    let token = base64::engine::general_purpose::STANDARD.encode(token);
    json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "d"}, "data": {"token": token}})
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_credentials_are_used_at_once() {
    let mut world = World::new(&["a"]).await;
    let d = Member::start("d").await;
    d.is(Mood::Keyed("first"));
    world.post(SECRET, &credentials("first")).await;
    world.join_with(d, &json!({"credentials": {"name": "d"}})).await;
    let ready = async |world: &World| world.condition("d", "Ready").await["status"].clone();
    let there = async |world: &World, name: &str| world.count_in("d", "configmaps", name);
    world.becomes("ready", &json!("True"), ready).await;
    world.post(CONFIGMAPS, &configmap("one", "1")).await;
    world.becomes("there", &1, async |world| there(world, "one").await).await;

    world.member("d").is(Mood::Keyed("second"));
    world.becomes("locked out", &json!("False"), ready).await;
    world.post(CONFIGMAPS, &configmap("two", "1")).await;
    world.merge(&format!("{SECRET}/d"), &json!({"data": credentials("second")["data"]})).await;
    world.becomes("let in", &json!("True"), ready).await;
    world.becomes("there", &1, async |world| there(world, "two").await).await;
    world.stop().await;
}

/// Somebody else's web server stands where the member's API was: it says yes to everything, and means nothing.
#[tokio::test(flavor = "multi_thread")]
async fn what_makes_no_sense_is_not_believed() {
    let world = World::new(&MEMBERS).await;
    world.post(CONFIGMAPS, &configmap("old", "1")).await;
    world.becomes("everywhere", &[1; 3], async |world| counts(world, "old")).await;
    world.member("b").is(Mood::Senseless);
    world.member("b").writes();
    world
        .becomes("it says so", &json!("False"), async |world| {
            world.condition("b", "Ready").await["status"].clone()
        })
        .await;
    let message = world.condition("b", "Ready").await["message"].to_string();
    assert!(message.contains("not as Kubernetes does"), "{message}");
    world.post(CONFIGMAPS, &configmap("new", "1")).await;
    world.becomes("the others go on", &[1, 0, 1], async |world| counts(world, "new")).await;
    let deletes = world.member("b").writes().into_iter().filter(|write| write.starts_with("DELETE")).count();
    assert_eq!((counts(&world, "old"), deletes), ([1; 3], 0));
    world.member("b").is(Mood::Well);
    world.becomes("healed", &[1; 3], async |world| counts(world, "new")).await;
    world.stop().await;
}
