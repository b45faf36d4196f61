//! The path of a request, in the one form in which it is both matched and passed on, so that nobody behind an edge reads it
//! otherwise.

use std::borrow::Cow;

/// A path that two readers would read in two ways.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ambiguous;

/// A path without `.` and `..`, without empty elements, and without anything that means one thing here and another behind us;
/// none when it is so already.
pub fn normal_path(path: &str) -> Result<Option<String>, Ambiguous> {
    if !is_suspicious(path.as_bytes()) {
        return Ok(None);
    }
    let mut elements: Vec<Cow<'_, str>> = Vec::new();
    let mut below = path.split('/').skip(1).peekable();
    let mut ends_open = false;
    while let Some(element) = below.next() {
        let element = decoded_dots(element)?;
        ends_open = below.peek().is_none() && matches!(&*element, "" | "." | "..");
        match &*element {
            "" | "." => {}
            // Above the root there is nothing.
            ".." => drop(elements.pop()),
            _ => elements.push(element),
        }
    }
    let mut normal = String::with_capacity(path.len());
    for element in &elements {
        normal.push('/');
        normal.push_str(element);
    }
    if ends_open || normal.is_empty() {
        normal.push('/');
    }
    Ok((normal != path).then_some(normal))
}

/// Whether a path may need a closer look: it has a `%`, `//`, `/.` or `\`.
#[inline]
pub fn is_suspicious(path: &[u8]) -> bool {
    let mut before = 0;
    for byte in path {
        if matches!(byte, b'%' | b'\\') || (before == b'/' && matches!(byte, b'/' | b'.')) {
            return true;
        }
        before = *byte;
    }
    false
}

/// An element with its dots and letters decoded where they need not have been encoded. Encoded slashes stay as they are, for
/// they are not the same as slashes, unless reading them as slashes would lead elsewhere: then nobody can tell what is meant.
fn decoded_dots(element: &str) -> Result<Cow<'_, str>, Ambiguous> {
    if element.contains('\\') {
        return Err(Ambiguous);
    }
    if !element.contains('%') {
        return Ok(Cow::Borrowed(element));
    }
    let mut decoded = String::with_capacity(element.len());
    let mut slashes = String::with_capacity(element.len());
    let mut rest = element;
    while let Some(at) = rest.find('%') {
        let (before, from) = rest.split_at(at);
        let digits = from.get(1..3).ok_or(Ambiguous)?;
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let [high, low] = [digits.as_bytes()[0], digits.as_bytes()[1]].map(digit);
        let (high, low) = high.zip(low).ok_or(Ambiguous)?;
        let byte = u8::try_from(high * 16 + low).map_err(|_| Ambiguous)?;
        decoded.push_str(before);
        slashes.push_str(before);
        match byte {
            0 => return Err(Ambiguous),
            b'/' | b'\\' => {
                decoded.push_str(&from[..3]);
                slashes.push('/');
            }
            b'-' | b'.' | b'_' | b'~' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => {
                decoded.push(char::from(byte));
                slashes.push(char::from(byte));
            }
            _ => {
                decoded.push_str(&from[..3]);
                slashes.push_str(&from[..3]);
            }
        }
        rest = &from[3..];
    }
    decoded.push_str(rest);
    slashes.push_str(rest);
    let leads_elsewhere = slashes.contains('/') && slashes.split('/').any(|part| matches!(part, "." | ".."));
    if leads_elsewhere { Err(Ambiguous) } else { Ok(Cow::Owned(decoded)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_form() {
        for (path, want) in [
            ("/", "/"),
            ("/a/b", "/a/b"),
            ("/a/b/", "/a/b/"),
            ("//admin", "/admin"),
            ("/a//b///c", "/a/b/c"),
            ("/a/./b", "/a/b"),
            ("/a/b/..", "/a/"),
            ("/a/../../../etc", "/etc"),
            ("/..", "/"),
            ("/a/%2e%2E/b", "/b"),
            ("/%61dmin", "/admin"),
            ("/a%20b", "/a%20b"),
            ("/a%2fb", "/a%2fb"),
            ("/group%2Fproject", "/group%2Fproject"),
            ("/a/.hidden", "/a/.hidden"),
            ("/a/...", "/a/..."),
        ] {
            assert_eq!(normal_path(path).unwrap().as_deref().unwrap_or(path), want, "{path}");
        }
    }

    #[test]
    fn what_can_be_read_in_two_ways_is_refused() {
        for path in
            ["/a%2f..%2fadmin", "/a/%2e%2e%2fb", "/a\\..\\b", "/a%5c..", "/%", "/%4", "/%zz", "/a%00b"]
        {
            assert_eq!(normal_path(path), Err(Ambiguous), "{path}");
        }
    }
}
