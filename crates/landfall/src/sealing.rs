//! The keys that Secrets are encrypted with before they go to disk or to etcd.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use landfall_runtime::files::write_whole;
use landfall_store::{Keyring, Seals};

use crate::cli::HubOptions;

/// The key file in the data directory.
const KEY_FILE: &str = "secrets.key";

/// Where Secrets lie in the store.
const SEALED: &[&str] = &["core/secrets/"];

/// What a new key file says about itself.
const HEADER: &str = "\
# Secrets are encrypted with the first key (AES-256-GCM, 32 bytes in base64) and read with any of these.
# Keep a copy: without it they are lost. To change it, put a new key in front, start the hub, and take the old one out.
# Several hubs on one etcd need the same keys: add a new one at the end everywhere before it goes to the front.
";

/// Opens the keys that were given, or those of the data directory, which are made when missing.
pub(crate) fn open(options: &HubOptions) -> Result<Seals> {
    let path = key_file(options);
    if options.encryption_key_file.is_none() && !path.exists() {
        make(&path).with_context(|| format!("cannot make the key file {}", path.display()))?;
    }
    let read = || format!("cannot read the key file {}", path.display());
    let text = std::fs::read_to_string(&path).with_context(read)?;
    let mode = std::fs::metadata(&path).with_context(read)?.permissions().mode();
    if mode & 0o077 != 0 {
        tracing::warn!(file = %path.display(), "others can read the key that Secrets are encrypted with: chmod 600");
    }
    let keys =
        Keyring::parse(&text).with_context(|| format!("cannot use the key file {}", path.display()))?;
    Ok(Seals::new(keys, SEALED.iter().copied()))
}

/// What to do when a value cannot be opened.
pub(crate) fn advice(options: &HubOptions) -> String {
    let path = key_file(options);
    format!(
        "Secrets were encrypted with another key than those in {}: give the file with the right one by \
         --encryption-key-file",
        path.display()
    )
}

fn key_file(options: &HubOptions) -> PathBuf {
    options.encryption_key_file.clone().unwrap_or_else(|| options.data_dir.join(KEY_FILE))
}

/// Makes a key file, unless somebody else does at the same time: then theirs is the one.
fn make(path: &Path) -> std::io::Result<()> {
    let new = path.with_extension(format!("key.{}", std::process::id()));
    write_whole(&new, format!("{HEADER}{}\n", Keyring::generate()).as_bytes())?;
    let linked = std::fs::hard_link(&new, path);
    std::fs::remove_file(&new)?;
    match linked {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_made_once_and_for_its_owner_alone() {
        let directory = tempfile::tempdir().unwrap();
        let listen = ([127, 0, 0, 1], 0).into();
        let mut options = HubOptions::local(directory.path().to_owned(), listen);
        open(&options).unwrap();
        let path = directory.path().join(KEY_FILE);
        let made = std::fs::read_to_string(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        open(&options).unwrap();
        make(&path).unwrap();
        assert_eq!(std::fs::read_to_string(&path).unwrap(), made);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "nothing is left behind");
        options.encryption_key_file = Some(directory.path().join("none"));
        let error = format!("{:#}", open(&options).unwrap_err());
        assert!(error.contains("cannot read the key file") && error.contains("/none"), "{error}");
        std::fs::write(directory.path().join("none"), "short").unwrap();
        let error = format!("{:#}", open(&options).unwrap_err());
        assert!(error.ends_with("/none: line 1: a key is 32 bytes in base64"), "{error}");
    }
}
