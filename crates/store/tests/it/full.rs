//! A real file system becomes full: writes fail clearly, reads go on, and writes work again when there is room.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use landfall_store::embedded::Config;
use landfall_store::{Error, open_embedded};

/// A small file system in memory; unmounted when dropped.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn mount(size: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(directory.path())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|status| status.success());
        mounted.then_some(Self(directory))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        Command::new("umount").arg("-l").arg(self.path()).status().unwrap();
    }
}

fn ballast(path: &Path) -> PathBuf {
    path.join("ballast")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_file_system() {
    let Some(disk) = Tmpfs::mount("12m") else {
        let mut stderr = std::io::stderr();
        writeln!(stderr, "SKIPPED: store on a full disk: cannot mount a tmpfs (needs root)").unwrap();
        return;
    };
    let directory = disk.path().join("data");
    let store = open_embedded(Config::new(&directory)).unwrap();
    std::fs::write(ballast(disk.path()), vec![1; 6 << 20]).unwrap();
    let value = |index: usize| Bytes::from(vec![u8::try_from(index % 251).unwrap(); 20_000]);
    let (mut written, mut refused) = (0, 0);
    while refused < 5 {
        match store.create(&format!("a/{written}"), value(written), None).await {
            Ok(_) => written += 1,
            Err(Error::Full(text)) => {
                assert!(text.contains("No space left"), "{text}");
                refused += 1;
            }
            Err(other) => panic!("not {other}"),
        }
        assert!(written < 2000, "the disk never becomes full");
    }
    assert!(written > 50, "only {written} written");
    assert_eq!(store.snapshot().len(), written);
    assert_eq!(store.snapshot().get("a/7").unwrap().value, value(7));

    std::fs::remove_file(ballast(disk.path())).unwrap();
    let mut attempts = 0;
    loop {
        match store.create(&format!("a/{written}"), value(written), None).await {
            Ok(_) => break,
            Err(Error::Full(_)) => tokio::time::sleep(Duration::from_millis(50)).await,
            Err(other) => panic!("not {other}"),
        }
        attempts += 1;
        assert!(attempts < 200, "writes never work again");
    }
    store.check().await.unwrap();
    store.close().await;
    drop(store);

    let again = open_embedded(Config::new(&directory)).unwrap();
    let state = again.snapshot();
    assert_eq!(state.len(), written + 1);
    assert!((0..=written).all(|index| state.get(&format!("a/{index}")).unwrap().value == value(index)));
    again.close().await;
}
