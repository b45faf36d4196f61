//! OpenAPI: the documents behind `kubectl explain`, client-side validation and three-way merges.
//!
//! ```text
//!   table of kinds ──► shapes: landfall_api::schema (fields, list types, patch strategies, defaults)
//!                 └──► words:  k8s-openapi's schemas (descriptions)
//!                 └──► custom: the schema of a CRD, as its author wrote it
//!                        │
//!                        └──► components + paths ──► /openapi/v3/<group version>, /openapi/v2
//! ```
//!
//! A document is made when it is first asked for and kept compressed: nothing is held for those who never ask. The hash
//! in the index is that of what the document is made from, so that the index needs no documents.

mod components;
mod custom;
mod descriptions;
mod facts;
mod operations;
mod parameters;
mod paths;
mod proto;
#[cfg(test)]
mod tests;
mod v2;

use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::io::{Read as _, Write as _};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use landfall_api::Kind;
use serde_json::{Value, json};

use crate::discovery::hash;
pub use custom::schemas_of;

/// Media type of the v2 document in protobuf, as it is answered; clients ask for it with `@` in place of the last dot
/// before `v1.0`.
pub const V2_PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";

/// The schemas of custom kinds as their CRDs have them: by group, version and kind.
pub type CustomSchemas = HashMap<(String, String, String), Arc<Value>>;

/// A document, kept compressed.
#[derive(Clone, Debug)]
pub struct Packed {
    /// The JSON text or protobuf, compressed with gzip: can be sent as it is to clients that accept it.
    pub gzip: Bytes,
    /// Its ETag, with the quotes.
    pub etag: String,
}

impl Packed {
    fn new(value: &Value) -> Self {
        Self::of(value.to_string().as_bytes())
    }

    fn of(bytes: &[u8]) -> Self {
        let etag = format!("\"{}\"", hash(bytes));
        let mut encoder = GzEncoder::new(Vec::with_capacity(bytes.len() / 8), Compression::default());
        encoder.write_all(bytes).expect("writing to memory does not fail");
        let gzip = encoder.finish().expect("writing to memory does not fail");
        Self { gzip: gzip.into(), etag }
    }

    /// The document itself.
    pub fn plain(&self) -> Bytes {
        let mut text = Vec::with_capacity(self.gzip.len().saturating_mul(8));
        GzDecoder::new(&*self.gzip).read_to_end(&mut text).expect("we compressed it ourselves");
        text.into()
    }
}

/// All documents about one set of kinds.
pub struct OpenApi {
    versions: BTreeMap<String, GroupVersion>,
    custom: CustomSchemas,
    v2: OnceLock<Packed>,
    v2_protobuf: OnceLock<Packed>,
}

/// One group version: its kinds and, once asked for, its document.
#[derive(Clone)]
struct GroupVersion {
    kinds: Vec<Arc<Kind>>,
    hash: String,
    document: OnceLock<Packed>,
}

impl OpenApi {
    /// The documents of these kinds; `custom` has the schemas of those that are not built in.
    pub fn new(kinds: &[Arc<Kind>], custom: CustomSchemas) -> Self {
        Self::after(kinds, custom, None)
    }

    /// The same, keeping documents of `earlier` whose kinds are the very same: a kind is made anew with its schema.
    pub fn after(kinds: &[Arc<Kind>], custom: CustomSchemas, earlier: Option<&Self>) -> Self {
        let mut grouped: BTreeMap<String, Vec<Arc<Kind>>> = BTreeMap::new();
        for kind in kinds {
            grouped.entry(root(&kind.group, &kind.version)).or_default().push(Arc::clone(kind));
        }
        let version = |(path, kinds): (String, Vec<Arc<Kind>>)| {
            let kept = earlier.and_then(|earlier| earlier.versions.get(&path));
            if let Some(kept) = kept.filter(|kept| same(&kept.kinds, &kinds)) {
                return (path, kept.clone());
            }
            let hash = made_from(&kinds, &custom);
            (path, GroupVersion { kinds, hash, document: OnceLock::new() })
        };
        let versions = grouped.into_iter().map(version).collect();
        Self { versions, custom, v2: OnceLock::new(), v2_protobuf: OnceLock::new() }
    }

