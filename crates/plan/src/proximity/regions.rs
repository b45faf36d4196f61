//! Where clients stand, as operators write it: a text with one line for each prefix.
//!
//! ```text
//! # offices
//! 192.0.2.0/24: europe-west                 in this region
//! 198.51.100.0/24: korea @ 37.6,127.0       in this region, which lies there
//! 203.0.113.0/24: cluster/us-east           with this member
//! 2001:db8::/32: europe-west
//! ```
//!
//! A ConfigMap has several such texts under keys of any name; they count in the order of these.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use landfall_api::landfall::{Coordinates, PlanPrefix};
use landfall_api::names::dns1123_subdomain;

/// So many complaints are kept.
const WRONG_MAX: usize = 10;

/// What was read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Regions {
    /// Prefixes, each once, in order of their addresses.
    pub prefixes: Vec<PlanPrefix>,
    /// What is wrong with lines that were left out; the first of them.
    pub wrong: Vec<String>,
}

/// Reads the texts of a ConfigMap. Lines that cannot be read are left out.
pub fn regions<'a>(texts: impl IntoIterator<Item = (&'a str, &'a str)>) -> Regions {
    let mut read = BTreeMap::new();
    let mut wrong = Vec::new();
    let texts: BTreeMap<&str, &str> = texts.into_iter().collect();
    for (key, text) in texts {
        for (number, line) in (1..).zip(text.lines()) {
            let line = line.split('#').next().unwrap_or("").trim();
            if line.is_empty() {
                continue;
            }
            let problem = match prefix(line) {
                Ok((network, _)) if read.contains_key(&network) => {
                    Some("the prefix was told before".to_owned())
                }
                Ok((network, prefix)) => {
                    read.insert(network, prefix);
                    None
                }
                Err(problem) => Some(problem),
            };
            if let Some(problem) = problem.filter(|_| wrong.len() < WRONG_MAX) {
                let line: String = line.chars().take(80).collect();
                wrong.push(format!("{key}, line {number}: {line:?}: {problem}"));
            }
        }
    }
    Regions { prefixes: read.into_values().collect(), wrong }
}

/// The names of regions that prefixes tell of.
pub fn region_names(prefixes: &[PlanPrefix]) -> BTreeSet<&str> {
    prefixes.iter().filter_map(|prefix| prefix.region.as_deref()).collect()
}

type Network = (IpAddr, u8);

fn prefix(line: &str) -> Result<(Network, PlanPrefix), String> {
    // The last colon: addresses may have some themselves.
    let (cidr, place) = line.rsplit_once(':').ok_or("it must be CIDR: REGION")?;
    let (ip, length) = network(cidr.trim())?;
    let (name, point) = match place.split_once('@') {
        Some((name, point)) => (name.trim(), Some(coordinates(point)?)),
        None => (place.trim(), None),
    };
    let (cluster, region) = match name.strip_prefix("cluster/") {
        Some(cluster) => (Some(cluster.to_owned()), None),
        None => (None, Some(name.to_owned())),
    };
    let named = cluster.as_ref().or(region.as_ref()).map_or("", String::as_str);
    if let Some(problem) = dns1123_subdomain(named).first() {
        return Err(format!("{named:?} is no name: {problem}"));
    }
    let prefix = PlanPrefix { cidr: format!("{ip}/{length}"), cluster, region, coordinates: point };
    Ok(((ip, length), prefix))
}

fn network(text: &str) -> Result<Network, String> {
    let wrong = || format!("{text:?} is no prefix such as 192.0.2.0/24");
    let (ip, length) = text.split_once('/').ok_or_else(wrong)?;
    let ip: IpAddr = ip.parse().map_err(|_| wrong())?;
    let length: u8 = length.parse().map_err(|_| wrong())?;
    let ip = match ip {
        IpAddr::V4(ip) if length <= 32 => {
            let mask = u32::MAX.checked_shl(32 - u32::from(length)).unwrap_or(0);
            IpAddr::V4(Ipv4Addr::from_bits(ip.to_bits() & mask))
        }
        IpAddr::V6(ip) if length <= 128 => {
            let mask = u128::MAX.checked_shl(128 - u32::from(length)).unwrap_or(0);
            IpAddr::V6(Ipv6Addr::from_bits(ip.to_bits() & mask))
        }
        IpAddr::V4(_) | IpAddr::V6(_) => return Err(wrong()),
    };
    Ok((ip, length))
}

fn coordinates(text: &str) -> Result<Coordinates, String> {
    let wrong = || format!("{:?} is no point such as 52.5,13.4", text.trim());
    let (latitude, longitude) = text.split_once(',').ok_or_else(wrong)?;
    let number = |text: &str| text.trim().parse::<f64>().ok();
    match (number(latitude), number(longitude)) {
        (Some(latitude), Some(longitude)) if latitude.abs() <= 90.0 && longitude.abs() <= 180.0 => {
            Ok(Coordinates { latitude, longitude })
        }
        _ => Err(wrong()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(regions: &Regions) -> Vec<String> {
        let one = |prefix: &PlanPrefix| {
            let place = prefix
                .cluster
                .as_ref()
                .map_or_else(|| prefix.region.clone(), |name| Some(format!("in {name}")));
            let point = prefix.coordinates.as_ref().map(|at| format!(" at {},{}", at.latitude, at.longitude));
            format!("{} {}{}", prefix.cidr, place.unwrap_or_default(), point.unwrap_or_default())
        };
        regions.prefixes.iter().map(one).collect()
    }

    #[test]
    fn lines_are_read_and_bad_ones_left_out() {
        let text = "# offices\n192.0.2.7/24: europe-west\n\n 198.51.100.0/24 : korea @ 37.6, 127 # far\n0.0.0.0/0: rest\n2001:db8:1::/48: eu\n::/0: rest";
        let more = "203.0.113.0/24: cluster/us-east\n192.0.2.0/24: asia\n10.0.0.0/33: x\nnonsense\n10.0.0.0/8: Not A Name\n10.0.0.0/8: a @ 99,0\n10.0.0.0/8:";
        let regions = regions([("z", more), ("a", text)]);
        assert_eq!(
            told(&regions),
            [
                "0.0.0.0/0 rest",
                "192.0.2.0/24 europe-west",
                "198.51.100.0/24 korea at 37.6,127",
                "203.0.113.0/24 in us-east",
                "::/0 rest",
                "2001:db8:1::/48 eu",
            ]
        );
        let starts = [
            "z, line 2: \"192.0.2.0/24: asia\": the prefix was told before",
            "z, line 3: \"10.0.0.0/33: x\": \"10.0.0.0/33\" is no prefix",
            "z, line 4: \"nonsense\": it must be CIDR: REGION",
            "z, line 5: \"10.0.0.0/8: Not A Name\": \"Not A Name\" is no name",
            "z, line 6: \"10.0.0.0/8: a @ 99,0\": \"99,0\" is no point",
            "z, line 7: \"10.0.0.0/8:\": \"\" is no name",
        ];
        assert_eq!(regions.wrong.len(), starts.len(), "{:?}", regions.wrong);
        for (wrong, start) in regions.wrong.iter().zip(starts) {
            assert!(wrong.starts_with(start), "{wrong} does not begin with {start}");
        }
        assert_eq!(region_names(&regions.prefixes).len(), 4);
    }
}
