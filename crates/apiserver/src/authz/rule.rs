//! One rule of a role: what it allows and what it covers.

use serde_json::{Map, Value, json};

use super::Attributes;

/// A PolicyRule.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rule {
    /// Verbs; `*` for all.
    pub verbs: Vec<String>,
    /// API groups; `*` for all.
    pub groups: Vec<String>,
    /// Resources, with subresources as `pods/log`; `*` for all, `*/scale` for all of one subresource.
    pub resources: Vec<String>,
    /// Names; none for all.
    pub names: Vec<String>,
    /// Paths that are no resources; a `*` at the end for all that begin so.
    pub urls: Vec<String>,
}

/// The fields of a PolicyRule, in the order Kubernetes writes them.
const FIELDS: [&str; 5] = ["verbs", "apiGroups", "resources", "resourceNames", "nonResourceURLs"];

impl Rule {
    /// A rule about resources.
    pub fn resources(verbs: &[&str], groups: &[&str], resources: &[&str]) -> Self {
        Self { verbs: own(verbs), groups: own(groups), resources: own(resources), ..Self::default() }
    }

    /// A rule about paths.
    pub fn urls(verbs: &[&str], urls: &[&str]) -> Self {
        Self { verbs: own(verbs), urls: own(urls), ..Self::default() }
    }

    /// From JSON; whatever is not a list of texts counts as empty.
    pub fn parse(rule: &Value) -> Self {
        let [verbs, groups, resources, names, urls] = FIELDS.map(|field| strings(rule.get(field)));
        Self { verbs, groups, resources, names, urls }
    }

    /// All rules of a role.
    pub fn parse_all(role: &Value) -> Vec<Self> {
        role.get("rules").and_then(Value::as_array).into_iter().flatten().map(Self::parse).collect()
    }

    /// To JSON, without empty lists.
    pub fn to_value(&self) -> Value {
        let lists = [&self.verbs, &self.groups, &self.resources, &self.names, &self.urls];
        let mut rule = Map::new();
        for (field, list) in FIELDS.iter().zip(lists) {
            if !list.is_empty() {
                rule.insert((*field).into(), json!(list));
            }
        }
        Value::Object(rule)
    }

    /// Whether it allows what is asked. Allocates nothing.
    pub fn allows(&self, asked: &Attributes<'_>) -> bool {
        if !has(&self.verbs, asked.verb) {
            return false;
        }
        if !asked.is_resource {
            return self.urls.iter().any(|url| url_covers(url, asked.path));
        }
        has(&self.groups, asked.group)
            && self.resources.iter().any(|r| resource_matches(r, asked.resource, asked.subresource))
            && (self.names.is_empty() || self.names.iter().any(|n| n == asked.name))
    }

    /// Whether it covers a broken-down rule (see [`Rule::break_down`]).
    pub fn covers(&self, part: &Self) -> bool {
        let names = self.names.is_empty()
            || !part.names.is_empty() && part.names.iter().all(|n| self.names.contains(n));
        part.verbs.iter().all(|v| has(&self.verbs, v))
            && part.groups.iter().all(|g| has(&self.groups, g))
            && part.resources.iter().all(|r| self.covers_resource(r))
            && part.urls.iter().all(|url| self.urls.iter().any(|own| url_covers(own, url)))
            && names
    }

    fn covers_resource(&self, resource: &str) -> bool {
        has(&self.resources, resource)
            || resource.split_once('/').is_some_and(|(_, sub)| {
                self.resources.iter().any(|own| own.strip_prefix("*/").is_some_and(|s| s == sub))
            })
    }

    /// The same as many rules, each with one verb, group, resource and name, or one verb and path.
    pub fn break_down(&self) -> Vec<Self> {
        let mut parts = Vec::new();
        let names: Vec<Vec<String>> = if self.names.is_empty() {
            vec![Vec::new()]
        } else {
            self.names.iter().map(|n| vec![n.clone()]).collect()
        };
        for group in &self.groups {
            for resource in &self.resources {
                for verb in &self.verbs {
                    for names in &names {
                        parts.push(Self {
                            names: names.clone(),
                            ..Self::resources(&[verb], &[group], &[resource])
                        });
                    }
                }
            }
        }
        for url in &self.urls {
            parts.extend(self.verbs.iter().map(|verb| Self::urls(&[verb], &[url])));
        }
        parts
    }
}

fn own(list: &[&str]) -> Vec<String> {
    list.iter().map(|s| (*s).to_owned()).collect()
}

/// The texts of a JSON list.
pub(super) fn strings(value: Option<&Value>) -> Vec<String> {
    value.and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).map(Into::into).collect()
}

fn has(list: &[String], item: &str) -> bool {
    list.iter().any(|own| own == "*" || own == item)
}

fn resource_matches(rule: &str, resource: &str, subresource: &str) -> bool {
    if rule == "*" {
        return true;
    }
    if subresource.is_empty() {
        return rule == resource;
    }
    let Some((own, sub)) = rule.split_once('/') else { return false };
    sub == subresource && (own == "*" || own == resource)
}

