//! Prefixes of addresses: the longest that matches counts, and it is known how wide the answer is true.
//!
//! Nested prefixes are flattened into ranges that do not overlap, so that a look-up is one binary search, and neighbours
//! with the same value become one.

use std::net::IpAddr;

use landfall_api::addresses::network;

/// A value for every address.
#[derive(Clone, Debug)]
pub struct Prefixes<T> {
    v4: Table<T>,
    v6: Table<T>,
}

/// Ranges of addresses, each from its start to the next one's start. The first starts at zero.
#[derive(Clone, Debug)]
struct Table<T> {
    starts: Vec<u128>,
    values: Vec<T>,
}

impl<T: Copy + PartialEq> Prefixes<T> {
    /// A table of prefixes; addresses outside all of them have the default. Of two equal prefixes the later counts.
    pub fn new(rows: impl IntoIterator<Item = (IpAddr, u8, T)>, default: T) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (address, length, value) in rows {
            let row = (key(network(address, length)), length, value);
            if address.is_ipv4() { v4.push(row) } else { v6.push(row) }
        }
        Self { v4: Table::new(v4, default), v6: Table::new(v6, default) }
    }

    /// The value of an address, and the length of the widest prefix around it whose addresses all have that value.
    pub fn get(&self, address: IpAddr) -> (T, u8) {
        let (table, bits) = if address.is_ipv4() { (&self.v4, 32) } else { (&self.v6, 128) };
        let (value, scope) = table.get(key(address));
        (value, scope.min(bits))
    }

    /// How many ranges it has come to.
    pub fn ranges(&self) -> usize {
        self.v4.starts.len() + self.v6.starts.len()
    }
}

impl<T: Copy + PartialEq> Table<T> {
    fn new(mut rows: Vec<(u128, u8, T)>, default: T) -> Self {
        rows.sort_by_key(|(start, length, _)| (*start, *length));
        let mut table = Self { starts: vec![0], values: vec![default] };
        // Prefixes that the present one lies in, widest first, each with its last address.
        let mut around: Vec<(u128, T)> = Vec::new();
        let close = |table: &mut Self, around: &mut Vec<(u128, T)>, before: Option<u128>| {
            while let Some((last, _)) = around.pop_if(|(last, _)| before.is_none_or(|start| *last < start)) {
                let value = around.last().map_or(default, |(_, value)| *value);
                if let Some(next) = last.checked_add(1) {
                    table.push(next, value);
                }
            }
        };
        for (start, length, value) in rows {
            close(&mut table, &mut around, Some(start));
            table.push(start, value);
            around.push((start | host_bits(length), value));
        }
        close(&mut table, &mut around, None);
        table.starts.shrink_to_fit();
        table.values.shrink_to_fit();
        table
    }

    /// From `start` on the value is this.
    fn push(&mut self, start: u128, value: T) {
        if self.starts.last() == Some(&start) {
            self.starts.pop();
            self.values.pop();
        }
        if self.values.last() != Some(&value) {
            self.starts.push(start);
            self.values.push(value);
        }
    }

    fn get(&self, address: u128) -> (T, u8) {
        // The first range starts at zero, so that there is always one before.
        let at = self.starts.partition_point(|start| *start <= address).saturating_sub(1);
        let outside = |other: u128| u8::try_from((address ^ other).leading_zeros() + 1).unwrap_or(128);
        let below = self.starts[at].checked_sub(1).map_or(0, outside);
        let above = self.starts.get(at + 1).map_or(0, |next| outside(*next));
        (self.values[at], below.max(above))
    }
}

/// Addresses of both families as numbers whose first bit is the address's first bit.
fn key(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u128::from(u32::from(address)) << 96,
        IpAddr::V6(address) => u128::from(address),
    }
}

fn host_bits(length: u8) -> u128 {
    u128::MAX.checked_shr(u32::from(length)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn table(rows: &[(&str, char)]) -> Prefixes<char> {
        let rows = rows.iter().map(|(cidr, value)| {
            let (address, length) = landfall_api::addresses::parse_cidr(cidr).unwrap();
            (address, length, *value)
        });
        Prefixes::new(rows, '-')
    }

    #[test]
    fn the_longest_prefix_counts_and_its_width_is_known() {
        let table = table(&[
            ("10.0.0.0/8", 'a'),
            ("10.1.0.0/16", 'b'),
            ("10.1.2.0/24", 'a'),
            ("192.0.2.1/32", 'c'),
            ("2001:db8::/32", 'd'),
            ("255.255.255.0/24", 'e'),
        ]);
        for (address, want) in [
            ("9.255.255.255", ('-', 7)),
            ("10.0.0.1", ('a', 16)),
            ("10.128.0.1", ('a', 9)),
            ("10.1.0.1", ('b', 23)),
            ("10.1.2.3", ('a', 24)),
            ("10.1.3.0", ('b', 24)),
            ("192.0.2.1", ('c', 32)),
            ("192.0.2.0", ('-', 32)),
            ("255.255.255.255", ('e', 24)),
            ("2001:db8:ffff::1", ('d', 32)),
            ("2001:db9::", ('-', 32)),
            ("::", ('-', 3)),
        ] {
            assert_eq!(table.get(address.parse().unwrap()), want, "{address}");
        }
        assert_eq!(self::table(&[]).get("192.0.2.1".parse().unwrap()), ('-', 0));
        assert_eq!(self::table(&[("0.0.0.0/0", 'x')]).get("192.0.2.1".parse().unwrap()), ('x', 0));
    }

    proptest! {
        #[test]
        fn the_same_as_looking_at_every_prefix(
            rows in prop::collection::vec((any::<u32>(), 0_u8..=32, 0_u8..4), 0..24),
            address in any::<u32>(),
            near in 0_usize..24,
            flip in 0_u32..32,
        ) {
            let address = rows.get(near).map_or(address, |row| row.0 ^ (1 << flip));
            let mask = |length: u8| u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            let slow = |address: u32| {
                let fit = rows.iter().filter(|row| (row.0 ^ address) & mask(row.1) == 0);
                fit.max_by_key(|row| row.1).map_or(9, |row| row.2)
            };
            let table = Prefixes::new(rows.iter().map(|row| (IpAddr::from(row.0.to_be_bytes()), row.1, row.2)), 9);
            let (value, scope) = table.get(IpAddr::from(address.to_be_bytes()));
            prop_assert_eq!(value, slow(address));
            // Wherever a prefix begins or ends inside that width, the value is still the same.
            for row in &rows {
                for probe in [row.0 & mask(row.1), row.0 | !mask(row.1)] {
                    let probe = (address & mask(scope)) | (probe & !mask(scope));
                    prop_assert_eq!(slow(probe), value);
                }
            }
        }
    }
}
