//! Writes the table of facts: every struct reachable from a served kind, one line per field.
//!
//! The format is described at the top of the table itself; `landfall_api::schema` reads it.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use super::go::{GoField, Package};

const HEADER: &str = "\
# Facts about Kubernetes' structs, written by `cargo xtask gen facts`. Do not edit.
#
#   struct [atomic]
#    field number type flags…
#
# number  protobuf field number; 2.1/Name: field 1 of message 2, which JSON inlines; 0: not on the wire
# type    b bool, i int32, l int64, d double, s string, y bytes, x int or string, q quantity, t time, u micro time,
#         a any, @struct, [T] list, w[T] list in a message of its own, {T} map, ob/oa/os schema or bool/schemas/texts;
#         a leading * is a pointer in Go; :name is the Go type where it is not the obvious one
# flags   oe omitempty, oz omitzero, req required, set, keys=k:default,…, atomic, merge[=key], retain, replace, default=JSON
";

/// Short names of packages in the table, and the Go module and directory each is in.
const PACKAGES: &[(&str, &str, &str, &str)] = &[
    ("io.k8s.apimachinery.pkg.apis.meta.v1.", "meta.v1.", "k8s.io/apimachinery", "pkg/apis/meta/v1"),
    (
        "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.",
        "apiextensions.v1.",
        "k8s.io/apiextensions-apiserver",
        "pkg/apis/apiextensions/v1",
    ),
    ("io.k8s.api.", "", "k8s.io/api", ""),
];

/// Types that are scalars to us.
const SCALARS: &[(&str, &str)] = &[
    ("io.k8s.apimachinery.pkg.api.resource.Quantity", "q"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Time", "t"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime", "u"),
    ("io.k8s.apimachinery.pkg.util.intstr.IntOrString", "x"),
    ("io.k8s.apimachinery.pkg.runtime.RawExtension", "a"),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.FieldsV1", "a"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSON", "a"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrBool", "ob"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrArray", "oa"),
    ("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.JSONSchemaPropsOrStringArray", "os"),
];

/// Where a module's source is.
pub(super) type Modules = BTreeMap<String, PathBuf>;

/// The whole table.
pub(super) fn table(schemas: &BTreeMap<String, Value>, modules: &Modules, roots: &[&str]) -> Result<String> {
    let mut writer = Writer { schemas, modules, packages: BTreeMap::new(), todo: BTreeSet::new() };
    writer.todo.extend(roots.iter().map(|root| long(root)));
    let mut done = BTreeMap::new();
    while let Some(name) = writer.todo.pop_first() {
        if let Entry::Vacant(place) = done.entry(name.clone()) {
            place.insert(writer.item(&name).with_context(|| name.clone())?);
        }
    }
    let mut blocks: Vec<String> = done.into_values().collect();
    blocks.sort_unstable();
    Ok(format!("{HEADER}{}", blocks.concat()))
}

fn long(short: &str) -> String {
    let package = PACKAGES.iter().find(|(_, s, ..)| short.starts_with(s)).expect("the last matches all");
    format!("{}{}", package.0, short.strip_prefix(package.1).unwrap_or(short))
}

fn short(long: &str) -> Result<String> {
    let package = PACKAGES.iter().find(|(l, ..)| long.starts_with(l)).context("unknown package")?;
    Ok(format!("{}{}", package.1, long.strip_prefix(package.0).unwrap_or(long)))
}

struct Writer<'a> {
    schemas: &'a BTreeMap<String, Value>,
    modules: &'a Modules,
    packages: BTreeMap<PathBuf, Package>,
    todo: BTreeSet<String>,
}

