//! The built-in structs: read from the committed table of facts, each on first use.
//!
//! The table's format is described at its top. A struct lives for ever once made: there are a few hundred.

use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use serde_json::Value;

use super::{Field, Go, Identity, ListType, MapType, Patch, SchemaOr, Struct, StructRef, Type};

const TABLE: &str = include_str!("facts.txt");

/// Packages whose names are shortened in the table; the last takes everything else.
const PREFIXES: &[(&str, &str)] = &[
    ("meta.v1.", "io.k8s.apimachinery.pkg.apis.meta.v1."),
    ("apiextensions.v1.", "io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1."),
    ("", "io.k8s.api."),
];

/// Lists and maps inside each other in one type; the table has two.
const NESTING_MAX: usize = 4;

struct Entry {
    lines: &'static str,
    made: OnceLock<Struct>,
}

/// The built-in struct of that full name.
pub(super) fn find(name: &str) -> Option<&'static Struct> {
    let entry = index().get(short(name))?;
    Some(entry.made.get_or_init(|| parse(name, entry.lines)))
}

/// The full name of the struct of a kind, if it is built in: `apps`, `v1`, `Deployment`.
pub(super) fn name_of(group: &str, version: &str, kind: &str) -> Option<String> {
    let package = match group.split('.').next() {
        Some("") | None => "core",
        Some(first) => first,
    };
    let own = format!("{package}.{version}.{kind}");
    let shared = format!("meta.v1.{kind}");
    let found = [own, shared].into_iter().find(|name| index().contains_key(name.as_str()))?;
    Some(long(&found))
}

/// The full names of all built-in structs, sorted.
pub(super) fn names() -> Vec<String> {
    let mut all: Vec<String> = index().keys().map(|name| long(name)).collect();
    all.sort_unstable();
    all
}

fn index() -> &'static HashMap<&'static str, Entry> {
    static INDEX: OnceLock<HashMap<&'static str, Entry>> = OnceLock::new();
    INDEX.get_or_init(|| {
        let mut index = HashMap::with_capacity(512);
        let mut rest = TABLE;
        while !rest.is_empty() {
            let end = next_head(rest);
            let (block, after) = rest.split_at(end);
            let name = block.split([' ', '\n']).next().unwrap_or("");
            index.insert(name, Entry { lines: block, made: OnceLock::new() });
            rest = after;
        }
        index.remove("#");
        index
    })
}

/// Where the next line that is not indented begins.
fn next_head(text: &str) -> usize {
    let bytes = text.as_bytes();
    let head = bytes.windows(2).position(|w| matches!(w, [b'\n', after] if *after != b' '));
    head.map_or(text.len(), |at| at + 1)
}

fn short(name: &str) -> &str {
    for (short, long) in PREFIXES {
        if let Some(rest) = name.strip_prefix(long) {
            // Both forms end in the same text, so the short name is a tail of the long one.
            return name.get(name.len() - rest.len() - short.len()..).unwrap_or(name);
        }
    }
    name
}

fn long(short: &str) -> String {
    let prefix = PREFIXES.iter().find(|(head, _)| short.starts_with(head));
    prefix.map_or_else(
        || short.to_owned(),
        |(head, long)| format!("{long}{}", short.get(head.len()..).unwrap_or("")),
    )
}

fn parse(name: &str, block: &str) -> Struct {
    let mut lines = block.lines();
    let atomic = lines.next().is_some_and(|head| head.ends_with(" atomic"));
    let mut fields: Vec<Field> = lines.filter_map(field).collect();
    fields.sort_by(|a, b| a.name.cmp(&b.name));
    Struct { name: name.into(), fields: fields.into(), atomic, ..Struct::default() }
}

fn field(line: &str) -> Option<Field> {
    let (line, default) = match line.split_once(" default=") {
        Some((line, default)) => (line, serde_json::from_str(default).ok()),
        None => (line, None),
    };
    let mut words = line.split_whitespace();
    let (name, number, token) = (words.next()?, words.next()?, words.next()?);
    let (number, inlined) = number.split_once('/').unwrap_or((number, ""));
    let (via, number) = number.split_once('.').unwrap_or(("0", number));
    let pointer = token.starts_with('*');
    let mut flags = Flags::default();
    words.for_each(|word| flags.read(word));
    let (ty, go) = type_of(token.trim_start_matches('*'), &mut flags, 0);
    Some(Field {
        name: name.into(),
        ty,
        required: flags.required,
        number: number.parse().unwrap_or(0),
        via: via.parse().unwrap_or(0),
        go: Go {
            ty: go.into(),
            inlined: inlined.into(),
            pointer,
            omit_empty: flags.omit_empty,
            omit_zero: flags.omit_zero,
        },
        patch: flags.patch,
        default,
        ..Field::default()
    })
}

