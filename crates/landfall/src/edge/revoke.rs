//! `landfall edge revoke`: the edge's object goes, and with it everything its certificate opened.

use anyhow::{Result, bail};
use landfall_api::meta;
use landfall_apiserver::edges;

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
    // The token first: between the two the edge must not come in again.
    let token = meta::annotation(&edge, edges::TOKEN_ANNOTATION).filter(|_| !options.keep_token);
    if let Some(id) = token
        && hub.remove(&Token::path(id)).await?
    {
        say(&format!("The token {id} with which it came in is taken back; edges that came in with it stay."));
    }
    hub.remove(&path).await?;
    say(&format!("edge.landfall.dev/{name} revoked"));
    Ok(())
}
