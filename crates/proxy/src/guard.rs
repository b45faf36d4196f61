//! What this edge never speaks to for a user: its machine's and its provider's own matters, the hub, its own admin port.

use std::net::{IpAddr, SocketAddr, UdpSocket};

use landfall_plan::guard::is_private_matter;

/// Says no to addresses that objects name.
#[derive(Debug, Default)]
pub(crate) struct Guard {
    /// An address that is "any" stands for all addresses of this machine.
    never: Vec<SocketAddr>,
    buckets_may_be_local: bool,
}

impl Guard {
    pub(crate) fn new(config: &crate::Config) -> Self {
        Self { never: config.never.clone(), buckets_may_be_local: config.buckets_may_be_local }
    }

    /// Whether an endpoint or a load balancer may be at this address.
    pub(crate) fn admits(&self, at: SocketAddr) -> bool {
        let is = |never: &SocketAddr| {
            let same = never.ip().to_canonical() == at.ip().to_canonical();
            never.port() == at.port() && (same || never.ip().is_unspecified() && is_own(at.ip()))
        };
        !is_private_matter(at.ip()) && !self.never.iter().any(is)
    }

    /// Whether a server outside the federation may be at this address; why not. `hub` are the addresses of the hub's name.
    pub(crate) fn admits_outside(&self, at: SocketAddr, hub: &[IpAddr]) -> Result<(), &'static str> {
        if !self.admits(at) {
            return Err("its address is nobody's backend");
        }
        if self.buckets_may_be_local {
            return Ok(());
        }
        let ip = at.ip().to_canonical();
        if is_own(ip) {
            return Err("it is this machine");
        }
        let hub = hub.iter().copied().chain(self.never.iter().map(SocketAddr::ip));
        if hub.into_iter().any(|one| one.to_canonical() == ip) { Err("it is the hub") } else { Ok(()) }
    }
}

/// Whether an address is this machine's: what is sent there would come from there.
fn is_own(ip: IpAddr) -> bool {
    let any: IpAddr = if ip.is_ipv4() { [0; 4].into() } else { [0; 16].into() };
    // Nothing is sent: the kernel only says which address it would send from.
    let from = UdpSocket::bind((any, 0)).and_then(|socket| {
        socket.connect((ip, 9))?;
        socket.local_addr()
    });
    ip.to_canonical().is_loopback() || from.is_ok_and(|from| from.ip() == ip)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hub_and_the_admin_port_are_nobodys_backend() {
        let never = vec!["192.0.2.1:6443".parse().unwrap(), "0.0.0.0:9090".parse().unwrap()];
        let strict = Guard { never: never.clone(), buckets_may_be_local: false };
        let loose = Guard { never, buckets_may_be_local: true };
        for (at, endpoint, bucket, local_bucket) in [
            ("192.0.2.7:80", true, true, true),
            ("192.0.2.1:6443", false, false, false),
            ("[::ffff:192.0.2.1]:6443", false, false, false),
            ("192.0.2.1:80", true, false, true),
            ("127.0.0.1:80", true, false, true),
            ("[::1]:80", true, false, true),
            ("127.0.0.1:9090", false, false, false),
            ("127.8.8.8:9090", false, false, false),
            ("169.254.169.254:80", false, false, false),
        ] {
            let at: SocketAddr = at.parse().unwrap();
            let got = (
                strict.admits(at),
                strict.admits_outside(at, &[]).is_ok(),
                loose.admits_outside(at, &[]).is_ok(),
            );
            assert_eq!(got, (endpoint, bucket, local_bucket), "{at}");
        }
        let named = [IpAddr::from([192, 0, 2, 9])];
        assert_eq!(strict.admits_outside("192.0.2.9:80".parse().unwrap(), &named), Err("it is the hub"));
    }
}
