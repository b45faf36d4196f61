//! Every file of the fuzz targets' corpora, through the same functions.

use std::path::Path;

#[path = "../../../../fuzz/src/api.rs"]
#[expect(unreachable_pub, reason = "it is the fuzz targets' crate that exports them")]
mod targets;

type Target = fn(&[u8]);

fn run(target: &str, decode: Target) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut files = 0;
    for entry in std::fs::read_dir(&corpus).expect("a corpus for every target") {
        let path = entry.expect("a readable directory").path();
        decode(&std::fs::read(&path).expect("a readable file"));
        files += 1;
    }
    assert!(files > 4, "{target} has hardly any corpus");
}

#[test]
fn corpora() {
    for (target, decode) in [
        ("json", targets::json as Target),
        ("yaml", targets::yaml),
        ("protobuf", targets::protobuf),
        ("quantity", targets::quantity),
        ("time", targets::time),
    ] {
        run(target, decode);
    }
}