fn url_covers(rule: &str, path: &str) -> bool {
    rule == path || rule.ends_with('*') && path.starts_with(rule.trim_end_matches('*'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::authn::User;

    #[test]
    fn rules_allow_resources() {
        let user = User::default();
        let check = |rule: &Rule, verb: &str, what: (&str, &str, &str, &str), expected: bool| {
            let (group, resource, subresource, name) = what;
            let asked =
                Attributes { subresource, ..Attributes::resource(&user, verb, group, resource, "ns", name) };
            assert_eq!(rule.allows(&asked), expected, "{rule:?} {verb} {what:?}");
        };
        let read = Rule::resources(&["get", "list"], &["", "apps"], &["services", "deployments/scale"]);
        check(&read, "get", ("", "services", "", "x"), true);
        check(&read, "list", ("apps", "services", "", ""), true);
        check(&read, "create", ("", "services", "", ""), false);
        check(&read, "get", ("batch", "services", "", ""), false);
        check(&read, "get", ("", "services", "status", "x"), false);
        check(&read, "get", ("apps", "deployments", "scale", "x"), true);
        check(&read, "get", ("apps", "deployments", "", "x"), false);
        let all = Rule::resources(&["*"], &["*"], &["*"]);
        check(&all, "anything", ("any", "thing", "at", "all"), true);
        let scales = Rule::resources(&["*"], &["*"], &["*/scale"]);
        check(&scales, "get", ("apps", "deployments", "scale", "x"), true);
        check(&scales, "get", ("apps", "deployments", "", "x"), false);
        check(&scales, "get", ("apps", "deployments", "rescale", "x"), false);
        let named = Rule { names: own(&["a", "b"]), ..Rule::resources(&["get"], &[""], &["secrets"]) };
        check(&named, "get", ("", "secrets", "", "a"), true);
        check(&named, "get", ("", "secrets", "", "c"), false);
        check(&named, "get", ("", "secrets", "", ""), false);
        let extras =
            Rule::resources(&["impersonate"], &["authentication.k8s.io"], &["userextras/example.com/a"]);
        check(&extras, "impersonate", ("authentication.k8s.io", "userextras", "example.com/a", "v"), true);
        check(&Rule::urls(&["*"], &["*"]), "get", ("", "services", "", ""), false);
    }

    #[test]
    fn rules_allow_paths() {
        let user = User::default();
        let check = |urls: &[&str], path: &str, expected: bool| {
            let rule = Rule::urls(&["get"], urls);
            assert_eq!(rule.allows(&Attributes::path(&user, "get", path)), expected, "{urls:?} {path}");
        };
        check(&["/metrics"], "/metrics", true);
        check(&["/metrics"], "/metrics/x", false);
        check(&["/api/*"], "/api/v1", true);
        check(&["/api/*"], "/api", false);
        check(&["*"], "/anything", true);
        check(&[], "/metrics", false);
        let all = Rule::resources(&["*"], &["*"], &["*"]);
        assert!(!all.allows(&Attributes::path(&user, "get", "/metrics")), "resource rules allow no paths");
    }

    #[test]
    fn rules_cover_rules() {
        let check = |owner: &Rule, part: &Rule, expected: bool| {
            let covered = part.break_down().iter().all(|p| owner.covers(p));
            assert_eq!(covered, expected, "{owner:?} {part:?}");
        };
        let all = Rule::resources(&["*"], &["*"], &["*"]);
        let pods = Rule::resources(&["get", "list"], &[""], &["pods", "pods/log"]);
        let one = Rule { names: own(&["a"]), ..Rule::resources(&["get"], &[""], &["pods"]) };
        check(&all, &pods, true);
        check(&pods, &all, false);
        check(&pods, &one, true);
        check(&one, &one, true);
        check(&one, &Rule::resources(&["get"], &[""], &["pods"]), false);
        check(
            &Rule::resources(&["*"], &[""], &["*/log"]),
            &Rule::resources(&["get"], &[""], &["pods/log"]),
            true,
        );
        check(&Rule::urls(&["*"], &["/api/*"]), &Rule::urls(&["get"], &["/api/v1"]), true);
        check(&Rule::urls(&["get"], &["/api"]), &Rule::urls(&["get", "put"], &["/api"]), false);
        check(&all, &Rule::urls(&["get"], &["/api"]), false);
    }

    #[test]
    fn json_goes_there_and_back_and_bad_json_allows_nothing() {
        let rule =
            json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods"], "resourceNames": ["a"]});
        assert_eq!(Rule::parse(&rule).to_value(), rule);
        assert_eq!(Rule::parse(&json!({"verbs": "get", "apiGroups": 1})), Rule::default());
        assert_eq!(Rule::parse_all(&json!({"rules": null})), vec![]);
    }
}
