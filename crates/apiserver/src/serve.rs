//! One request from arrival to answer: who, may they, what, and what is noted about it.

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response};
use http_body::Body as HttpBody;
use landfall_api::selector::FieldSelector;
use landfall_api::{Reason, Status};
use landfall_runtime::clock;

use crate::api::Api;
use crate::audit;
use crate::authn::{ANONYMOUS, MASTERS, User, impersonate, unauthorized, x509};
use crate::authz::{self, Attributes};
use crate::http::answer::{self, Style};
use crate::http::body::{Body, Slot};
use crate::http::negotiate::{self, Encoding, Offers};
use crate::options::{self, Options};
use crate::route::{self, Route, Target};
use crate::{edges, resources, system};

/// Requests served at once, watches excluded; more get 429.
const INFLIGHT_MAX: i64 = 4_000;

/// Watches open at once; more get 429.
const WATCHES_MAX: i64 = 50_000;

/// How long a request may take, up to its answer; for a watch, up to its opening.
const REQUEST_MAX: Duration = Duration::from_secs(60);

/// The longest path and query.
const URI_BYTES_MAX: usize = 16 * 1024;

/// Who stands at the other end of a connection.
#[derive(Clone, Debug, Default)]
pub struct Peer {
    /// Whoever its client certificate names.
    pub certificate: x509::Peer,
    /// When that certificate ends, in seconds since 1970, where there is one.
    pub ends_s: Option<i64>,
    /// Its address.
    pub address: Option<IpAddr>,
}

/// What a request wants, in the words of authorisation.
pub struct Asked<'a> {
    /// The path taken apart.
    pub route: Route<'a>,
    /// The query.
    pub options: Options<'a>,
    /// `get`, `list`, …; the lower-case method for paths that are no resources.
    pub verb: &'static str,
    /// The one name that a list or watch selects; empty for none.
    pub selected: String,
}

/// A request on its way: everything but its body.
pub struct Call<'a> {
    /// The server.
    pub api: &'a Arc<Api>,
    /// Whoever it is charged to.
    pub user: &'a User,
    /// The HTTP head.
    pub head: &'a Parts,
    /// The query.
    pub options: &'a Options<'a>,
    /// How the answer is written.
    pub style: Style,
}

impl Call<'_> {
    /// A header as text.
    pub fn header(&self, name: &http::header::HeaderName) -> Option<&str> {
        text(&self.head.headers, name)
    }
}

/// Answers a request. Never fails: what goes wrong is an answer too.
pub async fn serve<B>(api: &Arc<Api>, peer: &Peer, request: Request<B>) -> Response<Body>
where
    B: HttpBody<Data = Bytes> + Unpin + Send,
    B::Error: std::fmt::Display,
{
    let began = clock::instant();
    let (head, body) = request.into_parts();
    let asked = match ask(&head) {
        Ok(asked) => asked,
        Err(status) => return refuse(&status, &head),
    };
    let (gauge, max) = if asked.verb == "watch" || is_log(&asked.route) {
        (&api.telemetry.longrunning, WATCHES_MAX)
    } else {
        (&api.telemetry.inflight, INFLIGHT_MAX)
    };
    let (slot, taken) = Slot::take(gauge);
    let crowded = taken > max && !is_health(&asked.route);
    let mut note = audit::Note::default();
    let entered = enter(api, peer, &head, &asked, body, crowded, &mut note);
    let result = tokio::time::timeout(REQUEST_MAX, entered).await.unwrap_or_else(|_| Err(took_too_long()));
    let (response, refusal) = match result {
        Ok(response) => (response, None),
        Err(status) => (refuse(&status, &head), Some(status)),
    };
    let code = response.status().as_u16();
    if let Some(log) = &api.audit {
        let nobody = User::default();
        let user = note.impersonated.as_deref().or(note.user.as_deref()).unwrap_or(&nobody);
        let ended = clock::since_epoch();
        log.record(&audit::Finished {
            note: &note,
            asked: &attributes(user, &asked, &head),
            uri: head.uri.path_and_query().map_or("/", |p| p.as_str()),
            headers: &head.headers,
            peer: peer.address,
            code,
            refusal: refusal.as_ref(),
            began: ended.saturating_sub(began.elapsed()),
            ended,
        });
    }
    let resource = match &asked.route {
        Route::Resource(target) => &*target.plural,
        _ => "",
    };
    // Only resources that exist become labels, so that strangers cannot invent them.
    let resource = if api.catalog.load().is_unknown(resource) { "" } else { resource };
    api.telemetry.request(metric_verb(asked.verb), resource, code, began.elapsed());
    response.map(|body| body.holding(slot))
}

