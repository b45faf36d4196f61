//! `landfall status`: the federation on one screen.

use std::collections::HashMap;
use std::sync::Arc;

use anyhow::Result;
use landfall_api::age;
use landfall_api::landfall::Cluster;
use landfall_control::kinds::Row;
use landfall_runtime::clock;

use super::federated::{self, Line};
use super::hub::{Hub, condition, name_of};
use super::options::StatusOptions;
use crate::basics::table::align;
use crate::say::print;

/// How much of a reason is shown; `kubectl describe` shows it all.
const WHY_CHARS_MAX: usize = 100;
/// Most rows of what is not as it should be.
const LISTED_MAX: usize = 40;
/// Most objects that are named where the same is wrong with several in one cluster, as with all of one that is offline.
const ALIKE_MAX: usize = 3;

pub(super) async fn run(options: &StatusOptions) -> Result<()> {
    let hub = Hub::find(&options.connection).await?;
    let clusters = hub.clusters().await?;
    let mut kinds = Vec::new();
    for kind in federated::kinds(&hub.target).await? {
        let objects = hub.objects(&kind).await?;
        let lines = objects.iter().map(|object| federated::lines(&kind, object));
        let lines: Vec<Vec<Line>> = lines.filter(|lines| !lines.is_empty()).collect();
        kinds.push((kind, lines));
    }
    print(&screen(&clusters, &kinds, clock::epoch_s()));
    Ok(())
}

/// The whole screen. `kinds`: for each kind, for each of its objects, a line per cluster.
fn screen(clusters: &[Cluster], kinds: &[(Arc<Row>, Vec<Vec<Line>>)], now_s: i64) -> String {
    if clusters.is_empty() {
        return "No cluster has joined. See `landfall join --help`.\n".into();
    }
    let mut out = align(&cluster_rows(clusters, now_s));
    let objects = kind_rows(kinds);
    if objects.len() == 1 {
        return out + "\nNothing is federated yet.\n";
    }
    out.push('\n');
    out.push_str(&align(&objects));
    let troubles: Vec<(&Arc<Row>, &Line)> = kinds
        .iter()
        .flat_map(|(kind, objects)| objects.iter().flatten().map(move |line| (kind, line)))
        .filter(|(_, line)| !line.well)
        .collect();
    if !troubles.is_empty() {
        out.push('\n');
        out.push_str(&align(&trouble_rows(&troubles)));
    }
    out
}

fn row<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.iter().map(|cell| (*cell).to_owned()).collect()
}

fn cluster_rows(clusters: &[Cluster], now_s: i64) -> Vec<Vec<String>> {
    let mut rows = vec![row(["CLUSTER", "READY", "SINCE", "REGION", "VERSION", "NODES", "STATE"])];
    for cluster in clusters {
        let status = cluster.status.clone().unwrap_or_default();
        let ready = status.conditions.iter().find(|condition| condition.type_ == "Ready");
        let since = ready.map(|ready| now_s.saturating_sub(ready.last_transition_time.0.as_second()));
        let known = |text: Option<&str>| text.filter(|text| !text.is_empty()).unwrap_or("-").to_owned();
        let nodes = status.nodes.as_ref().map(|nodes| format!("{}/{}", nodes.ready, nodes.total));
        rows.push(vec![
            name_of(cluster).to_owned(),
            known(ready.map(|ready| ready.status.as_str()).or(Some("Unknown"))),
            since.map_or_else(|| "-".to_owned(), age::human),
            known(status.region.as_deref().or(cluster.spec.region.as_deref())),
            known(status.version.as_deref()),
            known(nodes.as_deref()),
            state(cluster),
        ]);
    }
    rows
}

/// What is particular about a cluster, in words.
fn state(cluster: &Cluster) -> String {
    let spec = &cluster.spec;
    let words = [
        (cluster.metadata.deletion_timestamp.is_some(), "leaving"),
        (condition(cluster, "Offline").0 == "True", "offline"),
        (spec.draining, "draining"),
        (spec.cordoned && !spec.draining, "cordoned"),
    ];
    let words: Vec<&str> = words.into_iter().filter(|(holds, _)| *holds).map(|(_, word)| word).collect();
    if words.is_empty() { "-".into() } else { words.join(", ") }
}

fn kind_rows(kinds: &[(Arc<Row>, Vec<Vec<Line>>)]) -> Vec<Vec<String>> {
    let mut rows = vec![row(["KIND", "OBJECTS", "EVERYWHERE", "NOT"])];
    for (kind, objects) in kinds.iter().filter(|(_, objects)| !objects.is_empty()) {
        let well = objects.iter().filter(|lines| lines.iter().all(|line| line.well)).count();
        let counts = [objects.len(), well, objects.len() - well].map(|count| count.to_string());
        rows.push([vec![kind.kind.clone()], counts.to_vec()].concat());
    }
    rows
}

