//! What changed between two objects: paths removed, modified and added.

use std::collections::BTreeMap;

use landfall_api::schema::{ListType, Struct};
use serde_json::{Map, Value};

use super::element::{Element, equal_values};
use super::set::Set;
use super::shape::{Atom, Fields, Items, Place, empty_object, item_element};

/// The difference between two objects. No path is in more than one of the sets.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Delta {
    /// Paths that only the old object has.
    pub removed: Set,
    /// Leaves that both have, with different values.
    pub modified: Set,
    /// Paths that only the new object has.
    pub added: Set,
}

/// How the new object was made, which decides what its absent fields mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Made {
    /// A whole object was written: structs held by value are there even if nobody wrote them.
    Whole,
    /// A configuration was merged into the old object: what it adds is only what it says.
    Merged,
}

/// Compares two objects. The absent old object has what an empty object of its kind has.
pub(super) fn compare(schema: &Struct, old: Option<&Value>, new: &Value, made: Made) -> Delta {
    let old = old.unwrap_or_else(|| empty_object());
    Walk { made }.compare(Place::Struct(schema), Some(old), Some(new)).below
}

impl Delta {
    /// Whether nothing changed.
    pub(super) const fn is_empty(&self) -> bool {
        self.removed.is_empty() && self.modified.is_empty() && self.added.is_empty()
    }

    /// Takes these paths and all below them out of the comparison.
    #[must_use]
    pub(super) fn without(self, reset: &Set) -> Self {
        if reset.is_empty() {
            return self;
        }
        Self {
            removed: self.removed.recursive_difference(reset),
            modified: self.modified.recursive_difference(reset),
            added: self.added.recursive_difference(reset),
        }
    }

