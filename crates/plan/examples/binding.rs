//! How long it takes to bind many Ingresses to many groups: `binding INGRESSES GROUPS`. One line of JSON.

use std::time::Instant;

use landfall_plan::binding::{Ask, Bound, Group, Measured, Want, asks, bind};
use serde_json::json;

const ZONES: usize = 10;

fn main() {
    let mut arguments = std::env::args().skip(1).filter_map(|text| text.parse::<usize>().ok());
    let (ingresses, groups) = (arguments.next().unwrap_or(10_000), arguments.next().unwrap_or(100));
    let group = |at: usize| Group {
        name: format!("group-{at:04}"),
        labels: [("zone".to_owned(), format!("z{}", at % ZONES))].into(),
        capacity: Some(u32::try_from(ingresses / groups.max(1) * 2 + 1).unwrap_or(u32::MAX)),
        load: Measured { used: f64::from(u32::try_from(at % 7).unwrap_or(0)) / 10.0, of: "connections" },
        overload: 0.95,
        ready: true,
        claimed: false,
    };
    let all: Vec<Group> = (0..groups).map(group).collect();
    let want = |at: usize| {
        // Half of them ask for a zone, the others take any.
        let selector = if at.is_multiple_of(2) { String::new() } else { format!("zone=z{}", at % ZONES) };
        let ingress = json!({"metadata": {"annotations": {"landfall.dev/ingress-selector": selector}}});
        Want {
            key: format!("shop/i{at:06}"),
            created: format!("{at:06}"),
            ask: asks(&ingress),
            bound: Vec::new(),
        }
    };
    let mut wants: Vec<Want> = (0..ingresses).map(want).collect();
    let (first_ms, bound) = timed(|| bind(&all, &wants, 10));
    for (want, bound) in wants.iter_mut().zip(&bound) {
        want.bound.clone_from(&bound.groups);
    }
    let (again_ms, same) = timed(|| bind(&all, &wants, 10));
    let (lost_ms, after) = timed(|| bind(all.get(1..).unwrap_or_default(), &wants, 10));
    let moved = after.iter().zip(&same).filter(|(after, before)| after.groups != before.groups).count();
    let unbound = bound.iter().filter(|one| one.groups.is_empty()).count();
    debug_assert!(wants.iter().all(|want| matches!(want.ask, Ask::Selector { .. })));
    let told = json!({
        "ingresses": ingresses, "groups": groups, "unbound": unbound, "firstMs": first_ms, "againMs": again_ms,
        "lostMs": lost_ms, "movedOnLoss": moved,
    });
    #[expect(clippy::print_stdout, reason = "this is what it is for")]
    {
        println!("{told}");
    }
}

fn timed(work: impl Fn() -> Vec<Bound>) -> (f64, Vec<Bound>) {
    let began = Instant::now();
    let made = work();
    (began.elapsed().as_secs_f64() * 1000.0, made)
}
