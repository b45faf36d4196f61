//! `Api`: everything a request needs, shared by all connections.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use arc_swap::ArcSwap;
use landfall_api::{Kind, Reason, Scope, Status, meta};
use landfall_runtime::clock;
use landfall_runtime::tasks::Tasks;
use landfall_store::{Entry, Store};
use serde_json::Value;
use tokio::sync::Mutex;

use crate::admission::{Admission, Also};
use crate::audit::Audit;
use crate::authn::{Authenticator, Found, User};
use crate::authz::live::Rbac;
use crate::authz::{Attributes, Verdict};
use crate::catalog::Catalog;
use crate::definitions::Definitions;
use crate::openapi::CustomSchemas;
use crate::read::logs::PodLogs;
use crate::telemetry::Telemetry;
use crate::write::By;
use crate::{authz, crd, edges, encode, errors, keys, reviews, vault, write};

/// The server's state.
pub struct Api {
    /// Where objects are kept.
    pub store: Arc<dyn Store>,
    /// What is served.
    pub catalog: ArcSwap<Catalog>,
    /// Kinds that are always served.
    pub builtin: Vec<Arc<Kind>>,
    /// Schemas of those built-in kinds that are defined as custom ones are.
    pub builtin_schemas: CustomSchemas,
    /// Who asks.
    pub authn: Authenticator,
    /// Who may.
    pub authz: Arc<Rbac>,
    /// What was done.
    pub audit: Option<Audit>,
    /// What the surroundings add to objects before they are validated; none for nothing.
    pub admission: Option<Arc<dyn Admission>>,
    /// Counters.
    pub telemetry: Telemetry,
    /// Whether members' credentials are kept here: the server is a hub.
    pub vault: bool,
    /// Who serves the logs of pods, if anybody does: set once, by whoever runs pods beside this server.
    pub pod_logs: OnceLock<Arc<dyn PodLogs>>,
    /// Background work, and the signal to stop.
    pub tasks: Tasks,
    /// The definitions as last read; one change of the catalog at a time.
    pub(crate) definitions: Mutex<Definitions>,
}

impl Api {
    /// The time as objects carry it.
    pub fn now_text(&self) -> String {
        rfc3339(clock::epoch_s())
    }

    /// What makes a new object or a generated name unlike any other.
    pub(crate) fn luck(&self, about: &str) -> u128 {
        let given = self.admission.as_ref().and_then(|admission| admission.luck(about));
        given.unwrap_or_else(|| uuid::Uuid::new_v4().as_u128())
    }

    /// Looks up what a credential refers to: objects of the core group by plural, namespace and name.
    pub fn lookup(&self, plural: &str, namespace: &str, name: &str) -> Option<Found> {
        let snapshot = self.store.snapshot();
        let entry = snapshot.get(&keys::object("", plural, namespace, name))?;
        let object: Value = serde_json::from_slice(&entry.value).ok()?;
        let deleted = meta::string(&object, "deletionTimestamp");
        let deleted_s = deleted.parse::<jiff::Timestamp>().ok().map(jiff::Timestamp::as_second);
        Some(Found { uid: meta::uid(&object).to_owned(), deleted_s, object })
    }

    /// 404 or 403 when a namespace is missing or going away.
    pub async fn namespace_accepts(&self, kind: &Kind, namespace: &str, name: &str) -> Result<(), Status> {
        if kind.scope == Scope::Cluster {
            return Ok(());
        }
        let key = keys::object("", "namespaces", "", namespace);
        let mut found = self.store.snapshot().get(&key).cloned();
        if found.is_none() {
            // Another hub may have made it a moment ago.
            self.store.barrier().await.map_err(|e| errors::general(&e))?;
            found = self.store.snapshot().get(&key).cloned();
        }
        let entry = found.ok_or_else(|| Status::not_found("", "namespaces", namespace))?;
        if deleting(&entry) {
            return Err(write::create::terminating(kind, namespace, name));
        }
        Ok(())
    }

