//! Response rate limiting: how often one prefix gets the same answer, so that nobody is flooded through us.
//!
//! A fixed table of buckets, each one word, written without a lock. Two threads may count one answer as one: a limit need not
//! be exact. A bucket that is another's is taken over once that one has rested, so that memory never grows, and a flood does not
//! lose its bucket to those who come by.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};

/// How many buckets there are.
const BUCKETS: usize = 1 << 14;

/// What a limited answer becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// It is sent.
    Send,
    /// A short one with TC is sent instead: who is really there comes back by TCP.
    Slip,
    /// Nothing is sent.
    Drop,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Limiter {
    buckets: Box<[AtomicU64]>,
    per_second: u16,
    slip: u16,
    key: u64,
}

/// A bucket as it stands in its word: tag 24 bits, time in ms/16 20 bits, tokens 12 bits, refusals 8 bits.
#[derive(Clone, Copy)]
struct Bucket {
    tag: u64,
    time: u64,
    tokens: u64,
    refused: u64,
}

/// Tokens have so many bits, so that no limit can be higher.
const TOKENS_MAX: u64 = (1 << 12) - 1;
const TIME_MASK: u64 = (1 << 20) - 1;
/// The table's clock ticks so often in a second.
const TICKS: u64 = 1000 / 16;

impl Limiter {
    /// A table that lets so many answers a second pass, and slips one of so many that do not. The key makes buckets
    /// unpredictable.
    pub(crate) fn new(per_second: u16, slip: u16, key: u64) -> Self {
        let per_second = per_second.clamp(1, u16::try_from(TOKENS_MAX).unwrap_or(u16::MAX));
        Self { buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(), per_second, slip, key }
    }

    /// Whether an answer of this sort may go to that client now.
    pub(crate) fn pass(&self, client: IpAddr, sort: u64, now_ms: u64) -> Pass {
        let hash = mix(mix(self.key ^ prefix(client)) ^ sort);
        let at = usize::try_from(hash % BUCKETS as u64).unwrap_or(0);
        let Some(word) = self.buckets.get(at) else { return Pass::Send };
        let tag = hash >> 40;
        let time = (now_ms / 16) & TIME_MASK;
        let rate = u64::from(self.per_second);
        let mut bucket = Bucket::unpack(word.load(Ordering::Relaxed));
        let ticks = time.wrapping_sub(bucket.time) & TIME_MASK;
        let earned = ticks * rate / TICKS;
        if earned > 0 {
            bucket.tokens = (bucket.tokens + earned).min(rate);
            bucket.time = time;
        }
        if bucket.tag != tag {
            if bucket.tokens <= rate / 2 {
                return Pass::Send;
            }
            bucket = Bucket { tag, time, tokens: rate, refused: 0 };
        }
        let pass = match bucket.tokens.checked_sub(1) {
            Some(left) => {
                bucket.tokens = left;
                Pass::Send
            }
            None => {
                bucket.refused = (bucket.refused + 1) & 0xFF;
                let slips = bucket.refused.checked_rem(u64::from(self.slip)) == Some(0);
                if slips { Pass::Slip } else { Pass::Drop }
            }
        };
        word.store(bucket.pack(), Ordering::Relaxed);
        pass
    }
}

impl Bucket {
    fn unpack(word: u64) -> Self {
        Self {
            tag: word >> 40,
            time: word >> 20 & TIME_MASK,
            tokens: word >> 8 & TOKENS_MAX,
            refused: word & 0xFF,
        }
    }

    fn pack(self) -> u64 {
        self.tag << 40 | self.time << 20 | self.tokens << 8 | self.refused
    }
}

/// Clients of one prefix are one: IPv4 /24, IPv6 /56.
fn prefix(client: IpAddr) -> u64 {
    match client {
        IpAddr::V4(ip) => u64::from(u32::from(ip) >> 8),
        IpAddr::V6(ip) => u64::try_from(u128::from(ip) >> 72).unwrap_or(0) | 1 << 63,
    }
}

fn mix(mut x: u64) -> u64 {
    x = (x ^ x >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    x = (x ^ x >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93);
    x ^ x >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_from_one_prefix_does_not_touch_others() {
        let limiter = Limiter::new(10, 2, 7);
        let [flood, same, other, six] =
            ["192.0.2.1", "192.0.2.200", "192.0.3.1", "2001:db8::1"].map(|ip| ip.parse::<IpAddr>().unwrap());
        let count = |client, sort, now_ms, n: usize| {
            let all: Vec<Pass> = (0..n).map(|_| limiter.pass(client, sort, now_ms)).collect();
            [Pass::Send, Pass::Slip, Pass::Drop].map(|want| all.iter().filter(|pass| **pass == want).count())
        };
        let now = 1_000_000;
        assert_eq!(count(flood, 1, now, 30), [10, 10, 10]);
        assert_eq!(count(same, 1, now, 10), [0, 5, 5], "the same prefix");
        assert_eq!(count(flood, 2, now, 10), [10, 0, 0], "another answer");
        assert_eq!(count(other, 1, now, 10), [10, 0, 0], "another prefix");
        assert_eq!(count(six, 1, now, 10), [10, 0, 0]);
        assert_eq!(count(flood, 1, now + 500, 10)[0], 5, "half a second earns half");
        assert_eq!(count(flood, 1, now + 60_000, 30)[0], 10, "a minute earns no more than a second");
    }
}
