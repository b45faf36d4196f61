//! Sets of paths into an object, kept as a sorted tree, and their algebra.
//!
//! A node can be a member itself, hold members below it, or both. No node is kept that is neither.

use std::cmp::Ordering;

use super::element::Element;

/// A set of paths.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Set {
    nodes: Vec<Node>,
}

/// One step below a set: an element, whether the path ending here is a member, and what is below.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    /// The step.
    pub element: Element,
    /// Whether the path that ends here is in the set.
    pub member: bool,
    /// The paths that go on from here.
    pub below: Set,
}

impl Set {
    /// No paths.
    pub const EMPTY: Self = Self { nodes: Vec::new() };

    /// A set of paths through fields only.
    pub fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = Self::EMPTY;
        for path in paths {
            set.insert(path.iter().map(|name| Element::field(name)));
        }
        set
    }

    /// Adds one path; the empty path adds nothing.
    pub fn insert(&mut self, path: impl IntoIterator<Item = Element>) {
        let mut path = path.into_iter().peekable();
        let mut set = self;
        while let Some(element) = path.next() {
            let last = path.peek().is_none();
            let node = set.entry(element);
            node.member |= last;
            set = &mut node.below;
        }
    }

    /// Adds a step with what is below it, unless that would say nothing. Steps mostly come in order.
    pub fn push(&mut self, element: Element, member: bool, below: Self) {
        if !member && below.is_empty() {
            return;
        }
        match self.nodes.last() {
            Some(last) if last.element >= element => {
                let node = self.entry(element);
                node.member |= member;
                node.below = if node.below.is_empty() { below } else { node.below.union(&below) };
            }
            _ => self.nodes.push(Node { element, member, below }),
        }
    }

    fn entry(&mut self, element: Element) -> &mut Node {
        let at = match self.find(&element) {
            Ok(at) => at,
            Err(at) => {
                self.nodes.insert(at, Node { element, member: false, below: Self::EMPTY });
                at
            }
        };
        &mut self.nodes[at]
    }

    fn find(&self, element: &Element) -> Result<usize, usize> {
        self.nodes.binary_search_by(|node| node.element.cmp(element))
    }

    /// Whether there are no paths.
    pub const fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// The steps, in order.
    pub fn nodes(&self) -> std::slice::Iter<'_, Node> {
        self.nodes.iter()
    }

    /// The step of that element.
    pub fn get(&self, element: &Element) -> Option<&Node> {
        self.find(element).ok().map(|at| &self.nodes[at])
    }

    /// The step of that field.
    pub fn get_field(&self, name: &str) -> Option<&Node> {
        let found = self.nodes.binary_search_by(|node| match node.element.name() {
            Some(own) => own.cmp(name),
            None => Ordering::Greater,
        });
        found.ok().map(|at| &self.nodes[at])
    }

    /// Whether the path is in the set.
    pub fn has(&self, path: &[Element]) -> bool {
        let [first, rest @ ..] = path else { return false };
        let node = self.get(first);
        node.is_some_and(|node| if rest.is_empty() { node.member } else { node.below.has(rest) })
    }

    /// Paths of either.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let mut out = Vec::with_capacity(self.nodes.len().max(other.nodes.len()));
        self.zip(other, |a, b| match (a, b) {
            (Some(a), Some(b)) => out.push(Node {
                element: a.element.clone(),
                member: a.member || b.member,
                below: a.below.union(&b.below),
            }),
            (Some(only), None) | (None, Some(only)) => out.push(only.clone()),
            (None, None) => {}
        });
        Self { nodes: out }
    }

    /// Paths of both.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        self.combine(other, |a, b| b.map(|b| (a.member && b.member, a.below.intersection(&b.below))))
    }

    /// Paths of this one that are not in the other. A parent taken away leaves its children.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        self.combine(other, |a, b| match b {
            Some(b) => Some((a.member && !b.member, a.below.difference(&b.below))),
            None => Some((a.member, a.below.clone())),
        })
    }

    /// Paths of this one that are not in the other nor below a path of the other.
    #[must_use]
    pub fn recursive_difference(&self, other: &Self) -> Self {
        self.combine(other, |a, b| match b {
            Some(b) if b.member => None,
            Some(b) => Some((a.member, a.below.recursive_difference(&b.below))),
            None => Some((a.member, a.below.clone())),
        })
    }

    /// Only the paths that no other path goes on from.
    #[must_use]
    pub fn leaves(&self) -> Self {
        let mut out = Self::EMPTY;
        for node in &self.nodes {
            out.push(node.element.clone(), node.member && node.below.is_empty(), node.below.leaves());
        }
        out
    }

    /// Calls `f` with every path, parents before what is below them.
    pub fn each<'a>(&'a self, f: &mut dyn FnMut(&[&'a Element])) {
        self.each_below(&mut Vec::new(), f);
    }

    fn each_below<'a>(&'a self, path: &mut Vec<&'a Element>, f: &mut dyn FnMut(&[&'a Element])) {
        for node in self.nodes.iter().filter(|node| node.member) {
            path.push(&node.element);
            f(path);
            path.pop();
        }
        for node in &self.nodes {
            path.push(&node.element);
            node.below.each_below(path, f);
            path.pop();
        }
    }

    /// Every node of this set with its twin in the other; `f` says what remains of it.
    fn combine(&self, other: &Self, f: impl Fn(&Node, Option<&Node>) -> Option<(bool, Self)>) -> Self {
        let mut out = Vec::new();
        self.zip(other, |a, b| {
            let Some(a) = a else { return };
            if let Some((member, below)) = f(a, b)
                && (member || !below.is_empty())
            {
                out.push(Node { element: a.element.clone(), member, below });
            }
        });
        Self { nodes: out }
    }

    fn zip<'a>(&'a self, other: &'a Self, mut f: impl FnMut(Option<&'a Node>, Option<&'a Node>)) {
        let (mut left, mut right) = (self.nodes.iter().peekable(), other.nodes.iter().peekable());
        loop {
            let order = match (left.peek(), right.peek()) {
                (Some(a), Some(b)) => a.element.cmp(&b.element),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (None, None) => return,
            };
            match order {
                Ordering::Less => f(left.next(), None),
                Ordering::Greater => f(None, right.next()),
                Ordering::Equal => f(left.next(), right.next()),
            }
        }
    }
}
