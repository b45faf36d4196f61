//! What an Ingress asks for, by its annotations.

use landfall_api::landfall::{
    INGRESS_GROUP_ANNOTATION, INGRESS_GROUPS_ANNOTATION, INGRESS_SELECTOR_ANNOTATION,
};
use landfall_api::names::is_subdomain;
use landfall_api::selector::Selector;
use serde_json::Value;

/// An Ingress is bound to at most so many groups.
pub const GROUPS_MAX: usize = 16;

/// What an Ingress asks for.
#[derive(Clone, Debug, Default)]
pub enum Ask {
    /// No group: edges of no group carry it.
    #[default]
    Nothing,
    /// These groups, and no others.
    Names(Vec<String>),
    /// Groups with these labels.
    Selector {
        /// As it was written.
        text: String,
        /// Read.
        selector: Selector,
        /// So many of them.
        count: usize,
    },
    /// The group that a claim has.
    Claim(String),
    /// Something that cannot be read.
    Wrong(String),
}

/// Reads what an Ingress asks for. A name is stronger than a selector; nothing else is weaker than a claim.
pub fn asks(ingress: &Value) -> Ask {
    let note = |name: &str| ingress.pointer("/metadata/annotations")?.get(name)?.as_str();
    if let Some(text) = note(INGRESS_GROUP_ANNOTATION) {
        return named(text);
    }
    let Some(text) = note(INGRESS_SELECTOR_ANNOTATION) else { return Ask::Nothing };
    let count = match note(INGRESS_GROUPS_ANNOTATION).map(|count| (count, count.trim().parse::<usize>())) {
        None => 1,
        Some((_, Ok(count))) if (1..=GROUPS_MAX).contains(&count) => count,
        Some((count, _)) => {
            let sentence =
                format!("{INGRESS_GROUPS_ANNOTATION}: {count:?} is no number from 1 to {GROUPS_MAX}");
            return Ask::Wrong(sentence);
        }
    };
    match Selector::parse(text) {
        Ok(selector) => Ask::Selector { text: text.to_owned(), selector, count },
        Err(why) => Ask::Wrong(format!("{INGRESS_SELECTOR_ANNOTATION}: {why}")),
    }
}

fn named(text: &str) -> Ask {
    let mut names: Vec<String> = text.split(',').map(|name| name.trim().to_owned()).collect();
    names.retain(|name| !name.is_empty());
    names.sort_unstable();
    names.dedup();
    let wrong = names.iter().find(|name| !is_subdomain(name));
    match (wrong, names.len()) {
        (Some(name), _) => {
            Ask::Wrong(format!("{INGRESS_GROUP_ANNOTATION}: {name:?} cannot be the name of a group"))
        }
        (None, 0) => Ask::Wrong(format!("{INGRESS_GROUP_ANNOTATION} names no group")),
        (None, count) if count > GROUPS_MAX => Ask::Wrong(format!(
            "{INGRESS_GROUP_ANNOTATION} names {count} groups; at most {GROUPS_MAX} can carry one Ingress"
        )),
        (None, _) => Ask::Names(names),
    }
}
