//! Disks that fail: power cuts, and no room.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use redb::StorageBackend;

use super::file::Medium;
use super::{Config, Embedded};
use crate::Store;

/// A disk in memory that a test can break.
#[derive(Clone, Debug, Default)]
pub(super) struct Disk(Arc<parking_lot::Mutex<Platter>>);

#[derive(Debug, Default)]
struct Platter {
    /// What a read sees.
    cached: Vec<u8>,
    /// What is surely there after a power cut.
    synced: Vec<u8>,
    /// Writes since then, any of which may be there too.
    unsynced: Vec<(usize, Vec<u8>)>,
    /// Writes fail when the disk would become longer than this.
    full_at: Option<u64>,
    /// Every write fails.
    no_writes: bool,
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().cached.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let platter = self.0.lock();
        let from = usize::try_from(offset).unwrap();
        let Some(found) = platter.cached.get(from..from + out.len()) else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        out.copy_from_slice(found);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut platter = self.0.lock();
        if platter.no_writes || platter.full_at.is_some_and(|limit| len > limit) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        platter.cached.resize(usize::try_from(len).unwrap(), 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        // As long as on a real disk, so that cuts come in between.
        std::thread::sleep(std::time::Duration::from_millis(1));
        let platter = &mut *self.0.lock();
        platter.synced.clone_from(&platter.cached);
        platter.unsynced.clear();
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut platter = self.0.lock();
        if platter.no_writes {
            return Err(io::ErrorKind::StorageFull.into());
        }
        let from = usize::try_from(offset).unwrap();
        platter.cached[from..from + data.len()].copy_from_slice(data);
        platter.unsynced.push((from, data.to_vec()));
        Ok(())
    }
}

impl Disk {
    /// The disk after the power was cut and came back: some of the writes that were not synced are there.
    fn after_power_cut(&self, mut luck: u64) -> Self {
        let platter = self.0.lock();
        let mut synced = platter.synced.clone();
        synced.resize(synced.len().max(platter.cached.len()), 0);
        for (from, data) in &platter.unsynced {
            luck = luck.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            if luck >> 63 == 1 {
                synced[*from..from + data.len()].copy_from_slice(data);
            }
        }
        drop(platter);
        let platter = Platter { cached: synced.clone(), synced, ..Platter::default() };
        Self(Arc::new(parking_lot::Mutex::new(platter)))
    }
}

fn open(disk: &Disk) -> Embedded {
    let disk = disk.clone();
    let medium = Medium::Made(Box::new(move || disk.clone()));
    Embedded::open(Config::new("unused"), medium, None).expect("the disk is whole")
}

fn small(index: usize) -> bytes::Bytes {
    format!("{index:0>200}").into()
}

fn value(index: usize) -> bytes::Bytes {
    format!("{index:0>2000}").into()
}

/// Writers work while the power is cut again and again (on a copy of the disk): what was acknowledged before is there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_power_cut_loses_no_acknowledged_write() {
    const WRITERS: usize = 4;
    const CUTS: u64 = 40;
    // So that copies of the disk stay small.
    const WRITES_MAX: usize = 500;
    let disk = Disk::default();
    let store = Arc::new(open(&disk));
    let counts: Arc<[AtomicUsize; WRITERS]> = Arc::default();
    let mut writers = tokio::task::JoinSet::new();
    for writer in 0..WRITERS {
        let (store, counts) = (Arc::clone(&store), Arc::clone(&counts));
        writers.spawn(async move {
            for index in 0..WRITES_MAX {
                store.create(&format!("k/{writer}/{index}"), small(index), None).await.unwrap();
                counts[writer].store(index + 1, Ordering::SeqCst);
            }
        });
    }
    let mut torn = 0;
    for cut in 0..CUTS {
        tokio::time::sleep(std::time::Duration::from_micros(cut * 37 % 1000)).await;
        let acknowledged: Vec<_> = counts.iter().map(|count| count.load(Ordering::SeqCst)).collect();
        let copy = disk.after_power_cut(cut);
        torn += usize::from(!disk.0.lock().unsynced.is_empty());
        let state = open(&copy).snapshot();
        let found: Vec<_> =
            (0..WRITERS).map(|writer| state.range(&format!("k/{writer}/"), "").count()).collect();
        assert!(
            found.iter().zip(&acknowledged).all(|(found, known)| found >= known),
            "{found:?} {acknowledged:?}"
        );
        assert_eq!(found.iter().sum::<usize>() as u64, state.revision() - 1, "no revision is half there");
        for (writer, found) in found.iter().enumerate() {
            let whole =
                |index: &usize| state.get(&format!("k/{writer}/{index}")).unwrap().value == small(*index);
            assert!((0..*found).filter(|index| index % 7 == 0).all(|index| whole(&index)));
        }
    }
    writers.shutdown().await;
    assert!(torn > 0, "no cut came between a write and its sync");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_writes_serves_reads_and_heals() {
    let check = async |fill: fn(&mut Platter)| {
        let disk = Disk::default();
        let store = open(&disk);
        let kept = store.create("k/kept", value(1), None).await.unwrap();
        fill(&mut disk.0.lock());
        let mut refused = 0;
        let mut written = 1;
        for index in 0..3000 {
            match store.create(&format!("k/{index}"), value(index), None).await {
                Ok(_) => written += 1,
                Err(crate::Error::Full(_)) => refused += 1,
                Err(other) => panic!("not {other}"),
            }
            if refused > 3 {
                break;
            }
        }
        assert!(refused > 3, "the disk never became full");
        assert!(matches!(store.check().await, Err(crate::Error::Full(_)) | Ok(())));
        assert_eq!(store.snapshot().get("k/kept").unwrap().revision, kept.revision);
        assert_eq!(store.snapshot().len(), written);

        {
            let mut platter = disk.0.lock();
            platter.full_at = None;
            platter.no_writes = false;
        }
        let entry = loop {
            match store.create("k/after", value(2), None).await {
                Ok(entry) => break entry,
                Err(crate::Error::Full(_)) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
                Err(other) => panic!("not {other}"),
            }
        };
        store.check().await.unwrap();
        assert_eq!(entry.revision, u64::try_from(written).unwrap() + 2, "refused writes take no revision");
        let again = open(&disk.after_power_cut(1));
        assert_eq!(again.snapshot().len(), written + 1);
    };
    check(|platter| platter.full_at = Some(4 << 20)).await;
    check(|platter| platter.no_writes = true).await;
}
