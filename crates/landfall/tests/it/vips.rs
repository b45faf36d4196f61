//! A virtual IP survives whatever holds it: real edges, real keepers, real keepalived, on one link.

use std::fs::File;
use std::net::IpAddr;
use std::path::Path;
use std::time::Instant;

use landfall_rig::client::Client;
use landfall_rig::front::{Front, VIP, VIP6};
use serde_json::json;

use crate::support::{find, skip};

/// So often all of a keepalived is killed: what may go wrong depends on the moment.
const ALL_KILLS: usize = 5;

fn front(directory: &Path, edges: u8) -> Option<Front> {
    let front = bare(directory, edges)?;
    front.apply(&front.objects().unwrap()).unwrap();
    Some(front)
}

/// Edges of a group that nothing is known of yet.
fn bare(directory: &Path, edges: u8) -> Option<Front> {
    for program in ["keepalived", "tcpdump", "ip"] {
        if find(program).is_none() {
            skip("virtual IPs by keepalived", &format!("{program} not found"));
            return None;
        }
    }
    Some(Front::start(Path::new(env!("CARGO_BIN_EXE_landfall")), directory, edges).unwrap())
}

/// Breaks something of the holder under a client's eyes: another takes over, nobody disturbs it, and the client goes on.
fn check(
    what: &str,
    front: &mut Front,
    break_it: impl FnOnce(&mut Front, usize),
    mend: impl FnOnce(&mut Front, usize),
) {
    let holder = front.holder(None).unwrap();
    let client: Client = front.client(VIP).unwrap();
    let ear = front.ear().unwrap();
    let address = |front: &Front, at: usize| front.node(at).unwrap().address().to_string();
    let hardware = |front: &Front, at: usize| front.node(at).unwrap().hardware().unwrap();
    let first = [address(front, holder)];
    front.until("the holder is heard", |_| Ok(ear.speakers() == first)).unwrap();
    front.until("the client is answered", |_| Ok(client.answers() > 10)).unwrap();
    let since = Instant::now();
    break_it(front, holder);
    let next = front.holder(Some(holder)).unwrap_or_else(|error| {
        let said = |process: &str| front.said(&format!("{process}-{holder}"));
        panic!("{what}: {error}\n{}\n{}", said("keeper"), said("edge"))
    });
    let answered = client.answers();
    front.until("the client is answered again", |_| Ok(client.answers() > answered + 50)).unwrap();
    let (speakers, mut claimants) = (ear.speakers(), ear.claimants(VIP.into()));
    mend(front, holder);
    let (outage, answers) = client.outage(since);
    assert!(answers > 0, "{what}: nothing was answered afterwards");
    println!("{what}: not answered for {} ms", outage.as_millis());
    let expected = [address(front, holder), address(front, next)];
    assert_eq!(speakers, expected, "{what}: two spoke at once");
    assert_eq!(claimants.pop(), Some(hardware(front, next)), "{what}: the new holder announces it");
    // The first may have been asked while it held it.
    assert!(
        claimants.iter().all(|who| *who == hardware(front, holder)),
        "{what}: two answered: {claimants:?}"
    );
}

#[test]
fn an_address_survives_whoever_holds_it() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut front) = front(directory.path(), 3) else { return };
    check(
        "edge killed",
        &mut front,
        |front, at| front.kill_edge(at),
        |front, at| front.start_edge(at).unwrap(),
    );
    check("keepalived killed", &mut front, |front, at| front.kill_keepalived(at, false).unwrap(), |_, _| ());
    check(
        "keepalived's first process killed",
        &mut front,
        |front, at| front.kill_keepalived(at, true).unwrap(),
        |_, _| (),
    );
    // The one that holds the address ends in good order when the first has gone, says so, and is killed before it has let go: whoever
    // heard it took the address at once, and two had it.
    for _ in 0..ALL_KILLS {
        check(
            "all of keepalived killed",
            &mut front,
            |front, at| front.kill_all_of_keepalived(at).unwrap(),
            |_, _| (),
        );
    }
    check("keepalived hangs", &mut front, |front, at| front.freeze_keepalived(at, false).unwrap(), |_, _| ());
    check(
        "keepalived's first process hangs",
        &mut front,
        |front, at| front.freeze_keepalived(at, true).unwrap(),
        |_, _| (),
    );
    check(
        "edge hangs",
        &mut front,
        |front, at| front.freeze_edge(at, true).unwrap(),
        |front, at| front.freeze_edge(at, false).unwrap(),
    );
    check(
        "keeper killed",
        &mut front,
        |front, at| front.kill_keeper(at),
        |front, at| front.start_keeper(at).unwrap(),
    );
    check(
        "edge told to stop",
        &mut front,
        |front, at| front.stop_edge(at).unwrap(),
        |front, at| {
            front.start_edge(at).unwrap();
        },
    );
    check(
        "link cut",
        &mut front,
        |front, at| front.link().plug(front.node(at).unwrap(), false).unwrap(),
        |front, at| front.link().plug(front.node(at).unwrap(), true).unwrap(),
    );
    both_sides_hold_it_and_one_after_that(&front);
}

