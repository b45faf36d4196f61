//! `landfall delete`: by name, by label, or by manifest.

use anyhow::{Result, bail};
use landfall_api::meta;

use super::kinds::{Kinds, Served};
use super::options::DeleteOptions;
use super::target::Target;
use super::{get, manifest, print};

pub(super) async fn run(options: &DeleteOptions, target: &Target) -> Result<()> {
    let kinds = Kinds::ask(target).await?;
    if !options.files.is_empty() {
        // The reverse of the order of creation, so that namespaces go last.
        for object in manifest::read(&options.files)?.iter().rev() {
            let own = meta::namespace(object);
            let namespace = if own.is_empty() { &target.namespace } else { own };
            delete(kinds.of(object)?, namespace, meta::name(object), target).await?;
        }
        return Ok(());
    }
    for (served, name) in get::asked(&kinds, &options.what)? {
        if !name.is_empty() {
            delete(served, &target.namespace, &name, target).await?;
            continue;
        }
        let Some(selector) = &options.selector else {
            bail!("say which: give names, or a label selector with -l");
        };
        let path = get::with_selector(&served.path(&target.namespace, ""), Some(selector));
        let found = target.get(&path, "application/json").await?;
        let found = get::objects(served, &found);
        if found.is_empty() {
            print("No resources found.\n");
        }
        for (served, object) in found {
            delete(served, meta::namespace(&object), meta::name(&object), target).await?;
        }
    }
    Ok(())
}

async fn delete(served: &Served, namespace: &str, name: &str, target: &Target) -> Result<()> {
    target.delete(&served.path(namespace, name)).await?;
    let title = served.title("");
    print(&format!("{} \"{name}\" deleted\n", title.trim_end_matches('/')));
    Ok(())
}
