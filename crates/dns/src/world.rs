//! A database of the world's addresses in MaxMind's format: prefix, and where on the globe it is.

use std::net::IpAddr;
use std::path::Path;

use landfall_api::landfall::Coordinates;
use landfall_plan::records::{Place, Places, Prefixes};
use maxminddb::{PathElement, Reader, WithinOptions};

/// The database; read whole when members change, never for a question.
#[derive(Debug)]
pub(crate) struct World(Reader<Vec<u8>>);

impl World {
    /// Opens a database.
    pub(crate) fn open(path: &Path) -> Result<Self, maxminddb::MaxMindDbError> {
        Reader::open_readfile(path).map(Self)
    }

    /// The nearest member of every prefix.
    pub(crate) fn prefixes(&self, places: &Places) -> Prefixes<Place> {
        let mut rows: Vec<(IpAddr, u8, Place)> = Vec::new();
        for whole in ["0.0.0.0/0", "::/0"] {
            let Ok(whole) = whole.parse() else { continue };
            let Ok(networks) = self.0.within(whole, WithinOptions::default()) else { continue };
            for found in networks.flatten() {
                let number = |name| {
                    let path = [PathElement::Key("location"), PathElement::Key(name)];
                    found.decode_path::<f64>(&path).ok().flatten()
                };
                let Some((latitude, longitude)) = number("latitude").zip(number("longitude")) else {
                    continue;
                };
                let place = places.nearest(&Coordinates { latitude, longitude });
                let (Ok(network), Some(member)) = (found.network(), place) else { continue };
                let row = (network.ip(), network.prefix(), Place::Member(member));
                rows.push(row);
            }
        }
        Prefixes::new(rows, Place::Unknown)
    }
}
