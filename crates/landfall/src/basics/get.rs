//! `landfall get`: tables, or objects as they are.

use anyhow::Result;
use serde_json::{Value, json};

use super::kinds::{Kinds, Served};
use super::options::{GetOptions, Output};
use super::target::{Target, escape};
use super::{print, table};

const TABLE: &str = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json";
const JSON: &str = "application/json";

pub(super) async fn run(options: &GetOptions, target: &Target) -> Result<()> {
    let kinds = Kinds::ask(target).await?;
    let asked = asked(&kinds, &options.what)?;
    let namespace = if options.all_namespaces { "" } else { &target.namespace };
    let selector = options.selector.as_deref();
    let accept = if matches!(options.output, None | Some(Output::Wide)) { TABLE } else { JSON };
    let (mut answers, mut failed) = (Vec::new(), None);
    for (served, name) in &asked {
        let path = with_selector(&served.path(namespace, name), selector);
        match target.get(&path, accept).await {
            Ok(answer) => answers.push((*served, answer)),
            // The others are shown all the same.
            Err(error) => failed = failed.or(Some(error)),
        }
    }
    if answers.is_empty() {
        return failed.map_or(Ok(()), Err);
    }
    match options.output {
        None | Some(Output::Wide) => {
            let wide = options.output.is_some();
            tables(&answers, wide, options.all_namespaces, namespace);
        }
        Some(Output::Name) => {
            for (served, object) in answers.iter().flat_map(|(served, answer)| objects(served, answer)) {
                print(&format!("{}\n", served.title(landfall_api::meta::name(&object))));
            }
        }
        Some(Output::Json) => print(&format!("{}\n", serde_json::to_string_pretty(&whole(answers))?)),
        Some(Output::Yaml) => print(&serde_saphyr::to_string(&whole(answers))?),
    }
    failed.map_or(Ok(()), Err)
}

/// The kinds and names that were typed: `pods`, `pods a b`, `pod/a svc/b`.
pub(super) fn asked<'a>(kinds: &'a Kinds, what: &[String]) -> Result<Vec<(&'a Served, String)>> {
    let (first, rest) = what.split_first().map_or(("", &[][..]), |(first, rest)| (first.as_str(), rest));
    if first.contains('/') {
        let pair = |word: &String| {
            let (kind, name) = word.split_once('/').unwrap_or((word, ""));
            Ok((kinds.find(kind)?, name.to_owned()))
        };
        return what.iter().map(pair).collect();
    }
    let mut found = Vec::new();
    for word in first.split(',') {
        let served = kinds.find(word)?;
        if rest.is_empty() {
            found.push((served, String::new()));
        }
        found.extend(rest.iter().map(|name| (served, name.clone())));
    }
    Ok(found)
}

pub(super) fn with_selector(path: &str, selector: Option<&str>) -> String {
    selector.map_or_else(|| path.to_owned(), |selector| format!("{path}?labelSelector={}", escape(selector)))
}

/// Prints one table for each run of answers of one kind.
fn tables(answers: &[(&Served, Value)], wide: bool, namespaces: bool, namespace: &str) {
    let mut printed = false;
    for group in answers.chunk_by(|a, b| a.0 == b.0) {
        let Some(((served, first), more)) = group.split_first() else { continue };
        let mut all = first.clone();
        let rows = |value: &Value| value.get("rows").and_then(Value::as_array).cloned().unwrap_or_default();
        let every: Vec<Value> =
            rows(first).into_iter().chain(more.iter().flat_map(|(_, t)| rows(t))).collect();
        if every.is_empty() {
            continue;
        }
        all["rows"] = every.into();
        if std::mem::replace(&mut printed, true) {
            print("\n");
        }
        print(&table::render(&all, wide, namespaces && served.namespaced));
    }
    if !printed {
        let namespaced = answers.iter().any(|(served, _)| served.namespaced);
        let place = if namespace.is_empty() || !namespaced {
            String::new()
        } else {
            format!(" in {namespace} namespace")
        };
        print(&format!("No resources found{place}.\n"));
    }
}

/// The objects of an answer, which is one or a list.
pub(super) fn objects<'a>(served: &'a Served, answer: &Value) -> Vec<(&'a Served, Value)> {
    match answer.get("items").and_then(Value::as_array) {
        Some(items) => items.iter().map(|item| (served, item.clone())).collect(),
        None => vec![(served, answer.clone())],
    }
}

/// One answer as it is, or all as one list.
fn whole(mut answers: Vec<(&Served, Value)>) -> Value {
    if answers.len() == 1 {
        return answers.remove(0).1;
    }
    let items: Vec<Value> = answers
        .iter()
        .flat_map(|(served, answer)| objects(served, answer))
        .map(|(_, object)| object)
        .collect();
    json!({"apiVersion": "v1", "kind": "List", "items": items})
}
