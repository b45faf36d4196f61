//! A struct from the JSON schema that `schemars` makes of a Rust type: for kinds of our own.
//!
//! Understood: what `schemars` 1 writes for plain structs, options, maps, lists and enums, and the `x-kubernetes-*`
//! extensions. Structs of Kubernetes inside (ObjectMeta, LabelSelector) become the built-in ones. Enums whose
//! variants hold objects become one struct that knows the fields of all variants.

use std::sync::Arc;

use serde_json::{Map, Value};

use super::{Field, Identity, ListType, MapType, Patch, Struct, StructRef, Type, facts};

/// Structs inside each other; a type that contains itself ends here, and keeps anything below.
const DEPTH_MAX: usize = 24;

/// Kubernetes' types that are not objects in JSON.
const SCALARS: &[(&str, Type)] = &[
    ("io.k8s.apimachinery.pkg.api.resource.Quantity", Type::Quantity),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.Time", Type::Time),
    ("io.k8s.apimachinery.pkg.apis.meta.v1.MicroTime", Type::MicroTime),
    ("io.k8s.apimachinery.pkg.util.intstr.IntOrString", Type::IntOrString),
    ("io.k8s.apimachinery.pkg.runtime.RawExtension", Type::Any),
];

/// The struct a root schema describes; its `$defs` are looked up as they are needed.
pub fn from_json_schema(root: &Value) -> Struct {
    let name = root.get("title").and_then(Value::as_str).unwrap_or("");
    Builder { root }.item(root, name, 0)
}

struct Builder<'a> {
    root: &'a Value,
}

impl Builder<'_> {
    fn item(&self, schema: &Value, name: &str, depth: usize) -> Struct {
        let mut fields = Vec::<Field>::new();
        self.fields(schema, depth, &mut fields);
        for variant in variants(schema) {
            // Other variants' fields are never required: which variant it is, only the value says.
            let from = fields.len();
            self.fields(self.resolve(variant).1, depth, &mut fields);
            fields.iter_mut().skip(from).for_each(|field| field.required = false);
        }
        fields.sort_by(|a, b| a.name.cmp(&b.name));
        fields.dedup_by(|a, b| a.name == b.name);
        Struct {
            name: name.into(),
            preserve_unknown: flag(schema, "x-kubernetes-preserve-unknown-fields"),
            embedded: flag(schema, "x-kubernetes-embedded-resource"),
            atomic: text(schema, "x-kubernetes-map-type") == "atomic",
            fields: fields.into(),
        }
    }

    fn fields(&self, schema: &Value, depth: usize, fields: &mut Vec<Field>) {
        let required = schema.get("required").and_then(Value::as_array);
        let is_required = |name: &str| required.is_some_and(|list| list.iter().any(|r| r == name));
        for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            fields.push(Field {
                name: name.as_str().into(),
                ty: self.ty(property, depth + 1),
                required: is_required(name),
                patch: patch(property),
                default: property.get("default").filter(|default| !default.is_null()).cloned(),
                ..Field::default()
            });
        }
    }

    fn ty(&self, schema: &Value, depth: usize) -> Type {
        let (name, target) = self.resolve(schema);
        if let Some((_, scalar)) = SCALARS.iter().find(|(known, _)| *known == name) {
            return scalar.clone();
        }
        if facts::find(name).is_some() {
            return Type::Struct(StructRef::named(name));
        }
        if flag(target, "x-kubernetes-int-or-string") {
            return Type::IntOrString;
        }
        let format = text(target, "format");
        match kind(target) {
            _ if depth >= DEPTH_MAX => Type::Any,
            "boolean" => Type::Bool,
            "integer" if matches!(format, "int64" | "uint32" | "uint64" | "int" | "uint") => Type::Int64,
            "integer" => Type::Int32,
            "number" => Type::Double,
            "string" if format == "byte" => Type::Bytes,
            "string" if format == "date-time" => Type::Time,
            "string" => Type::String,
            "array" => {
                let item = target.get("items").map_or(Type::Any, |items| self.ty(items, depth + 1));
                // The place of use has the last word over the type's own.
                let identity = identity(schema).or_else(|| identity(target)).unwrap_or_default();
                Type::List(Arc::new(ListType { item, identity, wrapped: false }))
            }
            "object" => self.object(schema, target, name, depth),
            _ => Type::Any,
        }
    }

    fn object(&self, place: &Value, target: &Value, name: &str, depth: usize) -> Type {
        let atomic = [place, target].iter().any(|s| text(s, "x-kubernetes-map-type") == "atomic");
        let has_fields = target.get("properties").is_some() || variants(target).next().is_some();
        match target.get("additionalProperties") {
            Some(values @ Value::Object(_)) if !has_fields => {
                Type::Map(Arc::new(MapType { value: self.ty(values, depth + 1), atomic }))
            }
            _ if has_fields => {
                let item = self.item(target, name, depth);
                Type::Struct(StructRef::owned(Struct { atomic: atomic || item.atomic, ..item }))
            }
            _ => Type::Any,
        }
    }

    /// Follows references and strips what makes a schema optional; with the name of the last definition.
    fn resolve<'b>(&'b self, schema: &'b Value) -> (&'b str, &'b Value) {
        let (mut name, mut schema) = ("", schema);
        for _ in 0..DEPTH_MAX {
            if let Some(reference) = schema.get("$ref").and_then(Value::as_str) {
                let definition = reference.strip_prefix("#/$defs/").unwrap_or(reference);
                let target = self.root.get("$defs").and_then(|defs| defs.get(definition));
                name = definition;
                match target {
                    Some(target) => schema = target,
                    None => return (name, schema),
                }
                continue;
            }
            let alternatives = ["anyOf", "allOf", "oneOf"].iter().find_map(|key| schema.get(key)?.as_array());
            let mut real = alternatives.into_iter().flatten().filter(|s| text(s, "type") != "null");
            match (schema.get("properties"), real.next(), real.next()) {
                (None, Some(only), None) => schema = only,
                _ => break,
            }
        }
        (name, schema)
    }
}

