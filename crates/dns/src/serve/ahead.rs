//! Looking ahead: the memory that the answers of a batch stand in is asked for before the first of them is written, so that
//! it comes for all of them at once. Each answer would wait for its own otherwise: names are asked in no order, and the kernel's
//! work between two batches drives everything out of the caches.
#![expect(
    unsafe_code,
    reason = "the processor's hint to fetch memory takes an address; nothing else is done here"
)]

use crate::wire::name::NAME_MAX;
use crate::zone::Snapshot;
use crate::zone::table::hash;

use super::batch::{Batch, SLOTS};

/// A question's name begins after the header.
const HEADER: usize = 12;
/// What the processor fetches at once.
const LINE: usize = 64;

/// What the packets of one batch ask for: their services' names, as hashes.
pub(crate) struct Ahead([u64; SLOTS]);

impl Ahead {
    pub(crate) fn new() -> Self {
        Self([0; SLOTS])
    }

    /// Looks at the packets of a batch. What is guessed wrong is looked up all the same, later.
    pub(crate) fn look(&mut self, batch: &Batch, got: usize, snapshot: &Snapshot) {
        // One alone has nobody to come together with.
        let got = if got > 1 { got.min(SLOTS) } else { 0 };
        for (slot, hash) in self.0[..got].iter_mut().enumerate() {
            *hash = batch.bytes(slot).and_then(service).unwrap_or(0);
            if let Some(entry) = snapshot.services.first_slot(*hash) {
                fetch(entry);
            }
        }
        for service in self.0[..got].iter().filter_map(|hash| snapshot.services.guess(*hash)) {
            fetch(&**service);
        }
    }
}

/// The hash of the two labels that a question begins with: mostly they are a service's name and namespace.
fn service(packet: &[u8]) -> Option<u64> {
    let question = packet.get(HEADER..)?;
    let first = 1 + usize::from(*question.first()?);
    let second = first + 1 + usize::from(*question.get(first)?);
    let mut lower = [0; NAME_MAX];
    let key = lower.get_mut(..second)?;
    key.copy_from_slice(question.get(..second)?);
    key.make_ascii_lowercase();
    Some(hash(key))
}

/// Asks for the memory of something that will be read soon, and waits for nothing.
fn fetch<T>(place: &T) {
    let start = std::ptr::from_ref(place).cast::<i8>();
    for at in (0..size_of::<T>()).step_by(LINE).chain([size_of::<T>().saturating_sub(1)]) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the address is one of `place`, and a hint changes nothing that a program can see.
        unsafe {
            use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
            _mm_prefetch::<_MM_HINT_T0>(start.add(at));
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = (start, at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_question_begins_with_its_service() {
        let packet = |name: &[u8]| [&[0; HEADER][..], name].concat();
        let web = service(&packet(b"\x03WeB\x04shop\x03fed\x00"));
        assert_eq!(web, Some(hash(b"\x03web\x04shop")));
        assert_eq!(service(&packet(b"\x03web")), None);
        assert_eq!(service(&packet(b"")), None);
        assert_eq!(service(b"short"), None);
        assert_eq!(service(&packet(&[255; 300])), None);
    }
}
