//! Hears on a link who says that it holds an address: adverts of VRRP, and ARP and neighbour advertisements. By tcpdump.

use std::io::{BufRead as _, BufReader};
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use crate::Error;
use crate::rig::lock;

/// Adverts, and whoever says which hardware has which address.
const FILTER: &str = "ip proto 112 or ip6 proto 112 or arp or icmp6";

/// Hears until it is dropped.
pub struct Ear {
    process: Child,
    heard: Arc<Mutex<Heard>>,
}

/// What was heard, in order; the same several times in a row once.
#[derive(Debug, Default)]
struct Heard {
    /// Those who said by adverts that they hold the addresses.
    speakers: Vec<String>,
    /// Hardware addresses, and the address that each of them said was its own.
    claims: Vec<(IpAddr, String)>,
}

impl Ear {
    /// Hears at an interface of a link, when it returns already. The command is tcpdump, wherever it runs.
    pub fn start(mut tcpdump: Command, interface: &str) -> Result<Self, Error> {
        tcpdump.args(["-l", "-n", "-e", "--immediate-mode", "-i", interface, FILTER]);
        tcpdump.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut process = tcpdump.spawn().map_err(Error::io("start `tcpdump`"))?;
        let (out, complaints) = (process.stdout.take(), process.stderr.take());
        let ear = Self { process, heard: Arc::default() };
        let mut complaints = complaints.map(BufReader::new).into_iter().flat_map(BufReader::lines);
        if !complaints.any(|line| line.is_ok_and(|line| line.contains("listening on"))) {
            let what = format!("tcpdump hears nothing at {interface}");
            return Err(Error::NotReady { what, waited_s: 0, detail: String::new() });
        }
        let heard = ear.heard.clone();
        std::thread::spawn(move || {
            let lines = out.map(BufReader::new).into_iter().flat_map(BufReader::lines);
            lines.map_while(Result::ok).for_each(|line| lock(&heard).take_in(&line));
        });
        Ok(ear)
    }

    /// Those who said by adverts that they hold the addresses.
    pub fn speakers(&self) -> Vec<String> {
        lock(&self.heard).speakers.clone()
    }

    /// The hardware addresses that said, asked or not, that an address is theirs.
    pub fn claimants(&self, address: IpAddr) -> Vec<String> {
        let heard = lock(&self.heard);
        let mut claimants: Vec<String> =
            heard.claims.iter().filter(|(what, _)| *what == address).map(|(_, who)| who.clone()).collect();
        claimants.dedup();
        claimants
    }

    /// Forgets what it has heard so far.
    pub fn forget(&self) {
        *lock(&self.heard) = Heard::default();
    }
}

impl Drop for Ear {
    fn drop(&mut self) {
        // It may be gone already; there is nobody to tell.
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Heard {
    /// Takes in a line such as `12:00:00.0 0a:… > 01:…, ethertype IPv4 (0x0800), length 54: 10.88.0.2 > 224.0.0.18: VRRPv3, …`.
    fn take_in(&mut self, line: &str) {
        let Some(who) = line.split_whitespace().nth(1) else { return };
        if line.contains(": VRRPv") {
            // Whoever stops holding it says so with priority 0.
            let from = line.split(" > ").nth(1).and_then(|rest| rest.split_whitespace().last());
            if let Some(from) = from.filter(|_| !line.contains("prio 0,"))
                && self.speakers.last().is_none_or(|last| last != from)
            {
                self.speakers.push(from.to_owned());
            }
        } else if let Some(address) = claimed(line) {
            let claim = (address, who.to_owned());
            if self.claims.last() != Some(&claim) {
                self.claims.push(claim);
            }
        }
    }
}

/// The address that a line says is the sender's own.
fn claimed(line: &str) -> Option<IpAddr> {
    let after = |mark: &str| {
        let word = line.split_once(mark)?.1.split_whitespace().next()?;
        word.trim_end_matches(',').parse().ok()
    };
    after(" Announcement ")
        .or_else(|| after(" Reply "))
        .or_else(|| after(" neighbor advertisement, tgt is "))
        .or_else(|| {
            // An announcement, too, is a question of somebody for itself.
            let (asked, by): (IpAddr, IpAddr) = (after(" who-has ")?, after(" tell ")?);
            (asked == by).then_some(asked)
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_on_a_link_is_understood() {
        let mut heard = Heard::default();
        for line in [
            "12:00:00.0 0a:00:00:00:00:01 > 01:00:5e:00:00:12, ethertype IPv4 (0x0800), length 54: 10.88.0.2 > 224.0.0.18: VRRPv3, Advertisement, vrid 7, prio 200, intvl 10cs, length 12",
            "12:00:00.1 0a:00:00:00:00:01 > 01:00:5e:00:00:12, ethertype IPv4 (0x0800), length 54: 10.88.0.2 > 224.0.0.18: VRRPv3, Advertisement, vrid 7, prio 200, intvl 10cs, length 12",
            "12:00:00.2 0a:00:00:00:00:02 > 01:00:5e:00:00:12, ethertype IPv4 (0x0800), length 54: 10.88.0.3 > 224.0.0.18: VRRPv3, Advertisement, vrid 7, prio 0, intvl 10cs, length 12",
            "12:00:00.3 0a:00:00:00:00:02 > 33:33:00:00:00:12, ethertype IPv6 (0x86dd), length 78: fe80::2 > ff02::12: VRRPv3, Advertisement, vrid 7, prio 150, intvl 10cs, length 24",
            "12:00:00.4 0a:00:00:00:00:01 > ff:ff:ff:ff:ff:ff, ethertype ARP (0x0806), length 42: Announcement 10.88.0.100, length 28",
            "12:00:00.5 0a:00:00:00:00:01 > ff:ff:ff:ff:ff:ff, ethertype ARP (0x0806), length 42: Request who-has 10.88.0.100 tell 10.88.0.100, length 28",
            "12:00:00.6 0a:00:00:00:00:02 > 0a:00:00:00:00:09, ethertype ARP (0x0806), length 42: Reply 10.88.0.100 is-at 0a:00:00:00:00:02, length 28",
            "12:00:00.7 0a:00:00:00:00:09 > ff:ff:ff:ff:ff:ff, ethertype ARP (0x0806), length 42: Request who-has 10.88.0.100 tell 10.88.0.9, length 28",
            "12:00:00.8 0a:00:00:00:00:02 > 33:33:00:00:00:01, ethertype IPv6 (0x86dd), length 86: 2001:db8::100 > ff02::1: ICMP6, neighbor advertisement, tgt is 2001:db8::100, length 32",
            "",
            "nonsense",
        ] {
            heard.take_in(line);
        }
        assert_eq!(heard.speakers, ["10.88.0.2", "fe80::2"]);
        let claims: Vec<String> = heard.claims.iter().map(|(what, who)| format!("{who} {what}")).collect();
        let (one, two) = ("0a:00:00:00:00:01", "0a:00:00:00:00:02");
        assert_eq!(
            claims,
            [format!("{one} 10.88.0.100"), format!("{two} 10.88.0.100"), format!("{two} 2001:db8::100"),]
        );
    }
}
