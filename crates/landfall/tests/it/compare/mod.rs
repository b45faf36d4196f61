//! kubectl cannot tell a hub from Kubernetes: one script, run on both, compared step by step.
//!
//! `../kubectl/*.txt` are the steps, `../manifests` what they send, [`differences`] what may differ and why. Anything
//! else that differs fails. Whole transcripts are in the target directory, `tmp/{ours,theirs,older}/`. `LANDFALL_COMPARE=name` runs only the script files whose name contains that.

mod diff;
mod differences;
mod normal;
mod run;
mod script;

use std::collections::BTreeSet;
use std::path::Path;

use crate::support::{self, Hub, Kubernetes};
use differences::DIFFERENCES;
use normal::Normaliser;
use run::{Outcome, Runner};
use script::Step;

const SUITE: &str = "comparison with Kubernetes";

#[test]
fn kubectl_cannot_tell_the_hub_from_kubernetes() {
    if let Some(why) = support::missing() {
        return support::skip(SUITE, &why);
    }
    let newest = support::kubernetes_binary("kubectl").unwrap();
    let older = support::find("kubectl");
    if older.is_none() {
        support::skip("the same script with an older kubectl", "no kubectl on the path");
    }
    let (chapters, whole) = script::load();
    let on_hub = |name: &str, kubectl: &Path| {
        let hub = Hub::start();
        Runner::new(name, kubectl, &hub.kubeconfig, hub.directory.path()).all(&chapters)
    };
    let (ours, theirs, olders) = std::thread::scope(|scope| {
        let ours = scope.spawn(|| on_hub("ours", &newest));
        let olders = older.as_ref().map(|kubectl| scope.spawn(|| on_hub("older", kubectl)));
        let kubernetes = Kubernetes::start();
        let directory = kubernetes.directory.path();
        let theirs = Runner::new("theirs", &newest, &kubernetes.kubeconfig, directory).all(&chapters);
        (ours.join().unwrap(), theirs, olders.map(|thread| thread.join().unwrap()))
    });
    let steps: Vec<&Step> = chapters.iter().flat_map(|chapter| &chapter.steps).collect();
    let report = compare(&steps, &ours, &theirs);
    let mut wrong = report.wrong;
    wrong.extend(olders.iter().flat_map(|olders| older_differs(&steps, &ours, olders)));
    if whole {
        let unused = DIFFERENCES.iter().filter(|d| !report.used.contains(d.what));
        wrong.extend(unused.map(|d| format!("No step shows this difference any more: {}\n", d.what)));
    }
    let count = (wrong.len(), steps.len());
    assert!(wrong.is_empty(), "{} of {} steps differ:\n\n{}", count.0, count.1, wrong.join("\n"));
}

/// An older kubectl, as distributions ship it, ends every step as the newest does.
fn older_differs(steps: &[&Step], ours: &[Outcome], olders: &[Outcome]) -> Vec<String> {
    let known = |step: &Step| differences::NEWER.iter().any(|(text, _)| step.command.contains(text));
    let pairs = steps.iter().zip(ours.iter().zip(olders)).filter(|(step, _)| !known(step));
    let differ = pairs.filter(|(_, (new, old))| new.code != old.code);
    differ.map(|(step, (new, old))| format!("{step}\n{}--- older:\n{}", new.text(), old.text())).collect()
}

/// The page that explains the differences is made from the table that allows them.
#[test]
fn differences_are_documented() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/differences.md");
    expect_test::expect_file![page].assert_eq(&differences::page());
}

/// What a comparison found.
struct Report {
    /// One text per step that differs without a reason.
    wrong: Vec<String>,
    /// The differences that were seen.
    used: BTreeSet<&'static str>,
}

fn compare(steps: &[&Step], ours: &[Outcome], theirs: &[Outcome]) -> Report {
    let normaliser = Normaliser::new();
    let mut report = Report { wrong: Vec::new(), used: BTreeSet::new() };
    for (step, (ours, theirs)) in steps.iter().zip(ours.iter().zip(theirs)) {
        let mut sides = [ours, theirs].map(|outcome| normaliser.lines(&outcome.text()));
        if sides[0] == sides[1] {
            continue;
        }
        differences::apply(step, &mut sides, &mut report.used);
        if sides[0] != sides[1] {
            let diff = diff::lines(&sides[1], &sides[0]);
            report.wrong.push(format!("{step}\n{diff}"));
        }
    }
    report
}
