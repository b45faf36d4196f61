//! Clients in other languages, run against a hub while they write to it: client-go and the Python client.
//!
//! Both are programs of their own under `tests/clients`; they are built and installed once, into the cache.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use crate::support::{Hub, run_for, skip};

/// Where things that are made once are kept.
fn cache() -> PathBuf {
    #[expect(clippy::disallowed_methods, reason = "where the cache is, is the environment's to say")]
    let (named, home) = (std::env::var("LANDFALL_CACHE"), std::env::var("HOME"));
    let cache = named.map_or_else(|_| Path::new(&home.unwrap()).join(".cache/landfall"), PathBuf::from);
    std::fs::create_dir_all(cache.join("clients")).unwrap();
    cache.join("clients")
}

fn programs(language: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/clients").join(language)
}

fn runs(program: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(program);
    command.args(arguments).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}

/// Runs a command to its end, off the async threads.
async fn run(mut command: Command) -> Output {
    tokio::task::spawn_blocking(move || command.output().unwrap()).await.unwrap()
}

fn assert_success(output: &Output) {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(output.status.success(), "{}{}", text(&output.stdout), text(&output.stderr));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_go_agrees_with_the_hub() {
    if !runs("go", &["version"]) {
        return skip("go", "no Go toolchain found");
    }
    let program = cache().join("go-clients");
    let mut build = Command::new("go");
    build.current_dir(programs("go")).env("CGO_ENABLED", "0").args(["build", "-o"]).arg(&program).arg(".");
    assert_success(&run(build).await);

    let hub = Hub::start().await;
    let mut clients = Command::new(&program);
    clients.env("KUBE_FEATURE_WatchListClient", "true");
    clients.arg("--kubeconfig").arg(&hub.server.admin_kubeconfig);
    clients.args(["--seconds", &run_for().as_secs().to_string()]);
    let output = run(clients).await;
    assert_success(&output);
    hub.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_python_client_agrees_with_the_hub() {
    if !runs("python3", &["-c", "import venv, ensurepip"]) {
        return skip("python", "no python3 with venv found");
    }
    let home = cache().join("python");
    let python = home.join("bin/python");
    let wanted = programs("python").join("requirements.txt");
    // The mark says that everything was installed, and from which list.
    let mark = home.join("installed");
    if std::fs::read(&mark).ok() != std::fs::read(&wanted).ok() {
        let mut make = Command::new("python3");
        make.args(["-m", "venv"]).arg(&home);
        assert_success(&run(make).await);
        let mut install = Command::new(&python);
        install.args(["-m", "pip", "install", "--quiet", "-r"]).arg(&wanted);
        let installed = run(install).await;
        if !installed.status.success() {
            return skip("python", &String::from_utf8_lossy(&installed.stderr));
        }
        std::fs::copy(&wanted, &mark).unwrap();
    }
    let hub = Hub::start().await;
    let mut clients = Command::new(&python);
    clients.arg(programs("python").join("clients.py"));
    clients.arg("--kubeconfig").arg(&hub.server.admin_kubeconfig);
    clients.args(["--seconds", &run_for().as_secs().to_string()]);
    let output = run(clients).await;
    assert_success(&output);
    hub.stop().await;
}
