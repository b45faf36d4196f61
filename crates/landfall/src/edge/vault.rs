//! `Vault`: a Secret of the member in which an edge that is a pod keeps what is in its data directory.
//!
//! A pod's disk does not outlive the pod. With its key and its certificate in a Secret, a pod that comes back is the same edge
//! without a token, so tokens may be short-lived; with the last plans beside them, it answers names even if the hub is away.
//!
//! The Secret is made by `landfall edge install`; the pods' account may read and change it, and no other. All edges of a member
//! share it: what is each edge's own has the edge's name before it.
//!
//! A Secret holds a megabyte. Of plans that need more, the rest stands in further Secrets, [`PAGES_MAX`] of them; each bears the mark of
//! the whole, so that what was written in part is not taken for it.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use k8s_openapi::api::core::v1::Secret;
use kube::api::{Api, Patch, PatchParams};
use landfall_runtime::clock;
use landfall_runtime::files::write_whole;
use serde_json::{Map, Value, json};

use super::own::{self, Access};

/// How often is looked whether a file has changed.
const LOOK_EVERY: Duration = Duration::from_secs(2);
/// Plans are kept at most so often: they change all the time, and the hub has them. The more they are, the less often, so that no
/// more than so many bytes a second are written.
const PLANS_EVERY: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(60));
const PLANS_BYTES_PER_S: usize = 100_000;
/// How long to wait after a failure.
const RETRY: Duration = Duration::from_secs(15);
/// How long the last plans may take to be kept when the edge is told to stop.
const LAST_MAX: Duration = Duration::from_secs(5);
/// A Secret holds a megabyte; the certificates need some of it.
const PAGE_BYTES_MAX: usize = 700_000;
/// So many further Secrets there are for plans.
pub(super) const PAGES_MAX: usize = 8;
/// Plans are not larger than this when they are unpacked.
const UNPACKED_BYTES_MAX: u64 = 256 << 20;
/// How long the member's API may take.
const ANSWER_MAX: Duration = Duration::from_secs(10);

const KEY: &str = "edge.key";
const CERTIFICATE: &str = "edge.crt";
const AUTHORITY: &str = "hub-ca.crt";
const PLANS: &str = "plans.json";
/// The plans' key in the Secret, and in the further ones.
const PACKED: &str = "plans.json.gz";
/// The mark of the whole, and how many further Secrets have a part of it.
const WHOLE: &str = "plans.whole";

/// What is kept: keys of the Secret and their bytes.
type Kept = BTreeMap<String, Vec<u8>>;

/// A Secret that keeps the files of a directory.
pub(super) struct Vault {
    /// How the member's API is reached.
    pub(super) access: Access,
    /// The Secret, in the pod's own namespace.
    pub(super) secret: String,
    /// The edge.
    pub(super) edge: String,
    /// The directory.
    pub(super) dir: PathBuf,
}

impl Vault {
    /// Brings what was kept into the directory. What is there already is newer.
    pub(super) async fn restore(&self) -> Result<()> {
        if self.dir.join(CERTIFICATE).exists() {
            return Ok(());
        }
        let api = self.open().await?;
        let kept = self.read(&api, &self.secret).await?;
        let own = |file: &str| kept.get(&own_key(&self.edge, file)).cloned();
        let packed = self.whole(&api, &kept).await;
        let files = [
            (AUTHORITY, kept.get(AUTHORITY).cloned()),
            (PLANS, packed.and_then(|packed| unpack(&packed))),
            (KEY, own(KEY)),
            (CERTIFICATE, own(CERTIFICATE)),
        ];
        for (file, bytes) in files {
            let Some(bytes) = bytes else { continue };
            let path = self.dir.join(file);
            write_whole(&path, &bytes).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }

    /// What was kept of plans, packed; none if it is not all there.
    async fn whole(&self, api: &Api<Secret>, kept: &Kept) -> Option<Vec<u8>> {
        let mut packed = kept.get(PACKED)?.clone();
        let Some(mark) = kept.get(WHOLE) else { return Some(packed) };
        for page in 1..=pages(mark)? {
            let found = self.read(api, &page_name(&self.secret, page)).await.ok()?;
            packed.extend(found.get(PACKED).filter(|_| found.get(WHOLE) == Some(mark))?);
        }
        (self::mark(&packed) == *mark).then_some(packed)
    }

    /// Keeps the Secret as the directory is, until it is told to stop; then once more.
    pub(super) async fn keep(&self, stop: impl Future<Output = ()>) {
        tokio::select! {
            () = self.keep_on() => {}
            () = stop => {}
        }
        let (wanted, pages) = self.wanted(true);
        match tokio::time::timeout(LAST_MAX, self.write(&wanted, &pages)).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => {
                tracing::warn!(error = format!("{error:#}"), "the last plans cannot be kept");
            }
            Err(_) => tracing::warn!("the last plans cannot be kept: the own cluster does not answer"),
        }
    }

