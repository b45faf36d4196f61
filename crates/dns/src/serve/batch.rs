//! Many packets in one system call: `recvmmsg` and `sendmmsg`, with buffers that are made once.
//!
//! A thread owns a batch. Each slot has a buffer for a packet, one for its reply, the client's address, and the control data
//! that tell which of our addresses was asked, so that the reply comes from there.
#![expect(
    unsafe_code,
    reason = "the kernel takes many packets at once only through pointers; nothing else is done here"
)]

use std::io;
use std::mem::{size_of, zeroed};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd};

/// How many packets at once. More would not save much: the kernel's work per packet is what remains.
pub(crate) const SLOTS: usize = 64;
/// The longest packet that is taken. No question is longer.
const PACKET_MAX: usize = 2048;
/// How far packets stand apart: were it a power of two, they would drive each other out of the processor's cache.
const PACKET_APART: usize = PACKET_MAX + 64;
/// The longest reply.
pub(crate) const REPLY_MAX: usize = 1232;
/// Room for the control data of one packet: `in6_pktinfo` with its header.
const CONTROL: usize = 64;

/// Control data must stand where a header may stand.
#[derive(Clone, Copy)]
#[repr(C, align(8))]
struct Control([u8; CONTROL]);

/// Packets on their way.
pub(crate) struct Batch {
    packets: Vec<[u8; PACKET_APART]>,
    replies: Vec<[u8; REPLY_MAX]>,
    addresses: Vec<libc::sockaddr_storage>,
    controls: Vec<Control>,
    parts_in: Vec<libc::iovec>,
    parts_out: Vec<libc::iovec>,
    incoming: Vec<libc::mmsghdr>,
    outgoing: Vec<libc::mmsghdr>,
    /// Slots that the last call filled, and that must be made ready again.
    filled: usize,
    /// Replies that wait to be sent.
    ready: usize,
    /// Whether it is asked which of our addresses was meant.
    asks_address: bool,
}

// The pointers lead into vectors of the same batch, whose contents stay where they are when it is moved.
// SAFETY: nothing else has these pointers, and they are used only through `&mut self`.
unsafe impl Send for Batch {}

impl Batch {
    /// An empty batch. `asks_address`: the socket listens on all addresses.
    pub(crate) fn new(asks_address: bool) -> Self {
        // SAFETY: all of these are plain C structures, for which zeros are a value.
        let (address, header) = unsafe { (zeroed::<libc::sockaddr_storage>(), zeroed::<libc::mmsghdr>()) };
        let part = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let mut batch = Self {
            packets: vec![[0; PACKET_APART]; SLOTS],
            replies: vec![[0; REPLY_MAX]; SLOTS],
            addresses: vec![address; SLOTS],
            controls: vec![Control([0; CONTROL]); SLOTS],
            parts_in: vec![part; SLOTS],
            parts_out: vec![part; SLOTS],
            incoming: vec![header; SLOTS],
            outgoing: vec![header; SLOTS],
            filled: 0,
            ready: 0,
            asks_address,
        };
        (0..SLOTS).for_each(|slot| batch.make_ready(slot));
        batch
    }

    fn make_ready(&mut self, slot: usize) {
        let part = &mut self.parts_in[slot];
        part.iov_base = self.packets[slot].as_mut_ptr().cast();
        part.iov_len = PACKET_MAX;
        let header = &mut self.incoming[slot].msg_hdr;
        header.msg_name = (&raw mut self.addresses[slot]).cast();
        header.msg_namelen = socklen(size_of::<libc::sockaddr_storage>());
        header.msg_iov = part;
        header.msg_iovlen = 1;
        if self.asks_address {
            header.msg_control = (&raw mut self.controls[slot]).cast();
            header.msg_controllen = CONTROL as _;
        }
        header.msg_flags = 0;
    }

    /// Waits for packets; gives how many came.
    pub(crate) fn receive(&mut self, socket: BorrowedFd<'_>) -> io::Result<usize> {
        for slot in 0..self.filled {
            self.make_ready(slot);
        }
        self.filled = 0;
        self.ready = 0;
        // SAFETY: there are SLOTS headers, and each points to buffers of its slot with their true lengths.
        let got = unsafe {
            libc::recvmmsg(
                socket.as_raw_fd(),
                self.incoming.as_mut_ptr(),
                SLOTS as libc::c_uint,
                libc::MSG_WAITFORONE as _,
                std::ptr::null_mut(),
            )
        };
        let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
        self.filled = got.min(SLOTS);
        Ok(self.filled)
    }

    /// The bytes of a packet.
    pub(crate) fn bytes(&self, slot: usize) -> Option<&[u8]> {
        let length = usize::try_from(self.incoming.get(slot)?.msg_len).ok()?;
        self.packets.get(slot)?.get(..length)
    }

