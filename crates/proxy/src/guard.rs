//! What this edge never speaks to for a user: its machine's and its provider's own matters, the hub, its own admin port.
//!
//! What objects name is looked at when a table is made of them, and again whenever a connection is made: where the hub's name
//! leads may change in between.

use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use landfall_plan::guard::is_private_matter;

/// How often names are looked up, and how long that may take.
pub(crate) const LOOK_UP_EVERY: Duration = Duration::from_secs(15);
const LOOK_UP_MAX: Duration = Duration::from_secs(4);

/// Says no to addresses that objects name.
#[derive(Debug, Default)]
pub struct Guard {
    /// An address that is "any" stands for all addresses of this machine.
    never: Vec<SocketAddr>,
    /// Names that lead to such places, with their ports.
    named: Vec<(String, u16)>,
    /// Where they lead; none before they were looked up once.
    led: ArcSwapOption<Vec<SocketAddr>>,
    buckets_may_be_local: bool,
}

impl Guard {
    pub(crate) fn new(config: &crate::Config) -> Self {
        Self {
            never: config.never.clone(),
            named: config.never_named.clone(),
            led: ArcSwapOption::empty(),
            buckets_may_be_local: config.buckets_may_be_local,
        }
    }

    /// Whether an endpoint or a load balancer may be spoken to at this address, now.
    pub fn admits(&self, at: SocketAddr) -> bool {
        let led = self.led.load();
        let hub = match &*led {
            Some(led) => led.iter().any(|hub| is_same(*hub, at)),
            // Nobody knows yet where it is.
            None => self.named.iter().any(|(_, port)| *port == at.port()),
        };
        !hub && self.may_admit(at)
    }

    /// The same, as far as it can be told without looking up a name.
    pub(crate) fn may_admit(&self, at: SocketAddr) -> bool {
        let is = |never: &SocketAddr| {
            let any = never.ip().is_unspecified() && never.port() == at.port();
            is_same(*never, at) || any && is_own(at.ip())
        };
        !is_private_matter(at.ip()) && !self.never.iter().any(is)
    }

    /// Whether a server outside the federation may be at this address; why not.
    pub(crate) fn admits_outside(&self, at: SocketAddr) -> Result<(), &'static str> {
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
        let led = self.led.load();
        let mut hub = led.iter().flat_map(|led| led.iter()).chain(&self.never);
        if hub.any(|one| one.ip().to_canonical() == ip) { Err("it is the hub") } else { Ok(()) }
    }

    /// Whether this is one of the names.
    pub(crate) fn has_name(&self, host: &str) -> bool {
        self.named.iter().any(|(name, _)| name.eq_ignore_ascii_case(host))
    }

    /// Finds out where the names lead. One that cannot be looked up leads where it led before.
    pub(crate) async fn look(&self) {
        let mut led = Vec::new();
        for (name, port) in &self.named {
            match look_up(name, *port).await {
                Ok(found) => led.extend(found),
                Err(_) => led.extend(self.led.load().iter().flat_map(|led| led.iter().copied())),
            }
        }
        led.sort_unstable();
        led.dedup();
        self.led.store(Some(Arc::new(led)));
    }

    /// Does so again and again.
    pub(crate) async fn follow(self: Arc<Self>) {
        while !self.named.is_empty() {
            self.look().await;
            tokio::time::sleep(LOOK_UP_EVERY).await;
        }
    }
}

/// Where a name leads.
pub(crate) async fn look_up(host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
    let found = tokio::time::timeout(LOOK_UP_MAX, tokio::net::lookup_host((host, port)));
    Ok(found.await.map_err(|_| io::ErrorKind::TimedOut)??.collect())
}

fn is_same(one: SocketAddr, other: SocketAddr) -> bool {
    one.port() == other.port() && one.ip().to_canonical() == other.ip().to_canonical()
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
        let strict = Guard { never: never.clone(), ..Guard::default() };
        let loose = Guard { never, buckets_may_be_local: true, ..Guard::default() };
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
            let got =
                (strict.admits(at), strict.admits_outside(at).is_ok(), loose.admits_outside(at).is_ok());
            assert_eq!(got, (endpoint, bucket, local_bucket), "{at}");
        }
    }

    #[test]
    fn where_the_hubs_name_leads_is_nobodys_backend() {
        let guard = Guard { named: vec![("hub.example".to_owned(), 6443)], ..Guard::default() };
        let check = |at: &str, want: bool| assert_eq!(guard.admits(at.parse().unwrap()), want, "{at}");
        // Nobody knows yet where it is.
        check("192.0.2.9:6443", false);
        check("192.0.2.9:80", true);
        guard.led.store(Some(Arc::new(vec!["192.0.2.9:6443".parse().unwrap()])));
        check("192.0.2.9:6443", false);
        check("[::ffff:192.0.2.9]:6443", false);
        check("192.0.2.7:6443", true);
        check("192.0.2.9:80", true);
        assert_eq!(guard.admits_outside("192.0.2.9:80".parse().unwrap()), Err("it is the hub"));
    }

    #[tokio::test]
    async fn a_name_that_cannot_be_looked_up_leads_where_it_led() {
        let guard = Guard { named: vec![("does-not-exist.invalid".to_owned(), 80)], ..Guard::default() };
        let hub: SocketAddr = "192.0.2.9:80".parse().unwrap();
        guard.look().await;
        assert!(guard.admits(hub), "nothing is known of it");
        guard.led.store(Some(Arc::new(vec![hub])));
        guard.look().await;
        assert!(!guard.admits(hub));
    }
}
