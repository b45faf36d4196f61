//! The form objects are sent in: as stored, converted, as table rows, or as metadata alone.

use std::sync::Arc;

use bytes::Bytes;
use landfall_api::{Kind, Status};
use landfall_store::Entry;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

use crate::convert::{self, Conversion};
use crate::encode::{self, Head};
use crate::errors;
use crate::http::negotiate::{Form, MetaVersion};

/// What a table row carries of its object (`includeObject`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Include {
    /// Nothing.
    None,
    /// Its metadata.
    Metadata,
    /// All of it.
    Object,
}

impl Include {
    /// Reads the parameter; 400 for an unknown value.
    pub fn parse(text: &str) -> Result<Self, Status> {
        match text {
            "" | "Metadata" => Ok(Self::Metadata),
            "None" => Ok(Self::None),
            "Object" => Ok(Self::Object),
            other => Err(Status::bad_request(format!(
                "invalid includeObject value {other:?}: must be one of None, Metadata, Object"
            ))),
        }
    }
}

/// Writes entries of one kind in one form.
#[derive(Clone)]
pub struct Shape {
    /// The served kind.
    pub kind: Arc<Kind>,
    /// The form asked for.
    pub form: Form,
    /// For tables: what rows carry.
    pub include: Include,
    /// For tables: the time ages are counted to.
    pub now_s: i64,
    conversion: Option<Conversion>,
}

impl Shape {
    /// A shape for a kind and a form.
    pub fn new(kind: Arc<Kind>, form: Form, include: Include, now_s: i64) -> Self {
        let conversion = convert::of(&kind);
        Self { kind, form, include, now_s, conversion }
    }

    /// Whether objects are sent as they are stored now; those stored earlier may have another version.
    pub fn is_stored(&self) -> bool {
        self.form == Form::Plain
            && self.conversion.is_none()
            && self.kind.version == self.kind.storage_version
            && self.kind.group == self.kind.stored_as.0
    }

    /// The object of an entry in the served version.
    pub fn value(&self, entry: &Entry) -> Result<Value, Status> {
        let stored = encode::decode(entry).map_err(|e| errors::unreadable(&self.kind, &entry.key, &e))?;
        Ok(self.served(stored))
    }

    /// A stored object in the served version.
    pub fn served(&self, mut stored: Value) -> Value {
        if let Some(conversion) = self.conversion {
            stored = (conversion.read)(&stored);
        }
        stored["apiVersion"] = json!(encode::api_version(&self.kind.group, &self.kind.version));
        stored["kind"] = json!(&*self.kind.kind);
        stored
    }

    /// One object as an answer of its own.
    pub fn single(&self, entry: &Entry) -> Result<Bytes, Status> {
        let mut out = Vec::with_capacity(entry.value.len() + 64);
        match self.form {
            Form::Table(version) => {
                let row = self.row(entry)?;
                let metadata = json!({"resourceVersion": entry.revision.to_string()});
                serde_json::to_writer(&mut out, &self.table(version, &metadata, true, &[row]))
                    .expect("writing to memory cannot fail");
            }
            _ => self.write(&mut out, entry, false)?,
        }
        Ok(out.into())
    }

    /// Appends one object: plain or partial. In a list, built-in kinds carry no apiVersion and kind.
    pub fn write(&self, out: &mut Vec<u8>, entry: &Entry, in_list: bool) -> Result<(), Status> {
        match self.form {
            Form::Partial(version) => write_partial(out, entry, version),
            _ if self.conversion.is_some() => {
                serde_json::to_writer(out, &self.value(entry)?).expect("writing to memory cannot fail");
                Ok(())
            }
            _ => {
                // Not as stored: a definition may have changed its storage version since.
                let head = if in_list && self.kind.strategic { Head::Bare } else { Head::Of(&self.kind) };
                encode::write_object(out, entry, head);
                Ok(())
            }
        }
    }

    /// One table row.
    pub fn row(&self, entry: &Entry) -> Result<Value, Status> {
        let object = self.value(entry)?;
        let cells = self.kind.printer.row(&object, self.now_s);
        let conditions = self.kind.printer.conditions(&object);
        let mut row = json!({"cells": cells});
        match self.include {
            Include::None => {}
            Include::Object => row["object"] = object,
            Include::Metadata => {
                row["object"] = json!({
                    "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1",
                    "metadata": object["metadata"],
                });
            }
        }
        if !conditions.is_empty() {
            row["conditions"] = conditions.into();
        }
        Ok(row)
    }

    /// A whole table; `headings` only in the first event of a watch.
    pub fn table(&self, version: MetaVersion, metadata: &Value, headings: bool, rows: &[Value]) -> Value {
        let columns: Vec<Value> =
            if headings { self.kind.printer.columns().iter().map(column).collect() } else { Vec::new() };
        json!({
            "kind": "Table", "apiVersion": version.api_version(), "metadata": metadata,
            "columnDefinitions": columns, "rows": rows,
        })
    }
}

fn column(column: &landfall_api::kind::Column) -> Value {
    json!({
        "name": column.name, "type": column.ty, "format": column.format,
        "description": column.description, "priority": column.priority,
    })
}

#[derive(Deserialize)]
struct RawMetadata<'a> {
    #[serde(borrow)]
    metadata: &'a RawValue,
}

fn write_partial(out: &mut Vec<u8>, entry: &Entry, version: MetaVersion) -> Result<(), Status> {
    let raw: RawMetadata<'_> = serde_json::from_slice(&entry.value)
        .map_err(|e| Status::internal(format!("the stored object {:?} cannot be read: {e}", entry.key)))?;
    out.extend_from_slice(b"{\"kind\":\"PartialObjectMetadata\",\"apiVersion\":\"");
    out.extend_from_slice(version.api_version().as_bytes());
    out.extend_from_slice(b"\",\"metadata\":{\"resourceVersion\":\"");
    encode::write_number(out, entry.revision);
    out.push(b'"');
    let members = raw.metadata.get().strip_prefix('{').unwrap_or("}");
    if !members.starts_with('}') {
        out.push(b',');
    }
    out.extend_from_slice(members.as_bytes());
    out.push(b'}');
    Ok(())
}