fn trouble_rows(troubles: &[(&Arc<Row>, &Line)]) -> Vec<Vec<String>> {
    let mut alike: Vec<Vec<(&Arc<Row>, &Line)>> = Vec::new();
    let mut known = HashMap::new();
    for (kind, line) in troubles {
        let at = *known.entry((&line.cluster, line.state, &line.why)).or_insert(alike.len());
        match alike.get_mut(at) {
            Some(others) => others.push((kind, line)),
            None => alike.push(vec![(kind, line)]),
        }
    }
    let mut rows: Vec<Vec<String>> = alike.iter().flat_map(|alike| alike_rows(alike)).collect();
    if rows.len() > LISTED_MAX {
        let more = format!("… and {} rows more", rows.len() - LISTED_MAX);
        rows.truncate(LISTED_MAX);
        rows.push(vec![more]);
    }
    rows.insert(0, row(["NOT AS IT SHOULD BE", "CLUSTER", "STATE", "WHY"]));
    rows
}

/// The rows of objects with which the same is wrong in the same cluster.
fn alike_rows(alike: &[(&Arc<Row>, &Line)]) -> Vec<Vec<String>> {
    let named = if alike.len() > ALIKE_MAX { 1 } else { alike.len() };
    let more = match alike.len() - named {
        0 => String::new(),
        more => format!(" and {more} more"),
    };
    let cells = |(kind, line): &(&Arc<Row>, &Line)| {
        let object = format!("{}/{}{more}", kind.plural, line.object);
        let mut why: String = line.why.chars().take(WHY_CHARS_MAX).collect();
        if why.len() < line.why.len() {
            why.push('…');
        }
        let why = if why.is_empty() { "-" } else { &why };
        row([object.as_str(), &line.cluster, line.state, why])
    };
    alike.iter().take(named).map(cells).collect()
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use landfall_control::kinds::Kinds;
    use serde_json::json;

    use super::*;

    #[test]
    fn one_screen() {
        assert!(screen(&[], &[], 0).starts_with("No cluster has joined."));
        let cluster = |name: &str, ready: &str, spec: serde_json::Value| {
            serde_json::from_value::<Cluster>(json!({
                "metadata": {"name": name}, "spec": spec,
                "status": {"version": "v1.36.4", "region": "us", "nodes": {"total": 2, "ready": 2}, "conditions": [
                    {"type": "Ready", "status": ready, "reason": "R", "message": "",
                        "lastTransitionTime": "1970-01-01T00:01:00Z"},
                    {"type": "Offline", "status": if ready == "True" { "False" } else { "True" }, "reason": "R",
                        "message": "", "lastTransitionTime": "1970-01-01T00:01:00Z"},
                ]},
            }))
            .unwrap()
        };
        let clusters = [
            cluster("eu-west", "Unknown", json!({})),
            cluster("us-east", "True", json!({"cordoned": true, "draining": true})),
            serde_json::from_value(json!({"metadata": {"name": "new"}})).unwrap(),
        ];
        let kind = Kinds::default().find("apps", "Deployment").unwrap();
        let lines = |text: &str| {
            let object = json!({"metadata": {"namespace": "shop", "name": "web",
                "annotations": {"landfall.dev/clusters": text}}});
            federated::lines(&kind, &object)
        };
        let objects = vec![
            lines(
                "eu-west: Owed, generation 1, 1 of 2 ready (Offline: later)\nus-east: Propagated, generation 1",
            ),
            lines("us-east: Propagated, generation 1"),
            federated::lines(&kind, &json!({"metadata": {"namespace": "shop", "name": "new"}})),
            federated::lines(&kind, &json!({"metadata": {"namespace": "kube-system", "name": "own"}})),
        ];
        let objects = objects.into_iter().filter(|lines| !lines.is_empty()).collect();
        expect![[r#"
            CLUSTER   READY     SINCE   REGION   VERSION   NODES   STATE
            eu-west   Unknown   60s     us       v1.36.4   2/2     offline
            us-east   True      60s     us       v1.36.4   2/2     draining
            new       Unknown   -       -        -         -       -

            KIND         OBJECTS   EVERYWHERE   NOT
            Deployment   3         1            2

            NOT AS IT SHOULD BE    CLUSTER   STATE     WHY
            deployments/shop/web   eu-west   Owed      Offline: later
            deployments/shop/new   -         Pending   the hub has not looked at it yet
        "#]]
        .assert_eq(&screen(&clusters, &[(kind.clone(), objects)], 120));
        let many = |count: usize| (0..count).map(|_| lines("eu-west: Owed (Offline: later)")).collect();
        expect![[r#"
            NOT AS IT SHOULD BE                CLUSTER   STATE   WHY
            deployments/shop/web and 99 more   eu-west   Owed    Offline: later
        "#]]
        .assert_eq(screen(&clusters, &[(kind.clone(), many(100))], 120).rsplit("\n\n").next().unwrap());
        let different = (0..50).map(|at| lines(&format!("eu-west: Failed (Refused: {at})"))).collect();
        let screen = screen(&clusters, &[(kind, different)], 120);
        assert!(screen.ends_with("… and 10 rows more\n"), "{screen}");
    }
}
