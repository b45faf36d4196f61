//! From an Ingress, or the one inside a MultiClusterIngress, to routes.

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use landfall_api::landfall::{
    IngressTemplateBackend, IngressTemplatePath, IngressTemplateSpec, MultiClusterIngressSpec, PathType,
    RedirectAction, RouteAction, RouteCertificate, RouteHost, RouteMatch, RoutePassthrough, RoutePath,
    RouteService,
};
use landfall_api::rules::read::{child, text};
use serde_json::Value;

use super::backing::{Backing, Port};
use super::options::{Options, options};
use super::origin::origin;
use super::{Part, Routes, Trouble, Wanted, begin, copy_name};

/// What stands around an Ingress.
pub struct Surroundings<'a> {
    /// The Service that a backend's name means.
    pub backing: &'a dyn Fn(&str) -> Option<Backing>,
    /// What is wrong with a Secret; nothing if it can be used.
    pub secret: &'a dyn Fn(&Wanted) -> Option<String>,
    /// Why a Secret's certificate is none for a host; nothing if it is, or if nobody can tell.
    pub misfit: &'a dyn Fn(&str, &str) -> Option<String>,
    /// The kind of backends, for messages.
    pub kind: &'static str,
}

/// The routes of an Ingress.
pub fn of_ingress(object: &Value, around: &Surroundings<'_>) -> Routes {
    let mut routes = Routes { spec: begin(object, "networking.k8s.io", "Ingress"), ..Routes::default() };
    let spec = serde_json::from_value(child(object, "spec").clone()).unwrap_or_default();
    fill(object, &spec, around, &mut routes);
    routes
}

/// The routes of a MultiClusterIngress of some group.
pub fn of_multi_cluster(object: &Value, group: &str, around: &Surroundings<'_>) -> Routes {
    let mut routes = Routes { spec: begin(object, group, "MultiClusterIngress"), ..Routes::default() };
    let spec: MultiClusterIngressSpec =
        serde_json::from_value(child(object, "spec").clone()).unwrap_or_default();
    fill(object, &spec.template.spec, around, &mut routes);
    routes
}

fn fill(object: &Value, spec: &IngressTemplateSpec, around: &Surroundings<'_>, routes: &mut Routes) {
    let namespace = text(child(object, "metadata"), "namespace");
    let options = options(object, !spec.tls.is_empty(), routes);
    certificates(spec, namespace, routes);
    let mut scene = Scene { namespace, around, options: &options, troubles: Vec::new() };
    let fallback = spec.default_backend.as_ref().or(spec.backend.as_ref());
    let fallback = fallback.map(|backend| scene.action(backend, "the default backend"));
    for rule in &spec.rules {
        let host = rule.host.as_deref().unwrap_or("").to_ascii_lowercase();
        let paths = rule.http.as_ref().map(|http| http.paths.as_slice()).unwrap_or_default();
        let found: Vec<RoutePath> = paths.iter().map(|path| scene.path(&host, path)).collect();
        let at = match routes.spec.hosts.iter().position(|known| known.host == host) {
            Some(at) => at,
            None => {
                routes.spec.hosts.push(RouteHost { host, paths: Vec::new() });
                routes.spec.hosts.len() - 1
            }
        };
        let Some(host) = routes.spec.hosts.get_mut(at) else { continue };
        for path in found {
            // Of two that are the same, the first counts.
            if !host.paths.iter().any(|known| (known.compare, &known.path) == (path.compare, &path.path)) {
                host.paths.push(path);
            }
        }
    }
    routes.troubles.append(&mut scene.troubles);
    // What none of a host's paths matches goes where everything goes that nothing matches.
    if let Some(fallback) = &fallback {
        for host in routes.spec.hosts.iter_mut().filter(|host| !covered(host)) {
            let (path, action) = ("/".to_owned(), fallback.clone());
            host.paths.push(RoutePath { path, compare: RouteMatch::Prefix, action });
            routes.implied.push(host.host.clone());
        }
    }
    routes.spec.hosts.retain(|host| !host.paths.is_empty());
    routes.spec.default_action = fallback.map(Box::new);
    if options.passthrough {
        pass_through(routes);
    }
    let secrets: Vec<String> = routes.secrets.iter().filter_map(around.secret).collect();
    let shown = if options.passthrough { &[][..] } else { spec.tls.as_slice() };
    let hosts =
        shown.iter().flat_map(|tls| tls.hosts.iter().flatten().zip(std::iter::repeat(&tls.secret_name)));
    let misfits =
        hosts.filter_map(|(host, secret)| (around.misfit)(secret.as_deref()?, &host.to_ascii_lowercase()));
    let wrong = secrets.into_iter().chain(misfits);
    routes.troubles.extend(wrong.map(|wrong| Trouble::reference("InvalidCertificate", wrong)));
    routes.spec.options = options.route;
}

/// Whether a host has a path that everything matches.
fn covered(host: &RouteHost) -> bool {
    host.paths.iter().any(|path| path.compare == RouteMatch::Prefix && path.path == "/")
}

