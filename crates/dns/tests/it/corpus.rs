//! Every file of the fuzz target's corpus, through the same function.

use std::path::Path;

#[path = "../../../../fuzz/src/dns.rs"]
#[expect(unreachable_pub, reason = "it is the fuzz targets' crate that exports it")]
mod target;

#[test]
fn corpus() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus/dns");
    let mut files = 0;
    for entry in std::fs::read_dir(&corpus).expect("a corpus") {
        target::packet(&std::fs::read(entry.expect("a readable directory").path()).expect("a readable file"));
        files += 1;
    }
    assert!(files > 8, "hardly any corpus");
}
