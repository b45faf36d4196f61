//! What an edge was told, as it stands on disk.

use std::path::Path;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use landfall_api::landfall::{GroupPlanSpec, PlanFederation, RoutePlanSpec, TrafficPlanSpec};
use landfall_proxy::Certificate;
use landfall_runtime::files::write_whole;
use serde::{Deserialize, Serialize};

use super::book::{Key, Plans};

/// What the file holds.
#[derive(Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Written {
    federation: Option<PlanFederation>,
    services: Vec<Placed<TrafficPlanSpec>>,
    routes: Vec<Placed<RoutePlanSpec>>,
    certificates: Vec<WrittenCertificate>,
    groups: Vec<Placed<GroupPlanSpec>>,
}

#[derive(Serialize, Deserialize)]
struct Placed<T> {
    namespace: String,
    name: String,
    spec: T,
}

/// In base64, as Secrets have them.
#[derive(Serialize, Deserialize)]
struct WrittenCertificate {
    name: String,
    chain: String,
    key: String,
    authority: String,
}

/// Reads what was written; nothing, where there is no file.
pub(super) fn read(path: &Path) -> Result<Plans, String> {
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Plans::default()),
        Err(error) => return Err(error.to_string()),
    };
    let written: Written = serde_json::from_slice(&text).map_err(|error| error.to_string())?;
    let certificates = written.certificates.into_iter().map(|one| {
        let bytes = |text: &str| STANDARD.decode(text).map_err(|error| error.to_string());
        let certificate = Certificate {
            chain_pem: bytes(&one.chain)?,
            key_pem: bytes(&one.key)?,
            authority_pem: bytes(&one.authority)?,
        };
        Ok((one.name, Arc::new(certificate)))
    });
    Ok(Plans {
        services: written.services.into_iter().map(place).collect(),
        routes: written.routes.into_iter().map(place).collect(),
        certificates: certificates.collect::<Result<_, String>>()?,
        groups: written.groups.into_iter().map(|group| (group.name, Arc::new(group.spec))).collect(),
        federation: written.federation.map(Arc::new),
        ..Plans::default()
    })
}

fn place<T>(placed: Placed<T>) -> (Key, Arc<T>) {
    ((placed.namespace, placed.name), Arc::new(placed.spec))
}

/// Writes everything.
pub(super) fn write(path: &Path, plans: &Plans) -> std::io::Result<()> {
    fn placed<T: Clone>(((namespace, name), spec): (&Key, &Arc<T>)) -> Placed<T> {
        Placed { namespace: namespace.clone(), name: name.clone(), spec: (**spec).clone() }
    }
    let group = |(name, spec): (&String, &Arc<GroupPlanSpec>)| Placed {
        namespace: String::new(),
        name: name.clone(),
        spec: (**spec).clone(),
    };
    let certificates = plans.certificates.iter().map(|(name, one)| WrittenCertificate {
        name: name.clone(),
        chain: STANDARD.encode(&one.chain_pem),
        key: STANDARD.encode(&one.key_pem),
        authority: STANDARD.encode(&one.authority_pem),
    });
    let written = Written {
        federation: plans.federation.as_deref().cloned(),
        services: plans.services.iter().map(placed).collect(),
        routes: plans.routes.iter().map(placed).collect(),
        certificates: certificates.collect(),
        groups: plans.groups.iter().map(group).collect(),
    };
    write_whole(path, &serde_json::to_vec(&written)?)
}
