//! Reads struct definitions out of Go source: only as much Go as Kubernetes' API packages use.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use anyhow::{Context, Result, bail};

/// One Go package's types.
#[derive(Default)]
pub(super) struct Package {
    /// Structs by name.
    structs: BTreeMap<String, Vec<GoField>>,
    /// Other named types: name to what it is made of, and whether it is an alias.
    named: BTreeMap<String, (String, bool)>,
    /// Messages the package's `generated.proto` defines.
    messages: Vec<String>,
    /// The package's own name: the last element of its path.
    name: String,
    /// Import names to the packages' own names, over all files.
    imports: BTreeMap<String, String>,
}

/// One field of a Go struct.
#[derive(Clone, Debug, Default)]
pub(super) struct GoField {
    /// Its type as written; for an embedded field, the embedded type.
    pub(super) ty: String,
    /// Its JSON name; empty when inlined.
    pub(super) json: String,
    /// Its protobuf number; 0 for none.
    pub(super) number: u32,
    /// `omitempty`.
    pub(super) omit_empty: bool,
    /// `omitzero`.
    pub(super) omit_zero: bool,
    /// The protobuf number and the name of the inlined struct it comes from.
    pub(super) inlined: Option<(u32, String)>,
}

impl Package {
    /// Reads every Go file of a directory but tests and generated ones.
    pub(super) fn read(dir: &Path) -> Result<Self> {
        let name = dir.file_name().and_then(|n| n.to_str()).context("package directory")?;
        let mut package = Self { name: name.into(), ..Self::default() };
        for entry in fs::read_dir(dir).with_context(|| format!("reading {}", dir.display()))? {
            let path = entry?.path();
            let file = path.file_name().and_then(|n| n.to_str()).unwrap_or("").to_owned();
            if file == "generated.proto" {
                let text = fs::read_to_string(&path)?;
                let names = text.lines().filter_map(|l| l.strip_prefix("message ")?.strip_suffix(" {"));
                package.messages = names.map(str::to_owned).collect();
            }
            let skip = file.ends_with("_test.go") || file.starts_with("zz_") || file == "generated.pb.go";
            if file.ends_with(".go") && !skip {
                package.file(&fs::read_to_string(&path)?);
            }
        }
        Ok(package)
    }

    fn file(&mut self, text: &str) {
        let mut current: Option<(String, Vec<GoField>)> = None;
        let mut importing = false;
        for line in text.lines() {
            if importing {
                importing = line != ")";
                self.import(line.trim());
            } else if line == "import (" {
                importing = true;
            } else if let Some((name, fields)) = &mut current {
                if line == "}" {
                    self.structs.insert(std::mem::take(name), std::mem::take(fields));
                    current = None;
                } else if let Some(field) = field(line) {
                    fields.push(field);
                }
            } else if let Some(rest) = line.strip_prefix("type ") {
                let (name, of) = rest.split_once(' ').unwrap_or((rest, ""));
                if of == "struct {" {
                    current = Some((name.into(), Vec::new()));
                } else if of == "struct{}" {
                    self.structs.insert(name.into(), Vec::new());
                } else {
                    let (of, alias) = of.strip_prefix("= ").map_or((of, false), |of| (of, true));
                    self.named.insert(name.into(), (of.into(), alias));
                }
            }
        }
    }

    fn import(&mut self, line: &str) {
        let Some((alias, path)) = line.split_once('"') else { return };
        let path = path.trim_end_matches('"');
        let own = path.rsplit('/').next().unwrap_or(path).to_owned();
        let alias = if alias.trim().is_empty() { own.clone() } else { alias.trim().to_owned() };
        self.imports.insert(alias, own);
    }

    /// The fields of a struct, inlined ones in place.
    pub(super) fn fields(&self, name: &str) -> Result<Vec<GoField>> {
        let fields = self.structs.get(name).with_context(|| format!("no Go struct {name}"))?;
        let mut all = Vec::new();
        for field in fields {
            if !field.json.is_empty() {
                all.push(field.clone());
            } else if field.ty == "TypeMeta" || field.ty.ends_with(".TypeMeta") {
                for json in ["apiVersion", "kind"] {
                    let (json, ty) = (json.to_owned(), "string".to_owned());
                    all.push(GoField { ty, json, omit_empty: true, ..GoField::default() });
                }
            } else {
                for inner in self.fields(&field.ty)? {
                    if inner.inlined.is_some() {
                        bail!("{name}: inlined twice");
                    }
                    all.push(GoField { inlined: Some((field.number, field.ty.clone())), ..inner });
                }
            }
        }
        Ok(all)
    }

    /// A type as Go's reflection prints it, without the pointer.
    pub(super) fn reflect(&self, ty: &str) -> String {
        let ty = ty.trim_start_matches('*');
        if let Some(item) = ty.strip_prefix("[]") {
            return format!("[]{}", self.reflect(item));
        }
        if let Some((key, value)) = ty.strip_prefix("map[").and_then(|rest| rest.split_once(']')) {
            return format!("map[{}]{}", self.reflect(key), self.reflect(value));
        }
        if let Some((package, name)) = ty.split_once('.') {
            let own = self.imports.get(package).map_or(package, String::as_str);
            return format!("{own}.{name}");
        }
        if let Some((of, true)) = self.named.get(ty) {
            return self.reflect(of);
        }
        match ty {
            "byte" => "uint8".into(),
            _ if self.named.contains_key(ty) || self.structs.contains_key(ty) => {
                format!("{}.{ty}", self.name)
            }
            _ => ty.into(),
        }
    }

    /// Whether a named list is a message of its own on the wire.
    pub(super) fn wrapped(&self, ty: &str) -> bool {
        let list = self.named.get(ty).is_some_and(|(of, _)| of.starts_with("[]"));
        list && self.messages.iter().any(|m| m == ty)
    }

    /// What a named list or map of this package is made of; other types as they are.
    pub(super) fn underlying<'a>(&'a self, ty: &'a str) -> &'a str {
        self.named.get(ty).map_or(ty, |(of, _)| of)
    }
}

/// A field line: `Name Type `tags`` or `Embedded `tags``.
fn field(line: &str) -> Option<GoField> {
    let line = line.strip_prefix('\t')?;
    let (head, rest) = line.split_once('`')?;
    let (tags, _) = rest.split_once('`')?;
    if head.trim_start().starts_with("//") {
        return None;
    }
    let ty = head.split_whitespace().last()?.to_owned();
    let json = tag(tags, "json").unwrap_or("");
    if json == "-" {
        return None;
    }
    let mut json = json.split(',');
    let name = json.next().unwrap_or("").to_owned();
    let options: Vec<&str> = json.collect();
    let number = tag(tags, "protobuf").and_then(|t| t.split(',').nth(1)?.parse().ok()).unwrap_or(0);
    if name.is_empty() && !options.contains(&"inline") {
        return None;
    }
    let has = |option| options.contains(&option);
    let (omit_empty, omit_zero) = (has("omitempty"), has("omitzero"));
    Some(GoField { ty, json: name, number, omit_empty, omit_zero, inlined: None })
}

fn tag<'a>(tags: &'a str, name: &str) -> Option<&'a str> {
    let at = tags.find(&format!("{name}:\""))? + name.len() + 2;
    tags.get(at..)?.split('"').next()
}
