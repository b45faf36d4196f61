//! Continue tokens: where the next chunk of a list begins, and at which revision.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use landfall_api::Status;
use serde_json::{Value, json};

/// A decoded continue token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Token {
    /// The revision of the first chunk; 0 once the client accepted an inconsistent continuation.
    pub revision: u64,
    /// The last key given, relative to the kind's collection.
    pub after: String,
}

impl Token {
    /// The opaque text for clients; the same JSON inside as Kubernetes uses.
    pub fn encode(&self) -> String {
        let revision = if self.revision == 0 { json!(-1) } else { json!(self.revision) };
        let inner = json!({"v": "meta.k8s.io/v1", "rv": revision, "start": format!("{}\u{0}", self.after)});
        URL_SAFE_NO_PAD.encode(inner.to_string())
    }

    /// Reads a token; 400 when it is not one of ours.
    pub fn decode(text: &str) -> Result<Self, Status> {
        let bad = |why: &str| {
            Status::bad_request(format!("invalid continue token: continue key is not valid: {why}"))
        };
        let bytes = URL_SAFE_NO_PAD.decode(text).map_err(|e| bad(&illegal(&e)))?;
        let value: Value = serde_json::from_slice(&bytes).map_err(|e| bad(&e.to_string()))?;
        if value["v"] != "meta.k8s.io/v1" {
            let version = value["v"].as_str().unwrap_or("");
            return Err(bad(&format!("server does not recognize this encoded version {version}")));
        }
        let revision = match value["rv"].as_i64() {
            Some(-1) => 0,
            Some(rv) if rv > 0 => u64::try_from(rv).unwrap_or(0),
            _ => return Err(bad("incorrect encoded start resourceVersion (version meta.k8s.io/v1)")),
        };
        let start = value["start"].as_str().unwrap_or("");
        let after = start.strip_suffix('\u{0}').unwrap_or(start);
        if after.is_empty() {
            return Err(bad("encoded start key empty (version meta.k8s.io/v1)"));
        }
        if after.split('/').any(|part| matches!(part, "" | "." | "..")) {
            return Err(bad(start));
        }
        Ok(Self { revision, after: after.to_owned() })
    }
}

/// Kubernetes' words for text that is not base64.
fn illegal(error: &base64::DecodeError) -> String {
    let at = match error {
        base64::DecodeError::InvalidByte(at, _) | base64::DecodeError::InvalidLastSymbol(at, _) => *at,
        base64::DecodeError::InvalidLength(length) => length.saturating_sub(1),
        base64::DecodeError::InvalidPadding => 0,
    };
    format!("illegal base64 data at input byte {at}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_survive_the_trip() {
        for revision in [0, 7] {
            let token = Token { revision, after: "default/web".into() };
            assert_eq!(Token::decode(&token.encode()).unwrap(), token);
        }
    }

    #[test]
    fn what_is_not_a_token_is_refused() {
        let json = |text: &str| URL_SAFE_NO_PAD.encode(text);
        let inputs = [
            "!!!".to_owned(),
            json("not json"),
            json("{}"),
            json(r#"{"v":"meta.k8s.io/v1","rv":-2,"start":"a"}"#),
            json(r#"{"v":"meta.k8s.io/v1","rv":5,"start":""}"#),
            json(r#"{"v":"meta.k8s.io/v1","rv":5,"start":"../x"}"#),
        ];
        for input in inputs {
            assert_eq!(Token::decode(&input).unwrap_err().reason.code(), 400, "{input}");
        }
    }
}
