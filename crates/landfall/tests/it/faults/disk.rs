//! A disk that becomes full: writes fail clearly, reads go on, and writes work again when there is room.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use kube::api::{ListParams, PostParams};

use super::hub::{Hub, secret};

/// A small file system in memory; unmounted when dropped.
struct Tmpfs(tempfile::TempDir);

impl Tmpfs {
    fn mount(size: &str) -> Option<Self> {
        let directory = tempfile::tempdir().unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"]).arg(directory.path());
        let mounted = mount.stderr(Stdio::null()).status().is_ok_and(|status| status.success());
        mounted.then_some(Self(directory))
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

impl Drop for Tmpfs {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(self.0.path()).status();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_stops_writes_only() {
    let Some(disk) = Tmpfs::mount("24m") else {
        // Not by a macro: those are hidden while a test passes.
        let mut stderr = std::io::stderr();
        writeln!(stderr, "SKIPPED: full disk: mounting a tmpfs is not allowed").unwrap();
        return;
    };
    let ballast = disk.path().join("ballast");
    std::fs::write(&ballast, vec![0; 8 * 1024 * 1024]).unwrap();
    let hub = Hub::start(&disk.path().join("hub"), "127.0.0.1:0");
    let api = hub.secrets().await;
    let text = "x".repeat(100_000);
    let mut written = 0;
    let refusal = loop {
        match api.create(&PostParams::default(), &secret(&format!("s{written:04}"), &text)).await {
            Ok(_) => written += 1,
            Err(kube::Error::Api(status)) => break status,
            Err(other) => panic!("not {other}"),
        }
        assert!(written < 1_000, "the disk never became full");
    };
    assert_eq!(refusal.code, 507, "{refusal:?}");
    assert!(
        refusal.message.contains("no space left") && refusal.message.contains("Free disk space"),
        "{refusal:?}"
    );
    let refused = format!("s{written:04}");
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), written, "reads go on");
    assert!(api.get_opt(&refused).await.unwrap().is_none());

    std::fs::remove_file(&ballast).unwrap();
    let again = async {
        while api.create(&PostParams::default(), &secret(&refused, &text)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), again).await.expect("writes work again");
    assert_eq!(api.list(&ListParams::default()).await.unwrap().items.len(), written + 1);
    hub.stop();
}
