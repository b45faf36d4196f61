//! Stands in for `landfall echo` in the images of a rig: answers every HTTP request with who it is.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;

#[expect(
    clippy::print_stdout,
    clippy::disallowed_methods,
    reason = "it runs in a pod: its log is standard output"
)]
fn main() -> std::io::Result<()> {
    let pod = std::env::var("HOSTNAME").unwrap_or_default();
    let listener = TcpListener::bind("0.0.0.0:8080")?;
    println!("listening on 8080");
    for stream in listener.incoming() {
        let mut stream = stream?;
        let mut first = String::new();
        let mut lines = BufReader::new(stream.try_clone()?);
        if lines.read_line(&mut first).is_err() {
            continue;
        }
        let mut line = String::new();
        while lines.read_line(&mut line).is_ok_and(|read| read > 2) {
            line.clear();
        }
        let path = first.split_whitespace().nth(1).unwrap_or("/");
        println!("{}", first.trim());
        let body = format!("{{\"pod\":\"{pod}\",\"path\":\"{path}\"}}\n");
        let _ = write!(
            stream,
            "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
    }
    Ok(())
}
