//! Who has what it should have is left in peace: by the hub that brought it, and by the next one.

use serde_json::{Value, json};

use super::world::World;
use super::{CONFIGMAPS, DEPLOYMENTS, MANY, MEMBERS, WEB, configmap, counts, deployment, give, replicas};

const SERVICES: &str = "/api/v1/namespaces/default/services";

fn service() -> Value {
    json!({
        "apiVersion": "v1", "kind": "Service", "metadata": {"name": "web"},
        "spec": {"type": "NodePort", "selector": {"app": "web"}, "ports": [{"port": 80, "nodePort": 30123}]},
    })
}

/// The writes that members got since this was last asked, without those about one object.
fn writes(world: &World, but: &str) -> Vec<String> {
    let all = world.members.iter().flat_map(|member| member.writes());
    all.filter(|write| !write.contains(but)).collect()
}

/// Has an object brought to everybody: whatever was to be looked at before it has been.
async fn pass(world: &World, name: &str) {
    world.post(CONFIGMAPS, &configmap(name, "1")).await;
    world.becomes("brought", &[1; 3], async |world| counts(world, name)).await;
    let one = format!("{CONFIGMAPS}/{name}");
    world.becomes("told", &3, async |world| world.told(&one).await.matches(": Propagated").count()).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_written_that_changes_nothing() {
    let mut world = World::new(&MEMBERS).await;
    give(&world, "many").await;
    world.post(DEPLOYMENTS, &deployment("{}")).await;
    world.post(SERVICES, &service()).await;
    world.becomes("everywhere", &[MANY; 3], async |world| counts(world, "many")).await;
    world.becomes("two in each", &[2; 3], async |world| replicas(world)).await;
    let ports = |world: &World| {
        MEMBERS
            .map(|member| world.in_member(member, "services", "web")["spec"]["ports"][0]["nodePort"].clone())
    };
    // A node port that is given at the federation is used everywhere.
    world.becomes("one port", &[json!(30123), json!(30123), json!(30123)], async |world| ports(world)).await;
    world.becomes("told", &"True Propagated".to_owned(), async |world| world.propagated(WEB).await).await;
    pass(&world, "first").await;
    writes(&world, "");

    // What users write that no shard has, and others of which nothing is wanted.
    world
        .merge(
            WEB,
            &json!({"metadata": {"annotations": {"landfall.dev/replica-policy": r#"{"factor": 2}"#}}}),
        )
        .await;
    pass(&world, "second").await;
    assert_eq!(writes(&world, "/second"), Vec::<String>::new());

    world.another_leads().await;
    pass(&world, "third").await;
    assert_eq!(writes(&world, "/third"), Vec::<String>::new(), "after another hub leads");
    world.stop().await;
}

/// Whoever leads is killed in the middle of its work, again and again; the last one brings everything, once.
#[tokio::test(flavor = "multi_thread")]
async fn a_leader_that_dies_in_the_middle_is_followed_by_one_that_ends_it() {
    let mut world = World::new(&MEMBERS).await;
    for (at, prefix) in ["one", "two", "three"].into_iter().enumerate() {
        give(&world, prefix).await;
        world.post(DEPLOYMENTS, &named(at)).await;
        world.another_leads().await;
    }
    for prefix in ["one", "two", "three"] {
        world.becomes("all is there", &[MANY; 3], async |world| counts(world, prefix)).await;
    }
    for at in 0..3 {
        let one = format!("{DEPLOYMENTS}/web-{at}");
        world
            .becomes("told", &"True Propagated".to_owned(), async |world| world.propagated(&one).await)
            .await;
        let asked = MEMBERS.map(|member| {
            world.in_member(member, "deployments", &format!("web-{at}"))["spec"]["replicas"].clone()
        });
        assert_eq!(asked, [json!(2), json!(2), json!(2)]);
    }
    world.stop().await;
}

fn named(at: usize) -> Value {
    let mut object = deployment("{}");
    object["metadata"]["name"] = json!(format!("web-{at}"));
    object
}
