//! Routes: what edges carry of an Ingress, a MultiClusterIngress, or a Service of type LoadBalancer.
//!
//! ```text
//!   IngressClasses ─► class     whether an Ingress is ours to carry
//!   Ingress, MultiClusterIngress ─► ingress ─┐   (options: its annotations; backing: the Services it names)
//!   a bucket's URL ─► origin     what edges speak to outside the federation
//!   Service of type LoadBalancer ─► balancer ┼─► Routes: a RoutePlanSpec, troubles, the Secrets it names
//!   claims of all others ────────────────────┴─► claims   of two that want the same, the older has it
//!   MultiClusterService ─► derive   the federated Service that it stands for
//!   RoutePlans, a TrafficPlan, a request ─► explain   one request in words
//!   a request's path ─► path     the one form in which it is matched
//! ```
//!
//! Nothing is refused as a whole: what cannot be carried is answered with 503 and told as a condition, the rest goes on.

mod backing;
mod claims;
mod class;
mod condition;
mod derive;
pub mod explain;
mod ingress;
mod lasting;
mod options;
mod origin;
pub mod path;
#[cfg(test)]
mod tests;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use landfall_api::landfall::{ObjectReference, RoutePlanSpec};
use landfall_api::rules::read::{child, text};
use serde_json::Value;

use crate::Reason;
use crate::hash;

pub use backing::{Backing, balancer, carried_service};
pub use claims::{Claim, Standing, What, claims, settle};
pub use class::{CLASS, CONTROLLER, Classes};
pub use condition::{ACCEPTED, RESOLVED, conditions};
pub use derive::{DERIVED_LABEL, Derived, derive, derived_name, selection};
pub use ingress::{Surroundings, of_ingress, of_multi_cluster};
pub use lasting::lasting_address;
pub use options::PREFIX as ANNOTATIONS;
pub use origin::{Origin, origin};

/// Longest name that an object can have.
const NAME_MAX: usize = 253;

/// What was made of one object.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Routes {
    /// What edges carry; its revision is left to who writes it.
    pub spec: RoutePlanSpec,
    /// What cannot be carried as it is meant.
    pub troubles: Vec<Trouble>,
    /// Secrets that it names, in its own namespace.
    pub secrets: Vec<Wanted>,
    /// Hosts whose path `/` follows from the default backend.
    pub implied: Vec<String>,
}

/// A Secret that routes name.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Wanted {
    /// Its name.
    pub name: String,
    /// What is taken of it.
    pub part: Part,
}

/// What is taken of a Secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Part {
    /// A certificate and its key: `tls.crt` and `tls.key`.
    Certificate,
    /// Authorities of clients: `ca.crt`.
    Authority,
}

/// Something that cannot be carried as it is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    /// What it is about.
    pub about: About,
    /// What it is.
    pub reason: Reason,
}

/// What a trouble is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    /// The object itself: what it asks for.
    Object,
    /// What it names: Services and Secrets.
    References,
}

impl Trouble {
    /// A trouble with the object itself.
    pub fn object(code: &'static str, message: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        Self { about: About::Object, reason: Reason::new(code, message) }
    }

    /// A trouble with what it names.
    pub fn reference(code: &'static str, message: impl Into<std::borrow::Cow<'static, str>>) -> Self {
        Self { about: About::References, reason: Reason::new(code, message) }
    }
}

/// The name of a source's RoutePlan: its kind stands first, so that kinds do not get in each other's way.
pub fn plan_name(kind: &str, group: &str, name: &str) -> String {
    let prefix = match (kind, group) {
        ("Ingress", _) => "ingress",
        ("Service", _) => "service",
        (_, "networking.gke.io") => "gke-mci",
        (_, _) => "mci",
    };
    fitting(&format!("{prefix}.{name}"))
}

/// The name of the checked copy of a Secret.
pub fn copy_name(namespace: &str, name: &str) -> String {
    // Namespaces have no dots: no two Secrets have the same copy.
    fitting(&format!("{namespace}.{name}"))
}

/// A name that fits: one that is too long is cut, and told apart by a hash of the whole.
fn fitting(name: &str) -> String {
    if name.len() <= NAME_MAX {
        return name.to_owned();
    }
    let cut: String = name.chars().take(NAME_MAX - 17).collect();
    format!("{}-{:016x}", cut.trim_end_matches(['.', '-']), hash::texts(&[name]))
}

/// What routes say of the object they were made of.
fn begin(object: &Value, group: &str, kind: &str) -> RoutePlanSpec {
    let metadata = child(object, "metadata");
    RoutePlanSpec {
        source_ref: ObjectReference {
            group: group.to_owned(),
            kind: kind.to_owned(),
            name: text(metadata, "name").to_owned(),
        },
        source_created: created(object),
        ..RoutePlanSpec::default()
    }
}

/// When an object was created.
fn created(object: &Value) -> Option<Time> {
    serde_json::from_value(child(child(object, "metadata"), "creationTimestamp").clone()).ok()
}
