//! Finds what is wrong with an expression before it runs: unknown names and fields, and operands that never fit.
//!
//! Types are followed as far as the schema says them; what is not known is let through and judged at run time.

use super::eval::unescape;
use super::parser::{Expr, Literal, Node, Wrong};
use crate::crd::schema::Schema;

/// What is known of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Type<'a> {
    /// Nothing.
    Unknown,
    /// A plain type, by its name.
    Plain(&'static str),
    /// What this schema describes.
    Of(Shape<'a>),
}

/// A schema by reference: two are the same when they are the same node.
#[derive(Clone, Copy, Debug)]
struct Shape<'a> {
    schema: &'a Schema,
    /// Of whole objects, which have apiVersion, kind and metadata beside what the schema says.
    whole: bool,
}

impl PartialEq for Shape<'_> {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self.schema, other.schema)
    }
}

impl Eq for Shape<'_> {}

/// Whether an expression looks at the old object.
pub fn uses_old_self(expr: &Expr) -> bool {
    let all = |exprs: &[Expr]| exprs.iter().any(uses_old_self);
    match &expr.node {
        Node::Name(name) => name == "oldSelf",
        Node::Literal(_) => false,
        Node::Select { of, .. } => uses_old_self(of),
        Node::Index { of, index, .. } => uses_old_self(of) || uses_old_self(index),
        Node::Call { on, args, .. } => on.as_deref().is_some_and(uses_old_self) || all(args),
        Node::List(items) => items.iter().any(|(item, _)| uses_old_self(item)),
        Node::Map(entries) => entries.iter().any(|(key, value)| uses_old_self(key) || uses_old_self(value)),
        Node::Macro { of, args, .. } => uses_old_self(of) || all(args),
    }
}

/// What is wrong with a rule.
pub fn rule(expr: &Expr, schema: &Schema, root: bool, optional: bool, source: &str) -> Option<String> {
    match run(expr, schema, root, optional) {
        Err(wrong) => Some(super::compilation(source, &wrong)),
        Ok(Type::Unknown | Type::Plain("bool")) => None,
        Ok(_) => Some("cel expression must evaluate to a bool".into()),
    }
}

/// What is wrong with an expression for a message.
pub fn message(expr: &Expr, schema: &Schema, root: bool, optional: bool, source: &str) -> Option<String> {
    match run(expr, schema, root, optional) {
        Err(wrong) => Some(format!("messageExpression {}", super::compilation(source, &wrong))),
        Ok(Type::Unknown | Type::Plain("string")) => None,
        Ok(_) => Some("messageExpression must evaluate to a string".into()),
    }
}

fn run<'a>(expr: &Expr, schema: &'a Schema, root: bool, optional: bool) -> Result<Type<'a>, Wrong> {
    let own = of_schema(schema, root || schema.embedded);
    let old = if optional { Type::Unknown } else { own };
    let outer = Names { name: "self", ty: own, outer: None };
    infer(expr, &Names { name: "oldSelf", ty: old, outer: Some(&outer) })
}

struct Names<'n, 'a> {
    name: &'n str,
    ty: Type<'a>,
    outer: Option<&'n Self>,
}

impl<'a> Names<'_, 'a> {
    fn find(&self, name: &str) -> Option<Type<'a>> {
        if self.name == name { Some(self.ty) } else { self.outer?.find(name) }
    }
}

fn of_schema(schema: &Schema, whole: bool) -> Type<'_> {
    match (schema.ty.as_str(), schema.format.as_str()) {
        _ if schema.int_or_string || schema.nullable => Type::Unknown,
        ("boolean", _) => Type::Plain("bool"),
        ("integer", _) => Type::Plain("int"),
        ("number", _) => Type::Plain("double"),
        ("string", "byte") => Type::Plain("bytes"),
        ("string", "date" | "date-time") => Type::Plain("timestamp"),
        ("string", "duration") => Type::Plain("duration"),
        ("string", _) => Type::Plain("string"),
        ("object" | "array", _) => Type::Of(Shape { schema, whole }),
        _ => Type::Unknown,
    }
}

const SPACES: [&str; 10] =
    ["optional", "sets", "ip", "cel", "math", "strings", "lists", "format", "semver", "base64"];
const TYPES: [&str; 10] =
    ["bool", "int", "uint", "double", "string", "bytes", "list", "map", "null_type", "type"];