impl Writer<'_> {
    fn item(&mut self, name: &str) -> Result<String> {
        let schema = self.schemas.get(name).context("not in the OpenAPI documents")?;
        let (dir, local) = self.place(name)?;
        if !self.packages.contains_key(&dir) {
            self.packages.insert(dir.clone(), Package::read(&dir)?);
        }
        let package = self.packages.get(&dir).context("just read")?;
        let mut fields = package.fields(&local)?;
        fields.sort_by(|a, b| a.json.cmp(&b.json));
        let mut text = short(name)?;
        match schema.get("x-kubernetes-map-type").and_then(Value::as_str) {
            Some("atomic") => text.push_str(" atomic"),
            Some("granular") | None => {}
            Some(other) => bail!("map type {other}"),
        }
        text.push('\n');
        let known = schema.get("properties").and_then(Value::as_object);
        if fields.len() != known.map_or(0, serde_json::Map::len) {
            bail!("Go and OpenAPI disagree about the fields");
        }
        let mut refs = BTreeSet::new();
        for field in &fields {
            let property = known.and_then(|k| k.get(&field.json));
            let property = property.with_context(|| format!("{} is not in OpenAPI", field.json))?;
            let required = schema.get("required").and_then(Value::as_array);
            let required = required.is_some_and(|r| r.iter().any(|n| n == field.json.as_str()));
            let line = line(package, self.schemas, field, property, &mut refs);
            let (head, default) = line.with_context(|| field.json.clone())?;
            writeln!(text, " {head}{}{default}", if required { " req" } else { "" })?;
        }
        self.todo.extend(refs);
        Ok(text)
    }

    fn place(&self, name: &str) -> Result<(PathBuf, String)> {
        let (long, _, module, dir) = PACKAGES.iter().find(|p| name.starts_with(p.0)).context("package")?;
        let rest = name.strip_prefix(long).unwrap_or(name);
        let root = self.modules.get(*module).with_context(|| format!("no module {module}"))?;
        match rest.rsplit_once('.') {
            None => Ok((root.join(dir), rest.into())),
            Some((path, local)) => Ok((root.join(path.replace('.', "/")), local.into())),
        }
    }
}

/// The line of one field without `required`, and its default, which comes last.
fn line(
    package: &Package,
    schemas: &BTreeMap<String, Value>,
    field: &GoField,
    property: &Value,
    refs: &mut BTreeSet<String>,
) -> Result<(String, String)> {
    let mut text = field.json.clone();
    match &field.inlined {
        None => write!(text, " {}", field.number)?,
        Some((via, name)) => write!(text, " {via}.{}/{name}", field.number)?,
    }
    let pointer = if field.ty.starts_with('*') { "*" } else { "" };
    let (token, _) = type_token(package, &field.ty, property, refs)?;
    write!(text, " {pointer}{token}")?;
    for (set, flag) in [(field.omit_empty, " oe"), (field.omit_zero, " oz")] {
        text.push_str(if set { flag } else { "" });
    }
    let get = |key| property.get(key).and_then(Value::as_str);
    match get("x-kubernetes-list-type") {
        Some("set") => text.push_str(" set"),
        Some("map") => write!(text, " keys={}", keys(schemas, property)?)?,
        Some("atomic") | None => {}
        Some(other) => bail!("list type {other}"),
    }
    match get("x-kubernetes-map-type") {
        Some("atomic") if token.starts_with('{') => text.push_str(" atomic"),
        Some("granular") | None => {}
        Some(other) => bail!("map type {other} on {token}"),
    }
    for strategy in get("x-kubernetes-patch-strategy").unwrap_or("").split(',').filter(|s| !s.is_empty()) {
        match (strategy, get("x-kubernetes-patch-merge-key")) {
            ("merge", Some(key)) => write!(text, " merge={key}")?,
            ("merge", None) => text.push_str(" merge"),
            ("retainKeys", _) => text.push_str(" retain"),
            ("replace", _) => text.push_str(" replace"),
            (other, _) => bail!("patch strategy {other}"),
        }
    }
    let default = property.get("default").filter(|d| !zero(d));
    Ok((text, default.map_or_else(String::new, |d| format!(" default={d}"))))
}

