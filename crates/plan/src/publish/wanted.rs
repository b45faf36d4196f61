//! What the names of a zone shall have.

use super::{Set, Type, Wanted};
use crate::records::sets::RecordSet;

/// The longest name that leaves room for a mark beside it.
const NAME_MAX: usize = 230;

/// Those record sets whose names are in a zone, name by name; kept for `ttl_min_s` at least.
///
/// A name that is another name for something has nothing else; where both are asked for, what came first counts.
pub fn wanted<'a>(sets: impl IntoIterator<Item = &'a RecordSet>, zone: &str, ttl_min_s: u32) -> Wanted {
    let zone = zone.trim_matches('.').to_ascii_lowercase();
    let mut wanted = Wanted::new();
    for set in sets {
        if set.data.is_empty() || set.name.len() > NAME_MAX || !inside(&set.name, &zone) {
            continue;
        }
        let name = wanted.entry(set.name.to_ascii_lowercase()).or_default();
        let this = set.data.of_type();
        let clash = !name.is_empty() && (this == Type::Cname || name.contains_key(&Type::Cname));
        if !clash {
            let ttl_s = set.ttl_s.max(ttl_min_s);
            name.entry(this).or_insert_with(|| Set { ttl_s, data: set.data.clone() });
        }
    }
    wanted
}

/// Whether a name is below a zone's own. The zone's own name is never ours: its server's records stand there.
fn inside(name: &str, zone: &str) -> bool {
    let at = name.len().checked_sub(zone.len() + 1);
    let parts = at.and_then(|at| Some((name.as_bytes().get(at)?, name.get(at + 1..)?)));
    parts.is_some_and(|(dot, end)| *dot == b'.' && end.eq_ignore_ascii_case(zone))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::records::sets::Data;

    #[test]
    fn names_of_the_zone_and_no_others() {
        for (name, zone, want) in [
            ("web.example.com", "example.com", true),
            ("WEB.Example.com", "EXAMPLE.com.", true),
            ("a.b.example.com", "b.example.com", true),
            ("example.com", "example.com", false),
            ("xexample.com", "example.com", false),
            ("com", "example.com", false),
            ("", "example.com", false),
            ("web.example.org", "example.com", false),
        ] {
            let set = RecordSet { name: name.into(), ttl_s: 5, data: Data::A(vec![[192, 0, 2, 1].into()]) };
            let got = wanted([&set], zone, 30);
            assert_eq!(got.len(), usize::from(want), "{name} in {zone}");
            assert!(got.values().all(|sets| sets[&Type::A].ttl_s == 30));
        }
    }

    #[test]
    fn another_name_stands_alone() {
        let set = |data: Data| RecordSet { name: "a.example.com".into(), ttl_s: 5, data };
        let (cname, a) = (set(Data::Cname("b".into())), set(Data::A(vec![[192, 0, 2, 1].into()])));
        let types = |sets: [&RecordSet; 2]| {
            wanted(sets, "example.com", 0)["a.example.com"].keys().copied().collect::<Vec<_>>()
        };
        assert_eq!(types([&cname, &a]), [Type::Cname]);
        assert_eq!(types([&a, &cname]), [Type::A]);
        assert!(wanted([&set(Data::Srv(vec![]))], "example.com", 0).is_empty());
    }
}
