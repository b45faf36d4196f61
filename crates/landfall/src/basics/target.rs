//! Which server a command talks to, and talking to it.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, anyhow, bail};
use http::{Method, Request};
use kube::client::Client;
use kube::config::{KubeConfigOptions, Kubeconfig};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;

use super::options::Connection;
use crate::playground;

/// How long a connection may take to come about.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A server, and the namespace that is meant when none is named.
pub(crate) struct Target {
    client: Client,
    pub(crate) namespace: String,
}

impl Target {
    /// Finds the server by what was typed, by the playground that runs, or as kubectl would.
    pub(crate) async fn find(connection: &Connection) -> Result<Self> {
        let kubeconfig = kubeconfig(connection.kubeconfig.as_deref())?;
        let mut target = Self::of(kubeconfig, connection.context.as_deref()).await?;
        if let Some(namespace) = &connection.namespace {
            target.namespace.clone_from(namespace);
        }
        Ok(target)
    }

    /// The server that a context names; the current one when none is given.
    pub(crate) async fn of(kubeconfig: Kubeconfig, context: Option<&str>) -> Result<Self> {
        if let Some(name) = context
            && !kubeconfig.contexts.iter().any(|context| context.name == *name)
        {
            let known: Vec<_> = kubeconfig.contexts.iter().map(|c| c.name.as_str()).collect();
            bail!("there is no context {name:?}; there are {}", known.join(", "));
        }
        let options =
            KubeConfigOptions { context: context.map(str::to_owned), ..KubeConfigOptions::default() };
        let mut config = kube::Config::from_custom_kubeconfig(kubeconfig, &options)
            .await
            .context("cannot use the kubeconfig")?;
        config.connect_timeout = Some(CONNECT_TIMEOUT);
        let namespace = config.default_namespace.clone();
        Ok(Self { client: Client::try_from(config).context("cannot make a client")?, namespace })
    }

    /// Who speaks to it, for those that follow changes.
    pub(crate) fn client(&self) -> Client {
        self.client.clone()
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

    /// Gets something that may not be there.
    pub(crate) async fn look(&self, path: &str) -> Result<Option<Value>> {
        absent(self.ask(Method::GET, path, &[], Vec::new()).await)
    }

    /// The same for something that one may not be allowed to look at: then nothing at all.
    pub(crate) async fn glance(&self, path: &str) -> Result<Option<Option<Value>>> {
        match self.ask(Method::GET, path, &[], Vec::new()).await {
            Err(kube::Error::Api(status)) if status.code == 403 => Ok(None),
            answer => absent(answer).map(Some),
        }
    }

    /// Deletes something that may not be there; whether it was.
    pub(crate) async fn remove(&self, path: &str) -> Result<bool> {
        Ok(absent(self.ask(Method::DELETE, path, &[], Vec::new()).await)?.is_some())
    }

    /// Changes a few fields of an object, under a manager's name of their own.
    pub(crate) async fn merge(&self, path: &str, fields: &Value, manager: &str) -> Result<Value> {
        let path = format!("{path}?fieldManager={manager}");
        let headers = [("content-type", "application/merge-patch+json")];
        self.send(Method::PATCH, &path, &headers, serde_json::to_vec(fields)?).await
    }

    /// Makes something.
    pub(crate) async fn post(&self, path: &str, object: &Value) -> Result<Value> {
        let headers = [("content-type", "application/json")];
        self.send(Method::POST, path, &headers, serde_json::to_vec(object)?).await
    }

    async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Result<Value> {
        self.ask(method, path, headers, body).await.map_err(said)
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Vec<u8>,
    ) -> Result<Value, kube::Error> {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let request = request.body(body).map_err(kube::Error::HttpError)?;
        self.client.request(request).await
    }
}

/// What is not there is no error.
fn absent(answer: Result<Value, kube::Error>) -> Result<Option<Value>> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(kube::Error::Api(status)) if status.code == 404 => Ok(None),
        Err(error) => Err(said(error)),
    }
}

/// An error as kubectl says it.
fn said(error: kube::Error) -> anyhow::Error {
    match error {
        kube::Error::Api(status) if status.reason.is_empty() => anyhow!("{}", status.message),
        kube::Error::Api(status) => anyhow!("from server ({}): {}", status.reason, status.message),
        other => anyhow!(other),
    }
}

/// The kubeconfig that was typed, the running playground's, or kubectl's own.
pub(crate) fn kubeconfig(file: Option<&Path>) -> Result<Kubeconfig> {
    let file = match file {
        Some(file) => Some(file.to_owned()),
        None => playground::only_running().map(|running| running.kubeconfig),
    };
    match &file {
        Some(files) => read(files),
        None => Kubeconfig::read().context(
            "there is no kubeconfig and no single running playground: start one with `landfall playground`, or give \
             --kubeconfig",
        ),
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
