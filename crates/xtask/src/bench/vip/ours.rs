//! Us: a hub, two edges with their keepers and keepalived, on one link.

use std::path::Path;

use anyhow::Result;
use landfall_rig::client::Client;
use landfall_rig::front::{Front, VIP};
use landfall_rig::{Link, Node};

use super::loss::{Contender, Loss};
use super::until;

/// Two edges.
pub(super) struct Ours(Front);

impl Ours {
    pub(super) fn start(landfall: &Path, directory: &Path) -> Result<Self> {
        let front = Front::start(landfall, directory, 2)?;
        front.apply(&front.objects()?)?;
        Ok(Self(front))
    }

    /// How the edges say that they stand to the address.
    fn said(&self) -> Result<Vec<String>> {
        let state = |edge: &serde_json::Value| {
            edge.pointer("/status/vips/0/state").and_then(|state| state.as_str()).unwrap_or("").to_owned()
        };
        Ok(self.0.edges()?.iter().map(state).collect())
    }
}

impl Contender for Ours {
    fn link(&self) -> &Link {
        self.0.link()
    }

    fn node(&self, at: usize) -> Result<&Node> {
        Ok(self.0.node(at)?)
    }

    fn has(&self, _: Loss) -> bool {
        true
    }

    fn take(&mut self, loss: Loss, at: usize) -> Result<()> {
        let front = &mut self.0;
        match loss {
            Loss::Proxy => front.kill_edge(at),
            Loss::Keepalived => front.kill_all_of_keepalived(at)?,
            Loss::Keeper => front.kill_keeper(at),
            Loss::Link => front.link().plug(front.node(at)?, false)?,
            Loss::Node => front.kill_node(at)?,
        }
        Ok(())
    }

    fn mend(&mut self, loss: Loss, at: usize) -> Result<()> {
        let front = &mut self.0;
        match loss {
            Loss::Proxy => front.start_edge(at)?,
            // The keeper has started it again.
            Loss::Keepalived => {}
            Loss::Keeper => front.start_keeper(at)?,
            Loss::Link => front.link().plug(front.node(at)?, true)?,
            Loss::Node => front.start_node(at)?,
        }
        Ok(())
    }

    fn settled(&self) -> Result<usize> {
        let mut found = None;
        until("one edge holds the address, and the other one stands by", || {
            // Whoever lost it has said something else since: it held it before.
            found =
                match (&self.0.holders()?[..], self.said()?.iter().map(String::as_str).collect::<Vec<_>>()) {
                    ([0], said) if said == ["Holding", "Standby"] => Some(0),
                    ([1], said) if said == ["Standby", "Holding"] => Some(1),
                    _ => None,
                };
            Ok(found.is_some())
        })?;
        Ok(found.unwrap_or_default())
    }

    fn leaves(&self) -> bool {
        true
    }

    fn client(&self) -> Result<Client> {
        Ok(self.0.client(VIP)?)
    }
}
