//! No allocation for a question: counted by an allocator that counts.
#![expect(unsafe_code, reason = "an allocator is unsafe by its nature; this one only counts and passes on")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use crate::lab::{SEED, config, extended, question, responder};

thread_local!(static COUNT: Cell<u64> = const { Cell::new(0) });

struct Counting;

// SAFETY: everything is passed on to the system's allocator as it came.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // A thread that ends may have no counter any more.
        let _ = COUNT.try_with(|count| count.set(count.get() + 1));
        // SAFETY: as it came.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: as it came.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[test]
fn a_question_is_answered_without_allocation() {
    let responder = responder(&config());
    let stem = "my-service.my-namespace.my-federation.svc";
    let packets = [
        question(SEED, 1),
        question(SEED, 28),
        question(SEED, 255),
        question(&format!("_client._tcp.{SEED}"), 33),
        question(&format!("{stem}.asia-a.asia.my-domain.com"), 1),
        question("lonely.my-namespace.my-federation.svc.asia-a.asia.my-domain.com", 1),
        question("nobody.my-namespace.my-federation.my-domain.com", 1),
        question("any.apps.example.net", 1),
        question("my-domain.com", 2),
        question("example.org", 1),
        extended(SEED, 1, 1232, &[(8, &[0, 1, 24, 0, 81, 2, 69]), (10, b"8 bytes!"), (3, b"")]),
        vec![0; 40],
    ];
    let client = "198.51.100.1".parse().unwrap();
    let mut out = [0; 1232];
    responder.respond_udp(client, &packets[0], &mut out, 1);
    let before = COUNT.get();
    let mut answered = 0;
    for seed in 0..1000 {
        for packet in &packets {
            answered += usize::from(responder.respond_udp(client, packet, &mut out, seed).is_some());
        }
    }
    assert_eq!(COUNT.get() - before, 0, "allocations in {answered} answers");
    assert_eq!(answered, 12_000);
}
