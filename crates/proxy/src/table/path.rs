//! How paths are compared: by their elements.

/// What a prefix is known by: without a slash at its end, so that `/a/` and `/a` are one.
pub(super) fn known_by(prefix: &str) -> &str {
    prefix.trim_end_matches('/')
}

/// The prefixes of a path, the longest first: `/a/b` has `/a/b`, `/a` and the empty one.
pub(super) fn prefixes(path: &str) -> impl Iterator<Item = &str> {
    let mut rest = Some(path.strip_suffix('/').unwrap_or(path));
    // A path of very many elements is looked at by its first only: no route is longer.
    let mut left = ELEMENTS_MAX;
    if path.len() > LENGTH_MAX {
        rest = rest.and_then(|path| path.get(..path[..floor(path, LENGTH_MAX)].rfind('/')?));
    }
    std::iter::from_fn(move || {
        let now = rest?;
        left -= 1;
        rest = if left == 0 { Some("").filter(|_| !now.is_empty()) } else { above(now) };
        left = left.max(1);
        Some(now)
    })
}

/// Routes' paths are no longer than this.
const LENGTH_MAX: usize = 4096;
/// So many prefixes are looked at.
const ELEMENTS_MAX: usize = 64;

fn above(path: &str) -> Option<&str> {
    path.rfind('/').map(|at| &path[..at])
}

fn floor(text: &str, mut at: usize) -> usize {
    while at > 0 && !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_by_element_and_end_with_the_empty_one() {
        for (path, want) in [
            ("/", vec![""]),
            ("/a", vec!["/a", ""]),
            ("/a/", vec!["/a", ""]),
            ("/a/bc/d", vec!["/a/bc/d", "/a/bc", "/a", ""]),
        ] {
            assert_eq!(prefixes(path).collect::<Vec<_>>(), want, "{path}");
        }
    }

    #[test]
    fn a_path_without_end_costs_little_and_still_ends_with_the_empty_one() {
        for path in ["/a".repeat(100_000), "/".repeat(9_000), format!("/{}", "é".repeat(5_000))] {
            let found: Vec<_> = prefixes(&path).collect();
            assert!(found.len() <= ELEMENTS_MAX + 1, "{}", found.len());
            if path.contains('a') {
                assert_eq!(found.last(), Some(&""));
            }
        }
    }
}