/// Whoever looks after this hub must get an answer when it is busy most of all.
fn is_health(route: &Route<'_>) -> bool {
    let Route::Other(path) = route else { return false };
    matches!(path.split('/').nth(1), Some("healthz" | "livez" | "readyz"))
}

/// A log may be followed for long, as a watch is.
fn is_log(route: &Route<'_>) -> bool {
    matches!(route, Route::Resource(target) if target.subresource == "log" && target.plural == "pods")
}

fn took_too_long() -> Status {
    Status::new(Reason::Timeout, "request did not complete within the allotted timeout")
}

fn too_many() -> Status {
    let mut status = Status::new(Reason::TooManyRequests, "Too many requests, please try again later.");
    status.retry_after_s = 1;
    status
}

/// Takes path, query and method apart.
fn ask(head: &Parts) -> Result<Asked<'_>, Status> {
    if head.uri.path().len() + head.uri.query().map_or(0, str::len) > URI_BYTES_MAX {
        return Err(Status::bad_request("the request URI is too long"));
    }
    let options = Options::parse(head.uri.query().unwrap_or(""))
        .map_err(|status| options::name_options(status, &head.method))?;
    let route = route::parse(head.uri.path());
    let verb = match &route {
        Route::Resource(target) => resource_verb(&head.method, target, &options),
        _ => method_verb(&head.method),
    };
    let selected = if matches!(verb, "list" | "watch") { selected_name(&options) } else { String::new() };
    Ok(Asked { route, options, verb, selected })
}

/// The name that a field selector insists on: who may see only some names may list and watch those.
fn selected_name(options: &Options<'_>) -> String {
    if options.field_selector.is_empty() {
        return String::new();
    }
    let fields = FieldSelector::parse(&options.field_selector).unwrap_or_default();
    let name = fields.exact("metadata.name").unwrap_or("");
    let unsafe_in_paths = name.contains(['/', '%']) || matches!(name, "." | "..");
    if unsafe_in_paths { String::new() } else { name.to_owned() }
}

fn resource_verb(method: &Method, target: &Target<'_>, options: &Options<'_>) -> &'static str {
    // One object is watched by selecting its name, or at the old path; elsewhere `watch` is not looked at.
    let watch = target.watch || options.watch && target.name.is_empty();
    match (method.as_str(), target.name.is_empty()) {
        ("GET" | "HEAD", _) if watch && target.subresource.is_empty() => "watch",
        ("GET" | "HEAD", true) => "list",
        ("GET" | "HEAD", false) => "get",
        ("POST", _) => "create",
        ("PUT", _) => "update",
        ("PATCH", _) => "patch",
        ("DELETE", true) => "deletecollection",
        ("DELETE", false) => "delete",
        _ => "",
    }
}

fn method_verb(method: &Method) -> &'static str {
    match method.as_str() {
        "GET" => "get",
        "HEAD" => "head",
        "POST" => "post",
        "PUT" => "put",
        "PATCH" => "patch",
        "DELETE" => "delete",
        "OPTIONS" => "options",
        _ => "",
    }
}