#[derive(Default)]
struct Flags {
    required: bool,
    omit_empty: bool,
    omit_zero: bool,
    atomic: bool,
    identity: Identity,
    patch: Patch,
}

impl Flags {
    fn read(&mut self, word: &str) {
        let (word, value) = word.split_once('=').unwrap_or((word, ""));
        match word {
            "req" => self.required = true,
            "oe" => self.omit_empty = true,
            "oz" => self.omit_zero = true,
            "atomic" => self.atomic = true,
            "set" => self.identity = Identity::Set,
            "keys" => self.identity = Identity::Keys(value.split(',').map(key).collect()),
            "merge" => (self.patch.merge, self.patch.merge_key) = (true, value.into()),
            "retain" => self.patch.retain_keys = true,
            "replace" => self.patch.replace = true,
            _ => {}
        }
    }
}

fn key(text: &str) -> (Box<str>, Option<Value>) {
    let (name, default) = text.split_once(':').unwrap_or((text, ""));
    (name.into(), serde_json::from_str(default).ok())
}

/// A type from the table's words, with Go's name for it. Identity and atomicity belong to the outermost.
fn type_of(token: &str, flags: &mut Flags, depth: usize) -> (Type, String) {
    let (token, named) = split_named(token);
    let (ty, guess) = match (token.chars().next(), inner(token)) {
        (Some('@'), _) => {
            let short = token.trim_start_matches('@');
            let mut parts = short.rsplit('.');
            let (last, version) = (parts.next().unwrap_or(""), parts.next().unwrap_or(""));
            (Type::Struct(StructRef::named(&long(short))), format!("{version}.{last}"))
        }
        (Some('[' | 'w'), Some(item)) if depth < NESTING_MAX => {
            let identity = std::mem::take(&mut flags.identity);
            let (item, go) = type_of(item, &mut Flags::default(), depth + 1);
            let wrapped = token.starts_with('w');
            (Type::List(Arc::new(ListType { item, identity, wrapped })), format!("[]{go}"))
        }
        (Some('{'), Some(value)) if depth < NESTING_MAX => {
            let (value, go) = type_of(value, &mut Flags::default(), depth + 1);
            (Type::Map(Arc::new(MapType { value, atomic: flags.atomic })), format!("map[string]{go}"))
        }
        _ => scalar(token),
    };
    (ty, named.map_or(guess, str::to_owned))
}

/// What stands between the brackets of a list or map.
fn inner(token: &str) -> Option<&str> {
    let token = token.trim_start_matches('w');
    token.get(1..token.len().checked_sub(1)?)
}

/// The Go name after the outermost brackets, if one is written.
fn split_named(token: &str) -> (&str, Option<&str>) {
    let from = token.rfind([']', '}']).map_or(0, |close| {
        // A bracket after the colon belongs to the Go name: `{q}:map[k]v`.
        match token.find(":map[") {
            Some(colon) if colon < close => colon,
            _ => close,
        }
    });
    match token.get(from..).and_then(|tail| tail.find(':')) {
        Some(colon) => (token.get(..from + colon).unwrap_or(token), token.get(from + colon + 1..)),
        None => (token, None),
    }
}