    /// 405 when the definition of a custom kind is going away.
    pub fn definition_accepts(&self, kind: &Kind) -> Result<(), Status> {
        if kind.strategic {
            return Ok(());
        }
        let name = format!("{}.{}", kind.plural, kind.group);
        let key = keys::object(crd::GROUP, crd::PLURAL, "", &name);
        if self.store.snapshot().get(&key).is_some_and(|entry| deleting(entry)) {
            let why = "create not allowed while custom resource definition is terminating";
            return Err(Status::new(Reason::MethodNotAllowed, why).about(&kind.group, &kind.plural, ""));
        }
        Ok(())
    }

    /// Rules that look beyond one object: nobody gives rights that they do not have.
    pub fn guard(&self, kind: &Kind, object: &Value, old: Option<&Value>, by: &By<'_>) -> Result<(), Status> {
        edges::guard(kind, object, old, by.user)?;
        let also = self.admission.as_ref().and_then(|admission| admission.also(kind, object, old));
        if let Some(also) = also
            && !self
                .authorize(&Attributes::resource(by.user, also.verb, also.group, also.resource, "", ""))
                .allowed()
        {
            let Also { verb, resource, why, .. } = also;
            let why = format!("{why}, which needs the right to {verb} {resource}");
            return Err(Status::forbidden(&kind.group, &kind.plural, meta::name(object), &why));
        }
        if !authz::live::concerns(&kind.group) {
            return Ok(());
        }
        let write = authz::escalation::Write {
            user: by.user,
            group: &kind.group,
            resource: &kind.plural,
            namespace: meta::namespace(object),
            object,
            old,
        };
        authz::escalation::escalation_check(&self.authz.policy(), &write)
    }

    /// Whether somebody may do something: by what nobody may, by what edges may, else by roles.
    pub fn authorize(&self, asked: &Attributes<'_>) -> Verdict {
        if let Some(refused) = vault::authorize(asked).filter(|_| self.vault) {
            return refused;
        }
        let own = |name: &str| edges::is_own_request(&self.store.snapshot(), asked.user, name);
        edges::authorize(asked, &own).unwrap_or_else(|| self.authz.policy().authorize(asked))
    }

    /// Answers a review.
    pub fn review(&self, kind: &Kind, namespace: &str, body: Value, user: &User) -> Result<Value, Status> {
        self.with_context(namespace, user, |context| reviews::review(kind, body, context))
    }

    /// Makes a token for a service account.
    pub fn token(&self, account: &Value, body: Value, user: &User) -> Result<Value, Status> {
        let namespace = meta::namespace(account);
        self.with_context(namespace, user, |context| reviews::token_request(account, body, context))
    }

    fn with_context<T>(
        &self,
        namespace: &str,
        user: &User,
        answer: impl FnOnce(&reviews::Context<'_>) -> T,
    ) -> T {
        let policy = self.authz.policy();
        let lookup = |plural: &str, namespace: &str, name: &str| self.lookup(plural, namespace, name);
        answer(&reviews::Context {
            user,
            policy: &policy,
            authorize: &|asked| self.authorize(asked),
            authenticator: &self.authn,
            lookup: &lookup,
            namespace,
            now_s: clock::epoch_s(),
        })
    }
}

/// Seconds since 1970 as RFC 3339.
pub fn rfc3339(epoch_s: i64) -> String {
    jiff::Timestamp::from_second(epoch_s).map(|t| t.to_string()).unwrap_or_default()
}

/// A time with microseconds, for audit events.
pub fn rfc3339_micro(since_epoch: Duration) -> String {
    let micros = i64::try_from(since_epoch.as_micros()).unwrap_or(0);
    jiff::Timestamp::from_microsecond(micros).map(|t| format!("{t:.6}")).unwrap_or_default()
}

/// Whether deletion of an object has begun. Cheap for the common case: of what has not, metadata lacks the field.
fn deleting(entry: &Entry) -> bool {
    let value = &*entry.value;
    // Metadata comes before the spec, and only a definition's spec is long.
    let end = find(value, b",\"spec\":{").unwrap_or(value.len());
    let marked = find(&value[..end], b"\"deletionTimestamp\"").is_some();
    marked && encode::decode(entry).is_ok_and(|object| meta::deleting(&object))
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}
