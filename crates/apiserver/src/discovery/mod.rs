//! Discovery: the documents that tell clients which kinds are served, where, and with which verbs.
//!
//! ```text
//!   &[Arc<Kind>] ──► groups (order, preferred versions) ──► legacy: /api, /apis, /api/v1, /apis/g, /apis/g/v
//!                                                      └──► aggregated: /api, /apis as one list
//! ```
//!
//! Each document is encoded on first request and kept with its ETag; when the set of kinds changes a new
//! [`Discovery`] takes the place of the old one.

mod aggregated;
mod groups;
mod legacy;
#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use aws_lc_rs::digest::{SHA256, SHA512, digest};
use bytes::Bytes;
use landfall_api::Kind;
use serde_json::Value;

use groups::Group;
pub use groups::by_priority;

/// An encoded document, ready to be sent.
#[derive(Clone, Debug)]
pub struct Document {
    /// The JSON text.
    pub body: Bytes,
    /// Its ETag, with the quotes.
    pub etag: String,
    /// The media type to send it as.
    pub content_type: &'static str,
}

impl Document {
    fn new(value: &Value, content_type: &'static str) -> Self {
        let body = Bytes::from(value.to_string());
        let etag = format!("\"{}\"", hash(&body));
        Self { body, etag, content_type }
    }
}

/// The forms in which `/api` and `/apis` can be had.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// A list of groups, or of a version's resources: one document per group and version.
    Legacy,
    /// Everything in one list, `apidiscovery.k8s.io/v2`.
    V2,
    /// The same for clients of 1.26 to 1.29, `apidiscovery.k8s.io/v2beta1`.
    V2Beta1,
}

impl Form {
    const fn content_type(self) -> &'static str {
        match self {
            Self::Legacy => "application/json",
            Self::V2 => "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList",
            Self::V2Beta1 => "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList",
        }
    }
}

/// All documents about one set of kinds.
pub struct Discovery {
    groups: Vec<Group>,
    server_address: String,
    documents: HashMap<(String, Form), OnceLock<Document>>,
}

impl Discovery {
    /// The documents of these kinds. `server_address` (`host:port`) is where clients are told to find the server.
    pub fn new(kinds: &[Arc<Kind>], server_address: &str) -> Self {
        let groups = groups::of(kinds);
        let mut documents = HashMap::new();
        for path in ["/api", "/apis"] {
            for form in [Form::Legacy, Form::V2, Form::V2Beta1] {
                documents.insert((path.to_owned(), form), OnceLock::new());
            }
        }
        for group in &groups {
            if !group.name.is_empty() {
                documents.insert((format!("/apis/{}", group.name), Form::Legacy), OnceLock::new());
            }
            for version in &group.versions {
                documents.insert((version.path(group), Form::Legacy), OnceLock::new());
            }
        }
        Self { groups, server_address: server_address.to_owned(), documents }
    }

    /// The document at a path such as `/apis/apps/v1`, in a form that the client accepts.
    /// `None`: there is no such path. `Some(None)`: the client accepts no form that there is.
    pub fn find(&self, path: &str, accept: &str) -> Option<Option<&Document>> {
        let path = path.strip_suffix('/').unwrap_or(path);
        self.documents.get(&(path.to_owned(), Form::Legacy))?;
        let aggregated = matches!(path, "/api" | "/apis");
        Some(negotiate(accept, aggregated).and_then(|form| self.get(path, form)))
    }

    /// The document at a path in one form.
    pub fn get(&self, path: &str, form: Form) -> Option<&Document> {
        let document = self.documents.get(&(path.to_owned(), form))?;
        Some(document.get_or_init(|| Document::new(&self.value(path, form), form.content_type())))
    }

    fn value(&self, path: &str, form: Form) -> Value {
        let core = path == "/api";
        let shown = self.groups.iter().filter(|group| group.name.is_empty() == core);
        match (path, form) {
            ("/api" | "/apis", Form::V2 | Form::V2Beta1) => aggregated::list(shown, form == Form::V2),
            ("/api", Form::Legacy) => legacy::versions(shown, &self.server_address),
            ("/apis", Form::Legacy) => legacy::groups(shown),
            _ => self.part(path),
        }
    }

    fn part(&self, path: &str) -> Value {
        for group in &self.groups {
            if let Some(version) = group.versions.iter().find(|version| version.path(group) == path) {
                return legacy::resources(group, version);
            }
            if path.strip_prefix("/apis/") == Some(&*group.name) {
                return legacy::group(group);
            }
        }
        Value::Null
    }
}

/// The first form in an `Accept` header that there is; without a header, the legacy form.
pub fn negotiate(accept: &str, aggregated: bool) -> Option<Form> {
    if accept.trim().is_empty() {
        return Some(Form::Legacy);
    }
    accept.split(',').find_map(|clause| form_of(clause, aggregated))
}

fn form_of(clause: &str, aggregated: bool) -> Option<Form> {
    let mut parts = clause.split(';').map(str::trim);
    let media = parts.next()?;
    let (mut group, mut version, mut kind) = ("", "", "");
    for part in parts {
        match part.split_once('=') {
            Some(("g", value)) => group = value,
            Some(("v", value)) => version = value,
            Some(("as", value)) => kind = value,
            _ => {}
        }
    }
    match (media, kind, group, version) {
        ("application/json" | "application/*" | "*/*", "", _, _) => Some(Form::Legacy),
        ("application/json", "APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2") if aggregated => {
            Some(Form::V2)
        }
        ("application/json", "APIGroupDiscoveryList", "apidiscovery.k8s.io", "v2beta1") if aggregated => {
            Some(Form::V2Beta1)
        }
        _ => None,
    }
}

/// The hash that clients may compare to see whether the stored form of a kind has changed.
pub fn storage_version_hash(group: &str, version: &str, kind: &str) -> String {
    use base64::Engine as _;
    let hash = digest(&SHA256, format!("{group}/{version}/{kind}").as_bytes());
    let head = hash.as_ref().get(..8).unwrap_or_default();
    base64::engine::general_purpose::STANDARD.encode(head)
}

/// SHA-512 in capital hexadecimal digits, as Kubernetes writes ETags.
pub(crate) fn hash(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    let mut text = String::with_capacity(128);
    for byte in digest(&SHA512, bytes).as_ref() {
        let _ = write!(text, "{byte:02X}");
    }
    text
}
