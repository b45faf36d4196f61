//! Container images without a registry: a tar of layers made from programs of this machine.
//!
//! A program comes with the shared libraries that `ldd` names, so nothing needs a second, static build. The base layer
//! holds a shell, curl and the like, taken from the host: enough for `kubectl exec` and for clients inside pods; its
//! `sleep` is the pause container. The format is that of `docker save`, which containerd imports.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::Command;

use aws_lc_rs::digest;
use serde_json::{Value, json};

use crate::Error;
use crate::program::{find, output};

/// The image of every pod's first container, which holds its namespaces.
pub const PAUSE: &str = "landfall.dev/pause:1";
/// A shell, curl, and what else a client in a pod wants.
pub const TOOLS: &str = "landfall.dev/tools:1";
/// The echo server.
pub const ECHO: &str = "landfall.dev/echo:dev";
/// Landfall itself.
pub const LANDFALL: &str = "landfall.dev/landfall:dev";
/// The cluster's DNS.
pub const COREDNS: &str = "landfall.dev/coredns:1";

/// Programs of the host that the base layer brings, where the host has them.
const TOOLBOX: &[&str] = &[
    "sh", "sleep", "cat", "ls", "env", "id", "date", "head", "tail", "grep", "wc", "hostname", "getent",
    "curl", "true", "false", "printenv", "mkdir", "rm", "touch", "seq", "dig", "nc",
];

/// Files of the base layer that are not programs. Names are looked up in /etc/hosts, then in the DNS.
const FILES: &[(&str, &str)] = &[
    ("etc/passwd", "root:x:0:0:root:/:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"),
    ("etc/group", "root:x:0:\nnogroup:x:65534:\n"),
    ("etc/nsswitch.conf", "hosts: files dns\n"),
];

/// The programs of ours that images are made of.
#[derive(Clone, Debug)]
pub(crate) struct Programs {
    /// The `landfall` binary: the echo server, and Landfall itself.
    pub(crate) landfall: PathBuf,
    /// CoreDNS.
    pub(crate) coredns: PathBuf,
}

/// The layers that images are put together from.
pub(crate) struct Layers {
    base: Layer,
    landfall: Layer,
    coredns: Layer,
}

/// Writes the layers into a directory.
pub(crate) fn layers(directory: &Path, programs: &Programs) -> Result<Layers, Error> {
    std::fs::create_dir_all(directory).map_err(Error::io(format!("make {}", directory.display())))?;
    let tools: Vec<(PathBuf, String)> =
        TOOLBOX.iter().filter_map(|name| Some((find(name)?, format!("bin/{name}")))).collect();
    let landfall = (programs.landfall.clone(), "bin/landfall".to_owned());
    let coredns = (programs.coredns.clone(), "bin/coredns".to_owned());
    Ok(Layers {
        base: layer(&directory.join("base.tar"), &tools, FILES)?,
        landfall: layer(&directory.join("landfall.tar"), &[landfall], &[])?,
        coredns: layer(&directory.join("coredns.tar"), &[coredns], &[])?,
    })
}

/// Writes one archive with all images of a cluster. The echo server knows from its image where it is.
pub(crate) fn archive(file: &Path, layers: &Layers, cluster: &str) -> Result<(), Error> {
    let failed = || Error::io(format!("write the images to {}", file.display()));
    let archive = File::create(file).map_err(failed())?;
    let mut archive = tar::Builder::new(io::BufWriter::new(archive));
    let Layers { base, landfall, coredns } = layers;
    for layer in [base, landfall, coredns] {
        archive.append_path_with_name(&layer.file, layer.name()).map_err(failed())?;
    }
    let here = format!("CLUSTER_NAME={cluster}");
    let images = [
        image(PAUSE, &[base], &["/bin/sleep", "infinity"], &here),
        image(TOOLS, &[base], &["/bin/sleep", "infinity"], &here),
        image(ECHO, &[base, landfall], &["/bin/landfall", "echo"], &here),
        image(LANDFALL, &[base, landfall], &["/bin/landfall"], &here),
        image(COREDNS, &[coredns], &["/bin/coredns"], &here),
    ];
    let mut manifest = Vec::new();
    for (config, entry) in images {
        let name = entry["Config"].as_str().unwrap_or_default().to_owned();
        append(&mut archive, &name, config.as_bytes()).map_err(failed())?;
        manifest.push(entry);
    }
    append(&mut archive, "manifest.json", Value::from(manifest).to_string().as_bytes()).map_err(failed())?;
    archive.into_inner().and_then(|mut rest| rest.flush()).map_err(failed())
}

/// A layer on disk and its digest.
struct Layer {
    file: PathBuf,
    digest: String,
}

impl Layer {
    fn name(&self) -> String {
        format!("{}.tar", self.digest)
    }
}

