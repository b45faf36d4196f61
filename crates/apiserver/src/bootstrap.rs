//! What exists from the first start: the four namespaces and the `kubernetes` Service.

use futures::future::try_join_all;
use landfall_api::{Reason, Status, meta};
use serde_json::{Value, json};

use crate::api::Api;
use crate::authn::User;
use crate::options::FieldValidation;
use crate::write::update::{Part, update};
use crate::write::{By, Wanted, create};
use crate::{authz, encode, keys};

/// Namespaces that every Kubernetes has.
const NAMESPACES: &[&str] = &["default", "kube-system", "kube-public", "kube-node-lease"];

/// The server itself, as the author of objects.
pub fn server() -> User {
    User { name: "system:apiserver".into(), groups: vec!["system:masters".into()], ..User::default() }
}

/// Makes what is missing. Safe to run on several hubs at once.
pub async fn run(api: &Api, port: u16) -> Result<(), Status> {
    let namespaces = NAMESPACES.iter().map(|name| {
        let object = json!({"metadata": {"name": name}});
        ensure(api, "", "namespaces", "", object)
    });
    try_join_all(namespaces).await?;
    let service = json!({
        "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {
            "type": "ClusterIP", "sessionAffinity": "None",
            "ports": [{"name": "https", "port": 443, "protocol": "TCP", "targetPort": port}],
        },
    });
    ensure(api, "", "services", "default", service).await
}

/// Makes the roles and bindings of the start, or adds what they lack.
pub async fn roles(api: &Api) -> Result<(), Status> {
    let catalog = api.catalog.load_full();
    let snapshot = api.store.snapshot();
    let existing = |plural: &str, name: &str| {
        let entry = snapshot.get(&keys::object(authz::GROUP, plural, "", name))?;
        encode::decode(entry).ok()
    };
    let user = server();
    let by = &by(&user);
    let writes = authz::bootstrap::reconcile(&existing).into_iter().map(|write| {
        let catalog = &catalog;
        async move {
            let Some(kind) = catalog.find_resource(authz::GROUP, write.plural) else { return Ok(()) };
            if write.create {
                return ensure(api, authz::GROUP, write.plural, "", write.object).await;
            }
            let name = meta::name(&write.object).to_owned();
            let done = update(api, kind, "", &name, Part::Main, by, |_| {
                let mut object = write.object.clone();
                meta::metadata_mut(&mut object).remove("resourceVersion");
                Ok(Wanted::new(object, Vec::new()))
            })
            .await;
            done.map(drop)
        }
    });
    // Together, so that they share the store's syncs.
    try_join_all(writes).await.map(drop)
}

/// The server writes as itself.
pub const fn by(user: &User) -> By<'_> {
    By { user, manager: "landfall", dry_run: false, validation: FieldValidation::Ignore, served: None }
}

/// Creates an object unless it is there.
pub async fn ensure(
    api: &Api,
    group: &str,
    plural: &str,
    namespace: &str,
    object: Value,
) -> Result<(), Status> {
    let catalog = api.catalog.load_full();
    let Some(kind) = catalog.find_resource(group, plural) else { return Ok(()) };
    let user = server();
    match create::create(api, kind, namespace, Wanted::new(object, Vec::new()), &by(&user)).await {
        Ok(_) => Ok(()),
        Err(status) if status.reason == Reason::AlreadyExists => Ok(()),
        Err(status) => Err(status),
    }
}