    async fn keep_on(&self) {
        let mut known: Option<Kept> = None;
        let mut plans_due = clock::instant();
        loop {
            tokio::time::sleep(LOOK_EVERY).await;
            let now = clock::instant();
            let (wanted, pages) = self.wanted(now >= plans_due);
            let changed = |known: &Kept| differs(known, &wanted).next().is_some();
            if known.as_ref().is_some_and(|known| !changed(known)) {
                continue;
            }
            match self.write(&wanted, &pages).await {
                Ok(kept) => {
                    if let Some(first) = wanted.get(PACKED) {
                        let bytes = first.len() + pages.iter().map(Vec::len).sum::<usize>();
                        let seconds = u64::try_from(bytes / PLANS_BYTES_PER_S).unwrap_or(u64::MAX);
                        plans_due = now + Duration::from_secs(seconds).clamp(PLANS_EVERY.0, PLANS_EVERY.1);
                    }
                    known = Some(kept);
                }
                Err(error) => {
                    tracing::warn!(
                        secret = self.secret,
                        error = format!("{error:#}"),
                        "cannot keep what must outlive this pod"
                    );
                    tokio::time::sleep(RETRY).await;
                }
            }
        }
    }

    /// What shall be kept now: in the Secret, and the pages in further ones.
    fn wanted(&self, plans: bool) -> (Kept, Vec<Vec<u8>>) {
        let read = |file: &str| std::fs::read(self.dir.join(file)).ok();
        let mut wanted = Kept::new();
        // A certificate is taken away before its key is replaced: one that is still the same afterwards is this key's.
        let (certificate, key) = (read(CERTIFICATE), read(KEY));
        if let (Some(certificate), Some(key)) = (certificate, key)
            && read(CERTIFICATE).as_ref() == Some(&certificate)
        {
            wanted.insert(own_key(&self.edge, CERTIFICATE), certificate);
            wanted.insert(own_key(&self.edge, KEY), key);
        }
        wanted.extend(read(AUTHORITY).map(|bytes| (AUTHORITY.to_owned(), bytes)));
        if plans && let Some(packed) = read(PLANS).and_then(|bytes| pack(&bytes).ok()) {
            let mut parts = packed.chunks(PAGE_BYTES_MAX).map(<[u8]>::to_vec);
            if packed.len() <= PAGE_BYTES_MAX * (PAGES_MAX + 1) {
                wanted.extend(parts.next().map(|first| (PACKED.to_owned(), first)));
                wanted.insert(WHOLE.to_owned(), mark(&packed));
                return (wanted, parts.collect());
            }
            tracing::warn!(bytes = packed.len(), "the plans are too large to outlive this pod");
        }
        (wanted, Vec::new())
    }

    /// Writes what is not there already; gives what is there then.
    async fn write(&self, wanted: &Kept, pages: &[Vec<u8>]) -> Result<Kept> {
        let api = self.open().await?;
        let mut kept = self.read(&api, &self.secret).await?;
        // The further pages first: the first one says which they are.
        for (page, at) in pages.iter().zip(1..) {
            let mark = wanted.get(WHOLE).cloned().unwrap_or_default();
            let page = Kept::from([(PACKED.to_owned(), page.clone()), (WHOLE.to_owned(), mark)]);
            let secret = page_name(&self.secret, at);
            patch(&api, &secret, page.iter())
                .await
                .with_context(|| format!("the plans need the Secret {secret}"))?;
        }
        patch(&api, &self.secret, differs(&kept, wanted)).await?;
        kept.extend(wanted.iter().map(|(key, bytes)| (key.clone(), bytes.clone())));
        Ok(kept)
    }

    async fn read(&self, api: &Api<Secret>, secret: &str) -> Result<Kept> {
        let read = tokio::time::timeout(ANSWER_MAX, api.get(secret)).await;
        let secret = read.context("the own cluster does not answer")??;
        Ok(secret.data.unwrap_or_default().into_iter().map(|(key, bytes)| (key, bytes.0)).collect())
    }

