//! What is told, is told once: mistakes at objects of every kind.

use serde_json::{Value, json};

use super::world::World;
use super::{CONFIGMAPS, MEMBERS, configmap, counts};

const SELECTOR: &str = "federation.alpha.kubernetes.io/cluster-selector";
const INGRESSES: &str = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";

fn with_selector(mut object: Value, selector: Option<&str>) -> Value {
    object["metadata"]["annotations"] = json!({SELECTOR: selector});
    object
}

/// Kinds without conditions did not show the mistake at all, and an Event was written for it again and again, as fast as the hub took
/// them.
#[tokio::test(flavor = "multi_thread")]
async fn a_mistake_is_told_once_also_where_there_are_no_conditions() {
    let world = World::new(&MEMBERS).await;
    let ingress = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "bad"},
        "spec": {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}},
    });
    let one = format!("{CONFIGMAPS}/bad");
    let other = format!("{INGRESSES}/bad");
    world.post(CONFIGMAPS, &with_selector(configmap("bad", "1"), Some("[{"))).await;
    world.post(INGRESSES, &with_selector(ingress, Some("[{"))).await;
    for path in [&one, &other] {
        world
            .becomes("it says so", &true, async |world| {
                let told = world.told(path).await;
                told.starts_with("Invalid: ") && told.contains("cluster-selector")
            })
            .await;
    }
    // Others come and go meanwhile, and each look at the two finds the same again.
    let looked = async |world: &World, name: &str| {
        world.post(CONFIGMAPS, &configmap(name, "1")).await;
        world.becomes("others go on", &[1; 3], async |world| counts(world, name)).await;
    };
    for at in 0..5 {
        for path in [&one, &other] {
            world.merge(path, &json!({"metadata": {"labels": {"at": at.to_string()}}})).await;
        }
        looked(&world, &format!("other-{at}")).await;
    }
    assert_eq!(counts(&world, "bad"), [0; 3], "nothing is half done");
    assert_eq!(world.events("Invalid").await.len(), 2, "{:?}", world.events("Invalid").await);

    // Another mistake is told again, and a correction heals it.
    world.merge(&one, &json!({"metadata": {"annotations": {SELECTOR: "nonsense"}}})).await;
    world.becomes("the new mistake", &3, async |world| world.events("Invalid").await.len()).await;
    for path in [&one, &other] {
        world.merge(path, &json!({"metadata": {"annotations": {SELECTOR: null}}})).await;
        world
            .becomes("mended", &(3, false), async |world| {
                let told = world.told(path).await;
                (told.matches(": Propagated").count(), told.contains("Invalid"))
            })
            .await;
    }
    world.stop().await;
}
