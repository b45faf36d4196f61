//! Members that are hard to work with: busy, broken, slow, locked, old, stubborn; and the others, who must not notice.

mod doors;
mod member;
mod rests;
mod told;
mod world;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use landfall_apiserver::housekeeping::client::Place;
use landfall_apiserver::write::update::Part;
use serde_json::{Value, json};

use member::Mood;
use world::World;

const MEMBERS: [&str; 3] = ["a", "b", "c"];
const CONFIGMAPS: &str = "/api/v1/namespaces/default/configmaps";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
const WEB: &str = "/apis/apps/v1/namespaces/default/deployments/web";
/// How many objects are given at once.
const MANY: usize = 40;

fn configmap(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"x": value}})
}

fn deployment(policy: &str) -> Value {
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment",
        "metadata": {"name": "web", "annotations": {"landfall.dev/replica-policy": policy}},
        "spec": {
            "replicas": 6, "selector": {"matchLabels": {"app": "web"}},
            "template": {
                "metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web", "image": "echo"}]},
            },
        },
    })
}

async fn give(world: &World, prefix: &str) {
    for at in 0..MANY {
        world.post(CONFIGMAPS, &configmap(&format!("{prefix}-{at}"), "1")).await;
    }
}

fn counts(world: &World, prefix: &str) -> [usize; 3] {
    MEMBERS.map(|member| world.count_in(member, "configmaps", prefix))
}

