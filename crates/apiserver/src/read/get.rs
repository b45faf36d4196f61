//! Reading one object.

use std::sync::Arc;

use landfall_api::{Kind, Status};
use landfall_store::{Entry, Store};

use super::list::parse_revision;
use crate::{errors, keys};

/// The newest entry of an object, or one not older than `resource_version` (`"0"`: whatever is at hand).
pub async fn entry(
    store: &dyn Store,
    kind: &Kind,
    namespace: &str,
    name: &str,
    resource_version: &str,
) -> Result<Arc<Entry>, Status> {
    let wanted = parse_revision(resource_version)?;
    if wanted != Some(0) {
        store.barrier().await.map_err(|e| errors::general(&e))?;
    }
    let snapshot = super::list::reach(store, wanted).await?;
    let key = keys::object(&kind.stored_as.0, &kind.stored_as.1, namespace, name);
    snapshot.get(&key).cloned().ok_or_else(|| Status::not_found(&kind.group, &kind.plural, name))
}
