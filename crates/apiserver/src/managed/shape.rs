//! A schema as server-side apply sees it: scalars, lists with or without identity, maps with or without names.

use std::sync::OnceLock;

use landfall_api::schema::{Field, Identity, ListType, MapType, Struct, Type};
use serde_json::Value;

use super::element::Element;

/// What is known about one place in an object.
#[derive(Clone, Copy, Debug)]
pub enum Place<'a> {
    /// A known type.
    Type(&'a Type),
    /// A struct, where no [`Type`] is at hand: the object itself.
    Struct(&'a Struct),
    /// Nothing: the value decides. Objects are merged, lists are owned as a whole.
    Deduced,
}

/// What a place is for one value.
#[derive(Clone, Copy, Debug)]
pub enum Atom<'a> {
    /// A leaf.
    Scalar,
    /// A list.
    List(Items<'a>),
    /// An object.
    Map(Fields<'a>),
}

/// The items of a list.
#[derive(Clone, Copy, Debug)]
pub enum Items<'a> {
    /// Items have an identity, or the schema says they have none.
    Known(&'a ListType),
    /// A list that nothing is known about: owned as a whole.
    Deduced,
}

/// The fields of an object.
#[derive(Clone, Copy, Debug)]
pub enum Fields<'a> {
    /// Named fields.
    Struct(&'a Struct),
    /// Free keys of one type.
    Map(&'a MapType),
    /// Nothing is known.
    Deduced,
}

impl<'a> Place<'a> {
    /// What this place is for that value; where the schema leaves a choice, the value decides.
    pub fn atom(self, value: Option<&Value>) -> Atom<'a> {
        match self {
            Self::Struct(item) => Atom::Map(Fields::Struct(item)),
            Self::Type(Type::Struct(item)) => Atom::Map(Fields::Struct(item.get())),
            Self::Type(Type::Map(map)) => Atom::Map(Fields::Map(map)),
            Self::Type(Type::List(list)) => Atom::List(Items::Known(list)),
            Self::Deduced | Self::Type(Type::Any | Type::SchemaOr(_)) => match value {
                Some(Value::Array(_)) => Atom::List(Items::Deduced),
                Some(Value::Bool(_) | Value::Number(_) | Value::String(_)) => Atom::Scalar,
                None | Some(Value::Object(_) | Value::Null) => Atom::Map(Fields::Deduced),
            },
            Self::Type(_) => Atom::Scalar,
        }
    }

    /// The place of a child, by a step of a path; none when the schema does not know it.
    pub fn step(self, element: &Element) -> Option<Self> {
        match (element, self) {
            (Element::Field(name), _) => match self.atom(None) {
                Atom::Map(fields) => fields.place(name),
                Atom::Scalar | Atom::List(_) => None,
            },
            (Element::Key(_), Self::Type(Type::List(list))) => Some(Self::Type(&list.item)),
            _ => None,
        }
    }
}

impl Atom<'_> {
    /// Whether both are scalars, lists or maps.
    pub const fn same(&self, other: &Self) -> bool {
        matches!(
            (self, other),
            (Self::Scalar, Self::Scalar) | (Self::List(_), Self::List(_)) | (Self::Map(_), Self::Map(_))
        )
    }
}

impl<'a> Items<'a> {
    /// The list's type, when its items have an identity.
    pub fn associative(self) -> Option<&'a ListType> {
        match self {
            Self::Known(list) if list.identity != Identity::Atomic => Some(list),
            Self::Known(_) | Self::Deduced => None,
        }
    }
}

impl<'a> Fields<'a> {
    /// Whether the object is owned as a whole.
    pub const fn atomic(self) -> bool {
        match self {
            Self::Struct(item) => item.atomic,
            Self::Map(map) => map.atomic,
            Self::Deduced => false,
        }
    }

