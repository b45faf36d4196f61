//! TLS to servers whose certificates are not judged by the usual authorities: whoever shows one must have its key, and what else
//! is asked of it is for a [`Judge`] to say.

use std::fmt::Debug;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::{DigitallySignedStruct, SignatureScheme};
use rustls_pki_types::{CertificateDer, ServerName, UnixTime};

/// What a server shows.
#[derive(Clone, Copy, Debug)]
pub struct Shown<'a> {
    /// Its certificate.
    pub end_entity: &'a CertificateDer<'a>,
    /// Those that it shows with it.
    pub intermediates: &'a [CertificateDer<'a>],
    /// Whom it was asked for.
    pub name: &'a ServerName<'a>,
    /// What its authority says of it.
    pub ocsp: &'a [u8],
    /// The time.
    pub now: UnixTime,
}

/// Says whether a server's certificate is good enough.
pub trait Judge: Debug + Send + Sync {
    /// Nothing if it is.
    fn judge(&self, shown: &Shown<'_>, provider: &Arc<CryptoProvider>) -> Result<(), rustls::Error>;
}

/// Anybody is good enough.
#[derive(Clone, Copy, Debug)]
pub struct Anybody;

impl Judge for Anybody {
    fn judge(&self, _: &Shown<'_>, _: &Arc<CryptoProvider>) -> Result<(), rustls::Error> {
        Ok(())
    }
}

/// Checks that a server has the key of what it shows, and asks a judge about the rest.
#[derive(Debug)]
pub struct Verifier<J> {
    /// Who is asked.
    pub judge: J,
    /// What signatures are checked with.
    pub provider: Arc<CryptoProvider>,
}

impl<J: Judge> ServerCertVerifier for Verifier<J> {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.judge.judge(&Shown { end_entity, intermediates, name, ocsp, now }, &self.provider)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(
            message,
            certificate,
            signature,
            &self.provider.signature_verification_algorithms,
        )
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}
