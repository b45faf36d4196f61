//! Keys and certificates of a hub: made at first start, kept, never overwritten.
//!
//! ```text
//!   D/pki/ca.crt ca.key          the authority (10 years)
//!   D/pki/server.crt server.key  what clients see (1 year; the certificate is renewed when it must be)
//!   D/pki/sa.key                 signs service accounts' tokens
//!   D/admin.kubeconfig           the administrator, with everything inside
//! ```
//!
//! Hubs that share one etcd share `ca.*` and `sa.key` too: their paths can be given, and then the files must exist.
//! Every file is readable by its owner alone and written whole.

mod authority;
mod kubeconfig;
mod tls;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};

use landfall_runtime::files::write_whole;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};

use crate::authn::jwt::SigningKey;

pub use authority::{Authority, key_hash};
pub use tls::Tls;

/// The name and group in the administrator's certificate.
const ADMIN: (&str, &str) = ("landfall-admin", crate::authn::MASTERS);
/// How long the authority and the administrator's certificate last: the kubeconfig is never overwritten.
const AUTHORITY_DAYS: i32 = 3650;
/// How long a server certificate lasts.
const SERVER_DAYS: i32 = 365;
/// How long before its end a server certificate is renewed.
const RENEW_S: i64 = 30 * 24 * 3600;
/// Names every server certificate has.
const NAMES: [&str; 7] = [
    "localhost",
    "127.0.0.1",
    "::1",
    "kubernetes",
    "kubernetes.default",
    "kubernetes.default.svc",
    "kubernetes.default.svc.cluster.local",
];

/// Where things are and what the server is called.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// The data directory, `D`.
    pub data_dir: PathBuf,
    /// Host names and addresses clients use, besides the usual ones and this host's name.
    pub names: Vec<String>,
    /// The URL in the administrator's kubeconfig, such as `https://127.0.0.1:6443`.
    pub server: String,
    /// The authority's certificate, when it is not ours to make.
    pub ca_cert: Option<PathBuf>,
    /// The authority's key, when it is not ours to make.
    pub ca_key: Option<PathBuf>,
    /// The key that signs service accounts' tokens, when it is not ours to make.
    pub sa_key: Option<PathBuf>,
    /// The server's certificate chain, when it is not ours to make.
    pub tls_cert: Option<PathBuf>,
    /// The server's key, when it is not ours to make.
    pub tls_key: Option<PathBuf>,
    /// Further authorities whose client certificates are accepted.
    pub client_ca: Option<PathBuf>,
}

