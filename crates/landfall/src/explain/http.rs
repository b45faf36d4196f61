//! `landfall explain http`: one request in words.

use anyhow::{Context, Result, bail};
use http::Uri;
use landfall_api::landfall::{RoutePlan, RoutePlanSpec};
use landfall_plan::records::places::Place;
use landfall_plan::routes::explain::{Request, Stand, explain, find};
use landfall_plan::routes::path::normal_path;

use super::options::HttpOptions;
use super::plans::{self, Plans, federation, stand};
use crate::basics::target::Target;
use crate::say::print;

const ROUTES: &str = "/apis/landfall.dev/v1alpha1/routeplans";

pub(super) async fn run(options: &HttpOptions) -> Result<()> {
    let target = Target::find(&options.connection).await?;
    let plans = plans::read(&target).await?;
    let list = target.get(ROUTES, "application/json").await.context("cannot read the routes")?;
    let items = list.get("items").cloned().unwrap_or_default();
    let routes: Vec<RoutePlan> = serde_json::from_value(items).context("cannot read the routes")?;
    let routes: Vec<(String, RoutePlanSpec)> =
        routes.into_iter().map(|plan| (plan.metadata.namespace.unwrap_or_default(), plan.spec)).collect();
    let without = options.without.as_deref();
    print(&said(&plans, &routes, &options.url, options.from.as_deref(), without)?);
    Ok(())
}

fn said(
    plans: &Plans,
    routes: &[(String, RoutePlanSpec)],
    url: &str,
    from: Option<&str>,
    without: Option<&str>,
) -> Result<String> {
    let (secure, host, path) = split(url)?;
    let federation = federation(plans)?;
    if let Some(without) = without
        && !federation.members.iter().any(|member| member.name == without)
    {
        bail!("there is no cluster {without:?}");
    }
    let (scene, from) = stand(federation, from)?;
    let member = match from.place {
        Place::Member(number) => {
            scene.places.members.get(usize::from(number)).map(|member| member.name.as_str())
        }
        Place::Region(_) | Place::Unknown => None,
    };
    let of_member = federation.members.iter().find(|known| Some(known.name.as_str()) == member);
    let region = match from.place {
        Place::Member(_) => of_member.and_then(|known| known.region.as_deref()),
        // Names of regions are written in any case.
        Place::Region(number) => scene.places.regions.get(usize::from(number)).and_then(|wanted| {
            let known = federation.members.iter().filter_map(|member| member.region.as_deref());
            known.into_iter().find(|region| region.eq_ignore_ascii_case(wanted))
        }),
        Place::Unknown => None,
    };
    let place = scene.places.say(from.place);
    let words = match from.place {
        Place::Unknown => "a client of whom nothing is known".to_owned(),
        Place::Member(_) if from.inside => format!("inside {place}"),
        Place::Member(_) | Place::Region(_) => format!("near {place}"),
    };
    let stand = Stand { said: &words, member: member.unwrap_or(""), region };
    let request = Request { secure, host: &host, path: &path };
    let found = find(routes, &request);
    let service = found.as_ref().and_then(|found| found.action.service.as_ref());
    let plan = service.and_then(|service| plans.get(&(service.namespace.clone(), service.name.clone())));
    Ok(explain(&request, found.as_ref(), plan, &stand, without).to_string())
}

/// Whether it is over TLS, the host and the path of a URL, as edges read them; one without a scheme is plain HTTP.
fn split(url: &str) -> Result<(bool, String, String)> {
    let whole = if url.contains("://") { url.to_owned() } else { format!("http://{url}") };
    let uri: Uri = whole.parse().with_context(|| format!("{url:?} is no URL"))?;
    let secure = match uri.scheme_str() {
        Some("https") => true,
        Some("http") => false,
        _ => bail!("{url:?} is neither http nor https"),
    };
    let host = uri.host().unwrap_or_default();
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    if host.is_empty() {
        bail!("{url:?} has no host");
    }
    let path = if uri.path().is_empty() { "/" } else { uri.path() };
    let Ok(normal) = normal_path(path) else {
        bail!("the path {path:?} can be read in two ways: edges answer 400");
    };
    Ok((secure, host, normal.unwrap_or_else(|| path.to_owned())))
}

