//! Tables as the server makes them, in columns as kubectl prints them.

use serde_json::Value;

/// Between two columns.
const GAP: usize = 3;

/// Lays out a `meta.k8s.io` Table. Columns of priority 0 only, unless `wide`; `namespaces` adds one in front.
pub(crate) fn render(table: &Value, wide: bool, namespaces: bool) -> String {
    let columns = array(table, "columnDefinitions");
    let shown: Vec<usize> = (0..columns.len())
        .filter(|&index| wide || columns[index].get("priority").and_then(Value::as_i64).unwrap_or(0) == 0)
        .collect();
    let mut lines: Vec<Vec<String>> = Vec::new();
    let mut head: Vec<String> = shown.iter().map(|&i| cell(columns[i].get("name")).to_uppercase()).collect();
    if namespaces {
        head.insert(0, "NAMESPACE".into());
    }
    lines.push(head);
    for row in array(table, "rows") {
        let cells = array(row, "cells");
        let mut line: Vec<String> = shown.iter().map(|&i| cell(cells.get(i))).collect();
        if namespaces {
            line.insert(0, cell(row.pointer("/object/metadata/namespace")));
        }
        lines.push(line);
    }
    align(&lines)
}

fn array<'a>(value: &'a Value, key: &str) -> &'a [Value] {
    value.get(key).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn cell(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => "<none>".into(),
        Some(Value::String(text)) => text.lines().next().unwrap_or_default().to_owned(),
        Some(other) => other.to_string(),
    }
}

/// Pads every column but the last to its longest cell.
pub(crate) fn align(lines: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = Vec::new();
    for line in lines {
        widths.resize(widths.len().max(line.len()), 0);
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let mut out = String::new();
    for line in lines {
        for (index, cell) in line.iter().enumerate() {
            out.push_str(cell);
            if index + 1 < line.len() {
                let width = widths.get(index).copied().unwrap_or_default();
                out.extend(std::iter::repeat_n(' ', width - cell.chars().count() + GAP));
            }
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use expect_test::expect;
    use serde_json::json;

    use super::*;

    #[test]
    fn columns_line_up() {
        let table = json!({
            "columnDefinitions": [{"name": "Name"}, {"name": "Ready", "priority": 0}, {"name": "Node", "priority": 1}],
            "rows": [
                {"cells": ["web", 1, "n1"], "object": {"metadata": {"namespace": "shop"}}},
                {"cells": ["a-longer-name", null, "n2"], "object": {"metadata": {"namespace": "x"}}},
            ],
        });
        expect![[r"
            NAME            READY
            web             1
            a-longer-name   <none>
        "]]
        .assert_eq(&render(&table, false, false));
        expect![[r"
            NAMESPACE   NAME            READY    NODE
            shop        web             1        n1
            x           a-longer-name   <none>   n2
        "]]
        .assert_eq(&render(&table, true, true));
        assert_eq!(render(&json!({}), true, false), "\n");
    }
}