/// Nobody sees anybody: both hold it. As soon as they see each other, one does.
fn both_sides_hold_it_and_one_after_that(front: &Front) {
    let (holder, ear) = (front.holder(None).unwrap(), front.ear().unwrap());
    front.link().isolate(front.node(holder).unwrap(), true).unwrap();
    front.until("both sides hold it", |front| Ok(front.holders()?.len() == 2)).unwrap();
    front.link().isolate(front.node(holder).unwrap(), false).unwrap();
    let healed = Instant::now();
    let left = front.holder(None).unwrap();
    println!("one holder {} ms after the heal", healed.elapsed().as_millis());
    ear.forget();
    let client = front.client(VIP).unwrap();
    front.until("the client is answered", |_| Ok(client.answers() > 50)).unwrap();
    assert_eq!(ear.speakers(), [front.node(left).unwrap().address().to_string()], "two speak");
    let claimants = ear.claimants(VIP.into());
    let hardware = front.node(left).unwrap().hardware().unwrap();
    assert!(claimants.iter().all(|who| *who == hardware), "{claimants:?}, not {hardware}");
}

#[test]
fn the_address_stays_while_others_come_and_go() {
    let directory = tempfile::tempdir().unwrap();
    let Some(front) = bare(directory.path(), 3) else { return };
    let mut objects = front.objects().unwrap();
    let all = objects[0]["spec"]["members"][0]["edges"].clone();
    let alone = json!([all[0]]);
    // Node by node, so that everybody's configuration has a list of all others.
    objects[0]["spec"]["unicast"] = true.into();
    objects[0]["spec"]["members"][0]["edges"] = alone.clone();
    front.apply(&objects).unwrap();
    let holder = front.holder(None).unwrap();
    let others = |front: &Front| {
        let configuration = front.configuration(holder);
        let known =
            |at: &usize| configuration.contains(&format!("        {}\n", front.node(*at).unwrap().address()));
        (0..3).filter(known).count()
    };
    let client = front.client(VIP).unwrap();
    front.until("the client is answered", |_| Ok(client.answers() > 50)).unwrap();
    let seen = directory.path().join("changes");
    let mut changes = front.node(holder).unwrap().command("ip");
    changes.args(["-o", "monitor", "address"]).stdout(File::create(&seen).unwrap());
    let mut changes = changes.spawn().unwrap();
    let ear = front.ear().unwrap();
    for (count, edges) in [(1, json!([all[0], all[2]])), (2, all.clone()), (0, alone), (2, all.clone())] {
        objects[0]["spec"]["members"][0]["edges"] = edges;
        let answered = client.answers();
        front.apply(&objects).unwrap();
        front.until("the holder knows of them", |front| Ok(others(front) == count)).unwrap();
        front.until("the client is answered", |_| Ok(client.answers() > answered + 50)).unwrap();
    }
    changes.kill().unwrap();
    changes.wait().unwrap();
    assert_eq!(front.holders().unwrap(), [holder]);
    assert_eq!(ear.speakers(), [front.node(holder).unwrap().address().to_string()]);
    let changes = std::fs::read_to_string(&seen).unwrap();
    assert!(!changes.contains(&VIP.to_string()), "the address was touched: {changes}");
}

#[test]
fn addresses_of_both_families_move_together() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut front) = front(directory.path(), 2) else { return };
    let mut objects = front.objects().unwrap();
    // Of the first family are the adverts.
    objects[0]["spec"]["members"][0]["vips"] = json!([VIP6, VIP]);
    front.apply(&objects).unwrap();
    front.until("the adverts are of IPv6", |front| Ok(front.configuration(0).contains("_excluded"))).unwrap();
    let holder = front.holder(None).unwrap();
    let client = front.client(VIP6).unwrap();
    front.until("the client is answered", |_| Ok(client.answers() > 10)).unwrap();
    let ear = front.ear().unwrap();
    front.kill_edge(holder);
    let next = front.holder(Some(holder)).unwrap();
    let has = |at: usize, vip: IpAddr| front.node(at).unwrap().has(vip).unwrap();
    front.until("both have moved", |_| Ok(has(next, VIP6.into()) && !has(holder, VIP6.into()))).unwrap();
    let answered = client.answers();
    front.until("the client is answered again", |_| Ok(client.answers() > answered + 50)).unwrap();
    let hardware = front.node(next).unwrap().hardware().unwrap();
    for vip in [IpAddr::from(VIP), VIP6.into()] {
        let announced = |_: &Front| Ok(ear.claimants(vip).last() == Some(&hardware));
        front.until(&format!("{vip} is announced"), announced).unwrap();
    }
}