/// What the Deployment's shards ask for; -1 where there is none.
fn replicas(world: &World) -> [i64; 3] {
    MEMBERS.map(|member| {
        world.in_member(member, "deployments", "web")["spec"]["replicas"].as_i64().unwrap_or(-1)
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_busy_broken_or_senseless_member_is_left_in_peace_and_delays_nobody() {
    let world = World::new(&MEMBERS).await;
    let b = world.member("b");
    for (mood, prefix, says) in [
        (Mood::Busy, "busy", "Too many requests"),
        (Mood::Broken, "broken", "etcdserver: no leader"),
        (Mood::Garbage, "garbage", "not JSON"),
    ] {
        b.writes();
        b.is(mood);
        give(&world, prefix).await;
        world.becomes("the others have it", &[MANY, 0, MANY], async |world| counts(world, prefix)).await;
        let one = format!("{CONFIGMAPS}/{prefix}-0");
        world
            .becomes("it says so", &true, async |world| {
                let told = world.told(&one).await;
                told.contains("b: Pending") && told.contains("Retrying") && told.contains(says)
            })
            .await;
        // Each of the objects alone would ask again after half a second, a second, two, …
        tokio::time::sleep(Duration::from_secs(4)).await;
        let asked = b.writes().len();
        assert!(asked < MANY + 20, "{mood:?}: asked {asked} times");
        b.is(Mood::Well);
        world.becomes("healed", &[MANY; 3], async |world| counts(world, prefix)).await;
    }
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_never_answers_writes_delays_nobody() {
    let world = World::new(&MEMBERS).await;
    world.member("b").is(Mood::Slow(Duration::from_secs(600)));
    give(&world, "slow").await;
    world.becomes("the others have it", &[MANY, 0, MANY], async |world| counts(world, "slow")).await;
    world.merge(&format!("{CONFIGMAPS}/slow-0"), &json!({"data": {"x": "2"}})).await;
    world
        .becomes("also what changes", &json!("2"), async |world| {
            world.in_member("c", "configmaps", "slow-0")["data"]["x"].clone()
        })
        .await;
    world.member("b").is(Mood::Well);
    world.becomes("healed", &[MANY; 3], async |world| counts(world, "slow")).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_revoked_token_loses_nothing_and_holds_nothing_up() {
    let world = World::new(&MEMBERS).await;
    for name in ["kept", "gone"] {
        world.post(CONFIGMAPS, &configmap(name, "1")).await;
        world.becomes("everywhere", &[1; 3], async |world| counts(world, name)).await;
    }
    world.member("b").is(Mood::Locked);
    world
        .becomes("it says so", &json!("False"), async |world| {
            world.condition("b", "Ready").await["status"].clone()
        })
        .await;
    let condition = world.condition("b", "Ready").await;
    assert!(condition["message"].as_str().unwrap().contains("refuses our credentials"), "{condition}");
    world.delete(&format!("{CONFIGMAPS}/gone")).await;
    world
        .becomes("deleted at the hub", &Value::Null, async |world| {
            world.get(&format!("{CONFIGMAPS}/gone")).await
        })
        .await;
    world.merge(&format!("{CONFIGMAPS}/kept"), &json!({"data": {"x": "2"}})).await;
    let value =
        |world: &World, member: &str| world.in_member(member, "configmaps", "kept")["data"]["x"].clone();
    world.becomes("the others go on", &json!("2"), async |world| value(world, "a")).await;
    assert_eq!((counts(&world, "gone"), value(&world, "b")), ([0, 1, 0], json!("1")), "nobody got in");
    world.member("b").is(Mood::Well);
    world
        .becomes("told", &([0; 3], json!("2")), async |world| (counts(world, "gone"), value(world, "b")))
        .await;
    world.stop().await;
}

/// It was away while things changed; and then its store was restored from a backup that knows nothing of us.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_comes_back_with_old_state_is_brought_up_to_date_and_loses_nothing_of_its_own() {
    let mut world = World::new(&MEMBERS).await;
    for name in ["changed", "deleted"] {
        world.post(CONFIGMAPS, &configmap(name, "1")).await;
        world.becomes("everywhere", &[1; 3], async |world| counts(world, name)).await;
    }
    let offline = async |world: &World| world.condition("b", "Offline").await["status"].clone();
    world.member_mut("b").vanish().await;
    world.becomes("offline", &json!("True"), offline).await;
    world.merge(&format!("{CONFIGMAPS}/changed"), &json!({"data": {"x": "2"}})).await;
    world.delete(&format!("{CONFIGMAPS}/deleted")).await;
    world
        .becomes("deleted at the hub", &Value::Null, async |world| {
            world.get(&format!("{CONFIGMAPS}/deleted")).await
        })
        .await;
    world.post(CONFIGMAPS, &configmap("new", "1")).await;
    let place = Place {
        group: "".into(),
        plural: "configmaps".into(),
        namespace: "default".into(),
        name: "theirs".into(),
    };
    world.hand("b", "somebody").create(&place, configmap("theirs", "1")).await.unwrap();
    world.member_mut("b").return_().await;
    let seen = async |world: &World| {
        let value = |name: &str| world.in_member("b", "configmaps", name)["data"]["x"].clone();
        json!([value("changed"), value("deleted"), value("new"), value("theirs")])
    };
    world.becomes("up to date", &json!(["2", null, "1", "1"]), seen).await;

    world.member_mut("b").vanish().await;
    world.becomes("offline", &json!("True"), offline).await;
    world.member_mut("b").restore().await;
    world.hand("b", "somebody").create(&place, configmap("theirs", "old")).await.unwrap();
    // Made by hand in the lost time, under a name that is ours now: it is adopted.
    let other = Place { name: "new".into(), ..place };
    world.hand("b", "somebody").create(&other, configmap("new", "mine")).await.unwrap();
    world.member_mut("b").return_().await;
    world.becomes("made again", &json!(["2", null, "1", "old"]), seen).await;
    world
        .becomes("remembered as adopted", &json!("Adopted"), async |world| {
            world.in_member("b", "configmaps", "new")["metadata"]["annotations"]["landfall.dev/origin"]
                .clone()
        })
        .await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_admission_refuses_runs_elsewhere_until_it_is_taken() {
    let world = World::new(&MEMBERS).await;
    world.member("b").is(Mood::Refusing("deployments"));
    world.post(DEPLOYMENTS, &deployment(r#"{"unschedulableSeconds": 1}"#)).await;
    world.becomes("its share is elsewhere", &[3, -1, 3], async |world| replicas(world)).await;
    world
        .becomes("it says why", &(true, true, "False Failed".to_owned()), async |world| {
            let told = world.told(WEB).await;
            let refused = told.contains("b: Failed") && told.contains("denied the request: not here");
            (refused, told.contains("RefusedHeld: 0 of the 2"), world.propagated(WEB).await)
        })
        .await;
    world
        .becomes("an Event", &true, async |world| {
            world.events("FailedInCluster").await.iter().any(|message| message.contains("not here"))
        })
        .await;
    world.member("b").is(Mood::Well);
    world.becomes("it is back", &[2, 2, 2], async |world| replicas(world)).await;
    world.becomes("well", &"True Propagated".to_owned(), async |world| world.propagated(WEB).await).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_older_kubernetes_says_which_kind_it_lacks() {
    let world = World::new(&["a", "c"]).await;
    let mut world = world;
    let old = member::Member::start("b").await;
    old.is(Mood::Without("horizontalpodautoscalers"));
    world.join(old).await;
    let autoscalers = "/apis/autoscaling/v2/namespaces/default/horizontalpodautoscalers";
    let object = json!({
        "apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": {"name": "web"},
        "spec": {"maxReplicas": 6, "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
    });
    world.post(autoscalers, &object).await;
    world.post(CONFIGMAPS, &configmap("other", "1")).await;
    let one = format!("{autoscalers}/web");
    world
        .becomes("it says so", &(true, true, "False Failed".to_owned()), async |world| {
            let told = world.told(&one).await;
            (
                told.contains("b: Failed (NotServed"),
                told.contains("a: Propagated"),
                world.propagated(&one).await,
            )
        })
        .await;
    world.becomes("other kinds are there", &[1; 3], async |world| counts(world, "other")).await;
    world
        .becomes("an Event", &true, async |world| {
            world.events("FailedInCluster").await.iter().any(|message| message.starts_with("b: NotServed"))
        })
        .await;
    world.member("b").is(Mood::Well);
    world
        .becomes("upgraded", &"True Propagated".to_owned(), async |world| world.propagated(&one).await)
        .await;
    world.stop().await;
}

/// Its address and its certificate are others from one moment to the next.
#[tokio::test(flavor = "multi_thread")]
async fn a_member_that_moves_is_found_where_it_says() {
    let mut world = World::new(&["a"]).await;
    let new = member::Member::start("a").await;
    let spec = json!({"endpoints": [{"server": format!("https://{}", new.at)}], "caBundle": new.ca_bundle});
    world.members.push(new);
    world.member_mut("a").vanish().await;
    world.merge("/apis/landfall.dev/v1alpha1/clusters/a", &json!({"spec": spec})).await;
    world.post(CONFIGMAPS, &configmap("moved", "1")).await;
    world
        .becomes("there", &json!("1"), async |world| {
            let api = world.members[1].api();
            let entry = api.store.snapshot().get("core/configmaps/default/moved").cloned();
            entry.map_or(Value::Null, |entry| {
                serde_json::from_slice::<Value>(&entry.value).unwrap()["data"]["x"].clone()
            })
        })
        .await;
    world
        .becomes("ready", &json!("True"), async |world| world.condition("a", "Ready").await["status"].clone())
        .await;
    world.stop().await;
}

/// An Ingress without its certificate would be served without TLS, or not at all.
#[tokio::test(flavor = "multi_thread")]
async fn secrets_for_tls_go_first_and_taints_keep_clusters_out() {
    let world = World::new(&MEMBERS).await;
    world.member("b").is(Mood::Refusing("secrets"));
    let ingress = json!({
        "apiVersion": "networking.k8s.io/v1", "kind": "Ingress", "metadata": {"name": "web"},
        "spec": {
            "tls": [{"hosts": ["www.example.com"], "secretName": "web"}],
            "defaultBackend": {"service": {"name": "web", "port": {"number": 80}}},
        },
    });
    let ingresses = "/apis/networking.k8s.io/v1/namespaces/default/ingresses";
    world.post(ingresses, &ingress).await;
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "web"}, "data": {"tls.crt": "", "tls.key": ""}});
    world.post("/api/v1/namespaces/default/secrets", &secret).await;
    let there = |world: &World| {
        MEMBERS.map(|member| {
            let api = world.member(member).api();
            api.store.snapshot().get("networking.k8s.io/ingresses/default/web").is_some()
        })
    };
    world.becomes("not without its Secret", &[true, false, true], async |world| there(world)).await;
    world
        .becomes("it says what it waits for", &true, async |world| {
            world
                .told(&format!("{ingresses}/web"))
                .await
                .lines()
                .any(|line| line.starts_with("b: Pending") && line.contains("Secret"))
        })
        .await;
    world.member("b").is(Mood::Well);
    world.becomes("with it", &[true; 3], async |world| there(world)).await;

    let cluster = "/apis/landfall.dev/v1alpha1/clusters/c";
    world.merge(cluster, &json!({"spec": {"taints": [{"key": "gpu", "effect": "NoExecute"}]}})).await;
    world.becomes("taken away", &[true, true, false], async |world| there(world)).await;
    let tolerations = json!({"metadata": {"annotations": {"landfall.dev/tolerations": r#"[{"key": "gpu", "operator": "Exists"}]"#}}});
    world.merge(&format!("{ingresses}/web"), &tolerations).await;
    world.becomes("tolerated", &[true; 3], async |world| there(world)).await;
    world.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn with_more_than_enough_nothing_moves_when_a_cluster_is_lost() {
    let mut world = World::new(&MEMBERS).await;
    world.post(DEPLOYMENTS, &deployment(r#"{"onClusterLoss": "Overprovision", "factor": 1.5}"#)).await;
    world.becomes("nine for six", &[3; 3], async |world| replicas(world)).await;
    world.member_mut("b").vanish().await;
    world
        .becomes("it says so", &true, async |world| world.told(WEB).await.contains("OfflineOverprovisioned"))
        .await;
    assert_eq!(replicas(&world), [3; 3]);
    world.stop().await;
}

/// Another program in a member that wants the same field otherwise, and never tires.
#[tokio::test(flavor = "multi_thread")]
async fn a_fight_over_a_field_ends_in_patience() {
    let world = World::new(&MEMBERS).await;
    world.post(DEPLOYMENTS, &deployment("{}")).await;
    world.becomes("two in each", &[2; 3], async |world| replicas(world)).await;
    let (stop, hand) = (Arc::new(AtomicBool::new(false)), world.hand("b", "rival"));
    let over = stop.clone();
    #[expect(clippy::disallowed_methods, reason = "it ends with the test")]
    let rival = tokio::spawn(async move {
        let place = Place {
            group: "apps".into(),
            plural: "deployments".into(),
            namespace: "default".into(),
            name: "web".into(),
        };
        while !over.load(Ordering::Acquire) {
            let change = |old: &Value| {
                let mut new = old.clone();
                new["spec"]["replicas"] = json!(9);
                Ok(new)
            };
            let _ = hand.modify(&place, Part::Main, change).await;
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    world
        .becomes("it says so", &(true, "False Failed".to_owned()), async |world| {
            let told = world.told(WEB).await;
            let contested =
                told.contains("b: Failed") && told.contains("Contested: spec.replicas is changed");
            (contested && told.contains("last by \"rival\""), world.propagated(WEB).await)
        })
        .await;
    world
        .becomes("an Event", &true, async |world| {
            world.events("FailedInCluster").await.iter().any(|message| message.contains("Contested"))
        })
        .await;
    world.member("b").writes();
    tokio::time::sleep(Duration::from_secs(5)).await;
    let writes = world.member("b").writes();
    assert!(writes.len() <= 1, "it rests: {writes:?}");
    assert_eq!(replicas(&world), [2, 9, 2], "the others are as they were");
    // A new intent is not held back by the old fight.
    world.merge(WEB, &json!({"metadata": {"labels": {"new": "yes"}}})).await;
    world
        .becomes("a change arrives", &json!("yes"), async |world| {
            world.in_member("b", "deployments", "web")["metadata"]["labels"]["new"].clone()
        })
        .await;
    stop.store(true, Ordering::Release);
    rival.await.unwrap();
    world.becomes("put right", &[2; 3], async |world| replicas(world)).await;
    world.becomes("well", &"True Propagated".to_owned(), async |world| world.propagated(WEB).await).await;
    world.stop().await;
}