    /// The named field, as opposed to a free key.
    pub fn named(self, name: &str) -> Option<&'a Field> {
        match self {
            Self::Struct(item) => item.field(name),
            Self::Map(_) | Self::Deduced => None,
        }
    }

    /// The place of that field or key; none when it is not declared.
    pub fn place(self, name: &str) -> Option<Place<'a>> {
        match self {
            Self::Struct(item) => match item.field(name) {
                Some(field) => Some(Place::Type(&field.ty)),
                None => item.preserve_unknown.then_some(Place::Deduced),
            },
            Self::Map(map) => Some(Place::Type(&map.value)),
            Self::Deduced => Some(Place::Deduced),
        }
    }

    /// As [`Self::place`]; what is not declared is deduced.
    pub fn place_or_deduced(self, name: &str) -> Place<'a> {
        self.place(name).unwrap_or(Place::Deduced)
    }

    /// Fields that a built-in object has even when nobody wrote them: structs held by value.
    pub fn implied(self) -> impl Iterator<Item = &'a Field> {
        let fields = match self {
            Self::Struct(item) if !item.name.is_empty() => &*item.fields,
            Self::Struct(_) | Self::Map(_) | Self::Deduced => &[],
        };
        fields.iter().filter(|field| held_by_value(field))
    }

    /// What an absent field of a built-in object is: `{}` for structs held by value, the zero value for other
    /// fields that Go always writes, and nothing for the rest.
    pub fn absent(self, name: &str) -> Option<&'static Value> {
        self.named(name).and_then(|field| self.absent_field(field))
    }

    fn absent_field(self, field: &Field) -> Option<&'static Value> {
        match self {
            Self::Struct(item) if item.name.is_empty() => None,
            _ if held_by_value(field) => Some(empty_object()),
            _ => always_written(field).then(|| zero(field)),
        }
    }

    /// The place of a field and what it is when absent, in one look.
    pub fn find(self, name: &str) -> (Place<'a>, Option<&'static Value>) {
        match self.named(name) {
            Some(field) => (Place::Type(&field.ty), self.absent_field(field)),
            None => (self.place_or_deduced(name), None),
        }
    }
}

/// A struct that is not behind a pointer is there even when it is empty.
fn held_by_value(field: &Field) -> bool {
    let go = &field.go;
    matches!(field.ty, Type::Struct(_)) && !go.ty.is_empty() && !go.pointer && !go.omit_zero
}

/// Whether Go writes the field even when nobody set it; `omitempty` does not leave out structs.
fn always_written(field: &Field) -> bool {
    let struct_in_go =
        matches!(field.ty, Type::Time | Type::MicroTime | Type::IntOrString | Type::Quantity | Type::Any);
    let go = &field.go;
    !go.ty.is_empty() && !go.omit_zero && (!go.omit_empty || (struct_in_go && !go.pointer))
}

/// What Go writes for a field that nobody set.
fn zero(field: &Field) -> &'static Value {
    static ZEROS: OnceLock<[Value; 3]> = OnceLock::new();
    let [no, number, text] =
        ZEROS.get_or_init(|| [Value::Bool(false), Value::from(0), Value::String(String::new())]);
    match &field.ty {
        Type::Bool if !field.go.pointer => no,
        Type::Int32 | Type::Int64 | Type::Double | Type::IntOrString if !field.go.pointer => number,
        Type::String if !field.go.pointer => text,
        _ => &Value::Null,
    }
}

/// A shared `{}`.
pub fn empty_object() -> &'static Value {
    static EMPTY: OnceLock<Value> = OnceLock::new();
    EMPTY.get_or_init(|| Value::Object(serde_json::Map::new()))
}

/// The step that leads to an item of a list with identity, or why it has none.
pub fn item_element(list: &ListType, item: &Value) -> Result<Element, String> {
    match &list.identity {
        Identity::Atomic => Err("invalid indexing of non-associative list".into()),
        Identity::Set => match item {
            Value::Object(_) => Err("associative list without keys has an element that's a map type".into()),
            Value::Array(_) => Err("not supported: associative list with lists as elements".into()),
            Value::Null => Err("associative list without keys has an element that's an explicit null".into()),
            scalar => Ok(Element::Value(Box::new(scalar.clone()))),
        },
        Identity::Keys(keys) => keyed_element(keys, item),
    }
}

fn keyed_element(keys: &[(Box<str>, Option<Value>)], item: &Value) -> Result<Element, String> {
    let map = match item {
        Value::Object(map) => map,
        Value::Null => return Err("associative list with keys may not have a null element".into()),
        _ => return Err("associative list with keys may not have non-map elements".into()),
    };
    let mut pairs: Vec<(Box<str>, Value)> = Vec::with_capacity(keys.len());
    for (name, default) in keys {
        if let Some(value) = map.get(&**name).or(default.as_ref()) {
            pairs.push((name.clone(), value.clone()));
        }
    }
    if pairs.is_empty() {
        let names: Vec<String> = keys.iter().map(|(name, _)| format!("{name:?}")).collect();
        return Err(format!(
            "associative list with keys has an element that omits all key fields [{}] \
             (and doesn't have default values for any key fields)",
            names.join(" ")
        ));
    }
    pairs.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(Element::Key(pairs.into()))
}