#[test]
fn a_node_without_keepalived_says_so_until_it_has_one() {
    let directory = tempfile::tempdir().unwrap();
    let Some(front) = front(directory.path(), 2) else { return };
    let condition = |front: &Front, at: usize| {
        let edge = front.edges()?.get(at).cloned().unwrap_or_default();
        let conditions = edge["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let own = conditions.into_iter().find(|condition| condition["type"] == "VirtualIP");
        Ok(own.and_then(|own| own["reason"].as_str().map(str::to_owned)).unwrap_or_default())
    };
    let holder = front.holder(None).unwrap();
    front.until("it is told", |front| Ok(condition(front, holder)? == "Following")).unwrap();
    front.hide_keepalived(true).unwrap();
    front.kill_keepalived(holder, false).unwrap();
    let next = front.holder(Some(holder)).unwrap();
    front.until("it is told", |front| Ok(condition(front, holder)? == "KeepalivedMissing")).unwrap();
    front.hide_keepalived(false).unwrap();
    front.until("it is told", |front| Ok(condition(front, holder)? == "Following")).unwrap();
    front.kill_keepalived(next, false).unwrap();
    assert_eq!(front.holder(Some(next)).unwrap(), holder, "it takes part again");
}

/// Its process is there, and its pid is right, but nobody gets up when the holder falls.
#[test]
fn a_keepalived_that_hangs_is_started_again() {
    let directory = tempfile::tempdir().unwrap();
    let Some(front) = front(directory.path(), 2) else { return };
    let holder = front.holder(None).unwrap();
    let other = 1 - holder;
    let part = |front: &Front| {
        let edges = front.edges()?;
        Ok(edges[other].pointer("/status/vips/0/state").and_then(|state| state.as_str()) == Some("Standby"))
    };
    front.until("the other one stands by", part).unwrap();
    front.freeze_keepalived(other, false).unwrap();
    let log = format!("keeper-{other}");
    front.until("it is noticed", |front| Ok(front.said(&log).contains("keepalived hangs"))).unwrap();
    front
        .until("it stands by again", |front| {
            let said = front.said(&log);
            // It had no part any more, and then it had one again.
            let changes =
                said.rsplit_once("keepalived hangs").map(|(_, after)| after.matches("has changed").count());
            Ok(changes >= Some(2))
        })
        .unwrap_or_else(|error| panic!("{error}: {}", front.said(&log)));
    assert_eq!(front.holders().unwrap(), [holder], "nothing has moved");
    front.kill_keepalived(holder, false).unwrap();
    assert_eq!(front.holder(Some(holder)).unwrap(), other, "it takes part again");
}

#[test]
fn a_newcomer_takes_nothing_that_is_held() {
    let directory = tempfile::tempdir().unwrap();
    let Some(mut front) = front(directory.path(), 2) else { return };
    let mut objects = front.objects().unwrap();
    // Node by node: whoever is not known to the holder hears nothing of it.
    objects[0]["spec"]["unicast"] = true.into();
    front.apply(&objects).unwrap();
    let holder = front.holder(None).unwrap();
    let other = 1 - holder;
    front.stop_edge(other).unwrap();
    front.kill_keeper(other);
    let all = objects[0]["spec"]["members"][0]["edges"].take();
    objects[0]["spec"]["members"][0]["edges"] = serde_json::json!([all[holder]]);
    front.apply(&objects).unwrap();
    front
        .until("the holder knows of nobody else", |front| {
            let other = front.node(other)?.address().to_string();
            Ok(!front.configuration(holder).contains(&other))
        })
        .unwrap();
    // The newcomer knows the holder from its plan on disk, but the holder does not know it.
    let ear = front.ear().unwrap();
    front.kill_hub();
    front.start_keeper(other).unwrap();
    front.start_edge(other).unwrap();
    front.until("it listens", |front| Ok(front.configuration(other).contains("unicast_peer"))).unwrap();
    let client = front.client(VIP).unwrap();
    front.until("the client is answered for a while", |_| Ok(client.answers() > 200)).unwrap();
    assert_eq!(front.holders().unwrap(), [holder]);
    // The holder, which knows of nobody, tells nobody.
    let (speakers, own) = (ear.speakers(), front.node(holder).unwrap().address().to_string());
    assert!(speakers.iter().all(|who| *who == own), "the newcomer spoke: {speakers:?}");
}