    fn attach(&mut self, element: Element, step: Step) {
        let Step { mark, below, .. } = step;
        let Self { removed, modified, added } = below;
        if mark == Mark::Same && removed.is_empty() && modified.is_empty() && added.is_empty() {
            return;
        }
        self.removed.push(element.clone(), mark == Mark::Removed, removed);
        self.modified.push(element.clone(), mark == Mark::Modified, modified);
        self.added.push(element, mark == Mark::Added, added);
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Mark {
    #[default]
    Same,
    Removed,
    Modified,
    Added,
}

/// What was found at one place: its own mark, whether it is a leaf, and what is below.
#[derive(Default)]
struct Step {
    mark: Mark,
    leaf: bool,
    below: Delta,
}

type Side<'a> = Option<&'a Value>;

struct Walk {
    made: Made,
}

impl Walk {
    fn compare(&self, place: Place<'_>, old: Side<'_>, new: Side<'_>) -> Step {
        let (old_atom, new_atom) = (place.atom(old), place.atom(new));
        let mut step = if new.is_none() {
            self.visit(old_atom, old, new)
        } else if old.is_none() || old_atom.same(&new_atom) {
            self.visit(new_atom, old, new)
        } else {
            // The value changed its kind: both views of it are compared.
            let first = self.visit(old_atom, old, new);
            let second = self.visit(new_atom, old, new);
            let mark = if first.mark == Mark::Same { second.mark } else { first.mark };
            Step { mark, leaf: second.leaf, below: union(&first.below, &second.below) }
        };
        if !step.leaf {
            match (old, new) {
                (None, _) => step.mark = Mark::Added,
                (_, None) => step.mark = Mark::Removed,
                _ => {}
            }
        }
        step
    }

    fn visit(&self, atom: Atom<'_>, old: Side<'_>, new: Side<'_>) -> Step {
        match atom {
            Atom::Scalar => leaf(old, new),
            Atom::List(items) => self.visit_list(items, old, new),
            Atom::Map(fields) => self.visit_map(fields, old, new),
        }
    }

    fn visit_list(&self, items: Items<'_>, old: Side<'_>, new: Side<'_>) -> Step {
        let (old_items, new_items) = (array(old), array(new));
        let Some(list) = items.associative() else { return leaf(old, new) };
        if old_items.is_empty() && new_items.is_empty() {
            return leaf(old, new);
        }
        if old_items == new_items {
            return Step::default();
        }
        Step { below: self.visit_items(list, old_items, new_items), ..Step::default() }
    }

    fn visit_items(&self, list: &ListType, old: &[Value], new: &[Value]) -> Delta {
        let mut pairs: BTreeMap<Element, (Vec<&Value>, Vec<&Value>)> = BTreeMap::new();
        // Items without identity can be in no path; validation refuses them where it matters.
        for (item, element) in old.iter().filter_map(|item| Some((item, item_element(list, item).ok()?))) {
            pairs.entry(element).or_default().0.push(item);
        }
        for (item, element) in new.iter().filter_map(|item| Some((item, item_element(list, item).ok()?))) {
            pairs.entry(element).or_default().1.push(item);
        }
        let place = Place::Type(&list.item);
        let mut delta = Delta::default();
        for (element, (old, new)) in pairs {
            match (old.as_slice(), new.as_slice()) {
                ([] | [_], [] | [_]) => {
                    let step = self.compare(place, old.first().copied(), new.first().copied());
                    delta.attach(element, step);
                }
                ([_, _, ..], [_, _, ..]) => {
                    let same =
                        old.len() == new.len() && old.iter().zip(&new).all(|(a, b)| equal_values(a, b));
                    let mark = if same { Mark::Same } else { Mark::Modified };
                    delta.attach(element, Step { mark, ..Step::default() });
                }
                // Duplicates are marked by their step alone; what is below belongs to the single item.
                ([_, _, ..], rest) => {
                    let single = rest.first().map(|item| self.compare(place, None, Some(item)));
                    attach_twice(&mut delta, element, single, Mark::Removed);
                }
                (rest, _) => {
                    let single = rest.first().map(|item| self.compare(place, Some(item), None));
                    attach_twice(&mut delta, element, single, Mark::Added);
                }
            }
        }
        delta
    }

    fn visit_map(&self, fields: Fields<'_>, old: Side<'_>, new: Side<'_>) -> Step {
        let (old_map, new_map) = (object(old), object(new));
        let old_implied = old_map.is_some();
        let new_implied = new_map.is_some() && (self.made == Made::Whole || old_implied);
        let implied = fields.implied().next().is_some();
        let empty = |map: Option<&Map<String, Value>>, filled: bool| {
            map.is_none_or(|map| map.is_empty() && !(filled && implied))
        };
        if fields.atomic() || (empty(old_map, old_implied) && empty(new_map, new_implied)) {
            return leaf(old, new);
        }
        let mut delta = Delta::default();
        for (key, value) in new_map.into_iter().flatten() {
            let before = old_map.and_then(|map| map.get(key).or_else(|| fields.absent(key)));
            let step = self.compare(fields.place_or_deduced(key), before, Some(value));
            delta.attach(Element::field(key), step);
        }
        let gone = |key: &str| new_map.is_none_or(|map| !map.contains_key(key));
        for (key, value) in old_map.into_iter().flatten().filter(|(key, _)| gone(key)) {
            let after = if new_implied { fields.absent(key) } else { None };
            let step = self.compare(fields.place_or_deduced(key), Some(value), after);
            delta.attach(Element::field(key), step);
        }
        if old_implied != new_implied {
            let written = old_map.or(new_map);
            let unwritten = |name: &str| written.is_none_or(|map| !map.contains_key(name));
            for field in fields.implied().filter(|field| unwritten(&field.name)) {
                let held = Some(empty_object());
                let (before, after) = if old_implied { (held, None) } else { (None, held) };
                let step = self.compare(Place::Type(&field.ty), before, after);
                delta.attach(Element::field(&field.name), step);
            }
        }
        Step { below: delta, ..Step::default() }
    }
}

/// A path both removed and added cannot be one mark; the duplicate's own step is pushed beside the item's.
fn attach_twice(delta: &mut Delta, element: Element, single: Option<Step>, mark: Mark) {
    if let Some(step) = single {
        delta.attach(element.clone(), step);
    }
    delta.attach(element, Step { mark, ..Step::default() });
}

fn union(a: &Delta, b: &Delta) -> Delta {
    Delta {
        removed: a.removed.union(&b.removed),
        modified: a.modified.union(&b.modified),
        added: a.added.union(&b.added),
    }
}

fn leaf(old: Side<'_>, new: Side<'_>) -> Step {
    let mark = match (old, new) {
        (None, _) => Mark::Added,
        (_, None) => Mark::Removed,
        (Some(old), Some(new)) if equal_values(old, new) => Mark::Same,
        _ => Mark::Modified,
    };
    Step { mark, leaf: true, below: Delta::default() }
}

fn array(side: Side<'_>) -> &[Value] {
    side.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn object(side: Side<'_>) -> Option<&Map<String, Value>> {
    side.and_then(Value::as_object)
}
