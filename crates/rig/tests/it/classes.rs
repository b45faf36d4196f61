//! The first design's four classes of clients on real clusters, when the cluster that answers them falls silent: who survives it, and
//! after how long.
//!
//! | class | looks up | tries | survives |
//! |---|---|---|---|
//! | well-written | every time | all addresses | yes |
//! | dumb | once | all addresses | yes |
//! | dumber | once | the first address | no, until the cluster is back |
//! | browser | once, and keeps its connection | all addresses | yes |

use std::time::Instant;

use landfall_sim::curl::{Browser, Curl};

use crate::carries::NEAR;
use crate::federated::{MEMBERS, becomes};
use crate::names::{NAME, Names};

const PORT: u16 = 2379;
/// Clients of this subnet stand near the cluster that is lost.
const SUBNET: &str = "+subnet=198.51.100.0/24";

/// A class's name, and one of it that asks: which cluster answers.
type Client<'a> = (&'static str, Box<dyn Fn() -> Option<String> + 'a>);

/// Clients that know the cluster that will be lost.
pub(crate) struct Classes {
    known: Vec<String>,
    browser: Browser,
}

impl Classes {
    /// All of them are answered by the cluster next to them.
    pub(crate) fn begin(names: &Names) -> Self {
        becomes("the nearest is first", &Some(names.balancer(NEAR)), || look_up(names).first().cloned());
        let known = look_up(names);
        let classes = Self { browser: curl(&known).browse().unwrap(), known };
        for (class, client) in classes.clients(names) {
            becomes(&format!("{class}: the nearest answers"), &Some(NEAR.to_owned()), client);
        }
        classes
    }

    /// It is lost: others answer those who know of them.
    pub(crate) fn lost(&self, names: &Names, since: Instant) {
        println!("| class | answered again after, s |\n|---|--:|");
        for (class, client) in self.clients(names).into_iter().filter(|(class, _)| *class != "dumber") {
            becomes(&format!("{class}: another answers"), &true, || {
                client().is_some_and(|cluster| cluster != NEAR)
            });
            println!("| {class} | {:.1} |", since.elapsed().as_secs_f64());
        }
        assert_eq!(curl(&self.known[..1]).ask().unwrap(), None, "who knows one address has nowhere to go");
        println!("| dumber | not before the cluster is back |");
    }

    /// It is back: so are those who know nobody else.
    pub(crate) fn back(self, names: &Names) {
        for (class, client) in self.clients(names).into_iter().filter(|(class, _)| *class != "browser") {
            becomes(&format!("{class}: the nearest answers again"), &true, || client().is_some());
        }
    }

    fn clients<'a>(&'a self, names: &'a Names) -> [Client<'a>; 4] {
        let ask = |addresses: &[String]| curl(addresses).ask().unwrap();
        [
            ("browser", Box::new(|| self.browser.last())),
            ("dumb", Box::new(move || ask(&self.known))),
            ("dumber", Box::new(move || ask(&self.known[..1]))),
            ("well-written", Box::new(move || ask(&look_up(names)))),
        ]
    }
}

/// The addresses of the name, as the first cluster's edges that answer give them.
fn look_up(names: &Names) -> Vec<String> {
    let others = MEMBERS.into_iter().filter(|name| *name != NEAR);
    let answers = [NEAR].into_iter().chain(others).map(|name| names.outside(name, &[SUBNET]));
    answers.into_iter().find(|found| !found.is_empty()).unwrap_or_default()
}

fn curl(addresses: &[String]) -> Curl {
    Curl { name: NAME.to_owned(), port: PORT, addresses: addresses.to_vec() }
}
