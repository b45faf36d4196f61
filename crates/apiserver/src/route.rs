//! What a request asks for: its path taken apart, before anything is looked up.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// A path of the API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route<'a> {
    /// Objects: `/api/v1/namespaces/x/services/y/status`.
    Resource(Target<'a>),
    /// A discovery document: `/api`, `/apis`, `/apis/apps`, `/apis/apps/v1`.
    Discovery,
    /// Anything else: health, metrics, version, OpenAPI.
    Other(&'a str),
}

/// Which objects a path names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Target<'a> {
    /// API group; empty for core.
    pub group: Cow<'a, str>,
    /// API version.
    pub version: Cow<'a, str>,
    /// Namespace; empty for all, or for cluster-scoped kinds.
    pub namespace: Cow<'a, str>,
    /// Resource name such as `services`.
    pub plural: Cow<'a, str>,
    /// Object name; empty for the collection.
    pub name: Cow<'a, str>,
    /// Subresource such as `status`; empty for the object itself.
    pub subresource: Cow<'a, str>,
    /// The old way to ask for a watch: `/api/v1/watch/…`.
    pub watch: bool,
    /// More segments than any resource has.
    pub too_deep: bool,
}

/// Takes a path apart.
pub fn parse(path: &str) -> Route<'_> {
    let trimmed = path.trim_end_matches('/');
    let mut segments = trimmed.split('/').skip(1);
    let group = match segments.next() {
        Some("api") => Some(Cow::Borrowed("")),
        Some("apis") => segments.next().map(decode),
        _ => return Route::Other(path),
    };
    let version = segments.next().map(decode);
    let mut rest = segments.map(decode).peekable();
    match (group, version, rest.peek()) {
        (Some(group), Some(version), Some(_)) => Route::Resource(target(group, version, rest)),
        _ => Route::Discovery,
    }
}

/// Segments after the version: `[watch/][namespaces/NS/]PLURAL[/NAME[/SUB]]`. `namespaces` itself is a resource, so
/// `namespaces/x` and `namespaces/x/status` name a namespace.
fn target<'a>(
    group: Cow<'a, str>,
    version: Cow<'a, str>,
    mut rest: impl Iterator<Item = Cow<'a, str>>,
) -> Target<'a> {
    let mut out = Target { group, version, ..Target::default() };
    let mut first = rest.next().unwrap_or_default();
    if first == "watch" {
        out.watch = true;
        first = rest.next().unwrap_or_default();
    }
    let second = rest.next().unwrap_or_default();
    let third = rest.next().unwrap_or_default();
    if first == "namespaces" && !third.is_empty() && third != "status" && third != "finalize" {
        out.namespace = second;
        out.plural = third;
        out.name = rest.next().unwrap_or_default();
        out.subresource = rest.next().unwrap_or_default();
    } else {
        (out.plural, out.name, out.subresource) = (first, second, third);
    }
    out.too_deep = rest.next().is_some();
    out
}

fn decode(segment: &str) -> Cow<'_, str> {
    if segment.contains('%') {
        percent_decode_str(segment).decode_utf8_lossy()
    } else {
        Cow::Borrowed(segment)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(path: &str, want: &str) {
        let got = match parse(path) {
            Route::Resource(t) => format!(
                "{}{}|{}|{}|{}|{}|{}{}",
                if t.watch { "watch " } else { "" },
                t.group,
                t.version,
                t.namespace,
                t.plural,
                t.name,
                t.subresource,
                if t.too_deep { " deep" } else { "" }
            ),
            Route::Discovery => "discovery".to_owned(),
            Route::Other(path) => format!("other {path}"),
        };
        assert_eq!(got, want, "{path}");
    }

    #[test]
    fn paths() {
        check("/api/v1/namespaces/a/services/b/status", "|v1|a|services|b|status");
        check("/api/v1/namespaces/a/services", "|v1|a|services||");
        check("/api/v1/services", "|v1||services||");
        check("/api/v1/namespaces", "|v1||namespaces||");
        check("/api/v1/namespaces/a", "|v1||namespaces|a|");
        check("/api/v1/namespaces/a/finalize", "|v1||namespaces|a|finalize");
        check("/apis/apps/v1/namespaces/a/deployments/b/scale", "apps|v1|a|deployments|b|scale");
        check("/apis/apps/v1/deployments/", "apps|v1||deployments||");
        check("/api/v1/watch/namespaces/a/pods", "watch |v1|a|pods||");
        check("/api/v1/namespaces/a/pods/b/exec/c", "|v1|a|pods|b|exec deep");
        check(
            "/apis/rbac.authorization.k8s.io/v1/clusterroles/system%3Anode",
            "rbac.authorization.k8s.io|v1||clusterroles|system:node|",
        );
        check("/api", "discovery");
        check("/api/v1", "discovery");
        check("/apis", "discovery");
        check("/apis/", "discovery");
        check("/apis/apps", "discovery");
        check("/apis/apps/v1", "discovery");
        check("/healthz", "other /healthz");
        check("/", "other /");
        check("", "other ");
    }
}