/// Kubernetes' metrics write verbs in capitals.
fn metric_verb(verb: &'static str) -> &'static str {
    match verb {
        "get" => "GET",
        "list" => "LIST",
        "watch" => "WATCH",
        "create" | "post" => "POST",
        "update" | "put" => "PUT",
        "patch" => "PATCH",
        "delete" => "DELETE",
        "deletecollection" => "DELETECOLLECTION",
        _ => "other",
    }
}

/// Authenticates, authorises, dispatches. When it is `crowded`, only administrators get in.
async fn enter<B>(
    api: &Arc<Api>,
    peer: &Peer,
    head: &Parts,
    asked: &Asked<'_>,
    body: B,
    crowded: bool,
    note: &mut audit::Note,
) -> Result<Response<Body>, Status>
where
    B: HttpBody<Data = Bytes> + Unpin + Send,
    B::Error: std::fmt::Display,
{
    let user = authenticate(api, peer, head).await?;
    note.user = Some(user.clone());
    let request = attributes(&user, asked, head);
    let other = impersonate::impersonate_for(&head.headers, &request, &api.authz.policy())?;
    let user = match other {
        Some(other) => {
            let acting = Arc::new(other.user);
            (note.impersonated, note.constraint) = (Some(acting.clone()), other.constraint);
            acting
        }
        None => user,
    };
    if crowded && !user.in_group(MASTERS) {
        return Err(too_many());
    }
    authorize(api, &user, asked, head, note).await?;
    let style = style(head, &asked.options, offers(&asked.route))?;
    let call = Call { api, user: &user, head, options: &asked.options, style };
    match &asked.route {
        Route::Resource(target) => resources::dispatch(&call, target, asked.verb, body).await,
        Route::Discovery => system::discovery(&call),
        Route::Other(path) => system::dispatch(&call, path).await,
    }
}

/// Who asks. A good token may be of an account that another hub has made a moment ago, and so may an edge be: that is
/// looked up twice.
async fn authenticate(api: &Api, peer: &Peer, head: &Parts) -> Result<Arc<User>, Status> {
    let (result, looked) = authenticate_now(api, peer, head);
    if result.is_ok() || !looked || api.store.barrier().await.is_err() {
        return result;
    }
    authenticate_now(api, peer, head).0
}

/// Who asks, and whether the store was asked about them: when a token's signature or a certificate is good, or a token
/// has the form of those that stand in Secrets.
fn authenticate_now(api: &Api, peer: &Peer, head: &Parts) -> (Result<Arc<User>, Status>, bool) {
    let looked = Cell::new(false);
    let lookup = |plural: &str, namespace: &str, name: &str| {
        looked.set(true);
        api.lookup(plural, namespace, name)
    };
    let now_s = clock::epoch_s();
    let ended = peer.ends_s.is_some_and(|ends_s| ends_s < now_s);
    let certificate = if ended { &x509::Peer::Refused } else { &peer.certificate };
    let result = api.authn.authenticate(certificate, &head.headers, &lookup, now_s);
    let Ok(user) = result else { return (result, looked.get()) };
    if !edges::admitted(&api.store.snapshot(), &user) {
        tracing::debug!(user = user.name, "the certificate of an edge that is not there");
        return (Err(unauthorized()), true);
    }
    (Ok(user), looked.get())
}

async fn authorize(
    api: &Api,
    user: &User,
    asked: &Asked<'_>,
    head: &Parts,
    note: &mut audit::Note,
) -> Result<(), Status> {
    let attributes = attributes(user, asked, head);
    let mut verdict = api.authorize(&attributes);
    if !verdict.allowed() && user.name != ANONYMOUS {
        // A binding may have been made through another hub a moment ago.
        api.authz.catch_up(&*api.store).await;
        verdict = api.authorize(&attributes);
    }
    note.decision(&verdict);
    if verdict.allowed() { Ok(()) } else { Err(authz::forbidden(&attributes, verdict.reason())) }
}

/// A request in the words of authorisation.
fn attributes<'a>(user: &'a User, asked: &'a Asked<'_>, head: &'a Parts) -> Attributes<'a> {
    match &asked.route {
        Route::Resource(target) => {
            let mut attributes = Attributes::resource(
                user,
                asked.verb,
                &target.group,
                &target.plural,
                namespace(target),
                if target.name.is_empty() { &asked.selected } else { &target.name },
            );
            attributes.version = &target.version;
            attributes.subresource = &target.subresource;
            attributes
        }
        _ => Attributes::path(user, asked.verb, head.uri.path()),
    }
}

/// A request for a namespace itself is authorised inside that namespace.
fn namespace<'a>(target: &'a Target<'_>) -> &'a str {
    let own = target.group.is_empty() && target.plural == "namespaces";
    if own { &target.name } else { &target.namespace }
}

fn offers(route: &Route<'_>) -> Offers {
    match route {
        Route::Resource(_) => Offers::Objects,
        Route::Discovery => Offers::Plain,
        Route::Other(_) => Offers::Plain,
    }
}

/// How the answer is written: as asked, and indented for people's tools.
fn style(head: &Parts, options: &Options<'_>, offers: Offers) -> Result<Style, Status> {
    let header = text(&head.headers, &http::header::ACCEPT);
    let encoding = match negotiate::accept(header, offers) {
        Ok(accept) => accept.encoding,
        // Texts and documents of other types say themselves what they can be.
        Err(_) if offers != Offers::Objects => Encoding::Json,
        Err(status) => return Err(status),
    };
    Ok(Style { encoding, pretty: pretty(head, options) })
}

fn pretty(head: &Parts, options: &Options<'_>) -> bool {
    options.pretty.unwrap_or_else(|| {
        let agent = text(&head.headers, &http::header::USER_AGENT).unwrap_or("");
        ["curl", "Wget", "Mozilla/5.0"].iter().any(|tool| agent.starts_with(tool))
    })
}

fn refuse(status: &Status, head: &Parts) -> Response<Body> {
    let pretty = pretty(head, &Options::default());
    answer::refusal(status, Style { encoding: Encoding::Json, pretty })
}

fn text<'a>(headers: &'a HeaderMap, name: &http::header::HeaderName) -> Option<&'a str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn health_is_never_turned_away() {
        for (path, want) in
            [("/healthz", true), ("/livez/ping", true), ("/readyz", true), ("/metrics", false)]
        {
            assert_eq!(is_health(&route::parse(path)), want, "{path}");
        }
        assert!(!is_health(&route::parse("/api/v1/namespaces/healthz")));
    }

    #[test]
    fn what_is_asked_in_the_words_of_authorisation() {
        let check = |method: &str, uri: &str, verb: &str, name: &str| {
            let (head, ()) = Request::builder().method(method).uri(uri).body(()).unwrap().into_parts();
            let asked = ask(&head).unwrap();
            let user = User::default();
            let attributes = attributes(&user, &asked, &head);
            assert_eq!((attributes.verb, attributes.name), (verb, name), "{method} {uri}");
        };
        let services = "/api/v1/namespaces/a/services";
        check("GET", services, "list", "");
        check("GET", &format!("{services}?watch=true"), "watch", "");
        check("GET", &format!("{services}/x?watch=true"), "get", "x");
        check("GET", "/api/v1/watch/namespaces/a/services/x", "watch", "x");
        check("GET", &format!("{services}?fieldSelector=metadata.name%3Dx"), "list", "x");
        check("GET", &format!("{services}?watch=1&fieldSelector=metadata.name%3Dx"), "watch", "x");
        check("GET", &format!("{services}?fieldSelector=metadata.name!%3Dx"), "list", "");
        check("GET", &format!("{services}?fieldSelector=metadata.name%3Da%2Fb"), "list", "");
        check("DELETE", &format!("{services}?fieldSelector=metadata.name%3Dx"), "deletecollection", "");
    }
}
