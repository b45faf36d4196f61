//! Addresses of this node's interfaces: seen, and taken off.

use std::net::IpAddr;

use futures::TryStreamExt as _;
use landfall_runtime::tasks::Tasks;
use rtnetlink::packet_route::address::{AddressAttribute, AddressMessage};
use rtnetlink::packet_route::link::LinkAttribute;
use rtnetlink::{Error, Handle, new_connection};

use crate::Wanted;

/// An address that an interface has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    link: u32,
    address: IpAddr,
    prefix: u8,
}

/// The interface that shall hold what is wanted; an error says in words why none can.
pub(crate) async fn interface(wanted: &Wanted) -> Result<String, String> {
    let failed = |error: Error| format!("the interfaces of this node cannot be seen: {error}");
    let kernel = open().map_err(|error| format!("the interfaces of this node cannot be seen: {error}"))?;
    let handle = &kernel.handle;
    if let Some(name) = &wanted.interface {
        let there = name_of(handle, None, Some(name)).await.is_ok_and(|found| found.is_some());
        return if there { Ok(name.clone()) } else { Err(format!("this node has no interface {name}")) };
    }
    let seen: Vec<Seen> = addresses(handle).await.map_err(failed)?.iter().filter_map(read).collect();
    let Some(link) = choose(wanted, &seen) else {
        return Err(format!(
            "no interface of this node is on the link of {}; name one in spec.interface",
            wanted.vips.first().map(ToString::to_string).unwrap_or_default()
        ));
    };
    let name = name_of(handle, Some(link), None).await.map_err(failed)?;
    name.ok_or_else(|| format!("the interface {link} is gone"))
}

/// Takes addresses off whatever interface has them; gives how many there were.
pub(crate) async fn sweep(vips: &[IpAddr]) -> Result<usize, String> {
    let failed = |error: String| format!("the address cannot be taken off: {error}");
    let kernel = open().map_err(|error| failed(error.to_string()))?;
    let handle = &kernel.handle;
    let mut swept = 0;
    for message in addresses(handle).await.map_err(|error| failed(error.to_string()))? {
        // Alone on its network: the way we put it on. Another is the node's own, whatever it is.
        let ours = |seen: &Seen| vips.contains(&seen.address) && seen.prefix == full(seen.address);
        if read(&message).as_ref().is_some_and(ours) {
            handle.address().del(message).execute().await.map_err(|error| failed(error.to_string()))?;
            swept += 1;
        }
    }
    Ok(swept)
}

/// The link whose network has the first address; else the one with the node's own.
fn choose(wanted: &Wanted, seen: &[Seen]) -> Option<u32> {
    let vip = wanted.vips.first()?;
    let foreign = || seen.iter().filter(|seen| !wanted.vips.contains(&seen.address));
    let near = foreign().filter(|seen| contains(seen, *vip)).max_by_key(|seen| seen.prefix);
    near.or_else(|| foreign().find(|seen| Some(seen.address) == wanted.own)).map(|seen| seen.link)
}

fn contains(seen: &Seen, address: IpAddr) -> bool {
    let masked = |bits: u128, width: u32| bits >> width.saturating_sub(seen.prefix.into()).min(127);
    match (seen.address, address) {
        (IpAddr::V4(own), IpAddr::V4(other)) => {
            seen.prefix > 0 && masked(own.to_bits().into(), 32) == masked(other.to_bits().into(), 32)
        }
        (IpAddr::V6(own), IpAddr::V6(other)) => {
            seen.prefix > 0 && masked(own.to_bits(), 128) == masked(other.to_bits(), 128)
        }
        _ => false,
    }
}

fn full(address: IpAddr) -> u8 {
    if address.is_ipv4() { 32 } else { 128 }
}

/// A line to the kernel.
struct Kernel {
    handle: Handle,
    tasks: Tasks,
}

impl Drop for Kernel {
    fn drop(&mut self) {
        self.tasks.stop();
    }
}

fn open() -> std::io::Result<Kernel> {
    let (connection, handle, _) = new_connection()?;
    let tasks = Tasks::default();
    tasks.spawn_until_stop(connection);
    Ok(Kernel { handle, tasks })
}

async fn addresses(handle: &Handle) -> Result<Vec<AddressMessage>, Error> {
    handle.address().get().execute().try_collect().await
}

fn read(message: &AddressMessage) -> Option<Seen> {
    let address = message.attributes.iter().find_map(|attribute| match attribute {
        AddressAttribute::Address(address) => Some(*address),
        _ => None,
    })?;
    Some(Seen { link: message.header.index, address, prefix: message.header.prefix_len })
}

/// The name of a link that is looked for by its number or its name.
async fn name_of(handle: &Handle, link: Option<u32>, name: Option<&str>) -> Result<Option<String>, Error> {
    let mut get = handle.link().get();
    if let Some(link) = link {
        get = get.match_index(link);
    }
    if let Some(name) = name {
        get = get.match_name(name.to_owned());
    }
    let found = get.execute().try_next().await?;
    Ok(found.and_then(|message| {
        message.attributes.into_iter().find_map(|attribute| match attribute {
            LinkAttribute::IfName(name) => Some(name),
            _ => None,
        })
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(link: u32, text: &str) -> Seen {
        let (address, prefix) = text.split_once('/').unwrap();
        Seen { link, address: address.parse().unwrap(), prefix: prefix.parse().unwrap() }
    }

    #[test]
    fn the_link_with_the_narrowest_network_is_chosen() {
        let node = [
            seen(1, "127.0.0.1/8"),
            seen(2, "192.0.2.11/24"),
            seen(3, "192.0.0.1/8"),
            seen(4, "2001:db8::11/64"),
            seen(5, "10.0.0.7/32"),
        ];
        let check = |vip: &str, own: Option<&str>, expected: Option<u32>| {
            let wanted = Wanted {
                vips: vec![vip.parse().unwrap()],
                own: own.map(|own| own.parse().unwrap()),
                ..Wanted::default()
            };
            assert_eq!(choose(&wanted, &node), expected, "{vip} on {own:?}");
        };
        check("192.0.2.100", None, Some(2));
        check("192.7.2.100", None, Some(3));
        check("2001:db8::100", None, Some(4));
        check("198.51.100.1", None, None);
        check("198.51.100.1", Some("192.0.2.11"), Some(2));
        // Held already: where it is says nothing about where it belongs.
        check("10.0.0.7", None, None);
    }
}