    /// A packet, who sent it, and room for the reply. None if it was cut or has no sender.
    pub(crate) fn packet(&mut self, slot: usize) -> Option<(IpAddr, &[u8], &mut [u8])> {
        let header = self.incoming.get(slot)?;
        if header.msg_hdr.msg_flags & libc::MSG_TRUNC != 0 {
            return None;
        }
        let length = usize::try_from(header.msg_len).ok()?;
        let sender = address(&self.addresses[slot])?;
        Some((sender, self.packets[slot].get(..length)?, &mut self.replies[slot]))
    }

    /// The reply in this slot is to be sent.
    pub(crate) fn reply(&mut self, slot: usize, length: usize) {
        let (Some(from), true) = (self.incoming.get(slot), self.ready < SLOTS) else { return };
        let from = from.msg_hdr;
        let part = &mut self.parts_out[slot];
        part.iov_base = self.replies[slot].as_mut_ptr().cast();
        part.iov_len = length.min(REPLY_MAX);
        let header = &mut self.outgoing[self.ready].msg_hdr;
        header.msg_name = from.msg_name;
        header.msg_namelen = from.msg_namelen;
        header.msg_iov = part;
        header.msg_iovlen = 1;
        if self.asks_address {
            header.msg_control = from.msg_control;
            header.msg_controllen = from.msg_controllen;
            forget_interface(&mut self.controls[slot]);
        }
        self.ready += 1;
    }

    /// Sends all replies; gives how many could not be sent.
    pub(crate) fn send(&mut self, socket: BorrowedFd<'_>) -> usize {
        let (mut sent, mut lost) = (0, 0);
        while sent < self.ready {
            let rest = &mut self.outgoing[sent..self.ready];
            // SAFETY: each of these headers was filled by `reply` with buffers of a slot and their lengths.
            let done = unsafe {
                libc::sendmmsg(socket.as_raw_fd(), rest.as_mut_ptr(), rest.len() as libc::c_uint, 0)
            };
            match usize::try_from(done) {
                Ok(done) if done > 0 => sent += done,
                // The first of them cannot be sent: the others may.
                _ => {
                    sent += 1;
                    lost += 1;
                }
            }
        }
        self.ready = 0;
        lost
    }
}

/// Asks for the address that each packet was sent to.
pub(crate) fn ask_address(socket: BorrowedFd<'_>, v6: bool) -> io::Result<()> {
    let (level, option) =
        if v6 { (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO) } else { (libc::IPPROTO_IP, libc::IP_PKTINFO) };
    set(socket, level, option, 1)
}

/// Asks for a large queue, past the system's limit if we may.
pub(crate) fn enlarge(socket: BorrowedFd<'_>, bytes: libc::c_int) {
    // Who may not force it has asked for it the ordinary way before.
    let _ = set(socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes);
}

fn set(
    socket: BorrowedFd<'_>,
    level: libc::c_int,
    option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let length = socklen(size_of::<libc::c_int>());
    // SAFETY: the value is an int that lives during the call, and its length is told.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, option, (&raw const value).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

fn socklen(bytes: usize) -> libc::socklen_t {
    libc::socklen_t::try_from(bytes).unwrap_or(0)
}

fn address(storage: &libc::sockaddr_storage) -> Option<IpAddr> {
    match libc::c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that it is one of these, and the storage is large enough for every one.
            let v4 = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in>() };
            Some(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)).into())
        }
        libc::AF_INET6 => {
            // SAFETY: as above.
            let v6 = unsafe { &*(&raw const *storage).cast::<libc::sockaddr_in6>() };
            Some(IpAddr::from(Ipv6Addr::from(v6.sin6_addr.s6_addr)).to_canonical())
        }
        _ => None,
    }
}

/// The reply goes out by whatever way leads to the client, not by the way that the question came.
fn forget_interface(control: &mut Control) {
    const HEADER: usize = size_of::<libc::cmsghdr>();
    let bytes = &mut control.0;
    let number = |bytes: &[u8], at: usize| {
        bytes.get(at..at + 4).and_then(|four| four.try_into().ok()).map_or(0, libc::c_int::from_ne_bytes)
    };
    let (level, kind) = (number(bytes, HEADER - 8), number(bytes, HEADER - 4));
    let interface = match (level, kind) {
        // `in_pktinfo`: the interface comes first.
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => HEADER,
        // `in6_pktinfo`: it comes after the address.
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => HEADER + 16,
        _ => return,
    };
    if let Some(place) = bytes.get_mut(interface..interface + 4) {
        place.fill(0);
    }
}
