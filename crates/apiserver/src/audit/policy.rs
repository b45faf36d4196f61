//! What is recorded: refusals always, writes except those in the table, reads only when asked for.

use crate::authz::Attributes;

/// Resources whose writes say nothing about people: group and plural.
const QUIET: [(&str, &str); 6] = [
    ("", "events"),
    ("events.k8s.io", "events"),
    ("coordination.k8s.io", "leases"),
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
];

/// Whether a request is recorded (at level Metadata, always).
pub fn records(asked: &Attributes<'_>, code: u16, reads: bool) -> bool {
    if matches!(code, 401 | 403) {
        return true;
    }
    let read = matches!(asked.verb, "get" | "list" | "watch" | "head" | "options");
    if !asked.is_resource {
        // Health, discovery and metrics are asked for all the time.
        return !read;
    }
    if read { reads } else { !QUIET.contains(&(asked.group, asked.resource)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authn::User;

    #[test]
    fn writes_and_refusals_are_recorded() {
        let user = User::default();
        let check = |verb: &str, group: &str, resource: &str, code: u16, reads: bool, expected: bool| {
            let asked = Attributes::resource(&user, verb, group, resource, "ns", "x");
            assert_eq!(records(&asked, code, reads), expected, "{verb} {resource} {code}");
        };
        check("create", "", "services", 201, false, true);
        check("patch", "", "secrets", 200, false, true);
        check("get", "", "secrets", 200, false, false);
        check("get", "", "secrets", 200, true, true);
        check("list", "", "secrets", 403, false, true);
        check("update", "coordination.k8s.io", "leases", 200, false, false);
        check("update", "coordination.k8s.io", "leases", 403, false, true);
        check("create", "", "events", 201, true, false);
        let path = |verb: &str, code: u16, expected: bool| {
            assert_eq!(records(&Attributes::path(&user, verb, "/healthz"), code, true), expected, "{verb}");
        };
        path("get", 200, false);
        path("get", 401, true);
        path("post", 200, true);
    }
}
