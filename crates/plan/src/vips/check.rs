//! What is wrong with ranges and groups by themselves, and with ranges beside others; told before they are stored.

use std::net::IpAddr;

use landfall_api::addresses::{validate_cidr, validate_ip};
use landfall_api::field::{ErrorList, Path};
use landfall_api::landfall::{ClusterSelection, GroupCapacity, IngressReplicaSetSpec, IngressVIPRangeSpec};
use landfall_api::quantity::Quantity;
use landfall_api::selector::Selector;
use serde_json::Value;

use super::Block;

/// What is wrong with a range; `others` are the ranges that are there, by name.
pub fn check_range(spec: &IngressVIPRangeSpec, others: &[(String, IngressVIPRangeSpec)]) -> ErrorList {
    let mut errors = ErrorList::new();
    let root = Path::new("spec");
    let cidrs = root.child("cidrs");
    if spec.cidrs.is_empty() {
        errors.required(&cidrs, "at least one range such as 192.0.2.0/28");
    }
    for (text, at) in spec.cidrs.iter().zip(0..) {
        let path = cidrs.index(at);
        validate_cidr(text, &path, &mut errors);
        let Some(block) = Block::parse(text) else { continue };
        if let Some(own) = spec.cidrs.iter().take(at).find(|own| overlaps(own, &block)) {
            errors.invalid(&path, text.as_str(), format!("overlaps with {own} of the same range"));
        }
        let theirs =
            |(_, other): &&(String, IngressVIPRangeSpec)| other.cidrs.iter().any(|one| overlaps(one, &block));
        if let Some((name, _)) = others.iter().find(theirs) {
            errors.invalid(&path, text.as_str(), format!("overlaps with the IngressVIPRange {name}"));
        }
    }
    let exclude = root.child("exclude");
    for (text, at) in spec.exclude.iter().zip(0..) {
        let path = exclude.index(at);
        if text.contains('/') {
            validate_cidr(text, &path, &mut errors);
        } else {
            validate_ip(text, &path, &mut errors);
        }
    }
    clusters(spec.clusters.as_ref(), &root, &mut errors);
    errors
}

fn overlaps(text: &str, block: &Block) -> bool {
    Block::parse(text).is_some_and(|own| own.overlaps(block))
}

/// What is wrong with a group that stands at some path of an object.
pub fn check_group(spec: &IngressReplicaSetSpec, root: &Path<'_>) -> ErrorList {
    let mut errors = ErrorList::new();
    if let Some(vip) = &spec.vip {
        address(vip, &root.child("vip"), &mut errors);
        if !spec.vips.is_empty() {
            errors.forbidden(&root.child("vip"), "may not be given together with vips");
        }
    }
    let vips = root.child("vips");
    for (vip, at) in spec.vips.iter().zip(0..) {
        address(&vip.address, &vips.index(at).child("address"), &mut errors);
        let again = spec.vips.iter().take(at).any(|other| other.address == vip.address);
        if again {
            errors.duplicate(&vips.index(at).child("address"), vip.address.as_str());
        }
    }
    if let Some(capacity) = &spec.capacity {
        amounts(capacity, &root.child("capacity"), &mut errors);
    }
    clusters(spec.clusters.as_ref(), root, &mut errors);
    errors
}

/// A group that can carry nothing is a mistake.
fn amounts(capacity: &GroupCapacity, path: &Path<'_>, errors: &mut ErrorList) {
    let whole = [
        ("ingresses", capacity.ingresses.map(i64::from)),
        ("requestsPerSecond", capacity.requests_per_second),
        ("connections", capacity.connections),
    ];
    for (field, most) in whole {
        if most.is_some_and(|most| most < 1) {
            errors.invalid(&path.child(field), most, "must be greater than or equal to 1");
        }
    }
    let Some(bandwidth) = &capacity.bandwidth else { return };
    if Quantity::parse(&bandwidth.0).is_none_or(|most| most.signum() <= 0) {
        errors.invalid(&path.child("bandwidth"), bandwidth.0.as_str(), "must be greater than 0");
    }
}

