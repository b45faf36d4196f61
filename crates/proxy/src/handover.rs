//! Handing clients over to the process that takes over, which listens at the same address (SO_REUSEPORT).
//!
//! The kernel spreads clients over all listeners of an address, and refuses whoever is on their way to one that closes: their
//! handshake was begun with it. So a listener that will close first has new clients led to the others, and takes in for a while
//! those who were under way.
//!
//! The kernel keeps the listeners of an address in a row. Ours came before those of whoever takes over, and when others leave, ours
//! fill their places: they are the first so many, and the one after them is not ours. A program of one instruction names the place
//! that new clients go to; where nobody stands there, the kernel spreads them as ever.
//! Passing the sockets themselves to the next process would do as well, but both would need a common place in a file system, which
//! pods that replace each other do not have.

use std::os::fd::AsFd;

use nix::sys::socket::setsockopt;
use nix::sys::socket::sockopt::AttachReusePortCbpf;

/// No listener has this place.
const NOWHERE: u32 = u32::MAX;

/// Has new clients led to listeners of other processes at the address of this one, of which `own` are ours.
pub(crate) fn lead_on(listener: &impl AsFd, own: usize) {
    name_place(listener, u32::try_from(own).unwrap_or(NOWHERE));
}

/// Has clients spread over all listeners of an address again, whatever was said before.
pub(crate) fn spread(listener: &impl AsFd) {
    name_place(listener, NOWHERE);
}

fn name_place(listener: &impl AsFd, place: u32) {
    let returns = u16::try_from(libc::BPF_RET | libc::BPF_K).unwrap_or(0);
    let mut program = [libc::sock_filter { code: returns, jt: 0, jf: 0, k: place }];
    let program = libc::sock_fprog { len: 1, filter: program.as_mut_ptr() };
    if let Err(error) = setsockopt(listener, AttachReusePortCbpf, &program) {
        // Clients are spread as ever; at worst one of them is refused when we close.
        tracing::debug!(%error, "new clients cannot be led elsewhere");
    }
}