fn scalar(token: &str) -> (Type, String) {
    let (ty, go) = match token {
        "b" => (Type::Bool, "bool"),
        "i" => (Type::Int32, "int32"),
        "l" => (Type::Int64, "int64"),
        "d" => (Type::Double, "float64"),
        "s" => (Type::String, "string"),
        "y" => (Type::Bytes, "[]uint8"),
        "x" => (Type::IntOrString, "intstr.IntOrString"),
        "q" => (Type::Quantity, "resource.Quantity"),
        "t" => (Type::Time, "v1.Time"),
        "u" => (Type::MicroTime, "v1.MicroTime"),
        "ob" => (Type::SchemaOr(SchemaOr::Bool), "v1.JSONSchemaPropsOrBool"),
        "oa" => (Type::SchemaOr(SchemaOr::Schemas), "v1.JSONSchemaPropsOrArray"),
        "os" => (Type::SchemaOr(SchemaOr::Strings), "v1.JSONSchemaPropsOrStringArray"),
        _ => (Type::Any, ""),
    };
    (ty, go.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(ty: &Type) -> String {
        match ty {
            Type::Struct(item) => item.get().name.rsplit('.').next().unwrap_or("").to_owned(),
            Type::List(list) => format!("{}[{}]", if list.wrapped { "w" } else { "" }, show(&list.item)),
            Type::Map(map) => format!("{{{}}}{}", show(&map.value), if map.atomic { "!" } else { "" }),
            other => format!("{other:?}"),
        }
    }

    fn get(kind: &str, field: &str) -> &'static Field {
        find(&long(kind))
            .unwrap_or_else(|| panic!("{kind}"))
            .field(field)
            .unwrap_or_else(|| panic!("{field}"))
    }

    #[test]
    fn types_are_read() {
        for (kind, field, ty, go, pointer) in [
            ("core.v1.ServiceSpec", "ports", "[ServicePort]", "[]v1.ServicePort", false),
            ("core.v1.ServiceSpec", "selector", "{String}!", "map[string]string", false),
            ("core.v1.ServicePort", "targetPort", "IntOrString", "intstr.IntOrString", false),
            ("core.v1.ServiceSpec", "ipFamilies", "[String]", "[]v1.IPFamily", false),
            ("core.v1.ResourceRequirements", "limits", "{Quantity}", "v1.ResourceList", false),
            ("core.v1.Secret", "data", "{Bytes}", "map[string][]uint8", false),
            ("apps.v1.DeploymentSpec", "replicas", "Int32", "int32", true),
            ("authentication.v1.UserInfo", "extra", "{w[String]}", "map[string]v1.ExtraValue", false),
            (
                "core.v1.PersistentVolumeClaimStatus",
                "allocatedResourceStatuses",
                "{String}",
                "map[v1.ResourceName]v1.ClaimResourceStatus",
                false,
            ),
            ("meta.v1.ManagedFieldsEntry", "fieldsV1", "Any", "v1.FieldsV1", true),
            (
                "apiextensions.v1.JSONSchemaProps",
                "items",
                "SchemaOr(Schemas)",
                "v1.JSONSchemaPropsOrArray",
                true,
            ),
            ("coordination.v1.LeaseSpec", "renewTime", "MicroTime", "v1.MicroTime", true),
        ] {
            let field = get(kind, field);
            let seen = (show(&field.ty), &*field.go.ty, field.go.pointer);
            assert_eq!(seen, (ty.to_owned(), go, pointer), "{kind}.{}", field.name);
        }
    }

    #[test]
    fn identities_and_patches_are_read() {
        let ports = get("core.v1.ServiceSpec", "ports");
        let Type::List(list) = &ports.ty else { panic!("a list") };
        let keys = [("port".into(), Some(0.into())), ("protocol".into(), Some("TCP".into()))];
        assert_eq!(list.identity, Identity::Keys(keys.into()));
        assert_eq!(ports.patch, Patch { merge: true, merge_key: "port".into(), ..Patch::default() });
        assert!(get("apps.v1.DeploymentSpec", "strategy").patch.retain_keys);
        assert!(get("policy.v1.PodDisruptionBudgetSpec", "selector").patch.replace);
        assert_eq!(get("core.v1.ServicePort", "protocol").default, Some("TCP".into()));
        assert!(get("core.v1.ServicePort", "port").required);
        assert!(find(&long("meta.v1.LabelSelector")).is_some_and(|s| s.atomic));
        let Type::List(list) = &get("meta.v1.ObjectMeta", "finalizers").ty else { panic!("a list") };
        assert_eq!(list.identity, Identity::Set);
    }

    #[test]
    fn every_reference_leads_somewhere() {
        fn walk(ty: &Type, of: &str) {
            match ty {
                Type::Struct(item) => assert!(!item.get().name.is_empty(), "{of} refers to nothing"),
                Type::List(list) => walk(&list.item, of),
                Type::Map(map) => walk(&map.value, of),
                Type::Any => assert!(
                    ["RawExtension", "JSON", "FieldsV1"].iter().any(|any| of.contains(any)),
                    "{of} has no type"
                ),
                _ => {}
            }
        }
        let names = names();
        assert!(names.len() > 300, "{}", names.len());
        for name in names {
            for field in &find(&name).unwrap().fields {
                walk(&field.ty, &format!("{name}.{} {}", field.name, field.go.ty));
            }
        }
    }

    #[test]
    fn kinds_are_found() {
        for ((group, version, kind), name) in [
            (("", "v1", "Service"), Some("io.k8s.api.core.v1.Service")),
            (("rbac.authorization.k8s.io", "v1", "Role"), Some("io.k8s.api.rbac.v1.Role")),
            (("apps", "v1", "DeleteOptions"), Some("io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions")),
            (("apps", "v1", "Nothing"), None),
            (
                ("apiextensions.k8s.io", "v1", "CustomResourceDefinition"),
                Some("io.k8s.apiextensions-apiserver.pkg.apis.apiextensions.v1.CustomResourceDefinition"),
            ),
        ] {
            assert_eq!(name_of(group, version, kind).as_deref(), name);
        }
    }
}
