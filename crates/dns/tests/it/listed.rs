//! What is listed for other DNS servers is what is answered here.

use std::collections::BTreeSet;

use hickory_proto::op::Message;
use hickory_proto::rr::RecordType;
use landfall_plan::records::sets::{Data, of_service};
use landfall_plan::records::{Answers, Place, Resolved, Scene};

use crate::lab::{config, federation, plans, question, responder};

#[test]
fn every_listed_record_is_answered() {
    let responder = responder(&config());
    let scene = Scene::new(&federation(), Some("cluster-1"));
    let none = Resolved::new();
    let mut listed = 0;
    for plan in plans() {
        let answers = Answers::new(&scene, &plan, &none);
        for set in of_service(&scene, ("my-namespace", &plan.target_ref.name), &answers, Place::Unknown) {
            let (kind, want): (RecordType, BTreeSet<String>) = match &set.data {
                Data::A(all) => (RecordType::A, all.iter().map(ToString::to_string).collect()),
                Data::Aaaa(all) => (RecordType::AAAA, all.iter().map(ToString::to_string).collect()),
                Data::Cname(to) => (RecordType::CNAME, [format!("{to}.")].into()),
                Data::Srv(all) => {
                    let row = |s: &landfall_plan::records::sets::Service| {
                        format!("{} {} {} {}.", s.priority, s.weight, s.port, s.target)
                    };
                    (RecordType::SRV, all.iter().map(row).collect())
                }
            };
            let packet = question(&set.name, kind.into());
            let whole = responder.respond_tcp("198.51.100.1".parse().unwrap(), &packet).unwrap();
            let message = Message::from_vec(&whole[2..]).unwrap();
            let own =
                message.answers.iter().filter(|record| record.name.to_ascii() == format!("{}.", set.name));
            let got: BTreeSet<String> = own.clone().map(|record| record.data.to_string()).collect();
            assert_eq!(got, want, "{} {kind}", set.name);
            assert!(
                own.clone().all(|record| record.ttl == set.ttl_s && record.record_type() == kind),
                "{}",
                set.name
            );
            listed += 1;
        }
    }
    assert!(listed > 150, "only {listed} sets");
}
