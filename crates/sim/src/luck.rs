//! Luck that follows from a seed: whoever draws for the same thing for the same time gets the same, whatever others draw
//! meanwhile. So names and uids of a member are equal in every run with equal commands, however its tasks interleave.

use std::collections::HashMap;

use parking_lot::Mutex;

/// Characters of generated names: no vowels, so that no words come out.
pub const ALPHABET: &[u8; 27] = b"bcdfghjklmnpqrstvwxz2456789";

/// How many characters are at the end of a generated name, and before it at most.
const SUFFIX_CHARS: usize = 5;
const PREFIX_CHARS_MAX: usize = 58;

/// Different things that are counted. Beyond, counting begins anew with other luck.
const THINGS_MAX: usize = 1 << 14;

/// The luck of one member.
#[derive(Debug, Default)]
pub struct Luck {
    seed: u64,
    drawn: Mutex<Drawn>,
}

/// How often was drawn for what; things are known by their hash.
#[derive(Debug, Default)]
struct Drawn {
    times: HashMap<u64, u32>,
    /// How often counting began anew.
    round: u64,
}

impl Luck {
    /// From a seed.
    pub fn new(seed: u64) -> Self {
        Self { seed, drawn: Mutex::default() }
    }

    /// Draws for a thing: another number every time, the same ones in every run.
    pub fn draw(&self, thing: &str) -> u128 {
        let hash = fnv64(thing);
        let mut drawn = self.drawn.lock();
        if drawn.times.len() >= THINGS_MAX && !drawn.times.contains_key(&hash) {
            drawn.times.clear();
            drawn.round += 1;
        }
        let time = drawn.times.entry(hash).or_default();
        *time = time.wrapping_add(1);
        self.number(hash, u64::from(*time) ^ drawn.round.rotate_left(32))
    }

    /// What a thing gets that is drawn for only once, so that nobody needs to count.
    pub fn once(&self, thing: &str) -> u128 {
        self.number(fnv64(thing), 0)
    }

    /// Luck of its own for somebody who draws for so many things that others would lose count.
    #[must_use]
    pub fn child(&self, whose: &str) -> Self {
        Self::new(mixed(self.seed ^ fnv64(whose)))
    }

    fn number(&self, hash: u64, time: u64) -> u128 {
        let start = mixed(self.seed ^ mixed(hash)) ^ mixed(time);
        u128::from(mixed(start)) << 64 | u128::from(mixed(start.wrapping_add(1)))
    }

    /// A name of a namespace that begins with `prefix`, which is cut if the name would be too long.
    pub fn name(&self, namespace: &str, prefix: &str) -> String {
        self.name_of(namespace, prefix, "")
    }

    /// Such a name for one of several with the same prefix that are told apart by something, whatever order they come in.
    pub fn name_of(&self, namespace: &str, prefix: &str, which: &str) -> String {
        let mut luck = self.draw(&format!("name {namespace}/{prefix} {which}"));
        let mut name: String = prefix.chars().take(PREFIX_CHARS_MAX).collect();
        for _ in 0..SUFFIX_CHARS {
            let letters = ALPHABET.len() as u128;
            name.push(letter(usize::try_from(luck % letters).expect("smaller than the alphabet")));
            luck /= letters;
        }
        name
    }
}

/// The letter of this number, counted round and round.
pub fn letter(number: usize) -> char {
    char::from(ALPHABET[number % ALPHABET.len()])
}

/// A number that stands for a text (FNV-1a).
pub fn fnv64(text: impl AsRef<[u8]>) -> u64 {
    text.as_ref()
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3))
}

/// A number that tells nothing of the one it follows from (SplitMix64).
fn mixed(number: u64) -> u64 {
    let mut z = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn equal_seeds_give_equal_luck_whatever_others_draw() {
        let (one, two, other) = (Luck::new(7), Luck::new(7), Luck::new(8));
        let busy: Vec<u128> = (0..4).flat_map(|_| [one.draw("a"), one.draw("b")]).step_by(2).collect();
        let calm: Vec<u128> = (0..4).map(|_| two.draw("a")).collect();
        assert_eq!(busy, calm);
        assert_ne!(other.draw("a"), calm[0]);
        assert_eq!(calm.iter().collect::<HashSet<_>>().len(), 4, "and never the same again");
        assert_eq!(one.once("c"), one.once("c"));
        assert_ne!(one.once("c"), one.draw("c"));
        assert_eq!(one.child("x").draw("a"), two.child("x").draw("a"));
        assert_ne!(one.child("y").draw("a"), two.child("x").draw("a"));
    }

    #[test]
    fn nothing_comes_twice_when_there_is_much() {
        let luck = Luck::new(0);
        let mut seen = HashSet::new();
        for round in 0..3 {
            for thing in 0..THINGS_MAX {
                assert!(seen.insert(luck.draw(&thing.to_string())), "{thing} in round {round}");
            }
        }
        assert!(luck.drawn.lock().times.len() <= THINGS_MAX);
    }

    #[test]
    fn names() {
        let luck = Luck::new(7);
        let [one, two] = [(); 2].map(|()| luck.name("default", "web-"));
        assert!(one.starts_with("web-") && one.len() == 9 && one != two, "{one} {two}");
        assert_ne!(Luck::new(7).name("other", "web-"), one);
        assert_eq!(luck.name("default", &"ü".repeat(70)).chars().count(), 63);
    }
}
