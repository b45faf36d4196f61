//! Which server a command talks to, and talking to it.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use http::{Method, Request};
use kube::client::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::options::Connection;
use crate::playground;

/// A server, and the namespace that is meant when none is named.
pub(crate) struct Target {
    client: Client,
    pub(crate) namespace: String,
}

impl Target {
    /// Finds the server by what was typed, by the playground that runs, or as kubectl would.
    pub(crate) async fn find(connection: &Connection) -> Result<Self> {
        let file = match &connection.kubeconfig {
            Some(file) => Some(file.clone()),
            None => playground::only_running().map(|running| running.kubeconfig),
        };
        let kubeconfig = match &file {
            Some(files) => read(files)?,
            None => Kubeconfig::read().context(
                "there is no kubeconfig and no single running playground: start one with `landfall playground`, or give \
                 --kubeconfig",
            )?,
        };
        if let Some(name) = &connection.context
            && !kubeconfig.contexts.iter().any(|context| context.name == *name)
        {
            let known: Vec<_> = kubeconfig.contexts.iter().map(|c| c.name.as_str()).collect();
            bail!("there is no context {name:?}; there are {}", known.join(", "));
        }
        let options =
            KubeConfigOptions { context: connection.context.clone(), ..KubeConfigOptions::default() };
        let config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .context("cannot use the kubeconfig")?;
        let namespace = connection.namespace.clone().unwrap_or_else(|| config.default_namespace.clone());
        Ok(Self { client: Client::try_from(config).context("cannot make a client")?, namespace })
    }

    /// Gets something as JSON.
    pub(crate) async fn get(&self, path: &str, accept: &str) -> Result<Value> {
        self.send(Method::GET, path, &[("accept", accept)], Vec::new()).await
    }

    /// Deletes something.
    pub(crate) async fn delete(&self, path: &str) -> Result<Value> {
        self.send(Method::DELETE, path, &[], Vec::new()).await
    }

    /// Applies an object on the server's side.
    pub(crate) async fn apply(&self, path: &str, object: &Value, force: bool) -> Result<Value> {
        let path = format!("{path}?fieldManager=landfall&fieldValidation=Strict&force={force}");
        let headers = [("content-type", "application/apply-patch+yaml")];
        self.send(Method::PATCH, &path, &headers, serde_json::to_vec(object)?).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Result<Value> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.client.request(request.body(body)?).await.map_err(|error| match error {
            // As kubectl says it.
            kube::Error::Api(status) if status.reason.is_empty() => anyhow!("{}", status.message),
            kube::Error::Api(status) => anyhow!("from server ({}): {}", status.reason, status.message),
            other => anyhow!(other),
        })
    }
}

/// Reads a kubeconfig, or several that belong together as kubectl takes them: separated as in PATH.
fn read(files: &Path) -> Result<Kubeconfig> {
    let mut all = None;
    for file in std::env::split_paths(files) {
        let next = Kubeconfig::read_from(&file)
            .with_context(|| format!("cannot use the kubeconfig {}", file.display()))?;
        all = Some(match all {
            None => next,
            Some(before) => {
                Kubeconfig::merge(before, next).context("these kubeconfigs do not fit together")?
            }
        });
    }
    all.context("the kubeconfig has no name")
}

/// What may stand in a part of a path or a query as it is.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// A part of a path or a query, with everything escaped that could end it.
pub(crate) fn escape(text: &str) -> String {
    utf8_percent_encode(text, PLAIN).to_string()
}
