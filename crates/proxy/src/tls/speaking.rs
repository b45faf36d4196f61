//! How hosts are spoken to: from which version on, and with whom. One setting is shared by all hosts that want the same.

use std::sync::Arc;

use rustls::crypto::CryptoProvider;
use rustls::crypto::aws_lc_rs::Ticketer;
use rustls::server::{NoServerSessionStorage, ResolvesServerCert, WebPkiClientVerifier};
use rustls::{RootCertStore, ServerConfig, SupportedProtocolVersion, version};

/// What we speak inside TLS, best first.
pub(crate) const PROTOCOLS: [&[u8]; 2] = [b"h2", b"http/1.1"];

/// The oldest version that is spoken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Oldest {
    #[default]
    Tls12,
    Tls13,
}

impl Oldest {
    /// As `options.minTlsVersion` says it. What nobody knows is taken for the strictest.
    pub(crate) fn of(text: Option<&str>) -> Self {
        match text {
            None | Some("" | "1.2") => Self::Tls12,
            Some(_) => Self::Tls13,
        }
    }

    fn versions(self) -> &'static [&'static SupportedProtocolVersion] {
        static ALL: [&SupportedProtocolVersion; 2] = [&version::TLS13, &version::TLS12];
        match self {
            Self::Tls12 => &ALL,
            Self::Tls13 => ALL.get(..1).unwrap_or_default(),
        }
    }
}

/// With whom is spoken.
#[derive(Clone, Debug, Default)]
pub(crate) enum Clients {
    /// Everybody.
    #[default]
    Anybody,
    /// Those whom one of these vouches for, and the Secret that they are in.
    Known(Arc<RootCertStore>, Arc<str>),
    /// Nobody: it cannot be told who vouches for clients.
    Nobody,
}

/// A way to speak.
#[derive(Clone, Debug, Default)]
pub(crate) struct Manner {
    pub(crate) oldest: Oldest,
    pub(crate) clients: Clients,
}

impl PartialEq for Manner {
    fn eq(&self, other: &Self) -> bool {
        let same = match (&self.clients, &other.clients) {
            (Clients::Anybody, Clients::Anybody) | (Clients::Nobody, Clients::Nobody) => true,
            (Clients::Known(one, _), Clients::Known(two, _)) => Arc::ptr_eq(one, two),
            _ => false,
        };
        same && self.oldest == other.oldest
    }
}

impl Manner {
    /// It is spoken to nobody less strictly than in another way.
    pub(crate) fn join(&mut self, other: &Self) {
        self.oldest = self.oldest.max(other.oldest);
        if matches!(self.clients, Clients::Anybody) {
            self.clients = other.clients.clone();
        }
    }

    /// Whether somebody who was let in to speak one way may go on in this one.
    pub(crate) fn admits(&self, other: &Self) -> bool {
        let known = match (&self.clients, &other.clients) {
            (Clients::Anybody, _) => true,
            (Clients::Known(one, _), Clients::Known(two, _)) => Arc::ptr_eq(one, two),
            _ => false,
        };
        known && self.oldest <= other.oldest
    }
}

/// A way to speak, ready to be used. It has keys of its own for what clients bring along to resume: nobody who was let in by
/// other rules is let in by these.
#[derive(Debug)]
pub(crate) struct Speaking {
    pub(crate) manner: Manner,
    pub(crate) config: Arc<ServerConfig>,
}

impl Speaking {
    /// Prepares it.
    pub(crate) fn new(
        manner: Manner,
        resolver: Arc<dyn ResolvesServerCert>,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, rustls::Error> {
        let config = ServerConfig::builder_with_provider(provider.clone())
            .with_protocol_versions(manner.oldest.versions())?;
        let config = match &manner.clients {
            Clients::Anybody | Clients::Nobody => config.with_no_client_auth(),
            Clients::Known(roots, _) => {
                let verifier = WebPkiClientVerifier::builder_with_provider(roots.clone(), provider.clone());
                let verifier = verifier.build().map_err(|why| rustls::Error::General(why.to_string()))?;
                config.with_client_cert_verifier(verifier)
            }
        };
        let mut config = config.with_cert_resolver(match manner.clients {
            Clients::Nobody => Arc::new(NoCertificate),
            Clients::Anybody | Clients::Known(..) => resolver,
        });
        config.alpn_protocols = PROTOCOLS.map(<[u8]>::to_vec).to_vec();
        // What is needed to resume travels with the client: nothing is kept here, and all cores know it.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.ticketer = Ticketer::new()?;
        Ok(Self { manner, config: Arc::new(config) })
    }
}

/// Shows nothing, which ends every handshake with an alert.
#[derive(Debug)]
struct NoCertificate;

impl ResolvesServerCert for NoCertificate {
    fn resolve(&self, _: rustls::server::ClientHello<'_>) -> Option<Arc<rustls::sign::CertifiedKey>> {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_may_go_on() {
        let known = || Clients::Known(Arc::new(RootCertStore::empty()), "clients".into());
        let (ca, other) = (known(), known());
        let check = |host: (Oldest, &Clients), connection: (Oldest, &Clients), want: bool| {
            let manner = |(oldest, clients): (Oldest, &Clients)| Manner { oldest, clients: clients.clone() };
            assert_eq!(manner(host).admits(&manner(connection)), want, "{host:?} {connection:?}");
        };
        let (old, new) = (Oldest::Tls12, Oldest::Tls13);
        check((old, &Clients::Anybody), (old, &Clients::Anybody), true);
        check((old, &Clients::Anybody), (new, &ca), true);
        check((new, &Clients::Anybody), (old, &Clients::Anybody), false);
        check((old, &ca), (old, &Clients::Anybody), false);
        check((old, &ca), (old, &ca), true);
        check((old, &ca), (old, &other), false);
        check((old, &Clients::Nobody), (old, &Clients::Nobody), false);
    }

    #[test]
    fn unknown_versions_are_strict() {
        for (text, want) in [
            (None, Oldest::Tls12),
            (Some("1.2"), Oldest::Tls12),
            (Some("1.3"), Oldest::Tls13),
            (Some("9"), Oldest::Tls13),
        ] {
            assert_eq!(Oldest::of(text), want, "{text:?}");
        }
    }
}