#[cfg(test)]
mod tests {
    use landfall_api::landfall::{FEDERATION_PLAN, SYSTEM_NAMESPACE};
    use serde_json::json;

    use super::*;

    fn world() -> (Plans, Vec<(String, RoutePlanSpec)>) {
        let whole = json!({"targetRef": {"kind": "Federation", "name": "fed"}, "federation": {
            "name": "fed", "members": [{"name": "east", "region": "US"}, {"name": "west", "region": "EU"}],
            "prefixes": [{"cidr": "192.0.2.0/24", "cluster": "west"}, {"cidr": "198.51.100.0/24", "region": "us"}],
        }});
        let choice =
            |cluster: &str, reason: &str| json!({"cluster": cluster, "fraction": 1.0, "reason": reason});
        let web = json!({
            "targetRef": {"kind": "Service", "name": "web"},
            "clusters": [{"name": "east", "verdict": {"up": true}}, {"name": "west", "verdict": {"up": true}}],
            "vantages": [
                {"cluster": "west", "choices": [choice("west", "Local: x"), {"cluster": "east", "fraction": 0.0}]},
                {"region": "US", "choices": [choice("east", "Nearest: x")]},
                {"choices": [choice("west", "Spread: x")]},
            ],
        });
        let routes = json!({"sourceRef": {"kind": "Ingress", "name": "front"}, "hosts": [{"host": "shop.example.com", "paths": [
            {"path": "/", "match": "Prefix", "action": {"service": {"namespace": "shop", "name": "web", "port": 80, "protocol": "HTTP"}}},
        ]}]});
        let plan = |value| serde_json::from_value(value).unwrap();
        let key = |namespace: &str, name: &str| (namespace.to_owned(), name.to_owned());
        let plans = Plans::from([
            (key("shop", "web"), plan(web)),
            (key(SYSTEM_NAMESPACE, FEDERATION_PLAN), plan(whole)),
        ]);
        (plans, vec![("shop".to_owned(), serde_json::from_value(routes).unwrap())])
    }

    #[test]
    fn a_request_is_told_from_where_its_client_stands() {
        let (plans, routes) = world();
        for (url, from, expected) in [
            ("https://shop.example.com/x", Some("west"), "west  100 %  Local: x"),
            ("shop.example.com", Some("192.0.2.7"), "west  100 %  Local: x"),
            ("http://SHOP.example.com:8080/", Some("198.51.100.0/24"), "east  100 %  Nearest: x"),
            ("http://shop.example.com/", None, "west  100 %  Spread: x"),
            ("http://shop.example.com/", None, "from a client of whom nothing is known"),
            ("http://other.example.com/", None, "no route matches"),
            ("http://shop.example.com./", None, "Spread: x"),
            ("http://shop.example.com/a/..//%62?c", None, "http://shop.example.com/b from"),
        ] {
            let said = said(&plans, &routes, url, from, None).unwrap();
            assert!(said.contains(expected), "{url} from {from:?}: {said}");
        }
        let left = said(&plans, &routes, "shop.example.com", Some("west"), Some("west")).unwrap();
        assert!(left.contains("east  100 %  takes over at once"), "{left}");
        for (url, from, without, wrong) in [
            ("ftp://x/", None, None, "neither http nor https"),
            ("http://", None, None, "is no URL"),
            ("http://shop.example.com/a%2f..", None, None, "edges answer 400"),
            ("shop.example.com", Some("nowhere"), None, "there are the clusters east, west"),
            ("shop.example.com", None, Some("nowhere"), "there is no cluster"),
        ] {
            let error = said(&plans, &routes, url, from, without).unwrap_err().to_string();
            assert!(error.contains(wrong), "{url}: {error}");
        }
    }
}
