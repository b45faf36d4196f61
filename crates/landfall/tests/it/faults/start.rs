//! Starts that must be refused, with words that help.

use std::os::unix::fs::FileExt as _;

use kube::api::PostParams;

use super::hub::{Hub, refused, secret};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_hub_on_one_directory_refuses() {
    let directory = tempfile::tempdir().unwrap();
    let hub = Hub::start(directory.path(), "127.0.0.1:0");
    let (output, said) = refused(directory.path());
    assert_eq!(output.status.code(), Some(1));
    assert!(said.contains("is in use by another process") && said.contains("--data-dir"), "{said}");
    let api = hub.secrets().await;
    api.create(&PostParams::default(), &secret("a", "x")).await.expect("the first one serves on");
    hub.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_damaged_data_file_is_not_started_from() {
    let directory = tempfile::tempdir().unwrap();
    let hub = Hub::start(directory.path(), "127.0.0.1:0");
    let api = hub.secrets().await;
    for index in 0..50 {
        api.create(&PostParams::default(), &secret(&format!("s{index}"), &"x".repeat(5_000))).await.unwrap();
    }
    hub.stop();
    let store = directory.path().join("store");
    let files = std::fs::read_dir(&store).unwrap().map(|entry| entry.unwrap().path());
    let file = files.max_by_key(|path| path.metadata().unwrap().len()).unwrap();
    let whole = std::fs::read(&file).unwrap();

    type Damage = fn(&std::fs::File, u64);
    let damages: [(&str, Damage); 3] = [
        ("overwritten", |file, length| {
            for at in (0..length).step_by(4096) {
                file.write_all_at(&[0xa5; 64], at + 512).unwrap();
            }
        }),
        ("cut off", |file, length| file.set_len(length / 3).unwrap()),
        ("without a beginning", |file, _| file.write_all_at(&[0; 512], 0).unwrap()),
    ];
    for (what, damage) in damages {
        let open = std::fs::File::options().write(true).truncate(true).open(&file).unwrap();
        open.write_all_at(&whole, 0).unwrap();
        damage(&open, whole.len() as u64);
        drop(open);
        let before = std::fs::read(&file).unwrap();
        let (output, said) = refused(directory.path());
        assert_eq!(output.status.code(), Some(1), "{what}: {said}");
        assert!(said.contains("is damaged") && said.contains("Restore it from a backup"), "{what}: {said}");
        // redb may trip over what it reads, which is caught; the last word is ours.
        assert!(said.lines().last().is_some_and(|line| line.starts_with("error: ")), "{what}: {said}");
        assert_eq!(std::fs::read(&file).unwrap(), before, "{what}: the file is as it was");
    }
    std::fs::write(&file, &whole).unwrap();
    let hub = Hub::start(directory.path(), "127.0.0.1:0");
    hub.stop();
}
