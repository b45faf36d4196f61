//! `landfall apply`: server-side apply of what manifests hold.

use anyhow::{Context, Result, bail};
use landfall_api::meta;
use serde_json::Value;

use super::kinds::Kinds;
use super::options::ApplyOptions;
use super::target::Target;
use super::{manifest, print};

pub(super) async fn run(options: &ApplyOptions, target: &Target) -> Result<()> {
    let objects = manifest::read(&options.files)?;
    let mut kinds = Kinds::ask(target).await?;
    for object in &objects {
        if kinds.of(object).is_err() {
            // A definition before it may have made the kind known.
            kinds = Kinds::ask(target).await?;
        }
        apply(&kinds, object, target, options.force_conflicts).await?;
    }
    Ok(())
}

async fn apply(kinds: &Kinds, object: &Value, target: &Target, force: bool) -> Result<()> {
    let served = kinds.of(object)?;
    let name = meta::name(object);
    if name.is_empty() {
        bail!("{}: an object to apply needs a name", served.kind);
    }
    let namespace = Some(meta::namespace(object)).filter(|n| !n.is_empty()).unwrap_or(&target.namespace);
    let title = served.title(name);
    target.apply(&served.path(namespace, name), object, force).await.with_context(|| title.clone())?;
    print(&format!("{title} serverside-applied\n"));
    Ok(())
}
