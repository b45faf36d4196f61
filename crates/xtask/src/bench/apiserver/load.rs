//! Load: many kept-alive connections, each sending one request after the other.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::task::LocalSet;

use super::client::{Connection, Target};
use crate::shell::say;

/// The data of one object: with what the server adds, a little over 1 KB.
const DATA_BYTES: usize = 700;
/// Objects in each namespace, so that listing one is a list of as many.
pub(crate) const NAMESPACE_OBJECTS: usize = 500;

/// What a run did.
pub(crate) struct Done {
    pub(crate) count: usize,
    pub(crate) failures: usize,
    took: Duration,
}

impl Done {
    pub(crate) fn per_s(&self) -> f64 {
        (self.count - self.failures) as f64 / self.took.as_secs_f64()
    }
}

pub(crate) async fn create_namespace(target: &Target, name: &str) -> Result<()> {
    let body = format!(r#"{{"apiVersion":"v1","kind":"Namespace","metadata":{{"name":"{name}"}}}}"#);
    let code = target.connect().await?.send("POST", "/api/v1/namespaces", &body).await?;
    ensure!(code == 201, "creating a namespace gave {code}");
    Ok(())
}

/// A ConfigMap as it is sent.
pub(crate) fn config_map(name: &str, bytes: usize) -> String {
    let data = "x".repeat(bytes);
    format!(
        r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"name":"{name}","labels":{{"app":"bench"}}}},"data":{{"text":"{data}"}}}}"#
    )
}

/// The namespace with that number, each of which takes [`NAMESPACE_OBJECTS`].
pub(crate) fn namespace(number: usize) -> String {
    format!("bench-{number}")
}

fn path(number: usize) -> String {
    format!("/api/v1/namespaces/{}/configmaps", namespace(number))
}

/// Creates `count` objects named `o-0`, `o-1`, …, filling one namespace after the other.
pub(crate) async fn create(target: &Target, count: usize, connections: usize) -> Result<Done> {
    drive(target, connections, Until::Count(count), move |index| {
        let body = config_map(&format!("o-{index}"), DATA_BYTES);
        ("POST", path(index / NAMESPACE_OBJECTS), body, 201)
    })
    .await
}

/// Gets one object after the other.
pub(crate) async fn get(target: &Target, objects: usize, connections: usize, time: Duration) -> Result<Done> {
    drive(target, connections, Until::Time(time), move |index| {
        let index = index % objects;
        ("GET", format!("{}/o-{index}", path(index / NAMESPACE_OBJECTS)), String::new(), 200)
    })
    .await
}

/// Lists one namespace after the other.
pub(crate) async fn list(
    target: &Target,
    objects: usize,
    connections: usize,
    time: Duration,
) -> Result<Done> {
    let namespaces = objects / NAMESPACE_OBJECTS;
    drive(target, connections, Until::Time(time), move |index| {
        ("GET", path(index % namespaces), String::new(), 200)
    })
    .await
}

#[derive(Clone, Copy)]
enum Until {
    Count(usize),
    Time(Duration),
}

/// Method, path, body and the status code that means success.
type Request = (&'static str, String, String, u16);

async fn drive(
    target: &Target,
    connections: usize,
    until: Until,
    make: impl Fn(usize) -> Request + 'static,
) -> Result<Done> {
    let mut open = Vec::with_capacity(connections);
    for _ in 0..connections {
        open.push(target.connect().await?);
    }
    let tally = Rc::new(Tally::default());
    let make = Rc::new(make);
    let began = Instant::now();
    let set = LocalSet::new();
    for connection in open {
        set.spawn_local(one(connection, began, until, tally.clone(), make.clone()));
    }
    set.await;
    Ok(Done { count: tally.done.get(), failures: tally.failures.get(), took: tally.took.get() })
}

/// What all connections together did.
#[derive(Default)]
struct Tally {
    next: Cell<usize>,
    done: Cell<usize>,
    failures: Cell<usize>,
    /// Until the last success: a request that hangs until it fails is a failure, and no measure of speed.
    took: Cell<Duration>,
}

impl Tally {
    fn failed(&self, why: &str) {
        self.failures.set(self.failures.get() + 1);
        say(&format!("    failed: {why}"));
    }
}

async fn one(
    mut connection: Connection,
    began: Instant,
    until: Until,
    tally: Rc<Tally>,
    make: Rc<impl Fn(usize) -> Request>,
) {
    loop {
        let index = tally.next.get();
        let over = match until {
            Until::Count(count) => index >= count,
            Until::Time(time) => began.elapsed() >= time,
        };
        if over {
            return;
        }
        tally.next.set(index + 1);
        let (method, path, body, wanted) = make(index);
        let result = connection.send(method, &path, &body).await;
        tally.done.set(tally.done.get() + 1);
        match result {
            Ok(code) if code == wanted => tally.took.set(began.elapsed()),
            Ok(code) => tally.failed(&format!("{method} {path}: {code}")),
            Err(error) => {
                tally.failed(&format!("{method} {path}: {error}"));
                return;
            }
        }
    }
}
