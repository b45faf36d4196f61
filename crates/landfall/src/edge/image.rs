//! `landfall edge image`: a container image of this very program, for members whose nodes cannot pull one.
//!
//! An archive as `docker save` writes it, which `docker load`, `podman load` and `ctr images import` take. It holds one layer: the
//! program, and, where it is not static, the libraries that this process has loaded. Pods of groups hold virtual IPs by keepalived: where
//! this machine has it, it comes along with its libraries.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, BufWriter, Read as _, Write};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use aws_lc_rs::digest::{self, SHA256};
use serde_json::{Value, json};

use super::options::ImageOptions;
use crate::say::say;

/// Where the program is in the image.
const PROGRAM: &str = "bin/landfall";
/// The part of a program that names its loader.
const PT_INTERP: u32 = 3;
/// A loader's path is not longer than this.
const PATH_BYTES_MAX: u64 = 4096;
/// Where keepalived is looked for, and where it is in the image.
const KEEPALIVED: [&str; 4] =
    ["/usr/sbin/keepalived", "/usr/local/sbin/keepalived", "/usr/bin/keepalived", "/sbin/keepalived"];
const KEEPALIVED_INSIDE: &str = "bin/keepalived";
/// keepalived asks who root is before it speaks to anybody as root.
const USERS: (&str, &str) = ("etc/passwd", "root:x:0:0:root:/:/bin/false\n");

/// Paths in the image, and where they come from.
type Content = BTreeMap<String, Origin>;

/// Where a file of the image comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Origin {
    File(PathBuf),
    Text(&'static str),
}

pub(super) fn run(options: &ImageOptions) -> Result<()> {
    let program = std::env::current_exe().context("cannot find this program")?;
    let maps = std::fs::read_to_string("/proc/self/maps").context("cannot see which libraries are loaded")?;
    let mut content = content(&program, interpreter(&program)?, &maps);
    let keepalived = KEEPALIVED.iter().map(Path::new).find(|path| path.is_file());
    if let Some(keepalived) = keepalived {
        content.extend(with_keepalived(keepalived, &libraries(keepalived)?));
    }
    let write = || archive(&options.output, &content, &options.tag);
    let bytes = write().with_context(|| format!("cannot write {}", options.output.display()))?;
    say(&format!("{}: image {}, {} MB", options.output.display(), options.tag, bytes >> 20));
    say(&match keepalived {
        Some(path) => format!("With {}: pods of groups can hold virtual IPs.", path.display()),
        None => {
            "Without keepalived, which this machine does not have: pods of groups cannot hold virtual IPs. \
            Install the package keepalived and write the image again if they shall."
                .into()
        }
    });
    Ok(())
}

/// What the layer holds of this program.
fn content(program: &Path, interpreter: Option<String>, maps: &str) -> Content {
    let mut content = BTreeMap::from([(PROGRAM.to_owned(), Origin::File(program.to_owned()))]);
    let Some(interpreter) = interpreter else { return content };
    let path = |line: &str| line.split_once('/').map(|(_, path)| format!("/{path}"));
    let libraries = maps.lines().filter_map(path).filter(|path| path.contains(".so"));
    content.extend(libraries.chain([interpreter]).map(same_place));
    content
}

/// What it holds of keepalived.
fn with_keepalived(program: &Path, libraries: &str) -> Content {
    // Lines such as `libc.so.6 => /lib/libc.so.6 (0x…)`, and `/lib64/ld.so.2 (0x…)`.
    let path = |line: &str| line.split_whitespace().find(|word| word.starts_with('/')).map(str::to_owned);
    let mut content: Content = libraries.lines().filter_map(path).map(same_place).collect();
    content.insert(KEEPALIVED_INSIDE.to_owned(), Origin::File(program.to_owned()));
    content.insert(USERS.0.to_owned(), Origin::Text(USERS.1));
    content
}

fn same_place(path: String) -> (String, Origin) {
    (path.trim_start_matches('/').to_owned(), Origin::File(path.into()))
}

