//! The documents by which others find our service accounts' keys.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::ServiceAccounts;
use super::jwt::VerifyingKey;

/// Where the keys are served.
pub const JWKS_PATH: &str = "/openid/v1/jwks";
/// Where the configuration is served.
pub const CONFIGURATION_PATH: &str = "/.well-known/openid-configuration";

/// `/.well-known/openid-configuration`; `external` is the `host:port` clients reach this API by.
pub fn configuration(accounts: &ServiceAccounts, external: &str) -> Value {
    let algorithms: BTreeSet<&str> = accounts.keys().map(VerifyingKey::algorithm).collect();
    json!({
        "issuer": accounts.issuer(),
        "jwks_uri": format!("https://{external}{JWKS_PATH}"),
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": algorithms,
    })
}

/// `/openid/v1/jwks`.
pub fn keys(accounts: &ServiceAccounts) -> Value {
    json!({"keys": accounts.keys().map(VerifyingKey::to_jwk).collect::<Vec<_>>()})
}

#[cfg(test)]
mod tests {
    use super::super::jwt::SigningKey;
    use super::*;

    #[test]
    fn documents_name_the_issuer_and_its_keys() {
        let key = SigningKey::generate().expect("a key");
        let id = key.public().id().to_owned();
        let accounts = ServiceAccounts::new("https://kubernetes.default.svc", &[], key, vec![]);
        let configuration = configuration(&accounts, "10.0.0.1:6443");
        assert_eq!(configuration["issuer"], "https://kubernetes.default.svc");
        assert_eq!(configuration["jwks_uri"], "https://10.0.0.1:6443/openid/v1/jwks");
        assert_eq!(configuration["id_token_signing_alg_values_supported"], json!(["ES256"]));
        assert_eq!(keys(&accounts)["keys"][0]["kid"], json!(id));
    }
}
