//! The drill on simulated clusters: a playground.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};

use super::{Beside, Loss, Place, who};
use crate::bench::failover::world::{PORT, World};

const HOST: &str = "www.example.com";
const LOSSES: &[Loss] = &[
    Loss { name: "dies, and its addresses refuse", fault: &["kill"] },
    Loss { name: "is cut off, and falls silent", fault: &["cut"] },
];
/// How long votes may take until what was just up stays up.
const SETTLE: Duration = Duration::from_secs(7);

/// Three simulated clusters.
pub(super) struct Simulated {
    world: World,
    balancers: [SocketAddr; 3],
}

impl Simulated {
    pub(super) fn start(landfall: &Path, directory: &Path) -> Result<Self> {
        let world = World::start(landfall, directory)?;
        world.apply("ingress.yaml", INGRESS)?;
        let first = &world.places.first().context("three clusters")?.cluster;
        world.say(&["cordon", first])?;
        let at = |index: usize| {
            let place = world.places.get(index).context("three clusters")?;
            anyhow::Ok(SocketAddr::new(place.balancer.into(), PORT))
        };
        let balancers = [at(1)?, at(2)?, at(0)?];
        Ok(Self { world, balancers })
    }
}

impl Place for Simulated {
    fn name(&self) -> &'static str {
        "simulated clusters"
    }

    fn losses(&self) -> &'static [Loss] {
        LOSSES
    }

    fn ours(&self) -> (SocketAddr, &str) {
        (self.world.places[0].http, HOST)
    }

    fn balancers(&self) -> &[SocketAddr; 3] {
        &self.balancers
    }

    fn clusters(&self) -> [&str; 2] {
        [&self.world.places[1].cluster, &self.world.places[2].cluster]
    }

    fn entrance(&self) -> &str {
        &self.world.places[0].cluster
    }

    fn service(&self) -> &'static str {
        "web"
    }

    fn limit(&self, policy: &str) -> Result<()> {
        self.world.say(&["uncordon", self.entrance()])?;
        self.world.apply("policy.yaml", policy)
    }

    fn beside(&self) -> Beside {
        let speaks = Some(self.world.places[0].http.ip());
        Beside { listens: Ipv4Addr::LOCALHOST.into(), speaks }
    }

    fn command(&self, program: &str) -> Result<Command> {
        Ok(Command::new(program))
    }

    fn lose(&self, loss: &Loss) -> Result<()> {
        self.world.fault(&[loss.fault, &[self.clusters()[0]]].concat())
    }

    fn heal(&self) -> Result<()> {
        self.world.fault(&["heal"])
    }

    fn settled(&self, address: SocketAddr, host: &str) -> Result<()> {
        let [near, _] = self.clusters();
        self.world.until(&format!("{near} answers at {address}"), || {
            who(address, host).is_ok_and(|by| by == near)
        })?;
        std::thread::sleep(SETTLE);
        Ok(())
    }
}

const INGRESS: &str = "
apiVersion: networking.k8s.io/v1
kind: Ingress
metadata: {name: www}
spec:
  rules:
  - host: www.example.com
    http: {paths: [{path: /, pathType: Prefix, backend: {service: {name: web, port: {number: 8080}}}}]}
";