/// The object variants of an enum.
fn variants(schema: &Value) -> impl Iterator<Item = &Value> {
    let of = |key: &str| schema.get(key).and_then(Value::as_array);
    of("oneOf")
        .or_else(|| of("anyOf"))
        .into_iter()
        .flatten()
        .filter(|variant| variant.get("$ref").is_some() || variant.get("properties").is_some())
}

/// The JSON type; of several, the one that is not null. An enum of constants is what its constants are.
fn kind(schema: &Value) -> &str {
    match schema.get("type") {
        Some(Value::String(kind)) => kind,
        Some(Value::Array(kinds)) => {
            kinds.iter().filter_map(Value::as_str).find(|k| *k != "null").unwrap_or("")
        }
        _ if schema.get("properties").is_some() || variants(schema).next().is_some() => "object",
        _ => {
            let first = schema.get("oneOf").and_then(|list| list.get(0));
            let constant =
                first.or(Some(schema)).and_then(|s| s.get("const").or_else(|| s.get("enum")?.get(0)));
            let typed = first.and_then(|s| s.get("type")).and_then(Value::as_str);
            typed.unwrap_or_else(|| if constant.is_some_and(Value::is_string) { "string" } else { "" })
        }
    }
}

fn identity(schema: &Value) -> Option<Identity> {
    match text(schema, "x-kubernetes-list-type") {
        "set" => Some(Identity::Set),
        "map" => {
            let keys = schema.get("x-kubernetes-list-map-keys").and_then(Value::as_array);
            let keys = keys.into_iter().flatten().filter_map(Value::as_str);
            Some(Identity::Keys(keys.map(|key| (key.into(), None)).collect()))
        }
        "atomic" => Some(Identity::Atomic),
        _ => None,
    }
}

fn patch(schema: &Value) -> Patch {
    let strategy = text(schema, "x-kubernetes-patch-strategy");
    Patch {
        merge: strategy.contains("merge"),
        retain_keys: strategy.contains("retainKeys"),
        replace: strategy == "replace",
        merge_key: text(schema, "x-kubernetes-patch-merge-key").into(),
    }
}

