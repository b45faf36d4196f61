//! Speaking to whoever runs a command. A reader that went away (`| head`) is no reason to panic.

use std::io::Write as _;

/// Prints text as it is, at once.
pub(crate) fn print(text: &str) {
    let mut out = std::io::stdout().lock();
    // Nobody reads any more: there is nothing left to do with the text.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Prints a line, at once.
pub(crate) fn say(line: &str) {
    print(&format!("{line}\n"));
}