fn certificates(spec: &IngressTemplateSpec, namespace: &str, routes: &mut Routes) {
    for tls in &spec.tls {
        let Some(name) = tls.secret_name.as_deref().filter(|name| !name.is_empty()) else { continue };
        let hosts = tls.hosts.iter().flatten().map(|host| host.to_ascii_lowercase()).collect();
        routes.spec.certificates.push(RouteCertificate { hosts, secret: copy_name(namespace, name) });
        let wanted = Wanted { name: name.to_owned(), part: Part::Certificate };
        if !routes.secrets.contains(&wanted) {
            routes.secrets.push(wanted);
        }
    }
}

/// Turns hosts into TLS that is carried as it is; over plain HTTP they are sent there.
fn pass_through(routes: &mut Routes) {
    for host in &mut routes.spec.hosts {
        let service = host.paths.iter().find_map(|path| path.action.service.clone());
        match service {
            Some(service) if !host.host.is_empty() => {
                routes.spec.passthrough.push(RoutePassthrough { host: host.host.clone(), service });
                let redirect = RedirectAction {
                    status_code: Some(308),
                    scheme: Some("https".into()),
                    ..RedirectAction::default()
                };
                let action = RouteAction { redirect: Some(Box::new(redirect)), ..RouteAction::default() };
                host.paths = vec![RoutePath { path: "/".into(), compare: RouteMatch::Prefix, action }];
            }
            _ => {
                let message = format!("TLS of the host {:?} cannot be passed through", host.host);
                routes.troubles.push(Trouble::object("NoPassthrough", message));
            }
        }
    }
    routes.spec.certificates.clear();
    routes.secrets.retain(|wanted| wanted.part != Part::Certificate);
}

struct Scene<'a> {
    namespace: &'a str,
    around: &'a Surroundings<'a>,
    options: &'a Options,
    troubles: Vec<Trouble>,
}

impl Scene<'_> {
    fn path(&mut self, host: &str, path: &IngressTemplatePath) -> RoutePath {
        let given = path.path.as_deref().filter(|text| text.starts_with('/')).unwrap_or("/");
        let (compare, text) = match path.path_type.unwrap_or_default() {
            PathType::Exact => (RouteMatch::Exact, given),
            PathType::Prefix => (RouteMatch::Prefix, given),
            // A star at the end says what a prefix is, in the oldest spelling.
            PathType::ImplementationSpecific => {
                (RouteMatch::Prefix, given.strip_suffix('*').unwrap_or(given))
            }
        };
        let action = self.action(&path.backend, &format!("{host}{given}"));
        RoutePath { path: text.to_owned(), compare, action }
    }

    /// What becomes of requests for a backend; `place` says where it stands.
    fn action(&mut self, backend: &IngressTemplateBackend, place: &str) -> RouteAction {
        if let Some(bucket) = &backend.bucket {
            return match origin(bucket) {
                Ok(_) => RouteAction { bucket: Some(Box::new(bucket.clone())), ..RouteAction::default() },
                Err(why) => self.unavailable("UnsupportedBackend", place, why),
            };
        }
        if let Some(redirect) = &backend.redirect {
            return RouteAction { redirect: Some(Box::new(redirect.clone())), ..RouteAction::default() };
        }
        if let Some(fixed) = &backend.fixed_response {
            return RouteAction { fixed_response: Some(Box::new(fixed.clone())), ..RouteAction::default() };
        }
        match self.service(backend) {
            Ok(service) => RouteAction { service: Some(service), ..RouteAction::default() },
            Err((code, why)) => self.unavailable(code, place, why),
        }
    }

    fn unavailable(&mut self, code: &'static str, place: &str, why: String) -> RouteAction {
        self.troubles.push(Trouble::reference(code, format!("{place}: {why}")));
        RouteAction { unavailable: Some(why), ..RouteAction::default() }
    }

    fn service(&self, backend: &IngressTemplateBackend) -> Result<RouteService, (&'static str, String)> {
        let kind = self.around.kind;
        let Some((name, port)) = named(backend) else {
            let what = match &backend.resource {
                Some(other) => format!("the backend {} {} is not carried", other.kind, other.name),
                None => format!("the backend names no {kind} and port"),
            };
            return Err(("UnsupportedBackend", what));
        };
        let path = format!("{}/{name}", self.namespace);
        let Some(backing) = (self.around.backing)(name) else {
            return Err(("BackendNotFound", format!("there is no {kind} {path}")));
        };
        if let Some(why) = &backing.barred {
            return Err(("UnsupportedBackend", why.clone()));
        }
        let Some(found) = backing.port(&port) else {
            return Err(("BackendNotFound", format!("the {kind} {path} has no port {port}")));
        };
        Ok(backing.route(self.namespace, found, self.options.protocol))
    }
}

/// The Service and the port that a backend names, in either spelling.
fn named(backend: &IngressTemplateBackend) -> Option<(&str, Port)> {
    if let Some(service) = &backend.service {
        let port = service.port.as_ref()?;
        let by_name = port.name.clone().filter(|name| !name.is_empty()).map(Port::Name);
        let by_number = port.number.filter(|number| *number > 0).map(Port::Number);
        return Some((&service.name, by_name.or(by_number)?));
    }
    let port = match backend.service_port.as_ref()? {
        IntOrString::Int(number) => Port::Number(*number),
        IntOrString::String(text) => text.parse().map_or_else(|_| Port::Name(text.clone()), Port::Number),
    };
    Some((backend.service_name.as_deref()?, port))
}