    /// `/openapi/v3`: where the documents are, each with a hash that changes with its content.
    pub fn index(&self) -> Value {
        let entry = |(path, version): (&String, &GroupVersion)| {
            let url = format!("/openapi/v3/{path}?hash={}", version.hash);
            (path.clone(), json!({"serverRelativeURL": url}))
        };
        json!({"paths": self.versions.iter().map(entry).collect::<serde_json::Map<_, _>>()})
    }

    /// The hash of a document such as `apis/apps/v1`: a client that asks with it may keep the answer for ever.
    pub fn hash_of(&self, path: &str) -> Option<&str> {
        self.versions.get(path).map(|version| version.hash.as_str())
    }

    /// `/openapi/v3/<path>`: the document of `api/v1` or `apis/<group>/<version>`.
    pub fn v3(&self, path: &str) -> Option<&Packed> {
        let version = self.versions.get(path)?;
        Some(version.document.get_or_init(|| Packed::new(&document(&version.kinds, &self.custom))))
    }

    /// `/openapi/v2`: everything in one Swagger document.
    pub fn v2(&self) -> &Packed {
        self.v2.get_or_init(|| Packed::new(&self.swagger()))
    }

    /// The same in protobuf.
    pub fn v2_protobuf(&self) -> &Packed {
        self.v2_protobuf.get_or_init(|| Packed::of(&proto::document(&self.swagger())))
    }

    fn swagger(&self) -> Value {
        v2::merge(self.versions.values().map(|version| document(&version.kinds, &self.custom)))
    }
}

fn same(a: &[Arc<Kind>], b: &[Arc<Kind>]) -> bool {
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| Arc::ptr_eq(a, b))
}

/// Where a group version lives: `api/v1`, `apis/apps/v1`.
fn root(group: &str, version: &str) -> String {
    if group.is_empty() { format!("api/{version}") } else { format!("apis/{group}/{version}") }
}

/// The OpenAPI 3 document of some kinds of one group version.
fn document(kinds: &[Arc<Kind>], custom: &CustomSchemas) -> Value {
    let mut components = components::Components::new(descriptions::of(kinds));
    let mut paths = serde_json::Map::new();
    for kind in kinds {
        match custom.get(&key(kind)) {
            Some(schema) => custom::add(&mut components, kind, schema),
            None => components.add_kind(kind),
        }
        paths::add(&mut paths, &mut components, kind);
    }
    json!({
        "openapi": "3.0.0",
        "info": {"title": "Landfall", "version": env!("CARGO_PKG_VERSION")},
        "paths": paths,
        "components": {
            "schemas": components.finish(kinds),
            "securitySchemes": {"BearerToken": {
                "type": "apiKey", "description": "Bearer Token authentication", "name": "authorization", "in": "header",
            }},
        },
    })
}

fn key(kind: &Kind) -> (String, String, String) {
    (kind.group.to_string(), kind.version.to_string(), kind.kind.to_string())
}

/// A hash of everything that a document is made from: this program, the rows of the table, the custom schemas.
fn made_from(kinds: &[Arc<Kind>], custom: &CustomSchemas) -> String {
    let mut text = String::from(env!("CARGO_PKG_VERSION"));
    for kind in kinds {
        let schema = custom.get(&key(kind)).map(ToString::to_string).unwrap_or_default();
        let row = [&*kind.group, &kind.version, &kind.kind, &kind.list_kind, &kind.plural, &schema];
        for part in row.into_iter().chain(kind.verbs.iter().copied()) {
            text.push_str(part);
            text.push('\n');
        }
        let _ = write!(text, "{:?}{:?}", kind.scope, kind.sub);
    }
    hash(text.as_bytes())
}
