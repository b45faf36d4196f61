//! Who holds an address, by what edges say of themselves: whom to show, whether there are two, and why there may be nobody.

use landfall_api::landfall::VipState;

use crate::Reason;

/// How one edge of a group stands to an address, and when that was heard; `T` is the listener's own clock, whatever it counts.
#[derive(Clone, Debug)]
pub struct Part<T> {
    /// The edge.
    pub edge: String,
    /// It has spoken lately.
    pub alive: bool,
    /// What it says; none where it says nothing of the address.
    pub state: Option<VipState>,
    /// Since when, by its own clock, so that texts can be compared.
    pub since: String,
    /// Why it cannot, as it says itself; empty where nothing is in the way.
    pub reason: String,
    /// When it was first heard to say what it says.
    pub said: T,
    /// When it was last heard.
    pub heard: T,
}

/// Who holds an address.
#[derive(Clone, Debug, PartialEq)]
pub struct Hold {
    /// The edge that is shown: the last one that took it.
    pub holder: Option<String>,
    /// Those who hold it at the same time, where it is more than one.
    pub several: Vec<String>,
    /// Whether it is held, and why not: the condition `VIPHeld`.
    pub held: (bool, Reason),
}

/// Finds out who holds an address.
///
/// Whoever falls silent is still shown while nobody else says that it holds it: it may well do so, and when it comes back nothing has
/// moved. Two count as two only when each has spoken since the later one took it: one that was killed has not.
pub fn holding<T: Ord + Copy>(address: &str, parts: &[Part<T>]) -> Hold {
    let mut holders: Vec<&Part<T>> =
        parts.iter().filter(|part| part.state == Some(VipState::Holding)).collect();
    holders.sort_by_key(|part| (part.alive, &part.since, &part.edge));
    let shown = holders.last().copied();
    let latest = holders.iter().filter(|part| part.alive).max_by_key(|part| part.said);
    let still = |part: &&&Part<T>| {
        part.alive && latest.is_some_and(|latest| part.edge == latest.edge || part.heard > latest.said)
    };
    let several: Vec<String> = holders.iter().filter(still).map(|part| part.edge.clone()).collect();
    let held = match shown {
        Some(part) if part.alive => {
            (true, Reason::new("Held", format!("{address} is held by {}", part.edge)))
        }
        Some(part) => {
            let sentence = format!("{address} was held by {} when it was last heard of", part.edge);
            (false, Reason::new("HolderSilent", sentence))
        }
        None => (false, nobody(address, parts)),
    };
    Hold {
        holder: shown.map(|part| part.edge.clone()),
        several: if several.len() > 1 { several } else { Vec::new() },
        held,
    }
}

/// Why nobody holds an address.
fn nobody<T>(address: &str, parts: &[Part<T>]) -> Reason {
    let alive: Vec<&Part<T>> = parts.iter().filter(|part| part.alive).collect();
    if alive.is_empty() {
        return Reason::new("NoEdges", format!("no edge is there to hold {address}"));
    }
    if alive.iter().any(|part| part.reason.is_empty()) {
        return Reason::new("Settling", format!("nobody holds {address} yet"));
    }
    let each: Vec<String> = alive.iter().map(|part| format!("{}: {}", part.edge, part.reason)).collect();
    Reason::new("NoHolder", format!("nobody can hold {address} ({})", each.join("; ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An edge from words: `name state since said heard [reason]`; a name in brackets is silent.
    fn part(words: &str) -> Part<u32> {
        let mut words = words.splitn(6, ' ');
        let name = words.next().unwrap();
        let state = match words.next().unwrap() {
            "holding" => Some(VipState::Holding),
            "standby" => Some(VipState::Standby),
            "fault" => Some(VipState::Fault),
            _ => None,
        };
        Part {
            edge: name.trim_matches(['(', ')']).to_owned(),
            alive: !name.starts_with('('),
            state,
            since: words.next().unwrap().to_owned(),
            said: words.next().unwrap().parse().unwrap(),
            heard: words.next().unwrap().parse().unwrap(),
            reason: words.next().unwrap_or("").to_owned(),
        }
    }

    #[test]
    fn who_holds_it_and_who_says_so_only() {
        let check = |parts: &[&str], expected: &str| {
            let parts: Vec<Part<u32>> = parts.iter().map(|words| part(words)).collect();
            let hold = holding("192.0.2.1", &parts);
            let told = format!(
                "{} {} {}",
                hold.holder.as_deref().unwrap_or("-"),
                hold.several.join("+"),
                hold.held.1.code
            );
            assert_eq!(told, expected, "{hold:?}");
            assert_eq!(hold.held.0, hold.held.1.code == "Held");
        };
        check(&[], "-  NoEdges");
        check(&["(a) standby 1 1 1"], "-  NoEdges");
        check(&["a holding 1 1 9", "b standby 1 1 9"], "a  Held");
        // It was killed a moment ago, and has not been missed yet: the other has it, and nothing is wrong.
        check(&["a holding 1 1 4", "b holding 5 5 5"], "b  Held");
        // Both go on saying so: they do not hear each other.
        check(&["a holding 1 1 6", "b holding 5 5 5"], "b a+b Held");
        check(&["a holding 1 1 6", "b holding 5 5 7", "c holding 2 2 3"], "b a+b Held");
        // It has been missed. It is shown until somebody else has it.
        check(&["(a) holding 1 1 4", "b standby 1 1 9"], "a  HolderSilent");
        check(&["(a) holding 7 7 7", "b holding 5 5 5"], "b  Held");
        // Nobody.
        check(&["a standby 1 1 1", "b fault 1 1 1 not well"], "-  Settling");
        check(
            &["a none 0 1 1 there is no keeper", "b fault 1 1 1 not well", "(c) standby 1 1 1"],
            "-  NoHolder",
        );
        let told = nobody("192.0.2.1", &[part("a fault 1 1 1 keepalived is not installed")]).message;
        assert_eq!(told, "nobody can hold 192.0.2.1 (a: keepalived is not installed)");
    }
}