/// Writes a layer with programs (where they are, where they go), the libraries they need, and files.
fn layer(file: &Path, programs: &[(PathBuf, String)], files: &[(&str, &str)]) -> Result<Layer, Error> {
    let failed = || Error::io(format!("write the layer {}", file.display()));
    let mut content: BTreeMap<String, PathBuf> = BTreeMap::new();
    for (from, to) in programs {
        content.insert(to.clone(), from.clone());
        for library in libraries(from)? {
            content.insert(library.trim_start_matches('/').to_owned(), PathBuf::from(&library));
        }
    }
    let mut tar = tar::Builder::new(io::BufWriter::new(File::create(file).map_err(failed())?));
    let mut made = BTreeSet::new();
    let names = content.keys().map(String::as_str).chain(files.iter().map(|(name, _)| *name));
    for directory in names.flat_map(parents).chain(["tmp".to_owned()]) {
        if made.insert(directory.clone()) {
            let mode = if directory == "tmp" { 0o1777 } else { 0o755 };
            let mut header = header(0, mode);
            header.set_entry_type(tar::EntryType::Directory);
            tar.append_data(&mut header, format!("{directory}/"), io::empty()).map_err(failed())?;
        }
    }
    for (to, from) in &content {
        let opened = File::open(from).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (size, source) = opened.map_err(Error::io(format!("read {}", from.display())))?;
        tar.append_data(&mut header(size, 0o755), to, source).map_err(failed())?;
    }
    for (name, text) in files {
        append(&mut tar, name, text.as_bytes()).map_err(failed())?;
    }
    tar.into_inner().and_then(|mut rest| rest.flush()).map_err(failed())?;
    Ok(Layer { digest: digest_of(file).map_err(failed())?, file: file.to_owned() })
}

fn image(tag: &str, layers: &[&Layer], entrypoint: &[&str], variable: &str) -> (String, Value) {
    let digests: Vec<String> = layers.iter().map(|layer| format!("sha256:{}", layer.digest)).collect();
    let names: Vec<String> = layers.iter().map(|layer| layer.name()).collect();
    let config = json!({
        "architecture": architecture(), "os": "linux",
        "config": {"Entrypoint": entrypoint, "Env": ["PATH=/bin", variable], "WorkingDir": "/"},
        "rootfs": {"type": "layers", "diff_ids": digests},
    });
    let config = config.to_string();
    let name = format!("{}.json", hex(digest::digest(&digest::SHA256, config.as_bytes()).as_ref()));
    (config, json!({"Config": name, "RepoTags": [tag], "Layers": names}))
}

/// The architecture, as Go and containerd call it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The shared libraries of a program with their paths; none for a static one.
fn libraries(program: &Path) -> Result<Vec<String>, Error> {
    match output(Command::new("ldd").arg(program).env("LC_ALL", "C")) {
        Ok(text) => Ok(library_paths(&text)),
        Err(Error::Program { said, .. }) if said.contains("not a dynamic executable") => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// The paths in what `ldd` prints.
fn library_paths(text: &str) -> Vec<String> {
    let path = |line: &str| {
        let line = line.trim();
        let place = line.split_once("=> ").map_or(line, |(_, place)| place);
        let path = place.split_whitespace().next()?;
        path.starts_with('/').then(|| path.to_owned())
    };
    text.lines().filter_map(path).collect()
}

/// The directories above a path, outermost first.
fn parents(path: &str) -> Vec<String> {
    path.match_indices('/').map(|(at, _)| path[..at].to_owned()).collect()
}

fn append(tar: &mut tar::Builder<impl Write>, name: &str, bytes: &[u8]) -> io::Result<()> {
    tar.append_data(&mut header(bytes.len() as u64, 0o644), name, bytes)
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

fn digest_of(file: &Path) -> io::Result<String> {
    let mut context = digest::Context::new(&digest::SHA256);
    let mut source = File::open(file)?;
    let mut buffer = vec![0; 1 << 20];
    loop {
        let read = source.read(&mut buffer)?;
        if read == 0 {
            return Ok(hex(context.finish().as_ref()));
        }
        context.update(&buffer[..read]);
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_are_read_from_what_ldd_prints() {
        let text = "\tlinux-vdso.so.1 (0x00007f)\n\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f)\n\
            \t/lib64/ld-linux-x86-64.so.2 (0x00007f)\n\tlibgone.so => not found\n\tstatically linked\n";
        assert_eq!(library_paths(text), ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/ld-linux-x86-64.so.2"]);
        assert_eq!(parents("lib/x86/libc.so"), ["lib", "lib/x86"]);
    }

    #[test]
    fn an_archive_names_its_images_and_holds_their_layers() {
        let directory = tempfile::tempdir().unwrap();
        let program = PathBuf::from("/bin/true");
        let file = directory.path().join("images.tar");
        let programs = Programs { landfall: program.clone(), coredns: program };
        let layers = layers(&directory.path().join("layers"), &programs).unwrap();
        archive(&file, &layers, "us-east").unwrap();
        let mut tar = tar::Archive::new(File::open(&file).unwrap());
        let mut entries: BTreeMap<String, Vec<u8>> = BTreeMap::new();
        for entry in tar.entries().unwrap() {
            let mut entry = entry.unwrap();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes).unwrap();
            entries.insert(entry.path().unwrap().display().to_string(), bytes);
        }
        let manifest: Value = serde_json::from_slice(&entries["manifest.json"]).unwrap();
        let tags: Vec<&Value> =
            manifest.as_array().unwrap().iter().map(|image| &image["RepoTags"][0]).collect();
        assert_eq!(tags, [PAUSE, TOOLS, ECHO, LANDFALL, COREDNS]);
        for image in manifest.as_array().unwrap() {
            let config: Value = serde_json::from_slice(&entries[image["Config"].as_str().unwrap()]).unwrap();
            for (layer, id) in image["Layers"]
                .as_array()
                .unwrap()
                .iter()
                .zip(config["rootfs"]["diff_ids"].as_array().unwrap())
            {
                let bytes = &entries[layer.as_str().unwrap()];
                let digest = hex(digest::digest(&digest::SHA256, bytes).as_ref());
                assert_eq!(id, &format!("sha256:{digest}"));
            }
        }
        let echo: Value = serde_json::from_slice(&entries[manifest[2]["Config"].as_str().unwrap()]).unwrap();
        assert_eq!(echo["config"]["Env"][1], "CLUSTER_NAME=us-east");
    }
}
