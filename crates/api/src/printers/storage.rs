//! Sheets of volumes and claims, for simulated members.

use serde_json::Value;

use super::cells::{UNSET, age, find, items, name, plain, text};
use super::sheet::{Col, Sheet};
use crate::meta;

const MODE: Col = Col::text("VolumeMode", "A file system or a block device.").wide();

pub(super) const VOLUME: Sheet = Sheet::new(
    &[
        Col::NAME,
        Col::text("Capacity", "How large it is."),
        Col::text("Access Modes", "How it can be mounted."),
        Col::text("Reclaim Policy", "What becomes of it when its claim is gone."),
        Col::text("Status", "Whether it is available, bound or released."),
        Col::text("Claim", "Which claim it is bound to."),
        Col::text("StorageClass", "Its storage class."),
        Col::text("VolumeAttributesClass", "Its volume attributes class."),
        Col::text("Reason", "Why it failed, if it did."),
        Col::AGE,
        MODE,
    ],
    |object, now_s| {
        let claim = object.pointer("/spec/claimRef").filter(|claim| claim.is_object());
        let claim = claim.map(|claim| format!("{}/{}", text(claim, "/namespace"), text(claim, "/name")));
        vec![
            name(object),
            plain(object.pointer("/spec/capacity/storage")).unwrap_or_else(|| "0".into()).into(),
            access_modes(items(object, "/spec/accessModes")).into(),
            text(object, "/spec/persistentVolumeReclaimPolicy").into(),
            phase(object),
            claim.unwrap_or_default().into(),
            class(object),
            find(object, "/spec/volumeAttributesClassName").unwrap_or(UNSET).into(),
            text(object, "/status/reason").into(),
            age(object, now_s),
            find(object, "/spec/volumeMode").unwrap_or(UNSET).into(),
        ]
    },
);

pub(super) const CLAIM: Sheet = Sheet::new(
    &[
        Col::NAME,
        Col::text("Status", "Whether it is bound."),
        Col::text("Volume", "The volume it is bound to."),
        Col::text("Capacity", "How large that volume is."),
        Col::text("Access Modes", "How that volume can be mounted."),
        Col::text("StorageClass", "Its storage class."),
        Col::text("VolumeAttributesClass", "Its volume attributes class."),
        Col::AGE,
        MODE,
    ],
    |object, now_s| {
        let volume = text(object, "/spec/volumeName");
        let (capacity, modes) = if volume.is_empty() {
            Default::default()
        } else {
            let capacity = plain(object.pointer("/status/capacity/storage")).unwrap_or_else(|| "0".into());
            (capacity, access_modes(items(object, "/status/accessModes")))
        };
        vec![
            name(object),
            phase(object),
            volume.into(),
            capacity.into(),
            modes.into(),
            class(object),
            find(object, "/spec/volumeAttributesClassName").unwrap_or(UNSET).into(),
            age(object, now_s),
            find(object, "/spec/volumeMode").unwrap_or(UNSET).into(),
        ]
    },
);

fn phase(object: &Value) -> Value {
    if meta::deleting(object) { "Terminating".into() } else { text(object, "/status/phase").into() }
}

/// The storage class; an old annotation comes first.
fn class(object: &Value) -> Value {
    let annotated = meta::annotation(object, "volume.beta.kubernetes.io/storage-class");
    annotated.unwrap_or_else(|| text(object, "/spec/storageClassName")).into()
}

fn access_modes(modes: &[Value]) -> String {
    const SHORT: [(&str, &str); 4] = [
        ("ReadWriteOnce", "RWO"),
        ("ReadOnlyMany", "ROX"),
        ("ReadWriteMany", "RWX"),
        ("ReadWriteOncePod", "RWOP"),
    ];
    let has = |mode: &str| modes.iter().any(|m| m.as_str() == Some(mode));
    SHORT.iter().filter(|(mode, _)| has(mode)).map(|(_, short)| *short).collect::<Vec<_>>().join(",")
}