/// An address that a node could hold for clients.
fn address(text: &str, path: &Path<'_>, errors: &mut ErrorList) {
    if !validate_ip(text, path, errors) {
        return;
    }
    let wrong =
        text.parse::<IpAddr>().is_ok_and(|address| address.is_unspecified() || address.is_multicast());
    if wrong {
        errors.invalid(path, text, "must be the address of one node");
    }
}

fn clusters(selection: Option<&ClusterSelection>, root: &Path<'_>, errors: &mut ErrorList) {
    let Some(selector) = selection.and_then(|selection| selection.selector.as_ref()) else { return };
    let value = serde_json::to_value(selector).unwrap_or_default();
    label_selector(&value, &root.child("clusters").child("selector"), errors);
}

/// A label selector that can be read.
pub fn label_selector(value: &Value, path: &Path<'_>, errors: &mut ErrorList) {
    if let Err(why) = Selector::from_object(Some(value)) {
        errors.invalid(path, value.clone(), why);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn ranges_are_read_before_they_are_kept() {
        let there =
            vec![("old".to_owned(), serde_json::from_value(json!({"cidrs": ["192.0.2.0/28"]})).unwrap())];
        let check = |spec: Value, expected: &str| {
            let errors = check_range(&serde_json::from_value(spec).unwrap(), &there);
            let told: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(told.join("; "), expected);
        };
        check(
            json!({"cidrs": ["198.51.100.0/28", "2001:db8::/64"], "exclude": ["198.51.100.1", "198.51.100.8/30"]}),
            "",
        );
        check(json!({"cidrs": []}), "spec.cidrs: Required value: at least one range such as 192.0.2.0/28");
        check(
            json!({"cidrs": ["192.0.2.8/29"]}),
            "spec.cidrs[0]: Invalid value: \"192.0.2.8/29\": overlaps with the IngressVIPRange old",
        );
        check(
            json!({"cidrs": ["10.0.0.0/8", "10.1.0.0/16"]}),
            "spec.cidrs[1]: Invalid value: \"10.1.0.0/16\": overlaps with 10.0.0.0/8 of the same range",
        );
        check(
            json!({"cidrs": ["10.0.0.1/8"], "exclude": ["x"]}),
            "spec.cidrs[0]: Invalid value: \"10.0.0.1/8\": must not have bits set beyond the prefix length; \
             spec.exclude[0]: Invalid value: \"x\": must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
        );
        check(
            json!({"cidrs": ["many"]}),
            "spec.cidrs[0]: Invalid value: \"many\": must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",
        );
    }

    #[test]
    fn groups_are_read_before_they_are_kept() {
        let check = |spec: Value, expected: &str| {
            let errors = check_group(&serde_json::from_value(spec).unwrap(), &Path::new("spec"));
            let told: Vec<String> = errors.iter().map(ToString::to_string).collect();
            assert_eq!(told.join("; "), expected);
        };
        check(json!({"vip": "192.0.2.1", "capacity": {"ingresses": 1}}), "");
        check(
            json!({"vip": "0.0.0.0"}),
            "spec.vip: Invalid value: \"0.0.0.0\": must be the address of one node",
        );
        check(
            json!({"vip": "192.0.2.1", "vips": [{"cluster": "a", "address": "192.0.2.2"}, {"cluster": "b", "address": "192.0.2.2"}]}),
            "spec.vip: Forbidden: may not be given together with vips; spec.vips[1].address: Duplicate value: \"192.0.2.2\"",
        );
        check(
            json!({"capacity": {"ingresses": 0}}),
            "spec.capacity.ingresses: Invalid value: 0: must be greater than or equal to 1",
        );
        check(
            json!({"capacity": {"requestsPerSecond": 0, "connections": 0, "bandwidth": "0"}}),
            "spec.capacity.requestsPerSecond: Invalid value: 0: must be greater than or equal to 1; \
             spec.capacity.connections: Invalid value: 0: must be greater than or equal to 1; \
             spec.capacity.bandwidth: Invalid value: \"0\": must be greater than 0",
        );
        check(json!({"capacity": {"bandwidth": "1G"}}), "");
        let wrong = json!({"clusters": {"selector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}});
        let errors = check_group(&serde_json::from_value(wrong).unwrap(), &Path::new("spec"));
        assert!(errors.iter().any(|one| one.field == "spec.clusters.selector"), "{errors:?}");
    }
}
