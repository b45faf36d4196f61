//! Where a walk stands: a chain on the stack, written out only when something is wrong.

use std::fmt;

use super::{Field, Struct, Type};

/// One place in an object.
#[derive(Clone, Copy)]
pub(super) struct At<'a> {
    up: Option<&'a Self>,
    step: Step<'a>,
}

/// The step that led there.
#[derive(Clone, Copy)]
pub(super) enum Step<'a> {
    Root,
    Field(&'a Struct, &'a Field),
    Unknown(&'a str),
    Index(usize),
    Key(&'a str),
}

impl<'a> At<'a> {
    /// The object itself.
    pub(super) const ROOT: At<'static> = At { up: None, step: Step::Root };

    /// One step further.
    pub(super) const fn then(&'a self, step: Step<'a>) -> Self {
        Self { up: Some(self), step }
    }

    /// `json: cannot unmarshal string into Go struct field ServiceSpec.spec.ports of type []v1.ServicePort`.
    pub(super) fn mismatch(&self, what: &str, ty: &str) -> String {
        match self.innermost() {
            None => format!("json: cannot unmarshal {what} into Go value of type {ty}"),
            Some((of, _)) => {
                let of = of.name.rsplit('.').next().unwrap_or("");
                let mut path = String::new();
                self.go_path(&mut path);
                format!("json: cannot unmarshal {what} into Go struct field {of}{path} of type {ty}")
            }
        }
    }

    /// The Go type of the value here.
    pub(super) fn go_type(&self, ty: &Type) -> String {
        self.known_type().unwrap_or_else(|| guess(ty))
    }

    /// Whether the value here belongs to a struct of Kubernetes.
    pub(super) fn is_builtin(&self) -> bool {
        self.innermost().is_some_and(|(_, field)| !field.go.ty.is_empty())
    }

    /// The Go type of a struct.
    pub(super) fn struct_type(of: &Struct) -> String {
        let mut parts = of.name.rsplit('.');
        match (parts.next(), parts.next()) {
            (Some(name), Some(version)) => format!("{version}.{name}"),
            _ => of.name.to_string(),
        }
    }

    fn known_type(&self) -> Option<String> {
        match self.step {
            Step::Field(_, field) if !field.go.ty.is_empty() => Some(field.go.ty.to_string()),
            Step::Index(_) => Some(self.up?.known_type()?.strip_prefix("[]")?.to_owned()),
            Step::Key(_) => {
                let map = self.up?.known_type()?;
                Some(map.strip_prefix("map[")?.split_once(']')?.1.to_owned())
            }
            _ => None,
        }
    }

    fn innermost(&self) -> Option<(&'a Struct, &'a Field)> {
        match self.step {
            Step::Field(of, field) => Some((of, field)),
            _ => self.up.and_then(At::innermost),
        }
    }

    /// Fields only, inlined structs named, as Go's decoder shows it.
    fn go_path(&self, path: &mut String) {
        if let Some(up) = self.up {
            up.go_path(path);
        }
        if let Step::Field(_, field) = self.step {
            for part in [&field.go.inlined, &field.name] {
                if !part.is_empty() {
                    path.push('.');
                    path.push_str(part);
                }
            }
        }
    }
}

impl fmt::Display for At<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(up) = self.up {
            up.fmt(f)?;
        }
        let name = match self.step {
            Step::Root => return Ok(()),
            Step::Index(index) => return write!(f, "[{index}]"),
            Step::Field(_, field) => &*field.name,
            Step::Unknown(name) | Step::Key(name) => name,
        };
        let dot = if self.up.is_none_or(|up| matches!(up.step, Step::Root)) { "" } else { "." };
        write!(f, "{dot}{name}")
    }
}

fn guess(ty: &Type) -> String {
    match ty {
        Type::Any => "interface {}".into(),
        Type::Bool => "bool".into(),
        Type::Int32 => "int32".into(),
        Type::Int64 => "int64".into(),
        Type::Double => "float64".into(),
        Type::String | Type::Time | Type::MicroTime => "string".into(),
        Type::Bytes => "[]uint8".into(),
        Type::IntOrString => "intstr.IntOrString".into(),
        Type::Quantity => "resource.Quantity".into(),
        Type::Struct(of) => At::struct_type(of.get()),
        Type::Map(map) => format!("map[string]{}", guess(&map.value)),
        Type::List(list) => format!("[]{}", guess(&list.item)),
        Type::SchemaOr(_) => "v1.JSONSchemaProps".into(),
    }
}