fn flag(schema: &Value, key: &str) -> bool {
    schema.get(key).and_then(Value::as_bool).unwrap_or(false)
}

fn text<'a>(schema: &'a Value, key: &str) -> &'a str {
    schema.as_object().and_then(|map: &Map<String, Value>| map.get(key)).and_then(Value::as_str).unwrap_or("")
}

#[cfg(test)]
mod tests {
    use schemars::{JsonSchema, schema_for};
    use serde_json::json;

    use super::super::normalize;
    use super::*;

    #[expect(dead_code, reason = "only their schemas are used")]
    mod kinds {
        use std::collections::BTreeMap;

        use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, Time};

        use super::JsonSchema;

        #[derive(JsonSchema)]
        #[serde(rename_all = "camelCase")]
        pub(super) struct Harbour {
            metadata: ObjectMeta,
            spec: HarbourSpec,
            opened: Option<Time>,
        }

        #[derive(JsonSchema)]
        #[serde(rename_all = "camelCase")]
        pub(super) struct HarbourSpec {
            #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["name"]))]
            berths: Vec<Berth>,
            depth_m: Option<i32>,
            tonnage: u64,
            selector: Option<LabelSelector>,
            labels: BTreeMap<String, String>,
            flag: Option<Flag>,
            light: Light,
            share: f64,
        }

        #[derive(JsonSchema)]
        pub(super) struct Berth {
            name: String,
            inner: Vec<Self>,
        }

        #[derive(JsonSchema)]
        pub(super) enum Flag {
            /// Documented, which changes the schema's form.
            Red,
            Green,
        }

        #[derive(JsonSchema)]
        #[serde(rename_all = "camelCase")]
        pub(super) enum Light {
            Steady { candela: i32 },
            Flashing { period_s: i32 },
        }
    }

    fn show(ty: &Type) -> String {
        match ty {
            Type::Struct(of) => format!("@{}", of.get().name.rsplit('.').next().unwrap_or("")),
            Type::List(list) => format!("[{}] {:?}", show(&list.item), list.identity),
            Type::Map(map) => format!("{{{}}}", show(&map.value)),
            other => format!("{other:?}"),
        }
    }

    #[test]
    fn a_kind_of_ours() {
        let of = from_json_schema(schema_for!(kinds::Harbour).as_value());
        assert_eq!(&*of.name, "Harbour");
        let shown = |of: &Struct| -> Vec<String> {
            of.fields
                .iter()
                .map(|f| format!("{} {}{}", f.name, show(&f.ty), if f.required { "!" } else { "" }))
                .collect()
        };
        assert_eq!(shown(&of), ["metadata @ObjectMeta!", "opened Time", "spec @HarbourSpec!"]);
        let Some(Field { ty: Type::Struct(spec), .. }) = of.field("spec") else { panic!("a struct") };
        assert_eq!(
            shown(spec.get()),
            [
                "berths [@Berth] Keys([(\"name\", None)])!",
                "depthM Int32",
                "flag String",
                "labels {String}!",
                "light @Light!",
                "selector @LabelSelector",
                "share Double!",
                "tonnage Int64!",
            ]
        );
        let mut object = json!({"metadata": {"name": "a", "foo": 1}, "spec": {"depthM": null, "flag": 5,
            "light": {"flashing": {"period_s": 1}, "beam": 1}, "berths": [{"name": "x", "inner": [{"bar": 1}]}]}});
        let report = normalize(&of, &mut object);
        assert_eq!(
            report.unknown,
            [
                r#"unknown field "metadata.foo""#,
                r#"unknown field "spec.berths[0].inner[0].bar""#,
                r#"unknown field "spec.light.beam""#
            ]
        );
        let want = "json: cannot unmarshal number into Go struct field HarbourSpec.spec.flag of type string";
        assert_eq!(report.error.as_deref(), Some(want));
    }
}
