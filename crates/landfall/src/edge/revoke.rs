//! `landfall edge revoke`: the edge's object goes, and with it everything its certificate opened.

use anyhow::{Result, bail};
use landfall_api::meta;
use landfall_apiserver::authn::bootstrap_token;
use landfall_apiserver::edges;
use serde_json::Value;

use super::options::RevokeOptions;
use super::token::Token;
use crate::basics::target::{Target, escape};
use crate::say::say;

pub(super) async fn run(options: &RevokeOptions) -> Result<()> {
    let (hub, name) = (Target::find(&options.connection).await?, &options.name);
    let path = format!("/apis/landfall.dev/v1alpha1/edges/{}", escape(name));
    let Some(edge) = hub.look(&path).await? else {
        bail!("there is no edge {name:?}; see `landfall edge list`");
    };
    // The tokens first: between the two the edge must not come in again. It may have been given others than the one it used.
    if !options.keep_token {
        let cluster = edge.pointer("/spec/cluster").and_then(Value::as_str).unwrap_or_default();
        for id in tokens(&hub, cluster).await? {
            if hub.remove(&Token::path(&id)).await? {
                say(&format!("The token {id} is taken back; edges that came in with it stay."));
            }
        }
    }
    hub.remove(&path).await?;
    say(&format!("edge.landfall.dev/{name} revoked"));
    Ok(())
}

/// The tokens that let edges of a cluster in.
async fn tokens(hub: &Target, cluster: &str) -> Result<Vec<String>> {
    let path = format!("/api/v1/namespaces/{}/secrets", bootstrap_token::NAMESPACE);
    let list = hub.get(&path, "application/json").await?;
    let items = list.get("items").and_then(Value::as_array);
    let good = |secret: &&Value| bootstrap_token::gives(secret, edges::BOOTSTRAPPERS, cluster);
    let id =
        |secret: &Value| meta::name(secret).strip_prefix(bootstrap_token::SECRET_PREFIX).map(str::to_owned);
    Ok(items.into_iter().flatten().filter(good).filter_map(id).collect())
}
