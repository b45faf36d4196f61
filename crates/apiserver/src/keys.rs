//! Where objects live in the store: `group/plural/namespace/name`, with `core` for the core group and
//! no namespace segment for cluster-scoped kinds.

/// The prefix of all objects of a kind; ends in `/`.
pub fn collection(group: &str, plural: &str) -> String {
    let group = if group.is_empty() { "core" } else { group };
    format!("{group}/{plural}/")
}

/// The prefix of a kind's objects in one namespace (all of them when it is empty); ends in `/`.
pub fn namespace(group: &str, plural: &str, namespace: &str) -> String {
    let mut key = collection(group, plural);
    if !namespace.is_empty() {
        key.push_str(namespace);
        key.push('/');
    }
    key
}

/// The key of one object.
pub fn object(group: &str, plural: &str, namespace_name: &str, name: &str) -> String {
    let mut key = namespace(group, plural, namespace_name);
    key.push_str(name);
    key
}
