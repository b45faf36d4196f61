//! Seals: values of chosen keys are encrypted before they go to disk or to etcd, and opened when they come back.
//!
//! ```text
//!   sealed value = "\0sealed1" │ key id (8) │ nonce (12) │ AES-256-GCM ciphertext and tag
//!                   additional data: "\0sealed1" │ key id │ the entry's key
//! ```
//!
//! In memory everything is plain: reads, lists, watches and history know nothing of it, and other keys cost one comparison
//! of prefixes. The additional data ties a value to its place: copied elsewhere it does not open. A value that is not
//! sealed yet, or with an older key, is read, remembered as stale, and sealed anew when it is written: [`Seals::renew`].

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;

use aws_lc_rs::aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey};
use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use bytes::Bytes;
use futures::StreamExt;
use parking_lot::Mutex;

use crate::{Entry, Error, Store};

const MAGIC: &[u8; 8] = b"\0sealed1";
const KEY_BYTES: usize = 32;
const ID_BYTES: usize = 8;
/// Most keys in one ring: the present one, and those of rotations that are not finished.
const KEYS_MAX: usize = 16;
/// Where it is noted which key seals, so that a process with another one is refused even before there is any value.
pub(crate) const WITNESS: &str = "sealed";
/// How many stale values are sealed anew at once.
const RENEW_TOGETHER: usize = 32;

/// Keys, of which the first one seals and all open.
pub struct Keyring(Vec<Key>);

struct Key {
    id: Id,
    cipher: RandomizedNonceKey,
}

/// Names a key without telling it.
type Id = [u8; ID_BYTES];

/// Why a text is no ring of keys.
#[derive(Debug, thiserror::Error)]
#[error("line {line}: {what}")]
pub struct KeyringError {
    line: usize,
    what: &'static str,
}

/// What is sealed, and with which keys. The default seals nothing.
#[derive(Clone, Default)]
pub struct Seals(Option<Arc<Inner>>);

struct Inner {
    keys: Keyring,
    prefixes: Vec<String>,
    /// Keys whose values are plain, or sealed with another key than the first.
    stale: Mutex<BTreeSet<Arc<str>>>,
}

/// A value that does not open: why, in words.
#[derive(Clone, Debug)]
pub(crate) struct Unopened(pub(crate) String);

// === impl Keyring ===

impl Keyring {
    /// Reads keys: each 32 bytes in base64, one per line. Empty lines and lines that begin with `#` are passed over.
    pub fn parse(text: &str) -> Result<Self, KeyringError> {
        let mut keys: Vec<Key> = Vec::new();
        for (index, line) in text.lines().enumerate() {
            let (line, number) = (line.trim(), index + 1);
            if line.is_empty() || line.starts_with('#') {
                continue;
            }
            let wrong = |what| KeyringError { line: number, what };
            let bytes = BASE64.decode(line).map_err(|_| wrong("a key is 32 bytes in base64"))?;
            let key = Key::new(&bytes).ok_or_else(|| wrong("a key is 32 bytes in base64"))?;
            if keys.iter().any(|known| known.id == key.id) {
                return Err(wrong("this key is here twice"));
            }
            if keys.len() == KEYS_MAX {
                return Err(wrong("there are more than 16 keys"));
            }
            keys.push(key);
        }
        if keys.is_empty() { Err(KeyringError { line: 1, what: "there is no key" }) } else { Ok(Self(keys)) }
    }

    /// A new key, as [`Keyring::parse`] reads it.
    pub fn generate() -> String {
        let mut bytes = [0; KEY_BYTES];
        aws_lc_rs::rand::fill(&mut bytes).expect("the operating system gives random bytes");
        BASE64.encode(bytes)
    }

    fn first(&self) -> &Key {
        self.0.first().expect("a ring has a key")
    }

    fn ids(&self) -> String {
        self.0.iter().map(|key| hex(&key.id)).collect::<Vec<_>>().join(", ")
    }
}

impl Key {
    fn new(bytes: &[u8]) -> Option<Self> {
        let bytes: &[u8; KEY_BYTES] = bytes.try_into().ok()?;
        let named = digest(&SHA256, &[b"landfall key id", &bytes[..]].concat());
        let id = named.as_ref().first_chunk().copied()?;
        Some(Self { id, cipher: RandomizedNonceKey::new(&AES_256_GCM, bytes).ok()? })
    }
}

