//! Secrets at rest: nobody reads them in the data directory, and a hub without the right key does not start.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use kube::api::PostParams;

use super::hub::{Hub, refused, secret};

const TEXT: &str = "correct horse battery staple";

/// Files under a directory that hold a text.
fn holding(directory: &Path, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(holding(&path, text));
        } else if std::fs::read(&path).unwrap().windows(text.len()).any(|part| part == text.as_bytes()) {
            found.push(path.display().to_string());
        }
    }
    found
}

async fn read(hub: &Hub) -> String {
    let secret = hub.secrets().await.get("a").await.unwrap();
    String::from_utf8(secret.data.unwrap().remove("text").unwrap().0).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn secrets_are_not_read_on_disk_and_keys_rotate() {
    let directory = tempfile::tempdir().unwrap();
    let hub = Hub::start(directory.path(), "127.0.0.1:0");
    // The kubeconfig names where it listened first.
    let address = hub.address.clone();
    let api = hub.secrets().await;
    let made = api.create(&PostParams::default(), &secret("a", TEXT)).await.unwrap();
    let again = api.replace("a", &PostParams::default(), &made).await.unwrap();
    assert_eq!(again.data, made.data);
    hub.stop();
    for text in [TEXT.to_owned(), BASE64.encode(TEXT)] {
        assert_eq!(holding(directory.path(), &text), [""; 0], "{text}");
    }
    let file = directory.path().join("secrets.key");
    let old = std::fs::read_to_string(&file).unwrap();
    let new = BASE64.encode([7; 32]);

    // Another key: refused with words that help, and nothing is changed.
    std::fs::write(&file, &new).unwrap();
    let (output, said) = refused(directory.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(
        said.contains("Secrets were encrypted with another key than those in")
            && said.contains("--encryption-key-file")
            && !said.contains(&new),
        "{said}"
    );
    // A new key in front, then alone.
    for keys in [format!("{new}\n{old}"), new] {
        std::fs::write(&file, keys).unwrap();
        let hub = Hub::start(directory.path(), &address);
        assert_eq!(read(&hub).await, TEXT);
        hub.stop();
    }
    std::fs::write(&file, &old).unwrap();
    assert!(refused(directory.path()).1.contains("another key"));
}
