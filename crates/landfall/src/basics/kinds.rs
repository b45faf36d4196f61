//! What a server serves, by every name that people use for it.

use anyhow::{Result, bail};
use serde_json::Value;

use super::target::{Target, escape};

const DISCOVERY: &str = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";

/// One kind as it is served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Served {
    pub(crate) group: String,
    pub(crate) version: String,
    pub(crate) kind: String,
    pub(crate) plural: String,
    singular: String,
    short: Vec<String>,
    pub(crate) namespaced: bool,
}

/// Everything a server serves, in its order.
pub(crate) struct Kinds(Vec<Served>);

impl Kinds {
    /// Asks the server.
    pub(crate) async fn ask(target: &Target) -> Result<Self> {
        let (core, groups) = tokio::try_join!(target.get("/api", DISCOVERY), target.get("/apis", DISCOVERY))?;
        Ok(Self([core, groups].iter().flat_map(read).collect()))
    }

    /// The kind that a word means: plural, singular, short, a kind's own name, or any of them with `.GROUP`.
    pub(crate) fn find(&self, word: &str) -> Result<&Served> {
        let lower = word.to_lowercase();
        let (name, group) = lower.split_once('.').map_or((lower.as_str(), None), |(n, g)| (n, Some(g)));
        let meant = |served: &&Served| {
            let known = served.plural == name
                || served.singular == name
                || served.kind.to_lowercase() == name
                || served.short.iter().any(|short| short == name);
            known && group.is_none_or(|group| served.group == group)
        };
        match self.0.iter().find(meant) {
            Some(served) => Ok(served),
            None => bail!("the server doesn't have a resource type \"{word}\""),
        }
    }

    /// The kind of an object in a manifest.
    pub(crate) fn of(&self, object: &Value) -> Result<&Served> {
        let text = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or_default();
        let (api_version, kind) = (text("apiVersion"), text("kind"));
        let (group, version) = api_version.split_once('/').unwrap_or(("", api_version));
        let same = |s: &&Served| s.group == group && s.version == version && s.kind == kind;
        match self.0.iter().find(same) {
            Some(served) => Ok(served),
            None => bail!("no matches for kind \"{kind}\" in version \"{api_version}\""),
        }
    }
}

impl Served {
    /// Where objects of this kind are: one of them, or all.
    pub(crate) fn path(&self, namespace: &str, name: &str) -> String {
        let root = if self.group.is_empty() { "/api".into() } else { format!("/apis/{}", self.group) };
        let mut path = format!("{root}/{}", self.version);
        if self.namespaced && !namespace.is_empty() {
            path = format!("{path}/namespaces/{}", escape(namespace));
        }
        path = format!("{path}/{}", self.plural);
        if name.is_empty() { path } else { format!("{path}/{}", escape(name)) }
    }

    /// As kubectl names an object: `deployment.apps/web`.
    pub(crate) fn title(&self, name: &str) -> String {
        let dot = if self.group.is_empty() { "" } else { "." };
        format!("{}{dot}{}/{name}", self.singular, self.group)
    }
}

fn list<'a>(value: &'a Value, key: &str) -> impl Iterator<Item = &'a Value> {
    value.get(key).and_then(Value::as_array).into_iter().flatten()
}

fn read(document: &Value) -> Vec<Served> {
    let text = |value: &Value, pointer: &str| {
        value.pointer(pointer).and_then(Value::as_str).unwrap_or_default().to_owned()
    };
    let mut found = Vec::new();
    for group in list(document, "items") {
        for version in list(group, "versions") {
            for resource in list(version, "resources") {
                let kind = text(resource, "/responseKind/kind");
                let singular = text(resource, "/singularResource");
                found.push(Served {
                    group: text(group, "/metadata/name"),
                    version: text(version, "/version"),
                    plural: text(resource, "/resource"),
                    singular: if singular.is_empty() { kind.to_lowercase() } else { singular },
                    kind,
                    short: list(resource, "shortNames").filter_map(Value::as_str).map(Into::into).collect(),
                    namespaced: text(resource, "/scope") == "Namespaced",
                });
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn kinds() -> Kinds {
        let resource = |plural: &str, singular: &str, kind: &str, short: &[&str], scope: &str| json!({"resource": plural, "singularResource": singular, "responseKind": {"kind": kind}, "shortNames": short, "scope": scope});
        let core = json!({"items": [{"metadata": {}, "versions": [{"version": "v1", "resources": [
            resource("services", "service", "Service", &["svc"], "Namespaced"),
            resource("namespaces", "namespace", "Namespace", &["ns"], "Cluster"),
            resource("events", "event", "Event", &["ev"], "Namespaced"),
        ]}]}]});
        let groups = json!({"items": [
            {"metadata": {"name": "apps"}, "versions": [{"version": "v1", "resources": [
                resource("deployments", "deployment", "Deployment", &["deploy"], "Namespaced")]}]},
            {"metadata": {"name": "events.k8s.io"}, "versions": [{"version": "v1", "resources": [
                resource("events", "event", "Event", &["ev"], "Namespaced")]}]},
        ]});
        Kinds([core, groups].iter().flat_map(read).collect())
    }

    #[test]
    fn words_mean_kinds() {
        let kinds = kinds();
        for (word, path, title) in [
            ("svc", "/api/v1/namespaces/shop/services/x", "service/x"),
            ("Service", "/api/v1/namespaces/shop/services/x", "service/x"),
            ("ns", "/api/v1/namespaces/x", "namespace/x"),
            ("deploy", "/apis/apps/v1/namespaces/shop/deployments/x", "deployment.apps/x"),
            ("deployments.apps", "/apis/apps/v1/namespaces/shop/deployments/x", "deployment.apps/x"),
            ("events", "/api/v1/namespaces/shop/events/x", "event/x"),
            ("ev.events.k8s.io", "/apis/events.k8s.io/v1/namespaces/shop/events/x", "event.events.k8s.io/x"),
        ] {
            let served = kinds.find(word).unwrap();
            assert_eq!((served.path("shop", "x"), served.title("x")), (path.into(), title.into()), "{word}");
        }
        let error = kinds.find("gadgets").unwrap_err().to_string();
        assert_eq!(error, "the server doesn't have a resource type \"gadgets\"");
    }

    #[test]
    fn names_cannot_leave_their_place() {
        let kinds = kinds();
        let path = kinds.find("svc").unwrap().path("a/../b", "c?d");
        assert_eq!(path, "/api/v1/namespaces/a%2F..%2Fb/services/c%3Fd");
    }

    #[test]
    fn objects_have_kinds() {
        let kinds = kinds();
        assert_eq!(
            kinds.of(&json!({"apiVersion": "apps/v1", "kind": "Deployment"})).unwrap().plural,
            "deployments"
        );
        let error = kinds.of(&json!({"apiVersion": "apps/v2", "kind": "Deployment"})).unwrap_err();
        assert_eq!(error.to_string(), "no matches for kind \"Deployment\" in version \"apps/v2\"");
    }
}