fn infer<'a>(expr: &Expr, names: &Names<'_, 'a>) -> Result<Type<'a>, Wrong> {
    match &expr.node {
        Node::Literal(value) => Ok(Type::Plain(match value {
            Literal::Null => return Ok(Type::Unknown),
            Literal::Bool(_) => "bool",
            Literal::Int(_) => "int",
            Literal::Uint(_) => "uint",
            Literal::Double(_) => "double",
            Literal::Text(_) => "string",
            Literal::Bytes(_) => "bytes",
        })),
        Node::Name(name) => names.find(name).map_or_else(
            || {
                if TYPES.contains(&name.as_str()) || SPACES.contains(&name.as_str()) {
                    return Ok(Type::Unknown);
                }
                Err((format!("undeclared reference to '{name}' (in container '')"), expr.at))
            },
            Ok,
        ),
        Node::Select { of, field, test, optional } => {
            let found = select(infer(of, names)?, field, expr.at)?;
            Ok(match (test, optional) {
                (true, _) => Type::Plain("bool"),
                (false, true) => Type::Unknown,
                (false, false) => found,
            })
        }
        Node::Index { of, index, optional } => {
            let of = infer(of, names)?;
            infer(index, names)?;
            Ok(if *optional { Type::Unknown } else { element(of) })
        }
        Node::Call { on, name, args } => call(on.as_deref(), name, args, names, expr.at),
        Node::List(items) => {
            items.iter().try_for_each(|(item, _)| infer(item, names).map(drop))?;
            Ok(Type::Plain("list"))
        }
        Node::Map(entries) => {
            for (key, value) in entries {
                infer(key, names)?;
                infer(value, names)?;
            }
            Ok(Type::Plain("map"))
        }
        Node::Macro { name, of, vars, args } => walk(name, of, vars, args, names),
    }
}

fn select<'a>(of: Type<'a>, field: &str, at: usize) -> Result<Type<'a>, Wrong> {
    let Type::Of(Shape { schema, whole }) = of else { return Ok(Type::Unknown) };
    if schema.ty != "object" {
        return Err((format!("type 'list({})' does not support field selection", "dyn"), at));
    }
    if let Some(values) = schema.additional_schema() {
        return Ok(of_schema(values, values.embedded));
    }
    let name = unescape(field);
    if whole && matches!(name.as_str(), "apiVersion" | "kind" | "metadata") {
        return Ok(if name == "metadata" { Type::Unknown } else { Type::Plain("string") });
    }
    match schema.properties.get(&name) {
        Some(child) => Ok(of_schema(child, child.embedded)),
        None => Err((format!("undefined field '{field}'"), at)),
    }
}

/// What a list or map holds.
fn element(of: Type<'_>) -> Type<'_> {
    let Type::Of(Shape { schema, .. }) = of else { return Type::Unknown };
    let inner = if schema.ty == "array" { schema.items.as_deref() } else { schema.additional_schema() };
    inner.map_or(Type::Unknown, |inner| of_schema(inner, inner.embedded))
}

fn walk<'a>(
    name: &str,
    of: &Expr,
    vars: &[String],
    args: &[Expr],
    names: &Names<'_, 'a>,
) -> Result<Type<'a>, Wrong> {
    let of = infer(of, names)?;
    let is_list = matches!(of, Type::Of(Shape { schema, .. }) if schema.ty == "array");
    let is_map = matches!(of, Type::Of(Shape { schema, .. }) if schema.ty == "object");
    let key = if is_map { Type::Plain("string") } else { Type::Unknown };
    let (first, second) = match (name, vars.len()) {
        ("bind", _) => (of, Type::Unknown),
        ("optMap" | "optFlatMap", _) => (Type::Unknown, Type::Unknown),
        (_, 1) => (if is_list { element(of) } else { key }, Type::Unknown),
        _ => (if is_list { Type::Plain("int") } else { key }, element(of)),
    };
    let (a, b) = (vars.first().map_or("", String::as_str), vars.get(1).map_or("", String::as_str));
    let outer = Names { name: a, ty: first, outer: Some(names) };
    let inner = Names { name: b, ty: second, outer: Some(&outer) };
    let mut last = Type::Unknown;
    for arg in args {
        last = infer(arg, &inner)?;
    }
    Ok(match name {
        "all" | "exists" | "exists_one" | "existsOne" => Type::Plain("bool"),
        "filter" | "map" | "transformList" => Type::Plain("list"),
        "bind" => last,
        _ => Type::Unknown,
    })
}

