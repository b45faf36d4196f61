//! Values by host: a name has its own, or that of the wildcard one label above it.

use std::borrow::Cow;
use std::collections::HashMap;

/// A value for hosts.
#[derive(Clone, Debug)]
pub(crate) struct Names<T> {
    exact: HashMap<Box<str>, T>,
    /// By what follows `*.`.
    wild: HashMap<Box<str>, T>,
}

impl<T> Default for Names<T> {
    fn default() -> Self {
        Self { exact: HashMap::new(), wild: HashMap::new() }
    }
}

/// A host as it is compared: in lower case, and without the dot at its end.
pub(crate) fn plain(host: &str) -> Cow<'_, str> {
    let host = host.strip_suffix('.').unwrap_or(host);
    if host.bytes().any(|byte| byte.is_ascii_uppercase()) {
        Cow::Owned(host.to_ascii_lowercase())
    } else {
        Cow::Borrowed(host)
    }
}

impl<T> Names<T> {
    /// The value of a host, or of `*.` and a domain; a new one when it has none.
    pub(crate) fn entry(&mut self, host: &str, new: impl FnOnce() -> T) -> &mut T {
        let host = plain(host);
        let (map, key) = match host.strip_prefix("*.") {
            Some(domain) => (&mut self.wild, domain),
            None => (&mut self.exact, &*host),
        };
        map.entry(key.into()).or_insert_with(new)
    }

    /// The value of a name that a client asks for.
    pub(crate) fn get(&self, name: &str) -> Option<&T> {
        self.get_exact(name).or_else(|| self.get_wild(name))
    }

    /// The value that a name has itself.
    pub(crate) fn get_exact(&self, name: &str) -> Option<&T> {
        self.exact.get(&*plain(name))
    }

    /// The value of the wildcard that a name falls under: one label, and no more, is taken by `*`.
    pub(crate) fn get_wild(&self, name: &str) -> Option<&T> {
        let name = plain(name);
        let (label, domain) = name.split_once('.')?;
        if label.is_empty() { None } else { self.wild.get(domain) }
    }

    /// Whether there is none.
    pub(crate) fn is_empty(&self) -> bool {
        self.exact.is_empty() && self.wild.is_empty()
    }

    /// The values of wildcards.
    pub(crate) fn wildcards(&self) -> impl Iterator<Item = &T> {
        self.wild.values()
    }

    /// All values.
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.exact.values().chain(self.wild.values())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_its_own_comes_before_a_wildcard() {
        let mut names = Names::default();
        for host in ["www.Example.com", "*.example.com", "*.com", "one"] {
            names.entry(host, || host.to_owned());
        }
        let check = |name: &str, want: Option<&str>| {
            assert_eq!(names.get(name).map(String::as_str), want, "{name}");
        };
        check("www.example.com", Some("www.Example.com"));
        check("WWW.example.COM.", Some("www.Example.com"));
        check("api.example.com", Some("*.example.com"));
        check("a.b.example.com", None);
        check("example.com", Some("*.com"));
        check(".example.com", None);
        check("one", Some("one"));
        check("com", None);
        check("", None);
        check("*.example.com", Some("*.example.com"));
    }
}