/// The libraries that another program would load, as its loader tells it; none for a static one.
fn libraries(program: &Path) -> Result<String> {
    let Some(loader) = interpreter(program)? else { return Ok(String::new()) };
    let failed = || format!("cannot see which libraries {} needs", program.display());
    let output = Command::new(loader).arg("--list").arg(program).output().with_context(failed)?;
    anyhow::ensure!(output.status.success(), "{}: {}", failed(), String::from_utf8_lossy(&output.stderr));
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The loader that a program names; none for a static one.
fn interpreter(program: &Path) -> Result<Option<String>> {
    let read = || -> io::Result<Option<String>> {
        let file = File::open(program)?;
        let number = |at: u64, bytes: usize| -> io::Result<u64> {
            let mut number = [0; 8];
            file.read_exact_at(number.get_mut(..bytes).unwrap_or_default(), at)?;
            Ok(u64::from_le_bytes(number))
        };
        // As ELF files of 64 bits have it: where the table of parts is, how large its rows are, and how many there are.
        let (table, size, count) = (number(0x20, 8)?, number(0x36, 2)?, number(0x38, 2)?);
        for row in (0..count).map(|row| table.saturating_add(row.saturating_mul(size))) {
            if number(row, 4)? == u64::from(PT_INTERP) {
                let (at, length) = (number(row + 8, 8)?, number(row + 32, 8)?.min(PATH_BYTES_MAX));
                let mut path = vec![0; usize::try_from(length).unwrap_or(0)];
                file.read_exact_at(&mut path, at)?;
                path.retain(|byte| *byte != 0);
                return Ok(Some(String::from_utf8_lossy(&path).into_owned()));
            }
        }
        Ok(None)
    };
    read().with_context(|| format!("cannot read {}", program.display()))
}

/// Writes the archive; gives its size.
fn archive(file: &Path, content: &Content, tag: &str) -> io::Result<u64> {
    // Twice: an archive says how long its parts are before it holds them.
    let mut measured = Measured { inner: io::sink(), length: 0, digest: digest::Context::new(&SHA256) };
    layer(&mut measured, content)?;
    let (length, layer_digest) = (measured.length, hex(measured.digest.finish().as_ref()));
    let config = json!({
        "architecture": architecture(), "os": "linux",
        "config": {"Entrypoint": ["/bin/landfall"], "Env": ["PATH=/bin"], "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": [format!("sha256:{layer_digest}")]},
    })
    .to_string();
    let config_name = format!("{}.json", hex(digest::digest(&SHA256, config.as_bytes()).as_ref()));
    let layer_name = format!("{layer_digest}.tar");
    let manifest = json!([{"Config": config_name, "RepoTags": [tag], "Layers": [layer_name]}]);

    let mut out = Measured {
        inner: BufWriter::new(File::create(file)?),
        length: 0,
        digest: digest::Context::new(&SHA256),
    };
    begin(&mut out, &layer_name, length)?;
    layer(&mut out, content)?;
    pad(&mut out, length)?;
    for (name, text) in [(config_name.as_str(), config), ("manifest.json", Value::to_string(&manifest))] {
        let length = text.len() as u64;
        begin(&mut out, name, length)?;
        out.write_all(text.as_bytes())?;
        pad(&mut out, length)?;
    }
    out.write_all(&[0; 1024])?;
    out.flush()?;
    Ok(out.length)
}

/// Writes the layer: the same bytes for the same content.
fn layer(out: impl Write, content: &Content) -> io::Result<()> {
    let mut tar = tar::Builder::new(out);
    let above =
        |path: &String| path.match_indices('/').map(|(at, _)| path[..at].to_owned()).collect::<Vec<_>>();
    let directories: BTreeSet<String> = content.keys().flat_map(above).chain(["tmp".to_owned()]).collect();
    for directory in directories {
        let mut header = header(0, if directory == "tmp" { 0o1777 } else { 0o755 });
        header.set_entry_type(tar::EntryType::Directory);
        tar.append_data(&mut header, format!("{directory}/"), io::empty())?;
    }
    for (to, from) in content {
        match from {
            Origin::File(path) => {
                let file = File::open(path)?;
                let length = file.metadata()?.len();
                tar.append_data(&mut header(length, 0o755), to, file.take(length))?;
            }
            Origin::Text(text) => {
                tar.append_data(&mut header(text.len() as u64, 0o644), to, text.as_bytes())?
            }
        }
    }
    tar.finish()
}

/// The head of a part of an archive.
fn begin(out: &mut impl Write, name: &str, length: u64) -> io::Result<()> {
    let mut header = header(length, 0o644);
    header.set_path(name)?;
    header.set_cksum();
    out.write_all(header.as_bytes())
}

/// Parts of an archive end at whole blocks.
fn pad(out: &mut impl Write, length: u64) -> io::Result<()> {
    let over = usize::try_from(length % 512).unwrap_or(0);
    out.write_all([0; 512].get(..(512 - over) % 512).unwrap_or_default())
}

fn header(size: u64, mode: u32) -> tar::Header {
    let mut header = tar::Header::new_gnu();
    header.set_size(size);
    header.set_mode(mode);
    header.set_uid(0);
    header.set_gid(0);
    header.set_mtime(0);
    header
}

/// The architecture, as images call it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Passes on what is written, and knows its length and its digest.
struct Measured<W> {
    inner: W,
    length: u64,
    digest: digest::Context,
}

impl<W: Write> Write for Measured<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.length += written as u64;
        self.digest.update(bytes.get(..written).unwrap_or_default());
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_holds_the_program_and_what_it_needs() {
        let maps = "7f00-7f01 r-xp 00000000 08:01 42   /usr/lib/libc.so.6\n7f02-7f03 rw-p 00000000 00:00 0 [heap]\n\
            7f04-7f05 r-xp 00000000 08:01 43   /opt/landfall\n";
        let names = |interpreter: Option<&str>| {
            let content = content(Path::new("/opt/landfall"), interpreter.map(str::to_owned), maps);
            content.into_keys().collect::<Vec<_>>()
        };
        assert_eq!(names(None), ["bin/landfall"]);
        assert_eq!(names(Some("/lib64/ld.so.2")), ["bin/landfall", "lib64/ld.so.2", "usr/lib/libc.so.6"]);
        let listed =
            "\tlinux-vdso.so.1 (0x7f)\n\tlibnl.so.2 => /lib/libnl.so.2 (0x7f)\n\t/lib64/ld.so.2 (0x7f)\n";
        let names: Vec<String> =
            with_keepalived(Path::new("/usr/sbin/keepalived"), listed).into_keys().collect();
        assert_eq!(names, ["bin/keepalived", "etc/passwd", "lib/libnl.so.2", "lib64/ld.so.2"]);
    }

    #[test]
    fn an_archive_is_what_it_says() {
        let directory = tempfile::tempdir().unwrap();
        let program = directory.path().join("program");
        std::fs::write(&program, vec![7; 1000]).unwrap();
        let file = directory.path().join("image.tar");
        let content = BTreeMap::from([
            (PROGRAM.to_owned(), Origin::File(program)),
            (USERS.0.to_owned(), Origin::Text(USERS.1)),
        ]);
        let size = archive(&file, &content, "landfall:test").unwrap();
        assert_eq!(size, std::fs::metadata(&file).unwrap().len());
        let mut parts = BTreeMap::new();
        for entry in tar::Archive::new(File::open(&file).unwrap()).entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            parts.insert(entry.path().unwrap().display().to_string(), bytes);
        }
        let manifest: Value = serde_json::from_slice(&parts["manifest.json"]).unwrap();
        assert_eq!(manifest[0]["RepoTags"], json!(["landfall:test"]));
        let config: Value = serde_json::from_slice(&parts[manifest[0]["Config"].as_str().unwrap()]).unwrap();
        let layer = &parts[manifest[0]["Layers"][0].as_str().unwrap()];
        let digest = format!("sha256:{}", hex(digest::digest(&SHA256, layer).as_ref()));
        assert_eq!(config["rootfs"]["diff_ids"], json!([digest]));
        let inside: Vec<String> = tar::Archive::new(layer.as_slice())
            .entries()
            .unwrap()
            .map(|entry| entry.unwrap().path().unwrap().display().to_string())
            .collect();
        assert_eq!(inside, ["bin/", "etc/", "tmp/", "bin/landfall", "etc/passwd"]);
    }

    #[test]
    fn this_program_names_its_loader() {
        // Tests are linked as the system links.
        let loader = interpreter(&std::env::current_exe().unwrap()).unwrap();
        assert!(loader.as_ref().is_none_or(|path| Path::new(path).exists()), "{loader:?}");
    }
}
