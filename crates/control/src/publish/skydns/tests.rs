//! An etcd in memory: what is written is read again as it was, and only under our marks.

use std::collections::BTreeMap;

use landfall_plan::publish::{Found, Set, Sets, Type, apply, decide, mark};
use landfall_plan::records::sets::{Data, Service};
use parking_lot::Mutex;

use super::*;

#[derive(Default)]
struct Memory(Mutex<BTreeMap<String, Vec<u8>>>);

impl Keys for Memory {
    fn list(&self, prefix: String) -> BoxFuture<'_, Result<Vec<Pair>, Fault>> {
        let all = self.0.lock();
        let found = all.iter().filter(|(key, _)| key.starts_with(&prefix));
        let found = found.map(|(key, value)| (key.clone(), value.clone())).collect();
        async move { Ok(found) }.boxed()
    }

    fn commit(&self, commit: Commit) -> BoxFuture<'_, Result<bool, Fault>> {
        let mut all = self.0.lock();
        assert!(commit.puts.len() + commit.deletes.len() <= 128, "etcd takes no more");
        let fits = all.get(&commit.only_if.0) == commit.only_if.1.as_ref();
        if fits {
            all.extend(commit.puts);
            commit.deletes.iter().for_each(|key| drop(all.remove(key)));
        }
        async move { Ok(fits) }.boxed()
    }
}

fn addresses(count: u16) -> Sets {
    let all = (0..count).map(|n| [192, 0, (n >> 8).to_be_bytes()[1], n.to_be_bytes()[1]].into()).collect();
    Sets::from([(Type::A, Set { ttl_s: 5, data: Data::A(all) })])
}

fn alias(to: &str) -> Sets {
    Sets::from([(Type::Cname, Set { ttl_s: 5, data: Data::Cname(to.into()) })])
}

fn ports() -> Sets {
    let service = Service { priority: 0, weight: 0, port: 80, target: "cluster.web.example.com".into() };
    Sets::from([(Type::Srv, Set { ttl_s: 5, data: Data::Srv(vec![service]) })])
}

/// Brings the zone in line; gives what it has then, which must be what it is thought to have.
async fn publish(zone: &SkyDns, wanted: Wanted) -> Found {
    let mark = mark("fed");
    let mut found = zone.read().await.unwrap();
    let wanted = zone.fit(wanted, &found);
    let decision = decide(&mark, &wanted, &found);
    let applied = zone.apply(&decision.changes).await;
    assert_eq!((applied.done.len(), applied.moved.len(), applied.fault), (decision.changes.len(), 0, None));
    decision.changes.iter().for_each(|change| apply(&mark, &mut found, change));
    let now = zone.read().await.unwrap();
    assert_eq!(now, found);
    assert_eq!(decide(&mark, &wanted, &now).changes, vec![]);
    now
}

#[tokio::test]
async fn what_is_written_is_read_again() {
    let keys = Arc::new(Memory::default());
    let zone = SkyDns::new(keys.clone(), "skydns", "example.com.", mark("fed"));
    let foreign = "/skydns/com/example/www/x1".to_owned();
    keys.0.lock().insert(foreign.clone(), br#"{"host":"203.0.113.9"}"#.to_vec());
    let web = "web.example.com".to_owned();
    let port = "_http._tcp.eu.web.example.com".to_owned();
    let wanted = Wanted::from([
        (web.clone(), addresses(300)),
        ("eu.web.example.com".into(), alias("web.example.com")),
        ("_http._tcp.web.example.com".into(), ports()),
        (port.clone(), alias("_http._tcp.web.example.com")),
        ("www.example.com".into(), addresses(1)),
        ("cluster.www.example.com".into(), addresses(1)),
    ]);
    let found = publish(&zone, wanted.clone()).await;
    assert_eq!(found[&web].sets[&Type::A].data.len(), 300);
    let Data::Srv(rows) = &found[&port].sets[&Type::Srv].data else { panic!("ports are not followed") };
    assert_eq!((rows[0].priority, rows[0].weight), (1, 1));
    assert_eq!(found["www.example.com"].owner, None);
    assert!(
        !found.contains_key("cluster.www.example.com"),
        "it would be answered with what somebody else has"
    );
    let shown = keys.0.lock()["/skydns/com/example/web/_landfall-a-0001"].clone();
    assert_eq!(
        String::from_utf8(shown).unwrap(),
        r#"{"group":"web.example.com","host":"192.0.0.1","ttl":5}"#
    );

    let found = publish(&zone, Wanted::from([(web.clone(), addresses(2))])).await;
    assert_eq!(found[&web].sets, addresses(2));
    publish(&zone, Wanted::new()).await;
    assert_eq!(keys.0.lock().keys().collect::<Vec<_>>(), [&foreign]);
}

#[tokio::test]
async fn a_name_that_another_took_meanwhile_is_left_alone() {
    let keys = Arc::new(Memory::default());
    let zone = SkyDns::new(keys.clone(), "/skydns", "example.com", mark("fed"));
    let other = SkyDns::new(keys.clone(), "/skydns", "example.com", mark("other"));
    let wanted = Wanted::from([("web.example.com".into(), addresses(1))]);
    let decision = decide(&mark("fed"), &wanted, &Found::new());
    assert_eq!(other.apply(&decision.changes).await.done, [0]);
    assert_eq!(zone.apply(&decision.changes).await, Applied { moved: vec![0], ..Applied::default() });
}
