//! Static tokens, from a file in kube-apiserver's format: `token,user,uid,"group1,group2"`.

use std::collections::HashMap;
use std::path::Path;
use std::sync::Arc;

use super::{User, sha256};

/// The tokens of a file. Kept by SHA-256, so that looking one up says nothing about the others by its timing.
#[derive(Default)]
pub struct TokenFile(HashMap<[u8; 32], Arc<User>>);

/// Why a token file is not taken. Holds no part of a token.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// It cannot be read.
    #[error("cannot read the token file {path}")]
    Read {
        /// Which file.
        path: String,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// A line has too few columns.
    #[error(
        "line {line} of the token file must have at least 3 columns (token, user name, user uid), found {columns}"
    )]
    Columns {
        /// Which line, from 1.
        line: usize,
        /// How many it has.
        columns: usize,
    },
    /// A quote is not closed, or stands in the middle of a column.
    #[error("line {line} of the token file has a quote out of place")]
    Quote {
        /// Which line, from 1.
        line: usize,
    },
}

impl TokenFile {
    /// Reads a file.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| Error::Read { path: path.display().to_string(), source })?;
        Self::parse(&text)
    }

    /// Takes the text of a file. Empty lines and empty tokens are passed over; the last of equal tokens counts.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut tokens = HashMap::new();
        for (at, line) in text.lines().enumerate() {
            let line = line.trim_end_matches('\r');
            if line.is_empty() {
                continue;
            }
            let columns = split(line).ok_or(Error::Quote { line: at + 1 })?;
            let [token, name, uid, rest @ ..] = columns.as_slice() else {
                return Err(Error::Columns { line: at + 1, columns: columns.len() });
            };
            if token.is_empty() {
                tracing::warn!(line = at + 1, "the token file has an empty token");
                continue;
            }
            let groups = rest.first().map(|g| g.split(',').map(str::to_owned).collect()).unwrap_or_default();
            let user = User { name: name.clone(), uid: uid.clone(), groups, ..User::default() };
            if tokens.insert(sha256(token.as_bytes()), Arc::new(user.authenticated())).is_some() {
                tracing::warn!(line = at + 1, "the token file has a token twice");
            }
        }
        Ok(Self(tokens))
    }

    /// Whose token it is.
    pub fn find(&self, token: &str) -> Option<Arc<User>> {
        if self.0.is_empty() {
            return None;
        }
        self.0.get(&sha256(token.as_bytes())).cloned()
    }
}

/// One CSV line into its columns; none when a quote is out of place.
fn split(line: &str) -> Option<Vec<String>> {
    let mut columns = Vec::new();
    let mut rest = line;
    loop {
        let (column, after) = if let Some(quoted) = rest.strip_prefix('"') {
            quoted_column(quoted)?
        } else {
            let end = rest.find(',').unwrap_or(rest.len());
            let (plain, after) = rest.split_at(end);
            if plain.contains('"') {
                return None;
            }
            (plain.to_owned(), after)
        };
        columns.push(column);
        match after.strip_prefix(',') {
            Some(next) => rest = next,
            None if after.is_empty() => return Some(columns),
            None => return None,
        }
    }
}

/// A quoted column (its opening quote taken off) and what follows its closing quote; `""` stands for `"`.
fn quoted_column(mut rest: &str) -> Option<(String, &str)> {
    let mut column = String::new();
    loop {
        let (text, after) = rest.split_once('"')?;
        column.push_str(text);
        match after.strip_prefix('"') {
            Some(next) => {
                column.push('"');
                rest = next;
            }
            None => return Some((column, after)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_become_users() {
        let file = "t1,alice,u1\n\nt2,bob,u2,\"dev,ops\"\r\nt3,\"car\"\"ol\",,one\n,nobody,x\nt1,alice2,u1";
        let tokens = TokenFile::parse(file).expect("a good file");
        let check = |token: &str, expected: Option<(&str, &[&str])>| {
            let user = tokens.find(token);
            let got = user.as_ref().map(|u| (u.name.as_str(), u.groups.iter().map(String::as_str).collect()));
            assert_eq!(got, expected.map(|(name, groups)| (name, groups.to_vec())), "{token}");
        };
        check("t1", Some(("alice2", &["system:authenticated"])));
        check("t2", Some(("bob", &["dev", "ops", "system:authenticated"])));
        check("t3", Some(("car\"ol", &["one", "system:authenticated"])));
        check("", None);
        check("t4", None);
    }

    #[test]
    fn bad_lines_are_refused_without_showing_the_token() {
        let check = |file: &str, expected: &str| {
            let error = TokenFile::parse(file).err().expect("a refusal").to_string();
            assert!(error.contains(expected) && !error.contains("s3cret"), "{error}");
        };
        check("s3cret,alice", "line 1 of the token file must have at least 3 columns");
        check("a,b,c\ns3cret,\"alice,1", "line 2 of the token file has a quote");
        check("s3cret,al\"ice,1", "line 1");
        check("s3cret,\"al\"ice,1", "line 1");
    }
}