impl fmt::Debug for Keyring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The keys stay out of logs.
        write!(f, "Keyring({})", self.ids())
    }
}

// === impl Seals ===

impl Seals {
    /// Seals the values of keys that begin with one of `prefixes`.
    pub fn new(keys: Keyring, prefixes: impl IntoIterator<Item = impl Into<String>>) -> Self {
        let prefixes = prefixes.into_iter().map(Into::into).collect();
        Self(Some(Arc::new(Inner { keys, prefixes, stale: Mutex::default() })))
    }

    /// Seals anew what is stale, and notes which key seals now; gives how many values that were. Safe beside others that
    /// write, and twice at once. Sealed values do not expire.
    pub async fn renew(&self, store: &dyn Store) -> Result<usize, Error> {
        let Some(inner) = &self.0 else { return Ok(0) };
        witness(store, inner).await?;
        let stale: Vec<Arc<str>> = inner.stale.lock().iter().cloned().collect();
        let state = store.snapshot();
        let entries: Vec<Arc<Entry>> = stale.iter().filter_map(|key| state.get(key).cloned()).collect();
        let write = |entry: Arc<Entry>| async move {
            match store.update(&entry.key, entry.value.clone(), entry.revision, None).await {
                Ok(_) => Ok(1),
                // Whoever changed it meanwhile has sealed it.
                Err(Error::Conflict(_)) => Ok(0),
                Err(error) => Err(error),
            }
        };
        let mut written = futures::stream::iter(entries).map(write).buffer_unordered(RENEW_TOGETHER);
        let mut count = 0;
        while let Some(one) = written.next().await {
            count += one?;
        }
        Ok(count)
    }

    /// A value as it leaves the process.
    pub(crate) fn seal(&self, key: &str, value: &Bytes) -> Bytes {
        let Some(inner) = self.concerning(key) else { return value.clone() };
        let with = inner.keys.first();
        let mut text = value.to_vec();
        let nonce = with.cipher.seal_in_place_append_tag(additional(with.id, key), &mut text);
        let nonce = nonce.expect("values are far below what the cipher takes");
        inner.stale.lock().remove(key);
        [MAGIC, &with.id[..], nonce.as_ref(), &text].concat().into()
    }

    /// A value as it comes back.
    pub(crate) fn open(&self, key: &str, stored: &[u8]) -> Result<Bytes, Unopened> {
        let Some(inner) = self.concerning(key) else { return Ok(Bytes::copy_from_slice(stored)) };
        let (value, fresh) = inner.open(key, stored)?;
        let mut stale = inner.stale.lock();
        if fresh {
            stale.remove(key);
        } else {
            stale.insert(key.into());
        }
        Ok(value)
    }

    /// A value of the past as it comes back: whether it is stale does not matter.
    pub(crate) fn open_past(&self, key: &str, stored: &[u8]) -> Result<Bytes, Unopened> {
        match self.concerning(key) {
            Some(inner) => inner.open(key, stored).map(|(value, _)| value),
            None => Ok(Bytes::copy_from_slice(stored)),
        }
    }

    fn concerning(&self, key: &str) -> Option<&Inner> {
        let inner = self.0.as_deref()?;
        (key == WITNESS || inner.prefixes.iter().any(|prefix| key.starts_with(prefix))).then_some(inner)
    }
}

impl fmt::Debug for Seals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Some(inner) => write!(f, "Seals({:?}, {:?})", inner.keys, inner.prefixes),
            None => f.write_str("Seals(none)"),
        }
    }
}

