//! keepalived's configuration for a group. Pure.

use std::fmt::Write as _;
use std::net::IpAddr;
use std::path::Path;

use crate::Wanted;

/// Between two adverts. Others notice a dead holder after three of them and a little (RFC 5798, section 6.1).
const ADVERT_SECONDS: &str = "0.1";
/// Gratuitous ARP is said again after this long: a switch may have lost the first.
const AGAIN_SECONDS: u32 = 1;
/// And from then on, as long as the address is held, for those who missed it all.
const REFRESH_SECONDS: u32 = 10;

/// Files that keepalived and the keeper share.
#[derive(Clone, Copy, Debug)]
pub struct Files<'a> {
    /// keepalived says here what it has become.
    pub notify: &'a Path,
    /// Other than 0 in it: this node must not hold the address.
    pub unable: &'a Path,
}

/// The configuration with which this node takes part in its group.
#[must_use]
pub fn render(wanted: &Wanted, interface: &str, files: Files<'_>) -> String {
    let mut text = String::new();
    // Writing to a String does not fail.
    let _ = write(&mut text, wanted, interface, files);
    text
}

fn write(out: &mut String, wanted: &Wanted, interface: &str, files: Files<'_>) -> std::fmt::Result {
    let (notify, unable) = (files.notify.display(), files.unable.display());
    writeln!(out, "# Group {}: written by landfall, and again with every change.", word(&wanted.group))?;
    writeln!(out, "global_defs {{")?;
    writeln!(out, "    vrrp_version 3")?;
    writeln!(out, "    vrrp_notify_fifo {notify}")?;
    writeln!(out, "    vrrp_garp_master_delay {AGAIN_SECONDS}")?;
    writeln!(out, "    vrrp_garp_master_refresh {REFRESH_SECONDS}")?;
    writeln!(out, "    script_user root")?;
    writeln!(out, "}}")?;
    writeln!(out, "track_file edge {{\n    file {unable}\n    weight 0\n}}")?;
    writeln!(out, "vrrp_instance group {{")?;
    // Whoever has it keeps it: an address that moves back for its own sake breaks connections for nothing.
    writeln!(out, "    state BACKUP\n    nopreempt")?;
    writeln!(out, "    interface {}", word(interface))?;
    writeln!(out, "    virtual_router_id {}", wanted.router_id)?;
    writeln!(out, "    priority {}", wanted.priority)?;
    writeln!(out, "    advert_int {ADVERT_SECONDS}")?;
    let (first, others) = families(wanted);
    let mut peers: Vec<&IpAddr> =
        wanted.peers.iter().filter(|peer| same_family(peer, first.first())).collect();
    if let (Some(own), true) = (wanted.own, wanted.unicast) {
        if peers.is_empty() {
            // Said to the address itself, which does not leave the node that holds it. Without a peer it would be multicast, and
            // keepalived lets the address go for a moment when it changes from one to the other.
            peers.extend(first.first());
        }
        writeln!(out, "    unicast_src_ip {own}")?;
        block(out, "unicast_peer", peers.iter().map(ToString::to_string))?;
    }
    block(out, "track_file", ["edge".to_owned()].into_iter())?;
    block(out, "virtual_ipaddress", first.iter().map(address))?;
    if !others.is_empty() {
        block(out, "virtual_ipaddress_excluded", others.iter().map(address))?;
    }
    writeln!(out, "}}")
}

/// Adverts speak of addresses of one family; those of the other come along unmentioned.
fn families(wanted: &Wanted) -> (Vec<&IpAddr>, Vec<&IpAddr>) {
    let first = wanted.vips.first();
    wanted.vips.iter().partition(|vip| same_family(vip, first.as_ref()))
}

fn same_family(address: &IpAddr, other: Option<&&IpAddr>) -> bool {
    other.is_some_and(|other| other.is_ipv4() == address.is_ipv4())
}

/// An address alone, not its network: it must not bring a route with it.
fn address(vip: &&IpAddr) -> String {
    format!("{vip}/{}", if vip.is_ipv4() { 32 } else { 128 })
}

fn block(out: &mut String, name: &str, lines: impl Iterator<Item = String>) -> std::fmt::Result {
    writeln!(out, "    {name} {{")?;
    for line in lines {
        writeln!(out, "        {line}")?;
    }
    writeln!(out, "    }}")
}

/// One word, whatever it was: names come from outside, and a line break would begin another directive.
fn word(text: &str) -> String {
    text.chars().filter(|c| c.is_ascii_alphanumeric() || "-_.:@".contains(*c)).collect()
}

#[cfg(test)]
mod tests {
    use expect_test::{Expect, expect};

    use super::*;

    fn check(wanted: &Wanted, expected: &Expect) {
        let files = Files { notify: Path::new("/run/notify"), unable: Path::new("/run/unable") };
        let text = render(wanted, "eth0", files);
        let instance = text.split_once("vrrp_instance").map(|(_, rest)| rest).unwrap_or_default();
        expected.assert_eq(instance);
    }

    fn wanted(vips: &[&str]) -> Wanted {
        Wanted {
            group: "front".into(),
            router_id: 7,
            vips: vips.iter().map(|vip| vip.parse().unwrap()).collect(),
            own: Some("192.0.2.11".parse().unwrap()),
            priority: 200,
            able: true,
            ..Wanted::default()
        }
    }

    #[test]
    fn everybody_on_the_link_hears_it() {
        check(
            &wanted(&["192.0.2.100"]),
            &expect![[r#"
                 group {
                    state BACKUP
                    nopreempt
                    interface eth0
                    virtual_router_id 7
                    priority 200
                    advert_int 0.1
                    track_file {
                        edge
                    }
                    virtual_ipaddress {
                        192.0.2.100/32
                    }
                }
            "#]],
        );
    }

    #[test]
    fn peers_are_told_one_by_one_in_their_own_family() {
        let mut wanted = wanted(&["192.0.2.100", "2001:db8::100"]);
        wanted.unicast = true;
        wanted.peers = ["192.0.2.12", "2001:db8::12"].iter().map(|peer| peer.parse().unwrap()).collect();
        check(
            &wanted,
            &expect![[r#"
                 group {
                    state BACKUP
                    nopreempt
                    interface eth0
                    virtual_router_id 7
                    priority 200
                    advert_int 0.1
                    unicast_src_ip 192.0.2.11
                    unicast_peer {
                        192.0.2.12
                    }
                    track_file {
                        edge
                    }
                    virtual_ipaddress {
                        192.0.2.100/32
                    }
                    virtual_ipaddress_excluded {
                        2001:db8::100/128
                    }
                }
            "#]],
        );
    }

    #[test]
    fn alone_it_stays_with_unicast() {
        let wanted = Wanted { unicast: true, ..wanted(&["192.0.2.100"]) };
        let files = Files { notify: Path::new("/run/notify"), unable: Path::new("/run/unable") };
        let text = render(&wanted, "eth0", files);
        assert!(text.contains("unicast_peer {\n        192.0.2.100\n"), "{text}");
    }

    #[test]
    fn a_name_is_never_a_directive() {
        let mut wanted = wanted(&["192.0.2.100"]);
        wanted.group = "a\nnotify /bin/sh".into();
        let files = Files { notify: Path::new("/run/notify"), unable: Path::new("/run/unable") };
        let text = render(&wanted, "eth0\n}\nglobal_defs {", files);
        assert!(text.contains("# Group anotifybinsh:"), "{text}");
        assert!(text.contains("interface eth0global_defs\n"), "{text}");
    }
}