    async fn open(&self) -> Result<Api<Secret>> {
        Ok(Api::default_namespaced(own::connect(&self.access).await?))
    }
}

/// Writes these into a Secret.
async fn patch<'a>(
    api: &Api<Secret>,
    secret: &str,
    what: impl Iterator<Item = (&'a String, &'a Vec<u8>)>,
) -> Result<()> {
    let data: Map<String, Value> =
        what.map(|(key, bytes)| (key.clone(), BASE64.encode(bytes).into())).collect();
    if !data.is_empty() {
        let (params, patch) = (PatchParams::default(), Patch::Merge(json!({"data": data})));
        let write = api.patch(secret, &params, &patch);
        tokio::time::timeout(ANSWER_MAX, write).await.context("the own cluster does not answer")??;
    }
    Ok(())
}

/// The Secret of a further page.
pub(super) fn page_name(secret: &str, page: usize) -> String {
    format!("{secret}-{page}")
}

/// What marks a whole: a number made of it, and how many further pages it has.
fn mark(packed: &[u8]) -> Vec<u8> {
    let pages = packed.len().saturating_sub(1) / PAGE_BYTES_MAX;
    let hash = packed.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    });
    format!("{hash:016x} {pages}").into_bytes()
}

/// How many further pages a mark tells of; none if it is no mark.
fn pages(mark: &[u8]) -> Option<usize> {
    let (_, pages) = std::str::from_utf8(mark).ok()?.split_once(' ')?;
    pages.parse().ok().filter(|pages| *pages <= PAGES_MAX)
}

fn own_key(edge: &str, file: &str) -> String {
    format!("{edge}.{file}")
}

/// What is wanted and not kept.
fn differs<'a>(kept: &'a Kept, wanted: &'a Kept) -> impl Iterator<Item = (&'a String, &'a Vec<u8>)> {
    wanted.iter().filter(|(key, bytes)| kept.get(*key) != Some(bytes))
}

/// The same bytes for the same plans, whichever edge packs them.
fn pack(bytes: &[u8]) -> std::io::Result<Vec<u8>> {
    let mut packer = GzEncoder::new(Vec::new(), Compression::default());
    packer.write_all(bytes)?;
    packer.finish()
}

/// What was packed; none if it cannot be read.
fn unpack(packed: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    GzDecoder::new(packed).take(UNPACKED_BYTES_MAX).read_to_end(&mut bytes).ok()?;
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_kept_with_its_own_certificate() {
        let dir = tempfile::tempdir().unwrap();
        let vault = Vault {
            access: Access::InCluster,
            secret: "kept".into(),
            edge: "us-east-landfall-edge-0".into(),
            dir: dir.path().to_owned(),
        };
        assert!(vault.wanted(true).0.is_empty());
        std::fs::write(dir.path().join(KEY), "key").unwrap();
        assert!(vault.wanted(true).0.is_empty(), "a key alone is nobody's");
        std::fs::write(dir.path().join(CERTIFICATE), "certificate").unwrap();
        std::fs::write(dir.path().join(PLANS), "{}").unwrap();
        let keys = |plans| vault.wanted(plans).0.into_keys().collect::<Vec<_>>();
        let own = ["us-east-landfall-edge-0.edge.crt", "us-east-landfall-edge-0.edge.key"];
        assert_eq!(keys(false), own);
        assert_eq!(keys(true), ["plans.json.gz", "plans.whole", own[0], own[1]]);
        let (kept, pages) = vault.wanted(true);
        assert!(pages.is_empty());
        assert_eq!(unpack(&kept[PACKED]).as_deref(), Some(&b"{}"[..]));
        assert_eq!(differs(&kept, &vault.wanted(true).0).count(), 0, "packed again it is the same");
        assert_eq!(unpack(b"no archive"), None);
        // What does not fit into one goes into several.
        let mut luck = 1_u64;
        let noise: Vec<u8> = std::iter::repeat_with(|| {
            luck = luck.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (luck >> 56) as u8
        })
        .take(2 * PAGE_BYTES_MAX + 100_000)
        .collect();
        std::fs::write(dir.path().join(PLANS), &noise).unwrap();
        let (kept, further) = vault.wanted(true);
        assert_eq!((further.len(), self::pages(&kept[WHOLE])), (2, Some(2)));
        let whole = [kept[PACKED].clone(), further.concat()].concat();
        assert!(mark(&whole) == kept[WHOLE] && unpack(&whole).unwrap() == noise);
    }
}
