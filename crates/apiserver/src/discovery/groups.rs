//! Groups and versions in the order clients see them.

use std::cmp::Ordering;
use std::sync::Arc;

use landfall_api::Kind;

/// One API group with its versions, the preferred one first.
pub(super) struct Group {
    /// Its name; empty for core.
    pub(super) name: String,
    /// Its versions, best first.
    pub(super) versions: Vec<Version>,
}

/// One version of a group with its kinds.
pub(super) struct Version {
    /// Its name, such as `v1`.
    pub(super) name: String,
    /// Its kinds, sorted by plural.
    pub(super) kinds: Vec<Arc<Kind>>,
}

impl Version {
    /// `apps/v1`, or `v1` for the core group.
    pub(super) fn group_version(&self, group: &Group) -> String {
        if group.name.is_empty() { self.name.clone() } else { format!("{}/{}", group.name, self.name) }
    }

    /// Where its resources are listed: `/apis/apps/v1`, or `/api/v1`.
    pub(super) fn path(&self, group: &Group) -> String {
        if group.name.is_empty() {
            format!("/api/{}", self.name)
        } else {
            format!("/apis/{}/{}", group.name, self.name)
        }
    }
}

/// Sorts kinds into groups: built-in groups first, in the order of the table; then the others by name.
pub(super) fn of(kinds: &[Arc<Kind>]) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for kind in kinds {
        let at = groups.iter().position(|group| group.name == *kind.group).unwrap_or_else(|| {
            groups.push(Group { name: kind.group.to_string(), versions: Vec::new() });
            groups.len() - 1
        });
        add(&mut groups[at], kind);
    }
    for group in &mut groups {
        group.versions.sort_by(|a, b| by_priority(&a.name, &b.name));
        for version in &mut group.versions {
            version.kinds.sort_by(|a, b| a.plural.cmp(&b.plural));
        }
    }
    let custom = |group: &Group| group.versions.iter().flat_map(|v| &v.kinds).all(|kind| !kind.strategic);
    groups.sort_by_cached_key(|group| custom(group).then(|| group.name.clone()));
    groups
}

fn add(group: &mut Group, kind: &Arc<Kind>) {
    let at = group.versions.iter().position(|version| version.name == *kind.version).unwrap_or_else(|| {
        group.versions.push(Version { name: kind.version.to_string(), kinds: Vec::new() });
        group.versions.len() - 1
    });
    group.versions[at].kinds.push(Arc::clone(kind));
}

/// Versions in Kubernetes' order: `v2`, `v1`, `v2beta1`, `v1beta2`, `v1alpha1`, then everything else by name.
pub fn by_priority(a: &str, b: &str) -> Ordering {
    match (rank(a), rank(b)) {
        (Some(a), Some(b)) => b.cmp(&a),
        (Some(_), None) => Ordering::Less,
        (None, Some(_)) => Ordering::Greater,
        (None, None) => a.cmp(b),
    }
}

/// Stability, major and minor number of a version such as `v1beta2`; higher is better.
fn rank(version: &str) -> Option<(u8, u64, u64)> {
    let rest = version.strip_prefix('v')?;
    let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
    let (major, rest) = rest.split_at(end);
    let major = number(major)?;
    let (stability, minor) = match (rest.strip_prefix("alpha"), rest.strip_prefix("beta")) {
        _ if rest.is_empty() => return Some((2, major, 0)),
        (_, Some(minor)) => (1, minor),
        (Some(minor), _) => (0, minor),
        (None, None) => return None,
    };
    Some((stability, major, number(minor)?))
}

fn number(digits: &str) -> Option<u64> {
    let first = digits.chars().next()?;
    ((first.is_ascii_digit() && first != '0') || digits == "0").then(|| digits.parse().ok())?
}
