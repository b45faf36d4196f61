//! Stand-ins until the real ones land.
#![allow(missing_docs)]
use serde_json::Value;
pub mod decode {
    use super::*;
    pub fn parse_json(b: &[u8]) -> Result<(Value, Vec<String>), String> {
        serde_json::from_slice(b).map(|v| (v, vec![])).map_err(|e| e.to_string())
    }
    pub fn parse_yaml(b: &[u8]) -> Result<(Value, Vec<String>), String> {
        parse_json(b)
    }
    pub fn to_yaml(v: &Value) -> String {
        v.to_string()
    }
}
pub mod wire {
    use super::*;
    pub fn decode(_b: &[u8]) -> Result<Value, String> {
        Err("no".into())
    }
}
pub mod schema {
    use super::*;
    #[derive(Default)]
    pub struct Report {
        pub unknown: Vec<String>,
        pub wrong_type: Option<String>,
    }
    pub fn normalize(_s: &landfall_api::schema::Struct, _v: &mut Value) -> Report {
        Report::default()
    }
}
pub mod events_convert {
    use super::*;
    pub fn to_events(v: &Value) -> Value {
        v.clone()
    }
    pub fn to_core(v: &Value) -> Value {
        v.clone()
    }
}
pub mod hpa_convert {
    use super::*;
    pub fn to_v1(v: &Value) -> Value {
        v.clone()
    }
    pub fn to_v2(v: &Value) -> Value {
        v.clone()
    }
}

pub mod audit {
    use super::*;
    #[derive(Default)]
    pub struct Note {
        pub user: Option<std::sync::Arc<crate::authn::User>>,
        pub impersonated: Option<std::sync::Arc<crate::authn::User>>,
        pub message: String,
    }
    impl Note {
        pub fn decision(&mut self, _v: &crate::authz::Verdict) {}
    }
}
pub mod reviews {
    pub fn is_review(_k: &landfall_api::Kind) -> bool {
        false
    }
}
