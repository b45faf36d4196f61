//! Field sets and schemas: named fields as members, and sets written under an older schema.

use landfall_api::schema::{Struct, Type};

use super::set::Set;
use super::shape::{Atom, Fields, Place};

/// The set with every named field that has paths below it, which sets do not list by themselves.
pub(super) fn with_named_fields(schema: &Struct, set: &Set) -> Set {
    named_at(Some(Place::Struct(schema)), set)
}

fn named_at(place: Option<Place<'_>>, set: &Set) -> Set {
    let fields = place.and_then(|place| match place.atom(None) {
        Atom::Map(fields) => Some(fields),
        Atom::Scalar | Atom::List(_) => None,
    });
    let mut out = Set::EMPTY;
    for node in set.nodes() {
        let named = || match (node.element.name(), fields) {
            (Some(name), Some(fields)) => fields.named(name).is_some(),
            _ => false,
        };
        let member = node.member || (!node.below.is_empty() && named());
        let next = place.and_then(|place| place.step(&node.element));
        out.push(node.element.clone(), member, named_at(next, &node.below));
    }
    out
}

/// A set written when lists or maps were merged that are now owned as a whole: their owner owns the whole.
/// None when nothing has to change.
pub(super) fn reconcile(schema: &Struct, set: &Set) -> Option<Set> {
    reconcile_at(Place::Struct(schema), set)
}

fn reconcile_at(place: Place<'_>, set: &Set) -> Option<Set> {
    let mut changed = false;
    let mut out = Set::EMPTY;
    for node in set.nodes() {
        let below = match child(place, &node.element).map(|next| (next, became_atomic(next))) {
            Some((_, true)) if !node.below.is_empty() => {
                changed = true;
                out.push(node.element.clone(), true, Set::EMPTY);
                continue;
            }
            Some((next, false)) => reconcile_at(next, &node.below),
            _ => None,
        };
        changed |= below.is_some();
        out.push(node.element.clone(), node.member, below.unwrap_or_else(|| node.below.clone()));
    }
    changed.then_some(out)
}

fn child<'a>(place: Place<'a>, element: &super::element::Element) -> Option<Place<'a>> {
    match place {
        Place::Type(Type::List(list)) => Some(Place::Type(&list.item)),
        Place::Deduced | Place::Type(Type::Any | Type::SchemaOr(_)) => None,
        _ => place.step(element),
    }
}

fn became_atomic(place: Place<'_>) -> bool {
    match place.atom(None) {
        Atom::Scalar | Atom::Map(Fields::Deduced) => false,
        Atom::List(items) => items.associative().is_none(),
        Atom::Map(fields) => fields.atomic(),
    }
}