/// OpenAPI declares Go's zero values as defaults too; those say nothing.
fn zero(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(b) => !b,
        Value::Number(n) => n.as_f64() == Some(0.0),
        Value::String(s) => s.is_empty(),
        Value::Array(a) => a.is_empty(),
        Value::Object(o) => o.is_empty(),
    }
}

fn keys(schemas: &BTreeMap<String, Value>, property: &Value) -> Result<String> {
    let keys = property.get("x-kubernetes-list-map-keys").and_then(Value::as_array).context("no keys")?;
    let item = reference(property.get("items").context("no items")?).context("items are no struct")?;
    let item = schemas.get(item).context("no item schema")?;
    let mut parts = Vec::new();
    for key in keys.iter().filter_map(Value::as_str) {
        let default = item.pointer(&format!("/properties/{key}/default"));
        parts.push(default.map_or_else(|| key.to_owned(), |d| format!("{key}:{d}")));
    }
    Ok(parts.join(","))
}

fn reference(schema: &Value) -> Option<&str> {
    let direct = schema.get("$ref").or_else(|| schema.pointer("/allOf/0/$ref"))?;
    direct.as_str()?.strip_prefix("#/components/schemas/")
}

/// The type in the table's words, and the Go type a reader would guess from it.
fn type_token(
    package: &Package,
    go: &str,
    schema: &Value,
    refs: &mut BTreeSet<String>,
) -> Result<(String, String)> {
    let go = go.trim_start_matches('*');
    let under = package.underlying(go);
    let (token, guess) = if let Some(name) = reference(schema) {
        match SCALARS.iter().find(|(long, _)| *long == name) {
            Some((_, token)) => ((*token).to_owned(), guess(token).to_owned()),
            None => {
                refs.insert(name.to_owned());
                let mut parts = name.rsplit('.');
                let (last, version) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
                (format!("@{}", short(name)?), format!("{version}.{last}"))
            }
        }
    } else {
        let kind = schema.get("type").and_then(Value::as_str).context("no type")?;
        let format = schema.get("format").and_then(Value::as_str).unwrap_or("");
        match (kind, format) {
            ("array", _) => {
                let items = schema.get("items").context("no items")?;
                let item = under.strip_prefix("[]").with_context(|| format!("{go} is no list"))?;
                let (token, guess) = type_token(package, item, items, refs)?;
                let wrapped = if package.wrapped(go) { "w" } else { "" };
                (format!("{wrapped}[{token}]"), format!("[]{guess}"))
            }
            ("object", _) => {
                let values = schema.get("additionalProperties").context("an object of no kind")?;
                let value = under.split_once(']').with_context(|| format!("{go} is no map"))?.1;
                let (token, guess) = type_token(package, value, values, refs)?;
                (format!("{{{token}}}"), format!("map[string]{guess}"))
            }
            _ => {
                let token = scalar(kind, format).with_context(|| format!("type {kind} {format}"))?;
                (token.to_owned(), guess(token).to_owned())
            }
        }
    };
    let real = package.reflect(go);
    if real == guess { Ok((token, guess)) } else { Ok((format!("{token}:{real}"), real)) }
}

fn scalar(kind: &str, format: &str) -> Option<&'static str> {
    Some(match (kind, format) {
        ("boolean", _) => "b",
        ("integer", "int32") => "i",
        ("integer", "int64") => "l",
        ("number", "double") => "d",
        ("string", "byte") => "y",
        ("string", "") => "s",
        _ => return None,
    })
}

fn guess(token: &str) -> &'static str {
    match token {
        "b" => "bool",
        "i" => "int32",
        "l" => "int64",
        "d" => "float64",
        "y" => "[]uint8",
        "s" => "string",
        "q" => "resource.Quantity",
        "t" => "v1.Time",
        "u" => "v1.MicroTime",
        "x" => "intstr.IntOrString",
        "ob" => "v1.JSONSchemaPropsOrBool",
        "oa" => "v1.JSONSchemaPropsOrArray",
        "os" => "v1.JSONSchemaPropsOrStringArray",
        _ => "",
    }
}
