//! Reading manifests: files, directories and standard input, each with any number of objects.

use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail};
use landfall_api::decode;
use serde_json::Value;

/// The most bytes of one manifest.
const BYTES_MAX: u64 = 64 << 20;

/// The objects in these files, in order; Lists are taken apart.
pub(super) fn read(files: &[PathBuf]) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for file in files {
        for (from, text) in texts(file)? {
            let found = parse(&text).with_context(|| format!("error parsing {from}"))?;
            if found.is_empty() {
                bail!("no objects in {from}");
            }
            objects.extend(found);
        }
    }
    Ok(objects)
}

fn texts(file: &Path) -> Result<Vec<(String, String)>> {
    if file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().take(BYTES_MAX).read_to_string(&mut text).context("cannot read standard input")?;
        return Ok(vec![("standard input".into(), text)]);
    }
    let shown = file.display().to_string();
    if !file.is_dir() {
        let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {shown}"))?;
        return Ok(vec![(shown, text)]);
    }
    let mut inside: Vec<PathBuf> = std::fs::read_dir(file)
        .and_then(|entries| entries.map(|entry| entry.map(|e| e.path())).collect())
        .with_context(|| format!("cannot read {shown}"))?;
    inside.retain(|path| {
        path.extension().and_then(|e| e.to_str()).is_some_and(|e| matches!(e, "yaml" | "yml" | "json"))
    });
    inside.sort();
    if inside.is_empty() {
        bail!("no .yaml, .yml or .json files in {shown}");
    }
    let each = inside.iter().filter(|path| !path.is_dir()).map(|path| texts(path));
    Ok(each.collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
}

fn parse(text: &str) -> Result<Vec<Value>> {
    let mut objects = Vec::new();
    for document in documents(text) {
        let value = decode::parse_yaml(document.as_bytes()).map_err(|error| anyhow!("{error}"))?.value;
        match value {
            Value::Null => {}
            Value::Object(mut map) if map.get("kind").and_then(Value::as_str) == Some("List") => {
                match map.remove("items") {
                    Some(Value::Array(items)) => objects.extend(items),
                    _ => bail!("a List without items"),
                }
            }
            other @ Value::Object(_) => objects.push(other),
            _ => bail!("a manifest is an object with apiVersion, kind and metadata"),
        }
    }
    Ok(objects)
}

/// The documents of a text, which lines of `---` stand between.
fn documents(text: &str) -> Vec<String> {
    let mut all = vec![String::new()];
    for line in text.lines() {
        let separates =
            line.strip_prefix("---").is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t']));
        if separates {
            all.push(String::new());
        } else if let Some(last) = all.last_mut() {
            last.push_str(line);
            last.push('\n');
        }
    }
    let blank = |text: &String| text.lines().all(|l| l.trim().is_empty() || l.trim_start().starts_with('#'));
    all.retain(|text| !blank(text));
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn manifests_hold_objects() {
        for (text, want) in [
            ("kind: A\n---\nkind: B\n", vec!["A", "B"]),
            ("# nothing\n---\n\n--- # more\nkind: A\n", vec!["A"]),
            ("{\"kind\": \"A\"}", vec!["A"]),
            ("kind: List\nitems: [{kind: A}, {kind: B}]\n", vec!["A", "B"]),
            ("", vec![]),
        ] {
            let kinds: Vec<String> =
                parse(text).unwrap().iter().map(|o| o["kind"].as_str().unwrap().to_owned()).collect();
            assert_eq!(kinds, want, "{text:?}");
        }
        for text in ["- a\n", "just words", "kind: List\n", "kind: [\n"] {
            assert!(parse(text).is_err(), "{text:?}");
        }
    }
}
