//! Reading image names, as far as the pull policy needs it.

/// The tag of an image; `latest` when it has neither tag nor digest; `None` when it has only a digest or cannot be read.
pub(super) fn tag(image: &str) -> Option<&str> {
    let (rest, digest) = match image.split_once('@') {
        Some((rest, digest)) => (rest, Some(digest)),
        None => (image, None),
    };
    // A colon before the last slash belongs to a port.
    let (name, tag) = match rest.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (rest, None),
    };
    if !good_name(name) || !tag.is_none_or(good_tag) || !digest.is_none_or(good_digest) {
        return None;
    }
    match (tag, digest) {
        (Some(tag), _) => Some(tag),
        (None, None) => Some("latest"),
        (None, Some(_)) => None,
    }
}

fn good_tag(tag: &str) -> bool {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let bytes = tag.as_bytes();
    (1..=128).contains(&bytes.len())
        && word(bytes[0])
        && bytes.iter().all(|b| word(*b) || *b == b'.' || *b == b'-')
}

fn good_digest(digest: &str) -> bool {
    digest.split_once(':').is_some_and(|(algorithm, hex)| {
        let length = match algorithm {
            "sha256" => 64,
            "sha384" => 96,
            "sha512" => 128,
            _ => return false,
        };
        hex.len() == length && hex.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    })
}

/// `[host[:port]/]part/part`: parts are lower case; the first may be a host.
fn good_name(name: &str) -> bool {
    let hexadecimal = name.len() == 64 && name.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
    if hexadecimal {
        return false;
    }
    let (host, path) = match name.split_once('/') {
        Some((first, rest)) if is_host(first) => (Some(first), rest),
        _ => (None, name),
    };
    host.is_none_or(good_host) && !path.is_empty() && path.split('/').all(good_part)
}

fn is_host(first: &str) -> bool {
    first.contains(['.', ':']) || first == "localhost" || first.bytes().any(|b| b.is_ascii_uppercase())
}

fn good_host(host: &str) -> bool {
    let (name, port) = match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, Some(port)),
        _ => (host, None),
    };
    let label = |l: &str| {
        !l.is_empty()
            && !l.starts_with('-')
            && !l.ends_with('-')
            && l.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
    };
    let bracketed = name.starts_with('[') && name.ends_with(']');
    (bracketed || name.split('.').all(label))
        && port.is_none_or(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit()))
}

/// Lower-case words joined by `.`, `_`, `__` or dashes.
fn good_part(part: &str) -> bool {
    let word = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
    let bytes = part.as_bytes();
    let (Some(first), Some(last)) = (bytes.first(), bytes.last()) else { return false };
    if !word(*first) || !word(*last) {
        return false;
    }
    part.split(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit())
        .all(|joint| matches!(joint, "" | "." | "_" | "__") || joint.bytes().all(|b| b == b'-'))
}

#[cfg(test)]
mod tests {
    use super::tag;

    #[test]
    fn tags() {
        let digest = format!("nginx@sha256:{}", "a".repeat(64));
        let both = format!("nginx:1.2@sha256:{}", "a".repeat(64));
        for (image, want) in [
            ("nginx", Some("latest")),
            ("nginx:latest", Some("latest")),
            ("nginx:1.25", Some("1.25")),
            ("localhost:5000/a/b", Some("latest")),
            ("localhost:5000/a/b:v1", Some("v1")),
            ("Host.example/a", Some("latest")),
            ("a__b/c-d.e", Some("latest")),
            (&digest, None),
            (&both, Some("1.2")),
            ("Nginx", None),
            ("nginx:", None),
            ("a//b", None),
            ("", None),
            ("a b", None),
        ] {
            assert_eq!(tag(image), want, "{image}");
        }
    }
}
