//! What can go wrong with a rig, each with the way out.

use std::path::PathBuf;

/// Why a rig did not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Namespaces, mounts and containers are root's.
    #[error("the rig needs root: it makes network namespaces, mounts and containers (run it with sudo)")]
    NotRoot,
    /// Programs that it runs are not installed.
    #[error("the rig needs programs that are not here: {programs} (apt-get install {packages})")]
    Missing {
        /// What was looked for.
        programs: String,
        /// Where Debian has it.
        packages: String,
    },
    /// Nothing to build Kubernetes with.
    #[error(
        "{binaries} not found in LANDFALL_KUBE_ASSETS, PATH or {}, and building them needs Go: install Go \
         (https://go.dev/dl), or set LANDFALL_KUBE_ASSETS to a directory that has them", .cache.display()
    )]
    NoGo {
        /// What is missing.
        binaries: String,
        /// Where it would have been kept.
        cache: PathBuf,
    },
    /// A number out of bounds.
    #[error("{number} {what}: must be between 1 and {most}")]
    Size {
        /// Of what.
        what: &'static str,
        /// How many were asked for.
        number: usize,
        /// How many there can be.
        most: usize,
    },
    /// A name that cannot be part of a path and of a cgroup.
    #[error("a rig cannot be named {0:?}: at most 20 of a-z, 0-9 and '-'")]
    Name(String),
    /// No cluster, node or place has this name.
    #[error("there is no {name:?} in this rig; there are {known}")]
    Unknown {
        /// What was asked for.
        name: String,
        /// What there is.
        known: String,
    },
    /// All address blocks overlap with the host's routes.
    #[error(
        "every block from 10.200.0.0/16 to 10.239.0.0/16 overlaps with an address or a route of this machine"
    )]
    NoBlock,
    /// Somebody runs a rig of this name.
    #[error("a rig named {name:?} is running already (in {}): stop it with `cargo xtask rig down`, or choose another \
             name with --name", .directory.display())]
    Running {
        /// Its name.
        name: String,
        /// Its directory.
        directory: PathBuf,
    },
    /// The keeper could not make namespaces, or its directory.
    #[error("cannot make namespaces, or the directory {}: is it read-only (LANDFALL_CACHE names another place), or is \
             this a container without CAP_SYS_ADMIN?", .directory.display())]
    NoWorld {
        /// Its directory.
        directory: PathBuf,
    },
    /// Nobody runs a rig of this name.
    #[error("no rig named {0:?} is running: `cargo xtask rig up` starts one")]
    NotRunning(String),
    /// The owner asked to stop while something was being started.
    #[error("stopped before it was ready: {by}")]
    Stopped {
        /// Who asked, or which signal came.
        by: String,
    },
    /// A program failed.
    #[error("`{command}` failed ({status}): {said}")]
    Program {
        /// What was run.
        command: String,
        /// How it ended.
        status: String,
        /// The last of what it printed.
        said: String,
    },
    /// Something did not become what it should in time.
    #[error("{what} after {waited_s} s{detail}")]
    NotReady {
        /// What was awaited.
        what: String,
        /// How long.
        waited_s: u64,
        /// What is known about why, on lines of its own.
        detail: String,
    },
    /// The API server of a cluster refused or did not answer.
    #[error("{what}: {said}")]
    Api {
        /// What was asked of it.
        what: String,
        /// What came back.
        said: String,
    },
    /// A certificate could not be made.
    #[error("cannot make the certificate of {subject}")]
    Certificate {
        /// Whose.
        subject: String,
        /// Why.
        #[source]
        source: rcgen::Error,
    },
    /// A file or a process could not be worked with.
    #[error("cannot {what}")]
    Io {
        /// What was being done.
        what: String,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// Something that a running rig was asked over its socket; the words are the other side's.
    #[error("{0}")]
    Remote(String),
}

impl Error {
    /// For `map_err`: names what was being done.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }
}

/// The chain of causes on one line, as it is shown to people.
pub fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