impl Inner {
    /// The plain value, and whether it was sealed with the first key.
    fn open(&self, key: &str, stored: &[u8]) -> Result<(Bytes, bool), Unopened> {
        let Some(rest) = stored.strip_prefix(MAGIC) else {
            // From before there were seals.
            return Ok((Bytes::copy_from_slice(stored), false));
        };
        let damaged = || Unopened(format!("the sealed value of {key:?} is damaged, or was moved there"));
        let (id, rest) = rest.split_first_chunk::<ID_BYTES>().ok_or_else(damaged)?;
        let (nonce, text) = rest.split_first_chunk::<NONCE_LEN>().ok_or_else(damaged)?;
        let Some(with) = self.keys.0.iter().find(|known| known.id == *id) else {
            let (asked, known) = (hex(id), self.keys.ids());
            return Err(Unopened(format!(
                "{key:?} is encrypted with the key {asked}, and known are {known}"
            )));
        };
        let mut text = text.to_vec();
        let nonce = Nonce::assume_unique_for_key(*nonce);
        let opened = with.cipher.open_in_place(nonce, additional(*id, key), &mut text);
        let length = opened.map_err(|_| damaged())?.len();
        text.truncate(length);
        Ok((text.into(), *id == self.keys.first().id))
    }
}

/// Notes with which key values are sealed. Whoever cannot open the note does not get this far.
async fn witness(store: &dyn Store, inner: &Inner) -> Result<(), Error> {
    let value = Bytes::from(hex(&inner.keys.first().id));
    let result = match store.snapshot().get(WITNESS).cloned() {
        Some(entry) if entry.value == value => return Ok(()),
        Some(entry) => store.update(WITNESS, value, entry.revision, None).await,
        None => store.create(WITNESS, value, None).await,
    };
    match result {
        // Somebody else was faster, and we could open what they noted.
        Ok(_) | Err(Error::Exists(_) | Error::Conflict(Some(_))) => Ok(()),
        Err(error) => Err(error),
    }
}

fn additional(id: Id, key: &str) -> Aad<Vec<u8>> {
    Aad::from([&MAGIC[..], &id, key.as_bytes()].concat())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seals(keys: &[&str]) -> Seals {
        Seals::new(Keyring::parse(&keys.join("\n")).unwrap(), ["secrets/"])
    }

    #[test]
    fn sealed_values_open_in_their_place_only() {
        let (old, new) = (Keyring::generate(), Keyring::generate());
        let one = seals(&[&old]);
        let value = Bytes::from_static(b"hunter2");
        let sealed = one.seal("secrets/a", &value);
        assert!(!sealed.windows(7).any(|part| part == b"hunter2"));
        assert_ne!(one.seal("secrets/a", &value), sealed, "nonces are random");
        assert_eq!(one.open("secrets/a", &sealed).unwrap(), value);
        assert_eq!(one.seal("configmaps/a", &value), value, "others stay as they are");
        let moved = one.open("secrets/b", &sealed).unwrap_err().0;
        assert_eq!(moved, "the sealed value of \"secrets/b\" is damaged, or was moved there");
        for cut in 0..sealed.len() {
            let damaged = one.open("secrets/a", sealed.get(..cut).unwrap());
            assert!(damaged.is_err() || cut < MAGIC.len(), "{cut}");
        }
        let unknown = seals(&[&new]).open("secrets/a", &sealed).unwrap_err().0;
        assert!(
            unknown.starts_with("\"secrets/a\" is encrypted with the key ") && !unknown.contains(&old),
            "{unknown}"
        );
        let both = seals(&[&new, &old]);
        assert_eq!(both.open("secrets/a", &sealed).unwrap(), value);
        assert_eq!(both.open("secrets/plain", b"{}").unwrap(), "{}");
        let stale =
            || both.0.as_ref().unwrap().stale.lock().iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(stale(), ["secrets/a", "secrets/plain"]);
        let again = both.seal("secrets/a", &value);
        assert_eq!(
            (stale(), both.open("secrets/a", &again).unwrap()),
            (vec!["secrets/plain".to_owned()], value)
        );
    }

    #[test]
    fn rings_of_keys() {
        let key = Keyring::generate();
        assert!(Keyring::parse(&format!("# mine\n\n{key}\n")).is_ok());
        for (text, wrong) in [
            ("", "line 1: there is no key"),
            ("# none", "line 1: there is no key"),
            ("aGVsbG8=", "line 1: a key is 32 bytes in base64"),
            ("#\n!", "line 2: a key is 32 bytes in base64"),
            (&format!("{key}\n{key}"), "line 2: this key is here twice"),
        ] {
            assert_eq!(Keyring::parse(text).unwrap_err().to_string(), wrong);
        }
        assert!(!format!("{:?}", Keyring::parse(&key).unwrap()).contains(&key));
    }
}
