//! `fieldsV1`: field sets as the JSON that `metadata.managedFields` carries.

use serde_json::{Map, Value};

use super::element::Element;
use super::set::Set;

/// Marks a node that is a member and has members below it.
const SELF: &str = ".";

/// The FieldsV1 document of a set.
pub fn encode(set: &Set) -> Value {
    let entries = set.nodes().map(|node| {
        let mut below = encode(&node.below);
        if let (true, false, Value::Object(map)) = (node.member, node.below.is_empty(), &mut below) {
            map.insert(SELF.into(), Value::Object(Map::new()));
        }
        (node.element.encode(), below)
    });
    Value::Object(entries.collect())
}

/// The set of a FieldsV1 document. Steps of kinds that a later version may know are left out.
pub fn decode(fields: &Value) -> Result<Set, String> {
    match fields {
        Value::Null => Ok(Set::EMPTY),
        Value::Object(map) => decode_below(map).map(|(set, _)| set),
        _ => Err("expected a map".into()),
    }
}

/// What is below a node, and whether the node is a member: it says so, or nothing is below it.
fn decode_below(map: &Map<String, Value>) -> Result<(Set, bool), String> {
    let mut set = Set::EMPTY;
    let mut member = false;
    for (key, value) in map {
        if key == SELF {
            member = true;
            continue;
        }
        let Some(element) = Element::decode(key)? else { continue };
        let (below, inner) = match value {
            Value::Object(map) => decode_below(map)?,
            Value::Null => (Set::EMPTY, true),
            _ => return Err(format!("expected a map below {key}")),
        };
        set.push(element, inner, below);
    }
    let member = member || set.is_empty();
    Ok((set, member))
}
