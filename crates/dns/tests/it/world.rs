//! A database in MaxMind's format: the nearest member by where an address is on the globe.

use landfall_api::landfall::Coordinates;
use landfall_dns::{Config, Responder, StartError};
use landfall_plan::records::Resolved;
use landfall_runtime::metrics::Registry;

use crate::lab::{ADDRESSES, SEED, ask, config, federation, plan, question, say};

#[test]
fn the_nearest_by_the_world_unless_a_prefix_says_otherwise() {
    let directory = std::env::temp_dir().join(format!("landfall-dns-world-{}", std::process::id()));
    std::fs::create_dir_all(&directory).unwrap();
    let path = directory.join("world.mmdb");
    // Half of all addresses in Paris, the other half in Tokyo.
    std::fs::write(&path, database((48.9, 2.4), (35.7, 139.7))).unwrap();
    let responder = Responder::new(&Config { world: Some(path.clone()), ..config() }, &Registry::default());
    let wrong = Config { world: Some(directory.join("nothing")), ..config() };
    assert!(matches!(Responder::new(&wrong, &Registry::default()), Err(StartError::World { .. })));
    std::fs::remove_dir_all(&directory).unwrap();
    let responder = responder.unwrap();
    let mut federation = federation();
    for (member, (latitude, longitude)) in
        federation.members.iter_mut().zip([(37.8, -122.4), (52.5, 13.4), (34.7, 135.5)])
    {
        member.coordinates = Some(Coordinates { latitude, longitude });
    }
    responder.publish(&federation, [("my-namespace", &plan())], Resolved::new());
    for (client, nearest) in [("100.1.2.3", 2), ("200.1.2.3", 3), ("5.1.2.3", 1)] {
        let said = say(&ask(&responder, client, &question(SEED, 1)).unwrap());
        assert!(
            said.starts_with(&format!("NoError aa [SEED.my-domain.com 180 A {}]", ADDRESSES[nearest - 1])),
            "{client}: {said}"
        );
    }
}

/// A database of two networks, 0.0.0.0/1 and 128.0.0.0/1, by the format's description: a tree of one node, a separator, the
/// data, a mark, and what the file says of itself.
fn database(low: (f64, f64), high: (f64, f64)) -> Vec<u8> {
    let [low, high] = [low, high].map(|(latitude, longitude)| {
        map(&[("location", map(&[("latitude", double(latitude)), ("longitude", double(longitude))]))])
    });
    // A record that is greater than the number of nodes points into the data, 16 bytes of separator counted.
    let at = |offset: usize| u32::try_from(1 + 16 + offset).unwrap().to_be_bytes()[1..].to_vec();
    let tree = [at(0), at(low.len())].concat();
    let about = map(&[
        ("node_count", number(6, 1)),
        ("record_size", number(5, 24)),
        ("ip_version", number(5, 4)),
        ("database_type", text("Test-City")),
        ("binary_format_major_version", number(5, 2)),
        ("binary_format_minor_version", number(5, 0)),
        ("build_epoch", number(9, 1)),
        ("languages", vec![0x00, 0x04]),
        ("description", map(&[])),
    ]);
    [&tree[..], &[0; 16], &low, &high, b"\xab\xcd\xefMaxMind.com", &about].concat()
}

fn text(text: &str) -> Vec<u8> {
    let length = u8::try_from(text.len()).unwrap();
    assert!(length < 29);
    [&[0x40 | length], text.as_bytes()].concat()
}

fn double(number: f64) -> Vec<u8> {
    [&[0x68][..], &number.to_be_bytes()].concat()
}

/// A number of a kind: 5 is 16 bits, 6 is 32 bits, 9 is 64 bits.
fn number(kind: u8, value: u8) -> Vec<u8> {
    if kind <= 7 { vec![kind << 5 | 1, value] } else { vec![1, kind - 7, value] }
}

fn map(entries: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut bytes = vec![0xE0 | u8::try_from(entries.len()).unwrap()];
    for (key, value) in entries {
        bytes.extend(text(key));
        bytes.extend(value);
    }
    bytes
}
