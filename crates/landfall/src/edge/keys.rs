//! Keys with which other servers may transfer our zones: a file of lines, each as `dig -y` takes it.

use std::path::Path;

use anyhow::{Context, Result, bail};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use landfall_dns::{Key, Secondary};

/// The only kind of signature there is.
const ALGORITHM: &str = "hmac-sha256:";

/// Reads the keys of a file.
pub(crate) fn read(file: &Path) -> Result<Vec<Key>> {
    let text = std::fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display()))?;
    parse(&text).with_context(|| file.display().to_string())
}

/// A server that is told of changes, as `[KEY@]ADDR:PORT`.
pub(crate) fn secondary(text: &str) -> Result<Secondary> {
    let (key, address) = text.rsplit_once('@').map_or((None, text), |(key, rest)| (Some(key), rest));
    let address = address.parse().ok();
    let address = address.with_context(|| format!("--notify: {text:?} is not [KEY@]ADDR:PORT"))?;
    Ok(Secondary { address, key: key.map(str::to_owned) })
}

fn parse(text: &str) -> Result<Vec<Key>> {
    let lines = text.lines().map(str::trim).enumerate();
    let lines = lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    // The line itself is a secret, and never shown.
    lines.map(|(at, line)| key(line).with_context(|| format!("line {}", at + 1))).collect()
}

fn key(line: &str) -> Result<Key> {
    let Some((name, secret)) = line.strip_prefix(ALGORITHM).unwrap_or(line).split_once(':') else {
        bail!("expected [hmac-sha256:]NAME:SECRET, the secret in base64");
    };
    if name.is_empty() || secret.contains(':') {
        bail!("expected [hmac-sha256:]NAME:SECRET; there are no other algorithms");
    }
    let secret = STANDARD.decode(secret).ok().filter(|secret| !secret.is_empty());
    Ok(Key { name: name.to_owned(), secret: secret.context("the secret is no base64")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whom_to_tell() {
        let told = |text: &str| secondary(text).map(|one| (one.key, one.address.to_string())).ok();
        assert_eq!(told("192.0.2.1:53"), Some((None, "192.0.2.1:53".into())));
        assert_eq!(told("one@[2001:db8::1]:53"), Some((Some("one".into()), "[2001:db8::1]:53".into())));
        assert_eq!((told("192.0.2.1"), told("one@")), (None, None));
    }

    #[test]
    fn keys_are_read_as_dig_takes_them() {
        let keys = parse("# ours\n\nhmac-sha256:transfer.example.com:c2VjcmV0\nother:AAAA\n").unwrap();
        let shown: Vec<(&str, &[u8])> = keys.iter().map(|key| (&*key.name, &*key.secret)).collect();
        assert_eq!(shown, [("transfer.example.com", &b"secret"[..]), ("other", &[0; 3][..])]);
        for (text, why) in [
            ("c2VjcmV0", "line 1: expected"),
            ("\nhmac-md5:name:c2VjcmV0", "line 2: expected"),
            ("name:%%%%", "line 1: the secret is no base64"),
            ("name:", "line 1: the secret is no base64"),
        ] {
            let said = format!("{:#}", parse(text).err().unwrap());
            assert!(said.starts_with(why) && !said.contains("c2VjcmV0"), "{text}: {said}");
        }
    }
}
