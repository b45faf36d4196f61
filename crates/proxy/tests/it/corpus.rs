//! Every file of the fuzz targets' corpora, through the same functions; as it is, and with something put in or taken out at every place.

use std::path::Path;

#[path = "../../../../fuzz/src/lane.rs"]
#[expect(unreachable_pub, reason = "it is the fuzz targets' crate that exports it")]
mod target;

/// What is put in.
const PIECES: &[&[u8]] = &[
    b"\r",
    b"\n",
    b"\r\n",
    b" ",
    b"\t",
    b"\0",
    b":",
    b";",
    b",",
    b"0",
    b"\xff",
    b"content-length: 2\r\n",
    b"transfer-encoding: chunked\r\n",
    b"0\r\n\r\n",
];

fn check(name: &str, target: fn(&[u8])) {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let mut files = 0;
    for entry in std::fs::read_dir(&corpus).expect("a corpus for every target") {
        let bytes = std::fs::read(entry.expect("a readable directory").path()).expect("a readable file");
        target(&bytes);
        files += 1;
        // Few are so long that this takes time.
        for at in 0..bytes.len().min(200) {
            let (before, after) = bytes.split_at(at);
            target(&[before, &after[1..]].concat());
            for piece in PIECES {
                target(&[before, piece, after].concat());
            }
        }
    }
    assert!(files > 8, "{name} has hardly any corpus");
}

#[test]
fn requests() {
    check("lane_request", target::request);
}

#[test]
fn answers() {
    check("lane_answer", target::answer);
}