/// Functions that give a truth value.
const TESTS: [&str; 18] = [
    "contains",
    "startsWith",
    "endsWith",
    "matches",
    "isSorted",
    "isURL",
    "isIP",
    "isCIDR",
    "isQuantity",
    "hasValue",
    "@in",
    "!_",
    "isInteger",
    "isLessThan",
    "isGreaterThan",
    "containsIP",
    "containsCIDR",
    "isCanonical",
];
/// Functions that give a format.
const FORMATS: [&str; 13] = [
    "dns1123Label",
    "dns1123Subdomain",
    "dns1035Label",
    "qualifiedName",
    "dns1123LabelPrefix",
    "dns1123SubdomainPrefix",
    "dns1035LabelPrefix",
    "labelValue",
    "uri",
    "uuid",
    "byte",
    "date",
    "datetime",
];
const OTHERS: [&str; 75] = [
    "size",
    "int",
    "uint",
    "double",
    "string",
    "bytes",
    "bool",
    "duration",
    "timestamp",
    "dyn",
    "type",
    "charAt",
    "indexOf",
    "lastIndexOf",
    "lowerAscii",
    "upperAscii",
    "replace",
    "split",
    "substring",
    "trim",
    "join",
    "reverse",
    "format",
    "sum",
    "min",
    "max",
    "find",
    "findAll",
    "url",
    "getScheme",
    "getHost",
    "getHostname",
    "getPort",
    "getEscapedPath",
    "getQuery",
    "ip",
    "cidr",
    "family",
    "isUnspecified",
    "isLoopback",
    "isLinkLocalMulticast",
    "isLinkLocalUnicast",
    "isGlobalUnicast",
    "prefixLength",
    "masked",
    "quantity",
    "sign",
    "asInteger",
    "asApproximateFloat",
    "compareTo",
    "add",
    "sub",
    "value",
    "orValue",
    "or",
    "of",
    "none",
    "ofNonZeroValue",
    "getFullYear",
    "getMonth",
    "getDate",
    "getDayOfMonth",
    "getDayOfWeek",
    "getDayOfYear",
    "getHours",
    "getMinutes",
    "getSeconds",
    "getMilliseconds",
    "equivalent",
    "intersects",
    "_?_:_",
    "-_",
    "validate",
    "bind",
    "named",
];

fn call<'a>(
    on: Option<&Expr>,
    name: &str,
    args: &[Expr],
    names: &Names<'_, 'a>,
    at: usize,
) -> Result<Type<'a>, Wrong> {
    let on = on.map(|on| infer(on, names)).transpose()?;
    let mut types = Vec::new();
    for arg in args {
        let ty = infer(arg, names)?;
        if let ("_&&_" | "_||_", Some(found)) = (name, shown(ty).filter(|ty| ty != "bool")) {
            return Err((format!("expected type 'bool' but found '{found}'"), arg.at));
        }
        types.push(ty);
    }
    if let [a, b] = types.as_slice()
        && name.starts_with('_')
    {
        return binary(name, *a, *b, at);
    }
    let known = [&TESTS[..], &OTHERS, &FORMATS].iter().any(|names| names.contains(&name));
    if !known {
        return Err((format!("undeclared reference to '{name}' (in container '')"), at));
    }
    Ok(match (name, types.as_slice()) {
        ("_?_:_", [_, yes, no]) if yes == no => *yes,
        ("size" | "int" | "indexOf" | "lastIndexOf", _) => Type::Plain("int"),
        (
            "string" | "lowerAscii" | "upperAscii" | "replace" | "trim" | "substring" | "join" | "format",
            _,
        ) => Type::Plain("string"),
        ("sets.contains", _) => Type::Plain("bool"),
        _ if TESTS.contains(&name) => Type::Plain("bool"),
        ("-_", [inner]) => *inner,
        ("value" | "orValue", _) if on.is_some() => Type::Unknown,
        _ => Type::Unknown,
    })
}

fn shown(ty: Type<'_>) -> Option<String> {
    match ty {
        Type::Plain(name @ ("bool" | "int" | "uint" | "double" | "string" | "bytes")) => Some(name.into()),
        Type::Of(Shape { schema, .. }) if schema.ty == "array" => {
            shown(element(ty)).map(|of| format!("list({of})"))
        }
        Type::Of(Shape { schema, .. }) if schema.additional_schema().is_some() => {
            shown(element(ty)).map(|of| format!("map(string, {of})"))
        }
        _ => None,
    }
}

fn binary<'a>(name: &str, a: Type<'a>, b: Type<'a>, at: usize) -> Result<Type<'a>, Wrong> {
    let none = |a: &str, b: &str| {
        Err((format!("found no matching overload for '{name}' applied to '({a}, {b})'"), at))
    };
    let known = shown(a).zip(shown(b));
    match (name, known) {
        ("_&&_" | "_||_", _) => Ok(Type::Plain("bool")),
        ("_==_" | "_!=_", Some((a, b))) if a != b => none(&a, &b),
        ("_==_" | "_!=_", _) => Ok(Type::Plain("bool")),
        ("_<_" | "_<=_" | "_>_" | "_>=_", Some((a, b))) => {
            let number = |ty: &str| matches!(ty, "int" | "uint" | "double");
            if a == b || (number(&a) && number(&b)) { Ok(Type::Plain("bool")) } else { none(&a, &b) }
        }
        ("_<_" | "_<=_" | "_>_" | "_>=_", None) => Ok(Type::Plain("bool")),
        (_, Some((a, b))) if a != b => none(&a, &b),
        (_, Some((ty, _))) if ty.starts_with("map") => none(&ty, &ty),
        (_, Some((ty, _))) if ty.starts_with("list") && name != "_+_" => none(&ty, &ty),
        (_, Some((ty, _))) if ty == "bool" || (ty == "string" && name != "_+_") => none(&ty, &ty),
        (_, Some(_)) => Ok(a),
        _ => Ok(Type::Unknown),
    }
}