/// Why the keys and certificates cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("cannot read {}", path.display())]
    Read {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file cannot be written.
    #[error("cannot write {}", path.display())]
    Write {
        /// Which file.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// A file is not what it should be. It is left as it is.
    #[error("{} is damaged: {why}. Restore it from a backup; nothing was changed", path.display())]
    Damaged {
        /// Which file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// One of two files that belong together is missing.
    #[error("{} is missing, but {} is there. Restore it from a backup; nothing was changed", missing.display(), there.display())]
    Half {
        /// The missing file.
        missing: PathBuf,
        /// Its other half.
        there: PathBuf,
    },
    /// A certificate cannot be made.
    #[error("cannot make {what}")]
    Make {
        /// What.
        what: &'static str,
        /// Why.
        #[source]
        source: rcgen::Error,
    },
    /// TLS does not take the keys.
    #[error("TLS does not take the keys and certificates")]
    Tls(#[from] rustls::Error),
    /// TLS does not take the authorities of clients.
    #[error("TLS does not take the authorities for client certificates")]
    ClientAuthorities(#[from] rustls::server::VerifierBuilderError),
}

/// Everything a hub needs.
pub struct Pki {
    /// Signs certificates.
    pub authority: Authority,
    /// Accepts connections and names their clients.
    pub tls: Tls,
    /// Signs service accounts' tokens.
    pub sa_key: SigningKey,
    /// The administrator's kubeconfig; empty when everything is in memory.
    pub admin_kubeconfig: PathBuf,
}

/// Reads what is there, makes what is not, and renews the server's certificate if it must be.
pub fn open(config: &Config, now_s: i64) -> Result<Pki, Error> {
    let dir = config.data_dir.join("pki");
    std::fs::create_dir_all(&dir).map_err(|source| Error::Write { path: dir.clone(), source })?;
    let authority = open_authority(config, &dir, now_s)?;
    let (chain, key) = match (&config.tls_cert, &config.tls_key) {
        (None, None) => open_server(config, &dir, &authority, now_s)?,
        (cert, key) => {
            let cert = cert.clone().unwrap_or_else(|| dir.join("server.crt"));
            let key = key.clone().unwrap_or_else(|| dir.join("server.key"));
            (read_chain(&cert)?, read_key(&key)?)
        }
    };
    let clients = match &config.client_ca {
        Some(path) => read_chain(path)?,
        None => Vec::new(),
    };
    let tls = Tls::new(chain, key, &authority, &clients)?;
    let sa_key = open_sa_key(config, &dir)?;
    let admin_kubeconfig = config.data_dir.join("admin.kubeconfig");
    if !admin_kubeconfig.exists() {
        let text = kubeconfig::admin(&authority, &config.server, ADMIN, AUTHORITY_DAYS, now_s)?;
        write(&admin_kubeconfig, &text)?;
    }
    Ok(Pki { authority, tls, sa_key, admin_kubeconfig })
}

/// Everything a server needs, made anew and kept in memory alone; no kubeconfig is written.
pub fn make(names: &[String], now_s: i64) -> Result<Pki, Error> {
    let nowhere = Path::new("memory");
    let key = authority::new_key()?;
    let certificate =
        Authority::self_sign(&key, AUTHORITY_DAYS, now_s).map_err(|source| damaged(nowhere, &source))?;
    let authority = Authority::open((nowhere, &certificate), (nowhere, &key))?;
    let server_key = authority::new_key()?;
    let pair = rcgen::KeyPair::from_pem(&server_key).map_err(|why| damaged(nowhere, &why))?;
    let chain = authority
        .server(&pair, &server_names(names), SERVER_DAYS, now_s)
        .map_err(|source| Error::Make { what: "the server's certificate", source })?;
    let chain = CertificateDer::from_pem_slice(chain.as_bytes()).map_err(|why| damaged(nowhere, &why))?;
    let key = PrivateKeyDer::from_pem_slice(server_key.as_bytes()).map_err(|why| damaged(nowhere, &why))?;
    let tls = Tls::new(vec![chain], key, &authority, &[])?;
    let sa_key = SigningKey::from_pem(&authority::new_key()?).map_err(|why| damaged(nowhere, &why))?;
    Ok(Pki { authority, tls, sa_key, admin_kubeconfig: PathBuf::new() })
}

/// A client certificate of an administrator (PEM) and its key (PEM).
pub fn administrator(authority: &Authority, now_s: i64) -> Result<(String, String), Error> {
    authority
        .client(ADMIN.0, ADMIN.1, AUTHORITY_DAYS, now_s)
        .map_err(|source| Error::Make { what: "the administrator's certificate", source })
}

fn open_authority(config: &Config, dir: &Path, now_s: i64) -> Result<Authority, Error> {
    let cert = config.ca_cert.clone().unwrap_or_else(|| dir.join("ca.crt"));
    let key = config.ca_key.clone().unwrap_or_else(|| dir.join("ca.key"));
    let given = config.ca_cert.is_some() || config.ca_key.is_some();
    match (given || cert.exists(), given || key.exists()) {
        (true, true) => {}
        (true, false) => return Err(Error::Half { missing: key, there: cert }),
        // The key is written first: a start that was cut short leaves it alone, and it is used.
        (false, there) => {
            if !there {
                write(&key, &authority::new_key()?)?;
            }
            let certificate = Authority::self_sign(&read(&key)?, AUTHORITY_DAYS, now_s)
                .map_err(|source| damaged(&key, &source))?;
            write(&cert, &certificate)?;
        }
    }
    Authority::open((&cert, &read(&cert)?), (&key, &read(&key)?))
}

type Server = (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>);

fn open_server(config: &Config, dir: &Path, authority: &Authority, now_s: i64) -> Result<Server, Error> {
    let (cert, key) = (dir.join("server.crt"), dir.join("server.key"));
    if !key.exists() {
        write(&key, &authority::new_key()?)?;
    }
    let pair =
        rcgen::KeyPair::from_pem(&read(&key)?).map_err(|_| damaged(&key, "it holds no PEM private key"))?;
    let names = server_names(&config.names);
    let renew = if cert.exists() {
        let chain = read_chain(&cert)?;
        let first = chain.first().ok_or_else(|| damaged(&cert, "it holds no certificate"))?;
        authority::must_renew(first, authority, &pair, &names, now_s.saturating_add(RENEW_S))
            .map_err(|why| damaged(&cert, why))?
    } else {
        Some("there is none")
    };
    if let Some(why) = renew {
        tracing::info!(why, "making a server certificate");
        let text = authority
            .server(&pair, &names, SERVER_DAYS, now_s)
            .map_err(|source| Error::Make { what: "the server's certificate", source })?;
        write(&cert, &text)?;
    }
    let mut chain = read_chain(&cert)?;
    // Whoever joins knows the authority by its hash alone, and finds it here.
    chain.push(authority.der().clone());
    Ok((chain, read_key(&key)?))
}

fn open_sa_key(config: &Config, dir: &Path) -> Result<SigningKey, Error> {
    let path = config.sa_key.clone().unwrap_or_else(|| dir.join("sa.key"));
    if config.sa_key.is_none() && !path.exists() {
        write(&path, &authority::new_key()?)?;
    }
    SigningKey::from_pem(&read(&path)?).map_err(|why| damaged(&path, &why))
}

/// All names of the server certificate: the usual ones, this host's, and those given. What cannot stand in a
/// certificate is left out.
fn server_names(given: &[String]) -> BTreeSet<String> {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let mut names: BTreeSet<String> = NAMES.iter().map(|n| (*n).to_owned()).collect();
    for name in std::iter::once(host.trim()).chain(given.iter().map(String::as_str)) {
        let valid =
            name.is_ascii() && !name.is_empty() && rustls_pki_types::ServerName::try_from(name).is_ok();
        if valid {
            names.insert(name.to_ascii_lowercase());
        } else if !name.is_empty() {
            tracing::warn!(name, "this name cannot stand in a certificate and is left out");
        }
    }
    names
}

fn read(path: &Path) -> Result<String, Error> {
    let bytes = std::fs::read(path).map_err(|source| Error::Read { path: path.into(), source })?;
    String::from_utf8(bytes).map_err(|_| damaged(path, "it is not PEM text"))
}

fn read_chain(path: &Path) -> Result<Vec<CertificateDer<'static>>, Error> {
    let text = read(path)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text.as_bytes()).collect();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        _ => Err(damaged(path, "it holds no PEM certificate")),
    }
}

fn read_key(path: &Path) -> Result<PrivateKeyDer<'static>, Error> {
    PrivateKeyDer::from_pem_slice(read(path)?.as_bytes())
        .map_err(|_| damaged(path, "it holds no PEM private key"))
}

fn write(path: &Path, text: &str) -> Result<(), Error> {
    write_whole(path, text.as_bytes()).map_err(|source| Error::Write { path: path.into(), source })
}

fn damaged(path: &Path, why: &(impl std::fmt::Display + ?Sized)) -> Error {
    Error::Damaged { path: path.into(), why: why.to_string() }
}

#[cfg(test)]
#[path = "tests.rs"]
mod tests;
