//! Running other programs to their end, and finding them.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::Error;

/// How much of what a failed program printed goes into the error.
const SAID_MAX: usize = 2000;

/// Runs a program and gives what it printed; an error with its words if it fails.
pub(crate) fn output(command: &mut Command) -> Result<String, Error> {
    let shown = shown(command);
    let output = command.output().map_err(Error::io(format!("start `{shown}`")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said =
        format!("{}{}", String::from_utf8_lossy(&output.stderr), String::from_utf8_lossy(&output.stdout));
    Err(Error::Program { command: shown, status: output.status.to_string(), said: tail(&said, SAID_MAX) })
}

/// Runs a program with something on its standard input.
pub(crate) fn feed(command: &mut Command, input: &str) -> Result<String, Error> {
    let shown = shown(command);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(Error::io(format!("start `{shown}`")))?;
    if let Some(mut stdin) = child.stdin.take() {
        // A program that ends before it has read everything says why by its status.
        let _ = stdin.write_all(input.as_bytes());
    }
    let output = child.wait_with_output().map_err(Error::io(format!("wait for `{shown}`")))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = tail(&String::from_utf8_lossy(&output.stderr), SAID_MAX);
    Err(Error::Program { command: shown, status: output.status.to_string(), said })
}

/// Where a program is: in PATH, or where Debian puts root's programs.
#[expect(clippy::disallowed_methods, reason = "PATH is the environment's to say")]
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var("PATH").unwrap_or_default();
    let more = ["/usr/sbin", "/sbin", "/usr/local/go/bin"].map(PathBuf::from);
    std::env::split_paths(&path)
        .chain(more)
        .map(|directory| directory.join(program))
        .find(|file| file.is_file())
}

/// The last characters of a text, on whole lines where there are several.
pub(crate) fn tail(text: &str, most: usize) -> String {
    let text = text.trim();
    let Some(cut) = text.len().checked_sub(most).filter(|cut| *cut > 0) else { return text.to_owned() };
    let start = (cut..text.len()).find(|at| text.is_char_boundary(*at)).unwrap_or(text.len());
    let rest = &text[start..];
    rest.split_once('\n').map_or(rest, |(_, whole)| whole).to_owned()
}

/// A command as one would type it.
pub(crate) fn shown(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_is_whole_lines_and_never_splits_a_character() {
        for (text, most, want) in [
            ("a\nb\nc", 3, "c"),
            ("abc", 10, "abc"),
            ("ééé", 3, "é"),
            ("", 3, ""),
            ("one\ntwo three", 11, "two three"),
        ] {
            assert_eq!(tail(text, most), want, "{text:?} {most}");
        }
    }

    #[test]
    fn a_failing_program_is_quoted() {
        let error = output(Command::new("sh").args(["-c", "echo out; echo err >&2; exit 3"])).unwrap_err();
        let text = error.to_string();
        assert!(text.contains("err") && text.contains("out") && text.contains('3'), "{text}");
        assert_eq!(feed(&mut Command::new("cat"), "hello").unwrap(), "hello");
    }
}
